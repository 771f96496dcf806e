"""One chunk at a time: from the cache or the store into its place in the answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np

from hyperslab.arrays.cost import ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import Coords, Projection
from hyperslab.cache import VersionedCache
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import ChunkProjection
from hyperslab.errors import ChunkNotFound
from hyperslab.storage.base import Stored

NDArray = np.ndarray[Any, np.dtype[Any]]
ChunkCache = VersionedCache[NDArray]

UNKNOWN = "?"
"""Stands for a version that was not looked up: never equal to a real one."""


class ChunkReader:
    """Reads the chunks of one array for one answer. Called from many threads, each with another chunk.

    ``caching`` says whether what is decoded is kept; an answer that would wash out the cache reads around it.
    """

    def __init__(
        self,
        array: ArrayNode,
        cache: ChunkCache,
        versions: Mapping[Coords, str | None] | None,
        *,
        field: Field | None,
        caching: bool,
        cost: ReadCost,
    ) -> None:
        self._array = array
        self._cache = cache
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
        if version is None:
            self._absent(projection, out, self._array.chunk_key(projection.coords))
            return True
        chunk = self._cache.get(self._cache_key(self._array.chunk_key(projection.coords)), version)
        if chunk is None:
            return False
        self._place(projection, chunk, out)
        self._cost.add(cached=1)
        return True

    def read(self, projection: Projection, out: NDArray) -> None:
        """Place the part of one chunk that ``projection`` selects into ``out``.

        Raises `ChunkCorrupt`, `StoreError`, and `ChunkNotFound` where missing chunks are not to be filled.
        """
        version = self._version(projection.coords)
        key = self._array.chunk_key(projection.coords)
        if version is None:
            return self._absent(projection, out, key)
        chunk = self._cache.get(self._cache_key(key), version) if self._cache.limit else None
        if chunk is not None:
            self._cost.add(cached=1)
            return self._place(projection, chunk, out)
        if self._caching:
            return self._read_through_cache(projection, out, key, version)
        return self._read_around(projection, out, key)

    def _read_through_cache(self, projection: Projection, out: NDArray, key: str, version: str) -> None:
        def load() -> tuple[NDArray, str, int]:
            stored = self._fetch(key)
            if stored is None:
                raise _Vanished
            chunk = self._decode(stored, key)
            chunk.setflags(write=False)
            return chunk, stored.version, chunk_nbytes(chunk)

        try:
            chunk, was_there = self._cache.load(self._cache_key(key), version, load)
        except _Vanished:
            return self._absent(projection, out, key)
        if was_there:
            self._cost.add(cached=1)
        return self._place(projection, chunk, out)

    def _read_around(self, projection: Projection, out: NDArray, key: str) -> None:
        stored = self._fetch(key)
        if stored is None:
            return self._absent(projection, out, key)
        target = None
        if (
            isinstance(projection, ChunkProjection)
            and self._codec.can_decode_into
            and self._field is None
            and out.dtype == self._array.metadata.dtype.numpy
        ):
            target = projection.contiguous_out(out)
        if target is None:
            return self._place(projection, self._decode(stored, key), out)
        start = perf_counter()
        self._codec.decode_into(stored.data, target, key)
        self._cost.spend("decode", perf_counter() - start)
        return None

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
        projection.copy_out(chunk if self._field is None else chunk[self._field], out)

    def _absent(self, projection: Projection, out: NDArray, key: str) -> None:
        if not self._array.mount.fill_missing:
            raise ChunkNotFound(self._array.path, key)
        projection.fill_out(self._fill, out)

    def _version(self, coords: Coords) -> str | None:
        return UNKNOWN if self._versions is None else self._versions[coords]

    def _cache_key(self, key: str) -> tuple[str, str, str]:
        return cache_key(self._array, key)


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
