"""Writing boxes, chunks and points, with the guarantees of docs/concepts/consistency.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from hyperslab.arrays.access import check_writable
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.clear import clear_late
from hyperslab.arrays.cost import Cancel
from hyperslab.arrays.lease import Turn, alone
from hyperslab.arrays.limits import check_chunk_count
from hyperslab.arrays.nodes import ArrayNode, MountedStore
from hyperslab.arrays.plan import PointsPlan, Projection, ReadPlan, points_tag, resolve_field, select, selection_tag
from hyperslab.arrays.read import Reader
from hyperslab.arrays.update import ChunkWriter
from hyperslab.engine.dtypes import DataType, Field
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import ChunkProjection, Selection, project, project_points, touched
from hyperslab.engine.subarray import put_values, split_selection, values_of
from hyperslab.errors import (
    Cancelled,
    HyperslabError,
    NodeNotFound,
    PartlyConflicting,
    PartlyWritten,
    StoreError,
    WriteConflict,
    WrongKind,
)
from hyperslab.storage.base import Entry, VersionConflict, WritersSafe
from hyperslab.storage.keys import as_prefix
from hyperslab.wire import SelectionItem

_MOST_KEYS_NAMED = 1000
_ALONE = 256 << 20
"""Chunks that take more bytes than this are written one after the other."""
_MOST_CHUNKS = 1 << 16
"""Up to here a plan knows the version of every chunk; what a write keeps of each until its end adds up, too."""


@dataclass(frozen=True, slots=True)
class Current:
    """What a precondition is checked against: the tag of what is stored now, and whether anything is."""

    tag: str
    exists: bool


Precondition = Callable[[Current], None]
"""Raises `errors.PreconditionFailed` where the write must not happen."""


KeyCheck = Callable[[Entry | None], None]
"""Given a key as it is now (None: absent); raises `errors.PreconditionFailed`."""

ChunkCheck = Callable[[ArrayNode, Entry | None], None]
"""Given a chunk as it is now, and the array that it is one of; raises `errors.PreconditionFailed`."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did. ``tag`` is that of the selection with exactly the chunk versions that this write has made."""

    array: ArrayNode
    chunks: int
    tag: str


_Exit = Callable[[type[BaseException] | None, BaseException | None, TracebackType | None], None]


def node_lock(mount: MountedStore, prefix: str, *, shared: bool = False) -> AbstractContextManager[None]:
    """Held shared by writers of chunks, exclusively by whoever changes shape, existence or several chunks at once."""
    return mount.store.lock(f"{prefix}.zarray", shared=shared)


