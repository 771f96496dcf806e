"""Reader: plan, then the whole answer at once or as a stream of slabs in bounded memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from hyperslab.arrays.chunks import UNKNOWN, Caching, ChunkCache, ChunkMemory, ChunkReader, NDArray, cache_key
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.limits import check_chunk_count
from hyperslab.arrays.nodes import ArrayNode, MountedStore
from hyperslab.arrays.plan import FEW, MOST_KEPT, PointsPlan, Projection, ReadPlan, make_plan, make_points_plan
from hyperslab.arrays.scratch import UNSHARED, Bytes, Scratch, Slabs
from hyperslab.arrays.together import Part, Together
from hyperslab.arrays.versions import VersionBook, Versions
from hyperslab.arrays.workers import WorkerPool
from hyperslab.cache import Recent
from hyperslab.engine.dtypes import Field
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import Selection, SliceAxis, project, split_rows, touched
from hyperslab.errors import ChangedWhileRead, TooLarge

T = TypeVar("T")
R = TypeVar("R")
Parts = Callable[[], Iterable[Projection]]
"""Makes the projections of a read, anew for each call: they may be many."""

_BUFFERS_PER_STREAM = 3
"""One is being filled while one is being sent, and the transport may still hold on to the end of a third."""
_SLABS_BESIDE = 2
"""What fetching and decoding hold on to beside them, in slabs of the usual size: measured with 64 clients at once."""
_LARGEST_SLAB = 4
"""Times the usual size."""
_MOST_CHUNKS = 1 << 24
_OBJECT_BYTES = 72
"""A reference, and a short text behind it."""
_MOST_CHECKED = 64
"""So many versions may be asked for one by one; more are better listed."""
_READ_AROUND = 4
"""Where a part of a chunk is read, about so many times its bytes pass through memory: blocks and gaps come along."""
_LARGEST_SHARE = 4
"""No answer puts more than a quarter of the cache's size into it."""
_SMALL_ANSWER = 16 << 20
_MOST_RECENT = 100_000
_WORTH_THREADS = 2 << 20
_WORTH_THREAD = 256 << 10
"""Less work, in all or for a chunk, is not worth handing to other threads (where no network is waited for): in bytes
that LZ4 makes in the same time."""


