"""Append: write data beyond the shape, then publish the longer shape. Idempotency keys make retries harmless."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.documents import publish_metadata, put_metadata, update_copies_of
from hyperslab.arrays.extent import LARGEST, extent, larger, remembered, with_own
from hyperslab.arrays.lease import Permit, node_lease, node_lock, retried
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.read import Reader
from hyperslab.arrays.update import ChunkChange, ChunkWriter, Start
from hyperslab.arrays.write import check_dtype
from hyperslab.engine.dtypes import DataType
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.engine.indexing import ChunkProjection
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.selection import Selection, normalise
from hyperslab.errors import AppendConflict, BadBody, BadDefinition, BadParameter, PartlyConflicting, WriteConflict
from hyperslab.storage.base import VersionConflict
from hyperslab.wire import IDEMPOTENCY_KEY, pack_objects


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Result of an append: ``offset`` and ``length`` along ``axis``; ``repeated`` if an earlier request did it."""

    array: ArrayNode
    axis: int
    offset: int
    length: int
    repeated: bool


class Appender:
    """Appends to arrays. Appends to one array are serialised and get disjoint regions."""

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self._catalog = catalog
        self._reader = reader

    def append(
        self,
        path: str,
        values: NDArray,
        *,
        axis: int = 0,
        at: int | None = None,
        idempotency_key: str | None = None,
        made_for: DataType | None = None,
        check: Callable[[ArrayNode], None] | None = None,
    ) -> AppendResult:
        """Store ``values`` at the end of ``axis``, then publish the longer shape: no reader sees fill in between.

        ``at`` is where the caller believes the array to end: `AppendConflict` if it does not. A request whose
        ``idempotency_key`` one of the last 64 appends had returns what that append returned and stores nothing, even
        where ``check`` no longer holds: the append itself may be why. `BadParameter` if that append had other values or
        another place. `WriteConflict` if the array no longer has the data type that the values were ``made_for``.
        `TooLarge` before anything is stored.
        """
        mount, prefix = self._catalog.locate_writable(path)
        key = None if idempotency_key is None else _Key(idempotency_key, at, digest_of(values))
        announced: str | None = ""  # version of the node for which the condition still holds

        def attempt() -> AppendResult:
            nonlocal axis, announced
            while True:
                array = self._catalog.open_array(path, fresh=True)
                check_dtype(array, made_for)
                rank = len(array.metadata.shape)
                if not -rank <= axis < rank:
                    raise BadParameter("axis", axis, f"an axis of the array, which has {rank}")
                axis %= rank
                repeated = None if key is None else key.find(array, axis, values)
                if repeated is not None:
                    update_copies_of(array)
                    return repeated
                if check is not None and array.version != announced:
                    check(array)
                if at is not None and at != array.metadata.shape[axis]:
                    raise AppendConflict(array.path, axis, at, array.metadata.shape[axis])
                grown = _LongerArray(array, values, axis)
                announced = self._announce(grown)
                if announced is None:
                    return self._append_once(grown, key, permit)

        with node_lock(mount, prefix), node_lease(mount, prefix) as permit:
            return retried(path, attempt, permit.take_again)

    def _announce(self, grown: _LongerArray) -> str | None:
        """Record in the metadata how far data may reach. None if it already does; else the new version of the node, for
        which the condition of the append still holds. Raises `VersionConflict`."""
        array = grown.array
        self._reader.plan(grown.after, grown.region, writing=True)
        reserved = extent(array.metadata)
        if not grown.length or (
            reserved is not None and all(n <= r for n, r in zip(grown.metadata.shape, reserved, strict=True))
        ):
            return None
        # what lies beyond the shape along the other axes is still there
        version = put_metadata(array, with_own(array.metadata, extent=larger(grown.ahead, reserved)))
        return array.version.replace(array.metadata_version, version, 1)

    def _append_once(self, grown: _LongerArray, key: _Key | None, permit: Permit) -> AppendResult:
        """Raises `VersionConflict` if another writer came first, in the metadata or a chunk at the old edge."""
        array, metadata, axis, length = grown.array, grown.metadata, grown.axis, grown.length
        if length == 0 and key is None:
            return AppendResult(array, axis, grown.offset, 0, repeated=False)
        try:
            self._write(grown, permit)
        except (WriteConflict, PartlyConflicting) as conflict:
            raise VersionConflict(array.document_key, None) from conflict
        reserved = extent(array.metadata)
        if reserved is not None and min(LARGEST, metadata.shape[axis] + length) > reserved[axis]:
            metadata = with_own(metadata, extent=larger(reserved, grown.ahead))
        if key is not None:
            done = [*remembered(metadata), key.entry(axis, grown.offset, length)]
            metadata = with_own(metadata, appends=done[-64:])
        publish_metadata(array, metadata)
        array = self._catalog.open_array(array.path, fresh=True)
        return AppendResult(array, axis, grown.offset, length, repeated=False)

    def _write(self, grown: _LongerArray, permit: Permit) -> None:
        """Write the unpublished region, each stored object on top of its current version.

        What lies there was never published, or was cut off: whole new chunks replace it. Where replicas share the store
        each object of the region changes, whatever the values: an attempt that was cut off finds none as it has read
        it.
        """
        array, metadata = grown.after, grown.metadata
        plan = self._reader.look_up(self._reader.plan(array, grown.region, writing=True), fresh=True)
        fences = array.mount.has_replicas
        # what was read when the permit is lost may be the next holder's
        writer = ChunkWriter(self._reader, array, plan.versions, fences=fences, check=permit.check)
        published = grown.array.metadata.shape

        def is_seen(coords: Coords, grid: ChunkGrid) -> bool:
            return all(s.start < size for s, size in zip(grid.bounds(coords), published, strict=True))

        def write(coords: Coords, parts: Iterable[ChunkProjection]) -> None:
            changes = [
                ChunkChange(
                    part.coords,
                    partial(part.copy_in, grown.values),
                    Start.STORED if is_seen(part.coords, metadata.grid) else Start.FILL,
                )
                for part in parts
            ]
            if is_seen(coords, metadata.stored_grid):
                writer.update(coords, changes)
            else:
                writer.replace(coords, changes)

        writer.write_each(plan.objects(), write)


