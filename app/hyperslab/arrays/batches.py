"""Many small chunks of a store that is near at a time: read one after the other, decoded, placed and kept together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np

from hyperslab.arrays.chunks import Caching, Keeper, NDArray
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.pool import WorkerPool
from hyperslab.arrays.scratch import Bytes
from hyperslab.engine.batch import BatchDecoder
from hyperslab.engine.chunk_rows import ChunkRow
from hyperslab.engine.dtypes import Field
from hyperslab.engine.runs import Run
from hyperslab.errors import ChunkCorrupt, ChunkNotFound
from hyperslab.storage.base import FileStore

_BATCH_BYTES: Final = 2 << 20
"""Decoded bytes of a batch."""
_MOST: Final = 64
_PATIENCE: Final = 0.00015
"""Seconds that it takes to read a small file which is in the page cache, in fresh memory and on a busy machine too."""


class Batch(NamedTuple):
    """Chunks in ``memory``: behind the room for the decoded ones, at ``extents``; fetched in ``seconds``.

    ``versions``: of those that are there, if they may be kept.
    """

    rows: Sequence[ChunkRow]
    keys: Sequence[str]
    memory: Bytes
    extents: Sequence[Run | None]
    versions: Sequence[str | None]
    seconds: float


class BatchReader:
    """Reads batches of the chunks of one array for one answer. Called from many threads.

    ``keeper``: puts some of them into the cache; ``keeps``: it may.
    """

    def __init__(
        self,
        array: ArrayNode,
        store: FileStore,
        decoder: BatchDecoder,
        *,
        field: Field | None,
        cost: ReadCost,
        keeper: Keeper,
    ) -> None:
        self.most = max(1, min(_MOST, _BATCH_BYTES // decoder.nbytes))
        self._array = array
        self._store = store
        self._decoder = decoder
        self._field = field.name if field is not None else None
        self._cost = cost
        self._scratch = keeper.memory.scratch
        self._keeper = keeper
        self.keeps = keeper.caching is not Caching.NEVER

    def batches(self, rows: Iterable[ChunkRow]) -> Iterator[list[ChunkRow]]:
        """Rows (of at most ``most`` chunks) put together as far as there is room in a batch."""
        batch: list[ChunkRow] = []
        size = 0
        for row in rows:
            if size + len(row) > self.most and batch:
                yield batch
                batch, size = [], 0
            batch.append(row)
            size += len(row)
        if batch:
            yield batch

    def read(self, rows: Sequence[ChunkRow], out: NDArray) -> None:
        """Place what ``rows`` select into ``out``; raises as `ChunkReader.read` does."""
        self.place(self.fetch(rows), out)

    def read_many(
        self, batches: Iterator[list[ChunkRow]], out: NDArray, *, pool: WorkerPool, cancel: Cancel | None
    ) -> None:
        """`read` for many batches, on the threads of ``pool`` too; raises `Cancelled` as well.

        Opening and closing files takes the interpreter, which two threads would wrest from each other again and again.
        So one thread fetches and the others decode; until it turns out that files are not in the page cache: those are
        waited for side by side.
        """
        pool.relay(self._fetched_quickly(batches), lambda batch: self.place(batch, out), cancel)
        if rest := list(batches):
            pool.each(rest, len(rest), lambda rows: self.read(rows, out), cancel)

    def _fetched_quickly(self, batches: Iterator[list[ChunkRow]]) -> Iterator[Batch]:
        """Batches as long as they are fetched in no time."""
        for rows in batches:
            batch = self.fetch(rows)
            yield batch
            if batch.seconds > _PATIENCE * len(batch.keys):
                return

    def fetch(self, rows: Sequence[ChunkRow]) -> Batch:
        """Read what is stored of some chunks."""
        array, decoder = self._array, self._decoder
        keys = [key for row in rows for key in row.keys(array.prefix, array.metadata.grid)]
        memory = self._scratch.take(len(keys) * decoder.nbytes + decoder.room_for(len(keys)))
        began = perf_counter()
        extents, versions = self._fetch(keys, self._split(memory, len(keys))[1].data)
        return Batch(rows, keys, memory, extents, versions, perf_counter() - began)

    def place(self, batch: Batch, out: NDArray) -> None:
        """Decode a batch, and place what is wanted of it."""
        began, decoder, keys, extents, memory = perf_counter(), self._decoder, batch.keys, batch.extents, batch.memory
        stack, stored = self._split(memory, len(keys))
        decoder.decode(stored, extents, stack, keys)
        chunks = decoder.chunks_in(stack)
        if self.keeps:
            for key, version, chunk in zip(keys, batch.versions, chunks, strict=True):
                if version is not None:
                    self._keeper.keep(key, version, chunk)
        self._place(batch.rows, self._filled(chunks, extents, keys), out)
        nbytes = sum([extent[1] - extent[0] for extent in extents if extent is not None])
        self._cost.chunk(nbytes, fetch=batch.seconds, decode=perf_counter() - began)
        del stack, stored, chunks
        self._scratch.give_back(memory)

    def _split(self, memory: Bytes, count: int) -> tuple[Bytes, Bytes]:
        """Where ``count`` decoded chunks go, a row each, and where what is stored of them lies; one and the same where
        chunks are decoded in place."""
        decoder = self._decoder
        decoded = count * decoder.nbytes
        stack = memory[:decoded].reshape(count, decoder.nbytes)
        return stack, memory if decoder.in_place else memory[decoded:]

    def _fetch(self, keys: Sequence[str], memory: memoryview) -> tuple[list[Run | None], list[str | None]]:
        """Where in ``memory`` each stored chunk is now, None for those that are absent; and the versions, where they
        are wanted."""
        decoder, room = self._decoder, self._decoder.room
        at = decoder.head_room(len(keys))
        extents: list[Run | None] = []
        versions: list[str | None] = []
        with self._store.files() as files:
            for key in keys:
                size = files.read_into(key, memory[at : at + room])
                if size is not None and size > room:
                    raise ChunkCorrupt(key, None, f"{size} bytes are more than a chunk can have")
                extents.append(None if size is None else (at, at + size))
                at += room if size is None or decoder.in_place else size
                if self.keeps:
                    versions.append(None if size is None else files.version)
        return extents, versions

    def _filled(self, chunks: NDArray, extents: Sequence[Run | None], keys: Sequence[str]) -> NDArray:
        """The chunks, with fill values where there are none."""
        for i, extent in enumerate(extents):
            if extent is None:
                if not self._array.mount.fill_missing:
                    raise ChunkNotFound(self._array.path, keys[i])
                chunks[i] = self._array.metadata.fill
        return chunks if self._field is None else chunks[self._field]

    def _place(self, rows: Sequence[ChunkRow], chunks: NDArray, out: NDArray) -> None:
        if chunks.dtype != out.dtype:
            with np.errstate(over="ignore"):  # numbers too large for a narrower dtype become infinite
                _copy_out(rows, chunks, out)
        else:
            _copy_out(rows, chunks, out)


def _copy_out(rows: Sequence[ChunkRow], chunks: NDArray, out: NDArray) -> None:
    at = 0
    for row in rows:
        row.copy_out(chunks[at : at + len(row)], out)
        at += len(row)
