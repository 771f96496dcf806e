"""Request bodies: read with a size limit, verified against digests, and parsed without execution of code."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import io
import math
import re
from ast import literal_eval
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from tokenize import TokenError
from typing import Any, BinaryIO, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray
from starlette.types import Receive

from hyperslab.api.admission import Share
from hyperslab.api.exchange import Exchange
from hyperslab.api.services import Services
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES, parse_json
from hyperslab.errors import (
    BadBody,
    BadParameter,
    Cancelled,
    ClientStalled,
    DigestMismatch,
    TooLarge,
    UnsupportedMediaType,
    shown,
)
from hyperslab.wire import CONTENT_DIGEST, JSON, MERGE_PATCH, RAW, numpy_dtype


class _Crc32c(google_crc32c.Checksum):
    """CRC-32C in hashlib's interface."""

    def update(self, data: bytes | memoryview) -> None:
        super().update(bytes(data))  # type: ignore[no-untyped-call]  # of bytes, bytes() makes no copy


class ContentDigest:
    """Digests sent by the client, updated with the body as it arrives."""

    def __init__(self, header: str) -> None:
        """Parse the header's value; unknown algorithms are ignored. Raises `BadParameter`."""
        algorithms: dict[str, Any] = {"sha-512": hashlib.sha512, "sha-256": hashlib.sha256, "crc32c": _Crc32c}
        member = re.compile(r"\s*([a-z*][a-z0-9_.*-]*)=:([A-Za-z0-9+/=]*):\s*(?:,|$)")
        self._digests: dict[str, tuple[bytes, Any]] = {}
        position = 0
        while position < len(header):
            match = member.match(header, position)
            if match is None:
                raise BadParameter(CONTENT_DIGEST, header, "algorithm=:base64:, and a comma between several")
            try:
                sent = base64.b64decode(match[2], validate=True)
            except binascii.Error as error:
                raise BadParameter(CONTENT_DIGEST, match[2], "base64 between the colons") from error
            if match[1] in algorithms:
                self._digests[match[1]] = sent, algorithms[match[1]]()
            position = match.end()

    def update(self, data: bytes | memoryview) -> None:
        for _, received in self._digests.values():
            received.update(data)

    def check(self) -> None:
        """Raise `DigestMismatch` unless all digests match."""
        for name, (sent, received) in self._digests.items():
            digest_received = received.digest()
            if digest_received != sent:
                raise DigestMismatch(name, base64.b64encode(sent).decode(), base64.b64encode(digest_received).decode())


_SLOWEST: Final = 16 << 10
"""Minimum rate of an upload in bytes a second; a slower client only holds a connection."""
_JSON_GROWTH: Final = 24
"""Maximum memory of Python objects per byte of JSON: the three bytes of ``{},`` become a dict of 64, and a
reference."""


@asynccontextmanager
async def received_body(
    request: Exchange, *, default_type: str = RAW, max_bytes: int | None = None, extra_bytes: int = 0
) -> AsyncIterator[memoryview]:
    """The whole body of a write, writable and counted against the budget of bytes in flight as it arrives; JSON counts
    as the objects parsed from it.

    ``default_type``: media type of a body without Content-Type; ``max_bytes``: limit of its size, by default the
    configured one; ``extra_bytes``: memory of its further processing. Requests that can be refused without the body
    should be refused before.

    Raises `TooLarge` as soon as it is larger, `DigestMismatch`, `Cancelled` if the client leaves before its end,
    `Overloaded`; `ClientStalled` if the client sends nothing for ``idle_seconds``, or falls behind `_SLOWEST` by more
    than that; `UnsupportedMediaType` for a compressed body, and `BadParameter` for one with Content-Range, a part of
    the values (RFC 9110 §14.5; ``curl -C -`` sends such uploads).
    """
    context, kind = request.context, media_type(request)
    limit = context.options.max_upload_bytes if max_bytes is None else max_bytes
    is_json = (kind or default_type) in (JSON, MERGE_PATCH)
    longest = min(limit, _room_for_json(context)) if is_json else limit
    check_as_is(request)
    async with context.admission.hold() as share:
        body = await _read(request, limit if kind is None else longest, context.options.idle_seconds, share)
        await share.grow((_JSON_GROWTH * min(len(body), longest) if is_json else len(body)) + extra_bytes)
        yield body


