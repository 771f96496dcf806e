"""ASGI application: router, CORS headers, metrics and problem documents."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Final

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

Handler = Callable[[Request], Awaitable[Reply]]

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "PROPFIND")

log = logging.getLogger("hyperslab.api")


class HttpApp:
    """ASGI application. Adds CORS headers to every response, counts it, and turns exceptions into problem documents.

    A 404 without CORS headers is a network error to a browser, and a missing chunk breaks. They are sent with or
    without an Origin, so that a shared cache may serve any client.

    A problem document is sent if no response has begun. A begun body is cut short instead: it ends before its
    Content-Length, which the client notices, and never with a proper end.

    Requests for nodes and their values are served by ``handlers``, found by the method and the first segments of the
    path (``/v1/{name}`` or ``/{name}``), others by ``pages``, found by a pattern of the path; handlers of GET serve
    HEAD too. Valid stored responses are replayed. ``lifespan``: startup and shutdown.
    """

    def __init__(
        self,
        handlers: Mapping[tuple[str, str], Handler],
        pages: Mapping[str, Handler],
        context: Context,
        lifespan: ASGIApp,
    ) -> None:
        self._lifespan = lifespan
        self._pages = pages.items()
        self._handlers = {(method, front.encode()): handler for (method, front), handler in handlers.items()}
        self._context = context
        self._origins = frozenset(origin.encode("latin-1") for origin in context.options.cors_origins)
        self._expose = (b"access-control-expose-headers", EXPOSED_HEADERS.encode())
        for_all = ((b"access-control-allow-origin", b"*"), self._expose)
        self._for_all = (for_all, header_lines(for_all)) if b"*" in self._origins else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
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
        except asyncio.CancelledError:  # the server shuts down
            metrics.cut.labels(scope.get(ROUTE, "other")).inc()
            if CONNECTION not in scope:
                raise
            scope[CONNECTION].hang_up()
        except Exception as error:
            if not status:
                # many Zarr clients show only the reason of a refused write
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
        """Head (without the server's own headers) and body of the valid stored response to a GET, for `protocol`, or
        None. ``target`` as from `target_of`."""
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
        """The CORS headers of a response to these request headers, if not all origins may read."""
        origin = _header(request_headers, b"origin")
        if origin not in self._origins:
            return ((b"vary", b"Origin"),)
        return ((b"access-control-allow-origin", origin), (b"vary", b"Origin"), self._expose)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send a stored response, or a handler's; the handler is retried a few times after concurrent writes."""
        context, method = self._context, scope["method"]
        if REFUSED in scope:
            raise scope[REFUSED]
        if context.guard.has_tokens and method != "OPTIONS":
            context.guard.check_token(scope, raw_path(scope))
        if method == "GET" and WAS_TRIED not in scope and "raw_path" in scope:
            replayed = context.responses.replay(target_of(scope), scope["headers"])
            if replayed is not None:
                scope[ROUTE] = replayed.route
                await send({"type": "http.response.start", "status": replayed.status, "headers": replayed.headers})
                await send({"type": "http.response.body", "body": replayed.body})
                return
        if "//" in scope["path"]:  # as `raw_path` does, for problem documents
            scope["path"] = re.sub("//+", "/", scope["path"])
        path = raw_path(scope)
        front, rest = split_front(path)
        STORE.set(rest[1:].partition(b"/")[0].decode("latin-1"))
        known = "GET" if method == "HEAD" else method
        handler = self._handlers.get((known, front)) if rest or known in ("GET", "PROPFIND") else None
        if handler is not None or (method != "OPTIONS" and ("GET", front) in self._handlers):
            scope[ROUTE] = front.rpartition(b"/")[2].decode()
        if handler is None:
            handler = self._page(scope, front, rest)
        reads = method in ("GET", "HEAD", "OPTIONS", "PROPFIND")
        if not reads and front != b"/v1/points":  # most POST requests for points are reads
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
                    await request.aclose()  # release the budget
            await response.send(scope, send)

    def _page(self, scope: Scope, front: bytes, rest: bytes) -> Handler:
        """The response to a request for other things than nodes; raises `RouteNotFound` and `MethodNotAllowed`."""
        method, path = scope["method"], scope["path"].removeprefix(scope.get("root_path", ""))
        pages = () if b"%" in front else self._pages
        page = next((handler for pattern, handler in pages if re.fullmatch(pattern, path, re.DOTALL)), None)
        if page is not None and method in ("GET", "HEAD"):
            return page
        methods = [m for m in METHODS if (rest or m in ("GET", "PROPFIND")) and (m, front) in self._handlers]
        if page is not None or "GET" in methods:
            methods = ["GET", "HEAD", *(m for m in methods if m != "GET")]
        if method == "OPTIONS":
            return partial(_preflight, [*methods, method])
        raise MethodNotAllowed(method, [*methods, "OPTIONS"]) if methods else RouteNotFound(scope["path"])


async def _preflight(methods: Sequence[str], request: Request) -> Response:
    """The response to OPTIONS at a path with these methods."""
    allowed = ", ".join(methods).encode()
    headers: Headers = ((b"allow", allowed), (b"access-control-allow-methods", allowed))
    headers = (*headers, (b"access-control-max-age", b"86400"))
    wanted = request.header(b"access-control-request-headers", "").encode("latin-1")
    more = ((b"access-control-allow-headers", wanted), (b"vary", b"Access-Control-Request-Headers"))
    return Response(204, (*headers, *more) if wanted else headers)


def _header(headers: Pairs, name: bytes) -> bytes:
    return next((value for key, value in headers if key == name), b"")
