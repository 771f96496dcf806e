"""``POST /v1/points/{path}``: gather scattered points."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response
from starlette.types import Send

from hyperslab.api.array_reply import DECODINGS, TEXT_IS_LARGER, decoder_of
from hyperslab.api.auth import check_may_write
from hyperslab.api.bodies import Bytes
from hyperslab.api.context import Context
from hyperslab.api.headers import array_headers, cost_headers
from hyperslab.api.metrics import ROUTE
from hyperslab.api.preconditions import points_check, points_etag
from hyperslab.api.ranges import ByteRange
from hyperslab.api.reply import Answer, Buffer, Delivered, Headers, Reply, encoded, request_at
from hyperslab.api.request import Request
from hyperslab.api.slice_body import bytes_of
from hyperslab.api.streaming import Stream, held, send_stream
from hyperslab.api.upload import media_type, most_json, next_npy, parse_json_body, parse_npy, received_body
from hyperslab.api.values_in import cast, check_kind, parse_objects, target, values_from_json
from hyperslab.api.values_out import (
    check_form,
    choose_format,
    encode_csv,
    encode_json,
    encode_objects,
    media_types,
    npy_header,
)
from hyperslab.api.writing import written_answer
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import PointsPlan, resolve_field
from hyperslab.engine.cf import Decoder
from hyperslab.engine.dtypes import Field
from hyperslab.errors import BadBody, TooLarge, shown
from hyperslab.wire import JSON, NPY

PREFIX: Final = "/v1/points"

_KINDS = (NPY, JSON)
_NPY_MAGIC = b"\x93NUMPY"
_BYTES_PER_INDEX = 32  # as JSON text, generously


def router(context: Context) -> APIRouter:
    """The route."""
    routes = APIRouter()

    @routes.post(PREFIX + "/{path:path}", response_class=Response)
    async def post_points(request: StarletteRequest) -> Response:
        request.scope[ROUTE] = "points"
        ours = request_at(PREFIX, request)
        answer = scatter if ours.query.flag("values") else gather
        return Delivered(await answer(context, ours), ours)

    return routes


async def gather(context: Context, request: Request) -> Reply:
    """Read the coordinates, then plan the points."""
    query = request.query
    query.only(("field", "format", "decode"))
    array = await context.open_array(request.tail)
    decoder = decoder_of(array, query.choice("decode", DECODINGS))
    form = choose_format(query.text("format"), request.header(b"accept"), media_types(array.metadata.dtype.numpy))
    field = resolve_field(array, query.text("field"))
    coordinates = await _read_coordinates(context, request, array)
    began = perf_counter()
    plan = await context.threads.run(context.service.reader.plan_points, array, coordinates, field)
    dtype = plan.dtype if decoder is None else decoder.dtype
    check_form(form, plan.shape, dtype)
    timings = {"plan": perf_counter() - began}
    return _Gathered(context, plan, form, timings, decoder)


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Planned points, looked up and read when they are sent; ``replan`` plans them anew, ``timings`` in seconds by
    phase."""

    context: Context
    plan: PointsPlan
    form: str
    timings: Mapping[str, float]
    decoder: Decoder | None

    async def send(self, request: Request, send: Send) -> None:
        """Hold the memory for them until the client has taken them."""
        context = self.context
        async with held(context.admission, request, self._memory) as cancel:
            plan, cost, data = await context.threads.run(self._read, cancel)
            body = Bytes(data, cost_headers(plan.touched, cost.cached, cost, self.timings))
            headers = self._headers(plan.tag, len(data))
            stream = Stream(200, headers, len(data), partial(body.open, ByteRange(0, len(data))))
            await send_stream(context, stream, request, send, cancel)

    def _read(self, cancel: Cancel) -> tuple[PointsPlan, ReadCost, Buffer]:
        """The plan with the versions that were read, and the values, encoded."""
        cost = ReadCost()
        values, plan = self.context.service.reader.read_tagged(self.plan, cancel, cost)
        encode = encode_objects if self.form == "raw" and plan.dtype.hasobject else _ENCODERS[self.form]
        return plan, cost, encode(values if self.decoder is None else self.decoder(values))

    @property
    def _memory(self) -> int:
        growth = TEXT_IS_LARGER if self.form in ("json", "csv") else 1
        if self.decoder is not None:
            growth += TEXT_IS_LARGER * self.decoder.dtype.itemsize // self.plan.dtype.itemsize
        return growth * self.plan.nbytes + self.context.service.reader.working_memory(self.plan)

    def _headers(self, tag: str, size: int) -> Headers:
        plan, decoder = self.plan, self.decoder
        dtype = plan.dtype if decoder is None else decoder.dtype
        decoded = "" if decoder is None else f" cf {plan.array.version}"
        described = [
            ("Content-Type", media_types(plan.dtype)[self.form]),
            ("Content-Length", str(size)),
            ("Cache-Control", "no-store"),
            ("ETag", points_etag(tag, f"{self.form}{decoded}")),
        ]
        return (*encoded(described), *array_headers(plan.shape, dtype))


