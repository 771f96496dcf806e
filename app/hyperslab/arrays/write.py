"""Writing boxes, chunks and points, with the guarantees of docs/concepts/consistency.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from hyperslab.arrays.cancel import Cancel
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.lease import Turn, alone, node_lock
from hyperslab.arrays.limits import check_chunk_count
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import Projection, points_tag, resolve_field, select, selection_tag
from hyperslab.arrays.read import Reader
from hyperslab.arrays.resize import Clearer
from hyperslab.arrays.update import ChunkWriter
from hyperslab.engine.dtypes import DataType, Field
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import (
    ChunkProjection,
    Selection,
    project,
    project_points,
    put_values,
    split_selection,
    touched,
    values_of,
)
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
from hyperslab.wire import SelectionItem

P = TypeVar("P", bound=Projection)

_MOST_KEYS_NAMED = 1000
_LARGE = 256 << 20
"""Chunks that take more bytes than this are written one after the other."""
_MOST_CHUNKS = 1 << 16
"""Chunks of one write, whose versions are known until its end."""


@dataclass(frozen=True, slots=True)
class Current:
    """What a precondition is checked against: the tag of what is stored now, and whether anything is."""

    tag: str
    exists: bool


Precondition = Callable[[Current], None]
"""Raises `errors.PreconditionFailed` if the write must not happen."""

ChunkCheck = Callable[[ArrayNode, Entry | None], None]
"""Given a chunk as it is now, and the array that it is one of; raises `errors.PreconditionFailed`."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did. ``tag`` is that of the selection with exactly the chunk versions that this write has made."""

    array: ArrayNode
    chunks: int
    tag: str


@dataclass(frozen=True, slots=True)
class _Target:
    """The cells of an array, or of a field, that a write changes. ``shape``: of the values, subarray dimensions
    included; ``tag``: makes the tag of the cells from the versions of their chunks, in the order of the projections."""

    field: Field | None
    shape: tuple[int, ...]
    projections: Sequence[Projection]
    tag: Callable[[Iterable[str | None]], str]


