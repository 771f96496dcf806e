"""CORS headers of every response, and the answer to OPTIONS."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.api.response import Headers, Response
from hyperslab.wire import EXPOSED_HEADERS


class Cors:
    """Adds CORS headers to every response.

    A 404 without CORS headers is a network error to a browser, and a missing chunk breaks. They are sent with or
    without an Origin, so that a shared cache may serve any client. With them, pages may see times and sizes of their
    requests (`PerformanceResourceTiming`).
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.encode("latin-1") for origin in origins)
        self._expose = (b"access-control-expose-headers", EXPOSED_HEADERS.encode())
        for_all = ((b"access-control-allow-origin", b"*"), (b"timing-allow-origin", b"*"), self._expose)
        self._for_all = for_all if b"*" in self._origins else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = self._for_all or self._headers(scope["headers"] if scope["type"] == "http" else ())

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        await self._app(scope, receive, send_on)

    def _headers(self, request_headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """CORS headers where not all origins may read."""
        origin = next((value for name, value in request_headers if name == b"origin"), b"")
        if origin not in self._origins:
            return ((b"vary", b"Origin"),)
        allowed = ((b"access-control-allow-origin", origin), (b"timing-allow-origin", origin))
        return (*allowed, (b"vary", b"Origin"), self._expose)


def preflight(methods: Sequence[str], wanted: str) -> Response:
    """The response to OPTIONS at a path with these methods, for a request that wants to send the headers ``wanted``."""
    allowed = ", ".join(methods).encode()
    headers: Headers = ((b"allow", allowed), (b"access-control-allow-methods", allowed))
    headers = (*headers, (b"access-control-max-age", b"86400"))
    more = ((b"access-control-allow-headers", wanted.encode("latin-1")), (b"vary", b"Access-Control-Request-Headers"))
    return Response(204, (*headers, *more) if wanted else headers)
