"""Buckets as stores: ``s3://``, ``gs://`` and ``az://`` through obstore, called from many threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError

from hyperslab.errors import ReadOnly, StoreError
from hyperslab.storage.base import (
    ABSENT,
    MOST_BYTES,
    Absent,
    Capabilities,
    Check,
    Entry,
    Keep,
    Listing,
    Part,
    Stored,
    VersionConflict,
    WritersSafe,
    check_size,
    check_version,
)
from hyperslab.storage.conditional import ConditionalPuts, honours_conditions, version_of
from hyperslab.storage.config import StoreConfig, public_url
from hyperslab.storage.keys import HIDDEN, has_hidden_segment, is_hidden
from hyperslab.storage.locks import KeyedLocks
from hyperslab.storage.object_client import connect
from hyperslab.storage.object_errors import means_whole_values_only, status_of
from hyperslab.storage.object_requests import Requests
from hyperslab.storage.object_versions import PAGE, Page, VersionFinder
from hyperslab.storage.parallel import SideBySide
from hyperslab.storage.ranges import Span, cut, merge
from hyperslab.storage.removals import REMOVED, Removals

if TYPE_CHECKING:  # obstore's types are not there at run time
    from obstore import ObjectMeta

WIDTH: Final = 320
"""So that 1,024 chunks, an eighth of the requests being left to others, come in four rounds."""
_FEW: Final = 64
"""As many versions are asked for one by one; to list more is cheaper."""

_MOST_TRIES: Final = 3


class ObjectStore:
    """A bucket, or a prefix in one. The version of an object is its ETag (on GCS its generation).

    Writers are safe between replicas where the endpoint honours conditions on put, else between the threads of one
    process; which it is, is found out at the first write or `check` (or said by option ``conditional_put``), and until
    then `capabilities` claims the least.

    Options, besides obstore's own for each kind (``endpoint``, ``region``, ``access_key_id``, ``secret_access_key``,
    ``session_token``, ``account_name``, …): ``anonymous`` (requests are not signed), ``path_style`` (``false``: the
    bucket is in the host name), ``allow_http`` (implied by an ``http://`` endpoint), ``conditional_put``
    (``auto``, ``true``, ``false``) and ``listable`` (``false`` for credentials that may not list).
    """

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._width = config.width or WIDTH
        self._connection = connect(config, self._width)
        self._client = self._connection.patient
        self._conditional = self._connection.conditional_put
        self._puts = ConditionalPuts(self._connection, config.name, config.retries)
        self._removals = Removals(self._connection, config.name, self._puts, config.timeout)
        self._requests = Requests(self._connection, config.name, self._width)
        self._fan = SideBySide(self._width, config.name)
        self._locks = KeyedLocks()
        self._commits = KeyedLocks()
        self._probing = Lock()

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def url(self) -> str:
        return public_url(self._config.url)

    @property
    def capabilities(self) -> Capabilities:
        conditional = bool(self._conditional)
        return Capabilities(
            writable=self._config.writable,
            listable=self._connection.listable,
            conditional_put=conditional,
            conditional_delete=self._conditional is False,
            writers_safe=WritersSafe.REPLICAS if conditional else WritersSafe.THREADS,
            width=self._width,
            cheap_stat=False,
            ranges=True,
        )

    def get(self, key: str, most: int = MOST_BYTES) -> Stored | None:
        def read() -> Stored | None:
            result = obstore.get(self._client, self._path(key))
            check_size(key, result.meta["size"], most)
            data = memoryview(result.bytes())
            if bytes(data[: len(REMOVED) + 1]) == REMOVED:
                return None
            return Stored(data, version_of(self._connection, result.meta))

        return self._requests.ask(key, read)

    def get_each(self, keys: Sequence[str], most: int = MOST_BYTES) -> list[Stored | None]:
        return list(self._fan.map(partial(self.get, most=most), keys))

    def get_part(self, key: str, start: int, stop: int) -> Part | None:
        return self._requests.ask(key, lambda: self._part(key, start, stop))

    def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str | None = None
    ) -> list[bytes | memoryview] | None:
        for _ in range(_MOST_TRIES):
            try:
                return self._get_ranges(key, ranges, version)
            except VersionConflict:
                if version is not None:
                    raise
        raise StoreError(self.name, key, "it changed again and again while it was read")

    def stat(self, key: str) -> Entry | None:
        meta = self._head(key)
        return None if meta is None else self._entry(key, meta)

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:
        if len(keys) == 1:
            return [self._version(keys[0])]
        few = _FEW if self._connection.in_order and self._connection.listable else len(keys)
        finder = VersionFinder(lambda after: self._pages(prefix, after), self._version, self._fan.map, few=few)
        found = finder.find(keys)
        return [found.get(key) or None for key in keys]

    def put(self, key: str, data: bytes | memoryview, *, if_version: str | Absent | None = None) -> str:
        self._require_writable()
        body, path = memoryview(data).cast("B"), self._path(key)
        if self._detect():
            if if_version is None:
                return self._requests.call(key, lambda: self._puts.overwrite(key, path, body))
            return self._requests.call(key, lambda: self._put_on_condition(key, path, body, if_version))
        with self._commits.hold(key, shared=if_version is None):
            self._compare(key, if_version)
            put = self._requests.call(key, lambda: obstore.put(self._client, path, body, use_multipart=False))
        return version_of(self._connection, put)

    def delete(self, key: str, *, if_version: str | None = None) -> bool:
        self._require_writable()
        conditional = if_version is not None and self._detect()
        with self._commits.hold(key):
            current = self._version(key)
            check_version(key, current, if_version)
            if current is not None and conditional:
                self._remove(key, current)
            elif current is not None:
                self._requests.call(key, lambda: obstore.delete(self._client, self._path(key)))
        return current is not None

    def leaves_nothing(self) -> bool:
        return not self._detect() or self._removals.leaves_nothing()

    def occupy(self, keys: Sequence[str]) -> None:
        def put(key: str) -> None:
            with suppress(VersionConflict):
                self._requests.call(key, lambda: self._puts.put(key, self._path(key), memoryview(REMOVED), ABSENT))

        for _ in self._fan.map(put, keys):
            pass

    def list_all(self, prefix: str) -> Iterator[tuple[Entry, bool]]:
        for page in self._listed(prefix):
            for meta in page:
                key = self._key(meta["path"])
                if not has_hidden_segment(key):
                    yield self._entry(key, meta), self._removals.is_removed(meta["path"], meta)

    def delete_prefix(self, prefix: str, check: Check | None = None, keep: Keep | None = None) -> int:
        self._require_writable()
        if check is not None and self._detect():
            return self._remove_each(prefix, check, keep)
        count = 0
        for page in self._listed(prefix):
            keys = [self._key(meta["path"]) for meta in page]
            doomed = [key for key in keys if prefix or not key.startswith(f"{HIDDEN}/")]  # the root keeps its own
            if keep is not None:
                doomed = [key for key in doomed if has_hidden_segment(key) or not keep(key)]
            if doomed:
                if check is not None:
                    check()
                paths = [self._path(key) for key in doomed]
                self._requests.call(prefix, partial(obstore.delete, self._client, paths))
            count += sum(not has_hidden_segment(key) for key in doomed)
        return count

    def list_dir(self, prefix: str) -> Listing:
        below = self._path(prefix).rstrip("/")
        listed = self._requests.call(prefix, lambda: obstore.list_with_delimiter(self._client, below))
        objects = [m for m in listed["objects"] if m["path"] != below and not self._removals.is_removed(m["path"], m)]
        entries = (self._entry(self._key(meta["path"]), meta) for meta in objects)
        names = (path.rstrip("/").rpartition("/")[2] for path in listed["common_prefixes"])
        return Listing(
            tuple(sorted((e for e in entries if not has_hidden_segment(e.key)), key=lambda entry: entry.key)),
            tuple(sorted(name for name in names if not is_hidden(name))),
        )

    def list_prefix(self, prefix: str) -> Iterator[Entry]:
        return (entry for entry, removed in self.list_all(prefix) if not removed)

    def is_link(self, prefix: str) -> bool:  # noqa: ARG002 - keys are all there is
        return False

    @contextmanager
    def lock(self, key: str, *, shared: bool = False) -> Iterator[None]:
        self._require_writable()
        self._detect()  # so that `capabilities` is true for whoever holds a lock
        with self._locks.hold(key, shared=shared):
            yield

    def check(self) -> None:
        """Ask for one key that most stores have: this needs no right to list, and tells a missing bucket apart."""
        self.get(".zgroup")
        if self._config.writable:
            self._detect()

    def close(self) -> None:
        self._fan.close()
        self._removals.close()

    def _path(self, key: str) -> str:
        return self._connection.base + key

    def _key(self, path: str) -> str:
        return path[len(self._connection.base) :]

    def _entry(self, key: str, meta: ObjectMeta) -> Entry:
        return Entry(key, meta["size"], version_of(self._connection, meta), meta["last_modified"].timestamp())

    def _head(self, key: str) -> ObjectMeta | None:
        def look() -> ObjectMeta | None:
            meta = obstore.head(self._client, self._path(key))
            return None if self._removals.is_removed(self._path(key), meta) else meta

        return self._requests.ask(key, look)

    def _put_on_condition(self, key: str, path: str, body: memoryview, if_version: str | Absent) -> str:
        try:
            return self._puts.put(key, path, body, if_version)
        except VersionConflict as conflict:
            if if_version is not ABSENT or conflict.current is None or self._version(key) is not None:
                raise
            return self._puts.put(key, path, body, conflict.current)  # on top of what counts as absent

    def _remove(self, key: str, version: str) -> None:
        self._requests.call(key, lambda: self._removals.remove(key, self._path(key), version))

    def _remove_each(self, prefix: str, check: Check, keep: Keep | None) -> int:
        """Each key in the version that is listed; what others have stored since stays."""

        def remove(entry: Entry) -> bool:
            check()
            with suppress(VersionConflict):
                self._remove(entry.key, entry.version)
                return True
            return False

        entries = [entry for entry in self.list_prefix(prefix) if keep is None or not keep(entry.key)]
        return sum(self._fan.map(remove, entries))

    def _version(self, key: str) -> str | None:
        meta = self._head(key)
        return None if meta is None else version_of(self._connection, meta)

    def _compare(self, key: str, wanted: str | Absent | None) -> None:
        """Raise `VersionConflict` unless the key has the version that is ``wanted``."""
        if wanted is not None:
            check_version(key, self._version(key), wanted)

    def _part(self, key: str, start: int, stop: int) -> Part | None:
        """One request, but for values that end before ``start`` and servers that know no ranges."""
        path = self._path(key)
        for _ in range(_MOST_TRIES):
            try:
                result = obstore.get(self._client, path, options={"range": (start, stop)})
                if self._removals.is_removed(path, result.meta):
                    return None
                return Part(self._entry(key, result.meta), start, memoryview(result.bytes()))
            except BaseError as error:
                if means_whole_values_only(error):
                    result = obstore.get(self._client, path)
                    check_size(key, result.meta["size"], max(stop, MOST_BYTES))
                    return Part(self._entry(key, result.meta), 0, memoryview(result.bytes()))
                if status_of(error) != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    raise
            meta = obstore.head(self._client, path)
            if self._removals.is_removed(path, meta):
                return None
            entry = self._entry(key, meta)
            if entry.size <= start:  # else somebody has written more of it since
                return Part(entry, start, b"")
        raise StoreError(self.name, key, "it changed again and again while it was read")

    def _get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], version: str | None
    ) -> list[bytes | memoryview] | None:
        requests = merge(ranges) or [(0, 1)]  # nothing but empty ranges: is it there, and at this version?
        spans: list[Span] = []
        if version is None:  # the first answer says which version the others must have
            first = self._span(requests.pop(0), key, None)
            if first is None:
                return None
            spans, version = [first], first.version
        for span in self._fan.map(partial(self._span, key=key, version=version), requests):
            if span is None:
                if not spans:
                    return None
                raise VersionConflict(key, None)
            spans.append(span)
        return cut(spans, ranges)

    def _span(self, request: tuple[int, int], key: str, version: str | None) -> Span | None:
        """The bytes of one range request; raises `VersionConflict` where they are of another version."""

        def read() -> Span | None:
            try:
                result = obstore.get(self._client, self._path(key), options={"range": request})
            except BaseError as error:
                if status_of(error) != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    raise
                meta = obstore.head(self._client, self._path(key))
                found = version_of(self._connection, meta)
                removed = self._removals.is_removed(self._path(key), meta)
                return None if removed else Span(request[0], memoryview(b""), found)
            if self._removals.is_removed(self._path(key), result.meta):
                return None
            return Span(request[0], memoryview(result.bytes()), version_of(self._connection, result.meta))

        span = self._requests.ask(key, read)
        if span is not None and version not in (None, span.version):
            raise VersionConflict(key, span.version)
        return span

    def _listed(self, prefix: str, after: str | None = None) -> Iterator[Sequence[ObjectMeta]]:
        """Pages of what lies below a prefix, in the order of the store, from the first key past ``after`` on."""
        below = self._path(prefix)
        offset = None if after is None else self._path(after)
        stream = obstore.list(self._client, below.rstrip("/") or None, offset=offset, chunk_size=PAGE)
        while (page := self._requests.call(prefix, lambda: next(stream, None))) is not None:
            if inside := [meta for meta in page if len(meta["path"]) > len(below)]:  # not the "folder" object itself
                yield inside

    def _pages(self, prefix: str, after: str) -> Iterator[Page]:
        for page in self._listed(prefix, after):
            yield [(self._key(meta["path"]), self._listed_version(meta)) for meta in page]

    def _listed_version(self, meta: ObjectMeta) -> str:
        """Empty for what counts as absent: a page says by its last key how far it reaches."""
        return "" if self._removals.is_removed(meta["path"], meta) else version_of(self._connection, meta)

    def _detect(self) -> bool:
        """Whether puts with a condition are honoured; asked once."""
        with self._probing:
            if self._conditional is None:
                probe = partial(honours_conditions, self._connection, self.name)
                self._conditional = self._requests.call(f"{HIDDEN}/", probe)
            return self._conditional

    def _require_writable(self) -> None:
        if not self._config.writable:
            raise ReadOnly(self.name)
