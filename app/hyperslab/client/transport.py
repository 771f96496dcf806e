"""HTTP transport: the interface, its implementation over urllib3, and cancellation.

A transport makes single attempts; `Session` retries, and `Body` resumes.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, Protocol

import urllib3
from urllib3 import connection
from urllib3.exceptions import ProtocolError, ProxyError, SSLError
from urllib3.response import BaseHTTPResponse, HTTPResponse

from hyperslab.errors import Cancelled

Body = bytes | memoryview | Sequence[memoryview]
"""Request body, repeatable; with several parts, the headers have a Content-Length."""

BROKEN_CONNECTION: tuple[type[Exception], ...] = (
    urllib3.exceptions.ProtocolError,
    urllib3.exceptions.TimeoutError,
    urllib3.exceptions.NewConnectionError,
    ConnectionError,
    TimeoutError,
)
"""Exceptions of a transport after which a retry may succeed."""


class Response(Protocol):
    """HTTP response; the caller reads and closes the body."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Case-insensitive."""
        ...

    def readinto(self, buffer: memoryview) -> int:
        """Read bytes of the body into ``buffer`` and return their number; 0 at the end."""
        ...

    def read(self) -> bytes:
        """The remaining body."""
        ...

    def close(self) -> None:
        """Release the connection; it is closed if the body was not read to its end."""
        ...


class Transport(Protocol):
    """Sends a request and returns the response; raises one of `BROKEN_CONNECTION` if none arrives. Thread-safe and
    picklable."""

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Body | None) -> Response: ...

    def close(self) -> None: ...


class Cancel:
    """Cancellation of an operation, including threads that wait for a response."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._sockets: dict[int, socket.socket] = {}  # by thread

    def set(self) -> None:
        """Cancel: `check` and `pause` raise, and connections of threads in a `scope` are shut down."""
        self._event.set()
        with self._lock:
            for each in self._sockets.values():
                _shut_down(each)

    def check(self) -> None:
        """Raises `Cancelled` after `set`."""
        if self._event.is_set():
            raise Cancelled

    def pause(self, seconds: float) -> None:
        """Sleep; raises `Cancelled` as soon as `set` is called."""
        if self._event.wait(seconds):
            raise Cancelled

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Context in which this thread's requests are subject to this cancellation, as `CANCEL`."""
        before = CANCEL.set(self)
        try:
            yield
        finally:
            CANCEL.reset(before)
            with self._lock:
                self._sockets.pop(threading.get_ident(), None)

    def watch(self, connection: socket.socket | None) -> None:
        """Register the socket that this thread is going to wait for (None in a browser)."""
        if connection is not None:
            with self._lock:
                self._sockets[threading.get_ident()] = connection
            if self._event.is_set():
                _shut_down(connection)


CANCEL: Final = ContextVar("CANCEL", default=Cancel())  # noqa: B039 - shared, as it is never set
"""The cancellation of the current thread; by default one that is never set."""


def _shut_down(connection: socket.socket) -> None:
    """Break a connection, which wakes the thread that waits for it."""
    with suppress(OSError):  # already closed
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not SSLSocket's, which is not thread-safe


class HTTPTransport:
    """Transport over urllib3, with at most ``connections`` keep-alive connections per host.

    ``connect_timeout`` and ``read_timeout`` are in seconds; the latter is for each read, not for the whole body.
    ``proxy`` is the URL of an HTTP proxy. ``pool_options`` are arguments of urllib3's pools (``ca_certs``,
    ``cert_file``, …). Picklable and fork-safe.
    """

    def __init__(
        self,
        *,
        connections: int = 4,
        connect_timeout: float = 10.0,
        read_timeout: float = 60.0,
        proxy: str | None = None,
        pool_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._proxy = proxy
        self._options: dict[str, Any] = {
            "maxsize": connections,
            "block": True,
            "timeout": urllib3.Timeout(connect=connect_timeout, read=read_timeout),
            **(pool_options or {}),
        }
        self._pools: urllib3.PoolManager | None = None
        self._pid = 0

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Body | None) -> Response:
        """Send one request; raises urllib3's exceptions, and `ProtocolError` if a TLS or proxy connection broke."""
        if self._pools is None or self._pid != os.getpid():  # a forked child must not share sockets
            options, proxy = self._options, self._proxy
            self._pools = urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)
            self._pools.pool_classes_by_scheme = {"http": HTTPConnectionPool, "https": HTTPSConnectionPool}
            self._pid = os.getpid()
        try:
            answer = self._pools.request(
                method,
                url,
                headers=headers,
                body=body,  # type: ignore[arg-type]  # urllib3 sends any buffer, its annotations say otherwise
                preload_content=False,
                retries=False,
                redirect=False,
            )
        except (SSLError, ProxyError) as error:
            if _is_broken(error):
                raise ProtocolError(": ".join(map(str, error.args))) from error
            raise
        return _HTTPResponse(answer)

    def close(self) -> None:
        """Close idle connections; the transport can still be used."""
        if self._pools is not None:
            self._pools.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pools": None}


def _is_broken(error: SSLError | ProxyError) -> bool:
    """Whether the peer closed the connection, after which a retry may succeed, unlike after a bad certificate."""
    if isinstance(error, ProxyError):
        return isinstance(error.original_error, BROKEN_CONNECTION)
    ends = (6, 8)  # SSL_ERROR_ZERO_RETURN and SSL_ERROR_EOF of the module ssl, which browsers lack
    return getattr(error.args[0], "errno", None) in ends


class HTTPConnection(connection.HTTPConnection):
    """Registers its socket for cancellation. urllib3 shows the name of the class in errors."""

    def send(self, data: Any) -> None:
        CANCEL.get().watch(self.sock)
        super().send(data)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as in urllib3
        CANCEL.get().watch(getattr(self, "sock", None))
        return super().getresponse()


class HTTPSConnection(HTTPConnection, connection.HTTPSConnection):
    """The same over TLS."""


class HTTPConnectionPool(urllib3.HTTPConnectionPool):
    ConnectionCls = HTTPConnection


class HTTPSConnectionPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = HTTPSConnection


class _HTTPResponse:
    """urllib3's response as a `Response`."""

    def __init__(self, inner: BaseHTTPResponse) -> None:
        self._inner = inner
        self.status: int = inner.status
        self.headers: Mapping[str, str] = inner.headers

    def readinto(self, buffer: memoryview) -> int:
        # Unlike urllib3's readinto, read1 returns the bytes received before a connection breaks, and is as fast.
        data = self._inner.read1(min(len(buffer), 1 << 20))  # a temporary within the CPU cache
        buffer[: len(data)] = data
        return len(data)

    def read(self) -> bytes:
        return self._inner.read()

    def close(self) -> None:
        self._inner.close()
        self._inner.release_conn()
