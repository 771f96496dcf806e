"""From a selection to chunks: which chunks, which region of each, and where that goes in the output.

Reading and writing use the same projection, one flipped. Output axes are those of `Selection.shape`; chunk, output and
values may have further axes behind them (the subarray dimensions of a field), which are copied whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hyperslab.engine.dtypes import Field
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.engine.runs import Region, Run, bounded, chunk_runs, merge_runs, runs_of
from hyperslab.engine.selection import (
    Axis,
    IndexAxis,
    Indices,
    ListAxis,
    Selection,
    SliceAxis,
    normalise,
    resolve_indices,
)
from hyperslab.engine.slabs import split_rows
from hyperslab.errors import BadBody, TooManyIndices

__all__ = [
    "Axis",
    "ChunkProjection",
    "IndexAxis",
    "ListAxis",
    "PointProjection",
    "Selection",
    "SliceAxis",
    "broadcast_points",
    "normalise",
    "project",
    "project_points",
    "put_values",
    "split_rows",
    "split_selection",
    "touched",
    "touched_coords",
    "values_of",
]


class AxisPart(NamedTuple):
    """What one chunk contributes along one axis.

    ``inside``: region of the chunk; ``outside``: region of the output (None: the axis is dropped); ``covers``: all
    cells up to the edge of the array, in order; ``full``: as ``covers``, and the edge of the array does not cut the
    chunk.
    """

    coord: int
    inside: Region
    outside: slice | Indices | None
    length: int
    covers: bool
    full: bool


@dataclass(frozen=True, slots=True, eq=False)
class ChunkProjection:
    """The part of a selection that lies in one chunk."""

    coords: Coords
    parts: tuple[AxisPart, ...]

    @property
    def chunk_region(self) -> tuple[Region, ...]:
        """Per axis of the chunk: an index, a slice or an index array (orthogonal)."""
        return tuple([part.inside for part in self.parts])

    @property
    def out_region(self) -> tuple[slice | Indices, ...]:
        """Per axis of the output: a slice or an index array (orthogonal)."""
        return tuple([part.outside for part in self.parts if part.outside is not None])

    @property
    def covers_chunk(self) -> bool:
        """All cells of the chunk inside the array are selected, in order."""
        return False not in [part.covers for part in self.parts]

    @property
    def fills_chunk(self) -> bool:
        """As `covers_chunk`, and no edge cuts the chunk: nothing of it is left over."""
        return False not in [part.full for part in self.parts]

    def copy_out(self, chunk: NDArray[Any], out: NDArray[Any]) -> None:
        """Copy the selected cells of a chunk (full chunk shape) into the output."""
        _place(out, self.out_region, _take(chunk, self.chunk_region))

    def copy_in(self, values: NDArray[Any], chunk: NDArray[Any]) -> None:
        """Copy values (shaped as the whole selection) into the selected cells of a chunk."""
        _place(chunk, self.chunk_region, _take(values, self.out_region))

    def put_out(self, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Put ``values``, one for each selected cell, where these go in the output; or the same one everywhere there:
        0-d, or of the subarray shape."""
        _place(out, self.out_region, values)

    def contiguous_out(self, out: NDArray[Any], order: str = "C") -> NDArray[Any] | None:
        """The chunk's region of ``out``, shaped as the chunk, if the whole chunk can be decoded straight into it.

        None unless all of a chunk that no edge cuts is selected in order, and the region is contiguous in ``order``.
        """
        region = self.out_region
        if not self.fills_chunk or np.ndarray in map(type, region):
            return None
        view = out[(*region, ...)]
        if not (view.flags.c_contiguous if order == "C" else view.flags.f_contiguous):
            return None
        return view.reshape([part.length for part in self.parts], order="C" if order == "C" else "F")

    def reach(self, chunks: Sequence[int], order: Literal["C", "F"]) -> int:
        """How many items of the stored chunk, from the first on, hold all selected cells."""
        last: list[int] = []
        for _, inside, _, length, *_ in self.parts:
            if isinstance(inside, slice):
                last.append(inside.start + max(0, (length - 1) * inside.step))
            else:
                last.append(int(np.max(inside)))
        return 1 + (int(np.ravel_multi_index(last, tuple(chunks), order=order)) if last else 0)

    def item_runs(self, chunks: Sequence[int], order: str = "C", *, gap: int = 0, limit: int = 1024) -> list[Run]:
        """The runs of the stored chunk that hold the selected cells; see `runs.chunk_runs`."""
        return chunk_runs(self.chunk_region, chunks, order=order, gap=gap, limit=limit)


