"""Reading a selection: one request where it is small, boxes over several connections where it is big."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hyperslab.client.body import OnBytes
from hyperslab.client.boxes import Cutter, whole_box
from hyperslab.client.fetch import SMALL, Fetch, fill_at_once
from hyperslab.client.indexing import AnyArray, Axis, Selection
from hyperslab.client.points import fill_points, points_shape
from hyperslab.client.source import Source
from hyperslab.client.subarray import take_part, takes_whole

SMALLEST_BOX = 8 << 20
LARGEST_BOX = 32 << 20
"""Bytes of one request of a big read or write."""


def read_selection(
    source: Source, selection: Selection, *, out: AnyArray | None = None, on_bytes: OnBytes = lambda _: None
) -> AnyArray:
    """The selected values, in ``out`` (of the selection's shape and the array's dtype) or in a new array.

    Raises what the server raised, what the transport raised once attempts ran out, and `ArrayChanged`.
    """
    layout = selection.layout
    if 0 in selection.shape:
        return np.empty(selection.shape, source.document.dtype) if out is None else out
    raw = np.empty(layout.raw, source.document.dtype) if out is None else layout.to_raw(out)
    _fill(source, selection, raw, on_bytes)
    if out is None:
        return layout.to_result(raw)
    if not np.may_share_memory(raw, out):  # numpy had to copy to take its axes apart
        out[...] = layout.to_result(raw)
    return out


def _fill(source: Source, selection: Selection, raw: AnyArray, on_bytes: OnBytes) -> None:
    """Read a selection into ``raw``, which has its raw shape."""
    rank = len(source.document.grid_shape)
    axes, item_axes = selection.axes[:rank], selection.axes[rank:]
    if not item_axes or takes_whole(item_axes, source.document.item_shape):
        _fill_items(source, axes, raw, on_bytes, pointwise=selection.pointwise)
        return
    if not selection.pointwise:
        _fill_items(source.on_items(), selection.axes, raw, on_bytes, pointwise=False)
        return
    per_point = any(isinstance(axis, np.ndarray) for axis in axes)
    shape = points_shape(axes) if per_point else whole_box(axes).shape
    items = np.empty(shape + source.document.item_shape, source.document.dtype)
    _fill_items(source, axes, items, on_bytes, pointwise=per_point)
    raw[...] = take_part(items, item_axes, per_point=per_point)


def _fill_items(source: Source, axes: Sequence[Axis], raw: AnyArray, on_bytes: OnBytes, *, pointwise: bool) -> None:
    if pointwise:
        fill_points(source, axes, raw, on_bytes)
        return
    document, session = source.document, source.session
    cap = document.answer_limit
    if raw.nbytes <= min(SMALL, cap or SMALL) and fill_at_once(source, axes, raw):
        on_bytes(raw.nbytes)
        return
    limit = min(max(raw.nbytes // session.connections, SMALLEST_BOX), LARGEST_BOX, cap or LARGEST_BOX)
    cutter = Cutter(document.grid_chunks, document.item_nbytes, limit, inside_chunks=cap is not None)
    boxes = cutter.cut(whole_box(axes))
    session.for_each(lambda box, cancel: Fetch(source, cancel, on_bytes).box(box, box.region_of(raw)), boxes)
