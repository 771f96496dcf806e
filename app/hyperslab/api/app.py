"""The application: all routes, and what stands around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any, NoReturn

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from hyperslab import __version__
from hyperslab.api import docs_page
from hyperslab.api.admission import Admission
from hyperslab.api.auth import Tokens
from hyperslab.api.board import shared
from hyperslab.api.context import Context
from hyperslab.api.cors import Cors
from hyperslab.api.description import describe
from hyperslab.api.guard import Guard
from hyperslab.api.metrics import Metrics, Observed
from hyperslab.api.openapi import Members
from hyperslab.api.options import ApiOptions
from hyperslab.api.pages import PageCheck
from hyperslab.api.refusal import STATE, Refusal
from hyperslab.api.replay import Replay, ResponseCache
from hyperslab.api.routes import chunk, edit, health, metadata, plan, points, put_key, tile, view, write, zarr
from hyperslab.api.routes import slice as slices
from hyperslab.api.routing import Endpoint, Endpoints
from hyperslab.api.threads import Threads
from hyperslab.api.write_threads import WriteThreads
from hyperslab.arrays.keys import KeyReader
from hyperslab.arrays.service import Service
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import BadParameter, MethodNotAllowed, RouteNotFound
from hyperslab.wire import HTML, JSON

_DESCRIPTION = "Zarr arrays as URLs that can be sliced, tiled, written and resized."

Application = ASGIApp
"""What `create_app` makes, for those who must not know the framework."""


class _Routes(FastAPI):
    """FastAPI's routes. What they raise comes out as it is: the `Guard` around everything makes problems of it."""

    def build_middleware_stack(self) -> ASGIApp:
        stack = super().build_middleware_stack()
        return stack.app if isinstance(stack, ServerErrorMiddleware) else stack


def create_app(service: Service, options: ApiOptions | None = None) -> Application:
    """The whole HTTP interface over a service, which the application closes when it shuts down."""
    options = options or ApiOptions()
    context = _context(service, options)
    endpoints = _endpoints(context)
    app = _Routes(
        title="Hyperslab",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=_lifespan(context),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse)
    app.include_router(health.router(context))
    for routes in (points, write, edit, put_key):
        app.include_router(routes.router(context))
    app.router.routes.extend(view.routes())
    if options.docs:
        app.router.routes.extend(_documentation(cache(partial(describe, app, endpoints, options))))
    return _wrapped(app, context, endpoints)


def _context(service: Service, options: ApiOptions) -> Context:
    mounts = service.catalog.mounts.values()
    far = [mount.name for mount in mounts if mount.is_far]
    metrics, threads = Metrics(service), Threads(options.request_threads, far)
    tokens = bool(options.read_tokens or options.write_tokens)
    responses = ResponseCache(options.answer_cache_bytes, service.reader.versions)
    metrics.watch("answer", responses.stats)
    return Context(
        service,
        options,
        threads,
        WriteThreads(options.request_threads, far, patience=options.queue_seconds),
        Admission(service.in_flight, patience=options.queue_seconds),
        metrics,
        KeyReader(service.catalog),
        responses,
        PageCheck(options.cors_origins, options.allowed_hosts, tokens=tokens),
    )


def _endpoints(context: Context) -> list[Endpoint]:
    return [module.endpoint(context) for module in (metadata, slices, chunk, plan, tile, zarr)]


def _wrapped(app: FastAPI, context: Context, endpoints: Sequence[Endpoint]) -> Application:
    """From the inside out. The endpoints stand before the framework, whose layers cost as much as a small answer."""
    options = context.options
    served = Endpoints(app, endpoints, app.router.routes)
    readers, writers = options.read_tokens, options.write_tokens
    replayed = Replay(served, context.responses)
    if readers or writers:
        checked: Application = Tokens(replayed, readers=readers, writers=writers, public=view.is_page)
    else:
        checked = replayed
    guarded = Guard(checked, metrics=context.metrics)
    observed = Observed(guarded, metrics=context.metrics)
    cors = Cors(observed, origins=options.cors_origins, methods=served.methods)
    app.state.refusal = Refusal(context.metrics, cors.headers, options.idle_seconds)
    return cors


def _lifespan(context: Context) -> Any:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with shared(context.metrics, context.options.metrics_folder):
            yield {STATE: app.state.refusal}
        context.writes.close()
        context.threads.close()
        context.service.close()

    return lifespan


async def _refuse(request: Request, error: Exception) -> NoReturn:
    """Turn what the framework raises into errors of ours, which the guard turns into problems."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        raise BadParameter(str(first["loc"][-1]), first.get("input"), first["msg"]) from error
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "").split(", ")
        raise MethodNotAllowed(request.method, sorted(allowed)) from error
    if isinstance(error, HTTPException) and error.status_code == 404:
        raise RouteNotFound(request.url.path) from error
    raise error


def _documentation(description: Callable[[], Members]) -> list[Route]:
    async def openapi_json(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        servers = {"servers": [{"url": root}]} if root else {}
        return Response(dump_json({**description(), **servers}), media_type=JSON, headers={"cache-control": "no-cache"})

    async def docs(request: Request) -> Response:
        page = docs_page.render(description(), request.scope.get("root_path", ""))
        return Response(page, media_type=HTML, headers=docs_page.HEADERS)

    async def index(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        routes = [
            {"method": method.upper(), "path": path, "summary": told.get("summary", "")}
            for path, methods in description()["paths"].items()
            for method, told in methods.items()
        ]
        links = {name: f"{root}/{name}" for name in ("docs", "openapi.json", "v1/metadata")}
        listed = {"service": "hyperslab", "version": __version__, "links": links, "routes": routes}
        return Response(dump_json(listed), media_type=JSON, headers={"cache-control": "no-cache"})

    return [
        Route("/v1", index, include_in_schema=False),
        Route("/v1/", index, include_in_schema=False),
        Route("/openapi.json", openapi_json, include_in_schema=False),
        Route("/docs", docs, include_in_schema=False),
    ]
