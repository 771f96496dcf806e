"""Chunk grids: positions, regions and keys of chunks."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Coords = tuple[int, ...]
"""Position of a chunk in the grid, one integer per axis."""
Separator = Literal[".", "/"]


@dataclass(frozen=True, slots=True)
class GridAxis:
    """Chunks along an axis of ``size`` items: each of ``chunk`` items, or with ``edges`` of at most ``chunk``.

    ``edges`` of chunks of several lengths, an array of int64: the first item of each, and the end of the last; else
    empty.
    """

    size: int
    chunk: int
    edges: Sequence[int] = ()

    @property
    def count(self) -> int:
        """Number of chunks."""
        return bisect_left(self.edges, self.size) if self.edges else -(-self.size // self.chunk)

    def locate(self, item: int) -> tuple[int, int]:
        """The chunk of an item, and the item's offset in it."""
        if not self.edges:
            return divmod(item, self.chunk)
        coord = bisect_right(self.edges, item) - 1
        return coord, item - self.edges[coord]

    def span(self, coord: int) -> tuple[int, int]:
        """First item and full length of a chunk, which may extend beyond the array."""
        if not self.edges:
            return coord * self.chunk, self.chunk
        return self.edges[coord], self.edges[coord + 1] - self.edges[coord]

    def extent(self, coord: int) -> int:
        """Length of a chunk within the array."""
        start, length = self.span(coord)
        return min(length, self.size - start)

    def cells(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """The chunk of each item."""
        return np.searchsorted(np.asarray(self.edges), items, "right") - 1 if self.edges else items // self.chunk

    def origins(self, coords: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first item of each chunk."""
        return np.asarray(self.edges)[coords] if self.edges else coords * self.chunk

    def count_touched(self, start: int, step: int, count: int) -> int:
        """Number of chunks with any of the items ``start + i * step`` for ``0 <= i < count``."""
        if abs(step) >= self.chunk or not count:
            return count
        last = start + (count - 1) * step
        if not self.edges or abs(step) == 1:
            return abs(self.locate(last)[0] - self.locate(start)[0]) + 1
        before = -((min(start, last) - np.asarray(self.edges)) // abs(step))
        return int(np.count_nonzero(np.diff(before.clip(0, count))))


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """Grid over an array of ``shape``, of chunks of the shape ``chunks``, or on axes with ``edges`` of at most that
    length (see `GridAxis`). Chunk sizes are at least 1.

    Rank 0 has one chunk, with coords ``()`` and key ``"0"``. Keys start with ``prefix``, by default ``"c"`` in Zarr v3.
    [Zarr v2 specification, "Chunks"; Zarr v3 core specification, "Chunk key encoding"; zarr-extensions, "rectilinear"]
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    separator: Separator = "."
    prefix: str = ""
    edges: tuple[Sequence[int], ...] = field(default=(), hash=False)
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
        """The coords of a key; None unless it is a key of this grid."""
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
        """The region of a chunk, clipped to the array."""
        spans = [(axis.span(coord)[0], axis.extent(coord)) for axis, coord in zip(self.axes, coords, strict=True)]
        return tuple([slice(start, start + length) for start, length in spans])

    def extent(self, coords: Coords) -> tuple[int, ...]:
        """The shape of a chunk, clipped to the array."""
        return tuple([axis.extent(coord) for axis, coord in zip(self.axes, coords, strict=True)])

    def chunk_shape(self, coords: Coords) -> tuple[int, ...]:
        """The full shape of a chunk, as stored."""
        return tuple([axis.span(coord)[1] for axis, coord in zip(self.axes, coords, strict=True)])
