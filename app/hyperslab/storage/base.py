"""Base class of stores: versioned values by key.

``None`` means absent, an exception (`StoreError`) a failure of the store. A failure must never look like absence:
absent chunks read as fill values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from operator import attrgetter
from typing import ClassVar, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from hyperslab.errors import ChangedWhileRead, ReadOnly, StoreDenied
from hyperslab.storage.config import StoreConfig, public_url
from hyperslab.storage.keys import printable
from hyperslab.storage.locks import KeyedLocks


class Absent(Enum):
    """Version of an absent key: ``put(key, data, if_version=ABSENT)`` only creates."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


AT_ONCE: Final = ContextVar("hyperslab.at_once", default=False)
"""Whether a folder is read without waiting for a disk, by this thread alone: bytes that are not in the memory of the
system raise `BlockingIOError`."""


class StoredValue(NamedTuple):
    """Value and its version. ``data`` is contiguous and read-only."""

    data: bytes | memoryview
    version: str


@dataclass(frozen=True, slots=True)
class Entry:
    """Description of a value: ``size`` in bytes, ``modified`` in seconds since 1970."""

    key: str
    size: int
    version: str
    modified: float


@dataclass(frozen=True, slots=True)
class StoredRange:
    """Byte range of a value from ``start`` on, and the description of the value in the same version. ``data`` is
    contiguous and read-only."""

    entry: Entry
    start: int
    data: bytes | memoryview

    def between(self, start: int, stop: int) -> memoryview:
        """The bytes ``[start, stop)`` of the value, as far as included; empty if ``start`` is not."""
        first = start - self.start
        return memoryview(self.data)[first : stop - self.start] if first >= 0 else memoryview(b"")


class UnservedEntry(NamedTuple):
    """Something in a store that no key leads to: its path, for people, and the reason."""

    path: str
    reason: str

    @classmethod
    def at(cls, prefix: str, name: str, reason: str) -> UnservedEntry:
        """What is not served under a name below a prefix; the name may not be UTF-8."""
        return cls(printable(prefix + name), reason)

    def __str__(self) -> str:
        return f"{self.path!r} is not served: {self.reason}"


@dataclass(frozen=True, slots=True)
class Listing:
    """Direct children of a prefix: entries of keys, names of deeper prefixes, and what has no key, all sorted."""

    entries: tuple[Entry, ...]
    prefixes: tuple[str, ...]
    unserved: tuple[UnservedEntry, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[Entry], prefixes: Iterable[str], unserved: Iterable[UnservedEntry] = ()) -> Listing:
        """The listing of unsorted children."""
        return cls(tuple(sorted(entries, key=attrgetter("key"))), tuple(sorted(prefixes)), tuple(sorted(unserved)))


class Folders(NamedTuple):
    """Names of deeper prefixes in order, and what has no key. ``following``: the name to continue from; None at the
    end."""

    names: Sequence[str]
    following: str | None = None
    unserved: Sequence[UnservedEntry] = ()


class Log(Protocol):
    """Open append-only file with one writer and concurrent readers, which stays readable after its key is deleted.
    All methods raise `errors.StoreError`."""

    @property
    def size(self) -> int:
        """Current size in bytes."""

    def read_into(self, start: int, out: memoryview) -> None:
        """Fill ``out`` with the bytes from ``start`` on; raises if the log is too short."""

    def write(self, at: int, parts: Sequence[tuple[int, bytes | memoryview]]) -> None:
        """Truncate to ``at`` bytes, write each part at its position in order, and sync if the store is durable."""


