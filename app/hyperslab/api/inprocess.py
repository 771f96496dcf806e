"""In-process requests, without a socket."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message

from hyperslab.errors import Cancelled


class CutShort(Exception):
    """The response ended early; the reason is in the log."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """Status and headers of a response."""

    status: int
    headers: tuple[tuple[str, str], ...]


def answer(
    app: ASGIApp,
    target: str,
    on_head: Callable[[ResponseHead], None],
    on_body: Callable[[bytes], Any],
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send a request for ``target`` (with its query, percent-encoded) to an application, as a client that waits for the
    whole response; its body arrives in pieces.

    Raises the application's exceptions, `OSError` of ``on_body``, and `CutShort`.
    """
    raw, _, query = target.partition("?")
    sent = {"host": "localhost", "accept": "*/*", **{name.lower(): value for name, value in (headers or {}).items()}}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote_to_bytes(raw).decode("utf-8", "replace"),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items()],
        "client": ("127.0.0.1", 0),
        "server": ("localhost", 80),
    }
    failure: OSError | None = None
    is_whole = False

    async def send(message: Message) -> None:
        nonlocal failure, is_whole
        if message["type"] == "http.response.start":
            pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
            on_head(ResponseHead(message["status"], tuple(pairs)))
            return
        try:
            on_body(message.get("body", b""))
        except OSError as error:  # the application sees a client that has left
            failure = error
            raise Cancelled from error
        is_whole = not message.get("more_body", False)

    async def ask() -> None:
        received: asyncio.Queue[Message] = asyncio.Queue()
        received.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        await app(scope, received.get, send)

    asyncio.run(ask())
    if failure is not None:
        raise failure
    if not is_whole:
        raise CutShort


class InProcess:
    """Client transport to an application in this process, for requests without a body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Any) -> InProcessResponse:  # noqa: ARG002
        """The response, with its body in memory."""
        heads: list[ResponseHead] = []
        parts: list[bytes] = []
        address = urlsplit(url)
        target = f"{address.path}?{address.query}"
        answer(self._app, target, heads.append, parts.append, method=method, headers=headers)
        return InProcessResponse(heads[0].status, Headers(dict(heads[0].headers)), io.BytesIO(b"".join(parts)))

    def close(self) -> None:
        """Does nothing."""


@dataclass(frozen=True, slots=True)
class InProcessResponse:
    """Response in the interface of the client's transport."""

    status: int
    headers: Mapping[str, str]
    _body: io.BytesIO

    def readinto(self, buffer: memoryview) -> int:
        return self._body.readinto(buffer)

    def read(self) -> bytes:
        return self._body.read()

    def close(self) -> None:
        """Does nothing."""
