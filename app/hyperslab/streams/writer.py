"""Writers of the arrays of streams: bytes to tails, and rows from there to chunks.

In a folder, appends to an array are serialised by a lock. In an object store they are by conditional puts of the tail's
head: who loses one reads the progress again and starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from threading import Event
from typing import Any, Final, TypeVar

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.documents import update_copies_of
from hyperslab.arrays.lease import retried
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.engine.jsontext import dump_json
from hyperslab.engine.selection import normalise
from hyperslab.errors import (
    ArrayFailed,
    ChangedWhileRead,
    CompletedUpload,
    ConsolidatedBehind,
    HyperslabError,
    InDoubt,
    MismatchingUploadOffset,
    NodeNotFound,
    Overloaded,
    PartlyWritten,
    StaleEpoch,
    StoreError,
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
from hyperslab.streams.sessions import Fragment, Session, Sessions
from hyperslab.streams.tail import Buffer, Tail
from hyperslab.streams.tails import Tails

T = TypeVar("T")

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
        return ArrayWriter(ArrayFence(self, stream, array, epoch))

    def each(self, stream: Stream, work: Callable[[ArrayWriter], None]) -> None:
        """Do work on each array; where it fails, that is the array's error. Raises the first that is not recorded."""
        errors = dict[str, HyperslabError]()
        for array in stream.plan.arrays:
            try:
                work(self.of(stream, array))
            except HyperslabError as error:
                errors[array.key] = error
        record = self.records.change(stream).record if errors else stream.record
        for key, failure in errors.items():
            if record.array(key).error is None:
                raise failure

    def missing(self, stream: Stream, *found: Progress) -> list[list[tuple[int, int]]]:
        """Missing frames of arrays, as sorted disjoint ranges. The record is read again, for those that moved to chunks
        while progress was read: they are noted there before."""
        record = self.records.get(stream.mount, stream.prefix)
        now = record if record is not None and record.id == stream.record.id else stream.record
        noted = [[*older.missing, *now.array(older.array.key).missing] for older in found]
        return [merge([(start, stop) for start, stop, _ in ranges], gap=0) for ranges in noted]

    def fence(self, stream: Stream, *, closed: bool = False) -> None:
        """`ArrayFence.exclude_earlier` for all arrays."""
        arrays = stream.plan.arrays
        stream.mount.pool.each(arrays, len(arrays), lambda one: self.of(stream, one).fence.exclude_earlier(closed))


class ArrayFence:
    """Keeps the writers of one array apart, and knows its progress. Methods block, and raise what stores raise.

    ``stream`` is as last known; ``epoch``: that of the sender, None for any.
    """

    def __init__(self, shared: Writers, stream: Stream, array: StreamArray, epoch: int | None) -> None:
        self.shared, self.stream, self.array, self.epoch = shared, stream, array, epoch
        self.mount = stream.mount

    def read(self) -> Progress:
        """The progress of the array."""
        stream, array, shared = self.stream, self.array, self.shared
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
            tail = seen[rows] if known else self.open_tail(rows)
            if self.mount.is_remote or not tail.may_lag or known:
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

    def open_tail(self, rows: int = 0) -> Tail:
        """The tail of the array, of which ``rows`` are in chunks."""
        return self.shared.tails.open(self.mount, self.array, rows)[0]

    def change(self, change: Callable[[Record], Record] = lambda record: record) -> Record:
        """The stream's record after a ``change``, by default as it is now; see `Records.change`."""
        self.stream = self.shared.records.change(self.stream, change)
        return self.stream.record

    def change_array(self, **changes: Any) -> None:
        """Change members of the record of the array. Raises `StaleEpoch` too."""

        def changed(record: Record) -> Record:
            record.check_epoch(self.epoch)
            return record.with_array(self.array.key, **changes)

        self.change(changed)

    def change_tail(self, work: Callable[[Progress], T], *states: State, known: Progress | None = None) -> T:
        """The result of ``work`` on the progress, which changes the tail while the stream is in one of ``states``; see
        `retried`.

        In a folder the lock of those who append is held. The stream's record is read again, and the progress, except
        for the first attempt if it is ``known``. What fails is recorded as the array's error.
        """

        def attempt() -> T:
            nonlocal known
            first, known = known, None
            with nullcontext() if first else self.lock():
                record = self.stream.record if first else self.change()
                record.check_epoch(self.epoch)
                if record.state not in states:
                    raise CompletedUpload(self.stream.path)
                try:
                    with self.recording_failure():
                        return work(first or self.read())
                finally:  # the next reader looks versions up
                    for prefix in (self.array.tails, self.array.notes):
                        self.mount.versions.forget(prefix)

        return retried(self.stream.path, attempt)

    def exclude_earlier(self, closed: bool | None) -> None:
        """Wait until appends and commits that saw an earlier state of the stream have ended, or in other replicas make
        them fail. ``closed``: see `Tail.fence`."""
        epoch = self.stream.record.epoch
        with self.lock(), self.lock("commit"):
            retried(self.array.path, lambda: self.open_tail().fence(epoch, closed=closed))

    def lock(self, name: str = "") -> AbstractContextManager[None]:
        """Lock that serialises appends to the array; ``commit``: one for commits, taken after it."""
        return self.mount.store.lock(f"{self.array.tails}{name}.zgroup")

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Record a failure of the store as the array's error. A lost race is none: the next commit starts over."""
        try:
            yield
        except (MismatchingUploadOffset, StreamFull, CompletedUpload, StaleEpoch, StreamNotFound, Overloaded):
            raise
        except HyperslabError as error:
            if is_race(error):
                raise
            reason = error.reason if isinstance(error, ArrayFailed) else str(error)
            end = self.shared.sessions.open(self.stream.plan).ends.get(self.array.number, 0)

            def failed(record: Record) -> Record:
                array = record.array(self.array.key)
                return record.with_array(self.array.key, error=array.error or reason, stored=max(array.stored, end))

            with suppress(HyperslabError):  # the disk may be full
                self.change(failed)
            raise


