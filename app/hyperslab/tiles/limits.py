"""How much may be read for one picture: bytes, chunks and what they decode to, told from arithmetic alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, gcd
from typing import Final

from hyperslab.engine.runs import Region as ChunkRegion
from hyperslab.engine.runs import chunk_runs
from hyperslab.errors import TooLarge
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.image import Level
from hyperslab.tiles.pyramid import Region, choose_level

STRIP_BYTES: Final = 16 << 20
"""What lies under a picture is read in strips of about so many bytes."""
_MOST_CHUNKS: Final = 1 << 14
"""A second or two of work, however few bytes they hold."""
_AT_FULL_SIZE: Final = 4
"""So many times as much is allowed at full size, one chunk for each pixel of an ordinary tile: what no zoom could show
in fewer is seen at least there."""
_DECODED_PER_BYTE: Final = 16
"""So many bytes may be decoded for each byte that may be read, as deep chunks and long ones make it many more."""


def check_amount(frame: Frame, cells: Region, max_bytes: int) -> None:
    """Raise `TooLarge` if a region in cells reads more than ``max_bytes``, or touches more chunks or decodes more than
    one picture may."""
    error = excess(frame, cells, max_bytes)
    if error is None:
        return
    grid, z = frame.grid, coarsest_zoom(frame, max_bytes)
    advice = f"tiles can be drawn from zoom {z} of {grid.maxzoom}, coarser ones need a pyramid of stored levels"
    if excess(frame, frame.cells(grid.region(z, 0, 0)), max_bytes) is not None:
        advice = f"tiles of {grid.size} pixels are too large at any zoom, smaller ones (tile_size) need less"
    raise replace(error, advice=advice)


def coarsest_zoom(frame: Frame, max_bytes: int) -> int:
    """The coarsest zoom of which no tile is too large: 0 unless there are too few stored levels; the finest one if all
    are."""
    grid = frame.grid
    allowed = (z for z in range(grid.maxzoom) if excess(frame, frame.cells(grid.region(z, 0, 0)), max_bytes) is None)
    return next(allowed, grid.maxzoom)


def excess(frame: Frame, cells: Region, max_bytes: int) -> TooLarge | None:
    """The limit that a region in cells is over; None if it may be read."""
    amount = Amount.of(frame, cells)
    if amount.nbytes > max_bytes:
        return TooLarge("the array data under one picture", amount.nbytes, max_bytes)
    times = 1 if max(amount.steps) > 1 else _AT_FULL_SIZE
    if amount.chunks > times * _MOST_CHUNKS:
        return TooLarge("the chunks under one picture", amount.chunks, times * _MOST_CHUNKS, unit="chunks")
    most = times * _DECODED_PER_BYTE * max_bytes
    if amount.chunks * amount.level.array.metadata.chunk_nbytes <= most and amount.nbytes <= STRIP_BYTES:
        return None  # as nearly always
    return TooLarge("what is decoded for one picture", amount.decoded, most) if amount.decoded > most else None


@dataclass(frozen=True, slots=True)
class Amount:
    """What reading a region of this size takes at most, at any place where tiles can begin: ``cells`` along the two
    axes of the plane, of all images that a mosaic could have there. ``steps`` are cells per pixel."""

    frame: Frame
    level: Level
    steps: tuple[float, float]
    cells: tuple[int, int]
    nbytes: int
    chunks: int

    @classmethod
    def of(cls, frame: Frame, region: Region) -> Amount:
        """The amount of a region in cells."""
        image = frame.image
        steps = region.rows.step, region.columns.step
        level = choose_level(image.levels, frame.plane, steps)
        shape, chunk = image.level_shape(level), level.array.metadata.chunks
        repeats = (1, 1) if image.mosaic is None else (image.mosaic.rows, image.mosaic.columns)
        rows, columns = (
            min(ceil(span.step * span.count / level.factors[axis]), shape[axis] * times)
            for span, axis, times in zip((region.rows, region.columns), frame.plane, repeats, strict=True)
        )
        chunks = 1
        for cells, axis, times in zip((rows, columns), frame.plane, repeats, strict=True):
            chunks *= _most_touched(cells, shape[axis], chunk[axis], times) if axis < len(chunk) else 1
        if frame.channel_axis is not None and frame.channel_axis < len(chunk):
            chunks *= len({channel // chunk[frame.channel_axis] for channel in frame.channels})
        nbytes = rows * columns * len(frame.channels) * image.dtype.itemsize
        return cls(frame, level, steps, (rows, columns), nbytes, chunks)

    @property
    def decoded(self) -> int:
        """About how many bytes are decoded, wherever the frame stands on its other axes.

        That is whole chunks, or what of each has to be decoded if that is less; again for each strip that cuts it.
        """
        (rows, columns), axis, chunks = self.cells, self.frame.plane[0], self.level.array.metadata.chunks
        of_chunk = at_once = min(rows, chunks[axis]) if axis < len(chunks) else 1
        if self.steps[0] > self.level.factors[axis]:  # else the region is read in one piece
            at_once = min(at_once, strip_rows(rows, self.nbytes, chunks[axis] if axis < len(chunks) else 1))
        return self.chunks * ceil(of_chunk / at_once) * self._decoded_of_chunk((at_once, columns))

    def _decoded_of_chunk(self, cells: tuple[int, int]) -> int:
        """Bytes of a chunk that are decoded if so many cells of it are wanted, along the two axes of the plane: those
        at its end, as a stream is decoded from its beginning."""
        array, frame = self.level.array.metadata, self.frame
        partial = array.codec.partial
        if partial is None:
            return array.chunk_nbytes
        wanted = dict(zip(frame.plane, cells, strict=True))
        if frame.channel_axis is not None:
            wanted[frame.channel_axis] = len(frame.channels)
        ends = [max(1, min(chunk, size)) for chunk, size in zip(array.chunks, array.shape, strict=True)]
        regions: list[ChunkRegion] = [slice(max(end - wanted.get(i, 1), 0), end, 1) for i, end in enumerate(ends)]
        runs = chunk_runs(regions, array.chunks, order=array.order, gap=partial.gap)
        return min(array.chunk_nbytes, partial.usual_work(runs))


def strip_rows(cells: int, nbytes: int, chunk: int) -> int:
    """How many rows of ``cells``, which take ``nbytes``, fit into a strip.

    Strips end where chunks (of ``chunk`` rows) do, if one fits: else the chunks between two are decoded twice.
    """
    rows = max(1, cells * STRIP_BYTES // max(nbytes, 1))
    return rows // chunk * chunk if rows >= chunk else rows


def _most_touched(cells: int, size: int, chunk: int, repeats: int) -> int:
    """Chunks of ``chunk`` cells that ``cells`` touch along an axis, of images of ``size`` cells side by side."""
    whole = ceil(size / chunk)
    if repeats == 1:
        return min(whole, ceil((cells + chunk - gcd(cells, chunk)) / chunk))
    return min(repeats, ceil(cells / max(size, 1)) + 1) * min(whole, ceil((cells - 1) / chunk) + 1)
