"""A box too big for one request, as boxes that fit and line up with chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hyperslab import wire
from hyperslab.client.indexing import AnyArray, Axis, IntArray

_LIST_TEXT = 4096
"""Characters that the bracketed lists of one request may have: with the rest, a URL stays below 6 KiB."""


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """``axes`` of the array, and the region ``where`` of the result (its raw axes) that they fill."""

    axes: tuple[Axis, ...]
    where: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis) for axis in self.axes if not isinstance(axis, int))

    def region_of(self, result: AnyArray) -> AnyArray:
        """The view of ``result`` that this box fills; an array even where it has no axes."""
        index: tuple[Any, ...] = (*self.where, ...)
        return np.asarray(result[index])

    @property
    def text(self) -> str:
        """The value of ``select=``."""
        return wire.format_selection([_to_wire(axis) for axis in self.axes])


@dataclass(frozen=True, slots=True)
class Cutter:
    """Cuts boxes of an array with these ``chunks`` and bytes per item down to ``limit`` bytes.

    Cuts lie on chunk edges, along the first axes first, so that a box fills contiguous memory where that is possible. A
    single chunk is cut only where ``inside_chunks`` allows it.
    """

    chunks: tuple[int, ...]
    item_nbytes: int
    limit: int
    inside_chunks: bool = False

    def cut(self, box: Box) -> list[Box]:
        """Boxes that fill the same region, in C order of the array's axes."""
        if self._fits(box):
            return [box]
        pieces = list(self._cut_from(box, 0))
        if not self.inside_chunks:
            return pieces
        return [part for piece in pieces for part in self._cut_from(piece, 0, aligned=False)]

    def _cut_from(self, box: Box, axis: int, *, aligned: bool = True) -> Iterator[Box]:
        """Cut along ``axis``, then each piece along the axes after it, as far as needed."""
        if axis == len(box.axes) or self._fits(box):
            yield box
            return
        taken = box.axes[axis]
        if isinstance(taken, int):
            yield from self._cut_from(box, axis + 1, aligned=aligned)
            return
        count = max(1, len(taken) * self.limit // max(self._nbytes(box), self.limit))
        most = _longest_list(box.axes) if isinstance(taken, np.ndarray) else len(taken)
        most = most if aligned else min(most, count)
        for start, stop in _steps(taken, self.chunks[axis], count, most):
            yield from self._cut_from(_narrow(box, axis, start, stop), axis + 1, aligned=aligned)

    def _nbytes(self, box: Box) -> int:
        return prod(box.shape) * self.item_nbytes

    def _fits(self, box: Box) -> bool:
        """Whether one request can carry it."""
        lists = [axis for axis in box.axes if isinstance(axis, np.ndarray)]
        return self._nbytes(box) <= self.limit and (not lists or max(map(len, lists)) <= _longest_list(lists))


def whole_box(axes: Sequence[Axis]) -> Box:
    """The box that fills a whole result."""
    counts = [len(axis) for axis in axes if not isinstance(axis, int)]
    return Box(tuple(axes), tuple(slice(0, count) for count in counts))


def relative(part: Box, whole: Box) -> tuple[slice, ...]:
    """The region of ``part`` within that of ``whole``, from which it was cut."""
    return tuple(
        slice(inner.start - outer.start, inner.stop - outer.start)
        for inner, outer in zip(part.where, whole.where, strict=True)
    )


def _narrow(box: Box, axis: int, start: int, stop: int) -> Box:
    """``box`` with positions ``start:stop`` of what it takes of ``axis``."""
    taken = box.axes[axis]
    assert not isinstance(taken, int)
    out_axis = sum(not isinstance(a, int) for a in box.axes[:axis])
    offset = box.where[out_axis].start
    where = list(box.where)
    where[out_axis] = slice(offset + start, offset + stop)
    return Box((*box.axes[:axis], taken[start:stop], *box.axes[axis + 1 :]), tuple(where))


def _steps(taken: range | IntArray, chunk: int, count: int, most: int) -> Iterator[tuple[int, int]]:
    """Cut positions of an axis into runs of at most ``count`` in whole chunks, else one chunk; never over ``most``."""
    run = _runs(taken, chunk)
    start = 0
    while start < len(taken):
        target = start + min(count, most)
        stop = len(taken) if target >= len(taken) else run(target)[0]
        if stop <= start:
            stop = min(run(start)[1], start + most)
        yield start, stop
        start = stop


def _runs(taken: range | IntArray, chunk: int) -> Callable[[int], tuple[int, int]]:
    """From a position to the bounds of the positions around it that lie in the same chunk."""
    if isinstance(taken, range):
        return lambda position: _range_run(taken, chunk, position)
    edges = np.concatenate(([0], np.flatnonzero(np.diff(taken // chunk)) + 1, [len(taken)]))

    def run(position: int) -> tuple[int, int]:
        after = int(np.searchsorted(edges, position, side="right"))
        return int(edges[after - 1]), int(edges[after])

    return run


def _range_run(taken: range, chunk: int, position: int) -> tuple[int, int]:
    lower = taken[position] // chunk * chunk
    upper = lower + chunk - 1
    near, far = (lower, upper) if taken.step > 0 else (-upper, -lower)
    start, step = (taken.start, taken.step) if taken.step > 0 else (-taken.start, -taken.step)
    return max(0, -((start - near) // step)), min(len(taken), (far - start) // step + 1)


def _longest_list(axes: Sequence[Axis]) -> int:
    """How many indices each list may have, so that all lists of a request fit its URL."""
    lists = [axis for axis in axes if isinstance(axis, np.ndarray) and axis.size]
    if not lists:
        return 0
    digits = max(len(str(int(axis.max()))) for axis in lists)
    return max(1, _LIST_TEXT // len(lists) // (digits + 1))


def _to_wire(axis: Axis) -> wire.SelectionItem:
    if isinstance(axis, int):
        return axis
    if isinstance(axis, range):
        if not axis:
            return slice(0, 0)
        # A stop below zero would be counted from the end: it stands for "to the beginning".
        return slice(axis.start, axis.stop if axis.stop >= 0 else None, None if axis.step == 1 else axis.step)
    return [int(index) for index in axis]
