"""Representation of a resource: conditions and ranges stand in front of every body that GET and HEAD answer with."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from hyperslab.api.conditional import UNCONDITIONAL, Validators, http_date
from hyperslab.api.context import Context
from hyperslab.api.ranges import ByteRange, Multipart, parse_range
from hyperslab.api.replay import Sources
from hyperslab.api.request import Request
from hyperslab.api.response import Buffer, Headers, Pieces, Response
from hyperslab.arrays.cancel import Cancel

_PIECE: Final = 1 << 20
"""Bytes in memory that are handed to the server at once."""


class Body(Protocol):
    """A body that is read as it is sent, or any part of it. ``memory``: bytes that reading it may hold at once."""

    @property
    def size(self) -> int | None:
        """None where it shows only when it has been made."""
        ...

    @property
    def memory(self) -> int: ...

    def cost(self) -> Headers:
        """The headers that say what reading has cost so far, or would cost."""
        ...

    def open(self, part: ByteRange, cancel: Cancel) -> Iterator[Buffer]:
        """The pieces of a part. Blocks, as they do; raises `ChangedWhileRead` where one is not of the version that the
        entity tag stands for."""
        ...


class Content(NamedTuple):
    """A whole body in memory; ``headers`` describe it, ``cost`` says what it took. ``etag`` and ``sources``: of what
    was read, where that decides."""

    data: Buffer
    headers: Headers = ()
    cost: Headers = ()
    etag: str | None = None
    sources: Sources | None = None


@dataclass(frozen=True, slots=True)
class DeferredContent:
    """A body that is made as a whole when it is known to be wanted; ``make`` blocks. ``size`` as in `Body`."""

    make: Callable[[Cancel], Content]
    memory: int
    size: int | None = None
    cost: Callable[[], Headers] = field(default=tuple)


@dataclass(frozen=True, slots=True)
class Representation:
    """Answers GET and HEAD with conditions and ranges, as RFC 9110 wants it, whatever the body is.

    ``etag`` is strong, and None only where it comes with a `DeferredContent` body; ``modified`` in seconds since 1970.
    ``headers`` go with every status that tells of the body, ``always`` with 304 too, ``cost`` with what is not
    replayed. ``sources``: what it is made of, where it may be replayed.
    """

    context: Context
    etag: str | None
    media_type: str
    body: Buffer | Body | DeferredContent
    headers: Headers = ()
    always: Headers = ((b"cache-control", b"no-cache"),)
    modified: float | None = None
    sources: Sources | None = None
    cost: Headers = ()

    async def respond(self, request: Request) -> Response:
        """The response to a request, the first piece of its body in hand. Raises `PreconditionFailed`,
        `RangeNotSatisfiable`, `Overloaded`, and what reading the body raises."""
        conditions, body = request.conditions, self.body
        now = Validators(self.etag, self.modified)
        if conditions is not UNCONDITIONAL and self.etag is not None and not conditions.check(now):
            if self.sources is not None and request.header(b"if-none-match") == self.etag:
                self.context.responses.put(request, self.sources, self.etag, (), self._validating(), None)
            return Response(304, self._validating())
        if request.method == "HEAD":
            return self._head()
        if isinstance(body, DeferredContent):
            cancel = await request.hold(self.context.admission, body.memory)  # until the client has taken it
            return await self.with_content(await self.context.threads.run(body.make, cancel)).respond(request)
        size = len(body) if isinstance(body, bytes | memoryview) else body.size
        assert size is not None
        text = request.header(b"range")
        ranges = parse_range(text, size) if text and conditions.range_applies(now, time.time()) else None
        part, media_type, status, more = ByteRange(0, size), self.media_type, 200, Headers()
        layout = None if ranges is None or len(ranges) == 1 else Multipart(ranges, size, self.media_type)
        if layout is not None:
            media_type, status = layout.content_type, 206
        elif ranges is not None:
            part, status = ranges[0], 206
            more = ((b"content-range", part.content_range(size).encode()),)
        headers = (*self._describing(media_type), *more)
        if isinstance(body, bytes | memoryview) and layout is None:
            data = body if ranges is None else memoryview(body)[part.start : part.stop]
            if status == 200 and self.sources is not None and self.etag is not None:
                self.context.responses.put(request, self.sources, self.etag, headers, self._validating(), data)
            return Response(status, (*headers, *self.cost), in_memory(self.context, data))
        return await self._streamed(request, Response(status, headers), part, layout)

    def _validating(self) -> Headers:
        """What 304 repeats of 200 (RFC 9110 §15.4.5)."""
        headers = ((b"etag", (self.etag or "").encode("latin-1")), *self.always)
        if self.modified is None:
            return headers
        return (*headers, (b"last-modified", http_date(self.modified).encode()))

    def _describing(self, media_type: str) -> Headers:
        described = ((b"content-type", media_type.encode()), (b"accept-ranges", b"bytes"))
        return (*described, *self._validating(), *self.headers)

    def _head(self) -> Response:
        """The size of what must be made to be measured stays open, as RFC 9110 §9.3.2 allows."""
        body, headers = self.body, (*self._describing(self.media_type), *self.cost)
        if isinstance(body, bytes | memoryview):
            return Response(200, headers, body)
        size = None if body.size is None else Pieces(body.size, _cut(memoryview(b"")), 0)
        return Response(200, (*headers, *body.cost()), size)

    def with_content(self, content: Content) -> Representation:
        """The representation with its body in memory."""
        etag, sources = (self.etag, self.sources) if content.etag is None else (content.etag, content.sources)
        headers = (*self.headers, *content.headers)
        return replace(self, etag=etag, body=content.data, headers=headers, sources=sources, cost=content.cost)

    async def _streamed(self, request: Request, head: Response, part: ByteRange, layout: Multipart | None) -> Response:
        """The first piece is read before the status line is sent."""
        context, body = self.context, self.body
        assert not isinstance(body, DeferredContent)
        stream = _InMemory(body) if isinstance(body, bytes | memoryview) else body
        cancel = await request.hold(context.admission, stream.memory)
        pieces = stream.open(part, cancel) if layout is None else _parts(stream, layout, cancel)
        first = await context.threads.run(next, pieces, b"")
        cancel.check()
        nbytes = len(part) if layout is None else layout.nbytes
        rest = _read_on(context, first, pieces, nbytes, cancel)
        headers = (*head.headers, *self.cost, *stream.cost())
        return replace(head, headers=headers, body=Pieces(nbytes, rest, context.options.idle_seconds))


Reply = Response | Representation
"""What a route returns."""


def in_memory(context: Context, data: Buffer) -> Buffer | Pieces:
    """Bytes in memory as the body of a response: much of them goes out a piece at a time."""
    if len(data) <= _PIECE:
        return data
    return Pieces(len(data), _cut(memoryview(data)), context.options.idle_seconds)


@dataclass(frozen=True, slots=True)
class _InMemory:
    """Bytes in memory as a `Body`, for several ranges of them."""

    data: Buffer
    memory: int = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def cost(self) -> Headers:
        return ()

    def open(self, part: ByteRange, cancel: Cancel) -> Iterator[Buffer]:  # noqa: ARG002 - nothing can be cancelled
        yield memoryview(self.data)[part.start : part.stop]


def _parts(body: Body, layout: Multipart, cancel: Cancel) -> Iterator[Buffer]:
    """Several parts of a body, each behind its own head, which waits for the first bytes of the part: where there are
    none to be had, the answer is not begun."""
    for head, part in zip(layout.heads, layout.ranges, strict=True):
        pieces = body.open(part, cancel)
        begun = next(pieces)
        yield head
        yield begun
        yield from pieces
    yield layout.end


async def _read_on(
    context: Context, piece: Buffer | None, pieces: Iterator[Buffer], left: int, cancel: Cancel
) -> AsyncIterator[Buffer]:
    """Pieces that block while they are read, each in a thread; nothing is read behind the last one."""
    while piece is not None and left > 0:
        left -= len(piece)
        yield piece
        cancel.check()
        piece = await context.threads.run(next, pieces, None) if left > 0 else None


async def _cut(data: memoryview) -> AsyncIterator[Buffer]:
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]
