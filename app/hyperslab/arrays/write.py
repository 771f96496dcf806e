"""Writing boxes, chunks and points, with the guarantees of docs/concepts/consistency.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

import numpy as np

from hyperslab.arrays.cancel import Cancel
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.lease import Turn, alone, node_lock
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import (
    MOST_KEPT,
    Plan,
    Projection,
    ReadPlan,
    make_plan,
    make_points_plan,
    resolve_field,
    select,
    too_many_chunks,
)
from hyperslab.arrays.read import Reader
from hyperslab.arrays.resize import Clearer
from hyperslab.arrays.update import ChunkChange, ChunkWriter, Start, object_memory
from hyperslab.engine.dtypes import DataType, Field
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import ChunkProjection, put_values, values_of
from hyperslab.engine.selection import Selection
from hyperslab.errors import (
    HyperslabError,
    WriteConflict,
)
from hyperslab.storage.base import Entry
from hyperslab.wire import SelectionItem

Precondition = Callable[[str, bool], None]
"""Given the tag of what is stored now, and whether anything is; raises `errors.PreconditionFailed`."""

ChunkCheck = Callable[[ArrayNode, Entry | None], None]
"""Given a chunk as it is now, and the array that it is one of; raises `errors.PreconditionFailed`."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did. ``tag`` is that of the selection with exactly the chunk versions that this write has made."""

    array: ArrayNode
    chunks: int
    tag: str


class Writer:
    """Writes into existing arrays. Every method blocks until all is stored; safe to call from many threads."""

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self._catalog = catalog
        self._reader = reader

    def memory(self, array: ArrayNode, objects: int) -> int:
        """Bytes that writing so many stored objects takes besides their values: of those in hand at once, what is
        stored, the changed copy, and what lies between the codecs."""
        each = object_memory(self._reader, array)
        return each * (1 + array.mount.pool.most_helpers(objects - 1, each))

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
    ) -> WriteResult:
        """Store ``values`` (broadcast to the selection, subarray dimensions last) in the cells that ``items`` select.

        ``seen``: which cells these were when the caller looked; ``made_for``: the data type that it saw; None if it did
        not look. Raises `ReadOnly`, `IndexOutOfRange`, `TooLarge` for very many chunks or very large ones,
        `WriteConflict` if the array was resized or replaced since the caller looked, so that they are others now, and
        what `ChunkWriter` raises; then the error, or `PartlyWritten`, names the chunks that were stored.
        """

        def choose(array: ArrayNode) -> Plan:
            chosen = resolve_field(array, field)
            selection, chosen = select(array, chosen, items)
            if seen is not None and not selection.same_cells(seen):  # values for one frame would go into later ones
                now = f"the selection has shape {list(selection.shape)} now, or lies elsewhere"
                raise WriteConflict(array.path, f"{now}: the array was resized")
            return plan_write(array, selection, chosen)

        return self._write(path, choose, values, made_for=made_for, check=check, cancel=cancel)

    def write_points(
        self,
        path: str,
        coordinates: Sequence[NDArray],
        values: NDArray,
        *,
        field: str | None = None,
        made_for: DataType | None = None,
        check: Precondition | None = None,
    ) -> WriteResult:
        """Store one value (or subarray) per point; of points named twice the last wins. Raises as `write`."""

        def choose(array: ArrayNode) -> Plan:
            return make_points_plan(array, coordinates, field=resolve_field(array, field))

        return self._write(path, choose, values, made_for=made_for, check=check)

    def write_stored(
        self,
        path: str,
        coords: Coords,
        data: bytes | memoryview,
        check: ChunkCheck | None = None,
        *,
        inside: bool = False,
    ) -> str:
        """Store one encoded chunk, or a shard as a whole; returns the version of what is stored. ``coords``: in the
        grid of what is stored, or if ``inside``, of the chunks in it.

        Raises `BadBody` if the data does not decode to a chunk of this array, `TooLarge` if one is too large to try,
        `WriteConflict` if the array has no such chunk any more.
        """
        with self._locked(path) as (array, writers):
            metadata = array.metadata
            stored = metadata.stored_coords(coords) if inside else coords
            if coords not in (metadata.grid if inside else metadata.stored_grid):  # it would show when the array grows
                raise WriteConflict(array.chunk_key(stored), "the array was resized, and has no such chunk now")
            self._reader.check_chunk(array, writing=True)
            writers.append(self._writer_of(array, stored, check))
            return writers[0].put_stored(stored, data, coords if inside else None)

    def delete_stored(
        self, path: str, coords: Coords, check: ChunkCheck | None = None, *, inside: bool = False
    ) -> bool:
        """Remove one chunk, or a shard as a whole, so that it reads as fill; ``coords`` as for `write_stored`. False if
        it was not there, or the array has no such chunk any more."""
        with self._locked(path) as (array, writers):
            metadata = array.metadata
            if coords not in (metadata.grid if inside else metadata.stored_grid):
                return False
            if not (inside and metadata.levels):
                return self._writer_of(array, coords, check).delete(coords)
            stored = metadata.stored_coords(coords)
            self._reader.check_chunk(array, writing=True)
            writers.append(self._writer_of(array, stored, check))
            writers[0].update(stored, [ChunkChange(coords, None, Start.LEFT)])
            return stored in writers[0].written

    def _write(
        self,
        path: str,
        choose: Callable[[ArrayNode], Plan],
        values: NDArray,
        *,
        made_for: DataType | None,
        check: Precondition | None,
        cancel: Cancel | None = None,
    ) -> WriteResult:
        def plan_write(array: ArrayNode) -> Plan:
            self._reader.check_chunk(array, writing=True)
            check_dtype(array, made_for)
            return choose(array)

        with self._locked(path, shared=check is None) as (now, writers):
            plan = plan_write(now)
            # one condition holds for all chunks of a write; for a single chunk the conditional put sees to that
            divided = check is not None and plan.stored > 1
            with alone(now.mount, now.prefix) if divided else nullcontext(Turn()) as turn:
                if divided:  # others may have changed it before
                    plan = plan_write(self._catalog.open_array(path, fresh=True))
                array, field = plan.array, plan.field
                try:
                    shaped = np.broadcast_to(values, plan.shape)
                except ValueError as error:
                    reason = f"the selection has shape {list(plan.shape)} now, the values have {list(values.shape)}"
                    raise WriteConflict(array.path, reason) from error
                expected = None
                if check is not None:
                    plan = self._reader.look_up(plan, fresh=True)
                    expected = plan.versions or {}
                    check(plan.tag, any(v is not None for v in expected.values()))
                # an object may be as it was when the condition was checked, and the next one not
                writer = ChunkWriter(self._reader, array, expected, check=turn.check)
                writers.append(writer)

                def write(coords: Coords, parts: Iterable[Projection]) -> None:
                    writer.update(coords, [_change(part, shaped, field) for part in parts])

                writer.write_each(plan.objects(), write, cancel)
        return WriteResult(array, plan.touched, plan.tag_of(map(writer.written.__getitem__, plan.coords())))

    def _writer_of(self, array: ArrayNode, coords: Coords, check: ChunkCheck | None) -> ChunkWriter:
        """A writer of one chunk, on condition of the version that ``check`` has seen."""
        if check is None:
            return ChunkWriter(self._reader, array)
        entry = array.mount.store.stat(array.chunk_key(coords))
        check(array, entry)
        return ChunkWriter(self._reader, array, {coords: None if entry is None else entry.version})

    @contextmanager
    def _locked(self, path: str, *, shared: bool = True) -> Iterator[tuple[ArrayNode, list[ChunkWriter]]]:
        """Context in which the node lock is held: gives the array as it is now, and takes the writer of its chunks.
        What that wrote is settled when the lock is free again; also where the write fails half way: then its error is
        the one to raise.

        Where replicas share the store, a shrink may have overtaken the write: then what it cut off is removed again.
        Where the array is gone or another one, so is what was written into it.
        """
        mount, prefix = self._catalog.locate_writable(path)
        writers: list[ChunkWriter] = []
        try:
            with node_lock(mount, prefix, shared=shared):
                yield self._catalog.open_array(path, fresh=True), writers
        except BaseException:
            with suppress(HyperslabError):
                self._settle(path, writers)
            raise
        self._settle(path, writers)

    def _settle(self, path: str, writers: Sequence[ChunkWriter]) -> None:
        for writer in writers:
            array = writer.array
            if not (array.mount.has_replicas and writer.written):
                continue
            now = self._same_array(path, array)
            if now is not None and all(map(int.__ge__, now.metadata.shape, array.metadata.shape)):
                continue
            # else it may have grown back, and what is removed be somebody else's
            with alone(array.mount, array.prefix) as turn:
                now = self._same_array(path, array)
                if now is None:
                    writer.take_back(turn.check)
                else:
                    Clearer(self._reader, now, turn.check).clear_outside(array.metadata.shape, writer.written)

    def _same_array(self, path: str, array: ArrayNode) -> ArrayNode | None:
        """The array as it is now; None if it is gone, or another one is in its place."""
        now = self._catalog.find_node(path, fresh=True)
        return now if isinstance(now, ArrayNode) and now.data_id == array.data_id else None


