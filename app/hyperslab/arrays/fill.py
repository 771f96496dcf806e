"""From a plan to the values: through the cache or around it, many small chunks together, and on how many threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import NamedTuple

from hyperslab.arrays.batches import BatchReader
from hyperslab.arrays.chunks import Caching, ChunkCache, ChunkMemory, ChunkReader, Keeper, NDArray
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import MOST_KEPT, PointsPlan, Projection, ReadPlan
from hyperslab.arrays.pool import WorkerPool
from hyperslab.arrays.scratch import Scratch
from hyperslab.cache import Recent
from hyperslab.engine.chunk_rows import ChunkRow, project_rows, single_row
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import ChunkProjection, Selection, SliceAxis, project, touched
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.storage.base import file_store

_LARGEST_SHARE = 4
"""No answer puts more than a quarter of the cache's size into it."""
_SMALL_ANSWER = 16 << 20
_MOST_RECENT = 100_000
LARGEST_SLAB = 4
_WORTH_THREADS = 2 << 20
_SMALL_ITEM = 256 << 10
"""Less work, in all or at once, is not worth handing to other threads (where no network is waited for): in bytes that
LZ4 makes in the same time."""
_WORTH_RELAY = 4 << 20
"""The same for small chunks, all of which one thread fetches."""
_SMALL_CHUNK = 256 << 10
"""Chunks of fewer bytes are read and decoded in batches."""

Versions = Mapping[Coords, str | None] | None


class Task(NamedTuple):
    """What one call reads: ``part`` of a plan's selection (None: all that it has) into ``out``."""

    plan: ReadPlan | PointsPlan
    part: Selection | None
    out: NDArray
    cost: ReadCost
    cancel: Cancel | None

    @property
    def touched(self) -> int:
        """How many chunks there are."""
        return self.plan.touched if self.part is None else touched(self.part, self.plan.array.metadata.grid)

    def projections(self) -> Iterable[Projection]:
        return self.plan.projections() if self.part is None else project(self.part, self.plan.array.metadata.grid)

    def rows(self, most: int) -> Iterator[ChunkRow]:
        """See `Chunks.rows`."""
        assert isinstance(self.plan, ReadPlan)
        if self.part is None:
            return self.plan.chunks.rows(most)
        return project_rows(self.part, self.plan.array.metadata.grid, most)


