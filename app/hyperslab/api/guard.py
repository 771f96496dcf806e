"""Middleware that turns exceptions into problem documents: the only place that does."""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.api.metrics import ROUTE, Metrics
from hyperslab.api.problems import REASON, problem
from hyperslab.api.request import Request
from hyperslab.api.response import Response
from hyperslab.api.threads import HANG_UP
from hyperslab.errors import Cancelled, ChangedWhileRead, HyperslabError

log = logging.getLogger("hyperslab.api")


class Guard:
    """Sends a problem document if no response has begun. A body that has begun is cut instead: it ends short of its
    Content-Length, which the client sees, and never with a proper end."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_and_mark(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_mark)
        except Cancelled:
            self._metrics.count_abandoned(scope.get(ROUTE, "other"))
        except asyncio.CancelledError:  # the server ends, and waits no longer
            self._metrics.count_cut(scope.get(ROUTE, "other"))
            if HANG_UP not in scope:
                raise
            scope[HANG_UP]()
        except Exception as error:
            if started:
                self._cut(scope, error)
            else:
                await _send_problem(error, scope, receive, send)

    def _cut(self, scope: Scope, error: Exception) -> None:
        """Return without an end: the server then closes the connection."""
        self._metrics.count_cut(scope.get(ROUTE, "other"))
        if isinstance(error, ChangedWhileRead):
            log.info("cut the answer to %s: %s", scope["path"], error)
        else:
            log.error("cut the answer to %s: %s", scope["path"], error, exc_info=error)


async def _send_problem(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    found = problem(error, path=scope["path"], root=scope.get("root_path", ""))
    if REASON in scope and isinstance(error, HyperslabError):  # all that many Zarr clients show of a refused write
        scope[REASON](str(error))
    await Response(found.status, found.headers, found.body).send(Request(scope, receive, ""), send)
