"""Cancellation of work whose client has left."""

from __future__ import annotations

from threading import Event

from hyperslab.errors import Cancelled


class Cancel(Event):
    """A flag that another thread sets; checked between chunks."""

    def check(self) -> None:
        """Raise `Cancelled` once it is set."""
        if self.is_set():
            raise Cancelled
