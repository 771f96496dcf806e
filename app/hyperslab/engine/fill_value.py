"""Fill values: JSON of Zarr v2 and v3 to an item and back, bit for bit.

Items of other dtypes than object are those of `wire.items`; Zarr v3 allows fewer forms than v2, as those of old writers
exist in v2 only. [Zarr v2 specification, "Fill value
encoding"; Zarr v3 core specification, "Fill value"; zarr-extensions, "data-types"]
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np

from hyperslab.engine.dtypes import DataType, parse_dtype
from hyperslab.errors import shown
from hyperslab.wire import kind_of
from hyperslab.wire.data_types import NARROW_FLOATS, fields_of, named_type
from hyperslab.wire.items import (
    DECIMAL,
    FLOAT4,
    NON_FINITE,
    DType,
    Item,
    complex_of,
    format_item,
    from_base64,
    is_zero,
    item_of,
    item_of_bits,
    parse_item,
    parse_object,
    parts_of,
    plain_text,
    to_base64,
    to_float,
)

OBJECT_CODECS: Final = frozenset({"vlen-utf8", "vlen-bytes", "vlen-array", "json2", "msgpack2", "categorize"})
"""Object codecs, one of which is the first codec of an array of objects."""

Codecs = Sequence[Mapping[str, Any]]
"""Codec configurations in the order of encoding."""


def parse_fill_value(value: Any, dtype: DataType, codecs: Codecs = ()) -> Item | None:
    """A read-only item of ``dtype.numpy``; None for null. For objects, the JSON depends on ``codecs``. Raises
    `ValueError`."""
    if value is None:
        return None
    if not dtype.numpy.hasobject:
        return _cleaned(parse_item(value, dtype.numpy), dtype)
    return _object_item(parse_object(value, object_codec(codecs)))


def fill_of(value: Any, data_type: Any, dtype: DataType) -> Item:
    """The item of the ``fill_value`` of a ``zarr.json``, 0-d and read-only; raises `ValueError`."""
    if not dtype.numpy.hasobject:
        return _cleaned(_parse_v3(value, data_type, dtype.numpy), dtype)
    is_text = named_type(data_type)[0] == "string"
    _check(value, not is_text or isinstance(value, str), "a string")
    return _object_item(value if is_text else _v3_bytes(value))


def parse_new_item(value: Any, dtype: DataType, codecs: Codecs = ()) -> Item | None:
    """`parse_fill_value` of a new fill value: also raises `ValueError` for a finite number that is not finite in this
    dtype, and for text that would be truncated. Stored ones are read like that by other libraries. A record may also be
    an object with a value for each field, one or as many as the field's subarray has."""
    if isinstance(value, Mapping) and dtype.fields:
        return _new_record(value, dtype)
    item = parse_fill_value(value, dtype, codecs)
    if item is not None and not dtype.numpy.hasobject:
        check_new_item(value, item)
    return item


def _new_record(value: Mapping[str, Any], dtype: DataType) -> Item:
    names = [field.name for field in dtype.fields]
    _check([*value], sorted(value) == sorted(names), f"a value for each of {', '.join(names)}")
    item = np.zeros((), dtype.numpy)
    for field in dtype.fields:
        try:
            item[field.name] = _new_values(value[field.name], parse_dtype(field.json, v3=True), field.shape)
        except ValueError as error:
            raise ValueError(f"field {shown(field.name)}: {error}") from None
    return _cleaned(item, dtype)


def _new_values(value: Any, dtype: DataType, shape: tuple[int, ...]) -> np.ndarray:
    """Values of a field: nested lists of its shape, or one for all."""
    if not shape or not isinstance(value, list) or (dtype.numpy.kind == "c" and len(value) == 2 and shape[0] != 2):
        item = parse_new_item(value, dtype)
        _check(value, item is not None, "a value")
        return np.broadcast_to(np.asarray(item), shape)
    _check(value, len(value) == shape[0], f"a list of {shape[0]} values, or one for all")
    return np.stack([_new_values(part, dtype, shape[1:]) for part in value])


