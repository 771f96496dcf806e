"""``GET /v1/changes/{path}``: changes below a path, as server-sent events or by long polling."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from threading import Event
from typing import Annotated, Any

from fastapi import Query, Request

from hyperslab import errors
from hyperslab.access import View
from hyperslab.api import docs
from hyperslab.api.exchange import Exchange
from hyperslab.api.params import ChangesQuery, NodePath
from hyperslab.api.response import ENDING, Headers, Pieces, Response, json_body
from hyperslab.api.routing import Route, Router
from hyperslab.api.values_out import accepts
from hyperslab.arrays.feed import Change
from hyperslab.arrays.nodes import GroupNode
from hyperslab.arrays.seen import seen_change
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import BadParameter, NodeNotFound
from hyperslab.wire import EVENTS, JSON

EVENT = {
    "description": "One event of the stream.",
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string", "enum": ["ready", "change"]},
        "data": {"type": "string", "contentMediaType": JSON},
    },
}

router = Router(prefix="/v1/changes", tags=["metadata"], default_response_class=Response, route_class=Route)


@router.get(
    "/{path:node}",
    name="changes",
    summary="Follow changes below a path, as server-sent events or by long polling",
    responses=docs.problems(errors.NodeNotFound)
    | {
        200: docs.answer(
            "Events, for as long as the connection lasts; with `Accept: application/json` those of now.",
            {EVENTS: {"schema": EVENT}} | docs.content(JSON),
        )
    },
    openapi_extra=docs.headers(docs.header("Last-Event-ID", "The same as `since`.")),
)
async def get_changes(request: Request, path: NodePath, query: Annotated[ChangesQuery, Query()]) -> Response:
    """With `Accept: application/json` the answer has the events of the next 30 seconds at most, and `next`, from which
    the next request goes on."""
    asked = Exchange(request)
    since, accept = query.since or asked.header(b"last-event-id") or None, asked.header(b"accept")
    ending: Event = request.scope.get("state", {}).get(ENDING) or Event()
    cancel = await asked.hold(0)
    inbox = await asked.enter_async_context(_subscription(asked, path, since))

    def is_over() -> bool:
        return ending.is_set() or cancel.is_set()

    if not accepts(accept, EVENTS) and accepts(accept, JSON):
        found = await inbox.next(30 if since else 0, is_over)
        events = [{"id": event.id, **event.data} for event in found]
        return Response(200, _headers(JSON), json_body({"events": events, "next": inbox.id}))

    async def stream() -> AsyncIterator[bytes]:
        yield _event("ready", inbox.id, {})
        while not is_over():
            found = await inbox.next(15, is_over)
            yield b"".join(_event("change", change.id, change.data) for change in found) or b":\n\n"

    return Response(200, _headers(EVENTS), Pieces(None, stream(), asked.context.options.idle_seconds))


@router.get("", name="changes", include_in_schema=False)
async def get_all_changes(request: Request, query: Annotated[ChangesQuery, Query()]) -> Response:
    """Of all stores."""
    return await get_changes(request, "", query)


def _headers(media_type: str) -> Headers:
    """Headers that keep proxies from buffering events."""
    return ((b"content-type", media_type.encode()), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))


class _Inbox:
    """Queue of changes for one subscriber, by store. Used on the event loop only."""

    def __init__(self, path: str, view: View | None) -> None:
        self._path = path
        self._view = view
        self._waiting: deque[tuple[str, Change]] = deque()
        self._filled = asyncio.Event()
        self.ids: dict[str, str] = {}

    def put(self, store: str, changes: Sequence[Change]) -> None:
        """Enqueue changes of a store. A long queue becomes one ``unknown`` change of each store."""
        seen = [(each.id, each.data if self._view is None else seen_change(self._view, each.data)) for each in changes]
        told = [Change(at, data) for at, data in seen if data is not None]
        if told:  # the last one stands for those that are not seen, too
            told[-1] = replace(told[-1], id=changes[-1].id)
        self._waiting.extend((store, change) for change in told)
        if len(self._waiting) > 1000:
            last = {name: change.id for name, change in self._waiting}
            self._waiting = deque(
                (name, Change(at, {"path": self._path or name, "unknown": True})) for name, at in last.items()
            )
        if self._waiting:
            self._filled.set()

    @property
    def id(self) -> str:
        """Id of the last change that was dequeued."""
        return ",".join(f"{store}={at}" for store, at in self.ids.items())

    async def next(self, seconds: int, is_over: Callable[[], bool]) -> list[Change]:
        """Dequeue all changes, waiting for the first; none after ``seconds``, or if ``is_over``."""
        for _ in range(seconds):
            if self._waiting or is_over():
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._filled.wait(), 1)
        self._filled.clear()
        changes = []
        while self._waiting:
            store, change = self._waiting.popleft()
            self.ids[store] = change.id
            changes.append(Change(self.id, change.data))
        return changes


def _stores(request: Exchange) -> list[str]:
    """The names of all stores that are seen."""
    catalog = request.service.catalog
    return [child.name for child in catalog.children(GroupNode(None, "", {}, ""), limit=sys.maxsize).nodes]


@asynccontextmanager
async def _subscription(request: Exchange, path: str, since: str | None) -> AsyncIterator[_Inbox]:
    """Subscription to the stores of a path. Raises `NodeNotFound` for an unknown store, and `BadParameter`."""
    feeds, store, view = request.service.feeds, path.partition("/")[0], request.context.view
    if view is not None and not view.covers(path):
        await request.run(request.service.catalog.open_node, path)
    if path and store not in feeds:
        raise NodeNotFound(path)
    seen: dict[str, str | None] = dict.fromkeys([store] if path else await request.run(_stores, request))
    for part in since.split(",") if since else ():
        name, _, position = part.rpartition("=")
        if name not in seen:
            raise BadParameter("since", part, "the id of an event of this path")
        seen[name] = position
    inbox, loop = _Inbox(path, view), asyncio.get_running_loop()
    with ExitStack() as subscriptions:
        for name, change_id in seen.items():

            def deliver(changes: Sequence[Change], name: str = name) -> None:
                loop.call_soon_threadsafe(inbox.put, name, changes)

            is_partial = view is not None and not view.covers(name)
            subscription = feeds[name].subscription(path, change_id, deliver, is_partial=is_partial)
            now = await request.run(subscriptions.enter_context, subscription)
            inbox.ids[name] = change_id or now
        try:
            yield inbox
        finally:
            loop.run_in_executor(None, subscriptions.pop_all().close)  # it may wait for the store


def _event(kind: str, identifier: str, data: Any) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (identifier.encode(), kind.encode(), dump_json(data))
