"""HTTP response: a status, headers, and a body that is in memory or read as it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from starlette.types import Message, Send

from hyperslab.api.options import ApiOptions
from hyperslab.api.request import Request
from hyperslab.api.threads import HANG_UP
from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.nodes import MountedStore
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import Cancelled
from hyperslab.wire import ARRAY_CHUNKS, ARRAY_DTYPE, ARRAY_SHAPE, JSON, LONGEST_DTYPE, SERVER_TIMING, format_dtype

Headers = tuple[tuple[bytes, bytes], ...]
Buffer = bytes | memoryview


class Pieces:
    """A body of ``size`` bytes that is sent a piece at a time, no faster than the client takes it.

    A client that makes no room for a piece within ``patience`` seconds is let go.
    """

    def __init__(self, size: int, pieces: AsyncIterator[Buffer], patience: float) -> None:
        self.size = size
        self._pieces = pieces
        self._patience = patience

    async def send(self, start: Message, request: Request, send: Send) -> None:
        """Send the head and all pieces; returns when the client has made room for the last one.

        A server's ``send`` returns when it has queued a piece, so that the next one is read while the network takes
        this one; it waits before it queues another, so memory stays bounded. The empty piece at the end waits for the
        last one.
        """
        await self._hand_over(start, request, send)
        left = self.size
        async for piece in self._pieces:
            left -= len(piece)
            await self._hand_over({"type": "http.response.body", "body": piece, "more_body": True}, request, send)
        if left > 0:
            raise RuntimeError(f"a body ended {left} bytes short of its size")
        await self._hand_over({"type": "http.response.body", "body": b""}, request, send)

    async def _hand_over(self, message: Message, request: Request, send: Send) -> None:
        """Raises `Cancelled` where the client has not made room for it in time."""
        try:
            async with asyncio.timeout(self._patience):
                await send(message)
        except TimeoutError as error:
            hang_up = request.scope.get(HANG_UP)
            if hang_up is not None:  # else the server closes the connection once all is sent
                hang_up()
            raise Cancelled from error


@dataclass(frozen=True, slots=True)
class Response:
    """A response whose head is complete; ``body`` None: its size is not known, and nobody asks for it (HEAD)."""

    status: int
    headers: Headers
    body: Buffer | Pieces | None = b""

    async def send(self, request: Request, send: Send) -> None:
        """Send it; for HEAD the body stays behind."""
        headers, body = self.headers, self.body
        if body is not None and self.status not in (204, 304):
            size = body.size if isinstance(body, Pieces) else len(body)
            headers = (*headers, (b"content-length", b"%d" % size))
        start: Message = {"type": "http.response.start", "status": self.status, "headers": headers}
        if isinstance(body, Pieces) and request.method != "HEAD":
            await body.send(start, request, send)
            return
        data = body if isinstance(body, bytes | memoryview) and request.method != "HEAD" else b""
        await send(start)
        await send({"type": "http.response.body", "body": data})


def json_response(document: Any, *, status: int = 200, headers: Headers = ()) -> Response:
    """A JSON document that is not worth a validator."""
    described = ((b"content-type", JSON.encode()), (b"cache-control", b"no-cache"), *headers)
    return Response(status, described, dump_json(document))


_SHAPE, _DTYPE = ARRAY_SHAPE.lower().encode(), ARRAY_DTYPE.lower().encode()
_CHUNKS, _TIMING = ARRAY_CHUNKS.lower().encode(), SERVER_TIMING.lower().encode()


def caching(mount: MountedStore | None, options: ApiOptions, *, negotiated: bool = False) -> Headers:
    """``Cache-Control`` for what lies in a store: immutable if it never changes, else revalidated each time."""
    policy: Headers = ((b"cache-control", b"no-cache"),)
    if mount is not None and mount.recheck == "never" and not mount.writable:
        policy = immutable_for(options.immutable_seconds, options)
    return (*policy, (b"vary", b"Accept")) if negotiated else policy


def immutable_for(seconds: int, options: ApiOptions) -> Headers:
    """``Cache-Control`` without revalidation; private if a token is needed to read: no shared cache may store it."""
    whose = "private" if options.read_tokens else "public"
    return ((b"cache-control", f"{whose}, max-age={seconds}, immutable".encode()),)


def array_headers(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Headers:
    """What the bytes of a body mean; not the dtype where its text is larger than clients let a header be."""
    return ((_SHAPE, b"[%s]" % ",".join(map(str, shape)).encode()), *_dtype_header(dtype))


@lru_cache(4096)
def _dtype_header(dtype: np.dtype[Any]) -> Headers:
    text = format_dtype(dtype).encode("ascii", "backslashreplace")
    return ((_DTYPE, text),) if len(text) <= LONGEST_DTYPE else ()


def cost_headers(touched: int, cached: int, cost: ReadCost | None, timings: Mapping[str, float]) -> Headers:
    """``Array-Chunks`` and ``Server-Timing`` (milliseconds), as far as is known when the status line is sent."""
    nbytes = cost.bytes_read if cost is not None else 0
    spent = timings if cost is None else {**timings, **cost.timings}
    timing = ", ".join([f"{phase};dur={seconds * 1000:.3f}" for phase, seconds in spent.items()])
    return ((_CHUNKS, b"touched=%d, cached=%d, bytes=%d" % (touched, cached, nbytes)), (_TIMING, timing.encode()))
