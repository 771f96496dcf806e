"""``GET /v1/tile/{path}/…``: images of arrays for viewers, and their descriptions; the same by Deep Zoom
(``{path}.dzi``) and the IIIF Image API 3.0 (``iiif/{path}``).

The last segments of a path name the resource; all before them is the node's path, whatever it contains.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from secrets import token_bytes
from time import perf_counter
from typing import Any, Final, TypeVar
from urllib.parse import quote

from hyperslab.api.replay import Sources
from hyperslab.api.representation import Body, Content, Reply, Representation
from hyperslab.api.request import Request, query_pairs
from hyperslab.api.response import Headers, Response, array_headers, caching, cost_headers, etag_of, immutable_for
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.arrays.cancel import Cancel
from hyperslab.arrays.chunks import ReadCost
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import ChangedWhileRead, RouteNotFound, TileNotFound
from hyperslab.tiles import iiif
from hyperslab.tiles.encode import MEDIA_TYPES
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.info import dzi_document, histogram_document, info_document
from hyperslab.tiles.pyramid import Region
from hyperslab.tiles.query import TileQuery, parse_query
from hyperslab.tiles.service import Encoded, Rendering, Tiles
from hyperslab.wire import JSON

T = TypeVar("T")

_PICTURE: Final = r"\.(?P<fmt>png|jpe?g|webp)"


async def get_tile(request: Request) -> Reply:
    """Answer GET and HEAD."""
    tail = request.tail
    # a store of this name takes precedence
    is_iiif = tail.startswith("iiif/") and "iiif" not in request.service.catalog.mounts
    for pattern, route in _IIIF_ROUTES if is_iiif else _ROUTES:
        match = pattern.fullmatch(tail)
        if match is not None:
            text = request.scope["query_string"].decode("latin-1")
            query = parse_query(query_pairs(request.scope["query_string"], 200))
            tile = _TileRequest(request.context.tiles, request, match["path"], query, f"?{text}" if text else "")
            return await route(tile, match)
    raise RouteNotFound(f"/v1/tile/{tail}")


@dataclass(frozen=True, slots=True)
class _TileRequest:
    """A request for a resource of the node at ``path``; ``suffix``: its query as sent, with its question mark."""

    tiles: Tiles
    request: Request
    path: str
    query: TileQuery
    suffix: str

    async def run(self, fn: Callable[[Cancel], T]) -> T:
        """Call a slow function in a thread, cancelled when the client leaves."""
        async with cancelled_when_gone(self.request.receive) as cancel:
            return await self.request.run(fn, cancel)

    async def frame(self) -> Frame:
        """The frame of the image."""
        return await self.request.run(self.tiles.frame, self.path, self.query)

    def url(self, tail: str) -> str:
        """The absolute URL of a path below the prefix, for viewers on other sites."""
        scope = self.request.scope
        host = self.request.header(b"host") or ":".join(map(str, scope.get("server") or ("localhost",)))
        return f"{scope['scheme']}://{host}{self.request.root_path}/v1/tile/{quote(tail)}"

    def document(self, document: bytes | dict[str, Any], media_type: str = JSON) -> Reply:
        """A small document, with a tag of its bytes."""
        data = document if isinstance(document, bytes) else dump_json(document)
        mount = self.request.service.catalog.mounts.get(self.path.partition("/")[0])
        always = caching(mount, self.request.context.options)
        return Representation(etag_of(data), media_type, data, always=always)

    async def picture(self, fmt: str, render: Callable[[Cancel], Rendering], empty: str = "404") -> Reply:
        """An image or numbers; cached ones are sent at once, and 304 draws nothing. ``empty``: replacement of a missing
        tile."""
        request, query, options = self.request, self.query, self.request.context.options
        try:
            rendering = await self.run(render)
        except TileNotFound:
            if empty == "204":
                return Response(204, ((b"cache-control", b"no-cache"),))
            if empty == "404" or fmt in ("npy", "raw"):
                raise
            data = self.tiles.empty(query, fmt)
            return Representation(etag_of(data), MEDIA_TYPES[fmt], data)
        etag, found = f'"{rendering.tag}"', rendering.sources
        # a replayed tile reports the cost of a cached one
        sources = Sources(rendering.mount, (*found,), [*found.values()], 0, until=rendering.until) if found else None
        picture = Representation(
            etag,
            rendering.media_type,
            Body(None, rendering.memory, make=partial(_draw, rendering, request)),
            # a version in the URL changes with the data
            always=caching(rendering.mount, options) if query.v is None else immutable_for(31_536_000, options),
            sources=sources,
        )
        cached = rendering.cached()
        if cached is None and request.method == "HEAD" and request.conditions.check(etag):
            drawn = await self.run(lambda cancel: rendering.draw(cancel, ReadCost()))
            cached = None if drawn.changed else drawn
        if cached is None:
            return picture
        return picture.with_content(_content(cached, cost_headers(0, 0, None, {})))


def _draw(rendering: Rendering, request: Request, cancel: Cancel) -> Content:
    cost = ReadCost()
    began = perf_counter()
    encoded = rendering.draw(cancel, cost)
    headers = cost_headers(cost.touched, cost.cached, cost, {"draw": perf_counter() - began})
    if encoded.changed and not request.is_last_try:
        raise ChangedWhileRead(f"{request.tail!r} was written while it was read")
    # mixed versions are acceptable in the end, with a unique tag
    etag = etag_of(token_bytes()) if encoded.changed else None
    return _content(encoded, headers, etag)


def _content(encoded: Encoded, cost: Headers, etag: str | None = None) -> Content:
    shape, dtype = encoded.shape, encoded.dtype  # None for images
    headers = () if shape is None or dtype is None else array_headers(shape, dtype)
    return Content(encoded.body, headers, cost, etag)


_Route = Callable[[_TileRequest, re.Match[str]], Awaitable[Reply]]


async def _get_tile(tile: _TileRequest, match: re.Match[str]) -> Reply:
    fmt, place = match["fmt"].replace("jpeg", "jpg"), (int(match["z"]), int(match["x"]), int(match["y"]))
    draw, query = tile.tiles.tile, tile.query
    return await tile.picture(fmt, lambda cancel: draw(tile.path, query, place, fmt, cancel), query.empty)


async def _get_thumbnail(tile: _TileRequest, match: re.Match[str]) -> Reply:
    fmt = match["fmt"].replace("jpeg", "jpg")
    return await tile.picture(fmt, lambda cancel: tile.tiles.thumbnail(tile.path, tile.query, fmt, cancel))


async def _get_info(tile: _TileRequest, _: re.Match[str]) -> Reply:
    info = partial(info_document, tile.tiles, tile.path, tile.query, tile.url(tile.path), tile.suffix)
    return tile.document(await tile.run(lambda cancel: info(cancel=cancel)))


async def _get_histogram(tile: _TileRequest, _: re.Match[str]) -> Reply:
    return tile.document(await tile.run(partial(histogram_document, tile.tiles, tile.path, tile.query)))


async def _get_legend(tile: _TileRequest, _: re.Match[str]) -> Reply:
    image = await tile.request.run(tile.tiles.legend, tile.path, tile.query)
    return tile.document(image, "image/png")


async def _get_dzi(tile: _TileRequest, _: re.Match[str]) -> Reply:
    """The ``.dzi`` document; viewers send its query with every tile."""
    text = dzi_document((await tile.frame()).grid, overlap=tile.query.overlap, fmt=tile.query.format)
    return tile.document(text.encode(), "application/xml")


async def _get_dzi_tile(tile: _TileRequest, match: re.Match[str]) -> Reply:
    """A Deep Zoom tile, cut at the edges."""
    fmt = match["fmt"].replace("jpeg", "jpg")
    level, column, row = int(match["level"]), int(match["x"]), int(match["y"])

    def choose(frame: Frame) -> Region:
        region = frame.grid.deep_zoom_region(level, row, column, overlap=tile.query.overlap)
        if region is None:
            raise TileNotFound(tile.path, f"{level}/{column}_{row}", "the image has no such tile")
        return region

    draw, query = tile.tiles.region, tile.query
    return await tile.picture(fmt, lambda cancel: draw(tile.path, query, fmt, choose, cancel), query.empty)


async def _get_iiif_base(tile: _TileRequest, _: re.Match[str]) -> Reply:
    """The base URI of the image redirects to its description (Image API 3.0 §2)."""
    await tile.frame()
    target = tile.url(f"iiif/{tile.path}/info.json") + tile.suffix
    return Response(303, ((b"location", target.encode("latin-1")), (b"cache-control", b"no-cache")))


async def _get_iiif_info(tile: _TileRequest, _: re.Match[str]) -> Reply:
    """The description of the image service."""
    frame = await tile.frame()

    def allows(region: Region) -> bool:
        return tile.tiles.reader.excess(frame, region) is None

    document = iiif.info_document(frame.grid, tile.url(f"iiif/{tile.path}"), allows)
    return tile.document(document, 'application/ld+json;profile="http://iiif.io/api/image/3/context.json"')


async def _get_iiif_image(tile: _TileRequest, match: re.Match[str]) -> Reply:
    """A part of the image in any size up to its own."""
    wanted = iiif.parse_request(match["region"], match["size"], match["rotation"], match["file"])
    draw = partial(tile.tiles.region, finish=wanted.transform, label=wanted.label)

    def choose(frame: Frame) -> Region:
        return wanted.region(frame.grid)

    return await tile.picture(wanted.fmt, lambda cancel: draw(tile.path, tile.query, wanted.fmt, choose, cancel))


_ROUTES: Final[tuple[tuple[re.Pattern[str], _Route], ...]] = (
    (
        re.compile(
            r"(?P<path>.+)/(?P<z>\d{1,3})/(?P<x>-?\d{1,18})/(?P<y>-?\d{1,18})\.(?P<fmt>png|jpe?g|webp|npy|raw)",
            re.ASCII,
        ),
        _get_tile,
    ),
    (re.compile(r"(?P<path>.+)/info\.json"), _get_info),
    (re.compile(rf"(?P<path>.+)/thumbnail{_PICTURE}"), _get_thumbnail),
    (re.compile(r"(?P<path>.+)/histogram\.json"), _get_histogram),
    (re.compile(r"(?P<path>.+)/legend\.png"), _get_legend),
    (re.compile(r"(?P<path>.+)\.dzi"), _get_dzi),
    (
        re.compile(rf"(?P<path>.+)_files/(?P<level>\d{{1,3}})/(?P<x>\d{{1,18}})_(?P<y>\d{{1,18}}){_PICTURE}", re.ASCII),
        _get_dzi_tile,
    ),
)
_IIIF_ROUTES: Final[tuple[tuple[re.Pattern[str], _Route], ...]] = (
    (re.compile(r"iiif/(?P<path>.+)/info\.json"), _get_iiif_info),
    (
        re.compile(r"iiif/(?P<path>.+)/(?P<region>[^/]+)/(?P<size>[^/]+)/(?P<rotation>[^/]+)/(?P<file>[^/]+\.[^/]+)"),
        _get_iiif_image,
    ),
    (re.compile(r"iiif/(?P<path>.+)"), _get_iiif_base),
)
