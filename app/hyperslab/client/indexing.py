"""numpy's indexing rules, turned into what the wire can ask for.

A key becomes a `Selection`: per axis an index, a range or an array of indices, always explicit and within the shape
that the client knows, so that an array that grows meanwhile does not change the answer. Index arrays that vary along
result axes of their own (one list, or an open mesh as of `numpy.ix_`) are *orthogonal*: one box on the wire. All
others pick *points*. The rules are numpy's, "Advanced indexing" in its user guide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from hyperslab.client.keys import NOTHING, AnyArray, Axis, IntArray, Item, plain_axes, read_key
from hyperslab.client.layout import Layout

__all__ = [
    "AnyArray",
    "Axis",
    "IntArray",
    "Selection",
    "select",
    "select_blocks",
    "select_orthogonal",
    "select_vectorised",
]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """``axes`` in the array's order. Where ``pointwise``, the index arrays have one length and vary together.

    ``layout.raw`` is the shape as it comes from the wire: the axes in their order or, for points, the points first
    and then the ranges. ``scalar``: numpy would give a scalar.
    """

    axes: tuple[Axis, ...]
    pointwise: bool
    layout: Layout
    scalar: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def size(self) -> int:
        return prod(self.layout.shape)


def select(key: Any, shape: Sequence[int]) -> Selection:
    """What ``array[key]`` is for a numpy array of this shape.

    Raises `IndexOutOfRange`, `TooManyIndices` and, for what numpy does not take either, `IndexError`.
    """
    axes = plain_axes(key, shape)
    if axes is not None:
        counts = _counts(axes)
        return Selection(axes, False, Layout.plain(counts), not counts)
    items = read_key(key, shape)
    return _combine(items, len(shape), first=False, scalar=_is_scalar(items))


def select_vectorised(key: Any, shape: Sequence[int]) -> Selection:
    """What ``vindex`` takes: index arrays vary together, and their result axes come first."""
    items = read_key(key, shape)
    return _combine(items, len(shape), first=True, scalar=_is_scalar(items))


def select_orthogonal(key: Any, shape: Sequence[int]) -> Selection:
    """What ``oindex`` takes: each axis is indexed by itself and stays in its place."""
    if any(np.ndim(part) > 1 for part in (key if isinstance(key, tuple) else (key,)) if not isinstance(part, slice)):
        raise IndexError("oindex takes integers, slices, and 1-d integer or boolean arrays, one for each axis")
    items = read_key(key, shape)
    kept: list[int] = []
    for item in items:
        if item.axis is None and item.taken is not NOTHING:
            raise IndexError("oindex takes no new axes")
        if item.axis is not None and not isinstance(item.taken, int):
            kept.append(len(item.taken))
    axes = tuple(_simplify(item.taken) for item in items if item.axis is not None)
    layout = Layout.plain(_counts(axes), tuple(kept))
    return Selection(axes, False, layout, _is_scalar(items))


def select_blocks(key: Any, shape: Sequence[int], chunks: Sequence[int]) -> Selection:
    """What ``blocks`` takes: integers and slices that count chunks; no axis is dropped."""
    counts = [-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]
    parts = []
    for item in read_key(key, counts):
        if item.axis is None and item.taken is NOTHING:
            continue
        taken = item.taken
        if isinstance(taken, int):
            taken = range(taken, taken + 1)
        if item.axis is None or not isinstance(taken, range) or taken.step != 1:
            raise IndexError("blocks takes integers and slices without a step")
        chunk = chunks[item.axis]
        parts.append(slice(taken.start * chunk, min(taken.stop * chunk, shape[item.axis])))
    return select(tuple(parts), shape)


def _is_scalar(items: Sequence[Item]) -> bool:
    """numpy gives a scalar where every axis has an integer and there is no ellipsis."""
    return all(isinstance(item.taken, int) for item in items)


def _combine(items: Sequence[Item], rank: int, *, first: bool, scalar: bool) -> Selection:
    """``first``: the result axes of the arrays come first even where all arrays stand side by side."""
    arrays = [item.taken for item in items if isinstance(item.taken, np.ndarray)]
    if not arrays:
        return _combine_basic(items, scalar=scalar)
    together = _broadcast(arrays)
    by_axis = {item.axis: item.taken for item in items if item.axis is not None}
    pointwise = _vary_together([a for a in by_axis.values() if isinstance(a, np.ndarray)], together)
    axes: list[Axis] = []
    found: list[int] = []  # labels of the axes on the wire: an array axis, or -1 - j for axis j of `together`
    sizes = {-1 - j: length for j, length in enumerate(together)}
    for axis in range(rank):
        taken = by_axis[axis]
        if isinstance(taken, range):
            sizes[axis] = len(taken)
            found.append(axis)
            axes.append(taken)
        elif isinstance(taken, int):
            axes.append(taken)
        elif pointwise:
            axes.append(np.broadcast_to(taken, together).reshape(-1))
        else:
            found.extend(-1 - j for j in _own_axes(taken, together))
            axes.append(_simplify(taken))
    if pointwise:
        found = [*(-1 - j for j in range(len(together))), *found]
    raw = ((prod(together), *(sizes[a] for a in found if a >= 0))) if pointwise else _counts(axes)
    layout = Layout.from_labels(raw, found, _wanted(items, len(together), first), sizes)
    return Selection(tuple(axes), pointwise, layout, scalar)


def _combine_basic(items: Sequence[Item], *, scalar: bool) -> Selection:
    """Integers and slices alone: every axis keeps its place."""
    axes = tuple(item.taken for item in items if item.axis is not None)
    kept = tuple(len(i.taken) for i in items if isinstance(i.taken, range) and i.taken is not NOTHING)
    return Selection(axes, False, Layout.plain(_counts(axes), kept), scalar)


def _broadcast(arrays: Sequence[IntArray]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError as error:
        shapes = " ".join(str(array.shape) for array in arrays)
        message = f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        raise IndexError(message) from error


def _own_axes(array: IntArray, together: tuple[int, ...]) -> list[int]:
    """The axes of the broadcast shape along which this array varies."""
    missing = len(together) - array.ndim
    return [missing + j for j, length in enumerate(array.shape) if length != 1]


def _vary_together(arrays: Sequence[IntArray], together: tuple[int, ...]) -> bool:
    owned = [j for array in arrays for j in _own_axes(array, together)]
    return len(owned) != len(set(owned))


def _wanted(items: Sequence[Item], width: int, first: bool) -> list[int | None]:
    """Labels of the result's axes: those of the arrays stand where the arrays do if they are side by side, else
    first."""
    at = [i for i, item in enumerate(items) if not isinstance(item.taken, range)]
    side_by_side = width > 0 and at[-1] - at[0] + 1 == len(at) and not first
    labels: list[int | None] = []
    for i, item in enumerate(items):
        if side_by_side and i == at[0]:
            labels.extend(-1 - j for j in range(width))
        if isinstance(item.taken, range) and item.taken is not NOTHING:
            labels.append(item.axis)
    return labels if side_by_side else [*(-1 - j for j in range(width)), *labels]


def _counts(axes: Sequence[Axis]) -> tuple[int, ...]:
    return tuple(len(axis) for axis in axes if not isinstance(axis, int))


def _simplify(taken: Axis) -> Axis:
    """An index for an array of one, and a range for an array that is one: shorter on the wire, cheaper for the
    server."""
    if not isinstance(taken, np.ndarray):
        return taken
    flat = taken.reshape(-1)
    if flat.size == 1:
        return int(flat[0])
    if flat.size == 0:
        return flat
    first, step = int(flat[0]), int(flat[1]) - int(flat[0])
    if step == 0 or not bool((np.diff(flat) == step).all()):
        return flat
    return range(first, first + step * flat.size, step)
