"""Bodies that are sent a piece at a time, no faster than the client takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from secrets import token_bytes

from starlette.types import Message, Send

from hyperslab.api.admission import Admission
from hyperslab.api.bodies import Opened
from hyperslab.api.conditional import etag_of
from hyperslab.api.context import Context
from hyperslab.api.reply import Buffer, Headers
from hyperslab.api.request import Request
from hyperslab.api.threads import HANG_UP, cancelled_when_gone
from hyperslab.arrays.cost import Cancel
from hyperslab.errors import Cancelled, ChangedWhileRead


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose body, of ``nbytes``, is yet to be opened; ``headers`` without those of its cost."""

    status: int
    headers: Headers
    nbytes: int
    open: Callable[[Cancel], Opened]


@asynccontextmanager
async def held(admission: Admission, request: Request, nbytes: int) -> AsyncIterator[Cancel]:
    """Hold memory for an answer; the `Cancel` is set when the client leaves. Raises `Overloaded`."""
    async with cancelled_when_gone(request.receive) as cancel, admission.hold(nbytes):
        yield cancel


def retagged(request: Request, headers: Headers, *, whole: bool) -> Headers:
    """The headers of an answer whose bytes are not those that its tag stands for, as somebody has written meanwhile.

    Raises `ChangedWhileRead` as long as it can be made anew. After that, all of it at once (``whole``) still is a good
    answer, with a tag that no other one ever has.
    """
    if request.tries_left or not whole:
        raise ChangedWhileRead(f"{request.tail!r} was written while it was read")
    return tuple([(name, etag_of(token_bytes()).encode() if name == b"etag" else value) for name, value in headers])


async def send_stream(context: Context, stream: Stream, request: Request, send: Send, cancel: Cancel) -> None:
    """Send pieces as they are read; returns when the client has made room for the last one.

    The status line waits for the first piece; where that is not what was planned, see `retagged`. A server's ``send``
    returns when it has queued a piece, so that the next one is read while the network takes this one; it waits before
    it queues another, so memory stays bounded. The empty piece at the end waits for the last one.
    """
    run = context.threads.run
    opened, piece, moved = await run(_open, stream.open, cancel)
    cancel.check()
    headers = (*stream.headers, *opened.headers())
    if moved:
        is_all = piece is not None and len(piece) == stream.nbytes and stream.status == HTTPStatus.OK
        headers = retagged(request, headers, whole=is_all)
    request.tries_left = 0
    start = {"type": "http.response.start", "status": stream.status, "headers": headers}
    await _hand_over(context, start, request, send)
    left = stream.nbytes
    while piece is not None and left > 0:
        left -= len(piece)
        await _hand_over(context, _body(piece, more=True), request, send)
        cancel.check()
        piece = await run(next, opened.pieces, None) if left > 0 else None
    if left > 0:
        raise RuntimeError(f"a body ended {left} bytes short of its size")
    await _hand_over(context, _body(b"", more=False), request, send)


def _open(open_: Callable[[Cancel], Opened], cancel: Cancel) -> tuple[Opened, Buffer | None, bool]:
    """Open a body, read its first piece, and see whether that has `Moved`, in one trip to a thread."""
    cancel.check()
    opened = open_(cancel)
    piece = next(opened.pieces, None)
    return opened, piece, opened.moved()


def _body(data: Buffer, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _hand_over(context: Context, message: Message, request: Request, send: Send) -> None:
    """Raises `Cancelled` where the client has not made room for it in time: then it is let go."""
    try:
        async with asyncio.timeout(context.options.idle_seconds):
            await send(message)
    except TimeoutError as error:
        request.scope.get(HANG_UP, _nothing)()
        raise Cancelled from error


def _nothing() -> None:
    """For a server that offers no way to hang up: it closes the connection once all is sent."""
