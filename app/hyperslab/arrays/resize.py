"""Changes of an array's shape under which no reader ever sees foreign data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice, product
from math import prod
from typing import Any

from hyperslab.arrays import documents
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.extent import LARGEST, Shape, doubtful_extent, extent, larger, with_own
from hyperslab.arrays.lease import Permit, node_lease, node_lock, retried
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import MAX_VERSIONS
from hyperslab.arrays.read import Reader
from hyperslab.arrays.update import ChunkChange, ChunkWriter, Start, is_all_fill
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.errors import (
    BadDefinition,
    ChunkCorrupt,
    ConsolidatedBehind,
    Overloaded,
    StoredTooLarge,
    TooLarge,
    WriteConflict,
)
from hyperslab.storage.base import VersionConflict


class Resizer:
    """Grows and shrinks arrays: the new shape is published first, then cells outside it are cleared.

    While cells outside the shape may hold data, the document records that (see `extent.py`), in the same put as the
    shape. They are cleared before growth, so data left by a crash cannot reappear.
    """

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self._catalog = catalog
        self._reader = reader

    def resize(
        self,
        path: str,
        shape: Sequence[int | None],
        *,
        expand_only: bool = False,
        shrink_only: bool = False,
        attributes: Mapping[str, Any] | None = None,
        check: Callable[[ArrayNode], None] | None = None,
    ) -> ArrayNode:
        """Give an array a new shape (None keeps an axis), perhaps with a merge patch of its attributes; returns the
        changed array.

        Attributes are stored first: they may conflict with other writers, and removed cells cannot be restored. Raises,
        with nothing changed, `BadDefinition` for a wrong rank or size, a change of an axis in a forbidden direction, or
        invalid attributes; the exception of ``check`` for the present array; `WriteConflict` if others keep changing
        the metadata, or have changed the shape alone after the check. `TooLarge` as in `publish`.
        """
        mount, prefix = self._catalog.locate_writable(path)

        def attempt() -> ArrayNode:
            nonlocal attributes
            array, patched = self._catalog.open_array(path, fresh=True), False
            if check is not None:
                check(array)
            wanted = _wanted(array.metadata.shape, shape, expand_only=expand_only, shrink_only=shrink_only)
            if attributes is not None:
                if wanted != array.metadata.shape:  # it could not be stored
                    mount.check_not_assumed(prefix)
                with suppress(ConsolidatedBehind):  # which is repeated with that of the shape
                    documents.merge_attributes(mount, array, attributes)
                attributes, patched = None, True
                if array.zarr_format == 3:  # attributes and shape share a document
                    array = self._catalog.open_array(path, fresh=True)
            try:
                if wanted != array.metadata.shape:
                    self.publish(array, array.metadata.with_shape(wanted), permit)
            except VersionConflict as conflict:
                if patched and check is not None:  # the tags of the check have changed
                    reason = "the attributes are changed; the shape is not, another writer came first"
                    raise WriteConflict(path, reason) from conflict
                raise
            documents.update_copies_of(array)
            return self._catalog.open_array(path, fresh=True)

        # wait for appends in progress
        with node_lock(mount, prefix), node_lease(mount, prefix) as permit:
            return retried(path, attempt, permit.take_again)

    def clear_beyond(self, array: ArrayNode, permit: Permit) -> None:
        """Clear cells outside the shape before a larger one, or one without a record of them, is stored. Raises
        `WriteConflict` if the permit is lost, as the cells may then belong to the next holder."""
        left = extent(array.metadata)
        if left is not None:
            Clearer(self._reader, array, permit.check).clear_outside(left)

    def publish(self, array: ArrayNode, metadata: ArrayMetadata, permit: Permit) -> None:
        """Store new metadata (with another shape only) and clear cells outside it. The caller holds the node lock.
        Raises, before anything is stored, `VersionConflict` if the metadata has changed meanwhile, and `TooLarge` if
        the shape cuts chunks too large to be decoded."""
        before, now = array.metadata.shape, metadata.shape
        left = larger(before, extent(array.metadata))
        Clearer(self._reader, replace(array, metadata=metadata), permit.check).check_decodable(left)
        if any(n > b for n, b in zip(now, before, strict=True)):
            self.clear_beyond(array, permit)
            clearer = Clearer(self._reader, array, permit.check)
            clearer.clear_edges(now)
            clearer.clear_whole(now)
            clearer.fill_late(now)
        if all(n >= b for n, b in zip(now, before, strict=True)):
            documents.publish_metadata(array, with_own(metadata, extent=None))
            return
        documents.publish_metadata(array, with_own(metadata, extent=left))
        # the shrink is recorded: the next growth clears the rest
        with suppress(WriteConflict, VersionConflict, Overloaded):
            permit.take_again()
            array = self._catalog.open_array(array.path, fresh=True)
            if extent(array.metadata) is not None:
                self.clear_beyond(array, permit)
                documents.publish_metadata(array, with_own(array.metadata, extent=None))


def _wanted(before: Shape, shape: Sequence[int | None], *, expand_only: bool, shrink_only: bool) -> Shape:
    if len(shape) != len(before):
        raise BadDefinition("shape", f"the array has {len(before)} axes, {len(shape)} sizes were given")
    wanted = tuple(was if now is None else now for now, was in zip(shape, before, strict=True))
    for axis, (now, was) in enumerate(zip(wanted, before, strict=True)):
        if not 0 <= now <= LARGEST:
            raise BadDefinition("shape", f"axis {axis} cannot have size {now}: expected 0 to 2**62 - 1")
        if expand_only and now < was:
            raise BadDefinition("shape", f"axis {axis} would shrink from {was} to {now}, and expand_only was asked for")
        if shrink_only and now > was:
            raise BadDefinition("shape", f"axis {axis} would grow from {was} to {now}, and shrink_only was asked for")
    return wanted


class Clearer:
    """Clears cells outside an array's shape: those of a shrink, and those left by other programs.

    A stored object is a chunk, or a shard, whose inner chunks are cleared. ``check`` is called between read and change,
    as the data may belong to another writer once the permit is lost; its exception ends the work, which may be repeated
    safely. If replicas share the store, chunks are conditionally set to the fill value instead of removed: a delete
    could arrive late, and an absent key blocks no late put.
    """

    def __init__(self, reader: Reader, array: ArrayNode, check: Callable[[], None]) -> None:
        self._reader = reader
        self._array = array
        self._check = check
        self._grid = array.metadata.stored_grid
        self._shared = array.mount.has_replicas
        self._writer = ChunkWriter(reader, array, fences=self._shared, check=check)
        self._pool = array.mount.pool

    def check_decodable(self, before: Shape) -> None:
        """Raise `TooLarge` if the shape cuts chunks that are too large to be decoded."""
        cut = any(n < b and n % c for n, b, c in zip(self._grid.shape, before, self._grid.chunks, strict=True))
        if cut and all(self._grid.shape):  # empty arrays have no edge chunks
            self._reader.check_chunk(self._array, writing=True)

    def clear_outside(self, before: Shape, written: Mapping[Coords, str | None] | None = None) -> None:
        """Clear cells outside the array's shape and inside the shape ``before``: whole chunks, and the ends of edge
        chunks. Cost grows with the number of affected chunks. Raises as `check_decodable` does, before anything is
        changed. The caller prevents concurrent changes of the shape.

        ``written``: versions of chunks written concurrently with a shrink; then only these are cleared.
        """
        self.check_decodable(before)
        whole = _whole_chunks(before, self._grid)
        versions = self._stored(before) if written is None else written.items()
        stored = {coords: version for coords, version in versions if version is not None and _is_cut(coords, whole)}

        def clear(coords: Coords) -> None:
            if coords in self._grid:
                self._writer.update(coords, self._ends(coords, self._clear_end))
            else:
                self._set_to_fill(coords, stored[coords])

        removed = [] if self._shared else [coords for coords in stored if coords not in self._grid]
        self._writer.delete_each(removed)
        cut = [coords for coords in stored if self._shared or coords in self._grid]
        self._pool.each(cut, len(cut), clear, nbytes=self._writer.memory)

    def clear_edges(self, shape: Shape) -> None:
        """Set cells of edge chunks outside the array's shape to the fill value, along axes that are longer in
        ``shape``: writers of whole chunks may leave values there.

        Chunks are read, and written only if needed. Chunks that are corrupt or too large to decode stay, and show no
        values either. Raises `TooLarge` for readable shards that are too large to be changed.
        """
        grid = self._grid
        sizes = zip(grid.shape, shape, grid.chunks, strict=True)
        whole = tuple(-(-size // chunk) * chunk if longer > size else size for size, longer, chunk in sizes)
        edges = self._stored(whole)

        def change(coords: Coords, chunk: NDArray) -> bool:
            if all(is_all_fill(chunk[beyond], self._array.metadata) for beyond in self._beyond(coords)):
                return False
            self._clear_end(coords, chunk)
            return True

        def clear(coords: Coords) -> None:
            with suppress(ChunkCorrupt, StoredTooLarge):
                self._writer.update(coords, self._ends(coords, change, Start.LEFT, removes=False))

        while batch := [coords for coords, _ in islice(edges, 4096)]:  # all of them may exceed the memory
            try:
                self._reader.check_chunk(self._array)
            except TooLarge:
                return
            self._reader.check_chunk(self._array, writing=True)
            self._pool.each(batch, len(batch), clear, nbytes=self._writer.memory)

    def clear_whole(self, shape: Shape) -> None:
        """Remove whole stored objects beyond the array's shape that a larger ``shape`` would show: other programs may
        have left them there."""
        beyond = self._stored(larger(self._grid.shape, shape))
        left = {coords: version for coords, version in beyond if coords not in self._grid}

        if self._shared:
            self._pool.each(list(left), len(left), lambda coords: self._set_to_fill(coords, left[coords]))
        else:
            self._writer.delete_each([*left])

    def fill_late(self, shape: Shape) -> None:
        """Store fill values in absent chunks that a larger ``shape`` would show and a late request may still store; its
        condition then fails. Raises `WriteConflict` for more chunks than one write may touch."""
        in_doubt = doubtful_extent(self._array.metadata)
        if in_doubt is None:
            return
        boxes = list(_cut_boxes(tuple(map(min, in_doubt, larger(self._grid.shape, shape))), self._grid))
        count = sum(prod(map(len, box)) for box in boxes)
        if count > MAX_VERSIONS:
            doubtful = f"requests of a writer that was cut off may be on their way to {count} chunks"
            raise WriteConflict(self._array.path, f"{doubtful}: grow in smaller steps")
        absent = [coords for coords, version in self._stored_in(boxes) if version is None]
        self._pool.each(absent, len(absent), lambda coords: self._set_to_fill(coords, None))

    def _set_to_fill(self, coords: Coords, version: str | None) -> None:
        """Conditional put of fill values without a read, on top of ``version``, or of the next one."""
        store, key = self._array.mount.store, self._array.chunk_key(coords)

        def attempt() -> None:
            nonlocal version
            self._check()
            try:
                ChunkWriter(self._reader, self._array, {coords: version}, fences=True).replace(coords)
            except WriteConflict as conflict:
                (version,) = store.versions(self._array.prefix, [key])
                raise VersionConflict(key, version) from conflict

        retried(key, attempt)

    def _stored(self, before: Shape) -> Iterator[tuple[Coords, str]]:
        """Stored chunks of an array of the shape ``before`` that its present shape removes or cuts, and their
        versions."""
        array, grid = self._array, self._grid
        boxes = list(_cut_boxes(before, grid))
        if sum(prod(map(len, box)) for box in boxes) <= 10_000:  # else a listing is faster
            yield from ((coords, version) for coords, version in self._stored_in(boxes) if version is not None)
            return
        if not array.mount.store.capabilities.listable:
            return
        old, whole = replace(grid, shape=before), _whole_chunks(before, grid)
        for entry in array.mount.store.list_prefix(array.prefix):
            coords = old.parse_key(entry.key[len(array.prefix) :])
            if coords is not None and _is_cut(coords, whole):
                yield coords, entry.version

    def _stored_in(self, boxes: Sequence[Sequence[range]]) -> Iterator[tuple[Coords, str | None]]:
        array = self._array
        candidates = [coords for box in boxes for coords in product(*box)]
        keys = [array.chunk_key(coords) for coords in candidates]
        return zip(candidates, array.mount.store.versions(array.prefix, keys) if keys else [], strict=True)

    def _ends(
        self,
        coords: Coords,
        change: Callable[[Coords, NDArray], object],
        start: Start = Start.STORED,
        *,
        removes: bool = True,
    ) -> list[ChunkChange]:
        """The change that clears cells of an edge object outside the shape: of chunks cut by the edge and, unless it
        ``removes`` them, of chunks beyond it."""
        inside, ends = self._array.metadata.grid, []
        for chunk in self._array.metadata.chunks_in(coords):
            if removes and chunk not in inside:
                ends.append(ChunkChange(chunk, None, start))
            elif inside.extent(chunk) != inside.chunks:
                ends.append(ChunkChange(chunk, partial(change, chunk), start))
        return ends

    def _clear_end(self, coords: Coords, chunk: NDArray) -> None:
        """Set cells of an edge chunk outside the shape to the fill value."""
        for beyond in self._beyond(coords):
            chunk[beyond] = self._array.metadata.fill

    def _beyond(self, coords: Coords) -> list[tuple[slice, ...]]:
        """The slice of a chunk outside the shape, along each axis."""
        sizes = self._array.metadata.grid.extent(coords)
        return [(slice(None),) * axis + (slice(max(size, 0), None),) for axis, size in enumerate(sizes)]


def bury_late(array: object, check: Callable[[], None]) -> None:
    """Put tombstones for absent chunks of a removed array that a late request may still store, as they would become
    chunks of the next array; for at most as many as one write may touch, and along an axis without end, as while a
    stream writes, for the next of them, as many as one of its requests may store."""
    if not isinstance(array, ArrayNode):
        return
    in_doubt, store = doubtful_extent(array.metadata), array.mount.store
    if in_doubt is None or not array.mount.has_replicas:
        return
    boxes = list(_cut_boxes(in_doubt, array.metadata.stored_grid))
    for box in boxes:
        beside = prod(len(axis) for axis in box if len(axis) <= MAX_VERSIONS)
        # a request of a stream stores 16 MiB at most, or few rows
        rows = max(8, (16 << 20) // (beside * array.metadata.shard_nbytes))
        most = max(1, min(1024 // beside, rows))
        box[:] = [axis if len(axis) <= MAX_VERSIONS else axis[:most] for axis in box]
    candidates = (coords for box in boxes for coords in product(*box))
    check()
    store.put_tombstones([array.chunk_key(coords) for coords in islice(candidates, MAX_VERSIONS)])


def _cut_boxes(before: Shape, grid: ChunkGrid) -> Iterator[list[range]]:
    """Disjoint boxes of coordinates of all chunks that lose cells when the shape ``before`` becomes that of the
    grid."""
    counts, whole = ChunkGrid(before, grid.chunks).counts, _whole_chunks(before, grid)
    for axis, (first, count) in enumerate(zip(whole, counts, strict=True)):
        if first < count:
            yield [*map(range, whole[:axis]), range(first, count), *map(range, counts[axis + 1 :])]


def _whole_chunks(before: Shape, grid: ChunkGrid) -> list[int]:
    """The number of leading chunks without lost cells along each axis."""
    sizes = zip(before, grid.shape, grid.chunks, strict=True)
    return [now // chunk if now < was else -(-was // chunk) for was, now, chunk in sizes]


def _is_cut(coords: Coords, whole: Sequence[int]) -> bool:
    return any(coord >= count for coord, count in zip(coords, whole, strict=True))
