"""Appending: the server picks the offset, and a repeated request stores nothing twice."""

from __future__ import annotations

import uuid
from collections import deque
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from hyperslab import wire
from hyperslab.client.indexing import AnyArray
from hyperslab.client.session import Request
from hyperslab.client.source import Source
from hyperslab.client.write import encode_values
from hyperslab.errors import TooLarge

_LARGEST = 64 << 20
"""Bytes of one request where the server's limit allows more."""


def append_values(source: Source, values: AnyArray, axis: int) -> tuple[int, list[int]]:
    """Append ``values`` along ``axis``: where they begin, and the array's shape then.

    Raises `ValueError` where the other axes differ, numpy's `AxisError` where there is no such axis, and what the
    server raised.
    """
    document = source.document
    if document.field is not None:
        raise ValueError(f"whole items are appended, and the field {document.field!r} is opened")
    axis = normalize_axis_index(axis, len(document.shape))
    others = [n for i, n in enumerate(document.shape) if i != axis]
    if values.ndim != len(others) + 1 or [n for i, n in enumerate(values.shape) if i != axis] != others:
        raise ValueError(f"cannot append shape {values.shape} along axis {axis} of shape {document.shape}")
    begin: int | None = None
    at: int | None = None
    shape = list(document.grid_shape)
    waiting = deque(_parts(source, values, axis))
    while waiting:
        part = waiting.popleft()
        try:
            answer = _append(source, part, axis, at)
        except TooLarge:  # how long objects are shows when they are packed
            if part.shape[axis] < 2:
                raise
            waiting.extendleft(reversed(np.array_split(part, 2, axis)))
            continue
        shape = answer["shape"]
        begin = answer["offset"] if begin is None else begin
        at = answer["offset"] + part.shape[axis]
    return (document.shape[axis] if begin is None else begin), shape


def _parts(source: Source, values: AnyArray, axis: int) -> list[AnyArray]:
    """``values`` in as many parts along ``axis`` as requests are needed, none where it is empty."""
    length = values.shape[axis]
    limit = min(_LARGEST, source.document.limits.get("max_request_bytes") or _LARGEST)
    row = values.size * source.document.dtype.itemsize // max(1, length)
    rows = max(1, limit // max(1, row))
    chunk = source.document.grid_chunks[axis]
    if rows > chunk:
        rows -= rows % chunk
    moved = np.moveaxis(values, axis, 0)
    return [np.moveaxis(moved[start : start + rows], 0, axis) for start in range(0, length, rows)]


def _append(source: Source, values: AnyArray, axis: int, at: int | None) -> dict[str, Any]:
    body, headers = encode_values(source, values)
    url = source.address.url("append", axis=str(axis), at=None if at is None else str(at))
    key = {wire.IDEMPOTENCY_KEY: str(uuid.uuid4())}
    answer, _ = source.session.read_json(Request("POST", url, {**headers, **key}, body))
    return dict(answer)
