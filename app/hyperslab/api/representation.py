"""Representation of a resource: conditions and ranges for every body of GET and HEAD."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from hyperslab.api.conditional import UNCONDITIONAL
from hyperslab.api.exchange import Exchange
from hyperslab.api.middleware.replay import Sources
from hyperslab.api.ranges import ByteRange, Multipart, parse_range
from hyperslab.api.response import REVALIDATED, Buffer, Headers, Pieces, Response, http_date
from hyperslab.arrays.workers import Cancel
from hyperslab.errors import ChangedWhileRead

_PIECE: Final = 1 << 20
"""Size of a piece handed to the server, of a body in memory (benchmark ``http``)."""

Opener = Callable[[ByteRange, Cancel], Iterator[Buffer]]
"""Opens a part of a body as blocking pieces; raises `ChangedWhileRead` if one is of another version than the head."""


class Content(NamedTuple):
    """A whole body in memory; ``headers`` describe it, ``cost`` has read statistics. ``etag`` and ``sources``: of the
    data read, if only known after the read."""

    data: Buffer
    headers: Headers = ()
    cost: Headers = ()
    etag: str | None = None
    sources: Sources | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """A body of ``size`` bytes (None: known after ``make``), read only if needed: as it is sent, by ``open``, or as a
    whole, by ``make``, which blocks.

    ``memory``: its maximum memory. ``cost``: headers with the present or expected cost of the read. ``is_light``: it is
    made on the event loop if no disk is waited for, see `Threads.at_once`.
    """

    size: int | None
    memory: int
    open: Opener | None = None
    make: Callable[[Cancel], Content] | None = None
    cost: Callable[[], Headers] = tuple
    is_light: bool = False


@dataclass(frozen=True, slots=True)
class Representation:
    """Response to GET and HEAD with conditions and ranges, as in RFC 9110, for any body.

    ``etag`` is strong, and None only if ``make`` determines it; ``modified`` in seconds since 1970. ``headers`` are
    sent with every status that describes the body, ``always`` with 304 too, ``cost`` with responses that are not
    replayed. ``sources`` allow replay.
    """

    etag: str | None
    media_type: str
    body: Buffer | Body
    headers: Headers = ()
    always: Headers = ((b"cache-control", REVALIDATED),)
    modified: float | None = None
    sources: Sources | None = None
    cost: Headers = ()

    async def respond(self, request: Exchange) -> Response:
        """The response to a request, with the first piece of its body read. Raises `PreconditionFailed`,
        `RangeNotSatisfiable`, `Overloaded`, and errors of the read."""
        conditions, body, etag = request.conditions, self.body, self.etag
        responses = request.context.responses
        # headers of a 304 (RFC 9110 §15.4.5)
        always = ((b"etag", (etag or "").encode("latin-1")), *self.always)
        if self.modified is not None:
            always = (*always, (b"last-modified", http_date(self.modified).encode()))
        if conditions is not UNCONDITIONAL and etag is not None and not conditions.check(etag, self.modified):
            if self.sources is not None and request.header(b"if-none-match") == etag:
                responses.put(request.scope, self.sources, etag, (), always, None)
            return Response(304, always)
        if isinstance(body, Body) and body.make is not None and request.method != "HEAD":
            content = request.context.threads.at_once(partial(body.make, Cancel())) if body.is_light else None
            if content is None:
                cancel = await request.hold(body.memory)  # until the client has received it
                content = await request.run(body.make, cancel)
            return await self.with_content(content).respond(request)
        size = body.size if isinstance(body, Body) else len(body)
        text = request.header(b"range") if request.method == "GET" else None
        ranges = None
        if text and size is not None and conditions.range_applies(etag, self.modified, time.time()):
            ranges = parse_range(text, size)
        part, media_type, status, more = ByteRange(0, size or 0), self.media_type, 200, Headers()
        layout = None
        if ranges is not None and len(ranges) > 1:
            layout = Multipart(ranges, size or 0, media_type)
            media_type, status = layout.content_type, 206
        elif ranges is not None:
            part, status = ranges[0], 206
            more = ((b"content-range", part.content_range(size or 0).encode()),)
        described = ((b"content-type", media_type.encode()), (b"accept-ranges", b"bytes"))
        headers = (*described, *always, *self.headers, *more)
        if isinstance(body, Body):
            if request.method == "HEAD":  # the size is unknown before the body is made (RFC 9110 §9.3.2)
                nothing = None if size is None else Pieces(size, _cut(()), 0)
                return Response(200, (*headers, *self.cost, *body.cost()), nothing)
            return await self._streamed(request, status, headers, part, layout)
        if layout is not None:
            parts = _parts(lambda piece, _: iter((memoryview(body)[piece.start : piece.stop],)), layout, Cancel())
            pieces = Pieces(layout.nbytes, _cut(parts), request.context.options.idle_seconds)
            return Response(status, (*headers, *self.cost), pieces)
        data = body if ranges is None else memoryview(body)[part.start : part.stop]
        if status == 200 and self.sources is not None and etag is not None:
            responses.put(request.scope, self.sources, etag, headers, always, data)
        return Response(status, (*headers, *self.cost), in_memory(request, data))

    def with_content(self, content: Content) -> Representation:
        """The representation with its body in memory."""
        etag, sources = (self.etag, self.sources) if content.etag is None else (content.etag, content.sources)
        headers = (*self.headers, *content.headers)
        return replace(self, etag=etag, body=content.data, headers=headers, sources=sources, cost=content.cost)

    async def _streamed(
        self, request: Exchange, status: int, headers: Headers, part: ByteRange, layout: Multipart | None
    ) -> Response:
        """The first piece is read before the status line is sent."""
        body = self.body
        assert isinstance(body, Body) and body.open is not None  # noqa: PT018 - the one belongs to the other
        cancel = await request.hold(body.memory)
        pieces = body.open(part, cancel) if layout is None else _parts(body.open, layout, cancel)
        piece: Buffer | None = await request.run(next, pieces, b"")
        cancel.check()
        nbytes = len(part) if layout is None else layout.nbytes

        async def read_on(piece: Buffer | None, left: int) -> AsyncIterator[Buffer]:
            """Read each piece in a thread, none after the last."""
            while piece is not None and left > 0:
                left -= len(piece)
                yield piece
                cancel.check()
                piece = await request.run(next, pieces, None) if left > 0 else None

        sent = Pieces(nbytes, read_on(piece, nbytes), request.context.options.idle_seconds)
        return Response(status, (*headers, *self.cost, *body.cost()), sent)


Reply = Response | Representation


async def respond(request: Exchange, make: Callable[[], Awaitable[Reply]]) -> Response:
    """The response to a read, of what ``make`` returns; made again a few times if data is written meanwhile."""
    tries = 0
    while True:
        tries += 1
        request.is_last_try = tries > 8
        try:
            reply = await make()
            return reply if isinstance(reply, Response) else await reply.respond(request)
        except ChangedWhileRead:
            if request.is_last_try:
                raise
            await request.aclose()  # release the budget


def in_memory(request: Exchange, data: Buffer) -> Buffer | Pieces:
    """A body in memory; a large one is sent in pieces."""
    if len(data) <= _PIECE:
        return data
    return Pieces(len(data), _cut((data,)), request.context.options.idle_seconds)


def _parts(open_part: Opener, layout: Multipart, cancel: Cancel) -> Iterator[Buffer]:
    """Parts of a body, each after its head. The head of a part waits for its first bytes, so that a failed read
    precedes the response."""
    for head, part in zip(layout.heads, layout.ranges, strict=True):
        pieces = open_part(part, cancel)
        first = next(pieces)
        yield head
        yield first
        yield from pieces
    yield layout.end


async def _cut(parts: Iterable[Buffer]) -> AsyncIterator[Buffer]:
    for part in parts:
        data = memoryview(part)
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]
