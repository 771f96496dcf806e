"""Numpy's indexing as requests.

A key becomes a `Selection`: an index, a range or an array of indices per axis, resolved against the shape known to the
client, so that a concurrent resize does not change its meaning. If each index array varies along its own axes of the
result (one list, or an open mesh of `numpy.ix_`), the selection is *orthogonal* and sent as boxes; otherwise it selects
*points*. See "Advanced indexing" in numpy's user guide. Large boxes are divided along chunk boundaries.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import EllipsisType
from typing import Any, TypeGuard

import numpy as np

from hyperslab import wire
from hyperslab.errors import IndexOutOfRange, TooLarge, TooManyIndices

AnyArray = np.ndarray[Any, np.dtype[Any]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]
Axis = int | range | IntArray
"""Selection along an axis: an index (which drops the axis), a range, or a 1-d array of indices."""

_Item = tuple[int | None, Axis]
"""An axis and the selection along it; the axis is None for `_NEW_AXIS`, `_NO_AXES` and 0-d booleans (an array)."""
_NEW_AXIS = range(1)
_NO_AXES = range(0)  # an ellipsis of no axes separates index arrays like a slice


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Selection along each axis, and the mapping of values on the wire to the result.

    ``pointwise``: the index arrays in ``axes`` have one length and select points. ``raw`` is the shape on the wire: the
    axes in order, but points first. ``split`` is ``raw`` with the axes of index arrays unraveled, ``order`` the
    transposition of ``split`` to the result, ``shape`` the shape of the result. ``scalar``: numpy returns a scalar.
    """

    axes: tuple[Axis, ...]
    pointwise: bool
    scalar: bool
    raw: tuple[int, ...]
    split: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)

    def to_result(self, raw: AnyArray) -> AnyArray:
        """A view of ``raw`` in the result's shape."""
        return raw.reshape(self.split).transpose(self.order).reshape(self.shape)

    def to_raw(self, result: AnyArray) -> AnyArray:
        """The values of ``result`` in the shape ``raw``; a view if possible."""
        transposed = result.reshape(tuple(self.split[i] for i in self.order))
        return transposed.transpose(np.argsort(self.order)).reshape(self.raw)


