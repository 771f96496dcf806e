"""The chunk grid of an array: which chunks there are, where each lies, and under which key it is stored."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Coords = tuple[int, ...]
"""Position of a chunk in the grid, one integer per axis."""
Separator = Literal[".", "/"]


@dataclass(frozen=True, slots=True)
class GridAxis:
    """The chunks along an axis of ``size`` items: each of ``chunk`` items or, where they differ, at most so many.

    ``edges``: where they differ, the first item of each chunk, and where the last one ends; else empty.
    """

    size: int
    chunk: int
    edges: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many chunks begin within the axis."""
        return bisect_left(self.edges, self.size) if self.edges else -(-self.size // self.chunk)

    def locate(self, item: int) -> tuple[int, int]:
        """The chunk that holds an item, and the item's position in it."""
        if not self.edges:
            return divmod(item, self.chunk)
        coord = bisect_right(self.edges, item) - 1
        return coord, item - self.edges[coord]

    def span(self, coord: int) -> tuple[int, int]:
        """First item and length of a chunk, of which the edge of the array may cut some off."""
        if not self.edges:
            return coord * self.chunk, self.chunk
        return self.edges[coord], self.edges[coord + 1] - self.edges[coord]

    def extent(self, coord: int) -> int:
        """How many items of a chunk lie inside the array."""
        start, length = self.span(coord)
        return min(length, self.size - start)

    def cells(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """The chunk that holds each of some items."""
        return np.searchsorted(self.edges, items, "right") - 1 if self.edges else items // self.chunk

    def met(self, start: int, step: int, count: int) -> int:
        """How many chunks hold any of the items ``start + i * step`` for ``0 <= i < count``."""
        if abs(step) >= self.chunk or not count:
            return count
        last = start + (count - 1) * step
        if not self.edges or abs(step) == 1:
            return abs(self.locate(last)[0] - self.locate(start)[0]) + 1
        before = -((min(start, last) - np.asarray(self.edges)) // abs(step))
        return int(np.count_nonzero(np.diff(before.clip(0, count))))


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """A grid of chunks over an array of ``shape``: each of the shape ``chunks`` or, where ``edges`` has some for an
    axis, cut there (see `GridAxis`); ``chunks`` are the longest then. All sizes are >= 1.

    Rank 0 has one chunk, with coords ``()`` and key ``"0"``. Keys have a ``prefix`` in front, ``"c"`` in Zarr v3 by
    default. [Zarr v2 specification, "Chunks"; Zarr v3 core specification, "Chunk key encoding"; zarr-extensions,
    "rectilinear"]
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    separator: Separator = "."
    prefix: str = ""
    edges: tuple[tuple[int, ...], ...] = ()
    axes: tuple[GridAxis, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        edges: Any = self.edges or ((),) * len(self.shape)
        object.__setattr__(self, "axes", tuple(map(GridAxis, self.shape, self.chunks, edges)))

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple([axis.count for axis in self.axes])

    def key(self, coords: Coords) -> str:
        """The key of a chunk, relative to its array."""
        if self.prefix:
            return self.separator.join((self.prefix, *map(str, coords)))
        return self.separator.join(map(str, coords)) or "0"

    def parse_key(self, text: str) -> Coords | None:
        """The coords that ``text`` is the key of; None unless it is spelt as `key` spells it and lies in the grid."""
        if not self.shape:
            return () if text == (self.prefix or "0") else None
        parts = text.split(self.separator)
        if self.prefix and parts.pop(0) != self.prefix:
            return None
        if len(parts) != len(self.shape) or not all(re.fullmatch(r"0|[1-9][0-9]{0,18}", part) for part in parts):
            return None
        coords = tuple(map(int, parts))
        return coords if coords in self else None

    def __contains__(self, coords: object) -> bool:
        return (
            isinstance(coords, tuple)
            and len(coords) == len(self.shape)
            and all(0 <= coord < count for coord, count in zip(coords, self.counts, strict=True))
        )

    def bounds(self, coords: Coords) -> tuple[slice, ...]:
        """The region of the array that a chunk holds, cut at the edge of the array."""
        spans = [(axis.span(coord)[0], axis.extent(coord)) for axis, coord in zip(self.axes, coords, strict=True)]
        return tuple([slice(start, start + length) for start, length in spans])

    def extent(self, coords: Coords) -> tuple[int, ...]:
        """Shape of `bounds`: that of the chunk without what lies outside the array."""
        return tuple([axis.extent(coord) for axis, coord in zip(self.axes, coords, strict=True)])

    def chunk_shape(self, coords: Coords) -> tuple[int, ...]:
        """The shape of a chunk as it is stored: the edge of the array cuts nothing off."""
        return tuple([axis.span(coord)[1] for axis, coord in zip(self.axes, coords, strict=True)])
