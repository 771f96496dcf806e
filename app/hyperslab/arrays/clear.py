"""Making sure that what lies beyond an array's shape never shows: what a shrink cut off, and what others left there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice, product
from math import prod

from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.extent import doubt, larger
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.read import Reader
from hyperslab.arrays.update import ChunkWriter, is_all_fill
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.errors import ChunkCorrupt, StoredTooLarge, TooLarge, WriteConflict
from hyperslab.storage.base import WritersSafe, remover

_MOST_FILLED = 1 << 16
_MOST_ASKED = 10_000
"""Above so many candidates a listing of what is there costs less than asking for each."""


def clear_outside(reader: Reader, array: ArrayNode, before: tuple[int, ...], check: Callable[[], None]) -> None:
    """Remove what lies outside the array's shape and inside the shape ``before``: whole chunks, and the ends of edge
    chunks. Where replicas share the store, chunks are not removed but set to the fill value, on the condition of what
    is there: a delete could come late, and what is absent stands in nobody's way.

    ``check`` is called when a chunk was read and before it is changed; what it raises ends the work. Repeating it is
    safe. Cost grows with the number of chunks that were cut off or cut through. Raises as `check_clearable` does,
    before it does anything.
    """
    metadata = array.metadata
    check_clearable(reader, array, before)
    old = ChunkGrid(before, metadata.chunks, metadata.dimension_separator)
    shared = array.mount.store.capabilities.writers_safe is WritersSafe.REPLICAS
    seen = dict(_existing(array, old))
    writer = ChunkWriter(array, reader.cache, reader.versions, fences=shared)

    def clear(coords: Coords) -> None:
        if not _is_outside(coords, metadata.grid):
            writer.update(coords, lambda chunk: _clear_end(array, coords, chunk, check))
        elif shared:
            _set_to_fill(reader, array, coords, seen[coords], check)
        else:
            check()
            writer.delete(coords)

    reader.pool(array.mount).each([(coords, coords) for coords in seen], len(seen), lambda target: clear(target[0]))


def clear_edges(reader: Reader, array: ArrayNode, shape: tuple[int, ...], check: Callable[[], None]) -> None:
    """Set to the fill value what edge chunks hold beyond the array's shape, at the end of the axes that are longer in
    ``shape``: whoever stores a whole chunk may leave values there.

    Such chunks are read, and written only where there is something to clear. What cannot be decoded, or is too large to
    be, stays: it shows no values either. ``check`` as in `clear_outside`.
    """
    grid = array.metadata.grid
    sizes = zip(grid.shape, shape, grid.chunks, strict=True)
    whole = tuple(-(-size // chunk) * chunk if longer > size else size for size, longer, chunk in sizes)
    edge = [(coords, coords) for coords, _ in _existing(array, ChunkGrid(whole, grid.chunks, grid.separator))]
    shared = array.mount.store.capabilities.writers_safe is WritersSafe.REPLICAS
    writer = ChunkWriter(array, reader.cache, reader.versions, fences=shared)

    def change(coords: Coords, chunk: NDArray) -> bool:
        if all(is_all_fill(chunk[beyond], array.metadata) for beyond in _beyond(grid, coords)):
            return False
        _clear_end(array, coords, chunk, check)
        return True

    def clear(coords: Coords) -> None:
        with suppress(ChunkCorrupt, StoredTooLarge, TooLarge):
            reader.check_chunk(array)
            writer.update(coords, partial(change, coords))

    nbytes = reader.chunk_memory(array)
    reader.pool(array.mount).each(edge, len(edge), lambda target: clear(target[0]), nbytes=nbytes)


def fill_doubt(reader: Reader, array: ArrayNode, shape: tuple[int, ...], check: Callable[[], None]) -> None:
    """Store fill values in chunks that are absent, that a larger ``shape`` would show, and that a request may yet store
    which comes late: then it finds them taken. Raises `WriteConflict` for more chunks than one write may touch."""
    in_doubt = doubt(array.metadata)
    if in_doubt is None:
        return
    metadata = array.metadata
    old = ChunkGrid(tuple(map(min, in_doubt, larger(metadata.shape, shape))), metadata.chunks)
    ranges = list(_cut_ranges(old, metadata.grid))
    count = sum(prod(len(r) for r in axes) for axes in ranges)
    if count > _MOST_FILLED:
        reason = f"requests of a writer that was cut off may be on their way to {count} chunks: grow in smaller steps"
        raise WriteConflict(array.path, reason)
    candidates = [coords for axes in ranges for coords in product(*axes)]
    keys = [array.chunk_key(coords) for coords in candidates]
    versions = array.mount.store.versions(array.prefix, keys) if keys else []
    absent = [(coords, coords) for coords, version in zip(candidates, versions, strict=True) if version is None]

    reader.pool(array.mount).each(
        absent, len(absent), lambda target: _set_to_fill(reader, array, target[0], None, check)
    )


def bury_doubt(array: object, check: Callable[[], None]) -> None:
    """Put what counts as absent where a request may come late that would store a chunk of an array which was removed:
    else it could come into the next one. No further than one write reaches."""
    if not isinstance(array, ArrayNode):
        return
    in_doubt, known = doubt(array.metadata), remover(array.mount.store)
    if in_doubt is None or known is None:
        return
    grid = array.metadata.grid
    ranges = _cut_ranges(ChunkGrid(in_doubt, grid.chunks, grid.separator), grid)
    candidates = islice((coords for axes in ranges for coords in product(*axes)), _MOST_FILLED)
    check()
    known.occupy([array.chunk_key(coords) for coords in candidates])


def _set_to_fill(
    reader: Reader, array: ArrayNode, coords: Coords, version: str | None, check: Callable[[], None]
) -> None:
    """Without a look at what is there, where it still has the version that was seen."""
    check()
    try:
        ChunkWriter(array, reader.cache, reader.versions, {coords: version}, fences=True).set_to_fill(coords)
    except WriteConflict:
        writer = ChunkWriter(array, reader.cache, reader.versions, fences=True)

        def change(chunk: NDArray) -> None:
            check()
            chunk[...] = array.metadata.fill

        writer.update(coords, change, covers=True)


def clear_late(
    reader: Reader,
    array: ArrayNode,
    before: tuple[int, ...],
    written: Mapping[Coords, str | None],
    check: Callable[[], None],
) -> None:
    """Remove what a write has put outside the array's shape, because a shrink from the shape ``before`` overtook it.

    ``written``: its chunks, and the versions that they got; a chunk that has another one by now is not this write's.
    The caller keeps the shape from changing; ``check`` as in `clear_outside`.
    """
    old = ChunkGrid(before, array.metadata.chunks, array.metadata.dimension_separator)
    own = ChunkWriter(array, reader.cache, reader.versions, written)
    shared = ChunkWriter(array, reader.cache, reader.versions)
    stored = [coords for coords, version in written.items() if version is not None]
    targets = [(coords, coords) for coords in stored if _is_cut(coords, old, array.metadata.grid)]

    def clear(coords: Coords) -> None:
        if _is_outside(coords, array.metadata.grid):
            check()
            with suppress(WriteConflict):
                own.delete(coords)
        else:  # whoever has changed the cells inside since has kept those at the end
            shared.update(coords, lambda chunk: _clear_end(array, coords, chunk, check))

    reader.pool(array.mount).each(targets, len(targets), lambda target: clear(target[0]))


def check_clearable(reader: Reader, array: ArrayNode, before: tuple[int, ...]) -> None:
    """Raise `TooLarge` where the shape cuts through chunks that may not be decoded, to clear the ends of them."""
    grid = array.metadata.grid
    cut = any(n < b and n % c for n, b, c in zip(grid.shape, before, grid.chunks, strict=True))
    if cut and all(grid.shape):  # what is empty has no edge chunks
        reader.check_chunk(array)


def _existing(array: ArrayNode, old: ChunkGrid) -> Iterator[tuple[Coords, str]]:
    """Stored chunks of the old grid that the new shape cuts off or cuts through, and their versions."""
    new = array.metadata.grid
    ranges = list(_cut_ranges(old, new))
    if sum(prod(len(r) for r in axes) for axes in ranges) > _MOST_ASKED:
        yield from _listed(array, old)
        return
    candidates = [coords for axes in ranges for coords in product(*axes)]
    keys = [array.prefix + old.key(coords) for coords in candidates]
    versions = array.mount.store.versions(array.prefix, keys) if keys else []
    yield from ((coords, version) for coords, version in zip(candidates, versions, strict=True) if version is not None)


def _cut_ranges(old: ChunkGrid, new: ChunkGrid) -> Iterator[list[range]]:
    """Boxes of chunk coordinates, disjoint, that together hold every chunk that lost cells along some axis."""
    for axis, (before, now) in enumerate(zip(old.shape, new.shape, strict=True)):
        if now >= before:
            continue
        first = [_kept(old, new, a) for a in range(axis)]
        later = [range(old.counts[a]) for a in range(axis + 1, len(old.shape))]
        yield [*first, range(_untouched(new, axis), old.counts[axis]), *later]


def _untouched(grid: ChunkGrid, axis: int) -> int:
    """How many leading chunks of an axis lie wholly inside the shape."""
    return grid.shape[axis] // grid.chunks[axis]


def _kept(old: ChunkGrid, new: ChunkGrid, axis: int) -> range:
    shrunk = new.shape[axis] < old.shape[axis]
    return range(_untouched(new, axis) if shrunk else old.counts[axis])


def _listed(array: ArrayNode, old: ChunkGrid) -> Iterator[tuple[Coords, str]]:
    for entry in array.mount.store.list_prefix(array.prefix):
        coords = old.parse_key(entry.key[len(array.prefix) :])
        if coords is not None and _is_cut(coords, old, array.metadata.grid):
            yield coords, entry.version


def _is_cut(coords: Coords, old: ChunkGrid, new: ChunkGrid) -> bool:
    return any(
        now < before and c >= now // chunk
        for c, before, now, chunk in zip(coords, old.shape, new.shape, new.chunks, strict=True)
    )


def _is_outside(coords: Coords, grid: ChunkGrid) -> bool:
    return any(c >= count for c, count in zip(coords, grid.counts, strict=True))


def _clear_end(array: ArrayNode, coords: Coords, chunk: NDArray, check: Callable[[], None]) -> None:
    """Set the cells of an edge chunk that lie beyond the shape to the fill value. ``check`` comes after the chunk was
    read: what is read when the turn is lost may be another's."""
    check()
    for beyond in _beyond(array.metadata.grid, coords):
        chunk[beyond] = array.metadata.fill


def _beyond(grid: ChunkGrid, coords: Coords) -> list[tuple[slice, ...]]:
    """What of a chunk lies beyond the shape, along each axis."""
    return [(slice(None),) * axis + (slice(size, None),) for axis, size in enumerate(grid.extent(coords))]
