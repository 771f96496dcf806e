"""Shard reader: the chunks of one stored object, by its index and by ranges of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np

from hyperslab.arrays.chunks import UNKNOWN, Caching, ChunkReader, NDArray, ReadCost, cache_key, chunk_nbytes, get_chunk
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import Projection
from hyperslab.cache import Vanished
from hyperslab.engine.chain import Buffer
from hyperslab.engine.codecs import LEAST_STREAM
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import ShardParts, StoredParts
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.runs import Run, merge_runs
from hyperslab.engine.sharding import Extent, Index, ShardLevel, chunks_in
from hyperslab.errors import ChunkCorrupt, StoreError
from hyperslab.storage.base import MOST_TRIES, Entry, Part, VersionConflict

_WHOLE_BYTES: Final = 64 << 20
"""The largest shard, decoded, that is read whole although it need not be."""
_BATCH_BYTES: Final = 16 << 20
"""Stored bytes that are held at once."""


class _Shard(NamedTuple):
    """A stored object, how it is laid out, the first item of the array that it holds, and how many of its chunks are
    asked for."""

    coords: Coords
    key: str
    levels: tuple[ShardLevel, ...]
    origin: Coords
    asked: int


class _Top(NamedTuple):
    """The index of a stored object, the object's size in bytes and its version."""

    entries: Index
    size: int
    version: str


class _Wanted(NamedTuple):
    """What is to be read of a chunk: the ``runs`` of items that are decoded alone, if not all; ``keep``: the chunk is
    to be cached."""

    part: Projection
    runs: Sequence[Run] | None
    keep: bool


class _Piece(NamedTuple):
    """A chunk that is stored at ``extent``, and the ``ranges`` of the object to be fetched of it; ``head`` is its
    beginning, where that was fetched before."""

    wanted: _Wanted
    extent: Extent
    ranges: Sequence[Run]
    head: Buffer | None = None


class Located(NamedTuple):
    """Where a chunk lies in the stored object that holds it; ``part``: what was read of the object meanwhile."""

    entry: Entry
    extent: Extent
    part: Part | None


