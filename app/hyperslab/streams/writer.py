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

from hyperslab.arrays.lease import MAX_TRIES, attempts, retried
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
from hyperslab.streams.progress import Progress, ProgressReader
from hyperslab.streams.record import Ranges, Record, Records, State, Stream
from hyperslab.streams.sessions import QUEUE_BYTES, Fragment, Queue, Session, Sessions
from hyperslab.streams.tail import Buffer, Tail
from hyperslab.streams.tails import Tails

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
            progress, tail = self._writable(now, array, epoch)
            end, stop = progress.end, progress.end + frames * size
            if at is not None and at * size != end:
                (known,) = self._reader.missing(now, progress)
                if any(first <= at and at + frames <= last for first, last in known):
                    return progress
                raise MismatchingUploadOffset(array.path, end, at * size)
            if end % size:
                raise MismatchingUploadOffset(array.path, end, end - end % size, "a frame has begun, and is not whole")
            progress.check_offset(end, frames * size)
            tail.put_note(end // size, b"")
            self._append_missing(now, tail, end, stop, reason)
            return replace(progress, end=stop)

        return self._store(stream, array, epoch, once)

    def complete(self, stream: Stream, array: StreamArray, epoch: int | None) -> None:
        """Take no more bytes of an array."""

        def completed(record: Record) -> Record:
            record.check_epoch(epoch)
            return record.with_array(array.key, complete=True)

        self.wait(stream)
        self.fence(self._records.change(stream, completed), [array], closed=None)

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
            tail, end = progress.tail, progress.end
            if tail is None:
                return  # an earlier attempt has come so far
            tail.check_sender(None, closing=True)
            partial = end % array.frame_nbytes
            if partial and pad:
                padded = array.frame_nbytes - partial
                tail.append(end, array.fill_bytes(end, padded).tobytes())
                self._records.change(now, lambda record: record.with_array(array.key, padded=padded))
                end += padded
            elif partial:
                tail.cut(end - partial)
                end -= partial
            if end % array.row_nbytes:
                tail.append_missing(end, -end % array.row_nbytes, "not sent")
            self.commit(now, array, whole=False, final=True)

        self._exclusive(stream, array, None, once, ("finishing",))

    def fence(
        self, stream: Stream, arrays: Sequence[StreamArray] | None = None, *, closed: bool | None = False
    ) -> None:
        """Wait until appends and commits that saw an earlier state of the stream have ended, or in other replicas make
        them fail; for all ``arrays`` by default. ``closed``: see `Tail.fence`."""
        mount, epoch = stream.mount, stream.record.epoch

        def fence_one(array: StreamArray) -> None:
            with mount.store.lock(f"{array.tails}.zgroup"), self._commit_lock(stream, array):
                retried(array.head, lambda: self._tails.open(mount, array)[0].fence(epoch, closed=closed))

        arrays = stream.plan.arrays if arrays is None else arrays
        mount.pool.each(arrays, len(arrays), fence_one)

    # --- queues ------------------------------------------------------------------------------------------------------

    def _enqueue(self, stream: Stream, array: StreamArray, fragment: Fragment) -> Progress:
        """Queue a fragment. One that cannot be stored is dropped with all behind it, as nothing was promised."""
        session, size = self._sessions.open(stream.plan), len(fragment.data)
        with session.changed:
            if not session.changed.wait_for(
                lambda: not session.queued or session.queued + size <= QUEUE_BYTES, _PATIENCE
            ):
                raise QueueFull(f"{session.queued} bytes wait to be stored")
        progress, _ = self._writable(stream, array, fragment.epoch)
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
        """Store a fragment at the end of an array. ``known``: progress as of ``stream``. If its tail is the newest
        known, it is not read again: a change of an outdated one fails."""

        def once(now: Stream) -> Progress:
            progress, tail = self._writable(now, array, fragment.epoch, known if now is stream else None)
            progress.check_offset(fragment.at, len(fragment.data))
            if fragment.note or fragment.at % array.frame_nbytes == 0:
                tail.put_note(fragment.at // array.frame_nbytes, fragment.note)
            rows = max(progress.rows, self._append_bytes(now, tail, fragment.at, fragment.data))
            if now.plan.settings.ack == "chunk":
                self.commit(now, array, whole=False)
            return replace(progress, end=fragment.stop, rows=rows)

        at_first = known is not None and known.tail is not None and known.tail.is_newest
        return self._store(stream, array, fragment.epoch, once, at_first=at_first)

    def _append_bytes(self, stream: Stream, tail: Tail, at: int, data: Buffer) -> int:
        """Append to the tail, or commit bytes at once that complete a group and are most of it. Returns the rows that
        are in chunks then, 0 if they are as many as before."""
        array, rest, rows = tail.array, memoryview(data).cast("B"), 0
        while rest:
            inside = at % tail.group
            count = min(len(rest), tail.group - inside)
            if inside + count == tail.group and 2 * count >= tail.group:
                count = (inside + len(rest)) // tail.group * tail.group - inside
                rows = (at + count) // array.row_nbytes
                self.commit(stream, array, whole=True, rows=rows, data=rest[:count])
            else:
                tail.append(at, rest[:count])
            at, rest = at + count, rest[count:]
        return rows

    def _append_missing(self, stream: Stream, tail: Tail, at: int, stop: int, reason: str) -> None:
        array, size = tail.array, tail.array.frame_nbytes
        while at < stop:
            count = (stop - at) // tail.group * tail.group
            if count and at % tail.group == 0 and _may_omit(stream, array):
                self.commit(stream, array, whole=True)
                self._record_missing(stream, array, [(at // size, (at + count) // size, reason)])
                self.commit(stream, array, whole=True, rows=(at + count) // array.row_nbytes)
            else:
                count = min(stop - at, tail.group - at % tail.group)
                tail.append_missing(at, count, reason)
                if (at + count) % tail.group == 0:
                    self.commit(stream, array, whole=True)
            at += count

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
        tail = progress.tail
        if tail is None:
            return
        if self._record_missing(stream, array, tail.missing()).record.state == "discarding":
            raise StreamNotFound(stream.path)
        source = CachedRows(array, tail)
        if rows is None:
            rows = progress.end // array.row_nbytes
            if whole and rows // group_rows <= progress.rows // group_rows:
                return
            for first, last in _omissible(stream, progress, tail):
                if first > progress.rows:
                    self._committer.commit(array, first, source, whole=True)
                self._committer.commit(array, last, None, whole=True)
            self._committer.commit(array, rows, source, whole=whole, final=final)
        else:
            begin = rows * array.row_nbytes - len(data or b"")
            more = None if data is None else MemoryRows(source, begin, np.frombuffer(data, np.uint8))
            self._committer.commit(array, rows, more, whole=True)
        begin = (rows // group_rows * group_rows if whole else rows) * array.row_nbytes
        retried(array.head, lambda: self._tails.open(stream.mount, array, progress.rows)[0].drop(begin))

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

    def _writable(
        self, stream: Stream, array: StreamArray, epoch: int | None, known: Progress | None = None
    ) -> tuple[Progress, Tail]:
        """The progress of an array that takes more bytes from a sender, and its tail."""
        progress = known or self._reader.read(stream, array)
        ends = self._sessions.open(stream.plan).ends
        ends[array.number] = max(progress.end, ends.get(array.number, 0))
        if progress.error is not None:
            raise ArrayFailed(array.path, progress.error)
        if progress.complete or progress.tail is None:
            raise CompletedUpload(array.path)
        progress.tail.check_sender(epoch)
        return progress, progress.tail

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
                finally:  # the next reader looks versions up
                    for prefix in (array.tails, array.notes):
                        stream.mount.versions.forget(prefix)
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


def _omissible(stream: Stream, progress: Progress, tail: Tail) -> Iterator[tuple[int, int]]:
    """In an object store, the rows ``[first, last)`` of whole stored objects whose frames are all missing."""
    array = progress.array
    if stream.mount.is_remote and _may_omit(stream, array):
        for start, stop, _ in tail.missing():
            first = -(-start // array.frames_per_row // array.group_rows) * array.group_rows
            first, last = max(first, progress.rows), stop // array.frames_per_row // array.group_rows * array.group_rows
            if first < last:
                yield first, last