def project(selection: Selection, grid: ChunkGrid) -> Iterator[ChunkProjection]:
    """The chunks that a selection touches, each once, the last axis fastest; lazy."""
    if selection.size:
        axes = [_axis_parts(*facts) for facts in zip(selection.axes, grid.chunks, grid.shape, strict=True)]
        for parts in _product(axes):
            yield ChunkProjection(tuple([part.coord for part in parts]), parts)


def touched(selection: Selection, grid: ChunkGrid) -> int:
    """How many chunks `project` gives; from arithmetic, not by counting them."""
    return math.prod(map(_chunks_on_axis, selection.axes, grid.chunks)) if selection.size else 0


def touched_coords(selection: Selection, grid: ChunkGrid) -> Iterator[Coords]:
    """The coords of the chunks that `project` gives, in the same order."""
    return (projection.coords for projection in project(selection, grid))


# --- one axis ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SliceParts:
    """The parts of a progression on an axis of ``size``, in its own direction; computed anew by each iteration."""

    axis: SliceAxis
    chunk: int
    size: int

    def __iter__(self) -> Iterator[AxisPart]:
        (start, step, count), chunk = (self.axis.start, self.axis.step, self.axis.count), self.chunk
        done = 0
        while done < count:
            coord, offset = divmod(start + done * step, chunk)
            room = (chunk - 1 - offset) // step if step > 0 else offset // -step
            length = min(count - done, room + 1)
            extent = min(chunk, self.size - coord * chunk)
            covers = length == extent and (step == 1 or extent == 1)
            inside = _progression_slice(offset, step, length)
            yield AxisPart(coord, inside, slice(done, done + length), length, covers, covers and extent == chunk)
            done += length


def _axis_parts(axis: Axis, chunk: int, size: int) -> Iterable[AxisPart]:
    """The parts of a selection along one axis: a tuple, or if they are very many, what computes them."""
    if isinstance(axis, IndexAxis):
        coord, offset = divmod(axis.index, chunk)
        extent = min(chunk, size - coord * chunk)
        return (AxisPart(coord, offset, None, 1, extent == 1, chunk == 1),)
    if isinstance(axis, ListAxis):
        return tuple(_list_parts(axis.indices, chunk, size))
    parts = _SliceParts(axis, chunk, size)
    return tuple(parts) if _chunks_on_axis(axis, chunk) < 1 << 16 else parts  # so that memory stays small


def _list_parts(indices: Indices, chunk: int, size: int) -> Iterator[AxisPart]:
    """The chunks that a list of indices (not empty) meets, each once, in ascending order."""
    cells = indices // chunk
    order = np.argsort(cells, kind="stable")
    cells, indices = cells[order], indices[order]
    for start, stop in _equal_stretches(cells):
        coord = int(cells[start])
        extent = min(chunk, size - coord * chunk)
        inside = _as_slice(indices[start:stop] - coord * chunk)
        covers = inside == slice(0, extent, 1) if isinstance(inside, slice) else False
        outside = _as_slice(order[start:stop])
        yield AxisPart(coord, inside, outside, stop - start, covers, covers and extent == chunk)


def _equal_stretches(values: Indices) -> Iterator[Run]:
    """The stretches in which sorted values, not empty, are equal."""
    return itertools.pairwise([0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)])


def _as_slice(indices: Indices) -> slice | Indices:
    """The same indices as a slice, if they form one."""
    step = int(indices[1]) - int(indices[0]) if len(indices) > 1 else 1
    if step and bool((np.diff(indices) == step).all()):
        return _progression_slice(int(indices[0]), step, len(indices))
    return indices


