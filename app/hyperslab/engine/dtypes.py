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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal

import ml_dtypes
import numpy as np

from hyperslab.engine.selection import Selection
from hyperslab.errors import shown
from hyperslab.wire import COMPLEX_NAMES, PADDING, dtype_from_json, extension_name

ByteOrder = Literal["<", ">"]
Endian = Literal["little", "big"]

MAX_RANK: Final = 64
"""Maximum number of dimensions in numpy, including those of subarrays."""
MAX_ITEMSIZE: Final = 64 << 20
"""Maximum bytes of an item: a fill value is an item, and must be cheap."""
MAX_FIELDS: Final = 10_000

EXTENSION_FLOATS: Final = frozenset(
    {
        "bfloat16",
        "float4_e2m1fn",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    }
)
NARROW_INTEGERS: Final = {"int2": 2, "int4": 4, "uint2": 2, "uint4": 4}
NARROW_FLOATS: Final = {"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}
"""Floats without NaN and infinities."""
NARROW: Final = NARROW_INTEGERS | NARROW_FLOATS
"""Significant low bits by name; the other bits of the byte are ignored."""

_EXTENSIONS = EXTENSION_FLOATS | NARROW_INTEGERS.keys() | COMPLEX_NAMES.keys()
V3_ONLY: Final = COMPLEX_NAMES.keys() | {"uint2", "uint4", "float6_e2m3fn", "float6_e3m2fn", "float8_e4m3"}
_COMPLEX: Final = {"complex_float32": "complex64", "complex_float64": "complex128"}
"""Other names of numbers."""
_CODES: Final = {
    np.dtype(code).name: code
    for code in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "M8", "m8")
}
"""Type strings without byte order, by numpy's names, which for numbers are those of Zarr v3."""
NUMBERS: Final = {name: code for name, code in _CODES.items() if code[0] not in "mM"}
TIMES: Final = {f"numpy.{name}": code for name, code in _CODES.items() if code[0] in "mM"}
OBJECTS: Final = {"string": "vlen-utf8", "bytes": "vlen-bytes", "variable_length_bytes": "vlen-bytes"}
"""Variable-length items of Zarr v3, and their codecs."""
RECORDS: Final = ("structured", "struct")
"""Names of records in Zarr v3. New ones are ``structured``, unless a request says ``struct``: zarr-python 3.1, the last
one for Python 3.11, knows no other, and later ones and TensorStore read both."""
_FIXED: Final = {"fixed_length_utf32": ("U", 4), "null_terminated_bytes": ("S", 1), "raw_bytes": ("V", 1)}
"""Items of a fixed length in Zarr v3, their kinds, and the bytes of a character."""


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


def named_dtype(value: Any) -> Any:
    """A dtype with numpy's names (``uint16``, ``datetime64[ns]``), also of fields, replaced by type strings; anything
    else is unchanged."""
    if isinstance(value, list):
        are_fields = all(isinstance(field, list) and len(field) in (2, 3) for field in value)
        return [[name, named_dtype(base), *rest] for name, base, *rest in value] if are_fields else value
    if not isinstance(value, str):
        return value
    name, bracket, unit = value.partition("[")
    return "|O" if value == "object" else _type_string(_CODES[name]) + bracket + unit if name in _CODES else value


def canonical_json(value: Any) -> Any:
    """A valid dtype in canonical form, with ``|`` if byte order has no meaning."""
    if isinstance(value, str):
        return value if value in _EXTENSIONS else np.dtype(value).str
    return [[name, canonical_json(base), *shape] for name, base, *shape in value]


def kind_of(dtype: np.dtype[Any]) -> str:
    """numpy's kind of a dtype, for extension types that of the numbers which they are like: ``c``, ``f``, ``i`` or
    ``u``."""
    name = extension_name(dtype)
    return dtype.kind if name is None else "f" if name in EXTENSION_FLOATS else name[0]


def limits_of(integers: np.dtype[Any]) -> tuple[int, int]:
    """Minimum and maximum of a dtype of integers."""
    found = ml_dtypes.iinfo(integers)  # type: ignore[no-untyped-call]
    return int(found.min), int(found.max)


def _type_string(code: str, order: ByteOrder = "<") -> str:
    return ("|" if code[1:] == "1" else order) + code


def _simple_dtype(text: str, *, v3: bool) -> np.dtype[Any]:
    if text == "|O":
        return np.dtype(object)
    if text in _EXTENSIONS and (v3 or text not in V3_ONLY):
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
    if kind not in "SUV" and kind + digits not in _CODES.values():
        sizes = " or ".join(code[1:] for code in _CODES.values() if code[0] == kind)
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


def named_configuration(value: Any, what: str, *, optional: bool = False) -> tuple[str, dict[str, Any]]:
    """Name and configuration of ``what``: a data type, a codec or a grid, as an object or a bare name; ``optional``: it
    may state ``must_understand: false``. Raises `ValueError`. [Zarr v3 core specification, "Extension points"]"""
    match value:
        case str():
            return value, {}
        case {"name": str(name), **members}:
            configuration = members.pop("configuration", {})
            understood = members.pop("must_understand", True)
            if understood is not True and not (optional and understood is False):
                raise ValueError(f"{what} {name!r} cannot be left out, as its must_understand has it")
            if members:
                raise ValueError(f"{what} {name!r} has the unknown member {next(iter(members))!r}")
            if isinstance(configuration, dict):
                return name, configuration
            raise ValueError(f"the configuration of {what} {name!r} is an object, found {shown(configuration)}")
    raise ValueError(f"expected {what} with a name, found {shown(value)}")


