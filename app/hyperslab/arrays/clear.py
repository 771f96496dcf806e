"""Making sure that what a shrink cut off never comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import product
from math import prod

from hyperslab.arrays.chunks import NDArray
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.read import Reader
from hyperslab.arrays.update import ChunkWriter
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.errors import WriteConflict

_MOST_ASKED = 10_000
"""Above so many candidates a listing of what is there costs less than asking for each."""


def clear_outside(reader: Reader, array: ArrayNode, before: tuple[int, ...], check: Callable[[], None]) -> None:
    """Remove what lies outside the array's shape and inside the shape ``before``: whole chunks, and the ends of edge
    chunks.

    ``check`` is called before each change; what it raises ends the work. Repeating it is safe. Cost grows with the
    number of chunks that were cut off or cut through. Raises as `check_clearable` does, before it does anything.
    """
    metadata = array.metadata
    check_clearable(reader, array, before)
    old = ChunkGrid(before, metadata.chunks, metadata.dimension_separator)
    writer = ChunkWriter(array, reader.cache, reader.versions)
    targets = [(coords, coords) for coords in _existing(array, old)]

    def clear(coords: Coords) -> None:
        check()
        if _is_outside(coords, metadata.grid):
            writer.delete(coords)
        else:
            writer.update(coords, lambda chunk: _clear_end(array, coords, chunk))

    reader.pool(array.mount).each(targets, len(targets), lambda target: clear(target[0]))


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
        check()
        if _is_outside(coords, array.metadata.grid):
            with suppress(WriteConflict):
                own.delete(coords)
        else:  # whoever has changed the cells inside since has kept those at the end
            shared.update(coords, lambda chunk: _clear_end(array, coords, chunk))

    reader.pool(array.mount).each(targets, len(targets), lambda target: clear(target[0]))


def check_clearable(reader: Reader, array: ArrayNode, before: tuple[int, ...]) -> None:
    """Raise `TooLarge` where the shape cuts through chunks that may not be decoded, to clear the ends of them."""
    grid = array.metadata.grid
    cut = any(n < b and n % c for n, b, c in zip(grid.shape, before, grid.chunks, strict=True))
    if cut and all(grid.shape):  # what is empty has no edge chunks
        reader.check_chunk(array)


def _existing(array: ArrayNode, old: ChunkGrid) -> Iterator[Coords]:
    """Stored chunks of the old grid that the new shape cuts off or cuts through."""
    new = array.metadata.grid
    ranges = list(_cut_ranges(old, new))
    if sum(prod(len(r) for r in axes) for axes in ranges) > _MOST_ASKED:
        yield from _listed(array, old)
        return
    candidates = [coords for axes in ranges for coords in product(*axes)]
    keys = [array.prefix + old.key(coords) for coords in candidates]
    versions = array.mount.store.versions(array.prefix, keys) if keys else []
    yield from (coords for coords, version in zip(candidates, versions, strict=True) if version is not None)


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


def _listed(array: ArrayNode, old: ChunkGrid) -> Iterator[Coords]:
    for entry in array.mount.store.list_prefix(array.prefix):
        coords = old.parse_key(entry.key[len(array.prefix) :])
        if coords is not None and _is_cut(coords, old, array.metadata.grid):
            yield coords


def _is_cut(coords: Coords, old: ChunkGrid, new: ChunkGrid) -> bool:
    return any(
        now < before and c >= now // chunk
        for c, before, now, chunk in zip(coords, old.shape, new.shape, new.chunks, strict=True)
    )


def _is_outside(coords: Coords, grid: ChunkGrid) -> bool:
    return any(c >= count for c, count in zip(coords, grid.counts, strict=True))


def _clear_end(array: ArrayNode, coords: Coords, chunk: NDArray) -> None:
    """Set the cells of an edge chunk that lie beyond the shape to the fill value."""
    for axis, extent in enumerate(array.metadata.grid.extent(coords)):
        beyond = (slice(None),) * axis + (slice(extent, None),)
        chunk[beyond] = array.metadata.fill
