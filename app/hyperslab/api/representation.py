"""A resource as it is to be sent: validators first, then headers, then as much of the body as was asked for."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from starlette.types import Send

from hyperslab.api.bodies import Body, Bytes, Produced, Ready, open_parts
from hyperslab.api.conditional import Conditions, Validators, http_date
from hyperslab.api.context import Context
from hyperslab.api.metrics import ROUTE
from hyperslab.api.ranges import ByteRange, Multipart, parse_range
from hyperslab.api.replay import CACHE_KEY, CachedResponse, Sources
from hyperslab.api.reply import Answer, Headers
from hyperslab.api.request import Request
from hyperslab.api.streaming import Stream, held, retagged, send_stream
from hyperslab.arrays.cost import Cancel


@dataclass(frozen=True, slots=True)
class Representation:
    """Answers GET and HEAD with conditions and ranges, as RFC 9110 wants it, whatever the body is.

    ``etag`` is strong and known before any of the body is read; ``modified`` in seconds since 1970. ``headers`` go with
    every status that tells of the body, ``always`` with 304 too. ``sources``: what it is made of, where an answer is
    worth keeping.
    """

    context: Context
    etag: str
    media_type: str
    body: Body | Produced
    headers: Headers = ()
    always: Headers = ((b"cache-control", b"no-cache"),)
    modified: float | None = None
    sources: Sources | None = None

    async def send(self, request: Request, send: Send) -> None:
        """See `Reply`; raises `ChangedWhileRead` where it is to be made anew as long as ``request.tries_left``."""
        conditions = request.conditions
        if not conditions.check(self._validators):
            await Answer(304, self._validating()).send(request, send)
        elif request.method == "HEAD":
            await self._send_head(send)
        elif isinstance(self.body, Produced):
            await self._send_produced(request, conditions, self.body, send)
        else:
            await self._send_part(request, conditions, self.body, send)

    @property
    def _validators(self) -> Validators:
        return Validators(self.etag, self.modified)

    def _validating(self) -> Headers:
        """What 304 repeats of 200 (RFC 9110 §15.4.5)."""
        headers = ((b"etag", self.etag.encode("latin-1")), *self.always)
        if self.modified is None:
            return headers
        return (*headers, (b"last-modified", http_date(self.modified).encode()))

    def _describing(self, media_type: str, size: int | None) -> Headers:
        length = () if size is None else ((b"content-length", str(size).encode()),)
        described = ((b"content-type", media_type.encode()), *length, (b"accept-ranges", b"bytes"))
        return (*described, *self._validating(), *self.headers)

    async def _send_head(self, send: Send) -> None:
        """The size of what must be made to be measured stays open, as RFC 9110 §9.3.2 allows."""
        size = None if isinstance(self.body, Produced) else self.body.size
        headers = (*self._describing(self.media_type, size), *self.body.head())
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    async def _send_produced(self, request: Request, conditions: Conditions, body: Produced, send: Send) -> None:
        """What is made counts as memory until the client has taken it."""
        async with self._held(request, body.memory) as cancel:
            ready = await self.context.threads.run(body.produce, cancel)
            await self._send_part(request, conditions, Bytes(*ready), send, cancel)

    def _held(self, request: Request, nbytes: int) -> AbstractAsyncContextManager[Cancel]:
        return held(self.context.admission, request, nbytes)

    async def _send_part(
        self, request: Request, conditions: Conditions, body: Body, send: Send, cancel: Cancel | None = None
    ) -> None:
        """``cancel``: of a caller that holds the memory of the body."""
        ranges = None
        if conditions.range_applies(self._validators, time.time()):
            ranges = parse_range(request.header(b"range"), body.size)
        if ranges is not None and len(ranges) > 1:
            layout = Multipart(ranges, body.size, self.media_type)
            headers = self._describing(layout.content_type, layout.nbytes)
            stream = Stream(206, headers, layout.nbytes, partial(open_parts, body, layout))
            await self._stream(stream, body.memory, request, send, cancel)
            return
        part = ranges[0] if ranges else ByteRange(0, body.size)
        status, headers = 200, self._describing(self.media_type, len(part))
        if ranges:
            status, headers = 206, (*headers, (b"content-range", part.content_range(body.size).encode()))
        ready = body.ready(part)
        if ready is None and body.is_small:
            ready = await self.context.threads.run(body.fetch, part)
        if ready is not None:
            if ready.moved:
                headers = retagged(request, headers, whole=status == 200)
            await _send_ready(status, headers, ready, send)
            if self.sources is not None and status == 200 and not ready.moved:
                self._store(self.sources, request, headers, ready)
        else:
            stream = Stream(status, headers, len(part), partial(body.open, part))
            await self._stream(stream, body.memory, request, send, cancel)

    def _store(self, sources: Sources, request: Request, headers: Headers, ready: Ready) -> None:
        key = request.scope.get(CACHE_KEY)
        if key is not None:
            tag, route = self.etag.encode("latin-1"), request.scope.get(ROUTE, "other")
            self.context.responses.put(
                key, CachedResponse(sources, tag, headers, self._validating(), ready.data, route)
            )

    async def _stream(self, stream: Stream, memory: int, request: Request, send: Send, cancel: Cancel | None) -> None:
        async with self._held(request, memory) if cancel is None else nullcontext(cancel) as until:
            await send_stream(self.context, stream, request, send, until)


async def _send_ready(status: int, headers: Headers, ready: Ready, send: Send) -> None:
    await send({"type": "http.response.start", "status": status, "headers": (*headers, *ready.headers)})
    await send({"type": "http.response.body", "body": ready.data})
