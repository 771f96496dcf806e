"""A small HTTP proxy that goes wrong on command: put it between a service and its store.

    with FaultProxy(server.url) as proxy:
        proxy.inject(Status(503), method="GET", times=2)
        proxy.inject(ResetAfter(), method="PUT", path="/bucket/key")
        ...
        proxy.seen  # every request that came: Seen(method, path, headers)

Each request takes the first fault in the list that matches it and has some left; without one it is passed on untouched.
It speaks plain HTTP/1.1, one upstream connection a request, and is a real socket server on 127.0.0.1.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


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
        self._server = _Server(("127.0.0.1", 0), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

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
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], proxy: FaultProxy) -> None:
        super().__init__(address, _Handler)
        self.proxy = proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are part of the play."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _handle(self) -> None:
        body = self._read_body()
        fault = self.server.proxy.take(Seen(self.command, self.path, dict(self.headers), body))
        if isinstance(fault, Reset):
            self._cut()
        elif isinstance(fault, Stall):
            self.rfile.read(1)
            self.close_connection = True
        elif isinstance(fault, Status):
            self._answer(fault.status, dict(fault.headers), fault.body)
        else:
            if isinstance(fault, Delay):
                time.sleep(fault.seconds)
            if isinstance(fault, Before):
                fault.action()
            self._finish(fault, *self._ask_upstream(body, fault))

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815  (the base class looks for these)

    def _read_body(self) -> bytes:
        if "100-continue" in self.headers.get("Expect", ""):
            self.send_response_only(100)
            self.end_headers()
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _ask_upstream(self, body: bytes, fault: Fault | None) -> tuple[int, dict[str, str], bytes]:
        if isinstance(fault, Cut):
            body = body[: fault.size]
            self.headers.replace_header("Content-Length", str(len(body)))
        dropped = {name.lower() for name in fault.names} if isinstance(fault, DropHeaders) else set()
        headers = {k: v for k, v in self.headers.items() if k.lower() not in dropped | {"expect", "connection"}}
        upstream = http.client.HTTPConnection(*self.server.proxy.upstream, timeout=60)
        try:
            upstream.request(self.command, self.path, body=body or None, headers=headers)
            answer = upstream.getresponse()
            self.server.proxy.answers.append((self.command, self.path, answer.status))
            return answer.status, dict(answer.headers), answer.read()
        finally:
            upstream.close()

    def _finish(self, fault: Fault | None, status: int, headers: dict[str, str], body: bytes) -> None:
        if isinstance(fault, Cut) or (isinstance(fault, LoseAnswer) and fault.status is None):
            self._cut()
        elif isinstance(fault, LoseAnswer) and fault.status is not None:
            self._answer(fault.status, {}, b"")
        elif isinstance(fault, DenyMissing) and (status == 404 or "list-type" in self.path):
            self._answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
        elif isinstance(fault, Truncate):
            self._answer(status, headers | {"Content-Length": str(len(body))}, body[: fault.size])
            self.close_connection = True
        else:
            self._answer(status, headers, body)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        kept = {k.lower(): v for k, v in headers.items() if k.lower() not in ("transfer-encoding", "connection")}
        if self.command != "HEAD" and status != 204:
            kept.setdefault("content-length", str(len(body)))
        for name, value in kept.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _cut(self) -> None:
        """Close with RST: linger of zero seconds."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.rfile.close()
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class calls it so)
        """Tests have no use for an access log."""
