"""Streams: opened, fed, flushed, finished and discarded.

All that matters is in the store, so that any process may serve any request: bytes are stored under the lock of their
array, in the tail or, where whole objects of rows are in hand, in chunks. What is kept here is memory that is reserved,
and when a request came last.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Event, Lock, Thread
from typing import Any, Final, Literal

import numpy as np

from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.create import Creator
from hyperslab.arrays.limits import BytesInFlight
from hyperslab.arrays.nodes import BrokenNode, GroupNode, MountedStore
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.engine.selection import normalise
from hyperslab.errors import (
    ArrayFailed,
    BadDefinition,
    BadParameter,
    CompletedUpload,
    HyperslabError,
    MismatchingUploadOffset,
    NodeExists,
    NodeNotFound,
    Overloaded,
    PartialFrame,
    StaleEpoch,
    StreamConflict,
    StreamFull,
    StreamNotFound,
    WriteConflict,
    WrongKind,
)
from hyperslab.storage.base import WritersSafe
from hyperslab.storage.keys import as_prefix
from hyperslab.streams.commit import Committer, missing_frames
from hyperslab.streams.heads import Heads, KeptRows, Mark, MemoryRows, Rows, TailRows, kept_bytes
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.notes import Notes
from hyperslab.streams.record import FOLDER, Record, Records, State, StreamPlan, notes_prefix, tail_prefix
from hyperslab.streams.settings import FRAMES_DOCUMENT, difference
from hyperslab.streams.tail import Tail, Tails
from hyperslab.wire.streams import StreamSettings

Buffer = bytes | memoryview
IfExists = Literal["error", "resume", "replace"]

PIECE_BYTES: Final = 8 << 20
"""Of a longer body so many bytes are stored at once."""
_IN_HAND: Final = 6
"""Of two chunks that are written at once: what is read, the chunk, and what it is encoded to."""
_LARGE: Final = 256 << 20
_MOST_WAITING: Final = 2
"""Groups of rows that may wait in tails for their commit, before what comes next waits, too."""
_LONGEST_LOOK: Final = 1.0
"""Seconds between two looks for streams that have expired, at most."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as its record has it. ``prefix`` is that of its group."""

    mount: MountedStore
    prefix: str
    path: str
    record: Record
    plan: StreamPlan

    def array(self, key: str | None) -> tuple[int, StreamArray]:
        """The number of an array, and the array; None names the only one. Raises `BadParameter`."""
        arrays = self.plan.layout.arrays
        if not key and len(arrays) == 1:
            return 0, self.plan.arrays[0]
        if key is None or key not in arrays:
            known = ", ".join([repr(name) for name, _ in zip(arrays, range(8), strict=False)])
            raise BadParameter("key", key, f"the key of an array of the stream, such as {known}")
        return self.plan.number(key), arrays[key]

    def tails(self, number: int) -> str:
        return tail_prefix(self.prefix, self.record.id, number)

    def notes(self, number: int) -> str:
        return notes_prefix(self.prefix, self.record.id, number)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an array has come: ``rows`` are in chunks, ``end`` bytes are stored. ``error``: why it takes no more."""

    array: StreamArray
    rows: int
    end: int
    tails: TailRows
    missing: list[tuple[int, int, str]]
    error: str | None
    complete: bool
    expires_in: int

    @property
    def size(self) -> int | None:
        """Bytes that the array takes; None without a limit."""
        return None if self.array.frames is None else self.array.frames * self.array.frame_nbytes

    @property
    def accepted(self) -> int:
        return self.end // self.array.frame_nbytes

    @property
    def visible(self) -> int:
        row = self.array.levels[0].row_nbytes
        return max(self.rows, self.end // row) * self.array.frames_per_row


@dataclass(slots=True)
class _Handle:
    """What this process keeps of a stream: bytes that are reserved, when a request came ``last``, the arrays that are
    committed in the background, the requests that send to each array, and what each had stored last."""

    reserved: int
    expires_in: int
    last: float = field(default_factory=time.monotonic)
    committing: set[int] = field(default_factory=set)
    sending: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream that was opened: its state, whether it was made, and its epoch."""

    state: dict[str, Any]
    created: bool
    epoch: int


