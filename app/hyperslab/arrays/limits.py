"""Limits: a budget of bytes for responses in flight."""

from __future__ import annotations

from threading import Lock


class BytesInFlight:
    """A budget of bytes for responses in flight. It never blocks: callers retry after False."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._reserved = 0
        self._lock = Lock()

    def try_reserve(self, nbytes: int, own: int = 0) -> bool:
        """Reserve ``nbytes`` on top of the caller's ``own``, or nothing. A reservation above the whole budget is
        granted alone."""
        with self._lock:
            if self._reserved > own and self._reserved + nbytes > self.limit:
                return False
            self._reserved += nbytes
            return True

    def release(self, nbytes: int) -> None:
        with self._lock:
            self._reserved -= nbytes

    @property
    def held(self) -> int:
        return self._reserved

    @property
    def room(self) -> int:
        """Bytes available now."""
        return max(0, self.limit - self._reserved)