def check_new_item(value: Any, item: Item) -> None:
    """Raise `ValueError` if an item parsed from ``value`` was truncated, or is not finite although ``value`` is."""
    kind = kind_of(item.dtype)
    if kind == "U" and len(plain_text(value).rstrip("\0")) > item.dtype.itemsize // 4:
        raise ValueError(f"{shown(value)} is longer than {item.dtype.itemsize // 4}")
    parts: list[tuple[Any, Item]] = [(value, item)] if kind == "f" else []
    if kind == "c":
        # text is base64
        parts = [*zip(value if isinstance(value, list) else [value], parts_of(item), strict=False)]
    for part, parsed in parts:
        if isinstance(part, str):
            is_finite = DECIMAL.fullmatch(part) is not None
        else:
            is_finite = type(part) is int or (type(part) is float and math.isfinite(part))
        # dtypes without an infinity convert larger numbers to NaN, or to their largest number
        largest = math.inf
        if parsed.dtype.name in NARROW_FLOATS:
            largest = float(ml_dtypes.finfo(parsed.dtype).max)  # type: ignore[no-untyped-call]
        if is_finite and not (math.isfinite(float(parsed)) and abs(to_float(part)) <= largest):
            raise ValueError(f"{shown(part)} is out of range for {parsed.dtype.name}")


def format_fill_value(item: Item | None) -> Any:
    """The strict JSON of an item (NaN and infinities are strings); the inverse of `parse_fill_value`."""
    if item is None:
        return None
    if item.dtype.hasobject:
        value: Any = item[()]
        return to_base64(value) if isinstance(value, bytes) else value
    return format_item(item)


def format_fill(item: Item, data_type: Any) -> Any:
    """The JSON of an item as the ``fill_value`` of Zarr v3; the inverse of `fill_of`."""
    name, configuration = named_type(data_type)
    if name == "struct":
        return {field: format_fill(item[field], kind) for field, kind in fields_of(configuration)}
    if item.dtype.kind == "S":
        return to_base64(item.tobytes().rstrip(b"\0"))
    return float(item) if item.dtype.name == FLOAT4 else format_fill_value(item)


def number_of(value: Any, dtype: DType) -> Item:
    """A number of a codec's configuration, 0-d, in any form of a fill value; raises `ValueError`."""
    value = "Infinity" if value == "+Infinity" else value  # form of the specification of cast_value
    _check(value, value is not None, "a number")
    return parse_item(value, dtype) if kind_of(dtype) in "iu" else _v3_float(value, dtype)


def zero_item(dtype: DataType, codecs: Codecs = ()) -> Item:
    """The item for a fill value of null: zero bytes, or for objects ``""``, ``b""`` or None by codec."""
    if not dtype.numpy.hasobject:
        return _cleaned(np.zeros((), dtype.numpy), dtype)
    return _object_item({"vlen-utf8": "", "categorize": "", "vlen-bytes": b""}.get(object_codec(codecs)))


def reads_alike(value: Any, dtype: DataType, codecs: Codecs = ()) -> bool:
    """Whether all libraries read a valid fill value as `parse_fill_value` does.

    They do not for null, for 0 of old writers instead of text or bytes (``"0"`` or 0 in zarr-python), and for bytes of
    any length, which zarr-python 2 reads as text.
    """
    if value is None:
        return False
    codec = object_codec(codecs) if dtype.numpy.hasobject else None
    is_text = codec in ("vlen-utf8", "categorize") or dtype.numpy.kind in "SU"
    return codec != "vlen-bytes" and not (is_text and is_zero(value))


def same_object(a: Any, b: Any) -> bool:
    """Whether two objects have equal values and types, recursively.

    Unlike with ``==``, False differs from 0, 1.0 from 1 and -0.0 from 0.0, and the order of an object's members counts.
    Arrays, which have no JSON, are never equal.
    """
    pending = [(a, b)]  # no recursion, as nesting is not limited here
    while pending:
        one, other = pending.pop()
        if type(one) is not type(other) or isinstance(one, np.ndarray):
            return False
        if isinstance(one, dict):
            one, other = [*one.items()], [*other.items()]
        if isinstance(one, list | tuple):
            if len(one) != len(other):
                return False
            pending.extend(zip(one, other, strict=True))
        elif isinstance(one, float):
            if struct.pack("<d", one) != struct.pack("<d", other):
                return False
        elif one != other:
            return False
    return True


