"""Connections to one server that are kept for the next request."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from hyperslab.client.lean.connection import Connection


class Pool:
    """At most ``connections`` at once; who wants one more waits until one is given back."""

    def __init__(self, connections: int, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._free = connections
        self._lock = threading.Lock()
        self._given = threading.Condition(self._lock)
        self._waiting = 0
        self._idle: list[Connection] = []
        weakref.finalize(self, _close_all, self._idle)

    def take(self) -> Connection:
        """A connection for one exchange, the one used last if it is still good; raises what `connect` raises."""
        with self._lock:
            while not self._free:
                self._wait()
            self._free -= 1
        try:
            return self._idle_one() or self._connect()
        except BaseException:
            self.give(None)
            raise

    def give(self, connection: Connection | None) -> None:
        """Give a connection back, or None for one that is closed."""
        with self._lock:
            self._free += 1
            if connection is not None:
                self._idle.append(connection)
            if self._waiting:
                self._given.notify()

    def close(self) -> None:
        """Close what is idle."""
        _close_all(self._idle)

    def _wait(self) -> None:
        self._waiting += 1
        try:
            self._given.wait()
        finally:
            self._waiting -= 1

    def _idle_one(self) -> Connection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was quicker
                return None
            if connection.reusable:
                return connection
            connection.close()
        return None


def _close_all(connections: list[Connection]) -> None:
    while connections:
        try:
            connections.pop().close()
        except IndexError:  # another thread was quicker
            return
