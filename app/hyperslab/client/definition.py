"""Definitions of new arrays: the JSON that creates them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Protocol

import numpy as np

from hyperslab import wire
from hyperslab.client.indexing import AnyArray
from hyperslab.client.values import (
    as_stored,
    as_values,
    broadcast,
    encode_objects,
    format_fill_value,
    is_extension,
    object_codec,
)


class SupportsConfig(Protocol):
    """Interface of numcodecs' codec objects."""

    def get_config(self) -> Mapping[str, Any]: ...


Codec = str | Mapping[str, Any] | SupportsConfig
"""A codec by its name, its configuration, or as an object of numcodecs."""


def define_array(
    values: AnyArray | None, shape: int | Sequence[int] | None, dtype: Any, members: Mapping[str, Any]
) -> dict[str, Any]:
    """Request body that creates an array; shape and dtype default to those of ``values``.

    A fill value becomes JSON after it has become an item of the array's dtype: text for ``S`` is text, as it is to
    numpy, and not base64. Raises `ValueError` where there is no shape or no dtype, or text has no length, and
    `TypeError`, `ValueError` or `OverflowError` for a fill value that the dtype cannot hold.
    """
    if values is not None:
        shape = values.shape if shape is None else shape
        dtype = values.dtype if dtype is None else dtype
    if shape is None or dtype is None:
        raise ValueError("a new array needs a shape and a dtype, or data= that has them")
    stored = _dtype_json(dtype)
    if members.get("zarr_format") == 3:
        if isinstance(stored, list):  # which Zarr v3 stores in little-endian order
            stored = _dtype_json(wire.dtype_from_json(stored).newbyteorder("<"))
        elif stored == "|O" and members.keys().isdisjoint(("filters", "codecs")):
            members = {**members, "filters": ["vlen-utf8"]}
    found = {name: value for name, value in members.items() if name != "fill_value"}
    if "compressor" in members:
        found["compressor"] = _codec(members["compressor"])
    if members.get("filters") is not None:
        found["filters"] = [_codec(codec) for codec in members["filters"]]
    if "fill_value" in members:
        found["fill_value"] = format_fill_value(_as_item(members["fill_value"], stored))
    lengths = [operator.index(length) for length in read_lengths(shape)]  # type: ignore[arg-type]  # refuses None
    return {"kind": "array", "shape": lengths, "dtype": stored, **found}


def read_data(data: Any, dtype: Any) -> AnyArray:
    """Initial values of a new array, cast to its ``dtype`` if that is not None; raises as `as_values`."""
    if dtype is None:
        return np.asarray(data)
    return as_values(data, wire.dtype_from_json(_dtype_json(dtype)))


def check_data(values: AnyArray, definition: Mapping[str, Any]) -> None:
    """Raises `TypeError`, `OverflowError` or `ValueError` if an array of this definition cannot hold ``values``."""
    dtype = wire.dtype_from_json(definition["dtype"])
    broadcast(as_values(values, dtype), tuple(definition["shape"]))
    if dtype.hasobject:
        encode_objects(as_stored(values, object_codec(definition)))


def _as_item(value: Any, stored: Any) -> Any:
    """``value`` as an item of the dtype, where its bytes would else be taken for those of another, or be cut."""
    if not isinstance(value, np.ndarray | np.generic | tuple | date | timedelta | str | bytes | float):
        return value  # is JSON, or becomes JSON, whatever the dtype
    dtype = wire.dtype_from_json(stored)
    if dtype.hasobject or (isinstance(value, tuple) and dtype.names is None) or _is_spelled(value, dtype):
        return value
    if isinstance(value, np.ndarray):
        value = value.reshape(())[()]  # raises where it is more than one value
    whole = isinstance(value, np.floating) and value.is_integer() and dtype.kind in "iu"
    item = np.zeros((), dtype)  # between the fields of records there are zeros
    item[...] = as_values(int(value) if whole else value, dtype)
    return item[()]


def _is_spelled(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether text or bytes stand for an item as Zarr spells it: "NaN", or the bytes of a record, also in base64.

    So does a number, but in place of a complex one "NaN" would be taken for base64.
    """
    if type(value) is float:
        return dtype.kind != "c"
    if type(value) is bytes:
        return dtype.kind == "V" and not is_extension(dtype)
    return isinstance(value, str) and dtype.kind not in "SUmM"


def read_lengths(shape: Any) -> list[int | None]:
    """The length of each axis, None where it is to stay; an integer alone stands for one axis.

    Raises `TypeError` for lengths that are no integers: a part of one would be lost.
    """
    if hasattr(shape, "__index__") and np.ndim(shape) == 0:
        shape = [shape]
    if isinstance(shape, str | bytes) or not hasattr(shape, "__iter__"):
        raise TypeError(f"shape={shape!r}: expected an integer, or one for each axis")
    return [None if length is None else operator.index(length) for length in shape]


def _dtype_json(dtype: Any) -> Any:
    """The Zarr v2 spelling: numpy's dtypes and their names are translated, what is Zarr's JSON already stays.

    In a list, numpy's fields are tuples and Zarr's are lists.
    """
    if isinstance(dtype, list) and all(isinstance(field, list) for field in dtype):
        return dtype
    if isinstance(dtype, str) and wire.is_extension_name(dtype):
        return dtype
    return wire.dtype_to_json(_numpy_dtype(dtype))


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """numpy's reading, in which fields may have Zarr's names of what numpy lacks."""
    if isinstance(dtype, str) and wire.is_extension_name(dtype):
        return wire.dtype_from_json(dtype)
    if isinstance(dtype, list):
        dtype = [(name, _numpy_dtype(inner), *shape) for name, inner, *shape in dtype]
    found: np.dtype[Any] = np.dtype(dtype)
    if found.kind in "SU" and not found.itemsize:
        raise ValueError(
            f"dtype {found} does not say how long a text may be: 'U10' does, and for any length there is dtype=object "
            'with filters=[{"id": "vlen-utf8"}]'
        )
    return found


def _codec(codec: Codec | None) -> Mapping[str, Any] | None:
    if isinstance(codec, str):
        return {"id": codec}
    return codec if codec is None or isinstance(codec, Mapping) else codec.get_config()
