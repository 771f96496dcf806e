"""Chunk writer: changes stored objects one at a time, each under its lock, on top of the version that was read.

A stored object is a chunk, or a shard of many, of which only changed chunks are decoded; the bytes of others are
copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import NamedTuple, TypeVar

import numpy as np

from hyperslab.arrays.chunk_keys import elsewhere
from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.lease import MAX_TRIES, attempts
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import Projection
from hyperslab.arrays.read import Reader
from hyperslab.arrays.workers import Cancel
from hyperslab.engine.chain import Buffer
from hyperslab.engine.fill_value import same_object
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import StoredParts
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.sharding import chunks_in, merge_shard, reordered, stored_chunks
from hyperslab.errors import (
    BadBody,
    BadDefinition,
    Cancelled,
    ChunkCorrupt,
    HyperslabError,
    InDoubt,
    PartlyConflicting,
    PartlyWritten,
    StoreError,
    WriteConflict,
)
from hyperslab.storage.base import ABSENT, Absent, VersionConflict

Part = TypeVar("Part", bound=Projection)

TOO_LATE = "it was written after the precondition was checked"

Change = Callable[[NDArray], object]
"""Modifies a whole, writable chunk (full chunk size, edge chunks too) in place, or returns False for no change."""


class Start(Enum):
    """Initial contents of a chunk before a change.

    ``STORED``: the stored chunk. ``READABLE``: the stored chunk, or fill values if it is corrupt, for changes that set
    every cell inside the array. ``LEFT``: the stored chunk; corrupt or absent ones are not changed. ``FILL``: fill
    values. ``ANYTHING``: undefined, for changes that set every cell.
    """

    STORED = 0
    READABLE = 1
    LEFT = 2
    FILL = 3
    ANYTHING = 4


class ChunkChange(NamedTuple):
    """The change of one chunk; if ``change`` is None, it is replaced by ``encoded``, or removed if that is None too."""

    coords: Coords
    change: Change | None
    start: Start = Start.STORED
    encoded: Buffer | None = None


class ChunkWriter:
    """Writes chunks of ``array``, one stored object at a time. Threads may call it concurrently for different objects.

    ``expected``: versions that a precondition was checked against; objects are changed on top of exactly these versions
    or not at all. ``written``: version of each object after this write; None if it was not stored. ``memory``: memory
    to change one object. ``fences``: each write must make late requests of other writers fail, so objects of fill
    values are stored too, and an object with unchanged bytes, whose version may be a digest, is encoded differently.
    ``check`` is called between read and change of an object; its exception ends the work.
    """

    def __init__(
        self,
        reader: Reader,
        array: ArrayNode,
        expected: Mapping[Coords, str | None] | None = None,
        *,
        fences: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        if array.metadata.coding_of is not None:
            raise BadDefinition("chunk_grid", "chunks of a rectilinear grid are not written: copy to a regular grid")
        self.array = array
        self.written: dict[Coords, str | None] = {}
        self._metadata = metadata = array.metadata
        self._levels = metadata.levels
        self._store = array.mount.store
        self._pool = array.mount.pool
        self._memory, self.memory = write_memory(array, reader.slab_bytes)
        self._cache = reader.cache
        self._expected = expected
        self._fences = fences
        self._check = check
        self._sparse = metadata.fill_reads_alike and not array.mount.stores_fill

    def write_each(
        self,
        objects: Iterable[StoredParts[Part]],
        write: Callable[[Coords, Iterable[Part]], None],
        cancel: Cancel | None = None,
    ) -> None:
        """Call ``write``, which changes or replaces an object with this writer, for every object; an error lists the
        objects written before it."""
        parts = {part.coords: part.parts for part in objects}
        try:
            self._pool.each(parts.items(), len(parts), lambda item: write(*item), cancel, nbytes=self.memory)
        except HyperslabError as error:
            if isinstance(error, Cancelled) or (not self.written and not isinstance(error, StoreError)):
                raise
            key = self.array.chunk_key
            stored = [key(coords) for coords in [*self.written][:1000]]
            failed = [key(coords) for coords in parts if coords not in self.written][:1000]
            if isinstance(error, StoreError):
                raise type(error)(error.store, error.key, error.reason, stored, failed, error.place) from error
            kind = PartlyConflicting if isinstance(error, WriteConflict) else PartlyWritten
            raise kind(self.array.mount.name, failed[0] if failed else "", str(error), stored, failed) from error

    def replace(self, coords: Coords, changes: Sequence[ChunkChange] = ()) -> None:
        """Write an object without a read. Cells that no change sets are fill values."""
        key = self.array.chunk_key(coords)
        data, _ = self._changed(changes, None, key)
        with self._locked(key):
            self.written[coords] = self._put(key, data, self._condition(coords))

    def update(self, coords: Coords, changes: Sequence[ChunkChange]) -> None:
        """Read, change and write an object, again from the start after a conflict; without a read if the changes
        replace all of it.

        Raises `WriteConflict` after many attempts, `ChunkCorrupt` if a chunk to be changed, or the index of a shard,
        does not decode.
        """
        if len(changes) == self._metadata.chunks_per_object and all(c.start is Start.ANYTHING for c in changes):
            return self.replace(coords, changes)
        key = self.array.chunk_key(coords)
        for _ in attempts():
            try:
                with self._store.lock(key):
                    return self._update_once(coords, key, changes)
            except VersionConflict as conflict:
                if self._expected is not None:
                    raise WriteConflict(key, TOO_LATE) from conflict
            except InDoubt:
                if self._expected is not None:
                    raise
        raise WriteConflict(key, f"other writers came first {MAX_TRIES} times")

    def put_stored(self, coords: Coords, data: bytes | memoryview, inside: Coords | None = None) -> str:
        """Store an encoded object, or only the chunk ``inside`` a shard, and return its version. Raises `BadBody` if it
        does not decode."""
        key, codec = self.array.chunk_key(coords), self._metadata.codec
        try:
            is_shard = bool(self._levels) and inside is None
            chunks = [*stored_chunks(self._levels, data, key)] if is_shard else [data]
            self._pool.map(lambda chunk: codec.decode(chunk, key) is None, chunks, nbytes=self._memory)
        except ChunkCorrupt as error:  # the body is corrupt, not the store
            raise BadBody(f"not an encoded chunk of this array: {error}") from error
        if self._levels and inside is not None:
            self.update(coords, [ChunkChange(inside, None, encoded=bytes(data))])
            now = self.written[coords]
            assert now is not None
            return now
        with self._locked(key):
            version = self._store.put(key, data, if_version=self._condition(coords))
            self._record(key, version)
        self.written[coords] = version
        return version

    def delete(self, coords: Coords) -> bool:
        """Remove an object, which then reads as fill values. False if it was absent."""
        key, condition = self.array.chunk_key(coords), self._condition(coords)
        with self._locked(key):
            if self.array.mount.has_replicas and condition is None:
                condition = self._stored_version(key)
            if isinstance(condition, Absent):
                return False
            if self._store.leaves_tombstones():  # other programs would read a tombstone as a chunk
                self._put(key, None, condition)
                return True
            return self._remove(key, condition)

    def delete_each(self, several: Sequence[Coords]) -> None:
        """Remove objects, on no condition, where no replicas share the store; the caller holds the node lock, which
        excludes all other writers of them."""
        keys = [self.array.chunk_key(coords) for coords in several]
        try:
            self._store.delete_each(keys, self._check)
        finally:
            for key in keys:
                self._record(key, None)

    def remove_written(self, check: Callable[[], None]) -> None:
        """Remove objects written to an array that was deleted meanwhile, unless changed since; ``check`` is called
        before each removal."""
        for coords, version in self.written.items():
            check()
            with suppress(VersionConflict):
                if version is not None:
                    self._store.delete(self.array.chunk_key(coords), if_version=version)

    def _update_once(self, coords: Coords, key: str, changes: Sequence[ChunkChange]) -> None:
        stored = self.array.get_object(key, self._metadata.max_stored_bytes)
        version = None if stored is None else stored.version
        if stored is None and elsewhere(self.array, [coords]) is not None:
            raise WriteConflict(key, "the chunks of the array lie under other keys now")
        if self._expected is not None and version != self._expected[coords]:
            raise VersionConflict(key, version)
        data = None if stored is None else stored.data
        try:
            new, is_changed = self._changed(changes, data, key)
        except ChunkCorrupt:
            some_stay = any(change.start in (Start.STORED, Start.LEFT) for change in changes)
            if data is None or some_stay or len(changes) < self._metadata.chunks_inside(coords):
                raise
            new, is_changed = self._changed(changes, None, key)
        if is_changed:
            self.written[coords] = self._put(key, new, ABSENT if version is None else version)

    def _changed(
        self, changes: Sequence[ChunkChange], data: Buffer | None, key: str
    ) -> tuple[Buffer | list[Buffer] | None, bool]:
        """The changed bytes of an object with the bytes ``data``, None if all items are fill values; and whether they
        differ."""
        metadata, levels = self._metadata, self._levels
        chunks: list[Buffer | None] = [data for _ in changes]
        if data is not None and levels:
            origins = np.array([metadata.origin(change.coords) for change in changes], np.int64)
            chunks = chunks_in(levels, origins.reshape(len(changes), metadata.rank), data, key)[0]
        each_known = [*zip(changes, chunks, strict=True)]
        encoded = self._pool.map(lambda pair: self._encoded(*pair, key), each_known, nbytes=self._memory)
        changed = dict([pair for pair in encoded if pair is not None])
        if not levels:
            return next(iter(changed.values()), None), bool(changed)
        pieces = {metadata.origin(coords): chunk for coords, chunk in changed.items()}
        return merge_shard(levels, data, pieces, key), bool(changed)

    def _encoded(self, change: ChunkChange, stored: Buffer | None, key: str) -> tuple[Coords, Buffer | None] | None:
        """The encoded chunk, None if all items are fill values; None for both if it is unchanged."""
        metadata = self._metadata
        if stored is None and change.start is Start.LEFT:
            return None
        if change.change is None:
            return change.coords, change.encoded
        chunk = None
        if stored is not None and change.start not in (Start.FILL, Start.ANYTHING):
            try:
                chunk = np.array(metadata.codec.decode(stored, key), order="K", copy=True)
            except ChunkCorrupt:
                if change.start is Start.LEFT:
                    return None
                if change.start is Start.STORED:
                    raise
        if change.start is Start.ANYTHING:
            chunk = np.empty(metadata.chunks, metadata.dtype.numpy, metadata.order)
        chunk = self._fill_chunk() if chunk is None else chunk
        if change.change(chunk) is False:
            return None
        # int4 and bool have several encodings of one value, a fill value only one
        chunk = metadata.dtype.clean(chunk)
        if self._sparse and (self._levels or not self._fences) and is_all_fill(chunk, metadata):
            return change.coords, None
        return change.coords, metadata.codec.encode_readably(chunk, key)[0]

    def _put(self, key: str, data: Buffer | list[Buffer] | None, condition: str | Absent | None) -> str | None:
        """Store an object and return its version; for ``data`` None, meaning fill values, store nothing and return
        None."""
        self._check()
        codec, levels = self._metadata.codec, self._levels
        if data is None:
            if self._sparse and not self._fences:
                now = self._stored_version(key) if condition is None else condition
                if isinstance(now, Absent):
                    return None
                if self._store.capabilities.conditional_delete:  # else it is overwritten
                    self._remove(key, now)
                    return None
            data = levels[0].join({}) if levels else codec.encode_readably(self._fill_chunk(), key)[0]
        version = self._store.put(key, data, if_version=condition)
        if self._fences and version == condition:
            other: bytes | None
            data = b"".join(data) if isinstance(data, list) else data
            if levels:
                other = reordered(levels, data, codec.encode(self._fill_chunk()), key)
            else:
                other = self._metadata.encode_otherwise(codec.decode(data, key), bytes(data))
            version = version if other is None else self._store.put(key, other, if_version=version)
        self._record(key, version)
        return version

    def _remove(self, key: str, version: str | None) -> bool:
        """Remove an object; False if it was absent."""
        self._check()
        removed = self._store.delete(key, if_version=version)
        self._record(key, None)
        return removed

    def _condition(self, coords: Coords) -> str | Absent | None:
        return None if self._expected is None else self._expected[coords] or ABSENT

    def _stored_version(self, key: str) -> str | Absent:
        (version,) = self._store.versions(self.array.prefix, [key])
        return version or ABSENT

    def _fill_chunk(self) -> NDArray:
        """A new chunk of fill values, also beyond the edge of the array."""
        metadata = self._metadata
        return np.full(metadata.chunks, metadata.fill, metadata.dtype.numpy, order=metadata.order)

    def _record(self, key: str, version: str | None) -> None:
        self._cache.drop(self.array.cache_key(key))
        self.array.mount.versions.record(key, version)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        try:
            with self._store.lock(key):
                yield
        except VersionConflict as conflict:
            raise WriteConflict(conflict.key, TOO_LATE) from conflict


def write_memory(array: ArrayNode, slab_bytes: int) -> tuple[int, int]:
    """Memory for the change of one chunk, and of one stored object: its chunks, and a shard before and after. Up to the
    size of a slab they count as 0."""
    metadata = array.metadata
    per_chunk = 2 * metadata.codec.memory if metadata.codec.memory > slab_bytes * 2 else 0
    if not metadata.levels:
        return per_chunk, per_chunk
    helpers = array.mount.pool.max_helpers(metadata.chunks_per_object - 1, per_chunk) if per_chunk else 0
    shard = 2 * (metadata.shard_nbytes + sum([level.index_nbytes for level in metadata.levels]))
    return per_chunk, per_chunk * (1 + helpers) + (shard if shard > 2 * slab_bytes else 0)


def is_all_fill(chunk: NDArray, metadata: ArrayMetadata) -> bool:
    """Whether every item equals that of a missing chunk, bit for bit."""
    if chunk.dtype.kind == "O":
        fill = metadata.fill[()]
        return all(item is fill or same_object(item, fill) for item in chunk.flat)
    pattern = np.frombuffer(metadata.fill.tobytes(), np.uint8)
    rows = np.ravel(chunk, order="K").view(np.uint8).reshape(-1, pattern.size)
    if not rows.size or not np.array_equal(rows[0], pattern):  # the first item nearly always decides
        return not rows.size
    return bool((rows == pattern).all())
