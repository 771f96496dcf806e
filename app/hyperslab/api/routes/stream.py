"""``/v1/stream/{group}``: acquisition streams. PATCH has the header names and rules of the IETF draft *Resumable
Uploads for HTTP*."""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import quote

import numpy as np
from fastapi import Query, Request
from pydantic import Field

from hyperslab import errors
from hyperslab.api import docs
from hyperslab.api.admission import Share
from hyperslab.api.exchange import Exchange
from hyperslab.api.params import EndStreamQuery, FramesQuery, NodePath, NoQuery, OpenStreamQuery, StreamQuery
from hyperslab.api.response import Headers, Pieces, Response, json_body, json_response
from hyperslab.api.routing import Route, Router
from hyperslab.api.upload import Body, check_as_is, json_object, media_type, parse_json_body, parse_npy, received_body
from hyperslab.engine.jsontext import dump_json
from hyperslab.engine.validation import Document, validated
from hyperslab.errors import (
    BadBody,
    BadParameter,
    Cancelled,
    ClientStalled,
    HyperslabError,
    MismatchingUploadOffset,
    StreamNotFound,
    UnsupportedMediaType,
)
from hyperslab.streams.progress import Progress
from hyperslab.streams.service import Upload
from hyperslab.streams.sessions import LARGEST_PIECE, PIECE_BYTES
from hyperslab.streams.settings import Count, Number, StreamSettings, parse_settings
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
from hyperslab.wire.items import bytes_of

_PAUSE: Final = 0.2
"""Seconds without a byte after which a piece is stored, however short."""
_LONGEST_PIECE: Final = 2.0
"""Seconds after which a piece is stored, though more bytes arrive."""

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")

_Run = Callable[..., Coroutine[Any, Any, Any]]
"""Calls a blocking function in a worker thread for writes."""


router = Router(prefix="/v1/stream", tags=["streams"], default_response_class=Response, route_class=Route)

DOCUMENT = docs.content(JSON)
REFUSALS = docs.problems(
    errors.StreamNotFound,
    errors.StreamConflict,
    errors.StaleEpoch,
    errors.MismatchingUploadOffset,
    errors.CompletedUpload,
    errors.PartialFrame,
    errors.StreamFull,
    errors.ArrayFailed,
    errors.BadDefinition,
    errors.BadBody,
    errors.ReadOnly,
    errors.WriteForbidden,
    errors.ForeignOrigin,
)


class Skip(Document):
    """Frames that will not come."""

    key: str | None = None
    frames: Count
    at: Number | None = None
    reason: str = Field("", max_length=1000)


@router.get(
    "/{path:stream}",
    name="stream",
    summary="The state of a stream; with `key` also where the upload of one array stands",
    responses=docs.problems(errors.StreamNotFound) | {200: docs.answer("The state.", DOCUMENT, docs.UPLOAD)},
)
async def get_stream(request: Request, path: NodePath, query: Annotated[StreamQuery, Query()]) -> Response:
    """Upload headers are there if `key` names an array, or the stream has one only."""
    asked = Exchange(request)
    state = await asked.run(asked.context.streams.state, path)
    headers: Headers = ((b"content-type", JSON.encode()), (b"cache-control", b"no-store"))
    if query.key is not None or len(state["arrays"]) == 1:
        headers += _upload_headers(await asked.run(_progress, asked, path, query.key), state["state"])
    return Response(200, headers, json_body(state))


@router.put(
    "/{path:stream}",
    name="stream",
    summary="Open a stream: all its nodes are made, and empty",
    status_code=201,
    responses=REFUSALS
    | {
        201: docs.answer("The state of the new stream.", DOCUMENT, {**docs.PLACE, **docs.EPOCH}),
        200: docs.answer("The state of the one that goes on.", DOCUMENT, docs.EPOCH),
    },
    openapi_extra=docs.body({JSON: {"schema": docs.schema(StreamSettings)}}, *docs.DIGEST),
)
async def put_stream(request: Request, path: NodePath, query: Annotated[OpenStreamQuery, Query()]) -> Response:
    """201 with its state, or 200 if it is resumed. The body is the stream's settings."""
    asked = Exchange(request)
    await asked.run(_require, asked, path, query.if_exists == "replace")
    settings = await asked.run(parse_settings, await json_object(asked, path))
    opening = partial(asked.context.streams.open, path, settings, query.if_exists, dry_run=query.dry_run)
    opened = await asked.write(path, opening)
    place = ((b"location", f"{asked.root_path}/v1/stream/{quote(path)}".encode()),) if opened.created else ()
    epoch = () if opened.state["state"] == "dry_run" else ((STREAM_EPOCH.lower().encode(), b"%d" % opened.epoch),)
    return json_response(opened.state, status=201 if opened.created else 200, headers=(*place, *epoch))


