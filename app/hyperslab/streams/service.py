"""Streams: opened, fed, flushed, finished and discarded.

All that matters is in the store, so that any process may serve any request: see `writer`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, Self

import numpy as np

from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.create import Creator
from hyperslab.arrays.lease import alone
from hyperslab.arrays.limits import BytesInFlight
from hyperslab.arrays.nodes import V3, BrokenNode, GroupNode, MountedStore
from hyperslab.arrays.read import Reader
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import (
    ArrayFailed,
    CompletedUpload,
    HyperslabError,
    MismatchingUploadOffset,
    NodeExists,
    NodeNotFound,
    PartialFrame,
    StreamConflict,
    StreamNotFound,
    WriteConflict,
)
from hyperslab.storage.base import VersionConflict
from hyperslab.storage.keys import as_prefix
from hyperslab.streams.commit import Committer
from hyperslab.streams.handles import PIECE_BYTES, Handles, largest_piece, memory_bound
from hyperslab.streams.heads import Heads, Mark
from hyperslab.streams.notes import Notes
from hyperslab.streams.objects import HEAD
from hyperslab.streams.progress import Buffer, Gauge, Progress, counted, described
from hyperslab.streams.record import FOLDER, Record, Records, Stream, StreamPlan
from hyperslab.streams.settings import FRAMES_DOCUMENT, difference
from hyperslab.streams.tail import Tails
from hyperslab.streams.writer import ArrayWriter
from hyperslab.wire.streams import StreamSettings

IfExists = Literal["error", "resume", "replace"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream that was opened: its state, whether it was made, and its epoch."""

    state: dict[str, Any]
    created: bool
    epoch: int


class Sending:
    """What a request sends to an array; a context, which counts as one that sends. ``at``: where its next byte belongs;
    ``progress``: how far the array has come, as this request knows; ``piece``: the most bytes that it may store at
    once, and ``is_first``: whether the stream has reserved memory for two of them, known in the context."""

    def __init__(  # noqa: PLR0917
        self,
        streams: Streams,
        writer: ArrayWriter,
        handles: Handles,
        stream: Stream,
        number: int,
        epoch: int | None,
        at: int | None,
    ) -> None:
        self.array = stream.plan.arrays[number]
        self.piece = PIECE_BYTES
        self.is_first = False
        self.progress = writer.progress(stream, number)
        self.at = self.progress.offset if at is None else at
        self._said = at
        self._streams, self._writer, self._handles = streams, writer, handles
        self._stream, self._number, self._epoch = stream, number, epoch
        self._handle = handles.of(stream.path, stream.plan)

    def __enter__(self) -> Self:
        """Raises `WriteConflict` where it was not said where the bytes belong, and another request sends to the
        array."""
        sending = self._handle.sending
        with self._handles.lock:
            if self._said is None and sending.get(self._number):
                raise WriteConflict(self.array.path, "another request sends to this array: say Upload-Offset")
            self.is_first = not any(sending.values())
            self.piece = largest_piece(self._stream.plan, self.array) if self.is_first else PIECE_BYTES
            sending[self._number] = sending.get(self._number, 0) + 1
        return self

    def __exit__(self, *_: object) -> None:
        with self._handles.lock:
            self._handle.sending[self._number] -= 1
            self._handle.last = time.monotonic()

    def move(self, at: int) -> None:
        """Go on at another offset."""
        self.at = self._said = at

    def take_buffers(self, nbytes: int) -> list[memoryview]:
        """Two buffers of so many bytes at least, those of an earlier request if they have been given back."""
        with self._handles.lock:
            found, self._handle.buffers = [each for each in self._handle.buffers if len(each) >= nbytes], []
        return found or [np.empty(nbytes, np.uint8).data for _ in range(2)]

    def give_back(self, buffers: list[memoryview]) -> None:
        """Leave buffers, which nobody uses any more, to the next request."""
        self._handle.buffers = buffers

    @property
    def group(self) -> int:
        """Bytes of the array that fill whole stored objects; with ``ack=memory`` 0, as all go through a queue."""
        level = self.array.levels[0]
        return 0 if self._stream.plan.settings.ack == "memory" else level.object_rows * level.row_nbytes

    def check(self, length: int) -> None:
        """Raise for so many bytes that cannot be taken, before any of them is."""
        progress = self.progress
        if progress.error is not None:
            raise ArrayFailed(self.array.path, progress.error)
        if self.at < progress.end and self.at + length <= progress.end:
            return  # sent before, and to be compared
        progress.check_offset(self.at, length)
        if progress.complete:
            raise CompletedUpload(self.array.path)

    def append(self, data: Buffer, note: Buffer = b"") -> None:
        """Store bytes behind the end of the array, and before them a ``note``: metadata of the frame that begins there.
        With ``ack=memory`` they are taken, and stored later. Bytes that were sent before are compared with what is
        stored.

        Raises `MismatchingUploadOffset` if it ends elsewhere, `StreamFull`, `CompletedUpload`, `ArrayFailed`,
        `StaleEpoch`, and `StoreError`, after which the array takes no more.
        """
        if not len(data):
            return
        path, key, stop = self._stream.path, self.array.key, self.at + len(data)
        try:
            if self._stream.plan.settings.ack == "memory":
                self.progress = self._writer.take(self._stream, self._number, self.at, data, self._epoch, note)
            else:
                known = self.progress
                self.progress = self._writer.append(self._stream, self._number, self.at, data, self._epoch, note, known)
        except (MismatchingUploadOffset, CompletedUpload) as error:
            self.progress = self._streams.progress(path, key)
            if self._said is None or stop > self.progress.end:
                raise
            if not self._streams.holds(path, key, self.at, data, note):
                reason = "other bytes or metadata are stored there, or it cannot be told"
                raise MismatchingUploadOffset(path, self.progress.end, self._said, reason) from error
        self.at = stop

    def complete(self) -> None:
        """Note that the array takes no more."""
        self._streams.complete(self._stream.path, self.array.key, self._epoch)
        self.progress = replace(self.progress, complete=True)


class Streams:
    """The streams of all stores. Every method blocks; safe to call from many threads. Close it when done."""

    def __init__(self, catalog: Catalog, reader: Reader, creator: Creator, in_flight: BytesInFlight) -> None:
        self._catalog = catalog
        self._creator = creator
        self._records = Records()
        tails = Tails(reader.cache)
        heads = Heads(catalog, reader, self._records, tails)
        self._committer = Committer(catalog, reader)
        notes = Notes(tails)
        self._gauge = Gauge(catalog, reader, self._records, heads, self._committer, notes)
        self._handles = Handles(in_flight, self._expire)
        self._writer = ArrayWriter(reader, self._records, tails, notes, self._committer, self._gauge, self._handles)
        catalog.with_head = heads

    def close(self) -> None:
        """End background work; what is stored stays as it is, for the next process to go on with."""
        self._handles.close()
        self._writer.close()

    # --- open and close ----------------------------------------------------------------------------------------------

    def open(self, path: str, settings: StreamSettings, if_exists: IfExists, *, dry_run: bool = False) -> Opened:
        """Open a stream: its nodes are made, and empty.

        Raises `StreamConflict`, `CompletedUpload`, `NodeExists` where something else is in the way, `BadDefinition`,
        and `Overloaded` where there is no memory for it.
        """
        mount, prefix = self._catalog.locate_writable(path)
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
                return _dry_run(path, plan)
            if record is not None:
                self._remove(self._stream(mount, prefix, record))
            for node in in_the_way:
                with suppress(NodeNotFound):
                    self._creator.delete(node.path, recursive=True)
            handle = self._handles.of(path, plan)
            made = [group for group in plan.layout.groups if self._find(group) is None]
            made += [level.path for array in plan.arrays for level in array.levels]
            record = Record(secrets.token_hex(8), "opening", 1, made)
            stream = Stream(mount, prefix, path, record, plan)
            try:
                self._records.put_settings(mount, prefix, record.id, settings)
                stream = replace(stream, record=self._records.put(mount, prefix, record))
                self._make(stream)
                record = self._records.change(stream, lambda record: replace(record, state="open"))
            except VersionConflict:
                self._handles.forget(path)
                raise StreamConflict(path) from None
            except BaseException:
                with suppress(HyperslabError):
                    self._remove(stream)
                self._handles.forget(path)
                raise
            handle.last = time.monotonic()
            return Opened(self.state(path), created=True, epoch=record.epoch)

    def state(self, path: str) -> dict[str, Any]:
        """The state of a stream, as a JSON document. Raises `StreamNotFound`."""
        stream = self._open(path, writing=False)
        return self._state(stream)

    def check(self, path: str, epoch: int | None = None) -> None:
        """Raise what `send` raises for a stream that takes nothing."""
        self._open(path, epoch=epoch)

    def progress(self, path: str, key: str | None, epoch: int | None = None) -> Progress:
        """How far an array has come. Raises `StreamNotFound`, `BadParameter` and `StaleEpoch`."""
        stream = self._open(path, writing=False, epoch=epoch)
        return self._writer.progress(stream, stream.array(key)[0])

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
            return _dry_run(path, plan)
        self._handles.of(path, plan)
        if record.state == "opening":
            self._make(stream)

        def resumed(record: Record) -> Record:
            arrays = {key: replace(array, error=None) for key, array in record.arrays.items()}
            return replace(record, state="open", epoch=record.epoch + 1, arrays=arrays)

        changed = self._records.change(stream, resumed)
        self._writer.settle(replace(stream, record=changed))
        return Opened(self.state(path), created=False, epoch=changed.epoch)

    # --- frames ------------------------------------------------------------------------------------------------------

    def send(self, path: str, key: str | None, at: int | None = None, epoch: int | None = None) -> Sending:
        """What a request sends to an array, from the offset ``at`` on, or where it ends.

        Raises `StreamNotFound`, `BadParameter`, `StaleEpoch` and `CompletedUpload`.
        """
        stream = self._open(path, epoch=epoch)
        return Sending(self, self._writer, self._handles, stream, stream.array(key)[0], epoch, at)

    def skip(  # noqa: PLR0917
        self, path: str, key: str | None, frames: int, reason: str, at: int | None = None, epoch: int | None = None
    ) -> Progress:
        """Note that so many frames from ``at`` on (default: the next ones) will not come; returns how far the array has
        come then. Raises as `Sending.append`."""
        stream = self._open(path, epoch=epoch)
        self._writer.wait(stream)
        return self._writer.skip(stream, stream.array(key)[0], frames, reason, at, epoch)

    def complete(self, path: str, key: str | None, epoch: int | None = None) -> None:
        """See `Sending.complete`."""
        stream = self._open(path, epoch=epoch)
        number, array = stream.array(key)
        self._writer.wait(stream)
        self._records.change(stream, lambda record: record.with_array(array.key, complete=True))
        if stream.mount.is_remote:  # in a folder, each piece is stored under a lock, and looks
            self._writer.settle(stream, [number], closed=None)

    def frame_lines(self, path: str, key: str | None, start: int, stop: int | None = None) -> Iterator[bytes]:
        """The metadata of the frames ``[start, stop)`` of an array that are stored, as JSON lines, many at a time."""
        stream = self._open(path, writing=False)
        number, array = stream.array(key)
        accepted = self._gauge.progress(stream, number).end // array.frame_nbytes
        name = dump_json(array.key)
        for notes in self._gauge.notes(stream, number, start, accepted if stop is None else min(stop, accepted)):
            yield b"".join([b'{"key":%b,"frame":%d,"metadata":%b}\n' % (name, *each) for each in notes])

    def holds(self, path: str, key: str | None, start: int, data: Buffer, note: Buffer = b"") -> bool:
        """Whether the array has just these bytes from ``start`` on, and the frame there this ``note`` if there is one;
        False where that cannot be told."""
        stream = self._open(path, writing=False)
        return self._gauge.holds(stream, stream.array(key)[0], start, data, note)

    def flush(self, path: str, epoch: int | None = None) -> dict[str, Any]:
        """Store all whole rows in chunks; returns the state, which says what has failed."""
        stream = self._open(path, epoch=epoch)
        self._writer.wait(stream)
        self._flush(stream)
        return self.state(path)

    def finish(self, path: str, *, pad: bool = False, drop: bool = False, epoch: int | None = None) -> dict[str, Any]:
        """Store everything, and take no more. What fails of an array is its ``error`` in the state.

        Raises `PartialFrame`, and then nothing is finished, where a frame is not whole unless it is to be filled up
        (``pad``) or left out (``drop``).
        """
        stream = self._open(path, writing=False, epoch=epoch)
        self._writer.wait(stream)
        with self._stream_lock(stream.mount, stream.prefix):
            stream = self._open(path, writing=False)
            if stream.record.state == "finished":
                return self._state(stream)
            if not (pad or drop):
                self._check_whole(stream)
            finishing = self._records.change(stream, lambda record: replace(record, state="finishing"))
            stream = replace(stream, record=finishing)
            self._writer.settle(stream, closed=True)
            try:
                if not (pad or drop):
                    self._check_whole(stream)
            except PartialFrame:  # it came in between
                record = self._records.change(stream, lambda record: replace(record, state="open"))
                self._writer.settle(replace(stream, record=record))
                raise
            for number in range(len(stream.plan.arrays)):
                with suppress(HyperslabError):
                    self._writer.finish(stream, number, pad=pad)
            self._put_frames(stream)
            ended = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self._records.change(stream, lambda record: replace(record, state="finished", finished=ended))
            stream.mount.store.delete_prefix(f"{stream.prefix}{FOLDER}/{stream.record.id}/")
            self._handles.forget(stream.path)
        return self.state(path)

    def _check_whole(self, stream: Stream) -> None:
        for number, array in enumerate(stream.plan.arrays):
            partial = self._gauge.progress(stream, number).end % array.frame_nbytes
            if partial:
                raise PartialFrame(array.path, partial, array.frame_nbytes)

    def discard(self, path: str, epoch: int | None = None) -> None:
        """Remove what a stream has made: its arrays, and groups that are empty then."""
        stream = self._open(path, writing=False, epoch=epoch)
        with self._stream_lock(stream.mount, stream.prefix):
            self._remove(self._open(path, writing=False))

    def _put_frames(self, stream: Stream) -> None:
        """Store the metadata of all frames as a document of the group, but not over one that somebody else has put."""
        store, key, at = stream.mount.store, f"{stream.prefix}{FRAMES_DOCUMENT}", 0
        noted = (self._gauge.notes(stream, number, 0, 1 << 62) for number in range(len(stream.plan.arrays)))
        if not any(any(groups) for groups in noted):
            return
        if self._records.change(stream, lambda record: record).frames is False:
            if store.stat(key) is not None:
                return
            self._records.change(stream, lambda record: replace(record, frames=True))
        pieces = (lines for array in stream.plan.arrays for lines in self.frame_lines(stream.path, array.key, 0))
        log = store.open_log(key, create=True)
        if log is None:
            store.put(key, b"".join(pieces))
            return
        log.write(0, [])
        for lines in pieces:
            log.write(at, [(at, lines)])
            at += len(lines)

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
        self._writer.settle(stream)

    def _remove(self, stream: Stream) -> None:
        """Remove what a stream has made. The caller holds its lock."""
        self._records.change(stream, lambda record: replace(record, state="discarding"))
        self._writer.settle(stream, closed=True)
        groups = stream.plan.layout.groups
        if self._records.change(stream, lambda record: record).frames:
            stream.mount.store.delete(f"{stream.prefix}{FRAMES_DOCUMENT}")
        for path in reversed(stream.record.made):
            with suppress(NodeNotFound, NodeExists):
                self._creator.delete(path, recursive=path not in groups)
        stream.mount.store.delete_prefix(f"{stream.prefix}{FOLDER}/")
        self._handles.forget(stream.path)

    # --- records and handles -----------------------------------------------------------------------------------------

    @contextmanager
    def _stream_lock(self, mount: MountedStore, prefix: str) -> Iterator[None]:
        """Context of those who open, finish and discard what is at a prefix, one at a time."""
        with mount.store.lock(f"{prefix}{FOLDER}/.zgroup"), alone(mount, f"{prefix}{FOLDER}/"):
            yield

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
        record.check_epoch(epoch)
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
            stream = replace(stream, record=self._records.change(stream, lambda each: replace(each, state="open")))
        self._handles.of(stream.path, stream.plan)
        return stream

    def _expire(self, path: str) -> float:
        """Close a stream that nobody has sent to; gives the seconds after which to look again, 0 where it is closed."""
        mount, prefix = self._catalog.locate_writable(path)
        record = self._records.get(mount, prefix)
        if record is None or record.state != "open":
            return 0.0
        stream = self._stream(mount, prefix, record)
        store = mount.store
        document = V3 if stream.plan.settings.zarr_format == 3 else mount.metadata_key
        written = [store.stat(f"{prefix}{FOLDER}/stream.json")]
        for number, array in enumerate(stream.plan.arrays):
            written.append(store.stat(f"{array.levels[0].path.partition('/')[2]}/{document}"))
            written += store.list_dir(stream.tails(number)).entries
            written.append(store.stat(stream.notes(number) + HEAD))
        last = max((entry.modified for entry in written if entry is not None), default=0.0)
        again = last + stream.plan.settings.expires_in - time.time()
        if again > 0:  # through another process, or late
            return again
        self._flush(stream)
        self._records.change(stream, lambda each: replace(each, state="closed") if each.state == "open" else each)
        return 0.0

    def _flush(self, stream: Stream) -> None:
        for number in range(len(stream.plan.arrays)):
            with suppress(HyperslabError):
                self._writer.flush(stream, number)

    # --- state -------------------------------------------------------------------------------------------------------

    def _state(self, stream: Stream) -> dict[str, Any]:
        record, plan = stream.record, stream.plan
        arrays = {}
        found = [self._writer.progress(stream, number) for number in range(len(plan.arrays))]
        for array, progress, missing in zip(plan.arrays, found, self._gauge.missing(stream, *found), strict=True):
            padded = record.array(array.key).padded
            arrays[array.key] = {**described(array), **counted(progress, missing), "padded": padded}
        failed = arrays and all(each["error"] is not None for each in arrays.values())
        shown = {"opening": "open", "finishing": "open"}.get(record.state, record.state)
        state = "failed" if failed and shown in ("open", "closed") else shown
        handle = self._handles.get(stream.path)
        used = 0 if handle is None else handle.reserved
        return _document(stream.path, plan, state, arrays, used=used, finished=record.finished)


def _dry_run(path: str, plan: StreamPlan) -> Opened:
    """What opening a stream would have as its state, and what it would make."""
    nothing = {"offset": 0, "accepted": 0, "durable": 0, "visible": 0, "missing": [], "partial": 0, "error": None}
    arrays = {array.key: {**described(array), **nothing, "plan": array.plan()} for array in plan.arrays}
    return Opened(_document(path, plan, "dry_run", arrays), created=False, epoch=1)


def _document(
    path: str, plan: StreamPlan, state: str, arrays: dict[str, Any], *, used: int = 0, finished: str | None = None
) -> dict[str, Any]:
    return {
        "path": path,
        "state": state,
        "arrays": arrays,
        "memory": {"bound": memory_bound(plan), "used": used},
        "expires_in": plan.settings.expires_in,
        "finished": finished,
        "warnings": [warning for array in plan.arrays for warning in array.warnings],
    }
