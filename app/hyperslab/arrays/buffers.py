"""Pool of reused buffers: fresh pages cost as much as what is decoded into them."""

from __future__ import annotations

import weakref
from threading import Lock
from typing import Any, Final

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_ROOMY: Final = 4
"""A buffer so many times as large as it need be is left to others."""


class Buffers:
    """Buffers that come back by themselves as soon as nothing refers to them any more, which may be long after the read
    has ended: a server holds what it has not sent yet. Safe to use from many threads.

    ``most``: bytes of free buffers that stay with the process.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._free: list[Bytes] = []
        self._nbytes = 0
        self._lock = Lock()

    def take(self, nbytes: int) -> Bytes:
        """A buffer of ``nbytes`` with anything in it."""
        memory = self._pop(nbytes)
        if memory is None:
            memory = np.empty(nbytes, np.uint8)
        lent = np.frombuffer(memoryview(memory.data), np.uint8)  # which all views of it refer to, and so keep alive
        weakref.finalize(lent, self._give_back, memory).atexit = False
        return lent[:nbytes]

    def forget(self) -> None:
        """Let go of all that is free."""
        with self._lock:
            self._free.clear()
            self._nbytes = 0

    def _pop(self, nbytes: int) -> Bytes | None:
        with self._lock:
            for at, memory in enumerate(self._free):
                if nbytes <= memory.nbytes <= _ROOMY * nbytes:
                    self._nbytes -= memory.nbytes
                    return self._free.pop(at)
        return None

    def _give_back(self, memory: Bytes) -> None:
        """Called wherever the last reference goes, perhaps by the garbage collector while the lock is held: then the
        buffer is let go."""
        if self._lock.acquire(blocking=False):
            try:
                self._free.append(memory)
                self._nbytes += memory.nbytes
                while self._nbytes > self._most:
                    self._nbytes -= self._free.pop(0).nbytes
            finally:
                self._lock.release()
