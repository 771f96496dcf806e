"""Array definitions: the request bodies that create arrays."""

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
    object_codec,
)
from hyperslab.wire.data_types import EXTENSIONS


class SupportsConfig(Protocol):
    """Interface of numcodecs' codec objects."""

    def get_config(self) -> Mapping[str, Any]: ...


Codec = str | Mapping[str, Any] | SupportsConfig
"""A codec as name, configuration, or object of numcodecs."""


def define_array(
    values: AnyArray | None, shape: int | Sequence[int] | None, dtype: Any, members: Mapping[str, Any]
) -> dict[str, Any]:
    """Request body that creates an array; shape and dtype default to those of ``values``.

    Fill values are cast to the dtype first, so that text for ``S`` is text and not base64. Raises `ValueError` without
    a shape or dtype and for text without a length; `TypeError`, `ValueError` or `OverflowError` for values or a fill
    value that do not fit.
    """
    if values is not None:
        shape = values.shape if shape is None else shape
        dtype = values.dtype if dtype is None else dtype
    if shape is None or dtype is None:
        raise ValueError("a new array needs a shape and a dtype, or data= that has them")
    stored, codec = dtype_json(dtype)
    if members.get("zarr_format") == 3:
        if isinstance(stored, list):  # Zarr v3 stores records in little-endian order, without padding
            stored = wire.dtype_to_json(wire.dtype_from_json(_packed(stored)).newbyteorder("<"))
        elif stored == "|O" and "codecs" not in members:
            codec = codec or "vlen-utf8"
    if codec is not None and not members.get("filters"):
        members = {**members, "filters": [codec]}
    encoded = {name: value for name, value in members.items() if name != "fill_value"}
    if "compressor" in members:
        encoded["compressor"] = _codec(members["compressor"])
    if members.get("filters") is not None:
        encoded["filters"] = [_codec(codec) for codec in members["filters"]]
    if "fill_value" in members:
        fill_value, record = members["fill_value"], wire.dtype_from_json(stored) if isinstance(stored, list) else None
        if record is not None and isinstance(fill_value, Mapping):
            fill_value = _as_record(fill_value, record)
        encoded["fill_value"] = format_fill_value(_as_item(fill_value, stored))
    lengths = [operator.index(length) for length in read_lengths(shape)]  # type: ignore[arg-type]  # refuses None
    if values is not None:
        item_dtype = wire.dtype_from_json(stored)
        broadcast(as_values(values, item_dtype), tuple(lengths))
        if item_dtype.hasobject:
            encode_objects(as_stored(values, object_codec(encoded)))
    return {"kind": "array", "shape": lengths, "dtype": stored, **encoded}


def _packed(fields: list[Any]) -> list[Any]:
    """Fields without padding, which has no name."""
    parts = [[name, _packed(kind) if isinstance(kind, list) else kind, *shape] for name, kind, *shape in fields if name]
    return parts or fields


def initial_values(data: Any, dtype: Any) -> AnyArray:
    """Values of a new array, checked against ``dtype`` if not None; raises as `as_values`."""
    return np.asarray(data) if dtype is None else as_values(data, wire.dtype_from_json(dtype_json(dtype)[0]))


def _as_item(value: Any, stored: Any) -> Any:
    """``value`` as an item of the dtype, unless it is Zarr's JSON already."""
    if not isinstance(value, np.ndarray | np.generic | tuple | date | timedelta | str | bytes | float):
        return value
    dtype = wire.dtype_from_json(stored)
    if dtype.hasobject or (isinstance(value, tuple) and dtype.names is None) or _is_zarr_json(value, dtype):
        return value
    if isinstance(value, np.ndarray):
        value = value.reshape(())[()]  # raises ValueError for more than one value
    is_integer = isinstance(value, np.floating) and value.is_integer() and dtype.kind in "iu"
    item = np.zeros((), dtype)  # zeros in the padding of records
    item[...] = as_values(int(value) if is_integer else value, dtype)
    return item[()]


