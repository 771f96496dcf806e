"""Reused memory: fresh pages cost as much as what is decoded into them."""

from __future__ import annotations

import sys
from threading import Lock
from typing import Any, Final

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_MOST_IDLE: Final = 32 << 20
"""Bytes of scratch memory that are kept."""
_ROOMY: Final = 4
"""A buffer so many times as large as it need be is left to others."""
UNSHARED: Final = 2
"""References to what only a list holds, as ``sys.getrefcount`` counts them: the list's and its own."""


class Scratch:
    """Memory for one chunk, lent and given back. Safe to use from many threads."""

    def __init__(self) -> None:
        self._idle: list[Bytes] = []
        self._nbytes = 0
        self._lock = Lock()

    def take(self, nbytes: int) -> Bytes:
        """At least ``nbytes`` of memory with anything in it: the latest that is large enough."""
        with self._lock:
            for at in range(len(self._idle) - 1, -1, -1):
                if len(self._idle[at]) >= nbytes:
                    memory = self._idle.pop(at)
                    self._nbytes -= len(memory)
                    return memory
        return np.empty(nbytes, np.uint8)

    def give_back(self, memory: Bytes) -> None:
        """Nothing refers to the memory any more. The oldest goes where there is too much."""
        if len(memory) > _MOST_IDLE:
            return
        with self._lock:
            self._idle.append(memory)
            self._nbytes += len(memory)
            while self._nbytes > _MOST_IDLE:
                self._nbytes -= len(self._idle.pop(0))


class Slabs:
    """Buffers that nobody gives back: one is free as soon as nothing refers to it any more, which may be long after the
    read has ended (a server holds what it has not sent yet). Safe to use from many threads.

    ``most``: bytes that are remembered, and so stay with the process.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: list[Bytes] = []
        self._nbytes = 0
        self._lock = Lock()

    def take(self, nbytes: int) -> Bytes:
        """A buffer of ``nbytes`` with anything in it."""
        with self._lock:
            slab = self._find(nbytes)
            if slab is None:
                slab = np.empty(nbytes, np.uint8)
                self._nbytes += nbytes
            self._known.append(slab)
            while self._nbytes > self._most:
                self._nbytes -= self._known.pop(0).nbytes
        return slab[:nbytes]

    def _find(self, nbytes: int) -> Bytes | None:
        known = self._known
        for at in range(len(known)):
            if nbytes <= known[at].nbytes <= _ROOMY * nbytes and sys.getrefcount(known[at]) <= UNSHARED:
                return known.pop(at)
        return None

    def forget(self) -> None:
        """Let go of all that is free, and of the rest as soon as it is."""
        with self._lock:
            self._known.clear()
            self._nbytes = 0
