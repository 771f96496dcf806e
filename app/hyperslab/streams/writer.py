"""Writer of the arrays of streams: bytes to tails, and rows from there to chunks.

In a folder, appends to an array are serialised by a lock. In an object store they are by conditional puts of the tail's
head: who loses one reads the progress again and starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from threading import Event
from typing import Final, TypeVar

import numpy as np

from hyperslab.arrays.lease import MAX_TRIES, attempts
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
from hyperslab.streams.heads import CachedRows, MemoryRows
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.objects import ObjectTail
from hyperslab.streams.progress import Progress, ProgressReader
from hyperslab.streams.record import Ranges, Record, Records, State, Stream
from hyperslab.streams.sessions import QUEUE_BYTES, Fragment, Queue, Session, Sessions
from hyperslab.streams.tail import LogTail
from hyperslab.streams.tails import Buffer, Tails

T = TypeVar("T")

_PATIENCE: Final = 5.0
"""Seconds that a request waits for room in a queue."""
_MAX_WAITING: Final = 2
"""Groups of rows in the tail of an array from which on a request commits them itself before it is answered."""


class ArrayWriter:
    """Writes the arrays of streams. Methods block, and raise what stores raise."""

    def __init__(
        self, records: Records, tails: Tails, committer: Committer, reader: ProgressReader, sessions: Sessions
    ) -> None:
        self._records = records
        self._tails = tails
        self._committer = committer
        self._reader = reader
        self._sessions = sessions
        self._background = ThreadPoolExecutor(2, thread_name_prefix="commits")
        self._closed = Event()

    def close(self) -> None:
        """End background work."""
        self._closed.set()
        self._background.shutdown(wait=True, cancel_futures=True)

    # --- bytes -------------------------------------------------------------------------------------------------------

    def send(self, stream: Stream, fragment: Fragment, known: Progress, provided: int | None) -> Progress:
        """Append a fragment to an array, or with ``ack=memory`` queue it; returns the new progress. A retransmission of
        stored bytes changes nothing; the request must have ``provided`` an offset.

        Raises `MismatchingUploadOffset` (other offset, or other bytes), `StreamFull`, `CompletedUpload`, `ArrayFailed`,
        `StaleEpoch`, `QueueFull`, and `StoreError`, after which the array has failed.
        """
        array = known.array
        try:
            if stream.plan.settings.ack == "memory" and stream.record.state != "finished":
                return self._enqueue(stream, array, fragment)
            return self._append(stream, array, fragment, known)
        except (MismatchingUploadOffset, CompletedUpload) as error:
            stream = self._records.change(stream)
            progress = self.progress(stream, array)
            if provided is None or fragment.stop > progress.end:
                raise
            if not self._reader.holds(stream, array, fragment):
                reason = "other bytes or metadata are stored there, or it cannot be told"
                raise MismatchingUploadOffset(stream.path, progress.end, provided, reason) from error
            return progress

    def progress(self, stream: Stream, array: StreamArray) -> Progress:
        """The progress of an array, with the queue of this process."""
        session = self._sessions.get(stream.path)
        queue = None if session is None else session.queues.get(array.number)
        waiting = queue is not None and bool(queue.fragments)  # before the store is read
        progress = self._reader.read(stream, array)
        return replace(progress, queued=max(0, queue.end - progress.end)) if queue and waiting else progress

    def wait(self, stream: Stream) -> None:
        """Wait until all queued fragments of this process are stored, or dropped."""
        session = self._sessions.get(stream.path)
        if session is not None:
            with session.changed:
                while session.queued and not self._closed.is_set():
                    session.changed.wait(1.0)

    def skip(
        self, stream: Stream, array: StreamArray, frames: int, reason: str, *, at: int | None, epoch: int | None
    ) -> Progress:
        """See `Streams.skip`."""
        size = array.frame_nbytes

        def once(now: Stream) -> Progress:
            progress = self._writable(now, array)
            end, stop = progress.end, progress.end + frames * size
            if at is not None and at * size != end:
                (known,) = self._reader.missing(now, progress)
                if any(first <= at and at + frames <= last for first, last in known):
                    return progress
                raise MismatchingUploadOffset(array.path, end, at * size)
            if end % size:
                raise MismatchingUploadOffset(array.path, end, end - end % size, "a frame has begun, and is not whole")
            progress.check_offset(end, frames * size)
            if now.mount.is_remote:
                self._object_tail(now, progress, epoch).append_missing(frames * size, reason)
            else:
                self._skip_in_logs(now, array, end, stop, reason)
            return replace(progress, end=stop)

        return self._store(stream, array, epoch, once)

    def complete(self, stream: Stream, array: StreamArray, epoch: int | None) -> None:
        """Take no more bytes of an array."""

        def completed(record: Record) -> Record:
            record.check_epoch(epoch)
            return record.with_array(array.key, complete=True)

        self.wait(stream)
        stream = self._records.change(stream, completed)
        if stream.mount.is_remote:  # in a folder, each append reads the record under the lock
            self.fence(stream, [array], closed=None)

    def flush(self, stream: Stream, array: StreamArray) -> None:
        """Commit all whole rows of an array."""

        def once(now: Stream) -> None:
            progress = self._reader.read(now, array)
            if progress.error is not None:
                raise ArrayFailed(array.path, progress.error)
            self.commit(now, array, whole=False)

        self._exclusive(stream, array, None, once)

    def finish(self, stream: Stream, array: StreamArray, *, pad: bool) -> None:
        """Commit everything, and the last shapes; ``pad`` fills up a partial frame, which is dropped without."""

        def once(now: Stream) -> None:
            progress = self._reader.read(now, array)
            if progress.error is not None:
                raise ArrayFailed(array.path, progress.error)
            partial = progress.end % array.frame_nbytes

            def tail() -> ObjectTail | LogTail:
                if now.mount.is_remote:
                    return self._object_tail(now, progress)
                return self._log(now, array, progress.end // array.group_nbytes)

            if partial and pad:
                padded, phase = array.frame_nbytes - partial, partial % array.dtype.itemsize
                fill = np.resize(np.roll(np.frombuffer(array.fill.tobytes(), np.uint8), -phase), padded)
                tail().append(fill.tobytes())
                self._records.change(now, lambda record: record.with_array(array.key, padded=padded))
            elif partial:
                tail().cut(progress.end - partial)
            progress = self._reader.read(now, array) if partial else progress
            absent = -progress.end % array.row_nbytes
            if absent:
                tail().append_missing(absent, "not sent")
            self.commit(now, array, whole=False, final=True)

        self._exclusive(stream, array, None, once, ("finishing",))

    def fence(
        self, stream: Stream, arrays: Sequence[StreamArray] | None = None, *, closed: bool | None = False
    ) -> None:
        """Wait until appends and commits that saw an earlier state of the stream have ended, or in an object store make
        them fail; for all ``arrays`` by default. ``closed``: see `ObjectTail.fence`."""

        def fence_one(array: StreamArray) -> None:
            if not stream.mount.is_remote:
                with stream.mount.store.lock(f"{array.tails}.zgroup"), self._commit_lock(stream, array):
                    return
            for _ in attempts():
                tail = self._tails.objects.open(stream.mount.store, array, create=True)
                assert tail is not None
                with suppress(VersionConflict):
                    tail.fence(stream.record.epoch, closed=closed)
                    return
            raise WriteConflict(array.head, f"other writers changed it {MAX_TRIES} times")

        arrays = stream.plan.arrays if arrays is None else arrays
        stream.mount.pool.each(arrays, len(arrays), fence_one)

    # --- queues ------------------------------------------------------------------------------------------------------

    def _enqueue(self, stream: Stream, array: StreamArray, fragment: Fragment) -> Progress:
        """Queue a fragment. One that cannot be stored is dropped with all behind it, as nothing was promised."""
        session, size = self._sessions.open(stream.plan), len(fragment.data)
        with session.changed:
            if not session.changed.wait_for(
                lambda: not session.queued or session.queued + size <= QUEUE_BYTES, _PATIENCE
            ):
                raise QueueFull(f"{session.queued} bytes wait to be stored")
        progress = self._writable(stream, array)
        with session.changed:
            queue = session.queues.setdefault(array.number, Queue(progress.end))
            queue.end = max(queue.end, progress.end)
            replace(progress, queued=queue.end - progress.end).check_offset(fragment.at, size)
            queue.fragments.append(replace(fragment, data=bytes(fragment.data)))
            queue.end += size
            idle, queue.idle = queue.idle, False
        if idle:
            self._background.submit(self._store_queue, stream, array, session, queue)
        return replace(progress, queued=fragment.stop - progress.end)

    def _store_queue(self, stream: Stream, array: StreamArray, session: Session, queue: Queue) -> None:
        dropped = True
        try:
            while True:
                with session.changed:
                    session.changed.notify_all()
                    if not queue.fragments:
                        dropped, queue.idle = False, True
                        return
                    fragment = queue.fragments[0]
                try:
                    self._append(stream, array, fragment)
                except MismatchingUploadOffset:
                    if not self._reader.holds(stream, array, fragment):
                        raise
                with session.changed:
                    queue.fragments.popleft()
        except HyperslabError:
            return  # which is the array's error, if it has failed
        finally:
            with session.changed:
                if dropped:
                    queue.fragments.clear()
                    session.queues.pop(array.number, None)
                session.changed.notify_all()

    # --- tails -------------------------------------------------------------------------------------------------------

    def _append(
        self, stream: Stream, array: StreamArray, fragment: Fragment, known: Progress | None = None
    ) -> Progress:
        """Store a fragment at the end of an array. ``known``: progress as of ``stream``. If its object tail is the
        newest known, it is not read again: a change of an outdated one fails."""
        tail = None if known is None else known.tails.tails.get(0)

        def once(now: Stream) -> Progress:
            progress = self._writable(now, array, known if now is stream else None)
            progress.check_offset(fragment.at, len(fragment.data))
            rows = progress.rows
            if now.mount.is_remote:
                note = (fragment.at // array.frame_nbytes, fragment.note) if fragment.note else None
                self._object_tail(now, progress, fragment.epoch).append(fragment.data, note)
            else:
                rows = max(rows, self._append_to_logs(now, array, fragment))
            if now.plan.settings.ack == "chunk":
                self.commit(now, array, whole=False)
            return replace(progress, end=fragment.stop, rows=rows)

        return self._store(
            stream, array, fragment.epoch, once, at_first=isinstance(tail, ObjectTail) and tail.is_newest
        )

    def _append_to_logs(self, stream: Stream, array: StreamArray, fragment: Fragment) -> int:
        """Append to logs, or commit bytes at once that complete a group and are most of it. Returns the rows that are
        in chunks then, 0 if they are as many as before."""
        at, rest = fragment.at, memoryview(fragment.data).cast("B")
        if fragment.note or at % array.frame_nbytes == 0:
            self._tails.put_note(stream.mount.store, array, at // array.frame_nbytes, fragment.note)
        nbytes, rows = array.group_nbytes, 0
        while rest:
            group, inside = divmod(at, nbytes)
            count = min(len(rest), nbytes - inside)
            if inside + count == nbytes and 2 * count >= nbytes:
                count = (inside + len(rest)) // nbytes * nbytes - inside
                rows = (at + count) // array.row_nbytes
                self.commit(stream, array, whole=True, rows=rows, data=rest[:count])
            else:
                self._log(stream, array, group).append(rest[:count])
            at, rest = at + count, rest[count:]
        return rows

    def _skip_in_logs(self, stream: Stream, array: StreamArray, end: int, stop: int, reason: str) -> None:
        size, nbytes = array.frame_nbytes, array.group_nbytes
        self._tails.put_note(stream.mount.store, array, end // size, b"")
        while end < stop:
            group, inside = divmod(end, nbytes)
            count = (stop - end) // nbytes * nbytes if not inside and _may_omit(stream, array) else 0
            if count:
                self.commit(stream, array, whole=True)
                self._record_missing(stream, array, [(end // size, (end + count) // size, reason)])
                self.commit(stream, array, whole=True, rows=(end + count) // array.row_nbytes)
            else:
                count = min(stop - end, nbytes - inside)
                self._log(stream, array, group).append_missing(count, reason)
                if inside + count == nbytes:
                    self.commit(stream, array, whole=True)
            end += count

    def _object_tail(self, stream: Stream, progress: Progress, epoch: int | None = None) -> ObjectTail:
        """The tail that progress was read from. Raises if its head refuses a sender."""
        tail = progress.tails.tails.get(0)
        if not isinstance(tail, ObjectTail):
            raise StreamNotFound(stream.path)
        if epoch is not None and epoch < tail.head.epoch:
            raise StaleEpoch(epoch, tail.head.epoch)
        if tail.head.closed and stream.record.state != "finishing":
            raise CompletedUpload(stream.path)
        return tail

    def _log(self, stream: Stream, array: StreamArray, group: int) -> LogTail:
        log = self._tails.log(stream.mount.store, array, group, create=True)
        assert log is not None
        return log

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(
        self,
        stream: Stream,
        array: StreamArray,
        *,
        whole: bool,
        rows: int | None = None,
        data: Buffer | None = None,
        final: bool = False,
    ) -> None:
        """Move rows of an array to chunks: those in its tail, with ``whole`` only complete groups. With ``rows`` also
        those up to there, whose bytes are ``data``, or which are missing. Starts over if another replica came first."""
        remote = stream.mount.is_remote
        with self._commit_lock(stream, array), self._sessions.committing(stream.plan, concurrently=remote):
            for _ in attempts():
                try:
                    return self._commit_once(stream, array, whole=whole, rows=rows, data=data, final=final)
                except (WriteConflict, ChangedWhileRead, PartlyWritten) as error:
                    cause = error.__cause__ if isinstance(error, PartlyWritten) else error
                    if not (remote and isinstance(cause, WriteConflict | ChangedWhileRead)):
                        raise
        raise WriteConflict(stream.path, f"other writers came first {MAX_TRIES} times")

    def _commit_once(
        self, stream: Stream, array: StreamArray, *, whole: bool, rows: int | None, data: Buffer | None, final: bool
    ) -> None:
        group_rows, progress = array.group_rows, self._reader.read(stream, array)
        if self._record_missing(stream, array, progress.tails.missing(array.frame_nbytes)).record.state == "discarding":
            raise StreamNotFound(stream.path)
        source = CachedRows(array, progress.tails)
        if rows is None:
            rows = progress.end // array.row_nbytes
            if whole and rows // group_rows <= progress.rows // group_rows:
                return
            for first, last in _omissible(stream, progress):
                if first > progress.rows:
                    self._committer.commit(array, first, source, whole=True)
                self._committer.commit(array, last, None, whole=True)
            self._committer.commit(array, rows, source, whole=whole, final=final)
        else:
            begin = rows * array.row_nbytes - len(data or b"")
            more = None if data is None else MemoryRows(source, begin, np.frombuffer(data, np.uint8))
            self._committer.commit(array, rows, more, whole=True)
        if not stream.mount.is_remote:
            for group in [each for each in progress.tails.tails if (each + 1) * group_rows <= rows and not final]:
                self._tails.remove(stream.mount.store, array, group)
            return
        begin = (rows // group_rows * group_rows if whole else rows) * array.row_nbytes
        for _ in attempts():
            tail = self._tails.objects.open(stream.mount.store, array)
            with suppress(VersionConflict):
                if tail is not None and tail.begin < begin:
                    tail.drop(begin)
                return

    def _commit_later(self, stream: Stream, progress: Progress) -> None:
        """Commit complete groups in the background, or at once if too many wait."""
        array = progress.array
        waiting = progress.end // array.group_nbytes - progress.rows // array.group_rows
        if waiting <= 0:
            return
        session = self._sessions.open(stream.plan)

        def commit() -> None:
            with self._recording_failure(stream, array):
                self.commit(stream, array, whole=True)

        def in_background() -> None:
            try:
                with suppress(HyperslabError):  # which is the array's error from now on
                    commit()
            finally:
                session.committing.discard(array.number)

        if waiting >= _MAX_WAITING:
            commit()
            return
        with session.changed:
            if array.number in session.committing or self._closed.is_set():
                return
            session.committing.add(array.number)
        self._background.submit(in_background)

    def _record_missing(self, stream: Stream, array: StreamArray, ranges: Ranges) -> Stream:
        def noted(record: Record) -> Record:
            known = record.array(array.key).missing
            return record.with_array(array.key, missing=sorted({*known, *ranges})) if ranges else record

        return self._records.change(stream, noted)

    def _writable(self, stream: Stream, array: StreamArray, known: Progress | None = None) -> Progress:
        progress = known or self._reader.read(stream, array)
        ends = self._sessions.open(stream.plan).ends
        ends[array.number] = max(progress.end, ends.get(array.number, 0))
        if progress.error is not None:
            raise ArrayFailed(array.path, progress.error)
        if progress.complete:
            raise CompletedUpload(array.path)
        return progress

    # --- exclusion ---------------------------------------------------------------------------------------------------

    def _store(
        self,
        stream: Stream,
        array: StreamArray,
        epoch: int | None,
        once: Callable[[Stream], Progress],
        *,
        at_first: bool = False,
    ) -> Progress:
        """The progress after ``once``, which appends to the tail; then followers of changes are told that the array may
        have more rows, and complete groups are committed."""
        progress = self._exclusive(stream, array, epoch, once, at_first=at_first)
        observer = stream.mount.store.observer
        if observer is not None:
            for level in array.levels:
                observer(f"{level.path.partition('/')[2]}/{stream.mount.metadata_key}", created=False)
        self._commit_later(stream, progress)
        return progress

    def _exclusive(
        self,
        stream: Stream,
        array: StreamArray,
        epoch: int | None,
        work: Callable[[Stream], T],
        states: Sequence[State] = ("open", "closed"),
        *,
        at_first: bool = False,
    ) -> T:
        """Result of work that changes the tail of an array; repeated if another sender came first. In a folder it is
        under the lock of those who append. It is given the stream as it is then, or ``at_first`` as it is known."""
        for attempt in attempts():
            known = at_first and attempt == 0
            lock = nullcontext() if known else stream.mount.store.lock(f"{array.tails}.zgroup")
            with suppress(VersionConflict), lock:
                now = stream if known else self._records.change(stream)
                now.record.check_epoch(epoch)
                if now.record.state not in states:
                    raise CompletedUpload(stream.path)
                try:
                    with self._recording_failure(now, array):
                        return work(now)
                finally:
                    self._reader.forget(stream.mount, array)
        raise WriteConflict(stream.path, f"other writers came first {MAX_TRIES} times")

    def _commit_lock(self, stream: Stream, array: StreamArray) -> AbstractContextManager[None]:
        """Lock that serialises commits of an array; taken after the lock of appends."""
        return stream.mount.store.lock(f"{array.tails}commit.zgroup")

    @contextmanager
    def _recording_failure(self, stream: Stream, array: StreamArray) -> Iterator[None]:
        """Record a failure of the store as the array's error."""
        try:
            yield
        except (MismatchingUploadOffset, StreamFull, CompletedUpload, StaleEpoch, StreamNotFound, Overloaded):
            raise
        except HyperslabError as error:
            reason = error.reason if isinstance(error, ArrayFailed) else str(error)
            end = self._sessions.open(stream.plan).ends.get(array.number, 0)

            def failed(record: Record) -> Record:
                known = record.array(array.key)
                return record.with_array(array.key, error=known.error or reason, stored=max(known.stored, end))

            with suppress(HyperslabError):  # the disk may be full
                self._records.change(stream, failed)
            raise


def _may_omit(stream: Stream, array: StreamArray) -> bool:
    """Whether stored objects whose rows are all missing need not be stored."""
    return not stream.mount.stores_fill and all(not level.halvings[0] for level in array.levels)


def _omissible(stream: Stream, progress: Progress) -> Iterator[tuple[int, int]]:
    """In an object store, the rows ``[first, last)`` of whole stored objects whose frames are all missing."""
    array = progress.array
    if stream.mount.is_remote and _may_omit(stream, array):
        for start, stop, _ in progress.tails.missing(array.frame_nbytes):
            first = -(-start // array.frames_per_row // array.group_rows) * array.group_rows
            first, last = max(first, progress.rows), stop // array.frames_per_row // array.group_rows * array.group_rows
            if first < last:
                yield first, last
