"""Data types: strict parsers of the JSON of Zarr v2 and v3, and conversion between them.

A data type of v3 becomes the equivalent ``dtype`` of v2, so that one engine reads both. A ``dtype`` of v2 becomes a
form that zarr-python 3.1 and TensorStore read alike. The extension types are in v3 those of zarr-extensions that
ml_dtypes has, and in v2 those of TensorStore's zarr driver (``bfloat16``, 8-bit floats, and ``int4`` and ``int2`` with
one value per byte). [Zarr v2 specification, "Data type encoding"; Zarr v3 core specification, "Data types";
zarr-extensions, "data-types"; zarr-python's data type pages]
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

from hyperslab.engine.selection import Selection
from hyperslab.errors import shown
from hyperslab.wire import PADDING, dtype_from_json, kind_of
from hyperslab.wire.data_types import (
    CODES,
    COMPLEX_NAMES,
    EXTENSIONS,
    FIXED,
    NARROW,
    OBJECTS,
    TIMES,
    V3_ONLY,
    ByteOrder,
    v2_dtype,
)

Endian = Literal["little", "big"]

MAX_RANK: Final = 64
"""Maximum number of dimensions in numpy, including those of subarrays."""
MAX_ITEMSIZE: Final = 64 << 20
"""Maximum bytes of an item: a fill value is an item, and must be cheap."""
MAX_FIELDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Field:
    """Field: ``numpy`` and ``json`` are its base dtype, ``shape`` is that of its subarray.

    ``offset`` is in bytes from the start of the item. ``part`` is a selection of the subarray, and ``shape`` then that
    of the selection.
    """

    name: str
    numpy: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    json: Any
    part: Selection | None = None


@dataclass(frozen=True, slots=True)
class DataType:
    """Data type: its ``json``, the ``numpy`` dtype of stored items, and its ``fields`` without padding, () if not
    structured."""

    json: Any
    numpy: np.dtype[Any]
    fields: tuple[Field, ...]

    @property
    def itemsize(self) -> int:
        """Bytes of an item (of a pointer, for objects)."""
        return self.numpy.itemsize

    def field(self, name: str) -> Field:
        """The field of this name; raises `KeyError`."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def clean(self, a: np.ndarray) -> np.ndarray:
        """``a`` with unused bits normalised: bools other than 0 become 1, numbers of 6, 4 and 2 bits are those of their
        low bits. Returns ``a`` itself if nothing changes, and never writes to it."""
        return _clean(a) if self.has_idle_bits else a

    @property
    def has_idle_bits(self) -> bool:
        """Whether the dtype has unused bits, which `clean` normalises."""
        return _has_idle_bits(self.numpy)


def parse_dtype(value: Any, *, v3: bool = False) -> DataType:
    """The data type of a ``dtype`` member: a type string or a list of fields; ``v3`` allows names of Zarr v3.

    Raises `ValueError` for any other notation, also of numpy.
    """
    if isinstance(value, str):
        return DataType(value, _simple_dtype(value, v3=v3), ())
    if isinstance(value, list):
        numpy, fields = _structured_dtype(value, v3=v3)
        return DataType(value, numpy, fields)
    raise ValueError("expected a type string such as '<i4', or a list of fields")


def canonical_json(value: Any) -> Any:
    """A valid dtype in canonical form, with ``|`` if byte order has no meaning."""
    if isinstance(value, str):
        return value if value in EXTENSIONS else np.dtype(value).str
    return [[name, canonical_json(base), *shape] for name, base, *shape in value]


def _simple_dtype(text: str, *, v3: bool) -> np.dtype[Any]:
    if text == "|O":
        return np.dtype(object)
    if text in EXTENSIONS and (v3 or text not in V3_ONLY):
        return dtype_from_json(text)
    match = re.fullmatch(r"([<>|])([biufcmMSUV])([1-9][0-9]{0,10})(\[[^\[\]]*\])?", text, re.ASCII)
    if match is None:
        raise ValueError(f"{shown(text)} is not a type string of the specification, such as '<u2'")
    order, kind, digits, unit = match.groups()
    itemsize = int(digits) * (4 if kind == "U" else 1)
    if kind not in "mM" and unit is not None:
        raise ValueError(f"{shown(text)} is no time and has no unit")
    time = re.fullmatch(r"\[([1-9][0-9]{0,9})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]|", unit or "", re.ASCII)
    if kind in "mM" and (time is None or not (unit or v3) or int(time[1] or 1) >= 2**31):
        raise ValueError(f"{shown(text)} needs a unit of time, such as [ns] or [10s]")
    if kind not in "SUV" and kind + digits not in CODES.values():
        sizes = " or ".join(code[1:] for code in CODES.values() if code[0] == kind)
        raise ValueError(f"{shown(text)} does not exist: kind {kind!r} has {sizes} bytes")
    _check_itemsize(itemsize)
    if order == "|" and (kind == "U" or (itemsize > 1 and kind not in "SV")):
        raise ValueError(f"{shown(text)} needs a byte order, '<' or '>'")
    return np.dtype(text)


