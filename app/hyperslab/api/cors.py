"""CORS middleware: headers on every response, whatever its status, and the responses to preflight requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.wire import EXPOSED_HEADERS

Headers = list[tuple[bytes, bytes]]

_PREFLIGHT_SECONDS = b"86400"


class Cors:
    """Outermost of all: a 404 without these headers is a network error to a browser, and a missing chunk breaks.

    The headers are there with or without an Origin, so that a shared cache may answer anyone. ``methods`` tells
    those of a request's path.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str], methods: Callable[[Scope], Sequence[str]]) -> None:
        self._app = app
        self._any_origin = "*" in origins
        self._origins = frozenset(origin.encode("latin-1") for origin in origins)
        self._expose = (b"access-control-expose-headers", ", ".join(EXPOSED_HEADERS).encode())
        self._methods = methods
        self._for_all: Headers = [(b"access-control-allow-origin", b"*"), self._expose]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = self.headers(scope["headers"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        if scope["method"] == "OPTIONS":
            await self._send_preflight(scope, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)

    def headers(self, request_headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """The CORS headers of the response to a request with these headers."""
        if self._any_origin:
            return self._for_all
        origin = _header(request_headers, b"origin")
        if origin not in self._origins:
            return [(b"vary", b"Origin")]
        return [(b"access-control-allow-origin", origin), (b"vary", b"Origin"), self._expose]

    async def _send_preflight(self, scope: Scope, send: Send) -> None:
        methods = ", ".join(self._methods(scope)).encode()
        headers: Headers = [
            (b"allow", methods),
            (b"access-control-allow-methods", methods),
            (b"access-control-max-age", _PREFLIGHT_SECONDS),
        ]
        wanted = _header(scope["headers"], b"access-control-request-headers")
        if wanted:
            headers += [(b"access-control-allow-headers", wanted), (b"vary", b"Access-Control-Request-Headers")]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes:
    return next((value for key, value in headers if key == name), b"")
