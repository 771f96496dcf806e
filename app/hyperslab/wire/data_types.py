"""Notations of data types: names and objects of Zarr v3, and numpy's, become those of Zarr v2.

[Zarr v3 core specification, "Data types"; zarr-extensions, "data-types"; numpy, "Data type objects"; zarr-python's data
type pages]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np

from hyperslab.errors import shown

ByteOrder = Literal["<", ">"]

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
COMPLEX_NAMES: Final = {"complex_float16": "complex32", "complex_bfloat16": "bcomplex32"}
"""Complex numbers of ml_dtypes by their names in Zarr v3. Its other names are those of Zarr."""

EXTENSIONS = EXTENSION_FLOATS | NARROW_INTEGERS.keys() | COMPLEX_NAMES.keys()
V3_ONLY: Final = COMPLEX_NAMES.keys() | {"uint2", "uint4", "float6_e2m3fn", "float6_e3m2fn", "float8_e4m3"}
"""Extensions that no writer of Zarr v2 knows."""
CODES: Final = {
    np.dtype(code).name: code
    for code in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "M8", "m8")
}
"""Type strings without byte order, by numpy's names, which for numbers are those of Zarr v3."""
_OTHER_NAMES: Final = (
    "? b B h H i I l L q Q p P n N e f d F D bool_ byte ubyte short ushort intc uintc int_ int uint long ulong "
    "longlong ulonglong intp uintp half single double float csingle cdouble complex"
)
_NAMES: Final = {
    **{name: np.dtype(name).str[1:] for name in _OTHER_NAMES.split()},
    **CODES,
    **{"M": "M8", "m": "m8", "object": "O", "object_": "O"},
}
"""The same by all of numpy's names, also those whose size is this machine's."""
_UNITS: Final = {"[generic]": "", "[μs]": "[us]", "[µs]": "[us]"}
_NATIVE: Final[ByteOrder] = "<" if sys.byteorder == "little" else ">"
_LONGEST: Final = 4096
"""Characters of a type string of numpy, which is searched for each comma."""
_ZARR_V2: Final = {"name", "object_codec_id"}
"""Members of zarr-python's JSON of a data type of Zarr v2."""
NUMBERS: Final = {name: code for name, code in CODES.items() if code[0] not in "mM"}
_ALIASES: Final = {"complex_float32": "complex64", "complex_float64": "complex128"}
"""Other names of numbers in Zarr v3."""
TIMES: Final = {f"numpy.{name}": code for name, code in CODES.items() if code[0] in "mM"}
OBJECTS: Final = {"string": "vlen-utf8", "bytes": "vlen-bytes", "variable_length_bytes": "vlen-bytes"}
"""Variable-length items of Zarr v3, and their codecs."""
_OBJECT_NAMES: Final = {"str": "string", "T": "string", "bytes": "variable_length_bytes"}
"""Other names of them, in numpy and zarr-python."""
RECORDS: Final = ("structured", "struct")
"""Names of records in Zarr v3. New ones are ``structured``, unless a request says ``struct``: zarr-python 3.1, the last
one for Python 3.11, knows no other, and later ones and TensorStore read both."""
FIXED: Final = {"fixed_length_utf32": ("U", 4), "null_terminated_bytes": ("S", 1), "raw_bytes": ("V", 1)}
"""Items of a fixed length in Zarr v3, their kinds, and the bytes of a character."""


def named_configuration(value: Any, what: str, *, optional: bool = False) -> tuple[str, dict[str, Any]]:
    """Name and configuration of ``what``: a data type, a codec or a grid, as an object or a bare name; ``optional``: it
    may state ``must_understand: false``. Raises `ValueError`. [Zarr v3 core specification, "Extension points"]"""
    match value:
        case str():
            return value, {}
        case {"name": str(name), **members}:
            configuration = members.pop("configuration", None)
            understood = members.pop("must_understand", True)
            if understood is not True and not (optional and understood is False):
                raise ValueError(f"{what} {name!r} cannot be left out, as its must_understand has it")
            if members:
                raise ValueError(f"{what} {name!r} has the unknown member {next(iter(members))!r}")
            if isinstance(configuration, dict | None):  # null is that of Java's writers
                return name, configuration or {}
            raise ValueError(f"the configuration of {what} {name!r} is an object, found {shown(configuration)}")
    raise ValueError(f"expected {what} with a name, found {shown(value)}")


def named_type(value: Any) -> tuple[str, dict[str, Any]]:
    """Name and configuration of a data type; raises `ValueError`."""
    return named_configuration(value, "a data type")


def v2_dtype(value: Any, order: ByteOrder) -> Any:
    """The ``dtype`` of Zarr v2 that is equivalent to a ``data_type``, with bytes in ``order``; raises `ValueError`."""
    name, configuration = named_type(value)
    if name in RECORDS:
        return [[field, v2_dtype(kind, order)] for field, kind in fields_of(configuration)]
    if name in FIXED:
        kind, unit = FIXED[name]
        _check_members(name, configuration, "length_bytes")
        nbytes = configuration.get("length_bytes")
        if type(nbytes) is not int or nbytes < 1 or nbytes % unit:
            raise ValueError(f"{name}.length_bytes: expected a positive multiple of {unit}, found {shown(nbytes)}")
        return f"{order if kind == 'U' else '|'}{kind}{nbytes // unit}"
    if name in TIMES:
        _check_members(name, configuration, "unit", "scale_factor")
        base, factor = configuration.get("unit"), configuration.get("scale_factor")
        if not isinstance(base, str) or type(factor) is not int or not 0 < factor < 2**31:
            raise ValueError(f"{name}: expected a unit and a scale_factor below 2**31, found {shown(configuration)}")
        base = "us" if base in ("μs", "µs") else base
        return order + TIMES[name] + ("" if base == "generic" else f"[{'' if factor == 1 else factor}{base}]")
    if configuration:
        raise ValueError(f"data type {name!r} has no configuration, found {shown(configuration)}")
    if (number := NUMBERS.get(_ALIASES.get(name, name))) is not None:
        return ("|" if number[1:] == "1" else order) + number
    if name in EXTENSIONS or name in OBJECTS:
        return "|O" if name in OBJECTS else name
    raw = re.fullmatch(r"r([1-9][0-9]{0,9})", name, re.ASCII)
    if raw is None or int(raw[1]) % 8:
        raise ValueError(f"the data type {name!r} is unknown")
    return f"|V{int(raw[1]) // 8}"


