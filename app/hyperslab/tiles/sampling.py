"""Which boxes of an array to look at to know its values: all of it, or some chunks spread evenly. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from math import ceil, prod
from typing import Final

from hyperslab.wire import SelectionItem

_MOST_BOXES: Final = 64
_FEWEST_BOXES: Final = 8
_MOST_CHUNKS: Final = 1 << 12
"""So many are looked at where everything is: each takes its time, however few cells it has."""
_FEWEST_CELLS: Final = 1 << 9
_MOST_TOGETHER: Final = 64


def sample_boxes(
    shape: Sequence[int], chunks: Sequence[int], fixed: Mapping[int, int], *, most_cells: int
) -> list[list[SelectionItem]]:
    """Selections of about ``most_cells`` cells together, each within one chunk, or some chunks side by side where those
    are tiny; just one where that is everything, and not of very many chunks.

    ``fixed`` are axes of which one index is wanted. The same arguments give the same boxes.
    """
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    number = prod(ceil(shape[axis] / chunks[axis]) for axis in free)
    if number <= _MOST_CHUNKS and prod(shape[axis] for axis in free) <= most_cells:
        return [[fixed.get(axis, slice(0, shape[axis])) for axis in range(len(shape))]]
    return chunk_boxes(shape, _together(shape, chunks, free), fixed, most_cells=most_cells)


def chunk_boxes(
    shape: Sequence[int], chunks: Sequence[int], fixed: Mapping[int, int], *, most_cells: int
) -> list[list[SelectionItem]]:
    """As `sample_boxes`, each within one chunk also where one box could be everything."""
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    counts = [ceil(shape[axis] / chunks[axis]) for axis in free]
    extents = _shrunk([min(chunks[axis], shape[axis]) for axis in free], most_cells // _FEWEST_BOXES)
    number = max(1, min(_MOST_BOXES, most_cells // max(1, prod(extents)), prod(counts)))
    boxes = []
    for coords in _distinct(counts, number):
        box: list[SelectionItem] = [fixed.get(axis, 0) for axis in range(len(shape))]
        for axis, coord, extent in zip(free, coords, extents, strict=True):
            start = coord * chunks[axis]
            box[axis] = slice(start, min(start + extent, shape[axis]))
        boxes.append(box)
    return boxes


def _together(shape: Sequence[int], chunks: Sequence[int], free: Sequence[int]) -> list[int]:
    """Extents of a chunk, or of up to 64 chunks side by side where one has few cells, as cubical as can be."""
    extents = list(chunks)
    together = 1
    while together < _MOST_TOGETHER and prod(extents[axis] for axis in free) < _FEWEST_CELLS:
        growing = [axis for axis in free if extents[axis] < shape[axis]]
        if not growing:
            break
        extents[min(growing, key=extents.__getitem__)] *= 2
        together *= 2
    return extents


def _shrunk(extents: list[int], most_cells: int) -> list[int]:
    """Extents halved, the longest first, until their box is small enough."""
    extents = list(extents)
    while prod(extents) > max(1, most_cells):
        longest = extents.index(max(extents))
        extents[longest] = ceil(extents[longest] / 2)
    return extents


def _distinct(counts: Sequence[int], number: int) -> list[tuple[int, ...]]:
    """So many different places in a grid, in order; in a small grid fewer where they keep falling together."""
    found: set[tuple[int, ...]] = set()
    for coords in islice(_spread(counts), 16 * number):
        found.add(coords)
        if len(found) == number:
            break
    return sorted(found)


def _spread(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Places in a grid that fill it evenly and line up along no axis: a Kronecker sequence."""
    ratio = _generalised_golden_ratio(len(counts))
    for i in count():
        fractions = ((0.5 + (i + 1) * ratio ** -(axis + 1)) % 1 for axis in range(len(counts)))
        yield tuple(int(fraction * size) for fraction, size in zip(fractions, counts, strict=True))


def _generalised_golden_ratio(rank: int) -> float:
    """The root of x^(rank + 1) = x + 1, whose powers are the least rational."""
    x = 2.0
    for _ in range(32):
        x = (1 + x) ** (1 / (rank + 1))
    return x
