"""What ends the work of several threads at once, also where they wait for a server that says nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from hyperslab.errors import Cancelled


class Cancel:
    """Tells the threads of one read or write that nobody wants the rest."""

    __slots__ = ("_event", "_lock", "_sockets")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._sockets: dict[int, socket.socket] = {}  # by thread: each waits for one answer at a time

    def set(self) -> None:
        """Let `check` and `pause` raise, and cut the connections of the threads that are `at_work`."""
        self._event.set()
        with self._lock:
            for used in self._sockets.values():
                _cut(used)

    def check(self) -> None:
        """Raises `Cancelled` once `set` was called."""
        if self._event.is_set():
            raise Cancelled

    def pause(self, seconds: float) -> None:
        """Wait; raises `Cancelled` as soon as `set` is called."""
        if self._event.wait(seconds):
            raise Cancelled

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """What this thread sends and receives is for the work that this cancels."""
        _OF_THREAD.cancel = self
        try:
            yield
        finally:
            _OF_THREAD.cancel = None
            with self._lock:  # from here on the connection may be somebody else's
                self._sockets.pop(threading.get_ident(), None)

    def _watch(self, used: socket.socket) -> None:
        with self._lock:
            self._sockets[threading.get_ident()] = used
        if self._event.is_set():
            _cut(used)


class _OfThread(threading.local):
    cancel: Cancel | None = None


_OF_THREAD: Final = _OfThread()


def watch(used: socket.socket | None) -> None:
    """This thread is about to wait for ``used``: whoever cancels its work does not wait as well."""
    if used is not None and _OF_THREAD.cancel is not None:
        _OF_THREAD.cancel._watch(used)


def _cut(used: socket.socket) -> None:
    """Wake whoever waits for it: to that thread it is a broken connection."""
    with suppress(OSError):  # it is closed already
        socket.socket.shutdown(used, socket.SHUT_RDWR)  # not that of TLS, which is not for two threads


NEVER: Final = Cancel()
"""For what nobody cancels."""