class Writer:
    """Writes into existing arrays. Every method blocks until all is stored; safe to call from many threads."""

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self._catalog = catalog
        self._reader = reader

    def memory(self, array: ArrayNode, chunks: int) -> int:
        """Bytes that writing so many chunks takes beside their values: of those in hand at once, what is stored, the
        changed copy, and what lies between the codecs."""
        each = self._reader.chunk_memory(array)
        return each * (1 + (0 if each > _ALONE else self._reader.pool(array.mount).most_helpers(chunks - 1, each)))

    def write(
        self,
        path: str,
        items: Sequence[SelectionItem],
        values: NDArray,
        *,
        field: str | None = None,
        seen: Selection | None = None,
        made_for: DataType | None = None,
        check: Precondition | None = None,
        cancel: Cancel | None = None,
    ) -> Written:
        """Store ``values`` (broadcast to the selection, subarray dimensions last) in the cells that ``items`` select.

        ``seen``: which cells these were when the caller looked; ``made_for``: the data type that it saw; None where it
        did not look. Raises `ReadOnly`, `IndexOutOfRange`, `TooLarge` for very many chunks or very large ones,
        `WriteConflict` where the array was resized or replaced since the caller looked, so that they are others now,
        and what `ChunkWriter` raises; then the error, or `PartlyWritten`, names the chunks that were stored.
        """
        mount, rest = self._writable(path)
        prefix = as_prefix(rest)
        undivided = self._undivided(mount, path, items, field, check)
        lock = node_lock(mount, prefix, shared=check is None)
        with ExitStack() as afterwards, lock, undivided as (array, turn):
            self._reader.check_chunk(array)
            check_made_for(array, made_for)
            chosen = resolve_field(array, field)
            selection, chosen = split_selection(select(array, chosen, items), array.metadata.rank, chosen)
            _check_seen(array, selection, seen)
            check_written(array, selection, chosen)
            shaped = _broadcast(values, selection.shape + (chosen.shape if chosen else ()), array)
            plan = self._checked(array, selection, chosen, check)
            writer = self._chunk_writer(array, plan)
            afterwards.push(self._settler(path, writer))
            projections = list(project(selection, array.metadata.grid))
            self._write_all(array, projections, _ProjectionWriter(writer, shaped, chosen), turn, cancel)
        tag = selection_tag(array, selection, chosen, (writer.written[p.coords] for p in projections))
        return Written(array, len(projections), tag)

    def write_points(
        self,
        path: str,
        coordinates: Sequence[NDArray],
        values: NDArray,
        *,
        field: str | None = None,
        made_for: DataType | None = None,
        check: Precondition | None = None,
    ) -> Written:
        """Store one value (or subarray) per point; of points named twice the last wins. Raises as `write`."""
        mount, rest = self._writable(path)
        prefix = as_prefix(rest)
        undivided = nullcontext(Turn()) if check is None else alone(mount, prefix)
        with ExitStack() as afterwards, node_lock(mount, prefix, shared=check is None), undivided as turn:
            array = self._catalog.open_array(path, fresh=True)
            self._reader.check_chunk(array)
            check_made_for(array, made_for)
            chosen = resolve_field(array, field)
            count = len(coordinates[0]) if coordinates else 1  # the item of an array without axes
            shaped = _broadcast(values, (count, *(chosen.shape if chosen else ())), array)
            writer = self._chunk_writer(array, self._checked_points(array, coordinates, chosen, check))
            afterwards.push(self._settler(path, writer))
            projections = list(project_points(coordinates, array.metadata.grid))
            self._write_all(array, projections, _ProjectionWriter(writer, shaped, chosen, whole=False), turn)
        tag = points_tag(array, coordinates, chosen, (writer.written[p.coords] for p in projections))
        return Written(array, len(projections), tag)

    def write_stored(self, path: str, coords: Coords, data: bytes | memoryview, check: ChunkCheck | None = None) -> str:
        """Store one encoded chunk; returns its version.

        Raises `BadBody` where the data does not decode to a chunk of this array, `TooLarge` where one is too large to
        try, `WriteConflict` where the array has no such chunk any more.
        """
        mount, rest = self._writable(path)
        with ExitStack() as afterwards, node_lock(mount, as_prefix(rest), shared=True):
            array = self._catalog.open_array(path, fresh=True)
            if coords not in array.metadata.grid:  # it would show when the array grows
                raise WriteConflict(array.chunk_key(coords), "the array was resized, and has no such chunk now")
            self._reader.check_chunk(array)
            writer = self._stored_writer(array, coords, check)
            afterwards.push(self._settler(path, writer))
            return writer.put_stored(coords, data)

    def delete_chunk(self, path: str, coords: Coords, check: ChunkCheck | None = None) -> bool:
        """Remove one chunk, so that it reads as fill; False where it was not there, or the array has no such chunk any
        more."""
        mount, rest = self._writable(path)
        with node_lock(mount, as_prefix(rest), shared=True):
            array = self._catalog.open_array(path, fresh=True)
            return coords in array.metadata.grid and self._stored_writer(array, coords, check).delete(coords)

    @contextmanager
    def _undivided(
        self,
        mount: MountedStore,
        path: str,
        items: Sequence[SelectionItem],
        field: str | None,
        check: Precondition | None,
    ) -> Iterator[tuple[ArrayNode, Turn]]:
        """The array to be written to, and the turn to do so. One condition holds for all chunks of the write; for a
        single chunk of this very array the conditional put sees to that."""
        array = self._catalog.open_array(path, fresh=True)
        chosen = resolve_field(array, field)
        if check is None or touched(select(array, chosen, items), array.metadata.grid) <= 1:
            yield array, Turn()
            return
        with alone(mount, array.prefix) as turn:
            yield self._catalog.open_array(path, fresh=True), turn

    def _writable(self, path: str) -> tuple[MountedStore, str]:
        mount, rest = self._catalog.locate(path)
        check_writable(mount)
        return mount, rest

    def _checked(
        self, array: ArrayNode, selection: Selection, field: Field | None, check: Precondition | None
    ) -> ReadPlan | None:
        """The plan that a precondition holds for; None where there is no precondition."""
        if check is None:
            return None
        self._reader.versions.forget(array.mount, array.prefix)
        plan = self._reader.plan(array, selection, field)
        exists = plan.versions is None or any(version is not None for version in plan.versions.values())
        check(Current(plan.tag, exists))
        return plan

    def _checked_points(
        self, array: ArrayNode, coordinates: Sequence[NDArray], field: Field | None, check: Precondition | None
    ) -> PointsPlan | None:
        if check is None:
            return None
        self._reader.versions.forget(array.mount, array.prefix)
        plan = self._reader.plan_points(array, coordinates, field)
        check(Current(plan.tag, any(version is not None for version in plan.versions.values())))
        return plan

    def _stored_writer(self, array: ArrayNode, coords: Coords, check: ChunkCheck | None) -> ChunkWriter:
        if check is None:
            return self._chunk_writer(array, None)
        entry = array.mount.store.stat(array.chunk_key(coords))
        check(array, entry)
        seen = {coords: None if entry is None else entry.version}
        return ChunkWriter(array, self._reader.cache, self._reader.versions, seen)

    def _chunk_writer(self, array: ArrayNode, plan: ReadPlan | PointsPlan | None) -> ChunkWriter:
        expected = None if plan is None else plan.versions
        return ChunkWriter(array, self._reader.cache, self._reader.versions, expected)

    def _write_all(
        self,
        array: ArrayNode,
        projections: Sequence[Projection],
        work: Callable[[Projection], None],
        turn: Turn,
        cancel: Cancel | None = None,
    ) -> int:
        def one(projection: Projection) -> None:
            turn.check()  # a chunk may be as it was when the condition was checked, and the next one not
            work(projection)

        return write_chunks(self._reader, array, [(p.coords, p) for p in projections], one, cancel)

    def _settler(self, path: str, writer: ChunkWriter) -> _Exit:
        """What calls `_settle` when the locks are free again, also where the write fails half way: then its error is
        the one to raise."""

        def settle(_: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
            with nullcontext() if error is None else suppress(HyperslabError):
                self._settle(path, writer)

        return settle

    def _settle(self, path: str, writer: ChunkWriter) -> None:
        """Where replicas share the store, a shrink may have overtaken this write: then what it cut off is removed
        again. Where the array is gone or another one, so is what was written into it."""
        array, written = writer.array, writer.written
        if not written or array.mount.store.capabilities.writers_safe is not WritersSafe.REPLICAS:
            return
        now = self._same_array(path, array)
        if now is not None and all(map(int.__ge__, now.metadata.shape, array.metadata.shape)):
            return
        # else it may have grown back, and what is removed be somebody else's
        with alone(array.mount, array.prefix) as turn:
            now = self._same_array(path, array)
            if now is None:
                _take_back(array, written, turn.check)
            else:
                clear_late(self._reader, now, array.metadata.shape, written, turn.check)

    def _same_array(self, path: str, array: ArrayNode) -> ArrayNode | None:
        """The array as it is now; None where it is gone, or another one is in its place."""
        try:
            now = self._catalog.open_array(path, fresh=True)
        except (NodeNotFound, WrongKind):
            return None
        return now if now.data_id == array.data_id else None


def _take_back(array: ArrayNode, written: Mapping[Coords, str | None], check: Callable[[], None]) -> None:
    """Remove chunks that nobody has changed since; ``check`` as in `clear_outside`."""
    for coords, version in written.items():
        if version is not None:
            check()
            with suppress(VersionConflict):
                array.mount.store.delete(array.chunk_key(coords), if_version=version)


class _ProjectionWriter:
    """Puts a projection's values into its chunk, by replacing the chunk where all of it is given.

    What an edge chunk holds beyond the edge of the array is not given: other libraries leave values there, which they
    show when they grow the array.
    """

    def __init__(self, writer: ChunkWriter, values: NDArray, field: Field | None, *, whole: bool = True) -> None:
        self._writer = writer
        self._values = values
        self._field = field
        self._whole = whole and field is None

    def __call__(self, projection: Projection) -> None:
        def change(chunk: NDArray) -> None:
            if self._field is None:
                projection.copy_in(self._values, chunk)
                return
            values = values_of(self._field, chunk)
            projection.copy_in(self._values, values)
            put_values(self._field, chunk, values)

        if self._whole and isinstance(projection, ChunkProjection) and projection.fills_chunk:
            self._writer.replace(projection.coords, change, fills=True)
        else:
            self._writer.update(projection.coords, change, covers=self._whole and projection.covers_chunk)


def check_written(array: ArrayNode, selection: Selection, field: Field | None = None) -> None:
    """Raise `TooLarge`, with a split, for more chunks than one write may touch: it takes a single number to fill an
    array with more chunks than memory could keep account of."""
    count = touched(selection, array.metadata.grid)
    check_chunk_count("one write", array, selection, field, count=count, most=_MOST_CHUNKS)


def check_made_for(array: ArrayNode, seen: DataType | None) -> None:
    """Raise `WriteConflict` where values were made for items of another kind, ``seen`` before the array was replaced:
    numpy would convert them silently, and 300 would become 44."""
    now = array.metadata.dtype.json
    if seen is not None and seen.json != now:
        raise WriteConflict(array.path, f"its dtype is {now} now, and was {seen.json}: the array was replaced")


def write_chunks(
    reader: Reader,
    array: ArrayNode,
    chunks: Sequence[tuple[Coords, Any]],
    work: Callable[[Any], None],
    cancel: Cancel | None = None,
) -> int:
    """Call ``work`` for every (coordinates, item); an error on the way says which chunks were written before it."""
    written: list[Coords] = []

    def one(chunk: tuple[Coords, Any]) -> None:
        work(chunk[1])
        written.append(chunk[0])

    each = reader.chunk_memory(array)
    try:
        if each > _ALONE:
            for chunk in chunks:
                one(chunk)
                if cancel is not None:
                    cancel.check()
        else:
            reader.pool(array.mount).each(chunks, len(chunks), one, cancel, nbytes=each)
    except HyperslabError as error:
        if isinstance(error, Cancelled) or (not written and not isinstance(error, StoreError)):
            raise
        raise _with_progress(array, error, written, (coords for coords, _ in chunks)) from error
    return len(written)


def _with_progress(
    array: ArrayNode, error: HyperslabError, written: list[Coords], every: Iterable[Coords]
) -> HyperslabError:
    done = set(written)
    stored = [array.chunk_key(coords) for coords in written][:_MOST_KEYS_NAMED]
    failed = [array.chunk_key(coords) for coords in every if coords not in done][:_MOST_KEYS_NAMED]
    if isinstance(error, StoreError):
        return type(error)(error.store, error.key, error.reason, stored, failed)
    kind = PartlyConflicting if isinstance(error, WriteConflict) else PartlyWritten
    return kind(array.mount.name, failed[0] if failed else "", str(error), stored, failed)


def _check_seen(array: ArrayNode, selection: Selection, seen: Selection | None) -> None:
    """Raise `WriteConflict` where the same items select other cells than the caller saw: values for one frame would go
    into all that were appended since."""
    if seen is not None and not selection.same_cells(seen):
        reason = f"the selection has shape {list(selection.shape)} now, or lies elsewhere: the array was resized"
        raise WriteConflict(array.path, reason)


def _broadcast(values: NDArray, shape: tuple[int, ...], array: ArrayNode) -> NDArray:
    try:
        return np.broadcast_to(values, shape)
    except ValueError as error:
        reason = f"the selection has shape {list(shape)} now, the values have {list(values.shape)}"
        raise WriteConflict(array.path, reason) from error
