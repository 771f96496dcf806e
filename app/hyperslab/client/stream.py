"""`RemoteStream`: sends frames of an instrument in the background, and buffers them until they are stored."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile
from math import prod
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Literal, Self

import numpy as np

from hyperslab import wire
from hyperslab.client.address import Address
from hyperslab.client.node import open_session
from hyperslab.client.session import Request, RetryPolicy
from hyperslab.client.text import Progress, report
from hyperslab.client.transport import Cancel, Transport
from hyperslab.client.values import as_values, dump_json
from hyperslab.errors import BadParameter, MismatchingUploadOffset
from hyperslab.wire.streams import StreamSettings

RETRY: Final = RetryPolicy(attempts=20, longest_wait=10.0)
"""About two minutes, enough for a restart of the server."""
MAX_BODY: Final = 256 << 20
"""Bytes of frames per request; a larger frame is sent alone. Set by the benchmark suite ``streams``."""


@dataclass(frozen=True, slots=True)
class _Frames:
    """Queued frames: bytes ``[start, stop)`` of the array; ``data`` is None for skipped frames, with a ``reason``."""

    start: int
    stop: int
    data: memoryview | None = None
    reason: str = ""


@dataclass(slots=True)
class StreamedArray:
    """An array of a stream.

    Attributes:
        key: The key of the array in the settings.
        path: ``{store}/{path in the store}``.
        frame_shape: Lines and columns of a frame.
        dtype: The dtype of the items.
    """

    key: str
    path: str
    frame_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    _sent: int
    _end: int
    _queue: deque[_Frames] = field(default_factory=deque)
    _busy: bool = False

    @classmethod
    def parse(cls, key: str, members: Mapping[str, Any]) -> StreamedArray:
        """The array in the state of a stream."""
        frame = members["frame"]
        start = members["offset"] - members["offset"] % frame["nbytes"]  # a partial frame is sent again, and compared
        dtype = wire.dtype_from_json(frame["dtype"])
        return cls(key, members["path"], tuple(frame["shape"]), dtype, start, start)

    @property
    def frame_nbytes(self) -> int:
        """Bytes of a frame."""
        return prod(self.frame_shape) * self.dtype.itemsize

    @property
    def appended(self) -> int:
        """Frames appended or skipped, also by earlier senders."""
        return self._end // self.frame_nbytes

    @property
    def durable(self) -> int:
        """Frames in the server's storage, which survive restarts."""
        return self._sent // self.frame_nbytes


