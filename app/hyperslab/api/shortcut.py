"""The way past everything: a kept answer goes out before a request object, a task or the framework comes in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Final, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from hyperslab.api.answers import Answers, Asked, Given, header_lines, target_of, what_is_asked
from hyperslab.api.metrics import BEGAN, ROUTE, Metrics
from hyperslab.api.problems import problem
from hyperslab.api.reply import Buffer
from hyperslab.api.representation import Representation
from hyperslab.api.routing import PREPARED
from hyperslab.errors import HyperslabError

STATE: Final = "hyperslab.shortcut"
"""Where a server finds the `Shortcut`: a member of the ASGI lifespan's state."""

ASKED: Final = "hyperslab.asked"
"""In the scope of a request for which the server has called `Shortcut.answer` in vain."""

LATER: Final = "hyperslab.later"
"""In the scope of one that `Shortcut.only_waits`: its `Head`."""

_MOST_HEADS: Final = 4096
_LONGEST_HEAD: Final = 2048

Pairs = Iterable[tuple[bytes, bytes]]
"""Headers, their names in lower case."""


class Head(NamedTuple):
    """All that the head of a GET says about how it is answered, and the CORS headers of the answer."""

    asked: Asked
    cors: Sequence[tuple[bytes, bytes]]
    cors_lines: bytes

    @property
    def target(self) -> bytes:
        """Path and query as they were sent."""
        return self.asked.identity[0]


class WireAnswer(NamedTuple):
    """``head``: the lines of all headers but those that every answer of the server has."""

    status: int
    head: bytes
    body: Buffer


class Shortcut:
    """Outermost middleware; a server that knows it calls `read` and `answer` instead, with no more than a target and
    headers, and once more with what it has read if it receives the very same bytes (`remember`, `recall`). What is not
    kept, `make` makes, if that is done in no time.

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
        prepare: Callable[[Scope], Representation | None],
        patience: float,
    ) -> None:
        """``patience``: seconds after which a server may let a client go that does nothing."""
        self.patience = patience
        self._app = app
        self._answers = answers
        self._metrics = metrics
        self._may_read = may_read
        self._cors = cors
        self._prepare = prepare
        self._heads: dict[bytes, Head] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            scope.get("state", {})[STATE] = self
        head = self._head_of(scope)
        given = None if head is None else await self._find_in_turn(head, again=LATER in scope)
        if head is None or given is None:
            await self._app(scope, receive, send)
            return
        kept = given.kept
        described = kept.always if given.ready is None else kept.headers
        headers = [*described, *given.cost, *head.cors]
        await send({"type": "http.response.start", "status": given.status, "headers": headers})
        await send({"type": "http.response.body", "body": given.body})

    def _head_of(self, scope: Scope) -> Head | None:
        """What may be kept of what is asked for."""
        if LATER in scope:
            later: Head = scope[LATER]
            return later
        if scope["type"] != "http" or scope["method"] != "GET" or ASKED in scope:
            return None
        return self.read(target_of(scope), scope["headers"])

    def read(self, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Head | None:
        """The head of a GET; None where it is none that `answer` could answer."""
        asked = what_is_asked(target, headers) if self._may_read(headers) else None
        if asked is None:
            return None
        cors = self._cors(headers)
        return Head(asked, cors, header_lines(cors))

    def answer(self, head: Head, *, shared: bool) -> WireAnswer | None:
        """The answer to a GET; None where it has to be made. ``shared``: see `Answers.find`."""
        given = self._find(head, shared=shared)
        return None if given is None else _on_the_wire(given, head)

    def only_waits(self, head: Head) -> bool:
        """See `Answers.only_waits`: then the request is for the application, with its head as `LATER`."""
        return self._answers.only_waits(head.asked)

    def make(self, head: Head, scope: Scope) -> WireAnswer | None:
        """The answer to a GET that is not kept, if it is made without waiting; else None, and what was done so far is
        in the ``scope``, for the application to go on with."""
        if head.asked.tags is not None:
            return None
        began = perf_counter()
        try:
            reply = self._prepare(scope)
            given = None if reply is None else reply.at_once(head.asked.identity, scope[ROUTE], began)
        except Exception:  # which the application meets again, and has a guard around itself
            return None
        if given is None:
            scope[PREPARED], scope[BEGAN] = reply, began
            return None
        self._count(given)
        return _on_the_wire(given, head)

    def refuse(self, error: HyperslabError, target: bytes, headers: Pairs) -> WireAnswer:
        """The problem that stands for a request which is none; ``headers``: as many as were read."""
        found = problem(error, path=target.partition(b"?")[0].decode("latin-1"))
        length = (b"content-length", str(len(found.body)).encode())
        self._metrics.count(("other", "GET", found.status), seconds=0.0, nbytes=len(found.body))
        return WireAnswer(found.status, header_lines((*found.headers, length, *self._cors(headers))), found.body)

    def remember(self, request: bytes, head: Head) -> None:
        """Next time there is no need to parse these bytes."""
        if len(request) <= _LONGEST_HEAD:
            if len(self._heads) >= _MOST_HEADS:
                self._heads.clear()
            self._heads[request] = head

    def recall(self, request: bytes) -> Head | None:
        """What was read from the same bytes: as tokens and origins are those of the whole run, it still holds."""
        return self._heads.get(request)

    async def _find_in_turn(self, head: Head, *, again: bool) -> Given | None:
        """What answers a GET, perhaps after some turns of the event loop; ``again``: there was nothing at once."""
        given = None if again else self._find(head)
        if given is not None or not self._answers.only_waits(head.asked):
            return given
        began = perf_counter()
        await self._answers.turn()
        given = self._look(head, waited=True)
        if given is not None:
            given = given._replace(seconds=perf_counter() - began)
            self._count(given)
        return given

    def _find(self, head: Head, *, shared: bool = False) -> Given | None:
        given = self._look(head, shared=shared)
        if given is not None:
            self._count(given)
        return given

    def _look(self, head: Head, *, shared: bool = False, waited: bool = False) -> Given | None:
        try:
            return self._answers.find(head.asked, shared=shared, waited=waited)
        except Exception:  # the store fails: so it does for the application, which has a guard around itself
            return None

    def _count(self, given: Given) -> None:
        self._metrics.count((given.kept.route, "GET", given.status), seconds=given.seconds, nbytes=len(given.body))


def _on_the_wire(given: Given, head: Head) -> WireAnswer:
    kept, ready = given.kept, given.ready
    if ready is None:
        return WireAnswer(304, kept.always_lines + head.cors_lines, b"")
    return WireAnswer(200, kept.lines + header_lines(ready.headers) + head.cors_lines, ready.data)
