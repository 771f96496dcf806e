"""Values of a write: raw, npy, JSON or objects, validated against their target.

JSON may have every form of our own responses (see `values_out`), and the forms of fill values.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.exchange import Exchange
from hyperslab.api.params import Casting
from hyperslab.api.upload import media_type, parse_json_body, parse_npy
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import check_countable
from hyperslab.engine.dtypes import DataType, Field, parse_dtype
from hyperslab.engine.fill_value import object_codec, parse_new_item
from hyperslab.engine.jsontext import parse_json
from hyperslab.errors import BadBody, UnsupportedMediaType, shown
from hyperslab.wire import (
    ARRAY_DTYPE,
    ARRAY_SHAPE,
    JSON,
    NPY,
    OBJECTS,
    RAW,
    bare_dtype,
    check_nesting,
    dtype_from_json,
    dtype_to_json,
    field_names,
    kind_of,
    npy_dtype,
    unpack_objects,
)
from hyperslab.wire import parse_dtype as parse_dtype_text
from hyperslab.wire.times import cast_times, count_of

Codecs = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Target:
    """Target of values: items of ``dtype``, whose subarray dimensions ``inner`` come last in ``shape``; objects are
    encoded by ``codecs``."""

    dtype: DataType
    shape: tuple[int, ...]
    inner: tuple[int, ...]
    codecs: Codecs


def target(array: ArrayNode, shape: tuple[int, ...], field: Field | None) -> Target:
    """The target of a selection of this shape (without subarray dimensions) of an array or one of its fields; raises
    `TooLarge` for a shape that no array in memory can have, even an empty one."""
    check_countable(shape, array.metadata.itemsize)
    if field is None:
        dtype = array.metadata.dtype
        return Target(dtype, shape, (), array.metadata.codecs if dtype.numpy.hasobject else ())
    inner = field.shape if field.part is None else ()  # one value for all cells of a part
    return Target(parse_dtype(field.json), shape + field.shape, inner, ())


def check_kind(request: Exchange, kinds: tuple[str, ...] = (RAW, NPY, JSON, OBJECTS)) -> None:
    """Refuse an unsupported media type before the body is read."""
    kind = media_type(request)
    if kind not in (None, *kinds):
        raise UnsupportedMediaType(str(kind), list(kinds))


def check_headers(request: Exchange, wanted: Target) -> None:
    """Check shape and dtype headers of the client, if sent. Raises `BadBody`."""
    shape = _stated_shape(request)
    if shape is not None and shape not in (list(wanted.shape), list(wanted.inner)):
        raise BadBody(ARRAY_SHAPE, list(wanted.shape), shape)
    dtype = request.header(ARRAY_DTYPE.lower().encode())
    if dtype is not None and (media_type(request) or RAW) == RAW:
        expected = json.dumps(wanted.dtype.json)  # in the form of the header, with quotes
        try:
            sent = parse_dtype_text(dtype if dtype.lstrip().startswith(('"', "[")) else json.dumps(dtype))
        except (ValueError, TypeError, ImportError, SyntaxError) as error:
            raise BadBody(f"{ARRAY_DTYPE}, which is JSON", expected, dtype) from error
        if sent != bare_dtype(wanted.dtype.numpy):
            raise BadBody(ARRAY_DTYPE, expected, dtype)


def _stated_shape(request: Exchange) -> Any:
    """The shape in the client's headers, or None. Raises `BadBody`."""
    text = request.header(ARRAY_SHAPE.lower().encode())
    try:
        return None if text is None else parse_json(text.encode())
    except ValueError as error:
        raise BadBody(f"{ARRAY_SHAPE} is not JSON", "a list of sizes", text) from error


