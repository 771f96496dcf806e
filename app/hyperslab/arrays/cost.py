"""Read statistics and cancellation."""

from __future__ import annotations

from collections import defaultdict
from threading import Event, Lock

from hyperslab.errors import Cancelled


class Cancel:
    """Cancellation of work whose client has left; checked between chunks."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        """Raise `Cancelled` once `set` was called."""
        if self._event.is_set():
            raise Cancelled


class ReadCost:
    """Statistics of one request: chunks touched and found in the cache, bytes read from the store, and seconds by
    phase; safe to add to from many threads.

    ``moved``: a chunk was read in another version than the one that was looked up, and so was written meanwhile.
    """

    __slots__ = ("_lock", "bytes_read", "cached", "moved", "timings", "touched")

    def __init__(self) -> None:
        self.touched = self.cached = self.bytes_read = 0
        self.moved = False
        self.timings: defaultdict[str, float] = defaultdict(float)
        self._lock = Lock()

    def add(self, *, touched: int = 0, cached: int = 0) -> None:
        with self._lock:
            self.touched += touched
            self.cached += cached

    def chunk(self, bytes_read: int, *, fetch: float, decode: float) -> None:
        """Add one chunk: bytes from the store, and seconds."""
        with self._lock:
            self.bytes_read += bytes_read
            self.timings["fetch"] += fetch
            self.timings["decode"] += decode

    def spend(self, phase: str, seconds: float) -> None:
        """Add to a phase; phases of chunks that are read concurrently add up to more than the clock shows."""
        with self._lock:
            self.timings[phase] += seconds
