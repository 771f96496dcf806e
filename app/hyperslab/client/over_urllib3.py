"""The transport for everything: https, proxies, URLs that have to be normalised."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.response import BaseHTTPResponse, HTTPResponse

from hyperslab.client.cancel import watch
from hyperslab.client.transport import Body, Response

_PIECE: Final = 1 << 20  # urllib3 reads through a temporary of this size; larger ones leave the CPU's cache


class Urllib3Transport:
    """Keep-alive connections by urllib3; the parameters are those of `HTTPTransport`."""

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
        options, proxy = self._options, self._proxy
        pools = urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)
        pools.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}
        return pools


class _Watched(HTTPConnection):
    """Says what it is about to wait for."""

    def send(self, data: Any) -> None:
        watch(self.sock)
        super().send(data)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as in urllib3
        watch(self.sock)
        return super().getresponse()


class _WatchedTLS(_Watched, HTTPSConnection):
    """The same over TLS."""


class _HTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Watched


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _WatchedTLS


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