def parse_values(request: Exchange, body: memoryview, wanted: Target, casting: Casting) -> NDArray[Any]:
    """The values of a body with checked media type and headers, of ``wanted.shape``, or one item to be broadcast.
    ``casting``: allowed conversions of an npy body, in numpy's terms; NaN never becomes an integer.

    A body without a Content-Type is raw. Raises `BadBody` with the expected and the found form.
    """
    kind = media_type(request) or RAW
    if kind == JSON:
        return values_from_json(parse_json_body(body), wanted)
    if kind == NPY:
        return cast(parse_npy(io.BytesIO(body)), wanted, casting, "the npy body")
    if wanted.dtype.numpy.hasobject:
        return parse_objects(body, wanted)
    if kind == OBJECTS:
        raise BadBody("objects for an array of fixed-size items", wanted.dtype.json, "|O")
    dtype = wanted.dtype.numpy
    expected = prod(wanted.shape) * dtype.itemsize
    if len(body) != expected:
        described = f"a raw body of shape {list(wanted.shape)} and dtype {dtype_to_json(dtype)}, in bytes"
        raise BadBody(described, expected, len(body))
    return np.frombuffer(body, dtype).reshape(wanted.shape) if expected else np.zeros(wanted.shape, dtype)


def appended_values(request: Exchange, body: memoryview, array: ArrayNode, axis: int, casting: Casting) -> NDArray[Any]:
    """The values of a body to append along ``axis``, with as many rows as it holds; raises as `parse_values`."""
    kind, metadata = media_type(request) or RAW, array.metadata
    if kind == NPY:
        return _cast(parse_npy(io.BytesIO(body)), metadata.dtype.numpy, casting)
    if kind == JSON:
        part = parse_json_body(body)
        for _ in range(axis):
            part = part[0] if isinstance(part, list) and part else None
        if not isinstance(part, list):
            raise BadBody("JSON to append is nested lists", f"{len(metadata.shape)} levels", shown(part))
        rows = len(part)
    elif metadata.dtype.numpy.hasobject:
        rows = _rows(request, array, axis, number=len(_unpack(body)), each=1, unit="objects")
    else:
        rows = _rows(request, array, axis, number=len(body), each=metadata.itemsize, unit="bytes")
    wanted = target(array, _with_rows(array, axis, rows), None)
    check_headers(request, wanted)
    return parse_values(request, body, wanted, casting)


def _with_rows(array: ArrayNode, axis: int, rows: int) -> tuple[int, ...]:
    shape = array.metadata.shape
    return (*shape[:axis], rows, *shape[axis + 1 :])


def _rows(request: Exchange, array: ArrayNode, axis: int, *, number: int, each: int, unit: str) -> int:
    """The number of rows in a body of ``number`` units, of which an item takes ``each``; for rows without items, the
    number stated by the client."""
    row = prod(_with_rows(array, axis, 1)) * each
    if number % row if row else number:
        raise BadBody(f"a body to append has whole rows, in {unit}", f"a multiple of {row}" if row else 0, number)
    if row:
        return number // row
    shape = _stated_shape(request)
    if shape is None:
        raise BadBody("rows that hold no items cannot be counted", f"{ARRAY_SHAPE}, or an npy body", "neither")
    rows = shape[axis] if isinstance(shape, list) and len(shape) == len(array.metadata.shape) else None
    if type(rows) is not int or rows < 0:
        raise BadBody(ARRAY_SHAPE, f"the shape of what is appended to {list(array.metadata.shape)}", shape)
    return rows


def cast(values: NDArray[Any], wanted: Target, casting: Casting, what: str) -> NDArray[Any]:
    """Values of an npy file in the target's dtype; raises `BadBody` for another shape, a conversion forbidden by
    numpy's rule ``casting=``, NaN as an integer, units of time too far apart, or invalid text."""
    if values.shape not in (wanted.shape, wanted.inner):
        raise BadBody(f"the shape of {what}", list(wanted.shape), list(values.shape))
    return _cast(values, wanted.dtype.numpy, casting)