def check_is_json(request: Exchange, *kinds: str) -> None:
    """Raise `UnsupportedMediaType` for a body that says it is neither JSON nor of another of ``kinds``."""
    kind = media_type(request)
    if kind not in (None, JSON, *kinds):
        raise UnsupportedMediaType(kind or "", [JSON, *kinds])


async def json_object(request: Exchange, path: str, *kinds: str, writes: bool = True) -> dict[str, Any]:
    """The JSON object in the body of a write to ``path``, of a media type of ``kinds`` or JSON; read only if the store
    is writable, or the request ``writes`` nothing."""
    check_is_json(request, *kinds)
    mount, _ = request.service.catalog.locate(path)
    if writes:
        mount.check_writable()
    async with received_body(request, default_type=JSON, max_bytes=MAX_DOCUMENT_BYTES) as body:
        document = await request.run(parse_json_body, body)
    if not isinstance(document, dict):
        raise BadBody("the body", "a JSON object", shown(document))
    return document


def check_as_is(request: Exchange) -> None:
    """Raise `UnsupportedMediaType` for a compressed body, or `BadParameter` for a partial one."""
    coding = (request.header(b"content-encoding") or "identity").strip().lower()
    if coding != "identity":
        raise UnsupportedMediaType(coding, ["identity"], "Content-Encoding")
    part = request.header(b"content-range")
    if part is not None:
        raise BadParameter("Content-Range", part, "a whole body: write a part with select=")


class Body:
    """The body of a request as it arrives; ``received``: the whole body, if already read."""

    def __init__(self, receive: Receive, received: memoryview | None = None) -> None:
        self._may_come = received is None
        self._receive = receive
        self._rest = memoryview(b"") if received is None else received

    @property
    def more(self) -> bool:
        """Whether more may follow."""
        return self._may_come or bool(self._rest)

    async def read_into(self, out: memoryview, *, pause: float, within: float, longest: float = math.inf) -> int:
        """Fill ``out`` with the next bytes and return their number: fewer at the end of the body, after ``pause``
        seconds without a byte following another, after ``within`` seconds, ``longest`` seconds after the first byte, or
        when the client has left.

        Raises `Cancelled` if it has left and no byte came.
        """
        done, loop = 0, asyncio.get_running_loop()
        end = loop.time() + within
        while done < len(out):
            if self._rest:
                if not done:
                    end = min(end, loop.time() + longest)
                count = min(len(self._rest), len(out) - done)
                out[done : done + count] = self._rest[:count]
                self._rest, done = self._rest[count:], done + count
                continue
            if not self._may_come:
                break
            try:
                async with asyncio.timeout_at(min(end, loop.time() + pause) if done else end):
                    message = await self._receive()
            except TimeoutError:
                break
            if message["type"] == "http.disconnect":
                if done:
                    break
                raise Cancelled
            self._rest, self._may_come = memoryview(message.get("body", b"")), message.get("more_body", False)
        return done


async def _read(request: Exchange, limit: int, patience: float, share: Share) -> memoryview:
    """Read the body. For a stated length the whole buffer is reserved at once, but memory is used only as it fills;
    ``share`` grows with received bytes."""
    body, text = Body(request.receive), request.header(b"content-length")
    if text is not None and not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise BadParameter("Content-Length", text, "a number of bytes")
    stated = None if text is None else int(text)
    if stated is not None and stated > limit:
        raise TooLarge("the body of a request", stated, limit)
    buffer, size, step_bytes = np.empty(stated or 0, np.uint8), 0, 1 << 20  # bytes admitted per step
    header = request.header(b"content-digest")
    digest = None if header is None else ContentDigest(header)
    elapsed = 0.0
    while body.more and size != stated:
        if size == len(buffer):
            larger = np.empty(min(max(step_bytes, 2 * size), limit + 1), np.uint8)
            larger[:size] = buffer[:size]
            buffer = larger
        step = buffer.data[size : size + step_bytes]
        await share.grow(-(-(size + len(step)) >> 20) << 20)  # whole MiB
        began, within = monotonic(), min(patience, patience + size / _SLOWEST - elapsed)
        count = await body.read_into(step, pause=patience, within=within)
        elapsed += monotonic() - began
        size += count
        if size > limit:
            raise TooLarge("the body of a request", size, limit)
        if body.more and (not count or elapsed > patience + size / _SLOWEST):
            raise ClientStalled(size, patience)
        if digest is not None:
            digest.update(step[:count])
    if digest is not None:
        digest.check()
    return buffer.data[:size]