class WritersSafe(Enum):
    """Scope within which a store serialises writers of a key."""

    THREADS = "threads of one process"
    PROCESSES = "processes on one machine"
    REPLICAS = "replicas anywhere"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features of a store, shown by ``/readyz``.

    ``conditional_put``: the store compares versions on put. ``writers_safe``: see `WritersSafe`.
    ``conditional_delete``: a conditional delete leaves nothing behind, unlike where `Store.leaves_tombstones`.
    ``width``: useful number of concurrent requests. ``cheap_stat``: a stat takes microseconds and may run on the event
    loop. ``coarse_times``: versions have a resolution of a second, so that writes by other programs may go unnoticed.
    """

    writable: bool = False
    listable: bool = True
    conditional_put: bool = False
    writers_safe: WritersSafe = WritersSafe.THREADS
    width: int = 1
    cheap_stat: bool = False
    conditional_delete: bool = False
    coarse_times: bool = False


Buffer: TypeAlias = bytes | bytearray | memoryview
Range: TypeAlias = tuple[int, int]
"""The bytes ``[start, stop)`` of a value."""
Check: TypeAlias = Callable[[], None]
Keep: TypeAlias = Callable[[str, bool], bool]
"""Predicate of keys not to delete; its second argument is whether the key is a symbolic link."""


MAX_BYTES: Final = 64 << 20
"""Default size limit of values to read."""
_SMALL_PART: Final = 64 << 10
"""Bytes below which, on average, parts of a value are copied and not written one by one."""


class VersionConflict(Exception):
    """A key has another version (``current``, None: absent) than expected."""

    def __init__(self, key: str, current: str | None) -> None:
        super().__init__(f"{key!r} has version {current!r}")
        self.key = key
        self.current = current


def check_version(key: str, current: str | None, expected: str | Absent | None) -> None:
    """Raise `VersionConflict` unless the ``current`` version (None: absent) is the ``expected`` one (None: any)."""
    if expected is not None and (ABSENT if current is None else current) != expected:
        raise VersionConflict(key, current)


T = TypeVar("T")
R = TypeVar("R")

MAX_ATTEMPTS: Final = 3
"""Attempts to read a value that changes meanwhile."""


class Observer(Protocol):
    """Callback for each key or prefix that was put or deleted; ``created``: it was absent before; ``version``: that of
    the value that was put, "" for none, None if it is not known what is stored."""

    def __call__(self, key: str, *, created: bool, version: str | None = None) -> None: ...


class Store(ABC):
    """Store of versioned values by key. Synchronous and thread-safe.

    Keys are normalised by `storage.keys`. Prefixes are ``""`` or end in ``/``. All methods raise `errors.StoreError` if
    the store fails, and those that read `errors.ChangedWhileRead` if a value changes at each attempt.

    ``concurrent``: several requests of a call run concurrently on up to ``width`` threads of the store. Tasks there
    must be single requests: waiting for another task could deadlock.
    """

    observer: Observer | None = None
    hides_absence: ClassVar[bool] = True
    """Whether the store may deny a key because it is absent."""

    def __init__(self, config: StoreConfig, capabilities: Capabilities, *, concurrent: bool) -> None:
        self._config = config
        self._width = config.width or capabilities.width
        self._capabilities = replace(capabilities, width=self._width, writable=config.writable)
        self._pool = ThreadPoolExecutor(self._width, f"{config.name}-requests") if concurrent else None
        self._locks = KeyedLocks()
        self._commits = KeyedLocks()

    @property
    def name(self) -> str:
        """The configured name."""
        return self._config.name

    @property
    def url(self) -> str:
        """The URL without secrets."""
        return public_url(self._config.url)

    @property
    def capabilities(self) -> Capabilities:
        """The features of the store, as far as detected."""
        return self._capabilities

    @abstractmethod
    def get(self, key: str, max_bytes: int = MAX_BYTES) -> StoredValue | None:
        """The whole value; raises `errors.StoredTooLarge` for more than ``max_bytes``, without reading them."""

    def get_each(
        self, keys: Sequence[str], max_bytes: int = MAX_BYTES, *, denied_is_absent: bool = False
    ) -> list[StoredValue | None]:
        """`get` for documents of nodes, concurrently from a remote store; see `document_versions`.
        ``denied_is_absent``: wherever a document is denied."""
        return self._documents(partial(self.get, max_bytes=max_bytes), keys, denied_is_absent)

    @abstractmethod
    def get_part(self, key: str, start: int, stop: int) -> StoredRange | None:
        """The bytes ``[start, stop)`` of a value (``start < stop``), up to its end, or more if the store had to read
        more; in one request if possible."""

    def get_ranges(
        self, key: str, ranges: Sequence[Range], version: str | None = None
    ) -> list[bytes | memoryview] | None:
        """The bytes of each range, up to the end of the value, all of one version.

        Raises `VersionConflict` if the key does not have the ``version``.
        """
        requests = merge(ranges) or [(0, 1)]  # at least one, for the version
        for attempt in range(MAX_ATTEMPTS + 1):
            if attempt == MAX_ATTEMPTS:  # it has changed at each attempt: all in one request
                requests = [(requests[0][0], requests[-1][1])]
                if requests[0][1] - requests[0][0] > MAX_BYTES:
                    break
            parts = list(self._map(lambda request: self.get_part(key, *request), requests))
            read = [part for part in parts if part is not None]
            if not read:
                return None
            versions = {None if part is None else part.entry.version for part in parts}
            if version is not None and versions != {version}:
                raise VersionConflict(key, next(iter(versions - {version})))
            if len(versions) == 1:
                read.reverse()  # a range is in the last part that begins before it
                return [
                    next((part.between(*bounds) for part in read if part.start <= bounds[0]), b"") for bounds in ranges
                ]
        raise ChangedWhileRead(f"{key!r} changed again and again while it was read")

    @abstractmethod
    def stat(self, key: str) -> Entry | None:
        """The description of a value, without reading it."""

    def get_end(self, key: str, nbytes: int) -> StoredRange | None:
        """The last ``nbytes`` bytes of a value, or all of a shorter one."""
        size = 0
        for _ in range(MAX_ATTEMPTS):
            entry = self.stat(key)
            if entry is None:
                return None
            size, start = entry.size, max(0, entry.size - nbytes)
            part = self.get_part(key, start, max(size, 1))
            if part is None or part.entry.version == entry.version:
                return part
        part = self.get_part(key, 0, MAX_BYTES) if size <= MAX_BYTES else None  # all of it in one request
        if size > MAX_BYTES or (part is not None and part.entry.size > MAX_BYTES):
            raise ChangedWhileRead(f"{key!r} changed again and again while it was read")
        return part

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:  # noqa: ARG002 - others list it
        """The version of each key (None: absent) below ``prefix``, by stats or a listing, whichever is cheaper; as
        fresh as a stat."""
        return list(self._map(self._version, keys))

    def document_versions(
        self, prefix: str, keys: Sequence[str], *, denied_is_absent: bool = False
    ) -> list[str | None]:
        """`versions` of documents of nodes. One that a remote store denies is absent if another of the same node can be
        read: without the right to list, object stores and their caches answer 403 for missing keys."""
        if self.capabilities.listable:
            with suppress(StoreDenied):
                return self.versions(prefix, keys)
        return self._documents(self._version, keys, denied_is_absent)

    # Public methods that change something raise `errors.ReadOnly` unless the store is writable, and call the method of
    # the same name with a `_` in front.

    def put(self, key: str, data: Buffer | list[Buffer], *, if_version: str | Absent | None = None) -> str:
        """Store a value, or one given as its parts, atomically and durably, and return its version.

        Raises `VersionConflict` unless the key has the version ``if_version`` (`ABSENT`: does not exist; None: any),
        and `errors.StoreFull`.
        """
        parts = [memoryview(part).cast("B") for part in (data if isinstance(data, list) else [data])]
        if len(parts) != 1 and sum(map(len, parts)) < len(parts) * _SMALL_PART:
            parts = [memoryview(b"".join(parts))]
        return self._changed(key, lambda: self._put_parts(key, parts, if_version), created=if_version is ABSENT)

    def put_pieces(self, key: str, pieces: Iterator[bytes]) -> None:
        """Store a value of any size in bounded memory, where the store can. In a folder it is seen growing."""
        self._changed(key, lambda: self._put_pieces(key, pieces))

    def delete(self, key: str, *, if_version: str | None = None) -> bool:
        """Delete a key; returns whether it existed. Raises `VersionConflict` unless it has the version ``if_version``
        (None: any), which is compared atomically if `Capabilities.conditional_put`."""
        return self._changed(key, lambda: self._delete(key, if_version))

    def delete_each(self, keys: Sequence[str], check: Check) -> None:
        """Delete keys that nobody else writes meanwhile; ``check`` is called again and again, and may raise to stop."""
        for key in keys:
            check()
            self.delete(key)

    def delete_prefix(self, prefix: str, check: Check | None = None, keep: Keep | None = None) -> int:
        """Delete all keys below a prefix and empty folders; returns the number of keys. ``check`` is called before each
        request, and may raise to stop. ``keep`` is called for each name that is not the service's own, links and
        special files included; those for which it returns True are kept."""
        return self._changed(prefix, lambda: self._delete_prefix(prefix, check, keep))

    @abstractmethod
    def list_dir(self, prefix: str) -> Listing:
        """The direct children of a prefix, without links that lead to a directory above."""

    def list_folders(self, prefix: str, first: str, count: int) -> Folders:
        """Deeper prefixes as `list_dir` has them, in order from the name ``first`` on: some ``count`` of them, or
        all."""
        listed = self.list_dir(prefix)
        rest = listed.prefixes[bisect_left(listed.prefixes, first) :]
        return Folders(rest[:count], rest[count] if len(rest) > count else None, listed.unserved)

    def list_prefix(self, prefix: str, unserved: list[UnservedEntry] | None = None) -> Iterator[Entry]:
        """All keys below a prefix, at any depth, in no particular order. ``unserved`` receives what has no key, and
        folders that cannot be listed, which are an error without it."""
        listed = self.list_dir(prefix)
        yield from listed.entries
        if unserved is not None:
            unserved += listed.unserved
        for name in listed.prefixes:
            yield from self.list_prefix(f"{prefix}{name}/", unserved)

    def list_with_streams(self, prefix: str) -> Iterator[Entry]:
        """As `list_prefix`, without what has no key; if the store is one for streams, with what they keep in it."""
        return self.list_prefix(prefix, [])

    def list_all(self, prefix: str) -> Iterator[tuple[Entry, bool]]:
        """All keys below a prefix, and whether each is a tombstone."""
        return ((entry, False) for entry in self.list_prefix(prefix))

    def leaves_tombstones(self) -> bool:
        """Whether a conditional `delete` leaves a tombstone: a value that counts as absent here, but not for other
        programs. The first call may send requests."""
        return False

    def put_tombstones(self, keys: Sequence[str]) -> None:  # noqa: B027 - most stores leave none
        """Put a tombstone at each absent key, if the store may leave any."""

    def is_odd(self, key: str) -> bool:  # noqa: ARG002 - only folders have such things
        """Whether a link to nothing or out of the store, a pipe or the like stands where the value of a key would."""
        return False

    def denied_folders(self, prefix: str) -> Iterator[tuple[str, bool]]:  # noqa: ARG002 - others have some
        """Folders at and below a prefix that may not be listed (False), or may be listed and not changed (True)."""
        return iter(())

    def is_link(self, prefix: str) -> bool:  # noqa: ARG002 - only folders have links
        """Whether a prefix is a link to a folder, of which `delete_prefix` removes only the link."""
        return False

    def open_log(self, key: str, *, create: bool = False) -> Log | None:  # noqa: ARG002 - only folders have logs
        """A log for reading, or with ``create`` for writing, created if absent; None if absent or unsupported."""
        return None

    def lock(self, key: str, *, shared: bool = False) -> AbstractContextManager[None]:
        """Shared or exclusive lock of a key, in the scope of `Capabilities.writers_safe`. Not re-entrant.

        Two families never block each other: keys that end in ``.zarray`` or ``.zgroup`` (node locks, taken first) and
        all others (chunk locks, one at a time).
        """
        self._require_writable()
        return self._locks.hold(key, shared=shared)

    @abstractmethod
    def check(self) -> None:
        """Raise `errors.StoreError` unless the store can be read."""

    def close(self) -> None:
        """Release threads and connections."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
        """`map`, concurrently if the store is."""
        return map(function, items) if self._pool is None or len(items) < 2 else self._pool.map(function, items)

    def _documents(
        self, read: Callable[[str], R | None], keys: Sequence[str], denied_is_absent: bool
    ) -> list[R | None]:
        """``read`` for each key, of which those denied may be absent: see `document_versions`."""

        def attempt(key: str) -> R | StoreDenied | None:
            try:
                return read(key)
            except StoreDenied as error:
                return error

        attempted = dict(zip(keys, self._map(attempt, keys), strict=True))
        values = {key: value for key, value in attempted.items() if not isinstance(value, StoreDenied)}
        nodes = {key.rpartition("/")[0] for key, value in values.items() if value is not None}
        for key, value in attempted.items():
            absent = self.hides_absence and (denied_is_absent or key.rpartition("/")[0] in nodes)
            if isinstance(value, StoreDenied) and not (absent and not self._is_listed(key)):
                raise value
        return [values.get(key) for key in keys]

    def _is_listed(self, key: str) -> bool:  # noqa: ARG002
        """Whether a listing shows a key that was denied; False without one."""
        return False

    def _version(self, key: str) -> str | None:
        entry = self.stat(key)
        return None if entry is None else entry.version

    def _compare(self, key: str, expected: str | Absent | None) -> None:
        """Raise `VersionConflict` unless the key has the ``expected`` version (None: any)."""
        if expected is not None:
            check_version(key, self._version(key), expected)

    def _put(self, key: str, body: memoryview, if_version: str | Absent | None) -> str:  # noqa: ARG002
        raise ReadOnly(self.name)

    def _put_parts(self, key: str, parts: Sequence[memoryview], if_version: str | Absent | None) -> str:
        return self._put(key, parts[0] if len(parts) == 1 else memoryview(b"".join(parts)), if_version)

    def _put_pieces(self, key: str, pieces: Iterator[bytes]) -> None:
        self._put(key, memoryview(b"".join(pieces)), None)

    def _delete(self, key: str, if_version: str | None) -> bool:  # noqa: ARG002
        raise ReadOnly(self.name)

    def _delete_prefix(self, prefix: str, check: Check | None, keep: Keep | None) -> int:  # noqa: ARG002
        raise ReadOnly(self.name)

    def _changed(self, key: str, change: Callable[[], R], *, created: bool = False) -> R:
        """The result of a change; notifies the observer, also after a failure, as it may have been applied."""
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
            version = result if isinstance(result, str) else None if result is None else ""
            self.observer(key, created=created, version=version)
        return result

    def _require_writable(self) -> None:
        if not self._config.writable:
            raise ReadOnly(self.name)


def merge(ranges: Sequence[Range], gap: int = 256 * 1024) -> list[Range]:
    """Sorted requests that cover all non-empty ranges; those at most ``gap`` bytes apart are merged, as reading the gap
    is cheaper than another request."""
    merged: list[Range] = []
    for start, stop in sorted(r for r in ranges if r[0] < r[1]):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged
