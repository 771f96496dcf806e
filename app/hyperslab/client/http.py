"""HTTP by the transport that suits the URL."""

from __future__ import annotations

import select
from collections.abc import Mapping
from typing import Any

from hyperslab.client.over_urllib3 import Urllib3Transport
from hyperslab.client.transport import Body, Response

try:
    from hyperslab.client.lean.request import Unusual
    from hyperslab.client.lean.transport import LeanTransport
except ImportError:  # httptools is not there in a browser, and neither are sockets
    _CAN_BE_LEAN = False
else:
    _CAN_BE_LEAN = hasattr(select, "poll")  # not on Windows


class HTTPTransport:
    """Keep-alive connections, at most ``connections`` of them to one host.

    ``connect_timeout`` and ``read_timeout`` are seconds; the latter bounds the wait for the next bytes, not for the
    whole body. ``proxy`` is the URL of an HTTP proxy. ``pool_options`` go to urllib3 (``ca_certs``, ``cert_file``, …).
    Plain ``http://`` goes a short way (ADR 0018), https, proxies and whatever has options through urllib3.
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
        common = {"connections": connections, "connect_timeout": connect_timeout, "read_timeout": read_timeout}
        self._options: dict[str, Any] = {**common, "proxy": proxy, "pool_options": dict(pool_options or {})}
        self._general = Urllib3Transport(**self._options)
        plain = _CAN_BE_LEAN and not proxy and not pool_options
        self._lean = LeanTransport(**common) if plain else None  # type: ignore[arg-type]

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Body | None) -> Response:
        """Send one request; raises one of `BROKEN_CONNECTION` where no answer comes."""
        if self._lean is not None:
            try:
                return self._lean.request(method, url, headers=headers, body=body)
            except Unusual:
                pass  # nothing was sent
        return self._general.request(method, url, headers=headers, body=body)

    def close(self) -> None:
        """Close idle connections; the transport can still be used."""
        if self._lean is not None:
            self._lean.close()
        self._general.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._options,)


def _restore(options: dict[str, Any]) -> HTTPTransport:
    return HTTPTransport(**options)
