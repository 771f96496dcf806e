"""Streams: opened, fed, flushed, finished and discarded.

All lasting state is in the store, so any process may serve any request.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, Self

from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.create import Creator
from hyperslab.arrays.documents import put_metadata, remove_document
from hyperslab.arrays.extent import with_own
from hyperslab.arrays.lease import Permit, node_lease, retried
from hyperslab.arrays.limits import BytesInFlight
from hyperslab.arrays.nodes import V3, ArrayNode, BrokenNode, GroupNode, MountedStore
from hyperslab.arrays.read import Reader
from hyperslab.errors import (
    BadDefinition,
    BrokenData,
    CompletedUpload,
    ConsolidatedBehind,
    HyperslabError,
    InDoubt,
    NodeExists,
    NodeNotFound,
    Overloaded,
    PartialFrame,
    StreamConflict,
    StreamNotFound,
    WriteConflict,
    WrongKind,
)
from hyperslab.storage.base import VersionConflict
from hyperslab.storage.keys import STREAM, as_prefix
from hyperslab.streams.commit import own_items
from hyperslab.streams.heads import Heads, StreamMark
from hyperslab.streams.layout import StreamArray, StreamPlan
from hyperslab.streams.record import Record, Records, Stream
from hyperslab.streams.sessions import PIECE_BYTES, Fragment, Memory, Session, Sessions, largest_piece
from hyperslab.streams.settings import FRAMES_DOCUMENT, StreamSettings, difference
from hyperslab.streams.tail import Buffer, Tail
from hyperslab.streams.tails import Tails
from hyperslab.streams.writer import ArrayWriter, Writers

IfExists = Literal["error", "resume", "replace"]


@dataclass(frozen=True, slots=True)
class OpenResult:
    """Result of opening a stream: its state, whether it was created, and its epoch."""

    state: dict[str, Any]
    created: bool
    epoch: int


class Upload:
    """Upload: what one request sends to one array. A context, in which the request counts as a sender.

    Attributes:
        at: Offset of the next byte.
        progress: The latest progress that is known.
        piece: The most bytes that the request should store at a time.
        covered: Bytes of receive buffers that are the stream's: none if another request is sending.
    """

    def __init__(self, writer: ArrayWriter, session: Session, at: int | None) -> None:
        self.array = writer.array
        self.piece = PIECE_BYTES
        self.covered = 0
        self.progress = writer.fence.read()
        self.at = self.progress.end if at is None else at
        self.session = session
        self._provided = at
        self._writer = writer
        self._is_finished = writer.fence.stream.record.state == "finished"

    def __enter__(self) -> Self:
        """Raises `WriteConflict` if no offset was given and another request sends to the array."""
        senders, number = self.session.senders, self.array.number
        with self.session.changed:
            if self._provided is None and senders.get(number):
                raise WriteConflict(self.array.path, "another request sends to this array: say Upload-Offset")
            self.covered = 0 if any(senders.values()) or self._is_finished else 2 * self.session.memory.piece
            largest = largest_piece(self.array)
            self.piece = largest if 2 * largest <= self.covered else PIECE_BYTES
            senders[number] = senders.get(number, 0) + 1
        return self

    def __exit__(self, *_: object) -> None:
        with self.session.changed:
            self.session.senders[self.array.number] -= 1
            self.session.last = time.monotonic()

    def seek(self, at: int) -> None:
        """Go on at another offset."""
        self.at = self._provided = at

    def check(self, length: int) -> None:
        """Raise if ``length`` more bytes cannot be taken, before any of them is."""
        progress = self.progress
        progress.check()
        if self.at < progress.end and self.at + length <= progress.end:
            return  # a retransmission, which is compared
        if not self._is_finished:
            progress.check_offset(self.at, length)
        if progress.complete:
            raise CompletedUpload(self.array.path)

    def append(self, data: Buffer, note: bytes = b"") -> None:
        """Store bytes at the offset, and with them a ``note``, metadata of the frame that begins there. See
        `ArrayWriter.send`."""
        if len(data):
            fragment = Fragment(self.at, data, note)
            self.progress = self._writer.send(fragment, self.progress, self._provided)
            self.at = fragment.stop

    def complete(self) -> None:
        """Take no more bytes of the array."""
        if not self._is_finished:
            self._writer.complete()
            self.progress = replace(self.progress, complete=True)


class Streams:
    """The streams of all stores. Methods block, and are safe to call from many threads. Close it when done."""

    def __init__(self, catalog: Catalog, reader: Reader, creator: Creator, in_flight: BytesInFlight) -> None:
        self._catalog = catalog
        self._creator = creator
        self._records = Records()
        self._tails = Tails(reader.cache)
        self._sessions = Sessions(in_flight.limit // 2, self._expire)
        self._writers = Writers(catalog, reader, self._records, self._tails, self._sessions)
        catalog.with_head = Heads(catalog, reader, self._records, self._tails)

    def close(self) -> None:
        """End background work. The stored state is unchanged, and the next process goes on from it."""
        self._sessions.close()
        self._writers.close()

    # --- open and close ----------------------------------------------------------------------------------------------

    def open(self, path: str, settings: StreamSettings, if_exists: IfExists, *, dry_run: bool = False) -> OpenResult:
        """Open a stream, and create its nodes, which are empty.

        Raises `StreamConflict`, `CompletedUpload`, `NodeExists` if another node is in the way, `BadDefinition`, also
        if there can never be memory for it, and `Overloaded` if there is none now.
        """
        mount, prefix = self._catalog.locate_writable(path)
        path = mount.path(prefix)
        plan = StreamPlan.of(settings, path, secrets.token_hex(8))
        with self._stream_lock(mount, prefix) as permit:
            stored = self._records.find(mount, prefix)
            if stored is not None and stored.record.state == "discarding":
                self._remove(stored, permit)
                stored = None
            if stored is not None and if_exists != "replace":
                return self._resume(stored, plan, if_exists, dry_run=dry_run)
            conflicting = [*self._conflicting(plan)]
            for node in conflicting if if_exists != "replace" else ():
                raise NodeExists(node.path, node.kind)
            planned = _dry_run(plan, self._sessions.limit)
            if dry_run:
                return planned
            if stored is not None:
                self._remove(stored, permit)
            self._sessions.remove(path)  # of one that was deleted with its group
            _remove_keys(mount, prefix, permit)  # left by a removal that was cut off
            for node in conflicting:
                with suppress(NodeNotFound):
                    self._creator.delete(node.path, recursive=True)
            session = self._reserve(plan)
            made = [*[group for group in plan.groups if self._find(group) is None], *plan.level_paths]
            stream = Stream(mount, prefix, Record(plan.arrays[0].stream, "opening", 1, made), plan)

            def create() -> None:
                nonlocal stream
                self._records.put_settings(mount, prefix, stream.record.id, settings)
                stream = replace(stream, record=self._records.put(mount, prefix, replace(stream.record, version=None)))
                self._create_nodes(stream)
                self._records.change(stream, lambda record: replace(record, state="open"))

            try:  # again if a deletion of the group, which began before, has taken the record
                retried(path, create, after=StreamNotFound)
            except VersionConflict:
                self._sessions.remove(path)
                raise StreamConflict(path) from None
            except BaseException:
                with suppress(HyperslabError):
                    self._remove(stream, permit)
                self._sessions.remove(path)
                raise
            session.last = time.monotonic()
            return OpenResult(self.state(path), created=True, epoch=stream.record.epoch)

    def state(self, path: str) -> dict[str, Any]:
        """The state of a stream, as a JSON document. Raises `StreamNotFound`."""
        stream = self._open(path, writing=False)
        record, plan, arrays = stream.record, stream.plan, dict[str, Any]()
        ends = [self._writers.of(stream, array).fence.read() for array in plan.arrays]
        for progress, missing in zip(ends, self._writers.missing(stream, *ends), strict=True):
            key = progress.array.key
            arrays[key] = {**progress.document(missing), "padded": record.array(key).padded}
        state = {"opening": "open", "finishing": "open"}.get(record.state, record.state)
        if state in ("open", "closed") and all(document["error"] is not None for document in arrays.values()):
            state = "failed"
        session = self._sessions.get(stream.path)
        memory = {"bound": _bound(plan, self._sessions.limit), "used": 0 if session is None else session.memory.bound}
        return _document(plan, state, arrays, memory, record.finished)

    def check(self, path: str, epoch: int | None = None) -> None:
        """Raise what `upload` raises, whatever the array."""
        self._open(path, epoch=epoch, finished=True)

    def array(self, path: str, key: str | None, *, epoch: int | None = None, writing: bool = False) -> ArrayWriter:
        """An array of a stream; None is the key of the only one. Raises `StreamNotFound` and `BadParameter`, and for
        ``writing`` `StaleEpoch` and `CompletedUpload`."""
        stream = self._open(path, writing=writing, epoch=epoch)
        return self._writers.of(stream, stream.array(key), epoch)

    def _resume(self, stream: Stream, plan: StreamPlan, if_exists: IfExists, *, dry_run: bool) -> OpenResult:
        """Go on with a stream that is there, or for ``error`` with its opening, which was cut off."""
        path, state = stream.path, stream.record.state
        goes_on = if_exists == "resume" or state == "opening"
        member = difference(stream.plan.settings, plan.settings) if goes_on else None
        if not goes_on or member is not None:
            raise StreamConflict(path, member)
        if state in ("finished", "finishing"):
            raise CompletedUpload(path)
        if dry_run:
            return _dry_run(plan, self._sessions.limit)
        self._reserve(stream.plan)
        if state == "opening":
            self._create_nodes(stream)
        else:
            self._mark_again(stream)

        def resumed(record: Record) -> Record:
            arrays = {key: replace(array, error=None) for key, array in record.arrays.items()}
            return replace(record, state="open", epoch=record.epoch + 1, arrays=arrays)

        stream = self._records.change(stream, resumed)
        self._writers.fence(stream)
        return OpenResult(self.state(path), created=state == "opening", epoch=stream.record.epoch)

    # --- frames ------------------------------------------------------------------------------------------------------

    def upload(self, path: str, key: str | None, at: int | None = None, epoch: int | None = None) -> Upload:
        """An upload to an array from the offset ``at`` on, by default from its end. To a finished stream, bytes that it
        holds may be sent again.

        Raises `StreamNotFound`, `BadParameter`, `StaleEpoch` and `CompletedUpload`.
        """
        stream = self._open(path, epoch=epoch, finished=at is not None)
        session = self._sessions.get(stream.path) or Session(Memory(), 0)
        return Upload(self._writers.of(stream, stream.array(key), epoch), session, at)

    def flush(self, path: str, epoch: int | None = None) -> dict[str, Any]:
        """Commit all whole rows; returns the state, which has the errors of arrays that failed."""
        stream = self._open(path, epoch=epoch)
        self._writers.each(stream, lambda writer: writer.commits.flush())
        return self.state(path)

    def finish(self, path: str, *, pad: bool = False, drop: bool = False, epoch: int | None = None) -> dict[str, Any]:
        """Store everything, and take no more; returns the state, which has the errors of arrays that failed: because of
        the store, the stream is not finished then, and the next call goes on.

        Raises `PartialFrame`, and finishes nothing, if a frame is incomplete, unless it is to be filled up (``pad``) or
        dropped (``drop``).
        """
        stream = self._open(path, writing=False, epoch=epoch)
        with self._stream_lock(stream.mount, stream.prefix):
            stream = self._open(path, writing=False)
            if stream.record.state != "finished":
                self._finish(stream, pad=pad, drop=drop)
        return self.state(path)

    def _finish(self, stream: Stream, *, pad: bool, drop: bool) -> None:
        def check_whole() -> None:
            for array in stream.plan.arrays if not (pad or drop) else ():
                begun = self._writers.of(stream, array).fence.read().end % array.frame_nbytes
                if begun:
                    raise PartialFrame(array.path, begun, array.frame_nbytes)

        def begun(record: Record) -> Record:  # what has failed is tried again
            arrays = {key: replace(array, error=None) for key, array in record.arrays.items()}
            return replace(record, state="finishing", arrays=arrays)

        is_again = stream.record.state == "finishing"
        behind = list[StreamArray]()

        def finish(writer: ArrayWriter) -> None:
            try:
                writer.commits.finish(pad=pad)
                if is_again:
                    writer.commits.update_copies()
            except ConsolidatedBehind:
                behind.append(writer.array)
                raise

        self._mark_again(stream)
        check_whole()
        stream = self._records.change(stream, begun)
        self._writers.fence(stream, closed=True)
        try:
            check_whole()
        except PartialFrame:  # which came in between
            self._writers.fence(self._records.change(stream, lambda record: replace(record, state="open")))
            raise
        self._writers.each(stream, finish)
        record = self._records.change(stream).record
        failed = [array for array in stream.plan.arrays if record.array(array.key).error is not None]
        if behind or any(map(self._writers.committer.can_go_on, failed)):
            return
        for array in failed:
            tail = self._tail_left(stream, array)
            if tail.end > tail.begin and isinstance(self._find(array.levels[0].path), ArrayNode):
                return  # it holds frames that were acknowledged
        self._put_frames(stream)
        ended = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._records.change(stream, lambda record: replace(record, state="finished", finished=ended))
        stream.mount.store.delete_prefix(f"{stream.prefix}{STREAM}/{stream.record.id}/")
        self._sessions.remove(stream.path)

    def _put_frames(self, stream: Stream) -> None:
        """Store the metadata of all frames as a document of the group, unless another program has put one there."""
        store, key = stream.mount.store, f"{stream.prefix}{FRAMES_DOCUMENT}"
        writers = [self._writers.of(stream, array) for array in stream.plan.arrays]
        if not any(any(writer.frame_lines(0)) for writer in writers):
            return
        if not self._records.change(stream).record.frames:
            if store.stat(key) is not None:
                return
            self._records.change(stream, lambda record: replace(record, frames=True))
        store.put_pieces(key, (lines for writer in writers for lines in writer.frame_lines(0)))

    def discard(self, path: str, epoch: int | None = None) -> None:
        """Remove the arrays of a stream, and its groups that are empty then, also of one whose removal was cut off."""
        mount, prefix = self._catalog.locate_writable(path)
        try:
            self._open(path, writing=False, epoch=epoch, discarding=True)
        except StreamNotFound:
            if not any(mount.store.list_with_streams(f"{prefix}{STREAM}/")):
                raise
        with self._stream_lock(mount, prefix) as permit:
            stream = self._records.find(mount, prefix)
            if stream is not None:
                self._remove(stream, permit)
            else:  # its nodes are gone, and its record or its settings
                _remove_keys(mount, prefix, permit)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _find(self, path: str) -> Node | BrokenNode | None:
        try:
            node = self._catalog.open_even_broken(path)
        except NodeNotFound:
            return None
        return None if isinstance(node, GroupNode) and node.implicit else node

    def _conflicting(self, plan: StreamPlan) -> Iterator[Node | BrokenNode]:
        """Nodes at the paths of the stream's own, except for plain groups, which are shared."""
        for path in [*plan.groups, *plan.level_paths]:
            node = self._find(path)
            shared = isinstance(node, GroupNode) and path in plan.groups and not plan.groups[path]
            if node is not None and not shared:
                yield node

    def _create_nodes(self, stream: Stream) -> None:
        """Create all nodes that do not exist, arrays with their marks; again after a lost answer."""
        retried(stream.path, partial(self._create_each, stream), after=InDoubt)

    def _create_each(self, stream: Stream) -> None:
        plan = stream.plan
        for path in plan.groups:
            if self._find(path) is None:  # a group that is shared may be of the other format
                self._creator.create_group(path, {}, zarr_format=plan.settings.zarr_format, mode="open")
        for array in plan.arrays:
            for level, wanted in enumerate(array.levels):
                own, check = own_items(wanted, StreamMark.of_level(stream, array, level)), partial(_check_own, stream)
                self._creator.create_array(wanted.path, wanted.definition, mode="open", check=check, own=own)
        for path, attributes in reversed([*plan.groups.items()]):
            if attributes:
                self._creator.change_attributes(path, attributes)
        self._writers.fence(stream)

    def _mark_again(self, stream: Stream) -> None:
        """Mark arrays whose documents another program has rewritten without the mark, as zarr-python does to change
        attributes of Zarr v2, if all else is as the stream had it. Those that a finish has ended have none."""
        for array in stream.plan.arrays:
            tail, is_finishing = self._tail_left(stream, array), stream.record.state == "finishing"
            end = max(tail.end, stream.record.array(array.key).stored)
            begin = tail.begin if tail.pieces else end
            for number, level in enumerate(array.levels):
                with suppress(NodeNotFound, WrongKind, BrokenData, NodeExists):
                    node = self._catalog.open_array(level.path, fresh=True)
                    rows = node.metadata.shape[level.append_axis] // level.row_length
                    if StreamMark.of(node) is not None:
                        continue
                    stored = rows * level.row_nbytes
                    if number == 0 and not (begin <= stored <= end and (stored < tail.end or not is_finishing)):
                        break  # another array
                    self._creator.create_array(
                        level.path, {**level.definition, "shape": [*node.metadata.shape]}, mode="open"
                    )
                    self._writers.committer.publish(array, StreamMark.of_level(stream, array, number, rows), new=True)

    def _tail_left(self, stream: Stream, array: StreamArray) -> Tail:
        """The tail of an array that another writer may have changed."""
        row = self._tails.first_row(stream.mount, array)
        return self._tails.open(stream.mount, array, row)[0]

    def _remove(self, stream: Stream, permit: Permit) -> None:
        """Remove the nodes of a stream, then its keys. The caller holds its lock. Of an opening or a removal that was
        cut off, the arrays without its mark are others that came since, and stay."""
        is_first = stream.record.state not in ("discarding", "opening")
        if is_first:
            retried(stream.path, partial(self._mark, stream), after=InDoubt)
        stream = self._records.change(stream, lambda record: replace(record, state="discarding"))
        self._writers.fence(stream, closed=True)
        if self._records.change(stream).record.frames:
            remove_document(stream.mount, f"{stream.prefix}{FRAMES_DOCUMENT}", permit.check)

        check = partial(_check_own, stream)
        for path in reversed(stream.record.made):
            is_group = path in stream.plan.groups
            with suppress(NodeNotFound, NodeExists):
                self._creator.delete(path, recursive=not is_group, check=None if is_first or is_group else check)
        _remove_keys(stream.mount, stream.prefix, permit)
        self._sessions.remove(stream.path)

    def _mark(self, stream: Stream) -> None:
        """Mark the arrays of a stream that have no mark: those of one that has ended. A removal that is gone on with
        knows them by it."""
        for array in stream.plan.arrays:
            for number, level in enumerate(array.levels):
                # of no rows: readers see the stored shape
                with suppress(NodeNotFound, WrongKind, BrokenData):
                    retried(level.path, partial(self._put_mark, level.path, StreamMark.of_level(stream, array, number)))

    def _put_mark(self, path: str, mark: StreamMark) -> None:
        node = self._catalog.open_array(path, fresh=True)
        if StreamMark.of(node) is None:
            put_metadata(node, with_own(node.metadata, stream=asdict(mark)))

    # --- records and sessions ----------------------------------------------------------------------------------------

    @contextmanager
    def _stream_lock(self, mount: MountedStore, prefix: str) -> Iterator[Permit]:
        """Lock that serialises opening, finishing and discarding the stream at a prefix."""
        with mount.store.lock(f"{prefix}{STREAM}/.zgroup"), node_lease(mount, f"{prefix}{STREAM}/") as permit:
            yield permit

    def _open(
        self,
        path: str,
        *,
        writing: bool = True,
        epoch: int | None = None,
        finished: bool = False,
        discarding: bool = False,
    ) -> Stream:
        """The stream at a path. For ``writing`` it is opened again if it had expired, and has to take frames, unless
        ``finished`` ones will do."""
        mount, rest = self._catalog.locate(path)
        prefix = as_prefix(rest)
        if writing:
            mount.check_writable()
        stream = self._records.find(mount, prefix)
        if stream is None or (stream.record.state == "discarding" and not discarding):
            raise StreamNotFound(path)
        stream.record.check_epoch(epoch)
        session, state = self._sessions.get(stream.path), stream.record.state
        if session is not None:
            session.last = time.monotonic()
        if not writing or (finished and state == "finished"):
            return stream
        if state in ("finished", "finishing"):
            raise CompletedUpload(stream.path)
        if state == "opening":
            raise StreamConflict(stream.path)
        if state == "closed":
            stream = self._records.change(stream, lambda each: replace(each, state="open"))
        self._reserve(stream.plan)
        return stream

    def _reserve(self, plan: StreamPlan) -> Session:
        """The session of a stream. If memory is short, those of streams that were deleted with their groups end. Raises
        as `Sessions.open`."""
        with suppress(Overloaded):
            return self._sessions.open(plan)
        for path in self._sessions.paths():
            mount, prefix = self._catalog.locate(path)
            if self._records.get(mount, as_prefix(prefix)) is None:
                self._sessions.remove(path)
        return self._sessions.open(plan)

    def _expire(self, path: str) -> float:
        """Close a stream without requests; returns the seconds until the next look, 0 if it is closed."""
        mount, prefix = self._catalog.locate_writable(path)
        stream, store = self._records.find(mount, prefix), mount.store
        if stream is None or stream.record.state != "open":
            return 0.0
        document = V3 if stream.plan.settings.zarr_format == 3 else mount.metadata_key
        written = [store.stat(f"{prefix}{STREAM}/stream.json")]
        for array in stream.plan.arrays:
            written.append(store.stat(f"{array.levels[0].path.partition('/')[2]}/{document}"))
            written += store.list_dir(array.tails).entries
            written.append(store.stat(array.head))
        last = max((entry.modified for entry in written if entry is not None), default=0.0)
        again = last + stream.plan.settings.expires_in - time.time()
        if again > 0:  # written by another process, or a late request
            return again
        self._writers.each(stream, lambda writer: writer.commits.flush())
        self._records.change(stream, lambda each: replace(each, state="closed") if each.state == "open" else each)
        return 0.0


