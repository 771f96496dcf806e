"""Memory of large values, which is used again, or given back to the system at once."""

from __future__ import annotations

import mmap
import sys
from threading import Lock, Timer
from typing import Final

import numpy as np
from numpy.typing import NDArray

LEAST: Final = 1 << 20
"""Bytes below which values are allocated by the C library, which keeps for each thread what was freed."""


class _Block:
    """Memory that is kept; ``is_recent``: it was taken since `Memory.trim` last came by."""

    __slots__ = ("is_recent", "memory")

    def __init__(self, nbytes: int) -> None:
        pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory: NDArray[np.uint8] = np.frombuffer(pages, np.uint8)
        self.is_recent = True

    @property
    def is_free(self) -> bool:
        """Whether nothing else refers to the memory, as each view of it does, and each view of a view."""
        return sys.getrefcount(self.memory) == 2  # this object, and this call


class Memory:
    """Memory that is used again as soon as no view of it is left: memory that is new to the process is as expensive as
    decoding into it.

    What is not taken for ``seconds`` is given back, but for ``limit`` bytes. Thread-safe.
    """

    def __init__(self, limit: int, seconds: float = 2.0) -> None:
        self._limit, self._seconds = limit, seconds
        self._blocks: list[_Block] = []
        self._lock = Lock()
        self._is_watched = False

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """An array of ``nbytes`` bytes with any contents, in memory of its own."""
        if nbytes < LEAST:
            return np.empty(nbytes, np.uint8)
        with self._lock:
            fitting = [block for block in self._blocks if block.memory.nbytes >= nbytes and block.is_free]
            block = min(fitting, key=lambda each: each.memory.nbytes, default=None)
            if block is None:
                block = _Block(-(-nbytes // LEAST) * LEAST)
                self._blocks.append(block)
                self._watch()
            block.is_recent = True
            return block.memory[:nbytes]

    def trim(self) -> None:
        """Give back what has not been taken since the last time, but for the limit."""
        with self._lock:
            kept, nbytes = [], 0
            for block in self._blocks:
                if nbytes + block.memory.nbytes <= self._limit or block.is_recent or not block.is_free:
                    kept.append(block)
                    nbytes += block.memory.nbytes
                block.is_recent = False
            self._blocks, self._is_watched = kept, False
            self._watch()

    @property
    def nbytes(self) -> int:
        """Bytes that are kept, whether they are used or not."""
        return sum([block.memory.nbytes for block in self._blocks])

    def _watch(self) -> None:
        """Let `trim` come by, if there is more than the limit."""
        if self.nbytes > self._limit and not self._is_watched:
            self._is_watched = True
            timer = Timer(self._seconds, self.trim)
            timer.daemon = True
            timer.start()


MEMORY: Final = Memory(40 << 20)
"""Memory of all reads of this process."""
