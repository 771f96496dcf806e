"""Tile grids, regions and the choice of resolution levels.

Coordinates are in cells of the finest level. Arithmetic is on integers or their ratios, so that adjacent tiles have
neither gap nor overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import numpy as np

from hyperslab.tiles.image import Image, Level

_TOLERANCE = 1e-6
"""Relative: scales are decimal fractions from JSON, so 0.65 / 0.325 need not be exactly 2."""
_ROUNDED = 0.002
"""Relative: scales of three or four digits, such as 0.108 and 0.217."""
_NEAR = 0.05
"""Tolerance in cells: translations of few digits."""

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

    The ``ratio`` of the scales, if there is one: a level may be padded, or end early. One of rounded scales that does
    not explain the sizes is corrected. Without a ratio an integer that explains the sizes, else ``full / size``.
    """
    if not full or not size or (ratio is None and full == size):
        return 1.0

    def explains(factor: float) -> bool:
        return abs(full / factor - size) < 1 + _TOLERANCE

    sizes = full / size
    if ratio is None:
        return float(whole) if (whole := round(sizes)) and explains(whole) else sizes
    ratio = _snap(ratio)
    for rounded in (round(ratio), sizes):
        if rounded and not explains(ratio) and not ratio.is_integer() and abs(rounded / ratio - 1) <= _ROUNDED:
            return float(rounded)
    return ratio


def axis_offset(shift: float, factor: float) -> float:
    """The finest cell at which the first cell of a level starts; ``shift`` is the distance of their centres, in cells.

    Translations are those of centres [OME-Zarr 0.5, "multiscales"], so that the means of two cells are shifted by half
    a cell. Many writers leave that half out: what lies on a cell of the level without it has its edges there.
    """
    centred = shift - (factor - 1) / 2
    for unit in (factor, 1):
        for start in (centred, shift):
            if abs(start / unit - round(start / unit)) * unit <= _NEAR:
                return float(round(start / unit) * unit)
    return centred


def choose_level(levels: Sequence[Level], plane: tuple[int, int], steps: tuple[float, float]) -> Level:
    """The coarsest level that is at least as fine as ``steps`` (cells per pixel) along both axes of the plane."""
    fitting = [
        level
        for level in levels
        if all(level.factors[axis] <= step * (1 + _TOLERANCE) for axis, step in zip(plane, steps, strict=True))
    ]
    return max(fitting or levels[:1], key=lambda level: level.factors[plane[0]] * level.factors[plane[1]])


def divide(
    image: Image, levels: Sequence[Level], plane: tuple[int, int], region: Region, place: tuple[int, int] = (0, 0)
) -> Iterator[tuple[Level, Region, tuple[int, int]]]:
    """Parts of a region, each from the coarsest level that is fine enough and has it, with row and column of their
    first pixel. The finest of ``levels`` comes first, and has all."""
    level = choose_level(levels, plane, (region.rows.step, region.columns.step))
    if level is levels[0]:
        yield level, region, place
        return
    shape = image.level_shape(level)
    (top, bottom), (left, right) = (
        _pixels_in(span, level.factors[axis], level.offsets[axis], shape[axis], image.axes[axis].size)
        for span, axis in zip((region.rows, region.columns), plane, strict=True)
    )
    rows, columns = region.shape
    if top == bottom or left == right:
        top, bottom = 0, 0  # nothing is in this level
    if top < bottom:
        yield level, _part(region, (top, bottom), (left, right)), (place[0] + top, place[1] + left)
    finer = [other for other in levels if other is not level]
    whole, middle = (0, columns), (top, bottom)
    for down, across in (((0, top), whole), ((bottom, rows), whole), (middle, (0, left)), (middle, (right, columns))):
        if down[0] < down[1] and across[0] < across[1]:
            part = _part(region, down, across)
            yield from divide(image, finer, plane, part, (place[0] + down[0], place[1] + across[0]))


def _part(region: Region, rows: tuple[int, int], columns: tuple[int, int]) -> Region:
    return Region(
        *(
            Span(span.start + first * span.step, span.step, last - first)
            for span, (first, last) in zip((region.rows, region.columns), (rows, columns), strict=True)
        )
    )


def _pixels_in(span: Span, factor: float, offset: float, size: int, full: int) -> tuple[int, int]:
    """The first pixel that a level has, and the first after it that it does not have. Of a pixel at its end it has at
    least one cell, and lacks at most one, as writers that halve round down."""
    first, end = floor(_snap(-offset / factor)), ceil(_snap((full - offset) / factor))
    edges = _edges(span, factor, offset)
    starts, stops = np.maximum(edges[:-1], first), np.minimum(edges[1:], end)
    wanted, covered = stops - starts, np.minimum(stops, size) - np.maximum(starts, 0)
    inside = np.flatnonzero((wanted <= covered) | ((covered > 0) & (wanted - covered <= 1)))
    return (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)


def box_edges(span: Span, factor: float, offset: float, size: int) -> Edges:
    """``count + 1`` indices into a level's axis of ``size`` cells; pixel ``i`` covers ``[edges[i], edges[i + 1])``.

    The range is empty for pixels beyond the end of the level, which take its last cell, and if pixels are smaller than
    cells: then a pixel takes the cell at its centre.
    """
    edges = _edges(span, factor, offset)
    clipped: Edges = np.clip(edges, 0, size)
    return clipped


def _edges(span: Span, factor: float, offset: float) -> Edges:
    """`box_edges` of a level without end."""
    start, step = _snap((span.start - offset) / factor), _snap(span.step / factor)
    edges: Edges = np.floor(start + step * np.arange(span.count + 1) + 0.5 * min(step, 1)).astype(np.int64)
    if step < 1 and span.count:
        edges[-1] = edges[-2] + 1
    return edges


def _snap(value: float) -> float:
    """The nearest integer if the difference is a rounding error, else the value."""
    whole = round(value)
    return float(whole) if abs(value - whole) <= _TOLERANCE * max(1.0, abs(value)) else value


def level_index(index: int, factor: float, offset: float, size: int) -> int | None:
    """The index in a level that corresponds to an index in the finest one; None if the level does not have it."""
    index_there = floor(_snap((index + 0.5 - offset) / factor))
    return index_there if 0 <= index_there < size else None