def _check_own(stream: Stream, node: Node | BrokenNode | None) -> None:
    """Raise `NodeExists` unless a node is an array with the mark of a stream."""
    mark = StreamMark.of(node) if isinstance(node, ArrayNode) else None
    if node is not None and (mark is None or mark.id != stream.record.id):
        raise NodeExists(node.path, node.kind)


def _remove_keys(mount: MountedStore, prefix: str, permit: Permit) -> None:
    """Remove the keys of a stream, whose nodes are gone: its record on the condition of what it is now, as the next one
    has the same key, the others by requests that may come late, as theirs have its id."""
    home = f"{prefix}{STREAM}/"
    remove_document(mount, record := f"{home}stream.json", permit.check)
    mount.store.delete_prefix(home, keep=lambda key, _: key == record)


def _dry_run(plan: StreamPlan, limit: int) -> OpenResult:
    """The state that opening a stream would have, with its plan. Raises `BadDefinition`."""
    memory = {"bound": Memory.of(plan, limit).bound, "used": 0}
    nothing = {"offset": 0, "accepted": 0, "durable": 0, "visible": 0, "missing": [], "partial": 0, "error": None}
    arrays = {array.key: {**array.description(), **nothing, "plan": array.plan()} for array in plan.arrays}
    return OpenResult(_document(plan, "dry_run", arrays, memory), created=False, epoch=1)


def _bound(plan: StreamPlan, limit: int) -> int | None:
    """The bound of the memory of a stream; None if it does not fit any more, as the setting has changed."""
    try:
        return Memory.of(plan, limit).bound
    except BadDefinition:
        return None


def _document(
    plan: StreamPlan, state: str, arrays: dict[str, Any], memory: Mapping[str, int | None], finished: str | None = None
) -> dict[str, Any]:
    return {
        "path": plan.path,
        "state": state,
        "arrays": arrays,
        "memory": memory,
        "expires_in": plan.settings.expires_in,
        "finished": finished,
        "warnings": [warning for array in plan.arrays for warning in array.warnings],
    }
