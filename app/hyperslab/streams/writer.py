"""Writers of the arrays of streams: bytes to tails, and rows from there to chunks.

In a folder, appends to an array are serialised by a lock. In an object store they are by conditional puts of the tail's
head: who loses one reads the progress again and starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Final, TypeVar

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.lease import MAX_TRIES, attempts, retried
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.engine.jsontext import dump_json
from hyperslab.engine.selection import normalise
from hyperslab.errors import (
    ArrayFailed,
    ChangedWhileRead,
    CompletedUpload,
    HyperslabError,
    InDoubt,
    MismatchingUploadOffset,
    NodeNotFound,
    Overloaded,
    PartlyWritten,
    QueueFull,
    StaleEpoch,
    StreamFull,
    StreamNotFound,
    WriteConflict,
    WrongKind,
)
from hyperslab.storage.base import VersionConflict, merge
from hyperslab.streams.commit import Committer
from hyperslab.streams.heads import CachedRows, MemoryRows
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.progress import Progress
from hyperslab.streams.record import Ranges, Record, Records, State, Stream
from hyperslab.streams.sessions import Fragment, Queue, Session, Sessions
from hyperslab.streams.tail import Buffer, Tail
from hyperslab.streams.tails import Tails

T = TypeVar("T")

_PATIENCE: Final = 5.0
"""Seconds that a request waits for room in a queue."""
_MAX_WAITING: Final = 2
"""Groups of rows in the tail of an array from which on a request commits them itself (benchmark ``streams``)."""


class Writers:
    """The writers of all arrays, and what they share."""

    def __init__(self, catalog: Catalog, reader: Reader, records: Records, tails: Tails, sessions: Sessions) -> None:
        self.catalog, self.reader, self.records, self.tails, self.sessions = catalog, reader, records, tails, sessions
        self.committer = Committer(catalog, reader)
        self.background = ThreadPoolExecutor(2, thread_name_prefix="commits")
        self.closed = Event()

    def close(self) -> None:
        """End background work."""
        self.closed.set()
        self.background.shutdown(wait=True, cancel_futures=True)

    def of(self, stream: Stream, array: StreamArray, epoch: int | None = None) -> ArrayWriter:
        """The writer of an array for a sender of an ``epoch`` (None: any)."""
        return ArrayWriter(self, stream, array, epoch)

    def each(self, stream: Stream, work: Callable[[ArrayWriter], None]) -> None:
        """Do work on each array; where it fails, that is the array's error."""
        for array in stream.plan.arrays:
            with suppress(HyperslabError):
                work(self.of(stream, array))

    def wait(self, stream: Stream) -> None:
        """Wait until all queued fragments of this process are stored, or dropped."""
        session = self.sessions.get(stream.path)
        if session is not None:
            with session.changed:
                session.changed.wait_for(lambda: not session.queued)

    def missing(self, stream: Stream, *found: Progress) -> list[list[tuple[int, int]]]:
        """Missing frames of arrays, as sorted disjoint ranges. The record is read again, for those that moved to chunks
        while progress was read: they are noted there before."""
        record = self.records.get(stream.mount, stream.prefix)
        now = record if record is not None and record.id == stream.record.id else stream.record
        noted = [[*each.missing, *now.array(each.array.key).missing] for each in found]
        return [merge([(start, stop) for start, stop, _ in ranges], gap=0) for ranges in noted]

    def fence(self, stream: Stream, *, closed: bool = False) -> None:
        """`ArrayWriter.fence` for all arrays."""
        arrays = stream.plan.arrays
        stream.mount.pool.each(arrays, len(arrays), lambda array: self.of(stream, array).fence(closed=closed))


class ArrayWriter:
    """Writes one array of a stream, and knows its progress. Methods block, and raise what stores raise. ``stream`` is
    as last known."""

    def __init__(self, shared: Writers, stream: Stream, array: StreamArray, epoch: int | None) -> None:
        self.stream, self.array, self.epoch = stream, array, epoch
        self._shared = shared
        self._mount, self._plan = stream.mount, stream.plan

    # --- bytes -------------------------------------------------------------------------------------------------------

    def send(self, fragment: Fragment, known: Progress, provided: int | None) -> Progress:
        """Append a fragment, or with ``ack=memory`` queue it; returns the new progress. A retransmission of stored
        bytes changes nothing; the request must have ``provided`` an offset.

        Raises `MismatchingUploadOffset` (other offset, or other bytes), `StreamFull`, `CompletedUpload`, `ArrayFailed`,
        `StaleEpoch`, `QueueFull`, and `StoreError`, after which the array has failed.
        """
        try:
            if self._plan.settings.ack == "memory" and self.stream.record.state != "finished":
                return self._enqueue(fragment)
            return self._append(fragment, known)
        except (MismatchingUploadOffset, CompletedUpload) as error:
            self.stream = self._shared.records.change(self.stream)
            progress = self.progress()
            if provided is None or fragment.stop > progress.end:
                raise
            if not self._holds(fragment):
                reason = "other bytes or metadata are stored there, or it cannot be told"
                raise MismatchingUploadOffset(self.stream.path, progress.end, provided, reason) from error
            return progress

    def read(self) -> Progress:
        """The progress of an array, without queues."""
        stream, array, shared = self.stream, self.array, self._shared
        record, seen = stream.record.array(array.key), dict[int, Tail]()
        error, is_final = record.error, stream.record.state == "finished"
        while not is_final:
            try:
                rows = shared.committer.open(array, 0)[1].rows
            except ArrayFailed as failure:
                is_final = stream.record.state == "finishing" and shared.committer.is_final(array.levels[0])
                if is_final:
                    break
                error, rows = error or failure.reason, shared.tails.first_row(stream.mount, array)
            known = rows in seen  # no rows have moved to chunks since before its tail was looked up
            tail = seen[rows] if known else self._open_tail(rows)
            if self._mount.is_remote or not tail.may_lag or known:
                end, missing = max(tail.end, rows * array.row_nbytes, record.stored), [*record.missing, *tail.missing()]
                return Progress(array, rows, end, tail, missing, error, record.complete, stream.plan.settings)
            seen = {rows: tail}  # else its logs may have been removed while they were looked up
        level, rows = array.levels[0], 0
        try:
            rows = shared.catalog.open_array(level.path).metadata.shape[level.append_axis] // level.row_length
        except (NodeNotFound, WrongKind) as failure:
            error = error or str(failure)
        end = rows * array.row_nbytes
        return Progress(array, rows, end, None, [*record.missing], error, complete=True, settings=stream.plan.settings)

    def progress(self) -> Progress:
        """The progress of the array, with the queue of this process."""
        session = self._shared.sessions.get(self.stream.path)
        queue = None if session is None else session.queues.get(self.array.number)
        waiting = queue is not None and queue.waiting > 0  # before the store is read
        progress = self.read()
        return replace(progress, queued=max(0, queue.end - progress.end)) if queue and waiting else progress

    def frame_lines(self, start: int, stop: int | None = None) -> Iterator[bytes]:
        """Metadata of the frames ``[start, stop)``, by default of all durable ones, as JSON lines, many at a time."""
        stop, name = self.read().end // self.array.frame_nbytes if stop is None else stop, dump_json(self.array.key)
        for notes in self._open_tail().notes(start, stop):
            yield b"".join([b'{"key":%b,"frame":%d,"metadata":%b}\n' % (name, *each) for each in notes])

    def skip(self, frames: int, reason: str, at: int | None) -> Progress:
        """Record frames from ``at`` on (None: the next ones) as missing; returns the progress after that. Raises as
        `send`."""
        array, size = self.array, self.array.frame_nbytes

        def once() -> Progress:
            progress, tail = self._writable()
            end, stop = progress.end, progress.end + frames * size
            if at is not None and at * size != end:
                (known,) = self._shared.missing(self.stream, progress)
                if any(first <= at and at + frames <= last for first, last in known):
                    return progress
                raise MismatchingUploadOffset(array.path, end, at * size)
            if end % size:
                raise MismatchingUploadOffset(array.path, end, end - end % size, "a frame has begun, and is not whole")
            progress.check_offset(end, frames * size)
            tail.put_note(end // size, b"")
            self._append_missing(tail, end, stop, reason)
            return replace(progress, end=stop)

        self._shared.wait(self.stream)
        return self._store(once)

    def complete(self) -> None:
        """Take no more bytes."""

        def completed(record: Record) -> Record:
            record.check_epoch(self.epoch)
            return record.with_array(self.array.key, complete=True)

        self._shared.wait(self.stream)
        self.stream = self._shared.records.change(self.stream, completed)
        self.fence(closed=None)

    def flush(self) -> None:
        """Commit all whole rows."""

        def once() -> None:
            self.read().check()
            self.commit(whole=False)

        self._exclusive(once)

    def finish(self, *, pad: bool) -> None:
        """Commit everything, and the last shapes; ``pad`` fills up a partial frame, which is dropped without."""
        array = self.array

        def once() -> None:
            progress = self.read()
            progress.check()
            tail, end = progress.tail, progress.end
            if tail is None:
                return  # an earlier attempt has come so far
            tail.check_sender(None, closing=True)
            partial = end % array.frame_nbytes
            if partial and pad:
                padded = array.frame_nbytes - partial
                tail.append(end, array.fill_bytes(end, padded).tobytes())
                self._shared.records.change(self.stream, lambda record: record.with_array(array.key, padded=padded))
                end += padded
            elif partial:
                tail.cut(end - partial)
                end -= partial
            if end % array.row_nbytes:
                tail.append_missing(end, -end % array.row_nbytes, "not sent")
            self.commit(whole=False, final=True)

        self._exclusive(once, ("finishing",))

    def fence(self, *, closed: bool | None) -> None:
        """Wait until appends and commits that saw an earlier state of the stream have ended, or in other replicas make
        them fail. ``closed``: see `Tail.fence`."""
        epoch = self.stream.record.epoch
        with self._lock(), self._lock("commit"):
            retried(self.array.path, lambda: self._open_tail().fence(epoch, closed=closed))

    # --- queues ------------------------------------------------------------------------------------------------------

    def _enqueue(self, fragment: Fragment) -> Progress:
        """Queue a fragment. One that cannot be stored is dropped with all behind it, as nothing was promised."""
        session, size = self._shared.sessions.open(self._plan), len(fragment.data)
        with session.changed:
            if not session.changed.wait_for(
                lambda: not session.queued or session.queued + size <= session.memory.queue, _PATIENCE
            ):
                raise QueueFull(f"{session.queued} bytes wait to be stored")
        progress, _ = self._writable()
        with session.changed:
            queue = session.queues.setdefault(self.array.number, Queue(progress.end))
            queue.end = max(queue.end, progress.end)
            replace(progress, queued=queue.end - progress.end).check_offset(fragment.at, size)
            queue.end, queue.waiting, session.queued = fragment.stop, queue.waiting + 1, session.queued + size
            session.storing.submit(self._store_queued, session, queue, replace(fragment, data=bytes(fragment.data)))
        return replace(progress, queued=fragment.stop - progress.end)

    def _store_queued(self, session: Session, queue: Queue, fragment: Fragment) -> None:
        dropped = True
        try:
            if not queue.dropped:
                self._append(fragment)
                dropped = False
        except MismatchingUploadOffset:
            dropped = not self._holds(fragment)
        except HyperslabError:
            pass  # it is the array's error, if that has failed
        finally:
            with session.changed:
                session.queued, queue.waiting = session.queued - len(fragment.data), queue.waiting - 1
                queue.dropped |= dropped
                if dropped and session.queues.get(self.array.number) is queue:
                    del session.queues[self.array.number]
                session.changed.notify_all()

    # --- tails -------------------------------------------------------------------------------------------------------

    def _append(self, fragment: Fragment, known: Progress | None = None) -> Progress:
        """Store a fragment at the end. ``known``: progress as of ``stream``. If its tail is the newest known, it is not
        read again: a change of an outdated one fails."""
        size, first = self.array.frame_nbytes, self.stream

        def once() -> Progress:
            progress, tail = self._writable(known if self.stream is first else None)
            progress.check_offset(fragment.at, len(fragment.data))
            if fragment.note or fragment.at % size == 0:
                tail.put_note(fragment.at // size, fragment.note)
            rows = max(progress.rows, self._append_bytes(tail, fragment.at, fragment.data))
            if self._plan.settings.ack == "chunk":
                self.commit(whole=False)
            return replace(progress, end=fragment.stop, rows=rows)

        return self._store(once, at_first=known is not None and known.tail is not None and known.tail.is_newest)

    def _append_bytes(self, tail: Tail, at: int, data: Buffer) -> int:
        """Append to the tail, or commit bytes at once that complete a group and are most of it. Returns the rows that
        are in chunks then, 0 if they are as many as before."""
        rest, rows = memoryview(data).cast("B"), 0
        while rest:
            inside = at % tail.group
            count = min(len(rest), tail.group - inside)
            if inside + count == tail.group and 2 * count >= tail.group:
                count = (inside + len(rest)) // tail.group * tail.group - inside
                rows = (at + count) // self.array.row_nbytes
                self.commit(whole=True, rows=rows, data=rest[:count])
            else:
                tail.append(at, rest[:count])
            at, rest = at + count, rest[count:]
        return rows

    def _append_missing(self, tail: Tail, at: int, stop: int, reason: str) -> None:
        size = self.array.frame_nbytes
        while at < stop:
            count = (stop - at) // tail.group * tail.group
            if count and at % tail.group == 0 and self._may_omit():
                self.commit(whole=True)
                self._record_missing([(at // size, (at + count) // size, reason)])
                self.commit(whole=True, rows=(at + count) // self.array.row_nbytes)
            else:
                count = min(stop - at, tail.group - at % tail.group)
                tail.append_missing(at, count, reason)
                if (at + count) % tail.group == 0:
                    self.commit(whole=True)
            at += count

    def _open_tail(self, rows: int = 0) -> Tail:
        return self._shared.tails.open(self._mount, self.array, rows)[0]

    def _holds(self, fragment: Fragment) -> bool:
        """Whether the array holds just these bytes, and metadata if there is some; False if that cannot be told, as of
        missing frames."""
        array, progress, size = self.array, self.read(), self.array.frame_nbytes
        first, last = fragment.at // size, -(-fragment.stop // size)
        (missing,) = self._shared.missing(self.stream, progress)
        if progress.error is not None or any(start < last and first < stop for start, stop in missing):
            return False
        if fragment.note:
            notes = self._open_tail().notes(first, first + 1)
            if [note for found in notes for _, note in found] != [fragment.note]:
                return False
        sent, done = np.frombuffer(fragment.data, np.uint8), fragment.at
        level = array.levels[0]
        while done < fragment.stop:
            if done < progress.rows * array.row_nbytes or progress.tail is None:
                frame, inside = divmod(done, size)
                node = replace(self._shared.catalog.open_array(level.path, fresh=True), head=None)
                plan = make_plan(node, normalise(array.stored_box(frame), node.metadata.shape))
                values = self._shared.reader.read(plan)[0].transpose(np.argsort(level.order)).reshape(array.frame_shape)
                found = np.ascontiguousarray(values).reshape(-1).view(np.uint8)[inside : inside + fragment.stop - done]
            else:
                found = progress.tail.read(done, fragment.stop - done)
            begin = done - fragment.at
            if not np.array_equal(found, sent[begin : begin + len(found)]):
                return False
            done += len(found)
        return True

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(self, *, whole: bool, rows: int | None = None, data: Buffer | None = None, final: bool = False) -> None:
        """Move rows to chunks: those in the tail, with ``whole`` only complete groups. With ``rows`` also those up to
        there, whose bytes are ``data``, or which are missing. Starts over if another replica came first, or an answer
        was lost: what is stored then is written again."""
        remote = self._mount.is_remote
        with self._lock("commit"), self._shared.sessions.committing(self._plan, concurrently=remote):
            for _ in attempts():
                try:
                    return self._commit_once(whole, rows, data, final)
                except HyperslabError as error:
                    if not (remote and _is_race(error)):
                        raise
        raise WriteConflict(self.stream.path, f"other writers came first {MAX_TRIES} times")

    def _commit_once(self, whole: bool, rows: int | None, data: Buffer | None, final: bool) -> None:
        array, commit = self.array, partial(self._shared.committer.commit, self.array)
        group_rows, progress = array.group_rows, self.read()
        tail = progress.tail
        if tail is None:
            return
        if self._record_missing(tail.missing()).record.state == "discarding":
            raise StreamNotFound(self.stream.path)
        source = CachedRows(array, tail)
        if rows is None:
            rows = progress.end // array.row_nbytes
            if whole and rows // group_rows <= progress.rows // group_rows:
                return
            for first, last in self._omissible(progress, tail):
                if first > progress.rows:
                    commit(first, source, whole=True)
                commit(last, None, whole=True)
            commit(rows, source, whole=whole, final=final)
        else:
            begin = rows * array.row_nbytes - len(data or b"")
            commit(rows, None if data is None else MemoryRows(source, begin, np.frombuffer(data, np.uint8)), whole=True)
        begin = (rows // group_rows * group_rows if whole else rows) * array.row_nbytes
        retried(array.path, lambda: self._open_tail(progress.rows).drop(begin))

    def _commit_later(self, progress: Progress) -> None:
        """Commit complete groups in the background, or at once if too many wait."""
        array, shared = self.array, self._shared
        waiting = progress.end // array.group_nbytes - progress.rows // array.group_rows
        if waiting <= 0:
            return
        session = shared.sessions.open(self._plan)

        def commit() -> None:
            with self._recording_failure():
                self.commit(whole=True)

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
            if array.number in session.committing or shared.closed.is_set():
                return
            session.committing.add(array.number)
        shared.background.submit(in_background)

    def _may_omit(self) -> bool:
        """Whether stored objects whose rows are all missing need not be stored."""
        return not self._mount.stores_fill and all(not level.halvings[0] for level in self.array.levels)

    def _omissible(self, progress: Progress, tail: Tail) -> Iterator[tuple[int, int]]:
        """In an object store, the rows ``[first, last)`` of whole stored objects whose frames are all missing."""
        frames, rows = self.array.frames_per_row, self.array.group_rows
        for start, stop, _ in tail.missing() if self._mount.is_remote and self._may_omit() else ():
            first, last = max(-(-start // frames // rows) * rows, progress.rows), stop // frames // rows * rows
            if first < last:
                yield first, last

    def _record_missing(self, ranges: Ranges) -> Stream:
        def noted(record: Record) -> Record:
            known = record.array(self.array.key).missing
            return record.with_array(self.array.key, missing=sorted({*known, *ranges})) if ranges else record

        return self._shared.records.change(self.stream, noted)

    def _writable(self, known: Progress | None = None) -> tuple[Progress, Tail]:
        """The progress of an array that takes more bytes from the sender, and its tail."""
        progress = known or self.read()
        ends, number = self._shared.sessions.open(self._plan).ends, self.array.number
        ends[number] = max(progress.end, ends.get(number, 0))
        progress.check()
        if progress.complete or progress.tail is None:
            raise CompletedUpload(self.array.path)
        progress.tail.check_sender(self.epoch)
        return progress, progress.tail

    # --- exclusion ---------------------------------------------------------------------------------------------------

    def _store(self, once: Callable[[], Progress], *, at_first: bool = False) -> Progress:
        """The progress after ``once``, which appends to the tail; then followers of changes are told that the array may
        have more rows, and complete groups are committed."""
        progress = self._exclusive(once, at_first=at_first)
        observer = self._mount.store.observer
        if observer is not None:
            for level in self.array.levels:
                observer(f"{level.path.partition('/')[2]}/{self._mount.metadata_key}", created=False)
        self._commit_later(progress)
        return progress

    def _exclusive(
        self, work: Callable[[], T], states: Sequence[State] = ("open", "closed"), *, at_first: bool = False
    ) -> T:
        """Result of work that changes the tail; repeated if another sender came first. In a folder it is under the lock
        of those who append. The stream's record is read before, unless it is tried ``at_first`` as it is known."""
        for attempt in attempts():
            known = at_first and attempt == 0
            with suppress(VersionConflict), nullcontext() if known else self._lock():
                self.stream = self.stream if known else self._shared.records.change(self.stream)
                self.stream.record.check_epoch(self.epoch)
                if self.stream.record.state not in states:
                    raise CompletedUpload(self.stream.path)
                try:
                    with self._recording_failure():
                        return work()
                finally:  # the next reader looks versions up
                    for prefix in (self.array.tails, self.array.notes):
                        self._mount.versions.forget(prefix)
        raise WriteConflict(self.stream.path, f"other writers came first {MAX_TRIES} times")

    def _lock(self, name: str = "") -> AbstractContextManager[None]:
        """Lock that serialises appends to the array; ``commit``: one for commits, taken after it."""
        return self._mount.store.lock(f"{self.array.tails}{name}.zgroup")

    @contextmanager
    def _recording_failure(self) -> Iterator[None]:
        """Record a failure of the store as the array's error. A lost race is none: the next commit starts over."""
        try:
            yield
        except (MismatchingUploadOffset, StreamFull, CompletedUpload, StaleEpoch, StreamNotFound, Overloaded):
            raise
        except HyperslabError as error:
            if _is_race(error):
                raise
            reason = error.reason if isinstance(error, ArrayFailed) else str(error)
            end = self._shared.sessions.open(self._plan).ends.get(self.array.number, 0)

            def failed(record: Record) -> Record:
                known = record.array(self.array.key)
                return record.with_array(self.array.key, error=known.error or reason, stored=max(known.stored, end))

            with suppress(HyperslabError):  # the disk may be full
                self._shared.records.change(self.stream, failed)
            raise


def _is_race(error: HyperslabError) -> bool:
    """Whether a commit failed because others wrote meanwhile, or it is not known what was stored."""
    cause = error.__cause__ if isinstance(error, PartlyWritten) else error
    return isinstance(cause, WriteConflict | ChangedWhileRead | InDoubt)
