"""Values that a write brings as JSON: every form that our own answers have, and the spellings of fill values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.object_values import Codecs, as_object
from hyperslab.api.text_forms import text_to_bytes, text_to_time
from hyperslab.engine.dtypes import DataType, parse_dtype
from hyperslab.engine.fill_value import parse_new_item
from hyperslab.errors import BadBody, shown


def values_from_json(document: Any, dtype: DataType, shape: tuple[int, ...], codecs: Codecs) -> NDArray[Any]:
    """Nested lists of ``shape``, or one item (0-d) to be broadcast; raises `BadBody`. ``codecs`` matter to objects."""
    if not isinstance(document, list) or _is_item(document, dtype, shape):
        return _item(document, dtype, codecs)
    leaves = _leaves(document, shape)  # as many as the body has, whatever the selection would need
    values: NDArray[Any] = np.empty(shape, dtype.numpy)
    flat = values.reshape(-1)
    for i, item in enumerate(leaves):
        flat[i : i + 1] = _item(item, dtype, codecs)
    return values


def _is_item(document: list[Any], dtype: DataType, shape: tuple[int, ...]) -> bool:
    """Whether a list is one item: a complex number has two parts, an object may be a list itself."""
    if dtype.is_object:
        return not shape
    return dtype.numpy.kind == "c" and len(document) == 2 and not isinstance(document[0], list)


def _leaves(document: Any, shape: tuple[int, ...]) -> list[Any]:
    """The items of nested lists in C order; raises `BadBody` where the nesting has another shape."""
    level = [document]
    for axis, size in enumerate(shape):
        for part in level:
            if not isinstance(part, list) or len(part) != size:
                found = len(part) if isinstance(part, list) else shown(part)
                raise BadBody(f"the length of the JSON lists along axis {axis}", size, found)
        level = [item for part in level for item in part]
    return level


def _item(value: Any, dtype: DataType, codecs: Codecs) -> NDArray[Any]:
    """One item (0-d); null is refused but for objects."""
    if dtype.is_object:
        item = np.empty(1, object)
        item[0] = _object(value, dtype, codecs)
        return item.reshape(())
    if value is None:
        raise BadBody("null is no value", dtype.json, None)
    if dtype.fields and isinstance(value, Mapping):
        return _record(value, dtype)
    read = _READERS.get(dtype.numpy.kind)
    try:
        found = None if read is None else read(value, dtype.numpy)
        found = parse_new_item(value, dtype) if found is None else found
    except (ValueError, OverflowError) as error:  # the second where numpy counts time in attoseconds
        raise BadBody(f"not a value of dtype {json.dumps(dtype.json)}: {error}") from error
    assert found is not None  # only null is
    return found


def _object(value: Any, dtype: DataType, codecs: Codecs) -> Any:
    try:
        item = parse_new_item(value, dtype, codecs)
    except ValueError as error:
        raise BadBody(f"not an object of this array: {error}") from error
    return as_object(None if item is None else item[()], codecs)


def _record(value: Mapping[str, Any], dtype: DataType) -> NDArray[Any]:
    """From a value for each field; raises `BadBody` where one is missing or unknown."""
    names = [field.name for field in dtype.fields]
    if sorted(value) != sorted(names):
        raise BadBody("the fields of a record", names, list(value))
    item: NDArray[Any] = np.zeros((), dtype.numpy)
    for field in dtype.fields:
        item[field.name] = values_from_json(value[field.name], parse_dtype(field.json), field.shape, ())
    return item


def _bytes(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    raw = text_to_bytes(value) if isinstance(value, str) else None
    if raw is None or len(raw) > dtype.itemsize:
        raise ValueError(f"expected text of at most {dtype.itemsize} bytes, found {shown(value)}")
    return np.array(raw, dtype)


def _time(value: Any, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """None for counts and NaT, which are spelled as in fill values."""
    return text_to_time(value, dtype) if isinstance(value, str) and value != "NaT" else None


_READERS: Final[Mapping[str, Callable[[Any, np.dtype[Any]], NDArray[Any] | None]]] = {"S": _bytes, "M": _time}
"""Kinds whose values have other spellings than their fill values."""
