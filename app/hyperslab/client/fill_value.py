"""The fill value of a node document as a numpy scalar."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from hyperslab.client.casting import is_extension

_NAT = np.iinfo(np.int64).min


def parse_fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    """A scalar of ``dtype`` from the JSON of a Zarr v2 fill value (spec: *Fill value encoding*).

    Raises `ValueError`, `TypeError` or `OverflowError` for what the dtype cannot hold.
    """
    if dtype.kind == "O":
        return value
    if dtype.kind in "SUV" and not is_extension(dtype):
        return _text_or_bytes(value, dtype)
    if dtype.kind == "c":
        return _complex(value, dtype)
    if dtype.kind in "mM":
        return np.asarray(_NAT if value == "NaT" else int(value), "<i8").view(dtype.newbyteorder("<")).astype(dtype)[()]
    with np.errstate(over="ignore"):  # too large a number is infinite, as on the server
        return _number(value, dtype) if isinstance(value, str) else np.asarray(value).astype(dtype)[()]


def _text_or_bytes(value: Any, dtype: np.dtype[Any]) -> Any:
    if value == 0:  # old writers put it for every dtype
        return np.zeros((), dtype)[()]
    if dtype.kind == "U":
        return np.asarray(value).astype(dtype)[()]
    stored = base64.b64decode(value, validate=True)
    padded = stored.ljust(dtype.itemsize, b"\0") if dtype.kind == "S" else stored
    return np.frombuffer(padded, dtype=dtype)[0]


def _complex(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, str):  # TensorStore takes the bytes of the item in base64
        return _text_or_bytes(value, dtype)
    parts: Sequence[Any] = value if isinstance(value, list) else (value, 0)
    item = np.empty((), dtype)  # from its parts: re + 1j * im turns an infinite im into NaN
    item.real, item.imag = (float(part) for part in parts)
    return item[()]


def _number(text: str, dtype: np.dtype[Any]) -> Any:
    if text.startswith("0x"):  # the bits of a NaN that carries a payload, most significant digit first
        bits = np.asarray(int(text, 16)).astype(f"{'>' if dtype.byteorder == '>' else '<'}u{dtype.itemsize}")
        return bits.view(dtype)[()]
    number = int(text) if dtype.kind in "iu" else float(text)
    return np.asarray(number).astype(dtype)[()]
