"""``GET /v1/tile/{path}/…``: pictures of arrays for viewers, and what a viewer has to know to ask for them; the same by
Deep Zoom (``{path}.dzi``) and the IIIF Image API 3.0 (``iiif/{path}``).

The last segments of a path say what is wanted; everything before them is the node's path, whatever it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from hyperslab.api.context import Context
from hyperslab.api.middleware import Handler
from hyperslab.api.request import Request
from hyperslab.api.response import Reply, Response
from hyperslab.api.tile_reply import TileRoutes, document_reply, format_of, nothing_reply, rendering_reply
from hyperslab.errors import RouteNotFound, TileNotFound
from hyperslab.tiles import iiif
from hyperslab.tiles.dzi import descriptor, tile_region
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.info import histogram_document, info_document
from hyperslab.tiles.pyramid import Region
from hyperslab.tiles.service import Tiles

PREFIX: Final = "/v1/tile"

_Route = Callable[[TileRoutes, Request, re.Match[str]], Awaitable[Reply]]

_PICTURE: Final = r"\.(?P<fmt>png|jpe?g|webp)"
_PLACE: Final = r"(?P<z>\d{1,3})/(?P<x>-?\d{1,18})/(?P<y>-?\d{1,18})"
_IMAGE: Final = r"(?P<region>[^/]+)/(?P<size>[^/]+)/(?P<rotation>[^/]+)/(?P<file>[^/]+\.[^/]+)"
_DZI_PLACE: Final = r"(?P<level>\d{1,3})/(?P<x>\d{1,18})_(?P<y>\d{1,18})"
_LINKED_JSON: Final = 'application/ld+json;profile="http://iiif.io/api/image/3/context.json"'


def handlers(context: Context) -> dict[str, Handler]:
    """The route."""
    options = context.options
    tiles = Tiles(
        context.service.catalog,
        context.service.reader,
        cache_bytes=options.tile_cache_bytes,
        max_bytes=options.max_tile_bytes,
    )
    context.metrics.watch("tile", tiles.cache_stats)
    routes = TileRoutes(context, tiles, PREFIX)
    return {PREFIX: partial(get_tile, routes)}


async def get_tile(routes: TileRoutes, request: Request) -> Reply:
    """Answer GET and HEAD."""
    tail = request.tail
    # the alias gives way to a store of its name
    table = (
        _IIIF_ROUTES if tail.startswith("iiif/") and "iiif" not in routes.context.service.catalog.mounts else _ROUTES
    )
    for pattern, route in table:
        match = pattern.fullmatch(tail)
        if match is not None:
            return await route(routes, request, match)
    raise RouteNotFound(f"{PREFIX}/{tail}")


async def _get_tile(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    query = routes.query(request)
    fmt = format_of(match)
    place = int(match["z"]), int(match["x"]), int(match["y"])
    try:
        rendering = await routes.run_while_there(
            request, lambda cancel: routes.tiles.tile(match["path"], query, place, fmt, cancel)
        )
    except TileNotFound as error:
        return nothing_reply(routes, query, fmt, error)
    return await rendering_reply(routes, request, query, rendering)


async def _get_thumbnail(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    query = routes.query(request)
    rendering = await routes.run_while_there(
        request, lambda cancel: routes.tiles.thumbnail(match["path"], query, format_of(match), cancel)
    )
    return await rendering_reply(routes, request, query, rendering)


async def _get_info(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    query = routes.query(request)
    base, suffix = routes.url(request, match["path"]), routes.query_suffix(request)
    document = await routes.run_while_there(
        request, lambda cancel: info_document(routes.tiles, match["path"], query, base, suffix, cancel=cancel)
    )
    return document_reply(routes, match["path"], document)


async def _get_histogram(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    query = routes.query(request)
    document = await routes.run_while_there(
        request, lambda cancel: histogram_document(routes.tiles, match["path"], query, cancel)
    )
    return document_reply(routes, match["path"], document)


async def _get_legend(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    query = routes.query(request)
    image = await routes.context.threads.run(routes.tiles.legend, match["path"], query)
    return document_reply(routes, match["path"], image, media_type="image/png")


async def _get_dzi(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """The ``.dzi`` document; viewers send its query with every tile."""
    query = routes.query(request)
    frame = await routes.context.threads.run(routes.tiles.frame, match["path"], query)
    text = descriptor(frame.grid, overlap=query.overlap, fmt=query.format)
    return document_reply(routes, match["path"], text.encode(), media_type="application/xml")


async def _get_dzi_tile(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """A Deep Zoom tile, cut at the edges."""
    query = routes.query(request)
    fmt = format_of(match)
    place = int(match["level"]), int(match["x"]), int(match["y"])

    def choose(frame: Frame) -> Region:
        region = tile_region(frame.grid, *place, overlap=query.overlap)
        if region is None:
            raise TileNotFound(match["path"], "{}/{}_{}".format(*place), "the image has no such tile")
        return region

    try:
        rendering = await routes.run_while_there(
            request, lambda cancel: routes.tiles.region(match["path"], query, fmt, choose, cancel)
        )
    except TileNotFound as error:
        return nothing_reply(routes, query, fmt, error)
    return await rendering_reply(routes, request, query, rendering)


async def _get_iiif_base(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """The URI of the image itself leads to its description (Image API 3.0 §2)."""
    await routes.context.threads.run(routes.tiles.frame, match["path"], routes.query(request))
    target = routes.url(request, f"iiif/{match['path']}/info.json") + routes.query_suffix(request)
    return Response(303, ((b"location", target.encode("latin-1")), (b"cache-control", b"no-cache")))


async def _get_iiif_info(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """The description of the image service."""
    query = routes.query(request)
    frame = await routes.context.threads.run(routes.tiles.frame, match["path"], query)
    identifier = routes.url(request, f"iiif/{match['path']}")
    document = iiif.info_document(frame.grid, identifier, partial(routes.tiles.reader.allows, frame))
    return document_reply(routes, match["path"], document, media_type=_LINKED_JSON)


async def _get_iiif_image(routes: TileRoutes, request: Request, match: re.Match[str]) -> Reply:
    """A part of the image in any size that is not larger than it is."""
    query = routes.query(request)
    wanted = iiif.parse_request(match["region"], match["size"], match["rotation"], match["file"])
    draw = partial(routes.tiles.region, after=wanted.finished, label=wanted.finish)
    rendering = await routes.run_while_there(
        request,
        lambda cancel: draw(match["path"], query, wanted.fmt, lambda frame: wanted.region(frame.grid), cancel),
    )
    return await rendering_reply(routes, request, query, rendering)


_ROUTES: Final[tuple[tuple[re.Pattern[str], _Route], ...]] = (
    (re.compile(rf"(?P<path>.+)/{_PLACE}\.(?P<fmt>png|jpe?g|webp|npy|raw)", re.ASCII), _get_tile),
    (re.compile(r"(?P<path>.+)/info\.json"), _get_info),
    (re.compile(rf"(?P<path>.+)/thumbnail{_PICTURE}"), _get_thumbnail),
    (re.compile(r"(?P<path>.+)/histogram\.json"), _get_histogram),
    (re.compile(r"(?P<path>.+)/legend\.png"), _get_legend),
    (re.compile(r"(?P<path>.+)\.dzi"), _get_dzi),
    (re.compile(rf"(?P<path>.+)_files/{_DZI_PLACE}{_PICTURE}", re.ASCII), _get_dzi_tile),
)
_IIIF_ROUTES: Final[tuple[tuple[re.Pattern[str], _Route], ...]] = (
    (re.compile(r"iiif/(?P<path>.+)/info\.json"), _get_iiif_info),
    (re.compile(rf"iiif/(?P<path>.+)/{_IMAGE}"), _get_iiif_image),
    (re.compile(r"iiif/(?P<path>.+)"), _get_iiif_base),
)
