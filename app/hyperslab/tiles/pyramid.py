"""Levels, tiles and regions of a plane: which stored level a tile is made from, and which of its cells.

Coordinates are cells of the finest level. All arithmetic is on whole numbers or on ratios of them, so that
neighbouring tiles meet without gap or overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import numpy as np

from hyperslab.tiles.image import Level

_SLACK = 1e-6
"""Scales come from JSON as decimal fractions: 0.65 / 0.325 need not be 2 exactly."""

Edges = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Span:
    """``count`` pixels along one axis, pixel ``i`` of which covers ``[start + i * step, start + (i + 1) * step)``."""

    start: float
    step: float
    count: int

    @property
    def stop(self) -> float:
        return self.start + self.step * self.count


@dataclass(frozen=True, slots=True)
class Region:
    """A picture of ``rows.count`` by ``columns.count`` pixels."""

    rows: Span
    columns: Span

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.count, self.columns.count


@dataclass(frozen=True, slots=True)
class TileGrid:
    """Tiles of ``size`` pixels over a plane; z = 0 is one tile, each further z doubles the resolution."""

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
        """What a tile shows, with ``overlap`` pixels of its neighbours, cut at the edges of the plane."""
        factor, spans = self.factor(z), []
        for index, extent in ((row, self.height), (column, self.width)):
            first = max(0, index * self.size - overlap)
            last = min((index + 1) * self.size + overlap, ceil(extent / factor))
            spans.append(Span(first * factor, factor, max(last - first, 0)))
        return Region(*spans)

    @property
    def deep_zoom_level(self) -> int:
        """The level of full resolution in Deep Zoom, where level 0 is one pixel."""
        return (max(self.width, self.height, 1) - 1).bit_length()

    def deep_zoom_region(self, level: int, row: int, column: int, *, overlap: int) -> Region | None:
        """What a tile of Deep Zoom shows; None where there is no such tile (the Deep Zoom file format as OpenSeadragon
        reads it)."""
        z = self.maxzoom - self.deep_zoom_level + level  # below 0, all is less than one tile
        rows, columns = self.counts(z) if 0 <= level <= self.deep_zoom_level else (0, 0)
        return self.region(z, row, column, overlap) if 0 <= row < rows and 0 <= column < columns else None


def axis_factor(full: int, size: int, ratio: float | None) -> float:
    """How many cells of the finest level (``full`` of them) one cell of a level (``size`` of them) covers.

    ``ratio`` is what the metadata says. It is believed where the sizes agree with it whichever way they were rounded;
    else the whole number that explains the sizes is taken, else their quotient.
    """
    if full == size or not full or not size:
        return 1.0
    for candidate in (ratio, round(full / size)):
        if candidate and candidate > 0 and abs(full / candidate - size) < 1 + _SLACK:
            return float(candidate)
    return full / size


def choose_level(levels: Sequence[Level], plane: tuple[int, int], steps: tuple[float, float]) -> Level:
    """The coarsest level that is at least as fine as ``steps`` (cells per pixel) along both axes of the plane."""
    fitting = [
        level
        for level in levels
        if all(level.factors[axis] <= step * (1 + _SLACK) for axis, step in zip(plane, steps, strict=True))
    ]
    return max(fitting or levels[:1], key=lambda level: level.factors[plane[0]] * level.factors[plane[1]])


def box_edges(span: Span, factor: float, size: int) -> Edges:
    """Where the cells of a level begin that each pixel of a span is made from: ``count + 1`` indices up to ``size``.

    Pixel ``i`` is made from cells ``[edges[i], edges[i + 1])``; none is empty unless the level ends before the span
    does, and then the last cell stands for what is missing; or pixels are smaller than cells, and then the one in which
    the middle of a pixel lies stands for it.
    """
    start, step = _snap(span.start / factor), _snap(span.step / factor)
    edges = np.floor(start + step * np.arange(span.count + 1) + 0.5 * min(step, 1)).astype(np.int64)
    if step < 1 and span.count:
        edges[-1] = edges[-2] + 1
    clipped: Edges = np.clip(edges, 0, size)
    return clipped


def _snap(value: float) -> float:
    """The whole number next to ``value``, where it is only a rounding error away."""
    whole = round(value)
    return float(whole) if abs(value - whole) <= _SLACK * max(1.0, abs(value)) else value


def level_index(index: int, factor: float, size: int) -> int:
    """The index in a level that shows what ``index`` shows in the finest one."""
    return min(floor(index / factor + _SLACK), size - 1)
