"""Least-recently-used cache of versioned values: bounded in bytes, with single flight."""

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
    """Counters since the start; ``nbytes`` and ``entries`` are what is held now."""

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


class Loaded(NamedTuple, Generic[V]):
    """Result of `VersionedCache.load`: the ``version`` of the value, and whether it ``was_there`` already."""

    value: V
    version: str
    was_there: bool


class Vanished(Exception):
    """A loader found nothing any more: raised by it, and by `VersionedCache.load`."""


class VersionedCache(Generic[V]):
    """Values by key and version, at most ``limit`` bytes of them; safe to call from many threads.

    A key has one version at a time: putting another one replaces it, asking for another one is a miss.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[Hashable, _Entry[V]] = OrderedDict()
        self._flights: dict[tuple[Hashable, str], Future[tuple[V, str]]] = {}
        self._lock = Lock()
        self._nbytes = self._hits = self._misses = self._evictions = 0

    def get(self, key: Hashable, version: str, *, count_miss: bool = True) -> V | None:
        """The value, or None where this version of the key is not held."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.version != version:
                self._misses += count_miss
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry.value

    def holds(self, key: Hashable, version: str) -> bool:
        """Whether `get` would hit; counts nothing and changes no order."""
        entry = self._entries.get(key)
        return entry is not None and entry.version == version

    def any_version(self, key: Hashable) -> V | None:
        """The value of whichever version of a key is held; counts nothing and changes no order."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def version_of(self, key: Hashable) -> str | None:
        """Which version of a key is held; None if none is."""
        entry = self._entries.get(key)
        return None if entry is None else entry.version

    def put(self, key: Hashable, version: str, value: V, nbytes: int) -> None:
        """Store a value of ``nbytes`` bytes, dropping the least recently used; one above the limit is not stored."""
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
        """Remove a key, if it is there."""
        with self._lock:
            self._remove(key)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._nbytes = 0

    def load(
        self, key: Hashable, version: str, loader: Callable[[], tuple[V, str, int]], *, count_miss: bool = True
    ) -> Loaded[V]:
        """The value of a key; a miss is loaded once, however many threads ask for it.

        ``loader`` returns (value, its version, its size in bytes). Another version than the one asked for serves only
        calls that began before it was loaded: for later ones it may be out of date. The same goes for `Vanished`. All
        waiting threads raise any other exception of the loader, except that a `Cancelled` leader hands over to the next
        of them. ``count_miss`` is False if `get` has counted it.
        """
        began_before = False  # whether this call began before the flight that it joins
        while True:
            value = self.get(key, version, count_miss=count_miss)
            if value is not None:
                return Loaded(value, version, True)
            with self._lock:
                flight = self._flights.get((key, version))
                leads = flight is None
                if flight is None:
                    flight = self._flights[key, version] = Future()
            try:
                if leads:
                    return Loaded(*self._lead(key, version, flight, loader), False)
                value, found = flight.result()
                if began_before or found == version:
                    return Loaded(value, found, True)
            except Cancelled:
                if leads:
                    raise  # else the leader's client has left, ours has not
            except Vanished:
                if leads or began_before:
                    raise
            finally:
                del flight  # the error in it holds this frame
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
            value, found, nbytes = loader()
            self.put(key, found, value, nbytes)
        except BaseException as error:
            self._flights.pop((key, version), None)
            flight.set_exception(error)
            del flight  # the error in it holds this frame
            raise
        self._flights.pop((key, version), None)
        flight.set_result((value, found))
        return value, found

    def _remove(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._nbytes -= entry.nbytes
