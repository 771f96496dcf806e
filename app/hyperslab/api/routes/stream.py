"""``/v1/stream/{group}``: acquisition streams. PATCH has the header names and rules of the IETF draft *Resumable
Uploads for HTTP*."""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, cast, get_args
from urllib.parse import quote

import numpy as np

from hyperslab.api.admission import Share
from hyperslab.api.request import Request
from hyperslab.api.response import Headers, Pieces, Response, json_response
from hyperslab.api.upload import Body, check_as_is, json_object, media_type, parse_json_body, parse_npy, received_body
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import (
    BadBody,
    BadDefinition,
    BadParameter,
    Cancelled,
    ClientStalled,
    HyperslabError,
    MismatchingUploadOffset,
    RouteNotFound,
    StreamNotFound,
    UnsupportedMediaType,
    shown,
)
from hyperslab.streams.progress import Progress
from hyperslab.streams.service import IfExists, Upload
from hyperslab.streams.sessions import LARGEST_PIECE, PIECE_BYTES
from hyperslab.streams.settings import parse_settings
from hyperslab.streams.tails import LARGEST_NOTE
from hyperslab.wire import (
    CONTENT_DIGEST,
    FRAMES,
    JSON,
    JSON_LINES,
    MAX_KEY_BYTES,
    NPY,
    PARTIAL_UPLOAD,
    RAW,
    STREAM_EPOCH,
    UPLOAD_COMPLETE,
    UPLOAD_LIMIT,
    UPLOAD_OFFSET,
)

_PAUSE: Final = 0.2
"""Seconds without a byte after which a piece is stored, however short."""
_LONGEST_PIECE: Final = 2.0
"""Seconds after which a piece is stored, though more bytes arrive."""

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")

_Run = Callable[..., Coroutine[Any, Any, Any]]
"""Calls a blocking function in a worker thread for writes."""


def _progress(request: Request, path: str, key: str | None) -> Progress:
    return request.context.streams.array(path, key).progress()


async def get_stream(request: Request) -> Response:
    """The state, with the upload headers of the array ``key``; or with ``…/frames`` the metadata of its frames."""
    key, (path, _, action) = request.query.values.get("key"), request.tail.rpartition("/")
    known = {"key", "from"} if action == "frames" else {"key"}
    request.query.only(known)
    try:
        state = await request.run(request.context.streams.state, request.tail)
    except StreamNotFound:
        if action != "frames":
            raise
        return await _frame_lines(request, path, key)
    headers: Headers = ((b"content-type", JSON.encode()), (b"cache-control", b"no-store"))
    if key is not None or len(state["arrays"]) == 1:
        headers += _upload_headers(await request.run(_progress, request, request.tail, key), state["state"])
    return Response(200, headers, dump_json(state))


async def _frame_lines(request: Request, path: str, key: str | None) -> Response:
    """Metadata of the durable frames of one array, as JSON lines."""
    start, streams = request.query.integer("from", 0, low=0, high=2**62), request.context.streams
    writer = await request.run(streams.array, path, key)
    durable = (await request.run(writer.read)).end // writer.array.frame_nbytes
    lines = partial(writer.frame_lines, start, durable)
    size = await request.run(lambda: sum(map(len, lines())))
    found = await request.run(lines)

    async def pieces() -> AsyncIterator[bytes]:
        while (piece := await request.run(next, found, None)) is not None:
            yield piece

    headers = ((b"content-type", JSON_LINES.encode()), (b"cache-control", b"no-store"))
    return Response(200, headers, Pieces(size, pieces(), request.context.options.idle_seconds))


async def put_stream(request: Request) -> Response:
    """Open a stream: 201 with its state, or 200 if it is resumed."""
    query = request.query
    query.only(("if_exists", "dry_run"))
    if_exists = cast("IfExists", query.choice("if_exists", get_args(IfExists)) or "error")
    document = await json_object(request)
    settings = await request.run(parse_settings, document)
    opened = await request.write(
        request.tail, request.context.streams.open, request.tail, settings, if_exists, dry_run=query.flag("dry_run")
    )
    place = ((b"location", f"{request.root_path}/v1/stream/{quote(request.tail)}".encode()),) if opened.created else ()
    epoch = () if opened.state["state"] == "dry_run" else ((STREAM_EPOCH.lower().encode(), b"%d" % opened.epoch),)
    return json_response(opened.state, status=201 if opened.created else 200, headers=(*place, *epoch))


