"""Outermost middleware (CORS headers, metrics, problem documents), and the router of what is read most."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Final

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.api.metrics import ROUTE
from hyperslab.api.problems import problem
from hyperslab.api.replay import Pairs, header_lines, target_of
from hyperslab.api.representation import Reply
from hyperslab.api.request import Context, Request, raw_path, split_front
from hyperslab.api.response import CONNECTION, REFUSED, WAS_TRIED, Buffer, Headers, Response
from hyperslab.api.threads import STORE
from hyperslab.errors import Cancelled, ChangedWhileRead, HyperslabError, MethodNotAllowed, RouteNotFound
from hyperslab.wire import EXPOSED_HEADERS

Handlers = Mapping[tuple[str, str], Callable[[Request], Awaitable[Reply]]]
"""By method and front of the path."""

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

log = logging.getLogger("hyperslab.api")


class Frame:
    """Outermost of all: adds CORS headers to every response, counts it, and turns exceptions into problem documents.

    A 404 without CORS headers is a network error to a browser, and a missing chunk breaks. They are there with or
    without an Origin, so that a shared cache may answer anyone.

    A problem document is sent if no response has begun. A body that has begun is cut instead: it ends short of its
    Content-Length, which the client sees, and never with a proper end.

    Nodes and their values are answered by ``handlers``, found by the method and the front of the path (``/v1/{name}``
    or ``/{name}``); those for GET have HEAD too. The framework's layers cost as much as a small answer: its ``routes``,
    those of the ``app``, have what is left. Responses that still hold are replayed.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], handlers: Handlers, context: Context) -> None:
        self._app = app
        self._routes = routes
        self._handlers = {(method, front.encode()): handler for (method, front), handler in handlers.items()}
        self._context = context
        self._origins = frozenset(origin.encode("latin-1") for origin in context.options.cors_origins)
        self._expose = (b"access-control-expose-headers", ", ".join(EXPOSED_HEADERS).encode())
        for_all = ((b"access-control-allow-origin", b"*"), self._expose)
        self._for_all = (for_all, header_lines(for_all)) if b"*" in self._origins else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        status, nbytes = 0, 0
        cors = self._for_all[0] if self._for_all else self._cors_headers(scope["headers"])
        metrics = self._context.metrics

        async def send_on(message: Message) -> None:
            nonlocal status, nbytes
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *cors]
            else:
                nbytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._answer(scope, receive, send_on)
        except Cancelled:
            metrics.abandoned.labels(scope.get(ROUTE, "other")).inc()
        except asyncio.CancelledError:  # the server ends, and waits no longer
            metrics.cut.labels(scope.get(ROUTE, "other")).inc()
            if CONNECTION not in scope:
                raise
            scope[CONNECTION].hang_up()
        except Exception as error:
            if not status:
                # all that many Zarr clients show of a refused write
                if CONNECTION in scope and isinstance(error, HyperslabError):
                    scope[CONNECTION].say_why(str(error))
                await problem(error, path=scope["path"], root=scope.get("root_path", "")).send(scope, send_on)
                return
            # without an end, the server closes the connection
            metrics.cut.labels(scope.get(ROUTE, "other")).inc()
            if isinstance(error, ChangedWhileRead):
                log.info("cut the answer to %s: %s", scope["path"], error)
            else:
                log.exception("cut the answer to %s", scope["path"])
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            # 499, as nginx says that the client has left
            requests, seconds, sent = metrics.series(scope.get(ROUTE, "other"), method, status or 499)
            requests.inc()
            seconds.observe(perf_counter() - began)
            sent.inc(nbytes)

    def replay(self, target: bytes, request_headers: Pairs) -> tuple[bytes, Buffer] | None:
        """The response to a GET, if it is stored and still holds: its head without what a server adds, and its body.

        For a server that asks before it makes a task, see `protocol`; ``target`` as `target_of` gives it.
        """
        began = perf_counter()
        guard = self._context.guard
        try:
            if guard.has_tokens:
                guard.check_token({"method": "GET", "headers": request_headers}, target)
        except HyperslabError:
            return None
        found = self._context.responses.replay(target, request_headers)
        if found is None:
            return None
        cors = self._for_all[1] if self._for_all else header_lines(self._cors_headers(request_headers))
        requests, seconds, sent = self._context.metrics.series(found.route, "GET", found.status)
        requests.inc()
        seconds.observe(perf_counter() - began)
        sent.inc(len(found.body))
        return found.head + cors, found.body

    def _cors_headers(self, request_headers: Pairs) -> Headers:
        """The CORS headers of the response to a request with these headers, where not all origins may read."""
        origin = _header(request_headers, b"origin")
        if origin not in self._origins:
            return ((b"vary", b"Origin"),)
        return ((b"access-control-allow-origin", origin), (b"vary", b"Origin"), self._expose)

    def _preflight(self, scope: Scope) -> Response:
        methods = ", ".join(self._methods(scope)).encode()
        headers: Headers = ((b"allow", methods), (b"access-control-allow-methods", methods))
        headers += ((b"access-control-max-age", b"86400"),)
        wanted = _header(scope["headers"], b"access-control-request-headers")
        if wanted:
            headers += ((b"access-control-allow-headers", wanted), (b"vary", b"Access-Control-Request-Headers"))
        return Response(204, headers)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a stored response, or that of a handler or of the framework's routes; of a handler made anew, a few
        times, where somebody writes what is being read."""
        context, method = self._context, scope["method"]
        if REFUSED in scope:
            raise scope[REFUSED]
        if method == "OPTIONS":
            await self._preflight(scope).send(scope, send)
            return
        if context.guard.has_tokens:
            context.guard.check_token(scope, raw_path(scope))
        if method == "GET" and WAS_TRIED not in scope and "raw_path" in scope:
            replayed = context.responses.replay(target_of(scope), scope["headers"])
            if replayed is not None:
                scope[ROUTE] = replayed.route
                await send({"type": "http.response.start", "status": replayed.status, "headers": replayed.headers})
                await send({"type": "http.response.body", "body": replayed.body})
                return
        if "//" in scope["path"]:  # for the framework's routes, what `raw_path` does for ours
            scope["path"] = re.sub("//+", "/", scope["path"])
        path = raw_path(scope)
        front, rest = split_front(path)
        STORE.set(rest[1:].partition(b"/")[0].decode("latin-1"))
        reads = method in ("GET", "HEAD")
        handler = self._handlers.get(("GET" if reads else method, front)) if rest or reads else None
        if handler is not None or ("GET", front) in self._handlers:
            scope[ROUTE] = front.rpartition(b"/")[2].decode()
        if handler is None:
            await self._pass_on(scope, receive, send, front)
            return
        if not reads and front != b"/v1/points":  # only some of which are written
            context.guard.check_change(scope)
        async with Request(context, scope, receive, front.decode(), path) as request:
            for left in reversed(range(9 if reads else 1)):
                request.is_last_try = not left
                try:
                    reply = await handler(request)
                    response = reply if isinstance(reply, Response) else await reply.respond(request)
                    break
                except ChangedWhileRead:
                    if not left:
                        raise
                    await request.aclose()  # what is held is given back
            await response.send(scope, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, front: bytes) -> None:
        """Let the framework's routes take it; where the path has other methods only, say which."""
        if b"%" in front:  # the framework would take an encoded slash for a separator
            raise RouteNotFound(scope["path"])
        try:
            await self._app(scope, receive, send)
        except (RouteNotFound, MethodNotAllowed) as error:
            methods = self._methods(scope)
            if scope["method"] in methods or methods == ["OPTIONS"]:
                raise
            raise MethodNotAllowed(scope["method"], methods) from error

    def _methods(self, scope: Scope) -> list[str]:
        """The methods that the path of a request has; OPTIONS alone where nothing is there."""
        front, rest = split_front(raw_path(scope))
        ours = {method for method in METHODS if (rest or method == "GET") and (method, front) in self._handlers}
        ours |= {"GET", "HEAD"} if "GET" in ours else set()
        routes = () if b"%" in front else self._routes

        def served(method: str) -> bool:
            asked = {**scope, "path": re.sub("//+", "/", scope["path"]), "method": method}
            return any(route.matches(asked)[0] is Match.FULL for route in routes)

        return [*(method for method in METHODS if method in ours or served(method)), "OPTIONS"]


def _header(headers: Pairs, name: bytes) -> bytes:
    return next((value for key, value in headers if key == name), b"")