def object_codec(codecs: Codecs) -> str:
    """The id of the object codec; raises `ValueError` if the first codec is not one."""
    first = codecs[0].get("id") if codecs else None
    if first not in OBJECT_CODECS:
        raise ValueError("an array of objects needs an object codec such as 'vlen-utf8' as its first filter")
    return str(first)


# --- objects -------------------------------------------------------------------------------------


def _object_item(value: Any) -> Item:
    """A read-only 0-d array with an object, which may be a list."""
    item = np.empty(1, object)
    item[0] = value
    item.setflags(write=False)
    return item.reshape(())


def _cleaned(item: Item, dtype: DataType) -> Item:
    """The item without unused bits, which the bytes of a record may have; read-only."""
    item = dtype.clean(item.reshape(1)).reshape(())
    item.setflags(write=False)
    return item


# --- forms of Zarr v3 ------------------------------------------------------------------------------------------------


def _parse_v3(value: Any, data_type: Any, dtype: DType) -> Item:
    """An item of a dtype other than object."""
    if dtype.names is not None:
        return _record(value, fields_of(named_type(data_type)[1]), dtype)
    match kind_of(dtype):
        case "c":
            _check(value, isinstance(value, list) and len(value) == 2, "[real, imaginary]")
            return complex_of(value, dtype, _v3_float)
        case "f":
            return _v3_float(value, dtype)
        case "S" | "V" as kind:
            raw, nbytes = _v3_bytes(value), dtype.itemsize
            _check(value, len(raw) == nbytes or (kind == "S" and len(raw) < nbytes), f"{nbytes} bytes")
            return item_of(raw, dtype)
        case "U":
            _check(value, isinstance(value, str) and 4 * len(value) <= dtype.itemsize, "a string that fits")
        case "i" | "u" | "m" | "M":
            is_number = type(value) in (int, float)  # 1.0 is read as zarr-python does
            _check(value, is_number or (dtype.kind in "mM" and value == "NaT"), "an integer")
    return parse_item(value, dtype)


def _record(value: Any, fields: list[tuple[str, Any]], dtype: DType) -> Item:
    """A record of an object with a member for each field, or of its bytes."""
    item = np.zeros(1, dtype)
    if isinstance(value, dict):
        _check(value, value.keys() == {field for field, _ in fields}, "a member for each field")
        for field, kind in fields:
            item[field] = _parse_v3(value[field], kind, dtype[field])
    else:
        raw = _v3_bytes(value)
        _check(value, len(raw) == dtype.itemsize, f"{dtype.itemsize} bytes")
        item[:] = np.frombuffer(raw, dtype)  # in the byte order of the codec [zarr-extensions, "structured"]
    return item.reshape(())


def _v3_bytes(value: Any) -> bytes:
    """Bytes from base64, or from a list of their numbers."""
    if isinstance(value, list) and all(type(number) is int and 0 <= number < 256 for number in value):
        return bytes(value)
    return from_base64(value)


def _v3_float(value: Any, dtype: DType) -> Item:
    """A float from a number, a name, or the digits of its bits."""
    if isinstance(value, str) and re.fullmatch(r"0x[0-9a-fA-F]+", value):
        _check(value, len(value) == 2 + 2 * dtype.itemsize, f"{2 * dtype.itemsize} digits")
        return item_of_bits(value, dtype)
    is_number = value in NON_FINITE if isinstance(value, str) else type(value) in (int, float)
    _check(value, is_number, "a number, 'NaN', 'Infinity', '-Infinity' or bits as '0x…'")
    item = parse_item(value, dtype)
    if isinstance(value, str) and not np.array_equal(float(item), NON_FINITE[value], equal_nan=True):
        raise ValueError(f"{dtype.name} has no {shown(value)}")
    return item


def _check(value: Any, condition: bool, expected: str) -> None:
    if not condition:
        raise ValueError(f"expected {expected}, found {shown(value)}")
