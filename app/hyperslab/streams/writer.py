"""Writer of arrays of streams: bytes into tails, and rows from there to chunks.

In a folder those who append to an array take turns by a lock. In an object store the head of the tail decides: whoever
finds that it is another one than was read begins again, from how far the array has come by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any, Final, TypeVar

import numpy as np

from hyperslab.arrays.lease import MOST_TRIES, attempts
from hyperslab.arrays.read import Reader
from hyperslab.errors import (
    ArrayFailed,
    ChangedWhileRead,
    CompletedUpload,
    HyperslabError,
    MismatchingUploadOffset,
    Overloaded,
    PartlyWritten,
    QueueFull,
    StaleEpoch,
    StreamFull,
    StreamNotFound,
    WriteConflict,
)
from hyperslab.storage.base import VersionConflict
from hyperslab.streams.commit import Committer
from hyperslab.streams.handles import QUEUE_BYTES, Handle, Handles, Queue
from hyperslab.streams.heads import KeptRows, MemoryRows
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.notes import Notes
from hyperslab.streams.objects import ObjectTail
from hyperslab.streams.progress import Buffer, Gauge, Progress
from hyperslab.streams.record import Record, Records, State, Stream
from hyperslab.streams.tail import Tail, Tails

T = TypeVar("T")

_PATIENCE: Final = 5.0
"""Seconds that a request waits for room in a queue."""
_MOST_WAITING: Final = 2
"""Groups of rows that may wait in tails for their commit, before what comes next waits, too."""


class ArrayWriter:
    """Stores what comes of the arrays of streams. Every method blocks, and raises what stores raise."""

    def __init__(  # noqa: PLR0917
        self,
        reader: Reader,
        records: Records,
        tails: Tails,
        notes: Notes,
        committer: Committer,
        gauge: Gauge,
        handles: Handles,
    ) -> None:
        self._reader = reader
        self._records = records
        self._tails = tails
        self._notes = notes
        self._committer = committer
        self._gauge = gauge
        self._handles = handles
        self._background = ThreadPoolExecutor(2, thread_name_prefix="commits")
        self._closed = Event()

    def close(self) -> None:
        """End background work."""
        self._closed.set()
        self._background.shutdown(wait=True, cancel_futures=True)

    # --- bytes -------------------------------------------------------------------------------------------------------

    def append(  # noqa: PLR0917
        self,
        stream: Stream,
        number: int,
        at: int,
        data: Buffer,
        epoch: int | None,
        note: Buffer,
        known: Progress | None = None,
    ) -> Progress:
        """See `Sending.append`; returns how far the array has come then. ``known``: how far it had come when ``stream``
        was as it is, which of a tail in an object store need not be looked up again: what changes it finds that it is
        another one."""
        tail = None if known is None else known.tails.tails.get(0)
        is_newest = isinstance(tail, ObjectTail) and tail.is_newest

        def once(now: Stream) -> Progress:
            progress = self._writable(now, number, known if now is stream else None)
            progress.check_offset(at, len(data))
            rows = progress.rows
            if stream.mount.is_remote:
                frame = at // progress.array.frame_nbytes
                self._object_tail(now, progress, epoch).append(data, (frame, bytes(note)) if note else None)
            else:
                rows = max(rows, self._append_to_logs(now, number, at, data, note))
            if stream.plan.settings.ack == "chunk":
                self.commit(now, number, whole=False)
            return replace(progress, end=at + len(data), rows=rows)

        progress = self._alone(stream, number, epoch, once, at_first=is_newest)
        self._tell(stream, progress.array)
        self._commit_later(stream, number, progress)
        return progress

    def take(self, stream: Stream, number: int, at: int, data: Buffer, epoch: int | None, note: Buffer) -> Progress:  # noqa: PLR0917
        """Take bytes into the queue of their array, from where they are stored in their order; raises as `append`, and
        `QueueFull`.

        What cannot be stored is dropped with all behind it: nothing was promised. The next sender finds the offset of
        what is stored.
        """
        handle = self._handles.of(stream.path, stream.plan)
        with self._handles.changed:
            room = self._handles.changed.wait_for(
                lambda: not handle.queued or handle.queued + len(data) <= QUEUE_BYTES, _PATIENCE
            )
        if not room:
            raise QueueFull(f"{handle.queued} bytes wait to be stored")
        progress = self._writable(stream, number)
        with self._handles.changed:
            queue = handle.queues.setdefault(number, Queue(progress.end))
            queue.end = max(queue.end, progress.end)
            replace(progress, queued=queue.end - progress.end).check_offset(at, len(data))
            queue.pieces.append((at, bytes(data), epoch, bytes(note)))
            queue.end += len(data)
            idle, queue.idle = queue.idle, False
        if idle:
            self._background.submit(self._store_queue, stream, number, handle, queue)
        return replace(progress, queued=at + len(data) - progress.end)

    def wait(self, stream: Stream) -> None:
        """Return when all that was taken before is stored, or dropped."""
        handle = self._handles.get(stream.path)
        with self._handles.changed:
            while handle is not None and handle.queued and not self._closed.is_set():
                self._handles.changed.wait(1.0)

    def progress(self, stream: Stream, number: int) -> Progress:
        """How far an array has come, with what this process has in its queue."""
        handle = self._handles.get(stream.path)
        queue = None if handle is None else handle.queues.get(number)
        waiting = queue is not None and bool(queue.pieces)  # before the look at the store
        progress = self._gauge.progress(stream, number)
        return replace(progress, queued=max(0, queue.end - progress.end)) if queue and waiting else progress

    def _store_queue(self, stream: Stream, number: int, handle: Handle, queue: Queue) -> None:
        dropped = True
        try:
            while True:
                with self._handles.changed:
                    self._handles.changed.notify_all()
                    if not queue.pieces:
                        dropped, queue.idle = False, True
                        return
                    at, data, epoch, note = queue.pieces[0]
                try:
                    self.append(stream, number, at, data, epoch, note)
                except MismatchingUploadOffset:
                    if not self._gauge.holds(stream, number, at, data, note):
                        raise
                with self._handles.changed:
                    queue.pieces.popleft()
        except HyperslabError:
            return  # the array says so where it takes no more
        finally:
            with self._handles.changed:
                if dropped:
                    queue.pieces.clear()
                    handle.queues.pop(number, None)
                self._handles.changed.notify_all()

    def skip(  # noqa: PLR0917
        self, stream: Stream, number: int, frames: int, reason: str, at: int | None, epoch: int | None
    ) -> Progress:
        """See `Streams.skip`."""
        array = stream.plan.arrays[number]
        size = array.frame_nbytes

        def once(stream: Stream) -> Progress:
            progress = self._writable(stream, number)
            end = progress.end
            if at is not None and at * size != end:
                (known,) = self._gauge.missing(stream, progress)
                if any(start <= at and at + frames <= stop for start, stop in known):
                    return progress
                raise MismatchingUploadOffset(array.path, end, at * size)
            if end % size:
                raise MismatchingUploadOffset(array.path, end, end - end % size, "a frame has begun, and is not whole")
            progress.check_offset(end, frames * size)
            if stream.mount.is_remote:
                self._object_tail(stream, progress, epoch).append_missing(frames * size, reason)
            else:
                self._skip_in_logs(stream, number, end, end + frames * size, reason)
            return replace(progress, end=end + frames * size)

        progress = self._alone(stream, number, epoch, once)
        self._tell(stream, array)
        self._commit_later(stream, number, progress)
        return progress

    def finish(self, stream: Stream, number: int, *, pad: bool) -> None:
        """Store all that has come in chunks, and the last shapes; fill a frame that is not whole up, or leave it
        out."""
        self._alone(stream, number, None, partial(self._finish_once, number=number, pad=pad), ("finishing",))

    def flush(self, stream: Stream, number: int) -> None:
        """Store all whole rows of an array in chunks."""

        def once(stream: Stream) -> None:
            progress = self._gauge.progress(stream, number)
            if progress.error is not None:
                raise ArrayFailed(progress.array.path, progress.error)
            self.commit(stream, number, whole=False)

        self._alone(stream, number, None, once)

    def settle(self, stream: Stream, numbers: Sequence[int] | None = None, *, closed: bool | None = False) -> None:
        """Return when all who have seen the stream, or arrays of it, in an earlier state have ended, or look again;
        ``closed``: tails take no more; None: if they did not before."""
        numbers = range(len(stream.plan.arrays)) if numbers is None else numbers
        stream.mount.pool.each(numbers, len(numbers), partial(self._settle, stream, closed))

    def _settle(self, stream: Stream, closed: bool | None, number: int) -> None:
        store, kept, segments = stream.mount.store, stream.notes(number), stream.tails(number)
        if not stream.mount.is_remote:
            with store.lock(f"{segments}.zgroup"), self._committing(stream, number):
                return None
        for _ in attempts():
            tail = self._tails.objects.open(store, kept, segments, stream.plan.arrays[number].fill, create=True)
            assert tail is not None
            with suppress(VersionConflict):
                return tail.settle(stream.record.epoch, closed=closed)
        raise WriteConflict(kept, f"other writers changed it {MOST_TRIES} times")

    def _append_to_logs(self, stream: Stream, number: int, at: int, data: Buffer, note: Buffer) -> int:
        """Store bytes in tails, or in chunks what ends a group of rows most of which it is; returns the rows that are
        in chunks then, 0 where these are as many as before."""
        array, rest = stream.plan.arrays[number], memoryview(data).cast("B")
        store, notes, level = stream.mount.store, stream.notes(number), array.levels[0]
        if note:
            self._notes.append(store, notes, at // array.frame_nbytes, note)
        elif at % array.frame_nbytes == 0:
            self._notes.forget(store, notes, at // array.frame_nbytes)
        nbytes, rows = level.object_rows * level.row_nbytes, 0
        while rest:
            group, inside = divmod(at, nbytes)
            count = min(len(rest), nbytes - inside)
            if inside + count == nbytes and 2 * count >= nbytes:
                count = (inside + len(rest)) // nbytes * nbytes - inside
                rows = (at + count) // level.row_nbytes
                self.commit(stream, number, whole=True, rows=rows, data=rest[:count])
            else:
                self._log(stream, number, group).append(rest[:count])
            at, rest = at + count, rest[count:]
        return rows

    def _skip_in_logs(self, stream: Stream, number: int, end: int, stop: int, reason: str) -> None:
        array, level = stream.plan.arrays[number], stream.plan.arrays[number].levels[0]
        size, nbytes = array.frame_nbytes, level.object_rows * level.row_nbytes
        self._notes.forget(stream.mount.store, stream.notes(number), end // size)
        while end < stop:
            group, inside = divmod(end, nbytes)
            count = (stop - end) // nbytes * nbytes if not inside and _leaves_out(stream, array) else 0
            if count:
                self.commit(stream, number, whole=True)
                self._note_missing(stream, array.key, [(end // size, (end + count) // size, reason)])
                self.commit(stream, number, whole=True, rows=(end + count) // level.row_nbytes)
            else:
                count = min(stop - end, nbytes - inside)
                self._log(stream, number, group).append_missing(count, reason)
                if inside + count == nbytes:
                    self.commit(stream, number, whole=True)
            end += count

    def _object_tail(self, stream: Stream, progress: Progress, epoch: int | None = None) -> ObjectTail:
        """The tail that progress was read from; raises where its head says that nothing may be added."""
        tail = progress.tails.tails.get(0)
        if not isinstance(tail, ObjectTail):
            raise StreamNotFound(stream.path)
        if epoch is not None and epoch < tail.head.epoch:
            raise StaleEpoch(epoch, tail.head.epoch)
        if tail.head.closed and stream.record.state != "finishing":
            raise CompletedUpload(stream.path)
        return tail

    def _log(self, stream: Stream, number: int, group: int) -> Tail:
        array = stream.plan.arrays[number]
        nbytes = array.levels[0].object_rows * array.levels[0].row_nbytes
        key = f"{stream.tails(number)}{group}"
        tail = self._tails.open(stream.mount.store, key, group * nbytes, array.fill, create=True)
        assert tail is not None
        return tail

    def _tell(self, stream: Stream, array: StreamArray) -> None:
        """Tell those who follow changes that an array may have more rows, though no key that they know has changed."""
        mount = stream.mount
        for level in array.levels:
            if mount.store.observer is not None:
                mount.store.observer(f"{level.path.partition('/')[2]}/{mount.metadata_key}", created=False)

    # --- rows --------------------------------------------------------------------------------------------------------

    def commit(  # noqa: PLR0917
        self,
        stream: Stream,
        number: int,
        whole: bool,
        rows: int | None = None,
        data: Buffer | None = None,
        final: bool = False,
    ) -> None:
        """Move rows of an array to chunks: those in its tails, or with ``rows`` also those up to there, whose bytes are
        ``data``, or which are missing; again from the start where another replica has moved some meanwhile."""
        handle = self._handles.get(stream.path)
        turn = nullcontext() if handle is None or stream.mount.is_remote else handle.turn
        with self._committing(stream, number), turn:
            for _ in attempts():
                try:
                    return self._commit_once(stream, number, whole, rows, data, final)
                except (WriteConflict, ChangedWhileRead):
                    if not stream.mount.is_remote:
                        raise
                except PartlyWritten as error:
                    overtaken = isinstance(error.__cause__, WriteConflict | ChangedWhileRead)
                    if not (stream.mount.is_remote and overtaken):
                        raise
        raise WriteConflict(stream.path, f"other writers came first {MOST_TRIES} times")

    def _commit_once(  # noqa: PLR0917
        self, stream: Stream, number: int, whole: bool, rows: int | None, data: Buffer | None, final: bool
    ) -> None:
        array, store = stream.plan.arrays[number], stream.mount.store
        object_rows, progress = array.levels[0].object_rows, self._gauge.progress(stream, number)
        if self._note_missing(stream, array.key, progress.tails.missing(array.frame_nbytes)).state == "discarding":
            raise StreamNotFound(stream.path)
        source = KeptRows(array, progress.tails)
        if rows is None:
            rows = progress.end // array.levels[0].row_nbytes
            if whole and rows // object_rows <= progress.rows // object_rows:
                return
            for first, last in _left_out(stream, array, progress):
                if first > progress.rows:
                    self._committer.commit(array, stream.record.id, first, source, whole=True)
                self._committer.commit(array, stream.record.id, last, None, whole=True)
            self._committer.commit(array, stream.record.id, rows, source, whole=whole, final=final)
        else:
            begin = rows * array.levels[0].row_nbytes - len(data or b"")
            more = None if data is None else MemoryRows(source, begin, np.frombuffer(data, np.uint8))
            self._committer.commit(array, stream.record.id, rows, more, whole=True)
        if stream.mount.is_remote:
            self._drop(stream, number, rows // object_rows * object_rows if whole else rows)
            return
        for group in [g for g in progress.tails.tails if (g + 1) * object_rows <= rows and not final]:
            key = f"{stream.tails(number)}{group}"
            store.delete(key)
            self._tails.forget(store, key)

    def _drop(self, stream: Stream, number: int, rows: int) -> None:
        """Take rows that are in chunks from the tail of an array in an object store."""
        array = stream.plan.arrays[number]
        begin = rows * array.levels[0].row_nbytes
        for _ in attempts():
            tail = self._tails.objects.open(stream.mount.store, stream.notes(number), stream.tails(number), array.fill)
            with suppress(VersionConflict):
                if tail is not None and tail.begin < begin:
                    tail.drop(begin)
                return

    def _commit_later(self, stream: Stream, number: int, progress: Progress) -> None:
        """Have whole objects of rows moved to chunks in the background; where too many wait, now."""
        level = progress.array.levels[0]
        waiting = progress.end // level.row_nbytes // level.object_rows - progress.rows // level.object_rows
        if waiting <= 0:
            return
        handle = self._handles.of(stream.path, stream.plan)

        def commit() -> None:
            try:
                with self._failing(stream, number):
                    self.commit(stream, number, whole=True)
            except HyperslabError:
                return  # the array says so
            finally:
                handle.committing.discard(number)

        if waiting >= _MOST_WAITING:
            with self._failing(stream, number):
                self.commit(stream, number, whole=True)
            return
        with self._handles.lock:
            if number in handle.committing or self._closed.is_set():
                return
            handle.committing.add(number)
        self._background.submit(commit)

    def _finish_once(self, stream: Stream, number: int, *, pad: bool) -> None:
        array, level = stream.plan.arrays[number], stream.plan.arrays[number].levels[0]
        progress = self._gauge.progress(stream, number)
        if progress.error is not None:
            raise ArrayFailed(array.path, progress.error)
        partial = progress.end % array.frame_nbytes
        nbytes = level.object_rows * level.row_nbytes

        def tail() -> Tail | ObjectTail:
            if stream.mount.is_remote:
                return self._object_tail(stream, progress)
            return self._log(stream, number, progress.end // nbytes)

        if partial and pad:
            made_up = array.frame_nbytes - partial
            phase = partial % array.dtype.itemsize
            fill = np.resize(np.roll(np.frombuffer(array.fill.tobytes(), np.uint8), -phase), made_up)
            tail().append(fill.tobytes())
            self._records.change(stream, lambda record: record.with_array(array.key, padded=made_up))
        elif partial:
            tail().cut(progress.end - partial)
        progress = self._gauge.progress(stream, number) if partial else progress
        absent = -progress.end % level.row_nbytes
        if absent:
            tail().append_missing(absent, "not sent")
        self.commit(stream, number, whole=False, final=True)

    def _note_missing(self, stream: Stream, key: str, ranges: Sequence[tuple[int, int, str]]) -> Record:
        def noted(record: Record) -> Record:
            known = record.array(key).missing
            return record.with_array(key, missing=sorted({*known, *ranges})) if ranges else record

        return self._records.change(stream, noted)

    def _writable(self, stream: Stream, number: int, known: Progress | None = None) -> Progress:
        progress = known or self._gauge.progress(stream, number)
        ends = self._handles.of(stream.path, stream.plan).ends
        ends[number] = max(progress.end, ends.get(number, 0))
        if progress.error is not None:
            raise ArrayFailed(progress.array.path, progress.error)
        if progress.complete:
            raise CompletedUpload(progress.array.path)
        return progress

    # --- turns -------------------------------------------------------------------------------------------------------

    def _alone(
        self,
        stream: Stream,
        number: int,
        epoch: int | None,
        work: Callable[[Stream], T],
        states: Sequence[State] = ("open", "closed"),
        *,
        at_first: bool = False,
    ) -> T:
        """Do what changes the tail of an array, with the stream as it is then, or ``at_first`` as it is known; and
        again where somebody else was first. What a store fails to do is the array's error from then on."""
        for attempt in attempts():
            known = at_first and attempt == 0
            appending = nullcontext(stream) if known else self._appending(stream, number, epoch, states)
            with suppress(VersionConflict), appending as now, self._failing(now, number):
                return work(now)
        raise WriteConflict(stream.path, f"other writers came first {MOST_TRIES} times")

    @contextmanager
    def _appending(self, stream: Stream, number: int, epoch: int | None, states: Sequence[State]) -> Iterator[Stream]:
        """Context of those who append to an array, one at a time of a folder; gives the stream as it is then."""
        with stream.mount.store.lock(f"{stream.tails(number)}.zgroup"):
            record = self._records.get(stream.mount, stream.prefix)
            if record is None or record.id != stream.record.id:
                raise StreamNotFound(stream.path)
            record.check_epoch(epoch)
            if record.state not in states:
                raise CompletedUpload(stream.path)
            try:
                yield replace(stream, record=record)
            finally:
                self._gauge.forget(stream, number)

    def _committing(self, stream: Stream, number: int) -> Any:
        """Lock of those who move rows of an array to chunks, taken after that of those who append."""
        return stream.mount.store.lock(f"{stream.tails(number)}commit.zgroup")

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
            end = self._handles.of(stream.path, stream.plan).ends.get(number, 0)

            def failed(record: Record) -> Record:
                known = record.array(key)
                return record.with_array(key, error=known.error or reason, stored=max(known.stored, end))

            with suppress(HyperslabError):  # the disk may be full
                self._records.change(stream, failed)
            raise


def _leaves_out(stream: Stream, array: StreamArray) -> bool:
    """Whether nothing is stored of objects whose rows are all missing."""
    return not stream.mount.stores_fill and all(not level.halvings[0] for level in array.levels)


def _left_out(stream: Stream, array: StreamArray, progress: Progress) -> Iterator[tuple[int, int]]:
    """The rows ``[first, last)`` that fill whole objects, and are all missing, of an array in an object store."""
    if not stream.mount.is_remote or not _leaves_out(stream, array):
        return
    object_rows, per_row = array.levels[0].object_rows, array.frames_per_row
    for start, stop, _ in progress.tails.missing(array.frame_nbytes):
        first = max(-(-start // per_row // object_rows) * object_rows, progress.rows)
        last = stop // per_row // object_rows * object_rows
        if first < last:
            yield first, last