def named_type(value: Any) -> tuple[str, dict[str, Any]]:
    """Name and configuration of a data type; raises `ValueError`."""
    return named_configuration(value, "a data type")


def dtype_of(value: Any, order: ByteOrder = "<") -> DataType:
    """The data type of the ``data_type`` member of a ``zarr.json``, with bytes in ``order``.

    Raises `ValueError` that names unknown parts.
    """
    return parse_dtype(_as_v2(value, order), v3=True)


def _as_v2(value: Any, order: ByteOrder) -> Any:
    name, configuration = named_type(value)
    if name in RECORDS:
        return [[field, _as_v2(kind, order)] for field, kind in fields_of(configuration)]
    if name in _FIXED:
        kind, unit = _FIXED[name]
        _check_members(name, configuration, "length_bytes")
        nbytes = configuration.get("length_bytes")
        if type(nbytes) is not int or nbytes < 1 or nbytes % unit:
            raise ValueError(f"{name}.length_bytes: expected a positive multiple of {unit}, found {shown(nbytes)}")
        return f"{order if kind == 'U' else '|'}{kind}{nbytes // unit}"
    if name in TIMES:
        return order + TIMES[name] + _unit(name, configuration)
    if configuration:
        raise ValueError(f"data type {name!r} has no configuration, found {shown(configuration)}")
    if (number := _COMPLEX.get(name, name)) in NUMBERS:
        return _type_string(NUMBERS[number], order)
    if name in _EXTENSIONS or name in OBJECTS:
        return "|O" if name in OBJECTS else name
    raw = re.fullmatch(r"r([1-9][0-9]{0,9})", name, re.ASCII)
    if raw is None or int(raw[1]) % 8:
        raise ValueError(f"the data type {name!r} is unknown")
    return f"|V{int(raw[1]) // 8}"


def _check_members(name: str, configuration: Mapping[str, Any], *known: str) -> None:
    if unknown := sorted(configuration.keys() - {*known}):
        raise ValueError(f"data type {name!r} has no parameter {unknown[0]!r}")


def _unit(name: str, configuration: Mapping[str, Any]) -> str:
    """``[25us]``, from a unit and its multiple; empty without a unit."""
    _check_members(name, configuration, "unit", "scale_factor")
    unit, factor = configuration.get("unit"), configuration.get("scale_factor")
    if not isinstance(unit, str) or type(factor) is not int or not 0 < factor < 2**31:
        raise ValueError(f"{name}: expected a unit and a scale_factor below 2**31, found {shown(configuration)}")
    return "" if unit == "generic" else f"[{'' if factor == 1 else factor}{'us' if unit in ('μs', 'µs') else unit}]"


def fields_of(configuration: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and data types of the fields of a record: pairs for ``structured``, objects for ``struct``."""
    _check_members("struct", configuration, "fields")
    fields = configuration.get("fields")
    if not isinstance(fields, list) or not fields:
        raise ValueError(f"struct.fields: expected a list of fields, found {shown(fields)}")
    found: list[tuple[str, Any]] = []
    for field in fields:
        members = {**field} if isinstance(field, dict) else {}
        pair = [members.pop("name", None), members.pop("data_type", None)] if members else field
        if members:
            raise ValueError(f"struct.fields: a field has no member {min(members)!r}")
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str) or not pair[0]:
            raise ValueError(f"struct.fields: expected a name and a data_type, found {shown(field)}")
        if named_type(pair[1])[0] in OBJECTS:
            raise ValueError(f"struct.fields: {shown(pair[0])}: items of any length cannot be fields")
        found.append((pair[0], pair[1]))
    return found


def with_records(data_type: Any, name: str) -> Any:
    """The data type with its records, at any depth, as ``struct`` or ``structured``; others are unchanged."""
    kind, configuration = named_type(data_type)
    if kind not in RECORDS:
        return data_type
    fields = [(field, with_records(each, name)) for field, each in fields_of(configuration)]
    as_objects = [{"name": field, "data_type": each} for field, each in fields]
    return {"name": name, "configuration": {"fields": as_objects if name == "struct" else [*map(list, fields)]}}


def data_type_of(json: Any, object_codec: str | None = None) -> Any:
    """The ``data_type`` equivalent to a ``dtype`` of Zarr v2; raises `ValueError` if there is none."""
    if isinstance(json, list):
        if any(len(field) > 2 or not field[0] for field in json):
            raise ValueError("Zarr v3 has no subarrays and no padding in its records")
        return {"name": "structured", "configuration": {"fields": [[n, data_type_of(kind)] for n, kind in json]}}
    if json == "|O":
        known = {codec: name for name, codec in OBJECTS.items()}
        if object_codec not in known:
            raise ValueError(f"Zarr v3 has no data type for objects that {object_codec!r} stores")
        return known[object_codec]
    if json in _EXTENSIONS:
        return json
    dtype = np.dtype(json)
    for name, code in TIMES.items():
        if dtype.kind == code[0]:
            unit, count = np.datetime_data(dtype)
            return {"name": name, "configuration": {"unit": unit, "scale_factor": count}}
    for name, (kind, _) in _FIXED.items():
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