class Streams:
    """The streams of all stores. Every method blocks; safe to call from many threads. Close it when done."""

    def __init__(self, catalog: Catalog, reader: Reader, creator: Creator, in_flight: BytesInFlight) -> None:
        self._catalog = catalog
        self._reader = reader
        self._creator = creator
        self._in_flight = in_flight
        self._records = Records()
        self._tails = Tails()
        self._notes = Notes(self._tails)
        self._heads = Heads(catalog, reader, self._records, self._tails)
        self._committer = Committer(catalog, reader)
        self._handles: dict[str, _Handle] = {}
        self._lock = Lock()
        self._background = ThreadPoolExecutor(2, thread_name_prefix="commits")
        self._closed = Event()
        self._watch: Thread | None = None
        catalog.with_head = self._heads

    def close(self) -> None:
        """End background work; what is stored stays as it is, for the next process to go on with."""
        self._closed.set()
        self._background.shutdown(wait=True, cancel_futures=True)

    # --- open and close ----------------------------------------------------------------------------------------------

    def open(self, path: str, settings: StreamSettings, if_exists: IfExists, *, dry_run: bool = False) -> Opened:
        """Open a stream: its nodes are made, and empty.

        Raises `StreamConflict`, `CompletedUpload`, `NodeExists` where something else is in the way, `BadDefinition`,
        and `Overloaded` where there is no memory for it.
        """
        mount, prefix = self._catalog.locate_writable(path)
        if mount.store.capabilities.writers_safe is WritersSafe.REPLICAS or not mount.store.capabilities.cheap_stat:
            raise BadDefinition("path", "streams are written to folders; those of other stores cannot take any yet")
        if settings.ack == "memory":
            raise BadDefinition("ack", "frames are acknowledged when they are stored: expected tail or chunk")
        path = mount.path(prefix)
        plan = StreamPlan.of(settings, path)
        with self._stream_lock(mount, prefix):
            record = self._records.get(mount, prefix)
            if record is not None and record.state == "discarding":
                self._remove(self._stream(mount, prefix, record))
                record = None
            if record is not None and if_exists != "replace":
                return self._resume(self._stream(mount, prefix, record), plan, if_exists, dry_run=dry_run)
            in_the_way = [*self._in_the_way(plan)]
            for node in in_the_way if if_exists != "replace" else ():
                raise NodeExists(node.path, node.kind)
            if dry_run:
                return Opened(self._dry_run(path, plan), created=False, epoch=1)
            if record is not None:
                self._remove(self._stream(mount, prefix, record))
            for node in in_the_way:
                with suppress(NodeNotFound):
                    self._creator.delete(node.path, recursive=True)
            handle = self._reserve(path, plan)
            made = [group for group in plan.layout.groups if self._find(group) is None]
            made += [level.path for array in plan.arrays for level in array.levels]
            record = Record(secrets.token_hex(8), "opening", 1, made)
            stream = Stream(mount, prefix, path, record, plan)
            try:
                self._records.put_settings(mount, prefix, record.id, settings)
                stream = replace(stream, record=self._records.put(mount, prefix, record))
                self._make(stream)
                record = self._change(stream, lambda record: replace(record, state="open"))
            except BaseException:
                with suppress(HyperslabError):
                    self._remove(stream)
                self._forget(path)
                raise
            handle.last = time.monotonic()
            return Opened(self.state(path), created=True, epoch=record.epoch)

    def state(self, path: str) -> dict[str, Any]:
        """The state of a stream, as a JSON document. Raises `StreamNotFound`."""
        stream = self._open(path, writing=False)
        return self._state(stream)

    def check(self, path: str, epoch: int | None = None) -> None:
        """Raise what `append` raises for a stream that takes nothing."""
        self._open(path, epoch=epoch)

    def progress(self, path: str, key: str | None, epoch: int | None = None) -> Progress:
        """How far an array has come. Raises `StreamNotFound`, `BadParameter` and `StaleEpoch`."""
        stream = self._open(path, writing=False)
        _check_epoch(stream, epoch)
        return self._progress(stream, stream.array(key)[0])

    def _resume(self, stream: Stream, plan: StreamPlan, if_exists: IfExists, *, dry_run: bool) -> Opened:
        record, path = stream.record, stream.path
        if if_exists == "error":
            raise StreamConflict(path)
        member = difference(stream.plan.settings, plan.settings)
        if member is not None:
            raise StreamConflict(path, member)
        if record.state in ("finished", "finishing"):
            raise CompletedUpload(path)
        if dry_run:
            return Opened(self._dry_run(path, plan), created=False, epoch=record.epoch)
        self._reserve(path, plan)
        if record.state == "opening":
            self._make(stream)

        def resumed(record: Record) -> Record:
            arrays = {key: replace(array, error=None) for key, array in record.arrays.items()}
            return replace(record, state="open", epoch=record.epoch + 1, arrays=arrays)

        changed = self._records.change(stream.mount, stream.prefix, record.id, resumed)
        if changed is None:
            raise StreamNotFound(path)
        return Opened(self.state(path), created=False, epoch=changed.epoch)

    # --- frames ------------------------------------------------------------------------------------------------------

    def append(  # noqa: PLR0917
        self, path: str, key: str | None, at: int, data: Buffer, epoch: int | None = None, note: Buffer = b""
    ) -> int:
        """Store bytes of an array behind its end, which is ``at``, and before them a ``note``: metadata of the frame
        that begins there; returns its end.

        Raises `MismatchingUploadOffset` if it ends elsewhere, `StreamFull`, `CompletedUpload`, `ArrayFailed`,
        `StaleEpoch`, and `StoreError`, after which the array takes no more.
        """
        stream = self._open(path, epoch=epoch)
        number, array = stream.array(key)
        with self._appending(stream, number, epoch) as stream, self._failing(stream, number):
            check_offset(self._writable_progress(stream, number), at, len(data))
            if note:
                self._notes.append(stream.mount.store, stream.notes(number), at // array.frame_nbytes, note)
            done, rest = at, memoryview(data).cast("B")
            level = array.levels[0]
            nbytes = level.object_rows * level.row_nbytes
            while rest:
                group, inside = divmod(done, nbytes)
                count = len(rest) // nbytes * nbytes if not inside else 0
                if count:
                    self._commit(stream, number, whole=True)
                    rows = MemoryRows(done, np.frombuffer(rest[:count], np.uint8))
                    self._commit(stream, number, whole=True, rows=(done + count) // level.row_nbytes, source=rows)
                else:
                    count = min(len(rest), nbytes - inside)
                    self._tail(stream, number, group).append(rest[:count])
                done, rest = done + count, rest[count:]
            if stream.plan.settings.ack == "chunk":
                self._commit(stream, number, whole=False)
        self._tell(stream, array)
        self._commit_later(stream, number)
        return done

    def skip(  # noqa: PLR0917
        self, path: str, key: str | None, frames: int, reason: str, at: int | None = None, epoch: int | None = None
    ) -> int:
        """Note that so many frames from ``at`` on (default: the next ones) will not come; returns the end of the array
        in bytes. Raises as `append`."""
        stream = self._open(path, epoch=epoch)
        number, array = stream.array(key)
        size, level = array.frame_nbytes, array.levels[0]
        nbytes = level.object_rows * level.row_nbytes
        with self._appending(stream, number, epoch) as stream, self._failing(stream, number):
            progress = self._writable_progress(stream, number)
            end = progress.end
            if at is not None and at * size != end:
                known = missing_frames(progress.missing)
                if any(start <= at and at + frames <= stop for start, stop in known):
                    return end
                raise MismatchingUploadOffset(array.path, end, at * size)
            if end % size:
                raise MismatchingUploadOffset(array.path, end, end - end % size, "a frame has begun, and is not whole")
            check_offset(progress, end, frames * size)
            stop = end + frames * size
            direct = not stream.mount.stores_fill and all(not each.halvings[0] for each in array.levels)
            while end < stop:
                group, inside = divmod(end, nbytes)
                count = (stop - end) // nbytes * nbytes if direct and not inside else 0
                if count:
                    self._commit(stream, number, whole=True)
                    self._note_missing(stream, array.key, [(end // size, (end + count) // size, reason)])
                    self._commit(stream, number, whole=True, rows=(end + count) // level.row_nbytes)
                else:
                    count = min(stop - end, nbytes - inside)
                    self._tail(stream, number, group).append_missing(count, reason)
                    if inside + count == nbytes:
                        self._commit(stream, number, whole=True)
                end += count
        self._tell(stream, array)
        self._commit_later(stream, number)
        return end

    def _tell(self, stream: Stream, array: StreamArray) -> None:
        """Tell those who follow changes that an array may have more rows, though no key that they know has changed."""
        mount = stream.mount
        for level in array.levels:
            if mount.store.observer is not None:
                mount.store.observer(f"{level.path.partition('/')[2]}/{mount.metadata_key}", created=False)

    def complete(self, path: str, key: str | None, epoch: int | None = None) -> None:
        """Note that an array takes no more."""
        stream = self._open(path, epoch=epoch)
        _, array = stream.array(key)
        self._change(stream, lambda record: record.with_array(array.key, complete=True))

    def frame_lines(self, path: str, key: str | None, start: int, stop: int | None = None) -> Iterator[bytes]:
        """The metadata of the frames ``[start, stop)`` of an array that are stored, as JSON lines, many at a time."""
        stream = self._open(path, writing=False)
        number, array = stream.array(key)
        accepted = self._progress(stream, number).accepted
        stop = accepted if stop is None else min(stop, accepted)
        return self._notes.lines(stream.mount.store, stream.notes(number), array.key, start, stop)

    def holds(self, path: str, key: str | None, start: int, data: Buffer, note: Buffer = b"") -> bool:
        """Whether the array has just these bytes from ``start`` on, and the frame there this ``note`` if there is one;
        False where that cannot be told."""
        stream = self._open(path, writing=False)
        number, array = stream.array(key)
        progress = self._progress(stream, number)
        size, stop = array.frame_nbytes, start + len(data)
        if note and self._notes.get(stream.mount.store, stream.notes(number), start // size) != note:
            return False
        first, last = start // size, -(-stop // size)
        if any(a < last and first < b for a, b, _ in progress.missing) or progress.error is not None:
            return False
        sent, done = np.frombuffer(data, np.uint8), start
        in_chunks = progress.rows * array.levels[0].row_nbytes
        while done < stop:
            if done < in_chunks:
                frame, inside = divmod(done, size)
                count = min(size - inside, stop - done)
                found = self._stored_frame(array, frame)[inside : inside + count]
            else:
                count = stop - done
                found = progress.tails.read(done, count)
            if not np.array_equal(found, sent[done - start : done - start + count]):
                return False
            done += count
        return True

    def begin_sending(self, path: str, key: str | None, *, alone: bool) -> Callable[[], None]:
        """Note that a request sends to an array, until what is returned is called. ``alone``: it does not know the
        offset, and `WriteConflict` is raised where another one sends, too."""
        stream = self._open(path)
        number, array = stream.array(key)
        handle = self._handle(stream)
        with self._lock:
            if alone and handle.sending.get(number):
                raise WriteConflict(array.path, "another request sends to this array: say Upload-Offset")
            handle.sending[number] = handle.sending.get(number, 0) + 1

        def end() -> None:
            with self._lock:
                handle.sending[number] -= 1
                handle.last = time.monotonic()

        return end

    def flush(self, path: str, epoch: int | None = None) -> dict[str, Any]:
        """Store all whole rows in chunks; returns the state, which says what has failed."""
        stream = self._open(path, epoch=epoch)
        self._flush(stream)
        return self.state(path)

    def finish(self, path: str, *, pad: bool = False, drop: bool = False, epoch: int | None = None) -> dict[str, Any]:
        """Store everything, and take no more. What fails of an array is its ``error`` in the state.

        Raises `PartialFrame`, and then nothing is finished, where a frame is not whole unless it is to be filled up
        (``pad``) or left out (``drop``).
        """
        stream = self._open(path, writing=False)
        _check_epoch(stream, epoch)
        with self._stream_lock(stream.mount, stream.prefix):
            stream = self._open(path, writing=False)
            if stream.record.state == "finished":
                return self._state(stream)
            for number, array in enumerate(stream.plan.arrays):
                partial = self._progress(stream, number).end % array.frame_nbytes
                if partial and not (pad or drop):
                    raise PartialFrame(array.path, partial, array.frame_nbytes)
            self._change(stream, lambda record: replace(record, state="finishing"))
            for number in range(len(stream.plan.arrays)):
                finishing = self._appending(stream, number, states=("finishing",))
                with suppress(HyperslabError), finishing as now, self._failing(now, number):
                    self._finish_array(now, number, pad=pad)
            self._put_frames(stream)
            ended = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self._change(stream, lambda record: replace(record, state="finished", finished=ended))
            stream.mount.store.delete_prefix(f"{stream.prefix}{FOLDER}/{stream.record.id}/")
            self._forget(stream.path)
        return self.state(path)

    def discard(self, path: str, epoch: int | None = None) -> None:
        """Remove what a stream has made: its arrays, and groups that are empty then."""
        stream = self._open(path, writing=False)
        _check_epoch(stream, epoch)
        with self._stream_lock(stream.mount, stream.prefix):
            self._remove(self._open(path, writing=False))

    def _put_frames(self, stream: Stream) -> None:
        """Store the metadata of all frames as a document of the group, but not over one that somebody else has put."""
        store, key, at = stream.mount.store, f"{stream.prefix}{FRAMES_DOCUMENT}", 0
        if not any(store.list_dir(stream.notes(number)).entries for number in range(len(stream.plan.arrays))):
            return
        if self._change(stream, lambda record: record).frames is False:
            if store.stat(key) is not None:
                return
            self._change(stream, lambda record: replace(record, frames=True))
        log = store.open_log(key, create=True)
        assert log is not None
        log.write(0, [])
        for array in stream.plan.arrays:
            for lines in self.frame_lines(stream.path, array.key, 0):
                log.write(at, [(at, lines)])
                at += len(lines)

    # --- of one array ------------------------------------------------------------------------------------------------

    def _finish_array(self, stream: Stream, number: int, *, pad: bool) -> None:
        """The caller holds the lock of the array."""
        array, level = stream.plan.arrays[number], stream.plan.arrays[number].levels[0]
        progress = self._progress(stream, number)
        if progress.error is not None:
            raise ArrayFailed(array.path, progress.error)
        partial = progress.end % array.frame_nbytes
        nbytes = level.object_rows * level.row_nbytes
        if partial:
            tail = self._tail(stream, number, progress.end // nbytes)
            if pad:
                made_up = array.frame_nbytes - partial
                phase = partial % array.dtype.itemsize
                fill = np.resize(np.roll(np.frombuffer(array.fill.tobytes(), np.uint8), -phase), made_up)
                tail.append(fill.tobytes())
                self._change(stream, lambda record: record.with_array(array.key, padded=made_up))
            else:
                tail.cut(progress.end - partial)
            progress = self._progress(stream, number)
        absent = -progress.end % level.row_nbytes
        if absent:
            self._tail(stream, number, progress.end // nbytes).append_missing(absent, "not sent")
        self._commit(stream, number, whole=False, final=True)

    def _progress(self, stream: Stream, number: int) -> Progress:
        """How far an array has come, from what is stored."""
        array, record = stream.plan.arrays[number], stream.record.array(stream.plan.arrays[number].key)
        row, rows, error = array.levels[0].row_nbytes, 0, record.error
        if stream.record.state == "finished":
            return self._final_progress(stream, array)
        try:
            rows = self._committer.open(array, 0, stream.record.id)[1].rows
        except ArrayFailed as failure:
            if stream.record.state == "finishing" and self._committer.is_final(array.levels[0]):
                return self._final_progress(stream, array)
            error, rows = error or failure.reason, self._first_waiting(stream, number)
        self._catalog.versions.forget(stream.mount, stream.tails(number))
        tails, _ = self._heads.rows(stream.mount, stream.tails(number), array, rows)
        end = tails.end if tails.tails else rows * row
        inside = [each for tail in tails.tails.values() for each in tail.missing(array.frame_nbytes)]
        missing = [*record.missing, *inside]
        end = max(end, rows * row, record.stored)
        return Progress(array, rows, end, tails, missing, error, record.complete, stream.plan.settings.expires_in)

    def _first_waiting(self, stream: Stream, number: int) -> int:
        """Of an array that others have changed, the first row that a tail holds."""
        listed = stream.mount.store.list_dir(stream.tails(number))
        groups = [int(name) for entry in listed.entries if (name := entry.key.rpartition("/")[2]).isdecimal()]
        return min(groups, default=0) * stream.plan.arrays[number].levels[0].object_rows

    def _final_progress(self, stream: Stream, array: StreamArray) -> Progress:
        level, record = array.levels[0], stream.record.array(array.key)
        rows, error = 0, record.error
        try:
            shape = self._catalog.open_array(level.path).metadata.shape
            rows = shape[level.append_axis] // level.row_length
        except (NodeNotFound, WrongKind) as failure:
            error = error or str(failure)
        empty = TailRows({}, level.object_rows * level.row_nbytes)
        end, expires_in = rows * level.row_nbytes, stream.plan.settings.expires_in
        return Progress(array, rows, end, empty, [*record.missing], error, complete=True, expires_in=expires_in)

    def _writable_progress(self, stream: Stream, number: int) -> Progress:
        progress = self._progress(stream, number)
        ends = self._handle(stream).ends
        ends[number] = max(progress.end, ends.get(number, 0))
        if progress.error is not None:
            raise ArrayFailed(progress.array.path, progress.error)
        if progress.complete:
            raise CompletedUpload(progress.array.path)
        return progress

    def _tail(self, stream: Stream, number: int, group: int) -> Tail:
        array = stream.plan.arrays[number]
        nbytes = array.levels[0].object_rows * array.levels[0].row_nbytes
        key = f"{stream.tails(number)}{group}"
        tail = self._tails.open(stream.mount.store, key, group * nbytes, array.fill, create=True)
        assert tail is not None
        return tail

    def _commit(  # noqa: PLR0917
        self,
        stream: Stream,
        number: int,
        whole: bool,
        rows: int | None = None,
        source: Rows | None = None,
        final: bool = False,
    ) -> None:
        """Move rows of an array to chunks: those in its tails, or with ``rows`` those up to there, from ``source``."""
        array, store = stream.plan.arrays[number], stream.mount.store
        object_rows = array.levels[0].object_rows
        with self._committing(stream, number):
            progress = self._progress(stream, number)
            if rows is None:
                rows = progress.end // array.levels[0].row_nbytes
                nothing = rows // object_rows <= progress.rows // object_rows if whole else rows == progress.rows
                if nothing and not final:
                    return
                source = KeptRows(array, progress.tails)
                self._committer.commit(array, stream.record.id, rows, source, whole=whole, final=final)
            else:
                self._committer.commit(array, stream.record.id, rows, source, whole=True)
            stored = {g: t for g, t in progress.tails.tails.items() if final or (g + 1) * object_rows <= rows}
            self._note_missing(stream, array.key, [m for t in stored.values() for m in t.missing(array.frame_nbytes)])
            for group in stored if not final else ():
                key = f"{stream.tails(number)}{group}"
                store.delete(key)
                self._tails.forget(store, key)

    def _commit_later(self, stream: Stream, number: int) -> None:
        """Have whole objects of rows moved to chunks in the background; where too many wait, now."""
        progress, level = self._progress(stream, number), stream.plan.arrays[number].levels[0]
        waiting = progress.end // level.row_nbytes // level.object_rows - progress.rows // level.object_rows
        if waiting <= 0 or progress.error is not None:
            return
        handle = self._handle(stream)

        def commit() -> None:
            try:
                with self._failing(stream, number):
                    self._commit(stream, number, whole=True)
            except HyperslabError:
                return  # the array says so
            finally:
                with self._lock:
                    handle.committing.discard(number)

        if waiting >= _MOST_WAITING:
            with self._failing(stream, number):
                self._commit(stream, number, whole=True)
            return
        with self._lock:
            if number in handle.committing or self._closed.is_set():
                return
            handle.committing.add(number)
        self._background.submit(commit)

    def _stored_frame(self, array: StreamArray, frame: int) -> np.ndarray:
        """The bytes of a frame that is in chunks, as they came."""
        level = array.levels[0]
        node = replace(self._catalog.open_array(level.path, fresh=True), head=None)
        values = self._reader.read(make_plan(node, normalise(array.stored_box(frame), node.metadata.shape)))[0]
        arriving = values.transpose(np.argsort(level.order)).reshape(array.frame_shape)
        return np.ascontiguousarray(arriving).reshape(-1).view(np.uint8)

    def _note_missing(self, stream: Stream, key: str, ranges: Sequence[tuple[int, int, str]]) -> None:
        def noted(record: Record) -> Record:
            known = record.array(key).missing
            return record.with_array(key, missing=sorted({*known, *ranges})) if ranges else record

        self._change(stream, noted)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _find(self, path: str) -> Node | BrokenNode | None:
        try:
            found = self._catalog.open_even_broken(path)
        except NodeNotFound:
            return None
        return None if isinstance(found, GroupNode) and found.implicit else found

    def _in_the_way(self, plan: StreamPlan) -> Iterator[Node | BrokenNode]:
        """The nodes that lie where the stream would make some; plain groups are shared."""
        levels = [level.path for array in plan.arrays for level in array.levels]
        for path in [*plan.layout.groups, *levels]:
            found = self._find(path)
            shared = isinstance(found, GroupNode) and path in plan.layout.groups and not plan.layout.groups[path]
            if found is not None and not shared:
                yield found

    def _make(self, stream: Stream) -> None:
        """Make all nodes that are not there yet; each array is marked as the stream's."""
        plan = stream.plan
        for path in plan.layout.groups:
            if self._find(path) is None:  # a group that is shared may be of the other format
                self._creator.create_group(path, {}, zarr_format=plan.settings.zarr_format, mode="open")
        depth = stream.prefix.count("/")
        for number, array in enumerate(plan.arrays):
            for level, wanted in enumerate(array.levels):
                made = self._creator.create_array(wanted.path, wanted.definition, mode="open")
                up = made.node.prefix.count("/") - depth
                self._committer.mark(array, level, Mark(stream.record.id, up, number, level, 0))
        for path, attributes in reversed([*plan.layout.groups.items()]):
            if attributes:
                self._creator.change_attributes(path, attributes)

    def _remove(self, stream: Stream) -> None:
        """Remove what a stream has made. The caller holds its lock."""
        self._change(stream, lambda record: replace(record, state="discarding"))
        for number in range(len(stream.plan.arrays)):
            with self._appending(stream, number, states=("discarding",)), self._committing(stream, number):
                pass  # whoever has seen the stream open has ended
        groups = stream.plan.layout.groups
        if self._change(stream, lambda record: record).frames:
            stream.mount.store.delete(f"{stream.prefix}{FRAMES_DOCUMENT}")
        for path in reversed(stream.record.made):
            with suppress(NodeNotFound, NodeExists):
                self._creator.delete(path, recursive=path not in groups)
        stream.mount.store.delete_prefix(f"{stream.prefix}{FOLDER}/")
        self._forget(stream.path)

    # --- records and handles -----------------------------------------------------------------------------------------

    def _stream_lock(self, mount: MountedStore, prefix: str) -> Any:
        return mount.store.lock(f"{prefix}{FOLDER}/.zgroup")

    @contextmanager
    def _appending(
        self, stream: Stream, number: int, epoch: int | None = None, *, states: Sequence[State] = ("open",)
    ) -> Iterator[Stream]:
        """Context of those who append to an array, one at a time; gives the stream as it is then."""
        with stream.mount.store.lock(f"{stream.tails(number)}.zgroup"):
            record = self._records.get(stream.mount, stream.prefix)
            if record is None or record.id != stream.record.id:
                raise StreamNotFound(stream.path)
            stream = replace(stream, record=record)
            _check_epoch(stream, epoch)
            if record.state not in states:
                raise CompletedUpload(stream.path)
            try:
                yield stream
            finally:
                self._catalog.versions.forget(stream.mount, stream.tails(number))

    def _committing(self, stream: Stream, number: int) -> Any:
        """Lock of those who move rows of an array to chunks, taken after that of those who append."""
        return stream.mount.store.lock(f"{stream.tails(number)}commit.zgroup")

    def _stream(self, mount: MountedStore, prefix: str, record: Record) -> Stream:
        path = mount.path(prefix)
        plan = self._records.plan(mount, prefix, record.id)
        if plan is None:
            raise StreamNotFound(path)
        return Stream(mount, prefix, path, record, plan)

    def _open(self, path: str, *, writing: bool = True, epoch: int | None = None) -> Stream:
        """The stream at a path; for those who ``write`` it takes frames, again if it had expired."""
        mount, rest = self._catalog.locate(path)
        prefix = as_prefix(rest)
        if writing:
            mount.check_writable()
        record = self._records.get(mount, prefix)
        if record is None or record.state == "discarding":
            raise StreamNotFound(path)
        stream = self._stream(mount, prefix, record)
        _check_epoch(stream, epoch)
        handle = self._handles.get(stream.path)
        if handle is not None:
            handle.last = time.monotonic()
        if not writing:
            return stream
        if record.state in ("finished", "finishing"):
            raise CompletedUpload(stream.path)
        if record.state == "opening":
            raise StreamConflict(stream.path)
        if record.state == "closed":
            stream = replace(stream, record=self._change(stream, lambda each: replace(each, state="open")))
        self._handle(stream)
        return stream

    def _change(self, stream: Stream, change: Callable[[Record], Record]) -> Record:
        changed = self._records.change(stream.mount, stream.prefix, stream.record.id, change)
        if changed is None:
            raise StreamNotFound(stream.path)
        return changed

    @contextmanager
    def _failing(self, stream: Stream, number: int) -> Iterator[None]:
        """What a store fails to do in this context is an array's error from then on."""
        try:
            yield
        except (MismatchingUploadOffset, StreamFull, CompletedUpload, StaleEpoch, StreamNotFound, Overloaded):
            raise
        except HyperslabError as error:
            reason = error.reason if isinstance(error, ArrayFailed) else str(error)
            key = stream.plan.arrays[number].key
            ends = self._handle(stream).ends

            def failed(record: Record) -> Record:
                known = record.array(key)
                return record.with_array(
                    key, error=known.error or reason, stored=max(known.stored, ends.get(number, 0))
                )

            with suppress(HyperslabError):  # the disk may be full
                self._change(stream, failed)
            raise

    def _handle(self, stream: Stream) -> _Handle:
        with self._lock:
            found = self._handles.get(stream.path)
        return found or self._reserve(stream.path, stream.plan)

    def _reserve(self, path: str, plan: StreamPlan) -> _Handle:
        """Take the memory of a stream; raises `Overloaded`."""
        bound = memory_bound(plan)
        with self._lock:
            if path in self._handles:
                return self._handles[path]
            if bound > self._in_flight.limit or not self._in_flight.try_reserve(bound):
                raise Overloaded(f"a stream of {bound} bytes of memory does not fit", retry_after=10)
            handle = self._handles[path] = _Handle(bound, plan.settings.expires_in)
            if self._watch is None and not self._closed.is_set():
                self._watch = Thread(target=self._close_expired, name="streams", daemon=True)
                self._watch.start()
            return handle

    def _forget(self, path: str) -> None:
        with self._lock:
            handle = self._handles.pop(path, None)
        if handle is not None:
            self._in_flight.release(handle.reserved)

    def _flush(self, stream: Stream) -> None:
        for number in range(len(stream.plan.arrays)):
            with suppress(HyperslabError), self._appending(stream, number) as now, self._failing(now, number):
                progress = self._progress(now, number)
                if progress.error is not None:
                    raise ArrayFailed(progress.array.path, progress.error)
                self._commit(now, number, whole=False)

    def _close_expired(self) -> None:
        """Flush and close streams that no request has come for; in a thread, for as long as this process has any."""
        while not self._closed.wait(_LONGEST_LOOK):
            with self._lock:
                handles = dict(self._handles)
                if not handles:
                    self._watch = None
                    return
            now = time.monotonic()
            for path, handle in handles.items():
                busy = any(handle.sending.values()) or handle.committing
                if not busy and now - handle.last > handle.expires_in:
                    with suppress(HyperslabError):
                        self._expire(path, handle.expires_in)
                    self._forget(path)

    def _expire(self, path: str, expires_in: int) -> None:
        mount, prefix = self._catalog.locate_writable(path)
        record = self._records.get(mount, prefix)
        if record is None or record.state != "open":
            return
        stream = self._stream(mount, prefix, record)
        store = stream.mount.store
        written = [store.stat(f"{stream.prefix}{FOLDER}/stream.json")]
        for number in range(len(stream.plan.arrays)):
            written += store.list_dir(stream.tails(number)).entries
        last = max((entry.modified for entry in written if entry is not None), default=0.0)
        if time.time() - last < expires_in:  # through another process
            return
        self._flush(stream)
        self._change(stream, lambda each: replace(each, state="closed") if each.state == "open" else each)

    # --- state -------------------------------------------------------------------------------------------------------

    def _state(self, stream: Stream) -> dict[str, Any]:
        record, plan = stream.record, stream.plan
        arrays = {}
        for number, array in enumerate(plan.arrays):
            arrays[array.key] = {
                **_described(array),
                **_counted(self._progress(stream, number)),
                "padded": record.array(array.key).padded,
            }
        handle = self._handles.get(stream.path)
        failed = arrays and all(each["error"] is not None for each in arrays.values())
        shown = {"opening": "open", "finishing": "open"}.get(record.state, record.state)
        state = "failed" if failed and shown in ("open", "closed") else shown
        return {
            "path": stream.path,
            "state": state,
            "arrays": arrays,
            "memory": {"bound": memory_bound(plan), "used": 0 if handle is None else handle.reserved},
            "expires_in": plan.settings.expires_in,
            "finished": record.finished,
            "warnings": [warning for array in plan.arrays for warning in array.warnings],
        }

    def _dry_run(self, path: str, plan: StreamPlan) -> dict[str, Any]:
        nothing = {"offset": 0, "accepted": 0, "durable": 0, "visible": 0, "missing": [], "partial": 0, "error": None}
        return {
            "path": path,
            "state": "dry_run",
            "arrays": {a.key: {**_described(a), **nothing, "plan": a.plan()} for a in plan.arrays},
            "memory": {"bound": memory_bound(plan), "used": 0},
            "expires_in": plan.settings.expires_in,
            "finished": None,
            "warnings": [warning for array in plan.arrays for warning in array.warnings],
        }


def check_offset(progress: Progress, at: int, nbytes: int) -> None:
    """Raise `MismatchingUploadOffset` unless an array ends at ``at``, `StreamFull` if it has no room for more."""
    if at != progress.end:
        raise MismatchingUploadOffset(progress.array.path, progress.end, at)
    if progress.size is not None and at + nbytes > progress.size:
        raise StreamFull(progress.array.path, progress.size, at + nbytes)


def _check_epoch(stream: Stream, epoch: int | None) -> None:
    if epoch is not None and epoch < stream.record.epoch:
        raise StaleEpoch(epoch, stream.record.epoch)


def _described(array: StreamArray) -> dict[str, Any]:
    dtype = array.levels[0].definition["dtype"]
    base = f"{array.path}/"
    return {
        "path": array.path,
        "levels": [level.path.removeprefix(base) for level in array.levels if level.path != array.path],
        "frame": {"shape": list(array.frame_shape), "dtype": dtype, "nbytes": array.frame_nbytes},
    }


def _counted(progress: Progress) -> dict[str, Any]:
    return {
        "offset": progress.end,
        "accepted": progress.accepted,
        "durable": progress.accepted,
        "visible": progress.visible,
        "missing": missing_frames(progress.missing),
        "partial": progress.end % progress.array.frame_nbytes,
        "error": progress.error,
        "complete": progress.complete,
    }


def memory_bound(plan: StreamPlan) -> int:
    """The most bytes that a stream holds at once: pieces of bodies, rows and chunks that a commit has in hand, and the
    shards, each as encoded chunks and as a whole, one after the other where they are large."""
    levels = [level for array in plan.arrays for level in array.levels]
    chunk = max(math.prod(level.chunks) * level.dtype.itemsize for level in levels)
    shard = max(math.prod(level.shards or ()) * level.dtype.itemsize if level.shards else 0 for level in levels)
    kept = 2 * max(kept_bytes(array) for array in plan.arrays)
    return 4 * PIECE_BYTES + kept + _IN_HAND * chunk + (2 if 2 * shard > _LARGE else 4) * shard
