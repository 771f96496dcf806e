"""HTTP transport: the interface, its implementation over the standard library's ``http.client``, and cancellation.

A transport makes single attempts; `Session` retries, and `Body` resumes.
"""

from __future__ import annotations

import base64
import http.client
import os
import queue
import re
import select
import socket
import ssl
import threading
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import IO, Any, Final, Protocol
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from hyperslab.errors import Cancelled

Body = bytes | memoryview | Sequence[memoryview]
"""Request body, repeatable; with several parts, the headers have a Content-Length."""


class NotConnected(ConnectionError):
    """No connection was made, so that nothing was sent. ``is_permanent``: another attempt would fail in the same way,
    as after a certificate that is not trusted, or a proxy's refusal."""

    def __init__(self, reason: str, *, is_permanent: bool = False) -> None:
        super().__init__(reason)
        self.is_permanent = is_permanent


BROKEN_CONNECTION: tuple[type[Exception], ...] = (ConnectionError, TimeoutError)
"""Exceptions of a transport after which a retry may succeed, but for a permanent `NotConnected`."""


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
            for sock in self._sockets.values():
                _shut_down(sock)

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

    def watch(self, connection: socket.socket) -> None:
        """Register the socket that this thread is going to wait for."""
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
    """Transport over HTTP/1.1 with at most ``connections`` keep-alive connections to each server.

    ``connect_timeout`` and ``read_timeout`` are in seconds; the latter is for each read, not for the whole body.
    ``proxy`` is the URL of an HTTP proxy, ``""`` for none; by default the environment names it (``http_proxy``,
    ``https_proxy``, ``all_proxy``, ``no_proxy``), but never for an address of this machine. ``context`` is for TLS, by
    default with the system's certificates. Fork-safe, and picklable without a ``context``.
    """

    def __init__(
        self,
        *,
        connections: int = 4,
        connect_timeout: float = 10.0,
        read_timeout: float = 60.0,
        proxy: str | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        if proxy and urlsplit(proxy).scheme != "http":
            raise ValueError(f"proxy={proxy!r}: expected a URL that begins with http://")
        self._connections = connections
        self._timeouts = connect_timeout, read_timeout
        self._proxy = proxy
        self._context = context
        self._pools: dict[str, _Pool] = {}  # by the beginning of the URL
        self._pid = os.getpid()

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Body | None) -> Response:
        """Send one request; raises one of `BROKEN_CONNECTION` if no response arrives."""
        if self._pid != os.getpid():  # a forked child must not share sockets
            self._pools, self._pid = {}, os.getpid()
        address = urlsplit(url)
        server = f"{address.scheme}://{address.netloc}"
        pool = self._pools.get(server)
        if pool is None:
            pool = self._pools.setdefault(server, self._new_pool(address))
        connection = pool.get()
        try:
            target = url if connection.is_to_proxy else url[len(server) :].partition("#")[0] or "/"
            return HTTPResponse(pool, connection, connection.exchange(method, target, headers, body))
        except BaseException:
            connection.close()
            pool.put(connection)
            raise

    def close(self) -> None:
        """Close idle connections; the transport can still be used."""
        for pool in list(self._pools.values()):
            idle = [pool.get_nowait() for _ in range(pool.qsize())]
            for connection in idle:
                connection.close()
                pool.put(connection)

    def _new_pool(self, address: SplitResult) -> _Pool:
        """Connections to the server of a URL, not opened yet."""
        proxy = self._proxy
        if proxy is None and not re.fullmatch(r"localhost|127\..*|::1", address.hostname or ""):
            named = getproxies()
            proxy = named.get(address.scheme, named.get("all"))
            proxy = None if proxy_bypass(address.netloc) else proxy
        context = (self._context or ssl.create_default_context()) if address.scheme == "https" else None
        pool = _Pool()
        for _ in range(self._connections):
            pool.put(_Connection(address, urlsplit(proxy) if proxy else None, context, *self._timeouts))
        return pool

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pools": {}}


