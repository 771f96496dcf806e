"""The values that an append brings, and how many rows they are, as their number or their shape tells."""

from __future__ import annotations

import io
from math import prod
from typing import Any, NamedTuple

from numpy.typing import NDArray

from hyperslab.api.object_values import as_objects, unpack
from hyperslab.api.request import Request
from hyperslab.api.upload import media_type, parse_json_body, parse_npy
from hyperslab.api.values import CASTINGS, cast, check_headers, parse_values, stated_shape, target
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.errors import BadBody, UnsupportedMediaType, shown
from hyperslab.wire import ARRAY_SHAPE, JSON, NPY, OBJECTS, RAW

_KINDS = (RAW, NPY, JSON, OBJECTS)


class _Units(NamedTuple):
    """What a body is counted in: how many units it has, how many each item of the array takes, and what they are
    called."""

    number: int
    each: int
    name: str


def appended_values(request: Request, body: memoryview, array: ArrayNode, axis: int) -> NDArray[Any]:
    """The values of a body to be put behind the end of ``axis``.

    Raises `BadBody` (which names what was expected and found) and `UnsupportedMediaType`.
    """
    kind, metadata = media_type(request) or RAW, array.metadata
    if kind not in _KINDS:
        raise UnsupportedMediaType(kind, list(_KINDS))
    if kind == NPY:
        casting = request.query.choice("casting", CASTINGS) or "safe"
        return cast(parse_npy(io.BytesIO(body)), metadata.dtype.numpy, casting)
    if kind == JSON:
        shape = _with_rows(array, axis, _json_rows(body, array, axis))
    elif metadata.dtype.is_object:
        items = unpack(body)
        wanted = target(array, _shape_of(request, array, axis, _Units(len(items), 1, "objects")), None)
        check_headers(request, wanted)
        return as_objects(items, wanted.codecs).reshape(wanted.shape)
    else:
        shape = _shape_of(request, array, axis, _Units(len(body), metadata.itemsize, "bytes"))
    return parse_values(request, body, target(array, shape, None))


def _with_rows(array: ArrayNode, axis: int, rows: int) -> tuple[int, ...]:
    shape = array.metadata.shape
    return (*shape[:axis], rows, *shape[axis + 1 :])


def _shape_of(request: Request, array: ArrayNode, axis: int, units: _Units) -> tuple[int, ...]:
    """The shape of whole rows."""
    row = prod(_with_rows(array, axis, 1)) * units.each
    if units.number % row if row else units.number:
        expected = f"a multiple of {row}" if row else 0
        raise BadBody(f"a body to append has whole rows, in {units.name}", expected, units.number)
    return _with_rows(array, axis, units.number // row if row else _stated_rows(request, array, axis))


def _stated_rows(request: Request, array: ArrayNode, axis: int) -> int:
    """How many rows without items there are."""
    shape = stated_shape(request)
    if shape is None:
        raise BadBody("rows that hold no items cannot be counted", f"{ARRAY_SHAPE}, or an npy body", "neither")
    rows = shape[axis] if isinstance(shape, list) and len(shape) == len(array.metadata.shape) else None
    if type(rows) is not int or rows < 0:
        raise BadBody(ARRAY_SHAPE, f"the shape of what is appended to {list(array.metadata.shape)}", shape)
    return rows


def _json_rows(body: memoryview, array: ArrayNode, axis: int) -> int:
    """How long nested lists are along ``axis``."""
    part = parse_json_body(body)
    for _ in range(axis):
        part = part[0] if isinstance(part, list) and part else None
    if not isinstance(part, list):
        raise BadBody("JSON to append is nested lists", f"{len(array.metadata.shape)} levels", shown(part))
    return len(part)
