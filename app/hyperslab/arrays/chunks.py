"""Chunk reader: one chunk, from the cache or the store, into its place in the output."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import Any, Final, NamedTuple

import numpy as np

from hyperslab.arrays.cost import ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import Projection
from hyperslab.arrays.scratch import Bytes, Scratch
from hyperslab.cache import Recent, Vanished, VersionedCache
from hyperslab.engine.chain import Buffer
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import ChunkProjection
from hyperslab.engine.partial import Part, PartialDecoder
from hyperslab.engine.runs import Run
from hyperslab.engine.subarray import values_of
from hyperslab.errors import ChunkCorrupt, ChunkNotFound, StoredTooLarge
from hyperslab.storage.base import Files, Store, Stored, VersionConflict, file_store

NDArray = np.ndarray[Any, np.dtype[Any]]
ChunkCache = VersionedCache[NDArray]

UNKNOWN: Final = "?"
"""Stands for a version that was not looked up: never equal to a real one."""

_LARGE_CHUNK = 1 << 20
_ROOM_SHARE = 64
_ROOM = 4 << 10
"""What does not compress is stored in a few bytes more."""
_RANGES_WORTH_LOCAL = 256 << 10
"""Decoded bytes of a chunk from which reading parts of a file beats reading all of it, one call more or less."""
_RANGES_WORTH_REMOTE = 4 << 20
"""The same where a request takes milliseconds."""


class Caching(Enum):
    """When a decoded chunk gets a place in the cache.

    ``AT_ONCE``: small answers, which are what viewers and loops ask for. ``WHEN_ASKED_AGAIN``: larger ones, which are
    often read once and for which decoding straight into the answer is faster. ``NEVER``: answers so large that they
    would push everything else out of the cache.
    """

    AT_ONCE = 0
    WHEN_ASKED_AGAIN = 1
    NEVER = 2


@dataclass(frozen=True, slots=True)
class ChunkMemory:
    """The cache of decoded chunks, the keys of those that were asked for lately, and scratch memory for the others."""

    cache: ChunkCache
    recent: Recent
    scratch: Scratch


@dataclass(frozen=True, slots=True)
class Fetched:
    """A stored chunk as ``whole``; or its beginning as ``head`` and the ``parts`` that `PartialDecoder.ranges` named.

    ``in_memory``: all parts lie in the scratch memory, where they lie in the stored chunk.
    """

    version: str
    whole: Buffer | None
    head: Buffer = b""
    parts: Sequence[Part] = ()
    in_memory: bool = False

    @property
    def nbytes(self) -> int:
        if self.whole is not None:
            return len(self.whole)
        return len(self.head) + sum([len(part) for _, part in self.parts])


class Piece(NamedTuple):
    """The part of one chunk that is read: what goes where, its key, and the runs of items to decode (None: all)."""

    part: Projection
    key: str
    runs: Sequence[Run] | None


class ChunkReader:
    """Reads the chunks of one array, or of one field, one at a time. Safe to call from many threads.

    A chunk has five ways into the output: a cached copy, the fill value, decoded into place, decoded beside and copied,
    and parts of it (blocks or byte ranges) decoded beside and copied. ``by_parts``: whether parts of stored chunks are
    fetched, by requests that have to be of one version.
    """

    def __init__(self, array: ArrayNode, field: Field | None, memory: ChunkMemory, caching: Caching) -> None:
        self._array = array
        self._metadata = metadata = array.metadata
        self._codec = metadata.codec
        self._partial = metadata.codec.partial
        self._field = field
        self._fill: NDArray = metadata.fill if field is None else values_of(field, metadata.fill)
        self._cache, self._recent, self._scratch = memory.cache, memory.recent, memory.scratch
        self._caching = caching if metadata.chunk_nbytes <= memory.cache.limit else Caching.NEVER
        self._store = store = array.mount.store
        files = file_store(store)
        self._files: Files | None = None if files is None else files.files()
        worth = _RANGES_WORTH_REMOTE if array.mount.is_remote else _RANGES_WORTH_LOCAL
        self.by_parts = self._partial is not None and store.capabilities.ranges and metadata.chunk_nbytes >= worth

    def read(self, part: Projection, version: str | None, out: NDArray, cost: ReadCost) -> str | None:
        """Read what ``part`` selects of its chunk into ``out``; returns the version that was read (None: absent).

        ``version`` is what was looked up (None: absent), or `UNKNOWN`. Raises `ChunkCorrupt`, `StoreError`, and
        `ChunkNotFound` where missing chunks are not to be filled.
        """
        key = self._array.chunk_key(part.coords)
        if self.read_cached(part, key, version, out, cost):
            return version
        assert version is not None
        piece = Piece(part, key, self._runs(part))
        if self._is_kept(key, version, partly=piece.runs is not None):
            found = self._read_through_cache(piece, version, out, cost)
        else:
            found = self._read_around_cache(piece, version, out, cost)
        if found != version != UNKNOWN:  # set and never cleared, as other threads do so too
            cost.moved = True
        return found

    def read_cached(self, part: Projection, key: str, version: str | None, out: NDArray, cost: ReadCost) -> bool:
        """Place a chunk that needs no I/O; False, and nothing done, where it does."""
        if version is None:
            self._place_fill(part, key, out)
            return True
        if version == UNKNOWN or not self._cache.limit:
            return False
        chunk = self._cache.get(cache_key(self._array, key), version)
        if chunk is None:
            return False
        self._place(part, chunk, out)
        cost.add(cached=1)
        return True

    def effort(self, part: Projection) -> float:
        """About what decoding takes where nothing is cached: in bytes that LZ4 makes in the same time."""
        return self.decoded(part) * self._codec.effort

    def decoded(self, part: Projection) -> int:
        """About how many bytes are decoded where nothing is cached."""
        runs = self._runs(part)
        return self._metadata.chunk_nbytes if self._partial is None or runs is None else self._partial.work(runs)

    def _runs(self, part: Projection) -> Sequence[Run] | None:
        """The runs of items needed, where decoding only them is worth it; else None."""
        partial, metadata = self._partial, self._metadata
        if partial is None or part.covers_chunk:
            return None
        runs = part.item_runs(metadata.chunks, metadata.order, gap=partial.gap)
        return runs if partial.worth_it(runs) else None

    def _is_kept(self, key: str, version: str, *, partly: bool) -> bool:
        """Whether the chunk is to be decoded whole and cached; of a large one only a part is read the first time."""
        if self._caching is Caching.NEVER:
            return False
        if self._caching is Caching.AT_ONCE and not (partly and self._metadata.chunk_nbytes >= _LARGE_CHUNK):
            return True
        return self._recent.again(cache_key(self._array, key), version)

    def _read_through_cache(self, piece: Piece, version: str, out: NDArray, cost: ReadCost) -> str | None:
        part, key, _ = piece

        def load() -> tuple[NDArray, str, int]:
            start = perf_counter()
            stored = get_chunk(self._store, key, self._codec.most_stored)
            fetched = perf_counter()
            if stored is None:
                raise Vanished
            chunk: NDArray = self._codec.decode(stored.data, key)
            chunk.setflags(write=False)
            cost.chunk(len(stored.data), fetch=fetched - start, decode=perf_counter() - fetched)
            return chunk, stored.version, chunk_nbytes(chunk)

        try:
            loaded = self._cache.load(cache_key(self._array, key), version, load, count_miss=False)
        except Vanished:
            self._place_fill(part, key, out)
            return None
        if loaded.was_there:
            cost.add(cached=1)
        self._place(part, loaded.value, out)
        return loaded.version

    def _read_around_cache(self, piece: Piece, version: str, out: NDArray, cost: ReadCost) -> str | None:
        part, key, runs = piece
        start = perf_counter()
        nbytes = self._metadata.chunk_nbytes
        memory = None if self._files is None else self._scratch.take(nbytes + nbytes // _ROOM_SHARE + _ROOM)
        if self._files is None or memory is None:
            fetched = self._fetch(key, version, runs)
        else:
            fetched = self._fetch_into(self._files, memory, key, runs)
        began = perf_counter()
        if fetched is None:
            self._place_fill(part, key, out)
        else:
            if not (fetched.whole is not None and self._decode_into_place(part, key, fetched.whole, out)):
                self._decode_beside(piece, fetched, out, memory)
            cost.chunk(fetched.nbytes, fetch=began - start, decode=perf_counter() - began)
        if memory is not None:
            self._scratch.give_back(memory)
        return None if fetched is None else fetched.version

    def _fetch(self, key: str, version: str, runs: Sequence[Run] | None) -> Fetched | None:
        """By one request, or by one for the head of the chunk and one for the ranges that hold ``runs``."""
        if self.by_parts and self._partial is not None and runs is not None and version != UNKNOWN:
            try:
                parts = self._fetch_parts(self._partial, key, version, runs)
            except VersionConflict:
                parts = None  # a writer came between; one request for all is of one version
            if parts is not None:
                return parts
        stored = get_chunk(self._store, key, self._codec.most_stored)
        return None if stored is None else Fetched(stored.version, stored.data)

    def _fetch_parts(self, partial: PartialDecoder, key: str, version: str, runs: Sequence[Run]) -> Fetched | None:
        """None where fetching the whole chunk costs no more, or it is gone."""
        head: Buffer = b""
        if partial.head_bytes:
            heads = self._store.get_ranges(key, [(0, partial.head_bytes)], version)
            if heads is None:
                return None
            head = heads[0]
        ranges = partial.ranges(head, runs, key)
        parts = None if ranges is None else self._store.get_ranges(key, ranges, version)
        if ranges is None or parts is None:
            return None
        return Fetched(version, None, head, [(start, part) for (start, _), part in zip(ranges, parts, strict=True)])

    def _fetch_into(self, files: Files, memory: Bytes, key: str, runs: Sequence[Run] | None) -> Fetched | None:
        """All steps with one open file, read to where they lie in the stored chunk."""
        partial = self._partial if self.by_parts and runs is not None else None
        ranges: Sequence[Run] | None = None

        def choose(head: memoryview) -> Sequence[Run] | None:
            nonlocal ranges
            try:
                ranges = None if partial is None or runs is None else partial.ranges(head, runs, key)
            except ChunkCorrupt:
                ranges = None  # decoding all of it says how
            return ranges

        head = 0 if partial is None else partial.head_bytes
        taken = files.read_parts(key, memory.data, head, choose)
        if taken is None:
            return None
        size, version = taken
        if size > len(memory):
            stored = get_chunk(self._store, key, self._codec.most_stored)
            return None if stored is None else Fetched(stored.version, stored.data)
        data = memory.data[:size]  # behind it lies what somebody else has left there
        if ranges is None:
            return Fetched(version, data)
        parts = [(start, data[start:stop]) for start, stop in ranges]
        return Fetched(version, None, data[:head], parts, in_memory=all(stop <= size for _, stop in ranges))

    def _decode_into_place(self, part: Projection, key: str, stored: Buffer, out: NDArray) -> bool:
        """Decode straight into the output; False where its items do not lie there as they do in the chunk."""
        metadata = self._metadata
        alike = self._field is None and out.dtype == metadata.dtype.numpy and not metadata.dtype.is_object
        if not alike or not isinstance(part, ChunkProjection):
            return False
        target = part.contiguous_out(out, metadata.order)
        if target is None:
            return False
        self._codec.decode_into(stored, target, key)
        return True

    def _decode_beside(self, piece: Piece, fetched: Fetched, out: NDArray, memory: Bytes | None) -> None:
        """Decode into other memory, and copy from there. What needs no decoding stays in ``memory``, if it is there."""
        if not self._codec.links:
            self._place(piece.part, self._decoded(piece, fetched, memory), out)
            return
        other = self._scratch.take(self._metadata.chunk_nbytes)
        self._place(piece.part, self._decoded(piece, fetched, other), out)
        self._scratch.give_back(other)

    def _decoded(self, piece: Piece, fetched: Fetched, memory: Bytes | None) -> NDArray:
        """The chunk, perhaps in ``memory``, and perhaps only the part of it that ``runs`` name."""
        (_, key, runs), partial, whole = piece, self._partial, fetched.whole
        if whole is not None:
            chunk = (
                None if partial is None or runs is None else partial.decode_runs(whole, runs, key=key, memory=memory)
            )
            return self._codec.decode(whole, key, memory) if chunk is None else chunk
        assert partial is not None
        assert runs is not None
        if fetched.in_memory and memory is not None and not self._codec.links:
            return partial.decode_in_place(memory, runs)
        return partial.decode_parts(fetched.head, fetched.parts, runs, key=key, memory=memory)

    def _place(self, part: Projection, chunk: NDArray, out: NDArray) -> None:
        values = chunk if self._field is None else values_of(self._field, chunk)
        if values.dtype == out.dtype:
            part.copy_out(values, out)
        else:
            with np.errstate(over="ignore"):  # numbers too large for a narrower dtype become infinite
                part.copy_out(values, out)

    def _place_fill(self, part: Projection, key: str, out: NDArray) -> None:
        if not self._array.mount.fill_missing:
            raise ChunkNotFound(self._array.path, key)
        with np.errstate(over="ignore"):
            part.put_out(self._fill, out)


def get_chunk(store: Store, key: str, most: int) -> Stored | None:
    """A stored chunk of at most ``most`` bytes; of a larger one, which cannot be a chunk, nothing is read. Raises
    `ChunkCorrupt`."""
    try:
        return store.get(key, most)
    except StoredTooLarge as error:
        raise ChunkCorrupt(
            key, None, f"{error.size} bytes are stored, and at most {error.limit} make a chunk"
        ) from error


def cache_key(array: ArrayNode, key: str) -> tuple[str, str, str]:
    """Under what a decoded chunk is cached."""
    return array.mount.name, key, array.data_id


def chunk_nbytes(chunk: NDArray) -> int:
    """Bytes that a decoded chunk holds on to, objects included."""
    if chunk.dtype.kind != "O":
        return chunk.nbytes
    return chunk.nbytes + sum(sys.getsizeof(item) for item in chunk.flat)
