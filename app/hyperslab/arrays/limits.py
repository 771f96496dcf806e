"""Limits: a budget of bytes for answers under way."""

from __future__ import annotations

from threading import Lock


class BytesInFlight:
    """A budget of bytes that answers under way may hold. Nobody waits in here: who gets False tries again later."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = 0
        self._lock = Lock()

    def try_reserve(self, nbytes: int, own: int = 0) -> bool:
        """Take ``nbytes`` of the budget beside one's ``own``, or nothing. What is larger than all of it goes alone."""
        with self._lock:
            if self._held > own and self._held + nbytes > self.limit:
                return False
            self._held += nbytes
            return True

    def release(self, nbytes: int) -> None:
        with self._lock:
            self._held -= nbytes

    @property
    def held(self) -> int:
        return self._held

    @property
    def room(self) -> int:
        """What is left at the moment."""
        return max(0, self.limit - self._held)
