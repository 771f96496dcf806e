"""Appending: data first, then the shape, and a key that makes a repeated request do nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hyperslab.arrays.access import check_writable
from hyperslab.arrays.catalog import Catalog, data_id
from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.extent import LARGEST, extent, larger, remember, remembered, with_extent
from hyperslab.arrays.lease import Turn, alone
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.arrays.repetition import Keyed, digest_of
from hyperslab.arrays.resize import follow_again, publish_metadata, put_metadata
from hyperslab.arrays.update import ChunkWriter
from hyperslab.arrays.write import check_made_for, check_written, node_lock, write_chunks
from hyperslab.engine.dtypes import DataType
from hyperslab.engine.indexing import ChunkProjection, Selection, normalise, project
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.errors import AppendConflict, BadBody, BadDefinition, BadParameter, PartlyWritten, WriteConflict
from hyperslab.storage.base import WritersSafe
from hyperslab.storage.keys import as_prefix

_MOST_TRIES = 32
_ANNOUNCED_AHEAD = 8
_CHANGED = "changed by another writer"


@dataclass(frozen=True, slots=True)
class Appended:
    """Where the data went: ``offset`` along ``axis``; ``repeated`` where an earlier request had done it already."""

    array: ArrayNode
    axis: int
    offset: int
    length: int
    repeated: bool


class Appender:
    """Appends to arrays. Appenders of one array come one after the other and get disjoint regions."""

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
    ) -> Appended:
        """Store ``values`` behind the end of ``axis`` and then publish the longer shape: no reader sees fill in
        between.

        ``at`` is where the caller believes the array to end: `AppendConflict` where it does not. A request whose
        ``idempotency_key`` one of the last 64 appends had returns what that append returned and stores nothing, even
        where ``check`` no longer holds: the append itself may be why. `BadParameter` where that append had other values
        or another place. `WriteConflict` where the array no longer has the data type that the values were ``made_for``.
        `TooLarge` before anything is stored.
        """
        mount, rest = self._catalog.locate(path)
        check_writable(mount)
        prefix = as_prefix(rest)
        keyed = None if idempotency_key is None else Keyed(idempotency_key, at, digest_of(values))
        with node_lock(mount, prefix), alone(mount, prefix) as turn:
            announced = ""
            for _ in range(_MOST_TRIES):
                array = self._catalog.open_array(path, fresh=True)
                self._reader.check_chunk(array)
                check_made_for(array, made_for)
                axis = _checked_axis(array, axis)
                repeated = _repeated(array, values, axis, keyed)
                if repeated is not None:
                    follow_again(array)
                    return repeated
                if check is not None and array.version != announced:
                    check(array)
                if at is not None and at != array.metadata.shape[axis]:
                    raise AppendConflict(array.path, axis, at, array.metadata.shape[axis])
                version = self._announce(array, values, axis, turn)
                if version is not None:
                    announced = version
                    continue
                appended = self._try_append(array, values, axis, keyed, turn)
                if appended is not None:
                    return appended
                turn.take_again()
        raise WriteConflict(path, f"other writers changed the metadata {_MOST_TRIES} times")

    def _announce(self, array: ArrayNode, values: NDArray, axis: int, turn: Turn) -> str | None:
        """Note in the metadata how far data may reach. None where it says so already; else the version that the node
        has now, for which the condition of the append holds as it did before."""
        longer = _longer(array, values, axis)
        grown = replace(array, metadata=longer, data_id=data_id(longer))
        check_written(grown, _new_region(longer.shape, axis, array.metadata.shape[axis]))
        length = longer.shape[axis] - array.metadata.shape[axis]
        reserved = extent(array.metadata)
        if not length or (reserved is not None and all(n <= r for n, r in zip(longer.shape, reserved, strict=True))):
            return None
        # what lies beyond the shape along the other axes is still there
        published = with_extent(array.metadata, larger(_ahead(longer.shape, axis, length), reserved))
        version = put_metadata(self._reader, array, published)
        if version is None:
            turn.take_again()
        return array.version.replace(array.metadata_version, version or _CHANGED, 1)

    def _try_append(
        self, array: ArrayNode, values: NDArray, axis: int, keyed: Keyed | None, turn: Turn
    ) -> Appended | None:
        """One attempt; None where another writer came between: into the metadata, or into a chunk at the old edge."""
        try:
            return self._append_once(array, values, axis, keyed, turn)
        except (WriteConflict, PartlyWritten) as error:
            if isinstance(error, WriteConflict) or isinstance(error.__cause__, WriteConflict):
                return None
            raise

    def _append_once(
        self, array: ArrayNode, values: NDArray, axis: int, keyed: Keyed | None, turn: Turn
    ) -> Appended | None:
        """One attempt; None where the metadata has changed before the shape could be published."""
        offset = array.metadata.shape[axis]
        longer = _longer(array, values, axis)
        length = longer.shape[axis] - offset
        if length == 0 and keyed is None:
            return Appended(array, axis, offset, 0, repeated=False)
        grown = replace(array, metadata=longer, data_id=data_id(longer))
        self._write(array, grown, values, _new_region(longer.shape, axis, offset), turn)
        reserved = extent(array.metadata)
        if reserved is not None and min(LARGEST, longer.shape[axis] + length) > reserved[axis]:
            longer = with_extent(longer, larger(reserved, _ahead(longer.shape, axis, length)))
        if keyed is not None:
            longer = remember(longer, keyed.note(axis, offset, length))
        if not publish_metadata(self._reader, array, longer):
            return None
        return Appended(self._catalog.open_array(array.path, fresh=True), axis, offset, length, repeated=False)

    def _write(self, array: ArrayNode, grown: ArrayNode, values: NDArray, region: Selection, turn: Turn) -> None:
        """Write into the region that is not published yet, each chunk on top of the version seen now.

        What lies there was never published, or was cut off: whole new chunks replace it. Where replicas share the store
        each chunk of the region changes, whatever the values: an attempt that was cut off finds none as it has read it.
        """
        self._reader.versions.forget(array.mount, array.prefix)
        plan = make_plan(self._reader.versions, grown, region)
        fences = array.mount.store.capabilities.writers_safe is WritersSafe.REPLICAS
        writer = ChunkWriter(grown, self._reader.cache, self._reader.versions, plan.versions, fences=fences)

        def one(projection: ChunkProjection) -> None:
            def change(chunk: NDArray) -> None:
                turn.check()  # what was read may be the next holder's
                projection.copy_in(values, chunk)

            if _is_published(grown.metadata.grid.bounds(projection.coords), array.metadata.shape):
                writer.update(projection.coords, change)
            else:
                writer.replace(projection.coords, change)

        write_chunks(self._reader, grown, [(p.coords, p) for p in project(region, grown.metadata.grid)], one)


def _is_published(bounds: tuple[slice, ...], shape: tuple[int, ...]) -> bool:
    """Whether a chunk holds cells that readers can see already."""
    return all(s.start < size for s, size in zip(bounds, shape, strict=True))


def _checked_axis(array: ArrayNode, axis: int) -> int:
    rank = len(array.metadata.shape)
    if not -rank <= axis < rank:
        raise BadParameter("axis", axis, f"an axis of the array, which has {rank}")
    return axis % rank


def _longer(array: ArrayNode, values: NDArray, axis: int) -> ArrayMetadata:
    """The metadata after the append; raises `BadBody` where the other axes do not match, `BadDefinition` where this one
    would be too long."""
    shape = array.metadata.shape
    given = values.shape
    if len(given) != len(shape) or any(given[a] != size for a, size in enumerate(shape) if a != axis):
        expected = [size if a != axis else "any" for a, size in enumerate(shape)]
        raise BadBody("the body's shape does not fit the array", expected, list(values.shape))
    size = shape[axis] + given[axis]
    if size > LARGEST:
        raise BadDefinition("shape", f"axis {axis} cannot have size {size}: expected 0 to 2**62 - 1")
    return array.metadata.with_shape((*shape[:axis], size, *shape[axis + 1 :]))


def _new_region(shape: tuple[int, ...], axis: int, offset: int) -> Selection:
    return normalise([slice(offset, None) if a == axis else slice(None) for a in range(len(shape))], shape)


def _ahead(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    """An extent that also covers the next appends of this length, so that only some of them have to announce one."""
    return (*shape[:axis], min(LARGEST, shape[axis] + _ANNOUNCED_AHEAD * length), *shape[axis + 1 :])


def _repeated(array: ArrayNode, values: NDArray, axis: int, keyed: Keyed | None) -> Appended | None:
    """What an earlier request with this key did; raises `BadParameter` where this one is not its repetition."""
    for done in remembered(array.metadata):
        if keyed is not None and done["key"] == keyed.key:
            fits = values.ndim == len(array.metadata.shape)
            keyed.check_repeats(done, axis, values.shape[axis] if fits else None)
            return Appended(array, axis, done["offset"], done["length"], repeated=True)
    return None
