"""Progress of the arrays of a stream, which is derived from what the store holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.engine.selection import normalise
from hyperslab.errors import ArrayFailed, MismatchingUploadOffset, NodeNotFound, StreamFull, WrongKind
from hyperslab.streams.commit import Committer
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.record import Ranges, Records, Stream
from hyperslab.streams.sessions import Fragment
from hyperslab.streams.tails import TailRows, Tails
from hyperslab.wire.streams import StreamSettings


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an array: ``rows`` are in chunks, ``end`` bytes are durable, ``queued`` more are acknowledged.
    ``error``: why it has failed; ``complete``: it takes no more bytes."""

    array: StreamArray
    rows: int
    end: int
    tails: TailRows
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

    def document(self, missing: list[list[int]]) -> dict[str, Any]:
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


class ProgressReader:
    """Reads progress from the store, and compares retransmitted bytes with it."""

    def __init__(self, catalog: Catalog, reader: Reader, records: Records, tails: Tails, committer: Committer) -> None:
        self._catalog = catalog
        self._reader = reader
        self._records = records
        self._tails = tails
        self._committer = committer

    def read(self, stream: Stream, array: StreamArray) -> Progress:
        """The progress of an array, without queues."""
        record, rows, before = stream.record.array(array.key), 0, -1
        error, settings = record.error, stream.plan.settings
        is_final = stream.record.state == "finished"
        tails = TailRows({}, array.group_nbytes)
        while not is_final:
            self.forget(stream.mount, array)
            try:
                rows = self._committer.open(array, 0)[1].rows
            except ArrayFailed as failure:
                is_final = stream.record.state == "finishing" and self._committer.is_final(array.levels[0])
                if is_final:
                    break
                error, rows = error or failure.reason, self._first_row(stream.mount, array)
            if rows == before:
                break
            tails, _ = self._tails.rows(stream.mount, array, rows)
            if stream.mount.is_remote or not tails.may_lag:
                break
            before = rows  # rows may have moved to chunks during the look-up
        if is_final:
            level = array.levels[0]
            try:
                shape = self._catalog.open_array(level.path).metadata.shape
                rows = shape[level.append_axis] // level.row_length
            except (NodeNotFound, WrongKind) as failure:
                error = error or str(failure)
            end, tails = rows * array.row_nbytes, TailRows({}, array.group_nbytes)
            return Progress(array, rows, end, tails, [*record.missing], error, complete=True, settings=settings)
        end = max(tails.end if tails.tails else 0, rows * array.row_nbytes, record.stored)
        missing = [*record.missing, *tails.missing(array.frame_nbytes)]
        return Progress(array, rows, end, tails, missing, error, record.complete, settings)

    def missing(self, stream: Stream, *found: Progress) -> list[list[list[int]]]:
        """Missing frames of arrays, as sorted disjoint ranges. The record is read again, for those that moved to chunks
        while progress was read: they are noted there before."""
        record = self._records.get(stream.mount, stream.prefix)
        now = record if record is not None and record.id == stream.record.id else stream.record
        merged = list[list[list[int]]]()
        for each in found:
            ranges = list[list[int]]()
            for start, stop, _ in sorted([*each.missing, *now.array(each.array.key).missing]):
                if ranges and start <= ranges[-1][1]:
                    ranges[-1][1] = max(stop, ranges[-1][1])
                else:
                    ranges.append([start, stop])
            merged.append(ranges)
        return merged

    def forget(self, mount: MountedStore, array: StreamArray) -> None:
        """Forget versions of the tail, so the next reader looks them up."""
        for prefix in (array.tails, array.notes):
            mount.versions.forget(prefix)

    def holds(self, stream: Stream, array: StreamArray, fragment: Fragment) -> bool:
        """Whether an array holds just these bytes, and metadata if there is some; False if that cannot be told, as of
        missing frames."""
        progress, size = self.read(stream, array), array.frame_nbytes
        first, last = fragment.at // size, -(-fragment.stop // size)
        (missing,) = self.missing(stream, progress)
        if progress.error is not None or any(start < last and first < stop for start, stop in missing):
            return False
        if fragment.note:
            notes = [note for found in self._tails.notes(stream.mount, array, first, first + 1) for _, note in found]
            if notes != [fragment.note]:
                return False
        sent, done = np.frombuffer(fragment.data, np.uint8), fragment.at
        level = array.levels[0]
        while done < fragment.stop:
            if done < progress.rows * array.row_nbytes:
                frame, inside = divmod(done, size)
                node = replace(self._catalog.open_array(level.path, fresh=True), head=None)
                plan = make_plan(node, normalise(array.stored_box(frame), node.metadata.shape))
                values = self._reader.read(plan)[0].transpose(np.argsort(level.order)).reshape(array.frame_shape)
                found = np.ascontiguousarray(values).reshape(-1).view(np.uint8)[inside : inside + fragment.stop - done]
            else:
                found = progress.tails.read(done, fragment.stop - done)
            begin = done - fragment.at
            if not np.array_equal(found, sent[begin : begin + len(found)]):
                return False
            done += len(found)
        return True

    def _first_row(self, mount: MountedStore, array: StreamArray) -> int:
        """First row in the tail of an array that another writer has changed."""
        if mount.is_remote:
            tail = self._tails.objects.open(mount.store, array)
            return 0 if tail is None else tail.begin // array.row_nbytes
        names = [entry.key.rpartition("/")[2] for entry in mount.store.list_dir(array.tails).entries]
        return min([int(name) for name in names if name.isdecimal()], default=0) * array.group_rows