def _check_members(name: str, configuration: Mapping[str, Any], *known: str) -> None:
    if unknown := sorted(configuration.keys() - {*known}):
        raise ValueError(f"data type {name!r} has no parameter {unknown[0]!r}")


def fields_of(configuration: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and data types of the fields of a record: pairs for ``structured``, objects for ``struct``."""
    _check_members("struct", configuration, "fields")
    fields = configuration.get("fields")
    if not isinstance(fields, list) or not fields:
        raise ValueError(f"struct.fields: expected a list of fields, found {shown(fields)}")
    pairs: list[tuple[str, Any]] = []
    for field in fields:
        members = {**field} if isinstance(field, dict) else {}
        pair = [members.pop("name", None), members.pop("data_type", None)] if members else field
        if members:
            raise ValueError(f"struct.fields: a field has no member {min(members)!r}")
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str) or not pair[0]:
            raise ValueError(f"struct.fields: expected a name and a data_type, found {shown(field)}")
        if named_type(pair[1])[0] in OBJECTS:
            raise ValueError(f"struct.fields: {shown(pair[0])}: items of any length cannot be fields")
        pairs.append((pair[0], pair[1]))
    return pairs


def with_records(data_type: Any, name: str) -> Any:
    """The data type with its records, at any depth, as ``struct`` or ``structured``; others are unchanged."""
    kind, configuration = named_type(data_type)
    if kind not in RECORDS:
        return data_type
    fields = [(field, with_records(inner, name)) for field, inner in fields_of(configuration)]
    as_objects = [{"name": field, "data_type": inner} for field, inner in fields]
    return {"name": name, "configuration": {"fields": as_objects if name == "struct" else [*map(list, fields)]}}


def named_dtype(value: Any) -> Any:
    """A dtype of a request in the notation of a ``.zarray``; what has no other meaning is unchanged.

    Known are numpy's type strings and names (``i4``, ``=f8``, ``int``, ``half``, ``?``, ``U10``, ``M8[ns]``,
    ``i4,f4``), also of fields, which may be repeated (``(2,)i4``); names of objects; and the JSON of zarr-python's data
    types, in the form of either format. Raises `ValueError`.
    """
    if isinstance(value, Mapping):
        return named_dtype(value["name"]) if value.keys() == _ZARR_V2 else v2_dtype(value, "<")
    if isinstance(value, list):
        are_fields = all(isinstance(field, list) and len(field) in (2, 3) for field in value)
        return [_named_field(*field) for field in value] if are_fields else value
    if not isinstance(value, str):
        return value
    named, repeated = _type_of_numpy(value)
    return value if repeated else named


def implied_codec(dtype: Any) -> str | None:
    """The object codec that the name of a dtype in a request implies, as ``string`` does; None without one."""
    if isinstance(dtype, Mapping):
        codec: str | None = dtype["object_codec_id"] if dtype.keys() == _ZARR_V2 else implied_codec(dtype.get("name"))
        return codec
    return OBJECTS.get(_OBJECT_NAMES.get(dtype, dtype)) if isinstance(dtype, str) else None


def _named_field(name: Any, base: Any, shape: Any = ()) -> list[Any]:
    named, repeated = _type_of_numpy(base) if isinstance(base, str) else (named_dtype(base), [])
    sizes = [shape] if type(shape) is int else shape
    sizes = [*sizes, *repeated] if isinstance(sizes, list | tuple) else sizes
    return [name, named, *([] if sizes in ([], ()) and shape == () else [sizes])]


def _type_of_numpy(text: str) -> tuple[Any, list[int]]:
    """The dtype of numpy's text, and how often it is repeated."""
    if len(text) > _LONGEST:
        return text, []
    parts = re.split(r",(?![^(]*\))", text)
    if len(parts) > 1:
        return [_named_field(f"f{i}", part.strip()) for i, part in enumerate(parts) if part or i + 1 < len(parts)], []
    counted = re.fullmatch(r"(?:\(([0-9, ]{1,99})\)|([1-9][0-9]{0,9}))([^0-9].*)", text, re.ASCII)
    sizes = []
    if counted is not None:
        sizes, text = [*map(int, re.findall("[0-9]+", counted[1] or counted[2]))], counted[3]
    if text in _OBJECT_NAMES or text in OBJECTS:
        return "|O", sizes
    match = re.fullmatch(r"([<>=|]?)([A-Za-z?][A-Za-z0-9_]*)(\[[^\[\]]*\])?", text)
    code = None if match is None else _NAMES.get(match[2], match[2])
    if match is None or code is None or not re.fullmatch(r"[biufcmMSUV][0-9]+|O", code):
        return text, sizes
    order, unit = match[1], match[3] or ""
    if order in ("", "="):
        order = "|" if code[0] in "SVO" or code[1:] == "1" else _NATIVE
    return order + code + _UNITS.get(unit, unit), sizes
