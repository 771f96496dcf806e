"""The viewer page: `/`, `/view/{path}` and its static files."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Request

from hyperslab import errors, viewer
from hyperslab.api import docs
from hyperslab.api.exchange import Exchange
from hyperslab.api.representation import Representation
from hyperslab.api.response import Response, etag_of, page_response
from hyperslab.api.routing import Route
from hyperslab.errors import RouteNotFound
from hyperslab.wire import HTML

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'none'"
)
PAGE: Final = docs.problems(errors.PreconditionFailed, errors.RangeNotSatisfiable) | docs.found(docs.content(HTML))
READING: Final = docs.headers(*docs.READING)

router = APIRouter(tags=["pages"], default_response_class=Response, route_class=Route)


@router.get("/", name="view", summary="Show the viewer", responses=PAGE, openapi_extra=READING)
@router.get("/view", name="view", include_in_schema=False)
async def home(request: Request) -> Response:
    """The stores."""
    return await _page(request)


@router.get(
    "/view/{path:node}", name="view", summary="Show the viewer on a node", responses=PAGE, openapi_extra=READING
)
async def view(
    request: Request,
    path: Annotated[str, Path(description="The node; the script of the page reads it.", examples=["demo/brain"])],  # noqa: ARG001
) -> Response:
    """Its query is the state of the page."""
    return await _page(request)


@router.get("/viewer/static/{digest:last}/{name:node}", name="view", include_in_schema=False)
async def static(request: Request, digest: str, name: str) -> Response:
    """A static file: immutable under the digest of this version, absent under others.

    Raises `RouteNotFound`.
    """
    loaded = viewer.load()
    asset = loaded.files.get(name)
    if asset is None or name == viewer.PAGE:
        raise RouteNotFound(request.scope["path"])
    return asset_response(request, asset, is_current=digest == loaded.digest)


@router.get("/favicon.ico", name="view", include_in_schema=False)
async def favicon(request: Request) -> Response:
    """The icon of the page, under its traditional name."""
    asset = viewer.load().files["mark.svg"]
    return await _conditional(request, asset.body, asset.media_type, {"Cache-Control": "public, max-age=86400"})


async def _page(request: Request) -> Response:
    body = viewer.load().page(request.scope.get("root_path", ""))
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }
    return await _conditional(request, body, "text/html; charset=utf-8", headers)


def asset_response(request: Request, asset: viewer.Asset, *, is_current: bool) -> Response:
    """A static file, compressed if the client takes that."""
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable" if is_current else "no-store",
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    body = asset.body
    if asset.gzipped is not None and "gzip" in request.headers.get("accept-encoding", ""):
        body = asset.gzipped
        headers["Content-Encoding"] = "gzip"
    return page_response(body, asset.media_type, headers)


async def _conditional(request: Request, body: bytes, media_type: str, headers: dict[str, str]) -> Response:
    always = tuple([(name.lower().encode(), value.encode()) for name, value in headers.items()])
    return await Representation(etag_of(body), media_type, body, always=always).respond(Exchange(request))
