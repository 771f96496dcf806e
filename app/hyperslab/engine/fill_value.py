"""The ``fill_value`` member, JSON to one item and back, bit for bit (specification "Fill value encoding").

An item is a 0-d array, never a scalar: scalars lose the payload of a NaN and the byte order. A table by numpy's kind of
dtype, at the end, holds both directions.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from hyperslab.engine.dtypes import EXTENSION_FLOATS, NARROW_INTEGERS, DataType
from hyperslab.engine.jsontext import SPELLED, spell_float
from hyperslab.errors import shown

OBJECT_CODECS: Final = frozenset({"vlen-utf8", "vlen-bytes", "vlen-array", "json2", "msgpack2", "categorize"})
"""Codecs that turn objects into bytes; the first codec of an array of objects is one of these."""

Item = np.ndarray
"""One item, 0-d."""
DType = np.dtype[Any]
Codecs = Sequence[Mapping[str, Any]]
"""Codec configurations in the order of encoding: the filters, then the compressor."""

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_FLOAT4: Final = "float4_e2m1fn"


def parse_fill_value(value: Any, dtype: DataType, codecs: Codecs = ()) -> Item | None:
    """One item, 0-d and read-only, of ``dtype.numpy``; None for null.

    ``codecs`` matters to objects only: their codec says what the JSON means. Raises `ValueError` with a reason.
    """
    if value is None:
        return None
    if dtype.numpy.hasobject:
        codec = object_codec(codecs)
        if codec == "vlen-bytes":
            value = b"" if _is_zero(value) else from_base64(value)
        elif codec in ("vlen-utf8", "categorize"):
            value = _plain_text(value)
        item = object_item(value)
    else:
        item = parse_item(value, dtype.numpy)
        item = dtype.clean(item.reshape(1)).reshape(())  # a record is spelled in bytes, of which bools may hold any
    item.setflags(write=False)
    return item


def parse_item(value: Any, dtype: DType) -> Item:
    """One item that is no object, 0-d, its bits as they are spelled; raises `ValueError`."""
    return _kind(dtype)[0](value, dtype)


def parse_new_item(value: Any, dtype: DataType, codecs: Codecs = ()) -> Item | None:
    """`parse_fill_value` of what is about to be stored: also raises `ValueError` for a finite number that is not finite
    in this dtype, and for text that would be cut. What is stored already is read as other libraries read it, for whom
    such a number is infinite."""
    item = parse_fill_value(value, dtype, codecs)
    if item is not None and not dtype.numpy.hasobject:
        check_new_item(value, item, dtype)
    return item


def check_new_item(value: Any, item: Item, dtype: DataType) -> None:
    """Raise `ValueError` if what ``value`` spells is not what ``item``, which was parsed from it, holds."""
    kind = dtype.numpy.kind
    if kind == "U" and len(_plain_text(value).rstrip("\0")) > dtype.itemsize // 4:
        raise ValueError(f"{shown(value)} is longer than {dtype.itemsize // 4}")
    parts: list[tuple[Any, Item]] = [(value, item)] if kind == "f" or dtype.numpy.name in EXTENSION_FLOATS else []
    if kind == "c":
        # text is base64, which spells no number
        parts = [*zip(value if isinstance(value, list) else [value], (item.real, item.imag), strict=False)]
    for part, found in parts:
        if isinstance(part, str):
            is_finite = _DECIMAL.fullmatch(part) is not None
        else:
            is_finite = type(part) is int or (type(part) is float and math.isfinite(part))
        # dtypes without an infinity turn what is too large into NaN, or into the largest number that they have
        largest = 6.0 if found.dtype.name == _FLOAT4 else math.inf
        if is_finite and not (math.isfinite(float(found)) and abs(_float(part)) <= largest):
            raise ValueError(f"{shown(part)} is out of range for {found.dtype.name}")


def format_fill_value(item: Item | None, dtype: DataType) -> Any:
    """The JSON that `parse_fill_value` reads back as the same bits; strict JSON (NaN and infinities are strings)."""
    if item is None:
        return None
    if dtype.numpy.hasobject:
        value: Any = item[()]
        return _to_base64(value) if isinstance(value, bytes) else value
    return _kind(dtype.numpy)[1](item)


def zero_item(dtype: DataType, codecs: Codecs = ()) -> Item:
    """What null reads as: zero bytes, or for objects ``""``, ``b""`` or None by codec."""
    if dtype.numpy.hasobject:
        empty = {"vlen-utf8": "", "categorize": "", "vlen-bytes": b""}
        item = object_item(empty.get(object_codec(codecs)))
    else:
        item = np.zeros((), dtype.numpy)
    item.setflags(write=False)
    return item


def reads_alike(value: Any, dtype: DataType, codecs: Codecs = ()) -> bool:
    """Whether all libraries read missing items as `parse_fill_value` reads ``value``, which it accepts.

    They do not for null, for the 0 of old writers in place of text or bytes (zarr-python reads ``"0"``, or 0), and for
    bytes of any length, which zarr-python 2 takes for text.
    """
    if value is None:
        return False
    codec = object_codec(codecs) if dtype.numpy.hasobject else None
    is_text = codec in ("vlen-utf8", "categorize") or dtype.numpy.kind in "SU"
    return codec != "vlen-bytes" and not (is_text and _is_zero(value))


def same_object(a: Any, b: Any) -> bool:
    """Whether two objects are the same value of the same type, all the way down.

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
    """The id of the codec that turns objects into bytes; raises `ValueError` if the first codec does not."""
    first = codecs[0].get("id") if codecs else None
    if first not in OBJECT_CODECS:
        raise ValueError("an array of objects needs an object codec such as 'vlen-utf8' as its first filter")
    return str(first)


