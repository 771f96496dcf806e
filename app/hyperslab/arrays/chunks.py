"""Chunk reader: reads one chunk from the cache or the store into its place in the output."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import cached_property
from threading import Lock
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from hyperslab.arrays.memory import LEAST, MEMORY
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import Projection
from hyperslab.arrays.workers import Cancel
from hyperslab.cache import Vanished, VersionedCache
from hyperslab.engine.chain import Buffer
from hyperslab.engine.codecs import ChunkCodec
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import ChunkProjection, StoredParts, values_of
from hyperslab.engine.partial import Part, PartialDecoder
from hyperslab.engine.runs import Run, covers
from hyperslab.errors import ChunkNotFound
from hyperslab.storage.base import AT_ONCE, VersionConflict

T = TypeVar("T")
NDArray = np.ndarray[Any, np.dtype[Any]]

UNKNOWN: Final = "?"
"""Placeholder for a version that was not looked up; differs from every real version."""


ENTRY_NBYTES: Final = 512
"""Memory of a cached chunk's key, version and array object."""


class PartOfChunk(NamedTuple):
    """A chunk of which only ``runs`` are decoded; it is undefined elsewhere."""

    chunk: NDArray
    runs: Sequence[Run]


class ChunkCache(VersionedCache[Any]):
    """Cache of at most ``limit`` bytes of decoded chunks, as arrays, and of others as `PartOfChunk`.

    ``recent``: names of recently requested chunks.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.recent: VersionedCache[bool] = VersionedCache(100_000)

    def clear(self) -> None:
        super().clear()
        self.recent.clear()


class ReadCost:
    """Read statistics of one request: chunks touched, cache hits, bytes read from the store, seconds by phase.
    Thread-safe.

    ``changed``: a chunk had another version than the one looked up, because of a concurrent write.
    """

    __slots__ = ("_lock", "bytes_read", "cached", "changed", "timings", "touched")

    def __init__(self) -> None:
        self.touched = self.cached = self.bytes_read = 0
        self.changed = False
        self.timings: defaultdict[str, float] = defaultdict(float)
        self._lock = Lock()

    def add(self, *, touched: int = 0, cached: int = 0, bytes_read: int = 0, **seconds: float) -> None:
        """Add counts and seconds. Seconds of concurrent reads add up, and may exceed elapsed time."""
        with self._lock:
            self.touched += touched
            self.cached += cached
            self.bytes_read += bytes_read
            for phase, elapsed in seconds.items():
                self.timings[phase] += elapsed


class Caching(Enum):
    """Policy for caching decoded chunks.

    ``AT_ONCE``: small answers, typical of viewers and loops. ``WHEN_ASKED_AGAIN``: larger ones, often read once and
    faster to decode directly into the output. ``NEVER``: answers large enough to evict everything else.
    """

    AT_ONCE = 0
    WHEN_ASKED_AGAIN = 1
    NEVER = 2


class ChunkRequest(NamedTuple):
    """A requested chunk: its ``cached`` copy, or the ``runs`` of items to decode, None for all; ``keep``: cache what is
    decoded, under ``name``."""

    part: Projection
    cached: NDArray | None
    runs: Sequence[Run] | None
    keep: bool
    name: tuple[str, str, str]


class Parts(NamedTuple):
    """The beginning of a stored chunk, and byte ranges with the items of ``runs``, by their position in it."""

    head: Buffer
    ranges: Sequence[Part]
    runs: Sequence[Run]

    @property
    def nbytes(self) -> int:
        return len(self.head) + sum([len(data) for _, data in self.ranges])


class ChunkReader:
    """Reads chunks of one array, or of one field, one at a time. Thread-safe.

    A chunk has five ways into the output: cached copy, fill value, decoded in place, decoded elsewhere and copied, and
    parts (blocks or byte ranges) decoded elsewhere and copied.
    """

    def __init__(
        self, array: ArrayNode, field: Field | None, cache: ChunkCache, caching: Caching, cancel: Cancel | None = None
    ) -> None:
        self._array = array
        self._metadata = metadata = array.metadata
        self._codec = metadata.codec
        self._partial = metadata.codec.partial
        self._field = field
        self._cache, self._cancel = cache, cancel
        self._caching = caching if metadata.chunk_nbytes <= cache.limit else Caching.NEVER
        self._store = array.mount.store
        # decoded size above which parts of a chunk are faster than all of it, despite one more request
        worth = 4 << 20 if array.mount.is_remote else 256 << 10
        self._fetches_parts = metadata.chunk_nbytes >= worth

    def read(self, parts: StoredParts[Projection], version: str | None, out: NDArray, cost: ReadCost) -> str | None:
        """Read the ``parts`` of one stored object into ``out``; returns the version that was read (None: absent).

        ``version``: as looked up (None: absent), or `UNKNOWN`, which revalidates cached copies. Raises `ChunkCorrupt`,
        `StoreError`, and `ChunkNotFound` if missing chunks are errors.
        """
        array, (part,) = self._array, parts.parts
        key = array.chunk_key(parts.coords)
        name = array.cache_key(key)
        if version == UNKNOWN and any(self._cache.any_version(entry) is not None for entry in (name, _parts_of(name))):
            version = array.mount.versions.look_up(array.prefix, [key])[0]
        if version is None:
            self._place_fill(part, key, out)
            cost.add(cached=1)
            return None
        want = self.want(part, name, version)
        if want.cached is not None:
            self._place(part, want.cached, out)
            cost.add(cached=1)
            return version
        if want.keep and want.runs is None and not AT_ONCE.get():  # there, no thread that loads it is waited for
            return self._read_through_cache(part, key, version, out, cost)
        return self._read_around_cache(want, key, out, cost)

    def each(self, items: Iterable[T], count: int, work: Callable[[T], object], nbytes: int, held: int = 0) -> None:
        """Call ``work`` with each of ``count`` items of ``nbytes`` decoded bytes, using ``held`` bytes of memory each:
        on the store's worker threads for a remote store or much decoding, else sequentially."""
        effort = nbytes * self._codec.effort  # equivalent bytes of LZ4
        # in a folder, threads make less work slower: chunks of 64 KiB 1.5 times (benchmark `engine`, slide)
        if count > 1 and (held or (effort >= 256 << 10 and count * effort >= 2 << 20)):
            self._array.mount.pool.each(items, count, work, self._cancel, nbytes=held)
            return
        for item in items:
            if self._cancel is not None:
                self._cancel.check()
            work(item)

    def decoded(self, part: Projection) -> int:
        """Estimate of the bytes to decode for a chunk that is not cached."""
        runs, metadata = self._runs(part), self._metadata
        if runs is None:
            return metadata.chunk_nbytes
        return runs[-1][1] * metadata.itemsize if self._partial is None else self._partial.work(runs)

    def want(self, part: Projection, name: tuple[str, str, str], version: str) -> ChunkRequest:
        """A chunk of this version, by its name in the cache.

        Large chunks are cached when they are read again: at first what is decoded then, and all of it once that does
        not suffice.
        """
        cached = self._cache.get(name, version) if self._cache.limit else None
        if cached is not None:
            return ChunkRequest(part, cached, None, False, name)
        runs, metadata, before = self._runs(part), self._metadata, None
        if runs is not None and version != UNKNOWN:
            before = self._cache.get(_parts_of(name), version, count_miss=False)
            if before is not None and covers(before.runs, runs):
                return ChunkRequest(part, before.chunk, None, False, name)
        # new memory for a large chunk takes as long as decoding it, but not as fetching it from far away
        is_small = metadata.chunk_nbytes < LEAST
        at_once = is_small or (runs is None and self._array.mount.is_remote)
        keep = at_once and self._caching is Caching.AT_ONCE
        if not keep and self._caching is not Caching.NEVER:
            keep = self._cache.recent.get(name, "") is not None
            self._cache.recent.put(name, "", True, 1)
        if keep and (is_small or before is not None or metadata.coding_of is not None):
            runs = None
            self._cache.drop(_parts_of(name))
        elif keep and runs is not None and self._partial is None:  # some more: the next one may lie further on
            runs = [(0, min(runs[-1][1] * 5 // 4, metadata.chunk_nbytes // metadata.itemsize))]
        return ChunkRequest(part, None, runs, keep, name)

    def _runs(self, part: Projection) -> Sequence[Run] | None:
        """The runs of items to decode if that is faster than decoding the whole chunk; else None."""
        partial, metadata = self._partial, self._metadata
        may_pay = self._codec.start is not None if partial is None else partial.may_pay
        if not may_pay or part.covers_chunk:
            return None
        if partial is None:
            items = part.item_runs(metadata.chunks, metadata.order, limit=1)[0][1]
            # up to about this share, decoding the beginning is faster than decoding the whole chunk
            return [(0, items)] if items * metadata.itemsize <= 0.7 * metadata.chunk_nbytes else None
        runs = part.item_runs(metadata.chunks, metadata.order, gap=partial.gap)
        return runs if partial.worth_it(runs) else None

    def _read_through_cache(self, part: Projection, key: str, version: str, out: NDArray, cost: ReadCost) -> str | None:
        def load() -> tuple[NDArray, str, int]:
            start = perf_counter()
            stored = self._array.get_object(key, self._codec.max_stored_bytes)
            fetched = perf_counter()
            if stored is None:
                raise Vanished
            chunk: NDArray = self._metadata.coding(part.coords).codec.decode(stored.data, key)
            chunk.setflags(write=False)
            cost.add(bytes_read=len(stored.data), fetch=fetched - start, decode=perf_counter() - fetched)
            return chunk, stored.version, chunk_nbytes(chunk)

        try:
            loaded = self._cache.load(self._array.cache_key(key), version, load, count_miss=False)
        except Vanished:
            self._place_fill(part, key, out)
            return None
        if loaded.was_there:
            cost.add(cached=1)
        self._place(part, loaded.value, out)
        return loaded.version

    def _read_around_cache(self, want: ChunkRequest, key: str, out: NDArray, cost: ReadCost) -> str | None:
        start, part, runs = perf_counter(), want.part, want.runs
        fetched_parts: tuple[str, Buffer | Parts] | None = None
        if self._partial is not None and runs is not None and self._fetches_parts:
            fetched_parts = self._fetch_parts(self._partial, key, runs)
        if fetched_parts is None:
            stored = self._array.get_object(key, self._codec.max_stored_bytes)
            if stored is None:
                self._place_fill(part, key, out)
                return None
            fetched_parts = stored.version, stored.data
        (version, data), fetched = fetched_parts, perf_counter()
        nbytes = data.nbytes if isinstance(data, Parts) else len(data)
        self.place_decoded(self._metadata.coding(part.coords).codec, want, key, data, out, version)
        cost.add(bytes_read=nbytes, fetch=fetched - start, decode=perf_counter() - fetched)
        return version

    def _fetch_parts(self, partial: PartialDecoder, key: str, runs: Sequence[Run]) -> tuple[str, Parts] | None:
        """Parts of a chunk, with their version: its first bytes, then the other ranges of that version.

        None if a single request for the whole chunk is as cheap, also if it was removed or changed meanwhile.
        """
        head = partial.head_bytes
        ranges = None if head else partial.ranges(b"", runs, key)
        if not head and not ranges:
            return None
        start, stop = (0, head) if ranges is None else ranges[0]
        first = self._store.get_part(key, start, stop)
        if first is None:
            return None
        begun, version = first.between(start, stop), first.entry.version
        ranges = partial.ranges(begun, runs, key) if ranges is None else ranges
        if ranges is None:
            return None
        rest = ranges if head else ranges[1:]
        try:
            fetched = self._store.get_ranges(key, rest, version) if rest else []
        except VersionConflict:
            return None
        if fetched is None:
            return None
        data = [*([] if head else [begun]), *fetched]
        parts = [(offset, data_of_range) for (offset, _), data_of_range in zip(ranges, data, strict=True)]
        return version, Parts(begun if head else b"", parts, runs)

    def place_decoded(  # noqa: PLR0917
        self,
        codec: ChunkCodec,
        want: ChunkRequest,
        key: str,
        stored: Buffer | Parts,
        out: NDArray,
        version: str | None,
    ) -> None:
        """Decode the needed items of a chunk of ``version`` into the output; directly if the memory layouts match."""
        part, runs = want.part, want.runs
        if isinstance(stored, Parts):
            assert codec.partial is not None
            parts = codec.partial.decode_parts(*stored, key=key, memory=_memory_for(codec, want))
            self._place_and_keep(want, parts, codec.partial.decoded_runs(stored.head, stored.runs), out, version)
            return
        metadata, target = self._metadata, None
        alike = self._field is None and out.dtype == metadata.dtype.numpy and not metadata.dtype.numpy.hasobject
        if alike and isinstance(part, ChunkProjection) and not want.keep:
            target = part.contiguous_out(out, metadata.order)
        if target is not None:
            codec.decode_into(stored, target, key)
            return
        chunk, decoded, memory = None, runs, _memory_for(codec, want)
        if runs is not None and codec.partial is not None:
            chunk = codec.partial.decode_runs(stored, runs, key=key, memory=memory)
            decoded = None if chunk is None else codec.partial.decoded_runs(stored, runs)
        elif runs is not None:
            chunk = codec.decode_start(stored, runs[-1][1], key, memory)
        if chunk is None:
            chunk, decoded = codec.decode(stored, key, memory), None
        self._place_and_keep(want, chunk, decoded, out, version)

    def _place_and_keep(
        self, want: ChunkRequest, chunk: NDArray, decoded: Sequence[Run] | None, out: NDArray, version: str | None
    ) -> None:
        """Place a chunk of which the runs ``decoded`` (None: all) are defined, and cache it if it is to be kept."""
        self._place(want.part, chunk, out)
        if want.keep and decoded is None:
            chunk.setflags(write=False)
            self._cache.put(want.name, version or "", chunk, chunk_nbytes(chunk))
        elif want.keep and decoded is not None:
            nbytes = sum([stop - start for start, stop in decoded]) * chunk.itemsize
            self._cache.put(_parts_of(want.name), version or "", PartOfChunk(chunk, decoded), nbytes)

    def _place(self, part: Projection, chunk: NDArray, out: NDArray) -> None:
        values = chunk if self._field is None else values_of(self._field, chunk)
        if values.dtype == out.dtype:
            part.copy_out(values, out)
            return
        with np.errstate(over="ignore"):  # overflow to infinity in a narrower dtype
            part.copy_out(values, out)

    def _place_fill(self, part: Projection, key: str, out: NDArray) -> None:
        with np.errstate(over="ignore"):
            part.put_out(self.fill_of(key), out)

    def fill_of(self, key: str) -> NDArray:
        """The value of cells that are not stored; raises `ChunkNotFound` if the store says that none may be missing."""
        if not self._array.mount.fill_missing:
            raise ChunkNotFound(self._array.path, key)
        return self._fill

    @cached_property
    def _fill(self) -> NDArray:
        fill = self._metadata.fill
        return fill if self._field is None else values_of(self._field, fill)


def _parts_of(name: tuple[str, str, str]) -> tuple[str, ...]:
    """The cache key of the decoded parts of a chunk."""
    return (*name, "parts")


def _memory_for(codec: ChunkCodec, want: ChunkRequest) -> NDArray | None:
    """Memory to decode a chunk into; None for its own, if it is kept."""
    return None if want.keep or codec.dtype.numpy.hasobject else MEMORY.take(codec.stage.nbytes)


def chunk_nbytes(chunk: NDArray) -> int:
    """Memory of a decoded chunk in the cache, its key and objects included."""
    if chunk.dtype.kind != "O":
        return chunk.nbytes + ENTRY_NBYTES
    return chunk.nbytes + ENTRY_NBYTES + sum(sys.getsizeof(item) for item in chunk.flat)
