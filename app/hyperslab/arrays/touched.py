"""The chunks that a plan touches: where they go in the answer, and which versions they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock

from hyperslab.engine.chunk_rows import ChunkRow, project_rows
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.engine.indexing import ChunkProjection, Selection, project, touched, touched_coords

Found = tuple[Mapping[Coords, str | None] | None, str]
"""Versions by chunk, and the tag."""

_MOST_PARTS = 1_024


class Lookup:
    """The versions of the chunks that a plan touches, asked for at first use, and the tag made of them.

    What is read before that could be older than the tag. So who reads without them says so with `forgo`, and asking
    for them later is an error. Safe to call from many threads.
    """

    __slots__ = ("_find", "_found", "_lock", "forgone")

    def __init__(self, find: Callable[[], Found]) -> None:
        self._find = find
        self._found: Found | None = None
        self._lock = Lock()
        self.forgone = False

    @property
    def done(self) -> bool:
        """Whether the store was asked already."""
        return self._found is not None

    def forgo(self) -> None:
        """Do without: data are about to be read."""
        with self._lock:
            self.forgone = self._found is None

    def __call__(self) -> Found:
        with self._lock:
            if self.forgone:
                raise RuntimeError("data were read before anyone asked for their versions")
            if self._found is None:
                self._found = self._find()
            return self._found


class Chunks:
    """The chunks that a selection touches. Where there are few they are worked out once, for whoever asks."""

    __slots__ = ("_grid", "_parts", "_rows", "_selection", "count")

    def __init__(self, selection: Selection, grid: ChunkGrid) -> None:
        self._selection, self._grid = selection, grid
        self._parts: tuple[ChunkProjection, ...] | None = None
        self._rows: tuple[ChunkRow, ...] | None = None
        self.count = touched(selection, grid)

    def projections(self) -> Iterator[ChunkProjection]:
        """The chunks and where they go in the answer."""
        if self.count > _MOST_PARTS:
            return project(self._selection, self._grid)
        if self._parts is None:
            self._parts = tuple(project(self._selection, self._grid))
        return iter(self._parts)

    def rows(self, most: int) -> Iterator[ChunkRow]:
        """The chunks in rows of at most ``most``, which is the same each time."""
        if self.count > _MOST_PARTS:
            return project_rows(self._selection, self._grid, most)
        if self._rows is None:
            self._rows = tuple(project_rows(self._selection, self._grid, most))
        return iter(self._rows)

    def coords(self) -> Iterator[Coords]:
        """The coordinates of the chunks, in the same order."""
        if self.count > _MOST_PARTS:
            return touched_coords(self._selection, self._grid)
        return iter([part.coords for part in self.projections()])
