"""Router of the resources that are read most: found by the front of the path, answered without the framework."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from hyperslab.api.metrics import ROUTE
from hyperslab.api.params import raw_path, split_front
from hyperslab.api.replay import ResponseCache
from hyperslab.api.request import Request
from hyperslab.api.response import Reply, Response
from hyperslab.api.threads import STORE
from hyperslab.errors import ChangedWhileRead, MethodNotAllowed, RouteNotFound

Handler = Callable[[Request], Awaitable[Reply]]

READING: Final = ("GET", "HEAD")
_MOST_TRIES: Final = 8
_METHODS: Final = (*READING, "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """All resources below ``prefix`` (``/v1/{name}`` or ``/{name}``); the handler answers GET, and HEAD alike."""

    prefix: str
    handler: Handler


class Endpoints:
    """Middleware in front of FastAPI's own routes, which have all other paths and all other methods. Responses that
    still hold are replayed."""

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
        scope["path"] = _with_single_slashes(scope["path"])
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
            asked = {**scope, "path": _with_single_slashes(scope["path"]), "method": method}
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


def _with_single_slashes(path: str) -> str:
    """For the framework's routes, what `raw_path` is for ours."""
    return re.sub("//+", "/", path) if "//" in path else path