# --- objects, text and bytes -------------------------------------------------------------------------------------


def object_item(value: Any) -> Item:
    """0-d, whatever the object is: assigning a list to a 0-d array would spread it out."""
    item = np.empty(1, object)
    item[0] = value
    return item.reshape(())


def _parse_bytes(value: Any, dtype: DType) -> Item:
    """base64 of exactly the bytes of the item. Fixed-length bytes are padded with NUL if it is shorter; the number 0 of
    old writers is empty."""
    padded = dtype.kind == "S"
    raw = b"" if padded and _is_zero(value) else from_base64(value)
    if len(raw) > dtype.itemsize or (len(raw) < dtype.itemsize and not padded):
        raise ValueError(f"{len(raw)} bytes in base64, the item has {dtype.itemsize}")
    return item_from_bytes(raw, dtype)


def _parse_text(value: Any, dtype: DType) -> Item:
    """A plain string, cut at the length of the item; 0 is the empty one."""
    text = _plain_text(value)[: dtype.itemsize // 4]
    return item_from_bytes(text.encode("utf-32-be" if dtype.byteorder == ">" else "utf-32-le"), dtype)


def _plain_text(value: Any) -> str:
    """A string as it stands; 0 is the empty one."""
    if isinstance(value, str):
        return value
    if _is_zero(value):
        return ""
    raise ValueError(f"expected a string, found {shown(value)}")


def item_from_bytes(raw: bytes, dtype: DType) -> Item:
    """The item that starts with ``raw``; the rest is zero, and costs nothing until it is touched."""
    item = np.zeros(1, dtype)
    item.view(np.uint8)[: len(raw)] = np.frombuffer(raw, np.uint8)
    return item.reshape(())


def from_base64(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise ValueError(f"{shown(value)} is not base64: {error}") from None
    raise ValueError(f"expected the bytes of an item in base64, found {shown(value)}")


def _to_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _format_bytes(item: Item) -> str:
    return _to_base64(item.tobytes())


def _is_zero(value: Any) -> bool:
    """The number 0, which old zarr-python wrote for every dtype."""
    return type(value) is int and value == 0


# --- bools, integers and times -----------------------------------------------------------------------------------


def _parse_bool(value: Any, dtype: DType) -> Item:
    if value is True or value is False or (type(value) is int and value in (0, 1)):
        return np.array(bool(value), dtype)
    raise ValueError(f"expected true or false, found {shown(value)}")


def _parse_integer(value: Any, dtype: DType) -> Item:
    if dtype.name in NARROW_INTEGERS:  # sign-extended to the byte, as TensorStore stores a fill value
        if dtype.name.startswith("u"):
            return np.array(_integer(value, 0, 2 ** NARROW_INTEGERS[dtype.name] - 1), np.uint8).view(dtype)
        high = 2 ** (NARROW_INTEGERS[dtype.name] - 1) - 1
        return np.array(_integer(value, -high - 1, high), np.int8).view(dtype)
    limits = np.iinfo(dtype)
    return np.array(_integer(value, int(limits.min), int(limits.max)), dtype)


def _parse_time(value: Any, dtype: DType) -> Item:
    """The count of units as an integer, or ``"NaT"``.

    Other text has two readings: zarr-python 2 takes ``"2000"`` for a year.
    """
    if isinstance(value, str) and value != "NaT":
        raise ValueError(f"expected an integer or 'NaT', found {shown(value)}")
    count = _integer(-(2**63) if value == "NaT" else value, -(2**63), 2**63 - 1)
    return np.array(count, np.dtype(f"{dtype.str[0]}i8")).view(dtype)


def has_no_unit(dtype: DType) -> bool:
    """Whether it is one of times (not spans) of which nothing says what they count."""
    return dtype.kind == "M" and np.datetime_data(dtype)[0] == "generic"


def _format_time(item: Item) -> int | str:
    """The count; of a time without a unit numpy, and so zarr-python, reads no other value than "NaT"."""
    if has_no_unit(item.dtype) and np.isnat(item):
        return "NaT"
    return int(item.view(np.dtype(f"{item.dtype.str[0]}i8"))[()])


def _integer(value: Any, low: int, high: int) -> int:
    """An integer, an integral float or a decimal text, within the limits."""
    spelled = isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,20}", value, re.ASCII)
    number = int(value) if spelled or (type(value) is float and value.is_integer()) else value
    if type(number) is not int:
        raise ValueError(f"expected an integer, found {shown(value)}")
    if not low <= number <= high:
        raise ValueError(f"{shown(value)} is out of range: {low} to {high}")
    return number


# --- floats and complex numbers ----------------------------------------------------------------------------------


def _parse_float(value: Any, dtype: DType) -> Item:
    if dtype.name == _FLOAT4:  # no NaN, no infinity; TensorStore spells it in base64
        if isinstance(value, str) and value.endswith("=="):
            return _parse_bytes(value, dtype)
        if not math.isfinite(_float(value)):
            raise ValueError(f"{dtype.name} has no {shown(value)}")
    elif isinstance(value, str) and re.fullmatch(r"0x(?:[0-9a-fA-F]{2})+", value):
        return _nan_from_bits(value, dtype)
    return _rounded(_float(value), dtype)


def _rounded(number: float, dtype: DType) -> Item:
    """The nearest item, as TensorStore finds it.

    ``ml_dtypes`` converts to its narrow floats by way of float32, which would round twice. For those of one byte the
    first step therefore rounds to odd: if float32 has no exact value, it takes the neighbour whose last bit is 1,
    which is never half way between two of theirs.
    """
    with np.errstate(over="ignore", under="ignore"):
        if dtype.itemsize > 1 or not math.isfinite(number):
            return np.array(number).astype(dtype)
        single = np.array(number, np.float32)
        error = number - float(single)
        if error and np.isfinite(single) and not single.view(np.uint32) & 1:
            single = np.nextafter(single, np.float32(math.copysign(math.inf, error)))
        return np.array(single).astype(dtype)


def _float(value: Any) -> float:
    if isinstance(value, str):
        if value in SPELLED:
            return SPELLED[value]
        if _DECIMAL.fullmatch(value):
            return float(value)
    elif type(value) in (int, float):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("an integer too large for a float") from None
    raise ValueError(f"expected a number, 'NaN', 'Infinity' or '-Infinity', found {shown(value)}")


def _nan_from_bits(text: str, dtype: DType) -> Item:
    """A NaN with its payload. TensorStore takes such a text for a number, so only bits that are a NaN are accepted."""
    bits = bytes.fromhex(text[2:])
    if len(bits) != dtype.itemsize:
        raise ValueError(f"{shown(text)} is not {dtype.itemsize} bytes of bits")
    item = np.frombuffer(bits if dtype.byteorder == ">" else bits[::-1], dtype).reshape(()).copy()
    if not np.isnan(item):
        raise ValueError(f"{shown(text)} is not the bits of a NaN; write the number itself")
    return item


def _format_float(item: Item) -> float | str:
    number, stored = float(item), item.tobytes()
    if math.isnan(number) and stored != np.array(math.nan).astype(item.dtype).tobytes():
        return "0x" + (stored if item.dtype.byteorder == ">" else stored[::-1]).hex()
    return spell_float(number)


def _parse_complex(value: Any, dtype: DType) -> Item:
    """Part by part: ``re + 1j * im`` would turn [1, "-Infinity"] into NaN."""
    if isinstance(value, str):
        return _parse_bytes(value, dtype)
    parts = [value, 0.0] if type(value) in (int, float) else value
    if not isinstance(parts, list) or len(parts) != 2:
        raise ValueError(f"expected [real, imaginary], found {shown(value)}")
    item = np.zeros((), dtype)
    item.real[...], item.imag[...] = (_parse_float(part, item.real.dtype) for part in parts)
    return item


def _format_complex(item: Item) -> list[Any]:
    return [_format_float(item.real), _format_float(item.imag)]


_Kind = tuple[Callable[[Any, DType], Item], Callable[[Item], Any]]
"""How the items of one kind are parsed and formatted."""


def _kind(dtype: DType) -> _Kind:
    if dtype.name == _FLOAT4:
        return _parse_float, _format_bytes
    return _KINDS["f" if dtype.name in EXTENSION_FLOATS else "i" if dtype.name in NARROW_INTEGERS else dtype.kind]


_KINDS: Final[Mapping[str, _Kind]] = {
    "b": (_parse_bool, bool),
    **dict.fromkeys("iu", (_parse_integer, int)),
    "f": (_parse_float, _format_float),
    "c": (_parse_complex, _format_complex),
    **dict.fromkeys("mM", (_parse_time, _format_time)),
    "U": (_parse_text, lambda item: str(item[()])),
    **dict.fromkeys("SV", (_parse_bytes, _format_bytes)),
}
