"""Atomic and durable writes to files, and the meaning of what the operating system reports."""

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
from hyperslab.storage.fence import DIRECTORY, NO_FOLLOW, READ_DIRECTORY, Fence, Identity, identity_of
from hyperslab.storage.keys import HIDDEN

ABSENT_ERRORS: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
"""Errors of reading that mean an absent key; every other error is a failure of the store."""

TEMPORARY: Final = f"{HIDDEN}.tmp."
"""How the names of unfinished writes begin: hidden, so they are never listed and never taken for keys."""

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

_NOT_OFFERED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EPERM})
_SECOND: Final = 1_000_000_000


def version_of(stat: os.stat_result) -> str:
    """The version of a file. Unique for each of our writes: see `FileWriter`."""
    return f"{stat.st_mtime_ns:x}-{stat.st_ino:x}-{stat.st_size:x}"


def entry_of(key: str, stat: os.stat_result) -> Entry:
    """`Entry` of a key from its ``stat``."""
    return Entry(key, stat.st_size, version_of(stat), stat.st_mtime)


def failure(store: str, key: str, error: OSError) -> HyperslabError:
    """The error that stands for what the operating system said."""
    number = error.errno or 0
    if number in _BAD_PATHS:
        return BadPath(key, _BAD_PATHS[number])
    reason = f"{os.strerror(number)} ({errno.errorcode.get(number, number)})"
    return _FAILURES.get(number, StoreError)(store, key, _REASONS.get(number, reason))


def obstructed(store: str, key: str, stat: os.stat_result) -> StoreError:
    """The error for a key whose name belongs to something that is neither a file nor a folder."""
    mode = stat.st_mode
    found = "a pipe" if modes.S_ISFIFO(mode) else "a socket" if modes.S_ISSOCK(mode) else "a device"
    return StoreError(store, key, f"{found} stands where the value of this key should be")


class FileWriter:
    """Writes files so that they are there as a whole or not at all, also after a power cut where ``durable``.

    Folders are paths below the fence's root; what is done in one is done by its descriptor.

    The kernel stamps files from a clock that ticks every few milliseconds and gives the inode of a removed file to the
    next one: of two writes of one size within a tick the second could look like the first. So files are stamped here,
    with nanoseconds of which each is larger than the one before. A file system that keeps coarser times gives them back
    changed; there files are stamped from a clock that all processes share (with ``file_locks``): the file
    ``.hyperslab/clock`` holds the last time, and the next is later by the least step that the file system keeps. It
    runs ahead if files are written faster than that, and goes on from there after a restart. ``coarse``: whether whole
    seconds have come back.
    """

    def __init__(self, fence: Fence, *, durable: bool, file_locks: bool) -> None:
        self.coarse = False
        self._fence = fence
        self._durable = durable
        self._file_locks = file_locks
        self._last = 0
        self._clock = Lock()
        self._count = itertools.count()
        self._settled: dict[str, Identity] = {}

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """A descriptor of a folder, which is made with its parents if need be. Their names are durable then, even if
        others made them."""
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
            if path and self._settled.get(path) != identity:
                with self.folder(parent) as above:
                    self.sync(above)
                if len(self._settled) >= 20_000:
                    self._settled.clear()
                self._settled[path] = identity
            yield folder
        finally:
            os.close(folder)

    def write(self, folder: int, data: bytes | memoryview) -> tuple[str, str]:
        """Write ``data`` under a temporary name; return that and the version."""
        name = f"{TEMPORARY}{os.getpid()}.{time.time_ns():x}.{next(self._count)}"
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
        try:
            rest = memoryview(data).cast("B")
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            with self._clock:  # which may not have moved on, or was set back
                now = self._last = max(self._last + 1, time.time_ns())
            os.utime(descriptor, ns=(now, now))
            if (kept := os.fstat(descriptor).st_mtime_ns) != now:
                # nanoseconds between the times that file systems can keep
                steps = (1, 100, 1_000, 1_000_000, 10_000_000, _SECOND, 2 * _SECOND)
                granule = max(each for each in steps if kept % each == 0)
                self.coarse |= granule >= _SECOND
                self._stamp_coarsely(descriptor, granule)
            if self._durable:
                os.fsync(descriptor)
            return name, version_of(os.fstat(descriptor))
        except BaseException:
            discard(name, folder)
            raise
        finally:
            os.close(descriptor)

    def publish(self, folder: int, temporary: str, name: str, *, create: bool) -> None:
        """Give a temporary file its own name, in place of what has it; with ``create`` only where nothing has it.

        Raises `FileExistsError` then, also against programs that know nothing of our locks.
        """
        if create and _link(temporary, name, folder):
            discard(temporary, folder)
        else:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)

    def sync(self, folder: int) -> None:
        """Make the names in a folder outlive a power cut."""
        if not self._durable:
            return
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno not in _NOT_OFFERED:  # else this file system cannot do more for us
                raise

    def sync_path(self, path: str) -> None:
        """`sync` of the folder at a path."""
        if self._durable:
            with self._fence.opened(path, READ_DIRECTORY) as folder:
                self.sync(folder)

    def _stamp_coarsely(self, descriptor: int, granule: int) -> None:
        """Stamp a file with a time that no other has, on a file system that keeps multiples of ``granule``."""
        with self._clock, self.folder(HIDDEN) as folder:
            clock = os.open("clock", os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o666, dir_fd=folder)
            try:
                if self._file_locks:
                    fcntl.flock(clock, fcntl.LOCK_EX)
                last = int.from_bytes(os.pread(clock, 8, 0))
                stamp = (max(last, time.time_ns()) // granule + 1) * granule
                os.pwrite(clock, stamp.to_bytes(8), 0)
                if self._durable:  # or the next one would be given again after a power cut
                    os.fsync(clock)
                os.utime(descriptor, ns=(stamp, stamp))
            finally:
                os.close(clock)


def keeps_whole_seconds(stat: os.stat_result) -> bool:
    """Whether a file system keeps no parts of seconds, as ext3, FAT, and ext4 with small inodes do: by the time that
    it gave to a file or folder itself, which no program can set."""
    return stat.st_ctime_ns % _SECOND == 0


def discard(name: str, folder: int) -> None:
    """Remove a temporary file, which someone who deletes the whole folder may have done already."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _link(source: str, target: str, folder: int) -> bool:
    """Make a hard link to a file; False if the file system has none."""
    try:
        os.link(source, target, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in _NOT_OFFERED:
            return False
        raise
    return True


class LogFile:
    """A log as a file; see `storage.base.Log`. It is closed with the last reference."""

    def __init__(self, store: str, key: str, descriptor: int, *, durable: bool) -> None:
        self._store = store
        self._key = key
        self._descriptor = descriptor
        self._durable = durable

    @property
    def identity(self) -> int:
        return os.fstat(self._descriptor).st_ino

    @property
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

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
