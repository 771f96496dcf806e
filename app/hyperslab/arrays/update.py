"""Chunk writer: changes chunks one at a time, each under its lock and only on top of the version that was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from hyperslab.arrays.chunks import NDArray, cache_key, chunk_nbytes, get_chunk
from hyperslab.arrays.lease import MOST_TRIES, attempts
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.read import Reader
from hyperslab.engine.fill_value import same_object
from hyperslab.engine.grid import Coords
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.errors import BadBody, ChunkCorrupt, UnsupportedFormat, WriteConflict
from hyperslab.storage.base import ABSENT, Absent, VersionConflict

TOO_LATE = "it was written after the precondition was checked"

Change = Callable[[NDArray], object]
"""Alters a whole, writable chunk (full chunk size, edge chunks too) in place, or returns False: nothing is stored."""


class ChunkWriter:
    """Writes chunks of one ``array``. Called from many threads, each with another chunk.

    ``expected``: the versions that a precondition was checked against; then a chunk is changed on top of exactly that
    version or not at all. ``written``: the version of each chunk after this write; None if it was not stored.
    ``fences``: what is written must stand in the way of late requests of others. So chunks of fill values are stored,
    too, and a chunk whose bytes are those of before, which a version may be a digest of, is encoded otherwise.
    """

    def __init__(
        self,
        reader: Reader,
        array: ArrayNode,
        expected: Mapping[Coords, str | None] | None = None,
        *,
        fences: bool = False,
    ) -> None:
        if array.metadata.levels:
            raise UnsupportedFormat(array.path, array.document_key)
        self.array = array
        self.written: dict[Coords, str | None] = {}
        self._metadata = array.metadata
        self._store = array.mount.store
        self._cache = reader.cache
        self._versions = reader.versions
        self._expected = expected
        self._fences = fences

    def replace(self, coords: Coords, change: Change, *, fills: bool = False) -> None:
        """Write a chunk anew, whatever was there; reads nothing first.

        ``fills``: ``change`` sets every cell; otherwise the cells that it leaves are fill values.
        """
        key = self.array.chunk_key(coords)
        metadata = self._metadata
        chunk = np.empty(metadata.chunks, metadata.dtype.numpy, metadata.order) if fills else self._fill_chunk()
        change(chunk)
        with self._locked(key):
            self.written[coords] = self._put(key, chunk, self._condition(coords), keep=False)

    def update(self, coords: Coords, change: Change, *, covers: bool = False) -> None:
        """Read a chunk, change it and write it, again from the start if another writer comes first.

        ``covers``: ``change`` sets every cell inside the array, and only what lies beyond its edge stays; then what is
        stored need not decode. Raises `WriteConflict` after many tries, `ChunkCorrupt` if what is stored does not
        decode.
        """
        key = self.array.chunk_key(coords)
        for _ in attempts():
            try:
                with self._store.lock(key):
                    return self._update_once(coords, key, change, covers=covers)
            except VersionConflict as conflict:
                if self._expected is not None:
                    raise WriteConflict(key, TOO_LATE) from conflict
        raise WriteConflict(key, f"other writers came first {MOST_TRIES} times")

    def put_stored(self, coords: Coords, data: bytes | memoryview) -> str:
        """Store a chunk that is encoded already and return its version; raises `BadBody` if it does not decode."""
        key = self.array.chunk_key(coords)
        try:
            self._metadata.codec.decode(data, key)
        except ChunkCorrupt as error:  # what was sent is broken, nothing that is stored
            raise BadBody(f"not an encoded chunk of this array: {error}") from error
        with self._locked(key):
            version = self._store.put(key, data, if_version=self._condition(coords))
            self._note(key, version)
        self.written[coords] = version
        return version

    def delete(self, coords: Coords) -> bool:
        """Remove a chunk: it reads as fill again. False if it was not there."""
        key, condition = self.array.chunk_key(coords), self._condition(coords)
        with self._locked(key):
            if self._store.may_have_tombstones and condition is None:
                condition = self._stored_version(key)
            if isinstance(condition, Absent):
                return False
            if self._store.leaves_tombstones():  # an array is for other programs, too
                self._put(key, self._fill_chunk(), condition, keep=False)
                return True
            removed = self._store.delete(key, if_version=condition)
            self._note(key, None)
        return removed

    def _update_once(self, coords: Coords, key: str, change: Change, *, covers: bool) -> None:
        stored = get_chunk(self._store, key, self._metadata.codec.most_stored)
        version = None if stored is None else stored.version
        if self._expected is not None and version != self._expected[coords]:
            raise VersionConflict(key, version)
        if stored is None:
            chunk = self._fill_chunk()
        else:
            try:
                cached = self._cache.get(cache_key(self.array, key), stored.version)
                found = self._metadata.codec.decode(stored.data, key) if cached is None else cached
                chunk = np.array(found, order="K", copy=True)
            except ChunkCorrupt:
                if not covers:
                    raise
                chunk = self._fill_chunk()  # nothing that anybody could read is lost
        if change(chunk) is not False:
            condition = ABSENT if version is None else version
            self.written[coords] = self._put(key, chunk, condition, keep=not covers)

    def _put(self, key: str, chunk: NDArray, condition: str | Absent | None, *, keep: bool) -> str | None:
        """Store a chunk and return its version; or store none where it holds nothing but the fill value, as what is
        absent reads the same, and return None."""
        # int4 and bool have several spellings of one value, and a fill value is spelt in one way
        chunk = self._metadata.dtype.clean(chunk)
        sparse = self._metadata.fill_reads_alike and not self.array.mount.stores_fill and not self._fences
        if sparse and is_all_fill(chunk, self._metadata) and self._drop(key, condition):
            return None
        data, readable = self._metadata.codec.encode_readably(chunk, key)
        version = self._store.put(key, data, if_version=condition)
        if self._fences and version == condition:
            other = self._metadata.encode_otherwise(chunk, data)
            version = version if other is None else self._store.put(key, other, if_version=version)
        self._note(key, version)
        if keep:
            readable.setflags(write=False)
            self._cache.put(cache_key(self.array, key), version, readable, chunk_nbytes(readable))
        return version

    def _drop(self, key: str, condition: str | Absent | None) -> bool:
        """Remove a chunk that became all fill; False where it has to be overwritten instead, as not every object store
        has conditional deletes."""
        if condition is None:
            condition = self._stored_version(key)
        if isinstance(condition, Absent):
            return True
        if not self._store.capabilities.conditional_delete:
            return False
        self._store.delete(key, if_version=condition)
        self._note(key, None)
        return True

    def _condition(self, coords: Coords) -> str | Absent | None:
        return None if self._expected is None else self._expected[coords] or ABSENT

    def _stored_version(self, key: str) -> str | Absent:
        (version,) = self._store.versions(self.array.prefix, [key])
        return version or ABSENT

    def _fill_chunk(self) -> NDArray:
        """A chunk as it is before anything was written to it: fill values, also beyond the edge of the array."""
        metadata = self._metadata
        return np.full(metadata.chunks, metadata.fill, metadata.dtype.numpy, order=metadata.order)

    def _note(self, key: str, version: str | None) -> None:
        self._cache.drop(cache_key(self.array, key))
        self._versions.note(self.array.mount, key, version)

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        try:
            with self._store.lock(key):
                yield
        except VersionConflict as conflict:
            raise WriteConflict(conflict.key, TOO_LATE) from conflict


def is_all_fill(chunk: NDArray, metadata: ArrayMetadata) -> bool:
    """Whether every item is what a missing one reads as, bit for bit."""
    if chunk.dtype.kind == "O":
        fill = metadata.fill[()]
        return all(item is fill or same_object(item, fill) for item in chunk.flat)
    pattern = np.frombuffer(metadata.fill.tobytes(), np.uint8)
    rows = np.ravel(chunk, order="K").view(np.uint8).reshape(-1, pattern.size)
    if not rows.size or not np.array_equal(rows[0], pattern):  # nearly always decided by the first item
        return not rows.size
    return bool((rows == pattern).all())
