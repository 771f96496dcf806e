"""The fill value of a node document as a numpy scalar."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from hyperslab.client.casting import is_extension

_NAT = np.iinfo(np.int64).min


def parse_fill_value(value: Any, dtype: np.dtype[Any], object_codec: str | None = None) -> Any:
    """A scalar of ``dtype`` from the JSON of a Zarr v2 fill value (spec: *Fill value encoding*).

    ``object_codec`` is the id of the codec of objects, which says what their JSON means. Raises `ValueError`,
    `TypeError` or `OverflowError` for what the dtype cannot hold.
    """
    if dtype.kind == "O":
        return _object(value, object_codec)
    if dtype.kind in "SUV" and not is_extension(dtype):
        return _text_or_bytes(value, dtype)
    if dtype.kind == "c":
        return _complex(value, dtype)
    if dtype.kind in "mM":
        return np.asarray(_NAT if value == "NaT" else int(value), "<i8").view(dtype.newbyteorder("<")).astype(dtype)[()]
    with np.errstate(over="ignore"):  # too large a number is infinite, as on the server
        return _number(value, dtype)


def _object(value: Any, codec: str | None) -> Any:
    """What a missing item reads as; old writers put 0 for text and bytes, too."""
    if codec == "vlen-bytes":
        return b"" if value == 0 else base64.b64decode(value, validate=True)
    return "" if value == 0 and codec in ("vlen-utf8", "categorize") else value


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
    item.real, item.imag = (_number(part, item.real.dtype) for part in parts)
    return item[()]


def _number(value: Any, dtype: np.dtype[Any]) -> Any:
    """From a number, or text that is one, or the bits of a NaN that carries a payload, most significant digit first."""
    if isinstance(value, str) and value.startswith("0x"):
        bits = np.asarray(int(value, 16)).astype(f"{'>' if dtype.byteorder == '>' else '<'}u{dtype.itemsize}")
        return bits.view(dtype)[()]
    if isinstance(value, str) and value.endswith("=="):  # TensorStore spells its 4-bit floats so
        return _text_or_bytes(value, dtype)
    number = int(value) if dtype.kind in "iu" else float(value)
    return np.asarray(number).astype(dtype)[()]
