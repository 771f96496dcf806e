"""Counts every request, by the name of its route."""

from __future__ import annotations

from time import perf_counter
from typing import Final

from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.api.metrics import Metrics
from hyperslab.api.problems import let_go
from hyperslab.api.response import METHOD
from hyperslab.errors import Cancelled

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND")


class RequestCounter:
    """Middleware that counts requests. Errors of the application end here: `Problems` has logged it."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = perf_counter()
        status, nbytes, unfinished = 0, 0, None
        scope["route"] = None  # that of an application around this one

        async def send_on(message: Message) -> None:
            nonlocal status, nbytes
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                nbytes += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except Exception as error:
            # without an end, the server closes the connection
            let_go(error)
            unfinished = self._metrics.abandoned if isinstance(error, Cancelled) else self._metrics.cut
        finally:
            route = scope["route"].name if isinstance(scope["route"], APIRoute) else "other"
            if unfinished is not None:
                unfinished.labels(route).inc()
            method = scope[METHOD] if scope[METHOD] in METHODS else "other"
            # 499, as nginx says that the client has left
            requests, seconds, sent = self._metrics.series(route, method, status or 499)
            requests.inc()
            seconds.observe(perf_counter() - began)
            sent.inc(nbytes)
