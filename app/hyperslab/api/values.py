"""The values that a write brings: raw, npy or JSON, checked against what they are to be stored as."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.json_values import values_from_json
from hyperslab.api.object_values import parse_objects
from hyperslab.api.request import Request
from hyperslab.api.upload import media_type, parse_json_body, parse_npy
from hyperslab.arrays.limits import check_countable
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.engine.dtypes import DataType, Field, parse_dtype
from hyperslab.errors import BadBody, UnsupportedMediaType
from hyperslab.wire import ARRAY_DTYPE, ARRAY_SHAPE, JSON, NPY, OBJECTS, RAW, bare_dtype, dtype_to_json, npy_dtype
from hyperslab.wire import parse_dtype as parse_dtype_text

CASTINGS: Final = ("safe", "same_kind", "unsafe")
"""Which conversions of an npy body are allowed, in numpy's words; NaN never becomes an integer."""


@dataclass(frozen=True, slots=True)
class Target:
    """What values are to become: items of ``dtype``, whose subarray dimensions ``inner`` come last in ``shape``."""

    dtype: DataType
    shape: tuple[int, ...]
    inner: tuple[int, ...]
    codecs: tuple[Mapping[str, Any], ...]


def target(array: ArrayNode, shape: tuple[int, ...], field: Field | None) -> Target:
    """Values for a selection of this shape (without subarray dimensions) of an array or one of its fields; raises
    `TooLarge` for a shape that no array in memory can have, even an empty one."""
    check_countable(shape, array.metadata.itemsize)
    codecs = array.metadata.codecs
    if field is None:
        return Target(array.metadata.dtype, shape, (), codecs)
    inner = field.shape if field.part is None else ()  # one value is for all cells of a part
    return Target(parse_dtype(field.json), shape + field.shape, inner, codecs)


def check_form(request: Request, kinds: tuple[str, ...] = (RAW, NPY, JSON, OBJECTS)) -> None:
    """Refuse a body of another media type, and an unknown ``casting``, before any of it is read."""
    kind = media_type(request)
    if kind not in (None, *kinds):
        raise UnsupportedMediaType(str(kind), list(kinds))
    request.query.choice("casting", CASTINGS)


def parse_values(request: Request, body: memoryview, wanted: Target) -> NDArray[Any]:
    """The values of a body, of ``wanted.shape``, or one item to be broadcast.

    Without a Content-Type a body is raw. Raises `BadBody` (which names what was expected and found) and
    `UnsupportedMediaType`.
    """
    kind = media_type(request) or RAW
    parse = _PARSERS.get(kind)
    if parse is None:
        raise UnsupportedMediaType(kind, list(_PARSERS))
    check_headers(request, wanted)
    return parse(request, body, wanted)


def _from_objects(_: Request, body: memoryview, wanted: Target) -> NDArray[Any]:
    if not wanted.dtype.is_object:
        raise BadBody("objects for an array of fixed-size items", wanted.dtype.json, "|O")
    return parse_objects(body, wanted.shape, wanted.codecs)


def parse_raw(body: bytes | memoryview, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """C-order items of a fixed size as they are stored; raises `BadBody` where their number is another."""
    expected = prod(shape) * dtype.itemsize
    if len(body) != expected:
        raise BadBody(
            f"a raw body of shape {list(shape)} and dtype {dtype_to_json(dtype)}, in bytes", expected, len(body)
        )
    return np.frombuffer(body, dtype).reshape(shape) if expected else np.zeros(shape, dtype)


def cast(values: NDArray[Any], dtype: np.dtype[Any], casting: str) -> NDArray[Any]:
    """Values as ``dtype``; raises `BadBody` where numpy's rule ``casting`` forbids it, NaN would become an integer,
    units of time are too far apart, or a text means nothing in ``dtype``."""
    if values.dtype == dtype:
        return values
    if values.dtype == npy_dtype(dtype):
        return np.asarray(values, order="C").view(dtype)  # which may have no axes, and keeps none
    try:
        return _converted(values, dtype, casting)
    except (OverflowError, ValueError, TypeError) as error:
        raise BadBody(f"dtype of the body: {error}", dtype_to_json(dtype), dtype_to_json(values.dtype)) from error


def _converted(values: NDArray[Any], dtype: np.dtype[Any], casting: str) -> NDArray[Any]:
    if not np.can_cast(values.dtype, bare_dtype(dtype), casting=casting):  # type: ignore[arg-type]
        hint = f"dtype of the body, under casting={casting} (safe, same_kind, unsafe)"
        raise BadBody(hint, dtype_to_json(dtype), dtype_to_json(values.dtype))
    if values.dtype.kind in "fc" and dtype.kind in "iu" and not np.isfinite(values).all():
        raise BadBody("NaN and infinity cannot become integers", dtype_to_json(dtype), dtype_to_json(values.dtype))
    if dtype.names is None:
        return values.astype(dtype)
    records = np.zeros(values.shape, dtype)
    records.view(bare_dtype(dtype))[...] = values
    return records


def _from_raw(request: Request, body: memoryview, wanted: Target) -> NDArray[Any]:
    if wanted.dtype.is_object:
        return _from_objects(request, body, wanted)
    return parse_raw(body, wanted.dtype.numpy, wanted.shape)


def _from_npy(request: Request, body: memoryview, wanted: Target) -> NDArray[Any]:
    values = parse_npy(io.BytesIO(body))
    if values.shape not in (wanted.shape, wanted.inner):
        raise BadBody("the shape of the npy body", list(wanted.shape), list(values.shape))
    casting = request.query.choice("casting", CASTINGS) or "safe"
    return cast(values, wanted.dtype.numpy, casting)


def _from_json(_: Request, body: memoryview, wanted: Target) -> NDArray[Any]:
    document = parse_json_body(body)
    return values_from_json(document, wanted.dtype, wanted.shape, wanted.codecs)


def stated_shape(request: Request) -> Any:
    """What a client says of the shape of its values; None where it says nothing. Raises `BadBody`."""
    text = request.header(ARRAY_SHAPE.lower().encode())
    return None if text is None else _json_header(ARRAY_SHAPE, text)


def check_headers(request: Request, wanted: Target) -> None:
    """A client may say what it sends; then it must be what is expected. Raises `BadBody`."""
    shape = stated_shape(request)
    if shape is not None and shape not in (list(wanted.shape), list(wanted.inner)):
        raise BadBody(ARRAY_SHAPE, list(wanted.shape), shape)
    dtype = request.header(ARRAY_DTYPE.lower().encode())
    if dtype is not None and (media_type(request) or RAW) == RAW:
        expected = json.dumps(wanted.dtype.json)  # as it is to be sent: the quotes belong to it
        try:
            sent = parse_dtype_text(dtype)
        except (ValueError, TypeError, ImportError, SyntaxError) as error:
            raise BadBody(f"{ARRAY_DTYPE}, which is JSON", expected, dtype) from error
        if sent != bare_dtype(wanted.dtype.numpy):
            raise BadBody(ARRAY_DTYPE, expected, dtype)


def _json_header(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadBody(f"{name} is not JSON", "a list of sizes", text) from error


_PARSERS: Final[Mapping[str, Callable[[Request, memoryview, Target], NDArray[Any]]]] = {
    RAW: _from_raw,
    NPY: _from_npy,
    JSON: _from_json,
    OBJECTS: _from_objects,
}
