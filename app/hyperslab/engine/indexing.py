"""Projection of selections onto chunks: regions of chunks and of the output, for reading and writing.

Output axes are those of `Selection.shape`; chunks, output and values may have further axes, of a field's subarray,
which are copied whole.
"""

from __future__ import annotations

import itertools
import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from hyperslab.engine.dtypes import Field
from hyperslab.engine.grid import ChunkGrid, Coords, GridAxis
from hyperslab.engine.runs import Region, Run, bounded, chunk_runs, merge_runs, runs_of
from hyperslab.engine.selection import (
    Axis,
    IndexAxis,
    Indices,
    ListAxis,
    Selection,
    SliceAxis,
    resolve_indices,
)
from hyperslab.errors import BadBody, NotRepresentable, TooManyIndices
from hyperslab.wire.times import cast_times

_MANY = 1 << 12
"""From this number of chunks along an axis on, their parts are made as they are used: a million live objects take
memory, and the collector of reference cycles stops all threads while it walks through them."""

T = TypeVar("T")
Part_co = TypeVar("Part_co", covariant=True)


class AxisPart(NamedTuple):
    """Part of a selection in one chunk, along one axis.

    ``inside``: region of the chunk; ``outside``: region of the output (None: the axis is dropped); ``covers``: all
    cells within the array are selected, in order; ``full``: and the chunk is within the array.
    """

    coord: int
    inside: Region
    outside: slice | Indices | None
    length: int
    covers: bool
    full: bool


