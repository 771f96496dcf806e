"""Base class of stores: bytes by key, with versions.

``None`` means absent; an exception (`StoreError`) means that the store could not answer. Nothing else is ever
taken for absence, because to Zarr an absent chunk means fill values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from hyperslab.errors import ReadOnly, StoredTooLarge, StoreError
from hyperslab.storage.config import StoreConfig, public_url
from hyperslab.storage.locks import KeyedLocks


class Absent(Enum):
    """The version of a key that is not there: ``put(key, data, if_version=ABSENT)`` creates only."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


class Stored(NamedTuple):
    """A value and the version it has. ``data`` is contiguous and must not be written to."""

    data: bytes | memoryview
    version: str


@dataclass(frozen=True, slots=True)
class Entry:
    """Description of a key, as from a stat. ``size`` in bytes, ``modified`` in seconds since 1970."""

    key: str
    size: int
    version: str
    modified: float


@dataclass(frozen=True, slots=True)
class Part:
    """Byte range of a value from ``start`` on, with the description of the whole value in that same version.

    ``data`` is contiguous and must not be written to.
    """

    entry: Entry
    start: int
    data: bytes | memoryview

    def between(self, start: int, stop: int) -> memoryview:
        """The bytes ``[start, stop)`` as far as they are included; empty if the first of them is not."""
        first = start - self.start
        return memoryview(self.data)[first : stop - self.start] if first >= 0 else memoryview(b"")


@dataclass(frozen=True, slots=True)
class Listing:
    """The direct children of a prefix: entries (keys) and the names of deeper prefixes, both sorted."""

    entries: tuple[Entry, ...]
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, entries: Iterable[Entry], prefixes: Iterable[str]) -> Listing:
        """Of children in any order."""
        return cls(tuple(sorted(entries, key=attrgetter("key"))), tuple(sorted(prefixes)))


class Log(Protocol):
    """An open value that grows at its end, by one writer at a time, while others read what is there. Whoever has it
    open reads on also when its key is removed. All methods raise `errors.StoreError`."""

    @property
    def identity(self) -> int:
        """A number that no other log has while this one is open."""

    @property
    def size(self) -> int:
        """Bytes that are there now."""

    def read_into(self, start: int, out: memoryview) -> None:
        """Fill ``out`` with the bytes from ``start`` on, all of which have to be there."""

    def write(self, at: int, parts: Sequence[tuple[int, bytes | memoryview]]) -> None:
        """Cut off what lies behind ``at``, write each part to its position, one after the other, and make them durable
        where values of the store are."""


class WritersSafe(Enum):
    """Scope within which a store serialises writers of one key."""

    THREADS = "threads of one process"
    PROCESSES = "processes on one machine"
    REPLICAS = "replicas anywhere"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features of a store; shown by ``/readyz`` and relied on by `arrays`.

    ``conditional_put``: the store itself compares versions on put. ``writers_safe``: see `WritersSafe`.
    ``conditional_delete``: what is deleted on condition is absent for every program. Not so on object stores that many
    replicas write to: see `Store.leaves_tombstones`.
    ``width``: how many requests are worth having in flight. ``cheap_stat``: a stat takes microseconds, so it may
    run on the event loop. ``ranges``: parts of a value can be read without reading the whole.
    ``coarse_times``: versions are made of whole seconds, so what other programs write may go unseen.
    """

    writable: bool = False
    listable: bool = True
    conditional_put: bool = False
    writers_safe: WritersSafe = WritersSafe.THREADS
    width: int = 1
    cheap_stat: bool = False
    ranges: bool = True
    conditional_delete: bool = False
    coarse_times: bool = False


Range: TypeAlias = tuple[int, int]
"""The bytes ``[start, stop)`` of a value."""
Check: TypeAlias = Callable[[], None]
Keep: TypeAlias = Callable[[str, bool], bool]
"""Whether a key is to stay; of a folder's also whether it is a symbolic link."""


MOST_BYTES: Final = 64 << 20
"""Default limit for the size of a value that is read."""


def check_size(key: str, size: int, most: int) -> None:
    """Raise `errors.StoredTooLarge` for a value of more than ``most`` bytes."""
    if size > most:
        raise StoredTooLarge(key, size, most)


class VersionConflict(Exception):
    """The key has another version (``current``, None: absent) than the one that a method of `Store` was given."""

    def __init__(self, key: str, current: str | None) -> None:
        super().__init__(f"{key!r} has version {current!r}")
        self.key = key
        self.current = current


def check_version(key: str, current: str | None, wanted: str | Absent | None) -> None:
    """Raise `VersionConflict` unless a key's ``current`` version (None: absent) is the one ``wanted`` (None: any)."""
    if wanted is not None and (ABSENT if current is None else current) != wanted:
        raise VersionConflict(key, current)


T = TypeVar("T")
R = TypeVar("R")

