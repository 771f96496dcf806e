"""Which boxes of an array to look at to know its values: all of it, or some chunks spread evenly. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from math import ceil, prod
from typing import Final

from hyperslab.wire import SelectionItem

_MOST_BOXES: Final = 64
_FEWEST_BOXES: Final = 8
MOST_CHUNKS: Final = 1 << 12
"""So many are looked at where everything is: each takes its time, however few cells it has."""
_FEWEST_CELLS: Final = 1 << 9
_MOST_TOGETHER: Final = 64


def sample_boxes(
    shape: Sequence[int],
    chunks: Sequence[int],
    fixed: Mapping[int, int],
    *,
    most_cells: int,
    most_chunks: int = MOST_CHUNKS,
) -> list[list[SelectionItem]]:
    """Selections of about ``most_cells`` cells together, each within one chunk, or some chunks side by side where those
    are tiny; just one where that is everything, and not of very many chunks. Of large chunks every n-th cell.

    ``most_chunks``: not more of them, but at least one. ``fixed`` are axes of which one index is wanted. The same
    arguments give the same boxes.
    """
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    number = prod(ceil(shape[axis] / chunks[axis]) for axis in free)
    if number <= most_chunks and prod(shape[axis] for axis in free) <= most_cells:
        return [[fixed.get(axis, slice(0, shape[axis])) for axis in range(len(shape))]]
    extents = _together(shape, chunks, free, min(_MOST_TOGETHER, most_chunks))
    together = prod(extent // chunk for extent, chunk in zip(extents, chunks, strict=True))
    return chunk_boxes(shape, extents, fixed, most_cells=most_cells, most_chunks=most_chunks // together)


def chunk_boxes(
    shape: Sequence[int],
    chunks: Sequence[int],
    fixed: Mapping[int, int],
    *,
    most_cells: int,
    most_chunks: int = MOST_CHUNKS,
) -> list[list[SelectionItem]]:
    """As `sample_boxes`, each within one chunk also where one box could be everything."""
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    counts = [ceil(shape[axis] / chunks[axis]) for axis in free]
    extents = [min(chunks[axis], shape[axis]) for axis in free]
    steps = _steps(extents, most_cells // _FEWEST_BOXES)
    number = max(1, min(_MOST_BOXES, most_cells // _cells(extents, steps), prod(counts), most_chunks))
    boxes = []
    for coords in _distinct(counts, number):
        box: list[SelectionItem] = [fixed.get(axis, 0) for axis in range(len(shape))]
        for axis, coord, extent, step in zip(free, coords, extents, steps, strict=True):
            start = coord * chunks[axis]
            box[axis] = slice(start, min(start + extent, shape[axis]), step)
        boxes.append(box)
    return boxes


def _together(shape: Sequence[int], chunks: Sequence[int], free: Sequence[int], most: int) -> list[int]:
    """Extents of a chunk, or of up to ``most`` chunks side by side where one has few cells, as cubical as can be."""
    extents = list(chunks)
    together = 1
    while 2 * together <= most and prod(extents[axis] for axis in free) < _FEWEST_CELLS:
        growing = [axis for axis in free if extents[axis] < shape[axis]]
        if not growing:
            break
        extents[min(growing, key=extents.__getitem__)] *= 2
        together *= 2
    return extents


def _steps(extents: Sequence[int], most_cells: int) -> list[int]:
    """Powers of two: every n-th cell along each axis, of the longest first, until the box has few enough."""
    steps = [1] * len(extents)
    while _cells(extents, steps) > max(1, most_cells):
        counts = [ceil(extent / step) for extent, step in zip(extents, steps, strict=True)]
        steps[counts.index(max(counts))] *= 2
    return steps


def _cells(extents: Sequence[int], steps: Sequence[int]) -> int:
    return prod(ceil(extent / step) for extent, step in zip(extents, steps, strict=True))


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