def plan_write(array: ArrayNode, selection: Selection, field: Field | None = None) -> ReadPlan:
    """What writing a selection comes to. Raises `TooLarge`, with a split, for more chunks than one write may touch: it
    takes a single number to fill an array with more chunks than memory could keep account of."""
    plan = make_plan(array, selection, field=field)
    if plan.touched > MOST_KEPT:
        raise too_many_chunks("one write", array, selection, field, plan.touched, MOST_KEPT)
    return plan


def check_dtype(array: ArrayNode, seen: DataType | None) -> None:
    """Raise `WriteConflict` if values were made for items of another kind, ``seen`` before the array was replaced:
    numpy would convert them silently, and 300 would become 44."""
    now = array.metadata.dtype.json
    if seen is not None and seen.json != now:
        raise WriteConflict(array.path, f"its dtype is {now} now, and was {seen.json}: the array was replaced")


def _change(projection: Projection, values: NDArray, field: Field | None) -> ChunkChange:
    """What puts a projection's values into its chunk, replacing the chunk if all of it is given.

    What an edge chunk holds beyond the edge of the array is not given: other libraries leave values there, which they
    show when they grow the array.
    """

    def change(chunk: NDArray) -> None:
        if field is None:
            projection.copy_in(values, chunk)
            return
        inner = values_of(field, chunk)
        projection.copy_in(values, inner)
        put_values(field, chunk, inner)

    box = projection if isinstance(projection, ChunkProjection) and field is None else None
    fills, covers = box is not None and box.fills_chunk, box is not None and box.covers_chunk
    start = Start.ANYTHING if fills else Start.READABLE if covers else Start.STORED
    return ChunkChange(projection.coords, change, start)
