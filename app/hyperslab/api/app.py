"""The application: all routes and middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from starlette.routing import Router
from starlette.types import ASGIApp

from hyperslab.api import docs
from hyperslab.api.admission import Admission
from hyperslab.api.auth import Guard
from hyperslab.api.metrics import Metrics
from hyperslab.api.middleware import Handler, HttpApp
from hyperslab.api.options import ApiOptions
from hyperslab.api.propfind import propfind
from hyperslab.api.replay import ResponseCache
from hyperslab.api.request import Context
from hyperslab.api.response import PATIENCE, REPLAY
from hyperslab.api.routes import changes, edit, health, metadata, points, read, stream, tile, view, write, zarr
from hyperslab.api.threads import Threads, WriteThreads
from hyperslab.arrays.faces import FORMATS, FaceReader
from hyperslab.arrays.keys import KeyReader
from hyperslab.arrays.service import Service
from hyperslab.streams.service import Streams
from hyperslab.tiles.service import Tiles

Application = ASGIApp
"""Type of the application, from `create_app`."""

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    ("GET", "/v1/slice"): read.get_slice,
    ("PUT", "/v1/slice"): write.put_slice,
    ("GET", "/v1/chunk"): read.get_chunk,
    ("PUT", "/v1/chunk"): write.put_chunk,
    ("DELETE", "/v1/chunk"): write.delete_chunk,
    ("GET", "/v1/plan"): read.get_plan,
    ("POST", "/v1/append"): write.append,
    ("POST", "/v1/points"): points.post_points,
    ("GET", "/v1/metadata"): metadata.get_metadata,
    ("PUT", "/v1/metadata"): edit.put_node,
    ("PATCH", "/v1/metadata"): edit.patch_node,
    ("DELETE", "/v1/metadata"): edit.delete_node,
    ("GET", "/v1/tile"): tile.get_tile,
    ("GET", "/v1/changes"): changes.get_changes,
    ("GET", "/v1/stream"): stream.get_stream,
    ("PUT", "/v1/stream"): stream.put_stream,
    ("PATCH", "/v1/stream"): stream.patch_stream,
    ("POST", "/v1/stream"): stream.post_stream,
    ("DELETE", "/v1/stream"): stream.delete_stream,
    ("GET", "/zarr"): zarr.get_key,
    ("GET", "/zarr2"): zarr.get_key,
    ("GET", "/zarr3"): zarr.get_key,
    ("PROPFIND", "/zarr"): propfind,
    ("PUT", "/zarr"): write.put_key,
    ("DELETE", "/zarr"): write.delete_key,
}
"""By method and front of the path, behind which the path of a node or a key follows."""
PAGES: Final[Mapping[str, Handler]] = {
    "/": view.page,
    "/view(/.*)?": view.page,
    "/viewer/static/[^/]+/.*": view.static,
    "/favicon.ico": view.favicon,
    "/v1/?": docs.index,
    "/openapi.json": docs.openapi_json,
    "/docs": docs.docs,
    "/healthz": health.healthz,
    "/readyz": health.readyz,
    "/metrics": health.metrics,
    "/problems/[^/]+": health.problem_code,
}
"""By a pattern of their path."""


def create_app(
    service: Service, options: ApiOptions | None = None, started: Callable[[], Mapping[str, Any]] = dict
) -> Application:
    """The HTTP interface of a service, closed at shutdown; ``started`` as in `hyperslab.asgi.create_app`."""
    options = options or ApiOptions()
    remote = [mount.name for mount in service.catalog.mounts.values() if mount.is_remote]
    sizes = {"cache_bytes": options.tile_cache_bytes, "max_bytes": options.max_tile_bytes}
    context = Context(
        service=service,
        streams=Streams(service.catalog, service.reader, service.creator, service.in_flight),
        tiles=Tiles(service.catalog, service.reader, **sizes),
        keys={
            "/zarr": KeyReader(service.catalog, service.reader),
            **{f"/zarr{number}": FaceReader(service.catalog, service.reader, number) for number in FORMATS},
        },
        options=options,
        threads=Threads(options.request_threads, remote),
        writes=WriteThreads(options.request_threads, remote, patience=options.queue_seconds),
        admission=Admission(service.in_flight, patience=options.queue_seconds),
        metrics=Metrics(service, options.metrics_folder),
        responses=ResponseCache(options.answer_cache_bytes),
        guard=Guard(options, public=view.is_page),
    )
    context.metrics.watch("answer", context.responses.stats)
    context.metrics.watch("tile", context.tiles.cache_stats)

    @asynccontextmanager
    async def lifespan(_: ASGIApp) -> AsyncIterator[dict[str, Any]]:
        async with context.metrics.sampled():
            yield {PATIENCE: options.idle_seconds, REPLAY: app.replay, **started()}
        context.writes.close()
        context.streams.close()
        context.threads.close()
        service.close()

    app = HttpApp(HANDLERS, PAGES, context, Router(lifespan=lifespan))
    return app
