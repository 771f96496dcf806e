"""Shard reader: reads chunks of one stored object through its index and byte ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from time import perf_counter
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from hyperslab.arrays.chunks import UNKNOWN, Caching, ChunkReader, ChunkRequest, NDArray, Parts, ReadCost, chunk_nbytes
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import Projection
from hyperslab.cache import Vanished
from hyperslab.engine.chain import Buffer
from hyperslab.engine.codecs import MIN_STREAM
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import ChunkBlock, ChunkProjection, ShardParts, StoredParts
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.runs import Run, merge_runs
from hyperslab.engine.sharding import Extent, Index, ShardLevel, chunks_in
from hyperslab.errors import ChangedWhileRead, ChunkCorrupt, StoredTooLarge
from hyperslab.storage.base import MAX_ATTEMPTS, Entry, StoredRange, VersionConflict

T = TypeVar("T")

_WHOLE_BYTES: Final = 64 << 20
"""Maximum decoded size of a remote shard that is read whole without need."""
_REMOTE_BATCH: Final = 16 << 20
_LOCAL_BATCH: Final = 4 << 20
"""Maximum stored bytes of a local batch in memory (benchmark ``tuning``)."""
GROUP_BYTES: Final = 1 << 20
"""Decoded bytes of the chunks that a thread decodes in turn, about a processor's own cache (benchmark ``tuning``)."""
_MAX_CHUNKS: Final = 1 << 15
"""Maximum number of chunks per index look-up."""


class _Shard(NamedTuple):
    """A shard: its key, levels, first item in the array, and the number of its requested chunks."""

    coords: Coords
    key: str
    levels: tuple[ShardLevel, ...]
    origin: Coords
    requested: int


class _ShardIndex(NamedTuple):
    """The index of a stored object, the object's size in bytes and its version."""

    entries: Index
    size: int
    version: str


_WHOLE_CHUNK: Final = ChunkRequest(ChunkProjection((), ()), None, None, False, ("", "", ""))
"""A chunk of a block, in an array without cached chunks."""


class _Piece(NamedTuple):
    """The ``ranges`` of a stored object still to be fetched for a chunk from ``start`` on, of which ``head`` is already
    in memory: all others, or those for the ``runs`` of items."""

    start: int
    ranges: Sequence[Extent]
    head: Buffer
    runs: Sequence[Run] | None


_Location: TypeAlias = Extent | _Piece | None
"""Location of a chunk, or of parts of it; None if the shard lacks it, or it is cached."""
_StoredChunk: TypeAlias = Buffer | Parts | None
"""A stored chunk, or parts of it; None if the shard lacks it, or it is cached."""


class _Group:
    """Chunks that one thread reads in turn, with their ``coords``, one in each row; small neighbours are copied as one
    ``block``. ``locations`` in the object, and ``data``: their bytes, once known."""

    def __init__(self, coords: NDArray, wanted: Sequence[ChunkRequest], block: ChunkBlock | None) -> None:
        self.coords, self.wanted, self.block = coords, wanted, block
        self.locations: Sequence[_Location] = [None] * len(wanted)
        self.data: Sequence[_StoredChunk] = [None] * len(wanted)

    def spread(self, found: Iterator[T]) -> list[T | None]:
        """The next items of ``found``, which has none for cached chunks, by chunk."""
        return [next(found) if want.cached is None else None for want in self.wanted]

    @property
    def ranges(self) -> Iterator[Extent]:
        """The ranges to fetch."""
        for location in self.locations:
            if isinstance(location, _Piece):
                yield from location.ranges
            elif location is not None:
                yield location


class ChunkLocation(NamedTuple):
    """Location of a chunk in its stored object; ``part``: bytes of the object read meanwhile."""

    entry: Entry
    extent: Extent
    part: StoredRange | None