class RemoteStream:
    """A stream of a Hyperslab server, to which an instrument appends frames; they are sent in the background.

    Frames are buffered until the server acknowledges them, and sent again after a broken connection or a restart of
    the server. `append` blocks while the buffer is full. Leaving a ``with`` block finishes the stream; after an
    exception, appended frames are still stored, and the stream can be resumed. Errors in the background are raised by
    the next call. Thread-safe.

    Args:
        url: The URL of the stream, ``…/v1/stream/{store}/{path}``, or any other URL of the group.
        settings: Stream settings, as JSON or `StreamSettings`; None for an existing stream.
        if_exists: For an existing stream: ``"error"``, ``"resume"`` after its last frame, or ``"replace"`` it and its
            arrays.
        max_pending: Maximum number of appended frames that are not yet stored.
        connections: Maximum number of concurrent requests, one per array.
        token: A bearer token, by default that of the environment variable ``HYPERSLAB_TOKEN``; ``""`` sends none.
        headers: Request headers that are added to each request.
        progress: True for a progress bar, or a function of the bytes stored and the bytes appended, called in a thread
            of its own.
        transport: By default an `HTTPTransport` with default settings.
    """

    def __init__(
        self,
        url: str,
        settings: StreamSettings | Mapping[str, Any] | None = None,
        *,
        if_exists: Literal["error", "resume", "replace"] = "error",
        max_pending: int = 64,
        connections: int = 2,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        progress: Progress = False,
        transport: Transport | None = None,
    ) -> None:
        if max_pending < 1:
            raise ValueError(f"max_pending={max_pending}: expected at least 1")
        self._address = Address.parse(url)
        self._session = open_session(connections, headers, transport, token)
        self._session.retry = RETRY
        self._max_pending, self._pending = max_pending, 0
        self._failure: BaseException | None = None
        self._closing = False
        self._ready: SimpleQueue[StreamedArray | None] = SimpleQueue()  # None ends a sender
        self._free_buffers: deque[memoryview] = deque(maxlen=max_pending)
        self._changed = threading.Condition()
        self._cancel = Cancel()
        self._threads: list[threading.Thread] = []
        self._senders = 0
        request = Request("GET", self._url())
        if settings is not None:
            body = dump_json(settings.to_document() if isinstance(settings, StreamSettings) else settings)
            once = if_exists == "error"  # a retry would conflict with the stream that the first request created
            request = Request("PUT", self._url(if_exists=if_exists), {"Content-Type": wire.JSON}, body, once=once)
        with ExitStack() as stack:
            advance = stack.enter_context(report(progress, None, self._address.name))
            state, answer = self._session.read_json(request)
            self._progress = stack.pop_all()
        epoch = None if settings is None else answer.get(wire.STREAM_EPOCH)
        self._epoch = {} if epoch is None else {wire.STREAM_EPOCH: epoch}
        self._arrays = {key: StreamedArray.parse(key, members) for key, members in state["arrays"].items()}
        sent = sum(array._sent for array in self._arrays.values())
        self._counts = (sent, sent)  # bytes stored and appended
        if progress is not False:
            self._start(partial(self._report, advance))

    # --- state ---------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """``{store}/{path in the store}`` of the stream's group."""
        return self._address.path

    @property
    def arrays(self) -> Mapping[str, StreamedArray]:
        """The arrays by key."""
        return self._arrays

    def array(self, key: str | None = None) -> StreamedArray:
        """The array of a key, by default the only one; raises `BadParameter`."""
        if key is None and len(self._arrays) == 1:
            return next(iter(self._arrays.values()))
        if key not in self._arrays:
            raise BadParameter(name="key", value=key, expected=f"one of {', '.join(map(repr, self._arrays))}")
        return self._arrays[key]

    @property
    def durable(self) -> int:
        """Stored frames of all arrays; see `StreamedArray.durable`."""
        return sum(array.durable for array in self._arrays.values())

    def state(self) -> dict[str, Any]:
        """The current state of the stream, from the server."""
        return self._session.read_json(Request("GET", self._url()))[0]

    # --- sending -------------------------------------------------------------------------------------------------

    def append(self, frame: Any, key: str | None = None) -> int:
        """Append a frame (lines, columns) or a stack of frames (…, lines, columns), and return the index of the first.
        The values are copied. Blocks while ``max_pending`` frames are not stored.

        Raises:
            TypeError: The values do not fit the dtype of the array.
            ValueError: The shape is not that of frames.
            BadParameter: The key is unknown, or missing with several arrays.
            HyperslabError: The server's error for an earlier frame; nothing more is sent.
        """
        array = self.array(key)
        values = as_values(frame, array.dtype)
        if values.shape[-2:] != array.frame_shape:
            raise ValueError(f"a frame of {array.key!r} has the shape {array.frame_shape}, found {values.shape}")
        first = None
        for single in values.reshape(-1, *array.frame_shape):
            data = self._buffer(array)
            np.ndarray(array.frame_shape, array.dtype, data)[...] = single
            index = self._enqueue(array, array.frame_nbytes, data)
            first = index if first is None else first
        return array.appended if first is None else first

    def skip(self, frames: int, key: str | None = None, *, reason: str = "dropped") -> int:
        """Skip frames that are lost: they read as fill values, and are listed as missing. Returns the index of the
        first."""
        array = self.array(key)
        if frames < 0:
            raise ValueError(f"frames={frames}: expected at least 0")
        return self._enqueue(array, frames * array.frame_nbytes, None, reason) if frames else array.appended

    def flush(self) -> dict[str, Any]:
        """Wait until all appended frames are stored as chunks, also partial ones; returns the state."""
        self._drain()
        request = Request("POST", self._url("flush"), self._epoch, b"", safe=True)
        return self._session.read_json(request)[0]

    def finish(self, *, pad: bool = False, drop: bool = False) -> dict[str, Any]:
        """Wait until all frames are stored, and end the stream, which then takes no more frames; returns the state.

        A partial last frame is an error, unless ``pad`` completes it or ``drop`` discards it.
        """
        self._drain()
        flags = {name: "true" for name, is_set in (("pad", pad), ("drop", drop)) if is_set}
        state, _ = self._session.read_json(Request("DELETE", self._url(finish="true", **flags), self._epoch))
        self._stop()
        return state

    def discard(self) -> None:
        """End the stream, and delete its arrays."""
        self._stop()
        self._session.read(Request("DELETE", self._url(discard="true"), self._epoch, removes=True))

    def close(self) -> None:
        """Wait until all appended frames are stored, without ending the stream: it can be resumed."""
        try:
            self._drain()
        finally:
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closing:
            return
        if error is None:
            self.finish()
        elif not isinstance(error, Exception):  # Ctrl-C
            self._stop()
        else:
            try:
                self.close()
            except Exception as failure:
                error.add_note(f"not all frames of {self.path} were stored: {failure}")

    def __repr__(self) -> str:
        appended = sum(array.appended for array in self._arrays.values())
        return f"<RemoteStream {self.path}, {len(self._arrays)} arrays, {self.durable} of {appended} frames stored>"

    # --- queue ---------------------------------------------------------------------------------------------------

    def _buffer(self, array: StreamedArray) -> memoryview:
        """A buffer for a frame, reused if possible: page faults of a new one cost more than the copy."""
        with self._changed:
            data = self._free_buffers.pop() if self._free_buffers else None
        if data is None or len(data) != array.frame_nbytes or array.dtype.names:
            return np.zeros(array.frame_nbytes, np.uint8).data  # zeros in the padding of records
        return data

    def _enqueue(self, array: StreamedArray, nbytes: int, data: memoryview | None, reason: str = "") -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._pending < self._max_pending or self._failure or self._closing)
            self._check()
            if self._closing:
                raise ValueError("the stream is closed")
            start, array._end = array._end, array._end + nbytes
            array._queue.append(_Frames(start, array._end, data, reason))
            self._pending += 1
            self._counts = (self._counts[0], self._counts[1] + nbytes)
            if not array._busy:
                array._busy = True
                self._ready.put(array)
            if self._senders < min(self._session.connections, len(self._arrays)):
                self._senders += 1
                self._start(self._send_queued)
            self._changed.notify_all()
        return start // array.frame_nbytes

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _drain(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._pending == 0 or self._failure or self._closing)
            self._check()

    def _stop(self) -> None:
        """Stop the threads, and cancel their requests."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._cancel.set()
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():  # a progress callback may close the stream
                thread.join()
        self._progress.close()
        self._session.close()

    # --- sender threads ------------------------------------------------------------------------------------------

    def _start(self, work: Callable[[], None]) -> None:
        """Start a thread, whose error the next call raises."""

        def run() -> None:
            try:
                work()
            except Exception as error:
                with self._changed:
                    self._failure = self._failure or error
                    self._changed.notify_all()

        thread = threading.Thread(target=run, name="hyperslab-stream", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _report(self, advance: Callable[..., None]) -> None:
        """Report progress, without the lock: a slow callback delays no sender."""
        reported = (0, 0)
        while True:
            with self._changed:
                while self._counts == reported and not self._closing:
                    self._changed.wait()
                before, reported = reported, self._counts
            if reported == before:
                return
            advance(reported[0] - before[0], reported[1] - before[1])

    def _send_queued(self) -> None:
        """Send queued frames, of one array at a time, first come first served."""
        while (array := self._ready.get()) is not None and not (self._closing or self._failure):
            with self._cancel.scope():
                self._send(array)
            with self._changed:
                array._busy = bool(array._queue)
                if array._busy:
                    self._ready.put(array)

    def _send(self, array: StreamedArray) -> None:
        """Send one request with the first queued frames of an array."""
        limit = max(1, min(self._max_pending // 2, MAX_BODY // array.frame_nbytes))
        with self._changed:
            first, *others = islice(array._queue, limit)
        if first.data is None:
            frame, frames = first.start // array.frame_nbytes, (first.stop - first.start) // array.frame_nbytes
            document = dump_json({"key": array.key, "frames": frames, "at": frame, "reason": first.reason})
            headers = {"Content-Type": wire.JSON, **self._epoch}
            self._session.read(Request("POST", self._url("skip"), headers, document, safe=True))
            self._acknowledge(array, first.stop)
            return
        parts = [first, *takewhile(lambda part: part.data is not None, others)]
        self._send_bytes(array, parts, array._sent, parts[-1].stop)

    def _send_bytes(self, array: StreamedArray, frames: Sequence[_Frames], start: int, stop: int) -> None:
        """Send the bytes ``[start, stop)``. If the server already has some of them, after a broken connection or from
        an earlier sender, these are sent on their own for it to compare, then the rest."""
        body = [
            part.data[max(0, start - part.start) : stop - part.start]
            for part in frames
            if part.data is not None and part.start < stop and start < part.stop
        ]
        position = {wire.UPLOAD_OFFSET: str(start), "Content-Length": str(stop - start)}
        headers = {"Content-Type": wire.RAW, **position, **self._epoch}
        request = Request("PATCH", self._url(key=array.key), headers, body, safe=True)
        try:
            answer = self._session.read(request)
        except MismatchingUploadOffset as error:
            offset = error.expected_offset
            if not start < offset < stop:
                raise
            self._send_bytes(array, frames, start, offset)
        else:
            self._acknowledge(array, min(int(answer.headers[wire.UPLOAD_OFFSET]), stop))

    def _acknowledge(self, array: StreamedArray, sent: int) -> None:
        """Record the bytes that the server has stored, and drop their frames."""
        with self._changed:
            self._counts = (self._counts[0] + max(0, sent - array._sent), self._counts[1])
            array._sent = max(array._sent, sent)
            while array._queue and array._queue[0].stop <= array._sent:
                data = array._queue.popleft().data
                self._free_buffers += [] if data is None else [data]
                self._pending -= 1
            self._changed.notify_all()

    def _url(self, action: str = "", **query: str | None) -> str:
        address = Address(self._address.base, "/".join(filter(None, (self._address.path, action))))
        return address.url("stream", **query)
