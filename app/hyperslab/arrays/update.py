"""Changing one chunk: under its lock, and only on top of the version that was read."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from hyperslab.arrays.chunks import ChunkCache, NDArray, cache_key, chunk_nbytes, get_chunk
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.versions import VersionBook
from hyperslab.engine.fill_value import same_object
from hyperslab.engine.grid import Coords
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.errors import BadBody, ChunkCorrupt, WriteConflict
from hyperslab.storage.base import ABSENT, Absent, Stored, VersionConflict, remover

_MOST_TRIES = 64
_LONGEST_PAUSE = 0.25
TOO_LATE = "it was written after the precondition was checked"

Change = Callable[[NDArray], object]
"""Alters a whole, writable chunk (full chunk size, edge chunks too) in place, or returns False: nothing is stored."""


class ChunkWriter:
    """Writes chunks of one ``array``. Called from many threads, each with another chunk.

    ``expected`` holds the versions that a precondition was checked against: then a chunk is changed on top of exactly
    that version or not at all. ``written`` holds the versions that chunks have got (None: removed, or not stored).
    ``fences``: what is written must stand in the way of requests of others that come late. So chunks of fill values are
    stored, too, and what has the bytes of what was there before, which a version may be a digest of, is stored in
    others.
    """

    def __init__(
        self,
        array: ArrayNode,
        cache: ChunkCache,
        versions: VersionBook,
        expected: Mapping[Coords, str | None] | None = None,
        *,
        fences: bool = False,
    ) -> None:
        self.array = array
        self._metadata = array.metadata
        self._store = array.mount.store
        self._cache = cache
        self._versions = versions
        self._expected = expected
        self._fences = fences
        self.written: dict[Coords, str | None] = {}

    def replace(self, coords: Coords, change: Change, *, fills: bool = False) -> None:
        """Write a chunk anew, whatever was there; reads nothing first.

        ``fills``: ``change`` sets every cell of it; else those that it leaves are fill values.
        """
        key = self.array.chunk_key(coords)
        chunk = empty_chunk(self._metadata) if fills else fresh_chunk(self._metadata)
        change(chunk)
        with _conflicts(), self._store.lock(key):
            self.written[coords] = self._put(key, chunk, self._condition(coords), keep=False)

    def update(self, coords: Coords, change: Change, *, covers: bool = False) -> None:
        """Read a chunk, change it and write it, again from the start if another writer comes first.

        ``covers``: ``change`` sets every cell inside the array, and only what lies beyond its edge stays (CONFORMANCE
        211); then what is stored need not decode. Raises `WriteConflict` after many tries, `ChunkCorrupt` where what is
        stored does not decode.
        """
        key = self.array.chunk_key(coords)
        for attempt in range(_MOST_TRIES):
            try:
                return self._update_once(coords, key, change, covers=covers)
            except VersionConflict as conflict:
                if self._expected is not None:
                    raise WriteConflict(key, TOO_LATE) from conflict
                time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.005 * 2**attempt)))
        raise WriteConflict(key, f"other writers came first {_MOST_TRIES} times")

    def put_stored(self, coords: Coords, data: bytes | memoryview) -> str:
        """Store a chunk that is encoded already, after decoding it once: raises `BadBody` where that fails."""
        key = self.array.chunk_key(coords)
        try:
            self._metadata.codec.decode(data, key)
        except ChunkCorrupt as error:  # what was sent is broken, nothing that is stored
            raise BadBody(f"not an encoded chunk of this array: {error}") from error
        with _conflicts(), self._store.lock(key):
            version = self._store.put(key, data, if_version=self._condition(coords))
            self._forget(key, version)
        self.written[coords] = version
        return version

    def set_to_fill(self, coords: Coords) -> None:
        """Store a chunk that holds nothing else; reads nothing first."""
        self.replace(coords, lambda _: None)

    def delete(self, coords: Coords) -> bool:
        """Remove a chunk: it reads as fill again. False where it was not there."""
        key = self.array.chunk_key(coords)
        condition = self._condition(coords)
        remover_ = remover(self._store)
        with _conflicts(), self._store.lock(key):
            if remover_ is not None and condition is None:
                (version,) = self._store.versions(self.array.prefix, [key])
                condition = ABSENT if version is None else version
            if isinstance(condition, Absent):
                return False
            if remover_ is not None and not remover_.leaves_nothing():  # an array is for other programs, too
                self._put(key, fresh_chunk(self._metadata), condition, keep=False)
                return True
            removed = self._store.delete(key, if_version=condition)
            self._forget(key, None)
        return removed

    def _update_once(self, coords: Coords, key: str, change: Change, *, covers: bool) -> None:
        with self._store.lock(key):
            stored = get_chunk(self._store, key, self._metadata.codec.most_stored)
            if self._expected is not None and (stored.version if stored else None) != self._expected[coords]:
                raise VersionConflict(key, stored.version if stored else None)
            chunk = self._before(stored, key, covers=covers)
            if change(chunk) is False:
                return
            condition = ABSENT if stored is None else stored.version
            self.written[coords] = self._put(key, chunk, condition, keep=not covers)

    def _before(self, stored: Stored | None, key: str, *, covers: bool) -> NDArray:
        """A chunk to be changed."""
        if stored is None:
            return fresh_chunk(self._metadata)
        try:
            return self._decoded(stored, key)
        except ChunkCorrupt:
            if not covers:
                raise
            return fresh_chunk(self._metadata)  # nothing that anybody could read is lost

    def _put(self, key: str, chunk: NDArray, condition: str | Absent | None, *, keep: bool) -> str | None:
        """Store a chunk, or leave none where it holds nothing but the fill value: what is absent reads the same.

        Returns the version that the key has then; None for none.
        """
        # int4 and bool have several spellings of one value, and a fill value is spelt in one way
        chunk = self._metadata.dtype.clean(chunk)
        sparse = self._metadata.fill_reads_alike and not self.array.mount.stores_fill
        if sparse and not self._fences and is_all_fill(chunk, self._metadata) and self._drop(key, condition):
            return None
        data, readable = self._metadata.codec.encode_readably(chunk, key)
        version = self._store.put(key, data, if_version=condition)
        if self._fences and version == condition:
            other = self._metadata.encode_otherwise(chunk, data, key)
            version = version if other is None else self._store.put(key, other, if_version=version)
        self._forget(key, version)
        if keep:
            readable.setflags(write=False)
            self._cache.put(cache_key(self.array, key), version, readable, chunk_nbytes(readable))
        return version

    def _drop(self, key: str, condition: str | Absent | None) -> bool:
        """Remove a chunk that became all fill; False where it has to be overwritten instead.

        Deletes are not conditional on every object store, so there an existing chunk is overwritten.
        """
        if condition is None:
            (version,) = self._store.versions(self.array.prefix, [key])
            condition = ABSENT if version is None else version
        if condition is ABSENT:
            return True
        if not self._store.capabilities.conditional_delete:
            return False
        assert isinstance(condition, str)
        self._store.delete(key, if_version=condition)
        self._forget(key, None)
        return True

    def _condition(self, coords: Coords) -> str | Absent | None:
        if self._expected is None:
            return None
        version = self._expected[coords]
        return ABSENT if version is None else version

    def _decoded(self, stored: Stored, key: str) -> NDArray:
        cached = self._cache.get(cache_key(self.array, key), stored.version)
        chunk = self._metadata.codec.decode(stored.data, key) if cached is None else cached
        return np.array(chunk, order="K", copy=True)

    def _forget(self, key: str, version: str | None) -> None:
        self._cache.drop(cache_key(self.array, key))
        self._versions.note(self.array.mount, key, version)


@contextmanager
def _conflicts() -> Iterator[None]:
    try:
        yield
    except VersionConflict as conflict:
        raise WriteConflict(conflict.key, TOO_LATE) from conflict


def fresh_chunk(metadata: ArrayMetadata) -> NDArray:
    """A chunk as it is before anything was written to it: fill values, also beyond the edge of the array."""
    chunk = empty_chunk(metadata)
    chunk[...] = metadata.fill
    return chunk


def empty_chunk(metadata: ArrayMetadata) -> NDArray:
    """Memory for a chunk, in the array's order, to be filled."""
    return np.empty(metadata.chunks, metadata.dtype.numpy, order=metadata.order)


def is_all_fill(chunk: NDArray, metadata: ArrayMetadata) -> bool:
    """Whether every item is what a missing one reads as, bit for bit (CONFORMANCE 213, 214)."""
    if chunk.dtype.kind == "O":
        fill = metadata.fill[()]
        return all(item is fill or same_object(item, fill) for item in chunk.flat)
    return _equal_bytes(chunk, metadata.fill)


def _equal_bytes(chunk: NDArray, fill: NDArray) -> bool:
    items: np.ndarray[Any, np.dtype[np.uint8]] = np.ravel(chunk, order="K").view(np.uint8)
    pattern = np.frombuffer(fill.tobytes(), np.uint8)
    rows = items.reshape(-1, pattern.size)
    if not rows.size or not np.array_equal(rows[0], pattern):  # nearly always decided by the first item
        return not rows.size
    return bool((rows == pattern).all())