def _structured_dtype(entries: list[Any], *, v3: bool) -> tuple[np.dtype[Any], tuple[Field, ...]]:
    if len(entries) > MAX_FIELDS:
        raise ValueError(f"{len(entries)} fields, the limit is {MAX_FIELDS}")
    fields: list[Field] = []
    offset = 0
    for entry in entries:
        field = _parse_field(entry, offset, v3=v3)
        offset += field.numpy.itemsize * math.prod(field.shape)
        _check_itemsize(offset)
        fields.append(field if field.name else replace(field, name=f"{PADDING} {field.offset}"))
    named = tuple(field for field in fields if not field.name.startswith(PADDING))
    if not named:
        raise ValueError("expected at least one named field")
    twice = next((name for name, count in Counter(field.name for field in named).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"two fields are named {shown(twice)}")
    layout: Any = {
        "names": [field.name for field in fields],
        "formats": [(field.numpy, field.shape) if field.shape else field.numpy for field in fields],
        "offsets": [field.offset for field in fields],
        "itemsize": offset,
    }
    return np.dtype(layout), named


def _parse_field(entry: Any, offset: int, *, v3: bool) -> Field:
    match entry:
        case [str(name), base]:
            sizes: Any = []
        case [str(name), base, sizes]:
            pass
        case _:
            raise ValueError(f"expected fields as [name, dtype] or [name, dtype, shape], found {shown(entry)}")
    try:
        numpy, shape = parse_dtype(base, v3=v3).numpy, _subarray_shape(sizes)
    except ValueError as error:
        raise ValueError(f"field {shown(name)}: {error}") from None
    if numpy.hasobject:
        raise ValueError(f"field {shown(name)}: objects cannot be fields")
    if name.startswith(PADDING):
        raise ValueError(f"{shown(name)} is no name that a field may have")
    if not name and (numpy.type is not np.void or numpy.names is not None):
        raise ValueError("only padding, of kind 'V', has an empty name")
    return Field(name, numpy, shape, offset, base)


def _subarray_shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise ValueError(f"the shape of a subarray is a list of at most {MAX_RANK} integers")
    for size in value:
        if type(size) is not int or size < 1:
            raise ValueError(f"the sizes of a subarray are positive integers, found {shown(size)}")
    _check_itemsize(math.prod(value))
    return tuple(value)


def _check_itemsize(nbytes: int) -> None:
    if nbytes > MAX_ITEMSIZE:
        raise ValueError(f"an item of more than {MAX_ITEMSIZE} bytes")


@lru_cache(maxsize=1024)
def _has_idle_bits(dtype: np.dtype[Any]) -> bool:
    if dtype.names is not None:
        return any(_has_idle_bits(dtype[name]) for name in dtype.names)
    return dtype.base.kind == "b" or dtype.base.name in NARROW


def _clean(a: np.ndarray) -> np.ndarray:
    if a.dtype.names is not None:
        out = a
        for name in a.dtype.names:
            part = a[name]
            cleaned = _clean(part) if _has_idle_bits(part.dtype) else part
            if cleaned is not part:
                out = a.copy(order="K") if out is a else out
                out[name] = cleaned
        return out
    if a.dtype.kind == "b":
        stored = a.view(np.uint8)
        return a if (stored <= 1).all() else stored != 0
    stored, idle_bits = a.view(np.int8 if kind_of(a.dtype) == "i" else np.uint8), 8 - NARROW[a.dtype.name]
    extended = (stored << idle_bits) >> idle_bits
    return a if np.array_equal(stored, extended) else extended.view(a.dtype)


# --- Zarr v3 ---------------------------------------------------------------------------------------------------------


def dtype_of(value: Any, order: ByteOrder = "<") -> DataType:
    """The data type of the ``data_type`` member of a ``zarr.json``, with bytes in ``order``.

    Raises `ValueError` that names unknown parts.
    """
    return parse_dtype(v2_dtype(value, order), v3=True)


def data_type_of(json: Any, object_codec: str | None = None) -> Any:
    """The ``data_type`` equivalent to a ``dtype`` of Zarr v2; raises `ValueError` if there is none."""
    if isinstance(json, list):
        if any(len(field) > 2 or not field[0] for field in json):
            raise ValueError("Zarr v3 has no subarrays and no padding in its records")
        return {"name": "structured", "configuration": {"fields": [[n, data_type_of(kind)] for n, kind in json]}}
    if json == "|O":
        names = {codec: name for name, codec in OBJECTS.items()}
        if object_codec not in names:
            raise ValueError(f"Zarr v3 has no data type for objects that {object_codec!r} stores")
        return names[object_codec]
    if json in EXTENSIONS:
        return json
    dtype = np.dtype(json)
    for name, code in TIMES.items():
        if dtype.kind == code[0]:
            unit, count = np.datetime_data(dtype)
            return {"name": name, "configuration": {"unit": unit, "scale_factor": count}}
    for name, (kind, _) in FIXED.items():
        if dtype.kind == kind:
            return {"name": name, "configuration": {"length_bytes": dtype.itemsize}}
    return dtype.name


def endian_of(json: Any) -> Endian | None:
    """The byte order of a ``dtype`` of Zarr v2, None without one; raises `ValueError` for mixed fields."""
    if isinstance(json, list):
        orders = {order for field in json if (order := endian_of(field[1])) is not None}
        if len(orders) > 1:
            raise ValueError("Zarr v3 has one byte order for all fields of a record")
        return orders.pop() if orders else None
    if json == "bfloat16" or json in COMPLEX_NAMES:
        return "little"
    return {"<": "little", ">": "big"}.get(json[0])  # type: ignore[return-value]
