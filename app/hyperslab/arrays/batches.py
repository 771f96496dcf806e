"""Many small chunks of a near store at a time: read one after the other, then decoded, placed and cached together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np

from hyperslab.arrays.chunks import Caching, Keeper, NDArray
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.pool import WorkerPool
from hyperslab.arrays.scratch import Block, Bytes
from hyperslab.engine.batch import BatchDecoder, Joined
from hyperslab.engine.chunk_rows import ChunkRow, Move
from hyperslab.engine.dtypes import Field
from hyperslab.engine.runs import Run
from hyperslab.errors import ChunkCorrupt, ChunkNotFound
from hyperslab.storage.base import FileStore

BATCH_BYTES: Final = 2 << 20
"""Decoded bytes of a batch."""
_MOST: Final = 64
_MOST_VIEWS: Final = 16
_PATIENCE: Final = 0.00015
"""Seconds that it takes to read a small file which is in the page cache, in fresh memory and on a busy machine too."""


class Group(NamedTuple):
    """Chunks that are read together: their keys, and how to copy what is selected of all of them."""

    keys: tuple[str, ...]
    moves: tuple[Move, ...]


class Batch(NamedTuple):
    """A group that was fetched into a block, in ``seconds``; ``joined``: what is stored of its chunks.

    ``versions``: of those that are there, where somebody wants them. ``moved``: see `ReadCost`.
    """

    group: Group
    block: Block
    joined: Joined
    versions: Sequence[str | None]
    moved: bool
    seconds: float


class Changed(Exception):
    """A chunk has another version than the one that was asked for."""


class _Layout(NamedTuple):
    """A block as a decoder sees it: a ``stack`` of decoded chunks, a row each, seen as ``chunks`` of the array too, and
    room for what is ``stored`` of them, which is the stack's where chunks are decoded in place."""

    stack: Bytes
    chunks: NDArray
    stored: Bytes