def _cast(values: NDArray[Any], dtype: np.dtype[Any], casting: Casting) -> NDArray[Any]:
    if values.dtype == dtype:
        return values
    if values.dtype == npy_dtype(dtype):
        return np.asarray(values, order="C").view(dtype)  # keeps 0-d arrays
    expected, found = dtype_to_json(dtype), dtype_to_json(values.dtype)
    try:
        if not np.can_cast(values.dtype, bare_dtype(dtype), casting=casting):
            raise BadBody(f"dtype of the body, under casting={casting} (safe, same_kind, unsafe)", expected, found)
        if values.dtype.kind in "fc" and dtype.kind in "iu" and not np.isfinite(values).all():
            raise BadBody("NaN and infinity cannot become integers", expected, found)
        if values.dtype.kind in "mM" and dtype.kind in "mM":
            return cast_times(values, dtype)
        if dtype.names is None:
            return values.astype(dtype)
        _check_times(values, dtype)
        records = np.zeros(values.shape, dtype)
        records.view(bare_dtype(dtype))[...] = values
    except (OverflowError, ValueError, TypeError) as error:
        raise BadBody(f"dtype of the body: {error}", expected, found) from error
    return records


def _check_times(values: NDArray[Any], dtype: np.dtype[Any]) -> None:
    """Raise `OverflowError` for a time that does not fit into ``dtype``, also in fields, which numpy casts in order."""
    for source, name in zip(values.dtype.names or (), field_names(dtype), strict=False):
        _check_times(values[source], dtype[name].base)
    if values.dtype.kind in "mM" and dtype.kind in "mM":
        cast_times(values, dtype)


def values_from_json(document: Any, wanted: Target) -> NDArray[Any]:
    """Nested lists of ``wanted.shape``, or one item (0-d) to be broadcast; raises `BadBody`."""
    dtype, shape = wanted.dtype, wanted.shape
    is_item = not isinstance(document, list)
    if not is_item and dtype.numpy.hasobject:
        is_item = not shape  # an object may be a list itself
    elif not is_item and kind_of(dtype.numpy) == "c":
        is_item = len(document) == 2 and not isinstance(document[0], list)  # real and imaginary part
    if is_item:
        return _item(document, wanted)
    leaves = _leaves(document, shape)  # checked against the selection below
    values: NDArray[Any] = np.empty(shape, dtype.numpy)
    flat = values.reshape(-1)
    for i, item in enumerate(leaves):
        flat[i : i + 1] = _item(item, wanted)
    return values


def _leaves(document: Any, shape: tuple[int, ...]) -> list[Any]:
    """The items of nested lists in C order; raises `BadBody` for another shape."""
    level = [document]
    for axis, size in enumerate(shape):
        for part in level:
            if not isinstance(part, list) or len(part) != size:
                described = len(part) if isinstance(part, list) else shown(part)
                raise BadBody(f"the length of the JSON lists along axis {axis}", size, described)
        level = [item for part in level for item in part]
    return level


def _item(value: Any, wanted: Target) -> NDArray[Any]:
    """One item (0-d); null only for objects."""
    dtype = wanted.dtype
    if dtype.numpy.hasobject:
        item: NDArray[Any] = np.empty(1, object)
        try:
            parsed = parse_new_item(value, dtype, wanted.codecs)
        except ValueError as error:
            raise BadBody(f"not an object of this array: {error}") from error
        item[0] = _checked_object(None if parsed is None else parsed[()], wanted.codecs)
        return item.reshape(())
    if value is None:
        raise BadBody("null is no value", dtype.json, None)
    if dtype.fields and isinstance(value, Mapping):
        return _record(value, dtype)
    kind = dtype.numpy.kind
    try:
        if kind == "S":
            return _bytes(value, dtype.numpy)
        if kind == "M" and isinstance(value, str) and value != "NaT":  # counts and NaT are spelled as in fill values
            value = count_of(value, dtype.numpy, exact=True)
        parsed = parse_new_item(value, dtype)
    except (ValueError, OverflowError) as error:
        raise BadBody(f"not a value of dtype {json.dumps(dtype.json)}: {error}") from error
    assert parsed is not None  # only for null
    return parsed


