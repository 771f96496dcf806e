"""Reading many files of one folder: into the caller's memory, and with few system calls for each."""

from __future__ import annotations

import os
import stat as modes
import time
from collections.abc import Callable
from typing import Final

from hyperslab.storage.base import Stored
from hyperslab.storage.files import Fence

_OPEN: Final = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_SETTLED_NS: Final = 2_000_000_000
"""A file that was not touched for so long before we began was not rewritten in place while we read it."""


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

    def __enter__(self) -> LocalFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def read_into(self, key: str, buffer: memoryview) -> int | None:
        """The size of a value, of which the beginning is put into ``buffer``; None where it is absent."""
        folder, _, name = key.rpartition("/")
        if folder != self._folder and not self._enter(folder):
            return self._read_slowly(key, buffer)
        try:
            descriptor = os.open(name, _OPEN, dir_fd=self._descriptor)
        except OSError:
            return self._read_slowly(key, buffer)
        try:
            count = os.readv(descriptor, (buffer,))
            stat = os.fstat(descriptor)
        except OSError:
            return self._read_slowly(key, buffer)
        finally:
            os.close(descriptor)
        if count == stat.st_size and stat.st_mtime_ns < self._settled and modes.S_ISREG(stat.st_mode):
            return count
        return self._read_slowly(key, buffer)

    def _read_slowly(self, key: str, buffer: memoryview) -> int | None:
        stored = self._get(key)
        if stored is None:
            return None
        count = min(len(stored.data), len(buffer))
        buffer[:count] = stored.data[:count]
        return len(stored.data)

    def _enter(self, folder: str) -> bool:
        """Make ``folder`` the one that is open; False where that cannot be."""
        self._leave()
        try:
            self._descriptor = self._fence.open(f"{self._root}/{folder}")
        except OSError:
            return False
        self._folder = folder
        return True

    def _leave(self) -> None:
        if self._folder is not None:
            os.close(self._descriptor)
            self._folder = None