MOST_TRIES: Final = 3
"""How often a read is repeated if the value changes meanwhile."""


class Observer(Protocol):
    """What `Store.observer` is: called with each key, or prefix, that was put or deleted; ``created``: it was absent
    before."""

    def __call__(self, key: str, *, created: bool) -> None: ...


class Store(ABC):
    """Bytes by key. Synchronous and safe to call from many threads.

    Keys are normalised by `storage.keys` before they get here: no empty, ``.`` or ``..`` segments. ``prefix`` is
    ``""`` or ends in ``/``. All methods raise `errors.StoreError` (or a subclass) if the store cannot answer.

    With ``concurrent``, several requests of one call run side by side on at most ``width`` threads of the store's own.
    Only single requests run there: a task that waited for another one could wait for ever.
    """

    observer: Observer | None = None

    def __init__(self, config: StoreConfig, capabilities: Capabilities, *, concurrent: bool) -> None:
        self._config = config
        self._width = config.width or capabilities.width
        self._capabilities = replace(capabilities, width=self._width, writable=config.writable)
        self._pool = ThreadPoolExecutor(self._width, f"{config.name}-requests") if concurrent else None
        self._locks = KeyedLocks()
        self._commits = KeyedLocks()

    @property
    def name(self) -> str:
        """Configured name, for messages."""
        return self._config.name

    @property
    def url(self) -> str:
        """URL without secrets."""
        return public_url(self._config.url)

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do, as far as is known by now."""
        return self._capabilities

    @abstractmethod
    def get(self, key: str, most: int = MOST_BYTES) -> Stored | None:
        """The whole value. Of one with more than ``most`` bytes nothing is read: `errors.StoredTooLarge`."""

    def get_each(self, keys: Sequence[str], most: int = MOST_BYTES) -> list[Stored | None]:
        """`get` for each key (None: absent); of a remote store side by side."""
        return list(self._map(partial(self.get, most=most), keys))

    @abstractmethod
    def get_part(self, key: str, start: int, stop: int) -> Part | None:
        """The bytes ``[start, stop)`` of a value, cut at its end, with all that `stat` tells, in one request if the
        store can. ``start`` is less than ``stop``. A store that had to read more returns more."""

    def get_ranges(
        self, key: str, ranges: Sequence[Range], version: str | None = None
    ) -> list[bytes | memoryview] | None:
        """The bytes ``[start, stop)`` of each range, cut at the end of the value, all of one version.

        Raises `VersionConflict` if ``version`` is given and the key has another one by now.
        """
        requests = merge(ranges) or [(0, 1)]  # of empty ranges only: is the key there, in this version?
        for _ in range(MOST_TRIES):
            parts = list(self._map(lambda request: self.get_part(key, *request), requests))
            found = [part for part in parts if part is not None]
            if not found:
                return None
            versions = {None if part is None else part.entry.version for part in parts}
            if version is not None and versions != {version}:
                raise VersionConflict(key, next(iter(versions - {version})))
            if len(versions) == 1:
                found.reverse()  # a range lies in the last part that begins before it
                return [
                    next((part.between(*bounds) for part in found if part.start <= bounds[0]), b"") for bounds in ranges
                ]
        raise StoreError(self.name, key, "it changed again and again while it was read")

    @abstractmethod
    def stat(self, key: str) -> Entry | None:
        """Size and version without reading."""

    def get_tail(self, key: str, nbytes: int) -> Part | None:
        """The last ``nbytes`` bytes of a value, or all of a shorter one, with all that `stat` tells."""
        for _ in range(MOST_TRIES):
            entry = self.stat(key)
            if entry is None:
                return None
            start = max(0, entry.size - nbytes)
            part = self.get_part(key, start, max(entry.size, 1))
            if part is None or part.entry.version == entry.version:
                return part
        raise StoreError(self.name, key, "it changed again and again while it was read")

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:  # noqa: ARG002 - others list it
        """The version of each key (None: absent), all of which start with ``prefix``.

        The store chooses between one stat a key and a listing, whichever is cheaper; results are as fresh as a stat.
        """
        return list(self._map(self._version, keys))

    # What changes something is refused with `errors.ReadOnly` where the store is not writable, and else left to the
    # method of the same name with a `_` in front.

    def put(self, key: str, data: bytes | memoryview, *, if_version: str | Absent | None = None) -> str:
        """Store a value atomically and durably; return its new version.

        With ``if_version`` only if the key still has that version (`ABSENT`: only if it is not there), else
        `VersionConflict`. Raises `errors.StoreFull` if there is no space.
        """
        body = memoryview(data).cast("B")
        return self._changed(key, lambda: self._put(key, body, if_version), created=if_version is ABSENT)

    def put_pieces(self, key: str, pieces: Iterator[bytes]) -> None:
        """Store a value of any size in bounded memory, where the store can. In a folder it is seen growing."""
        self._changed(key, lambda: self._put_pieces(key, pieces))

    def delete(self, key: str, *, if_version: str | None = None) -> bool:
        """Remove a key; False if it was not there. With ``if_version`` only in that version, else `VersionConflict`;
        if `Capabilities.conditional_put` is True that is one step, which no repeated or late request can undo."""
        return self._changed(key, lambda: self._delete(key, if_version))

    def delete_prefix(self, prefix: str, check: Check | None = None, keep: Keep | None = None) -> int:
        """Remove every key below, and folders that are empty then; return how many keys went. ``check`` is called
        before each request that removes some, and an exception of it ends the work. What ``keep`` returns True for
        stays: it is called for everything that is not the service's own, also links and other things that are no
        keys."""
        return self._changed(prefix, lambda: self._delete_prefix(prefix, check, keep))

    @abstractmethod
    def list_dir(self, prefix: str) -> Listing:
        """Direct children only; does not descend. What is also above, as links can make it, is left out."""

    def list_prefix(self, prefix: str) -> Iterator[Entry]:
        """Every key below, at any depth, in no particular order."""
        listed = self.list_dir(prefix)
        yield from listed.entries
        for name in listed.prefixes:
            yield from self.list_prefix(f"{prefix}{name}/")

    def list_all(self, prefix: str) -> Iterator[tuple[Entry, bool]]:
        """As `list_prefix`, with tombstones (True)."""
        return ((entry, False) for entry in self.list_prefix(prefix))

    def leaves_tombstones(self) -> bool:
        """Whether a conditional `delete` leaves a tombstone: a value that the other methods take for absent, and that
        programs which read the store by themselves cannot. The first call may take a few requests."""
        return False

    def put_tombstones(self, keys: Sequence[str]) -> None:  # noqa: B027 - most stores leave none
        """Put a tombstone under each key that is absent, if this kind of store ever leaves any."""

    def is_link(self, prefix: str) -> bool:  # noqa: ARG002 - only folders have links
        """Whether a prefix is a link to another folder: `delete_prefix` then removes the link alone."""
        return False

    def open_log(self, key: str, *, create: bool = False) -> Log | None:  # noqa: ARG002 - only folders have logs
        """A log, for reading, or with ``create`` also for writing, which makes it if need be; None where there is
        none, or the store has no logs."""
        return None

    def lock(self, key: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Keep other writers of this key away while the context lasts, as far as `Capabilities.writers_safe` goes.

        ``shared`` holders keep only exclusive ones away. Not re-entrant. Two families never block each other: keys
        that end in ``.zarray`` or ``.zgroup`` (node locks, taken first) and all others (chunk locks, one at a time).
        """
        self._require_writable()
        return self._locks.hold(key, shared=shared)

    @abstractmethod
    def check(self) -> None:
        """Raise `errors.StoreError` if the store cannot be reached or read."""

    def close(self) -> None:
        """Release threads and connections."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
        """Like the built-in `map`, with the calls side by side if the store is concurrent."""
        return map(function, items) if self._pool is None or len(items) < 2 else self._pool.map(function, items)

    def _version(self, key: str) -> str | None:
        entry = self.stat(key)
        return None if entry is None else entry.version

    def _compare(self, key: str, wanted: str | Absent | None) -> None:
        """Raise `VersionConflict` unless the key has the version ``wanted`` (None: any)."""
        if wanted is not None:
            check_version(key, self._version(key), wanted)

    def _put(self, key: str, body: memoryview, if_version: str | Absent | None) -> str:  # noqa: ARG002
        raise ReadOnly(self.name)

    def _put_pieces(self, key: str, pieces: Iterator[bytes]) -> None:
        self._put(key, memoryview(b"".join(pieces)), None)

    def _delete(self, key: str, if_version: str | None) -> bool:  # noqa: ARG002
        raise ReadOnly(self.name)

    def _delete_prefix(self, prefix: str, check: Check | None, keep: Keep | None) -> int:  # noqa: ARG002
        raise ReadOnly(self.name)

    def _changed(self, key: str, change: Callable[[], R], *, created: bool = False) -> R:
        """The result of a change, of which the observer is told, also where it failed: it may have taken effect all the
        same."""
        self._require_writable()
        try:
            result = change()
        except VersionConflict:
            raise
        except BaseException:
            if self.observer is not None:
                self.observer(key, created=False)
            raise
        if self.observer is not None:
            self.observer(key, created=created)
        return result

    def _require_writable(self) -> None:
        if not self._config.writable:
            raise ReadOnly(self.name)


def merge(ranges: Sequence[Range], gap: int = 256 * 1024) -> list[Range]:
    """The requests that cover all ranges that are not empty, sorted. Those no further than ``gap`` bytes apart are one:
    reading and dropping so many is cheaper than another request."""
    merged: list[Range] = []
    for start, stop in sorted(r for r in ranges if r[0] < r[1]):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