class _LongerArray:
    """An array with ``values`` at the end of ``axis``: ``metadata`` after the append, the ``region`` of the values
    and ``ahead``, an extent that also covers the next appends of this length, so that only some have to announce one.

    Raises `BadBody` if the other axes do not match, `BadDefinition` if this one would be too long.
    """

    def __init__(self, array: ArrayNode, values: NDArray, axis: int) -> None:
        shape = array.metadata.shape
        if values.ndim != len(shape) or any(values.shape[a] != size for a, size in enumerate(shape) if a != axis):
            expected = [size if a != axis else "any" for a, size in enumerate(shape)]
            raise BadBody("the body's shape does not fit the array", expected, list(values.shape))
        self.array, self.values, self.axis = array, values, axis
        self.offset, self.length = shape[axis], values.shape[axis]
        size = self.offset + self.length
        if size > LARGEST:
            raise BadDefinition("shape", f"axis {axis} cannot have size {size}: expected 0 to 2**62 - 1")
        self.metadata: ArrayMetadata = array.metadata.with_shape((*shape[:axis], size, *shape[axis + 1 :]))
        self.after = replace(array, metadata=self.metadata)
        items = [slice(self.offset, None) if a == axis else slice(None) for a in range(len(shape))]
        self.region: Selection = normalise(items, self.metadata.shape)
        end = min(LARGEST, size + 8 * self.length)
        self.ahead = (*shape[:axis], end, *shape[axis + 1 :])


@dataclass(frozen=True, slots=True)
class _Key:
    """Idempotency key of an append, with the digest of its values (None if they have no bytes)."""

    key: str
    at: int | None
    digest: str | None

    def find(self, array: ArrayNode, axis: int, values: NDArray) -> AppendResult | None:
        """Result of an earlier request with this key, if any. Raises `BadParameter`, which names the difference, if
        this one is not its repetition."""
        for done in remembered(array.metadata):
            if done["key"] == self.key:
                length = values.shape[axis] if values.ndim == len(array.metadata.shape) else None
                self._check_repeats(done, axis, length)
                return AppendResult(array, axis, done["offset"], done["length"], repeated=True)
        return None

    def entry(self, axis: int, offset: int, length: int) -> dict[str, Any]:
        """Entry of the append in the metadata."""
        entry = {"key": self.key, "axis": axis, "offset": offset, "length": length}
        return entry if self.digest is None else {**entry, "digest": self.digest}

    def _check_repeats(self, done: Mapping[str, Any], axis: int, length: int | None) -> None:
        """Without a stored digest, only the number of values is compared."""
        facts = (
            ("axis", axis, done["axis"]),
            ("length", length, done["length"]),
            ("at", self.at, None if self.at is None else done["offset"]),
            ("values", self.digest, done.get("digest") or self.digest),
        )
        other = [name for name, sent, stored in facts if sent != stored]
        if other:
            had = f"the append of {done['length']} at {done['offset']} along axis {done['axis']} had this one"
            raise BadParameter(IDEMPOTENCY_KEY, self.key, f"another key: {had}, with other {' and '.join(other)}")


def digest_of(values: NDArray) -> str | None:
    """Digest of values and their shape, whatever their layout in memory; None for objects without a binary form."""
    digest = blake2b(str(values.shape).encode(), digest_size=16)
    try:
        _feed(digest, values)
    except (TypeError, ValueError):
        return None
    return digest.hexdigest()


def _feed(digest: blake2b, values: NDArray) -> None:
    """Update a digest with values; records field by field, as padding between fields is arbitrary."""
    for name in values.dtype.names or ():
        _feed(digest, values[name])
    if values.dtype.names is not None:
        return
    size = max(1, (1 << 20) // values.itemsize)  # items that are made contiguous at a time
    pieces = np.nditer(
        values, flags=("buffered", "external_loop", "refs_ok", "zerosize_ok"), order="C", buffersize=size
    )
    for piece in pieces:
        packed = pack_objects(piece) if values.dtype.hasobject else np.ascontiguousarray(piece).view(np.uint8).data
        digest.update(packed)
