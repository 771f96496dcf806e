"""Objects that a write brings, checked against what the array's codec can hold before anything is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.engine.fill_value import object_codec
from hyperslab.errors import BadBody, shown
from hyperslab.wire import dtype_from_json, unpack_objects

Codecs = Sequence[Mapping[str, Any]]


def parse_objects(body: bytes | memoryview, shape: tuple[int, ...], codecs: Codecs) -> NDArray[Any]:
    """Objects of ``shape``, or one alone (0-d) for all of it, from the layout of `wire.objects`; raises `BadBody`."""
    items = unpack(body)
    count = prod(shape)
    if len(items) not in (count, 1):
        raise BadBody(f"the number of objects for shape {list(shape)}", count, len(items))
    return as_objects(items, codecs).reshape(shape if len(items) == count else ())


def unpack(body: bytes | memoryview) -> list[Any]:
    """The items of a body; raises `BadBody`."""
    try:
        return unpack_objects(body)
    except ValueError as error:
        raise BadBody(f"the body is no object array: {error}") from error


def as_objects(items: Sequence[Any], codecs: Codecs) -> NDArray[Any]:
    """The items (n,), as the array's codec takes them; raises `BadBody`."""
    values = np.empty(len(items), object)
    for i, item in enumerate(items):
        values[i] = as_object(item, codecs)
    return values


def as_object(item: Any, codecs: Codecs) -> Any:
    """One item, as the array's codec takes it; raises `BadBody`."""
    name = object_codec(codecs)
    check = _CHECKS.get(name)
    try:
        return item if check is None else check(item, codecs[0])
    except (TypeError, ValueError, OverflowError) as error:
        raise BadBody(f"an object that {name} cannot hold: {error}") from error


def _text(item: Any, _: Mapping[str, Any]) -> Any:
    if item is not None and not isinstance(item, str):
        raise TypeError(f"expected text, found {shown(item)}")
    (item or "").encode()  # raises where surrogates stand alone
    return item


def _label(item: Any, codec: Mapping[str, Any]) -> Any:
    if item in (None, "", *codec["labels"]):
        return item
    raise ValueError(f"{shown(item)} is none of its labels")


def _bytes(item: Any, _: Mapping[str, Any]) -> Any:
    if item is None or isinstance(item, bytes):
        return item
    raise TypeError(f"expected bytes, found {shown(item)}")


def _array(item: Any, codec: Mapping[str, Any]) -> Any:
    if item is None:
        return item
    dtype = dtype_from_json(codec["dtype"])
    values = np.asarray(item)
    if values.ndim != 1 or not (np.can_cast(values.dtype, dtype, "same_kind") or not values.size):
        raise TypeError(f"expected a list or 1-d array of {dtype}")
    return np.asarray(item, dtype)


def _packed(item: Any, _: Mapping[str, Any]) -> Any:
    _check_keys(item)
    return item


def _check_keys(item: Any) -> None:
    """MessagePack writes maps with any key, and reads back only those whose keys are text or bytes."""
    if isinstance(item, Mapping):
        for key in item:
            if not isinstance(key, str | bytes):
                raise TypeError(f"the key {shown(key)} of a map is neither text nor bytes")
        item = item.values()
    elif not isinstance(item, list):
        return
    for inner in item:
        _check_keys(inner)


_CHECKS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]] = {
    "vlen-utf8": _text,
    "categorize": _label,
    "vlen-bytes": _bytes,
    "vlen-array": _array,
    "msgpack2": _packed,
}
"""What is done to each item; json2 takes whatever it can spell."""
