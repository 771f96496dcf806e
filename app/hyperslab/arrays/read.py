"""Reading: plan, then the whole answer at once or as a stream of slabs in bounded memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from hyperslab.arrays.chunks import ChunkCache, NDArray, cache_key
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.fill import LARGEST_SLAB, Filler, enters_midway, row_nbytes
from hyperslab.arrays.limits import check_chunk_count
from hyperslab.arrays.nodes import ArrayNode, MountedStore
from hyperslab.arrays.plan import PointsPlan, ReadPlan, make_plan, make_points_plan
from hyperslab.arrays.pool import WorkerPool
from hyperslab.arrays.scratch import UNSHARED, Bytes, Slabs
from hyperslab.arrays.together import Part, Together
from hyperslab.arrays.touched import FEW
from hyperslab.arrays.versions import VersionBook, Versions
from hyperslab.cache import Recent, VersionedCache
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import Selection, normalise, split_rows
from hyperslab.errors import TooLarge
from hyperslab.wire import SelectionItem

_BUFFERS_PER_STREAM = 3
"""One is being filled while one is being sent, and the transport may still hold on to the end of a third."""
_SLABS_BESIDE = 2
"""What fetching and decoding hold on to beside them, in slabs of the usual size: measured with 64 clients at once."""
_MOST_CHUNKS = 1 << 24
_OBJECT_BYTES = 72
"""A reference, and a short text behind it."""
_PLAN_BYTES = 8 << 20
_PLAN_BYTES_EACH = 2 << 10
_PLAN_BYTES_PER_CHUNK = 1 << 10
"""What kept plans take: in all, each, and for each chunk that one touches; estimates."""
_MOST_PLANNED = 64
_PLANS_REMEMBERED = 4_096
_SIMPLE = frozenset((int, slice, type(...)))
_MOST_CHECKED = 64
"""So many versions may be asked for one by one; more are better listed."""
_READ_AROUND = 4
"""Where a part of a chunk is read, about so many times its bytes pass through memory: blocks and gaps come along."""


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
        self._filler = Filler(cache, slab_bytes)
        self._plans: VersionedCache[ReadPlan] = VersionedCache(_PLAN_BYTES)
        self._asked = Recent(_PLANS_REMEMBERED)

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

    def plan_items(self, array: ArrayNode, items: Sequence[SelectionItem], field: Field | None = None) -> ReadPlan:
        """`plan` for a parsed but not yet normalised selection, and for who may not want the versions: the store is
        asked for them when they, or the tag, are first needed. That has to be before the data are read.

        Small plans without lists that are asked for a second time are kept: from then on they are the same plan, with
        nothing looked up.
        """
        key = (array.path, repr(items), field.name if field is not None else "") if _is_simple(items) else None
        kept = self._plans.get(key, array.version) if key is not None else None
        if kept is not None and kept.array is array:
            return kept.again()
        plan = self.plan_only(array, normalise(items, array.metadata.shape), field)
        if key is not None and plan.touched <= _MOST_PLANNED and self._asked.again(key, array.version):
            self._plans.put(key, array.version, plan, _PLAN_BYTES_EACH + plan.touched * _PLAN_BYTES_PER_CHUNK)
        return plan

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
        self._filler.fill(plan, out, cost or ReadCost(), cancel)
        return out

    def verifies(self, plan: ReadPlan) -> bool:
        """Whether `read_exactly` can be used: for few small chunks of a store that is near, where nothing is cached and
        the operator wants versions to be looked up every time."""
        return plan.array.mount.recheck == "always" and self._filler.exact(plan) is not None

    def read_exactly(self, plan: ReadPlan, versions: Mapping[str, str | None], cost: ReadCost) -> NDArray | None:
        """`read` a plan that `verifies`, from chunks of just these versions, by key; None where one has another by now.

        So a tag made of these versions is the tag of what was read, with no look-up before.
        """
        fill, out = self._filler.exact(plan), np.empty(plan.shape, plan.dtype)
        if fill is None:
            raise ValueError("versions do not come with the data of this plan")
        cost.add(touched=plan.touched)
        return out if fill(versions, out, cost) else None

    def moved(self, plan: ReadPlan | PointsPlan, cost: ReadCost) -> bool:
        """Whether a chunk was written while it was read, so that the tag of the plan may be that of other bytes.

        Versions come along with the data. False where the operator does not want them to be looked up every time, and
        where nobody has.
        """
        return cost.moved and plan.array.mount.recheck == "always" and not plan.lookup.forgone

    def comes_tagged(self, plan: ReadPlan | PointsPlan) -> bool:
        """Whether `read_tagged` is better than a look-up: where a store is far, and versions come with the data, of all
        but a few chunks that are cached."""
        array = plan.array
        if plan.touched > FEW or self._filler.latest(plan) is None:
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
        array, fill = plan.array, self._filler.latest(plan)
        if fill is None:
            raise ValueError("versions do not come with the data of this plan")

        def current(key: str) -> str | None:
            return self.versions.versions(array.mount, array.prefix, [key])[0]

        keys = {part.coords: array.chunk_key(part.coords) for part in plan.projections()}
        cost.add(touched=plan.touched)
        with self.versions.learning(array.mount, keys.values()) as learn:
            found = fill(current, out, cost, cancel)
            learn({key: found[coords] for coords, key in keys.items()})
        plan.lookup.conclude(found)

    def effort(self, plan: ReadPlan) -> float:
        """About what `read` takes where no network is waited for: in bytes that LZ4 makes in the same time."""
        return self._filler.effort(plan)

    def read_cached(self, plan: ReadPlan | PointsPlan, cost: ReadCost | None = None) -> NDArray | None:
        """The whole answer where every chunk is cached or absent, without any I/O; else None."""
        if plan.versions is None or not all(self._are_cached(plan)):  # so that what `read` will count is counted once
            return None
        out = np.empty(plan.shape, plan.dtype)
        return out if self._filler.read_cached(plan, out, cost or ReadCost()) else None

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
        row, largest = row_nbytes(plan), LARGEST_SLAB * self.slab_bytes
        if row <= self.slab_bytes:
            return self.slab_bytes
        if not enters_midway(plan):
            return row if row <= largest else self.slab_bytes
        larger = min(row, largest)
        return larger if self.stream_memory(plan, larger) <= room // 2 else self.slab_bytes

    def stream_memory(self, plan: ReadPlan, slab_bytes: int) -> int:
        """The most bytes that a stream holds at once: its slabs, and what `working_memory` says."""
        slabs = min(plan.nbytes, _BUFFERS_PER_STREAM * slab_bytes)
        beside = _SLABS_BESIDE * self.slab_bytes if plan.nbytes > slab_bytes else 0
        return slabs + beside + self.working_memory(plan)

    def working_memory(self, plan: ReadPlan | PointsPlan) -> int:
        """Bytes that the chunk which a request has in hand takes beside the answer, between its codecs too.

        Those no larger than a slab are not counted. A chunk that can be entered midway takes what is read of it.
        """
        metadata = plan.array.metadata
        memory = metadata.codec.memory
        if memory <= 2 * self.slab_bytes or not plan.touched:
            return 0
        return min(memory, 2 * _READ_AROUND * plan.nbytes // plan.touched) if enters_midway(plan) else memory

    def forget(self) -> None:
        """Empty the cache of chunks, and forget which were asked for."""
        self._filler.forget()
        self.slabs.forget()

    def close(self) -> None:
        self._filler.close()

    def fill_slab(
        self, plan: ReadPlan, part: Selection, out: NDArray, *, cost: ReadCost, cancel: Cancel | None
    ) -> None:
        """Read a part of a plan's selection into ``out``."""
        self._filler.fill_part(plan, part, out, cost=cost, cancel=cancel)

    def pool(self, array: ArrayNode) -> WorkerPool:
        """The threads of the array's store."""
        return self.pool_of(array.mount)

    def pool_of(self, mount: MountedStore) -> WorkerPool:
        """The threads of a store."""
        return self._filler.pool(mount)


def _is_simple(items: Sequence[SelectionItem]) -> bool:
    """Whether ``repr`` tells items apart, and is quick."""
    return type(items) is tuple and _SIMPLE.issuperset(map(type, items))


class SlabStream:
    """An iterator over slabs: consecutive pieces of a C-order answer, each read into one of a few reused buffers.

    A slab is valid for as long as it is held; letting go of it lets its buffer be used again. Blocks while it reads;
    use from one thread at a time.
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
