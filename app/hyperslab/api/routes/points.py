"""``POST /v1/points/{path}``: gather scattered points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response

from hyperslab.api import openapi
from hyperslab.api.context import Context
from hyperslab.api.encoders import check_binary, encode_json, npy_header
from hyperslab.api.headers import array_headers, cost_headers
from hyperslab.api.metrics import ROUTE
from hyperslab.api.negotiation import MEDIA_TYPES, choose_format
from hyperslab.api.reply import Answer, Buffer, Delivered, encoded, request_at
from hyperslab.api.request import Request
from hyperslab.api.slice_body import bytes_of
from hyperslab.api.tables import check_table, encode_csv
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.api.upload import media_type, parse_json_body, parse_npy, read_body
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import PointsPlan, resolve_field
from hyperslab.errors import BadBody, TooLarge, UnsupportedMediaType
from hyperslab.wire import JSON, NPY

PREFIX: Final = "/v1/points"

_BYTES_PER_INDEX = 32  # as JSON text, generously
_REQUEST_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        NPY: {"schema": {"type": "string", "format": "binary"}},
        JSON: {"schema": {"type": "object", "properties": {"coordinates": {"type": "array"}}}},
    },
}


def router(context: Context) -> APIRouter:
    """The route."""
    routes = APIRouter(tags=["points"])

    @routes.post(
        PREFIX + "/{path:path}",
        summary="Gather scattered points",
        description='The body holds integers of shape (points, axes), as npy or as JSON `{"coordinates": [[…], …]}`; '
        "negative ones count from the end. The answer has one axis over the points, and then a field's subarray.",
        openapi_extra={"requestBody": _REQUEST_BODY, "parameters": list(openapi.FORMS[:2])},
    )
    async def post_points(request: StarletteRequest) -> Response:
        request.scope[ROUTE] = "points"
        ours = request_at(PREFIX, request)
        return Delivered(await gather(context, ours), ours)

    return routes


async def gather(context: Context, request: Request) -> Answer:
    """Read the coordinates, then the points."""
    query = request.query
    query.only(("field", "format"))
    form = choose_format(query.text("format"), request.header(b"accept"))
    array = await context.open_array(request.tail)
    field = resolve_field(array, query.text("field"))
    coordinates = await _read_coordinates(context, request, array)
    began = perf_counter()
    plan = await context.threads.run(context.service.reader.plan_points, array, coordinates, field)
    _check_form(plan, form)
    timings = {"plan": perf_counter() - began}
    async with cancelled_when_gone(request.receive) as cancel, context.admission.hold(plan.nbytes):
        cost, body = await context.threads.run(_read, context, plan, form, cancel)
    described = encoded([("Content-Type", MEDIA_TYPES[form]), ("Cache-Control", "no-store")])
    costs = cost_headers(plan.touched, cost.cached, cost, timings)
    return Answer(200, (*described, *array_headers(plan.shape, plan.dtype), *costs), body)


async def _read_coordinates(context: Context, request: Request, array: ArrayNode) -> list[NDArray[Any]]:
    """One array of int64 per axis."""
    rank = len(array.metadata.shape)
    most = context.options.max_points
    limit = min(context.options.max_upload_bytes, 4096 + most * max(rank, 1) * _BYTES_PER_INDEX)
    body = await read_body(request, limit)
    points = await context.threads.run(_parse, body, media_type(request), limit)
    if points.ndim != 2 or points.shape[1] != rank:
        raise BadBody("the coordinates have the wrong shape", ["points", rank], list(points.shape))
    if len(points) > most:
        raise TooLarge("the points of one request", len(points), most, unit="points")
    return list(np.ascontiguousarray(points.T))


def _parse(body: bytearray, kind: str | None, limit: int) -> NDArray[Any]:
    if kind == NPY:
        points = parse_npy(body)
    elif kind == JSON:
        points = _from_json(parse_json_body(body, limit))
    else:
        raise UnsupportedMediaType(kind or "", [NPY, JSON])
    if points.dtype.kind not in "iu" and points.size:
        raise BadBody("coordinates are integers", "<i8", points.dtype.str)
    if points.dtype.kind == "u" and points.size and int(points.max()) > np.iinfo(np.int64).max:
        raise BadBody("a coordinate is beyond 64 bits")
    return points.astype(np.int64)


def _from_json(document: Any) -> NDArray[Any]:
    if not isinstance(document, dict) or list(document) != ["coordinates"]:
        raise BadBody("expected an object with one member", "coordinates", type(document).__name__)
    try:
        return np.array(document["coordinates"])
    except (ValueError, OverflowError) as error:
        raise BadBody(f"the coordinates are no table of integers: {error}") from error


def _check_form(plan: PointsPlan, form: str) -> None:
    if form == "csv":
        check_table(plan.shape, plan.dtype)
    elif form != "json":
        check_binary(plan.dtype, form)


def _read(context: Context, plan: PointsPlan, form: str, cancel: Cancel) -> tuple[ReadCost, Buffer]:
    cost = ReadCost()
    values = context.service.reader.read(plan, cancel, cost)
    return cost, _ENCODERS[form](values)


def _encode_npy(values: NDArray[Any]) -> bytes:
    return npy_header(values.shape, values.dtype) + bytes_of(values)


_ENCODERS: Final[Mapping[str, Callable[[NDArray[Any]], Buffer]]] = {
    "raw": bytes_of,
    "npy": _encode_npy,
    "json": encode_json,
    "csv": encode_csv,
}
