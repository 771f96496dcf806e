"""From a selection to chunks: which chunks, which region of each, and where that goes in the output.

Reading and writing use the same `ChunkProjection`, one flipped. Output axes are those of `Selection.shape`; chunk,
output and values may have further axes behind them (the subarray dimensions of a field), which are copied whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hyperslab.engine.axis_parts import AxisPart, chunks_on_axis, list_parts, slice_parts
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.engine.points import PointProjection, broadcast_points, project_points
from hyperslab.engine.runs import Region, Run, chunk_runs
from hyperslab.engine.selection import Axis, IndexAxis, Indices, ListAxis, Selection, SliceAxis, blocks, normalise
from hyperslab.engine.slabs import split_rows

__all__ = [
    "Axis",
    "ChunkProjection",
    "IndexAxis",
    "ListAxis",
    "PointProjection",
    "Selection",
    "SliceAxis",
    "blocks",
    "broadcast_points",
    "normalise",
    "place",
    "project",
    "project_points",
    "split_rows",
    "take",
    "touched",
    "touched_coords",
]

_KEEP_BELOW = 1 << 16
"""Axes of fewer chunks than this are worked out once; longer ones again and again, so that memory stays small."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkProjection:
    """The part of a selection that lies in one chunk. ``plain``: no list of indices among the regions."""

    coords: Coords
    parts: tuple[AxisPart, ...]
    plain: bool

    @property
    def chunk_region(self) -> tuple[Region, ...]:
        """Per axis of the chunk: an index, a slice or an index array (orthogonal)."""
        return tuple([part.inside for part in self.parts])

    @property
    def out_region(self) -> tuple[slice | Indices, ...]:
        """Per axis of the output: a slice or an index array (orthogonal)."""
        return tuple([part.outside for part in self.parts if part.outside is not None])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the region in the output."""
        return tuple([part.length for part in self.parts if part.outside is not None])

    @property
    def size(self) -> int:
        """How many cells are selected."""
        return math.prod([part.length for part in self.parts])

    @property
    def covers_chunk(self) -> bool:
        """All cells of the chunk inside the array are selected, in order."""
        return all(part.covers for part in self.parts)

    @property
    def fills_chunk(self) -> bool:
        """As `covers_chunk`, and no edge cuts the chunk: nothing of it is left over."""
        return all(part.full for part in self.parts)

    def copy_out(self, chunk: NDArray[Any], out: NDArray[Any]) -> None:
        """Copy the selected cells of a chunk (full chunk shape) into the output."""
        if self.plain:
            out[(*self.out_region, ...)] = chunk[(*self.chunk_region, ...)]
        else:
            place(out, self.out_region, take(chunk, self.chunk_region))

    def copy_in(self, values: NDArray[Any], chunk: NDArray[Any]) -> None:
        """Copy values (shaped as the whole selection) into the selected cells of a chunk."""
        if self.plain:
            chunk[(*self.chunk_region, ...)] = values[(*self.out_region, ...)]
        else:
            place(chunk, self.chunk_region, take(values, self.out_region))

    def put_out(self, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Put ``values``, one for each selected cell (of ``shape``), where these go in the output.

        Or the same one everywhere there: 0-d, or of the subarray shape.
        """
        if self.plain:
            out[(*self.out_region, ...)] = values
        else:
            place(out, self.out_region, values)

    def contiguous_out(self, out: NDArray[Any], order: str = "C") -> NDArray[Any] | None:
        """The chunk's region of ``out``, shaped as the chunk, where the whole chunk can be decoded straight into it.

        None unless all of a chunk that no edge cuts is selected in order, and the region is contiguous in ``order``.
        """
        if not self.fills_chunk:
            return None
        view = self._contiguous_view(out, order)
        return None if view is None else view.reshape([part.length for part in self.parts], order=_np_order(order))

    def contiguous_run(
        self, out: NDArray[Any], chunks: Sequence[int], order: str = "C"
    ) -> tuple[int, NDArray[Any]] | None:
        """Where the selected cells are one run of the stored chunk and go to one stretch of ``out``: (start, stretch).

        ``start`` counts items of the stored chunk, ``stretch`` is a 1-d view of ``out``. None otherwise.
        """
        view = self._contiguous_view(out, order)
        start = None if view is None else _run_start(self.parts, chunks, order)
        return None if start is None or view is None else (start, view.reshape(-1, order=_np_order(order)))

    def item_runs(self, chunks: Sequence[int], order: str = "C", *, gap: int = 0, limit: int = 1024) -> list[Run]:
        """The runs of the stored chunk that hold the selected cells; see `runs.chunk_runs`."""
        return chunk_runs(self.chunk_region, chunks, order=order, gap=gap, limit=limit)

    def _contiguous_view(self, out: NDArray[Any], order: str) -> NDArray[Any] | None:
        if not all(isinstance(region, slice) for region in self.out_region):
            return None
        view = out[(*self.out_region, ...)]
        contiguous = view.flags.c_contiguous if order == "C" else view.flags.f_contiguous
        return view if contiguous else None


