"""Reading many files of one folder: into the caller's memory, and with few system calls for each."""

from __future__ import annotations

import os
import stat as modes
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hyperslab.errors import ChunkCorrupt
from hyperslab.storage.base import Pull, Stored, Taken
from hyperslab.storage.fence import DIRECTORY, NO_FOLLOW, Fence
from hyperslab.storage.files import version_of

_OPEN: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
_SETTLED_NS: Final = 2_000_000_000
"""A file that was not touched for so long before we began was not rewritten in place while we read it."""

Choose: TypeAlias = Callable[[memoryview], Sequence[tuple[int, int]] | None]


class LocalFiles:
    """See `base.Files`: few system calls for each value, an open, a read, an fstat and a close.

    ``get`` is `LocalStore.get`: what is out of the ordinary (links, folders, files that another program writes to at
    this moment, failures) is left to it.
    """

    def __init__(self, fence: Fence, get: Callable[[str], Stored | None]) -> None:
        self._fence = fence
        self._get = get

    def read_each(
        self,
        keys: Sequence[str],
        buffer: memoryview,
        at: int,
        room: int,
        *,
        packed: bool,
        versions: list[str | None] | None = None,
    ) -> list[tuple[int, int] | None]:
        """See `base.Files`."""
        extents: list[tuple[int, int] | None] = []
        with _Folder(self._fence) as folder:
            for key in keys:
                size, version = self._read(folder, key, buffer[at : at + room], versioned=versions is not None)
                extents.append(None if size is None else (at, at + size))
                at += room if size is None or not packed else min(size, room)
                if versions is not None:
                    versions.append(version)
        return extents

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

    def pull(self, key: str, buffer: memoryview, take: Callable[[Pull], None]) -> Taken | None:
        """See `base.Files`."""
        settled = time.time_ns() - _SETTLED_NS
        try:
            descriptor = self._fence.open(key, _OPEN)
        except OSError:
            return self._pull_from_all(key, buffer, take)
        reading = _Reading(descriptor, buffer)
        try:
            take(reading)
            stat = os.fstat(descriptor)
        except (OSError, ChunkCorrupt):
            return self._pull_from_all(key, buffer, take)
        finally:
            os.close(descriptor)
        if _is_settled(stat, settled):
            return Taken(reading.nbytes, version_of(stat))
        return self._pull_from_all(key, buffer, take)

    def _read(self, folder: _Folder, key: str, piece: memoryview, *, versioned: bool) -> tuple[int | None, str | None]:
        """The size of one value, and its version if that is wanted."""
        try:
            stat = folder.read(key, piece)
        except FileNotFoundError:
            if folder.is_open:  # so the root is there, and only the file is not
                return None, None
            stat = None
        except OSError:
            stat = None
        if stat is not None:
            return stat.st_size, version_of(stat) if versioned else None
        stored = self._read_slowly(key, piece)
        return (None, None) if stored is None else (len(stored.data), stored.version)

    def _read_all(self, key: str, buffer: memoryview, head: int, choose: Choose) -> Taken | None:
        stored = self._read_slowly(key, buffer)
        if stored is None:
            return None
        choose(buffer[: min(head, len(stored.data))])
        return Taken(len(stored.data), stored.version)

    def _pull_from_all(self, key: str, buffer: memoryview, take: Callable[[Pull], None]) -> Taken | None:
        stored = self._read_slowly(key, buffer)
        if stored is None:
            return None
        size = min(len(stored.data), len(buffer))
        take(lambda start, stop: min(stop, size) - start)
        return Taken(len(stored.data), stored.version)

    def _read_slowly(self, key: str, buffer: memoryview) -> Stored | None:
        """Read a value with `get`, as much of which as there is room for goes into ``buffer``."""
        stored = self._get(key)
        if stored is not None:
            count = min(len(stored.data), len(buffer))
            buffer[:count] = stored.data[:count]
        return stored


class _Reading:
    """Reads pieces of an open file to where they lie in it."""

    __slots__ = ("_buffer", "_descriptor", "nbytes")

    def __init__(self, descriptor: int, buffer: memoryview) -> None:
        self._descriptor = descriptor
        self._buffer = buffer
        self.nbytes = 0

    def __call__(self, start: int, stop: int) -> int:
        count = os.preadv(self._descriptor, (self._buffer[start:stop],), start)
        self.nbytes += count
        return count


class _Folder:
    """The folder of the latest key, held open: further files in it are opened without another look at their path."""

    __slots__ = ("_descriptor", "_fence", "_name", "_settled")

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._name: str | None = None
        self._descriptor = -1
        self._settled = time.time_ns() - _SETTLED_NS

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def read(self, key: str, piece: memoryview) -> os.stat_result | None:
        """Read a file that fits into ``piece``; None where something about it is out of the ordinary."""
        folder, _, name = key.rpartition("/")
        if folder != self._name:
            self._enter(folder)
        descriptor = os.open(name, _OPEN | NO_FOLLOW, dir_fd=self._descriptor)
        try:
            count = os.readv(descriptor, (piece,))
            stat = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return stat if count == stat.st_size and _is_settled(stat, self._settled) else None

    def _enter(self, folder: str) -> None:
        self._leave()
        self._descriptor = self._fence.open(folder, DIRECTORY)
        self._name = folder

    def _leave(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._name, self._descriptor = None, -1


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
