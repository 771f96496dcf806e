"""Writing a selection: boxes cut on chunk edges over several connections, points in one request for many; appending.

A box that is written twice is as good as one written once, so that a lost answer is no reason to stop. Several boxes
are not one transaction. Of an append, the server picks the offset, and a repeated request stores nothing twice.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections import deque
from math import prod

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from hyperslab import wire
from hyperslab.client.body import OnBytes
from hyperslab.client.endpoint import Endpoint
from hyperslab.client.indexing import AnyArray, Axis, Box, IntArray, Selection, coordinates, lengths
from hyperslab.client.session import Request
from hyperslab.client.values import broadcast, bytes_of, encode_npy, encode_objects
from hyperslab.errors import TooLarge

SMALLEST_BOX = 4 << 20
LARGEST_BOX = 16 << 20
"""Bytes of one request of a big write; the benchmark of them is the suite ``writes``."""


def write_selection(
    endpoint: Endpoint, selection: Selection, values: AnyArray, *, on_bytes: OnBytes = lambda _: None
) -> None:
    """Write ``values`` (see `values.as_values`) where ``selection`` says, broadcast as numpy does.

    Where an index comes twice, the last value wins. Raises `ValueError` where the shapes do not fit, and what the
    server raised.
    """
    endpoint, axes = _cells(endpoint, selection)
    spread = broadcast(values, selection.shape)
    if 0 in selection.shape:
        return
    if selection.pointwise:
        _write_points(endpoint, axes, selection.to_raw(spread), on_bytes)
    else:
        is_single = values.ndim == 0 and endpoint.item_shape == ()
        _write_boxes(endpoint, axes, values if is_single else selection.to_raw(spread), is_single, on_bytes)


def write_tagged(endpoint: Endpoint, selection: Selection, values: AnyArray, tag: str) -> str:
    """As `write_selection`, by one request that is done only where the selection still has the ``tag``.

    Returns the tag that it has then. Raises `PreconditionFailed` where it has another, `TooLarge` where one request
    cannot carry the values, and what the transport raised where the answer was lost: the request is not sent twice,
    because the second would be refused on account of the first.
    """
    endpoint, axes = _cells(endpoint, selection)
    axes, kept = _without_repetition(axes, selection.to_raw(broadcast(values, selection.shape)))
    headers, body = {**_headers(endpoint, kept.shape), "If-Match": tag}, _encode(endpoint, kept)
    request = Request("PUT", _single_url(endpoint, axes), headers, body, once=True)
    return endpoint.session.read(request).headers["ETag"]


def read_tag(endpoint: Endpoint, selection: Selection) -> str:
    """The tag of what a selection holds now, for `write_tagged`; no values are read."""
    endpoint, axes = _cells(endpoint, selection)
    axes, _ = _without_repetition(axes, np.empty(()))
    request = Request("HEAD", _single_url(endpoint, axes), {"Accept": endpoint.accept})
    return endpoint.session.read(request).headers["ETag"]


def append_values(endpoint: Endpoint, values: AnyArray, axis: int) -> tuple[int, list[int]]:
    """Append ``values`` along ``axis``: where they begin, and the array's shape then.

    Raises `ValueError` where the other axes differ, numpy's `AxisError` where there is no such axis, and what the
    server raised.
    """
    if endpoint.field is not None:
        raise ValueError(f"whole items are appended, and the field {endpoint.field!r} is opened")
    axis = normalize_axis_index(axis, len(endpoint.shape))
    others = endpoint.shape[:axis] + endpoint.shape[axis + 1 :]
    if values.ndim != len(endpoint.shape) or values.shape[:axis] + values.shape[axis + 1 :] != others:
        raise ValueError(f"cannot append shape {values.shape} along axis {axis} of shape {endpoint.shape}")
    begin, end = None, None
    shape = list(endpoint.grid_shape)
    waiting = deque(_append_parts(endpoint, values, axis))
    while waiting:
        part = waiting.popleft()
        url = endpoint.address.url("append", axis=str(axis), at=None if end is None else str(end))
        headers = {**_headers(endpoint, part.shape), wire.IDEMPOTENCY_KEY: str(uuid.uuid4())}
        try:
            answer, _ = endpoint.session.read_json(Request("POST", url, headers, _encode(endpoint, part)))
        except TooLarge:  # how long objects are shows when they are packed
            if part.shape[axis] < 2:
                raise
            waiting.extendleft(reversed(np.array_split(part, 2, axis)))
            continue
        shape, offset = answer["shape"], answer["offset"]
        begin, end = offset if begin is None else begin, offset + part.shape[axis]
    return (endpoint.shape[axis] if begin is None else begin), shape


def _append_parts(endpoint: Endpoint, values: AnyArray, axis: int) -> list[AnyArray]:
    """``values`` in as many parts along ``axis`` as requests are needed, none where it is empty."""
    length, chunk = values.shape[axis], endpoint.grid_chunks[axis]
    limit = min(64 << 20, endpoint.limits.get("max_request_bytes") or 64 << 20)
    rows = max(1, limit // max(1, values.size * endpoint.dtype.itemsize // max(1, length)))
    if rows > chunk:
        rows -= rows % chunk
    return np.array_split(values, range(rows, length, rows), axis) if length else []


def _cells(endpoint: Endpoint, selection: Selection) -> tuple[Endpoint, tuple[Axis, ...]]:
    endpoint, axes, inner = endpoint.cells(selection)
    if inner:
        raise IndexError("at points, the subarrays of a field can only be written whole")
    return endpoint, axes


def _single_url(endpoint: Endpoint, axes: tuple[Axis, ...]) -> str:
    """URL of a request that cannot be split; raises `IndexError` if its lists of indices are too long."""
    boxes = endpoint.cut(Box.of(axes), sys.maxsize)
    if len(boxes) != 1:
        raise IndexError("more indices than one request can name")
    return endpoint.slice_url(boxes[0])


def _write_boxes(
    endpoint: Endpoint, axes: tuple[Axis, ...], values: AnyArray, is_single: bool, on_bytes: OnBytes
) -> None:
    """Write boxes over several connections. A single value for all cells travels alone, as npy, which keeps every bit
    of a NaN."""
    session, cells = endpoint.session, prod(lengths(axes))
    axes, values = _without_repetition(axes, values)
    cap = endpoint.limits.get("max_request_bytes") or LARGEST_BOX
    limit = min(max(values.size * endpoint.dtype.itemsize // session.connections, SMALLEST_BOX), LARGEST_BOX, cap)

    def put(box: Box) -> None:
        if is_single:  # with the shape, because slices would be cut off of an array that has shrunk
            media_type = wire.OBJECTS if endpoint.dtype.hasobject else wire.NPY
            headers = {"Content-Type": media_type, wire.ARRAY_SHAPE: _json(box.shape)}
            body = _encode(endpoint, values, npy=True)
        else:
            part = box.region_of(values)
            headers, body = _headers(endpoint, part.shape), _encode(endpoint, part)
        try:
            session.read(Request("PUT", endpoint.slice_url(box), headers, body))
        except TooLarge as problem:
            for smaller in endpoint.smaller(box, problem):
                put(smaller)
        else:
            on_bytes(prod(box.shape) * endpoint.item_nbytes)

    on_bytes((cells - prod(lengths(axes))) * endpoint.item_nbytes)  # repeated indices are not sent
    session.for_each(put, endpoint.cut(Box.of(axes), 64 << 20 if is_single else limit))


def _write_points(endpoint: Endpoint, axes: tuple[Axis, ...], values: AnyArray, on_bytes: OnBytes) -> None:
    """Coordinates as npy, and right behind them the values: npy too, or objects in their binary form."""
    cells = coordinates(axes)
    items = values.reshape(len(cells), *endpoint.item_shape)
    kept = _last_of_each(cells)
    step = max(1, (4 << 20) // (8 * cells.shape[1] + endpoint.item_nbytes))
    step = min(step, endpoint.limits.get("max_points") or step)
    url = endpoint.address.url("points", values="1", field=endpoint.field)

    def post(chosen: IntArray) -> None:
        body = encode_npy(cells[chosen]) + bytes(_encode(endpoint, items[chosen], npy=True))
        try:  # the same values at the same points again change nothing: it is safe to repeat
            endpoint.session.read(Request("POST", url, {"Content-Type": wire.NPY}, body, safe=True))
        except TooLarge:
            if len(chosen) < 2:
                raise
            for half in np.array_split(chosen, 2):
                post(half)
        else:
            on_bytes(len(chosen) * endpoint.item_nbytes)

    on_bytes((len(cells) - len(kept)) * endpoint.item_nbytes)
    endpoint.session.for_each(post, [kept[start : start + step] for start in range(0, len(kept), step)])


def _headers(endpoint: Endpoint, shape: tuple[int, ...]) -> dict[str, str]:
    """The headers that tell the shape and the dtype of values."""
    headers = {"Content-Type": endpoint.accept, wire.ARRAY_SHAPE: _json(shape)}
    if len(endpoint.dtype_text) <= wire.LONGEST_DTYPE:
        headers[wire.ARRAY_DTYPE] = endpoint.dtype_text
    return headers


def _json(shape: tuple[int, ...]) -> str:
    return json.dumps(shape, separators=(",", ":"))


def _encode(endpoint: Endpoint, values: AnyArray, *, npy: bool = False) -> bytes | memoryview:
    """Values in the array's dtype and C order, raw or as ``npy``; objects in their binary form."""
    if endpoint.dtype.hasobject:
        return encode_objects(values)
    if endpoint.dtype.names is None or (values.dtype == endpoint.dtype and values.flags.c_contiguous):
        items = np.asarray(values, endpoint.dtype, order="C")
    else:  # numpy copies fields only: between them there would be what memory held before
        items = np.zeros(values.shape, endpoint.dtype)
        items[...] = values
    return encode_npy(items) if npy else bytes_of(items)


def _last_of_each(cells: IntArray) -> IntArray:
    """Row numbers without those that a later row repeats."""
    _, first_from_behind = np.unique(cells[::-1], axis=0, return_index=True)
    return np.sort(len(cells) - 1 - first_from_behind)


def _without_repetition(axes: tuple[Axis, ...], values: AnyArray) -> tuple[tuple[Axis, ...], AnyArray]:
    """Axes whose lists name no index twice, and the values for them: each stays where it comes last, as numpy writes.

    Values without axes stay as they are.
    """
    kept: list[Axis] = []
    for axis in axes:
        if isinstance(axis, np.ndarray):
            last = _last_of_each(axis[:, None])
            if values.ndim and len(last) < len(axis):
                values = np.take(values, last, axis=len(lengths(kept)))
            kept.append(axis[last])
        else:
            kept.append(axis)
    return tuple(kept), values
