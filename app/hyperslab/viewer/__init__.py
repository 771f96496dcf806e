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
def load(folder: Path = STATIC) -> Assets:
    """Load all files of a folder of the package; large ones are stored compressed, as ``….gz``."""
    files: dict[str, Asset] = {}
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name, is_compressed = path.relative_to(folder).as_posix().removesuffix(".gz"), path.suffix == ".gz"
        suffix = Path(name).suffix
        if path.is_file() and suffix in _MEDIA_TYPES:
            stored = path.read_bytes()
            body = gzip.decompress(stored) if is_compressed else stored
            gzipped = stored if is_compressed else gzip.compress(body, 6, mtime=0)
            files[name] = Asset(body, gzipped if len(gzipped) < len(body) else None, _MEDIA_TYPES[suffix])
            digest.update(name.encode() + b"\0" + body)
    return Assets(digest.hexdigest()[:16], files)
