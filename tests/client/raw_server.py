"""A server of bytes: what it sends is up to the test, well-formed or not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PATIENCE = 60.0


@dataclass
class Received:
    """One request."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Peer:
    """One connection, seen from the server; ``number`` counts them from 0."""

    socket: socket.socket
    number: int
    kept: bytes = b""

    def receive(self) -> Received | None:
        """A whole request; None where the client has left."""
        while b"\r\n\r\n" not in self.kept:
            piece = self.socket.recv(1 << 16)
            if not piece:
                return None
            self.kept += piece
        head, _, self.kept = self.kept.partition(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(each.split(": ", 1) for each in lines)
        length = int(headers.get("Content-Length", "0"))
        while len(self.kept) < length:
            self.kept += self.socket.recv(1 << 20)
        body, self.kept = self.kept[:length], self.kept[length:]
        return Received(line, headers, body)

    def send(self, *pieces: bytes) -> None:
        """Each piece as a packet of its own."""
        for piece in pieces:
            self.socket.sendall(piece)


Serve = Callable[[Peer, "RawServer"], None]
"""What is done with a connection; it is closed afterwards."""


@dataclass
class RawServer:
    """Holds what came: ``requests`` in their order, and how many ``connections``."""

    url: str
    requests: list[Received] = field(default_factory=list)
    connections: int = 0


def answering(*answers: bytes) -> Serve:
    """Answer the requests on each connection with these bytes in turn, the last one again and again."""

    def serve(peer: Peer, server: RawServer) -> None:
        for number in range(1000):
            request = peer.receive()
            if request is None:
                return
            server.requests.append(request)
            peer.send(answers[min(number, len(answers) - 1)])

    return serve


def once(*pieces: bytes) -> Serve:
    """Answer one request with these packets, and close the connection."""

    def serve(peer: Peer, server: RawServer) -> None:
        if request := peer.receive():
            server.requests.append(request)
            peer.send(*pieces)

    return serve


@contextmanager
def raw_server(serve: Serve) -> Iterator[RawServer]:
    """Serve connections, each in a thread of its own, while the context lasts."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = RawServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
    threads: list[threading.Thread] = []
    sockets: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):  # the listener is closed at the end
            while True:
                connected, _ = listener.accept()
                sockets.append(connected)
                thread = threading.Thread(target=_serve, args=(serve, connected, server), daemon=True)
                threads.append(thread)
                thread.start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for connected, thread in zip(sockets, threads, strict=True):
            with suppress(OSError):  # it may be closed
                connected.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)


def _serve(serve: Serve, connected: socket.socket, server: RawServer) -> None:
    connected.settimeout(PATIENCE)
    peer = Peer(connected, server.connections)
    server.connections += 1
    with connected, suppress(OSError):  # the client may leave at any time
        serve(peer, server)
