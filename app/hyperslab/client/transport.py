"""One HTTP exchange: the seam that tests and other runtimes replace.

A transport makes a single attempt and reports what happened; retries, problems and resuming live above it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import urllib3
from urllib3.response import BaseHTTPResponse

Body = bytes | memoryview
"""What a request may carry; both can be sent again by a retry."""

BROKEN_CONNECTION: tuple[type[Exception], ...] = (
    urllib3.exceptions.ProtocolError,
    urllib3.exceptions.TimeoutError,
    urllib3.exceptions.NewConnectionError,
    urllib3.exceptions.ReadTimeoutError,
    ConnectionError,
    TimeoutError,
)
"""What a transport may raise for a connection that a second attempt could mend."""

_PIECE = 1 << 20  # urllib3 reads through a temporary of this size; larger ones leave the CPU's cache and are slower


class Response(Protocol):
    """An answer whose body is read by the caller, who closes it."""

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


class HTTPTransport:
    """Keep-alive connections by urllib3, at most ``connections`` of them to one host.

    ``connect_timeout`` and ``read_timeout`` are seconds; the latter bounds the wait for the next bytes, not for the
    whole body. ``proxy`` is the URL of an HTTP proxy. ``pool_options`` go to urllib3 (``ca_certs``, ``cert_file``, …).
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
        self._options: dict[str, Any] = {
            "connections": connections,
            "connect_timeout": connect_timeout,
            "read_timeout": read_timeout,
            "proxy": proxy,
            "pool_options": dict(pool_options or {}),
        }
        self._pools: urllib3.PoolManager | None = None
        self._pid = 0

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Body | None) -> Response:
        """Send one request; raises what urllib3 raises."""
        answer = self._open_pools().request(
            method,
            url,
            headers=headers,
            body=body,  # type: ignore[arg-type]  # urllib3 sends any buffer, its annotations say otherwise
            preload_content=False,
            retries=False,
            redirect=False,
        )
        return _Answer(answer)

    def close(self) -> None:
        """Close idle connections; the transport can still be used."""
        if self._pools is not None:
            self._pools.clear()

    def _open_pools(self) -> urllib3.PoolManager:
        # Sockets must not be shared with a forked child: both would read each other's answers.
        if self._pools is None or self._pid != os.getpid():
            self._pools = self._make_pools()
            self._pid = os.getpid()
        return self._pools

    def _make_pools(self) -> urllib3.PoolManager:
        options = self._options
        settings = {
            "maxsize": options["connections"],
            "block": True,
            "timeout": urllib3.Timeout(connect=options["connect_timeout"], read=options["read_timeout"]),
            **options["pool_options"],
        }
        if options["proxy"]:
            return urllib3.ProxyManager(options["proxy"], **settings)
        return urllib3.PoolManager(**settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._options,)


def _restore(options: dict[str, Any]) -> HTTPTransport:
    return HTTPTransport(**options)


class _Answer:
    """urllib3's response as a `Response`."""

    __slots__ = ("_inner", "headers", "status")

    def __init__(self, inner: BaseHTTPResponse) -> None:
        self._inner = inner
        self.status: int = inner.status
        self.headers: Mapping[str, str] = inner.headers

    def readinto(self, buffer: memoryview) -> int:
        # Unlike urllib3's readinto, read1 hands out what came before a connection broke, and it is as fast.
        piece = self._inner.read1(min(len(buffer), _PIECE))
        buffer[: len(piece)] = piece
        return len(piece)

    def read(self) -> bytes:
        return self._inner.read()

    def close(self) -> None:
        self._inner.close()
        self._inner.release_conn()
