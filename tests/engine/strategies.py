"""Random arrays, grids and selections for property tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hyperslab.engine.grid import ChunkGrid
from hyperslab.wire import SelectionItem

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """An array (items count up in C order), cut into chunks stored in ``order``, and selection items that fit it."""

    array: Array
    grid: ChunkGrid
    order: str
    items: tuple[SelectionItem, ...]

    @property
    def expected(self) -> Array:
        """What numpy selects, axis by axis."""
        return orthogonal(self.array, self.items)

    def chunk(self, coords: tuple[int, ...]) -> Array:
        """A full-size chunk; what lies outside the array is -1."""
        chunk = np.full(self.grid.chunks, -1, self.array.dtype, order="F" if self.order == "F" else "C")
        bounds = self.grid.bounds(coords)
        chunk[tuple(slice(0, n) for n in self.grid.extent(coords))] = self.array[bounds]
        return chunk


def orthogonal(array: Array, items: tuple[SelectionItem, ...]) -> Array:
    """Select axis by axis from the last to the first, so that dropped axes do not move the others."""
    expanded = list(items)
    if Ellipsis in [i for i in expanded if not isinstance(i, list)]:
        at = next(i for i, item in enumerate(expanded) if item is Ellipsis)
        expanded[at : at + 1] = [slice(None)] * (array.ndim - len(items) + 1)
    for axis in reversed(range(len(expanded))):
        item: Any = expanded[axis]
        index = np.asarray(item, dtype=np.int64) if isinstance(item, list) else item
        array = array[(slice(None),) * axis + (index,)]
    return array


def bounds(size: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(-2 * size - 2, 2 * size + 2)


@st.composite
def slices(draw: st.DrawFn, size: int) -> slice:
    step = draw(st.none() | st.integers(-size - 1, size + 1).filter(bool))
    return slice(draw(bounds(size)), draw(bounds(size)), step)


def axis_items(size: int) -> st.SearchStrategy[SelectionItem]:
    inside = st.integers(-size, size - 1) if size else st.nothing()
    return slices(size) | inside | st.lists(inside, max_size=2 * size)


@st.composite
def cases(draw: st.DrawFn, max_rank: int = 4) -> Case:
    """Arrays of up to 4 axes, empty ones too; chunks may be larger than the array."""
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=max_rank)))
    chunks = tuple(draw(st.integers(1, size + 2)) for size in shape)
    items: list[SelectionItem] = [draw(axis_items(size)) for size in shape]
    start = draw(st.integers(0, len(items)))
    stop = draw(st.integers(start, len(items)))
    if draw(st.booleans()):
        items[start:stop] = [Ellipsis]
    elif draw(st.booleans()):
        del items[start:]
    array = np.arange(math.prod(shape)).reshape(shape)
    return Case(array, ChunkGrid(shape, chunks), draw(st.sampled_from("CF")), tuple(items))