def max_json_bytes(context: Services) -> int:
    """Maximum size of a JSON body with values or points."""
    return min(context.options.max_upload_bytes, _room_for_json(context))


def _room_for_json(context: Services) -> int:
    """Size of JSON whose parsed form fits into the memory budget."""
    return max(64 << 10, context.admission.limit // _JSON_GROWTH)


def max_value_bytes(request: Exchange) -> int:
    """Maximum bytes of values in a body of the request's media type."""
    if media_type(request) != JSON:
        return request.context.options.max_upload_bytes
    # JSON takes up to 8 bytes for one of values: ``false,``, or 25 for a float32
    return max(1, max_json_bytes(request.context) // 8)


def media_type(request: Exchange) -> str | None:
    """The Content-Type without parameters, in lower case; None if the client did not choose one."""
    text = request.header(b"content-type")
    kind = None if text is None else text.partition(";")[0].strip().lower()
    # the default of ``curl --data-binary``; no route takes forms
    return None if kind == "application/x-www-form-urlencoded" else kind


def parse_npy(stream: BinaryIO) -> NDArray[Any]:
    """The array of the npy file that ends the stream; raises as `next_npy`, and `BadBody` for bytes behind it, which
    might be values that would be lost."""
    array = next_npy(stream)
    end, length = stream.tell(), stream.seek(0, io.SEEK_END)
    if length > end:
        raise BadBody(f"{length - end} bytes too many behind the npy array; the body, in bytes", end, length)
    return array


def next_npy(stream: BinaryIO) -> NDArray[Any]:
    """The array of an npy file at the stream's position, which moves to its end; raises `BadBody`, also for objects,
    which could execute code."""
    start = stream.tell()
    try:
        _check_descr(_npy_header(stream)["descr"])
        stream.seek(start)
        array: NDArray[Any] = np.load(stream, allow_pickle=False)
    # exceptions of numpy's parser of headers, which is Python's own
    except (
        ValueError,
        TypeError,
        LookupError,
        SyntaxError,
        TokenError,
        RecursionError,
        EOFError,
        MemoryError,
        OverflowError,
    ) as error:
        raise BadBody(f"the body is not npy: {error}") from error
    return array


def _npy_header(stream: BinaryIO) -> dict[str, Any]:
    """The header of an npy file (NEP 1) at the stream's position."""
    major, _ = np.lib.format.read_magic(stream)
    size = int.from_bytes(stream.read(2 if major == 1 else 4), "little")
    if size > 10_000:  # numpy's limit: longer ones are unsafe to parse
        raise ValueError(f"its header has {size} bytes")
    header: dict[str, Any] = literal_eval(str(stream.read(size), "utf8" if major == 3 else "latin1"))
    return header


def _check_descr(descr: Any) -> None:
    """Raise `ValueError` for type strings that are unsafe for numpy."""
    if isinstance(descr, str):
        numpy_dtype(descr)
    elif isinstance(descr, tuple):  # the items of a subarray
        _check_descr(descr[0])
    elif isinstance(descr, list):
        for field in descr:
            _check_descr(field[1])
    else:
        raise ValueError(f"{descr!r:.80} is no dtype")  # noqa: TRY004 - about the header, not about Python


def parse_json_body(body: bytes | memoryview, limit: int | None = None) -> Any:
    """The value of a JSON body; raises `BadBody`, and `TooLarge` above ``limit`` bytes."""
    if limit is not None and len(body) > limit:
        raise TooLarge("a JSON body", len(body), limit)
    try:
        return parse_json(bytes(body), limit=len(body))
    except ValueError as error:
        raise BadBody(f"the body is not JSON: {error}") from error
