"""Cancellation of work whose client has left."""

from __future__ import annotations

from threading import Event

from hyperslab.errors import Cancelled


class Cancel:
    """A flag that another thread sets; checked between chunks."""

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