class ShardReader(ChunkReader):
    """Reads chunks that share stored objects, those of one object at a time. Safe to call from many threads.

    Versions are those of stored objects. Indexes and decoded chunks are cached, each under a name of its own.
    """

    def read(self, parts: StoredParts[Projection], version: str | None, out: NDArray, cost: ReadCost) -> str | None:
        metadata, block = self._metadata, None
        if isinstance(parts.parts, ShardParts) and 1 < parts.chunks <= _BATCH_BYTES // metadata.chunk_nbytes:
            small = metadata.chunk_nbytes < LEAST_STREAM and not metadata.dtype.is_object and self._field is None
            block = parts.parts.block(metadata.chunks) if small else None
        if block is None:
            return self._read(parts, version, out, cost)
        held = np.empty((parts.chunks, *metadata.chunks), metadata.dtype.numpy)
        found = self._read(StoredParts(parts.coords, block.parts, parts.chunks), version, held, cost)
        with np.errstate(over="ignore"):
            block.copy_out(held, out)
        return found

    def _read(self, parts: StoredParts[Projection], version: str | None, out: NDArray, cost: ReadCost) -> str | None:
        shard, planned = self._shard(parts.coords, parts.chunks), version
        array, key = self._array, shard.key
        if version == UNKNOWN:  # what is cached is looked at first; the first request for more shows whether it is old
            version = self._cache.version_of(cache_key(array, key)) or UNKNOWN
        for _ in range(MOST_TRIES):
            is_sure, rest = planned != UNKNOWN, iter(parts.parts)
            try:
                while batch := list(islice(rest, 1 << 15)):
                    version, was_asked = self._read_parts(shard, batch, version, out, cost)
                    is_sure |= was_asked
            except VersionConflict:
                version = UNKNOWN
                continue
            if is_sure:
                return version
            found, version = version, array.mount.versions.look_up(array.prefix, [key])[0]
            if version == found:
                return version
        raise StoreError(self._store.name, key, "it changed again and again while it was read")

    def locate(self, coords: Coords, wanted: tuple[int, int] | None) -> Located | None:
        """Where a chunk lies, with its bytes that are ``wanted`` (start and stop); None if it was never written. Codecs
        that a whole shard goes through are not undone. If the index is cached, reading these bytes shows whether it is
        old."""
        shard = self._shard(self._metadata.stored_coords(coords), 1)
        key, known = shard.key, None
        if wanted is not None:
            known = self._cache.version_of(cache_key(self._array, key))
        for _ in range(MOST_TRIES):
            entry, part = self._store.stat(key) if known is None else None, None
            version = known if entry is None else entry.version
            try:
                top = None if version is None else self._top(shard, version)[0]
                if top is None:
                    return None
                (extent,) = self._extents(shard, [coords], top)
                if extent is not None and wanted is not None:
                    first, last = extent.start + wanted[0], min(extent.start + wanted[1], extent.stop)
                    part = self._store.get_part(key, first, last) if first < last else None
                    entry = entry if part is None else part.entry
                if entry is not None and entry.version == top.version:
                    return None if extent is None else Located(entry, extent, part)
            except VersionConflict:
                pass
            known = None
        raise StoreError(self._store.name, key, "it changed again and again while it was read")

    def _read_parts(
        self,
        shard: _Shard,
        parts: Sequence[Projection],
        version: str | None,
        out: NDArray,
        cost: ReadCost,
    ) -> tuple[str | None, bool]:
        """The version that was read, and whether the store has been asked for it."""
        if version is None:
            for part in parts:
                self._place_fill(part, shard.key, out)
            cost.add(cached=len(parts))
            return None, False
        wanted = [*self._not_cached(parts, version, out, cost)]
        if not wanted:
            return version, False
        if self._is_read_whole(shard, wanted):
            found = self._read_whole(shard, wanted, out, cost)
            if found != version != UNKNOWN:  # others of its chunks may have come from the cache
                raise VersionConflict(shard.key, found)
            return found, True
        return self._read_ranges(shard, wanted, version, out, cost)

    def _not_cached(self, parts: Sequence[Projection], version: str, out: NDArray, cost: ReadCost) -> Iterator[_Wanted]:
        """Place chunks that are cached, and give the others."""
        looks, keeps = version != UNKNOWN and self._cache.limit > 0, self._caching is not Caching.NEVER
        for part in parts:
            name = chunk_name(self._array, part.coords) if looks or keeps else ("", "", "")
            chunk = self._cache.get(name, version) if looks else None
            if chunk is not None:
                self._place(part, chunk, out)
                cost.add(cached=1)
            else:
                runs = self._runs(part)
                keep = keeps and self._is_kept(name, version, partly=runs is not None)
                yield _Wanted(part, None if keep else runs, keep)

    def _is_read_whole(self, shard: _Shard, wanted: Sequence[_Wanted]) -> bool:
        """Whether a shard is fetched at once: all of it is wanted, or codecs behind it leave no choice."""
        if any(level.after for level in shard.levels):
            return True
        enters = self._fetches_parts and self._partial is not None
        if self._metadata.shard_nbytes > _WHOLE_BYTES or (enters and any(want.runs for want in wanted)):
            return False
        return len(wanted) == shard.asked == self._metadata.chunks_inside(shard.coords)

    def _read_whole(self, shard: _Shard, wanted: Sequence[_Wanted], out: NDArray, cost: ReadCost) -> str | None:
        start = perf_counter()
        stored = get_chunk(self._store, shard.key, shard.levels[0].most_stored)
        if stored is None:
            for want in wanted:
                self._place_fill(want.part, shard.key, out)
            return None
        version, fetched = stored.version, perf_counter()
        origins = self._origins(shard, [want.part.coords for want in wanted])
        found, index, size = chunks_in(shard.levels, origins, stored.data, shard.key)
        chunks = [*zip(wanted, found, strict=True)]
        held = _held(index, size)
        self._cache.put(cache_key(self._array, shard.key), version, held, held.nbytes)

        def place(item: tuple[_Wanted, Buffer | None]) -> None:
            self._place_stored(item[0], shard.key, item[1], version, out)

        self.each(chunks, len(chunks), place, self._metadata.chunk_nbytes)
        cost.add(bytes_read=len(stored.data), fetch=fetched - start, decode=perf_counter() - fetched)
        return version

    def _read_ranges(
        self, shard: _Shard, wanted: Sequence[_Wanted], version: str, out: NDArray, cost: ReadCost
    ) -> tuple[str | None, bool]:
        start, key = perf_counter(), shard.key
        top, is_sure = self._top(shard, version)
        if top is None:
            for want in wanted:
                self._place_fill(want.part, key, out)
            return None, True
        version, pieces, most = top.version, [], self._codec.most_stored
        for want, extent in zip(wanted, self._extents(shard, [want.part.coords for want in wanted], top), strict=True):
            if extent is None:
                self._place_fill(want.part, key, out)
            elif extent.stop - extent.start > most:
                raise ChunkCorrupt(key, None, f"{extent.stop - extent.start} bytes, at most {most} make a chunk")
            else:
                pieces.append(_Piece(want, extent, (extent,)))
        pieces.sort(key=lambda piece: piece.extent)
        pieces = self._enter(key, pieces, version)
        cost.add(fetch=perf_counter() - start)

        def place(item: tuple[_Piece, Sequence[Buffer]]) -> None:
            self._place_piece(item[0], key, item[1], version, out)

        for batch in _by_size(pieces):
            start = perf_counter()
            data = self._ranges(key, [bounds for piece in batch for bounds in piece.ranges], version)
            fetched, rest = perf_counter(), iter(data)
            loaded = [(piece, [next(rest) for _ in piece.ranges]) for piece in batch]
            self.each(loaded, len(loaded), place, self.decoded(batch[0].wanted.part))
            cost.add(bytes_read=sum(map(len, data)), fetch=fetched - start, decode=perf_counter() - fetched)
        return version, is_sure or bool(pieces)

    def _enter(self, key: str, pieces: list[_Piece], version: str) -> list[_Piece]:
        """The same pieces, with ranges of those chunks of which only a part is worth fetching."""
        partial = self._partial
        entered = [i for i, piece in enumerate(pieces) if piece.wanted.runs is not None]
        if partial is None or not self._fetches_parts or not entered:
            return pieces
        extents = [pieces[i].extent for i in entered]
        begins = [(start, min(stop, start + partial.head_bytes)) for start, stop in extents]
        heads: Sequence[Buffer] = [b""] * len(entered)
        if partial.head_bytes:
            heads = self._ranges(key, begins, version)
        for i, head, (start, stop) in zip(entered, heads, extents, strict=True):
            want = pieces[i].wanted
            ranges = partial.ranges(head, want.runs or (), key, stop - start)
            if ranges is None:  # all of it: what follows its head
                want, ranges = want._replace(runs=None), [(len(head), stop - start)]
            pieces[i] = _Piece(want, pieces[i].extent, [(start + first, start + last) for first, last in ranges], head)
        return pieces

    def _top(self, shard: _Shard, version: str) -> tuple[_Top | None, bool]:
        """The index of a stored object, None where there is none; and whether the store was asked for it, once however
        many threads want it."""
        key, level = shard.key, shard.levels[0]
        name = cache_key(self._array, key)
        held = self._cache.get(name, version, count_miss=False) if version != UNKNOWN else None
        if held is not None:
            return _Top(held[:-1], int(held[-1, 0]), version), False

        def load() -> tuple[NDArray, str, int]:
            part = (
                self._store.get_part(key, 0, level.index_nbytes)
                if level.at_start
                else self._store.get_tail(key, level.index_nbytes)
            )
            if part is None:
                raise Vanished
            size = part.entry.size
            held = _held(level.parse_index(_index_bytes(part, level, size, key), key), size)
            return held, part.entry.version, held.nbytes

        try:
            found = self._cache.load(name, version, load, count_miss=False)
        except Vanished:
            return None, True
        return _Top(found.value[:-1], int(found.value[-1, 0]), found.version), True

    def _extents(self, shard: _Shard, chunks: Sequence[Coords], top: _Top) -> list[Extent | None]:
        """Where each chunk lies in the stored object; one request more for each further level of shards."""
        key, (outermost, *inner) = shard.key, shard.levels
        origins = self._origins(shard, chunks)
        found = outermost.extents(top.entries, outermost.positions(origins), top.size, key)
        for level in inner:
            shards = sorted({extent for extent in found if extent is not None})
            places = self._ranges(key, [_index_place(level, extent, key) for extent in shards], top.version)
            indexes = {extent: level.parse_index(data, key) for extent, data in zip(shards, places, strict=True)}
            positions = level.positions(origins)
            for i, around in enumerate(found):
                if around is not None:
                    size = around.stop - around.start
                    (within,) = level.extents(indexes[around], positions[i : i + 1], size, key)
                    found[i] = within and Extent(around.start + within.start, around.start + within.stop)
        return found

    def _ranges(self, key: str, ranges: Sequence[tuple[int, int]], version: str) -> list[memoryview]:
        """The bytes of each range; those that meet are read as one."""
        spans = merge_runs(sorted(ranges), 0)
        found = self._store.get_ranges(key, spans, version) if spans else []
        if found is None:
            raise VersionConflict(key, None)
        for (start, stop), data in zip(spans, found, strict=True):
            if len(data) != stop - start:
                raise ChunkCorrupt(key, "sharding_indexed", f"ends before byte {stop}, where a chunk is said to end")
        firsts, views = [start for start, _ in spans], [memoryview(data) for data in found]
        cut: list[memoryview] = []
        for start, stop in ranges:
            at = bisect_right(firsts, start) - 1
            cut.append(views[at][start - firsts[at] : stop - firsts[at]])
        return cut

    def _place_piece(self, piece: _Piece, key: str, data: Sequence[Buffer], version: str, out: NDArray) -> None:
        want, partial = piece.wanted, self._partial
        if piece.head is None or partial is None or want.runs is None:
            self._place_stored(want, key, b"".join((piece.head, *data)) if piece.head else data[0], version, out)
            return
        parts = [(start - piece.extent.start, each) for (start, _), each in zip(piece.ranges, data, strict=True)]
        self._place(want.part, partial.decode_parts(piece.head, parts, want.runs, key=key), out)

    def _place_stored(self, want: _Wanted, key: str, data: Buffer | None, version: str, out: NDArray) -> None:
        """Decode a chunk and place it; None is one that the shard has not."""
        if data is None:
            self._place_fill(want.part, key, out)
        elif not want.keep:
            self.place_decoded(self._codec, want.part, key, data, want.runs, out)
        else:
            chunk = self._codec.decode(data, key)
            if isinstance(data, memoryview) and np.may_share_memory(chunk, np.frombuffer(data, np.uint8)):
                chunk = chunk.copy(order="K")  # the cache is not to hold on to the whole shard
            chunk.setflags(write=False)
            self._cache.put(chunk_name(self._array, want.part.coords), version, chunk, chunk_nbytes(chunk))
            self._place(want.part, chunk, out)

    def _shard(self, coords: Coords, asked: int) -> _Shard:
        metadata = self._metadata
        origin = tuple([axis.start for axis in metadata.stored_grid.bounds(coords)])
        return _Shard(coords, self._array.chunk_key(coords), metadata.coding(coords).levels, origin, asked)

    def _origins(self, shard: _Shard, chunks: Sequence[Coords]) -> NDArray:
        """The first item of each chunk, counted from that of the shard."""
        return np.array(chunks, np.int64).reshape(len(chunks), -1) * self._metadata.chunks - shard.origin


