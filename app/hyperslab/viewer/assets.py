"""The files of the viewer page, read once and kept in memory with their compressed form.

All of them live under one path that holds a digest of their contents (``/viewer/static/{digest}/main.js``), so a
browser may keep them for ever and modules may import each other by relative names.
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
    """One file; ``gzipped`` is None where compression does not make it smaller."""

    body: bytes
    gzipped: bytes | None
    media_type: str


@dataclass(frozen=True, slots=True)
class Assets:
    """All files by their path under ``static/``; ``digest`` changes when any of them does."""

    digest: str
    files: Mapping[str, Asset]

    def page(self, root: str) -> bytes:
        """The HTML page for a service mounted at ``root`` ("" or "/prefix")."""
        prefix = html.escape(root.rstrip("/"))
        template = self.files[PAGE].body.decode()
        preloads = "\n".join(f'  <link rel="modulepreload" href="{{{{static}}}}/{name}">' for name in self._modules())
        text = template.replace("  <!-- modules -->", preloads)
        return text.replace("{{static}}", f"{prefix}/viewer/static/{self.digest}").replace("{{root}}", prefix).encode()

    def _modules(self) -> list[str]:
        """Names of the page's own ES modules: those next to the page, except the script that runs before them."""
        return sorted(name for name in self.files if name.endswith(".js") and "/" not in name and name != "theme.js")


@cache
def load() -> Assets:
    """Read every file of the page from the package."""
    files = {path.relative_to(STATIC).as_posix(): _read(path) for path in sorted(STATIC.rglob("*")) if _served(path)}
    digest = hashlib.sha256()
    for name, asset in files.items():
        digest.update(name.encode() + b"\0" + asset.body)
    return Assets(digest.hexdigest()[:16], files)


def _served(path: Path) -> bool:
    return path.is_file() and path.suffix in _MEDIA_TYPES


def _read(path: Path) -> Asset:
    body = path.read_bytes()
    gzipped = gzip.compress(body, 6, mtime=0)
    return Asset(body, gzipped if len(gzipped) < len(body) else None, _MEDIA_TYPES[path.suffix])