@router.patch(
    "/{path:stream}",
    name="stream",
    summary="Send bytes of one array, which are stored when the answer comes",
    status_code=204,
    responses=REFUSALS | {204: docs.answer("All of it is stored.", headers=docs.UPLOAD)},
    openapi_extra=docs.body(docs.content(RAW, PARTIAL_UPLOAD, NPY), *docs.OFFSETS),
)
async def patch_stream(request: Request, path: NodePath, query: Annotated[StreamQuery, Query()]) -> Response:
    """Header names and rules are those of the IETF draft *Resumable Uploads for HTTP*."""
    asked, key = Exchange(request), query.key
    epoch, offset = _epoch(asked), _number(asked, UPLOAD_OFFSET, "a number of bytes")
    completes, kind = asked.header(UPLOAD_COMPLETE.lower().encode()), media_type(asked)
    if completes not in (None, "?0", "?1"):
        raise BadParameter(UPLOAD_COMPLETE, completes, "?0 or ?1")
    if kind not in (None, PARTIAL_UPLOAD, RAW, NPY):
        raise UnsupportedMediaType(kind or "", [PARTIAL_UPLOAD, RAW, NPY])
    run: _Run = partial(asked.write, f"{path}/{key}")
    with await run(asked.context.streams.upload, path, key, offset, epoch) as upload:
        length = asked.header(b"content-length")
        size = int(length) if length is not None and length.isdecimal() else None
        if kind != NPY and size is not None:
            upload.check(size)
        held = asked.header(CONTENT_DIGEST.lower().encode()) is not None or kind == NPY
        if held or (size is None and upload.progress.size is not None):
            async with received_body(asked) as body:
                data = npy_frames(body, upload.progress, offset) if kind == NPY else body
                upload.check(len(data))
                await run(upload.append, data)
        else:
            check_as_is(asked)
            async with asked.context.admission.hold() as share:
                await _receive(asked, run, upload, size, share)
        if completes == "?1":
            await run(upload.complete)
    return Response(204, _upload_headers(upload.progress))


@router.delete(
    "/{path:stream}",
    name="stream",
    summary="Finish a stream, or discard it with all that it has made",
    responses=REFUSALS | {200: docs.answer("The result of each array.", DOCUMENT), 204: docs.answer("It is gone.")},
    openapi_extra=docs.headers(*docs.SENDER),
)
async def delete_stream(request: Request, path: NodePath, query: Annotated[EndStreamQuery, Query()]) -> Response:
    """Either `finish=true` or `discard=true`."""
    asked = Exchange(request)
    epoch = _epoch(asked)
    if query.finish == query.discard:
        raise BadParameter("finish", request.query_params.get("finish"), "either finish=true or discard=true")
    if query.pad and query.drop:
        raise BadParameter("pad", "true", "either pad=true or drop=true")
    if query.discard:
        await asked.write(path, asked.context.streams.discard, path, epoch)
        return Response(204, ())
    finishing = partial(asked.context.streams.finish, path, pad=query.pad, drop=query.drop, epoch=epoch)
    return json_response(await asked.write(path, finishing))


@router.post(
    "/{path:inner}/flush",
    name="stream",
    summary="Store all whole rows in chunks",
    responses=REFUSALS | {200: docs.answer("The state.", DOCUMENT)},
    openapi_extra=docs.headers(*docs.SENDER),
)
async def flush_stream(
    request: Request,
    path: NodePath,
    query: Annotated[NoQuery, Query()],  # noqa: ARG001 - refuses all
) -> Response:
    """Readers of chunks see them then; readers of the service see all frames at once."""
    asked = Exchange(request)
    return json_response(await asked.write(path, asked.context.streams.flush, path, _epoch(asked)))


