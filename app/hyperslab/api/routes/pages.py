"""Pages about the routes: ``/openapi.json``, the same for people at ``/docs``, and in short at ``/v1``.

``/docs`` is Swagger UI, as of every FastAPI application, but with all of its files from here.
"""

from __future__ import annotations

import html
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI, Query, Request

from hyperslab import __version__, viewer
from hyperslab.api import docs
from hyperslab.api.params import NoQuery
from hyperslab.api.response import Response, json_body, page_response
from hyperslab.api.routes.view import asset_response
from hyperslab.api.routing import Route
from hyperslab.errors import RouteNotFound
from hyperslab.wire import HTML, JSON

STATIC: Final = Path(__file__).parent.parent / "static"
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'; "
    "form-action 'none'"
)
"""Swagger UI sets styles of elements."""

router = APIRouter(tags=["pages"], default_response_class=Response, route_class=Route)


@router.get("/openapi.json", name="openapi", summary="Describe these routes for programs", responses=docs.page(JSON))
async def openapi_json(request: Request) -> Response:
    """As OpenAPI 3.1. Its server is the path below which the service is."""
    root = request.scope.get("root_path", "")
    servers = {"servers": [{"url": root}]} if root else {}
    return page_response(json_body({**await described(request.app), **servers}), JSON, {"cache-control": "no-cache"})


@router.get("/docs", name="docs", summary="Describe these routes for people", responses=docs.page(HTML))
async def docs_page(request: Request) -> Response:
    """Where they can be tried."""
    root = html.escape(request.scope.get("root_path", ""))
    static, digest = f"{root}/docs/static", assets().digest
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Hyperslab: routes</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<link rel="icon" href="{root}/favicon.ico">',
        f'<link rel="stylesheet" href="{static}/{digest}/swagger-ui.css">',
        f'<script defer src="{static}/{digest}/swagger-ui-bundle.js"></script>',
        f'<script defer src="{static}/{digest}/start.js"></script></head>',
        f'<body><div id="docs" data-url="{root}/openapi.json"></div></body></html>\n',
    ]
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }
    return page_response("\n".join(parts).encode(), HTML, headers)


@router.get("/docs/static/{digest:last}/{name:last}", name="docs", include_in_schema=False)
async def docs_file(request: Request, digest: str, name: str) -> Response:
    """A file of the page. Raises `RouteNotFound`."""
    asset = assets().files.get(name)
    if asset is None:
        raise RouteNotFound(request.scope["path"])
    return asset_response(request, asset, is_current=digest == assets().digest)


@router.get("/v1/", name="index", include_in_schema=False)
@router.get("/v1", name="index", summary="List these routes in short", responses=docs.page(JSON))
async def index(
    request: Request,
    query: Annotated[NoQuery, Query()],  # noqa: ARG001 - refuses all
) -> Response:
    """With links to their descriptions."""
    root = request.scope.get("root_path", "")
    listed = [
        {"method": method.upper(), "path": path, "summary": operation["summary"]}
        for path, method, operation in docs.operations(await described(request.app))
    ]
    links = {name: f"{root}/{name}" for name in ("docs", "openapi.json", "v1/metadata")}
    document: dict[str, Any] = {"service": "hyperslab", "version": __version__, "links": links, "routes": listed}
    return page_response(json_body(document), JSON, {"cache-control": "no-cache"})


async def described(app: FastAPI) -> docs.Json:
    """The OpenAPI document, made in a thread, as it takes 0.2 s, once for all who ask meanwhile."""
    async with app.state.describing:
        document: docs.Json = await app.state.services.threads.run(app.openapi)
    return document


@cache
def assets() -> viewer.Assets:
    """The files of the page."""
    return viewer.load(STATIC)
