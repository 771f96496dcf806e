"""HTTP response: status, headers, and a body in memory or read as it is sent."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from typing import Any, Final

import numpy as np
import starlette.responses
from starlette.types import Message, Receive, Scope, Send

from hyperslab.api.options import ApiOptions
from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.nodes import MountedStore
from hyperslab.engine.jsontext import dump_in_pieces
from hyperslab.errors import Cancelled
from hyperslab.wire import ARRAY_CHUNKS, ARRAY_DTYPE, ARRAY_SHAPE, JSON, MAX_DTYPE_BYTES, SERVER_TIMING, format_dtype

Headers = tuple[tuple[bytes, bytes], ...]
Buffer = bytes | memoryview

PATIENCE: Final = "hyperslab.patience"
"""Application state: seconds until a server may disconnect an idle client."""
ENDING: Final = "hyperslab.ending"
"""Application state: an `Event` set when the process is about to end."""
HELD: Final = "hyperslab.held"
"""Scope key: an `AsyncExitStack` that is closed when the response has been sent, or failed."""
METHOD: Final = "hyperslab.method"
"""Scope key: the method as sent; HEAD is routed as GET."""
REFUSED: Final = "hyperslab.refused"
"""Scope key: the error for a request that goes no further."""


REVALIDATED: Final = b"no-cache, no-transform"
"""``Cache-Control`` of what may change. A proxy that compresses would weaken the tag and drop the length, and with them
``If-Match``, ranges and ``HEAD`` (RFC 9111 §5.2.2.6)."""


class Pieces:
    """A body of ``size`` bytes (None: unknown), sent in pieces no faster than the client receives it.

    The response ends if the client accepts no piece within ``patience`` seconds; `protocol` disconnects it.
    """

    def __init__(self, size: int | None, pieces: AsyncIterator[Buffer], patience: float) -> None:
        self.size = size
        self._pieces = pieces
        self._patience = patience

    async def send(self, start: Message, send: Send) -> None:
        """Send the head and all pieces; returns when the client has made room for the last one.

        A server's ``send`` returns when a piece is queued, so the next one is read during its transmission; it waits
        before it queues another, so memory stays bounded. The empty piece at the end waits for the last one.
        """

        async def hand_over(message: Message) -> None:
            try:
                async with asyncio.timeout(self._patience):
                    await send(message)
            except TimeoutError as error:
                raise Cancelled from error

        await hand_over(start)
        left = self.size or 0
        async for piece in self._pieces:
            left -= len(piece)
            await hand_over({"type": "http.response.body", "body": piece, "more_body": True})
        if left > 0:
            raise RuntimeError(f"a body ended {left} bytes short of its size")
        await hand_over({"type": "http.response.body", "body": b""})


class Response(starlette.responses.Response):
    """A response with a complete head; ``content`` None: of unknown size, for HEAD."""

    def __init__(self, status_code: int = 200, headers: Headers = (), content: Buffer | Pieces | None = b"") -> None:
        self.status_code = status_code
        self.raw_headers = [*headers]
        self.content = content
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - of ASGI
        """Send it; without the body for HEAD."""
        headers, content = self.raw_headers, self.content
        if content is not None and self.status_code not in (204, 304):
            size = content.size if isinstance(content, Pieces) else len(content)
            headers = headers if size is None else [*headers, (b"content-length", b"%d" % size)]
        start: Message = {"type": "http.response.start", "status": self.status_code, "headers": headers}
        is_wanted = scope.get(METHOD) != "HEAD"
        if is_wanted and isinstance(content, Pieces):
            await content.send(start, send)
            return
        await send(start)
        await send({"type": "http.response.body", "body": content if is_wanted and content else b""})


def page_response(body: bytes, media_type: str, headers: Mapping[str, str], status: int = 200) -> Response:
    """A small response with these headers; text is UTF-8."""
    text = f"{media_type}; charset=utf-8" if media_type.startswith("text/") and ";" not in media_type else media_type
    pairs = [(name.lower().encode(), value.encode()) for name, value in {**headers, "content-type": text}.items()]
    return Response(status, tuple(pairs), body)


def json_response(document: Any, *, status: int = 200, headers: Headers = (), depth: int = 0) -> Response:
    """A JSON document without a validator; ``depth`` as for `dump_in_pieces`."""
    described = ((b"content-type", JSON.encode()), (b"cache-control", b"no-cache"), *headers)
    return Response(status, described, json_body(document, depth))


def json_body(document: Any, depth: int = 0) -> bytes:
    """A document as JSON, which ends with a line feed; ``depth`` as for `dump_in_pieces`."""
    return dump_in_pieces(document, depth) + b"\n"


def strong_etag(version: str) -> str:
    """A strong entity tag from the version of a key, without doubled quotes; long versions, as of other web servers,
    are hashed to keep headers small."""
    bare = version.removeprefix("W/").strip('"')
    if len(bare) > 512:
        return etag_of(bare.encode())
    if not re.fullmatch(r"[\x21\x23-\x7e]+", bare):
        bare = bare.encode().hex()
    return f'"{bare}"'


def etag_of(data: bytes) -> str:
    """A strong entity tag from a digest of bytes, those of the body or of its inputs."""
    return f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'


@lru_cache(4096)
def http_date(seconds: float) -> str:
    """An HTTP date from seconds since 1970, as ``Sun, 06 Nov 1994 08:49:37 GMT``."""
    return formatdate(int(seconds), usegmt=True)


def caching(mount: MountedStore | None, options: ApiOptions, *, negotiated: bool = False) -> Headers:
    """``Cache-Control`` for data of a store: immutable if it never changes, else revalidated each time."""
    policy: Headers = ((b"cache-control", REVALIDATED),)
    if mount is not None and mount.recheck == "never" and not mount.writable:
        policy = immutable_for(options.immutable_seconds, options)
    return (*policy, (b"vary", b"Accept")) if negotiated else policy


def immutable_for(seconds: int, options: ApiOptions) -> Headers:
    """``Cache-Control`` without revalidation; private if reads need a token, so that no shared cache stores it."""
    whose = "private" if options.is_private else "public"
    return ((b"cache-control", f"{whose}, max-age={seconds}, immutable, no-transform".encode()),)


def array_headers(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Headers:
    """Shape and dtype headers of a body; without a dtype whose text exceeds clients' limits of headers."""
    sizes, text = ",".join(map(str, shape)), format_dtype(dtype).encode("ascii", "backslashreplace")
    headers = ((ARRAY_SHAPE.lower().encode(), f"[{sizes}]".encode()), (ARRAY_DTYPE.lower().encode(), text))
    return headers if len(text) <= MAX_DTYPE_BYTES else headers[:1]


