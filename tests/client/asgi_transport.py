"""The client against an application in the same process, with no socket between them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message, Scope

from hyperslab.client.transport import Body


class Headers(dict[str, str]):
    """Looked up without regard to case."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        return super().get(name.lower(), default)


@dataclass
class InMemoryResponse:
    status: int
    headers: Mapping[str, str]
    body: memoryview

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self.body))
        buffer[:count] = self.body[:count]
        self.body = self.body[count:]
        return count

    def read(self) -> bytes:
        rest, self.body = bytes(self.body), self.body[:0]
        return rest

    def close(self) -> None:
        """There is nothing to give back."""


@dataclass
class ASGITransport:
    """Calls ``app`` on an event loop that runs in another thread; ``state`` is what its lifespan has set up."""

    app: ASGIApp
    loop: asyncio.AbstractEventLoop
    state: dict[str, object] = field(default_factory=dict)

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: Body | None) -> InMemoryResponse:
        coroutine = self._exchange(method, url, headers, b"" if body is None else bytes(body))
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def close(self) -> None:
        """The loop belongs to whoever made it."""

    async def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> InMemoryResponse:
        sent: list[Message] = []
        incoming = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if incoming:
                return incoming.pop()
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        async def send(message: Message) -> None:
            if "body" in message:
                message = {**message, "body": bytes(message["body"])}  # the application reuses its buffers
            sent.append(message)

        await self.app(self._scope(method, url, headers, len(body)), receive, send)
        start, *pieces = sent
        named = Headers((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in start["headers"])
        return InMemoryResponse(start["status"], named, memoryview(b"".join(p.get("body", b"") for p in pieces)))

    def _scope(self, method: str, url: str, headers: Mapping[str, str], length: int) -> Scope:
        parts = urlsplit(url)
        sent = {"host": parts.netloc, "content-length": str(length), **headers}
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": parts.scheme,
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()],
            "server": ("server", 80),
            "client": ("client", 1),
            "state": dict(self.state),
        }


@contextmanager
def in_process(app: ASGIApp) -> Iterator[ASGITransport]:
    """A transport to ``app``, which is started before and stopped after."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    to_app: asyncio.Queue[Message] = asyncio.Queue()
    from_app: asyncio.Queue[Message] = asyncio.Queue()
    state: dict[str, object] = {}
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": state}

    async def lifespan() -> None:
        await app(scope, to_app.get, from_app.put)

    async def tell(event: str) -> Message:
        await to_app.put({"type": f"lifespan.{event}"})
        return await from_app.get()

    running = asyncio.run_coroutine_threadsafe(lifespan(), loop)
    try:
        assert asyncio.run_coroutine_threadsafe(tell("startup"), loop).result()["type"] == "lifespan.startup.complete"
        yield ASGITransport(app, loop, state)
        asyncio.run_coroutine_threadsafe(tell("shutdown"), loop).result()
        running.result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