def _as_record(values: Mapping[str, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A record from a value for each field, which may also be in Zarr's JSON; raises `ValueError` for other names."""
    names = wire.field_names(dtype)
    if sorted(values) != sorted(names):
        raise ValueError(f"fill_value={dict(values)!r}: expected a value for each of {', '.join(names)}")
    record = np.zeros((), dtype)
    for name in names:
        value, field = values[name], dtype[name]
        if field.base.names is not None and isinstance(value, Mapping):
            value = _as_record(value, field.base)
        elif isinstance(value, str) and field.base.kind in "fc":
            value = float(value)  # "NaN"
        record[name] = as_values(value, field.base)
    return record


def _is_zarr_json(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a value is Zarr's encoding of an item: "NaN", the bytes of a record (also base64), or a float.

    Not a float for complex dtypes, for which "NaN" would be taken for base64.
    """
    if type(value) is float:
        return dtype.kind != "c"
    if type(value) is bytes:
        return dtype.kind == "V" and not wire.is_extension(dtype)
    return isinstance(value, str) and dtype.kind not in "SUmM"


def read_lengths(shape: Any) -> list[int | None]:
    """The length of each axis, None for unchanged ones; an integer is the length of a single axis.

    Raises `TypeError` for lengths that are not integers.
    """
    if hasattr(shape, "__index__") and np.ndim(shape) == 0:
        shape = [shape]
    if isinstance(shape, str | bytes) or not hasattr(shape, "__iter__"):
        raise TypeError(f"shape={shape!r}: expected an integer, or one for each axis")
    return [None if length is None else operator.index(length) for length in shape]


def dtype_json(dtype: Any) -> tuple[Any, str | None]:
    """Zarr v2's JSON of a dtype, and the object codec that it implies.

    A dtype is one of numpy, or anything that numpy or zarr-python's ``parse_dtype`` takes for one: a name, a type
    string, a type (``str`` and ``bytes`` are of any length), a ``StringDType``, a ``ZDType``, or JSON of Zarr v2 or v3,
    in which fields are lists (tuples in numpy).
    """
    if isinstance(dtype, type) and (issubclass(dtype, np.dtype) or hasattr(dtype, "to_native_dtype")):
        dtype = dtype()  # as np.dtypes.Int32DType, which numpy takes for an object
    if hasattr(dtype, "to_native_dtype"):  # of zarr-python
        dtype = dtype.to_json(zarr_format=2)
    if isinstance(dtype, type) and dtype in (str, bytes):
        dtype = dtype.__name__
    if getattr(dtype, "kind", None) == "T" or dtype is np.dtypes.StringDType:
        dtype = "string"
    is_json = isinstance(dtype, Mapping) and "name" in dtype
    if is_json or (isinstance(dtype, list) and all(isinstance(field, list) for field in dtype)):
        return wire.named_dtype(dtype), wire.implied_codec(dtype)
    if isinstance(dtype, str) and (dtype in EXTENSIONS or wire.implied_codec(dtype)):
        return wire.named_dtype(dtype), wire.implied_codec(dtype)
    return wire.dtype_to_json(_numpy_dtype(dtype)), None


def _numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """``numpy.dtype(dtype)``, where fields may also have names of ml_dtypes."""
    if isinstance(dtype, str) and dtype in EXTENSIONS:
        return wire.dtype_from_json(dtype)
    if isinstance(dtype, list):
        dtype = [(name, _numpy_dtype(inner), *shape) for name, inner, *shape in dtype]
    parsed: np.dtype[Any] = np.dtype(dtype)
    if parsed.hasobject and isinstance(dtype, type) and dtype not in (object, np.object_):
        raise TypeError(f"dtype={dtype!r}: numpy has no such type; use object for any Python object")
    if parsed.kind in "SU" and not parsed.itemsize:
        raise ValueError(
            f"dtype {parsed} has no length: use for example 'U10', or for text of any length dtype=str, for bytes "
            "dtype=bytes"
        )
    return parsed


def _codec(codec: Codec | None) -> Mapping[str, Any] | None:
    if isinstance(codec, str):
        return {"id": codec}
    return codec if codec is None or isinstance(codec, Mapping) else codec.get_config()
