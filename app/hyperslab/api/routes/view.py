"""The viewer page: `/`, `/view/{path}` and its static files."""

from __future__ import annotations

import hashlib
from typing import Final

from hyperslab import viewer
from hyperslab.api.request import Request
from hyperslab.api.response import Response, page_response
from hyperslab.errors import RouteNotFound

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'none'"
)


def is_page(path: bytes) -> bool:
    """Whether a path, as it was sent, leads to the page or its files: they are the same for all and hold no data."""
    return path in (b"/", b"/view", b"/favicon.ico") or path.startswith((b"/view/", b"/viewer/static/"))


async def page(request: Request) -> Response:
    """The HTML page; it finds out in the browser what the path in its address holds."""
    body = viewer.load().page(request.root_path)
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }
    return _conditional(request, body, "text/html; charset=utf-8", headers)


async def static(request: Request) -> Response:
    """A file of the page: kept for ever under the digest of this version, never under another one.

    Raises `RouteNotFound`.
    """
    loaded = viewer.load()
    digest, _, name = request.scope["path"].partition("/viewer/static/")[2].partition("/")
    asset = loaded.files.get(name)
    if asset is None or name == viewer.PAGE:
        raise RouteNotFound(request.scope["path"])
    current = digest == loaded.digest
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if current else "no-store",
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    body = asset.body
    if asset.gzipped is not None and "gzip" in request.header(b"accept-encoding", ""):
        body = asset.gzipped
        headers["Content-Encoding"] = "gzip"
    return page_response(body, asset.media_type, headers)


async def favicon(request: Request) -> Response:
    """The mark of the page, for clients that ask for the old name."""
    asset = viewer.load().files["mark.svg"]
    return _conditional(request, asset.body, asset.media_type, {"Cache-Control": "public, max-age=86400"})


def _conditional(request: Request, body: bytes, media_type: str, headers: dict[str, str]) -> Response:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**headers, "ETag": tag}
    if tag in request.header(b"if-none-match", ""):
        return Response(304, tuple([(name.lower().encode(), value.encode()) for name, value in headers.items()]))
    return page_response(body, media_type, headers)
