"""Orthogonal selections, resolved against a shape: an index, a slice or a list of indices per axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hyperslab.errors import BadSelection, IndexOutOfRange, TooManyIndices
from hyperslab.wire import SelectionItem, format_selection

Indices: TypeAlias = NDArray[np.int64]

# What is made for each read or chunk is not frozen, here and in `indexing` and `plan`: that takes three times as long
# to make, a fifth of the time of a small read (benchmark ``engine``).


@dataclass(slots=True)
class IndexAxis:
    """An index; the axis is dropped from the output."""

    index: int


@dataclass(slots=True)
class SliceAxis:
    """The indices ``start + i * step`` for ``0 <= i < count``. If ``count`` is 0 or 1, ``step`` is 1."""

    start: int
    step: int
    count: int


@dataclass(slots=True, eq=False)
class ListAxis:
    """Non-negative int64 indices in any order, possibly repeated."""

    indices: Indices

    @property
    def count(self) -> int:
        return len(self.indices)


Axis: TypeAlias = IndexAxis | SliceAxis | ListAxis


@dataclass
class Selection:
    """Selection of an `Axis` per axis of the array. Output axes are the slices and lists, in order."""

    axes: tuple[Axis, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the output."""
        return tuple([axis.count for axis in self.axes if not isinstance(axis, IndexAxis)])

    @property
    def size(self) -> int:
        """Number of selected items."""
        return math.prod(self.shape)

    @property
    def output_axes(self) -> tuple[int, ...]:
        """The array's axis of each output axis."""
        return tuple([i for i, axis in enumerate(self.axes) if not isinstance(axis, IndexAxis)])

    def same_cells(self, other: Selection) -> bool:
        """Whether both select the same items in the same order."""
        return len(self.axes) == len(other.axes) and all(
            np.array_equal(a.indices, b.indices) if isinstance(a, ListAxis) and isinstance(b, ListAxis) else a == b
            for a, b in zip(self.axes, other.axes, strict=True)
        )

    def restrict(self, out_axis: int, start: int, stop: int) -> Selection:
        """The part ``[start, stop)`` of the selection along an output axis."""
        array_axis = self.output_axes[out_axis]
        match self.axes[array_axis]:
            case SliceAxis(first, step):
                part: Axis = _progression(first + start * step, step, stop - start)
            case ListAxis() as axis:
                part = ListAxis(axis.indices[start:stop])
        return Selection((*self.axes[:array_axis], part, *self.axes[array_axis + 1 :]))


def normalise(items: Sequence[SelectionItem], shape: tuple[int, ...]) -> Selection:
    """Resolve a selection as numpy does: negative indices count from the end, slices are clipped, missing axes are
    whole. Raises `IndexOutOfRange`, `TooManyIndices`, and `BadSelection` for a second ellipsis or a step of zero."""
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    given, split = len(items) - len(ellipses), ellipses[0] if ellipses else len(items)
    if len(ellipses) > 1:
        raise BadSelection(format_selection(items), "...", ellipses[1], "only one ellipsis is allowed")
    if given > len(shape):
        raise TooManyIndices(given, len(shape))
    whole = (*items[:split], *(slice(None),) * (len(shape) - given), *items[split + 1 :])
    pairs = enumerate(zip(whole, shape, strict=True))
    return Selection(tuple([_axis(item, axis, size, items) for axis, (item, size) in pairs]))


def _progression(start: int, step: int, count: int) -> SliceAxis:
    """The canonical slice of a progression."""
    if count <= 1:
        return SliceAxis(start if count else 0, 1, count)
    return SliceAxis(start, step, count)


def _axis(item: SelectionItem, axis: int, size: int, items: Sequence[SelectionItem]) -> Axis:
    if isinstance(item, slice):
        if item.step == 0:
            raise BadSelection(format_selection(items), format_selection([item]), 0, "the step must not be zero")
        start, stop, step = item.indices(size)
        return _progression(start, step, len(range(start, stop, step)))
    if not isinstance(item, int) and isinstance(item, Sequence | np.ndarray):
        return ListAxis(resolve_indices(item, axis, size))
    index = int(item)  # type: ignore[arg-type]  # the ellipsis is gone by now
    if not -size <= index < size:
        raise IndexOutOfRange(axis, index, size)
    return IndexAxis(index % size)


def resolve_indices(values: Sequence[int] | NDArray[np.integer], axis: int, size: int) -> Indices:
    """Indices of any shape as int64, with negative ones wrapped; raises `IndexOutOfRange` for the first out of
    bounds."""
    try:
        indices = np.asarray(values, dtype=np.int64)
    except OverflowError:
        bad = next(value for value in values if not -size <= value < size)
        raise IndexOutOfRange(axis, int(bad), size) from None
    if not indices.size:
        return indices
    lowest, highest = int(np.min(indices)), int(np.max(indices))
    if lowest < -size or highest >= size:
        outside = indices[(indices < -size) | (indices >= size)]
        raise IndexOutOfRange(axis, int(outside.flat[0]), size)
    return np.where(indices < 0, indices + size, indices) if lowest < 0 else indices
