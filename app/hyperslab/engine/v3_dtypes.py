"""Zarr v3 data types and fill values, in terms of those of Zarr v2: both directions.

A data type becomes the v2 ``dtype`` that means the same, so that one engine reads both. What is made of a v2 ``dtype``
is what zarr-python 3.1 and TensorStore read alike. [Zarr v3 core specification, "Data types"; zarr-extensions,
"data-types"; zarr-python's data type pages]
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np

from hyperslab.engine.dtypes import EXTENSION_FLOATS, NARROW_INTEGERS, DataType, parse_dtype
from hyperslab.engine.fill_value import format_fill_value, from_base64, item_from_bytes, object_item, parse_item
from hyperslab.engine.jsontext import SPELLED
from hyperslab.errors import shown

ByteOrder = Literal["<", ">"]
Endian = Literal["little", "big"]

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
TIMES: Final = {"numpy.datetime64": "M8", "numpy.timedelta64": "m8"}


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
    if name in EXTENSION_FLOATS or name in NARROW_INTEGERS:
        return name != "bfloat16"
    return name in OBJECTS or _as_v2(value, "<").startswith("|")


def named_configuration(value: Any, what: str, *, optional: bool = False) -> tuple[str, dict[str, Any]]:
    """Name and configuration of ``what`` may be of several kinds: a data type, a codec, a grid. It is an object, or a
    name alone; ``optional``: it may say that it need not be understood. Raises `ValueError`. [Zarr v3 core
    specification, "Extension points"]"""
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


def completed_type(data_type: Any) -> Any:
    """The ``data_type`` of a request as every library reads it: a name alone where there is no configuration. Raises
    `ValueError`."""
    name, configuration = _named(data_type)
    return {"name": name, "configuration": configuration} if configuration else name


def _named(value: Any) -> tuple[str, dict[str, Any]]:
    return named_configuration(value, "a data type")


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
    if name in TIMES:
        return order + TIMES[name] + _unit(name, configuration)
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
    raw = re.fullmatch(r"r([1-9][0-9]{0,9})", name, re.ASCII)
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
    return "" if unit == "generic" else f"[{'' if factor == 1 else factor}{'us' if unit in ('μs', 'µs') else unit}]"


def _fields(configuration: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Names and data types; ``structured`` has pairs where ``struct`` has objects."""
    fields = _only("struct", configuration, "fields")
    if not isinstance(fields, list) or not fields:
        raise ValueError(f"struct.fields: expected a list of fields, found {shown(fields)}")
    found: list[tuple[str, Any]] = []
    for field in fields:
        pair = [field.get("name"), field.get("data_type")] if isinstance(field, dict) else field
        unknown = sorted(field.keys() - {"name", "data_type"}) if isinstance(field, dict) else []
        if unknown:
            raise ValueError(f"struct.fields: a field has no member {unknown[0]!r}")
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str) or not pair[0]:
            raise ValueError(f"struct.fields: expected a name and a data_type, found {shown(field)}")
        if name_of(pair[1]) in OBJECTS:
            raise ValueError(f"struct.fields: {shown(pair[0])}: items of any length cannot be fields")
        found.append((pair[0], pair[1]))
    return found


# --- from Zarr v2 ----------------------------------------------------------------------------------------------------


def data_type_of(json: Any, object_codec: str | None = None) -> Any:
    """The ``data_type`` that means the same as a ``dtype`` of Zarr v2; raises `ValueError` if there is none."""
    if isinstance(json, list):
        if any(len(field) > 2 or not field[0] for field in json):
            raise ValueError("Zarr v3 has no subarrays and no padding in its records")
        return {"name": "structured", "configuration": {"fields": [[n, data_type_of(kind)] for n, kind in json]}}
    if json == "|O":
        known = {"vlen-utf8": "string", "vlen-bytes": "variable_length_bytes"}
        if object_codec not in known:
            raise ValueError(f"Zarr v3 has no data type for objects that {object_codec!r} stores")
        return known[object_codec]
    if json in EXTENSION_FLOATS or json in NARROW_INTEGERS:
        return json
    dtype = np.dtype(json)
    for name, kind in TIMES.items():
        if dtype.kind == kind[0]:
            unit, count = np.datetime_data(dtype)
            return {"name": name, "configuration": {"unit": unit, "scale_factor": count}}
    for name, (kind, _) in _FIXED.items():
        if dtype.kind == kind:
            return {"name": name, "configuration": {"length_bytes": dtype.itemsize}}
    return dtype.name


def endian_of(json: Any) -> Endian | None:
    """The byte order of a ``dtype`` of Zarr v2, None where it has none; raises `ValueError` for fields of both."""
    if isinstance(json, list):
        orders = {order for field in json if (order := endian_of(field[1])) is not None}
        if len(orders) > 1:
            raise ValueError("Zarr v3 has one byte order for all fields of a record")
        return orders.pop() if orders else None
    if json == "bfloat16":
        return "little"
    return {"<": "little", ">": "big"}.get(json[0])  # type: ignore[return-value]


