"""One chunk at a time: from the cache or the store into its place in the answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import Any

import numpy as np

from hyperslab.arrays.cost import ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import Coords, Projection
from hyperslab.cache import Recent, VersionedCache
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import ChunkProjection
from hyperslab.engine.runs import Run
from hyperslab.errors import ChunkNotFound
from hyperslab.storage.base import Stored, VersionConflict

NDArray = np.ndarray[Any, np.dtype[Any]]
ChunkCache = VersionedCache[NDArray]

_LARGE_CHUNK = 1 << 20
_RANGES_WORTH_NEAR = 256 << 10
"""Decoded bytes of a chunk from which reading parts of a file beats reading all of it, one call more or less."""
_RANGES_WORTH_FAR = 4 << 20
"""The same where a request takes milliseconds."""

UNKNOWN = "?"
"""Stands for a version that was not looked up: never equal to a real one."""


class Caching(Enum):
    """When a decoded chunk gets a place in the cache.

    ``AT_ONCE``: small answers, which are what viewers and loops ask for. ``WHEN_ASKED_AGAIN``: larger ones, which are
    often read once and for which decoding straight into the answer is faster. ``NEVER``: what would wash the cache out.
    """

    AT_ONCE = 0
    WHEN_ASKED_AGAIN = 1
    NEVER = 2


@dataclass(frozen=True, slots=True)
class ChunkMemory:
    """The decoded chunks that are kept, and the keys of those that were asked for lately."""

    cache: ChunkCache
    recent: Recent


class ChunkReader:
    """Reads the chunks of one array for one answer. Called from many threads, each with another chunk."""

    def __init__(
        self,
        array: ArrayNode,
        memory: ChunkMemory,
        versions: Mapping[Coords, str | None] | None,
        *,
        field: Field | None,
        caching: Caching,
        cost: ReadCost,
    ) -> None:
        self._array = array
        self._metadata = array.metadata
        self._cache = memory.cache
        self._recent = memory.recent
        self._versions = versions
        self._field = field.name if field is not None else None
        self._caching = caching
        self._cost = cost
        self._store = array.mount.store
        self._codec = array.metadata.codec
        fill = array.metadata.fill
        self._fill: NDArray = fill if field is None else fill[field.name]

    def read_cached(self, projection: Projection, out: NDArray) -> bool:
        """Place a chunk that needs no I/O; False, and nothing done, where it does."""
        version = self._version(projection.coords)
        key = self._array.chunk_key(projection.coords)
        if version is None:
            self._absent(projection, out, key)
            return True
        chunk = self._cache.get(cache_key(self._array, key), version)
        if chunk is None:
            return False
        self._place(projection, chunk, out)
        self._cost.add(cached=1)
        return True

    def read(self, projection: Projection, out: NDArray) -> None:
        """Place the part of one chunk that ``projection`` selects into ``out``.

        Raises `ChunkCorrupt`, `StoreError`, and `ChunkNotFound` where missing chunks are not to be filled.
        """
        if self.read_cached(projection, out):
            return
        version = self._version(projection.coords)
        assert version is not None
        key = self._array.chunk_key(projection.coords)
        runs = self._runs(projection)
        if self._is_kept(key, version, part=runs is not None):
            self._read_through_cache(projection, out, key, version)
        elif runs is None or not self._read_ranges(projection, out, key, version, runs):
            self._read_around(projection, out, key, runs)

    def _runs(self, projection: Projection) -> Sequence[Run] | None:
        """The items needed, where reading only them is worth it; else None."""
        partial = self._codec.partial
        if partial is None or projection.covers_chunk:
            return None
        runs = projection.item_runs(self._metadata.chunks, self._metadata.order, gap=partial.gap)
        return runs if partial.worth_it(runs) else None

    def _is_kept(self, key: str, version: str, *, part: bool) -> bool:
        """Whether the chunk is to be decoded whole and cached; of a large one only a part is read the first time."""
        if self._caching is Caching.NEVER or self._metadata.chunk_nbytes > self._cache.limit:
            return False
        if self._caching is Caching.AT_ONCE and not (part and self._metadata.chunk_nbytes >= _LARGE_CHUNK):
            return True
        return self._recent.again(cache_key(self._array, key), version)

    def _read_through_cache(self, projection: Projection, out: NDArray, key: str, version: str) -> None:
        def load() -> tuple[NDArray, str, int]:
            stored = self._fetch(key)
            if stored is None:
                raise _Vanished
            chunk = self._decode(stored, key)
            chunk.setflags(write=False)
            return chunk, stored.version, chunk_nbytes(chunk)

        try:
            chunk, was_there = self._cache.load(cache_key(self._array, key), version, load, count_miss=False)
        except _Vanished:
            self._absent(projection, out, key)
            return
        if was_there:
            self._cost.add(cached=1)
        self._place(projection, chunk, out)

    def _read_ranges(self, projection: Projection, out: NDArray, key: str, version: str, runs: Sequence[Run]) -> bool:
        """Fetch and decode only what holds ``runs``; False where the whole chunk is as well fetched."""
        partial = self._codec.partial
        capabilities = self._store.capabilities
        worth = _RANGES_WORTH_NEAR if capabilities.cheap_stat else _RANGES_WORTH_FAR
        if partial is None or not capabilities.ranges or version == UNKNOWN or self._metadata.chunk_nbytes < worth:
            return False
        try:
            head = self._fetch_ranges(key, [(0, partial.head_bytes)], version)[0] if partial.head_bytes else b""
            ranges = partial.ranges(head, runs, key)
            if ranges is None:
                return False
            parts = self._fetch_ranges(key, ranges, version)
        except (VersionConflict, _Vanished):
            return False
        start = perf_counter()
        placed = [(begin, part) for (begin, _), part in zip(ranges, parts, strict=True)]
        chunk = partial.decode_parts(head, placed, runs, key)
        self._cost.spend("decode", perf_counter() - start)
        self._place(projection, chunk, out)
        return True

    def _read_around(self, projection: Projection, out: NDArray, key: str, runs: Sequence[Run] | None) -> None:
        stored = self._fetch(key)
        if stored is None:
            self._absent(projection, out, key)
            return
        start = perf_counter()
        chunk = None if self._decode_into_place(projection, stored, out, key) else self._decode_some(stored, key, runs)
        self._cost.spend("decode", perf_counter() - start)
        if chunk is not None:
            self._place(projection, chunk, out)

    def _decode_into_place(self, projection: Projection, stored: Stored, out: NDArray, key: str) -> bool:
        """Decode straight into the answer; False where its items do not lie there as they do in the chunk."""
        metadata = self._metadata
        alike = self._field is None and out.dtype == metadata.dtype.numpy and not metadata.dtype.is_object
        if not alike or not isinstance(projection, ChunkProjection):
            return False
        target = projection.contiguous_out(out, metadata.order)
        if target is not None:
            self._codec.decode_into(stored.data, target, key)
            return True
        if self._codec.partial is None:
            return False
        run = projection.contiguous_run(out, metadata.chunks, metadata.order)
        return run is not None and self._codec.partial.decode_run_into(stored.data, *run, key)

    def _decode_some(self, stored: Stored, key: str, runs: Sequence[Run] | None) -> NDArray:
        partial = self._codec.partial
        if runs is not None and partial is not None:
            chunk = partial.decode_runs(stored.data, runs, key)
            if chunk is not None:
                return chunk
        return self._codec.decode(stored.data, key)

    def _fetch_ranges(self, key: str, ranges: Sequence[Run], version: str) -> list[bytes | memoryview]:
        start = perf_counter()
        parts = self._store.get_ranges(key, ranges, version)
        self._cost.spend("fetch", perf_counter() - start)
        if parts is None:
            raise _Vanished
        self._cost.add(bytes_read=sum(len(part) for part in parts))
        return parts

    def _fetch(self, key: str) -> Stored | None:
        start = perf_counter()
        stored = self._store.get(key)
        self._cost.spend("fetch", perf_counter() - start)
        if stored is not None:
            self._cost.add(bytes_read=len(stored.data))
        return stored

    def _decode(self, stored: Stored, key: str) -> NDArray:
        start = perf_counter()
        chunk: NDArray = self._codec.decode(stored.data, key)
        self._cost.spend("decode", perf_counter() - start)
        return chunk

    def _place(self, projection: Projection, chunk: NDArray, out: NDArray) -> None:
        values = chunk if self._field is None else chunk[self._field]
        if values.dtype == out.dtype:
            projection.copy_out(values, out)
        else:
            with np.errstate(over="ignore"):  # numbers too large for a narrower dtype become infinite
                projection.copy_out(values, out)

    def _absent(self, projection: Projection, out: NDArray, key: str) -> None:
        if not self._array.mount.fill_missing:
            raise ChunkNotFound(self._array.path, key)
        with np.errstate(over="ignore"):
            projection.fill_out(self._fill, out)

    def _version(self, coords: Coords) -> str | None:
        return UNKNOWN if self._versions is None else self._versions[coords]


class _Vanished(Exception):
    """The chunk was deleted between the plan and the read."""


def cache_key(array: ArrayNode, key: str) -> tuple[str, str, str]:
    """Under what a decoded chunk is cached."""
    return array.mount.name, key, array.data_id


def chunk_nbytes(chunk: NDArray) -> int:
    """Bytes that a decoded chunk holds on to, objects included."""
    if chunk.dtype.kind != "O":
        return chunk.nbytes
    return chunk.nbytes + sum(sys.getsizeof(item) for item in chunk.flat)