class Reader:
    """Reads arrays through the chunk cache. Safe to call from many threads; blocks on the store.

    ``kept_bytes``: memory of streams that have ended which stays with the process for the next ones.
    """

    def __init__(
        self, cache: ChunkCache, versions: VersionBook, *, slab_bytes: int, kept_bytes: int, max_chunk_bytes: int
    ) -> None:
        self.cache = cache
        self.versions = versions
        self.slab_bytes = slab_bytes
        self.slabs = Slabs(kept_bytes)
        self._max_chunk_bytes = max_chunk_bytes
        self._memory = ChunkMemory(cache, Recent(_MOST_RECENT), Scratch())
        self._pools: dict[str, WorkerPool] = {}
        self._lock = Lock()

    def plan(
        self,
        array: ArrayNode,
        selection: Selection,
        field: Field | None = None,
        dtype: np.dtype[Any] | None = None,
        *,
        cancel: Cancel | None = None,
    ) -> ReadPlan:
        """What reading ``selection`` will touch; asks the store for versions and reads no data.

        Raises `TooLarge` where a single chunk is more than the operator allows in memory, or the chunks are more than
        can be looked up in a minute or two; and `Cancelled`.
        """
        plan = self.plan_only(array, selection, field, dtype, cancel=cancel)
        plan.lookup()
        return plan

    def plan_only(
        self,
        array: ArrayNode,
        selection: Selection,
        field: Field | None = None,
        dtype: np.dtype[Any] | None = None,
        *,
        versions: Versions | None = None,
        cancel: Cancel | None = None,
    ) -> ReadPlan:
        """`plan` without asking the store: that is left to who first wants the versions or the tag.

        ``versions``: where they are looked up then, instead of among all that are remembered.
        """
        self.check_chunk(array)
        plan = make_plan(versions or self.versions, array, selection, field=field, dtype=dtype, cancel=cancel)
        check_chunk_count("one read", array, selection, field, count=plan.touched, most=_MOST_CHUNKS)
        return plan

    def plan_together(self, parts: Sequence[Part], cancel: Cancel | None = None) -> list[ReadPlan]:
        """`plan` for several selections that each touch few chunks, with one look-up for all of them."""
        together = Together(self.versions)
        plans = [self.plan_only(*part, versions=together, cancel=cancel) for part in parts]
        together.look_up(plans, cancel)
        return plans

    def check_chunk(self, array: ArrayNode) -> None:
        """Raise `TooLarge` where one chunk, decoded, is more than the operator allows in memory.

        Reads and writes ask before anything is allocated: a document may state chunks of any size. Objects are counted
        with what Python needs for a short one.
        """
        metadata = array.metadata
        nbytes = max(
            metadata.chunk_nbytes * (_OBJECT_BYTES // metadata.itemsize if metadata.dtype.is_object else 1),
            metadata.codec.memory // 2,
        )
        if nbytes > self._max_chunk_bytes:
            raise TooLarge("the decoded size of one chunk", nbytes, self._max_chunk_bytes)

    def count_cached(self, plan: ReadPlan) -> int:
        """How many of the chunks touched need no I/O: cached ones, and ones known to be absent."""
        return 0 if plan.versions is None else sum(self._are_cached(plan))

    def _are_cached(self, plan: ReadPlan | PointsPlan) -> Iterator[bool]:
        """For each chunk whose version is known, whether it needs no I/O."""
        array, holds = plan.array, self.cache.holds
        for coords, version in (plan.versions or {}).items():
            yield version is None or holds(cache_key(array, array.chunk_key(coords)), version)

    def plan_points(self, array: ArrayNode, coordinates: Sequence[NDArray], field: Field | None = None) -> PointsPlan:
        """What gathering scattered points will touch. ``coordinates``: one int array per axis, broadcast together. The
        store is asked for versions when they, or the tag, are first needed; see `read_latest`.

        Raises `IndexOutOfRange`, `TooManyIndices` (also for too few axes), `BadBody` where they do not broadcast, and
        `TooLarge` as `plan` does.
        """
        self.check_chunk(array)
        return make_points_plan(self.versions, array, coordinates, field=field)

    def read(self, plan: ReadPlan | PointsPlan, cancel: Cancel | None = None, cost: ReadCost | None = None) -> NDArray:
        """The whole answer in C order. The caller has checked ``plan.nbytes``.

        Raises `ChunkCorrupt`, `StoreError`, `ChunkNotFound` (where missing chunks are errors) and `Cancelled`.
        """
        out = np.empty(plan.shape, plan.dtype)
        self._fill(plan, plan.projections, plan.touched, out, cost=cost or ReadCost(), cancel=cancel)
        return out

    def moved(self, plan: ReadPlan | PointsPlan, cost: ReadCost) -> bool:
        """Whether a chunk was written while it was read, so that the tag of the plan may be that of other bytes.

        Versions come along with the data. False where the operator does not want them to be looked up every time, and
        where nobody has.
        """
        return cost.moved and plan.array.mount.recheck == "always" and not plan.lookup.forgone

    def comes_tagged(self, plan: ReadPlan | PointsPlan) -> bool:
        """Whether `read_tagged` is better than a look-up: where a store is remote, and versions come with the data, of
        all but a few chunks that are cached."""
        array = plan.array
        if not array.mount.is_remote or plan.touched > FEW or self._chunk_reader(plan).by_parts:
            return False
        keys = [array.chunk_key(part.coords) for part in plan.projections()]
        cached = sum(self.cache.any_version(cache_key(array, key)) is not None for key in keys)
        return cached <= _MOST_CHECKED and not self.versions.knows_all(array.mount, keys)

    def read_latest(self, plan: ReadPlan | PointsPlan, cost: ReadCost, cancel: Cancel | None = None) -> NDArray:
        """`read` a plan for which nothing was looked up yet, and see to its tag, in as few round trips as can be."""
        if not self.comes_tagged(plan):
            plan.lookup()
            return self.read(plan, cancel, cost)
        out = np.empty(plan.shape, plan.dtype)
        self.read_tagged(plan, out, cost, cancel)
        return out

    def read_tagged(
        self, plan: ReadPlan | PointsPlan, out: NDArray, cost: ReadCost, cancel: Cancel | None = None
    ) -> None:
        """`read` into ``out`` what `comes_tagged`; the versions and the tag of the plan become those of what was read.

        So one request for each chunk is all that an answer needs, and its tag always holds.
        """
        array = plan.array
        keys = {part.coords: array.chunk_key(part.coords) for part in plan.projections()}
        found: dict[Coords, str | None] = {}

        def current(coords: Coords) -> str | None:
            """The version of what is cached, else `UNKNOWN`: it comes with the data."""
            if self.cache.any_version(cache_key(array, keys[coords])) is None:
                return UNKNOWN
            return self.versions.versions(array.mount, array.prefix, [keys[coords]])[0]

        with self.versions.learning(array.mount, keys.values()) as learn:
            self._read_chunks(
                plan,
                plan.projections,
                plan.touched,
                out,
                cost=cost,
                cancel=cancel,
                version=current,
                note=found.__setitem__,
            )
            learn({key: found[coords] for coords, key in keys.items()})
        plan.lookup.conclude(found)

    def effort(self, plan: ReadPlan) -> float:
        """About what `read` takes where no network is waited for: in bytes that LZ4 makes in the same time."""
        metadata, first = plan.array.metadata, next(iter(plan.projections()), None)
        if self._caching(plan) is not Caching.NEVER or first is None:  # what is cached is decoded whole
            return plan.touched * metadata.chunk_nbytes * metadata.codec.effort
        return plan.touched * self._chunk_reader(plan).effort(first)

    def read_cached(self, plan: ReadPlan | PointsPlan, cost: ReadCost | None = None) -> NDArray | None:
        """The whole answer where every chunk is cached or absent, without any I/O; else None."""
        versions = plan.versions
        if versions is None or not all(self._are_cached(plan)):  # so that what `read` will count is counted once
            return None
        out, cost, reader = np.empty(plan.shape, plan.dtype), cost or ReadCost(), self._chunk_reader(plan)
        for part in plan.projections():
            if not reader.read_cached(part, plan.array.chunk_key(part.coords), versions[part.coords], out, cost):
                return None
        cost.add(touched=plan.touched)
        return out

    def stream(
        self, plan: ReadPlan, start: int, stop: int, cancel: Cancel | None = None, *, slab_bytes: int | None = None
    ) -> SlabStream:
        """Bytes ``[start, stop)`` of the C-order answer, a slab of at most ``slab_bytes`` (default: what `choose_slab`
        says where there is no room to spare) at a time; see `SlabStream`."""
        return SlabStream(self, plan, (start, stop), slab_bytes or self.choose_slab(plan), cancel)

    def choose_slab(self, plan: ReadPlan, room: int = 0) -> int:
        """The largest slab of a stream, in bytes, where answers may take ``room`` bytes more.

        A chunk row that is cut reads its chunks once for each cut. Slabs of up to four times the usual size, which cut
        it less often, are worth their memory where there is much of it; and in any case where they need not cut it and
        a chunk cannot be entered midway.
        """
        row, largest = _row_nbytes(plan), _LARGEST_SLAB * self.slab_bytes
        if row <= self.slab_bytes:
            return self.slab_bytes
        if not _enters_midway(plan):
            return row if row <= largest else self.slab_bytes
        larger = min(row, largest)
        return larger if self.stream_memory(plan, larger) <= room // 2 else self.slab_bytes

    def stream_memory(self, plan: ReadPlan, slab_bytes: int) -> int:
        """The most bytes that a stream holds at once: its slabs, and what `working_memory` says."""
        slabs = min(plan.nbytes, _BUFFERS_PER_STREAM * slab_bytes)
        beside = _SLABS_BESIDE * self.slab_bytes if plan.nbytes > slab_bytes else 0
        return slabs + beside + self.working_memory(plan)

    def chunk_memory(self, array: ArrayNode) -> int:
        """Bytes that changing one chunk takes; those no larger than a slab are not counted."""
        memory = array.metadata.codec.memory
        return 2 * memory if memory > 2 * self.slab_bytes else 0

    def working_memory(self, plan: ReadPlan | PointsPlan) -> int:
        """Bytes that the chunk which a request has in hand takes beside the answer, between its codecs too.

        Those no larger than a slab are not counted. A chunk that can be entered midway takes what is read of it.
        """
        metadata = plan.array.metadata
        memory = metadata.codec.memory
        if memory <= 2 * self.slab_bytes or not plan.touched:
            return 0
        return min(memory, 2 * _READ_AROUND * plan.nbytes // plan.touched) if _enters_midway(plan) else memory

    def forget(self) -> None:
        """Empty the cache of chunks, and forget which were asked for."""
        self.cache.clear()
        self._memory.recent.clear()
        self.slabs.forget()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def fill_slab(
        self, plan: ReadPlan, part: Selection, out: NDArray, *, cost: ReadCost, cancel: Cancel | None
    ) -> None:
        """Read a part of a plan's selection into ``out``; raises as `read` does."""
        grid = plan.array.metadata.grid
        self._fill(plan, lambda: project(part, grid), touched(part, grid), out, cost=cost, cancel=cancel)

    def pool(self, mount: MountedStore) -> WorkerPool:
        """The worker threads of a store."""
        with self._lock:
            pool = self._pools.get(mount.name)
            if pool is None:
                pool = self._pools[mount.name] = WorkerPool(
                    mount.store.capabilities.width, mount.name, remote=mount.is_remote
                )
            return pool

    def each(
        self, mount: MountedStore, work: Callable[[T], R], items: Sequence[T], cancel: Cancel | None = None
    ) -> list[R]:
        """The results of ``work``, which does nothing but ask ``mount``: of a remote store concurrently."""
        if not mount.is_remote or not items:
            return [work(item) for item in items]
        return self.pool(mount).map(work, items, cancel)

    def _fill(
        self,
        plan: ReadPlan | PointsPlan,
        parts: Parts,
        count: int,
        out: NDArray,
        *,
        cost: ReadCost,
        cancel: Cancel | None,
    ) -> None:
        """Read ``count`` chunks of a plan into ``out``: of the versions that were looked up, where somebody needs
        those (the cache, or requests for parts of objects) or knows them."""
        needed = self._caching(plan) is not Caching.NEVER or (
            plan.array.mount.is_remote and self._chunk_reader(plan).by_parts
        )
        if not needed and not plan.lookup.done:
            plan.lookup.forgo()
        versions = None if plan.lookup.forgone else plan.versions
        version = (lambda _: UNKNOWN) if versions is None else versions.__getitem__

        def compare(coords: Coords, seen: str | None) -> None:
            if not plan.lookup().holds(plan.array.chunk_key(coords), seen):
                cost.moved = True

        note = compare if versions is None and not plan.lookup.forgone else None
        self._read_chunks(plan, parts, count, out, cost=cost, cancel=cancel, version=version, note=note)

    def _read_chunks(
        self,
        plan: ReadPlan | PointsPlan,
        parts: Parts,
        count: int,
        out: NDArray,
        *,
        cost: ReadCost,
        cancel: Cancel | None,
        version: Callable[[Coords], str | None],
        note: Callable[[Coords, str | None], None] | None = None,
    ) -> None:
        """One task for each chunk: on the store's threads where a network is waited for or much is decoded, else one
        by one. ``version`` tells what was looked up, ``note`` is told what was read."""
        if cancel is not None:
            cancel.check()
        cost.add(touched=count)
        reader, mount = self._chunk_reader(plan), plan.array.mount
        first = next(iter(parts()), None)
        if first is None:
            return

        def read(part: Projection) -> None:
            seen = reader.read(part, version(part.coords), out, cost)
            if note is not None:
                note(part.coords, seen)

        effort = reader.effort(first)
        if count > 1 and (mount.is_remote or (effort >= _WORTH_THREAD and count * effort >= _WORTH_THREADS)):
            nbytes = 0 if not mount.is_remote else reader.decoded(first)
            self.pool(mount).each(parts(), count, read, cancel, nbytes=nbytes)
            return
        for part in parts():
            if cancel is not None:
                cancel.check()
            read(part)

    def _chunk_reader(self, plan: ReadPlan | PointsPlan) -> ChunkReader:
        return ChunkReader(plan.array, plan.field, self._memory, self._caching(plan))

    def _caching(self, plan: ReadPlan | PointsPlan) -> Caching:
        if self.cache.limit and isinstance(plan, ReadPlan) and self._is_cut(plan):
            return Caching.AT_ONCE
        decoded = plan.touched * plan.array.metadata.chunk_nbytes
        if plan.touched > MOST_KEPT or decoded > self.cache.limit // _LARGEST_SHARE:
            return Caching.NEVER
        return Caching.AT_ONCE if decoded <= _SMALL_ANSWER else Caching.WHEN_ASKED_AGAIN

    def _is_cut(self, plan: ReadPlan) -> bool:
        """Whether slabs cut chunk rows whose chunks cannot be entered midway: then each has to stay until its row is
        done."""
        row = _row_nbytes(plan)
        cut = row > _LARGEST_SLAB * self.slab_bytes and not _enters_midway(plan)
        return cut and row <= self.cache.limit // 2


def _enters_midway(plan: ReadPlan | PointsPlan) -> bool:
    """Whether any part of a chunk can be decoded alone."""
    return plan.array.metadata.codec.partial is not None


def _row_nbytes(plan: ReadPlan) -> int:
    """Bytes of the answer that one row of chunks along its first axis makes; all of it where it has no axes."""
    axes = plan.selection.output_axes
    if not axes or not plan.shape[0]:
        return plan.nbytes
    axis = plan.selection.axes[axes[0]]
    step = abs(axis.step) if isinstance(axis, SliceAxis) else 1
    rows = min(plan.shape[0], -(-plan.array.metadata.chunks[axes[0]] // step))
    return plan.nbytes // plan.shape[0] * rows


class SlabStream:
    """An iterator over slabs: consecutive pieces of a C-order answer, each read into one of a few reused buffers.

    A slab is valid for as long as it is held; letting go of it lets its buffer be used again. Blocks while it reads;
    use from one thread at a time. The versions of one plan and no others make up an answer: behind the first slab, of
    which the caller asks `Reader.moved`, raises `ChangedWhileRead`, and what is remembered of versions is forgotten.
    """

    def __init__(
        self, reader: Reader, plan: ReadPlan, interval: tuple[int, int], slab_bytes: int, cancel: Cancel | None
    ) -> None:
        self.cost = ReadCost()
        self._reader = reader
        self._plan = plan
        self._start, self._stop = interval
        self._cancel = cancel
        self._parts: Iterator[tuple[Selection, int, int]] = (
            split_rows(
                plan.selection,
                plan.inner_shape,
                itemsize=plan.dtype.itemsize,
                grid=plan.array.metadata.grid,
                limit_bytes=slab_bytes,
                start=self._start,
                stop=self._stop,
            )
            if self._start < self._stop
            else iter(())
        )
        self._buffers: list[Bytes] = []
        self._turn = 0

    def __iter__(self) -> Iterator[memoryview]:
        return self

    def __next__(self) -> memoryview:
        part, first, last = next(self._parts)
        if self._cancel is not None:
            self._cancel.check()
        began = perf_counter()
        buffer = self._buffer(last - first)
        out = buffer[: last - first].view(self._plan.dtype).reshape(part.shape + self._plan.inner_shape)
        self._reader.fill_slab(self._plan, part, out, cost=self.cost, cancel=self._cancel)
        self.cost.spend("assemble", perf_counter() - began)
        if self._turn > 1 and self.cost.moved:
            array = self._plan.array
            self._reader.versions.forget(array.mount, array.prefix)
            raise ChangedWhileRead(f"{array.path!r} was written while it was read")
        slab = memoryview(buffer.data)
        return slab[max(self._start, first) - first : min(self._stop, last) - first]

    def _buffer(self, nbytes: int) -> Bytes:
        """A few buffers in turn. One whose slab somebody still holds is left to them and replaced: a server may keep a
        piece for as long as it likes."""
        turn = self._turn % _BUFFERS_PER_STREAM
        self._turn += 1
        if turn == len(self._buffers):
            self._buffers.append(self._reader.slabs.take(nbytes))
        elif self._buffers[turn].nbytes < nbytes or sys.getrefcount(self._buffers[turn]) > UNSHARED:
            self._buffers[turn] = self._reader.slabs.take(nbytes)
        return self._buffers[turn]
