"""Stores in buckets, through obstore: ``s3://``, ``gs://``, ``az://`` and ``memory://``."""

from __future__ import annotations

import re
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from threading import Lock, Semaphore
from typing import TYPE_CHECKING, Final, TypeVar

import obstore
import urllib3
from obstore.exceptions import BaseError

from hyperslab.errors import (
    BadMetadata,
    BadPath,
    BrokenData,
    ChangedWhileRead,
    ChunkCorrupt,
    InDoubt,
    StoreDenied,
    StoredTooLarge,
    StoreError,
)
from hyperslab.storage.base import (
    ABSENT,
    MAX_ATTEMPTS,
    MAX_BYTES,
    Absent,
    Capabilities,
    Check,
    Entry,
    Folders,
    Keep,
    Listing,
    Store,
    StoredRange,
    StoredValue,
    UnservedEntry,
    VersionConflict,
    WritersSafe,
    check_version,
)
from hyperslab.storage.client import connect
from hyperslab.storage.conditional import TOMBSTONE, ConditionalDeletes, ConditionalPuts, honours_conditions, version_of
from hyperslab.storage.config import StoreConfig
from hyperslab.storage.errors import (
    OBSTORE_ERRORS,
    is_panic,
    is_worth_retrying,
    means_no_access,
    means_no_bucket,
    means_no_key,
    means_past_the_end,
    means_whole_values_only,
    status_of,
    translate,
)
from hyperslab.storage.keys import HIDDEN, STREAM, as_prefix, flaw_of, has_hidden_segment, is_hidden
from hyperslab.storage.s3_listing import ListedPage, S3Listings
from hyperslab.wire.retry import attempts

if TYPE_CHECKING:  # obstore's types are not there at run time
    from obstore import GetResult, ObjectMeta, SuffixRange

WIDTH: Final = 320
"""Concurrent requests, such that 1,024 chunks take four rounds with an eighth to spare (benchmark ``objects``)."""

_FEW: Final = 64
"""Number of keys above which a listing is cheaper than single requests (benchmark ``objects``)."""
_PAGE: Final = 1000
"""Keys per page of a listing on S3."""

_PART_BYTES: Final = 5 << 20
"""Part of a multipart upload: the least that S3 takes; it takes 10,000."""

T = TypeVar("T")


