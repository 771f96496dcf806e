"""Zarr v3 data types and fill values, in terms of those of Zarr v2.

A data type becomes the v2 ``dtype`` that means the same, so that one engine reads both. [Zarr v3 core specification,
"Data types"; zarr-extensions, "data-types"; zarr-python's data type pages]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np

from hyperslab.engine.dtypes import EXTENSION_FLOATS, NARROW_INTEGERS, DataType, parse_dtype
from hyperslab.engine.fill_value import from_base64, object_item, parse_fill_value
from hyperslab.errors import shown

ByteOrder = Literal["<", ">"]

NUMBERS: Final = {
    "bool": "|b1",
    **{f"{name}{8 * size}": f"{kind}{size}" for name, kind in (("int", "i"), ("uint", "u")) for size in (1, 2, 4, 8)},
    **{f"float{8 * size}": f"f{size}" for size in (2, 4, 8)},
    **{f"complex{8 * size}": f"c{size}" for size in (8, 16)},
}
"""Names of numbers, and numpy's type strings without byte order."""
OBJECTS: Final = {"string": "vlen-utf8", "bytes": "vlen-bytes", "variable_length_bytes": "vlen-bytes"}
"""Items of any length, and the codec that stores them."""
_FIXED: Final = {"fixed_length_utf32": ("U", 4), "null_terminated_bytes": ("S", 1), "raw_bytes": ("V", 1)}
_TIMES: Final = {"numpy.datetime64": "M8", "numpy.timedelta64": "m8"}
_RAW: Final = re.compile(r"r([1-9][0-9]{0,9})", re.ASCII)
_UNITS: Final = {"μs": "us", "µs": "us"}
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+", re.ASCII)
_SPELLED: Final = ("NaN", "Infinity", "-Infinity")


def dtype_of(value: Any, order: ByteOrder = "<") -> DataType:
    """The data type that the ``data_type`` member of a ``zarr.json`` stands for, its bytes in ``order``.

    Raises `ValueError` that names what is unknown.
    """
    return parse_dtype(_as_v2(value, order), v3=True)


def name_of(value: Any) -> str:
    """The name of a data type, which may be an object with a configuration."""
    return _named(value)[0]


def has_no_order(value: Any) -> bool:
    """Whether byte order means nothing for a data type: its parts have one byte, or are raw."""
    name, configuration = _named(value)
    if name in ("struct", "structured"):
        return all(has_no_order(kind) for _, kind in _fields(configuration))
    return name in OBJECTS or name in _EXTENSION_BYTES or _as_v2(value, "<").startswith("|")


def named_configuration(value: Any, what: str) -> tuple[str, dict[str, Any]]:
    """Name and configuration of ``what`` may be of several kinds: a data type, a codec, a grid. It is an object, or a
    name alone. Raises `ValueError`. [Zarr v3 core specification, "Extension points"]"""
    match value:
        case str():
            return value, {}
        case {"name": str(name), **members}:
            configuration = members.pop("configuration", {})
            if members.pop("must_understand", True) is not True:
                raise ValueError(f"{what} {name!r} cannot be left out, as its must_understand has it")
            if members:
                raise ValueError(f"{what} {name!r} has the unknown member {next(iter(members))!r}")
            if isinstance(configuration, dict):
                return name, configuration
            raise ValueError(f"the configuration of {what} {name!r} is an object, found {shown(configuration)}")
    raise ValueError(f"expected {what} with a name, found {shown(value)}")


def _named(value: Any) -> tuple[str, dict[str, Any]]:
    return named_configuration(value, "a data type")


_EXTENSION_BYTES: Final = (EXTENSION_FLOATS | NARROW_INTEGERS.keys()) - {"bfloat16"}


def _as_v2(value: Any, order: ByteOrder) -> Any:
    name, configuration = _named(value)
    if name in ("struct", "structured"):
        return [[field, _as_v2(kind, order)] for field, kind in _fields(configuration)]
    if name in _FIXED:
        kind, unit = _FIXED[name]
        nbytes = _only(name, configuration, "length_bytes")
        if type(nbytes) is not int or nbytes < 1 or nbytes % unit:
            raise ValueError(f"{name}.length_bytes: expected a positive multiple of {unit}, found {shown(nbytes)}")
        return f"{order if kind == 'U' else '|'}{kind}{nbytes // unit}"
    if name in _TIMES:
        return order + _TIMES[name] + _unit(name, configuration)
    if configuration:
        raise ValueError(f"data type {name!r} has no configuration, found {shown(configuration)}")
    return _plain(name, order)


def _plain(name: str, order: ByteOrder) -> str:
    """A data type that is its name alone."""
    if name in NUMBERS:
        text = NUMBERS[name]
        return text if text.startswith("|") else ("|" if text[1:] == "1" else order) + text
    if name in OBJECTS:
        return "|O"
    raw = _RAW.fullmatch(name)
    if raw is not None and int(raw[1]) % 8 == 0:
        return f"|V{int(raw[1]) // 8}"
    if name in EXTENSION_FLOATS or name in NARROW_INTEGERS:
        return name
    raise ValueError(f"the data type {name!r} is unknown")


def _only(name: str, configuration: Mapping[str, Any], *members: str) -> Any:
    unknown = sorted(configuration.keys() - {*members})
    if unknown:
        raise ValueError(f"data type {name!r} has no parameter {unknown[0]!r}")
    return configuration.get(members[0])