def _progression_slice(start: int, step: int, count: int) -> slice:
    stop = start + (count - 1) * step + (1 if step > 0 else -1)
    return slice(start, stop if stop >= 0 else None, step)


def _chunks_on_axis(axis: Axis, chunk: int) -> int:
    """How many chunks an axis of a selection meets."""
    if isinstance(axis, IndexAxis):
        return 1
    if isinstance(axis, ListAxis):
        return len(np.unique(axis.indices // chunk))
    if abs(axis.step) >= chunk or not axis.count:
        return axis.count
    last = axis.start + (axis.count - 1) * axis.step
    return abs(last // chunk - axis.start // chunk) + 1


def _product(axes: Sequence[Iterable[AxisPart]]) -> Iterator[tuple[AxisPart, ...]]:
    """All combinations, one part of each axis, the last axis fastest; lazy, unlike `itertools.product`."""
    if all(isinstance(axis, tuple) for axis in axes):
        return itertools.product(*axes)
    return ((part, *others) for part in axes[0] for others in _product(axes[1:]))


# --- copying -----------------------------------------------------------------------------------------------------


def _take(array: NDArray[Any], regions: Sequence[Region]) -> NDArray[Any]:
    """The cells of an orthogonal region; a copy if lists are among them."""
    if np.ndarray not in map(type, regions):
        return array[(*regions, ...)]
    view, lists = _basic(array, regions)
    for axis, indices in lists:
        view = view.take(indices, axis=axis)
    return view


def _place(array: NDArray[Any], regions: Sequence[Region], values: NDArray[Any]) -> None:
    """Assign to the cells of an orthogonal region."""
    if np.ndarray not in map(type, regions):
        array[(*regions, ...)] = values
        return
    view, lists = _basic(array, regions)
    if len(lists) == 1:
        axis, indices = lists[0]
        index: tuple[slice | Indices, ...] = (*(slice(None),) * axis, indices)
        view[index] = values
    else:
        chosen = dict(lists)
        view[np.ix_(*(chosen.get(i, np.arange(n)) for i, n in enumerate(view.shape[: lists[-1][0] + 1])))] = values


def _basic(array: NDArray[Any], regions: Sequence[Region]) -> tuple[NDArray[Any], list[tuple[int, Indices]]]:
    """A view with indices and slices applied, and the lists that remain, with their axes in that view."""
    axes = [region for region in regions if not isinstance(region, int)]
    lists = [(axis, region) for axis, region in enumerate(axes) if not isinstance(region, slice)]
    basic = [r if isinstance(r, int | slice) else slice(None) for r in regions]
    return array[(*basic, ...)], lists


# --- subarrays of fields, whose axes follow the array's -----------------------------------------------------------


def split_selection(selection: Selection, rank: int, field: Field | None) -> tuple[Selection, Field | None]:
    """What a selection takes of the array's ``rank`` axes, and the field with what it takes of its subarray."""
    outer, inner = Selection(selection.axes[:rank]), Selection(selection.axes[rank:])
    if field is None or inner.axes in ((), tuple(SliceAxis(0, 1, size) for size in field.shape)):
        return outer, field
    return outer, replace(field, shape=inner.shape, part=inner)


def values_of(field: Field, records: NDArray[Any]) -> NDArray[Any]:
    """The values of a field in records: a view of them, unless lists take of its subarray."""
    values: NDArray[Any] = records[field.name]
    return values if field.part is None else _take(values, _regions(field.part, values.ndim))


def put_values(field: Field, records: NDArray[Any], values: NDArray[Any]) -> None:
    """Put what `values_of` gave, and was changed since, back if it is not a view."""
    if field.part is not None and any(isinstance(axis, ListAxis) for axis in field.part.axes):
        found = records[field.name]
        _place(found, _regions(field.part, found.ndim), values)


def _regions(part: Selection, rank: int) -> list[Region]:
    regions: list[Region] = [slice(None)] * (rank - len(part.axes))
    for axis in part.axes:
        if isinstance(axis, SliceAxis):
            regions.append(_progression_slice(axis.start, axis.step, axis.count))
        else:
            regions.append(axis.index if isinstance(axis, IndexAxis) else axis.indices)
    return regions


# --- points ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PointProjection:
    """The scattered points that lie in one chunk. ``inside``: one index array per axis of the chunk; ``positions``:
    which points.

    ``out`` and ``values`` have one leading axis over all points; trailing subarray dimensions follow.
    """

    coords: Coords
    inside: tuple[Indices, ...]
    positions: Indices

    @property
    def covers_chunk(self) -> bool:
        """Never taken for granted: points may repeat."""
        return False

    @property
    def _cells(self) -> tuple[Any, ...]:
        """With an ellipsis, so that an array without axes never gives the bare item: that may be a list."""
        return (*self.inside, ...)

    def copy_out(self, chunk: NDArray[Any], out: NDArray[Any]) -> None:
        """Gather from the chunk into the output."""
        out[self.positions] = chunk[self._cells]

    def copy_in(self, values: NDArray[Any], chunk: NDArray[Any]) -> None:
        """Scatter into the chunk; of points that repeat the last one stays."""
        chunk[self._cells] = values[self.positions]

    def put_out(self, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Put ``values``, one for each of the chunk's points or the same one for all, where these go."""
        out[self.positions] = values

    def items(self, chunks: Sequence[int], order: str = "C") -> Indices:
        """The points as items of the stored chunk, counted in its order."""
        if not chunks:
            return np.zeros(len(self.positions), np.int64)
        return np.ravel_multi_index(self.inside, tuple(chunks), order="C" if order == "C" else "F")

    def reach(self, chunks: Sequence[int], order: Literal["C", "F"]) -> int:
        """How many items of the stored chunk, from the first on, hold all points."""
        return 1 + int(self.items(chunks, order).max())

    def item_runs(self, chunks: Sequence[int], order: str = "C", *, gap: int = 0, limit: int = 1024) -> list[Run]:
        """The runs of the stored chunk that hold the points; see `runs.chunk_runs`."""
        return bounded(merge_runs(runs_of(self.items(chunks, order)), gap), limit)


def broadcast_points(
    coordinates: Sequence[NDArray[np.integer] | Sequence[int] | int], shape: tuple[int, ...]
) -> tuple[Indices, ...]:
    """One int64 array per axis, all of the broadcast shape, negative ones wrapped.

    Raises `TooManyIndices` (also for too few), `IndexOutOfRange`, and `BadBody` if shapes do not broadcast.
    """
    if len(coordinates) != len(shape):
        raise TooManyIndices(len(coordinates), len(shape))
    arrays = [
        resolve_indices(np.asarray(values) if np.size(values) else np.zeros(np.shape(values), np.int64), axis, size)
        for axis, (values, size) in enumerate(zip(coordinates, shape, strict=True))
    ]
    try:
        return tuple(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = [list(array.shape) for array in arrays]
        raise BadBody("the coordinates do not broadcast", "equal or broadcastable shapes", shapes) from None


def project_points(
    coordinates: Sequence[NDArray[np.integer] | Sequence[int] | int], grid: ChunkGrid
) -> Iterator[PointProjection]:
    """The chunks that hold the points, each once; positions count the points in C order of the broadcast shape."""
    points = [array.reshape(-1) for array in broadcast_points(coordinates, grid.shape)]
    if not points:
        yield PointProjection((), (), np.zeros(1, np.int64))
        return
    if not len(points[0]):
        return
    chunks = grid.chunks
    cells = tuple([array // chunk for array, chunk in zip(points, chunks, strict=True)])
    if math.prod(grid.counts) < 2**63:
        numbers = np.ravel_multi_index(cells, grid.counts)
    else:
        numbers = np.unique(np.stack(cells), axis=1, return_inverse=True)[1].reshape(-1)
    order = np.argsort(numbers, kind="stable")
    for start, stop in _equal_stretches(numbers[order]):
        positions = order[start:stop]
        coords = tuple([int(array[positions[0]]) for array in cells])
        inside = [array[positions] - coord * n for array, coord, n in zip(points, coords, chunks, strict=True)]
        yield PointProjection(coords, tuple(inside), positions)