class ArrayCommits:
    """Moves rows of one array from its tail to chunks."""

    def __init__(self, fence: ArrayFence) -> None:
        self._fence, self._array, self._mount, self._shared = fence, fence.array, fence.mount, fence.shared

    def commit(self, *, whole: bool, rows: int | None = None, data: Buffer | None = None, final: bool = False) -> None:
        """Move rows to chunks: those in the tail, with ``whole`` only complete groups. With ``rows`` also those up to
        there, whose bytes are ``data``, or which are missing. Starts over if another replica came first, or an answer
        was lost: what is stored then is written again."""
        remote, stream = self._mount.is_remote, self._fence.stream

        def attempt() -> None:
            try:
                self._commit_once(whole, rows, data, final)
            except HyperslabError as error:
                if remote and is_race(error):
                    raise VersionConflict(self._array.path, None) from error
                raise

        with self._fence.lock("commit"), self._shared.sessions.committing(stream.plan, concurrently=remote):
            retried(stream.path, attempt)

    def commit_later(self, progress: Progress) -> None:
        """Commit complete groups in the background, or at once if too many wait."""
        shared, number = self._shared, self._array.number
        waiting = progress.end // self._array.group_nbytes - progress.rows // self._array.group_rows
        if waiting >= _MAX_WAITING:
            self._commit_groups()
        elif waiting > 0:
            session = shared.sessions.open(self._fence.stream.plan)
            with session.changed:
                if number not in session.committing and not shared.closed.is_set():
                    session.committing.add(number)
                    shared.background.submit(self._commit_in_background, session)

    def flush(self) -> None:
        """Commit all whole rows."""

        def work(progress: Progress) -> None:
            progress.check()
            self.commit(whole=False)

        self._fence.change_tail(work, "open", "closed")

    def finish(self, *, pad: bool) -> None:
        """Commit everything, and the last shapes; ``pad`` fills up a partial frame, which is dropped without."""
        array = self._array

        def work(progress: Progress) -> None:
            progress.check()
            tail, end = progress.tail, progress.end
            if tail is None:  # an earlier attempt has come so far
                if self._fence.open_tail(progress.rows).end > end:
                    raise ArrayFailed(self._array.path, "another writer has replaced its metadata")
                return
            tail.check_sender(None, closing=True)
            beyond = end % array.frame_nbytes
            if beyond and pad:
                padded = array.frame_nbytes - beyond
                tail.append(end, array.fill_bytes(end, padded).tobytes())
                self._fence.change_array(padded=padded)
                end += padded
            elif beyond:
                tail.cut(end - beyond)
                end -= beyond
            if end % array.row_nbytes:
                tail.append_missing(end, -end % array.row_nbytes, "not sent")
            self.commit(whole=False, final=True)

        try:
            self._fence.change_tail(work, "finishing")
        except StoreError as error:
            if isinstance(error, ConsolidatedBehind) or not all(map(self._shared.committer.is_final, array.levels)):
                raise
            self._fence.change_array(error=None)  # all of it had been stored

    def update_copies(self) -> None:
        """Bring consolidated metadata up to date that an earlier finish has left behind."""
        with self._fence.recording_failure():
            for level in self._array.levels:
                update_copies_of(self._shared.catalog.open_array(level.path, fresh=True))

    def may_omit(self) -> bool:
        """Whether stored objects whose rows are all missing need not be stored."""
        return not self._mount.stores_fill and all(not level.halvings[0] for level in self._array.levels)

    def record_missing(self, ranges: Ranges) -> Record:
        """Add ranges of missing frames to the record, which is returned."""

        def noted(record: Record) -> Record:
            missing = record.array(self._array.key).missing
            return record.with_array(self._array.key, missing=sorted({*missing, *ranges})) if ranges else record

        return self._fence.change(noted)

    def _commit_once(self, whole: bool, rows: int | None, data: Buffer | None, final: bool) -> None:
        array, commit = self._array, partial(self._shared.committer.commit, self._array)
        group_rows, progress = array.group_rows, self._fence.read()
        tail = progress.tail
        if tail is None:
            return
        if self.record_missing(tail.missing()).state == "discarding":
            raise StreamNotFound(self._fence.stream.path)
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
        retried(array.path, lambda: self._fence.open_tail(progress.rows).drop(begin))

    def _commit_groups(self) -> None:
        with self._fence.recording_failure():
            self.commit(whole=True)

    def _commit_in_background(self, session: Session) -> None:
        try:
            with suppress(HyperslabError):  # which is the array's error from now on
                self._commit_groups()
        finally:
            session.committing.discard(self._array.number)

    def _omissible(self, progress: Progress, tail: Tail) -> Iterator[tuple[int, int]]:
        """In an object store, the rows ``[first, last)`` of whole stored objects whose frames are all missing."""
        frames, rows = self._array.frames_per_row, self._array.group_rows
        for start, stop, _ in tail.missing() if self._mount.is_remote and self.may_omit() else ():
            first, last = max(-(-start // frames // rows) * rows, progress.rows), stop // frames // rows * rows
            if first < last:
                yield first, last


class ArrayWriter:
    """Appends to one array of a stream, for one sender. ``fence``: what keeps others away; ``commits``: of its rows."""

    def __init__(self, fence: ArrayFence) -> None:
        self.fence, self.array, self.commits = fence, fence.array, ArrayCommits(fence)
        self._shared = fence.shared

    def send(self, fragment: Fragment, known: Progress, provided: int | None) -> Progress:
        """Append a fragment; returns the new progress. A retransmission of stored bytes changes nothing; the request
        must have ``provided`` an offset. ``known``: progress as last read.

        Raises `MismatchingUploadOffset` (other offset, or other bytes), `StreamFull`, `CompletedUpload`, `ArrayFailed`,
        `StaleEpoch`, and `StoreError`, after which the array has failed.
        """
        try:
            return self._append(fragment, known)
        except (MismatchingUploadOffset, CompletedUpload) as error:
            self.fence.change()
            progress = self.fence.read()
            if provided is None or fragment.stop > progress.end:
                raise
            if not self._holds(fragment):
                reason = "other bytes or metadata are stored there, or it cannot be told"
                raise MismatchingUploadOffset(self.array.path, progress.end, provided, reason) from error
            return progress

    def skip(self, frames: int, reason: str, at: int | None) -> None:
        """Record frames from ``at`` on (None: the next ones) as missing. Raises as `send`."""
        array, size = self.array, self.array.frame_nbytes

        def work(progress: Progress) -> Progress | None:
            tail, end = self._writable(progress), progress.end
            if at is not None and at * size != end:
                (known,) = self._shared.missing(self.fence.stream, progress)
                is_stored = (at + frames) * size <= end  # not all that is noted as missing is, if a skip was cut off
                if is_stored and any(first <= at and at + frames <= last for first, last in known):
                    return None
                raise MismatchingUploadOffset(array.path, end, at * size)
            if end % size:
                begun = "a frame has begun, and is not whole"
                raise MismatchingUploadOffset(array.path, end, end - end % size, begun)
            progress.check_offset(end, frames * size)
            tail.put_note(end // size, b"")
            self._append_missing(tail, end, end + frames * size, reason)
            return replace(progress, end=end + frames * size)

        after = self.fence.change_tail(work, "open", "closed")
        if after is not None:
            self._announce(after)

    def complete(self) -> None:
        """Take no more bytes."""
        self.fence.change_array(complete=True)
        self.fence.exclude_earlier(closed=None)

    def frame_lines(self, start: int, stop: int | None = None) -> Iterator[bytes]:
        """Metadata of the frames ``[start, stop)``, by default of all durable ones, as JSON lines, many at a time."""
        stop = self.fence.read().end // self.array.frame_nbytes if stop is None else stop
        name = dump_json(self.array.key)
        for notes in self.fence.open_tail().notes(start, stop):
            yield b"".join([b'{"key":%b,"frame":%d,"metadata":%b}\n' % (name, *note) for note in notes])

    def _append(self, fragment: Fragment, known: Progress) -> Progress:
        """Store a fragment at the end. If the tail of the ``known`` progress is the newest, it is not read again: a
        change of an outdated one fails."""
        size, is_newest = self.array.frame_nbytes, known.tail is not None and known.tail.is_newest

        def work(progress: Progress) -> Progress:
            tail = self._writable(progress)
            progress.check_offset(fragment.at, len(fragment.data))
            if fragment.note or fragment.at % size == 0:
                tail.put_note(fragment.at // size, fragment.note)
            rows = max(progress.rows, self._append_bytes(tail, fragment.at, fragment.data))
            if progress.settings.ack == "chunk":
                self.commits.commit(whole=False)
            return replace(progress, end=fragment.stop, rows=rows)

        after = self.fence.change_tail(work, "open", "closed", known=known if is_newest else None)
        self._announce(after)
        return after

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
                self.commits.commit(whole=True, rows=rows, data=rest[:count])
            else:
                tail.append(at, rest[:count])
            at, rest = at + count, rest[count:]
        return rows

    def _append_missing(self, tail: Tail, at: int, stop: int, reason: str) -> None:
        size, commits = self.array.frame_nbytes, self.commits
        while at < stop:
            count = (stop - at) // tail.group * tail.group
            if count and at % tail.group == 0 and commits.may_omit():
                commits.commit(whole=True)
                commits.record_missing([(at // size, (at + count) // size, reason)])
                commits.commit(whole=True, rows=(at + count) // self.array.row_nbytes)
            else:
                count = min(stop - at, tail.group - at % tail.group)
                tail.append_missing(at, count, reason)
                if (at + count) % tail.group == 0:
                    commits.commit(whole=True)
            at += count

    def _writable(self, progress: Progress) -> Tail:
        """The tail of an array that takes more bytes from the sender."""
        ends, number = self._shared.sessions.open(self.fence.stream.plan).ends, self.array.number
        ends[number] = max(progress.end, ends.get(number, 0))
        progress.check()
        if progress.complete or progress.tail is None:
            raise CompletedUpload(self.array.path)
        progress.tail.check_sender(self.fence.epoch)
        return progress.tail

    def _announce(self, progress: Progress) -> None:
        """Tell followers of changes that the array may have more rows, and commit complete groups."""
        mount = self.fence.mount
        if mount.store.observer is not None:
            for level in self.array.levels:
                mount.store.observer(f"{level.path.partition('/')[2]}/{mount.metadata_key}", created=False)
        self.commits.commit_later(progress)

    def _holds(self, fragment: Fragment) -> bool:
        """Whether the array holds just these bytes, and metadata if there is some; False if that cannot be told, as of
        missing frames."""
        array, progress, size = self.array, self.fence.read(), self.array.frame_nbytes
        first, last = fragment.at // size, -(-fragment.stop // size)
        (missing,) = self._shared.missing(self.fence.stream, progress)
        if progress.error is not None or any(start < last and first < stop for start, stop in missing):
            return False
        if fragment.note:
            notes = self.fence.open_tail().notes(first, first + 1)
            if [note for stored in notes for _, note in stored] != [fragment.note]:
                return False
        sent, done = np.frombuffer(fragment.data, np.uint8), fragment.at
        level = array.levels[0]
        while done < fragment.stop:
            if done < progress.rows * array.row_nbytes or progress.tail is None:
                frame, inside = divmod(done, size)
                node = replace(self._shared.catalog.open_array(level.path, fresh=True), head=None)
                plan = make_plan(node, normalise(array.stored_box(frame), node.metadata.shape))
                values = self._shared.reader.read(plan)[0].transpose(np.argsort(level.order)).reshape(array.frame_shape)
                stored = np.ascontiguousarray(values).reshape(-1).view(np.uint8)[inside : inside + fragment.stop - done]
            else:
                stored = progress.tail.read(done, fragment.stop - done)
            begin = done - fragment.at
            if not np.array_equal(stored, sent[begin : begin + len(stored)]):
                return False
            done += len(stored)
        return True


def is_race(error: HyperslabError) -> bool:
    """Whether a commit failed because others wrote meanwhile, or it is not known what was stored."""
    cause = error.__cause__ if isinstance(error, PartlyWritten) else error
    return isinstance(cause, WriteConflict | ChangedWhileRead | InDoubt)
