"""Cancellation of work for a client that has disconnected."""

from __future__ import annotations

from threading import Event

from hyperslab.errors import Cancelled


class Cancel(Event):
    """Cancellation flag, set by another thread and checked between chunks."""

    def check(self) -> None:
        """Raise `Cancelled` if the flag is set."""
        if self.is_set():
            raise Cancelled