async def patch_stream(request: Request) -> Response:
    """Append bytes to one array: 204 with the offset when they are stored, 202 with ``ack=memory``."""
    query = request.query
    query.only(("key",))
    key, epoch, offset = query.values.get("key"), _epoch(request), _number(request, UPLOAD_OFFSET, "a number of bytes")
    completes, kind = request.header(UPLOAD_COMPLETE.lower().encode()), media_type(request)
    if completes not in (None, "?0", "?1"):
        raise BadParameter(UPLOAD_COMPLETE, completes, "?0 or ?1")
    if kind not in (None, PARTIAL_UPLOAD, RAW, NPY):
        raise UnsupportedMediaType(kind or "", [PARTIAL_UPLOAD, RAW, NPY])
    run: _Run = partial(request.write, f"{request.tail}/{key}")
    with await run(request.context.streams.upload, request.tail, key, offset, epoch) as upload:
        length = request.header(b"content-length")
        known = int(length) if length is not None and length.isdecimal() else None
        if kind != NPY and known is not None:
            upload.check(known)
        held = request.header(CONTENT_DIGEST.lower().encode()) is not None or kind == NPY
        if held or (known is None and upload.progress.size is not None):
            async with received_body(request) as body:
                data = npy_frames(body, upload.progress, offset) if kind == NPY else body
                upload.check(len(data))
                await run(upload.append, data)
        else:
            check_as_is(request)
            async with request.context.admission.hold() as share:
                await _receive(request, run, upload, known, share)
        if completes == "?1":
            await run(upload.complete)
    progress = upload.progress
    headers = _upload_headers(progress)
    if progress.settings.ack != "memory":
        return Response(204, headers)
    return Response(202, ((UPLOAD_OFFSET.lower().encode(), b"%d" % progress.offset), *headers[1:]))


async def post_stream(request: Request) -> Response:
    """``…/skip``: record missing frames; ``…/flush``: commit whole rows; ``…/frames``: append frames of any arrays."""
    path, _, action = request.tail.rpartition("/")
    streams, epoch = request.context.streams, _epoch(request)
    request.query.only(())
    if action == "flush":
        return json_response(await request.write(path, streams.flush, path, epoch))
    if action == "frames":
        return await _post_frames(request, path, epoch)
    if action != "skip":
        raise RouteNotFound(request.scope["path"])
    document = await json_object(request)
    for name in document.keys() - {"key", "frames", "reason", "at"}:
        raise BadDefinition(name, "is unknown; known are key, frames, reason, at")
    frames, at = document.get("frames"), document.get("at")
    if type(frames) is not int or not 1 <= frames < 2**62:
        raise BadDefinition("frames", f"expected a number of frames, found {shown(frames)}")
    if at is not None and (type(at) is not int or not 0 <= at < 2**62):
        raise BadDefinition("at", f"expected the index of a frame, found {shown(at)}")
    reason, key = document.get("reason", ""), document.get("key")
    if not isinstance(reason, str) or len(reason) > 1000:
        raise BadDefinition("reason", "expected a text of at most 1000 characters")
    if key is not None and not isinstance(key, str):
        raise BadDefinition("key", f"expected a text, found {shown(key)}")
    writer = await request.write(path, partial(streams.array, path, key, epoch=epoch, writing=True))
    await request.write(path, writer.skip, frames, reason, at)
    return Response(204, _upload_headers(await request.run(writer.progress)))


