"""The way past everything: a kept answer goes out before there is a request, a task or a framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from hyperslab.api.answers import Answers, Given, header_lines, target_of
from hyperslab.api.metrics import Metrics
from hyperslab.api.reply import Buffer

STATE: Final = "hyperslab.shortcut"
"""Where a server finds the `Shortcut`: a member of the ASGI lifespan's state."""

ASKED: Final = "hyperslab.asked"
"""In the scope of a request for which the server has called `Shortcut.answer` in vain."""

Pairs = Iterable[tuple[bytes, bytes]]
"""Headers, their names in lower case."""


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """``head``: the lines of all headers but those that every answer of the server has."""

    status: int
    head: bytes
    body: Buffer


class Shortcut:
    """Outermost middleware; a server that knows it calls `answer` instead, with no more than a target and headers.

    It gives what the whole application would give: CORS, tokens and metrics are those of the layers that it passes by.
    """

    def __init__(
        self,
        app: ASGIApp,
        answers: Answers,
        metrics: Metrics,
        *,
        may_read: Callable[[Pairs], bool],
        cors: Callable[[Pairs], Sequence[tuple[bytes, bytes]]],
    ) -> None:
        self._app = app
        self._answers = answers
        self._metrics = metrics
        self._may_read = may_read
        self._cors = cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            scope.get("state", {})[STATE] = self
        given = self._find(target_of(scope), scope["headers"]) if _may_be_kept(scope) else None
        if given is None:
            await self._app(scope, receive, send)
            return
        kept = given.kept
        described = kept.always if given.ready is None else kept.headers
        headers = [*described, *given.cost, *self._cors(scope["headers"])]
        await send({"type": "http.response.start", "status": given.status, "headers": headers})
        await send({"type": "http.response.body", "body": given.body})

    def answer(self, target: bytes, headers: Sequence[tuple[bytes, bytes]], *, shared: bool) -> WireAnswer | None:
        """The answer to a GET; None where it has to be made. ``shared``: see `Answers.find`."""
        given = self._find(target, headers, shared=shared)
        if given is None:
            return None
        kept = given.kept
        lines = kept.always_lines if given.ready is None else kept.lines
        return WireAnswer(given.status, lines + header_lines((*given.cost, *self._cors(headers))), given.body)

    def _find(self, target: bytes, headers: Sequence[tuple[bytes, bytes]], *, shared: bool = False) -> Given | None:
        given = self._answers.find(target, headers, shared=shared) if self._may_read(headers) else None
        if given is None:
            return None
        self._metrics.count((given.kept.route, "GET", given.status), seconds=given.seconds, nbytes=len(given.body))
        return given


def _may_be_kept(scope: Scope) -> bool:
    return bool(scope["type"] == "http" and scope["method"] == "GET" and ASKED not in scope)