class Filler:
    """Reads what plans select. Safe to call from many threads; blocks on the store."""

    def __init__(self, cache: ChunkCache, slab_bytes: int) -> None:
        self._cache = cache
        self._memory = ChunkMemory(cache, Recent(_MOST_RECENT), Scratch())
        self._slab_bytes = slab_bytes
        self._pools: dict[str, WorkerPool] = {}
        self._lock = Lock()

    def fill(self, task: Task) -> None:
        """Read what the task says. Raises `ChunkCorrupt`, `StoreError`, `ChunkNotFound` and `Cancelled`."""
        count, cancel = task.touched, task.cancel
        task.cost.add(touched=count)
        if cancel is not None:
            cancel.check()
        if count <= 1:
            self._fill_few(task)
            return
        batches = self._batch_reader(task)
        if batches is not None:
            self._fill_in_batches(task, batches, count)
        else:
            self._fill_by_chunk(task, count)

    def _fill_few(self, task: Task) -> None:
        """Without further ado: reading one small chunk takes less time than thinking about it."""
        plan = task.plan
        batches = self._batch_reader(task) if self._caching(plan) is Caching.NEVER else None
        for projection in task.projections():
            if batches is not None and isinstance(projection, ChunkProjection):
                batches.read((single_row(projection),), task.out)
            else:
                self.chunk_reader(plan, self._versions(plan), task.cost).read(projection, task.out)

    def effort(self, plan: ReadPlan) -> float:
        """About what reading takes once the stored bytes are in memory: in bytes that LZ4 makes in the same time."""
        metadata = plan.array.metadata
        whole = self._caching(plan) is not Caching.NEVER  # the second time that a part is asked for
        nbytes = metadata.chunk_nbytes if whole else _decoded(metadata, plan.projections())
        return plan.touched * nbytes * metadata.codec.effort

    def chunk_reader(self, plan: ReadPlan | PointsPlan, versions: Versions, cost: ReadCost) -> ChunkReader:
        """A reader of single chunks."""
        return ChunkReader(plan.array, self._keeper(plan), versions, field=plan.field, cost=cost)

    def pool(self, array: ArrayNode) -> WorkerPool:
        """The threads of the array's store."""
        mount = array.mount
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

    def _fill_in_batches(self, task: Task, batches: BatchReader, count: int) -> None:
        metadata, cancel = task.plan.array.metadata, task.cancel
        rows = self._rows(task, batches)
        if count > batches.most and count * metadata.chunk_nbytes * metadata.codec.effort >= _WORTH_RELAY:
            batches.read_many(batches.batches(rows), task.out, pool=self.pool(task.plan.array), cancel=cancel)
            return
        for batch in batches.batches(rows):
            if cancel is not None:
                cancel.check()
            batches.read(batch, task.out)

    def _rows(self, task: Task, batches: BatchReader) -> Iterator[ChunkRow]:
        """What is to be read; what is cached, or known to be absent, is placed."""
        plan = task.plan
        if not batches.keeps:
            yield from task.rows(batches.most)
            return
        chunks = self.chunk_reader(plan, plan.versions, task.cost)
        for projection in task.projections():
            if isinstance(projection, ChunkProjection) and not chunks.read_cached(projection, task.out):
                yield single_row(projection)

    def _fill_by_chunk(self, task: Task, count: int) -> None:
        plan, out, cancel = task.plan, task.out, task.cancel
        chunks = self.chunk_reader(plan, self._versions(plan), task.cost)
        if self._worth_threads(task, count):
            self.pool(plan.array).each(task.projections(), count, lambda part: chunks.read(part, out), cancel)
            return
        for projection in task.projections():
            if cancel is not None:
                cancel.check()
            chunks.read(projection, out)

    def _batch_reader(self, task: Task) -> BatchReader | None:
        """Reads chunks that are small and near."""
        array, plan = task.plan.array, task.plan
        if array.metadata.chunk_nbytes >= _SMALL_CHUNK:
            return None
        store, decoder = file_store(array.mount.store), array.metadata.batch
        if decoder is None or store is None or isinstance(plan, PointsPlan):
            return None
        keeper = self._keeper(plan)
        if keeper.caching is Caching.NEVER and not plan.lookup.done:
            plan.lookup.forgo()
        return BatchReader(array, store, decoder, field=plan.field, cost=task.cost, keeper=keeper)

    def _keeper(self, plan: ReadPlan | PointsPlan) -> Keeper:
        return Keeper(plan.array, self._memory, self._caching(plan))

    def _versions(self, plan: ReadPlan | PointsPlan) -> Versions:
        """The versions of the chunks; None where nobody needs them: neither the cache nor requests for parts."""
        lookup, near = plan.lookup, plan.array.mount.store.capabilities.cheap_stat
        if near and not lookup.done and self._caching(plan) is Caching.NEVER:
            lookup.forgo()
        return None if lookup.forgone else plan.versions

    def _worth_threads(self, task: Task, count: int) -> bool:
        """Whether one thread is slower: where a network is waited for, or much is decoded in large pieces."""
        array = task.plan.array
        if not array.mount.store.capabilities.cheap_stat:
            return True
        effort = _decoded(array.metadata, task.projections()) * array.metadata.codec.effort
        return effort >= _SMALL_ITEM and count * effort >= _WORTH_THREADS

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


def _decoded(metadata: ArrayMetadata, projections: Iterable[Projection]) -> int:
    """Bytes of a chunk that are decoded, judged by the first one: a part where that is worth it, else all."""
    partial, first = metadata.codec.partial, next(iter(projections), None)
    if partial is None or first is None or first.covers_chunk:
        return metadata.chunk_nbytes
    runs = first.item_runs(metadata.chunks, metadata.order, gap=partial.gap)
    return partial.work(runs) if partial.worth_it(runs) else metadata.chunk_nbytes


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
