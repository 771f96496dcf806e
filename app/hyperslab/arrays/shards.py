"""Shard reader: the chunks of one stored object, by its index and by ranges of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np

from hyperslab.arrays.chunks import UNKNOWN, ChunkReader, NDArray, ReadCost, cache_key, chunk_nbytes, get_chunk
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import Projection
from hyperslab.engine.chain import Buffer
from hyperslab.engine.grid import Coords
from hyperslab.engine.sharding import Extent, Index, ShardLevel
from hyperslab.errors import ChunkCorrupt, StoreError
from hyperslab.storage.base import MOST_TRIES, Entry, Part, VersionConflict

_WHOLE_SHARE: Final = 0.5
"""From this share of a shard's chunks on, one request for all of it is better than two."""
_WHOLE_BYTES: Final = 64 << 20
"""The largest shard, decoded, that is read whole although it need not be."""
_BATCH_BYTES: Final = 16 << 20
"""Stored bytes that are held at once."""


class _Top(NamedTuple):
    """The index of a stored object, the object's size in bytes and its version."""

    entries: Index
    size: int
    version: str


class ShardReader(ChunkReader):
    """Reads chunks that share stored objects, those of one object at a time. Safe to call from many threads.

    Versions are those of stored objects. Indexes and decoded chunks are cached, each under a name of its own.
    """

    def read(
        self, key: str, parts: Sequence[Projection], version: str | None, out: NDArray, cost: ReadCost
    ) -> str | None:
        array = self._array
        if version == UNKNOWN and self._cache.any_version(cache_key(array, key)) is not None:
            version = self._versions.versions(array.mount, array.prefix, [key])[0]
        for _ in range(MOST_TRIES):
            try:
                return self._read_parts(key, parts, version, out, cost)
            except VersionConflict:
                version = UNKNOWN
        raise StoreError(self._store.name, key, "it changed again and again while it was read")

    def locate(self, coords: Coords) -> tuple[Entry, Extent] | None:
        """The stored object that holds a chunk, and where in it the chunk lies; None if it was never written. Codecs
        that a whole shard goes through are not undone."""
        key = self._array.chunk_key(self._metadata.stored_coords(coords))
        for _ in range(MOST_TRIES):
            entry = self._store.stat(key)
            try:
                top = None if entry is None else self._top(key, entry.version)
                if entry is None or top is None:
                    return None
                if top.version == entry.version:
                    (extent,) = self._extents(key, [self._origin(coords)], top)
                    return None if extent is None else (entry, extent)
            except VersionConflict:
                continue
        raise StoreError(self._store.name, key, "it changed again and again while it was read")

    def _read_parts(
        self, key: str, parts: Sequence[Projection], version: str | None, out: NDArray, cost: ReadCost
    ) -> str | None:
        if version is None:
            self._place_all_fill(parts, key, out)
            cost.add(cached=len(parts))
            return None
        missing = [*self._place_cached(parts, version, out, cost)]
        if not missing:
            return version
        if self._is_read_whole(missing):
            return self._read_whole(key, missing, out, cost)
        return self._read_ranges(key, missing, version, out, cost)

    def _place_cached(
        self, parts: Iterable[Projection], version: str, out: NDArray, cost: ReadCost
    ) -> Iterator[Projection]:
        """Place chunks that are cached, and give the others."""
        for part in parts:
            name = chunk_name(self._array, part.coords)
            chunk = self._cache.get(name, version) if version != UNKNOWN and self._cache.limit else None
            if chunk is None:
                yield part
            else:
                self._place(part, chunk, out)
                cost.add(cached=1)

    def _is_read_whole(self, parts: Sequence[Projection]) -> bool:
        """Whether a shard is fetched at once: much of it is wanted, or codecs behind it leave no choice."""
        levels = self._metadata.levels
        if any(level.after for level in levels):
            return True
        nbytes, whole = self._metadata.chunk_nbytes, self._metadata.shard_nbytes
        return whole <= _WHOLE_BYTES and len(parts) * nbytes >= _WHOLE_SHARE * whole

    def _read_whole(self, key: str, parts: Sequence[Projection], out: NDArray, cost: ReadCost) -> str | None:
        start = perf_counter()
        stored = get_chunk(self._store, key, self._metadata.levels[0].most_stored)
        if stored is None:
            self._place_all_fill(parts, key, out)
            return None
        fetched = perf_counter()
        memo: dict[tuple[Extent, ...], tuple[Buffer, Index]] = {}
        for part in parts:
            data = chunk_in(self._metadata.levels, self._origin(part.coords), stored.data, key, memo)
            self._place_stored(part, key, data, stored.version, out)
        shard, index = memo[()]
        self._hold(key, stored.version, index, len(shard))
        cost.chunk(len(stored.data), fetch=fetched - start, decode=perf_counter() - fetched)
        return stored.version

    def _read_ranges(
        self, key: str, parts: Sequence[Projection], version: str, out: NDArray, cost: ReadCost
    ) -> str | None:
        start = perf_counter()
        top = self._top(key, version)
        if top is None:
            self._place_all_fill(parts, key, out)
            return None
        extents = self._extents(key, [self._origin(part.coords) for part in parts], top)
        cost.spend("fetch", perf_counter() - start)
        absent = [part for part, extent in zip(parts, extents, strict=True) if extent is None]
        self._place_all_fill(absent, key, out)
        stored = sorted(
            [(extent, part) for part, extent in zip(parts, extents, strict=True) if extent is not None],
            key=lambda pair: pair[0],
        )
        for batch in _by_size(stored):
            start = perf_counter()
            data = self._ranges(key, [extent for extent, _ in batch], top.version)
            fetched = perf_counter()
            for (_, part), each in zip(batch, data, strict=True):
                self._place_stored(part, key, each, top.version, out)
            nbytes = sum(map(len, data))
            cost.chunk(nbytes, fetch=fetched - start, decode=perf_counter() - fetched)
        return top.version

    def _top(self, key: str, version: str) -> _Top | None:
        """The index of a stored object, cached or read from it; None where there is none."""
        name, level = cache_key(self._array, key), self._metadata.levels[0]
        cached = self._cache.get(name, version, count_miss=False) if version != UNKNOWN else None
        if cached is not None:
            return _Top(cached[:-1], int(cached[-1, 0]), version)
        part = (
            self._store.get_part(key, 0, level.index_nbytes)
            if level.at_start
            else self._store.get_tail(key, level.index_nbytes)
        )
        if part is None:
            return None
        size = part.entry.size
        index = level.parse_index(_index_bytes(part, level, size, key), key)
        self._hold(key, part.entry.version, index, size)
        return _Top(index, size, part.entry.version)

    def _hold(self, key: str, version: str, index: Index, size: int) -> None:
        """Cache the index of a stored object, with the object's size behind it."""
        held = np.concatenate([index, np.array([[size, 0]], np.uint64)])
        held.setflags(write=False)
        self._cache.put(cache_key(self._array, key), version, held, held.nbytes)

    def _extents(self, key: str, origins: Sequence[Coords], top: _Top) -> list[Extent | None]:
        """Where the chunk that begins at each origin lies in the stored object; one request more for each further level
        of shards."""
        levels = self._metadata.levels
        found = [levels[0].extent(top.entries, levels[0].local(origin), top.size, key) for origin in origins]
        for level in levels[1:]:
            inner = [*dict.fromkeys(extent for extent in found if extent is not None)]
            places = [_index_place(level, extent, key) for extent in inner]
            indexes = dict(
                zip(inner, [level.parse_index(d, key) for d in self._ranges(key, places, top.version)], strict=True)
            )
            found = [
                None if outer is None else _inside(outer, level, indexes[outer], origin, key)
                for outer, origin in zip(found, origins, strict=True)
            ]
        return found

    def _ranges(self, key: str, ranges: Sequence[tuple[int, int]], version: str) -> list[bytes | memoryview]:
        if not ranges:
            return []
        found = self._store.get_ranges(key, ranges, version)
        if found is None:
            raise VersionConflict(key, None)
        for (start, stop), data in zip(ranges, found, strict=True):
            if len(data) != stop - start:
                raise ChunkCorrupt(key, "sharding_indexed", f"ends before byte {stop}, where a chunk is said to end")
        return found

    def _place_stored(self, part: Projection, key: str, data: Buffer | None, version: str, out: NDArray) -> None:
        """Decode a chunk and place it; None is one that the shard has not."""
        if data is None:
            self._place_fill(part, key, out)
            return
        if len(data) > self._codec.most_stored:
            raise ChunkCorrupt(key, None, f"{len(data)} bytes, at most {self._codec.most_stored} make a chunk")
        name = chunk_name(self._array, part.coords)
        if not self._is_kept(name, version, partly=False):
            if not self._decode_into_place(part, key, data, out):
                self._place(part, self._codec.decode(data, key), out)
            return
        chunk = self._codec.decode(data, key)
        if isinstance(data, memoryview) and np.may_share_memory(chunk, np.frombuffer(data, np.uint8)):
            chunk = chunk.copy(order="K")  # the cache is not to hold on to the whole shard
        chunk.setflags(write=False)
        self._cache.put(name, version, chunk, chunk_nbytes(chunk))
        self._place(part, chunk, out)

    def _place_all_fill(self, parts: Iterable[Projection], key: str, out: NDArray) -> None:
        for part in parts:
            self._place_fill(part, key, out)

    def _origin(self, coords: Coords) -> Coords:
        """The first item of a chunk."""
        return tuple([at * size for at, size in zip(coords, self._metadata.chunks, strict=True)])