class Writer:
    """Writes into existing arrays. Every method blocks until all is stored; safe to call from many threads."""

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self._catalog = catalog
        self._reader = reader

    def memory(self, array: ArrayNode, chunks: int) -> int:
        """Bytes that writing so many chunks takes besides their values: of those in hand at once, what is stored, the
        changed copy, and what lies between the codecs."""
        each = self._reader.chunk_memory(array)
        return each * (1 + (0 if each > _LARGE else self._reader.pool(array.mount).most_helpers(chunks - 1, each)))

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

        def choose(array: ArrayNode) -> _Target:
            chosen = resolve_field(array, field)
            selection, chosen = split_selection(select(array, chosen, items), array.metadata.rank, chosen)
            if seen is not None and not selection.same_cells(seen):  # values for one frame would go into later ones
                now = f"the selection has shape {list(selection.shape)} now, or lies elsewhere"
                raise WriteConflict(array.path, f"{now}: the array was resized")
            check_written(array, selection, chosen)
            tag = partial(selection_tag, array, selection, chosen)
            shape = selection.shape + (chosen.shape if chosen else ())
            return _Target(chosen, shape, list(project(selection, array.metadata.grid)), tag)

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

        def choose(array: ArrayNode) -> _Target:
            chosen = resolve_field(array, field)
            count = len(coordinates[0]) if coordinates else 1  # the item of an array without axes
            shape = (count, *(chosen.shape if chosen else ()))
            tag = partial(points_tag, array, coordinates, chosen)
            return _Target(chosen, shape, list(project_points(coordinates, array.metadata.grid)), tag)

        return self._write(path, choose, values, made_for=made_for, check=check)

    def write_stored(self, path: str, coords: Coords, data: bytes | memoryview, check: ChunkCheck | None = None) -> str:
        """Store one encoded chunk; returns its version.

        Raises `BadBody` if the data does not decode to a chunk of this array, `TooLarge` if one is too large to try,
        `WriteConflict` if the array has no such chunk any more.
        """
        mount, prefix = self._catalog.locate_writable(path)
        with self._settled(path) as writers, node_lock(mount, prefix, shared=True):
            array = self._catalog.open_array(path, fresh=True)
            if coords not in array.metadata.grid:  # it would show when the array grows
                raise WriteConflict(array.chunk_key(coords), "the array was resized, and has no such chunk now")
            self._reader.check_chunk(array)
            writers.append(self._writer_of(array, coords, check))
            return writers[0].put_stored(coords, data)

    def delete_chunk(self, path: str, coords: Coords, check: ChunkCheck | None = None) -> bool:
        """Remove one chunk, so that it reads as fill; False if it was not there, or the array has no such chunk any
        more."""
        mount, prefix = self._catalog.locate_writable(path)
        with node_lock(mount, prefix, shared=True):
            array = self._catalog.open_array(path, fresh=True)
            return coords in array.metadata.grid and self._writer_of(array, coords, check).delete(coords)

    def _write(
        self,
        path: str,
        choose: Callable[[ArrayNode], _Target],
        values: NDArray,
        *,
        made_for: DataType | None,
        check: Precondition | None,
        cancel: Cancel | None = None,
    ) -> WriteResult:
        mount, prefix = self._catalog.locate_writable(path)
        with self._settled(path) as writers, node_lock(mount, prefix, shared=check is None):
            array, target = self._open(path, choose, made_for)
            # one condition holds for all chunks of a write; for a single chunk the conditional put sees to that
            divided = check is not None and len(target.projections) > 1
            with alone(mount, prefix) if divided else nullcontext(Turn()) as turn:
                if divided:
                    array, target = self._open(path, choose, made_for)
                try:
                    shaped = np.broadcast_to(values, target.shape)
                except ValueError as error:
                    now = f"the selection has shape {list(target.shape)} now, the values have {list(values.shape)}"
                    raise WriteConflict(array.path, now) from error
                expected = None
                if check is not None:
                    expected = chunk_versions(self._reader, array, target.projections)
                    check(Current(target.tag(expected.values()), any(v is not None for v in expected.values())))
                writer = ChunkWriter(self._reader, array, expected)
                writers.append(writer)

                def write(projection: Projection) -> None:
                    turn.check()  # a chunk may be as it was when the condition was checked, and the next one not
                    _write_part(writer, projection, shaped, target.field)

                write_chunks(self._reader, array, target.projections, write, cancel)
        tag = target.tag(writer.written[projection.coords] for projection in target.projections)
        return WriteResult(array, len(target.projections), tag)

    def _open(
        self, path: str, choose: Callable[[ArrayNode], _Target], made_for: DataType | None
    ) -> tuple[ArrayNode, _Target]:
        array = self._catalog.open_array(path, fresh=True)
        self._reader.check_chunk(array)
        check_dtype(array, made_for)
        return array, choose(array)

    def _writer_of(self, array: ArrayNode, coords: Coords, check: ChunkCheck | None) -> ChunkWriter:
        """A writer of one chunk, on condition of the version that ``check`` has seen."""
        if check is None:
            return ChunkWriter(self._reader, array)
        entry = array.mount.store.stat(array.chunk_key(coords))
        check(array, entry)
        return ChunkWriter(self._reader, array, {coords: None if entry is None else entry.version})

    @contextmanager
    def _settled(self, path: str) -> Iterator[list[ChunkWriter]]:
        """Takes the chunk writer of a block that holds locks, and settles what it wrote when they are free again; also
        where the write fails half way: then its error is the one to raise.

        Where replicas share the store, a shrink may have overtaken the write: then what it cut off is removed again.
        Where the array is gone or another one, so is what was written into it.
        """
        writers: list[ChunkWriter] = []
        try:
            yield writers
        except BaseException:
            with suppress(HyperslabError):
                self._settle(path, writers)
            raise
        self._settle(path, writers)

    def _settle(self, path: str, writers: Sequence[ChunkWriter]) -> None:
        for array, written in [(writer.array, writer.written) for writer in writers if writer.written]:
            if array.mount.store.capabilities.writers_safe is not WritersSafe.REPLICAS:
                return
            now = self._same_array(path, array)
            if now is not None and all(map(int.__ge__, now.metadata.shape, array.metadata.shape)):
                return
            # else it may have grown back, and what is removed be somebody else's
            with alone(array.mount, array.prefix) as turn:
                now = self._same_array(path, array)
                if now is not None:
                    Clearer(self._reader, now, turn.check).clear_late(array.metadata.shape, written)
                    continue
                for coords, version in written.items():
                    turn.check()
                    with suppress(VersionConflict):  # somebody has changed the chunk since
                        if version is not None:
                            array.mount.store.delete(array.chunk_key(coords), if_version=version)

    def _same_array(self, path: str, array: ArrayNode) -> ArrayNode | None:
        """The array as it is now; None if it is gone, or another one is in its place."""
        try:
            now = self._catalog.open_array(path, fresh=True)
        except (NodeNotFound, WrongKind):
            return None
        return now if now.data_id == array.data_id else None