class ObjectStore(Store):
    """Store in a bucket, below an optional prefix. Versions are ETags (on GCS generations).

    Writers are safe between replicas if the endpoint supports conditional puts, else between the threads of one
    process. That is detected by the first write or `check` (or set by the option ``conditional_put``); until then
    `capabilities` is conservative.

    Options, besides obstore's (``endpoint``, ``region``, ``access_key_id``, ``secret_access_key``, ``session_token``,
    ``account_name``, …): ``anonymous`` (unsigned requests), ``path_style`` (``false``: bucket in the host name),
    ``allow_http`` (implied by an ``http://`` endpoint), ``conditional_put`` (``auto``, ``true``, ``false``),
    ``listable`` (``false`` for credentials without the right to list) and ``missing`` (see `missing_statuses`).
    """

    def __init__(self, config: StoreConfig) -> None:
        self._connection = connect(config, config.width or WIDTH)
        super().__init__(config, Capabilities(width=WIDTH, listable=self._connection.listable), concurrent=True)
        self._client = self._connection.retrying
        self._conditional = self._connection.conditional_put
        self._puts = ConditionalPuts(self._connection, config.name, config.retries)
        self._deletes = ConditionalDeletes(self._connection, config.name, self._puts, config.timeout)
        self._slots = Semaphore(self._width)  # concurrent requests of all threads
        self._listings: S3Listings | None = None
        if self._connection.listing_url is not None:
            http = urllib3.PoolManager(maxsize=8, timeout=config.timeout, retries=False)
            self._listings = S3Listings(
                config.name, self._connection.listing_url, http, config.retries, self._connection.place
            )
        self._bucket_seen = float("-inf")
        self._probing = Lock()

    @property
    def capabilities(self) -> Capabilities:
        if self._conditional:
            return replace(self._capabilities, conditional_put=True, writers_safe=WritersSafe.REPLICAS)
        return replace(self._capabilities, conditional_delete=self._conditional is False)

    def get(self, key: str, max_bytes: int = MAX_BYTES) -> StoredValue | None:
        stored = self._ask(key, lambda: self._read(key, None, max_bytes))
        return None if stored is None else StoredValue(stored.data, stored.entry.version)

    def get_part(self, key: str, start: int, stop: int) -> StoredRange | None:
        """One request, except for values that end before ``start`` and servers without ranges."""
        return self._ask(key, lambda: self._read(key, (start, stop)))

    def get_end(self, key: str, nbytes: int) -> StoredRange | None:
        """One request, as `get_part`; two on Azure, which has no suffix ranges."""
        if self._connection.kind == "az":
            return super().get_end(key, nbytes)
        return self._ask(key, lambda: self._read(key, {"suffix": nbytes}))

    def stat(self, key: str) -> Entry | None:
        return self._ask(key, lambda: self._head(key))

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:
        """By HEAD requests or listings, whichever takes fewer requests.

        Many keys are divided into runs of a page, which are listed concurrently, each from its first key on. If a page
        contains only a few of the keys, they are sparse among other objects (a column of a large array), and the rest
        of the run is requested by HEAD.
        """
        single = distinct = sorted(set(keys))
        versions_by_key: dict[str, str | None] = {}
        if len(distinct) > _FEW and self._pool is not None and self._connection.in_order and self._connection.listable:
            runs = [distinct[i : i + _PAGE] for i in range(0, len(distinct), _PAGE)]
            listings = [self._pool.submit(self._list_run, prefix, run) for run in runs]
            # listings start after a key
            heads = [self._pool.submit(self._version, run[0]) for run in runs]
            single = []
            for run, listing, head in zip(runs, listings, heads, strict=True):
                listed, rest = listing.result()
                versions_by_key |= {**listed, run[0]: head.result()}
                single += rest
        versions_by_key |= zip(single, self._map(self._version, single), strict=True)
        return [versions_by_key.get(key) for key in keys]

    def leaves_tombstones(self) -> bool:
        return self._detect() and not self._deletes.are_honoured()

    def put_tombstones(self, keys: Sequence[str]) -> None:
        def put(key: str) -> None:
            with suppress(VersionConflict):
                self._call(key, lambda: self._puts.put(key, self._path(key), memoryview(TOMBSTONE), ABSENT))

        for _ in self._map(put, keys):
            pass

    def list_all(self, prefix: str) -> Iterator[tuple[Entry, bool]]:
        """With the generations of GCS, which a request for each object tells."""

        def exact(item: tuple[Entry, bool]) -> tuple[Entry, bool] | None:
            meta = self._ask(item[0].key, lambda: obstore.head(self._client, self._path(item[0].key)))
            return None if meta is None else (self._entry(meta), item[1])

        listed = self._listed(prefix)
        yield from filter(None, self._map(exact, [*listed])) if self._connection.kind == "gs" else listed

    def _listed(self, prefix: str, unserved: list[UnservedEntry] | None = None) -> Iterator[tuple[Entry, bool]]:
        for page in self._pages(prefix, unserved=unserved):
            for meta in page:
                entry = self._entry(meta)
                if not has_hidden_segment(entry.key):
                    yield entry, self._deletes.is_tombstone(meta["path"], meta)

    def list_dir(self, prefix: str) -> Listing:
        below = self._path(prefix).rstrip("/")
        flawed = dict[str, str]()
        try:
            listed = self._call(prefix, lambda: obstore.list_with_delimiter(self._client, below))
        except BadPath as error:
            pages = [*self._raw_pages(prefix, error, None, deeper=False)]
            metas = [meta for page in pages for meta in page.objects]
            names = [name for page in pages for name in page.prefixes]
            flawed = {key: flaw for page in pages for key, flaw in page.flawed.items()}
        else:
            metas = self._without_folders([meta for meta in listed["objects"] if meta["path"] != below])
            names = [path.rstrip("/").rpartition("/")[2] for path in listed["common_prefixes"]]
        sound = [meta for meta in metas if not _is_flawed(meta, flawed)]
        entries = [self._entry(meta) for meta in sound if not self._deletes.is_tombstone(meta["path"], meta)]
        flawed |= {f"{self._path(prefix)}{name}/": flaw for name in names if (flaw := flaw_of(name))}
        return Listing.of(
            (entry for entry in entries if not is_hidden(entry.key[len(prefix) :])),
            (name for name in names if not flaw_of(name) and not is_hidden(name)),
            self._unserved(flawed),
        )

    def list_folders(self, prefix: str, first: str, count: int) -> Folders:
        """On S3 by the pages that hold them. There ``a/`` comes after ``a-b/``, whose name is the later one: names that
        the last page stops short of are asked for."""
        if self._listings is None:
            return super().list_folders(prefix, first, count)
        path, last, names, flawed = self._path(prefix), "", set[str](), dict[str, str]()
        pages = self._listings.pages(path, path + first if first else None, deeper=False)
        while len(names) <= count and (page := self._call(prefix, partial(next, pages, None))) is not None:
            names.update(name for name in page.prefixes if name >= first and not is_hidden(name))
            flawed |= page.flawed
            last = page.prefixes[-1] if page.prefixes else last
        shorter = {last[:end] for end, letter in enumerate(last) if letter < "/" and len(names) > count} - names
        names.update(name for name in shorter if name >= first and any(self._pages(f"{prefix}{name}/")))
        chosen = sorted(names)
        return Folders(chosen[:count], chosen[count] if len(chosen) > count else None, self._unserved(flawed))

    def list_with_streams(self, prefix: str) -> Iterator[Entry]:
        for page in self._pages(prefix, unserved=[]):
            for meta in page:
                entry = self._entry(meta)
                is_hidden_key = has_hidden_segment(entry.key.replace(f"{STREAM}/", ""))
                if not is_hidden_key and not self._deletes.is_tombstone(meta["path"], meta):
                    yield entry

    def list_prefix(self, prefix: str, unserved: list[UnservedEntry] | None = None) -> Iterator[Entry]:
        return (entry for entry, removed in self._listed(prefix, unserved) if not removed)

    def lock(self, key: str, *, shared: bool = False) -> AbstractContextManager[None]:
        self._require_writable()
        self._detect()  # so that `capabilities` is accurate under a lock
        return super().lock(key, shared=shared)

    def check(self) -> None:
        """Read one key, which detects a missing bucket without the right to list."""
        try:
            self.get(".zgroup")
        except StoreDenied as error:
            absent = means_no_access(error.__cause__) and not self._connection.listable
            if not absent:  # else it is what such a store says about a missing key
                raise
        if self._config.writable:
            self._detect()

    def close(self) -> None:
        super().close()
        self._deletes.close()
        if self._listings is not None:
            self._listings.http.clear()

    def _path(self, key: str) -> str:
        return self._connection.base + key

    def _key(self, path: str) -> str:
        return path[len(self._connection.base) :]

    def _entry(self, meta: ObjectMeta) -> Entry:
        version, modified = version_of(self._connection, meta), meta["last_modified"].timestamp()
        return Entry(self._key(meta["path"]), meta["size"], version, modified)

    def _read(
        self, key: str, requested: tuple[int, int] | SuffixRange | None, max_bytes: int = MAX_BYTES
    ) -> StoredRange | None:
        """A part of a value, or more, or all of it (None) up to ``max_bytes``; raises `FileNotFoundError`."""
        path = self._path(key)
        start, stop = requested if isinstance(requested, tuple) else (0, 0)
        grown = False  # since it was found to be too short
        for _ in range(MAX_ATTEMPTS + 1):
            try:
                result = obstore.get(self._client, path, options={"range": requested} if requested else None)
            except BaseError as error:
                if means_whole_values_only(error):
                    requested, max_bytes = None, max(stop, MAX_BYTES)
                    continue
                if not means_past_the_end(error):
                    raise
                entry = self._head(key)
                if entry is None or entry.size <= start:
                    return None if entry is None else StoredRange(entry, start, b"")
                if grown:  # no, it is encoded: its bytes are fewer than those of its value
                    requested, max_bytes = None, max(stop, MAX_BYTES)
                grown = True
                continue
            if encodings := _encodings(result):
                if requested is None:
                    return self._decoded(key, result, encodings, max_bytes)
                requested, max_bytes = None, max(stop, MAX_BYTES)
                continue
            if requested is None and result.meta["size"] > max_bytes:
                raise StoredTooLarge(key, result.meta["size"], max_bytes)
            if self._deletes.is_tombstone(path, result.meta):
                return None
            return StoredRange(self._entry(result.meta), result.range[0], memoryview(result.bytes()))
        raise ChangedWhileRead(f"{key!r} changed again and again while it was read")

    def _decoded(self, key: str, result: GetResult, encodings: Sequence[str], max_bytes: int) -> StoredRange:
        """A whole value that was stored with content encodings, as HTTP clients see it."""
        if result.meta["size"] > max_bytes:
            raise StoredTooLarge(key, result.meta["size"], max_bytes)
        data = bytes(result.bytes())
        for name in reversed(encodings):
            if name not in ("gzip", "x-gzip", "deflate"):
                raise _broken(key, name, f"its content encoding {name!r} cannot be decoded")
            inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # either header
            try:
                data = inflate.decompress(data, max_bytes + 1)
            except zlib.error as error:
                raise _broken(key, name, f"its bytes are not of its content encoding {name!r}") from error
            if len(data) > max_bytes:
                raise StoredTooLarge(key, len(data), max_bytes)
            if not inflate.eof:
                raise _broken(key, name, f"it ends before its content encoding {name!r} does")
        return StoredRange(replace(self._entry(result.meta), size=len(data)), 0, memoryview(data))

    def _put(self, key: str, body: memoryview, if_version: str | Absent | None) -> str:
        path = self._path(key)
        if self._detect():
            if if_version is None:
                return self._call(key, lambda: self._puts.overwrite(key, path, body))
            return self._put_on_condition(key, path, body, if_version)
        with self._commits.hold(key, shared=if_version is None):
            self._compare(key, if_version)
            put = self._call(key, lambda: obstore.put(self._client, path, body, use_multipart=False))
        return version_of(self._connection, put)

    def _put_pieces(self, key: str, pieces: Iterator[bytes]) -> None:
        """A multipart upload. Pieces, which may be read from this store, are made in a thread of their own: obstore
        iterates inside its event loop, where no other call of it may block."""
        with ThreadPoolExecutor(1, f"{self.name}-pieces") as thread:
            body = iter(lambda: thread.submit(next, pieces, None).result(), None)
            try:
                obstore.put(self._client, self._path(key), body, chunk_size=_PART_BYTES, max_concurrency=2)
            except OBSTORE_ERRORS as error:
                raise translate(self.name, key, error, self._connection.place) from error

    def _delete(self, key: str, if_version: str | None) -> bool:
        conditional = if_version is not None and self._detect()
        with self._commits.hold(key):
            current = self._version(key)
            check_version(key, current, if_version)
            if current is not None and conditional:
                self._delete_version(key, current)
            elif current is not None:
                self._delete_paths(key, [self._path(key)])
        return current is not None

    def _delete_paths(self, key: str, paths: Sequence[str]) -> None:
        """Delete objects on no condition. obstore sends a POST, which it does not repeat after a lost answer."""
        for attempt in attempts(self._config.retries + 1):
            try:
                self._call(key, lambda: obstore.delete(self._client, paths))
                break
            except StoreError as error:
                cause = error.__cause__
                if attempt == self._config.retries or not isinstance(cause, Exception) or not is_worth_retrying(cause):
                    raise

    def _delete_prefix(self, prefix: str, check: Check | None, keep: Keep | None) -> int:
        if check is not None and self._detect():
            return self._delete_each(prefix, check, keep)
        count, unserved = 0, list[UnservedEntry]()
        for page in self._pages(prefix, unserved=unserved):
            keys = [self._key(meta["path"]) for meta in page]
            keys_to_delete = [key for key in keys if self._is_doomed(key, prefix, keep)]
            if keys_to_delete:
                if check is not None:
                    check()
                self._delete_paths(prefix, [self._path(key) for key in keys_to_delete])
            count += sum(not has_hidden_segment(key) for key in keys_to_delete)
        if keep is not None:
            for thing in unserved:
                keep(thing.path, False)
        return count

    def _is_listed(self, key: str) -> bool:
        if not self._connection.in_order:
            return False
        with suppress(StoreDenied):
            for page in self._pages(as_prefix(key.rpartition("/")[0]), key[:-1]):
                return any(self._key(meta["path"]) == key for meta in page)
        return False

    def _head(self, key: str) -> Entry | None:
        result = obstore.get(self._client, self._path(key), options={"head": True})
        if _encodings(result):  # its size is not that of the value
            with suppress(BrokenData):
                part = self._read(key, None)
                return None if part is None else part.entry
        return None if self._deletes.is_tombstone(self._path(key), result.meta) else self._entry(result.meta)

    def _list_run(self, prefix: str, run: Sequence[str]) -> tuple[dict[str, str | None], Sequence[str]]:
        """Versions by key from a listing after the first key of a run, and the keys left to single requests."""
        keys, done = set(run), 1
        versions: dict[str, str | None] = {}
        for page in self._pages(prefix, run[0]):
            for meta in page:
                if (key := self._key(meta["path"])) in keys and not self._deletes.is_tombstone(meta["path"], meta):
                    versions[key] = version_of(self._connection, meta)
            reached = bisect_right(run, self._key(page[-1]["path"]))
            if reached == len(run) or reached - done < _FEW:
                return versions, run[reached:]
            done = reached
        return versions, []

    def _pages(
        self, prefix: str, after: str | None = None, unserved: list[UnservedEntry] | None = None
    ) -> Iterator[Sequence[ObjectMeta]]:
        """Pages of objects below a prefix, in the order of the store, starting after a key. ``unserved`` receives keys
        that cannot be paths."""
        below = self._path(prefix)
        offset = None if after is None else self._path(after)
        stream: Iterator[Sequence[ObjectMeta]]
        stream = iter(obstore.list(self._client, below.rstrip("/") or None, offset=offset, chunk_size=_PAGE))
        flawed, exact = dict[str, str](), False
        while True:
            try:
                page = self._call(prefix, partial(next, stream, None))
            except BadPath as error:
                pages = self._raw_pages(prefix, error, offset)
                stream = (page.objects for page in pages if flawed.update(page.flawed) is None)
                continue
            if page is None:
                break
            if self._listings is not None and not exact and any(meta["size"] == 0 for meta in page):
                exact, raw = True, self._listings.pages(self._path(prefix), offset)  # it may be a "folder" object
                stream = (page.objects for page in raw if flawed.update(page.flawed) is None)
                continue
            offset = page[-1]["path"] if page else offset
            # without the "folder" object
            inside = [meta for meta in page if len(meta["path"]) > len(below) and not _is_flawed(meta, flawed)]
            if inside := self._without_folders(inside):
                yield inside
        if unserved is not None:
            unserved += self._unserved(flawed)

    def _without_folders(self, page: list[ObjectMeta]) -> list[ObjectMeta]:
        """Objects other than those of "folders", which consoles and file systems make. On GCS and Azure each empty one
        is asked for: obstore loses the slash at their end, and a blob may be marked as one in its metadata."""
        empty = [meta["path"] for meta in page if meta["size"] == 0 and self._connection.kind in ("gs", "az")]
        folders = {path for path, is_folder in zip(empty, self._map(self._is_folder, empty), strict=True) if is_folder}
        return [meta for meta in page if meta["size"] or meta["path"] not in folders] if folders else page

    def _is_folder(self, path: str) -> bool:
        def ask() -> bool:
            try:
                result = obstore.get(self._client, path, options={"head": True})
            except FileNotFoundError:
                return True
            marks = [result.attributes.get(name) for name in ("hdi_isfolder", "is_directory")]
            return result.meta["size"] > 0 or "true" in marks

        return self._call(self._key(path), ask)

    def _raw_pages(
        self, prefix: str, error: BadPath, after: str | None, *, deeper: bool = True
    ) -> Iterator[ListedPage]:
        """Pages of a listing in which obstore found a key that it cannot represent, which ``error`` tells."""
        if self._listings is None:
            named = re.search(r"[Pp]ath (\".*\") ?[:c]", str(error.__cause__))
            key = named.group(1) if named else "a key"
            raise StoreError(self.name, prefix, f"{key} cannot be a path, and hides the keys beside it") from error
        return self._listings.pages(self._path(prefix), after, deeper=deeper)

    def _unserved(self, flawed: Mapping[str, str]) -> list[UnservedEntry]:
        return [UnservedEntry.at("", self._key(path), flaw) for path, flaw in flawed.items()]

    def _put_on_condition(self, key: str, path: str, body: memoryview, if_version: str | Absent) -> str:
        if self._connection.kind == "gs" and if_version is not ABSENT and not if_version.isdecimal():
            raise VersionConflict(key, self._version(key))  # not a generation: from a listing or a client
        for last in (False, True):
            try:
                return self._call(key, lambda: self._puts.put(key, path, body, if_version))
            except InDoubt:  # a tombstone alone refuses the second attempt of a put
                if last or if_version is not ABSENT or self._version(key) is not None:
                    raise
            except VersionConflict as conflict:
                current = conflict.current
                if current is None or self._version(key) is not None:
                    raise
                if if_version is not ABSENT:  # the current value is a tombstone
                    raise VersionConflict(key, None) from conflict
                return self._call(key, partial(self._puts.put, key, path, body, current))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _delete_version(self, key: str, version: str) -> None:
        self._call(key, lambda: self._deletes.delete(key, self._path(key), version))

    def _delete_each(self, prefix: str, check: Check, keep: Keep | None) -> int:
        """Delete each key in the version listed (on GCS, whose listings have no generations, the current one); newer
        values are kept."""

        def delete(entry: Entry) -> bool:
            check()
            version = self._version(entry.key) if self._connection.kind == "gs" else entry.version
            with suppress(VersionConflict):
                if version is not None:
                    self._delete_version(entry.key, version)
                    return True
            return False

        deleted, unserved = 0, list[UnservedEntry]()
        for page in self._pages(prefix, unserved=unserved):
            listed = [self._entry(meta) for meta in page if not self._deletes.is_tombstone(meta["path"], meta)]
            entries = [item for item in listed if self._is_doomed(item.key, prefix, keep)]
            done = self._map(delete, entries)
            deleted += sum(ok and not has_hidden_segment(item.key) for item, ok in zip(entries, done, strict=True))
        if keep is not None:
            for item in unserved:
                keep(item.path, False)
        return deleted

    @staticmethod
    def _is_doomed(key: str, prefix: str, keep: Keep | None) -> bool:
        """Whether a key is to be deleted with a prefix: always if it is the service's own there, but for those of the
        whole store."""
        if has_hidden_segment(key[len(prefix) :]):
            return bool(prefix) or not key.startswith(f"{HIDDEN}/")
        return keep is None or not keep(key, False)

    def _detect(self) -> bool:
        """Whether conditional puts are supported; detected once."""
        with self._probing:
            if self._conditional is None:
                probe = partial(honours_conditions, self._connection, self.name)
                self._conditional = self._call(f"{HIDDEN}/", probe)
            return self._conditional

    def _call(self, key: str, request: Callable[[], T]) -> T:
        """The result of a request; raises `errors.StoreError`, also for 404, which means a missing bucket here."""
        with self._slots:
            try:
                return request()
            except OBSTORE_ERRORS as error:
                raise translate(self.name, key, error, self._connection.place) from error
            except BaseException as error:
                if is_panic(error):
                    raise StoreError(self.name, key, "the object store's answer cannot be understood") from error
                raise

    def _ask(self, key: str, request: Callable[[], T]) -> T | None:
        """The result of a request about a key; None if the key does not exist, but the bucket does."""

        def send() -> T | None:
            try:
                answer = request()
            except FileNotFoundError as error:
                self._confirm_absence(key, error)
                return None
            except OBSTORE_ERRORS as error:
                if not (means_no_access(error) and status_of(error) in self._connection.missing):
                    raise
                return None
            self._bucket_seen = time.monotonic()
            return answer

        return self._call(key, send)

    def _confirm_absence(self, key: str, error: FileNotFoundError) -> None:
        """Raise `FileNotFoundError` if a 404 is about the bucket.

        A response to HEAD does not tell: unless the bucket was seen in the last seconds, a GET follows.
        """
        seen = time.monotonic() - self._bucket_seen <= 10.0
        if not means_no_bucket(error) and not means_no_key(error) and not seen:
            try:
                obstore.get(self._client, self._path(key))
            except FileNotFoundError as answer:
                error = answer
        if means_no_bucket(error):
            self._bucket_seen = float("-inf")
            raise error
        if means_no_key(error) or not seen:
            self._bucket_seen = time.monotonic()


def _encodings(result: GetResult) -> list[str]:
    """The content encodings that an object was stored with; ``aws-chunked`` is one of requests, left by mistake."""
    names = str(result.attributes.get("Content-Encoding", "")).lower().split(",")
    return [name for coding in names if (name := coding.strip()) not in ("", "identity", "aws-chunked")]


def _broken(key: str, encoding: str, reason: str) -> BrokenData:
    """The error for a value that is not of its content encoding: of a document, or else of a chunk."""
    is_document = key.rpartition("/")[2] in (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json")
    return BadMetadata(key, None, reason) if is_document else ChunkCorrupt(key, encoding, reason)


def _is_flawed(meta: ObjectMeta, flawed: dict[str, str]) -> bool:
    """Whether the path of an object has a backslash, the one flaw that obstore takes; such are added to ``flawed``."""
    path = meta["path"]
    if "\\" not in path:
        return False
    backslash, end = path.index("\\"), path.find("/", path.index("\\"))
    flawed[path if end < 0 else path[: end + 1]] = flaw_of(path[backslash]) or ""
    return True
