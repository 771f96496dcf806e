"""``POST /v1/points/{path}``: gather scattered points."""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Annotated, Any, Final

import numpy as np
from fastapi import Query, Request
from numpy.typing import NDArray

from hyperslab.api import docs
from hyperslab.api.exchange import Exchange
from hyperslab.api.params import NodePath, PointsQuery
from hyperslab.api.representation import in_memory
from hyperslab.api.response import Buffer, Response, array_headers, cost_headers
from hyperslab.api.routing import Route, Router
from hyperslab.api.slices import TEXT_IS_LARGER, by_labels, decoder_of, values_etag, with_inherited
from hyperslab.api.upload import max_json_bytes, media_type, next_npy, parse_json_body, parse_npy, received_body
from hyperslab.api.values_in import cast, check_kind, parse_objects, target, values_from_json
from hyperslab.api.values_out import TEXT_FORMS, check_form, choose_format, encode, media_types
from hyperslab.api.writing import values_check, written_response
from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import PointsPlan, resolve_field
from hyperslab.arrays.workers import Cancel
from hyperslab.engine.dtypes import Field
from hyperslab.errors import BadBody, BadParameter, TooLarge, shown
from hyperslab.wire import JSON, NPY
from hyperslab.wire.labels import Method

COORDINATES: Final = {
    "type": "object",
    "anyOf": [{"required": ["coordinates"]}, {"required": ["labels"]}],
    "properties": {"coordinates": {"type": "array"}, "labels": {"type": "object"}, "values": {}},
}
Fixed = Mapping[int, int]
"""Indices along axes that are those of all points."""
router = Router(prefix="/v1/points", tags=["points"], default_response_class=Response, route_class=Route)


@router.post(
    "/{path:node}",
    name="points",
    summary="Gather scattered points",
    responses=docs.READS
    | {
        200: docs.answer("The points.", docs.VALUES, docs.OF_VALUES),
        204: docs.answer("With `values=1`: they are stored.", headers={**docs.TAG, **docs.CHUNKS}),
    },
    openapi_extra=docs.body(
        {**docs.content(NPY), JSON: {"schema": COORDINATES, "example": {"coordinates": [[0, 0, 0]]}}}, *docs.WRITING
    ),
)
async def post_points(request: Request, path: NodePath, query: Annotated[PointsQuery, Query()]) -> Response:
    """The body holds integers of shape (points, axes), as npy or as JSON `{"coordinates": [[…], …]}`; negative ones
    count from the end. The answer has one axis over the points, and then a field's subarray. With `values=1` points are
    written: the body is the npy of the coordinates and right behind it that of the values (one a point, or one for all;
    objects in their binary form), or JSON with a member `values`. Conditions and `casting` are for writing, `format` is
    for reading. `sel` fixes an axis for all points, which then have no index for it. In JSON, labels may stand for the
    indices: `{"labels": {"lat": [45, 50], "lon": [8.9, 9.1]}}`, one for each point."""
    return await (_scatter if query.values else _gather)(Exchange(request), path, query)


