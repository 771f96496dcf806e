"""Memory that is used again and again: fresh pages cost as much as what is decoded into them."""

from __future__ import annotations

import sys
from threading import Lock, get_ident
from typing import Any, Final

import numpy as np

from hyperslab.arrays.pages import make_room

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_MOST_IDLE: Final = 32 << 20
"""Bytes that are kept for the next one who asks."""
_ROOMY: Final = 4
"""A buffer so many times as large as it need be is left to others."""
UNSHARED: Final = 2
"""References to what only a list holds, as ``sys.getrefcount`` counts them: the list's and its own."""


class Block:
    """A buffer of bytes, and the views of it that somebody has made, to be found again by who uses it next.

    ``user``: the thread that had it last.
    """

    __slots__ = ("memory", "user", "views")

    def __init__(self, nbytes: int) -> None:
        self.memory: Bytes = make_room(nbytes)
        self.views: dict[object, Any] = {}
        self.user = 0


class Scratch:
    """Lends blocks of memory. Safe to use from many threads."""

    def __init__(self) -> None:
        self._idle: list[Block] = []
        self._nbytes = 0
        self._lock = Lock()

    def take(self, nbytes: int) -> Block:
        """A block of at least ``nbytes`` with anything in it: the last one that this thread gave back, as it may still
        be in its processor's cache; else the last one of another."""
        thread, found = get_ident(), -1
        with self._lock:
            for at in range(len(self._idle) - 1, -1, -1):
                block = self._idle[at]
                if len(block.memory) >= nbytes and (found < 0 or block.user == thread):
                    found = at
                    if block.user == thread:
                        break
            if found >= 0:
                block = self._idle.pop(found)
                self._nbytes -= len(block.memory)
                return block
        return Block(nbytes)

    def give_back(self, block: Block) -> None:
        """Nothing but its own views refers to the memory any more. The oldest blocks go where there are too many."""
        nbytes = len(block.memory)
        if nbytes > _MOST_IDLE:
            return
        block.user = get_ident()
        with self._lock:
            self._idle.append(block)
            self._nbytes += nbytes
            while self._nbytes > _MOST_IDLE:
                self._nbytes -= len(self._idle.pop(0).memory)


class Slabs:
    """Lends buffers that nobody gives back: one is free as soon as nothing refers to it any more, which may be long
    after who took it has ended (a server holds what it has not sent yet). Safe to use from many threads.

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