def memory_of_shard(metadata: ArrayMetadata, chunks: int) -> int:
    """Bytes that a thread holds at once, beside its answer, that reads so many ``chunks`` of a shard: its index as
    stored, as parsed and as cached, what is fetched of it, and small chunks before they are copied."""
    wanted, shard = chunks * metadata.chunk_nbytes, metadata.shard_nbytes
    fetched = min(wanted, _BATCH_BYTES + metadata.chunk_nbytes)
    if any(level.after for level in metadata.levels):
        fetched = 3 * shard  # as stored, as decoded, and the room that a decoder takes meanwhile
    elif chunks == metadata.chunks_per_object and shard <= _WHOLE_BYTES:
        fetched = shard
    block = wanted if metadata.chunk_nbytes < LEAST_STREAM and wanted <= _BATCH_BYTES else 0
    return 3 * sum([level.index_nbytes for level in metadata.levels]) + fetched + block


def chunk_name(array: ArrayNode, coords: Coords) -> tuple[str, str, str]:
    """Under what a decoded chunk is cached that shares its stored object with others."""
    return array.mount.name, f"{array.prefix}\0{coords}", array.data_id


def _by_size(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """In batches that hold a bounded number of bytes."""
    batch: list[_Piece] = []
    nbytes = 0
    for piece in pieces:
        batch.append(piece)
        for start, stop in piece.ranges:
            nbytes += stop - start
        if nbytes >= _BATCH_BYTES:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


def _held(index: Index, size: int) -> Index:
    """What is cached of an index: with the size of the object behind it."""
    held = np.concatenate([index, np.array([[size, 0]], np.uint64)])
    held.setflags(write=False)
    return held


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
