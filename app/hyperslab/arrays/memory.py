"""Memory of large values, which is used again, or given back to the system at once."""

from __future__ import annotations

import mmap
import sys
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LEAST: Final = 1 << 20
"""Bytes below which values are allocated by the C library, which keeps for each thread what was freed."""


class Memory:
    """Memory that is used again as soon as no view of it is left, of which at most ``limit`` bytes are kept.

    Thread-safe. Memory that is new to the process is as expensive as decoding into it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[NDArray[Any]] = []
        self._lock = Lock()

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """An array of ``nbytes`` bytes with any contents, in memory of its own."""
        if nbytes < LEAST:
            return np.empty(nbytes, np.uint8)
        size = -(-nbytes // LEAST) * LEAST
        with self._lock:
            free = sorted(filter(self._is_free, range(len(self._kept))), key=lambda i: self._kept[i].nbytes)
            for i in free:
                if size <= self._kept[i].nbytes:
                    return self._kept[i][:nbytes]
            pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            memory: NDArray[np.uint8] = np.frombuffer(pages, np.uint8)
            for i in sorted(free, reverse=True):  # too small
                if self.nbytes + size > self._limit:
                    del self._kept[i]
            if self.nbytes + size <= self._limit:
                self._kept.append(memory)
            return memory[:nbytes]

    @property
    def nbytes(self) -> int:
        """Bytes that are kept, whether they are used or not."""
        return sum([each.nbytes for each in self._kept])

    def _is_free(self, i: int) -> bool:
        """Whether nothing else refers to the memory, as each view of it does, and each view of a view."""
        return sys.getrefcount(self._kept[i]) == 2  # the list, and this call


MEMORY: Final = Memory(32 << 20)
"""That of all reads of this process."""
