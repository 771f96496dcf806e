"""Deep Zoom images: levels from one pixel up, tiles cut at the edges that may overlap. Pure geometry.

Source: the Deep Zoom file format as OpenSeadragon reads it.
"""

from __future__ import annotations

from math import ceil
from xml.sax.saxutils import quoteattr

from hyperslab.tiles.pyramid import Region, Span, TileGrid


def descriptor(grid: TileGrid, *, overlap: int, fmt: str) -> str:
    """The ``.dzi`` document."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<Image xmlns="http://schemas.microsoft.com/deepzoom/2008" '
        f'TileSize="{grid.size}" Overlap="{overlap}" Format={quoteattr(fmt)}>'
        f'<Size Width="{grid.width}" Height="{grid.height}"/></Image>\n'
    )


def last_level(grid: TileGrid) -> int:
    """The level of full resolution; level 0 is one pixel."""
    return (max(grid.width, grid.height, 1) - 1).bit_length()


def tile_region(grid: TileGrid, level: int, column: int, row: int, *, overlap: int) -> Region | None:
    """What a tile shows; None where there is no such tile."""
    if not 0 <= level <= last_level(grid):
        return None
    factor = 1 << (last_level(grid) - level)
    rows = _span(grid.height, factor, row, grid.size, overlap)
    columns = _span(grid.width, factor, column, grid.size, overlap)
    return None if rows is None or columns is None else Region(rows, columns)


def _span(extent: int, factor: int, index: int, size: int, overlap: int) -> Span | None:
    pixels = ceil(extent / factor)
    if index < 0 or index * size >= pixels:
        return None
    first = max(0, index * size - overlap)
    last = min(pixels, (index + 1) * size + overlap)
    return Span(first * factor, factor, last - first)
