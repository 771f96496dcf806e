"""A proxy before the real application that records requests and makes some of them go wrong."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import urllib3

from hyperslab import RemoteArray, RemoteGroup, errors, wire

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """A request as it came."""

    method: str
    route: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with one request: ``answer`` in place of the real one, or a body that is cut off.

    ``cut_after`` is the number of bytes that are sent; ``lose_answer``: the request is carried out, then the
    connection is closed. ``before`` is called first. The fault waits for a request of its ``route`` and ``method``.
    """

    answer: Answer | None = None
    cut_after: int | None = None
    lose_answer: bool = False
    before: Callable[[], None] = lambda: None
    route: str = "slice"
    method: str = "GET"


def problem(status: int, error: errors.HyperslabError, headers: Mapping[str, str] | None = None) -> Answer:
    """A problem document as the server writes it."""
    facts = {"code": error.code, "title": error.title, "detail": str(error), "status": status, **error.facts()}
    return Answer(status, {"Content-Type": wire.PROBLEM, **(headers or {})}, json.dumps(facts).encode())


class Proxy:
    """``calls`` are all requests in order, ``faults`` wait for theirs; ``max_body``: the most bytes of one body, and
    ``limits`` what node documents say of that.

    The other methods go past the proxy, as another client would.
    """

    def __init__(self, upstream: str) -> None:
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.max_body: int | None = None
        self.limits: dict[str, int] = {}
        self.threads: set[int] = set()
        self.url = ""
        self.root = RemoteGroup(f"{upstream}/v1/metadata")
        self._upstream = upstream
        self._pool = urllib3.PoolManager(maxsize=16, retries=False)
        self._lock = threading.Lock()

    def add(self, path: str, values: Array, chunks: tuple[int, ...], **members: Any) -> str:
        """An array with these values, in place of what is there; the URL of its node document."""
        self.root.create_array(path, data=values, chunks=chunks, mode="replace", **members)
        return f"{self.url}/v1/metadata/{path}"

    def node(self, path: str) -> RemoteArray:
        return self.root.open_array(path)

    def values(self, path: str) -> Array:
        """What is stored now."""
        return np.asarray(self.node(path).get())

    def increment(self, path: str = "store/a") -> None:
        """Another client adds 1 to all values."""
        self.node(path)[...] = self.values(path) + 1

    def calls_of(self, route: str, method: str = "GET") -> list[Call]:
        return [call for call in self.calls if (call.route, call.method) == (route, method)]

    def take_fault(self, call: Call) -> Fault:
        with self._lock:
            self.calls.append(call)
            self.threads.add(threading.get_ident())
            for fault in self.faults:
                if (fault.route, fault.method) == (call.route, call.method):
                    self.faults.remove(fault)
                    return fault
        return Fault()

    def answer(self, call: Call, target: str) -> Answer:
        """The application's answer."""
        headers = {name: value for name, value in call.headers.items() if name != "Connection"}
        got = self._pool.request(call.method, self._upstream + target, body=call.body, headers=headers, redirect=False)
        nbytes = max(len(call.body), len(got.data)) if call.route != "metadata" else 0
        if self.max_body is not None and got.status < 300 and nbytes > self.max_body:
            return problem(413, errors.TooLarge(what="values", requested=nbytes, limit=self.max_body))
        body = got.data
        if self.limits and (call.method, call.route) == ("GET", "metadata"):
            body = json.dumps({**json.loads(body), "limits": self.limits}).encode()
        return Answer(got.status, dict(got.headers), body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: Proxy

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        _, _, route, *tail = parts.path.split("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote("/".join(tail)).strip("/")
        call = Call(self.command, route, path, query, dict(self.headers.items()), body)
        fault = self.proxy.take_fault(call)
        fault.before()
        answer = fault.answer or self.proxy.answer(call, self.path)
        self.close_connection = fault.lose_answer or fault.cut_after is not None
        if not fault.lose_answer:
            self._send(answer, fault.cut_after)

    def _send(self, answer: Answer, cut_after: int | None) -> None:
        self.send_response(answer.status)
        length = {"content-length": str(len(answer.body))} if self.command != "HEAD" else {}
        for name, value in ({name.lower(): value for name, value in answer.headers.items()} | length).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body[:cut_after])

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815 - names of http.server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Tests keep their output."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves in the middle is what some tests are about; all else shows."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def fault_proxy(upstream: str) -> Iterator[Proxy]:
    """A proxy before the application at ``upstream``, on a free port of the loopback while the context lasts."""
    proxy = Proxy(upstream)
    server = _Server(("127.0.0.1", 0), type("_BoundHandler", (_Handler,), {"proxy": proxy}))
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        proxy.root.close()
