"""Cells of a level: how a frame and a box become a selection of an array, and the answer planes of plain numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from hyperslab.arrays.plan import ReadPlan
from hyperslab.engine.indexing import Selection, normalise
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.picture import Level, Picture
from hyperslab.tiles.pyramid import Edges, level_index
from hyperslab.tiles.resample import Mask, NDArray, is_identity
from hyperslab.wire import SelectionItem

STRIP_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """What one image adds to a region: the cells between the first and the last edge, and their place in the region.

    ``rows[i]`` to ``rows[i + 1]`` are the cells under pixel ``i``, along ``row_axis``; ``columns`` likewise.
    """

    level: Level
    row_axis: int
    read: ReadPlan
    rows: Edges
    columns: Edges
    place: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return len(self.rows) - 1, len(self.columns) - 1


def level_shape(picture: Picture, level: Level) -> tuple[int, ...]:
    """Cells along each axis of the picture, those of a field's subarray included."""
    return level.array.metadata.shape + (picture.field.shape if picture.field is not None else ())


def selection(frame: Frame, level: Level, rows: Edges, columns: Edges) -> Selection:
    """What to read of the array; a field's subarray is always read whole."""
    shape = level.array.metadata.shape
    return normalise(_items(frame, level, rows, columns)[: len(shape)], shape)


def arranged(frame: Frame, block: Block, values: NDArray, rows: Edges) -> NDArray:
    """The answer to `selection` as ``(channels, height, width)``; a view where that can be."""
    items = _items(frame, block.level, rows, block.columns)
    rank = len(block.level.array.metadata.shape)
    kept = [axis for axis, item in enumerate(items[:rank]) if not isinstance(item, int)]
    for axis in range(len(items) - 1, rank - 1, -1):
        values = values.take(_indices(items[axis]), axis=axis - rank + len(kept))
    kept += [axis for axis in range(rank, len(items)) if not isinstance(items[axis], int)]
    planes = values.transpose([kept.index(axis) for axis in _kept_order(frame)])
    return planes if len(frame.channels) > 1 and frame.channel_axis is not None else _repeated(planes, frame)


def plain_numbers(values: NDArray, nodata: float | None) -> tuple[NDArray, Mask | None]:
    """Numbers that numpy can do sums with, and the cells without a value: NaN, NaT and ``nodata``.

    Dates become their counts; the small floats and integers of machine learning float32, which holds them exactly.
    """
    hidden: Mask | None = None
    if values.dtype.kind in "mM":
        hidden = np.isnat(values)
        values = values.view(np.dtype(np.int64).newbyteorder(values.dtype.byteorder))
    elif values.dtype.kind == "V":
        values = values.astype(np.float32)
    if values.dtype.kind in "fc":
        hidden = np.isnan(values)
    if nodata is not None:
        equal = values == nodata
        hidden = equal if hidden is None else hidden | equal
    return values, hidden if hidden is not None and hidden.any() else None


def strips(block: Block, growth: int = 1) -> Iterator[Edges]:
    """The rows of a block in parts that fit into memory, where their values become ``growth`` times as large."""
    rows, nbytes = block.rows, block.read.nbytes * growth
    if nbytes <= STRIP_BYTES or is_identity(rows) or len(rows) <= 2:
        yield rows
        return
    cells = max(1, int(rows[-1] - rows[0]))
    fitting = strip_rows(cells, nbytes, _chunk_rows(block))
    cuts = np.searchsorted(rows, np.arange(rows[0] - rows[0] % fitting + fitting, rows[-1], fitting))
    bounds = np.unique(np.concatenate(([0], cuts, [len(rows) - 1])))
    for first, last in pairwise(bounds.tolist()):
        yield rows[first : last + 1]


def strip_rows(cells: int, nbytes: int, chunk: int) -> int:
    """How many rows of ``cells``, which take ``nbytes``, fit into a strip.

    Strips end where chunks (of ``chunk`` rows) do, if one fits: else the chunks between two are decoded twice.
    """
    rows = max(1, cells * STRIP_BYTES // max(nbytes, 1))
    return rows // chunk * chunk if rows >= chunk else rows


def stacked(parts: list[tuple[NDArray, Mask | None]]) -> tuple[NDArray, Mask | None]:
    """Strips put together again."""
    if len(parts) == 1:
        return parts[0]
    values = np.concatenate([values for values, _ in parts], axis=-2)
    if all(hidden is None for _, hidden in parts):
        return values, None
    masks = [np.zeros(v.shape, bool) if hidden is None else hidden for v, hidden in parts]
    return values, np.concatenate(masks, axis=-2)


def _items(frame: Frame, level: Level, rows: Edges, columns: Edges) -> list[SelectionItem]:
    """What to take along each axis of the picture."""
    items: list[SelectionItem] = []
    for axis, size in enumerate(level_shape(frame.picture, level)):
        if axis == frame.plane[0]:
            items.append(_extent(rows, size))
        elif axis == frame.plane[1]:
            items.append(_extent(columns, size))
        elif axis == frame.channel_axis:
            items.append(_channel_item(frame.channels))
        else:
            items.append(level_index(frame.indices[axis] or 0, level.factors[axis], size))
    return items


def _channel_item(channels: tuple[int, ...]) -> SelectionItem:
    first, last = channels[0], channels[-1]
    if len(channels) == 1:
        return first
    return slice(first, last + 1) if channels == tuple(range(first, last + 1)) else list(channels)


def _extent(edges: Edges, size: int) -> slice:
    """The cells between the first and the last edge; at least one."""
    first = min(int(edges[0]), size - 1)
    return slice(first, max(int(edges[-1]), first + 1))


def _indices(item: SelectionItem) -> Any:
    return np.arange(item.start, item.stop) if isinstance(item, slice) else item


def _kept_order(frame: Frame) -> tuple[int, ...]:
    if len(frame.channels) > 1 and frame.channel_axis is not None:
        return (frame.channel_axis, *frame.plane)
    return frame.plane


def _repeated(plane: NDArray, frame: Frame) -> NDArray:
    return np.broadcast_to(plane, (len(frame.channels), *plane.shape))


def _chunk_rows(block: Block) -> int:
    chunks = block.level.array.metadata.chunks
    return chunks[block.row_axis] if block.row_axis < len(chunks) else 1