async def scatter(context: Context, request: Request) -> Answer:
    """Write points: two npy files, one behind the other (or of objects, their binary form behind the npy of the
    coordinates). Of points named twice the last one stays."""
    request.query.only(("field", "values", "casting"))
    check_may_write(request.scope)
    context.pages.check(request.scope)
    array = await context.open_array(request.tail)
    array.mount.check_writable()
    field = resolve_field(array, request.query.text("field"))
    check_kind(request, _KINDS)
    beside = context.service.writer.memory(array, context.options.max_points)
    async with received_body(context, request, unsaid=JSON, beside=beside) as body:
        points, values = await context.threads.run(_scattered, context, request, array, body, field=field)
        name = None if field is None else field.name
        write = partial(context.service.writer.write_points, array.path, points, values, field=name)
        made_for, check = array.metadata.dtype, points_check(request)
        written = await context.writes.run(array.path, write, made_for=made_for, check=check)
    return written_answer(points_etag(written.tag, "raw"), written.chunks)


def _scattered(
    context: Context, request: Request, array: ArrayNode, body: memoryview, *, field: Field | None
) -> tuple[list[NDArray[Any]], NDArray[Any]]:
    """Coordinates, one array for each axis, and the values for them."""
    if _kind(request, body) == JSON:
        return _scattered_json(context, array, body, field=field)
    stream = io.BytesIO(body)
    points = _checked(next_npy(stream), array, context.options.max_points)
    wanted = target(array, (len(points),), field)
    if wanted.dtype.is_object:
        return list(points.T), parse_objects(stream.read(), wanted)
    return list(points.T), cast(request, parse_npy(stream), wanted, "the values")


def _scattered_json(
    context: Context, array: ArrayNode, body: memoryview, *, field: Field | None
) -> tuple[list[NDArray[Any]], NDArray[Any]]:
    document = parse_json_body(body, most_json(context))
    points = _checked(_from_json(document, ("coordinates", "values")), array, context.options.max_points)
    wanted = target(array, (len(points),), field)
    return list(points.T), values_from_json(document["values"], wanted)


async def _read_coordinates(context: Context, request: Request, array: ArrayNode) -> list[NDArray[Any]]:
    """One array of int64 per axis."""
    rank = len(array.metadata.shape)
    most = context.options.max_points
    limit = min(context.options.max_upload_bytes, 4096 + most * max(rank, 1) * _BYTES_PER_INDEX)
    check_kind(request, _KINDS)
    async with received_body(context, request, unsaid=JSON, most=limit) as body:
        points = await context.threads.run(_parse, body, _kind(request, body), most_json(context))
    return list(np.ascontiguousarray(_checked(points, array, most).T))


def _kind(request: Request, body: memoryview) -> str:
    """The media type of a body, told by its first bytes where the client has not said it."""
    return media_type(request) or (NPY if body[: len(_NPY_MAGIC)] == _NPY_MAGIC else JSON)


def _parse(body: memoryview, kind: str, most: int) -> NDArray[Any]:
    if kind == NPY:
        return parse_npy(io.BytesIO(body))
    return _from_json(parse_json_body(body, most))


def _checked(points: NDArray[Any], array: ArrayNode, most: int) -> NDArray[Any]:
    """Points as int64 of shape (points, axes); raises `BadBody` and `TooLarge`."""
    rank = len(array.metadata.shape)
    if points.ndim != 2 or points.shape[1] != rank:
        raise BadBody("the coordinates have the wrong shape", ["points", rank], list(points.shape))
    if rank == 0 and len(points) != 1:
        raise BadBody("an array without axes has one point", [[]], list(points.shape))
    if len(points) > most:
        raise TooLarge("the points of one request", len(points), most, unit="points")
    if points.dtype.kind not in "iu" and points.size:
        raise BadBody("coordinates are integers", "<i8", points.dtype.str)
    if points.dtype.kind == "u" and points.size and int(points.max()) > np.iinfo(np.int64).max:
        raise BadBody("a coordinate is beyond 64 bits")
    return points.astype(np.int64)


def _from_json(document: Any, members: tuple[str, ...] = ("coordinates",)) -> NDArray[Any]:
    """The coordinates of a document that has exactly these members."""
    if not isinstance(document, dict) or set(document) != set(members):
        found = sorted(document) if isinstance(document, dict) else shown(document)
        raise BadBody("the members of the JSON object", list(members), found)
    coordinates = document["coordinates"]
    rows = [row for row in coordinates if isinstance(row, list)] if isinstance(coordinates, list) else []
    if any(bool in map(type, row) for row in rows):  # which numpy would take for 0 and 1
        raise BadBody("coordinates are integers", "<i8", "|b1")
    try:
        return np.array(coordinates)
    except (ValueError, OverflowError) as error:
        raise BadBody(f"the coordinates are no table of integers: {error}") from error


def _encode_npy(values: NDArray[Any]) -> bytes:
    return npy_header(values.shape, values.dtype) + bytes_of(values)


_ENCODERS: Final[Mapping[str, Callable[[NDArray[Any]], Buffer]]] = {
    "raw": bytes_of,
    "npy": _encode_npy,
    "json": encode_json,
    "csv": encode_csv,
}
