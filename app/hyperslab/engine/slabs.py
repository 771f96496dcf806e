"""Cut the C-order output of a selection into slabs: consecutive parts of bounded size that follow the chunks."""

from __future__ import annotations

import bisect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from hyperslab.engine.grid import ChunkGrid
from hyperslab.engine.selection import Axis, IndexAxis, ListAxis, Selection, SliceAxis

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
    is several whole chunk rows of the outermost axis, or, where one is too large, a part of one. Slabs do not depend
    on ``start`` and ``stop``, and those before ``start`` are skipped by arithmetic.
    """
    cell = math.prod(inner_shape) * itemsize
    total = selection.size * cell
    stop = total if stop is None else min(stop, total)
    if start >= stop:
        return
    cut = _Cut(grid, cell, max(limit_bytes, 1), start, stop)
    yield from cut.axis(selection, 0, 0)


@dataclass(frozen=True, slots=True)
class _Cut:
    """``cell``: bytes of one selected cell; ``start``, ``stop``: the bytes that are wanted."""

    grid: ChunkGrid
    cell: int
    limit: int
    start: int
    stop: int

    def axis(self, selection: Selection, axis: int, base: int) -> Iterator[Slab]:
        """Cut along one output axis; ``base``: first byte of the selection's output. Axes before have length 1."""
        shape = selection.shape
        if axis == len(shape):
            yield selection, base, base + self.cell
            return
        each = math.prod(shape[axis + 1 :]) * self.cell
        first = max(self.start - base, 0) // each
        rows = _rows(selection, axis, self.grid)
        for a, b in self._steps(rows, each, first):
            if base + a * each >= self.stop:
                return
            part = selection.restrict(axis, a, b)
            if each > self.limit:
                yield from self.axis(part, axis + 1, base + a * each)
            else:
                yield part, base + a * each, base + b * each

    def _steps(self, rows: _Rows, each: int, first: int) -> Iterator[tuple[int, int]]:
        """Stretches of the axis, from the one that holds position ``first``."""
        fit = max(self.limit // each, 1)
        if rows.longest <= fit:
            return rows.groups(fit // rows.longest, first)
        return rows.pieces(fit, first)


@dataclass(frozen=True, slots=True)
class _Rows(ABC):
    """The rows of chunks along an axis of a selection: where each begins among the output's positions."""

    longest: int
    count: int
    length: int

    @abstractmethod
    def begin(self, row: int) -> int:
        """First position of a row; ``length`` for the row after the last."""

    @abstractmethod
    def row_of(self, position: int) -> int:
        """The row that holds a position."""

    def groups(self, size: int, first: int) -> Iterator[tuple[int, int]]:
        """``size`` rows at a time."""
        for row in range(self.row_of(first) // size * size, self.count, size):
            yield self.begin(row), self.begin(min(row + size, self.count))

    def pieces(self, fit: int, first: int) -> Iterator[tuple[int, int]]:
        """Each row in equal pieces of at most ``fit`` positions."""
        for row in range(self.row_of(first), self.count):
            begin, end = self.begin(row), self.begin(row + 1)
            size = -(-(end - begin) // -(-(end - begin) // fit))
            skipped = max(first - begin, 0) // size * size
            for a in range(begin + skipped, end, size):
                yield a, min(a + size, end)


@dataclass(frozen=True, slots=True)
class _SliceRows(_Rows):
    axis: SliceAxis
    chunk: int

    def begin(self, row: int) -> int:
        axis, chunk = self.axis, self.chunk
        if row >= self.count:
            return self.length
        if row == 0 or abs(axis.step) >= chunk:
            return row
        if axis.step > 0:
            return -(-((axis.start // chunk + row) * chunk - axis.start) // axis.step)
        return (axis.start - (axis.start // chunk - row + 1) * chunk) // -axis.step + 1

    def row_of(self, position: int) -> int:
        axis, chunk = self.axis, self.chunk
        if abs(axis.step) >= chunk:
            return position
        return abs((axis.start + position * axis.step) // chunk - axis.start // chunk)


@dataclass(frozen=True, slots=True)
class _ListRows(_Rows):
    begins: tuple[int, ...]

    def begin(self, row: int) -> int:
        return self.begins[row] if row < self.count else self.length

    def row_of(self, position: int) -> int:
        return bisect.bisect_right(self.begins, position) - 1


def _rows(selection: Selection, out_axis: int, grid: ChunkGrid) -> _Rows:
    at = selection.output_axes[out_axis]
    return _axis_rows(selection.axes[at], grid.chunks[at])


def _axis_rows(axis: Axis, chunk: int) -> _Rows:
    if isinstance(axis, ListAxis):
        cells = axis.indices // chunk
        begins = np.concatenate(([0], np.flatnonzero(np.diff(cells)) + 1))
        longest = int(np.diff(np.append(begins, len(cells))).max())
        return _ListRows(longest, len(begins), len(cells), tuple(begins.tolist()))
    if isinstance(axis, IndexAxis):
        raise TypeError("an index has no output axis")
    if abs(axis.step) >= chunk:
        return _SliceRows(1, axis.count, axis.count, axis, chunk)
    last = (axis.start + (axis.count - 1) * axis.step) // chunk
    longest = min(-(-chunk // abs(axis.step)), axis.count)
    return _SliceRows(longest, abs(last - axis.start // chunk) + 1, axis.count, axis, chunk)
