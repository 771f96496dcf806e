"""The audit log, a line for each change and each refusal; and an end to running answers whose token or link ends."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.access import Action, Principal, timestamp

log = logging.getLogger("hyperslab.audit")

LINK: Final = "/v1/link"
"""A path beside those of nodes, at which links are made."""
UNCHANGED: Final = "hyperslab.unchanged"
"""Scope key: the node was there as it was asked for, and nothing has changed."""
LOOK_AFTER: Final = 1.0
"""Seconds between two looks for tokens that have ended."""


class Audit:
    """Runs a request, and writes the line that it deserves: who, what, where, bytes that were sent, status, request."""

    def __init__(self, app: ASGIApp, scope: Scope, name: str, action: Action, path: str) -> None:
        self._app = app
        self._scope = scope
        self._named = {"principal": name, "action": action, "path": path}

    async def run(self, receive: Receive, send: Send, *, refused: bool) -> None:
        """Run the application and write a line: of reads only for refusals, of changes also for failures."""
        nbytes, status, request = 0, 0, request_id(self._scope)

        async def receive_on() -> Message:
            nonlocal nbytes
            message = await receive()
            nbytes += len(message.get("body", b""))
            return message

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request.encode())]
            await send(message)

        try:
            await self._app(self._scope, receive_on, send_on)
        finally:
            is_refusal = refused or status in (401, 403)
            is_change = self._named["action"] != "read" and UNCHANGED not in self._scope
            if is_refusal or is_change or self._named["path"] == LINK:
                facts = {**self._named, "bytes": nbytes, "status": status or 499, "request": request}
                write_line("refusal" if is_refusal else "change" if 0 < status < 400 else "failure", facts)


def request_id(scope: Scope) -> str:
    """The id of a request that it has, or a new one."""
    sent = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return sent.decode() if re.fullmatch(rb"[\w.:-]{1,128}", sent, re.ASCII) else uuid.uuid4().hex[:12]


def write_line(kind: str, facts: dict[str, Any]) -> None:
    """Write a line."""
    words = [f"{name}={json.dumps(fact)}" for name, fact in facts.items()]
    log.info("%s %s %s", timestamp(time.time()), kind, " ".join(words), extra={"audit": kind, **facts})


class Running:
    """Requests that run, by the principal who asks. ``look`` is called every second while there are some, and returns
    those principals who have ended."""

    def __init__(self, look: Callable[[], set[Principal]]) -> None:
        self._look = look
        self._tasks: dict[asyncio.Task[Any], Principal] = {}
        self._ended = set[asyncio.Task[Any]]()
        self._looking: asyncio.Task[None] | None = None

    async def run(self, principal: Principal, work: Any) -> None:
        """Await ``work``; where the principal ends meanwhile, the connection is closed without an end of the answer."""
        task = asyncio.current_task()
        assert task is not None  # ASGI servers run requests as tasks
        self._tasks[task] = principal
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self.keep_looking())
        try:
            await work
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
        finally:
            self._tasks.pop(task, None)
            self._ended.discard(task)

    async def keep_looking(self) -> None:
        """Look every second while requests run, and end those of principals who have ended."""
        try:
            while self._tasks:
                await asyncio.sleep(LOOK_AFTER)
                gone, now = self._look(), time.time()
                for task, principal in [*self._tasks.items()]:
                    if (principal in gone or now >= principal.ends) and task not in self._ended:
                        self._ended.add(task)
                        task.cancel()
        finally:
            self._looking = None
