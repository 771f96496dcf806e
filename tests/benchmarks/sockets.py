"""HTTP with as little of a client as possible, so that what is measured is the server."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, ``nbytes`` of the body, the head as text, and seconds to the first byte and to the last."""

    status: int
    nbytes: int
    head: str
    first: float
    last: float


class Connection:
    """A kept-alive connection that throws bodies away. Knows bodies with a Content-Length only."""

    def __init__(self, url: str, *, timeout: float = 60.0) -> None:
        parts = urlsplit(url)
        self._host = parts.netloc
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(_PIECE))

    def get(self, path: str, **headers: str) -> Reply:
        """GET, and read all of the body. Raises `ConnectionError` where it ends early."""
        began = time.perf_counter()
        fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n{fields}\r\n".encode())
        head, have = self._head()
        first = time.perf_counter() - began
        status, length = int(head[9:12]), _content_length(head)
        for _ in self._rest(length - have):
            pass
        return Reply(status, length, head, first, time.perf_counter() - began)

    def body(self, path: str) -> bytes:
        """The body of a GET."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        head, have = self._head()
        start = self._buffer[len(head) + 4 : len(head) + 4 + have]
        parts = [bytes(start), *(bytes(self._buffer[:n]) for n in self._rest(_content_length(head) - have))]
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()

    def _head(self) -> tuple[str, int]:
        """The head without its empty line, and how many bytes of the body came with it."""
        have = 0
        while True:
            count = self._socket.recv_into(self._buffer[have:])
            if not count:
                raise ConnectionError("the server closed the connection")
            have += count
            end = bytes(self._buffer[:have]).find(b"\r\n\r\n")
            if end >= 0:
                return str(self._buffer[:end], "latin-1"), have - end - 4

    def _rest(self, left: int) -> Iterator[int]:
        """Sizes of the pieces that are read into the buffer."""
        while left > 0:
            count = self._socket.recv_into(self._buffer[: min(left, _PIECE)])
            if not count:
                raise ConnectionError(f"the body ended {left} bytes early")
            left -= count
            yield count


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    connection = Connection(url)
    try:
        yield connection
    finally:
        connection.close()


def _content_length(head: str) -> int:
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            return int(value)
    return 0
