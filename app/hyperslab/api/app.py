"""The application: all routes, and what stands around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from hyperslab.api import docs
from hyperslab.api.admission import Admission
from hyperslab.api.auth import PageCheck, Tokens
from hyperslab.api.context import Context
from hyperslab.api.metrics import Metrics
from hyperslab.api.middleware import Frame
from hyperslab.api.options import ApiOptions
from hyperslab.api.problems import REFUSAL, Refusal
from hyperslab.api.replay import ResponseCache
from hyperslab.api.routes import changes, edit, health, metadata, points, read, stream, tile, view, write, zarr
from hyperslab.api.threads import Threads, WriteThreads
from hyperslab.arrays.keys import KeyReader
from hyperslab.arrays.service import Service
from hyperslab.errors import MethodNotAllowed, RouteNotFound
from hyperslab.streams.service import Streams

Application = ASGIApp
"""What `create_app` makes, for those who must not know the framework."""


class _Routes(FastAPI):
    """FastAPI's routes without its middleware: what they raise comes out, and the `Frame` around all makes problems."""

    def build_middleware_stack(self) -> ASGIApp:
        routes = AsyncExitStackMiddleware(self.router)

        async def stack(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await routes(scope, receive, send)
            except HTTPException as error:
                if error.status_code == 405:
                    allowed = (error.headers or {}).get("Allow", "").split(", ")
                    raise MethodNotAllowed(scope["method"], sorted(allowed)) from error
                raise RouteNotFound(scope["path"]) from error

        return stack


def create_app(
    service: Service, options: ApiOptions | None = None, started: Callable[[], Mapping[str, Any]] = dict
) -> Application:
    """The whole HTTP interface over a service, which the application closes when it shuts down; ``started`` as in
    `hyperslab.asgi.create_app`."""
    options = options or ApiOptions()
    context = _context(service, options)
    app = _Routes(
        lifespan=_lifespan(context, started), openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.include_router(health.router(context))
    app.include_router(changes.router(context))
    app.router.routes.extend(view.routes())
    if options.docs:
        app.router.routes.extend(docs.routes(options))
    handlers = {}
    for module in (read, zarr, metadata, tile, points, write, edit, stream):
        handlers.update(module.handlers(context))
    tokens = Tokens(options.read_tokens, options.write_tokens, public=view.is_page)
    check = tokens.check if options.read_tokens or options.write_tokens else None
    frame = Frame(app, app.router.routes, handlers, context, check)
    app.state.refusal = Refusal(context.metrics, frame.cors_headers, options.idle_seconds)
    return frame


def _context(service: Service, options: ApiOptions) -> Context:
    remote = [mount.name for mount in service.catalog.mounts.values() if mount.is_remote]
    metrics = Metrics(service, options.metrics_folder)
    responses = ResponseCache(options.answer_cache_bytes)
    metrics.watch("answer", responses.stats)
    tokens = bool(options.read_tokens or options.write_tokens)
    return Context(
        service,
        options,
        Threads(options.request_threads, remote),
        WriteThreads(options.request_threads, remote, patience=options.queue_seconds),
        Admission(service.in_flight, patience=options.queue_seconds),
        metrics,
        KeyReader(service.catalog, service.reader),
        responses,
        PageCheck(options.cors_origins, options.allowed_hosts, tokens=tokens),
        Streams(service.catalog, service.reader, service.creator, service.in_flight),
    )


def _lifespan(context: Context, started: Callable[[], Mapping[str, Any]]) -> Any:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with context.metrics.sampled():
            yield {REFUSAL: app.state.refusal, **started()}
        context.writes.close()
        context.streams.close()
        context.threads.close()
        context.service.close()

    return lifespan
