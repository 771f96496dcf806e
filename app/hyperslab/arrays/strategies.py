"""The two ways to read what a plan selects: one chunk at a time, or many small ones together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Final

from hyperslab.arrays.batches import Batch, BatchReader, Changed, Group
from hyperslab.arrays.chunks import ChunkReader, NDArray, Pending, Piece
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.plan import Projection
from hyperslab.arrays.pool import WorkerPool, one_by_one
from hyperslab.arrays.sources import UNKNOWN
from hyperslab.arrays.touched import FEW, Chunks, ExactFill, LatestFill, Lookup
from hyperslab.engine.chunk_rows import ChunkRow, project_rows, single_row
from hyperslab.engine.grid import Coords

Versions = Mapping[Coords, str | None] | None

WORTH_THREADS: Final = 2 << 20
_SMALL_ITEM: Final = 256 << 10
"""Less work, in all or at once, is not worth handing to other threads (where no network is waited for): in bytes that
LZ4 makes in the same time."""

_WAITING: Final = 32 << 20
"""Decoded bytes of chunks that were fetched and wait to be placed: more than what threads have in hand, else these stop
whenever much arrives at once, and are missing afterwards."""


class ByChunk:
    """Reads chunk by chunk: on the caller's thread, and on those of ``pool`` where a network is waited for or much is
    decoded in large pieces. Small chunks from a network are fetched there, and decoded and placed by the caller.

    ``parts`` makes the ``count`` projections, again for each answer where they are many. ``far``: the chunks are
    fetched over a network. ``versioned``: somebody needs the versions, the cache or requests for parts of objects.
    """

    def __init__(
        self,
        chunks: ChunkReader,
        parts: Callable[[], Iterable[Projection]],
        count: int,
        *,
        pool: WorkerPool,
        far: bool,
        versioned: bool,
    ) -> None:
        self._chunks = chunks
        self._parts = parts
        self._count = count
        self._pool = pool
        self._far = far
        self._versioned = versioned
        self._kept = tuple(map(chunks.piece, parts())) if count <= FEW else None

    def fill(self, lookup: Lookup, out: NDArray, cost: ReadCost, cancel: Cancel | None) -> None:
        """See `touched.Strategy`."""
        versions = _versions(lookup, needed=self._versioned)

        def fetch(piece: Piece) -> Pending | None:
            return self._chunks.fetch(piece, _version(versions, piece), out, cost)

        self._read(fetch, lambda pending: self._chunks.finish(pending, out, cost), cancel)

    @property
    def exact(self) -> None:
        """See `touched.Strategy`: parts of large files are read without a look at their versions."""

    @property
    def latest(self) -> LatestFill | None:
        """See `touched.Strategy`: parts of objects are fetched by requests that have to know the version."""
        return self._fill_latest if self._far and not self._chunks.takes_parts else None

    def _fill_latest(
        self, current: Callable[[str], str | None], out: NDArray, cost: ReadCost, cancel: Cancel | None
    ) -> Mapping[Coords, str | None]:
        found: dict[Coords, str | None] = {}

        def fetch(piece: Piece) -> Pending | None:
            found[piece.projection.coords], pending = self._chunks.fetch_latest(piece, current, out, cost)
            return pending

        self._read(fetch, lambda pending: self._chunks.finish(pending, out, cost), cancel)
        return found

    def _read(
        self, fetch: Callable[[Piece], Pending | None], finish: Callable[[Pending], None], cancel: Cancel | None
    ) -> None:
        """All pieces: on this thread, or fetched on others, which finish what is much work there."""

        def place(pending: Pending | None) -> None:
            if pending is not None:
                finish(pending)

        pool, count = self._pool, self._count
        if count > 1 and self._far and self._is_little():
            waiting = max(1, _WAITING // self._chunks.nbytes)
            pool.gather(self._pieces(), count, fetch, place, waiting=waiting, nbytes=self._in_hand, cancel=cancel)
        elif count > 1 and (self._far or self._is_much()):
            pool.each(self._pieces(), count, lambda piece: place(fetch(piece)), cancel, nbytes=self._in_hand)
        else:
            one_by_one(self._pieces(), lambda piece: place(fetch(piece)), cancel)

    @property
    def _in_hand(self) -> int:
        """Bytes of memory that a chunk takes which is fetched from afar; near ones are as many as there are
        processors."""
        if not self._far:
            return 0
        return next(iter(self._pieces())).decoded() if self._chunks.takes_parts else self._chunks.nbytes

    def _pieces(self) -> Iterable[Piece]:
        return map(self._chunks.piece, self._parts()) if self._kept is None else self._kept

    def _is_little(self) -> bool:
        """Whether decoding a chunk is so little work that one thread does it for all that fetch."""
        return next(iter(self._pieces())).effort() < _SMALL_ITEM

    def _is_much(self) -> bool:
        """Whether one thread takes longer than it takes to wake another. Judged each time: how large the blocks of
        frames are is known when one was seen."""
        effort = next(iter(self._pieces())).effort()
        return effort >= _SMALL_ITEM and self._count * effort >= WORTH_THREADS


class Sharing(Enum):
    """How many small chunks are read: ``NONE``: on the caller's thread. ``BRIEF``: so few that the pool's threads only
    help where they have nothing to do. ``RELAY``: one thread fetches, the others decode. ``EACH``: each thread fetches
    and decodes batches of its own."""

    NONE = 0
    BRIEF = 1
    RELAY = 2
    EACH = 3


class InBatches:
    """Reads small chunks together: one batch after the other, or ``sharing`` the work with the threads of ``pool``.

    ``cached`` places what is cached, or known to be absent; None where nothing is.
    """

    def __init__(
        self, batches: BatchReader, chunks: Chunks, *, cached: ChunkReader | None, pool: WorkerPool, sharing: Sharing
    ) -> None:
        self._batches = batches
        self._chunks = chunks
        self._cached = cached
        self._pool = pool
        self._sharing = sharing
        self._most = min(batches.most, -(-chunks.count // pool.width)) if sharing is Sharing.BRIEF else batches.most
        self._groups = self._kept() if chunks.count <= FEW and cached is None else None

    def fill(self, lookup: Lookup, out: NDArray, cost: ReadCost, cancel: Cancel | None) -> None:
        """See `touched.Strategy`."""
        versions = _versions(lookup, needed=self._cached is not None)
        groups: Iterable[Group] | None = self._groups
        batches, pool = self._batches, self._pool
        if groups is None:
            cached = self._cached
            rows = self._rows() if cached is None else self._missing(cached, versions, out, cost)
            groups = batches.groups(rows, self._most)
        fetch = partial(batches.fetch, planned=lookup.by_key)
        if self._sharing is Sharing.EACH:
            count = -(-self._chunks.count // self._most)
            pool.each(groups, count, lambda group: batches.place(fetch(group), out, cost), cancel)
        elif self._sharing is Sharing.RELAY:
            batches.read_in_turn(iter(groups), fetch, out, cost, pool=pool, cancel=cancel)
        else:
            self._place(map(fetch, groups), out, cost, cancel)

    @property
    def latest(self) -> None:
        """See `touched.Strategy`: a look at the version of a file costs next to nothing."""

    @property
    def exact(self) -> ExactFill | None:
        """See `touched.Strategy`: for few chunks that nobody caches."""
        few = self._groups is not None and self._sharing in (Sharing.NONE, Sharing.BRIEF)
        return self._fill_exactly if few else None

    def _fill_exactly(self, versions: Mapping[str, str | None], out: NDArray, cost: ReadCost) -> bool:
        try:
            self._place(self._batches.fetched_exactly(self._groups or (), versions), out, cost, None)
        except Changed:
            return False
        return True

    def _place(self, batches: Iterator[Batch], out: NDArray, cost: ReadCost, cancel: Cancel | None) -> None:
        """Place what is fetched here, with some help or without."""

        def place(batch: Batch) -> None:
            self._batches.place(batch, out, cost)

        if self._sharing is Sharing.BRIEF:
            self._pool.relay(batches, place, cancel, brief=True)
        else:
            one_by_one(batches, place, cancel)

    def _kept(self) -> tuple[Group, ...]:
        if self._chunks.count == 1:  # which most often is read once only
            return (self._batches.group([single_row(next(self._chunks.projections()))]),)
        return tuple(self._batches.groups(self._rows(), self._most))

    def _rows(self) -> Iterator[ChunkRow]:
        return project_rows(self._chunks.selection, self._chunks.grid, self._most)

    def _missing(self, cached: ChunkReader, versions: Versions, out: NDArray, cost: ReadCost) -> Iterator[ChunkRow]:
        """What is to be read; the rest is placed."""
        for projection in self._chunks.projections():
            piece = cached.piece(projection)
            if not cached.read_cached(piece, _version(versions, piece), out, cost):
                yield single_row(projection)


def _versions(lookup: Lookup, *, needed: bool) -> Versions:
    """The versions of the chunks, where they are ``needed`` or known anyway; None also where there are too many."""
    if not needed and not lookup.done:
        lookup.forgo()
    return None if lookup.forgone else lookup().versions


def _version(versions: Versions, piece: Piece) -> str | None:
    return UNKNOWN if versions is None else versions[piece.projection.coords]
