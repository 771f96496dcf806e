"""Memory that is used again and again: fresh pages cost as much as what is decoded into them."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_MOST_IDLE: Final = 32 << 20
"""Bytes that are kept for the next one who asks."""


class Scratch:
    """Lends buffers. Safe to use from many threads."""

    def __init__(self) -> None:
        self._idle: list[Bytes] = []
        self._nbytes = 0
        self._lock = Lock()

    def take(self, nbytes: int) -> Bytes:
        """A buffer of at least ``nbytes`` with anything in it; the one given back last that is large enough."""
        with self._lock:
            for i in range(len(self._idle) - 1, -1, -1):
                if len(self._idle[i]) >= nbytes:
                    memory = self._idle.pop(i)
                    self._nbytes -= len(memory)
                    return memory
        return np.empty(nbytes, np.uint8)

    def give_back(self, memory: Bytes) -> None:
        """Nothing refers to the buffer any more. The oldest ones go where there are too many."""
        if len(memory) > _MOST_IDLE:
            return
        with self._lock:
            self._idle.append(memory)
            self._nbytes += len(memory)
            while self._nbytes > _MOST_IDLE:
                self._nbytes -= len(self._idle.pop(0))
