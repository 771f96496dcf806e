"""A small HTTP proxy that goes wrong on command: put it between a service and its store.

    with FaultProxy(server.url) as proxy:
        proxy.inject(Status(503), method="GET", times=2)
        proxy.inject(ResetAfter(), method="PUT", path="/bucket/key")
        ...
        proxy.seen  # every request that came: Seen(method, path, headers)

Each request takes the first fault in the list that matches it and has some left; without one it is passed on untouched.
It speaks plain HTTP/1.1, one upstream connection for each of a client, and is a real socket server on 127.0.0.1.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import httptools


@dataclass(frozen=True, slots=True)
class Status:
    """Answer with ``status`` and do not ask upstream."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait before passing on: longer than the client's time-out, it is one."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stall:
    """Keep the request until the client gives up; upstream never hears of it, not even too late."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Cut the connection (RST) before upstream hears of the request."""


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """Let upstream do the work, then cut the connection (``status`` None) or answer with ``status`` instead."""

    status: int | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """Pass on the first ``size`` bytes of the body as if they were all, then cut the connection."""

    size: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Send the true headers, but only the first ``size`` bytes of the body, then close."""

    size: int


@dataclass(frozen=True, slots=True)
class DropHeaders:
    """Pass on without these request headers: a server that does not know of them."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Before:
    """Run ``action`` (another writer, say) and then pass on."""

    action: Callable[[], object]


@dataclass(frozen=True, slots=True)
class DenyMissing:
    """Answer 403 for missing keys and to listings, as S3 does without the right to list."""


Fault = Status | Delay | Stall | Reset | LoseAnswer | Cut | Truncate | DropHeaders | Before | DenyMissing


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came: ``path`` includes the query."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(slots=True)
class _Rule:
    fault: Fault
    method: str | None
    path: str
    left: float

    def matches(self, method: str, path: str) -> bool:
        return self.left > 0 and self.method in (None, method) and self.path in path


