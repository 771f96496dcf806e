"""HTTP transport: keep-alive connections by urllib3."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import urllib3
from urllib3 import connection
from urllib3.exceptions import ProtocolError, ProxyError, SSLError
from urllib3.response import BaseHTTPResponse, HTTPResponse

from hyperslab.client.cancel import watch
from hyperslab.client.transport import BROKEN_CONNECTION, Body, Response

_TLS_ENDS: Final = {6, 8}
"""``SSL_ERROR_ZERO_RETURN`` and ``SSL_ERROR_EOF``: the module ``ssl`` is not there in a browser."""
_PIECE: Final = 1 << 20  # urllib3 reads through a temporary of this size; larger ones leave the CPU's cache


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
        try:
            answer = self._open_pools().request(
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
        return _Answer(answer)

    def close(self) -> None:
        """Close idle connections; the transport can still be used."""
        if self._pools is not None:
            self._pools.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pools": None}

    def _open_pools(self) -> urllib3.PoolManager:
        # Sockets must not be shared with a forked child: both would read each other's answers.
        if self._pools is None or self._pid != os.getpid():
            self._pools = self._make_pools()
            self._pid = os.getpid()
        return self._pools

    def _make_pools(self) -> urllib3.PoolManager:
        options, proxy = self._options, self._proxy
        pools = urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)
        pools.pool_classes_by_scheme = {"http": HTTPConnectionPool, "https": HTTPSConnectionPool}
        return pools


def _is_broken_off(error: SSLError | ProxyError) -> bool:
    """Whether the other end has left, which a second attempt could mend; a bad certificate stays one."""
    if isinstance(error, ProxyError):
        return isinstance(error.original_error, BROKEN_CONNECTION)
    return getattr(error.args[0], "errno", None) in _TLS_ENDS


class HTTPConnection(connection.HTTPConnection):
    """Says what it is about to wait for; urllib3 shows the name of the class in its errors."""

    def send(self, data: Any) -> None:
        watch(self.sock)
        super().send(data)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as in urllib3
        watch(getattr(self, "sock", None))  # in a browser there is none
        return super().getresponse()


class HTTPSConnection(HTTPConnection, connection.HTTPSConnection):
    """The same over TLS."""


class HTTPConnectionPool(urllib3.HTTPConnectionPool):
    ConnectionCls = HTTPConnection


class HTTPSConnectionPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = HTTPSConnection


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
