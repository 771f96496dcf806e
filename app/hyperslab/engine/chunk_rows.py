"""Chunks that follow each other along one axis, taken together: what they have in common is worked out only once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from numpy.typing import NDArray

from hyperslab.engine.axis_parts import AxisPart
from hyperslab.engine.grid import ChunkGrid
from hyperslab.engine.indexing import ChunkProjection, Source, axis_parts, axis_sources, is_plain, product
from hyperslab.engine.selection import Selection

_NO_AXES: Final = (AxisPart(0, 0, None, 1, covers=True, full=True),)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRow:
    """Chunks next to each other along ``axis``, with the same region selected in each.

    ``first`` is the part of the selection that lies in the first of them; ``along``: what each of them contributes on
    the axis.
    """

    first: ChunkProjection
    axis: int
    along: tuple[AxisPart, ...]

    def __len__(self) -> int:
        return len(self.along)

    def keys(self, prefix: str, grid: ChunkGrid) -> list[str]:
        """The keys of the chunks, behind the prefix of the array."""
        coords = self.first.coords
        if len(self.along) == 1:
            return [prefix + grid.key(coords)]
        before = prefix + "".join([f"{coord}{grid.separator}" for coord in coords[: self.axis]])
        after = "".join([f"{grid.separator}{coord}" for coord in coords[self.axis + 1 :]])
        return [f"{before}{part.coord}{after}" for part in self.along]

    def projections(self) -> Iterator[ChunkProjection]:
        """The chunks one by one."""
        if len(self.along) == 1:
            yield self.first
            return
        parts = self.first.parts
        for part in self.along:
            yield _projection((*parts[: self.axis], part, *parts[self.axis + 1 :]), self.first.plain)

    def move(self, at: int, inner: tuple[int, ...]) -> Move:
        """How to copy the selected cells, where the i-th chunk lies in row ``at + i`` of a stack of chunks.

        ``inner``: the axes behind those of the selection, in the output and in the chunks.
        """
        if not self.first.plain:
            return self._move_one_by_one(at)
        region, cells = self.first.chunk_region, self.first.out_region
        count = len(self.along)
        if count == 1:
            return PlainMove((at, *region, ...), (*cells, ...))
        axis = sum([part.outside is not None for part in self.first.parts[: self.axis]])
        length = self.along[0].length
        start: int = cells[axis].start  # type: ignore[union-attr]  # what is plain has slices
        cells = (*cells[:axis], slice(start, start + count * length), *cells[axis + 1 :])
        shape = (*self.first.shape, *inner)
        split = (*shape[:axis], count, *shape[axis:])
        axes = (axis, *range(axis), *range(axis + 1, len(split)))
        return PlainMove((slice(at, at + count), *region, ...), (*cells, ...), split, axes)

    def _move_one_by_one(self, at: int) -> Move:
        projections = tuple(self.projections())

        def move(stack: NDArray[Any], out: NDArray[Any]) -> None:
            for i, projection in enumerate(projections):
                projection.copy_out(stack[at + i], out)

        return move


Move: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], None]
"""Copies cells of a stack of chunks (the full chunk shape behind its first axis) into the output."""


class PlainMove:
    """A `Move` that is one assignment. ``region``: of the stack; ``cells``: of the output, the axes of which are
    ``split`` and put in the order of ``axes``, so that the chunks come first."""

    __slots__ = ("_axes", "_cells", "_region", "_split")

    def __init__(
        self,
        region: tuple[Any, ...],
        cells: tuple[Any, ...],
        split: tuple[int, ...] | None = None,
        axes: tuple[int, ...] = (),
    ) -> None:
        self._region = region
        self._cells = cells
        self._split = split
        self._axes = axes

    def __call__(self, stack: NDArray[Any], out: NDArray[Any]) -> None:
        if self._split is None:
            out[self._cells] = stack[self._region]
        else:
            out[self._cells].reshape(self._split).transpose(self._axes)[...] = stack[self._region]


def project_rows(selection: Selection, grid: ChunkGrid, most: int) -> Iterator[ChunkRow]:
    """The chunks that a selection touches, each once, in rows of at most ``most`` along the axis that has most of them;
    lazy."""
    sources = axis_sources(selection, grid)
    plain = is_plain(selection)
    if not sources:
        yield single_row(ChunkProjection((), (), plain))
        return
    axis = max(range(len(sources)), key=lambda i: (_length(sources[i]), i))
    source = sources[axis]
    rows = tuple(_rows(source, most)) if isinstance(source, tuple) else None
    for others in product([*sources[:axis], *sources[axis + 1 :]]):
        for along in _rows(axis_parts(source), most) if rows is None else rows:
            parts = (*others[:axis], along[0], *others[axis:])
            yield ChunkRow(_projection(parts, plain), axis, along)


def single_row(projection: ChunkProjection) -> ChunkRow:
    """A row of one chunk."""
    return ChunkRow(projection, 0, projection.parts[:1] or _NO_AXES)


def _length(source: Source) -> float:
    return len(source) if isinstance(source, tuple) else math.inf


def _rows(parts: Iterable[AxisPart], most: int) -> Iterator[tuple[AxisPart, ...]]:
    """Neighbours in which the same region is selected, by slices, in the order of the output."""
    row: list[AxisPart] = []
    for part in parts:
        if row and (len(row) == most or not _alike(row[0], part)):
            yield tuple(row)
            row = []
        row.append(part)
    if row:
        yield tuple(row)


def _alike(first: AxisPart, part: AxisPart) -> bool:
    if first.full and part.full:
        return True  # the usual case, and the quickest to tell
    slices = isinstance(first.inside, slice) and isinstance(first.outside, slice) and isinstance(part.outside, slice)
    return slices and isinstance(part.inside, slice) and first.inside == part.inside


def _projection(parts: tuple[AxisPart, ...], plain: bool) -> ChunkProjection:
    return ChunkProjection(tuple([part.coord for part in parts]), parts, plain)
