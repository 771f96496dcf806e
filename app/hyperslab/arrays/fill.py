"""From a plan to the values: through the cache or around it, many small chunks together, and on how many threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock

from hyperslab.arrays.batches import BATCH_BYTES, BatchReader
from hyperslab.arrays.chunks import Caching, ChunkCache, ChunkMemory, ChunkReader, Keeper, NDArray, Piece
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.plan import MOST_KEPT, PointsPlan, Projection, ReadPlan
from hyperslab.arrays.pool import WorkerPool
from hyperslab.arrays.scratch import Scratch
from hyperslab.arrays.strategies import WORTH_THREADS, ByChunk, InBatches, Sharing
from hyperslab.arrays.touched import FEW, Chunks, ExactFill, LatestFill, Strategy
from hyperslab.cache import Recent
from hyperslab.engine.indexing import Selection, SliceAxis
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.storage.base import file_store

_LARGEST_SHARE = 4
"""No answer puts more than a quarter of the cache's size into it."""
_SMALL_ANSWER = 16 << 20
_MOST_RECENT = 100_000
LARGEST_SLAB = 4
_WORTH_HELP = 1 << 20
_WORTH_RELAY = 4 << 20
"""Less work with small chunks, all of which one thread fetches, is not worth handing to idle threads, or to busy ones:
in bytes that LZ4 makes in the same time."""
_SMALL_CHUNK = 256 << 10
"""Chunks of fewer bytes are read and decoded in batches."""


