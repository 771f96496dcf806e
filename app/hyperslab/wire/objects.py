"""Binary format of object arrays, without executable content.

All numbers are little endian. Items are in C order:

    uint32 n                 number of items
    uint8  kind[n]           an ASCII letter, see below
    uint32 length[n]         bytes of each item
    uint8  data[...]         the items, concatenated

| kind | item |
|---|---|
| ``0`` | null; no bytes |
| ``s`` | text in UTF-8 (lone surrogates as their three bytes) |
| ``b`` | bytes |
| ``?`` | a boolean: one byte, 0 or 1 |
| ``i`` | an integer: two's complement, of any length |
| ``f`` | a number: float64 |
| ``a`` | a 1-d array: the length of its dtype's text in one byte, that text (``<i4``), the values |
| ``l`` | a list: its items in this format |
| ``m`` | a map: a list of alternating keys and values |
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from hyperslab.wire.dtypes import dtype_from_json, dtype_to_json
from hyperslab.wire.nesting import MAX_DEPTH

_HEAD = 4
_PER_ITEM = 5


def pack_objects(items: Iterable[Any]) -> bytes:
    """Items in this format; raises `TypeError` for unsupported types and `ValueError` for too deep nesting."""
    packer = Packer()
    packer.add(items)
    return packer.finish()


def unpack_objects(data: bytes | bytearray | memoryview) -> list[Any]:
    """The items of a body; raises `ValueError` if it is malformed. All sizes are checked before allocation."""
    return _unpack(memoryview(data).toreadonly(), 0)


class Packer:
    """Encodes items; ``nbytes`` is the current size of the body."""

    def __init__(self, depth: int = 0) -> None:
        _check_depth(depth)
        self.nbytes = _HEAD
        self._depth = depth
        self._kinds = bytearray()
        self._parts: list[bytes] = []

    def add(self, items: Iterable[Any]) -> None:
        """Encode and append items; raises as `pack_objects`."""
        for item in items:
            kind, part = _pack_item(item, self._depth)
            self._kinds += kind
            self._parts.append(part)
            self.nbytes += _PER_ITEM + len(part)

    def finish(self) -> bytes:
        """The body."""
        count = len(self._parts)
        lengths = np.fromiter(map(len, self._parts), "<u4", count)
        return b"".join([count.to_bytes(_HEAD, "little"), self._kinds, lengths.tobytes(), *self._parts])


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"lists nested more than {MAX_DEPTH} deep")


def _pack_item(item: Any, depth: int) -> tuple[bytes, bytes]:
    match item:
        case list() | tuple() | dict():
            packer = Packer(depth + 1)
            packer.add(chain.from_iterable(item.items()) if isinstance(item, dict) else item)
            packed = b"m" if isinstance(item, dict) else b"l", packer.finish()
        case None:
            packed = b"0", b""
        case str():
            packed = b"s", item.encode("utf-8", "surrogatepass")
        case bytes() | bytearray():
            packed = b"b", bytes(item)
        case bool() | np.bool_():  # before int, the base class of bool
            packed = b"?", bytes([bool(item)])
        case int() | np.integer():
            value = int(item)
            size = (value if value >= 0 else ~value).bit_length() // 8 + 1
            packed = b"i", value.to_bytes(size, "little", signed=True)
        case float() | np.floating():
            packed = b"f", np.float64(item).astype("<f8").tobytes()
        case np.ndarray():
            packed = b"a", _array_bytes(item)
        case _:
            raise TypeError(f"objects of type {type(item).__name__} have no binary form")
    return packed


def _array_bytes(values: np.ndarray) -> bytes:
    dtype = dtype_to_json(values.dtype)
    if values.ndim != 1 or not isinstance(dtype, str) or values.dtype.hasobject:
        raise TypeError("an array among objects has one axis and a plain dtype")
    text = dtype.encode("ascii")
    return bytes([len(text)]) + text + values.tobytes()


def _unpack(data: memoryview, depth: int) -> list[Any]:
    _check_depth(depth)
    count = int.from_bytes(data[:_HEAD], "little") if len(data) >= _HEAD else -1
    start = _HEAD + _PER_ITEM * count
    if not 0 <= count <= (len(data) - _HEAD) // _PER_ITEM:
        raise ValueError(f"{len(data)} bytes are too few for {max(count, 0)} items")
    kinds = str(data[_HEAD : _HEAD + count], "latin-1")
    ends = start + np.cumsum(np.frombuffer(data[_HEAD + count : start], "<u4"), dtype=np.int64)
    bounds = [start, *ends.tolist()]
    if bounds[-1] != len(data):
        raise ValueError(f"the items do not end where the body does, at {len(data)} bytes")
    return [_unpack_item(kind, data[a:b], depth) for kind, a, b in zip(kinds, bounds, bounds[1:], strict=False)]


def _unpack_item(kind: str, data: memoryview, depth: int) -> Any:
    item: Any = None
    match kind:
        case "s":
            item = str(data, "utf-8", "surrogatepass")
        case "b":
            item = bytes(data)
        case "i":
            item = int.from_bytes(data, "little", signed=True)
        case "f" if len(data) == 8:
            item = float(np.frombuffer(data, "<f8")[0])
        case "?" if bytes(data) in (b"\0", b"\1"):
            item = data[0] == 1
        case "a":
            item = _unpack_array(data)
        case "l":
            item = _unpack(data, depth + 1)
        case "m":
            parts = _unpack(data, depth + 1)
            if len(parts) % 2:
                raise ValueError("a map has as many values as keys")
            if not all(isinstance(key, str | bytes | int | float | None) for key in parts[::2]):
                raise ValueError("the keys of a map are text, bytes or numbers")
            item = dict(zip(parts[::2], parts[1::2], strict=True))
        case "0" if not len(data):
            pass
        case _:
            raise ValueError(f"{len(data)} bytes are no item of kind {kind!r}")
    return item


def _unpack_array(data: memoryview) -> np.ndarray:
    size = data[0] if len(data) else 0
    text = str(data[1 : 1 + size], "ascii")
    plain = r"[<>|][biufcmMSUV][1-9][0-9]{0,8}(\[[0-9]*[A-Za-z]+\])?|bfloat16|float[48]_\w+|int[24]"
    if not re.fullmatch(plain, text, re.ASCII):
        raise ValueError(f"{text!r} is no dtype that an array among objects may have")
    return np.frombuffer(data[1 + size :], dtype_from_json(text)).copy()
