"""The resources that are read all day, found by the front of the path and answered without a framework in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from starlette.types import ASGIApp, Receive, Scope, Send

from hyperslab.api.metrics import ROUTE
from hyperslab.api.params import raw_path
from hyperslab.api.problems import MethodNotAllowed, RouteNotFound
from hyperslab.api.reply import Reply
from hyperslab.api.representation import Representation
from hyperslab.api.request import Request

Handler = Callable[[Request], Awaitable[Reply]]

READING: Final = ("GET", "HEAD")

PREPARED: Final = "hyperslab.prepared"
"""In the scope of a request for which `Endpoints.prepare` has made a reply already."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """All resources below ``prefix`` (``/v1/{name}`` or ``/{name}``); the handler answers GET, and HEAD alike.

    ``operations`` describes them for OpenAPI: path templates and the members of their GET operation. ``prepare`` does
    what the handler does, if nothing has to be waited for; else it gives None.
    """

    prefix: str
    handler: Handler
    operations: Mapping[str, Mapping[str, Any]]
    prepare: Callable[[Request], Representation | None] | None = None

    @property
    def name(self) -> str:
        return self.prefix.rpartition("/")[2]


class Endpoints:
    """Middleware in front of FastAPI's own routes, which have all other paths and all other methods."""

    def __init__(self, app: ASGIApp, endpoints: Sequence[Endpoint]) -> None:
        self._app = app
        self._by_prefix = {endpoint.prefix.encode(): endpoint for endpoint in endpoints}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._by_prefix.get(_front(raw_path(scope))) if scope["type"] == "http" else None
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        scope[ROUTE] = endpoint.name
        if scope["method"] not in READING:
            await self._pass_on(scope, receive, send)
            return
        request = Request(scope, receive, endpoint.prefix)
        reply: Reply = scope.pop(PREPARED, None) or await endpoint.handler(request)
        await reply.send(request, send)

    def prepare(self, scope: Scope) -> Representation | None:
        """The reply to a GET, if it can be made without waiting for anything. Raises what a handler raises."""
        endpoint = self._by_prefix.get(_front(raw_path(scope)))
        if endpoint is None or endpoint.prepare is None:
            return None
        scope[ROUTE] = endpoint.name
        return endpoint.prepare(Request(scope, _wait_for_nothing, endpoint.prefix))

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let another route take the method; where none does, say which methods there are."""
        try:
            await self._app(scope, receive, send)
        except RouteNotFound as error:
            raise MethodNotAllowed(scope["method"], [*READING, "OPTIONS"]) from error
        except MethodNotAllowed as error:
            allowed = dict.fromkeys([*READING, *error.allowed, "OPTIONS"])
            raise MethodNotAllowed(scope["method"], list(allowed)) from error


async def _wait_for_nothing() -> NoReturn:
    raise RuntimeError("a reply that is prepared waits for nothing")


def _front(path: bytes) -> bytes:
    """The part of a path that an `Endpoint` is known by."""
    parts = path.split(b"/", 3)
    if len(parts) > 2 and parts[1] == b"v1":
        return b"/v1/" + parts[2]
    return b"/" + parts[1] if len(parts) > 1 else b""
