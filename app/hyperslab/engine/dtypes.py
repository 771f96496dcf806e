"""Data types: strict parser of Zarr v2's JSON.

Specification "Data type encoding", with the extension types of TensorStore's zarr driver (``bfloat16``, 8-bit floats,
and ``int4`` and ``int2`` with one value per byte).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import ml_dtypes
import numpy as np

from hyperslab.engine.selection import Selection
from hyperslab.errors import shown
from hyperslab.wire import PADDING

MAX_RANK: Final = 64
"""Maximum number of dimensions in numpy, including those of subarrays."""
MAX_ITEMSIZE: Final = 64 << 20
"""Maximum bytes of an item: a fill value is an item, and must be cheap."""
MAX_FIELDS: Final = 10_000

EXTENSION_FLOATS: Final = frozenset(
    {
        "bfloat16",
        "float4_e2m1fn",
        "float8_e3m4",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    }
)
NARROW_INTEGERS: Final = {"int2": 2, "int4": 4, "uint2": 2, "uint4": 4}
"""Significant low bits by name; the other bits of the byte are ignored."""

_EXTENSIONS = EXTENSION_FLOATS | NARROW_INTEGERS.keys()
_NAMED_KINDS = {"int": "i", "uint": "u", "float": "f", "complex": "c", "datetime": "M", "timedelta": "m"}
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16), "m": (8,), "M": (8,)}
_CHARACTER_BYTES = {"S": 1, "V": 1, "U": 4}


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
        """``a`` with unused bits normalised: bools other than 0 become 1, ``int4`` and ``int2`` are sign-extended from
        their low bits. Returns ``a`` itself if nothing changes, and never writes to it."""
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


def named_dtype(value: Any) -> Any:
    """A dtype with numpy's names (``uint16``, ``datetime64[ns]``), also of fields, replaced by type strings; anything
    else is unchanged."""
    if isinstance(value, list):
        are_fields = all(isinstance(field, list) and len(field) in (2, 3) for field in value)
        return [[name, named_dtype(base), *rest] for name, base, *rest in value] if are_fields else value
    if value in ("bool", "object"):
        return {"bool": "|b1", "object": "|O"}[value]
    found = re.fullmatch(r"([a-z]+)([0-9]{1,3})(\[\w+\])?", value, re.ASCII) if isinstance(value, str) else None
    if found is None or found[1] not in _NAMED_KINDS:
        return value
    kind, (size, rest) = _NAMED_KINDS[found[1]], divmod(int(found[2]), 8)
    known = size in _SIZES[kind] and not rest
    return f"{'|' if size == 1 else '<'}{kind}{size}{found[3] or ''}" if known else value


def canonical_json(value: Any) -> Any:
    """A valid dtype in canonical form, with ``|`` if byte order has no meaning."""
    if isinstance(value, str):
        return value if value in _EXTENSIONS else np.dtype(value).str
    return [[name, canonical_json(base), *shape] for name, base, *shape in value]


def _simple_dtype(text: str, *, v3: bool) -> np.dtype[Any]:
    if text == "|O":
        return np.dtype(object)
    if text in _EXTENSIONS and (v3 or not text.startswith("uint")):
        extension: np.dtype[Any] = np.dtype(getattr(ml_dtypes, text))
        return extension
    match = re.fullmatch(r"([<>|])([biufcmMSUV])([1-9][0-9]{0,10})(\[[^\[\]]*\])?", text, re.ASCII)
    if match is None:
        raise ValueError(f"{shown(text)} is not a type string of the specification, such as '<u2'")
    order, kind, digits, unit = match.groups()
    itemsize = int(digits) * _CHARACTER_BYTES.get(kind, 1)
    if kind not in "mM" and unit is not None:
        raise ValueError(f"{shown(text)} is no time and has no unit")
    time = re.fullmatch(r"\[([1-9][0-9]{0,9})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]|", unit or "", re.ASCII)
    if kind in "mM" and (time is None or not (unit or v3) or int(time[1] or 1) >= 2**31):
        raise ValueError(f"{shown(text)} needs a unit of time, such as [ns] or [10s]")
    if kind not in _CHARACTER_BYTES and itemsize not in _SIZES[kind]:
        sizes = " or ".join(map(str, _SIZES[kind]))
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
    return dtype.base.kind == "b" or dtype.base.name in NARROW_INTEGERS


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
    unsigned = a.dtype.name.startswith("u")
    stored, idle_bits = a.view(np.uint8 if unsigned else np.int8), 8 - NARROW_INTEGERS[a.dtype.name]
    extended = (stored << idle_bits) >> idle_bits
    return a if np.array_equal(stored, extended) else extended.view(a.dtype)
