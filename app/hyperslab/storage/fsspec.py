"""Stores over fsspec: ``zip://…::…``, ``sftp://``, ``github://``, …"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from hashlib import blake2b
from threading import RLock
from typing import Any, TypeVar

import fsspec.core  # type: ignore[import-untyped]
from fsspec.archive import AbstractArchiveFileSystem  # type: ignore[import-untyped]

from hyperslab.errors import BadDefinition, HyperslabError, StoreDenied, StoredTooLarge, StoreError, StoreTimeout
from hyperslab.storage.base import (
    MAX_ATTEMPTS,
    MAX_BYTES,
    Absent,
    Capabilities,
    Check,
    Entry,
    Keep,
    Listing,
    Store,
    StoredRange,
    StoredValue,
    UnservedEntry,
    check_version,
)
from hyperslab.storage.config import StoreConfig, flag, missing_statuses, public_url, redacted
from hyperslab.storage.files import failure
from hyperslab.storage.http import within_origin
from hyperslab.storage.keys import HIDDEN, flaw_of, has_hidden_segment, is_hidden

T = TypeVar("T")
Info = Mapping[str, Any]


class FsspecStore(Store):
    """Store over a file system of fsspec; writable if that is. Writers are safe between the threads of one process.

    The version is the first that the file system reports of: an ETag, hash or checksum; the modification time (SFTP's
    has a resolution of a second) with the size; else it is a digest, and each stat reads the whole value. Puts are as
    atomic as the file system's ``pipe_file``: over SFTP or FTP other processes may see a partial value, and so may
    everyone after a crash.

    Options are ``listable`` (``false`` for credentials without the right to list), ``missing`` (see
    `missing_statuses`), and others that are passed to the file system (``true`` and ``false`` as booleans, ``port`` as
    a number); those of the inner part of a chained URL are named ``protocol.name``, for example ``s3.anon``.
    """

    def __init__(self, config: StoreConfig) -> None:
        listable = flag(config.options, "listable", True)
        capabilities = Capabilities(width=8, listable=listable, conditional_delete=True)
        super().__init__(config, capabilities, concurrent=False)
        self._missing = missing_statuses(config.options)
        self._fs, self._root = _open(config)
        # these have one file, connection or index for all readers, without a lock
        is_shared = _protocols(self._fs) & {"tar", "libarchive", "ftp", "filecache"}
        self._one_at_a_time = RLock() if is_shared else nullcontext()
        self._root_seen = float("-inf")
        if config.writable:
            self._do("", self._fs.makedirs, self._root, exist_ok=True)

    def get(self, key: str, max_bytes: int = MAX_BYTES) -> StoredValue | None:
        stored = self._read_steadily(key, lambda path, entry: self._whole(path, entry, max_bytes))
        return None if stored is None else StoredValue(stored[0], stored[1].version)

    def get_part(self, key: str, start: int, stop: int) -> StoredRange | None:
        def read(path: str, entry: Entry) -> StoredRange:
            if start == 0 and entry.size <= stop:
                data = self._whole(path, entry, max(stop, MAX_BYTES))
                return StoredRange(replace(entry, size=len(data)), 0, data)  # some file systems report no sizes
            end = min(stop, entry.size or stop)
            return StoredRange(entry, start, bytes(self._fs.cat_file(path, start, end)) if start < end else b"")

        stored = self._read_steadily(key, read)
        return None if stored is None else stored[0]

    def stat(self, key: str) -> Entry | None:
        info = self._find(key, self._fs.info, self._path(key))
        if info is None:
            self._require_root(key)
        return None if info is None or info["type"] != "file" else self._entry(key, info)

    def _put(self, key: str, body: memoryview, if_version: str | Absent | None) -> str:
        with self._commits.hold(key):
            self._compare(key, if_version)
            self._do(key, self._write, self._path(key), bytes(body))
            version = self._version(key)
        if version is None:
            raise StoreError(self.name, key, "it was removed while it was written")
        return version

    def _delete(self, key: str, if_version: str | None) -> bool:
        with self._commits.hold(key):
            current = self._version(key)
            check_version(key, current, if_version)
            if current is not None:
                self._do(key, self._fs.rm_file, self._path(key))
        return current is not None

    def _delete_prefix(self, prefix: str, check: Check | None, keep: Keep | None) -> int:
        if check is not None:
            check()
        count = 0
        for info in self._ls(prefix):
            key = prefix + _name(info)
            hidden = has_hidden_segment(key)
            if not prefix and (key == HIDDEN or (hidden and info["type"] != "directory")):  # of the whole store
                continue
            if not hidden and flaw_of(_name(info), prefix):  # stays, as no path leads to it
                if keep is not None:
                    keep(key, False)
            elif info["type"] == "directory":
                count += self._delete_prefix(f"{key}/", None, keep)
            elif keep is None or hidden or not keep(key, False):
                with self._commits.hold(key):
                    self._find(key, self._fs.rm_file, self._path(key))
                count += not hidden
        if prefix and not self._ls(prefix):
            with suppress(OSError, NotImplementedError):  # not a real folder, or not empty any more
                self._fs.rmdir(self._path(prefix).rstrip("/"))
        return count

    def list_dir(self, prefix: str) -> Listing:
        entries: list[Entry] = []
        prefixes: list[str] = []
        unserved: list[UnservedEntry] = []
        for info in self._ls(prefix):
            name = _name(info)
            if is_hidden(name):
                continue
            if flaw := flaw_of(name, prefix):
                unserved.append(UnservedEntry.at(prefix, name, flaw))
            elif info["type"] == "directory":
                prefixes.append(name)
            else:
                entries.append(self._entry(prefix + name, info))
        return Listing.of(entries, prefixes, unserved)

    def check(self) -> None:
        try:
            self._require_root("")
        except StoreDenied:  # else it is what such a store says about a missing key
            if self._capabilities.listable:
                raise

    def _whole(self, path: str, entry: Entry, max_bytes: int) -> bytes:
        """A whole value; the size is checked again, as some file systems report none."""
        if entry.size > max_bytes:
            raise StoredTooLarge(entry.key, entry.size, max_bytes)
        data = bytes(self._fs.cat_file(path) if entry.size else self._fs.cat_file(path, 0, max_bytes + 1))
        if len(data) > max_bytes:
            raise StoredTooLarge(entry.key, len(data), max_bytes)
        return data

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}" if self._root else key

    def _read_steadily(self, key: str, read: Callable[[str, Entry], T]) -> tuple[T, Entry] | None:
        """The result of ``read`` and the entry of its version, retried if that changes meanwhile."""
        with self._commits.hold(key, shared=True):  # `pipe_file` truncates a file before it writes
            before = self.stat(key)
            for _ in range(MAX_ATTEMPTS):
                if before is None:
                    return None
                data = self._find(key, read, self._path(key), before)
                after = self.stat(key)
                same = after is not None and after.version == before.version
                if data is not None and same:
                    return data, before
                if data is None and same:
                    raise StoreError(self.name, key, "it is listed, but cannot be read")
                before = after
            raise StoreError(self.name, key, "it changed again and again while it was read")

    def _entry(self, key: str, info: Info) -> Entry:
        moment, size = _moment(info), int(info["size"] or 0)
        tags = ("ETag", "etag", "e_tag", "sha", "oid", "blob_id", "CRC")
        tag = next((info[name] for name in tags if info.get(name)), moment)
        if tag is None:
            content = self._find(key, self._fs.cat_file, self._path(key))
            version = blake2b(content or b"", digest_size=16).hexdigest()
        else:
            version = f"{tag}-{info['size']}"
        return Entry(key, size, version, modified=moment if isinstance(moment, float) else 0.0)

    def _write(self, path: str, data: bytes) -> None:
        try:
            self._fs.pipe_file(path, data)
        except FileNotFoundError:  # a file system with real folders
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(path, data)

    def _ls(self, prefix: str) -> list[Info]:
        listed = self._find(prefix, lambda path: self._fs.ls(path, detail=True), self._path(prefix).rstrip("/"))
        if listed is None:
            self._require_root(prefix)
            return []
        below = self._path(prefix).strip("/")
        return [info for info in listed if str(info["name"]).strip("/") != below]  # some list the prefix itself

    def _require_root(self, key: str) -> None:
        """Raise `StoreError` if the root is missing: an unmounted file system must not look like absence."""
        if time.monotonic() - self._root_seen < 10.0:
            return
        if not self._capabilities.listable:  # a root has no key of its own
            return
        if self._root.strip("/") and self._find(key, self._fs.info, self._root) is None:
            raise StoreError(self.name, key, "the root of the store is not there")
        self._root_seen = time.monotonic()

    def _find(self, key: str, call: Callable[..., T], *args: Any) -> T | None:
        """The result of a call; None if there is no such file."""

        def find() -> T | None:
            with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                try:
                    return call(*args)
                except Exception as error:
                    if not (_is_denied(error) and self._missing & {401, 403}):
                        raise
            return None

        return self._do(key, find)

    def _do(self, key: str, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        try:
            with self._one_at_a_time:
                return call(*args, **kwargs)
        except HyperslabError:
            raise
        except Exception as error:  # exceptions of any library
            raise self._failure(key, error) from error

    def _failure(self, key: str, error: Exception) -> HyperslabError:
        if isinstance(error, FileExistsError):
            return failure(self.name, key, OSError(errno.EEXIST, str(error)))
        if isinstance(error, OSError) and error.errno:
            return failure(self.name, key, error)
        reason = f"the file system failed ({type(error).__name__})"  # the text may contain addresses and credentials
        if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
            return StoreTimeout(self.name, key, reason)
        return (StoreDenied if _is_denied(error) else StoreError)(self.name, key, reason)


def _open(config: StoreConfig) -> tuple[Any, str]:
    """The file system and path of a URL."""
    try:
        fs, root = fsspec.core.url_to_fs(config.url, skip_instance_cache=True, **_arguments(config))
        is_archive = isinstance(fs, AbstractArchiveFileSystem)
        if is_archive and [name.rstrip("/") for name in fs.ls("", detail=False)] == ["."]:  # by `tar cf x.tar .`
            root = f"./{root}".rstrip("/")
    except (ImportError, ValueError, TypeError) as error:
        reason = redacted(str(error), config.options.values())
        raise BadDefinition("url", f"{public_url(config.url)!r} cannot be opened ({reason})") from error
    except Exception as error:
        protocol, _, path = config.url.partition("://")
        if protocol in ("zip", "tar", "libarchive") and "::" not in config.url and "fo" not in config.options:
            raise BadDefinition("url", f"names no archive; the content of a file is {protocol}::{path}") from error
        reason = f"it cannot be opened ({type(error).__name__})"
        raise StoreError(config.name, "", reason) from error
    read_only = {"data", "git", "github", "jupyter", "jlab", "libarchive", "reference"}
    if config.writable and (is_archive or _protocols(fs) & read_only):
        raise BadDefinition("writable", f"{min(_protocols(fs))}:// is a read-only store")
    if hasattr(fs, "dircache"):
        fs.dircache.use_listings_cache = False  # listings must be current
    return fs, root


def _protocols(fs: Any) -> set[str]:
    return {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)


def _arguments(config: StoreConfig) -> dict[str, Any]:
    """Arguments of the file system; those of an inner one by its protocol."""
    arguments: dict[str, Any] = {}
    for name, text in config.options.items():
        if name in ("listable", "missing"):
            continue
        protocol, dot, inner = name.partition(".")
        into = arguments.setdefault(protocol, {}) if dot else arguments
        is_number = (inner or name) == "port" and text.isdecimal()
        flags = {"true": True, "false": False}
        into[inner or name] = int(text) if is_number else flags.get(text.lower(), text)
    for protocol in {part.partition("://")[0].lower() for part in config.url.split("::")} & {"http", "https"}:
        arguments.setdefault(protocol, {})["client_kwargs"] = {"trace_configs": [_redirect_guard()]}
    return arguments


def _redirect_guard() -> Any:
    """aiohttp's trace configuration that allows redirects within the origin, as `HttpStore` does."""
    import aiohttp

    async def check(_session: object, _context: object, redirect: aiohttp.TraceRequestRedirectParams) -> None:
        if within_origin(str(redirect.url), redirect.response.headers.get("Location", "")) is None:
            raise PermissionError(errno.EACCES, "only redirects within the server's own origin are followed")

    guard = aiohttp.TraceConfig()
    guard.on_request_redirect.append(check)
    return guard


def _is_denied(error: Exception) -> bool:
    """Whether access was denied: the statuses 401 and 403, or an error of a disk."""
    return isinstance(error, PermissionError) or getattr(error, "status", 0) in (401, 403)


def _name(info: Info) -> str:
    return str(info["name"]).rstrip("/").rpartition("/")[2]


def _moment(info: Info) -> float | str | None:
    """Modification time, in seconds since 1970 if it can be converted."""
    names = ("mtime", "modified", "LastModified", "last_modified", "updated", "created", "date_time", "time")
    moment = next((info[name] for name in names if info.get(name) is not None), None)
    if moment is None:
        return None
    if hasattr(moment, "timestamp"):
        return float(moment.timestamp())
    return float(moment) if isinstance(moment, int | float) else str(moment)