def chunk_versions(reader: Reader, array: ArrayNode, projections: Iterable[Projection]) -> dict[Coords, str | None]:
    """The version of each chunk (None: absent), looked up now."""
    reader.versions.forget(array.mount, array.prefix)
    coords = [projection.coords for projection in projections]
    keys = [array.chunk_key(c) for c in coords]
    return dict(zip(coords, reader.versions.versions(array.mount, array.prefix, keys) if keys else [], strict=True))


def check_written(array: ArrayNode, selection: Selection, field: Field | None = None) -> None:
    """Raise `TooLarge`, with a split, for more chunks than one write may touch: it takes a single number to fill an
    array with more chunks than memory could keep account of."""
    count = touched(selection, array.metadata.grid)
    check_chunk_count("one write", array, selection, field, count=count, most=_MOST_CHUNKS)


def check_dtype(array: ArrayNode, seen: DataType | None) -> None:
    """Raise `WriteConflict` if values were made for items of another kind, ``seen`` before the array was replaced:
    numpy would convert them silently, and 300 would become 44."""
    now = array.metadata.dtype.json
    if seen is not None and seen.json != now:
        raise WriteConflict(array.path, f"its dtype is {now} now, and was {seen.json}: the array was replaced")


def write_chunks(
    reader: Reader,
    array: ArrayNode,
    projections: Sequence[P],
    write: Callable[[P], None],
    cancel: Cancel | None = None,
) -> None:
    """Call ``write`` for every projection; an error on the way says which chunks were written before it."""
    written: list[Coords] = []

    def one(projection: P) -> None:
        write(projection)
        written.append(projection.coords)

    each = reader.chunk_memory(array)
    try:
        if each > _LARGE:
            for projection in projections:
                one(projection)
                if cancel is not None:
                    cancel.check()
        else:
            reader.pool(array.mount).each(projections, len(projections), one, cancel, nbytes=each)
    except HyperslabError as error:
        if isinstance(error, Cancelled) or (not written and not isinstance(error, StoreError)):
            raise
        done = set(written)
        stored = [array.chunk_key(coords) for coords in written[:_MOST_KEYS_NAMED]]
        failed = [array.chunk_key(p.coords) for p in projections if p.coords not in done][:_MOST_KEYS_NAMED]
        if isinstance(error, StoreError):
            raise type(error)(error.store, error.key, error.reason, stored, failed) from error
        kind = PartlyConflicting if isinstance(error, WriteConflict) else PartlyWritten
        raise kind(array.mount.name, failed[0] if failed else "", str(error), stored, failed) from error


def _write_part(writer: ChunkWriter, projection: Projection, values: NDArray, field: Field | None) -> None:
    """Put a projection's values into its chunk, replacing the chunk if all of it is given.

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
    if box is not None and box.fills_chunk:
        writer.replace(projection.coords, change, fills=True)
    else:
        writer.update(projection.coords, change, covers=box is not None and box.covers_chunk)
