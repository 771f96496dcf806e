"""``GET /v1/tile/{path}/…``: images of arrays for viewers, and their descriptions; the same by Deep Zoom
(``{path}.dzi``) and the IIIF Image API 3.0 (``iiif/{path}``).

The last segments of a path name the resource; all before them is the node's path, whatever it contains.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from secrets import token_bytes
from time import perf_counter
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote

from fastapi import Path, Query, Request

from hyperslab import errors
from hyperslab.api import docs
from hyperslab.api.exchange import Exchange, optimistically
from hyperslab.api.middleware.replay import Sources
from hyperslab.api.params import NodePath
from hyperslab.api.representation import Body, Content, Reply, Representation, respond
from hyperslab.api.response import (
    Headers,
    Response,
    array_headers,
    caching,
    cost_headers,
    etag_of,
    immutable_for,
    json_body,
)
from hyperslab.api.routing import Route, Router
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.workers import Cancel
from hyperslab.errors import ChangedWhileRead, TileNotFound
from hyperslab.tiles import iiif
from hyperslab.tiles.encode import MEDIA_TYPES, PICTURE_FORMATS
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.image import Image
from hyperslab.tiles.info import dzi_document, histogram_document, info_document
from hyperslab.tiles.pyramid import Region
from hyperslab.tiles.query import TileQuery
from hyperslab.tiles.service import DeepZoomPlace, EncodedPicture, Place, Rendering, TilePlace, Tiles, WholePlane
from hyperslab.wire import JSON, NPY, RAW

T = TypeVar("T")

router = Router(prefix="/v1/tile", tags=["tile"], default_response_class=Response, route_class=Route)
iiif_router = Router(prefix="/v1/tile/iiif", tags=["tile"], default_response_class=Response, route_class=Route)
"""Not of a service with a store called ``iiif``, which hides this alias."""

REFUSALS = docs.problems(
    errors.NodeNotFound,
    errors.TileNotFound,
    errors.WrongKind,
    errors.NotRepresentable,
    errors.LabelNotFound,
    errors.NoCoordinate,
    errors.FieldUnknown,
    errors.PreconditionFailed,
    errors.TooLarge,
    errors.ChunkCorrupt,
)
NOTHING = {204: docs.answer("Nothing is there, and `empty=204` has asked for this.")}
READING = docs.headers(*docs.READING)

Zoom = Annotated[int, Path(description="0 is one tile; `maxzoom` the full resolution.")]
Cell = Annotated[int, Path(description="Counts from the top left.")]
Picture = Annotated[Literal["png", "jpg", "jpeg", "webp"], Path(description="The form of the picture.")]
Drawn = Annotated[
    Literal["png", "jpg", "jpeg", "webp", "npy", "raw"], Path(description="The form of the picture, or of its values.")
]
Tile = Annotated[TileQuery, Query()]
REGION = rf"^(full|square|(pct:)?{iiif.NUMBER}(,{iiif.NUMBER}){{3}})$"
SIZE = rf"^(max|pct:{iiif.NUMBER}|[0-9]{{1,9}},([0-9]{{1,9}})?|,[0-9]{{1,9}}|![0-9]{{1,9}},[0-9]{{1,9}})$"
ROTATION = r"^!?(0|90|180|270|360)(\.0{1,12})?$"


@router.get(
    "/{path:inner}/{z:zoom}/{x:cells}/{y:cells}.{form:numbers}",
    name="tile",
    summary="Draw a tile",
    responses=REFUSALS | NOTHING | docs.found({**docs.PICTURES, **docs.content(RAW, NPY)}, docs.OF_VALUES),
    openapi_extra=READING,
)
async def get_tile(request: Request, path: NodePath, z: Zoom, x: Cell, y: Cell, form: Drawn, query: Tile) -> Response:
    """Any axis but those of the plane takes its name as parameter. npy, raw: values."""
    place = TilePlace(path, z, x, y, query.tile_size, tms=query.scheme == "tms")
    return await _TileRequest(request, path, query).picture(form.replace("jpeg", "jpg"), place, query.empty)


@router.get(
    "/{path:inner}/info.json",
    name="tile",
    summary="Describe a picture",
    responses=REFUSALS | docs.found(docs.content(JSON)),
    openapi_extra=READING,
)
async def get_info(request: Request, path: NodePath, query: Tile) -> Response:
    """Axes, levels, channels, windows; a TileJSON too."""
    tile = _TileRequest(request, path, query)
    base = tile.url(path)

    async def document(image: Image) -> dict[str, Any]:
        return await tile.run(lambda cancel: info_document(tile.tiles, image, query, base, tile.suffix, cancel=cancel))

    return await tile.document(document)


@router.get(
    "/{path:inner}/thumbnail.{form:picture}",
    name="tile",
    summary="Draw the whole plane",
    responses=REFUSALS | docs.found(docs.PICTURES, docs.TAG | docs.COST),
    openapi_extra=READING,
)
async def get_thumbnail(request: Request, path: NodePath, form: Picture, query: Tile) -> Response:
    """As .png, .jpg or .webp."""
    return await _TileRequest(request, path, query).picture(form.replace("jpeg", "jpg"), WholePlane(query.size))


@router.get(
    "/{path:inner}/histogram.json",
    name="tile",
    summary="Count values",
    responses=REFUSALS | docs.found(docs.content(JSON)),
    openapi_extra=READING,
)
async def get_histogram(request: Request, path: NodePath, query: Tile) -> Response:
    """Of the coarsest level."""
    tile = _TileRequest(request, path, query)
    return await tile.document(lambda image: tile.run(partial(histogram_document, tile.tiles, image, query)))


@router.get(
    "/{path:inner}/legend.png",
    name="tile",
    summary="Draw the colours",
    responses=REFUSALS | docs.found(docs.content("image/png")),
    openapi_extra=READING,
)
async def get_legend(request: Request, path: NodePath, query: Tile) -> Response:
    """As a bar, low values on the left."""
    tile = _TileRequest(request, path, query)
    return await tile.document(lambda image: tile.asked.run(tile.tiles.legend, image, query), "image/png")


@router.get(
    "/{path:inner}.dzi",
    name="tile",
    summary="Deep Zoom descriptor",
    responses=REFUSALS | docs.found(docs.content("application/xml")),
    openapi_extra=READING,
)
async def get_dzi(request: Request, path: NodePath, query: Tile) -> Response:
    """Its tiles lie at `{path}_files/`; viewers send its query with every tile."""
    tile = _TileRequest(request, path, query)

    async def document(image: Image) -> bytes:
        return dzi_document((await tile.frame(image)).grid, overlap=query.overlap, fmt=query.format).encode()

    return await tile.document(document, "application/xml")


@router.get(
    "/{path:inner}_files/{level:zoom}/{x:cell}_{y:cell}.{form:picture}",
    name="tile",
    summary="Deep Zoom tile",
    responses=REFUSALS | NOTHING | docs.found(docs.PICTURES, docs.OF_VALUES),
    openapi_extra=READING,
)
async def get_dzi_tile(
    request: Request,
    path: NodePath,
    level: Annotated[int, Path(description="0 is one pixel.")],
    x: Cell,
    y: Cell,
    form: Picture,
    query: Tile,
) -> Response:
    """Cut at the edges."""
    place = DeepZoomPlace(path, level, x, y, query.overlap)
    return await _TileRequest(request, path, query).picture(form.replace("jpeg", "jpg"), place, query.empty)


@iiif_router.get(
    "/{path:inner}/info.json",
    name="tile",
    summary="IIIF Image API 3",
    responses=REFUSALS | docs.found(docs.content("application/ld+json")),
    openapi_extra=READING,
)
async def get_iiif_info(request: Request, path: NodePath, query: Tile) -> Response:
    """The description of the image service, level 2."""
    tile = _TileRequest(request, path, query)

    async def document(image: Image) -> bytes:
        frame = await tile.frame(image)

        def allows(region: Region) -> bool:
            return tile.tiles.reader.excess(frame, region) is None

        return json_body(iiif.info_document(frame.grid, tile.url(f"iiif/{path}"), allows))

    return await tile.document(document, 'application/ld+json;profile="http://iiif.io/api/image/3/context.json"')


@iiif_router.get(
    "/{path:inner}/{region:last}/{size:last}/{rotation:last}/{quality:last}.{form:last}",
    name="tile",
    summary="IIIF image",
    responses=REFUSALS | docs.found(docs.PICTURES, docs.TAG | docs.COST),
    openapi_extra=READING,
)
async def get_iiif_image(
    request: Request,
    path: NodePath,
    region: Annotated[
        str, Path(examples=["full", "0,0,64,64", "pct:0,0,50,50"], json_schema_extra={"pattern": REGION})
    ],
    size: Annotated[str, Path(examples=["max", "64,", "pct:50"], json_schema_extra={"pattern": SIZE})],
    rotation: Annotated[str, Path(examples=["0", "!90"], json_schema_extra={"pattern": ROTATION})],
    quality: Annotated[str, Path(json_schema_extra={"enum": [*iiif.QUALITIES]})],
    form: Annotated[str, Path(json_schema_extra={"enum": [*PICTURE_FORMATS]})],
    query: Tile,
) -> Response:
    """A part of the image in any size up to its own; see the IIIF Image API 3.0."""
    wanted = iiif.parse_request(region, size, rotation, f"{quality}.{form}")
    return await _TileRequest(request, path, query).picture(wanted.fmt, wanted)


@iiif_router.get(
    "/{path:inner}",
    name="tile",
    summary="Lead to the description of an IIIF image",
    status_code=303,
    responses=REFUSALS | {303: docs.answer("See `info.json`.", headers=docs.PLACE)},
)
async def get_iiif_base(request: Request, path: NodePath, query: Tile) -> Response:
    """The base URI of the image redirects to its description (Image API 3.0 §2)."""
    tile = _TileRequest(request, path, query)
    await tile.answer(tile.frame)
    target = tile.url(f"iiif/{path}/info.json") + tile.suffix
    return Response(303, ((b"location", target.encode("latin-1")), (b"cache-control", b"no-cache")))


class _TileRequest:
    """A request for a resource of the picture at ``path``; ``suffix``: its query as sent, with its question mark."""

    def __init__(self, request: Request, path: str, query: TileQuery) -> None:
        self.asked = Exchange(request)
        self.tiles: Tiles = self.asked.context.tiles
        self.path = path
        self.query = query
        text = request.scope["query_string"].decode("latin-1")
        self.suffix = f"?{text}" if text else ""

    async def run(self, fn: Callable[[Cancel], T]) -> T:
        """Call a slow function in a thread, cancelled when the client leaves."""
        async with cancelled_when_gone(self.asked.receive) as cancel:
            return await self.asked.run(fn, cancel)

    async def answer(self, make: Callable[[Image], Awaitable[T]]) -> T:
        """The answer of ``make`` for the image, `optimistically`."""
        images, field = self.tiles.images, self.query.field
        image, open_now = images.remembered(self.path, field), partial(self.asked.run, images.open, self.path, field)
        return await optimistically(self.asked, image, open_now, make)

    async def frame(self, image: Image) -> Frame:
        """The frame of the image."""
        return await self.asked.run(self.tiles.frame, image, self.query)

    def url(self, tail: str) -> str:
        """The absolute URL of a path below the prefix, for viewers on other sites."""
        scope = self.asked.scope
        host = self.asked.header(b"host") or ":".join(map(str, scope.get("server") or ("localhost",)))
        return f"{scope['scheme']}://{host}{self.asked.root_path}/v1/tile/{quote(tail)}"

    async def document(
        self, make: Callable[[Image], Awaitable[bytes | dict[str, Any]]], media_type: str = JSON
    ) -> Response:
        """A small document, with a tag of its bytes."""

        async def reply() -> Reply:
            document = await self.answer(make)
            data = document if isinstance(document, bytes) else json_body(document)
            mount = self.asked.service.catalog.mounts.get(self.path.partition("/")[0])
            return Representation(etag_of(data), media_type, data, always=caching(mount, self.asked.context.options))

        return await respond(self.asked, reply)

    async def picture(self, fmt: str, place: Place, empty: str = "404") -> Response:
        """An image or numbers; cached ones are sent at once, and 304 draws nothing. ``empty``: replacement of a missing
        tile."""
        return await respond(self.asked, partial(self.answer, partial(self._picture, fmt, place, empty)))

    async def _picture(self, fmt: str, place: Place, empty: str, image: Image) -> Reply:
        request, query, options = self.asked, self.query, self.asked.context.options
        try:
            rendering = await self.run(partial(self.tiles.picture, image, query, fmt, place))
        except TileNotFound:
            if empty == "204":
                return Response(204, ((b"cache-control", b"no-cache"),))
            if empty == "404" or fmt in ("npy", "raw"):
                raise
            data = self.tiles.empty(query, fmt)
            return Representation(etag_of(data), MEDIA_TYPES[fmt], data)
        etag, versions, mount = f'"{rendering.tag}"', rendering.sources, image.mount
        # a replayed tile reports the cost of a cached one
        sources = Sources(mount, (*versions,), [*versions.values()], 0, until=rendering.until) if versions else None
        picture = Representation(
            etag,
            MEDIA_TYPES[fmt],
            Body(None, rendering.memory, make=partial(_draw, rendering, request, self.path)),
            # a version in the URL changes with the data, but not with coordinates
            always=caching(mount, options) if query.v is None or query.sel else immutable_for(31_536_000, options),
            sources=sources,
        )
        cached = self.tiles.cache.get(rendering.key, rendering.tag)
        if cached is None and request.method == "HEAD" and request.conditions.check(etag):
            drawn = await self.run(lambda cancel: rendering.draw(cancel, ReadCost()))
            cached = None if drawn.changed else drawn
        if cached is None:
            return picture
        return picture.with_content(
            _content(cached, cost_headers(0, 0, None, {}, is_sampled=rendering.plan.is_sampled))
        )


def _draw(rendering: Rendering, request: Exchange, path: str, cancel: Cancel) -> Content:
    cost = ReadCost()
    began = perf_counter()
    encoded = rendering.draw(cancel, cost)
    timings = {"draw": perf_counter() - began}
    headers = cost_headers(cost.touched, cost.cached, cost, timings, is_sampled=rendering.plan.is_sampled)
    if encoded.changed and not request.is_last_try:
        raise ChangedWhileRead(f"{path!r} was written while it was read")
    # mixed versions are acceptable in the end, with a unique tag
    etag = etag_of(token_bytes()) if encoded.changed else None
    return _content(encoded, headers, etag)


def _content(encoded: EncodedPicture, cost: Headers, etag: str | None = None) -> Content:
    shape, dtype = encoded.shape, encoded.dtype  # None for images
    headers = () if shape is None or dtype is None else array_headers(shape, dtype)
    return Content(encoded.body, headers, cost, etag)