def chunk_name(array: ArrayNode, coords: Coords) -> tuple[str, str, str]:
    """Under what a decoded chunk is cached that shares its stored object with others."""
    return array.mount.name, f"{array.prefix}\0{coords}", array.data_id


def chunk_in(
    levels: Sequence[ShardLevel],
    origin: Coords,
    data: Buffer,
    key: str,
    memo: dict[tuple[Extent, ...], tuple[Buffer, Index]],
) -> Buffer | None:
    """The stored bytes of the chunk whose first item is ``origin``, in a stored object that is read whole; None where
    it has none. ``memo``: the shards and indexes of this object, by where each lies in the one around it."""
    place: tuple[Extent, ...] = ()
    for level in levels:
        if place not in memo:
            shard = level.unwrap(data, key)
            memo[place] = shard, level.split(shard, key)
        shard, index = memo[place]
        extent = level.extent(index, level.local(origin), len(shard), key)
        if extent is None:
            return None
        data, place = memoryview(shard)[extent.start : extent.stop], (*place, extent)
    return data


def _by_size(stored: Sequence[tuple[Extent, Projection]]) -> Iterator[list[tuple[Extent, Projection]]]:
    """In batches that hold a bounded number of bytes."""
    batch: list[tuple[Extent, Projection]] = []
    nbytes = 0
    for each in stored:
        batch.append(each)
        nbytes += each[0].stop - each[0].start
        if nbytes >= _BATCH_BYTES:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


def _index_bytes(part: Part, level: ShardLevel, size: int, key: str) -> Buffer:
    if size < level.index_nbytes:
        raise ChunkCorrupt(key, "sharding_indexed", f"{size} bytes are too few for the index of a shard")
    return part.between(0, level.index_nbytes) if level.at_start else part.between(size - level.index_nbytes, size)


def _index_place(level: ShardLevel, shard: Extent, key: str) -> Extent:
    """Where the index of a shard within a shard lies."""
    if shard.stop - shard.start < level.index_nbytes:
        reason = f"a shard of {shard.stop - shard.start} bytes, too few for its index"
        raise ChunkCorrupt(key, "sharding_indexed", reason)
    if level.at_start:
        return Extent(shard.start, shard.start + level.index_nbytes)
    return Extent(shard.stop - level.index_nbytes, shard.stop)


def _inside(shard: Extent, level: ShardLevel, index: Index, origin: Coords, key: str) -> Extent | None:
    found = level.extent(index, level.local(origin), shard.stop - shard.start, key)
    return None if found is None else Extent(shard.start + found.start, shard.start + found.stop)
