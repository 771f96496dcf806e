"""``GET /v1/changes/{path}``: what changes below a path, as server-sent events or by long polling."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from threading import Event
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response, StreamingResponse

from hyperslab.api.context import Context
from hyperslab.api.metrics import ROUTE
from hyperslab.api.request import Request
from hyperslab.api.values_out import accepts
from hyperslab.arrays.feed import Change
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import BadParameter, NodeNotFound
from hyperslab.wire import EVENTS, JSON

PREFIX: Final = "/v1/changes"
ENDING: Final = "hyperslab.ending"
"""Member of the state of the application: an `Event` that is set when the process is about to end."""

_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}  # a proxy is to pass each event on at once


def router(context: Context) -> APIRouter:
    """The route."""
    routes = APIRouter()

    @routes.get(PREFIX + "/{path:path}", response_class=Response)
    async def get_changes(request: StarletteRequest) -> Response:
        request.scope[ROUTE] = "changes"
        ours = Request(request.scope, request.receive, PREFIX)
        ours.query.only({"since"})
        since = ours.query.text("since") or ours.header(b"last-event-id") or None
        followed = _follow(context, ours.tail, since)
        ending: Event = request.scope.get("state", {}).get(ENDING) or Event()
        if not accepts(ours.header(b"accept"), EVENTS) and accepts(ours.header(b"accept"), JSON):
            async with followed as inbox:
                found = await inbox.next(30 if since else 0, ending)
                events = [{"id": event.id, **event.data} for event in found]
                body = dump_json({"events": events, "next": inbox.id})
            return Response(body, media_type=JSON, headers=_HEADERS)
        entered = AsyncExitStack()
        inbox = await entered.enter_async_context(followed)  # what is wrong is still a problem document

        async def stream() -> AsyncIterator[bytes]:
            async with entered:
                yield _event("ready", inbox.id, {})
                while not ending.is_set():
                    found = await inbox.next(15, ending)
                    yield b"".join(_event("change", each.id, each.data) for each in found) or b":\n\n"

        return StreamingResponse(stream(), media_type=EVENTS, headers=_HEADERS)

    return routes


class _Inbox:
    """Changes on their way to one follower, by store; to be used on the event loop."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._waiting: deque[tuple[str, Change]] = deque()
        self._filled = asyncio.Event()
        self.ids: dict[str, str] = {}

    def put(self, store: str, changes: Sequence[Change]) -> None:
        """Take changes of a store."""
        self._waiting.extend((store, change) for change in changes)
        if len(self._waiting) > 1000:
            last = {name: change.id for name, change in self._waiting}
            self._waiting = deque(
                (name, Change(at, {"path": self._path or name, "unknown": True})) for name, at in last.items()
            )
        self._filled.set()

    @property
    def id(self) -> str:
        """The id of the last change that was taken out."""
        return ",".join(f"{store}={at}" for store, at in self.ids.items())

    async def next(self, seconds: int, ending: Event) -> list[Change]:
        """All that waits, as soon as there is something; nothing after so many seconds, or where the process ends."""
        for _ in range(seconds):
            if self._waiting or ending.is_set():
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._filled.wait(), 1)
        self._filled.clear()
        found = []
        while self._waiting:
            store, change = self._waiting.popleft()
            self.ids[store] = change.id
            found.append(Change(self.id, change.data))
        return found


@asynccontextmanager
async def _follow(context: Context, path: str, since: str | None) -> AsyncIterator[_Inbox]:
    """Context in which changes arrive; raises `NodeNotFound` where there is no such store, and `BadParameter`."""
    feeds, store = context.service.feeds, path.partition("/")[0]
    if path and store not in feeds:
        raise NodeNotFound(path)
    seen: dict[str, str | None] = dict.fromkeys(feeds if not path else [store])
    for part in since.split(",") if since else ():
        name, _, position = part.rpartition("=")
        if name not in seen:
            raise BadParameter("since", part, "expected the id of an event of this path")
        seen[name] = position
    inbox, loop = _Inbox(path), asyncio.get_running_loop()
    with ExitStack() as following:
        for name, at in seen.items():

            def deliver(changes: Sequence[Change], name: str = name) -> None:
                loop.call_soon_threadsafe(inbox.put, name, changes)

            now = await context.threads.run(following.enter_context, feeds[name].following(path, at, deliver))
            inbox.ids[name] = at or now
        try:
            yield inbox
        finally:
            loop.run_in_executor(None, following.pop_all().close)  # it may wait for the store


def _event(kind: str, identifier: str, data: Any) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (identifier.encode(), kind.encode(), dump_json(data))
