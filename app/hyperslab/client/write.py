"""Writing a selection: boxes cut on chunk edges over several connections, points in one request for many.

A box that is written twice is as good as one written once, so that a lost answer is no reason to stop. Several boxes
are not one transaction.
"""

from __future__ import annotations

import json
import sys
from math import prod
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client import objects
from hyperslab.client.body import OnBytes
from hyperslab.client.boxes import Box, Cutter, relative, whole_box
from hyperslab.client.cancel import Cancel
from hyperslab.client.casting import broadcast
from hyperslab.client.indexing import AnyArray, Axis, Selection
from hyperslab.client.npy import encode_npy
from hyperslab.client.points import coordinates
from hyperslab.client.session import Request
from hyperslab.client.source import Source
from hyperslab.client.subarray import takes_whole
from hyperslab.client.transport import Response
from hyperslab.errors import TooLarge

SMALLEST_BOX = 4 << 20
LARGEST_BOX = 16 << 20
_SCALAR_BOX = 64 << 20  # of the array: its bytes do not travel
_POINTS_BYTES = 4 << 20


def write_selection(
    source: Source, selection: Selection, values: AnyArray, *, on_bytes: OnBytes = lambda _: None
) -> None:
    """Write ``values`` (see `casting.as_values`) where ``selection`` says, broadcast as numpy does.

    Where an index comes twice, the last value wins. Raises `ValueError` where the shapes do not fit, and what the
    server raised.
    """
    source, axes = _cells(source, selection)
    spread = broadcast(values, selection.shape)
    if 0 in selection.shape:
        return
    if selection.pointwise:
        _write_points(source, axes, selection.layout.to_raw(spread), on_bytes)
    elif values.ndim == 0 and source.document.item_shape == ():
        _write_scalar(source, axes, values, on_bytes)
    else:
        distinct, kept = _without_repeats(axes, selection.layout.to_raw(spread))
        on_bytes((spread.size - kept.size) * source.document.dtype.itemsize)  # what is not sent is done
        _write_boxes(source, distinct, kept, on_bytes)


def write_tagged(source: Source, selection: Selection, values: AnyArray, tag: str) -> str:
    """As `write_selection`, by one request that is done only where the selection still has the ``tag``.

    Returns the tag that it has then. Raises `PreconditionFailed` where it has another, `TooLarge` where one request
    cannot carry the values, and what the transport raised where the answer was lost: the request is not sent twice,
    because the second would be refused on account of the first.
    """
    source, axes = _cells(source, selection)
    spread = broadcast(values, selection.shape)
    distinct, kept = _without_repeats(axes, selection.layout.to_raw(spread))
    body, headers = encode_values(source, kept)
    url = _single_url(source, distinct)
    return _tag(source.session.open(Request("PUT", url, {**headers, "If-Match": tag}, body, once=True)))


def read_tag(source: Source, selection: Selection) -> str:
    """The tag of what a selection holds now, for `write_tagged`; no values are read."""
    source, axes = _cells(source, selection)
    url = _single_url(source, _distinct(axes)[0])
    return _tag(source.session.open(Request("HEAD", url, {"Accept": source.accept})))


def _tag(response: Response) -> str:
    response.close()
    return response.headers["ETag"]


def _single_url(source: Source, axes: tuple[Axis, ...]) -> str:
    """For what cannot be split; raises `IndexError` where no URL can hold that many indices."""
    document = source.document
    boxes = Cutter(document.grid_chunks, document.item_nbytes, sys.maxsize).cut(whole_box(axes))
    if len(boxes) != 1:
        raise IndexError("more indices than one request can name")
    return source.slice_url(boxes[0].text)


def _cells(source: Source, selection: Selection) -> tuple[Source, tuple[Axis, ...]]:
    """The axes of the grid and, where a part of a field's subarray is taken, those of the subarray; raises `IndexError`
    where that is so at points."""
    rank = len(source.document.grid_shape)
    if takes_whole(selection.axes[rank:], source.document.item_shape):
        return source, selection.axes[:rank]
    if selection.pointwise:
        raise IndexError("at points, the subarrays of a field can only be written whole")
    return source.on_items(), selection.axes


def _write_scalar(source: Source, axes: tuple[Axis, ...], value: AnyArray, on_bytes: OnBytes) -> None:
    """One value for every cell: it alone travels."""
    body, media_type = _encode_scalar(value, source)
    document = source.document
    distinct = whole_box(_distinct(axes)[0])
    boxes = Cutter(document.grid_chunks, document.item_nbytes, _SCALAR_BOX).cut(distinct)

    def put(box: Box, cancel: Cancel) -> None:
        cancel.check()
        shape = json.dumps(box.shape, separators=(",", ":"))  # of an array that has shrunk, slices would be cut
        headers = {"Content-Type": media_type, wire.ARRAY_SHAPE: shape}
        source.session.read(Request("PUT", source.slice_url(box.text), headers, body), cancel)
        on_bytes(prod(box.shape) * document.item_nbytes)

    on_bytes((prod(whole_box(axes).shape) - prod(distinct.shape)) * document.item_nbytes)
    source.session.for_each(put, boxes)