class _Headers(dict[str, str]):
    """Headers of a response by their names in lower case; repeated ones are joined (RFC 9110 §5.3). Look-ups ignore
    case."""

    @classmethod
    def read(cls, file: IO[bytes]) -> _Headers:
        """Read all lines up to an empty one; raises `http.client.HTTPException`."""
        headers: dict[str, str] = {}
        for _ in range(200):
            line = file.readline(_LONGEST_LINE)
            if line in (b"\r\n", b"\n"):
                return cls(headers)
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon or not line.endswith(b"\n"):
                break
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        raise http.client.HTTPException("the head of the answer is cut off or too large")

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


_LONGEST_LINE: Final = 1 << 16


class _Answer(http.client.HTTPResponse):
    """Response of ``http.client`` with a head of its own: that of the standard library, a parser of mail, takes half of
    the time of a small request."""

    def begin(self) -> None:
        """Read the status and the headers, and tell the framing of the body (RFC 9112 §6.3)."""
        self.status = 100
        while self.status < 200:  # others are provisional
            line = self.fp.readline(_LONGEST_LINE)
            parts = line.decode("latin-1").split(None, 2)
            if not line:
                raise http.client.RemoteDisconnected("the server closed the connection without an answer")
            if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not re.fullmatch("[1-5][0-9][0-9]", parts[1]):
                raise http.client.BadStatusLine(repr(line[:80]))
            self.status = int(parts[1])
            headers = _Headers.read(self.fp)
        self.headers = self.msg = headers  # type: ignore[assignment]  # a mapping, not a mail
        self.version = 10 if parts[0] == "HTTP/1.0" else 11
        self.chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        length = headers.get("content-length", "")
        self.length = int(length) if length.isdecimal() and not self.chunked else None
        if self.status in (204, 304) or self._method == "HEAD":  # type: ignore[attr-defined]
            self.length = 0
        options = headers.get("connection", "").lower()
        keeps = "close" not in options if self.version == 11 else "keep-alive" in options
        self.will_close = not keeps or (self.length is None and not self.chunked)


class _Connection:
    """Connection to a server, direct, through a proxy, or through a proxy's tunnel; opened by the next request."""

    def __init__(
        self,
        address: SplitResult,
        proxy: SplitResult | None,
        context: ssl.SSLContext | None,
        connect_timeout: float,
        read_timeout: float,
    ) -> None:
        self._peer = proxy or address
        self._read_timeout = read_timeout
        self._place = f"the proxy {proxy.hostname}: " if proxy else ""
        self.is_to_proxy = proxy is not None and context is None
        login = _login(proxy) if proxy else {}
        self._more_headers = login if self.is_to_proxy else {}
        host, port = self._peer.hostname or "", self._peer.port
        self._http = http.client.HTTPConnection(host, port, timeout=connect_timeout)
        if context is not None:
            port = port or (http.client.HTTP_PORT if proxy else http.client.HTTPS_PORT)
            self._http = http.client.HTTPSConnection(host, port, timeout=connect_timeout, context=context)
            if proxy:
                self._http.set_tunnel(address.hostname or "", address.port, login)
        self._http.response_class = _Answer
        weakref.finalize(self, self._http.close)  # of a transport that nobody closed

    def close(self) -> None:
        self._http.close()

    def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: Body | None
    ) -> http.client.HTTPResponse:
        """Send a request and return the response as soon as its head is there; raises one of `BROKEN_CONNECTION`."""
        if self._http.sock is not None and _is_readable(self._http.sock):  # closed by the server since the last request
            self._http.close()
        if self._http.sock is None:
            self._connect()
        CANCEL.get().watch(self._http.sock)
        try:
            self._send(method, target, headers, body)
            return self._http.getresponse()
        except _FAILURES as error:
            raise _broken(error, self._place) from error

    def _connect(self) -> None:
        try:
            self._http.connect()
        except OSError as error:
            reason = str(error.strerror or error or "timed out")
            ended = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
            refused = "Tunnel connection failed" in reason or (isinstance(error, ssl.SSLError) and not ended)
            raise NotConnected(self._place + reason, is_permanent=refused) from error
        except http.client.HTTPException as error:  # of a proxy
            raise NotConnected(f"{self._place}{error}") from error
        self._http.sock.settimeout(self._read_timeout)

    def _send(self, method: str, target: str, headers: Mapping[str, str], body: Body | None) -> None:
        parts = [] if body is None else [body] if isinstance(body, bytes | memoryview) else body
        self._http.putrequest(method, target)
        for name, value in (*headers.items(), *self._more_headers.items()):
            self._http.putheader(name, value)
        if body is not None and "Content-Length" not in headers:
            self._http.putheader("Content-Length", str(sum(memoryview(part).nbytes for part in parts)))
        self._http.endheaders()
        # A server that refuses a body may answer and close before all of it has come: its answer is read all the same.
        with suppress(BrokenPipeError, ConnectionResetError):
            for part in parts:
                self._http.send(part)


