"""Tile grids, regions and the choice of resolution levels.

Coordinates are in cells of the finest level. Arithmetic is on integers or their ratios, so that adjacent tiles have
neither gap nor overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import numpy as np

from hyperslab.tiles.image import Level

_TOLERANCE = 1e-6
"""Relative: scales are decimal fractions from JSON, so 0.65 / 0.325 need not be exactly 2."""

Edges = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Span:
    """``count`` pixels along an axis; pixel ``i`` covers ``[start + i * step, start + (i + 1) * step)``."""

    start: float
    step: float
    count: int

    @property
    def stop(self) -> float:
        return self.start + self.step * self.count


@dataclass(frozen=True, slots=True)
class Region:
    """Rectangle of ``rows.count`` by ``columns.count`` pixels."""

    rows: Span
    columns: Span

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.count, self.columns.count


@dataclass(frozen=True, slots=True)
class TileGrid:
    """Tiles of ``size`` pixels over a plane; zoom 0 is one tile, each further zoom doubles the resolution."""

    height: int
    width: int
    size: int

    @property
    def maxzoom(self) -> int:
        """The zoom at which one pixel is one cell."""
        return max(0, (ceil(max(self.height, self.width, 1) / self.size) - 1).bit_length())

    def factor(self, z: int) -> int:
        """Cells per pixel, along either axis."""
        return 1 << (self.maxzoom - z)

    def counts(self, z: int) -> tuple[int, int]:
        """Rows and columns of tiles."""
        extent = self.size * self.factor(z)
        return ceil(self.height / extent), ceil(self.width / extent)

    def region(self, z: int, row: int, column: int, overlap: int = 0) -> Region:
        """The region of a tile, with ``overlap`` pixels of its neighbours, clipped to the plane."""
        factor, spans = self.factor(z), []
        for index, extent in ((row, self.height), (column, self.width)):
            first = max(0, index * self.size - overlap)
            last = min((index + 1) * self.size + overlap, ceil(extent / factor))
            spans.append(Span(first * factor, factor, max(last - first, 0)))
        return Region(*spans)

    @property
    def deep_zoom_level(self) -> int:
        """The Deep Zoom level of full resolution; level 0 is one pixel."""
        return (max(self.width, self.height, 1) - 1).bit_length()

    def deep_zoom_region(self, level: int, row: int, column: int, *, overlap: int) -> Region | None:
        """The region of a Deep Zoom tile as OpenSeadragon requests it; None if there is no such tile."""
        z = self.maxzoom - self.deep_zoom_level + level  # negative where the plane is smaller than a tile
        rows, columns = self.counts(z) if 0 <= level <= self.deep_zoom_level else (0, 0)
        return self.region(z, row, column, overlap) if 0 <= row < rows and 0 <= column < columns else None


def axis_factor(full: int, size: int, ratio: float | None) -> float:
    """Cells of the finest level (of size ``full``) per cell of a level (of size ``size``).

    The metadata's ``ratio`` if it explains the sizes up to rounding, else an integer that does, else ``full / size``.
    """
    if full == size or not full or not size:
        return 1.0
    for candidate in (ratio, round(full / size)):
        if candidate and candidate > 0 and abs(full / candidate - size) < 1 + _TOLERANCE:
            return float(candidate)
    return full / size


def choose_level(levels: Sequence[Level], plane: tuple[int, int], steps: tuple[float, float]) -> Level:
    """The coarsest level that is at least as fine as ``steps`` (cells per pixel) along both axes of the plane."""
    fitting = [
        level
        for level in levels
        if all(level.factors[axis] <= step * (1 + _TOLERANCE) for axis, step in zip(plane, steps, strict=True))
    ]
    return max(fitting or levels[:1], key=lambda level: level.factors[plane[0]] * level.factors[plane[1]])


def box_edges(span: Span, factor: float, size: int) -> Edges:
    """``count + 1`` indices into a level's axis of ``size`` cells; pixel ``i`` covers ``[edges[i], edges[i + 1])``.

    The range is empty for pixels beyond the end of the level, which take its last cell, and if pixels are smaller than
    cells: then a pixel takes the cell at its centre.
    """
    start, step = _snap(span.start / factor), _snap(span.step / factor)
    edges = np.floor(start + step * np.arange(span.count + 1) + 0.5 * min(step, 1)).astype(np.int64)
    if step < 1 and span.count:
        edges[-1] = edges[-2] + 1
    clipped: Edges = np.clip(edges, 0, size)
    return clipped


def _snap(value: float) -> float:
    """The nearest integer if the difference is a rounding error, else the value."""
    whole = round(value)
    return float(whole) if abs(value - whole) <= _TOLERANCE * max(1.0, abs(value)) else value


def level_index(index: int, factor: float, size: int) -> int:
    """The index in a level that corresponds to an index in the finest one."""
    return min(floor(index / factor + _TOLERANCE), size - 1)
