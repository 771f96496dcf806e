"""Bytes and times as the text that stands for them in JSON and CSV, both ways and without loss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperslab.errors import shown

_ESCAPED = re.compile(r"\\x(5c|[89a-f][0-9a-f])")
_TIME = re.compile(r"[+-]?[0-9]+(-[0-9]{2}(-[0-9]{2}(T[0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?)?)?)?Z?", re.ASCII)


def bytes_to_text(raw: bytes) -> str:
    """UTF-8, with ``\\xff`` for each byte that is none, and ``\\x5c`` for a backslash that would begin an escape."""
    if b"\\x" in raw:
        raw = re.sub(rb"\\(?=x(5c|[89a-f][0-9a-f]))", rb"\\x5c", raw)
    return raw.decode("utf-8", "backslashreplace")


def text_to_bytes(text: str) -> bytes:
    """What `bytes_to_text` was given; raises `ValueError` for lone surrogates."""
    return b"".join(_pieces(text))


def _pieces(text: str) -> Iterator[bytes]:
    end = 0
    for match in _ESCAPED.finditer(text):
        yield text[end : match.start()].encode()
        yield bytes.fromhex(match[1])
        end = match.end()
    yield text[end:].encode()


def times_to_text(values: NDArray[Any]) -> list[str | int]:
    """ISO 8601 text for each time (n,), "NaT" for none; a count of units for what numpy cannot spell without
    overflow."""
    native = values.astype(values.dtype.newbyteorder("="))  # numpy would misread another byte order here
    unit, multiple = np.datetime_data(native.dtype)
    limit = (2**63 - 2**12) // (multiple * (7 if unit == "W" else 1))
    counts = native.astype(np.int64)
    texts: list[str | int] = np.datetime_as_string(native).tolist()
    for i in np.flatnonzero((np.abs(counts) > limit) & ~np.isnat(native)).tolist():
        texts[i] = int(counts[i])
    return texts


def text_to_time(text: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The time (0-d) that ISO 8601 text names, in UTC; raises `ValueError` where the unit of ``dtype`` is too coarse
    for it."""
    if not _TIME.fullmatch(text):
        raise ValueError(f"{shown(text)} is no time as 2001-02-03T04:05:06")
    exact = np.datetime64(text.removesuffix("Z"))
    found = exact.astype(dtype.newbyteorder("="))
    if found != exact:
        raise ValueError(f"{text} falls between two values of the unit")
    return np.array(found, dtype)
