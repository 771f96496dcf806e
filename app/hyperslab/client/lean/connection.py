"""One connection to a server: requests out, heads and bodies in."""

from __future__ import annotations

import select
import socket
from typing import Final

from urllib3 import exceptions
from urllib3.exceptions import ProtocolError

from hyperslab.client.cancel import watch
from hyperslab.client.lean.head import Head, parse_head
from hyperslab.client.lean.request import Origin

_BUFFER: Final = 64 << 10
"""Bytes of the longest head, with the interim answers before it: no server is to fill our memory with them."""
_BESIDE_HEAD: Final = 64 << 10  # of a body: worth a copy, to leave in one go with the head
_NOTHING: Final = memoryview(b"")


class Connection:
    """Not for several threads at once. What arrives beyond a head is kept, and handed out first."""

    __slots__ = ("_begin", "_buffer", "_end", "_origin", "_poll", "_socket", "_timeout", "_view")

    def __init__(self, origin: Origin, connected: socket.socket, timeout: float) -> None:
        self._origin = origin
        self._socket = connected
        self._timeout = timeout
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)
        self._begin = self._end = 0  # what is in the buffer and was not handed out

    @classmethod
    def open(cls, origin: Origin, *, connect_timeout: float, read_timeout: float) -> Connection:
        """Raises urllib3's `NewConnectionError` or `ConnectTimeoutError`."""
        try:
            connected = socket.create_connection((origin.host, origin.port), connect_timeout)
        except socket.gaierror as error:
            raise exceptions.NameResolutionError(origin.host, origin, error) from error  # type: ignore[arg-type]
        except TimeoutError as error:
            message = f"Connection to {origin.host} timed out. (connect timeout={connect_timeout})"
            raise exceptions.ConnectTimeoutError(origin, message) from error
        except OSError as error:
            message = f"Failed to establish a new connection: {error}"
            raise exceptions.NewConnectionError(origin, message) from error  # type: ignore[arg-type]
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(read_timeout)
        return cls(origin, connected, read_timeout)

    @property
    def reusable(self) -> bool:
        """Whether another request may follow: nothing came too much, and the server has not left."""
        return self._begin == self._end and not self._poll.poll(0)

    def exchange(self, method: str, head: bytes, body: memoryview) -> Head:
        """Send a request and receive the head of its answer.

        Where the answer comes while the body is on its way, the rest stays here and the connection ends with the
        answer. Raises `ProtocolError` and urllib3's
        `TimeoutError`.
        """
        self._begin = self._end = 0
        watch(self._socket)
        rest = self._send_beginning(head, body)
        while True:
            if rest:
                rest = self._send(rest)
            answer = parse_head(self._receive_head(), method)
            if answer.status >= 200:  # those below announce another one (RFC 9110 §15.2)
                answer.keep_alive = answer.keep_alive and not rest
                return answer

    def receive_into(self, buffer: memoryview) -> int:
        """Some bytes of the body, at most as many as ``buffer`` holds; 0 where the server has closed the connection."""
        kept = min(self._end - self._begin, len(buffer))
        if not kept:
            return self._receive(buffer)
        buffer[:kept] = self._view[self._begin : self._begin + kept]
        self._begin += kept
        return kept

    def receive(self) -> memoryview:
        """What has come, valid until the next call; empty where the server has closed the connection."""
        if self._begin == self._end:
            self._begin, self._end = 0, self._receive(self._view)
        piece = self._view[self._begin : self._end]
        self._begin = self._end
        return piece

    def close(self) -> None:
        self._socket.close()

    def _send_beginning(self, head: bytes, body: memoryview) -> memoryview:
        """Send the head with all of a small body; the rest of a large one."""
        try:
            self._socket.sendall(b"".join((head, body[:_BESIDE_HEAD])) if body else head)
        except OSError as error:
            self._bear(error)
        return body[_BESIDE_HEAD:]

    def _send(self, rest: memoryview) -> memoryview:
        """Send until all is gone or the server has something to say; what is left then."""
        try:
            while rest and self._may_send():
                rest = rest[self._socket.send(rest) :]
        except OSError as error:
            self._bear(error)
        return rest

    def _may_send(self) -> bool:
        """Wait until more can be sent, or until there is something to read."""
        self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
        try:
            ready = self._poll.poll(self._timeout * 1000)
        finally:
            self._poll.modify(self._socket, select.POLLIN)
        if not ready:
            raise exceptions.TimeoutError(f"{self._origin}: nothing could be sent for {self._timeout} s")
        return ready[0][1] == select.POLLOUT

    def _bear(self, error: OSError) -> None:
        """A server may answer and close before it has read everything: its answer can still be received."""
        if not isinstance(error, BrokenPipeError | ConnectionResetError):
            raise ProtocolError("Connection aborted.", error) from error

    def _receive_head(self) -> memoryview:
        """A head with its blank line; what follows stays in the buffer."""
        begin = searched = self._begin
        while (found := self._buffer.find(b"\r\n\r\n", searched, self._end)) < 0:
            if self._buffer.find(b"\n\n", begin, self._end) >= 0:
                raise ProtocolError("the answer is not HTTP: its lines end without a carriage return")
            searched = max(begin, self._end - 3)
            self._receive_more()
        self._begin = found + 4
        return self._view[begin : self._begin]

    def _receive_more(self) -> None:
        if self._end == _BUFFER:
            raise ProtocolError(f"the head of the answer is longer than {_BUFFER} bytes")
        count = self._receive(self._view[self._end :])
        if not count:
            raise ProtocolError("Connection aborted.", ConnectionResetError("the server closed it without an answer"))
        self._end += count

    def _receive(self, buffer: memoryview) -> int:
        try:
            return self._socket.recv_into(buffer)
        except TimeoutError as error:
            message = f"Read timed out. (read timeout={self._timeout})"
            raise exceptions.ReadTimeoutError(self._origin, "/", message) from error  # type: ignore[arg-type]
        except OSError as error:
            raise ProtocolError(f"Connection broken: {error!r}", error) from error
