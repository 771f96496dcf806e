"""What `storage.local` asks of the operating system: paths that stay inside, writes that are whole or not there."""

from __future__ import annotations

import errno
import itertools
import os
import stat as modes
import time
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final

from hyperslab.errors import BadPath, HyperslabError, StoreDenied, StoreError, StoreFull, StoreTimeout
from hyperslab.storage.keys import HIDDEN

ABSENT_ERRORS: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
"""What reading a key that is not there may end with; every other error is a failure of the store."""

TEMPORARY: Final = f"{HIDDEN}.tmp."
"""How the names of unfinished writes begin: hidden, so they are never listed and never taken for keys."""

_FAILURES: Final[dict[int, type[StoreError]]] = {
    errno.ENOSPC: StoreFull,
    errno.EDQUOT: StoreFull,
    errno.EFBIG: StoreFull,
    errno.EACCES: StoreDenied,
    errno.EPERM: StoreDenied,
    errno.EROFS: StoreDenied,
    errno.ETIMEDOUT: StoreTimeout,
}
_CLASH: Final = "on a disk a name cannot be both a key and a prefix of other keys"
_BAD_PATHS: Final = {
    errno.ENAMETOOLONG: "a name in it is longer than this file system allows",
    errno.ENOTDIR: _CLASH,
    errno.EEXIST: _CLASH,
}
_REASONS: Final = {
    errno.EISDIR: "a folder stands where the value of this key should be (EISDIR)",
    errno.ELOOP: "symbolic links lead in a circle (ELOOP)",
    errno.ENXIO: "a socket or a device stands where the value of this key should be (ENXIO)",
}
_OBSTACLES: Final = {
    modes.S_IFIFO: "a pipe",
    modes.S_IFSOCK: "a socket",
    modes.S_IFCHR: "a device",
    modes.S_IFBLK: "a device",
}

_READ_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_NOT_OFFERED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EPERM})
_MOST_KNOWN = 20_000

Identity = tuple[int, int]
"""Device and inode."""


def version_of(stat: os.stat_result) -> str:
    """The version of a file. Unique for each of our writes: see `Clock`."""
    return f"{stat.st_mtime_ns:x}-{stat.st_ino:x}-{stat.st_size:x}"


def failure(store: str, key: str, error: OSError) -> HyperslabError:
    """The error that stands for what the operating system said."""
    number = error.errno or 0
    if number in _BAD_PATHS:
        return BadPath(key, _BAD_PATHS[number])
    reason = f"{os.strerror(number)} ({errno.errorcode.get(number, number)})"
    return _FAILURES.get(number, StoreError)(store, key, _REASONS.get(number, reason))


def obstructed(store: str, key: str, stat: os.stat_result) -> StoreError:
    """The error for what is no file and has the name of a key."""
    found = _OBSTACLES.get(modes.S_IFMT(stat.st_mode), "no file, but something else")
    return StoreError(store, key, f"{found} stands where the value of this key should be")


class Clock:
    """Nanoseconds since 1970, each larger than the one before.

    The kernel stamps files from a clock that ticks every few milliseconds and gives the inode of a removed file to
    the next one: of two writes of one size within a tick the second could look like the first. So we stamp files
    ourselves, from this clock.
    """

    def __init__(self) -> None:
        self._last = 0
        self._lock = Lock()

    def next(self) -> int:
        """The time, or one more than the last one given where the clock has not moved on (or was set back)."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns())
            return self._last


class Fence:
    """Keeps symbolic links from leading out of a root. Links that stay inside are fine.

    A directory is resolved once; as long as its path leads to the same inode it is still the one that was found to be
    inside, which costs one ``stat``. All methods raise `errors.BadPath` for what lies outside, and let `OSError` pass.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self._inside = self.root.rstrip("/") + "/"
        self._known: dict[str, Identity] = {}

    def enter(self, directory: str) -> Identity:
        """Check that ``directory`` (an absolute path below the root) is inside."""
        stat = os.stat(directory)
        identity = (stat.st_dev, stat.st_ino)
        if self._known.get(directory) != identity:
            self.follow(directory)
            self._remember(directory, identity)
        return identity

    def open(self, directory: str) -> int:
        """A descriptor of ``directory`` for ``dir_fd=``, checked; the caller closes it."""
        descriptor = os.open(directory, getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0))
        try:
            stat = os.fstat(descriptor)
            if self._known.get(directory) != (stat.st_dev, stat.st_ino):
                self.enter(directory)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def follow(self, path: str) -> str:
        """The real path behind ``path``, checked."""
        real = os.path.realpath(path, strict=True)
        if real != self.root and not real.startswith(self._inside):
            raise BadPath(os.path.relpath(path, self.root), "a symbolic link leads out of the store")
        return real

    def _remember(self, directory: str, identity: Identity) -> None:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[directory] = identity


@dataclass(frozen=True, slots=True)
class Written:
    """A finished temporary file, not yet under its own name."""

    path: str
    version: str


class FileWriter:
    """Writes files so that they are there as a whole or not at all, also after a power cut where ``durable``."""

    def __init__(self, fence: Fence, *, durable: bool) -> None:
        self._fence = fence
        self._durable = durable
        self._clock = Clock()
        self._count = itertools.count()
        self._settled: dict[str, Identity] = {}

    def write(self, directory: str, data: bytes | memoryview) -> Written:
        """Write ``data`` under a temporary name in ``directory``, which is made if need be."""
        self._settle(directory)
        path = f"{directory}/{TEMPORARY}{os.getpid()}.{time.time_ns():x}.{next(self._count)}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            try:
                version = self._fill(descriptor, data)
            finally:
                os.close(descriptor)
        except BaseException:
            discard(path)
            raise
        return Written(path, version)

    def publish(self, written: Written, path: str, *, create: bool) -> None:
        """Give a temporary file its own name, in place of what has it; with ``create`` only where nothing has it.

        Raises `FileExistsError` then, also against programs that know nothing of our locks.
        """
        if create and _link(written.path, path):
            discard(written.path)
        else:
            os.rename(written.path, path)

    def sync_directory(self, directory: str) -> None:
        """Make the names in a directory outlive a power cut."""
        if not self._durable:
            return
        descriptor = os.open(directory, _READ_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NOT_OFFERED:  # else this file system cannot do more for us
                raise
        finally:
            os.close(descriptor)

    def _fill(self, descriptor: int, data: bytes | memoryview) -> str:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        now = self._clock.next()
        os.utime(descriptor, ns=(now, now))
        if self._durable:
            os.fsync(descriptor)
        return version_of(os.fstat(descriptor))

    def _settle(self, directory: str) -> None:
        """Make a directory with its parents, and make sure that their names are durable, whoever made them."""
        try:
            identity = self._fence.enter(directory)
        except FileNotFoundError:
            if directory == self._fence.root:
                raise
            self._settle(os.path.dirname(directory))
            with suppress(FileExistsError):
                os.mkdir(directory)
            identity = self._fence.enter(directory)
        if directory == self._fence.root or self._settled.get(directory) == identity:
            return
        parent = os.path.dirname(directory)
        self._settle(parent)
        self.sync_directory(parent)
        if len(self._settled) >= _MOST_KNOWN:
            self._settled.clear()
        self._settled[directory] = identity


def discard(path: str) -> None:
    """Remove a temporary file, which someone who deletes the whole folder may have done already."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def _link(source: str, target: str) -> bool:
    """Give a file a second name; False where the file system has no hard links."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in _NOT_OFFERED:
            return False
        raise
    return True
