"""Cut the C-order output of a selection into slabs: consecutive parts of bounded size that follow the chunks."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from hyperslab.engine.grid import ChunkGrid
from hyperslab.engine.selection import IndexAxis, ListAxis, Selection

Slab: TypeAlias = tuple[Selection, int, int]
"""A selection and the bytes ``[start, stop)`` of the whole output that it makes."""


def split_rows(
    selection: Selection,
    inner_shape: Sequence[int],
    *,
    itemsize: int,
    grid: ChunkGrid,
    limit_bytes: int,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[Slab]:
    """Slabs of at most ``limit_bytes`` (but at least one item), in order; only those that meet ``[start, stop)``.

    ``inner_shape``: subarray dimensions that follow the selection's; ``itemsize``: bytes of one of their items. A slab
    is several whole chunk rows of the outermost axis, or, if one is too large, a part of one. Slabs do not depend on
    ``start`` and ``stop``, and those before ``start`` are skipped by arithmetic.
    """
    cell = math.prod(inner_shape) * itemsize
    total = selection.size * cell
    end = total if stop is None else min(stop, total)

    def cut(selection: Selection, axis: int, base: int) -> Iterator[Slab]:
        """Cut along one output axis; ``base``: first byte of the selection's output. Axes before have length 1."""
        shape = selection.shape
        if axis == len(shape):
            yield selection, base, base + cell
            return
        each = math.prod(shape[axis + 1 :]) * cell
        fit = max(limit_bytes // each, 1)
        for a, b in _stretches(selection, axis, grid, fit, max(start - base, 0) // each):
            if base + a * each >= end:
                return
            part = selection.restrict(axis, a, b)
            if each > max(limit_bytes, 1):
                yield from cut(part, axis + 1, base + a * each)
            else:
                yield part, base + a * each, base + b * each

    if start < end:
        yield from cut(selection, 0, 0)


def _stretches(selection: Selection, axis: int, grid: ChunkGrid, fit: int, first: int) -> Iterator[tuple[int, int]]:
    """Stretches of at most ``fit`` positions of an output axis, from the one that holds position ``first``: as many
    whole chunk rows as fit, or equal parts of one that does not."""
    row_of, longest = _chunk_rows(selection, axis, grid)
    length = selection.shape[axis]
    rows = max(fit // longest, 1)
    for row in range(row_of(first) // rows * rows, row_of(length - 1) + 1, rows):
        begin, end = (bisect_left(range(length), edge, key=row_of) for edge in (row, row + rows))
        if begin == end:  # a step has left out chunks shorter than others
            continue
        size = -(-(end - begin) // -(-(end - begin) // fit))
        for a in range(begin + max(first - begin, 0) // size * size, end, size):
            yield a, min(a + size, end)


def _chunk_rows(selection: Selection, out_axis: int, grid: ChunkGrid) -> tuple[Callable[[int], int], int]:
    """Which row of chunks a position of an output axis lies in, counted from the first one; and the length of the
    longest row."""
    at = selection.output_axes[out_axis]
    axis, of_grid = selection.axes[at], grid.axes[at]
    assert not isinstance(axis, IndexAxis)
    if isinstance(axis, ListAxis):
        begins = np.flatnonzero(np.diff(of_grid.cells(axis.indices), prepend=-1))
        longest = int(np.diff(begins, append=axis.count).max())
        return lambda position: int(np.searchsorted(begins, position, "right")) - 1, longest
    start, step = axis.start, axis.step
    if abs(step) >= of_grid.chunk:
        return lambda position: position, 1
    first, longest = of_grid.locate(start)[0], min(-(-of_grid.chunk // abs(step)), axis.count)
    return lambda position: abs(of_grid.locate(start + position * step)[0] - first), longest
