"""Bytes and text of a fill value, JSON to one item: base64 for bytes, a plain string for text."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from hyperslab.errors import shown

Item = np.ndarray
"""One item, 0-d."""


def parse_bytes(value: Any, dtype: np.dtype[Any]) -> Item:
    """base64 of exactly the bytes of the item."""
    raw = from_base64(value)
    if len(raw) != dtype.itemsize:
        raise ValueError(f"{len(raw)} bytes in base64, the item has {dtype.itemsize}")
    return _item_from_bytes(raw, dtype)


def parse_fixed_bytes(value: Any, dtype: np.dtype[Any]) -> Item:
    """base64, padded with NUL where it is shorter; the number 0 of old writers is empty (CONFORMANCE 101, 104)."""
    raw = b"" if is_zero(value) else from_base64(value)
    if len(raw) > dtype.itemsize:
        raise ValueError(f"{len(raw)} bytes in base64, the item has {dtype.itemsize}")
    return _item_from_bytes(raw, dtype)


def parse_text(value: Any, dtype: np.dtype[Any]) -> Item:
    """A plain string, cut at the length of the item (CONFORMANCE 105); 0 is the empty one."""
    kept = plain_text(value)[: dtype.itemsize // 4]
    return _item_from_bytes(kept.encode("utf-32-be" if dtype.byteorder == ">" else "utf-32-le"), dtype)


def plain_text(value: Any) -> str:
    """A string as it stands; 0 is the empty one."""
    if isinstance(value, str):
        return value
    if is_zero(value):
        return ""
    raise ValueError(f"expected a string, found {shown(value)}")


def _item_from_bytes(raw: bytes, dtype: np.dtype[Any]) -> Item:
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


def to_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def is_zero(value: Any) -> bool:
    """The number 0, which old zarr-python wrote for every dtype."""
    return type(value) is int and value == 0
