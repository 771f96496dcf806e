"""HTTP with as little of a client as possible, so that what is measured is the server.

``python -m tests.benchmarks.sockets SECONDS URL...``: read all bodies at the same time and throw them away. Prints
one JSON line: bytes and seconds.
"""

from __future__ import annotations

import itertools
import json
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import urllib3

_PIECE: Final = 1 << 20
_PAUSE: Final = 0.02


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A kept-alive connection."""
    connection = Connection(url)
    try:
        yield connection
    finally:
        connection.close()


class Connection:
    """One kept-alive connection."""

    def __init__(self, url: str) -> None:
        self._pool = urllib3.connection_from_url(url, maxsize=1, timeout=60, retries=False)

    def body(self, path: str) -> bytes:
        """The body of a GET; raises `RuntimeError` for another status than 200."""
        answer = self._pool.request("GET", path)
        if answer.status != 200:
            raise RuntimeError(f"{path} gave {answer.status}")
        return answer.data

    def status(self, path: str) -> int:
        """The status of a GET."""
        return self._pool.request("GET", path).status

    def close(self) -> None:
        self._pool.close()


def view(url: str, paths: Sequence[str], *, viewers: int, seconds: float) -> list[float]:
    """Let people look: each asks for one of the ``paths``, looks at it for a moment, and asks for the next. Returns the
    seconds that each answer took."""
    found: list[float] = []
    until = time.monotonic() + seconds

    def one(first: int) -> None:
        with connected(url) as connection:
            for path in itertools.islice(itertools.cycle(paths), first, None):
                if time.monotonic() > until:
                    return
                began = time.perf_counter()
                connection.body(path)
                found.append(time.perf_counter() - began)
                time.sleep(_PAUSE)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(viewers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def drain(urls: Sequence[str], seconds: float) -> dict[str, float]:
    """Read until all bodies have ended or time is up."""
    buffer = memoryview(bytearray(_PIECE))
    total, began = 0, time.monotonic()
    with selectors.DefaultSelector() as selector:
        for url in urls:
            parts = urlsplit(url)
            connection = socket.create_connection((parts.hostname, parts.port), timeout=60)
            head = f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() - began < seconds:
            for key, _ in selector.select(1.0):
                assert isinstance(key.fileobj, socket.socket)
                count = key.fileobj.recv_into(buffer)
                total += count
                if not count:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
    return {"nbytes": total, "seconds": time.monotonic() - began}


if __name__ == "__main__":
    print(json.dumps(drain(sys.argv[2:], float(sys.argv[1]))), flush=True)