def _unit(name: str, configuration: Mapping[str, Any]) -> str:
    """``[25us]``, of a unit and how many of it a count means; nothing where there is no unit."""
    unit, factor = _only(name, configuration, "unit", "scale_factor"), configuration.get("scale_factor")
    if not isinstance(unit, str) or type(factor) is not int or not 0 < factor < 2**31:
        raise ValueError(f"{name}: expected a unit and a scale_factor below 2**31, found {shown(configuration)}")
    return "" if unit == "generic" else f"[{'' if factor == 1 else factor}{_UNITS.get(unit, unit)}]"


def _fields(configuration: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and data types; ``structured`` has pairs where ``struct`` has objects."""
    fields = _only("struct", configuration, "fields")
    if not isinstance(fields, list) or not fields:
        raise ValueError(f"struct.fields: expected a list of fields, found {shown(fields)}")
    found: list[tuple[str, Any]] = []
    for field in fields:
        pair = [field.get("name"), field.get("data_type")] if isinstance(field, dict) else field
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str) or not pair[0]:
            raise ValueError(f"struct.fields: expected a name and a data_type, found {shown(field)}")
        if name_of(pair[1]) in OBJECTS:
            raise ValueError(f"struct.fields: {shown(pair[0])}: items of any length cannot be fields")
        found.append((pair[0], pair[1]))
    return found


# --- fill values -----------------------------------------------------------------------------------------------------


def fill_of(value: Any, data_type: Any, dtype: DataType) -> np.ndarray:
    """The item, 0-d and read-only, that the ``fill_value`` member stands for, bit for bit; raises `ValueError`."""
    if dtype.is_object:
        _check(value, name_of(data_type) != "string" or isinstance(value, str), "a string")
        item = object_item(value if name_of(data_type) == "string" else _bytes(value))
    else:
        item = np.zeros(1, dtype.numpy)
        _put(value, data_type, item)
        item = dtype.clean(item).reshape(())
    item.setflags(write=False)
    return item


def _bytes(value: Any) -> bytes:
    """Bytes as base64, or as a list of their numbers."""
    if isinstance(value, list) and all(type(number) is int and 0 <= number < 256 for number in value):
        return bytes(value)
    return from_base64(value)


def _put(value: Any, data_type: Any, out: np.ndarray) -> None:
    """Write a fill value into ``out``, of one item."""
    name, configuration = _named(data_type)
    dtype = out.dtype
    if dtype.names is not None:
        _put_struct(value, configuration, out)
    elif dtype.name in NARROW_INTEGERS or dtype.kind in "iumM":
        _check(value, (type(value) is int) or (dtype.kind in "mM" and value == "NaT"), "an integer")
        out[:] = _v2_item(value, dtype)
    elif dtype.kind == "b":
        _check(value, type(value) is bool or (type(value) is int and value in (0, 1)), "true or false")
        out[:] = bool(value)
    elif dtype.kind == "c":
        _check(value, isinstance(value, list) and len(value) == 2, "[real, imaginary]")
        _put_float(value[0], out.real)
        _put_float(value[1], out.imag)
    elif dtype.kind in "SV" and name not in EXTENSION_FLOATS:
        raw = _bytes(value)
        exact = dtype.kind == "V"
        _check(value, len(raw) == dtype.itemsize if exact else len(raw) <= dtype.itemsize, f"{dtype.itemsize} bytes")
        out.view(np.uint8)[: len(raw)] = np.frombuffer(raw, np.uint8)
    elif dtype.kind == "U":
        _check(value, isinstance(value, str) and 4 * len(value) <= dtype.itemsize, "a string that fits")
        out[:] = value
    else:
        _put_float(value, out)


def put_number(value: Any, out: np.ndarray) -> None:
    """Write a number of a codec's configuration, in any form that a fill value may have, into ``out`` of one item."""
    _check(value, value is not None, "a number")
    if out.dtype.kind in "iu" or out.dtype.name in NARROW_INTEGERS:
        out[:] = _v2_item(value, out.dtype)
    else:
        _put_float(value, out)


def _put_struct(value: Any, configuration: Mapping[str, Any], out: np.ndarray) -> None:
    fields = _fields(configuration)
    if isinstance(value, dict):
        _check(value, value.keys() == {field for field, _ in fields}, "a member for each field")
        for field, kind in fields:
            _put(value[field], kind, out[field])
        return
    raw = _bytes(value)
    _check(value, len(raw) == out.dtype.itemsize, f"{out.dtype.itemsize} bytes")
    # zarr-python writes the bytes of an item in the machine's own order, whatever the codec says
    out[:] = np.frombuffer(raw, out.dtype.newbyteorder("<"))


def _put_float(value: Any, out: np.ndarray) -> None:
    """A number, a name, or its bits in hexadecimal digits, most significant first."""
    dtype = out.dtype
    if isinstance(value, str) and _HEX.fullmatch(value):
        _check(value, len(value) == 2 + 2 * dtype.itemsize, f"{2 * dtype.itemsize} digits")
        bits = np.array([int(value, 16)], f"u{dtype.itemsize}")
        out[...] = bits.view(dtype.newbyteorder("=") if dtype.kind == "f" else dtype)
        return
    number = value in _SPELLED if isinstance(value, str) else type(value) in (int, float)
    _check(value, number, "a number, 'NaN', 'Infinity', '-Infinity' or bits as '0x…'")
    out[...] = _v2_item(value, dtype)


def _v2_item(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    item = parse_fill_value(value, DataType(None, dtype, ()))
    assert item is not None
    return item


def _check(value: Any, condition: bool, expected: str) -> None:
    if not condition:
        raise ValueError(f"expected {expected}, found {shown(value)}")
