"""The application: all routes and middleware."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from hyperslab import __version__
from hyperslab.api import docs
from hyperslab.api.middleware.access import Access
from hyperslab.api.middleware.cors import Cors, preflight
from hyperslab.api.middleware.edge import Edge, printable, route_path
from hyperslab.api.middleware.metrics import METHODS, RequestCounter
from hyperslab.api.middleware.problems import Problems
from hyperslab.api.middleware.replay import Replay
from hyperslab.api.options import ApiOptions
from hyperslab.api.params import refusal
from hyperslab.api.response import PATIENCE, Response
from hyperslab.api.routes import (
    append,
    changes,
    chunk,
    health,
    link,
    metadata,
    pages,
    plan,
    points,
    slice,  # noqa: A004
    stream,
    tile,
    view,
    zarr,
)
from hyperslab.api.services import make_services
from hyperslab.arrays.service import Service
from hyperslab.errors import MethodNotAllowed, RouteNotFound
from hyperslab.tiles.query import REPEATABLE

BY_LABELS: Final = ("/v1/slice/", "/v1/plan/", "/v1/points/")
Application = FastAPI
"""Type of the application, from `create_app`."""
ROUTERS: Final = (
    *(slice.router, chunk.router, zarr.router, tile.iiif_router, tile.router),  # by heat: each costs those behind it
    *(metadata.router, stream.router, points.router, plan.router, append.router, changes.router),
    *(zarr.router_of_v2, zarr.router_of_v3, link.router),
    *(view.router, health.router, pages.router),
)


def create_app(
    service: Service, options: ApiOptions | None = None, started: Callable[[], Mapping[str, Any]] = dict
) -> FastAPI:
    """The HTTP interface of a service, closed at shutdown; ``started`` as in `hyperslab.asgi.create_app`."""
    options = options or ApiOptions()
    services, is_over = make_services(service, options), False

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Any]]:
        nonlocal is_over
        if is_over:  # else each request would be a 500
            raise RuntimeError("this application has shut down and closed its stores: create_app makes another one")
        async with services.metrics.sampled():
            yield {PATIENCE: options.idle_seconds, **started()}
        is_over = True
        services.close()

    has_alias = "iiif" not in service.catalog.mounts
    app = FastAPI(
        title="Hyperslab",
        version=__version__,
        lifespan=lifespan,
        routes=included(has_alias).routes,
        openapi_url=None,  # ours is a route like others
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # 6 µs of each request to find that it is off
    )
    app.state.services = services
    # the order of a request; the last one added is the first
    middleware: Sequence[tuple[Any, Mapping[str, Any]]] = (
        (Edge, {"repeatable": {"/v1/tile/": REPEATABLE, **dict.fromkeys(BY_LABELS, ("sel",))}}),
        (Access, {"guard": services.guard}),
        (Cors, {"origins": options.cors_origins}),
        (RequestCounter, {"metrics": services.metrics}),
        (Problems, {"services": services}),
        (Replay, {"responses": services.responses}),
    )
    for layer, arguments in reversed(middleware):
        app.add_middleware(layer, **arguments)

    @app.exception_handler(RequestValidationError)
    async def refuse_parameters(request: Request, error: RequestValidationError) -> Response:
        raise refusal(request, error.errors()) from error

    @app.exception_handler(HTTPException)
    async def refuse_route(request: Request, error: HTTPException) -> Response:
        """Answer to a request that no route takes: OPTIONS is answered with the methods of the path."""
        method, methods = request.method, methods_of(has_alias, route_path(request.scope))
        if method == "OPTIONS":
            return preflight([*methods, method], request.headers.get("access-control-request-headers", ""))
        if methods:
            raise MethodNotAllowed(method, [*methods, "OPTIONS"]) from error
        path = route_path(request.scope)
        is_page = method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
        if is_page and path.strip("/").partition("/")[0] in service.catalog.mounts:  # as people guess addresses
            place = f"{request.scope.get('root_path', '')}/view/{quote(path.strip('/'), errors='surrogateescape')}"
            return Response(307, ((b"location", place.encode()), (b"vary", b"Accept")))
        raise RouteNotFound(printable(request.scope["path"])) from error

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = docs.describe(app, options)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation has it
    app.state.describing = asyncio.Lock()
    return app


def routers(has_alias: bool) -> list[APIRouter]:
    """The routers, with the alias for IIIF or without."""
    return [candidate for candidate in ROUTERS if has_alias or candidate is not tile.iiif_router]


@cache
def included(has_alias: bool) -> APIRouter:
    """A router with the routes of all others. Applications of one process share it, as FastAPI analyses each route
    anew for each router that includes it."""
    router = APIRouter()
    for routed in routers(has_alias):
        router.include_router(routed)
    return router


def methods_of(has_alias: bool, path: str) -> list[str]:
    """The methods of a path."""
    routes = [route for router in routers(has_alias) for route in router.routes if isinstance(route, APIRoute)]
    methods = {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
    return [method for method in METHODS if method in methods or (method == "HEAD" and "GET" in methods)]
