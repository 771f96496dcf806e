"""Writes selections: boxes along chunk boundaries over several connections, points in batches; appends.

Writes of boxes and points are idempotent, so they are retried after a lost response; several requests are not a
transaction. Appends are retried under an idempotency key, at an offset that the server assigns.
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
from hyperslab.client.values import broadcast, encode_npy, encode_objects
from hyperslab.errors import TooLarge
from hyperslab.wire.items import bytes_of

SMALLEST_BOX = 4 << 20
LARGEST_BOX = 16 << 20
"""Bytes per request of a large write; set by the benchmark suite ``writes``."""


def write_selection(
    endpoint: Endpoint, selection: Selection, values: AnyArray, *, on_bytes: OnBytes = lambda _: None
) -> None:
    """Write ``values`` (of `values.as_values`) to a selection, with numpy's broadcasting.

    Of repeated indices the last value wins. Raises `ValueError` if the shapes do not fit, and the server's errors.
    """
    expanded = broadcast(values, selection.shape)
    if selection.pointwise and not endpoint.has_whole_items(selection.axes):
        raise IndexError("at points, the subarrays of a field can only be written whole")
    if 0 in selection.shape:
        return
    if selection.pointwise:
        _write_points(endpoint, selection.axes[: endpoint.rank], selection.to_raw(expanded), on_bytes)
    else:
        is_single = values.ndim == 0 and endpoint.item_shape == ()
        raw = values if is_single else selection.to_raw(expanded)
        _write_boxes(endpoint, selection.axes, raw, is_single, on_bytes)


def write_tagged(endpoint: Endpoint, selection: Selection, values: AnyArray, tag: str) -> str:
    """`write_selection` in one request, on the condition that the selection has the ``tag``; returns the new tag.

    Raises `PreconditionFailed` for another tag, `TooLarge` if one request cannot carry the values, and `Unreachable`
    after a lost response: a retry would conflict with the first request.
    """
    axes, distinct = _without_repetition(selection.axes, selection.to_raw(broadcast(values, selection.shape)))
    headers, body = {**_headers(endpoint, distinct.shape), "If-Match": tag}, _encode(endpoint, distinct)
    request = Request("PUT", _single_url(endpoint, axes), headers, body, once=True)
    return endpoint.session.read(request).headers["ETag"]


def read_tag(endpoint: Endpoint, selection: Selection) -> str:
    """The current tag of a selection, for `write_tagged`; reads no values."""
    axes, _ = _without_repetition(selection.axes, np.empty(()))
    request = Request("HEAD", _single_url(endpoint, axes), {"Accept": endpoint.accept})
    return endpoint.session.read(request).headers["ETag"]


def append_values(endpoint: Endpoint, values: AnyArray, axis: int) -> tuple[int, list[int]]:
    """Append ``values`` along ``axis``; returns their offset and the new shape.

    Raises `ValueError` if other lengths differ, numpy's `AxisError` for an invalid axis, and the server's errors.
    """
    if endpoint.field is not None:
        raise ValueError(f"whole items are appended, and the field {endpoint.field!r} is opened")
    axis = normalize_axis_index(axis, len(endpoint.shape))
    others = endpoint.shape[:axis] + endpoint.shape[axis + 1 :]
    if values.ndim != len(endpoint.shape) or values.shape[:axis] + values.shape[axis + 1 :] != others:
        raise ValueError(f"cannot append shape {values.shape} along axis {axis} of shape {endpoint.shape}")
    begin, end = None, None
    shape = list(endpoint.shape)
    queue = deque(_append_parts(endpoint, values, axis))
    while queue:
        part = queue.popleft()
        url = endpoint.address.url("append", axis=str(axis), at=None if end is None else str(end))
        headers = {**_headers(endpoint, part.shape), wire.IDEMPOTENCY_KEY: str(uuid.uuid4())}
        try:
            answer, _ = endpoint.session.read_json(Request("POST", url, headers, _encode(endpoint, part)))
        except TooLarge:  # the size of objects is not known before encoding
            if part.shape[axis] < 2:
                raise
            queue.extendleft(reversed(np.array_split(part, 2, axis)))
            continue
        shape, offset = answer["shape"], answer["offset"]
        begin, end = offset if begin is None else begin, offset + part.shape[axis]
    return (endpoint.shape[axis] if begin is None else begin), shape


def _append_parts(endpoint: Endpoint, values: AnyArray, axis: int) -> list[AnyArray]:
    """``values`` divided along ``axis`` into parts for one request each."""
    length, chunk = values.shape[axis], endpoint.chunks[axis]
    limit = min(64 << 20, endpoint.limits.get("max_request_bytes") or 64 << 20)
    rows = max(1, limit // max(1, values.size * endpoint.dtype.itemsize // max(1, length)))
    if rows > chunk:
        rows -= rows % chunk
    return np.array_split(values, range(rows, length, rows), axis) if length else []


def _single_url(endpoint: Endpoint, axes: tuple[Axis, ...]) -> str:
    """URL of a request for all of a selection; raises `IndexError` if its lists of indices are too long."""
    values = np.broadcast_to(np.empty((), endpoint.dtype), lengths(axes))
    if len(endpoint.box(axes, values).cut(sys.maxsize)) != 1:
        raise IndexError("more indices than one request can name")
    return endpoint.slice_url(axes)


def _write_boxes(
    endpoint: Endpoint, axes: tuple[Axis, ...], values: AnyArray, is_single: bool, on_bytes: OnBytes
) -> None:
    """Write boxes over several connections. A single value for all cells is sent once, as npy, which preserves the
    bits of a NaN."""
    session, cells = endpoint.session, prod(lengths(axes))
    axes, values = _without_repetition(axes, values)
    cap = endpoint.limits.get("max_request_bytes") or LARGEST_BOX
    limit = min(max(values.size * endpoint.dtype.itemsize // session.connections, SMALLEST_BOX), LARGEST_BOX, cap)

    def put(box: Box) -> None:
        left = [box]  # no recursion: a function that refers to itself would hold the values until it is collected
        while left:
            box = left.pop()
            headers = _headers(endpoint, box.values.shape)
            if is_single:  # with the shape, so that slices of an array that has shrunk are refused
                headers["Content-Type"] = wire.OBJECTS if endpoint.dtype.hasobject else wire.NPY
            body = _encode(endpoint, values if is_single else box.values, npy=is_single)
            try:
                session.read(Request("PUT", endpoint.slice_url(box.axes), headers, body))
            except TooLarge as problem:
                left += [*box.smaller(problem)][::-1]
            else:
                on_bytes(box.nbytes)

    box = endpoint.box(axes, np.broadcast_to(values, lengths(axes)))
    on_bytes(cells * endpoint.dtype.itemsize - box.nbytes)  # repeated indices are not sent
    session.for_each(put, box.cut(64 << 20 if is_single else limit))


def _write_points(endpoint: Endpoint, axes: tuple[Axis, ...], values: AnyArray, on_bytes: OnBytes) -> None:
    """Write points in requests of coordinates as npy, followed by values as npy or objects in their binary form."""
    cells = coordinates(axes)
    items = values.reshape(len(cells), *endpoint.item_shape)
    distinct = _last_occurrences(cells)
    step = max(1, (4 << 20) // (8 * cells.shape[1] + endpoint.item_nbytes))
    step = min(step, endpoint.limits.get("max_points") or step)
    url = endpoint.address.url("points", values="1", field=endpoint.field)

    def post(chosen: IntArray) -> None:
        left = [chosen]
        while left:
            chosen = left.pop()
            body = encode_npy(cells[chosen]) + bytes(_encode(endpoint, items[chosen], npy=True))
            try:
                endpoint.session.read(Request("POST", url, {"Content-Type": wire.NPY}, body, safe=True))
            except TooLarge:
                if len(chosen) < 2:
                    raise
                left += np.array_split(chosen, 2)[::-1]
            else:
                on_bytes(len(chosen) * endpoint.item_nbytes)

    on_bytes((len(cells) - len(distinct)) * endpoint.item_nbytes)
    endpoint.session.for_each(post, [distinct[start : start + step] for start in range(0, len(distinct), step)])


def _headers(endpoint: Endpoint, shape: tuple[int, ...]) -> dict[str, str]:
    """Headers for values of a shape."""
    headers = {"Content-Type": endpoint.accept, wire.ARRAY_SHAPE: json.dumps(shape, separators=(",", ":"))}
    if len(endpoint.dtype_text) <= wire.MAX_DTYPE_BYTES:
        headers[wire.ARRAY_DTYPE] = endpoint.dtype_text
    return headers


def _encode(endpoint: Endpoint, values: AnyArray, *, npy: bool = False) -> bytes | memoryview:
    """Values in the array's dtype and C order, raw or as npy; objects in their binary form."""
    if endpoint.dtype.hasobject:
        return encode_objects(values)
    if endpoint.dtype.names is None or (values.dtype == endpoint.dtype and values.flags.c_contiguous):
        items = np.asarray(values, endpoint.dtype, order="C")
    else:  # numpy copies only fields: zeros in the padding instead of uninitialised memory
        items = np.zeros(values.shape, endpoint.dtype)
        items[...] = values
    return encode_npy(items) if npy else bytes_of(items)


def _last_occurrences(cells: IntArray) -> IntArray:
    """Numbers of the rows that no later row repeats, in order."""
    _, from_end = np.unique(cells[::-1], axis=0, return_index=True)
    return np.sort(len(cells) - 1 - from_end)


def _without_repetition(axes: tuple[Axis, ...], values: AnyArray) -> tuple[tuple[Axis, ...], AnyArray]:
    """Axes without repeated indices, and their values, the last of each index as in numpy; 0-d values are unchanged."""
    distinct: list[Axis] = []
    for axis in axes:
        if isinstance(axis, np.ndarray):
            last = _last_occurrences(axis[:, None])
            if values.ndim and len(last) < len(axis):
                values = np.take(values, last, axis=len(lengths(distinct)))
            distinct.append(axis[last])
        else:
            distinct.append(axis)
    return tuple(distinct), values
