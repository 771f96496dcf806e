"""Writes of boxes, chunks and points, with the guarantees of docs/concepts/consistency.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.chunk_keys import remember_keys
from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.lease import Permit, node_lease, node_lock
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import Plan, Projection, resolve_field, select
from hyperslab.arrays.read import Reader
from hyperslab.arrays.resize import Clearer
from hyperslab.arrays.update import ChunkChange, ChunkWriter, Start, write_memory
from hyperslab.arrays.workers import Cancel
from hyperslab.engine.dtypes import DataType, Field
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import ChunkProjection, put_values, values_of
from hyperslab.engine.selection import Selection
from hyperslab.errors import HyperslabError, WriteConflict
from hyperslab.storage.base import Entry
from hyperslab.wire import SelectionItem

Precondition = Callable[[str, bool], None]
"""Precondition on the stored tag, and on whether anything is stored; raises `errors.PreconditionFailed`."""

ChunkCheck = Callable[[ArrayNode, Entry | None], None]
"""Precondition on an array and the present entry of one of its chunks; raises `errors.PreconditionFailed`."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The number of chunks of a write, and the ``tag`` of its selection with exactly the versions that it stored."""

    chunks: int
    tag: str


class Writer:
    """Writes into existing arrays. Every method blocks until all is stored. Thread-safe."""

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self._catalog = catalog
        self._reader = reader

    def memory(self, array: ArrayNode, objects: int) -> int:
        """Memory to write a number of stored objects, besides their values: stored bytes, changed copies and
        intermediate results of concurrent tasks."""
        _, per_object = write_memory(array, self._reader.slab_bytes)
        return per_object * (1 + array.mount.pool.max_helpers(objects - 1, per_object)) if per_object else 0

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
        """Store ``values`` (broadcast to the selection, subarray dimensions last) in the selected cells.

        ``seen``: the selection, and ``made_for``: the data type, when the caller opened the array; else None. Raises
        `ReadOnly`, `IndexOutOfRange`, `TooLarge` for too many chunks or too large ones, `WriteConflict` if a resize or
        replacement of the array has changed the selected cells since, and the errors of `ChunkWriter`; these, or
        `PartlyWritten`, name the stored chunks.
        """

        def plan(array: ArrayNode) -> Plan:
            check_dtype(array, made_for)
            selection, chosen = select(array, resolve_field(array, field), items)
            if seen is not None and not selection.same_cells(seen):  # indexes from the end have moved
                now = f"the selection has shape {list(selection.shape)} now, or lies elsewhere"
                raise WriteConflict(array.path, f"{now}: the array was resized")
            return self._reader.plan(array, selection, chosen, writing=True)

        return self._write(path, plan, values, check, cancel)

    def fill(self, array: ArrayNode, items: Sequence[SelectionItem], values: NDArray) -> None:
        """Store the values of whole stored objects of a new array, whose document is stored when all of it is: nobody
        else opens it before. What such an object held is replaced. Raises as `ChunkWriter.replace`."""
        plan = self._reader.plan(array, select(array, None, items)[0], writing=True)
        writer = ChunkWriter(self._reader, array)

        def write(coords: Coords, parts: Iterable[Projection]) -> None:
            writer.replace(coords, [_change(part, values, None) for part in parts])

        writer.write_each(plan.objects(), write)

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
        """Store one value (or subarray) per point; of duplicate points the last wins. Raises as `write`."""

        def plan(array: ArrayNode) -> Plan:
            check_dtype(array, made_for)
            return self._reader.plan_points(array, coordinates, resolve_field(array, field), writing=True)

        return self._write(path, plan, values, check)

    def write_stored(
        self,
        path: str,
        coords: Coords,
        data: bytes | memoryview,
        check: ChunkCheck | None = None,
        *,
        inside: bool = False,
    ) -> str:
        """Store one encoded chunk, or a whole shard; returns its version. ``coords``: in the grid of stored objects, or
        if ``inside``, of the chunks within them.

        Raises `BadBody` if the data does not decode to a chunk of this array, `TooLarge` if a chunk is too large to
        try, `WriteConflict` if the array has no such chunk any more.
        """
        with self._locked(path) as (array, writers):
            metadata = array.metadata
            stored = metadata.stored_coords(coords) if inside else coords
            if coords not in (metadata.grid if inside else metadata.stored_grid):  # would appear on growth
                raise WriteConflict(array.chunk_key(stored), "the array was resized, and has no such chunk now")
            self._reader.check_chunk(array, writing=True)
            writers.append(self._writer_of(array, stored, check))
            return writers[0].put_stored(stored, data, coords if inside else None)

    def delete_stored(
        self, path: str, coords: Coords, check: ChunkCheck | None = None, *, inside: bool = False
    ) -> bool:
        """Remove one chunk, or a whole shard, which then reads as fill values; ``coords`` as for `write_stored`. False
        if it was absent, or is outside the array by now."""
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
        make_plan: Callable[[ArrayNode], Plan],
        values: NDArray,
        check: Precondition | None,
        cancel: Cancel | None = None,
    ) -> WriteResult:
        with self._locked(path, shared=check is None) as (now, writers):
            plan = make_plan(now)
            # one condition for all chunks of a write; for a single chunk the conditional put is sufficient
            divided = check is not None and plan.stored > 1
            with node_lease(now.mount, now.prefix) if divided else nullcontext(Permit()) as permit:
                if divided:  # another writer may have been faster
                    plan = make_plan(self._catalog.open_array(path, fresh=True))
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
                # single objects may still be unchanged since the check while others are not
                writer = ChunkWriter(self._reader, array, expected, check=permit.check)
                writers.append(writer)

                def write(coords: Coords, parts: Iterable[Projection]) -> None:
                    writer.update(coords, [_change(part, shaped, field) for part in parts])

                writer.write_each(plan.objects(), write, cancel)
        return WriteResult(plan.touched, plan.tag_of([writer.written[stored.coords] for stored in plan.objects()]))

    def _writer_of(self, array: ArrayNode, coords: Coords, check: ChunkCheck | None) -> ChunkWriter:
        """A writer of one chunk, conditional on the version passed to ``check``."""
        if check is None:
            return ChunkWriter(self._reader, array)
        entry = array.mount.store.stat(array.chunk_key(coords))
        check(array, entry)
        return ChunkWriter(self._reader, array, {coords: None if entry is None else entry.version})

    @contextmanager
    def _locked(self, path: str, *, shared: bool = True) -> Iterator[tuple[ArrayNode, list[ChunkWriter]]]:
        """Context with the node lock: gives the present array, and takes the writer of its chunks.

        If replicas share the store, written chunks outside a concurrent shrink are cleared again after the lock is
        released, and removed if the array was removed or replaced; also after a failed write, whose error takes
        precedence.
        """
        mount, prefix = self._catalog.locate_writable(path)
        writers: list[ChunkWriter] = []
        try:
            with node_lock(mount, prefix, shared=shared):
                yield self._catalog.open_array(path, fresh=True), writers
                for writer in writers:
                    if any(writer.written.values()):
                        remember_keys(writer.array)
        except BaseException:
            with suppress(HyperslabError):
                self._clear_late(path, writers)
            raise
        if mount.has_replicas:
            self._clear_late(path, writers)

    def _clear_late(self, path: str, writers: Sequence[ChunkWriter]) -> None:
        for writer in writers:
            array = writer.array
            if not (array.mount.has_replicas and writer.written):
                continue
            now = self._same_array(path, array)
            if now is not None and all(map(int.__ge__, now.metadata.shape, array.metadata.shape)):
                continue
            # else a later growth could show chunks of other writers
            with node_lease(array.mount, array.prefix) as permit:
                now = self._same_array(path, array)
                if now is None:
                    writer.remove_written(permit.check)
                else:
                    Clearer(self._reader, now, permit.check).clear_outside(array.metadata.shape, writer.written)

    def _same_array(self, path: str, array: ArrayNode) -> ArrayNode | None:
        """The present array; None if it was removed or replaced."""
        now = self._catalog.find_node(path, fresh=True)
        return now if isinstance(now, ArrayNode) and now.data_id == array.data_id else None


def check_dtype(array: ArrayNode, seen: DataType | None) -> None:
    """Raise `WriteConflict` if the array was replaced by one of another data type than ``seen``: numpy would convert
    values silently, and 300 would become 44."""
    now = array.metadata.dtype.json
    if seen is not None and seen.json != now:
        raise WriteConflict(array.path, f"its dtype is {now} now, and was {seen.json}: the array was replaced")


def _change(projection: Projection, values: NDArray, field: Field | None) -> ChunkChange:
    """The change that puts a projection's values into its chunk, or replaces the chunk if all of it is selected.

    Cells outside the array do not count as selected: other libraries leave values there, which show when they grow the
    array.
    """

    def change(chunk: NDArray) -> None:
        if field is None:
            projection.copy_in(values, chunk)
            return
        inner = values_of(field, chunk)
        projection.copy_in(values, inner)
        put_values(field, chunk, inner)

    start = Start.STORED
    if isinstance(projection, ChunkProjection) and field is None:
        start = Start.ANYTHING if projection.fills_chunk else Start.READABLE if projection.covers_chunk else start
    return ChunkChange(projection.coords, change, start)
