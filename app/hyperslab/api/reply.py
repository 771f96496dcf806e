"""Complete answers, and the shape of anything that can answer a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request as StarletteRequest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hyperslab.api.request import Request
from hyperslab.engine.jsontext import dump_json
from hyperslab.wire import JSON

Headers = tuple[tuple[bytes, bytes], ...]
Buffer = bytes | memoryview


class Reply(Protocol):
    """What a route returns."""

    async def send(self, request: Request, send: Send) -> None:
        """Answer; may raise any error as long as nothing was sent."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, headers and a body that are all known; for HEAD the body stays behind."""

    status: int
    headers: Headers
    body: Buffer = b""

    async def send(self, request: Request, send: Send) -> None:
        headers = self.headers
        if self.status not in (204, 304):
            headers = (*headers, (b"content-length", str(len(self.body)).encode()))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else self.body})


def json_answer(document: Any, *, status: int = 200, headers: Headers = ()) -> Answer:
    """A JSON document that is not worth a validator."""
    described = ((b"content-type", JSON.encode()), (b"cache-control", b"no-cache"), *headers)
    return Answer(status, described, dump_json(document))


def encoded(headers: Iterable[tuple[str, str]]) -> Headers:
    """Headers as ASGI wants them; raises `UnicodeEncodeError` for what is not Latin-1."""
    return tuple((name.lower().encode(), value.encode("latin-1")) for name, value in headers)


class Delivered(Response):
    """A `Reply` as FastAPI's routes want to return it."""

    def __init__(self, reply: Reply, request: Request) -> None:
        super().__init__()
        self._reply = reply
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ours has them
        await self._reply.send(self._request, send)


def request_at(prefix: str, request: StarletteRequest) -> Request:
    """Our view of a request that FastAPI has routed to ``prefix``."""
    return Request(request.scope, request.receive, prefix)