@router.post(
    "/{path:inner}/skip",
    name="stream",
    summary="Note that frames will not come",
    status_code=204,
    responses=REFUSALS | {204: docs.answer("It is noted.", headers=docs.UPLOAD)},
    openapi_extra=docs.body(
        {JSON: {"schema": docs.schema(Skip), "example": {"frames": 1}}}, *docs.SENDER, *docs.DIGEST
    ),
)
async def skip_frames(
    request: Request,
    path: NodePath,
    query: Annotated[NoQuery, Query()],  # noqa: ARG001 - refuses all
) -> Response:
    """They read as fill values."""
    asked, streams = Exchange(request), request.app.state.services.streams
    epoch = _epoch(asked)
    skip = validated(Skip, await json_object(asked, path))
    writer = await asked.write(path, partial(streams.array, path, skip.key, epoch=epoch, writing=True))
    await asked.write(path, writer.skip, skip.frames, skip.reason, skip.at)
    return Response(204, _upload_headers(await asked.run(writer.fence.read)))


@router.get(
    "/{path:inner}/frames",
    name="stream",
    summary='Metadata of the frames of one array, as JSON lines `{"key", "frame", "metadata"}`',
    responses=docs.problems(errors.StreamNotFound)
    | {200: docs.answer("Those of the frames that are stored.", docs.content(JSON_LINES))},
)
async def get_frames(request: Request, path: NodePath, query: Annotated[FramesQuery, Query()]) -> Response:
    """Frames that have no metadata are left out."""
    asked = Exchange(request)
    writer = await asked.run(asked.context.streams.array, path, query.key)
    durable = (await asked.run(writer.fence.read)).end // writer.array.frame_nbytes
    lines = partial(writer.frame_lines, query.start, durable)
    size = await asked.run(lambda: sum(map(len, lines())))
    text = await asked.run(lines)

    async def pieces() -> AsyncIterator[bytes]:
        while (piece := await asked.run(next, text, None)) is not None:
            yield piece

    headers = ((b"content-type", JSON_LINES.encode()), (b"cache-control", b"no-store"))
    return Response(200, headers, Pieces(size, pieces(), asked.context.options.idle_seconds))


@router.post(
    "/{path:inner}/frames",
    name="stream",
    summary="Send whole frames of any arrays, with metadata",
    responses=REFUSALS | {200: docs.answer("The offset of each array; a problem has them, too.", DOCUMENT)},
    openapi_extra=docs.body(docs.content(FRAMES), *docs.SENDER, *docs.DIGEST),
)
async def post_frames(
    request: Request,
    path: NodePath,
    query: Annotated[NoQuery, Query()],  # noqa: ARG001 - refuses all
) -> Response:
    """Frames of any arrays in order: 200 with the offset of each array that was named. A problem has these offsets
    too."""
    asked = Exchange(request)
    epoch = _epoch(asked)
    if media_type(asked) != FRAMES:
        raise UnsupportedMediaType(media_type(asked) or "", [FRAMES])
    streams = asked.context.streams
    run: _Run = partial(asked.write, path)
    await run(streams.check, path, epoch)
    uploads: dict[str, Upload] = {}
    error: HyperslabError | None = None
    try:
        async with _checked(asked) as body, asked.context.admission.hold() as share:
            entries = _Entries(body, asked.context.options.idle_seconds)
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
    for name in [upload.array.key for upload in uploads.values()]:
        with suppress(HyperslabError):  # the stream is gone, as the error says
            offsets[name] = {"offset": (await asked.run(_progress, asked, path, name)).end}
    if error is not None:
        error.extra = {"arrays": offsets}
        raise error
    return json_response({"arrays": offsets})


def _require(request: Exchange, path: str, replaces: bool) -> None:
    """Raise `WriteForbidden` for a new stream without the action ``create``, for one that goes on without ``write``."""
    if request.may("create", path) and (replaces or request.may("write", path)):
        return
    try:
        request.context.streams.check(path)
        is_there = True
    except StreamNotFound:
        is_there = request.service.catalog.find_readable(path, fresh=True) is not None
    except HyperslabError:
        is_there = True
    if not (replaces and is_there):
        request.require("write" if is_there else "create", path)


def _progress(request: Exchange, path: str, key: str | None) -> Progress:
    return request.context.streams.array(path, key).fence.read()


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
        size = _U64.unpack(await self._read(_U64.size))[0]
        if size != nbytes:
            raise BadBody(f"the bytes of frame {frame}", nbytes, size)
        return frame, note, await self._read(nbytes)

    async def _read(self, nbytes: int, *, at_end: bool = False) -> memoryview:
        """The next ``nbytes`` bytes, or none if the body ends here and may (``at_end``)."""
        data, done = np.empty(nbytes, np.uint8).data, 0
        while done < nbytes:
            count = await self._body.read_into(data[done:], pause=self._patience, within=self._patience)
            if not count and self._body.more:
                raise ClientStalled(self._done, self._patience)
            done, self._done = done + count, self._done + count
            if done < nbytes and not self._body.more:
                if at_end and not done:
                    return data[:0]
                raise BadBody("the body ends within an entry; bytes of its next part", nbytes, done)
        return data