class FaultProxy:
    """See the module; ``upstream`` is ``http://host:port``."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        assert parts.hostname is not None
        assert parts.port is not None
        self.upstream = (parts.hostname, parts.port)
        self.seen: list[Seen] = []
        self.answers: list[tuple[str, str, int]] = []
        """Method, path and status of every answer of the upstream server, in the order they came."""
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def inject(self, fault: Fault, *, method: str | None = None, path: str = "", times: float = 1) -> None:
        """Use ``fault`` on the next ``times`` requests (``math.inf``: all) of ``method`` with ``path`` in their URL."""
        with self._lock:
            self._rules.append(_Rule(fault, method, path, times))

    def heal(self) -> None:
        """Forget all faults and what was seen."""
        with self._lock:
            self._rules.clear()
            self.seen.clear()
            self.answers.clear()

    def take(self, seen: Seen) -> Fault | None:
        """Note a request and take the fault it is to meet."""
        with self._lock:
            self.seen.append(seen)
            rule = next((r for r in self._rules if r.matches(seen.method, seen.path)), None)
            if rule is None:
                return None
            rule.left -= 1
            return rule.fault

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=_Connection(self, client).run, daemon=True).start()


class _Message:
    """A request or an answer, as the parser finds its parts."""

    def __init__(self) -> None:
        self.url, self.headers, self.body = b"", dict[str, str](), bytearray()
        self.has_head = self.is_complete = False

    def on_url(self, part: bytes) -> None:
        self.url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1")] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.has_head = True

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.is_complete = True


class _Connection:
    """A client's, and the one to upstream that serves it."""

    def __init__(self, proxy: FaultProxy, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._proxy, self._client = proxy, client
        self._upstream: socket.socket | None = None
        self._is_open = True

    def run(self) -> None:
        """Clients that hang up are part of the play."""
        with self._client, suppress(OSError, httptools.HttpParserError):
            while self._is_open:
                self._handle()
        if self._upstream is not None:
            self._upstream.close()

    def _handle(self) -> None:
        asked = _Message()
        parser = httptools.HttpRequestParser(asked)
        while not asked.is_complete:
            self._feed(parser, self._client)
            if asked.has_head and not asked.is_complete and {"Expect", "expect"} & asked.headers.keys():
                self._client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        method, path, body = parser.get_method().decode(), asked.url.decode("latin-1"), bytes(asked.body)
        fault = self._proxy.take(Seen(method, path, dict(asked.headers), body))
        self._is_open = parser.should_keep_alive()
        if isinstance(fault, Reset):
            self._cut()
        elif isinstance(fault, Stall):
            self._client.recv(1)
            self._is_open = False
        elif isinstance(fault, Status):
            self._answer(method, fault.status, dict(fault.headers), fault.body)
        else:
            if isinstance(fault, Delay):
                time.sleep(fault.seconds)
            if isinstance(fault, Before):
                fault.action()
            body = body[: fault.size] if isinstance(fault, Cut) else body
            dropped = fault.names if isinstance(fault, DropHeaders) else ()
            self._finish(fault, method, path, *self._ask_upstream(method, path, asked, body, dropped))

    def _feed(self, parser: httptools.HttpRequestParser | httptools.HttpResponseParser, source: socket.socket) -> None:
        data = source.recv(1 << 18)
        if not data:
            raise ConnectionResetError
        parser.feed_data(data)

    def _ask_upstream(
        self, method: str, path: str, asked: _Message, body: bytes, dropped: tuple[str, ...]
    ) -> tuple[int, dict[str, str], bytes]:
        ours = {name.lower() for name in dropped} | {"expect", "connection", "content-length", "transfer-encoding"}
        headers = {name: value for name, value in asked.headers.items() if name.lower() not in ours}
        if body or method not in ("GET", "HEAD", "DELETE"):
            headers["Content-Length"] = str(len(body))
        upstream = self._connect()
        upstream.sendall(_head(f"{method} {path} HTTP/1.1", headers) + body)
        answer = _Message()
        parser = httptools.HttpResponseParser(answer)
        while not (answer.is_complete or (answer.has_head and method == "HEAD")):
            self._feed(parser, upstream)
        if not parser.should_keep_alive():
            upstream.close()
            self._upstream = None
        self._proxy.answers.append((method, path, parser.get_status_code()))
        return parser.get_status_code(), answer.headers, bytes(answer.body)

    def _connect(self) -> socket.socket:
        """The connection of the last request, unless the server has closed it."""
        if self._upstream is not None and select.select([self._upstream], [], [], 0)[0]:
            self._upstream.close()
            self._upstream = None
        if self._upstream is None:
            self._upstream = socket.create_connection(self._proxy.upstream, timeout=60)
            self._upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._upstream

    def _finish(
        self, fault: Fault | None, method: str, path: str, status: int, headers: dict[str, str], body: bytes
    ) -> None:
        if isinstance(fault, Cut) or (isinstance(fault, LoseAnswer) and fault.status is None):
            self._cut()
        elif isinstance(fault, LoseAnswer) and fault.status is not None:
            self._answer(method, fault.status, {}, b"")
        elif isinstance(fault, DenyMissing) and (status == 404 or "list-type" in path):
            self._answer(method, 403, {}, b"<Error><Code>AccessDenied</Code></Error>")
        elif isinstance(fault, Truncate):
            headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
            self._answer(method, status, headers | {"Content-Length": str(len(body))}, body[: fault.size])
            self._is_open = False
        else:
            self._answer(method, status, headers, body)

    def _answer(self, method: str, status: int, headers: dict[str, str], body: bytes) -> None:
        kept = {k.lower(): v for k, v in headers.items() if k.lower() not in ("transfer-encoding", "connection")}
        if method != "HEAD" and status not in (204, 304):
            kept.setdefault("content-length", str(len(body)))
        self._client.sendall(_head(f"HTTP/1.1 {status} -", kept) + (body if method != "HEAD" else b""))

    def _cut(self) -> None:
        """Close with RST: linger of zero seconds."""
        self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._is_open = False


def _head(first: str, headers: Mapping[str, str]) -> bytes:
    lines = [first, *[f"{name}: {value}" for name, value in headers.items()], "", ""]
    return "\r\n".join(lines).encode("latin-1")
