"""Outermost middleware (CORS headers, metrics, problem documents), and the router of what is read most."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.api.metrics import ROUTE, Metrics
from hyperslab.api.problems import REASON, problem
from hyperslab.api.replay import ResponseCache
from hyperslab.api.request import Request, raw_path, split_front
from hyperslab.api.response import Reply, Response
from hyperslab.api.threads import HANG_UP, STORE
from hyperslab.errors import Cancelled, ChangedWhileRead, HyperslabError, MethodNotAllowed, RouteNotFound
from hyperslab.wire import EXPOSED_HEADERS

Handler = Callable[[Request], Awaitable[Reply]]
Pairs = list[tuple[bytes, bytes]]

READING: Final = ("GET", "HEAD")
_METHODS: Final = (*READING, "POST", "PUT", "PATCH", "DELETE")
_PREFLIGHT_SECONDS: Final = b"86400"
_CLIENT_HAS_LEFT: Final = 499
_MOST_TRIES: Final = 8

log = logging.getLogger("hyperslab.api")


class Frame:
    """Outermost of all: adds CORS headers to every response, counts it, and turns exceptions into problem documents.

    A 404 without CORS headers is a network error to a browser, and a missing chunk breaks. They are there with or
    without an Origin, so that a shared cache may answer anyone. ``check`` refuses requests by raising; ``methods``
    tells those of a request's path.

    A problem document is sent if no response has begun. A body that has begun is cut instead: it ends short of its
    Content-Length, which the client sees, and never with a proper end.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        *,
        origins: Sequence[str],
        methods: Callable[[Scope], Sequence[str]],
        check: Callable[[Scope], None] | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._origins = frozenset(origin.encode("latin-1") for origin in origins)
        self._expose = (b"access-control-expose-headers", ", ".join(EXPOSED_HEADERS).encode())
        self._for_all = [(b"access-control-allow-origin", b"*"), self._expose] if "*" in origins else None
        self._methods = methods
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        status, nbytes = 0, 0
        cors = self._for_all or self.cors_headers(scope["headers"])

        async def send_on(message: Message) -> None:
            nonlocal status, nbytes
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *cors]
            else:
                nbytes += len(message.get("body", b""))
            await send(message)

        if scope["method"] == "OPTIONS":
            await self._send_preflight(scope, send_on)
            return
        try:
            if self._check is not None:
                self._check(scope)
            await self._app(scope, receive, send_on)
        except Cancelled:
            self._metrics.abandoned.labels(scope.get(ROUTE, "other")).inc()
        except asyncio.CancelledError:  # the server ends, and waits no longer
            self._metrics.cut.labels(scope.get(ROUTE, "other")).inc()
            if HANG_UP not in scope:
                raise
            scope[HANG_UP]()
        except Exception as error:
            if not status:
                found = problem(error, path=scope["path"], root=scope.get("root_path", ""))
                # all that many Zarr clients show of a refused write
                if REASON in scope and isinstance(error, HyperslabError):
                    scope[REASON](str(error))
                await Response(found.status, found.headers, found.body).send(Request(scope, receive, ""), send_on)
                return
            # without an end, the server closes the connection
            self._metrics.cut.labels(scope.get(ROUTE, "other")).inc()
            if isinstance(error, ChangedWhileRead):
                log.info("cut the answer to %s: %s", scope["path"], error)
            else:
                log.exception("cut the answer to %s", scope["path"])
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            labels = (scope.get(ROUTE, "other"), method, status or _CLIENT_HAS_LEFT)
            requests, seconds, sent = self._metrics.series[labels]
            requests.inc()
            seconds.observe(perf_counter() - began)
            sent.inc(nbytes)

    def cors_headers(self, request_headers: Iterable[tuple[bytes, bytes]]) -> Pairs:
        """The CORS headers of the response to a request with these headers."""
        if self._for_all is not None:
            return self._for_all
        origin = _header(request_headers, b"origin")
        if origin not in self._origins:
            return [(b"vary", b"Origin")]
        return [(b"access-control-allow-origin", origin), (b"vary", b"Origin"), self._expose]

    async def _send_preflight(self, scope: Scope, send: Send) -> None:
        methods = ", ".join(self._methods(scope)).encode()
        headers: Pairs = [
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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """All resources below ``prefix`` (``/v1/{name}`` or ``/{name}``); the handler answers GET, and HEAD alike."""

    prefix: str
    handler: Handler


class Endpoints:
    """Router in front of FastAPI's own routes, which have all other paths and all other methods: the resources that are
    read most are found by the front of the path and answered without the framework, whose layers cost as much as a
    small answer. Responses that still hold are replayed."""

    def __init__(
        self, app: ASGIApp, endpoints: Sequence[Endpoint], routes: Sequence[BaseRoute], responses: ResponseCache
    ) -> None:
        """``routes``: those of the ``app``."""
        self._app = app
        self._routes = routes
        self._responses = responses
        self._by_prefix = {endpoint.prefix.encode(): endpoint for endpoint in endpoints}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if "//" in scope["path"]:  # for the framework's routes, what `raw_path` does for ours
            scope["path"] = re.sub("//+", "/", scope["path"])
        path = raw_path(scope)
        front, rest = split_front(path)
        STORE.set(rest[1:].partition(b"/")[0].decode("latin-1"))
        endpoint = self._by_prefix.get(front)
        if endpoint is not None:
            scope[ROUTE] = endpoint.prefix.rpartition("/")[2]
        if endpoint is None or scope["method"] not in READING:
            await self._pass_on(scope, receive, send)
            return
        request = Request(scope, receive, endpoint.prefix, path)
        replayed = self._responses.replay(request)
        if replayed is not None:
            await replayed.send(request, send)
            return
        async with request:
            await (await _response(endpoint.handler, request)).send(request, send)

    def methods(self, scope: Scope) -> list[str]:
        """The methods that the path of a request has; OPTIONS alone where nothing is there."""
        front = split_front(raw_path(scope))[0]
        read = READING if front in self._by_prefix else ()
        routes = () if b"%" in front else self._routes

        def served(method: str) -> bool:
            asked = {**scope, "path": re.sub("//+", "/", scope["path"]), "method": method}
            return any(route.matches(asked)[0] is Match.FULL for route in routes)

        return [*(method for method in _METHODS if method in read or served(method)), "OPTIONS"]

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the framework's routes take it; where the path has other methods only, say which."""
        if b"%" in split_front(raw_path(scope))[0]:  # the framework would take an encoded slash for a separator
            raise RouteNotFound(scope["path"])
        try:
            await self._app(scope, receive, send)
        except (RouteNotFound, MethodNotAllowed) as error:
            methods = self.methods(scope)
            if scope["method"] in methods or methods == ["OPTIONS"]:
                raise
            raise MethodNotAllowed(scope["method"], methods) from error


async def _response(handler: Handler, request: Request) -> Response:
    """Made anew where somebody writes what is being read, a few times."""
    for _ in range(_MOST_TRIES):
        try:
            return await (await handler(request)).respond(request)
        except ChangedWhileRead:
            await request.release()
    request.is_last_try = True
    return await (await handler(request)).respond(request)
