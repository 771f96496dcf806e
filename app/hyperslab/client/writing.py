"""Writing a selection: boxes cut on chunk edges over several connections, points in one request for many; appending.

A box that is written twice is as good as one written once, so that a lost answer is no reason to stop. Several boxes
are not one transaction. Of an append, the server picks the offset, and a repeated request stores nothing twice.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections import deque
from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from hyperslab import wire
from hyperslab.client.body import OnBytes
from hyperslab.client.document import ArrayDocument
from hyperslab.client.indexing import AnyArray, Axis, Box, IntArray, Selection, coordinates, lengths
from hyperslab.client.reading import Endpoint
from hyperslab.client.session import Request
from hyperslab.client.transport import Cancel, Response
from hyperslab.client.values import broadcast, bytes_of, encode_npy, encode_objects
from hyperslab.errors import TooLarge

SMALLEST_BOX = 4 << 20
LARGEST_BOX = 16 << 20
"""Bytes of one request of a big write."""


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
    elif values.ndim == 0 and endpoint.document.item_shape == ():
        _write_scalar(endpoint, axes, values, on_bytes)
    else:
        _write_boxes(endpoint, axes, selection.to_raw(spread), on_bytes)


def write_tagged(endpoint: Endpoint, selection: Selection, values: AnyArray, tag: str) -> str:
    """As `write_selection`, by one request that is done only where the selection still has the ``tag``.

    Returns the tag that it has then. Raises `PreconditionFailed` where it has another, `TooLarge` where one request
    cannot carry the values, and what the transport raised where the answer was lost: the request is not sent twice,
    because the second would be refused on account of the first.
    """
    endpoint, axes = _cells(endpoint, selection)
    kept = _last_values(axes, selection.to_raw(broadcast(values, selection.shape)))
    headers = {**_headers(endpoint, kept.shape), "If-Match": tag}
    body = _encode(endpoint.document, kept)
    return _tag(endpoint.session.open(Request("PUT", _single_url(endpoint, axes), headers, body, once=True)))


def read_tag(endpoint: Endpoint, selection: Selection) -> str:
    """The tag of what a selection holds now, for `write_tagged`; no values are read."""
    endpoint, axes = _cells(endpoint, selection)
    return _tag(endpoint.session.open(Request("HEAD", _single_url(endpoint, axes), {"Accept": endpoint.accept})))


def append_values(endpoint: Endpoint, values: AnyArray, axis: int) -> tuple[int, list[int]]:
    """Append ``values`` along ``axis``: where they begin, and the array's shape then.

    Raises `ValueError` where the other axes differ, numpy's `AxisError` where there is no such axis, and what the
    server raised.
    """
    document = endpoint.document
    if document.field is not None:
        raise ValueError(f"whole items are appended, and the field {document.field!r} is opened")
    axis = normalize_axis_index(axis, len(document.shape))
    others = document.shape[:axis] + document.shape[axis + 1 :]
    if values.ndim != len(document.shape) or values.shape[:axis] + values.shape[axis + 1 :] != others:
        raise ValueError(f"cannot append shape {values.shape} along axis {axis} of shape {document.shape}")
    begin, end = None, None
    shape = list(document.grid_shape)
    waiting = deque(_append_parts(document, values, axis))
    while waiting:
        part = waiting.popleft()
        url = endpoint.address.url("append", axis=str(axis), at=None if end is None else str(end))
        headers = {**_headers(endpoint, part.shape), wire.IDEMPOTENCY_KEY: str(uuid.uuid4())}
        try:
            answer, _ = endpoint.session.read_json(Request("POST", url, headers, _encode(document, part)))
        except TooLarge:  # how long objects are shows when they are packed
            if part.shape[axis] < 2:
                raise
            waiting.extendleft(reversed(np.array_split(part, 2, axis)))
            continue
        shape, offset = answer["shape"], answer["offset"]
        begin, end = offset if begin is None else begin, offset + part.shape[axis]
    return (document.shape[axis] if begin is None else begin), shape


def _append_parts(document: ArrayDocument, values: AnyArray, axis: int) -> list[AnyArray]:
    """``values`` in as many parts along ``axis`` as requests are needed, none where it is empty."""
    length, chunk = values.shape[axis], document.grid_chunks[axis]
    limit = min(64 << 20, document.limits.get("max_request_bytes") or 64 << 20)
    rows = max(1, limit // max(1, values.size * document.dtype.itemsize // max(1, length)))
    if rows > chunk:
        rows -= rows % chunk
    return np.array_split(values, range(rows, length, rows), axis) if length else []


def _cells(endpoint: Endpoint, selection: Selection) -> tuple[Endpoint, tuple[Axis, ...]]:
    endpoint, axes, inner = endpoint.cells(selection)
    if inner:
        raise IndexError("at points, the subarrays of a field can only be written whole")
    return endpoint, axes


def _tag(response: Response) -> str:
    response.close()
    return response.headers["ETag"]


def _single_url(endpoint: Endpoint, axes: tuple[Axis, ...]) -> str:
    """URL of a request that cannot be split; raises `IndexError` if its lists of indices are too long."""
    boxes = endpoint.cut(Box.of(_distinct(axes)), sys.maxsize)
    if len(boxes) != 1:
        raise IndexError("more indices than one request can name")
    return endpoint.slice_url(boxes[0])


def _write_scalar(endpoint: Endpoint, axes: tuple[Axis, ...], value: AnyArray, on_bytes: OnBytes) -> None:
    """One value for every cell: it alone travels, as npy, which keeps every bit of a NaN."""
    document, distinct = endpoint.document, _distinct(axes)
    body = _encode(document, value, npy=True)
    media_type = wire.OBJECTS if document.dtype.hasobject else wire.NPY

    def put(box: Box, cancel: Cancel) -> None:
        cancel.check()
        # The shape, because slices would be cut off of an array that has shrunk.
        headers = {"Content-Type": media_type, wire.ARRAY_SHAPE: _json(box.shape)}
        endpoint.session.read(Request("PUT", endpoint.slice_url(box), headers, body), cancel)
        on_bytes(prod(box.shape) * document.item_nbytes)

    on_bytes((prod(lengths(axes)) - prod(lengths(distinct))) * document.item_nbytes)
    endpoint.session.for_each(put, endpoint.cut(Box.of(distinct), 64 << 20))


def _write_boxes(endpoint: Endpoint, axes: tuple[Axis, ...], values: AnyArray, on_bytes: OnBytes) -> None:
    document, session = endpoint.document, endpoint.session
    kept = _last_values(axes, values)
    cap = document.limits.get("max_request_bytes") or LARGEST_BOX
    limit = min(max(kept.size * document.dtype.itemsize // session.connections, SMALLEST_BOX), LARGEST_BOX, cap)

    def put(box: Box, cancel: Cancel) -> None:
        cancel.check()
        part = box.region_of(kept)
        headers, body = _headers(endpoint, part.shape), _encode(document, part)
        try:
            session.read(Request("PUT", endpoint.slice_url(box), headers, body), cancel)
        except TooLarge as problem:
            for smaller in endpoint.smaller(box, problem):
                put(smaller, cancel)
        else:
            on_bytes(part.size * document.dtype.itemsize)

    on_bytes((values.size - kept.size) * document.dtype.itemsize)  # repeated indices are not sent
    session.for_each(put, endpoint.cut(Box.of(_distinct(axes)), limit))


def _write_points(endpoint: Endpoint, axes: tuple[Axis, ...], values: AnyArray, on_bytes: OnBytes) -> None:
    """Coordinates as npy, and right behind them the values: npy too, or objects in their binary form."""
    document = endpoint.document
    cells = coordinates(axes)
    items = values.reshape(len(cells), *document.item_shape)
    kept = _last_of_each(cells)
    step = max(1, (4 << 20) // (8 * cells.shape[1] + document.item_nbytes))
    step = min(step, document.limits.get("max_points") or step)
    url = endpoint.address.url("points", values="1", field=document.field)

    def post(chosen: IntArray, cancel: Cancel) -> None:
        cancel.check()
        body = encode_npy(cells[chosen]) + bytes(_encode(document, items[chosen], npy=True))
        try:  # the same values at the same points again change nothing: it is safe to repeat
            endpoint.session.read(Request("POST", url, {"Content-Type": wire.NPY}, body, safe=True), cancel)
        except TooLarge:
            if len(chosen) < 2:
                raise
            for half in np.array_split(chosen, 2):
                post(half, cancel)
        else:
            on_bytes(len(chosen) * document.item_nbytes)

    on_bytes((len(cells) - len(kept)) * document.item_nbytes)
    endpoint.session.for_each(post, [kept[start : start + step] for start in range(0, len(kept), step)])


def _headers(endpoint: Endpoint, shape: tuple[int, ...]) -> dict[str, str]:
    """The headers that tell the shape and the dtype of values."""
    headers = {"Content-Type": endpoint.accept, wire.ARRAY_SHAPE: _json(shape)}
    if len(endpoint.document.dtype_text) <= wire.LONGEST_DTYPE:
        headers[wire.ARRAY_DTYPE] = endpoint.document.dtype_text
    return headers


def _json(shape: tuple[int, ...]) -> str:
    return json.dumps(shape, separators=(",", ":"))


def _encode(document: ArrayDocument, values: AnyArray, *, npy: bool = False) -> bytes | memoryview:
    """Values in the array's dtype and C order, raw or as ``npy``; objects in their binary form."""
    if document.dtype.hasobject:
        return encode_objects(values)
    if document.dtype.names is None or (values.dtype == document.dtype and values.flags.c_contiguous):
        items = np.asarray(values, document.dtype, order="C")
    else:  # numpy copies fields only: between them there would be what memory held before
        items = np.zeros(values.shape, document.dtype)
        items[...] = values
    return encode_npy(items) if npy else bytes_of(items)


def _last_of_each(cells: IntArray) -> IntArray:
    """Row numbers without those that a later row repeats."""
    _, first_from_behind = np.unique(cells[::-1], axis=0, return_index=True)
    return np.sort(len(cells) - 1 - first_from_behind)


def _distinct(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Axes whose lists name no index twice: each stays where it comes last, as numpy writes."""
    return tuple(axis[_last_of_each(axis[:, None])] if isinstance(axis, np.ndarray) else axis for axis in axes)


def _last_values(axes: Sequence[Axis], values: AnyArray) -> AnyArray:
    """The values for `_distinct` of the axes."""
    for place, axis in enumerate(axis for axis in axes if not isinstance(axis, int)):
        if isinstance(axis, np.ndarray) and len(last := _last_of_each(axis[:, None])) < len(axis):
            values = np.take(values, last, axis=place)
    return values