def project(selection: Selection, grid: ChunkGrid) -> Iterator[ChunkProjection]:
    """The chunks that a selection touches, each once, the last axis fastest; lazy."""
    axes = axis_sources(selection, grid)
    plain = is_plain(selection)
    for parts in product(axes):
        yield ChunkProjection(tuple([part.coord for part in parts]), parts, plain)


def is_plain(selection: Selection) -> bool:
    """Whether there are no lists of indices."""
    return ListAxis not in map(type, selection.axes)


def touched(selection: Selection, grid: ChunkGrid) -> int:
    """How many chunks `project` gives; from arithmetic, not by counting them."""
    if not selection.size:
        return 0
    return math.prod(map(chunks_on_axis, selection.axes, grid.chunks))


def touched_coords(selection: Selection, grid: ChunkGrid) -> Iterator[Coords]:
    """The coords of the chunks that `project` gives, in the same order."""
    for parts in product(axis_sources(selection, grid)):
        yield tuple([part.coord for part in parts])


# --- one axis ----------------------------------------------------------------------------------------------------

Source: TypeAlias = tuple[AxisPart, ...] | Callable[[], Iterator[AxisPart]]
"""The parts of a selection along one axis, or what makes them where there are very many."""


def axis_sources(selection: Selection, grid: ChunkGrid) -> list[Source]:
    """The parts along each axis; of an empty selection one axis without any."""
    if not selection.size:
        return [()]
    return [_axis_source(*facts) for facts in zip(selection.axes, grid.chunks, grid.shape, strict=True)]


def _axis_source(axis: Axis, chunk: int, size: int) -> Source:
    if isinstance(axis, IndexAxis):
        coord, offset = divmod(axis.index, chunk)
        extent = min(chunk, size - coord * chunk)
        return (AxisPart(coord, offset, None, 1, extent == 1, chunk == 1),)
    if isinstance(axis, ListAxis):
        return tuple(list_parts(axis.indices, chunk, size))
    if chunks_on_axis(axis, chunk) < _KEEP_BELOW:
        return tuple(slice_parts(axis, chunk, size))
    return lambda: slice_parts(axis, chunk, size)


def product(sources: list[Source]) -> Iterator[tuple[AxisPart, ...]]:
    """All combinations, one part of each axis, the last axis fastest; lazy."""
    kept = [source for source in sources if isinstance(source, tuple)]
    return itertools.product(*kept) if len(kept) == len(sources) else _lazy_product(sources)


def _lazy_product(sources: list[Source]) -> Iterator[tuple[AxisPart, ...]]:
    first, rest = sources[0], sources[1:]
    for part in axis_parts(first):
        for others in product(rest):
            yield (part, *others)


def axis_parts(source: Source) -> Iterable[AxisPart]:
    """The parts of one axis."""
    return source if isinstance(source, tuple) else source()


# --- copying -----------------------------------------------------------------------------------------------------


def take(array: NDArray[Any], regions: Sequence[Region]) -> NDArray[Any]:
    """The cells of an orthogonal region; a copy where lists are among them."""
    view, lists = _basic(array, regions)
    for axis, indices in lists:
        view = view.take(indices, axis=axis)
    return view


def place(array: NDArray[Any], regions: Sequence[Region], values: NDArray[Any]) -> None:
    """Assign to the cells of an orthogonal region."""
    view, lists = _basic(array, regions)
    if not lists:
        view[...] = values
    elif len(lists) == 1:
        axis, indices = lists[0]
        index: tuple[slice | Indices, ...] = (*(slice(None),) * axis, indices)
        view[index] = values
    else:
        chosen = dict(lists)
        view[np.ix_(*(chosen.get(i, np.arange(n)) for i, n in enumerate(view.shape[: lists[-1][0] + 1])))] = values


def _basic(array: NDArray[Any], regions: Sequence[Region]) -> tuple[NDArray[Any], list[tuple[int, Indices]]]:
    """A view with indices and slices applied, and the lists that remain, with their axes in that view."""
    kept = [region for region in regions if not isinstance(region, int)]
    lists = [(axis, region) for axis, region in enumerate(kept) if not isinstance(region, slice)]
    basic = [r if isinstance(r, int | slice) else slice(None) for r in regions]
    return array[(*basic, ...)], lists


def _run_start(parts: Sequence[AxisPart], chunks: Sequence[int], order: str) -> int | None:
    """The first item of the only run, or None: single cells outside, one stretch, then whole axes of the chunk."""
    start, stride, whole = 0, 1, True
    axes = list(zip(parts, chunks, strict=True))
    for part, size in reversed(axes) if order == "C" else axes:
        offset = part.inside.start if isinstance(part.inside, slice) else part.inside
        if not isinstance(offset, int) or (part.length > 1 and not (whole and _steps_by_one(part))):
            return None
        start += offset * stride
        stride *= size
        whole = whole and part.length == size
    return start


def _steps_by_one(part: AxisPart) -> bool:
    return isinstance(part.inside, slice) and part.inside.step == 1


def _np_order(order: str) -> Any:
    return order
