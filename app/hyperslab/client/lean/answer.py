"""Answers whose bodies are still on their way, one class for each way that a body is delimited (RFC 9112 §6)."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

import httptools
import urllib3
from urllib3.exceptions import ProtocolError

from hyperslab.client.lean.connection import Connection
from hyperslab.client.lean.head import Head
from hyperslab.client.lean.pool import Pool
from hyperslab.client.transport import Response

_PIECE: Final = 256 << 10  # of a body that is read whole: its length is what the server says, which is not allocated
_MOST_BARREN: Final = 64 << 10
"""What follows the last chunk, like a head, may not go on for ever."""


class Answer(ABC):
    """A `Response`; its connection goes back as soon as the body is at its end."""

    __slots__ = ("_connection", "_keep_alive", "_pool", "headers", "status")

    def __init__(self, head: Head, connection: Connection, pool: Pool) -> None:
        self.status = head.status
        self.headers: Mapping[str, str] = head.headers
        self._keep_alive = head.keep_alive
        self._connection: Connection | None = connection
        self._pool = pool

    @abstractmethod
    def readinto(self, buffer: memoryview) -> int:
        """See `Response`."""

    def read(self) -> bytes:
        whole = bytearray()
        buffer = memoryview(bytearray(_PIECE))
        while count := self.readinto(buffer):
            whole += buffer[:count]
        return bytes(whole)

    def close(self) -> None:
        self._release(whole=False)

    def _release(self, *, whole: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if whole and self._keep_alive:
            self._pool.give(connection)
        else:
            connection.close()
            self._pool.give(None)


class Sized(Answer):
    """A body whose length is known: straight from the socket into the caller's buffer."""

    __slots__ = ("_left",)

    def __init__(self, head: Head, connection: Connection, pool: Pool, length: int) -> None:
        super().__init__(head, connection, pool)
        self._left = length
        if not length:
            self._release(whole=True)

    def readinto(self, buffer: memoryview) -> int:
        if self._connection is None:
            return 0
        count = self._connection.receive_into(buffer[: self._left])
        if not count and buffer:
            raise ProtocolError(f"Connection broken: the body ended {self._left} bytes early")
        self._left -= count
        if not self._left:
            self._release(whole=True)
        return count

    def read(self) -> bytes:
        if self._left > _PIECE:
            return super().read()
        whole = memoryview(bytearray(self._left))
        filled = 0
        while count := self.readinto(whole[filled:]):
            filled += count
        return bytes(whole)


class Unsized(Answer):
    """A body that ends with its connection, as of HTTP/1.0."""

    __slots__ = ()

    def readinto(self, buffer: memoryview) -> int:
        if self._connection is None:
            return 0
        count = self._connection.receive_into(buffer)
        if not count and buffer:
            self._release(whole=True)
        return count


class Chunked(Answer):
    """A body in chunks, which httptools takes apart."""

    __slots__ = ("_barren", "_events", "_parser", "_piece")

    def __init__(self, head: Head, connection: Connection, pool: Pool) -> None:
        super().__init__(head, connection, pool)
        self._parser = head.parser
        self._events = head.events
        self._piece = memoryview(b"")
        self._barren = 0  # bytes since the last ones of the body

    def readinto(self, buffer: memoryview) -> int:
        while not self._piece and self._connection is not None:
            self._receive(self._connection)
        count = min(len(buffer), len(self._piece))
        buffer[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count

    def _receive(self, connection: Connection) -> None:
        data = connection.receive()
        if not data:
            raise ProtocolError("Connection broken: the body ended before its last chunk")
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise ProtocolError(f"the body is not in chunks: {error}", error) from error
        self._barren = 0 if self._events.pieces else self._barren + len(data)
        if self._barren > _MOST_BARREN:
            raise ProtocolError(f"more than {_MOST_BARREN} bytes of a body in chunks without any of the body")
        self._piece = memoryview(b"".join(self._events.pieces))
        self._events.pieces.clear()
        if self._events.complete:
            self._release(whole=not self._events.excess)


class Decoded:
    """A `Response` whose body is compressed though nobody asked for that: urllib3 has the decoders."""

    __slots__ = ("_answer", "_decoder", "headers", "status")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.status = answer.status
        self.headers = answer.headers
        body = io.BufferedReader(_Raw(answer))
        headers = {"Content-Encoding": answer.headers["Content-Encoding"]}
        self._decoder = urllib3.HTTPResponse(body, headers, answer.status, preload_content=False)

    def readinto(self, buffer: memoryview) -> int:
        piece = self._decoder.read1(min(len(buffer), _PIECE))
        buffer[: len(piece)] = piece
        return len(piece)

    def read(self) -> bytes:
        return self._decoder.read()

    def close(self) -> None:
        self._decoder.close()
        self._answer.close()


class _Raw(io.RawIOBase):
    """A body as the file that urllib3 reads."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what io.BufferedReader gives
        return self._answer.readinto(memoryview(buffer))


def answer_of(head: Head, connection: Connection, pool: Pool) -> Response:
    """The answer that begins with ``head``; takes over ``connection``, which is from ``pool``."""
    answer: Answer
    if head.length is not None:
        answer = Sized(head, connection, pool, head.length)
    else:
        answer = (Chunked if head.chunked else Unsized)(head, connection, pool)
    if head.headers.get("Content-Encoding", "identity") == "identity":
        return answer
    return Decoded(answer)