@asynccontextmanager
async def _checked(request: Exchange) -> AsyncIterator[Body]:
    """The body as it arrives, or if it has a digest, after that was verified."""
    check_as_is(request)
    if request.header(CONTENT_DIGEST.lower().encode()) is None:
        yield Body(request.receive)
    else:
        async with received_body(request) as body:
            yield Body(request.receive, body)


async def _receive(request: Exchange, run: _Run, upload: Upload, length: int | None, share: Share) -> None:
    """Store a body piece by piece, receiving the next piece meanwhile; of a broken one, all that arrived. Pieces of a
    long body end with a group of rows, which then goes to chunks directly. The stream's memory covers buffers of one
    request; larger ones, and those of others, are admitted."""
    body, patience, loop = Body(request.receive), request.context.options.idle_seconds, asyncio.get_running_loop()
    rest, group = length if length is not None else LARGEST_PIECE, upload.array.group_nbytes
    most = upload.piece if 2 * rest >= group else PIECE_BYTES
    if length is None and upload.covered:  # it may last, and then waits for no memory and holds none of others
        most = min(most, upload.covered // 2)
    storing: asyncio.Task[None] | None = None
    broken: HyperslabError | None = None
    size = min(most, max(1, rest))
    await share.grow(max(0, 2 * size - upload.covered))
    buffers = upload.session.take_buffers(size)
    position = upload.at
    while body.more and broken is None:
        buffers.reverse()
        count, end = 0, loop.time() + _LONGEST_PIECE
        room = min(size, max(most // group, 1) * group - position % group)
        while count < room and body.more and loop.time() < end:
            step = buffers[0][count : min(room, count + PIECE_BYTES)]
            try:
                received = await body.read_into(step, pause=_PAUSE, within=patience, longest=_LONGEST_PIECE)
            except Cancelled as error:
                received, broken = 0, error
                break
            if not received and body.more and not count:
                broken = ClientStalled(position, patience)
            count += received
            if received < len(step):
                break
        if storing is not None:
            await storing
        storing = asyncio.create_task(run(upload.append, buffers[0][:count]))
        position += count
    if storing is not None:
        await storing
    upload.session.buffers = buffers if 2 * size <= upload.covered else []
    if broken is not None:
        raise broken


def npy_frames(body: memoryview, progress: Progress, offset: int | None) -> memoryview:
    """The bytes of whole frames in the dtype of the array. Raises `BadBody`, and `MismatchingUploadOffset` if they
    would begin inside a frame."""
    values, array = parse_npy(io.BytesIO(body)), progress.array
    frame = progress.end if offset is None else offset
    if frame % array.frame_nbytes:
        raise MismatchingUploadOffset(array.path, progress.end, frame, "a frame has begun, and is not whole")
    if values.ndim < 2 or values.shape[-2:] != array.frame_shape:
        raise BadBody("the shape of the frames", ["any", *array.frame_shape], list(values.shape))
    if values.dtype.newbyteorder("=") != array.dtype.newbyteorder("="):
        raise BadBody("the dtype of the frames", str(array.dtype), str(values.dtype))
    frames = np.ascontiguousarray(values.astype(array.dtype, copy=False))
    return bytes_of(frames)


def _upload_headers(progress: Progress, state: str = "open") -> Headers:
    complete = progress.complete or state == "finished"
    limits = [] if progress.size is None else [f"max-size={progress.size}"]
    limits.append(f"max-age={progress.settings.expires_in}")
    return (
        (UPLOAD_OFFSET.lower().encode(), b"%d" % progress.end),
        (UPLOAD_COMPLETE.lower().encode(), b"?1" if complete else b"?0"),
        (UPLOAD_LIMIT.lower().encode(), ", ".join(limits).encode()),
    )


def _epoch(request: Exchange) -> int | None:
    return _number(request, STREAM_EPOCH, "the number that opening the stream has given")


def _number(request: Exchange, name: str, expected: str) -> int | None:
    text = request.header(name.lower().encode())
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise BadParameter(name, text, expected)
    return int(text)
