"""The ``fill_value`` member, JSON to one item and back, bit for bit (specification "Fill value encoding").

One table, by numpy's kind of dtype, holds both directions; what it names is in `fill_numbers` and `fill_bytes`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hyperslab.engine.dtypes import EXTENSION_FLOATS, NARROW_INTEGERS, DataType
from hyperslab.engine.fill_bytes import (
    Item,
    from_base64,
    is_zero,
    parse_bytes,
    parse_fixed_bytes,
    parse_text,
    plain_text,
    to_base64,
)
from hyperslab.engine.fill_numbers import (
    check_finite,
    format_complex,
    format_float,
    format_time,
    parse_bool,
    parse_complex,
    parse_float,
    parse_integer,
    parse_minifloat,
    parse_narrow,
    parse_time,
)
from hyperslab.errors import shown

OBJECT_CODECS: Final = frozenset({"vlen-utf8", "vlen-bytes", "vlen-array", "json2", "msgpack2", "categorize"})
"""Codecs that turn objects into bytes; the first codec of an array of objects is one of these (CONFORMANCE 156)."""

Codecs = Sequence[Mapping[str, Any]]
"""Codec configurations in the order of encoding: the filters, then the compressor."""


def parse_fill_value(value: Any, dtype: DataType, codecs: Codecs = ()) -> Item | None:
    """One item, 0-d and read-only, of ``dtype.numpy``; None for null (CONFORMANCE 78 to 110).

    ``codecs`` matters to objects only: their codec says what the JSON means. Raises `ValueError` with a reason.
    """
    if value is None:
        return None
    if dtype.is_object:
        item = _object_item(_parse_object(value, object_codec(codecs)))
    else:
        item = _kind(dtype.numpy).parse(value, dtype.numpy)
        item = dtype.clean(item.reshape(1)).reshape(())  # a record is spelled in bytes, of which bools may hold any
    item.setflags(write=False)
    return item


def parse_new_item(value: Any, dtype: DataType, codecs: Codecs = ()) -> Item | None:
    """`parse_fill_value` of what is about to be stored: also raises `ValueError` for a finite number that is not finite
    in this dtype, and for text that would be cut. What is stored already is read as other libraries read it, where such
    a number is infinite."""
    item = parse_fill_value(value, dtype, codecs)
    if item is not None and not dtype.is_object:
        if dtype.numpy.kind == "U" and len(plain_text(value).rstrip("\0")) > dtype.itemsize // 4:
            raise ValueError(f"{shown(value)} is longer than {dtype.itemsize // 4}")
        check_finite(value, item)
    return item


def format_fill_value(item: Item | None, dtype: DataType) -> Any:
    """The JSON that `parse_fill_value` reads back as the same bits; strict JSON (NaN and infinities are strings)."""
    if item is None:
        return None
    if dtype.is_object:
        value: Any = item[()]
        return to_base64(value) if isinstance(value, bytes) else value
    return _kind(dtype.numpy).format(item)


def zero_item(dtype: DataType, codecs: Codecs = ()) -> Item:
    """What null reads as: zero bytes, or for objects ``""``, ``b""`` or None by codec (CONFORMANCE 79, 106 to 108)."""
    if dtype.is_object:
        empty = {"vlen-utf8": "", "categorize": "", "vlen-bytes": b""}
        item = _object_item(empty.get(object_codec(codecs)))
    else:
        item = np.zeros((), dtype.numpy)
    item.setflags(write=False)
    return item


def reads_alike(value: Any, dtype: DataType, codecs: Codecs = ()) -> bool:
    """Whether all libraries read missing items as `parse_fill_value` reads ``value``, which it accepts.

    They do not for null, for the 0 of old writers in place of text or bytes (zarr-python reads ``"0"``, or 0), and for
    bytes of any length, which zarr-python 2 takes for text (CONFORMANCE 79, 104, 106, 107).
    """
    if value is None:
        return False
    codec = object_codec(codecs) if dtype.is_object else None
    is_text = codec in ("vlen-utf8", "categorize") or dtype.numpy.kind in "SU"
    return codec != "vlen-bytes" and not (is_text and is_zero(value))


def same_object(a: Any, b: Any) -> bool:
    """Whether two objects are the same value of the same type, all the way down (CONFORMANCE 213).

    Python's ``==`` takes False for 0, 1.0 for 1 and -0.0 for 0.0; floats are compared bit for bit here, members of an
    object in their order. An array is never the same as anything: no JSON spells one.
    """
    pending = [(a, b)]  # no recursion: how deep lists may nest is for whoever parsed them to say
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
    """The id of the codec that turns objects into bytes; raises `ValueError` where the first codec does not."""
    first = codecs[0].get("id") if codecs else None
    if first not in OBJECT_CODECS:
        raise ValueError("an array of objects needs an object codec such as 'vlen-utf8' as its first filter")
    return str(first)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How the items of one kind are spelled."""

    parse: Callable[[Any, np.dtype[Any]], Item]
    format: Callable[[Item], Any]


def _kind(dtype: np.dtype[Any]) -> _Kind:
    if dtype.name in NARROW_INTEGERS:
        return _NARROW
    if dtype.name in EXTENSION_FLOATS:
        return _MINIFLOAT if dtype.name == "float4_e2m1fn" else _FLOAT
    return _KINDS[dtype.kind]


def _parse_object(value: Any, codec: str) -> Any:
    """The object that a missing item is, by object codec (CONFORMANCE 106 to 108)."""
    if codec == "vlen-bytes":
        return b"" if is_zero(value) else from_base64(value)
    return plain_text(value) if codec in ("vlen-utf8", "categorize") else value


def _object_item(value: Any) -> Item:
    """0-d, whatever the object is: assigning a list to a 0-d array would spread it out."""
    item = np.empty(1, object)
    item[0] = value
    return item.reshape(())


_INTEGER_KIND = _Kind(parse_integer, int)
_TIME = _Kind(parse_time, format_time)
_FLOAT = _Kind(parse_float, format_float)
_NARROW = _Kind(parse_narrow, int)
_MINIFLOAT = _Kind(parse_minifloat, lambda item: to_base64(item.tobytes()))
_KINDS: Final = {
    "b": _Kind(parse_bool, bool),
    "i": _INTEGER_KIND,
    "u": _INTEGER_KIND,
    "f": _FLOAT,
    "c": _Kind(parse_complex, format_complex),
    "m": _TIME,
    "M": _TIME,
    "S": _Kind(parse_fixed_bytes, lambda item: to_base64(item.tobytes())),
    "U": _Kind(parse_text, lambda item: str(item[()])),
    "V": _Kind(parse_bytes, lambda item: to_base64(item.tobytes())),
}