class ShardReader(ChunkReader):
    """Reads chunks that share stored objects, one object at a time. Thread-safe.

    Versions are those of stored objects. Indexes and decoded chunks are cached under names of their own.
    """

    def read(self, parts: StoredParts[Projection], version: str | None, out: NDArray, cost: ReadCost) -> str | None:
        shard, planned = self._shard(parts.coords, parts.chunks), version
        array, key = self._array, shard.key
        if version is None and isinstance(parts.parts, ShardParts):  # whatever the number of its chunks
            self._place_fill(parts.parts.whole, key, out)
            cost.add(cached=parts.chunks)
            return None
        if version == UNKNOWN:  # cached copies first; the first request for others validates them
            version = self._cache.version_of(array.cache_key(key)) or UNKNOWN
        most = max(1, min(GROUP_BYTES // self._metadata.chunk_nbytes, _MAX_CHUNKS))
        for _ in range(MAX_ATTEMPTS):
            is_sure, rest = planned != UNKNOWN, self._split(parts.parts, most)
            try:
                while boxes := list(islice(rest, _MAX_CHUNKS // most)):
                    groups = [self._group(chunks, block, version) for chunks, block in boxes]
                    version, was_asked = self._read_groups(shard, groups, version, out, cost)
                    is_sure |= was_asked
            except VersionConflict:
                version = UNKNOWN
                continue
            if is_sure:
                return version
            before, version = version, array.mount.versions.look_up(array.prefix, [key])[0]
            if version == before:
                return version
        start, stored = perf_counter(), self._fetch_whole(shard)
        cost.add(bytes_read=0 if stored is None else len(stored.data), fetch=perf_counter() - start)
        version, rest = None if stored is None else stored.entry.version, self._split(parts.parts, most)
        while boxes := list(islice(rest, _MAX_CHUNKS // most)):
            groups = [self._group(chunks, block, version) for chunks, block in boxes]
            self._place_whole(shard, groups, None if stored is None else stored.data, version, out)
        return version

    def locate(self, coords: Coords, wanted: tuple[int, int] | None) -> ChunkLocation | None:
        """Location of a chunk, with its ``wanted`` bytes (start and stop); None if it was never written. Codecs of a
        whole shard are not decoded. With a cached index, the read of these bytes validates it."""
        shard = self._shard(self._metadata.stored_coords(coords), 1)
        key, cached_version = shard.key, None
        if wanted is not None:
            cached_version = self._cache.version_of(self._array.cache_key(key))
        for _ in range(MAX_ATTEMPTS):
            entry, part = self._store.stat(key) if cached_version is None else None, None
            version = cached_version if entry is None else entry.version
            try:
                top = None if version is None else self._top(shard, version)[0]
                if top is None:
                    return None
                (extent,) = self._extents(shard, self._within(shard, np.array([coords], np.int64)), top)
                if extent is not None and wanted is not None:
                    first, last = extent[0] + wanted[0], min(extent[0] + wanted[1], extent[1])
                    part = self._store.get_part(key, first, last) if first < last else None
                    entry = entry if part is None else part.entry
                if entry is not None and entry.version == top.version:
                    return None if extent is None else ChunkLocation(entry, extent, part)
            except VersionConflict:
                pass
            cached_version = None
        whole = self._fetch_whole(shard)
        if whole is None:
            return None
        around, origins = (0, whole.entry.size), self._within(shard, np.array([coords], np.int64))
        for level in shard.levels:
            index = level.parse_index(whole.between(*level.index_place(around, key)), key)
            (within,) = level.extents(index, level.positions(origins), around[1] - around[0], key)
            if within is None:
                return None
            around = around[0] + within[0], around[0] + within[1]
        return ChunkLocation(whole.entry, around, StoredRange(whole.entry, around[0], whole.between(*around)))

    def _fetch_whole(self, shard: _Shard) -> StoredRange | None:
        """All of a stored object, in one request, when it has changed at each attempt to read parts of it. Raises
        `ChangedWhileRead` if it is too large for that."""
        most = shard.levels[0].max_stored_bytes
        if self._metadata.shard_nbytes > _WHOLE_BYTES:
            raise ChangedWhileRead(f"{shard.key!r} changed again and again while it was read")
        part = self._store.get_part(shard.key, 0, most + 1)
        if part is not None and part.entry.size > most:
            raise StoredTooLarge(shard.key, part.entry.size, most)
        return part

    def is_full(self, parts: StoredParts[Projection], version: str | None) -> bool:
        """Whether all these chunks are in the shard of this version, by its index alone; False if it has changed."""
        shard, coords = self._shard(parts.coords, parts.chunks), [part.coords for part in parts.parts]
        top = None if version is None else self._top(shard, version)[0]
        if top is None or top.version != version:
            return False
        return None not in self._extents(shard, self._within(shard, np.array(coords, np.int64)), top)

    def stored(self, coords: Coords, version: str) -> NDArray:
        """The first items of what the shard at ``coords`` has, chunks or nested shards, ``(n, rank)``, by its index."""
        shard = self._shard(coords, 1)
        top = self._top(shard, version)[0]
        if top is None:
            return np.zeros((0, len(coords)), np.int64)
        return shard.levels[0].origins(top.entries) + np.array(shard.origin, np.int64)

    def holds(self, coords: Coords, version: str, items: NDArray) -> NDArray:
        """Whether the shard at ``coords`` has the chunks, or nested shards, of some items of it, ``(n, rank)``."""
        shard = self._shard(coords, len(items))
        top = self._top(shard, version)[0]
        if top is None:
            return np.zeros(len(items), bool)
        return shard.levels[0].holds(top.entries, items - np.array(shard.origin, np.int64))

    def _split(
        self, parts: Iterable[Projection], most: int
    ) -> Iterator[tuple[Iterable[Projection], ChunkBlock | None]]:
        """The chunks of a shard in groups of at most ``most``, small ones as blocks."""
        metadata = self._metadata
        small = metadata.chunk_nbytes < MIN_STREAM and not metadata.dtype.numpy.hasobject and self._field is None
        if small and isinstance(parts, ShardParts):
            yield from parts.boxes(most, metadata.chunks)
            return
        rest = iter(parts)
        while group := list(islice(rest, most)):
            yield group, None

    def _group(self, parts: Iterable[Projection], block: ChunkBlock | None, version: str | None) -> _Group:
        """A group of chunks, with cached copies looked up."""
        if block is None:
            parts = [*parts]
            coords = np.array([part.coords for part in parts], np.int64).reshape(len(parts), -1)
        else:
            coords = block.coords
            never = self._caching is Caching.NEVER and (version == UNKNOWN or not self._cache.limit)
            if version is None or never:
                return _Group(coords, [_WHOLE_CHUNK] * len(coords), block)
            parts = [ChunkProjection(tuple(coord), ()) for coord in coords.tolist()]
        if version is None:
            return _Group(coords, [ChunkRequest(part, None, None, False, ("", "", "")) for part in parts], block)
        wanted = [self.want(part, chunk_name(self._array, part.coords), version) for part in parts]
        return _Group(coords, wanted, block)

    def _read_groups(
        self, shard: _Shard, groups: Sequence[_Group], version: str | None, out: NDArray, cost: ReadCost
    ) -> tuple[str | None, bool]:
        """The version that was read, and whether a request was sent to the store."""
        touched = sum([len(group.wanted) for group in groups])
        missing = [want for group in groups for want in group.wanted if want.cached is None]
        if version is None or not missing:
            cost.add(cached=touched)
            self._place_groups(shard.key, groups, version, out)
            return version, False
        cost.add(cached=touched - len(missing))
        if self._is_read_whole(shard, missing):
            return self._read_whole(shard, groups, version, out, cost), True
        start = perf_counter()
        top, was_asked = self._top(shard, version)
        _check_version(shard.key, version, top and top.version)
        if top is None:
            self._place_groups(shard.key, groups, None, out)
            return None, True
        pieces = self._find(shard, groups, missing, top)
        locations = iter(pieces)
        for group in groups:
            group.locations = group.spread(locations)
        cost.add(fetch=perf_counter() - start)
        self._read_pieces(shard.key, groups, top.version, out, cost)
        return top.version, was_asked or any(pieces)

    def _is_read_whole(self, shard: _Shard, missing: Sequence[ChunkRequest]) -> bool:
        """Whether a shard is fetched by one request: because of codecs around it, or if all of it is requested from a
        remote store."""
        if any(level.after for level in shard.levels):
            return True
        if not self._array.mount.is_remote or self._metadata.shard_nbytes > _WHOLE_BYTES:
            return False
        if self._fetches_parts and any(want.runs for want in missing):
            return False
        return len(missing) == shard.requested == self._metadata.chunks_inside(shard.coords)

    def _read_whole(
        self, shard: _Shard, groups: Sequence[_Group], version: str, out: NDArray, cost: ReadCost
    ) -> str | None:
        start, key = perf_counter(), shard.key
        stored = self._array.get_object(key, shard.levels[0].max_stored_bytes)
        _check_version(key, version, stored and stored.version)
        if stored is None:
            self._place_groups(key, groups, None, out)
            return None
        fetched = perf_counter()
        self._place_whole(shard, groups, stored.data, stored.version, out)
        cost.add(bytes_read=len(stored.data), fetch=fetched - start, decode=perf_counter() - fetched)
        return stored.version

    def _place_whole(
        self, shard: _Shard, groups: Sequence[_Group], data: Buffer | None, version: str | None, out: NDArray
    ) -> None:
        """Decode and place chunks of a stored object that is in memory, and cache its index; None: it is absent."""
        if data is not None and version is not None:
            chunks, index, size = chunks_in(shard.levels, self._origins(shard, groups), data, shard.key)
            held = _with_size(index, size)
            self._cache.put(self._array.cache_key(shard.key), version, held, held.nbytes)
            stored_chunks = iter(chunks)
            for group in groups:
                group.data = group.spread(stored_chunks)
        self._place_groups(shard.key, groups, version, out)

    def _find(
        self, shard: _Shard, groups: Sequence[_Group], missing: Sequence[ChunkRequest], top: _ShardIndex
    ) -> list[_Location]:
        """Locations of chunks that are not cached, or of the needed parts of them."""
        extents, most = self._extents(shard, self._origins(shard, groups), top), self._codec.max_stored_bytes
        largest = max([extent[1] - extent[0] for extent in extents if extent is not None], default=0)
        if largest > most:
            raise ChunkCorrupt(shard.key, None, f"{largest} bytes, at most {most} make a chunk")
        locations, partial = list[_Location](extents), self._partial
        if partial is None or not self._fetches_parts:
            return locations
        entered = [(i, extent) for i, extent in enumerate(extents) if extent is not None and missing[i].runs]
        begins = [(start, min(stop, start + partial.head_bytes)) for _, (start, stop) in entered]
        heads: Sequence[Buffer] = [b""] * len(entered)
        if partial.head_bytes:
            heads = self._ranges(shard.key, begins, top.version)
        for (i, (start, stop)), head in zip(entered, heads, strict=True):
            runs = missing[i].runs or ()
            ranges = partial.ranges(head, runs, shard.key, stop - start)
            if ranges is None:  # the whole chunk: the bytes after its head
                locations[i] = _Piece(start, [(start + len(head), stop)], head, None)
            else:
                locations[i] = _Piece(start, [(start + first, start + last) for first, last in ranges], head, runs)
        return locations

    def _read_pieces(self, key: str, groups: Sequence[_Group], version: str, out: NDArray, cost: ReadCost) -> None:
        """Fetch and place chunks, several groups per request."""
        for batch in _by_size(groups, _REMOTE_BATCH if self._array.mount.is_remote else _LOCAL_BATCH):
            start = perf_counter()
            data = self._ranges(key, [*chain.from_iterable(group.ranges for group in batch)], version)
            fetched, rest = perf_counter(), iter(data)
            for group in batch:
                group.data = [_next_stored(location, rest) for location in group.locations]
            self._place_groups(key, batch, version, out)
            for group in batch:
                group.data = group.locations = ()
            cost.add(bytes_read=sum(map(len, data)), fetch=fetched - start, decode=perf_counter() - fetched)

    def _place_groups(self, key: str, groups: Sequence[_Group], version: str | None, out: NDArray) -> None:
        def place(group: _Group) -> None:
            if group.block is not None:
                held = np.empty((len(group.wanted), *self._metadata.chunks), self._metadata.dtype.numpy)
                self._place_block(group, key, version, held)
                with np.errstate(over="ignore"):
                    group.block.copy_out(held, out)
                return
            for want, data in zip(group.wanted, group.data, strict=True):
                self._place_stored(want, key, data, version, out)

        self.each(groups, len(groups), place, len(groups[0].wanted) * self.decoded(groups[0].wanted[0].part))

    def _place_block(self, group: _Group, key: str, version: str | None, held: NDArray) -> None:
        """Put each chunk into its row of ``held``."""
        for row, (want, data) in enumerate(zip(group.wanted, group.data, strict=True)):
            if want.cached is not None:
                held[row] = want.cached
            elif data is None:
                held[row] = self.fill_of(key)
        self._codec.decode_rows([None if isinstance(data, Parts) else data for data in group.data], held, key)
        for row, want in enumerate(group.wanted):
            if want.keep and group.data[row] is not None:
                self._keep(want, version, held[row].copy(order="K"))

    def _place_stored(
        self, want: ChunkRequest, key: str, data: _StoredChunk, version: str | None, out: NDArray
    ) -> None:
        if want.cached is not None:
            self._place(want.part, want.cached, out)
        elif data is None:
            self._place_fill(want.part, key, out)
        elif isinstance(data, Parts) or want.runs is not None or not want.keep:
            self.place_decoded(self._codec, want, key, data, out, version)
        else:
            chunk = self._codec.decode(data, key)
            if isinstance(data, memoryview) and np.may_share_memory(chunk, np.frombuffer(data, np.uint8)):
                chunk = chunk.copy(order="K")  # do not keep the whole shard alive in the cache
            self._keep(want, version, chunk)
            self._place(want.part, chunk, out)

    def _keep(self, want: ChunkRequest, version: str | None, chunk: NDArray) -> None:
        chunk.setflags(write=False)
        self._cache.put(want.name, version or "", chunk, chunk_nbytes(chunk))

    def _top(self, shard: _Shard, version: str) -> tuple[_ShardIndex | None, bool]:
        """The index of a stored object, None if absent; and whether a request was sent for it, shared by concurrent
        readers."""
        key, level = shard.key, shard.levels[0]
        name = self._array.cache_key(key)
        held = self._cache.get(name, version, count_miss=False) if version != UNKNOWN else None
        if held is not None:
            return _ShardIndex(held[:-1], int(held[-1, 0]), version), False

        def load() -> tuple[NDArray, str, int]:
            store, nbytes = self._store, level.index_nbytes
            part = store.get_part(key, 0, nbytes) if level.at_start else store.get_end(key, nbytes)
            if part is None:
                raise Vanished
            stored = part.between(*level.index_place((0, part.entry.size), key))
            held = _with_size(level.parse_index(stored, key), part.entry.size)
            return held, part.entry.version, held.nbytes

        try:
            loaded = self._cache.load(name, version, load, count_miss=False)
        except Vanished:
            return None, True
        return _ShardIndex(loaded.value[:-1], int(loaded.value[-1, 0]), loaded.version), True

    def _extents(self, shard: _Shard, origins: NDArray, top: _ShardIndex) -> list[Extent | None]:
        """The extent of each chunk in the stored object; costs a request per nested level of shards."""
        key, (outermost, *inner) = shard.key, shard.levels
        extents = outermost.extents(top.entries, outermost.positions(origins), top.size, key)
        for level in inner:
            shards = sorted({extent for extent in extents if extent is not None})
            places = self._ranges(key, [level.index_place(extent, key) for extent in shards], top.version)
            indexes = {extent: level.parse_index(data, key) for extent, data in zip(shards, places, strict=True)}
            positions = level.positions(origins)
            for i, around in enumerate(extents):
                if around is not None:
                    first, last = around
                    (within,) = level.extents(indexes[around], positions[i : i + 1], last - first, key)
                    extents[i] = within and (first + within[0], first + within[1])
        return extents

    def _ranges(self, key: str, ranges: Sequence[tuple[int, int]], version: str) -> list[Buffer]:
        """The bytes of each range; adjacent ranges are read as one."""
        spans = merge_runs(sorted(ranges), 0)
        data_of_span = self._store.get_ranges(key, spans, version) if spans else []
        if data_of_span is None:
            raise VersionConflict(key, None)
        for (start, stop), data in zip(spans, data_of_span, strict=True):
            if len(data) != stop - start:
                raise ChunkCorrupt(key, "sharding_indexed", f"ends before byte {stop}, where a chunk is said to end")
        if len(spans) == len(ranges):
            by_range: dict[Extent, Buffer] = dict(zip(spans, data_of_span, strict=True))
            return [by_range[bounds] for bounds in ranges]
        firsts, views = [start for start, _ in spans], [memoryview(data) for data in data_of_span]
        cut: list[Buffer] = []
        for start, stop in ranges:
            span = bisect_right(firsts, start) - 1
            cut.append(views[span][start - firsts[span] : stop - firsts[span]])
        return cut

    def _shard(self, coords: Coords, requested: int) -> _Shard:
        metadata = self._metadata
        origin = tuple([axis.start for axis in metadata.stored_grid.bounds(coords)])
        return _Shard(coords, self._array.chunk_key(coords), metadata.coding(coords).levels, origin, requested)

    def _origins(self, shard: _Shard, groups: Sequence[_Group]) -> NDArray:
        """The first item of each chunk that is not cached, relative to the shard."""
        missing = [group.coords[[want.cached is None for want in group.wanted]] for group in groups]
        return self._within(shard, np.concatenate(missing))

    def _within(self, shard: _Shard, coords: NDArray) -> NDArray:
        return coords * np.array(self._metadata.chunks, np.int64) - np.array(shard.origin, np.int64)


def memory_of_shard(metadata: ArrayMetadata, chunks: int, *, is_remote: bool) -> int:
    """Memory of a thread that reads ``chunks`` chunks of a shard, besides its output: the index as stored, parsed and
    cached, fetched bytes, and small chunks before they are copied."""
    wanted, shard = chunks * metadata.chunk_nbytes, metadata.shard_nbytes
    group = min(wanted, max(GROUP_BYTES, metadata.chunk_nbytes))
    fetched = min(wanted, (_REMOTE_BATCH if is_remote else _LOCAL_BATCH) + group)
    if any(level.after for level in metadata.levels):
        fetched = 3 * shard  # stored, decoded, and memory of the decoder
    elif is_remote and chunks == metadata.chunks_per_object and shard <= _WHOLE_BYTES:
        fetched = shard
    block = 2 * group if metadata.chunk_nbytes < MIN_STREAM else 0  # joined frames, and their decoded bytes
    return 3 * sum([level.index_nbytes for level in metadata.levels]) + fetched + block


def chunk_name(array: ArrayNode, coords: Coords) -> tuple[str, str, str]:
    """The cache key of a decoded chunk in a shard."""
    return array.mount.name, f"{array.prefix}\0{coords}", array.data_id


def _by_size(groups: Sequence[_Group], most: int) -> Iterator[list[_Group]]:
    """Batches of groups that fetch about ``most`` bytes each."""
    batch, nbytes = list[_Group](), 0
    for group in groups:
        batch.append(group)
        nbytes += sum([stop - start for start, stop in group.ranges])
        if nbytes >= most:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


def _next_stored(found: _Location, data: Iterator[Buffer]) -> _StoredChunk:
    """The fetched bytes of a chunk, next in ``data``."""
    if found is None:
        return None
    if not isinstance(found, _Piece):
        return next(data)
    if found.runs is None:
        return b"".join((found.head, next(data)))
    return Parts(found.head, [(start - found.start, next(data)) for start, _ in found.ranges], found.runs)


def _check_version(key: str, wanted: str, found: str | None) -> None:
    """Raise `VersionConflict` unless the version is that of chunks that may be cached copies."""
    if found != wanted != UNKNOWN:
        raise VersionConflict(key, found)


def _with_size(index: Index, size: int) -> Index:
    """An index for the cache, with the size of its object appended."""
    held = np.concatenate([index, np.array([[size, 0]], np.uint64)])
    held.setflags(write=False)
    return held
