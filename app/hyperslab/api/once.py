"""Requests answered in this process, without a socket."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Scope

from hyperslab.errors import Cancelled, Overloaded


class CutShort(Exception):
    """The body has begun and cannot be ended; the log says why."""


@dataclass(frozen=True, slots=True)
class Head:
    """What comes before the body of an answer."""

    status: int
    headers: tuple[tuple[str, str], ...]


def answer(app: ASGIApp, path: str, on_head: Callable[[Head], None], on_body: Callable[[bytes], Any]) -> None:
    """GET ``path`` (with its query, percent-encoded) of an application that is started and stopped around it.

    Raises what the application raises, an `OSError` of ``on_body``, `Overloaded` where it does not start, and
    `CutShort`.
    """
    asyncio.run(_answer(app, path, on_head, on_body))


async def _answer(app: ASGIApp, path: str, on_head: Callable[[Head], None], on_body: Callable[[bytes], Any]) -> None:
    async with _running(app) as state:
        await _send(app, _scope(path, state), _Client(on_head, on_body))


class InProcess:
    """A transport of the client that asks an application in this process: for requests without a body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Any) -> Reply:  # noqa: ARG002
        """The answer, whose body is in memory."""
        heads: list[Head] = []
        parts: list[bytes] = []
        client = _Client(heads.append, parts.append)
        address = urlsplit(url)
        sent = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        asked = {**_scope(f"{address.path}?{address.query}", {}), "method": method}
        asyncio.run(_send(self._app, {**asked, "headers": [*asked["headers"], *sent]}, client))
        return Reply(heads[0].status, Headers(dict(heads[0].headers)), io.BytesIO(b"".join(parts)))

    def close(self) -> None:
        """There is no connection to close."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as clients read it."""

    status: int
    headers: Mapping[str, str]
    _body: io.BytesIO

    def readinto(self, buffer: memoryview) -> int:
        return self._body.readinto(buffer)

    def read(self) -> bytes:
        return self._body.read()

    def close(self) -> None:
        """Nothing is held."""


async def _send(app: ASGIApp, scope: Scope, client: _Client) -> None:
    await app(scope, client.receive, client.send)
    client.check_whole()


@asynccontextmanager
async def _running(app: ASGIApp) -> AsyncIterator[dict[str, Any]]:
    """Start the application and stop it at the end; yields the state that it shares with its requests."""
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue()
    state: dict[str, Any] = {}
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": state}
    lifespan = asyncio.ensure_future(app(scope, to_app.get, from_app.put))

    async def tell(event: str) -> None:
        await to_app.put({"type": event})
        reply = asyncio.ensure_future(from_app.get())
        await asyncio.wait([reply, lifespan], return_when=asyncio.FIRST_COMPLETED)
        if not reply.done() or reply.result()["type"] != f"{event}.complete":
            reply.cancel()
            await lifespan
            raise Overloaded(f"the service gave up on {event}")

    await tell("lifespan.startup")
    try:
        yield state
    finally:
        await tell("lifespan.shutdown")
        await lifespan


class _Client:
    """The client's side of one request without a body, as ASGI has it."""

    def __init__(self, on_head: Callable[[Head], None], on_body: Callable[[bytes], Any]) -> None:
        self._on_head = on_head
        self._on_body = on_body
        self._is_sent = self._is_whole = False
        self._failure: OSError | None = None

    async def receive(self) -> Message:
        """The request; never again, as the client stays until it has the answer."""
        if self._is_sent:
            await asyncio.Event().wait()
        self._is_sent = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Message) -> None:
        """Take a part of the answer."""
        if message["type"] == "http.response.start":
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
            self._on_head(Head(message["status"], tuple(headers)))
        elif message["type"] == "http.response.body":
            try:
                self._on_body(message.get("body", b""))
            except OSError as error:  # to the application, this is a client that has left
                self._failure = error
                raise Cancelled from error
            self._is_whole = not message.get("more_body", False)

    def check_whole(self) -> None:
        """Raise what ``on_body`` has raised, and `CutShort` where the answer has no end."""
        if self._failure is not None:
            raise self._failure
        if not self._is_whole:
            raise CutShort


def _scope(path: str, state: dict[str, Any]) -> Scope:
    raw, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote_to_bytes(raw).decode("utf-8", "replace"),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"accept", b"*/*")],
        "client": ("127.0.0.1", 0),
        "server": ("localhost", 80),
        "state": state.copy(),
    }
