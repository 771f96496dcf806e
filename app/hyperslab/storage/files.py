"""Atomic and durable writes of files, and translation of `OSError`."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import stat as modes
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final

from hyperslab.errors import BadPath, HyperslabError, StoreDenied, StoreError, StoreFull, StoreTimeout
from hyperslab.storage.base import Entry
from hyperslab.storage.fence import DIRECTORY, FILE_MODE, NO_FOLLOW, READ_DIRECTORY, Fence, Identity, identity_of
from hyperslab.storage.keys import HIDDEN

ABSENT_ERRORS: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
"""Errors of reads that mean an absent key; others are failures of the store."""

TEMPORARY: Final = f"{HIDDEN}.tmp."
"""Prefix of the names of unfinished writes, which is hidden."""

_BAD_PATHS: Final = {
    errno.ENAMETOOLONG: "a name in it is longer than this file system allows",
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "on a disk a name cannot be both a key and a prefix of other keys"),
}
_FAILURES: Final[dict[int, type[StoreError]]] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), StoreFull),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), StoreDenied),
    errno.ETIMEDOUT: StoreTimeout,
}
_REASONS: Final = {
    errno.EISDIR: "a folder stands where the value of this key should be (EISDIR)",
    errno.ELOOP: "symbolic links lead in a circle (ELOOP)",
    errno.ENXIO: "a socket or a device stands where the value of this key should be (ENXIO)",
}

_UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EPERM})
_SECOND: Final = 1_000_000_000


def version_of(stat: os.stat_result) -> str:
    """The version of a file: time of modification, inode and size, which are unique for each write of `FileWriter`, and
    time of change, which no program can set: archives and copies restore the others."""
    parts = stat.st_mtime_ns, stat.st_ino, stat.st_size, stat.st_ctime_ns
    return "%x-%x-%x-%x" % parts  # noqa: UP031 - half the time of an f-string


def entry_of(key: str, stat: os.stat_result) -> Entry:
    """The `Entry` of a stat."""
    return Entry(key, stat.st_size, version_of(stat), stat.st_mtime)


def failure(store: str, key: str, error: OSError) -> HyperslabError:
    """The error for an `OSError`."""
    number = error.errno or 0
    if number in _BAD_PATHS:
        return BadPath(key, _BAD_PATHS[number])
    reason = f"{os.strerror(number)} ({errno.errorcode.get(number, number)})"
    return _FAILURES.get(number, StoreError)(store, key, _REASONS.get(number, reason))


def wrong_type(stat: os.stat_result) -> str:
    """The type of a path that is neither a file nor a folder."""
    mode = stat.st_mode
    return "a pipe" if modes.S_ISFIFO(mode) else "a socket" if modes.S_ISSOCK(mode) else "a device"


class FileWriter:
    """Atomic writer of files below the fence's root, also safe against power cuts if ``durable``.

    Modification times are set explicitly, strictly increasing in nanoseconds, so that versions are unique: the kernel's
    timestamps advance every few milliseconds, and inodes of deleted files are reused. On a file system with coarser
    times, they come from a clock that all processes share (with ``file_locks``): the file ``.hyperslab/clock`` has the
    last time, and the next is later by the file system's resolution; under frequent writes it runs ahead. ``coarse``:
    the resolution is a second or more.
    """

    def __init__(self, fence: Fence, *, durable: bool, file_locks: bool) -> None:
        self.coarse = False
        self._fence = fence
        self._durable = durable
        self._file_locks = file_locks
        self._last = 0
        self._clock = Lock()
        self._count = itertools.count()
        self._synced: dict[str, Identity] = {}

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """A descriptor of a folder, created with its parents if missing. Their directory entries are synced, even if
        others created them."""
        flags = READ_DIRECTORY if self._durable else DIRECTORY
        parent, _, name = path.rpartition("/")
        try:
            folder = self._fence.open(path, flags)
        except FileNotFoundError:
            if not path:
                raise
            with self.folder(parent) as above, suppress(FileExistsError):
                os.mkdir(name, dir_fd=above)
            folder = self._fence.open(path, flags)
        try:
            identity = identity_of(os.fstat(folder))
            if path and self._synced.get(path) != identity:
                with self.folder(parent) as above:
                    self.sync(above)
                if len(self._synced) >= 20_000:
                    self._synced.clear()
                self._synced[path] = identity
            yield folder
        finally:
            os.close(folder)

    def write(self, folder: int, parts: Sequence[memoryview]) -> tuple[str, int]:
        """Write ``parts``, one after the other, under a temporary name; returns name and descriptor."""
        name = f"{TEMPORARY}{os.getpid()}.{time.time_ns():x}.{next(self._count)}"
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=folder)
        try:
            for part in parts:
                done = 0
                while done < len(part):
                    done += os.write(descriptor, part[done:])
            with self._clock:  # the system clock may stand still or go back
                now = self._last = max(self._last + 1, time.time_ns())
            os.utime(descriptor, ns=(now, now))
            if (stored := os.fstat(descriptor).st_mtime_ns) != now:
                # resolutions of file systems in nanoseconds
                steps = (1, 100, 1_000, 1_000_000, 10_000_000, _SECOND, 2 * _SECOND)
                resolution = max(step for step in steps if stored % step == 0)
                self.coarse |= resolution >= _SECOND
                self._stamp_by_clock(descriptor, resolution)
            if self._durable:
                os.fsync(descriptor)
        except BaseException:
            os.close(descriptor)
            discard(name, folder)
            raise
        return name, descriptor

    def publish(self, folder: int, temporary: str, name: str, *, create: bool) -> None:
        """Rename a temporary file, replacing an existing file; with ``create`` raises `FileExistsError` instead,
        atomically, so that it also holds against programs without our locks."""
        if create and _link(temporary, name, folder):
            discard(temporary, folder)
        else:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def sync(self, folder: int) -> None:
        """Sync the entries of a folder, if ``durable``."""
        if not self._durable:
            return
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise

    def sync_path(self, path: str) -> None:
        """`sync` of the folder at a path."""
        if self._durable:
            with self._fence.opened(path, READ_DIRECTORY) as folder:
                self.sync(folder)

    def _stamp_by_clock(self, descriptor: int, resolution: int) -> None:
        """Set a unique modification time, from the shared clock, in multiples of ``resolution``."""
        with self._clock, self.folder(HIDDEN) as folder:
            clock = os.open("clock", os.O_RDWR | os.O_CREAT | NO_FOLLOW, FILE_MODE, dir_fd=folder)
            try:
                if self._file_locks:
                    fcntl.flock(clock, fcntl.LOCK_EX)
                last = int.from_bytes(os.pread(clock, 8, 0))
                stamp = (max(last, time.time_ns()) // resolution + 1) * resolution
                os.pwrite(clock, stamp.to_bytes(8), 0)
                if self._durable:  # otherwise the next time could be reused after a power cut
                    os.fsync(clock)
                os.utime(descriptor, ns=(stamp, stamp))
            finally:
                os.close(clock)


def has_whole_seconds(stat: os.stat_result) -> bool:
    """Whether the file system stores whole seconds, as ext3, FAT, and ext4 with small inodes, judged by the ctime,
    which programs cannot set."""
    return stat.st_ctime_ns % _SECOND == 0


def discard(name: str, folder: int) -> None:
    """Remove a temporary file, if it still exists."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _link(source: str, target: str, folder: int) -> bool:
    """Create a hard link; False if the file system does not support them."""
    try:
        os.link(source, target, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return False
        raise
    return True


class LogFile:
    """`storage.base.Log` as a file, closed with its last reference."""

    def __init__(self, store: str, key: str, descriptor: int, *, durable: bool) -> None:
        self._store = store
        self._key = key
        self._descriptor = descriptor
        self._durable = durable

    @property
    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise failure(self._store, self._key, error) from error

    def read_into(self, start: int, out: memoryview) -> None:
        done, count = 0, 1
        try:
            while done < len(out) and count:
                count = os.preadv(self._descriptor, [out[done:]], start + done)
                done += count
        except OSError as error:
            raise failure(self._store, self._key, error) from error
        if done < len(out):
            raise StoreError(self._store, self._key, f"it ends at byte {start + done}, before what it is known to hold")

    def write(self, at: int, parts: Sequence[tuple[int, bytes | memoryview]]) -> None:
        try:
            if self.size > at:
                os.ftruncate(self._descriptor, at)
            for start, data in parts:
                rest, position = memoryview(data).cast("B"), start
                while rest:
                    count = os.pwrite(self._descriptor, rest, position)
                    rest, position = rest[count:], position + count
            if self._durable:
                os.fdatasync(self._descriptor)
        except OSError as error:
            raise failure(self._store, self._key, error) from error

    def __del__(self) -> None:
        os.close(self._descriptor)