@dataclass(frozen=True, slots=True)
class Indexer:
    """``a.oindex``, ``a.vindex`` or ``a.blocks``: ``select`` parses a key, ``read`` and ``write`` are the array's."""

    select: Callable[[Any], Selection]
    read: Callable[[Selection], Any]
    write: Callable[[Selection, Any], None]

    def __getitem__(self, key: Any) -> Any:
        """The values; raises as `RemoteArray.get`."""
        return self.read(self.select(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write values, with broadcasting; raises as `RemoteArray.set`."""
        self.write(self.select(key), value)


# --- keys ------------------------------------------------------------------------------------------------------------


def split_fields(key: Any) -> tuple[str | list[str] | None, Any]:
    """The field or list of fields in a key (``"x"``, ``["x", "y"]``, ``("x", 0)``), and the rest of the key."""

    def names(part: Any) -> bool:
        return isinstance(part, str) or (
            isinstance(part, list) and bool(part) and all(isinstance(name, str) for name in part)
        )

    if names(key):
        return key, ()
    named = [part for part in key if names(part)] if isinstance(key, tuple) else []
    if len(named) > 1:
        raise IndexError("an index can name one field or one list of fields")
    return (named[0], tuple(part for part in key if part is not named[0])) if named else (None, key)


def select(key: Any, shape: Sequence[int], *, points_first: bool = False) -> Selection:
    """The selection of ``array[key]`` on a numpy array of this shape.

    ``points_first``: as in ``vindex``, the axes of index arrays always come first in the result.

    Raises `IndexOutOfRange`, `TooManyIndices`, and `IndexError` for other invalid keys.
    """
    items = _read_key(key, shape)
    arrays = [taken for _, taken in items if isinstance(taken, np.ndarray)]
    try:
        points_shape = np.broadcast_shapes(*(array.shape for array in arrays))
    except ValueError as error:
        shapes = " ".join(str(array.shape) for array in arrays)
        message = f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        raise IndexError(message) from error
    # Labels of axes: an array's axis its number, axis j of the broadcast index arrays -1 - j, a new axis None.
    block = [-1 - j for j in range(len(points_shape))]
    sizes: dict[int | None, int] = {None: 1, **dict(zip(block, points_shape, strict=True))}
    varying = {
        axis: [
            label for label, length in zip(block[len(block) - taken.ndim :], taken.shape, strict=True) if length != 1
        ]
        for axis, taken in items
        if isinstance(taken, np.ndarray)
    }
    on_wire = [label for axis, labels in varying.items() if axis is not None for label in labels]
    pointwise = len(on_wire) > len(set(on_wire))
    axes: list[Axis] = []
    labels = block.copy() if pointwise else []
    for axis, taken in items:
        if axis is None:
            continue
        if isinstance(taken, range):
            labels.append(axis)
            sizes[axis] = len(taken)
        elif isinstance(taken, np.ndarray) and not pointwise:
            labels += varying[axis]
        points = pointwise and isinstance(taken, np.ndarray)
        axes.append(np.broadcast_to(taken, points_shape).reshape(-1) if points else _simplify(taken))
    result = _result_labels(items, block, points_first=points_first)
    raw = (prod(points_shape), *(len(axis) for axis in axes if isinstance(axis, range))) if pointwise else lengths(axes)
    return Selection(
        tuple(axes),
        pointwise,
        all(isinstance(taken, int) for _, taken in items),
        raw,
        tuple(sizes[label] for label in labels),
        tuple(labels.index(label) for label in result if label in labels),
        tuple(sizes[label] for label in result),
    )


def select_orthogonal(key: Any, shape: Sequence[int]) -> Selection:
    """The selection of ``oindex``: each axis is indexed independently; raises as `select`."""
    if any(np.ndim(part) > 1 for part in (key if isinstance(key, tuple) else (key,)) if not isinstance(part, slice)):
        raise IndexError("oindex takes integers, slices, and 1-d integer or boolean arrays, one for each axis")
    items = [item for item in _read_key(key, shape) if item[1] is not _NO_AXES]
    if any(axis is None for axis, _ in items):
        raise IndexError("oindex takes no new axes")
    axes = tuple(_simplify(taken) for _, taken in items)
    raw, shape_of_result = lengths(axes), lengths([taken for _, taken in items])
    scalar = all(isinstance(taken, int) for _, taken in items)
    return Selection(axes, False, scalar, raw, raw, tuple(range(len(raw))), shape_of_result)


def select_blocks(key: Any, shape: Sequence[int], chunks: Sequence[int]) -> Selection:
    """The selection of ``blocks``: integers and slices in units of chunks; no axis is dropped. Raises as `select`."""
    counts = [-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]
    parts = []
    for axis, taken in _read_key(key, counts):
        run = range(taken, taken + 1) if isinstance(taken, int) else taken
        if run is _NO_AXES:
            continue
        if axis is None or not isinstance(run, range) or run.step != 1:
            raise IndexError("blocks takes integers and slices without a step")
        parts.append(slice(run.start * chunks[axis], min(run.stop * chunks[axis], shape[axis])))
    return select(tuple(parts), shape)


def lengths(axes: Sequence[Axis]) -> tuple[int, ...]:
    """Shape of an orthogonal selection."""
    return tuple(len(axis) for axis in axes if not isinstance(axis, int))


def format_axes(axes: Sequence[Axis]) -> str:
    """The value of ``select=`` for an orthogonal selection."""
    items: list[wire.SelectionItem] = []
    for axis in axes:
        if isinstance(axis, range):  # a negative stop would count from the end
            stop = axis.stop if axis.stop >= 0 else None
            items.append(slice(axis.start, stop, None if axis.step == 1 else axis.step) if axis else slice(0, 0))
        else:
            items.append(axis if isinstance(axis, int) else axis.tolist())
    return wire.format_selection(items)


def open_mesh(axes: Sequence[Axis]) -> tuple[IntArray, ...]:
    """Index arrays of all cells at points, to be broadcast: the first axis is the points, then one for each range."""
    ranges = [axis for axis in axes if isinstance(axis, range)]
    mesh = iter(np.ix_([0], *ranges)[1:])
    points = (-1, *[1] * len(ranges))
    return tuple(next(mesh) if isinstance(axis, range) else np.asarray(axis).reshape(points) for axis in axes)


def coordinates(axes: Sequence[Axis]) -> IntArray:
    """``(cells, rank)`` indices of all cells at points, point by point, each with its ranges in C order."""
    return np.stack(np.broadcast_arrays(*open_mesh(axes)), axis=-1).reshape(-1, len(axes))


_Part = int | slice | EllipsisType | AnyArray | tuple[IntArray, int] | None
"""Part of a key, for one axis, or for none (a new axis, 0-d booleans) or the rest (an ellipsis). An axis of a boolean
array is a tuple of its indices and its length."""


def _read_key(key: Any, shape: Sequence[int]) -> list[_Item]:
    """Selection along each axis, in order."""
    parts = [part for each in (key if isinstance(key, tuple) else (key,)) for part in _read_parts(each)]
    ellipses = sum(part is Ellipsis for part in parts)
    used = sum(not (part is None or part is Ellipsis or _is_0d(part)) for part in parts)
    if used > len(shape):
        raise TooManyIndices(given=used, rank=len(shape))
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    items: list[_Item] = []
    axis = 0
    for part in parts if ellipses or used == len(shape) else [*parts, ...]:
        if part is None:
            items.append((None, _NEW_AXIS))
        elif isinstance(part, EllipsisType):
            rest = range(axis, axis + len(shape) - used)
            items += [(each, range(shape[each])) for each in rest] or [(None, _NO_AXES)]
            axis += len(rest)
        elif _is_0d(part):
            items.append((None, np.zeros(int(part), np.int64)))
        else:
            items.append((axis, _resolve(part, axis, shape[axis])))
            axis += 1
    return items


def _is_0d(part: _Part) -> TypeGuard[AnyArray]:
    return isinstance(part, np.ndarray) and part.ndim == 0


def _read_parts(part: Any) -> Sequence[_Part]:
    """Parts of one part of a key: integers become int, sequences arrays, and boolean arrays indices for each of their
    axes. Raises `IndexError` for invalid types."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return [part]
    if hasattr(part, "__index__") and not isinstance(part, bool | np.bool_ | np.ndarray):
        return [operator.index(part)]
    array = np.asarray(part)
    if array.size == 0 and not isinstance(part, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        if array.ndim:
            raise IndexError("arrays used as indices must be of integer (or boolean) type")
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`), field names and integer or boolean "
            "arrays are valid indices"
        )
    if array.dtype.kind == "b" and array.ndim:
        return [*zip(array.nonzero(), array.shape, strict=True)]
    return [array if array.ndim or array.dtype.kind == "b" else int(array)]


def _resolve(part: int | slice | AnyArray | tuple[IntArray, int], axis: int, size: int) -> Axis:
    """Selection of a part of a key along its axis, of this size."""
    if isinstance(part, slice):
        return range(*part.indices(size))
    if isinstance(part, tuple):
        indices, length = part
        if size != length:
            raise IndexError(
                f"boolean index did not match indexed array along axis {axis}; size of axis is {size} "
                f"but size of corresponding boolean axis is {length}"
            )
        return indices
    if isinstance(part, int):
        if not -size <= part < size:
            raise IndexOutOfRange(axis=axis, index=part, size=size)
        return part % size
    outside = (part < -size) | (part >= size)  # before the conversion, in which uint64 would wrap around
    if outside.any():
        raise IndexOutOfRange(axis=axis, index=int(part[outside][0]), size=size)
    signed = part.astype(np.int64)
    return np.where(signed < 0, signed + size, signed)


def _result_labels(items: Sequence[_Item], block: list[int], *, points_first: bool) -> list[int | None]:
    """Labels of the result's axes: those of index arrays replace the arrays if these are adjacent, else come first."""
    at_lists = [i for i, (_, taken) in enumerate(items) if not isinstance(taken, range)]
    adjacent = bool(block) and at_lists[-1] - at_lists[0] + 1 == len(at_lists) and not points_first
    labels: list[int | None] = [] if adjacent else [*block]
    for i, (axis, taken) in enumerate(items):
        if adjacent and i == at_lists[0]:
            labels += block
        if isinstance(taken, range) and taken is not _NO_AXES:
            labels.append(axis)
    return labels


def _simplify(taken: Axis) -> Axis:
    """An array of one index as an index, and of evenly spaced ones as a range."""
    if not isinstance(taken, np.ndarray):
        return taken
    flat = taken.reshape(-1)
    if flat.size < 2:
        return int(flat[0]) if flat.size else flat
    first, step = int(flat[0]), int(flat[1]) - int(flat[0])
    if step == 0 or not bool((np.diff(flat) == step).all()):
        return flat
    return range(first, first + step * flat.size, step)


# --- parts of selections ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """Orthogonal selection of an array with items of ``itemsize`` bytes in ``chunks``; its ``values`` are a view of
    memory that is read into or sent."""

    axes: tuple[Axis, ...]
    values: AnyArray
    chunks: Sequence[int]
    itemsize: int

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return self.values.size * self.itemsize

    def smaller(self, problem: TooLarge) -> list[Box]:
        """Boxes within the limit in ``problem``, at most of half the size; raises ``problem`` for a single item."""
        share = problem.limit / max(problem.requested, 1)  # an estimate for objects
        parts = self.cut(max(1, min(int(self.nbytes * share), self.nbytes // 2)), inside_chunks=True)
        if len(parts) < 2:
            raise problem
        return parts

    def cut(self, limit: int, *, inside_chunks: bool = False) -> list[Box]:
        """Boxes of at most ``limit`` bytes, in C order.

        Divided along chunk boundaries, first axes first, so that boxes are contiguous in memory if possible. Boxes of
        single chunks may exceed the limit unless ``inside_chunks`` allows to divide them.
        """
        boxes = list(self._cut(limit, 0))
        if not inside_chunks:
            return boxes
        ones = [1] * len(self.chunks)
        return [part for box in boxes for part in replace(box, chunks=ones)._cut(limit, 0)]

    def _cut(self, limit: int, axis: int) -> Iterator[Box]:
        """Divide along ``axis``, then each part along the following axes, as far as needed."""
        nbytes = self.nbytes
        lists = [taken for taken in self.axes if isinstance(taken, np.ndarray) and taken.size]
        digits = max((len(str(int(np.max(taken)))) for taken in lists), default=0)
        longest = max(1, 4096 // max(1, len(lists)) // (digits + 1))  # 4 KiB of lists keep URLs below 6 KiB
        if axis == len(self.axes) or (nbytes <= limit and max(map(len, lists), default=0) <= longest):
            yield self
            return
        taken = self.axes[axis]
        if isinstance(taken, int):
            yield from self._cut(limit, axis + 1)
            return
        before, after = self.axes[:axis], self.axes[axis + 1 :]
        along = len(lengths(before))
        count = max(1, len(taken) * limit // max(nbytes, limit))
        start = 0
        while start < len(taken):
            if isinstance(taken, range):
                stop = _align(taken, self.chunks[axis], start, start + count)
            else:
                stop = min(start + min(count, longest), len(taken))
            values = self.values[(slice(None),) * along + (slice(start, stop),)]
            yield from replace(self, axes=(*before, taken[start:stop], *after), values=values)._cut(limit, axis + 1)
            start = stop


def _align(taken: range, chunk: int, start: int, stop: int) -> int:
    """Position in ``taken`` of the last chunk boundary in ``(start, stop]``, else of the next one."""
    if stop >= len(taken):
        return len(taken)
    edge = taken[stop] // chunk * chunk
    entered, left = (edge, edge + chunk) if taken.step > 0 else (edge + chunk - 1, edge - 1)
    first, after = (-((taken.start - bound) // taken.step) for bound in (entered, left))
    return first if first > start else min(after, len(taken))