_Pool = queue.LifoQueue[_Connection]
"""Connections to one server that no request uses; `get` waits for one."""


class HTTPResponse:
    """Response of `HTTPTransport`. Its connection is used again if the body was read to its end."""

    def __init__(self, pool: _Pool, connection: _Connection, inner: http.client.HTTPResponse) -> None:
        self._pool = pool
        self._connection: _Connection | None = connection
        self._inner = inner
        self.status: int = inner.status
        self.headers: Mapping[str, str] = inner.headers  # type: ignore[assignment]
        packed = self.headers.get("Content-Encoding", "identity") != "identity"  # by a proxy, unasked for
        self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32) if packed else None
        self._release_at_end()

    def readinto(self, buffer: memoryview) -> int:
        """As `Response.readinto`; raises one of `BROKEN_CONNECTION`, after all bytes that came before."""
        try:
            return self._receive(buffer) if self._unpacker is None else self._unpack(self._unpacker, buffer)
        except _FAILURES as error:
            raise _broken(error) from error

    def read(self) -> bytes:
        """As `Response.read`; raises one of `BROKEN_CONNECTION`."""
        try:
            body = self._inner.read()
            self._release_at_end()
            return body if self._unpacker is None else self._unpacker.decompress(body)
        except _FAILURES as error:
            raise _broken(error) from error

    def close(self) -> None:
        """As `Response.close`."""
        if self._connection is not None:
            self._inner.close()
            self._connection.close()
            self._release()

    def _receive(self, buffer: memoryview) -> int:
        """Read bytes as they were sent, with one call of the socket if the length of the body is known."""
        inner = self._inner
        if inner.isclosed():
            return 0
        if inner.length is None:
            count = inner.readinto(buffer)
        else:
            count = inner.fp.readinto1(buffer[: inner.length])
            if not count:
                raise http.client.IncompleteRead(b"", inner.length)
            inner.length -= count
        self._release_at_end()
        return count

    def _unpack(self, unpacker: zlib._Decompress, buffer: memoryview) -> int:
        while not unpacker.eof:
            data = unpacker.unconsumed_tail or self._inner.read(1 << 16)
            if not data:
                raise http.client.IncompleteRead(b"")
            unpacked = unpacker.decompress(data, len(buffer))
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)
        self._inner.read()
        self._release_at_end()
        return 0

    def _release_at_end(self) -> None:
        if self._inner.length == 0 or self._inner.isclosed():
            self._inner.close()
            self._release()

    def _release(self) -> None:
        """Give the connection back to its pool, once."""
        if self._connection is not None:
            self._pool.put(self._connection)
            self._connection = None


_FAILURES: Final = (OSError, http.client.HTTPException, zlib.error)


def _broken(error: Exception, place: str = "") -> Exception:
    """One of `BROKEN_CONNECTION` for a failure below; ``place`` is where."""
    kind = TimeoutError if isinstance(error, TimeoutError) else ConnectionResetError
    return kind(f"{place}{getattr(error, 'strerror', None) or error or type(error).__name__}")


def _is_readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _login(proxy: SplitResult) -> dict[str, str]:
    """Header with the name and password in a proxy's URL."""
    if proxy.username is None:
        return {}
    text = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(text.encode()).decode()}