def format_fill(item: np.ndarray, dtype: DataType) -> Any:
    """The JSON of one item (0-d, of ``dtype.numpy``) as the ``fill_value`` of Zarr v3."""
    if dtype.fields:
        little = item.astype(item.dtype.newbyteorder("<"))  # zarr-python reads these in the machine's own order
        return base64.b64encode(little.tobytes()).decode()
    if item.dtype.kind == "S":
        return base64.b64encode(item.tobytes().rstrip(b"\0")).decode()
    return float(item) if item.dtype.name == "float4_e2m1fn" else format_fill_value(item, dtype)


# --- fill values -----------------------------------------------------------------------------------------------------


def fill_of(value: Any, data_type: Any, dtype: DataType) -> np.ndarray:
    """The item, 0-d and read-only, that the ``fill_value`` member stands for, bit for bit; raises `ValueError`."""
    if dtype.numpy.hasobject:
        is_text = name_of(data_type) == "string"
        _check(value, not is_text or isinstance(value, str), "a string")
        item = object_item(value if is_text else _bytes(value))
    else:
        item = dtype.clean(_item(value, data_type, dtype.numpy).reshape(1)).reshape(())
    item.setflags(write=False)
    return item


def number_of(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """A number of a codec's configuration, 0-d, in any form that a fill value may have; raises `ValueError`."""
    value = "Infinity" if value == "+Infinity" else value  # as the specification of cast_value has it
    _check(value, value is not None, "a number")
    is_whole = dtype.kind in "iu" or dtype.name in NARROW_INTEGERS
    return parse_item(value, dtype) if is_whole else _float(value, dtype)


def _bytes(value: Any) -> bytes:
    """Bytes as base64, or as a list of their numbers."""
    if isinstance(value, list) and all(type(number) is int and 0 <= number < 256 for number in value):
        return bytes(value)
    return from_base64(value)


def _item(value: Any, data_type: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """One item, 0-d. Spellings are fewer than in Zarr v2, where old writers' are read as well."""
    if dtype.names is not None:
        return _record(value, _fields(_named(data_type)[1]), dtype)
    if dtype.kind == "c":
        _check(value, isinstance(value, list) and len(value) == 2, "[real, imaginary]")
        item = np.zeros((), dtype)
        item.real[...], item.imag[...] = (_float(part, item.real.dtype) for part in value)
        return item
    if dtype.kind == "f" or dtype.name in EXTENSION_FLOATS:
        return _float(value, dtype)
    if dtype.kind in "SV" and dtype.name not in NARROW_INTEGERS:
        raw, nbytes = _bytes(value), dtype.itemsize
        _check(value, len(raw) == nbytes or (dtype.kind == "S" and len(raw) < nbytes), f"{nbytes} bytes")
        return item_from_bytes(raw, dtype)
    if dtype.kind == "U":
        _check(value, isinstance(value, str) and 4 * len(value) <= dtype.itemsize, "a string that fits")
    elif dtype.kind != "b":
        _check(value, type(value) is int or (dtype.kind in "mM" and value == "NaT"), "an integer")
    return parse_item(value, dtype)


def _record(value: Any, fields: list[tuple[str, Any]], dtype: np.dtype[Any]) -> np.ndarray:
    item = np.zeros(1, dtype)
    if isinstance(value, dict):
        _check(value, value.keys() == {field for field, _ in fields}, "a member for each field")
        for field, kind in fields:
            item[field] = _item(value[field], kind, dtype[field])
    else:
        raw = _bytes(value)
        _check(value, len(raw) == dtype.itemsize, f"{dtype.itemsize} bytes")
        # zarr-python writes the bytes of an item in the machine's own order, whatever the codec says
        item[:] = np.frombuffer(raw, dtype.newbyteorder("<"))
    return item.reshape(())


def _float(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """A number, a name, or its bits in hexadecimal digits, most significant first."""
    if isinstance(value, str) and re.fullmatch(r"0x[0-9a-fA-F]+", value):
        _check(value, len(value) == 2 + 2 * dtype.itemsize, f"{2 * dtype.itemsize} digits")
        order: Endian = "big" if dtype.byteorder == ">" else "little"
        return item_from_bytes(int(value, 16).to_bytes(dtype.itemsize, order), dtype)
    is_number = value in SPELLED if isinstance(value, str) else type(value) in (int, float)
    _check(value, is_number, "a number, 'NaN', 'Infinity', '-Infinity' or bits as '0x…'")
    return parse_item(value, dtype)


def _check(value: Any, condition: bool, expected: str) -> None:
    if not condition:
        raise ValueError(f"expected {expected}, found {shown(value)}")
