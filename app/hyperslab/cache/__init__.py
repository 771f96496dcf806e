"""LRU cache of versioned values, limited in bytes, which loads each value once (single flight)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

from hyperslab.errors import Cancelled

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters since the start, and the current ``nbytes`` and ``entries``."""

    limit: int
    nbytes: int
    entries: int
    hits: int
    misses: int
    evictions: int


@dataclass(frozen=True, slots=True)
class _Entry(Generic[V]):
    version: str
    value: V
    nbytes: int


class LoadResult(NamedTuple, Generic[V]):
    """Result of `VersionedCache.load`; ``was_there``: it was cached, or loaded by another call."""

    value: V
    version: str
    was_there: bool


class Vanished(Exception):
    """The value does not exist any more: raised by loaders and by `VersionedCache.load`."""


class VersionedCache(Generic[V]):
    """Values by key, in one version each, at most ``limit`` bytes in all; thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[Hashable, _Entry[V]] = OrderedDict()
        self._flights: dict[tuple[Hashable, str], Future[tuple[V, str]]] = {}
        self._lock = Lock()
        self._nbytes = self._hits = self._misses = self._evictions = 0

    def get(self, key: Hashable, version: str, *, count_miss: bool = True) -> V | None:
        """The value, or None if this version of the key is not cached."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.version != version:
                self._misses += count_miss
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry.value

    def holds(self, key: Hashable, version: str) -> bool:
        """Whether `get` would hit; changes neither counters nor order."""
        entry = self._entries.get(key)
        return entry is not None and entry.version == version

    def any_version(self, key: Hashable) -> V | None:
        """The value of a key in any version, or None; changes neither counters nor order."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def version_of(self, key: Hashable) -> str | None:
        """The cached version of a key, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry.version

    def put(self, key: Hashable, version: str, value: V, nbytes: int) -> None:
        """Store a value of ``nbytes`` bytes, evicting the least recently used; one above the limit is not stored."""
        with self._lock:
            self._remove(key)
            if nbytes > self.limit:
                return
            self._entries[key] = _Entry(version, value, nbytes)
            self._nbytes += nbytes
            while self._nbytes > self.limit:
                oldest = next(iter(self._entries))
                self._remove(oldest)
                self._evictions += 1

    def drop(self, key: Hashable) -> None:
        """Remove a key, if cached."""
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._nbytes = 0

    def load(
        self, key: Hashable, version: str, loader: Callable[[], tuple[V, str, int]], *, count_miss: bool = True
    ) -> LoadResult[V]:
        """The value of a key; a miss is loaded once for all concurrent calls.

        ``loader`` returns value, version and size in bytes. A version other than the requested one, or `Vanished`, is
        returned only to calls that began before the load, as it may be outdated for later ones. Other exceptions are
        raised by all calls, except that after `Cancelled` another call loads. ``count_miss`` is False if `get` has
        counted it.
        """
        began_before = False  # whether this call began before the load it joins
        while True:
            value = self.get(key, version, count_miss=count_miss)
            if value is not None:
                return LoadResult(value, version, True)
            with self._lock:
                flight = self._flights.get((key, version))
                leads = flight is None
                if flight is None:
                    flight = self._flights[key, version] = Future()
            try:
                if leads:
                    return LoadResult(*self._lead(key, version, flight, loader), False)
                value, loaded = flight.result()
                if began_before or loaded == version:
                    return LoadResult(value, loaded, True)
            except Cancelled:
                if leads:
                    raise  # else only the leader was cancelled
            except Vanished:
                if leads or began_before:
                    raise
            finally:
                del flight  # breaks a reference cycle through the exception
            began_before = True

    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(self.limit, self._nbytes, len(self._entries), self._hits, self._misses, self._evictions)

    def _lead(
        self,
        key: Hashable,
        version: str,
        flight: Future[tuple[V, str]],
        loader: Callable[[], tuple[V, str, int]],
    ) -> tuple[V, str]:
        try:
            value, stored, nbytes = loader()
            self.put(key, stored, value, nbytes)
            flight.set_result((value, stored))
        except BaseException as error:
            flight.set_exception(error)
            raise
        finally:
            self._flights.pop((key, version), None)
            del flight  # breaks a reference cycle through the exception
        return value, stored

    def _remove(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._nbytes -= entry.nbytes