def cost_headers(
    touched: int, cached: int, cost: ReadCost | None, timings: Mapping[str, float], *, is_sampled: bool = False
) -> Headers:
    """``Array-Chunks`` and ``Server-Timing`` (milliseconds), as known at the start of the response. ``is_sampled``: not
    all chunks under a picture were read."""
    nbytes = cost.bytes_read if cost is not None else 0
    phases = timings if cost is None else {**timings, **cost.timings}
    timing = ", ".join([f"{phase};dur={seconds * 1000:.3f}" for phase, seconds in phases.items()])
    chunks = b"touched=%d, cached=%d, bytes=%d" % (touched, cached, nbytes) + b", sampled" * is_sampled
    return ((ARRAY_CHUNKS.lower().encode(), chunks), (SERVER_TIMING.lower().encode(), timing.encode()))


class Deadline:
    """The time after which a connection is ended, unless it is set anew; the settings may shorten it (`PATIENCE`)."""

    def __init__(self, end: Callable[[], None], loop: asyncio.AbstractEventLoop, state: Mapping[str, Any]) -> None:
        self._end, self._loop, self._state = end, loop, state
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def set(self, longest: float | None) -> None:
        """``longest``: seconds from now, or None for no deadline."""
        if self._timer is not None:
            self._timer.cancel()
        seconds = None if longest is None else min(longest, self._state.get(PATIENCE, longest))
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._end)


class JoinedTransport:
    """Transport of a response whose head waits for the first part of its body, as ASGI has it: one packet, not two."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head:
            self._transport.writelines((self._head, data) if data else (self._head,))
            self._head, self.write = b"", self._transport.write  # type: ignore[method-assign]
        elif data.startswith(b"HTTP/1.1 100"):
            self._transport.write(data)
        else:
            self._head = data

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
        self._transport.close()