@dataclass(slots=True, eq=False)
class ChunkProjection:
    """Part of a selection in one chunk."""

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
        """Whether all cells of the chunk within the array are selected, in order."""
        return False not in [part.covers for part in self.parts]

    @property
    def fills_chunk(self) -> bool:
        """Whether all cells of the chunk are selected, in order, and the chunk is within the array."""
        return False not in [part.full for part in self.parts]

    def copy_out(self, chunk: NDArray[Any], out: NDArray[Any]) -> None:
        """Copy the selected cells of a chunk (full chunk shape) into the output."""
        _place(out, self.out_region, _take(chunk, self.chunk_region))

    def copy_in(self, values: NDArray[Any], chunk: NDArray[Any]) -> None:
        """Copy values (shaped as the whole selection) into the selected cells of a chunk."""
        _place(chunk, self.chunk_region, _take(values, self.out_region))

    def put_out(self, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Assign ``values`` to the output: one for each selected cell, or the same for all (0-d, or of the subarray's
        shape)."""
        _place(out, self.out_region, values)

    def contiguous_out(self, out: NDArray[Any], order: str = "C") -> NDArray[Any] | None:
        """The chunk's region of ``out`` in the chunk's shape, for decoding in place; None unless `fills_chunk` and the
        region is contiguous in ``order``."""
        region = self.out_region if self.fills_chunk else None
        if region is None or np.ndarray in map(type, region):
            return None
        view = out[(*region, ...)]
        if not (view.flags.c_contiguous if order == "C" else view.flags.f_contiguous):
            return None
        return view.reshape([part.length for part in self.parts], order="C" if order == "C" else "F")

    def item_runs(self, chunks: Sequence[int], order: str = "C", *, gap: int = 0, limit: int = 1024) -> list[Run]:
        """Runs of the stored chunk with the selected cells; see `runs.chunk_runs`."""
        regions = self.chunk_region
        if np.ndarray in map(type, regions):
            return chunk_runs(regions, chunks, order=order, gap=gap, limit=limit)
        bounds = [
            (region.start, region.stop, region.step) if isinstance(region, slice) else region for region in regions
        ]
        return _runs_between(tuple(bounds), tuple(chunks), order, gap, limit)


def project(selection: Selection, grid: ChunkGrid) -> Iterator[ChunkProjection]:
    """The projections of a selection onto each chunk, the last axis fastest; lazy."""
    if 0 not in selection.shape:
        yield from _projections([*map(_axis_parts, selection.axes, grid.axes)])


class StoredParts(NamedTuple, Generic[Part_co]):
    """Projections of the chunks in the stored object at ``coords``, and their number."""

    coords: Coords
    parts: Iterable[Part_co]
    chunks: int


@dataclass(slots=True, eq=False)
class ShardAxis:
    """The selection along one axis of a shard: its ``part`` of the shard, and the parts of the chunks in it, which are
    made when they are asked for."""

    part: AxisPart
    axis: Axis
    chunks: GridAxis
    _parts: tuple[AxisPart, ...] = ()

    @property
    def parts(self) -> tuple[AxisPart, ...]:
        """The parts of the chunks, never empty."""
        if not self._parts:
            self._parts = tuple(_parts_between(self.axis, self.chunks, self.part.outside))
        return self._parts

    @property
    def count(self) -> int:
        """The number of the chunks."""
        axis, outside = self.axis, self.part.outside
        if self._parts or not isinstance(axis, SliceAxis) or not isinstance(outside, slice):
            return len(self.parts)
        return self.chunks.count_touched(axis.start + outside.start * axis.step, axis.step, self.part.length)


@dataclass(frozen=True, slots=True, eq=False)
class ShardParts:
    """Projections of the chunks of a shard, by axis. ``strided``: a slice or index is selected along each axis."""

    shard: tuple[ShardAxis, ...]
    strided: bool

    @property
    def whole(self) -> ChunkProjection:
        """The projection onto the shard itself, without its chunks."""
        parts = tuple([along.part for along in self.shard])
        return ChunkProjection(tuple([part.coord for part in parts]), parts)

    @property
    def axes(self) -> tuple[tuple[AxisPart, ...], ...]:
        return tuple([along.parts for along in self.shard])

    def __iter__(self) -> Iterator[ChunkProjection]:
        return _projections(self.axes)

    def boxes(self, most: int, chunks: Sequence[int]) -> Iterator[tuple[Iterable[ChunkProjection], ChunkBlock | None]]:
        """The chunks, of shape ``chunks``, in boxes of at most ``most``, the last axis longest: as blocks if there are
        several, all adjacent; else their projections."""
        axes, cuts = self.axes, list[list[tuple[AxisPart, ...]]]()
        for parts in reversed(axes):
            size = min(most, len(parts))
            most //= size
            cuts.append([parts[first : first + size] for first in range(0, len(parts), size)])
        for box in itertools.product(*reversed(cuts)):
            is_adjacent = all(abs(parts[-1].coord - parts[0].coord) < len(parts) for parts in box)
            if self.strided and is_adjacent and any(len(parts) > 1 for parts in box):
                yield (), ChunkBlock(box, tuple(chunks))
            else:
                yield _projections(box), None


def _projections(axes: Sequence[Iterable[AxisPart]]) -> Iterator[ChunkProjection]:
    for parts in _product(axes):
        yield ChunkProjection(tuple([part.coord for part in parts]), parts)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkBlock:
    """Adjacent chunks with a box selected from them: decoded contiguously and copied to the output at once, which is
    faster for small chunks than copying each."""

    axes: tuple[tuple[AxisPart, ...], ...]
    chunks: tuple[int, ...]

    @property
    def coords(self) -> NDArray[np.int64]:
        """Coords of the chunks, ``(n, rank)`` in ascending order."""
        first = np.array([min(parts[0].coord, parts[-1].coord) for parts in self.axes], np.int64)
        places: NDArray[np.int64] = np.indices([len(parts) for parts in self.axes]).reshape(len(first), -1).T
        return places + first

    def copy_out(self, decoded: NDArray[Any], out: NDArray[Any]) -> None:
        """Copy the selected cells of the chunks, the rows of ``decoded``, into the output."""
        rank, counts = len(self.chunks), [len(parts) for parts in self.axes]
        cut: list[Any] = [...]  # region of each chunk, along axes with a single one
        regions: list[Any] = []  # region of all chunks along an axis
        placed: list[Any] = []
        for parts, size in zip(self.axes, self.chunks, strict=True):
            first, last, whole = parts[0], parts[-1], slice(None)
            inside, outside = first.inside, first.outside
            if isinstance(inside, int):
                cut.append(slice(inside, inside + 1))
                regions.append(0)
                continue
            assert isinstance(inside, slice)
            assert isinstance(outside, slice)
            length, before = sum([part.length for part in parts]), size * max(0, first.coord - last.coord)
            region = _progression_slice(before + inside.start, inside.step, length)
            cut.append(whole if len(parts) > 1 else region)
            regions.append(region if len(parts) > 1 else whole)
            placed.append(slice(outside.start, outside.start + length))
        cells = decoded.reshape(*counts, *self.chunks)[tuple(cut)]
        pairs = [axis for pair in zip(range(rank), range(rank, 2 * rank), strict=True) for axis in pair]
        sizes = [count * size for count, size in zip(counts, cells.shape[rank:], strict=True)]
        out[(*placed, ...)] = fitting(cells.transpose(pairs).reshape(sizes)[(*regions, ...)], out.dtype)


def project_stored(selection: Selection, grid: ChunkGrid, stored: ChunkGrid) -> Iterator[StoredParts[ChunkProjection]]:
    """The projections of `project`, grouped by stored object (chunk or shard) of the grid ``stored``, the last axis
    fastest; lazy."""
    if grid is stored:
        for part in project(selection, grid):
            yield StoredParts(part.coords, (part,), 1)
    elif 0 not in selection.shape:
        by_shard = map(_ShardAxes, selection.axes, grid.axes, stored.axes)
        axes = [_held_if_few(along, along.axis, along.chunks) for along in by_shard]
        strided = not any(isinstance(axis, ListAxis) for axis in selection.axes)
        for shard in _product(axes):
            coords, chunks = tuple([along.part.coord for along in shard]), math.prod([along.count for along in shard])
            yield StoredParts(coords, ShardParts(shard, strided), chunks)


def count_by_object(selection: Selection, grid: ChunkGrid, stored: ChunkGrid) -> Iterator[tuple[Coords, int]]:
    """The coords of the objects of `project_stored`, in the same order, each with the number of its chunks: by
    arithmetic, at a cost that does not grow with the chunks of an object."""
    if 0 in selection.shape:
        return
    if grid is stored:
        for coords in _product([*map(_axis_coords, selection.axes, grid.axes)]):
            yield coords, 1
        return
    axes = [_counts(*facts) for facts in zip(selection.axes, grid.axes, stored.axes, strict=True)]
    counts = _product([along for _, along in axes])
    yield from zip(_product([along for along, _ in axes]), map(math.prod, counts), strict=True)


def _counts(axis: Axis, chunks: GridAxis, shards: GridAxis) -> tuple[Sequence[int], Sequence[int]]:
    """The shards of a selection along one axis, in its order, and the number of its chunks in each."""
    if isinstance(axis, IndexAxis):
        return (shards.locate(axis.index)[0],), (1,)
    if isinstance(axis, ListAxis):
        cells = np.unique(chunks.cells(axis.indices)) * chunks.chunk
        coords, numbers = np.unique(shards.cells(cells), return_counts=True)
        return _bounded(coords), _bounded(numbers)
    start, step, count = axis.start, axis.step, axis.count
    if shards.count_touched(start, step, count) < 64:  # numpy is slower
        parts = tuple(_slice_parts(axis, shards, 0, count))
        firsts = itertools.accumulate([part.length * step for part in parts], initial=start)
        few = [chunks.count_touched(first, step, part.length) for first, part in zip(firsts, parts, strict=False)]
        return tuple([part.coord for part in parts]), tuple(few)
    lowest, highest = sorted([start, start + step * (count - 1)])
    coords = np.arange(shards.locate(lowest)[0], shards.locate(highest)[0] + 1)
    cuts = np.concatenate(
        [[0], -((lowest - shards.origins(coords[1:])) // abs(step)), [count]]
    )  # items before each end
    lengths = np.diff(cuts)
    filled = np.flatnonzero(lengths)
    begins, ends = (lowest + abs(step) * items[filled] for items in (cuts[:-1], cuts[1:] - 1))
    numbers = lengths[filled] if abs(step) >= chunks.chunk else ends // chunks.chunk - begins // chunks.chunk + 1
    direction = 1 if step > 0 else -1
    return _bounded(coords[filled][::direction]), _bounded(numbers[::direction])


def _bounded(values: Indices) -> Sequence[int]:
    """Integers as a tuple, or in less memory if there are very many."""
    return tuple(values.tolist()) if len(values) < 1 << 16 else array("q", values.tobytes())


def touched(selection: Selection, grid: ChunkGrid) -> int:
    """Number of chunks of a selection, by arithmetic."""
    count = 1
    for axis, chunks in zip(selection.axes, grid.axes, strict=True):
        if isinstance(axis, ListAxis):
            count *= len(np.unique(chunks.cells(axis.indices)))
        elif isinstance(axis, SliceAxis):
            count *= chunks.count_touched(axis.start, axis.step, axis.count)
    return count


# --- one axis ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _AxisParts:
    """The parts along one axis; made by each iteration."""

    axis: Axis
    chunks: GridAxis

    def __iter__(self) -> Iterator[AxisPart]:
        return _parts_between(self.axis, self.chunks, None)


@dataclass(slots=True)
class _ShardAxes:
    """The selection along one axis, by shard; made by each iteration."""

    axis: Axis
    chunks: GridAxis
    shards: GridAxis

    def __iter__(self) -> Iterator[ShardAxis]:
        for part in _parts_between(self.axis, self.shards, None):
            yield ShardAxis(part, self.axis, self.chunks)


def _axis_parts(axis: Axis, chunks: GridAxis) -> Iterable[AxisPart]:
    """The parts of a selection along one axis: a tuple, or lazy if there are many."""
    return _held_if_few(_AxisParts(axis, chunks), axis, chunks)


def _held_if_few(parts: Iterable[T], axis: Axis, chunks: GridAxis) -> Iterable[T]:
    """The parts along one axis as a tuple, but those of a slice of many chunks as they are: a list would be sorted by
    each iteration."""
    is_long = isinstance(axis, SliceAxis) and chunks.count_touched(axis.start, axis.step, axis.count) >= _MANY
    return parts if is_long else tuple(parts)


def _parts_between(axis: Axis, grid: GridAxis, outside: slice | Indices | None) -> Iterator[AxisPart]:
    """The parts of a selection along one axis, in ascending order of chunks for a list: all of them, or of the items
    at some positions ``outside``, in the output."""
    if isinstance(axis, IndexAxis):
        coord, offset = grid.locate(axis.index)
        return iter([AxisPart(coord, offset, None, 1, grid.extent(coord) == 1, grid.span(coord)[1] == 1)])
    if isinstance(axis, ListAxis):
        if not isinstance(outside, np.ndarray):
            outside = np.arange(*(outside or slice(None)).indices(axis.count))
        return _list_parts(axis.indices, outside, grid)
    first, stop = (outside.start, outside.stop) if isinstance(outside, slice) else (0, axis.count)
    return _slice_parts(axis, grid, first, stop)


def _slice_parts(axis: SliceAxis, grid: GridAxis, first: int, stop: int) -> Iterator[AxisPart]:
    """The parts of the items ``[first, stop)`` of a slice, in its direction."""
    start, step = axis.start, axis.step
    done, chunk = first, grid.chunk
    while done < stop:
        coord, offset = grid.locate(start + done * step)
        if grid.edges:
            chunk = grid.span(coord)[1]
        room = (chunk - 1 - offset) // step if step > 0 else offset // -step
        length = min(stop - done, room + 1)
        extent = min(chunk, grid.size - start - done * step + offset)
        covers = length == extent and (step == 1 or extent == 1)
        inside = _progression_slice(offset, step, length)
        yield AxisPart(coord, inside, slice(done, done + length), length, covers, covers and extent == chunk)
        done += length


def _axis_coords(axis: Axis, grid: GridAxis) -> Sequence[int]:
    """The chunks of `_axis_parts`, in the same order."""
    if isinstance(axis, SliceAxis):
        first, last = (grid.locate(axis.start + i * axis.step)[0] for i in (0, axis.count - 1))
        direction = 1 if last >= first else -1
        if grid.count_touched(axis.start, axis.step, axis.count) == abs(last - first) + 1:
            between = range(first, last + direction, direction)
            return tuple(between) if len(between) < 1 << 16 else between
    parts = _axis_parts(axis, grid)
    coords = (part.coord for part in parts)
    return tuple(coords) if isinstance(parts, tuple) else array("q", coords)  # bounds memory


def _list_parts(indices: Indices, positions: Indices, grid: GridAxis) -> Iterator[AxisPart]:
    """The parts of the indices at some ``positions``, not empty, in ascending order of chunks."""
    cells = grid.cells(indices[positions])
    order = np.argsort(cells, kind="stable")
    cells, order = cells[order], positions[order]
    indices = indices[order]
    for start, stop in _equal_runs(cells):
        coord = int(cells[start])
        first, chunk = grid.span(coord)
        extent = grid.extent(coord)
        inside = _as_slice(indices[start:stop] - first)
        covers = inside == slice(0, extent, 1) if isinstance(inside, slice) else False
        outside = _as_slice(order[start:stop])
        yield AxisPart(coord, inside, outside, stop - start, covers, covers and extent == chunk)


def _equal_runs(values: Indices) -> Iterator[Run]:
    """Runs of equal values among sorted ones, not empty."""
    return itertools.pairwise([0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)])


def _as_slice(indices: Indices) -> slice | Indices:
    """Indices as a slice, if evenly spaced."""
    step = int(indices[1]) - int(indices[0]) if len(indices) > 1 else 1
    if step and bool((np.diff(indices) == step).all()):
        return _progression_slice(int(indices[0]), step, len(indices))
    return indices


def _progression_slice(start: int, step: int, count: int) -> slice:
    stop = start + (count - 1) * step + (1 if step > 0 else -1)
    return slice(start, stop if stop >= 0 else None, step)


def _product(axes: Sequence[Iterable[T]]) -> Iterator[tuple[T, ...]]:
    """`itertools.product`, but lazy in its arguments."""
    if {*map(type, axes)} <= {tuple}:
        return itertools.product(*axes)
    return ((*others, part) for others in _product(axes[:-1]) for part in axes[-1])


@lru_cache(256)
def _runs_between(
    bounds: tuple[int | tuple[int, int | None, int], ...], chunks: tuple[int, ...], order: str, gap: int, limit: int
) -> list[Run]:
    """`chunk_runs` of indices and slices, cached, as most chunks of a selection have the same."""
    regions = [slice(*cut) if isinstance(cut, tuple) else cut for cut in bounds]
    return chunk_runs(regions, chunks, order=order, gap=gap, limit=limit)


# --- copying -----------------------------------------------------------------------------------------------------


def _take(array: NDArray[Any], regions: Sequence[Region]) -> NDArray[Any]:
    """The cells of an orthogonal region; a copy if there are index arrays."""
    if np.ndarray not in map(type, regions):
        return array[(*regions, ...)]
    view, lists = _basic(array, regions)
    for axis, indices in lists:
        view = view.take(indices, axis=axis)
    return view


def _place(array: NDArray[Any], regions: Sequence[Region], values: NDArray[Any]) -> None:
    """Assign to the cells of an orthogonal region; raises `NotRepresentable` as `fitting`."""
    if array.dtype.kind in "mM":
        values = fitting(values, array.dtype)
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


def fitting(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Times in the unit of ``dtype``, if that is one of times, else the values as they are; raises `NotRepresentable`
    for a time out of its range."""
    if dtype.kind not in "mM" or values.dtype.kind not in "mM" or values.dtype == dtype:
        return values
    try:
        return cast_times(values, dtype)
    except OverflowError as error:
        raise NotRepresentable(values.dtype.str, dtype.str, str(error)) from error


def _basic(array: NDArray[Any], regions: Sequence[Region]) -> tuple[NDArray[Any], list[tuple[int, Indices]]]:
    """A view with indices and slices applied, and the index arrays with their axes in that view."""
    axes = [region for region in regions if not isinstance(region, int)]
    lists = [(axis, region) for axis, region in enumerate(axes) if not isinstance(region, slice)]
    basic = [r if isinstance(r, int | slice) else slice(None) for r in regions]
    return array[(*basic, ...)], lists


# --- subarrays of fields, whose axes follow the array's -----------------------------------------------------------


def values_of(field: Field, records: NDArray[Any]) -> NDArray[Any]:
    """The values of a field in records; a view unless its ``part`` has lists."""
    values: NDArray[Any] = records[field.name]
    return values if field.part is None else _take(values, _regions(field.part, values.ndim))


def put_values(field: Field, records: NDArray[Any], values: NDArray[Any]) -> None:
    """Write back changed values of `values_of`, unless they are a view."""
    if field.part is not None and any(isinstance(axis, ListAxis) for axis in field.part.axes):
        target = records[field.name]
        _place(target, _regions(field.part, target.ndim), values)


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
    """Points in one chunk. ``inside``: an index array per axis of the chunk; ``positions``: indices of the points.

    ``out`` and ``values`` have an axis of all points, followed by those of a subarray.
    """

    coords: Coords
    inside: tuple[Indices, ...]
    positions: Indices

    @property
    def covers_chunk(self) -> bool:
        """Always False, as points may repeat."""
        return False

    @property
    def _cells(self) -> tuple[Any, ...]:
        """Index of the points, with an ellipsis so that a 0-d object array returns an array."""
        return (*self.inside, ...)

    def copy_out(self, chunk: NDArray[Any], out: NDArray[Any]) -> None:
        """Gather from the chunk to the output."""
        out[self.positions] = chunk[self._cells]

    def copy_in(self, values: NDArray[Any], chunk: NDArray[Any]) -> None:
        """Scatter into the chunk; of repeated points the last one wins."""
        chunk[self._cells] = values[self.positions]

    def put_out(self, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Assign ``values`` to the output: one for each point of the chunk, or the same for all."""
        out[self.positions] = values

    def item_runs(self, chunks: Sequence[int], order: str = "C", *, gap: int = 0, limit: int = 1024) -> list[Run]:
        """Runs of the stored chunk with the points; see `runs.chunk_runs`."""
        items = np.zeros(len(self.positions), np.int64)  # of rank 0
        if chunks:
            items = np.ravel_multi_index(self.inside, tuple(chunks), order="C" if order == "C" else "F")
        return bounded(merge_runs(runs_of(items), gap), limit)


def broadcast_points(
    coordinates: Sequence[NDArray[np.integer] | Sequence[int] | int], shape: tuple[int, ...]
) -> tuple[Indices, ...]:
    """An int64 array per axis, in the broadcast shape, without negative indices.

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


@dataclass(frozen=True, slots=True, eq=False)
class PointsByChunk:
    """Points by chunk, and chunks by stored object, as arrays of numbers; iteration makes the projections.

    ``cells`` and ``inside``: per axis, the chunk of each point and its place there; ``positions``: its index.
    ``chunks``: where the points of each chunk begin, and the end; ``objects``: where the chunks of each object begin in
    ``chunks``, and the end.
    """

    cells: tuple[Indices, ...]
    inside: tuple[Indices, ...]
    positions: Indices
    chunks: Sequence[int]
    objects: Sequence[int]

    def __len__(self) -> int:
        return len(self.chunks) - 1

    def __iter__(self) -> Iterator[PointProjection]:
        return self.between(0, len(self))

    def between(self, first: int, stop: int) -> Iterator[PointProjection]:
        """The projections of the chunks ``[first, stop)``."""
        for start, end in itertools.pairwise(self.chunks[first : stop + 1]):
            coords = tuple([int(along[start]) for along in self.cells])
            inside = tuple([along[start:end] for along in self.inside])
            yield PointProjection(coords, inside, self.positions[start:end])


def project_points(
    coordinates: Sequence[NDArray[np.integer] | Sequence[int] | int], grid: ChunkGrid, stored: ChunkGrid
) -> PointsByChunk:
    """The projections of points onto each chunk of ``grid``, by object of the grid ``stored``; positions count points
    in C order of the broadcast shape."""
    points = [axis.reshape(-1) for axis in broadcast_points(coordinates, grid.shape)]
    if not points:
        return PointsByChunk((), (), np.zeros(1, np.int64), (0, 1), (0, 1))
    if not len(points[0]):
        return PointsByChunk((), (), np.zeros(0, np.int64), (0,), (0,))
    cells = [axis.cells(items) for items, axis in zip(points, grid.axes, strict=True)]
    outer = [axis.cells(items) for items, axis in zip(points, stored.axes, strict=True)] if stored is not grid else []
    order = np.lexsort([*reversed(cells), *reversed(outer)])
    ordered = [along[order] for along in cells]
    chunks = _changes(ordered)
    objects: Sequence[int] = range(len(chunks))
    if outer:
        objects = _bounded(np.searchsorted(chunks, _changes([along[order] for along in outer])))
    inside = [(items - axis.origins(cell))[order] for items, axis, cell in zip(points, grid.axes, cells, strict=True)]
    return PointsByChunk(tuple(ordered), tuple(inside), order, _bounded(chunks), objects)


def _changes(arrays: Sequence[Indices]) -> Indices:
    """Where runs of equal items of all ``arrays`` begin, and the end."""
    changes = np.any([np.diff(along) != 0 for along in arrays], axis=0)
    return np.concatenate([[0], np.flatnonzero(changes) + 1, [len(arrays[0])]])


# --- slabs: consecutive parts of the C-order output, of limited size and aligned to chunks ---------------------------

Slab: TypeAlias = tuple[Selection, int, int]
"""A selection, and the range of bytes ``[start, stop)`` that it is of the whole output."""


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
    """Slabs of at most ``limit_bytes`` (but at least one item) that overlap the bytes ``[start, stop)``, in order.

    ``inner_shape``: subarray dimensions after the selection's; ``itemsize``: bytes of one of their items. A slab is a
    number of whole chunk rows of the outermost axis, or a part of one that is too large. Boundaries do not depend on
    ``start`` and ``stop``; slabs before ``start`` are skipped by arithmetic.
    """
    cell = math.prod(inner_shape) * itemsize
    total = selection.size * cell
    end = total if stop is None else min(stop, total)

    def cut(selection: Selection, axis: int, base: int) -> Iterator[Slab]:
        """Divide along an output axis; ``base``: first byte of the selection's output. Earlier axes have length 1."""
        shape = selection.shape
        if axis == len(shape):
            yield selection, base, base + cell
            return
        row_nbytes = math.prod(shape[axis + 1 :]) * cell
        fit = max(limit_bytes // row_nbytes, 1)
        for a, b in _row_ranges(selection, axis, grid, fit, max(start - base, 0) // row_nbytes):
            if base + a * row_nbytes >= end:
                return
            part = selection.restrict(axis, a, b)
            if row_nbytes > max(limit_bytes, 1):
                yield from cut(part, axis + 1, base + a * row_nbytes)
            else:
                yield part, base + a * row_nbytes, base + b * row_nbytes

    if start < end:
        yield from cut(selection, 0, 0)


def _row_ranges(selection: Selection, axis: int, grid: ChunkGrid, fit: int, first: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most ``fit`` positions of an output axis, starting with the one of position ``first``: as many whole
    chunk rows as fit, or equal parts of a larger one."""
    row_of, longest = _chunk_rows(selection, axis, grid)
    length = selection.shape[axis]
    rows = max(fit // longest, 1)
    for row in range(row_of(first) // rows * rows, row_of(length - 1) + 1, rows):
        begin, end = (bisect_left(range(length), edge, key=row_of) for edge in (row, row + rows))
        if begin == end:  # no selected position in these rows
            continue
        size = -(-(end - begin) // -(-(end - begin) // fit))
        for a in range(begin + max(first - begin, 0) // size * size, end, size):
            yield a, min(a + size, end)


def _chunk_rows(selection: Selection, out_axis: int, grid: ChunkGrid) -> tuple[Callable[[int], int], int]:
    """A function from a position of an output axis to its chunk row, counted from the first, and the length of the
    longest row."""
    array_axis = selection.output_axes[out_axis]
    axis, of_grid = selection.axes[array_axis], grid.axes[array_axis]
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
