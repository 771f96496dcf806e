"""Turns errors into problem documents."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperslab.api.middleware.access import DENIED, OUTER_ROOT, SEEN, UNSEEN
from hyperslab.api.middleware.edge import printable
from hyperslab.api.problems import let_go, problem, problem_page
from hyperslab.api.response import ENDING, METHOD, REFUSED, Response
from hyperslab.api.services import Services
from hyperslab.errors import Cancelled, ChangedWhileRead, HyperslabError, LinkExpired, LinkInvalid, LinkRevoked

LINK_ERRORS: Final = (LinkExpired, LinkInvalid, LinkRevoked)
"""Errors of links, which a browser shows as a page."""
_QUIET_SECONDS: Final = 2.0
_LONGEST_SECONDS: Final = 30.0
"""Seconds without input, and in all, for which the rest of a refused body is read."""

log = logging.getLogger("hyperslab.api")


class Problems:
    """A problem document is sent if no response has begun. A begun body is cut short instead: it ends before its
    Content-Length, which the client notices, and never with a proper end."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun, body_comes = False, scope[METHOD] not in ("GET", "HEAD") and _waits_for_body(scope)

        async def send_on(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        async def receive_on() -> Message:
            nonlocal body_comes
            message = await receive()
            body_comes = body_comes and message.get("more_body", False)
            return message

        try:
            if REFUSED in scope:
                raise scope[REFUSED]  # noqa: TRY301 - as if it came from within
            await self._app(scope, receive_on if body_comes else receive, send_on)
        except Cancelled:
            raise
        except asyncio.CancelledError:  # the server shuts down, or something else around the application
            ending = scope.get("state", {}).get(ENDING)
            if ending is None or not ending.is_set():
                raise
            log.warning("cut the answer to %s: the service ends", scope["path"])
            raise Cancelled from None
        except Exception as error:
            if has_begun:
                if isinstance(error, ChangedWhileRead):
                    log.info("cut the answer to %s: %s", scope["path"], error)
                else:
                    log.exception("cut the answer to %s", scope["path"])
                raise
            response = await self.respond(scope, error)
            let_go(error)
            await response(scope, receive, _Lingering(send, receive_on) if body_comes else send)

    async def respond(self, scope: Scope, error: Exception) -> Response:
        """The response for an error; who may not know of a group is not told of it."""
        if isinstance(error, HyperslabError) and error.http_status in (401, 403, 404):
            if UNSEEN in scope:
                error = await self._services.unless_seen(scope[SEEN], scope[UNSEEN], error)
            if error.http_status != 404:
                scope[DENIED] = error.http_status
        accepted = (value for name, value in scope["headers"] if name == b"accept")
        if isinstance(error, LINK_ERRORS) and any(b"text/html" in value for value in accepted):
            return problem_page(error)
        root = scope.get(OUTER_ROOT, scope.get("root_path", ""))  # what explains a problem needs no link
        return problem(error, path=printable(scope["path"]), root=root)


class _Lingering:
    """A ``send`` that reads the rest of a body before the end of a response: a close while the client is sending would
    reset the connection, and the client could lose a response that it has not read (RFC 9112 §9.6)."""

    def __init__(self, send: Send, receive: Receive) -> None:
        self._send = send
        self._receive = receive

    async def __call__(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_SECONDS):
                while (await asyncio.wait_for(self._receive(), _QUIET_SECONDS)).get("more_body", False):
                    pass
        await self._send({"type": "http.response.body", "body": b""})


def _waits_for_body(scope: Scope) -> bool:
    """Whether the server closes the connection after the response, and the client sends a body before it reads."""
    headers = {name: value.lower() for name, value in scope["headers"]}
    closes = b"close" in headers.get(b"connection", b"") or scope["http_version"] == "1.0"
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    return closes and has_body and b"expect" not in headers
