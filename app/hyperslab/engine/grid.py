"""The chunk grid of an array: which chunks there are, where each lies, and under which key it is stored."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Coords = tuple[int, ...]
"""Position of a chunk in the grid, one integer per axis."""
Separator = Literal[".", "/"]

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """A regular grid of chunks over an array of ``shape``; ``chunks`` are all >= 1.

    Rank 0 has one chunk, with coords ``()`` and key ``"0"``. Keys have a ``prefix`` in front, ``"c"`` in Zarr v3 by
    default. [Zarr v2 specification, "Chunks"; Zarr v3 core specification, "Chunk key encoding"]
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    separator: Separator = "."
    prefix: str = ""

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple([-(-size // chunk) for size, chunk in zip(self.shape, self.chunks, strict=True)])

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
        if len(parts) != len(self.shape) or not all(_NUMBER.fullmatch(part) for part in parts):
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
        return tuple(
            [
                slice(coord * chunk, min(coord * chunk + chunk, size))
                for coord, chunk, size in zip(coords, self.chunks, self.shape, strict=True)
            ]
        )

    def extent(self, coords: Coords) -> tuple[int, ...]:
        """Shape of `bounds`: that of the chunk without what lies outside the array."""
        return tuple(
            [
                min(chunk, size - coord * chunk)
                for coord, chunk, size in zip(coords, self.chunks, self.shape, strict=True)
            ]
        )
