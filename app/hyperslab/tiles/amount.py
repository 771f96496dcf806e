"""How much a region reads, told from arithmetic alone, and whether that may be read for one picture."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, gcd, prod
from typing import Final

from hyperslab.engine.runs import Region as ChunkRegion
from hyperslab.engine.runs import chunk_runs
from hyperslab.errors import TooLarge
from hyperslab.tiles.cells import STRIP_BYTES, level_shape, strip_rows
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.picture import Level
from hyperslab.tiles.pyramid import Region, choose_level

_MOST_CHUNKS: Final = 1 << 14
"""Under one picture: a second or two of work, however few bytes they hold."""
_MOST_CHUNKS_AT_FULL_SIZE: Final = 1 << 16
"""One for each pixel of an ordinary tile: what no zoom could show in fewer is seen at least there."""
_DECODED_PER_BYTE: Final = 16
"""So many bytes may be decoded for each byte that one picture may read, as deep chunks and long ones make it many more;
at full size likewise four times as many."""


def check_amount(frame: Frame, region: Region, max_bytes: int) -> None:
    """Raise `TooLarge` where a region reads more bytes than these, or touches more chunks or decodes more than one
    picture may."""
    error = _excess(frame, region, max_bytes)
    if error is not None:
        raise replace(error, advice=_advice(frame, max_bytes))


def is_allowed(frame: Frame, region: Region, max_bytes: int) -> bool:
    """Whether `check_amount` lets a region pass."""
    return _excess(frame, region, max_bytes) is None


def coarsest_zoom(frame: Frame, max_bytes: int) -> int:
    """The coarsest zoom of which no tile is too large: 0 unless there are too few stored levels; the finest one where
    all are."""
    for z in range(frame.grid.maxzoom):
        if is_allowed(frame, frame.grid.region(z, 0, 0), max_bytes):
            return z
    return frame.grid.maxzoom


def _excess(frame: Frame, region: Region, max_bytes: int) -> TooLarge | None:
    region = frame.cells(region)
    nbytes = region_bytes(frame, region)
    if nbytes > max_bytes:
        return TooLarge("the array data under one picture", nbytes, max_bytes)
    most = _MOST_CHUNKS if max(_steps(region)) > 1 else _MOST_CHUNKS_AT_FULL_SIZE
    chunks = region_chunks(frame, region)
    if chunks > most:
        return TooLarge("the chunks under one picture", chunks, most, unit="chunks")
    most_decoded = most // _MOST_CHUNKS * _DECODED_PER_BYTE * max_bytes
    if chunks * _level(frame, region).array.metadata.chunk_nbytes <= most_decoded and nbytes <= STRIP_BYTES:
        return None  # as nearly always
    decoded = region_decoded(frame, region)
    return TooLarge("what is decoded for one picture", decoded, most_decoded) if decoded > most_decoded else None


def _advice(frame: Frame, max_bytes: int) -> str:
    grid, z = frame.grid, coarsest_zoom(frame, max_bytes)
    if not is_allowed(frame, grid.region(z, 0, 0), max_bytes):
        return f"tiles of {grid.size} pixels are too large at any zoom, smaller ones (tile_size) need less"
    return f"tiles can be drawn from zoom {z} of {grid.maxzoom}, coarser ones need a pyramid of stored levels"


def region_bytes(frame: Frame, region: Region) -> int:
    """The most that a region reads, in bytes: of all images that a mosaic could have there."""
    level = _level(frame, region)
    return prod(_cells(frame, region, level)) * len(frame.channels) * frame.picture.dtype.itemsize


def region_chunks(frame: Frame, region: Region) -> int:
    """The most chunks that a region of this size touches at any place where tiles can begin."""
    level = _level(frame, region)
    shape, chunks = level_shape(frame.picture, level), level.array.metadata.chunks
    counts = [
        _most_touched(cells, shape[axis], chunks[axis], repeats) if axis < len(chunks) else 1
        for cells, axis, repeats in zip(_cells(frame, region, level), frame.plane, _repeats(frame), strict=True)
    ]
    return prod(counts) * _chunks_of_channels(frame, chunks)


def region_decoded(frame: Frame, region: Region) -> int:
    """About how many bytes a region decodes at most, wherever the frame stands on its other axes.

    That is whole chunks, or what of each has to be decoded where that is less; again for each strip that cuts it.
    """
    level = _level(frame, region)
    (rows, columns), axis, chunks = _cells(frame, region, level), frame.plane[0], level.array.metadata.chunks
    of_chunk = at_once = min(rows, chunks[axis]) if axis < len(chunks) else 1
    if _steps(region)[0] > level.factors[axis]:  # else the region is read in one piece
        at_once = min(at_once, strip_rows(rows, region_bytes(frame, region), chunks[axis] if axis < len(chunks) else 1))
    each = _decoded_of_chunk(frame, level, (at_once, columns))
    return region_chunks(frame, region) * ceil(of_chunk / at_once) * each


def _decoded_of_chunk(frame: Frame, level: Level, cells: tuple[int, int]) -> int:
    """Bytes of a chunk that are decoded where so many cells of it are wanted, along the two axes of the plane: those at
    its end, as a stream is decoded from its beginning."""
    array = level.array.metadata
    partial = array.codec.partial
    if partial is None:
        return array.chunk_nbytes
    wanted = dict(zip(frame.plane, cells, strict=True))
    if frame.channel_axis is not None:
        wanted[frame.channel_axis] = len(frame.channels)
    ends = [max(1, min(chunk, size)) for chunk, size in zip(array.chunks, array.shape, strict=True)]
    regions: list[ChunkRegion] = [slice(max(end - wanted.get(axis, 1), 0), end, 1) for axis, end in enumerate(ends)]
    runs = chunk_runs(regions, array.chunks, order=array.order, gap=partial.gap)
    return min(array.chunk_nbytes, partial.usual_work(runs))


def _most_touched(cells: int, size: int, chunk: int, repeats: int) -> int:
    """Chunks of ``chunk`` cells that ``cells`` touch along an axis, of images of ``size`` cells side by side."""
    whole = ceil(size / chunk)
    if repeats == 1:
        return min(whole, ceil((cells + chunk - gcd(cells, chunk)) / chunk))
    return min(repeats, ceil(cells / max(size, 1)) + 1) * min(whole, ceil((cells - 1) / chunk) + 1)


def _chunks_of_channels(frame: Frame, chunks: tuple[int, ...]) -> int:
    axis = frame.channel_axis
    if axis is None or axis >= len(chunks):
        return 1
    return len({channel // chunks[axis] for channel in frame.channels})


def _cells(frame: Frame, region: Region, level: Level) -> list[int]:
    """Cells of a level under a region, along the two axes of the plane."""
    shape = level_shape(frame.picture, level)
    return [
        min(ceil(span.step * span.count / level.factors[axis]), shape[axis] * times)
        for span, axis, times in zip((region.rows, region.columns), frame.plane, _repeats(frame), strict=True)
    ]


def _repeats(frame: Frame) -> tuple[int, int]:
    """Rows and columns of a mosaic."""
    mosaic = frame.picture.mosaic
    return (1, 1) if mosaic is None else (mosaic.rows, mosaic.columns)


def _level(frame: Frame, region: Region) -> Level:
    return choose_level(frame.picture.levels, frame.plane, _steps(region))


def _steps(region: Region) -> tuple[float, float]:
    return region.rows.step, region.columns.step
