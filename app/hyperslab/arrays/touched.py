"""The chunks that a plan touches: where they go in the answer, and which versions they have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from numpy.typing import NDArray

from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.engine.indexing import ChunkProjection, Selection, project, touched, touched_coords


class Found(NamedTuple):
    """The versions of chunks (None: absent) by coordinates and by key, neither of which is there where there are too
    many; and the tag."""

    versions: Mapping[Coords, str | None] | None
    by_key: Mapping[str, str | None] | None
    tag: str


FEW: Final = 1_024


class Lookup:
    """The versions of the chunks that a plan touches, asked for at first use, and the tag made of them.

    What is read before that could be older than the tag. So a reader that does without them says so with `forgo`, and
    to ask for them later is an error. Safe to call from many threads.
    """

    __slots__ = ("_conclude", "_find", "_found", "_lock", "forgone")

    def __init__(self, find: Callable[[], Found], conclude: Callable[[Mapping[Coords, str | None]], Found]) -> None:
        """``conclude`` makes of versions what ``find`` would have found."""
        self._find = find
        self._conclude = conclude
        self._found: Found | None = None
        self._lock = Lock()
        self.forgone = False

    def again(self) -> Lookup:
        """One that has found nothing yet."""
        return Lookup(self._find, self._conclude)

    @property
    def done(self) -> bool:
        """Whether the store was asked already."""
        return self._found is not None

    @property
    def by_key(self) -> Mapping[str, str | None] | None:
        """What was found, see `Found`; None where nobody has looked, or there are too many."""
        return None if self._found is None else self._found.by_key

    def forgo(self) -> None:
        """Do without: data are about to be read."""
        with self._lock:
            self.forgone = self._found is None

    def conclude(self, versions: Mapping[Coords, str | None]) -> None:
        """Do without a look-up: the data were read, and are of these versions (None: absent)."""
        with self._lock:
            self._found = self._conclude(versions)

    def __call__(self) -> Found:
        found = self._found
        if found is not None:
            return found
        with self._lock:
            if self.forgone:
                raise RuntimeError("data were read before anyone asked for their versions")
            if self._found is None:
                self._found = self._find()
            return self._found


class Chunks:
    """The chunks that a selection touches. Where there are `FEW` they are worked out once, for whoever asks.

    ``strategy``: how they are read, once somebody has decided it.
    """

    __slots__ = ("_parts", "count", "grid", "selection", "strategy")

    def __init__(self, selection: Selection, grid: ChunkGrid) -> None:
        self.selection, self.grid = selection, grid
        self.count = touched(selection, grid)
        self.strategy: Strategy | None = None
        self._parts: tuple[ChunkProjection, ...] | None = None

    def projections(self) -> Iterator[ChunkProjection]:
        """The chunks and where they go in the answer."""
        if self.count > FEW:
            return project(self.selection, self.grid)
        if self._parts is None:
            self._parts = tuple(project(self.selection, self.grid))
        return iter(self._parts)

    def coords(self) -> Iterator[Coords]:
        """The coordinates of the chunks, in the same order."""
        if self.count > FEW:
            return touched_coords(self.selection, self.grid)
        return iter([part.coords for part in self.projections()])


class Strategy(Protocol):
    """A way to read the chunks of a plan, for as many answers as want them. Safe to use from many threads."""

    def fill(self, lookup: Lookup, out: NDArray[Any], cost: ReadCost, cancel: Cancel | None) -> None:
        """Read into ``out``, which has the shape of the selection. Raises `ChunkCorrupt`, `StoreError`,
        `ChunkNotFound` and `Cancelled`."""
        ...

    @property
    def exact(self) -> ExactFill | None:
        """`fill` that verifies versions as well; None where they do not come with the data at no further cost."""
        ...

    @property
    def latest(self) -> LatestFill | None:
        """`fill` that finds the versions out as it reads; None where they are better looked up before."""
        ...


LatestFill: TypeAlias = Callable[
    [Callable[[str], str | None], NDArray[Any], ReadCost, Cancel | None], Mapping[Coords, str | None]
]
"""Reads chunks into an output, whichever versions they have, and returns these (None: absent). The first argument looks
up the version of a key."""

ExactFill: TypeAlias = Callable[[Mapping[str, str | None], NDArray[Any], ReadCost], bool]
"""Reads chunks of just these versions, by key (None: absent), into an output; False where one has another by now."""