def _record(value: Mapping[str, Any], dtype: DataType) -> NDArray[Any]:
    """A record from a value for each field; raises `BadBody` for missing or unknown fields."""
    names = [field.name for field in dtype.fields]
    if sorted(value) != sorted(names):
        raise BadBody("the fields of a record", names, list(value))
    item: NDArray[Any] = np.zeros((), dtype.numpy)
    for field in dtype.fields:
        item[field.name] = values_from_json(value[field.name], Target(parse_dtype(field.json), field.shape, (), ()))
    return item


def _bytes(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Fixed bytes from text in which ``\xff`` is a byte outside UTF-8; raises `ValueError`."""
    raw = None
    if isinstance(value, str):  # text and escapes alternate
        parts = re.split(r"\\x(5c|[89a-f][0-9a-f])", value)
        raw = b"".join([bytes.fromhex(part) if i % 2 else part.encode() for i, part in enumerate(parts)])
    if raw is None or len(raw) > dtype.itemsize:
        raise ValueError(f"expected text of at most {dtype.itemsize} bytes, found {shown(value)}")
    return np.array(raw, dtype)


def parse_objects(body: bytes | memoryview, wanted: Target) -> NDArray[Any]:
    """Objects of ``wanted.shape``, or one alone (0-d) for all of it, from the layout of `wire.objects`; raises
    `BadBody`."""
    items, count = _unpack(body), prod(wanted.shape)
    if len(items) not in (count, 1):
        raise BadBody(f"the number of objects for shape {list(wanted.shape)}", count, len(items))
    values = np.fromiter((_checked_object(item, wanted.codecs) for item in items), object, len(items))
    return values.reshape(wanted.shape if len(items) == count else ())


def _unpack(body: bytes | memoryview) -> list[Any]:
    try:
        return unpack_objects(body)
    except ValueError as error:
        raise BadBody(f"the body is no object array: {error}") from error


def _checked_object(item: Any, codecs: Codecs) -> Any:
    """One item in the form of the array's codec; raises `BadBody` if the codec cannot encode it."""
    name = object_codec(codecs)
    try:
        check_nesting([item])
        return _object_for(name, codecs[0], item)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadBody(f"an object that {name} cannot hold: {error}") from error


def _object_for(name: str, codec: Mapping[str, Any], item: Any) -> Any:
    """One item for an object codec. Raises `TypeError`, `ValueError` and `OverflowError`; json2 accepts all JSON."""
    match name:
        case "vlen-utf8":
            if item is not None and not isinstance(item, str):
                raise TypeError(f"expected text, found {shown(item)}")
            (item or "").encode()  # raises where surrogates stand alone
        case "categorize" if item not in (None, "", *codec["labels"]):
            raise ValueError(f"{shown(item)} is none of its labels")
        case "vlen-bytes" if item is not None and not isinstance(item, bytes):
            raise TypeError(f"expected bytes, found {shown(item)}")
        case "vlen-array" if item is not None:
            values, dtype = np.asarray(item), dtype_from_json(codec["dtype"])
            if values.ndim != 1 or not (np.can_cast(values.dtype, dtype, "same_kind") or not values.size):
                raise TypeError(f"expected a list or 1-d array of {dtype}")
            item = np.asarray(item, dtype)
        case "msgpack2":
            _check_keys(item)
        case _:
            pass
    return item


def _check_keys(item: Any) -> None:
    """Raise for maps whose keys are not text or bytes: MessagePack writes them, but does not read them."""
    if isinstance(item, Mapping):
        for key in item:
            if not isinstance(key, str | bytes):
                raise TypeError(f"the key {shown(key)} of a map is neither text nor bytes")
        item = item.values()
    elif not isinstance(item, list):
        return
    for inner in item:
        _check_keys(inner)
