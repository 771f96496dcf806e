"""The binary form of object arrays: items of any length, and nothing that could run.

All numbers are little endian. Items come in C order:

    uint32 n                 how many items
    uint8  kind[n]           an ASCII letter, see below
    uint32 length[n]         bytes of each item
    uint8  data[...]         the items, one behind the other, nothing in between

| kind | item |
|---|---|
| ``0`` | null; no bytes |
| ``s`` | text in UTF-8 (lone surrogates as their three bytes) |
| ``b`` | bytes |
| ``?`` | a boolean: one byte, 0 or 1 |
| ``i`` | an integer: two's complement, as many bytes as it takes |
| ``f`` | a number: float64 |
| ``a`` | a 1-d array: a byte that says how long its dtype's text is, that text (``<i4``), then its values |
| ``l`` | a list: its items in this same layout |
| ``m`` | a map: a list of its keys and values in turn |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

import numpy as np

from hyperslab.wire.dtypes import dtype_from_json, dtype_to_json

MAX_DEPTH: Final = 100
"""How deep lists and maps may nest in each other."""

_TEXT, _BYTES = ord("s"), ord("b")
_PLAIN = re.compile(r"[<>|][biufcmMSUV][1-9][0-9]{0,8}(\[[0-9]*[A-Za-z]+\])?|bfloat16|float[48]_\w+|int[24]", re.ASCII)
_HEAD = 4
_PER_ITEM = 5


def pack_objects(items: Iterable[Any]) -> bytes:
    """Items in the layout above; raises `TypeError` for what it cannot hold and `ValueError` for too deep a nesting."""
    packer = Packer()
    packer.add(items)
    return packer.finish()


def unpack_objects(data: bytes | bytearray | memoryview) -> list[Any]:
    """The items of a body; raises `ValueError` where it is not in this layout. All counts are checked first."""
    return _unpack(memoryview(data).toreadonly(), 0)


class Packer:
    """Collects items; ``nbytes`` is how long the body is so far."""

    def __init__(self, depth: int = 0) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(f"lists nested more than {MAX_DEPTH} deep")
        self.nbytes = _HEAD
        self._depth = depth
        self._kinds = bytearray()
        self._parts: list[bytes] = []

    def add(self, items: Iterable[Any]) -> None:
        """Append items; raises as `pack_objects`."""
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


def _pack_list(items: Iterable[Any], depth: int) -> bytes:
    packer = Packer(depth)
    packer.add(items)
    return packer.finish()


def _pack_item(item: Any, depth: int) -> tuple[bytes, bytes]:
    if isinstance(item, list | tuple):
        return b"l", _pack_list(item, depth + 1)
    if isinstance(item, dict):
        return b"m", _pack_list(chain.from_iterable(item.items()), depth + 1)
    for types, kind, pack in _PACKERS:
        if isinstance(item, types):
            return kind, pack(item)
    raise TypeError(f"objects of type {type(item).__name__} have no binary form")


def _integer_bytes(value: int) -> bytes:
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "little", signed=True)


def _array_bytes(values: np.ndarray) -> bytes:
    dtype = dtype_to_json(values.dtype)
    if values.ndim != 1 or not isinstance(dtype, str) or values.dtype.hasobject:
        raise TypeError("an array among objects has one axis and a plain dtype")
    text = dtype.encode("ascii")
    return bytes([len(text)]) + text + values.tobytes()


_PACKERS: Final[tuple[tuple[Any, bytes, Callable[[Any], bytes]], ...]] = (
    (str, b"s", lambda text: text.encode("utf-8", "surrogatepass")),
    (type(None), b"0", lambda _: b""),
    (bytes | bytearray, b"b", bytes),
    (bool | np.bool_, b"?", lambda value: bytes([bool(value)])),
    (int | np.integer, b"i", lambda value: _integer_bytes(int(value))),
    (float | np.floating, b"f", lambda value: np.float64(value).astype("<f8").tobytes()),
    (np.ndarray, b"a", _array_bytes),
)
"""Types, their kind and how they are written; in this order, because a boolean is an integer to Python."""


def _unpack(data: memoryview, depth: int) -> list[Any]:
    if depth > MAX_DEPTH:
        raise ValueError(f"lists nested more than {MAX_DEPTH} deep")
    count = int.from_bytes(data[:_HEAD], "little") if len(data) >= _HEAD else -1
    start = _HEAD + _PER_ITEM * count
    if not 0 <= count <= (len(data) - _HEAD) // _PER_ITEM:
        raise ValueError(f"{len(data)} bytes are too few for {max(count, 0)} items")
    kinds = bytes(data[_HEAD : _HEAD + count])
    lengths = np.frombuffer(data[_HEAD + count : start], "<u4")
    ends = start + np.cumsum(lengths, dtype=np.int64)
    if (int(ends[-1]) if count else start) != len(data):
        raise ValueError(f"the items do not end where the body does, at {len(data)} bytes")
    return list(_items(data, kinds, [start, *ends.tolist()], depth))


def _items(data: memoryview, kinds: bytes, bounds: list[int], depth: int) -> Iterator[Any]:
    for kind, start, stop in zip(kinds, bounds, bounds[1:], strict=False):
        if kind == _TEXT:
            yield str(data[start:stop], "utf-8", "surrogatepass")
        elif kind == _BYTES:
            yield bytes(data[start:stop])
        else:
            yield _unpack_item(kind, data[start:stop], depth)


def _unpack_item(kind: int, data: memoryview, depth: int) -> Any:
    match chr(kind):
        case "l":
            return _unpack(data, depth + 1)
        case "m":
            return _unpack_map(_unpack(data, depth + 1))
    read = _FIXED.get(chr(kind))
    if read is None:
        raise ValueError(f"{kind} is no kind of item")
    return read(data)


def _unpack_map(parts: list[Any]) -> dict[Any, Any]:
    if len(parts) % 2:
        raise ValueError("a map has as many values as keys")
    if not all(isinstance(key, str | bytes | int | float | None) for key in parts[::2]):
        raise ValueError("the keys of a map are text, bytes or numbers")
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _unpack_null(data: memoryview) -> None:
    if len(data):
        raise ValueError("null has no bytes")


def _unpack_bool(data: memoryview) -> bool:
    if bytes(data) not in (b"\0", b"\1"):
        raise ValueError("a boolean is one byte, 0 or 1")
    return data[0] == 1


def _unpack_integer(data: memoryview) -> int:
    return int.from_bytes(data, "little", signed=True)


def _unpack_float(data: memoryview) -> float:
    if len(data) != 8:
        raise ValueError(f"a number has 8 bytes, not {len(data)}")
    return float(np.frombuffer(data, "<f8")[0])


def _unpack_array(data: memoryview) -> np.ndarray:
    size = data[0] if len(data) else 0
    text = str(data[1 : 1 + size], "ascii")
    if not _PLAIN.fullmatch(text):
        raise ValueError(f"{text!r} is no dtype that an array among objects may have")
    return np.frombuffer(data[1 + size :], dtype_from_json(text)).copy()


_FIXED: Final[dict[str, Callable[[memoryview], Any]]] = {
    "0": _unpack_null,
    "?": _unpack_bool,
    "i": _unpack_integer,
    "f": _unpack_float,
    "a": _unpack_array,
}
