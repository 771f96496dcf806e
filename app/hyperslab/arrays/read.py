"""Reader: reads a plan as a whole or as a stream of slabs in bounded memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice, starmap
from time import monotonic, perf_counter
from typing import Any, TypeVar

import numpy as np

from hyperslab.arrays.chunk_keys import elsewhere
from hyperslab.arrays.chunks import ENTRY_NBYTES, UNKNOWN, Caching, ChunkCache, ChunkReader, NDArray, ReadCost
from hyperslab.arrays.limits import BytesInFlight
from hyperslab.arrays.memory import MEMORY
from hyperslab.arrays.nodes import ArrayNode, Head
from hyperslab.arrays.plan import (
    MAX_VERSIONS,
    ChunkVersions,
    P,
    Plan,
    PointsPlan,
    Projection,
    ReadPlan,
    feed,
    make_plan,
    make_points_plan,
    too_many_chunks,
)
from hyperslab.arrays.shards import GROUP_BYTES, ShardReader, chunk_name, memory_of_shard
from hyperslab.arrays.workers import Cancel
from hyperslab.engine.dtypes import Field
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import ChunkProjection, StoredParts, split_rows, touched, values_of
from hyperslab.engine.selection import Selection, SliceAxis, normalise
from hyperslab.errors import ChangedWhileRead, ChunkNotFound, TooLarge

T = TypeVar("T")

_LARGEST_SLAB = 4
"""Largest slab, as a multiple of the usual size (benchmark ``tuning``)."""
_MAX_COUNTED = 4096
"""Maximum number of chunks in shards that are looked up one by one in the cache, only to be counted."""
_MAX_REVALIDATED = 64
"""Maximum number of cached chunks to revalidate one by one, concurrently with reads of others; more are listed first
(ADR 0031, benchmark ``objects``)."""


class Reader:
    """Reads arrays through the chunk cache. Thread-safe; blocks on the store."""

    def __init__(self, cache: ChunkCache, *, slab_bytes: int, max_chunk_bytes: int) -> None:
        self.cache = cache
        self.slab_bytes = slab_bytes
        self._max_chunk_bytes = max_chunk_bytes

    def plan(
        self,
        array: ArrayNode,
        selection: Selection,
        field: Field | None = None,
        dtype: np.dtype[Any] | None = None,
        *,
        writing: bool = False,
    ) -> ReadPlan:
        """The plan of ``selection``, made without access to the store.

        Raises `TooLarge` for a chunk above the configured limit of memory; with a split, for more chunks than can be
        looked up in a minute or two, or for ``writing``, as a single number could fill more chunks than memory can
        record, for more than one write may touch.
        """
        self.check_chunk(array, writing=writing)
        plan = make_plan(array, selection, field=field, dtype=dtype)
        what, limit = ("one write", MAX_VERSIONS) if writing else ("one read", 1 << 24)
        if plan.touched > limit:
            raise too_many_chunks(what, plan, limit)
        return plan

    def plan_points(
        self, array: ArrayNode, coordinates: Sequence[NDArray], field: Field | None = None, *, writing: bool = False
    ) -> PointsPlan:
        """`plan` for scattered points. ``coordinates``: one int array per axis, broadcast together.

        Raises `IndexOutOfRange`, `TooManyIndices` (also for too few axes), `BadBody` where they do not broadcast, and
        `TooLarge` as `plan` does.
        """
        self.check_chunk(array, writing=writing)
        return make_points_plan(array, coordinates, field=field)

    def look_up(self, plan: P, cancel: Cancel | None = None, *, fresh: bool = False) -> P:
        """The plan with the versions of its chunks. ``fresh``, for writers: present versions of all chunks, however
        many. Raises `Cancelled` and `StoreError`."""
        if fresh or plan.touched <= MAX_VERSIONS:
            return self.look_up_together([plan], cancel, fresh=fresh)[0]
        array, digest = plan.array, plan.identity()
        hashes: list[NDArray] = []
        absent: list[Coords] = []
        for batch in _batches(plan.coords(), cancel):
            versions = array.mount.versions.look_up(array.prefix, [*map(array.chunk_key, batch)])
            feed(digest, versions)
            absent += [coords for coords, version in zip(batch, versions, strict=True) if version is None]
            del absent[MAX_VERSIONS:]
            hashes.append(np.fromiter(map(hash, zip(batch, versions, strict=True)), np.int64, len(batch)))
        moved = _elsewhere(plan, absent) if absent else None
        if moved is not None:
            return self.look_up(moved, cancel)
        return replace(plan, found=ChunkVersions(None, digest.hexdigest(), np.sort(np.concatenate(hashes))))

    def look_up_together(self, plans: Sequence[P], cancel: Cancel | None = None, *, fresh: bool = False) -> list[P]:
        """`look_up` for several plans of one store, each of few chunks, with one look-up."""
        prefixes = {plan.array.prefix for plan in plans}
        prefix = prefixes.pop() if len(prefixes) == 1 else ""
        keys = [{coords: plan.array.chunk_key(coords) for coords in plan.coords()} for plan in plans]
        versions: dict[str, str | None] = {}
        for batch in _batches({key: None for by_coords in keys for key in by_coords.values()}, cancel):
            versions.update(zip(batch, plans[0].array.mount.versions.look_up(prefix, batch, fresh=fresh), strict=True))
        looked_up: list[P] = []
        for plan, by_coords in zip(plans, keys, strict=True):
            absent = [coords for coords, key in by_coords.items() if versions[key] is None]
            moved = _elsewhere(plan, absent) if absent else None
            if moved is not None:
                looked_up += self.look_up_together([moved], cancel, fresh=fresh)
            else:
                looked_up.append(
                    replace(plan, found=ChunkVersions({coord: versions[key] for coord, key in by_coords.items()}))
                )
        return looked_up

    def stored_pieces(self, array: ArrayNode, versions: Mapping[Coords, str | None]) -> NDArray:
        """The first items of what the stored objects of these versions have, chunks or nested shards, ``(n, rank)``, by
        the indexes of shards. Raises `ChunkCorrupt` for a broken index."""
        there = [(coords, version) for coords, version in versions.items() if version is not None]
        if array.metadata.levels:
            shards = ShardReader(array, None, self.cache, Caching.NEVER)
            found = array.mount.each(lambda one: shards.stored(*one), there)
        else:
            axes = array.metadata.grid.axes
            coords = np.array([coords for coords, _ in there], np.int64).reshape(-1, len(axes))
            found = [np.stack([axis.origins(coords[:, i]) for i, axis in enumerate(axes)], axis=1)]
        return np.concatenate([np.zeros((0, array.metadata.rank), np.int64), *found])

    def are_stored(self, array: ArrayNode, versions: Mapping[Coords, str | None], items: NDArray) -> NDArray:
        """Which items, ``(n, rank)``, lie in what the stored objects of these versions have, as of `stored_pieces`."""
        grid = array.metadata.stored_grid
        owners, owner_of = np.unique(
            np.stack([axis.cells(items[:, i]) for i, axis in enumerate(grid.axes)], axis=1), axis=0, return_inverse=True
        )
        known = [versions.get(tuple(owner)) for owner in owners.tolist()]
        stored: NDArray = np.array([version is not None for version in known])[owner_of]
        if array.metadata.levels:
            shards = ShardReader(array, None, self.cache, Caching.NEVER)
            for i, version in enumerate(known):
                if version is not None:
                    stored[owner_of == i] = shards.holds(tuple(owners[i].tolist()), version, items[owner_of == i])
        return stored

    def check_chunk(self, array: ArrayNode, *, writing: bool = False) -> None:
        """Raise `TooLarge` if a decoded chunk is above the configured limit of memory; for ``writing`` also if a shard
        is.

        Called before any allocation, as a document may state chunks of any size. Objects count as 72 bytes: a reference
        and a short Python text.
        """
        metadata = array.metadata
        nbytes = max(
            metadata.chunk_nbytes * (72 // metadata.itemsize if metadata.dtype.numpy.hasobject else 1),
            metadata.codec.memory // 2,
            metadata.shard_nbytes if writing or any(level.after for level in metadata.levels) else 0,
        )
        if nbytes > self._max_chunk_bytes:
            what = "shard" if nbytes == metadata.shard_nbytes > metadata.chunk_nbytes else "chunk"
            raise TooLarge(f"the decoded size of one {what}", nbytes, self._max_chunk_bytes)
        index = max([level.index_nbytes for level in metadata.levels], default=0)
        if index > self._max_chunk_bytes:
            raise TooLarge("the index of one shard", index, self._max_chunk_bytes)

    def count_cached(self, plan: Plan) -> int:
        """The number of chunks with known versions that need no I/O: cached or absent ones. Of very many chunks in
        shards only those of absent shards count, so that the cost grows with the number of shards."""
        array, versions = plan.array, {} if plan.found is None else plan.versions or {}
        if array.metadata.levels and plan.touched > _MAX_COUNTED:
            return sum(count for coords, count in plan.counts() if versions.get(coords, "") is None) if versions else 0
        if array.metadata.levels:
            stored = ((part.coords, versions.get(group.coords, "")) for group in plan.objects() for part in group.parts)
            return sum(
                version is None or self.cache.holds(chunk_name(array, coord), version) for coord, version in stored
            )
        names = ((array.cache_key(array.chunk_key(coords)), version) for coords, version in versions.items())
        return sum(version is None or self.cache.holds(name, version) for name, version in names)

    def read(
        self, plan: P, cancel: Cancel | None = None, cost: ReadCost | None = None, out: NDArray | None = None
    ) -> tuple[NDArray, P]:
        """The whole answer in C order, and the plan with the versions that were read, which match the values.

        With versions looked up before, cached chunks of these versions are used; else they are revalidated. The caller
        has checked ``plan.nbytes``. Raises `ChunkCorrupt`, `StoreError`, `ChunkNotFound` (if missing chunks are errors)
        and `Cancelled`.
        """
        out = np.empty(plan.shape, plan.dtype) if out is None else out
        array, cost = plan.array, cost or ReadCost()
        if plan.touched > MAX_VERSIONS:
            plan = self.look_up(plan, cancel) if plan.found is None else plan
            self._read_chunks(plan, out, cost, cancel)
            return out, plan
        versions, began = dict[Coords, str | None](), monotonic()
        try:
            self._read_chunks(plan, out, cost, cancel, versions)
            absent = [coords for coords, version in versions.items() if version is None]
            moved = _elsewhere(plan, absent) if absent else None
        except ChunkNotFound:
            moved = _elsewhere(plan, [*versions])
            if moved is None:
                raise
        if moved is not None:
            return self.read(moved, cancel, cost, out)
        array.mount.versions.learn(zip(map(array.chunk_key, versions), versions.values(), strict=True), began)
        return out, replace(plan, found=ChunkVersions(versions))

    def look_up_cached(self, plan: P) -> P | None:
        """`look_up` if every chunk is absent, or cached in its present version; else None."""
        array, cache = plan.array, self.cache
        keys: dict[Coords, str] = {}
        for part in plan.objects():
            keys[part.coords] = key = array.chunk_key(part.coords)
            if cache.any_version(array.cache_key(key)) is None:
                return None
        seen = dict(zip(keys, array.mount.versions.look_up(array.prefix, [*keys.values()]), strict=True))
        if None in seen.values() and _elsewhere(plan, [coords for coords, version in seen.items() if version is None]):
            return None
        if any(v is not None and not cache.holds(array.cache_key(keys[coords]), v) for coords, v in seen.items()):
            return None
        return replace(plan, found=ChunkVersions(seen))

    def is_light(self, plan: Plan) -> bool:
        """Whether a folder is read, and decoded, in about a millisecond if the system has the bytes in memory."""
        array, metadata = plan.array, plan.array.metadata
        if array.mount.is_remote or array.head is not None or plan.touched > 16:
            return False
        indexes = sum([level.index_nbytes for level in metadata.levels])
        wrapped = metadata.shard_nbytes if any(level.after for level in metadata.levels) else 0
        effort = (plan.touched * metadata.chunk_nbytes + wrapped) * metadata.codec.effort
        return plan.nbytes + effort + 16 * indexes <= 1 << 20

    def stream(
        self,
        plan: ReadPlan,
        start: int,
        stop: int,
        cancel: Cancel | None = None,
        cost: ReadCost | None = None,
        *,
        slab_bytes: int | None = None,
    ) -> Iterator[memoryview]:
        """Bytes ``[start, stop)`` of the C-order answer as slabs: consecutive pieces of at most ``slab_bytes``, by
        default as `choose_slab` decides.

        Blocks while it reads; not thread-safe. All slabs have the versions of one plan: else it raises
        `ChangedWhileRead`, and cached versions are dropped.
        """
        planned = self.look_up(plan, cancel) if plan.found is None else plan
        statistics = cost or ReadCost()
        parts: Iterator[tuple[Selection, int, int]] = iter(())
        if start < stop:
            limit = slab_bytes or self.choose_slab(plan)
            if 4 * (stop - start) <= limit:  # few bytes are not worth all chunks of a slab
                limit = max(stop - start, 4096)
            parts = split_rows(
                plan.selection,
                plan.inner_shape,
                itemsize=plan.dtype.itemsize,
                grid=plan.array.metadata.grid,
                limit_bytes=limit,
                start=start,
                stop=stop,
            )

        def read(part: Selection, first: int, last: int) -> memoryview:
            if cancel is not None:
                cancel.check()
            began = perf_counter()
            buffer = MEMORY.take(last - first)
            out = buffer.view(plan.dtype).reshape(part.shape + plan.inner_shape)
            self.fill_slab(planned, part, out, cost=statistics, cancel=cancel)
            statistics.add(assemble=perf_counter() - began)
            if statistics.changed:
                plan.array.mount.versions.forget(plan.array.prefix)
                raise ChangedWhileRead(f"{plan.array.path!r} was written while it was read")
            return memoryview(buffer.data)[max(start, first) - first : min(stop, last) - first]

        return starmap(read, parts)

    def choose_slab(self, plan: ReadPlan, in_flight: BytesInFlight | None = None) -> int:
        """The size in bytes of a stream's largest slab, given the responses ``in_flight``.

        A chunk row that is cut reads its chunks once for each cut. Slabs of up to four times the usual size reduce
        cuts; they are used if enough memory is free, and always if they avoid cuts of chunks without partial decoding.
        """
        row = _row_nbytes(plan) if plan.nbytes > self.slab_bytes else 0
        if row <= self.slab_bytes:
            return self.slab_bytes
        largest, room = _LARGEST_SLAB * self.slab_bytes, 0 if in_flight is None else in_flight.room
        if plan.array.metadata.codec.partial is None:
            return row if row <= largest else self.slab_bytes
        larger = min(row, largest)
        return larger if self.stream_memory(plan, larger) <= room // 2 else self.slab_bytes

    def stream_memory(self, plan: ReadPlan, slab_bytes: int) -> int:
        """Maximum memory of a stream: its slabs, and `working_memory`."""
        # one is being filled, one is being sent, and the transport may still hold the end of a third
        slabs = min(plan.nbytes, 3 * slab_bytes)
        # measured with 64 concurrent clients: fetching and decoding hold two of the usual size
        working = 2 * self.slab_bytes if plan.nbytes > slab_bytes else 0
        return slabs + working + self.working_memory(plan)

    def working_memory(self, plan: Plan) -> int:
        """Memory for decoding one chunk of a request, intermediate results included, and for shards of all its threads.

        Up to the size of a slab it counts as 0. A partially decoded chunk takes about four times the selected bytes,
        because of blocks and gaps.
        """
        metadata, mount, shards = plan.array.metadata, plan.array.mount, 0
        memory, most = metadata.codec.memory, min(plan.touched, metadata.chunks_per_object) if metadata.levels else 0
        if most and memory_of_shard(metadata, most, is_remote=mount.is_remote) > self.slab_bytes:
            stored = plan.stored
            chunks = -(-plan.touched // max(1, stored))
            shard = memory_of_shard(metadata, chunks, is_remote=mount.is_remote)
            wanted = chunks * metadata.chunk_nbytes
            if mount.is_remote:
                helpers = mount.pool.max_helpers(stored - 1, wanted)
            else:  # threads also share the chunks of one shard
                helpers = mount.pool.max_helpers(max(stored, stored * wanted // GROUP_BYTES) - 1, 0)
            shards = shard * (1 + helpers) if shard > self.slab_bytes else 0
        if memory <= 2 * self.slab_bytes or not plan.touched:
            return shards
        return shards + (memory if metadata.codec.partial is None else min(memory, 8 * plan.nbytes // plan.touched))

    def fill_slab(
        self, plan: ReadPlan, part: Selection, out: NDArray, *, cost: ReadCost, cancel: Cancel | None
    ) -> None:
        """Read a part of a plan with known versions into ``out``; raises as `read` does.

        Sets ``cost.changed`` if a chunk had another version.
        """
        slab = replace(plan, selection=part, touched=touched(part, plan.array.metadata.grid))
        self._read_chunks(slab, out, cost, cancel, caching=self._caching(plan))

    def _known(self, plan: Plan, coords: Collection[Coords]) -> Mapping[Coords, str | None]:
        """The known versions (None: absent) of the stored objects ``coords``."""
        array = plan.array
        if plan.found is not None:
            return plan.found.by_coords or {}
        if array.mount.recheck == "always" and len(coords) <= _MAX_REVALIDATED:
            return {}
        keys = {array.chunk_key(coord): coord for coord in coords}
        seen = array.mount.versions.remembered([*keys])
        cached = [key for key in keys if key not in seen and self.cache.any_version(array.cache_key(key)) is not None]
        if len(cached) > _MAX_REVALIDATED:
            seen.update(zip(cached, array.mount.versions.look_up(array.prefix, cached), strict=True))
        return {keys[key]: version for key, version in seen.items()}

    def _read_chunks(  # noqa: PLR0917
        self,
        plan: Plan,
        out: NDArray,
        cost: ReadCost,
        cancel: Cancel | None,
        found: dict[Coords, str | None] | None = None,
        caching: Caching | None = None,
    ) -> None:
        """Read the stored objects of a plan, a task for each. The versions that were read are put into ``found``."""
        cost.add(touched=plan.touched)
        objects: Iterable[StoredParts[Projection]] = plan.objects()
        if found is None:
            count = plan.stored
        else:
            objects = [*objects]
            count = len(objects)
            for stored_parts in objects:
                found.setdefault(stored_parts.coords, UNKNOWN)
        head = plan.array.head
        if head is not None:
            stored: list[StoredParts[Projection]] = []
            newest: list[Projection] = []
            whole = head.start // plan.array.metadata.chunks[head.axis]
            for coords, parts, _ in objects:
                before: list[Projection] = []
                for part in parts:
                    (before if part.coords[head.axis] < whole else newest).append(part)
                stored += [StoredParts(coords, before, len(before))] if before else []
            read_head = partial(self._read_head, plan, head, out, cost, found)
            plan.array.mount.pool.each(newest, len(newest), read_head, cancel)
            objects, count = stored, len(stored)
        if not count:
            return
        array, planned = plan.array, plan.found
        mount, metadata, versions = array.mount, array.metadata, self._known(plan, found or ())

        make = ShardReader if metadata.levels else ChunkReader
        caching = caching or self._caching(plan)
        reader = make(array, plan.field, self.cache, caching, cancel)

        def read(parts: StoredParts[Projection]) -> None:
            coords = parts.coords
            wanted = versions.get(coords, UNKNOWN)
            if planned is not None and planned.hashes is not None:  # else a cached chunk would be looked up again
                absent = planned.holds(coords, None)
                cached = None if absent else self.cache.version_of(array.cache_key(array.chunk_key(coords)))
                wanted = cached if absent or (cached is not None and planned.holds(coords, cached)) else UNKNOWN
            version = reader.read(parts, wanted, out, cost)
            if found is not None:
                found[coords] = version
            known_before = wanted == version if wanted != UNKNOWN else planned is None or planned.holds(coords, version)
            cost.changed |= mount.recheck == "always" and not known_before

        rest = iter(objects)
        first = next(rest)
        nbytes = first.chunks * reader.decoded(next(iter(first.parts))) if count > 1 else 0
        reader.each(chain((first,), rest), count, read, nbytes, nbytes if mount.is_remote else 0)

    def _read_head(  # noqa: PLR0917
        self,
        plan: Plan,
        head: Head,
        out: NDArray,
        cost: ReadCost,
        found: dict[Coords, str | None] | None,
        part: Projection,
    ) -> None:
        """Read ``part`` of a chunk with items of the ``head``; the stored chunk may hold earlier ones."""
        array, metadata = plan.array, plan.array.metadata
        chunk = np.empty(metadata.chunks, metadata.dtype.numpy)  # pages are allocated when touched
        origin = [first * size for first, size in zip(part.coords, metadata.chunks, strict=True)]
        regions = part.chunk_region if isinstance(part, ChunkProjection) else part.inside
        box = []  # bounding box of the selected cells
        for first, size, region in zip(origin, metadata.chunks, regions, strict=True):
            cells = np.arange(size)[region] if isinstance(region, slice) else np.atleast_1d(region)
            box.append(slice(first + int(np.min(cells)), first + int(np.max(cells)) + 1))
        low, high = box[head.axis].start, box[head.axis].stop
        middle = min(max(low, head.start), high)
        for start, stop in ((low, middle), (middle, high)):
            if start == stop:
                continue
            box[head.axis] = slice(start, stop)
            inside = tuple([slice(s.start - first, s.stop - first) for s, first in zip(box, origin, strict=True)])
            if start >= head.start:
                head.read(tuple(box), chunk[inside])
                continue
            before = make_plan(replace(array, head=None), normalise(box, metadata.shape))
            values = np.empty(before.shape, before.dtype)
            before = replace(before, found=plan.found)
            self._read_chunks(before, values, cost, None, found)
            chunk[inside] = values
        if found is not None and found.get(stored_at := metadata.stored_coords(part.coords)) == UNKNOWN:
            found[stored_at] = None
        with np.errstate(over="ignore"):
            part.copy_out(chunk if plan.field is None else values_of(plan.field, chunk), out)

    def _caching(self, plan: Plan) -> Caching:
        largest, row = _LARGEST_SLAB * self.slab_bytes, 0
        if isinstance(plan, ReadPlan) and plan.nbytes > largest and plan.array.metadata.codec.partial is None:
            row = _row_nbytes(plan)
        if largest < row <= self.cache.limit // 2:
            return Caching.AT_ONCE  # chunks of a cut row are needed for all slabs of the row
        decoded = plan.touched * plan.array.metadata.chunk_nbytes
        if decoded + plan.touched * ENTRY_NBYTES > self.cache.limit // 4:
            return Caching.NEVER
        return Caching.AT_ONCE if decoded <= 16 << 20 else Caching.WHEN_ASKED_AGAIN


def _elsewhere(plan: P, absent: Sequence[Coords]) -> P | None:
    """The plan with other keys of chunks, if the array's are found elsewhere as these are ``absent``; else None."""
    array = elsewhere(plan.array, absent)
    return None if array is None else replace(plan, array=array, found=None)


def _batches(items: Iterable[T], cancel: Cancel | None) -> Iterator[list[T]]:
    """Batches of keys for look-ups, or of the inputs of keys."""
    rest = iter(items)
    while batch := list(islice(rest, 8192)):
        if cancel is not None:
            cancel.check()
        yield batch


def _row_nbytes(plan: ReadPlan) -> int:
    """Bytes of one row of chunks along the first axis of the answer; of the whole answer without axes."""
    axes = plan.selection.output_axes
    if not axes or not plan.shape[0]:
        return plan.nbytes
    axis = plan.selection.axes[axes[0]]
    step = abs(axis.step) if isinstance(axis, SliceAxis) else 1
    rows = min(plan.shape[0], -(-plan.array.metadata.chunks[axes[0]] // step))
    return plan.nbytes // plan.shape[0] * rows