async def _post_frames(request: Request, path: str, epoch: int | None) -> Response:
    """Append frames of any arrays in order: 200 with the offset of each array that was named. A problem has these
    offsets too."""
    if media_type(request) != FRAMES:
        raise UnsupportedMediaType(media_type(request) or "", [FRAMES])
    streams = request.context.streams
    run: _Run = partial(request.write, path)
    await run(streams.check, path, epoch)
    uploads: dict[str, Upload] = {}
    error: HyperslabError | None = None
    try:
        async with _checked(request) as body, request.context.admission.hold() as share:
            entries = _Entries(body, request.context.options.idle_seconds)
            with ExitStack() as stack:
                while (key := await entries.key()) is not None:
                    if key not in uploads:
                        uploads[key] = stack.enter_context(await run(streams.upload, path, key, 0, epoch))
                    array = uploads[key].array
                    await share.grow(array.frame_nbytes + LARGEST_NOTE)
                    frame, note, data = await entries.frame(array.frame_nbytes)
                    uploads[key].seek(frame * array.frame_nbytes)
                    await run(uploads[key].append, data, note)
    except HyperslabError as found:
        error = found
    offsets = {}
    for name in [each.array.key for each in uploads.values()]:
        with suppress(HyperslabError):  # the stream is gone, as the error says
            offsets[name] = {"offset": (await request.run(_progress, request, path, name)).offset}
    if error is not None:
        error.extra = {"arrays": offsets}
        raise error
    return json_response({"arrays": offsets})


async def delete_stream(request: Request) -> Response:
    """Finish a stream, or discard it."""
    query, epoch = request.query, _epoch(request)
    query.only(("finish", "discard", "pad", "drop"))
    finish, discard, pad, drop = (query.flag(name, bare=False) for name in ("finish", "discard", "pad", "drop"))
    if finish == discard:
        raise BadParameter("finish", query.values.get("finish"), "either finish=true or discard=true")
    if pad and drop:
        raise BadParameter("pad", "true", "either pad=true or drop=true")
    if discard:
        await request.write(request.tail, request.context.streams.discard, request.tail, epoch)
        return Response(204, ())
    finishing = partial(request.context.streams.finish, request.tail, pad=pad, drop=drop, epoch=epoch)
    return json_response(await request.write(request.tail, finishing))


class _Entries:
    """Parser of a body of frames. Raises `BadBody` for an entry that is cut off."""

    def __init__(self, body: Body, patience: float) -> None:
        self._body = body
        self._patience = patience
        self._done = 0

    async def key(self) -> str | None:
        """The key of the next entry; None at the end of the body."""
        length = await self._read(_U32.size, at_end=True)
        if not length:
            return None
        nbytes = _U32.unpack(length)[0]
        if nbytes > MAX_KEY_BYTES:
            raise BadBody("the length of a key in bytes", f"at most {MAX_KEY_BYTES}", nbytes)
        try:
            return bytes(await self._read(nbytes)).decode()
        except UnicodeDecodeError as error:
            raise BadBody(f"a key is no UTF-8: {error}") from error

    async def frame(self, nbytes: int) -> tuple[int, bytes, memoryview]:
        """The rest of an entry: index of the frame, metadata as JSON, and the frame's ``nbytes`` bytes."""
        frame = _U64.unpack(await self._read(_U64.size))[0]
        length = _U32.unpack(await self._read(_U32.size))[0]
        if length > LARGEST_NOTE:
            raise BadBody(f"the metadata of frame {frame}, in bytes", f"at most {LARGEST_NOTE}", length)
        text = await self._read(length)
        note = dump_json(parse_json_body(bytes(text))) if length else b""
        if len(note) > LARGEST_NOTE:
            raise BadBody(f"the metadata of frame {frame}, in bytes", f"at most {LARGEST_NOTE}", len(note))
        found = _U64.unpack(await self._read(_U64.size))[0]
        if found != nbytes:
            raise BadBody(f"the bytes of frame {frame}", nbytes, found)
        return frame, note, await self._read(nbytes)

    async def _read(self, nbytes: int, *, at_end: bool = False) -> memoryview:
        """The next ``nbytes`` bytes, or none if the body ends here and may (``at_end``)."""
        found, done = np.empty(nbytes, np.uint8).data, 0
        while done < nbytes:
            count = await self._body.read_into(found[done:], pause=self._patience, within=self._patience)
            if not count and self._body.more:
                raise ClientStalled(self._done, self._patience)
            done, self._done = done + count, self._done + count
            if done < nbytes and not self._body.more:
                if at_end and not done:
                    return found[:0]
                raise BadBody("the body ends within an entry; bytes of its next part", nbytes, done)
        return found


