"""Viewer page: static files that use the service's HTTP API, loaded once, with compressed bodies.

Their paths contain a digest of all contents (``/viewer/static/{digest}/main.js``), so that browsers may cache them
without expiry, and modules import each other by relative paths.
"""

from __future__ import annotations

import gzip
import hashlib
import html
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

STATIC: Final = Path(__file__).parent / "static"
PAGE: Final = "index.html"

_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """Static file; ``gzipped`` is None if compression does not make it smaller."""

    body: bytes
    gzipped: bytes | None
    media_type: str


@dataclass(frozen=True, slots=True)
class Assets:
    """All files by path below ``static/``, and the digest of their contents."""

    digest: str
    files: Mapping[str, Asset]

    def page(self, root: str) -> bytes:
        """The HTML page for a service mounted at ``root`` ("" or "/prefix")."""
        prefix = html.escape(root.rstrip("/"))
        template = self.files[PAGE].body.decode()
        modules = sorted(n for n in self.files if n.endswith(".js") and "/" not in n and n != "theme.js")  # a script
        preloads = "\n".join(f'  <link rel="modulepreload" href="{{{{static}}}}/{name}">' for name in modules)
        text = template.replace("  <!-- modules -->", preloads)
        return text.replace("{{static}}", f"{prefix}/viewer/static/{self.digest}").replace("{{root}}", prefix).encode()


@cache
def load() -> Assets:
    """Load all files from the package."""
    files: dict[str, Asset] = {}
    digest = hashlib.sha256()
    for path in sorted(STATIC.rglob("*")):
        if path.is_file() and path.suffix in _MEDIA_TYPES:
            name, body = path.relative_to(STATIC).as_posix(), path.read_bytes()
            gzipped = gzip.compress(body, 6, mtime=0)
            files[name] = Asset(body, gzipped if len(gzipped) < len(body) else None, _MEDIA_TYPES[path.suffix])
            digest.update(name.encode() + b"\0" + body)
    return Assets(digest.hexdigest()[:16], files)