class Filler:
    """Reads what plans select: decides how, once for each plan. Safe to call from many threads; blocks on the store."""

    def __init__(self, cache: ChunkCache, slab_bytes: int) -> None:
        self._cache = cache
        self._memory = ChunkMemory(cache, Recent(_MOST_RECENT), Scratch())
        self._slab_bytes = slab_bytes
        self._pools: dict[str, WorkerPool] = {}
        self._lock = Lock()

    def fill(self, plan: ReadPlan | PointsPlan, out: NDArray, cost: ReadCost, cancel: Cancel | None) -> None:
        """Read all of a plan. Raises `ChunkCorrupt`, `StoreError`, `ChunkNotFound` and `Cancelled`."""
        if cancel is not None:
            cancel.check()
        cost.add(touched=plan.touched)
        self._strategy(plan).fill(plan.lookup, out, cost, cancel)

    def fill_part(
        self, plan: ReadPlan, part: Selection, out: NDArray, *, cost: ReadCost, cancel: Cancel | None
    ) -> None:
        """Read a part of a plan's selection; raises as `fill` does."""
        if cancel is not None:
            cancel.check()
        chunks = Chunks(part, plan.array.metadata.grid)
        cost.add(touched=chunks.count)
        self._choose(plan, chunks).fill(plan.lookup, out, cost, cancel)

    def exact(self, plan: ReadPlan) -> ExactFill | None:
        """See `Strategy`."""
        return self._strategy(plan).exact

    def latest(self, plan: ReadPlan | PointsPlan) -> LatestFill | None:
        """See `Strategy`."""
        return self._strategy(plan).latest

    def read_cached(self, plan: ReadPlan | PointsPlan, out: NDArray, cost: ReadCost) -> bool:
        """Read all of a plan whose versions are known, if that needs no I/O; False where it does."""
        versions, chunks = plan.versions or {}, self._chunk_reader(plan, self._caching(plan))
        for projection in plan.projections():
            piece = chunks.piece(projection)
            if not chunks.read_cached(piece, versions[projection.coords], out, cost):
                return False
        cost.add(touched=plan.touched)
        return True

    def effort(self, plan: ReadPlan) -> float:
        """About what reading takes once the stored bytes are in memory: in bytes that LZ4 makes in the same time."""
        metadata, first = plan.array.metadata, next(iter(plan.projections()), None)
        if self._caching(plan) is not Caching.NEVER or first is None:  # what is cached is decoded whole
            return plan.touched * metadata.chunk_nbytes * metadata.codec.effort
        return plan.touched * Piece(plan.array, first).effort()

    def pool(self, mount: MountedStore) -> WorkerPool:
        """The threads of a store."""
        with self._lock:
            pool = self._pools.get(mount.name)
            if pool is None:
                store = mount.store.capabilities
                pool = self._pools[mount.name] = WorkerPool(store.width, mount.name, near=store.cheap_stat)
            return pool

    def forget(self) -> None:
        """See `Reader.forget`."""
        self._memory.cache.clear()
        self._memory.recent.clear()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _strategy(self, plan: ReadPlan | PointsPlan) -> Strategy:
        """The strategy for all of a plan, which is kept where it is small."""
        if isinstance(plan, PointsPlan):
            return self._by_chunk(plan, plan.projections, plan.touched, self._caching(plan))
        chunks = plan.chunks
        if chunks.strategy is not None:
            return chunks.strategy
        strategy = self._choose(plan, chunks)
        if chunks.count <= FEW:
            chunks.strategy = strategy
        return strategy

    def _choose(self, plan: ReadPlan, chunks: Chunks) -> Strategy:
        caching = self._caching(plan)
        single = chunks.count <= 1 and caching is not Caching.NEVER  # then the cache loads it once for all
        batches = None if single else self._batch_reader(plan, chunks, caching)
        if batches is None:
            return self._by_chunk(plan, chunks.projections, chunks.count, caching)
        cached = self._chunk_reader(plan, caching) if batches.keeps else None
        sharing = _sharing(plan.array.metadata, chunks.count, batches.most)
        return InBatches(batches, chunks, cached=cached, pool=self.pool(plan.array.mount), sharing=sharing)

    def _by_chunk(
        self, plan: ReadPlan | PointsPlan, parts: Callable[[], Iterable[Projection]], count: int, caching: Caching
    ) -> Strategy:
        array = plan.array
        far = array.mount.is_far
        reader = self._chunk_reader(plan, caching)
        versioned = caching is not Caching.NEVER or (far and reader.takes_parts)
        return ByChunk(reader, parts, count, pool=self.pool(array.mount), far=far, versioned=versioned)

    def _batch_reader(self, plan: ReadPlan, chunks: Chunks, caching: Caching) -> BatchReader | None:
        """Reads chunks that are near, and small or nothing but bytes to be copied."""
        array = plan.array
        store, decoder = file_store(array.mount.store), array.metadata.batch
        if decoder is None or store is None:
            return None
        if array.metadata.chunk_nbytes >= _SMALL_CHUNK and not self._is_copied(plan, chunks, caching):
            return None
        return BatchReader(array, store, decoder, field=plan.field, keeper=Keeper(array, self._memory, caching))

    def _is_copied(self, plan: ReadPlan, chunks: Chunks, caching: Caching) -> bool:
        """Whether uncompressed chunks are read whole and not cached: copying is so little work that what Python does
        for each of them counts."""
        metadata = plan.array.metadata
        if metadata.codec.links or metadata.chunk_nbytes > BATCH_BYTES // 2 or caching is not Caching.NEVER:
            return False
        first = next(iter(chunks.projections()), None)
        return first is not None and Piece(plan.array, first).runs() is None

    def _chunk_reader(self, plan: ReadPlan | PointsPlan, caching: Caching) -> ChunkReader:
        return ChunkReader(plan.array, Keeper(plan.array, self._memory, caching), plan.field)

    def _caching(self, plan: ReadPlan | PointsPlan) -> Caching:
        if self._cache.limit and isinstance(plan, ReadPlan) and self._is_cut(plan):
            return Caching.AT_ONCE
        decoded = plan.touched * plan.array.metadata.chunk_nbytes
        if plan.touched > MOST_KEPT or decoded > self._cache.limit // _LARGEST_SHARE:
            return Caching.NEVER
        return Caching.AT_ONCE if decoded <= _SMALL_ANSWER else Caching.WHEN_ASKED_AGAIN

    def _is_cut(self, plan: ReadPlan) -> bool:
        """Whether slabs cut chunk rows whose chunks cannot be entered midway: then each has to stay until its row is
        done."""
        row = row_nbytes(plan)
        cut = row > LARGEST_SLAB * self._slab_bytes and not enters_midway(plan)
        return cut and row <= self._cache.limit // 2


def _sharing(metadata: ArrayMetadata, count: int, most: int) -> Sharing:
    """How reading ``count`` chunks is best shared, ``most`` of them in a batch."""
    effort = count * metadata.chunk_nbytes * metadata.codec.effort
    if metadata.chunk_nbytes >= _SMALL_CHUNK:
        return Sharing.EACH if count > most and effort >= WORTH_THREADS else Sharing.NONE
    if count > most and effort >= _WORTH_RELAY:
        return Sharing.RELAY
    return Sharing.BRIEF if count > 1 and effort >= _WORTH_HELP else Sharing.NONE


def enters_midway(plan: ReadPlan | PointsPlan) -> bool:
    """Whether any part of a chunk can be decoded alone."""
    partial = plan.array.metadata.codec.partial
    return partial is not None and partial.enters_midway


def row_nbytes(plan: ReadPlan) -> int:
    """Bytes of the answer that one row of chunks along its first axis makes; all of it where it has no axes."""
    axes = plan.selection.output_axes
    if not axes or not plan.shape[0]:
        return plan.nbytes
    axis = plan.selection.axes[axes[0]]
    step = abs(axis.step) if isinstance(axis, SliceAxis) else 1
    rows = min(plan.shape[0], -(-plan.array.metadata.chunks[axes[0]] // step))
    return plan.nbytes // plan.shape[0] * rows
