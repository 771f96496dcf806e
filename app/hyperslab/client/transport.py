"""HTTP exchanges: the transport protocol that tests and other runtimes replace, the one over urllib3, cancellation.

A transport makes a single attempt and reports what happened; retries, problems and resuming live above it.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

import urllib3
from urllib3 import connection
from urllib3.exceptions import ProtocolError, ProxyError, SSLError
from urllib3.response import BaseHTTPResponse, HTTPResponse

from hyperslab.errors import Cancelled

Body = bytes | memoryview | Sequence[memoryview]
"""What a request may carry, and send again by a retry; of several parts its headers state the length."""

BROKEN_CONNECTION: tuple[type[Exception], ...] = (
    urllib3.exceptions.ProtocolError,
    urllib3.exceptions.TimeoutError,
    urllib3.exceptions.NewConnectionError,
    ConnectionError,
    TimeoutError,
)
"""What a transport may raise for a connection that a second attempt could mend."""


class Response(Protocol):
    """HTTP response whose body the caller reads and closes."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Looked up without regard to case."""
        ...

    def readinto(self, buffer: memoryview) -> int:
        """Read some bytes of the body into ``buffer`` and return how many; 0 at its end."""
        ...

    def read(self) -> bytes:
        """The rest of the body."""
        ...

    def close(self) -> None:
        """Give the connection back; a body that was not read to its end costs the connection."""
        ...


class Transport(Protocol):
    """Something that can exchange one request for one response.

    Raises one of `BROKEN_CONNECTION` where no answer came. Has to be usable from several threads and to survive
    pickling.
    """

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Body | None) -> Response: ...

    def close(self) -> None: ...


class Cancel:
    """Cancellation of one read or write, also for threads that wait for a server which says nothing."""

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
        """Requests of this thread belong to the work that this cancels: it is `CURRENT` for as long."""
        before, CURRENT.cancel = CURRENT.cancel, self
        try:
            yield
        finally:
            CURRENT.cancel = before
            with self._lock:  # the connection goes back to the pool
                self._sockets.pop(threading.get_ident(), None)

    def watch(self, used: socket.socket | None) -> None:
        """Register the socket that this thread is about to wait for; in a browser there is none."""
        if used is not None:
            with self._lock:
                self._sockets[threading.get_ident()] = used
            if self._event.is_set():
                _cut(used)


class Current(threading.local):
    """What cancels the work of this thread; by default nothing does."""

    cancel = Cancel()


CURRENT: Final = Current()


def _cut(used: socket.socket) -> None:
    """Wake the thread that waits for it, which sees a broken connection."""
    with suppress(OSError):  # it is closed already
        socket.socket.shutdown(used, socket.SHUT_RDWR)  # not that of TLS, which is not for two threads


class HTTPTransport:
    """Keep-alive connections, at most ``connections`` of them to one host.

    ``connect_timeout`` and ``read_timeout`` are seconds; the latter bounds the wait for the next bytes, not for the
    whole body. ``proxy`` is the URL of an HTTP proxy. ``pool_options`` go to urllib3 (``ca_certs``, ``cert_file``, …).
    Can be pickled; a forked child opens connections of its own.
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
        """Send one request; raises what urllib3 raises, and one of `BROKEN_CONNECTION` also where it was broken off
        on the way through TLS or a proxy.
        """
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
            if _is_broken_off(error):
                raise ProtocolError(": ".join(map(str, error.args))) from error
            raise
        return _HTTPResponse(answer)

    def close(self) -> None:
        """Close idle connections; the transport can still be used."""
        if self._pools is not None:
            self._pools.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pools": None}


def _is_broken_off(error: SSLError | ProxyError) -> bool:
    """Whether the peer closed the connection, so that a retry may help; unlike for a bad certificate."""
    if isinstance(error, ProxyError):
        return isinstance(error.original_error, BROKEN_CONNECTION)
    ends = (6, 8)  # SSL_ERROR_ZERO_RETURN and SSL_ERROR_EOF: the module ssl is not there in a browser
    return getattr(error.args[0], "errno", None) in ends


class HTTPConnection(connection.HTTPConnection):
    """Registers its socket for cancellation; urllib3 shows the name of the class in its errors."""

    def send(self, data: Any) -> None:
        CURRENT.cancel.watch(self.sock)
        super().send(data)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as in urllib3
        CURRENT.cancel.watch(getattr(self, "sock", None))
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
        # Unlike urllib3's readinto, read1 hands out what came before a connection broke, and it is as fast.
        piece = self._inner.read1(min(len(buffer), 1 << 20))  # a temporary that stays in the CPU's cache
        buffer[: len(piece)] = piece
        return len(piece)

    def read(self) -> bytes:
        return self._inner.read()

    def close(self) -> None:
        self._inner.close()
        self._inner.release_conn()
