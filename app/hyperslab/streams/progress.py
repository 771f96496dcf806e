"""Progress: how far the arrays of a stream have come, which is what the store says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.engine.selection import normalise
from hyperslab.errors import ArrayFailed, MismatchingUploadOffset, NodeNotFound, StreamFull, WrongKind
from hyperslab.streams.commit import Committer, missing_frames
from hyperslab.streams.heads import Heads, TailRows
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.notes import Notes
from hyperslab.streams.objects import ObjectTail
from hyperslab.streams.record import Records, Stream
from hyperslab.wire.streams import StreamSettings

Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an array has come: ``rows`` are in chunks, ``end`` bytes are stored, and ``queued`` are acknowledged all
    the same. ``error``: why it takes no more."""

    array: StreamArray
    rows: int
    end: int
    tails: TailRows
    missing: list[tuple[int, int, str]]
    error: str | None
    complete: bool
    settings: StreamSettings
    queued: int = 0

    @property
    def size(self) -> int | None:
        """Bytes that the array takes; None without a limit."""
        return None if self.array.frames is None else self.array.frames * self.array.frame_nbytes

    @property
    def offset(self) -> int:
        """Where the next byte belongs."""
        return self.end + self.queued

    @property
    def visible(self) -> int:
        row = self.array.levels[0].row_nbytes
        return max(self.rows, self.end // row) * self.array.frames_per_row

    def check_offset(self, at: int, nbytes: int) -> None:
        """Raise `MismatchingUploadOffset` unless ``at`` is the offset, `StreamFull` if there is no room for more."""
        if at != self.offset:
            raise MismatchingUploadOffset(self.array.path, self.offset, at)
        if self.size is not None and at + nbytes > self.size:
            raise StreamFull(self.array.path, self.size, at + nbytes)


class Gauge:
    """Looks up progress, and compares what is sent again with what is stored."""

    def __init__(  # noqa: PLR0917
        self,
        catalog: Catalog,
        reader: Reader,
        records: Records,
        heads: Heads,
        committer: Committer,
        notes: Notes,
    ) -> None:
        self._catalog = catalog
        self._reader = reader
        self._records = records
        self._heads = heads
        self._committer = committer
        self._notes = notes

    def progress(self, stream: Stream, number: int) -> Progress:
        """How far an array has come, from what is stored."""
        array, record = stream.plan.arrays[number], stream.record.array(stream.plan.arrays[number].key)
        row, rows, before, error = array.levels[0].row_nbytes, 0, -1, record.error
        if stream.record.state == "finished":
            return self._final_progress(stream, array)
        while True:
            self.forget(stream, number)
            try:
                rows = self._committer.open(array, 0, stream.record.id)[1].rows
            except ArrayFailed as failure:
                if stream.record.state == "finishing" and self._committer.is_final(array.levels[0]):
                    return self._final_progress(stream, array)
                error, rows = error or failure.reason, self._first_waiting(stream, number)
            if rows == before:
                break
            tails, _ = self._heads.rows(stream.mount, stream.prefix, stream.record.id, number, array, rows)
            if stream.mount.is_remote or not tails.may_lag:
                break
            before = rows  # else there are more by now
        end = tails.end if tails.tails else rows * row
        missing = [*record.missing, *tails.missing(array.frame_nbytes)]
        end = max(end, rows * row, record.stored)
        return Progress(array, rows, end, tails, missing, error, record.complete, stream.plan.settings)

    def missing(self, stream: Stream, *found: Progress) -> list[list[list[int]]]:
        """The ranges of frames that are missing, with those whose rows moved to chunks while progress was looked up:
        before that they are noted in the record."""
        record = self._records.get(stream.mount, stream.prefix)
        now = record if record is not None and record.id == stream.record.id else stream.record
        return [missing_frames([*each.missing, *now.array(each.array.key).missing]) for each in found]

    def forget(self, stream: Stream, number: int) -> None:
        """Have the tail looked up again by whoever reads the array next."""
        for prefix in (stream.tails(number), stream.notes(number)):
            stream.mount.versions.forget(prefix)

    def holds(self, stream: Stream, number: int, start: int, data: Buffer, note: Buffer = b"") -> bool:
        """Whether an array has just these bytes from ``start`` on, and the frame there this ``note`` if there is one;
        False where that cannot be told."""
        array, progress = stream.plan.arrays[number], self.progress(stream, number)
        size, stop = array.frame_nbytes, start + len(data)
        first, last = start // size, -(-stop // size)
        (missing,) = self.missing(stream, progress)
        if progress.error is not None or any(a < last and first < b for a, b in missing):
            return False
        noted = [each for found in self.notes(stream, number, first, first + 1) for _, each in found] if note else []
        if noted != ([note] if note else []):
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

    def notes(self, stream: Stream, number: int, start: int, stop: int) -> Iterator[list[tuple[int, bytes]]]:
        """The metadata of the frames ``[start, stop)`` of an array as JSON, with their numbers, many at a time."""
        if not stream.mount.is_remote:
            return self._notes.between(stream.mount.store, stream.notes(number), start, stop)
        tail = self._object_tail(stream, number)
        return iter(()) if tail is None else tail.notes(start, stop)

    def _object_tail(self, stream: Stream, number: int) -> ObjectTail | None:
        array = stream.plan.arrays[number]
        return self._heads.open(stream.mount, stream.prefix, stream.record.id, number, array)

    def _first_waiting(self, stream: Stream, number: int) -> int:
        """Of an array that others have changed, the first row that a tail holds."""
        level = stream.plan.arrays[number].levels[0]
        if stream.mount.is_remote:
            tail = self._object_tail(stream, number)
            return 0 if tail is None else tail.begin // level.row_nbytes
        listed = stream.mount.store.list_dir(stream.tails(number))
        groups = [int(name) for entry in listed.entries if (name := entry.key.rpartition("/")[2]).isdecimal()]
        return min(groups, default=0) * level.object_rows

    def _final_progress(self, stream: Stream, array: StreamArray) -> Progress:
        level, record = array.levels[0], stream.record.array(array.key)
        rows, error = 0, record.error
        try:
            shape = self._catalog.open_array(level.path).metadata.shape
            rows = shape[level.append_axis] // level.row_length
        except (NodeNotFound, WrongKind) as failure:
            error = error or str(failure)
        empty = TailRows({}, level.object_rows * level.row_nbytes)
        end, settings = rows * level.row_nbytes, stream.plan.settings
        return Progress(array, rows, end, empty, [*record.missing], error, complete=True, settings=settings)

    def _stored_frame(self, array: StreamArray, frame: int) -> np.ndarray:
        """The bytes of a frame that is in chunks, as they came."""
        level = array.levels[0]
        node = replace(self._catalog.open_array(level.path, fresh=True), head=None)
        values = self._reader.read(make_plan(node, normalise(array.stored_box(frame), node.metadata.shape)))[0]
        arriving = values.transpose(np.argsort(level.order)).reshape(array.frame_shape)
        return np.ascontiguousarray(arriving).reshape(-1).view(np.uint8)


def described(array: StreamArray) -> dict[str, Any]:
    """What of an array never changes, as its state says it."""
    dtype = array.levels[0].definition["dtype"]
    base = f"{array.path}/"
    return {
        "path": array.path,
        "levels": [level.path.removeprefix(base) for level in array.levels if level.path != array.path],
        "frame": {"shape": list(array.frame_shape), "dtype": dtype, "nbytes": array.frame_nbytes},
    }


def counted(progress: Progress, missing: list[list[int]]) -> dict[str, Any]:
    """What of an array changes, as its state says it; ``missing`` as `Gauge.missing`."""
    size = progress.array.frame_nbytes
    return {
        "offset": progress.offset,
        "accepted": progress.offset // size,
        "durable": progress.end // size,
        "visible": progress.visible,
        "missing": missing,
        "partial": progress.offset % size,
        "error": progress.error,
        "complete": progress.complete,
    }