def _write_boxes(source: Source, axes: tuple[Axis, ...], values: AnyArray, on_bytes: OnBytes) -> None:
    document, session = source.document, source.session
    nbytes = values.size * document.dtype.itemsize
    limit = min(
        max(nbytes // session.connections, SMALLEST_BOX),
        LARGEST_BOX,
        document.limits.get("max_request_bytes") or LARGEST_BOX,
    )
    boxes = Cutter(document.grid_chunks, document.item_nbytes, limit).cut(whole_box(axes))
    session.for_each(lambda box, cancel: _put_box(source, box, box.region_of(values), cancel, on_bytes), boxes)


def _put_box(source: Source, box: Box, values: AnyArray, cancel: Cancel, on_bytes: OnBytes) -> None:
    cancel.check()
    body, headers = encode_values(source, values)
    try:
        source.session.read(Request("PUT", source.slice_url(box.text), headers, body), cancel)
    except TooLarge as problem:
        for part in source.smaller(box, problem):
            _put_box(source, part, values[relative(part, box)], cancel, on_bytes)
    else:
        on_bytes(values.size * source.document.dtype.itemsize)


def encode_values(source: Source, values: AnyArray) -> tuple[bytes | memoryview, dict[str, str]]:
    """The body that carries ``values`` in the array's dtype, C order, and the headers that tell its shape and dtype."""
    document = source.document
    headers = {
        "Content-Type": source.accept,
        wire.ARRAY_SHAPE: json.dumps(values.shape, separators=(",", ":")),
    }
    if len(document.dtype_text) <= wire.LONGEST_DTYPE:
        headers[wire.ARRAY_DTYPE] = document.dtype_text
    if document.dtype.hasobject:
        return objects.encode(values), headers
    items = _in_order(values, document.dtype)
    return items.reshape(-1).view(np.uint8).data, headers


def _encode_scalar(value: AnyArray, source: Source) -> tuple[bytes, str]:
    """npy without axes, which keeps every bit: of a NaN, JSON has one."""
    dtype = source.document.dtype
    if dtype.hasobject:
        return bytes(encode_values(source, value)[0]), wire.OBJECTS
    return encode_npy(_in_order(value, dtype)), wire.NPY


def _write_points(source: Source, axes: tuple[Axis, ...], values: AnyArray, on_bytes: OnBytes) -> None:
    """Coordinates as npy, and right behind them the values: npy too, or objects in their binary form."""
    document = source.document
    cells = coordinates(axes)
    items = values.reshape(len(cells), *document.item_shape)
    kept = _last_of_each(cells)
    on_bytes((len(cells) - len(kept)) * document.item_nbytes)
    step = max(1, _POINTS_BYTES // (8 * cells.shape[1] + document.item_nbytes))
    step = min(step, document.limits.get("max_points") or step)

    def post(chosen: AnyArray, cancel: Cancel) -> None:
        cancel.check()
        body = encode_npy(cells[chosen]) + _encode_items(source, items[chosen])
        url = source.address.url("points", values="1", field=document.field)
        try:  # the same values at the same points again change nothing: it is safe to repeat
            source.session.read(Request("POST", url, {"Content-Type": wire.NPY}, body, safe=True), cancel)
        except TooLarge:
            if len(chosen) < 2:
                raise
            for half in np.array_split(chosen, 2):
                post(half, cancel)
        else:
            on_bytes(len(chosen) * document.item_nbytes)

    source.session.for_each(post, [kept[start : start + step] for start in range(0, len(kept), step)])


def _encode_items(source: Source, items: AnyArray) -> bytes:
    document = source.document
    if document.dtype.hasobject:
        return objects.encode(items)
    return encode_npy(_in_order(items, document.dtype))


def _in_order(values: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Values of ``dtype`` one behind the other; between the fields of copied records there are zeros."""
    if dtype.names is None or (values.dtype == dtype and values.flags.c_contiguous):
        return np.asarray(values, dtype, order="C")
    records = np.zeros(values.shape, dtype)  # numpy copies fields only: else there would be what memory held before
    records[...] = values
    return records


def _last_of_each(cells: AnyArray) -> AnyArray:
    """Row numbers without those that a later row repeats."""
    _, first_from_behind = np.unique(cells[::-1], axis=0, return_index=True)
    return np.sort(len(cells) - 1 - first_from_behind)


def _distinct(axes: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], list[AnyArray | slice]]:
    """Axes whose lists name no index twice, and what of each axis is kept: the last that numpy would write."""
    taken: list[Axis] = []
    kept: list[AnyArray | slice] = []
    for axis in axes:
        last = _last_of_each(axis[:, None]) if isinstance(axis, np.ndarray) else np.empty(0, np.int64)
        repeats = isinstance(axis, np.ndarray) and len(last) < len(axis)
        taken.append(axis[last] if isinstance(axis, np.ndarray) and repeats else axis)
        if not isinstance(axis, int):
            kept.append(last if repeats else slice(None))
    return tuple(taken), kept


def _without_repeats(axes: tuple[Axis, ...], values: AnyArray) -> tuple[tuple[Axis, ...], AnyArray]:
    taken, kept = _distinct(axes)
    for place, chosen in enumerate(kept):
        if not isinstance(chosen, slice):
            values = np.take(values, chosen, axis=place)
    return taken, values