@asynccontextmanager
async def _checked(request: Request) -> AsyncIterator[Body]:
    """The body as it arrives, or if it has a digest, after that was verified."""
    check_as_is(request)
    if request.header(CONTENT_DIGEST.lower().encode()) is None:
        yield Body(request.receive)
    else:
        async with received_body(request) as body:
            yield Body(request.receive, body)


async def _receive(request: Request, run: _Run, upload: Upload, length: int | None, share: Share) -> None:
    """Store a body piece by piece, receiving the next piece meanwhile; of a broken one, all that arrived. Pieces of a
    long body end with a group of rows, which then goes to chunks directly. The stream's memory covers buffers of one
    request; larger ones, and those of others, are admitted."""
    body, patience, loop = Body(request.receive), request.context.options.idle_seconds, asyncio.get_running_loop()
    rest, group = length if length is not None else LARGEST_PIECE, upload.group
    most = upload.piece if 2 * rest >= group else PIECE_BYTES
    if length is None and upload.covered:  # it may last, and then waits for no memory and holds none of others
        most = min(most, upload.covered // 2)
    storing: asyncio.Task[None] | None = None
    broken: HyperslabError | None = None
    size = min(most, max(1, rest))
    await share.grow(max(0, 2 * size - upload.covered))
    buffers = upload.session.take_buffers(size)
    at = upload.at
    while body.more and broken is None:
        buffers.reverse()
        count, end = 0, loop.time() + _LONGEST_PIECE
        room = min(size, most if not group else max(most // group, 1) * group - at % group)
        while count < room and body.more and loop.time() < end:
            step = buffers[0][count : min(room, count + PIECE_BYTES)]
            try:
                received = await body.read_into(step, pause=_PAUSE, within=patience, longest=_LONGEST_PIECE)
            except Cancelled as error:
                received, broken = 0, error
                break
            if not received and body.more and not count:
                broken = ClientStalled(at, patience)
            count += received
            if received < len(step):
                break
        if storing is not None:
            await storing
        storing = asyncio.create_task(run(upload.append, buffers[0][:count]))
        at += count
    if storing is not None:
        await storing
    upload.session.buffers = buffers if 2 * size <= upload.covered else []
    if broken is not None:
        raise broken


def npy_frames(body: memoryview, progress: Progress, offset: int | None) -> memoryview:
    """The bytes of whole frames in the dtype of the array. Raises `BadBody`, and `MismatchingUploadOffset` if they
    would begin inside a frame."""
    values, array = parse_npy(io.BytesIO(body)), progress.array
    at = progress.end if offset is None else offset
    if at % array.frame_nbytes:
        raise MismatchingUploadOffset(array.path, progress.end, at, "a frame has begun, and is not whole")
    if values.ndim < 2 or values.shape[-2:] != array.frame_shape:
        raise BadBody("the shape of the frames", ["any", *array.frame_shape], list(values.shape))
    if values.dtype.newbyteorder("=") != array.dtype.newbyteorder("="):
        raise BadBody("the dtype of the frames", str(array.dtype), str(values.dtype))
    frames = np.ascontiguousarray(values.astype(array.dtype, copy=False))
    return frames.reshape(-1).view(np.uint8).data


def _upload_headers(progress: Progress, state: str = "open") -> Headers:
    complete = progress.complete or state == "finished"
    limits = [] if progress.size is None else [f"max-size={progress.size}"]
    limits.append(f"max-age={progress.settings.expires_in}")
    return (
        (UPLOAD_OFFSET.lower().encode(), b"%d" % progress.end),
        (UPLOAD_COMPLETE.lower().encode(), b"?1" if complete else b"?0"),
        (UPLOAD_LIMIT.lower().encode(), ", ".join(limits).encode()),
    )


def _epoch(request: Request) -> int | None:
    return _number(request, STREAM_EPOCH, "the number that opening the stream has given")


def _number(request: Request, name: str, expected: str) -> int | None:
    text = request.header(name.lower().encode())
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise BadParameter(name, text, expected)
    return int(text)
