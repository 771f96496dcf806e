"""Progress of the arrays of a stream, which is derived from what the store holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.engine.selection import normalise
from hyperslab.errors import ArrayFailed, MismatchingUploadOffset, NodeNotFound, StreamFull, WrongKind
from hyperslab.storage.base import merge
from hyperslab.streams.commit import Committer
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.record import Ranges, Records, Stream
from hyperslab.streams.sessions import Fragment
from hyperslab.streams.tail import Tail
from hyperslab.streams.tails import Tails
from hyperslab.wire.streams import StreamSettings


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an array: ``rows`` are in chunks, ``end`` bytes are durable, ``queued`` more are acknowledged.
    ``tail``: None for an array that is finished; ``error``: why it has failed; ``complete``: it takes no more bytes."""

    array: StreamArray
    rows: int
    end: int
    tail: Tail | None
    missing: Ranges
    error: str | None
    complete: bool
    settings: StreamSettings
    queued: int = 0

    @property
    def size(self) -> int | None:
        """Bytes of the whole array; None without a limit."""
        return None if self.array.frames is None else self.array.frames * self.array.frame_nbytes

    @property
    def offset(self) -> int:
        """Where the next byte belongs."""
        return self.end + self.queued

    @property
    def visible(self) -> int:
        """Frames of complete rows, which readers see."""
        return max(self.rows, self.end // self.array.row_nbytes) * self.array.frames_per_row

    def check_offset(self, at: int, nbytes: int) -> None:
        """Raise `MismatchingUploadOffset` unless ``at`` is the offset, `StreamFull` if there is no room for more."""
        if at != self.offset:
            raise MismatchingUploadOffset(self.array.path, self.offset, at)
        if self.size is not None and at + nbytes > self.size:
            raise StreamFull(self.array.path, self.size, at + nbytes)

    def document(self, missing: list[tuple[int, int]]) -> dict[str, Any]:
        """As JSON of the state; ``missing`` from `ProgressReader.missing`."""
        size = self.array.frame_nbytes
        return {
            "offset": self.offset,
            "accepted": self.offset // size,
            "durable": self.end // size,
            "visible": self.visible,
            "missing": missing,
            "partial": self.offset % size,
            "error": self.error,
            "complete": self.complete,
        }


@dataclass(frozen=True, slots=True)
class ProgressReader:
    """Reads progress from the store, and compares retransmitted bytes with it."""

    catalog: Catalog
    reader: Reader
    records: Records
    tails: Tails
    committer: Committer

    def read(self, stream: Stream, array: StreamArray) -> Progress:
        """The progress of an array, without queues."""
        record, before = stream.record.array(array.key), -1
        error, is_final = record.error, stream.record.state == "finished"
        while not is_final:
            try:
                rows = self.committer.open(array, 0)[1].rows
            except ArrayFailed as failure:
                is_final = stream.record.state == "finishing" and self.committer.is_final(array.levels[0])
                if is_final:
                    break
                error, rows = error or failure.reason, self.tails.first_row(stream.mount, array)
            tail = self.tails.open(stream.mount, array, rows)[0]
            if stream.mount.is_remote or not tail.may_lag or rows == before:
                end, missing = max(tail.end, rows * array.row_nbytes, record.stored), [*record.missing, *tail.missing()]
                return Progress(array, rows, end, tail, missing, error, record.complete, stream.plan.settings)
            before = rows  # rows may have moved to chunks during the look-up
        level, rows = array.levels[0], 0
        try:
            rows = self.catalog.open_array(level.path).metadata.shape[level.append_axis] // level.row_length
        except (NodeNotFound, WrongKind) as failure:
            error = error or str(failure)
        end = rows * array.row_nbytes
        return Progress(array, rows, end, None, [*record.missing], error, complete=True, settings=stream.plan.settings)

    def missing(self, stream: Stream, *found: Progress) -> list[list[tuple[int, int]]]:
        """Missing frames of arrays, as sorted disjoint ranges. The record is read again, for those that moved to chunks
        while progress was read: they are noted there before."""
        record = self.records.get(stream.mount, stream.prefix)
        now = record if record is not None and record.id == stream.record.id else stream.record
        noted = [[*each.missing, *now.array(each.array.key).missing] for each in found]
        return [merge([(start, stop) for start, stop, _ in ranges], gap=0) for ranges in noted]

    def holds(self, stream: Stream, array: StreamArray, fragment: Fragment) -> bool:
        """Whether an array holds just these bytes, and metadata if there is some; False if that cannot be told, as of
        missing frames."""
        progress, size = self.read(stream, array), array.frame_nbytes
        first, last = fragment.at // size, -(-fragment.stop // size)
        (missing,) = self.missing(stream, progress)
        if progress.error is not None or any(start < last and first < stop for start, stop in missing):
            return False
        if fragment.note:
            notes = self.tails.open(stream.mount, array)[0].notes(first, first + 1)
            if [note for found in notes for _, note in found] != [fragment.note]:
                return False
        sent, done = np.frombuffer(fragment.data, np.uint8), fragment.at
        level = array.levels[0]
        while done < fragment.stop:
            if done < progress.rows * array.row_nbytes or progress.tail is None:
                frame, inside = divmod(done, size)
                node = replace(self.catalog.open_array(level.path, fresh=True), head=None)
                plan = make_plan(node, normalise(array.stored_box(frame), node.metadata.shape))
                values = self.reader.read(plan)[0].transpose(np.argsort(level.order)).reshape(array.frame_shape)
                found = np.ascontiguousarray(values).reshape(-1).view(np.uint8)[inside : inside + fragment.stop - done]
            else:
                found = progress.tail.read(done, fragment.stop - done)
            begin = done - fragment.at
            if not np.array_equal(found, sent[begin : begin + len(found)]):
                return False
            done += len(found)
        return True