class BatchReader:
    """Reads groups of the chunks of one array, or of one field. Safe to call from many threads.

    ``keeper``: puts some of them into the cache; ``keeps``: it may.
    """

    def __init__(
        self, array: ArrayNode, store: FileStore, decoder: BatchDecoder, *, field: Field | None, keeper: Keeper
    ) -> None:
        self.most = max(1, min(_MOST, BATCH_BYTES // decoder.nbytes))
        self.keeps = keeper.caching is not Caching.NEVER
        self._array = array
        self._files = store.files()
        self._decoder = decoder
        self._field = field.name if field is not None else None
        self._inner = field.shape if field is not None else ()
        self._scratch = keeper.memory.scratch
        self._keeper = keeper

    def groups(self, rows: Iterable[ChunkRow], most: int) -> Iterator[Group]:
        """Rows (of at most ``most`` chunks) put together as long as they are no more."""
        batch: list[ChunkRow] = []
        size = 0
        for row in rows:
            if size + len(row) > most and batch:
                yield self.group(batch)
                batch, size = [], 0
            batch.append(row)
            size += len(row)
        if batch:
            yield self.group(batch)

    def read_in_turn(
        self,
        groups: Iterator[Group],
        fetch: Callable[[Group], Batch],
        out: NDArray,
        cost: ReadCost,
        *,
        pool: WorkerPool,
        cancel: Cancel | None,
    ) -> None:
        """`fetch` and `place` many groups, on the threads of ``pool`` too; raises as `ChunkReader.read` does, and
        `Cancelled`.

        Opening and closing files needs the interpreter lock, over which two threads would fight again and again. So one
        thread fetches and the others decode, until it turns out that files are not in the page cache: several threads
        wait for those side by side.
        """
        pool.relay(_fetched_quickly(groups, fetch), lambda batch: self.place(batch, out, cost), cancel)
        if rest := list(groups):
            pool.each(rest, len(rest), lambda group: self.place(fetch(group), out, cost), cancel)

    def fetched_exactly(self, groups: Iterable[Group], versions: Mapping[str, str | None]) -> Iterator[Batch]:
        """Batches, as long as all chunks still have these versions (by key; None: absent); raises `Changed` then."""
        for group in groups:
            batch = self.fetch(group, planned=versions)
            if batch.moved:
                self._scratch.give_back(batch.block)
                raise Changed
            yield batch

    def group(self, rows: Sequence[ChunkRow]) -> Group:
        """Rows of at most ``most`` chunks in all as one group."""
        keys: list[str] = []
        moves: list[Move] = []
        for row in rows:
            moves.append(row.move(len(keys), self._inner))
            keys += row.keys(self._array.prefix, self._array.metadata.grid)
        return Group(tuple(keys), tuple(moves))

    def fetch(self, group: Group, *, planned: Mapping[str, str | None] | None = None) -> Batch:
        """Read what is stored of some chunks; the versions too where they are kept, or to be compared with those that
        were ``planned`` with."""
        decoder, keys = self._decoder, group.keys
        count, room = len(keys), decoder.room
        block = self._scratch.take(count * decoder.nbytes + decoder.room_for(count))
        stored = self._layout(block, count).stored
        versions: list[str | None] | None = [] if self.keeps or planned is not None else None
        began = perf_counter()
        extents = self._files.read_each(
            keys, stored.data, decoder.head_room(count), room, packed=not decoder.in_place, versions=versions
        )
        seconds = perf_counter() - began
        for key, extent in zip(keys, extents, strict=True):
            if extent is not None and extent[1] - extent[0] > room:
                raise ChunkCorrupt(key, None, f"{extent[1] - extent[0]} bytes are more than a chunk can have")
        moved = planned is not None and versions != [planned[key] for key in keys]
        return Batch(group, block, decoder.join(stored, extents), versions or (), moved, seconds)

    def place(self, batch: Batch, out: NDArray, cost: ReadCost) -> None:
        """Decode a batch, and place what is wanted of it."""
        began, decoder, keys, extents = perf_counter(), self._decoder, batch.group.keys, batch.joined.extents
        stack, chunks, _ = self._layout(batch.block, len(keys))
        decoder.decode(batch.joined, stack, keys)
        chunks = decoder.clean(chunks)
        if self.keeps:
            self._keep(batch, chunks)
        if None in extents:
            chunks = self._filled(chunks, extents, keys)
        self._move(batch.group.moves, chunks if self._field is None else chunks[self._field], out)
        cost.moved |= batch.moved
        nbytes = sum([extent[1] - extent[0] for extent in extents if extent is not None])
        cost.chunk(nbytes, fetch=batch.seconds, decode=perf_counter() - began)
        self._scratch.give_back(batch.block)

    def _layout(self, block: Block, count: int) -> _Layout:
        """The views of a block for ``count`` chunks; made once."""
        decoder, views = self._decoder, block.views
        layout: _Layout | None = views.get((decoder, count))
        if layout is None:
            if len(views) >= _MOST_VIEWS:
                views.clear()
            decoded = count * decoder.nbytes
            stack = block.memory[:decoded].reshape(count, decoder.nbytes)
            stored = block.memory if decoder.in_place else block.memory[decoded:]
            layout = views[decoder, count] = _Layout(stack, decoder.shaped(stack), stored)
        return layout

    def _keep(self, batch: Batch, chunks: NDArray) -> None:
        for key, version, chunk in zip(batch.group.keys, batch.versions, chunks, strict=True):
            if version is not None:
                self._keeper.keep(key, version, chunk)

    def _filled(self, chunks: NDArray, extents: Sequence[Run | None], keys: Sequence[str]) -> NDArray:
        """The chunks, with fill values where there are none."""
        for i, extent in enumerate(extents):
            if extent is None:
                if not self._array.mount.fill_missing:
                    raise ChunkNotFound(self._array.path, keys[i])
                chunks[i] = self._array.metadata.fill
        return chunks

    def _move(self, moves: Sequence[Move], chunks: NDArray, out: NDArray) -> None:
        if chunks.dtype == out.dtype:
            for move in moves:
                move(chunks, out)
        else:
            with np.errstate(over="ignore"):  # numbers too large for a narrower dtype become infinite
                for move in moves:
                    move(chunks, out)


def _fetched_quickly(groups: Iterator[Group], fetch: Callable[[Group], Batch]) -> Iterator[Batch]:
    """Batches, up to the first that takes long to fetch."""
    for group in groups:
        batch = fetch(group)
        yield batch
        if batch.seconds > _PATIENCE * len(group.keys):
            return
