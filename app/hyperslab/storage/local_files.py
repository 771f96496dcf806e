"""Reading many files of one folder: into the caller's memory, and with few system calls for each."""

from __future__ import annotations

import os
import stat as modes
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hyperslab.storage.base import Stored
from hyperslab.storage.files import Fence, version_of

_OPEN: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_SETTLED_NS: Final = 2_000_000_000
"""A file that was not touched for so long before we began was not rewritten in place while we read it."""

Choose: TypeAlias = Callable[[memoryview], Sequence[tuple[int, int]] | None]


class LocalFiles:
    """See `base.Files`. Holds the folder of the latest key open, so that each further key in it costs an open, a read,
    an fstat and a close.

    ``get`` is `LocalStore.get`: what is out of the ordinary (links, folders, files that another program writes to at
    this moment, failures) is left to it.
    """

    def __init__(self, fence: Fence, get: Callable[[str], Stored | None]) -> None:
        self._fence = fence
        self._get = get
        self._root = fence.root.rstrip("/")
        self._folder: str | None = None
        self._descriptor = -1
        self._settled = time.time_ns() - _SETTLED_NS
        self._found: os.stat_result | str = ""

    def __enter__(self) -> LocalFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    @property
    def version(self) -> str:
        """See `base.Files`."""
        return self._found if isinstance(self._found, str) else version_of(self._found)

    def read_into(self, key: str, buffer: memoryview) -> int | None:
        """See `base.Files`."""
        try:
            descriptor = self._open(key)
        except OSError:
            return self._read_slowly(key, buffer)
        try:
            count = os.readv(descriptor, (buffer,))
            stat = os.fstat(descriptor)
        except OSError:
            return self._read_slowly(key, buffer)
        finally:
            os.close(descriptor)
        if count == stat.st_size and self._is_settled(stat):
            self._found = stat
            return count
        return self._read_slowly(key, buffer)

    def read_parts(self, key: str, buffer: memoryview, head: int, choose: Choose) -> int | None:
        """See `base.Files`."""
        try:
            descriptor = self._open(key)
        except OSError:
            return self._read_all(key, buffer, head, choose)
        try:
            complete = _read_parts(descriptor, buffer, head, choose)
            stat = os.fstat(descriptor)
        except OSError:
            return self._read_all(key, buffer, head, choose)
        finally:
            os.close(descriptor)
        if complete(stat.st_size) and self._is_settled(stat):
            self._found = stat
            return stat.st_size
        return self._read_all(key, buffer, head, choose)

    def _open(self, key: str) -> int:
        """A folder is held open from the second key in it on."""
        folder, _, name = key.rpartition("/")
        if folder == self._folder:
            if self._descriptor < 0:
                self._descriptor = self._fence.open(f"{self._root}/{folder}")
            return os.open(name, _OPEN, dir_fd=self._descriptor)
        self._leave()
        self._fence.enter(f"{self._root}/{folder}")
        self._folder = folder
        return os.open(f"{self._root}/{key}", _OPEN)

    def _is_settled(self, stat: os.stat_result) -> bool:
        return stat.st_mtime_ns < self._settled and modes.S_ISREG(stat.st_mode)

    def _read_slowly(self, key: str, buffer: memoryview) -> int | None:
        stored = self._get(key)
        if stored is None:
            return None
        self._found = stored.version
        count = min(len(stored.data), len(buffer))
        buffer[:count] = stored.data[:count]
        return len(stored.data)

    def _read_all(self, key: str, buffer: memoryview, head: int, choose: Choose) -> int | None:
        size = self._read_slowly(key, buffer)
        if size is not None:
            choose(buffer[: min(head, size)])
        return size

    def _leave(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _read_parts(descriptor: int, buffer: memoryview, head: int, choose: Choose) -> Callable[[int], bool]:
    """Read what `LocalFiles.read_parts` says; returns whether that is all that a file of some size has of it."""
    done = os.preadv(descriptor, (buffer[:head],), 0) if head else 0
    ranges = choose(buffer[:done])
    if ranges is None:
        done += os.preadv(descriptor, (buffer[done:],), done)
        return lambda size: size == done
    counts = [os.preadv(descriptor, (buffer[start:stop],), start) for start, stop in ranges]
    whole = counts == [stop - start for start, stop in ranges]
    return lambda size: whole and size <= len(buffer)
