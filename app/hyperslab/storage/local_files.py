"""Files of a folder, read into the caller's memory with few system calls for each."""

from __future__ import annotations

import os
import stat as modes
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hyperslab.storage.base import Entry, Part, Taken
from hyperslab.storage.fence import Fence
from hyperslab.storage.files import version_of

_OPEN: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
_SETTLED_NS: Final = 2_000_000_000
"""A file that was not touched for so long before we began was not rewritten in place while we read it."""

Choose: TypeAlias = Callable[[memoryview], Sequence[tuple[int, int]] | None]


class LocalFiles:
    """See `base.Files`: few system calls for each value, an open, a read, an fstat and a close.

    What is out of the ordinary (links, folders, files that another program writes to at this moment, failures) is left
    to ``get_part``, that of `LocalStore`.
    """

    def __init__(self, fence: Fence, get_part: Callable[[str, int, int], Part | None]) -> None:
        self._fence = fence
        self._get_part = get_part

    def read_parts(self, key: str, buffer: memoryview, head: int, choose: Choose) -> Taken | None:
        """See `base.Files`."""
        settled = time.time_ns() - _SETTLED_NS
        try:
            descriptor = self._fence.open(key, _OPEN)
        except OSError:
            return self._read_all(key, buffer, head, choose)
        try:
            complete = _read_parts(descriptor, buffer, head, choose)
            stat = os.fstat(descriptor)
        except OSError:
            return self._read_all(key, buffer, head, choose)
        finally:
            os.close(descriptor)
        if complete(stat.st_size) and _is_settled(stat, settled):
            return Taken(stat.st_size, version_of(stat))
        return self._read_all(key, buffer, head, choose)

    def _read_all(self, key: str, buffer: memoryview, head: int, choose: Choose) -> Taken | None:
        entry = self._read_slowly(key, buffer)
        if entry is None:
            return None
        choose(buffer[: min(head, entry.size)])
        return Taken(entry.size, entry.version)

    def _read_slowly(self, key: str, buffer: memoryview) -> Entry | None:
        """Read of a value, in one version, as much as there is room for in ``buffer``."""
        part = self._get_part(key, 0, len(buffer))
        if part is None:
            return None
        buffer[: len(part.data)] = part.data
        return part.entry


def _is_settled(stat: os.stat_result, settled: int) -> bool:
    """Whether it is a file, which nobody has touched since the time ``settled``."""
    return stat.st_mtime_ns < settled and modes.S_ISREG(stat.st_mode)


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