async def _gather(request: Exchange, path: str, query: PointsQuery) -> Response:
    """Read the coordinates, then plan the points."""
    _refuse(query, ("casting",))
    array = await with_inherited(request, await request.open_array(path), query.decode)
    decoder = decoder_of(array, query.decode)
    form = choose_format(query.format, request.header(b"accept"), media_types(array.metadata.dtype.numpy))
    field = resolve_field(array, query.field)
    rank, options = len(array.metadata.shape), request.context.options
    limit = min(options.max_upload_bytes, 4096 + options.max_points * max(rank, 1) * 32)  # bytes of JSON for an index
    check_kind(request, (NPY, JSON))
    fixed = await _fixed(request, array, query)

    def parse(body: memoryview) -> NDArray[Any]:
        if _kind(request, body) == NPY:
            return _checked(parse_npy(io.BytesIO(body)), array, options.max_points, fixed)
        return _from_json(request, array, parse_json_body(body, max_json_bytes(request.context)), fixed, query.method)

    async with received_body(request, default_type=JSON, max_bytes=limit) as body:
        request.expect(array, len(body) // 8)
        points = await request.run(parse, body)
    coordinates = list(np.ascontiguousarray(points.T))
    began = perf_counter()
    plan = await request.run(request.service.reader.plan_points, array, coordinates, field)
    dtype = plan.dtype if decoder is None else decoder.dtype
    check_form(form, plan.shape, dtype)
    elapsed = perf_counter() - began
    reader = request.service.reader

    def read(cancel: Cancel) -> tuple[PointsPlan, ReadCost, Buffer]:
        cost = ReadCost()
        values, found = reader.read(plan, cancel, cost)
        return found, cost, encode(values if decoder is None else decoder(values), form)

    growth = TEXT_IS_LARGER if form in TEXT_FORMS else 1
    if decoder is not None:
        growth += TEXT_IS_LARGER * decoder.dtype.itemsize // plan.dtype.itemsize
    cancel = await request.hold(growth * plan.nbytes + reader.working_memory(plan))
    found, cost, data = await request.run(read, cancel)
    decoded = "" if decoder is None else f" cf {array.version}"
    described = (
        (b"content-type", media_types(plan.dtype)[form].encode()),
        (b"cache-control", b"no-store"),
        (b"etag", values_etag(found.tag, f"{form}{decoded}").encode()),
    )
    statistics = cost_headers(plan.touched, cost.cached, cost, {"plan": elapsed})
    headers = (*described, *array_headers(plan.shape, dtype), *statistics)
    return Response(200, headers, in_memory(request, data))


async def _scatter(request: Exchange, path: str, query: PointsQuery) -> Response:
    """Write points: two npy files, one behind the other (or for objects, the npy file of the coordinates and their
    binary form). Of duplicate points the last one wins."""
    _refuse(query, ("format", "decode"))
    request.context.guard.check_change(request.scope)
    array = await request.open_array(path)
    array.mount.check_writable()
    field = resolve_field(array, query.field)
    check_kind(request, (NPY, JSON))
    extra_bytes = request.service.writer.memory(array, request.context.options.max_points)
    fixed = await _fixed(request, array, query)
    async with received_body(request, default_type=JSON, extra_bytes=extra_bytes) as body:
        points, values = await request.run(_scattered, request, array, body, query, fixed=fixed, field=field)
        name = None if field is None else field.name
        write = partial(request.service.writer.write_points, array.path, points, values, field=name)
        made_for, check = array.metadata.dtype, values_check(request)
        written = await request.write(array.path, write, made_for=made_for, check=check)
    return written_response(written.tag, written.chunks)


def _refuse(query: PointsQuery, names: tuple[str, ...]) -> None:
    """Parameters that are for the other direction."""
    for name in names:
        if getattr(query, name) != PointsQuery.model_fields[name].default:
            expected = "it together with values=1" if name == "casting" else "it without values=1"
            raise BadParameter(name, getattr(query, name), expected)


async def _fixed(request: Exchange, array: ArrayNode, query: PointsQuery) -> dict[int, int]:
    """The index along each axis that ``sel=`` fixes for all points."""
    if not query.sel:
        return {}
    fixed: dict[int, int] = {}
    for axis, positions in (await by_labels(request, array, query.sel, query.method)).items():
        if not isinstance(positions, int):
            raise BadParameter("sel", [*query.sel], f"one position along axis {axis}, not {len(positions)}")
        fixed[axis] = positions
    return fixed


def _scattered(
    request: Exchange, array: ArrayNode, body: memoryview, query: PointsQuery, *, fixed: Fixed, field: Field | None
) -> tuple[list[NDArray[Any]], NDArray[Any]]:
    """Coordinates, one array per axis, and the values."""
    limit = request.context.options.max_points
    if _kind(request, body) == JSON:
        document = parse_json_body(body, max_json_bytes(request.context))
        points = _from_json(request, array, document, fixed, query.method, more=("values",))
        return list(points.T), values_from_json(document["values"], target(array, (len(points),), field))
    stream = io.BytesIO(body)
    points = _checked(next_npy(stream), array, limit, fixed)
    wanted = target(array, (len(points),), field)
    if wanted.dtype.numpy.hasobject:
        return list(points.T), parse_objects(stream.read(), wanted)
    return list(points.T), cast(parse_npy(stream), wanted, query.casting, "the values")


def _kind(request: Exchange, body: memoryview) -> str:
    """The media type of a body, detected by its first bytes if not stated."""
    return media_type(request) or (NPY if bytes(body[:6]) == b"\x93NUMPY" else JSON)


def _checked(points: NDArray[Any], array: ArrayNode, limit: int, fixed: Fixed) -> NDArray[Any]:
    """Points as int64 of shape (points, axes), with the indices of ``fixed`` axes; raises `BadBody` and `TooLarge`."""
    rank = len(array.metadata.shape) - len(fixed)
    if points.ndim != 2 or points.shape[1] != rank:
        raise BadBody("the coordinates have the wrong shape", ["points", rank], list(points.shape))
    if rank == 0 and len(points) != 1:
        raise BadBody("an array without axes has one point", [[]], list(points.shape))
    if len(points) > limit:
        raise TooLarge("the points of one request", len(points), limit, unit="points")
    if points.dtype.kind not in "iu" and points.size:
        raise BadBody("coordinates are integers", "<i8", points.dtype.str)
    if points.dtype.kind == "u" and points.size and int(points.max()) > np.iinfo(np.int64).max:
        raise BadBody("a coordinate is beyond 64 bits")
    points = points.astype(np.int64)
    for axis, index in sorted(fixed.items()):
        points = np.insert(points, axis, index, axis=1)
    return points


def _from_json(
    request: Exchange,
    array: ArrayNode,
    document: Any,
    fixed: Fixed,
    method: Method | None,
    more: tuple[str, ...] = (),
) -> NDArray[Any]:
    """The points in a document with ``coordinates`` or ``labels``, and ``more`` members."""
    first = "labels" if isinstance(document, dict) and "labels" in document else "coordinates"
    if not isinstance(document, dict) or set(document) != {first, *more}:
        described = sorted(document) if isinstance(document, dict) else shown(document)
        raise BadBody("the members of the JSON object", [first, *more], described)
    limit = request.context.options.max_points
    if first == "labels":
        return _checked(_labelled(request, array, document[first], fixed, method), array, limit, fixed)
    coordinates = document[first]
    rows = [row for row in coordinates if isinstance(row, list)] if isinstance(coordinates, list) else []
    if any(bool in map(type, row) for row in rows):  # numpy would convert them to 0 and 1
        raise BadBody("coordinates are integers", "<i8", "|b1")
    try:
        points = np.array(coordinates)
    except (ValueError, OverflowError) as error:
        raise BadBody(f"the coordinates are no table of integers: {error}") from error
    return _checked(points, array, limit, fixed)


def _labelled(
    request: Exchange, array: ArrayNode, labels: Any, fixed: Fixed, method: Method | None
) -> NDArray[np.int64]:
    """The indices of points given by labels, a list for each dimension that is not ``fixed``."""
    axes = [axis for axis in range(len(array.metadata.shape)) if axis not in fixed]
    names = [None if array.axis_names is None else array.axis_names[axis] for axis in axes]
    if not isinstance(labels, dict) or set(labels) != set(names) or len(labels) != len(names):
        raise BadBody(
            "the dimensions with labels", names, sorted(labels) if isinstance(labels, dict) else shown(labels)
        )
    counts = {len(values) if isinstance(values, list) else None for values in labels.values()}
    if len(counts) != 1 or None in counts:
        raise BadBody("labels are lists, with one label for each point", None, shown(labels))
    columns = []
    for axis, name in zip(axes, names, strict=True):
        coordinate = request.service.coordinates.open(array, name or "", array.metadata.shape[axis])
        columns.append(coordinate.find_each(labels[name], method))
    return np.stack(columns, axis=1)
