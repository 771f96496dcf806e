"""Reads regions of a frame: selects a level, reads its cells and averages them per pixel.

Planning reads no data; the plan's ``tag`` is the basis of entity tags. Large regions are read in strips, which bounds
memory. Of regions of too many small chunks a grid of single cells is read instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import ceil, gcd
from typing import Any, Final

import numpy as np

from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.read import Reader
from hyperslab.arrays.workers import Cancel
from hyperslab.engine.runs import Region as ChunkRegion
from hyperslab.engine.runs import chunk_runs
from hyperslab.engine.selection import normalise
from hyperslab.errors import TileNotFound, TooLarge
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.image import Image, Level
from hyperslab.tiles.images import Images
from hyperslab.tiles.ome import Cell
from hyperslab.tiles.pyramid import Edges, Region, Span, box_edges, choose_level, divide, level_index
from hyperslab.tiles.query import Component
from hyperslab.tiles.resample import Mask, NDArray, is_identity, mean, nearest
from hyperslab.wire import SelectionItem, numbers_dtype

STRIP_BYTES: Final = 16 << 20
"""Approximate size of a strip (benchmark ``tuning``)."""
_MAX_CHUNKS: Final = 1 << 14
"""A second or two of work, even if chunks are tiny."""


_Part = tuple[Level, Region, tuple[int, int], tuple[int, int] | None]
"""Part of a region, as of `divide`; with the rows and columns of single cells that show it, None for all cells."""


@dataclass(frozen=True, slots=True)
class Block:
    """Part of a region from one image; ``place`` is the row and column of its first pixel in the region.

    Pixel ``i`` along the rows covers cells ``[rows[i], rows[i + 1])``; ``columns`` likewise. ``items`` is the selection
    along each axis of the image; with indices along both axes of the plane, ``rows`` and ``columns`` count these.
    """

    level: Level
    plan: ReadPlan
    items: list[SelectionItem]
    rows: Edges
    columns: Edges
    place: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """Read plan of a region. ``nbytes`` is the size of the cells before averaging, ``largest`` the working memory of
    reading the most demanding block, ``working_memory`` that of all blocks that are read concurrently. ``is_sampled``:
    pixels are single cells instead of means, and may repeat."""

    frame: Frame
    region: Region
    blocks: tuple[Block, ...]
    nbytes: int
    largest: int
    working_memory: int
    tag: str
    is_sampled: bool


class RegionReader:
    """Plans and reads regions of at most ``max_bytes``. Thread-safe."""

    def __init__(self, images: Images, reader: Reader, *, max_bytes: int) -> None:
        self._images = images
        self._reader = reader
        self._max_bytes = max_bytes

    def excess(self, frame: Frame, region: Region) -> TooLarge | None:
        """The error if a region exceeds a limit and cannot be sampled either."""
        error = self.excess_of_all(frame, region)
        return None if error is None or self._sampled_parts(frame, frame.cells(region)) else error

    def excess_of_all(self, frame: Frame, region: Region) -> TooLarge | None:
        """The error if all cells of a region exceed a limit: their bytes, chunks or decoded bytes, from arithmetic."""
        parts = ReadEstimate.of(frame, frame.cells(region))
        nbytes, chunks = sum(part.nbytes for part in parts), sum(part.chunks for part in parts)
        if nbytes > self._max_bytes:
            return TooLarge("the array data under one picture", nbytes, self._max_bytes)
        # four times as much at full resolution: up to a chunk per pixel of a default tile, as no zoom needs fewer
        times = 1 if max(parts[0].steps) > 1 else 4
        if chunks > times * _MAX_CHUNKS:
            return TooLarge("the chunks under one picture", chunks, times * _MAX_CHUNKS, unit="chunks")
        limit = times * 16 * self._max_bytes  # deep or long chunks hold many more bytes than the region
        whole = sum(part.chunks * part.level.array.metadata.chunk_nbytes for part in parts)
        if whole <= limit and nbytes <= STRIP_BYTES:
            return None  # the common case, without the longer calculation
        decoded = sum(part.decoded for part in parts)
        return TooLarge("the chunks under one picture, decoded", decoded, limit) if decoded > limit else None

    def _sampled_parts(self, frame: Frame, region: Region) -> list[_Part]:
        """The parts of a region in cells, each with the single cells that make a picture of it (`sample_shape`); none
        if so few do not, for mosaics and at full resolution."""
        if frame.image.mosaic is not None or max(region.rows.step, region.columns.step) <= 1:
            return []
        parts = [*divide(frame.image, frame.levels_of(frame.image), frame.plane, region)]
        largest = max(level.array.metadata.chunk_nbytes for level, _, _ in parts)
        most = min(_MAX_CHUNKS, self._max_bytes // max(largest, 1)) // len(parts)
        sampled = [(*part, sample_shape(frame, *part[:2], most)) for part in parts]
        return sampled if all(shape is not None for *_, shape in sampled) else []

    def minzoom(self, frame: Frame, *, sampled: bool = True) -> int:
        """The coarsest zoom whose tiles are within the limits, if need be ``sampled``; the finest zoom if none is."""
        grid, excess = frame.grid, self.excess if sampled else self.excess_of_all

        def allows(z: int) -> bool:  # the last tile too: levels may end early
            last = [count - 1 for count in grid.counts(z)]
            places = {(0, 0), (last[0], last[1])}
            return all(excess(frame, grid.region(z, *place)) is None for place in places)

        return next(filter(allows, range(grid.maxzoom)), grid.maxzoom)

    def plan(self, frame: Frame, region: Region, cancel: Cancel | None = None) -> RegionPlan:
        """The plan of a region. Raises `Cancelled`, `TileNotFound` for an image without cells, and `TooLarge`."""
        image = frame.image
        if image.is_empty:
            raise TileNotFound(image.path, "any", "the array has no cells")
        too_large = self.excess_of_all(frame, region)
        sampled = [] if too_large is None else self._sampled_parts(frame, frame.cells(region))
        if too_large is not None and not sampled:
            grid, z = frame.grid, self.minzoom(frame, sampled=False)
            advice = f"tiles can be drawn from zoom {z} of {grid.maxzoom}, coarser ones need a pyramid of stored levels"
            if self.excess_of_all(frame, grid.region(z, 0, 0)) is not None:
                advice = f"tiles of {grid.size} pixels are too large at any zoom, smaller ones (tile_size) need less"
            raise replace(too_large, advice=advice)
        region = frame.cells(region)
        if sampled:
            blocks = [self._block(frame, image, part, cancel) for part in sampled]
        elif image.mosaic is None or frame.cell_pitch is None:
            blocks = self._blocks(frame, image, region, (0, 0), cancel)
        else:
            pitch, shape = frame.cell_pitch, frame.cell_shape
            cells = [cell for cell in image.mosaic.cells if _overlaps(shape, cell, pitch, region) is not None]
            pool = image.mount.pool
            by_cell = pool.map(lambda cell: self._blocks_of_cell(frame, cell, region, pitch, cancel), cells, cancel)
            blocks = [*chain.from_iterable(by_cell)]
        digest = hashlib.blake2b(image.version.encode(), digest_size=12)
        for block in blocks:
            digest.update(f"{block.plan.tag}|{block.place}\n".encode())
        nbytes = sum(block.plan.nbytes for block in blocks)
        largest = max([self._reader.working_memory(block.plan) for block in blocks], default=0)
        helpers = image.mount.pool.max_helpers(len(blocks) - 1, largest) if largest else 0
        memory = largest * (1 + helpers)
        return RegionPlan(frame, region, tuple(blocks), nbytes, largest, memory, digest.hexdigest(), bool(sampled))

    def read(
        self, plan: RegionPlan, as_labels: bool, nodata: float | None, cancel: Cancel | None, cost: ReadCost
    ) -> tuple[NDArray, Mask | None]:
        """Values ``(channels, height, width)`` and the mask of missing ones; raises the errors of `Reader.read`.

        ``as_labels``: nearest cell instead of the mean.
        """
        frame, decoder = plan.frame, plan.frame.decoder
        has_mean = not (as_labels or plan.is_sampled) and not (decoder is not None and decoder.flags)

        def read_strip(block: Block, rows: Edges) -> tuple[NDArray, Mask | None]:
            items, whole = [*block.items], block.plan
            if rows is block.rows:
                values = self._reader.read(whole, cancel, cost)[0]
            else:
                items[frame.plane[0]] = _cells(rows, int(block.rows[-1]))
                stored = whole.array.metadata.shape
                part = normalise(items[: len(stored)], stored)
                values = np.empty(part.shape + whole.inner_shape, whole.dtype)
                self._reader.fill_slab(whole, part, values, cost=cost, cancel=cancel)
            values = _arranged(frame, block.level, items, values)
            own, is_other = decoder, values.dtype.newbyteorder("<") != frame.image.dtype.newbyteorder("<")
            if decoder is not None and is_other:  # packed in another way
                own = block.level.array.decoder.without_times()
            elif as_labels and values.dtype.kind == "f" and frame.image.dtype.kind in "iu":
                limits = np.iinfo(frame.image.dtype)
                values = np.rint(values).clip(limits.min, limits.max).astype(frame.image.dtype)
            values, hidden = plain_numbers(values if own is None else own(values), nodata)
            if has_mean:
                return mean(values, hidden, rows, block.columns)
            hidden = None if hidden is None else nearest(hidden, rows, block.columns)
            return nearest(values, rows, block.columns), hidden

        def read_block(block: Block) -> tuple[NDArray, Mask | None]:
            parts = [read_strip(block, rows) for rows in _strips(frame, block)]
            if len(parts) == 1:
                return parts[0]
            values = np.concatenate([values for values, _ in parts], axis=-2)
            if all(hidden is None for _, hidden in parts):
                return values, None
            masks = [np.zeros(v.shape, bool) if hidden is None else hidden for v, hidden in parts]
            return values, np.concatenate(masks, axis=-2)

        parts = frame.image.mount.pool.map(read_block, plan.blocks, cancel, nbytes=plan.largest)
        is_whole = len(parts) == 1 and parts[0][0].shape[1:] == plan.region.shape
        values, hidden = parts[0] if is_whole else _assemble(plan, parts)
        if any(frame.flip):
            order = (..., *[slice(None, None, -1 if backwards else None) for backwards in frame.flip])
            values = np.ascontiguousarray(values[order])
            hidden = None if hidden is None else np.ascontiguousarray(hidden[order])
        return values, hidden

    def _blocks_of_cell(
        self, frame: Frame, cell: Cell, region: Region, pitch: tuple[int, int], cancel: Cancel | None
    ) -> list[Block]:
        """The blocks of one image of a mosaic; none if it is missing, broken or has other axes."""
        image = self._images.open_cell(cell.path, frame.image.field_name)
        if image is None or len(image.axes) != len(frame.image.axes):
            return []
        if any(a.name != b.name for a, b in zip(image.axes, frame.image.axes, strict=True)):
            return []
        if not frame.has_indices([axis.size for axis in image.axes]):
            return []
        shape = image.axes[frame.plane[0]].size, image.axes[frame.plane[1]].size
        # an image that is larger than its place is reduced to it
        times = max(1.0, *(size / most for size, most in zip(shape, frame.cell_shape, strict=True)))
        place = max(1, int(shape[0] / times)), max(1, int(shape[1] / times))
        overlap = _overlaps(place, cell, pitch, region)
        if overlap is None:
            return []
        spans = (overlap[0].rows, overlap[0].columns)
        scaled = Region(*(Span(span.start * times, span.step * times, span.count) for span in spans))
        return self._blocks(frame, image, scaled, overlap[1], cancel)

    def _blocks(
        self, frame: Frame, image: Image, region: Region, place: tuple[int, int], cancel: Cancel | None
    ) -> list[Block]:
        parts = divide(image, frame.levels_of(image), frame.plane, region, place)
        return [self._block(frame, image, (*part, None), cancel) for part in parts]

    def _block(self, frame: Frame, image: Image, part: _Part, cancel: Cancel | None) -> Block:
        level, region, place, sample = part
        shape = image.level_shape(level)
        edges: list[Edges] = []
        wanted: dict[int, SelectionItem] = {}
        for i, (span, axis) in enumerate(zip((region.rows, region.columns), frame.plane, strict=True)):
            factor, offset, size = level.factors[axis], level.offsets[axis], shape[axis]
            if sample is None:
                edges.append(box_edges(span, factor, offset, size))
                wanted[axis] = _cells(edges[i], size)
            else:  # the middle cells of equal boxes are what the pixels show
                boxes = box_edges(Span(span.start, span.step * span.count / sample[i], sample[i]), factor, offset, size)
                wanted[axis] = np.minimum((boxes[:-1] + boxes[1:]) // 2, size - 1).tolist()
                edges.append(box_edges(Span(0, sample[i] / span.count, span.count), 1, 0, sample[i]))
        rows, columns = edges
        items: list[SelectionItem] = []
        for axis in range(len(shape)):
            if axis in wanted:
                items.append(wanted[axis])
            elif axis == frame.channel_axis:
                channels = frame.channels
                run = slice(channels[0], channels[-1] + 1)
                in_order = channels == tuple(range(run.start, run.stop))
                items.append(channels[0] if len(channels) == 1 else run if in_order else [*channels])
            else:
                wanted_index, size = frame.indices[axis] or 0, shape[axis]
                index = level_index(wanted_index, level.factors[axis], level.offsets[axis], size)
                items.append(min(wanted_index, size - 1) if index is None else index)
        stored = level.array.metadata.shape  # a field's subarray is always read whole
        plan = self._reader.plan(level.array, normalise(items[: len(stored)], stored), image.field)
        return Block(level, self._reader.look_up(plan, cancel), items, rows, columns, place)


# --- cells of a level ------------------------------------------------------------------------------------------


def _cells(edges: Edges, size: int) -> slice:
    """The cells between the first and the last edge of an axis of ``size`` cells: at least one."""
    first = min(int(edges[0]), size - 1)
    return slice(first, max(int(edges[-1]), first + 1))


def sample_shape(frame: Frame, level: Level, region: Region, most: int) -> tuple[int, int] | None:
    """Rows and columns of single cells that show a region of a level, from at most ``most`` chunks; None if pixels
    would have to repeat more than eight times along an axis."""
    pixels, shape, chunk = region.shape, frame.image.level_shape(level), level.array.metadata.chunks
    chunks = [
        ceil(min(span.step * span.count / level.factors[axis], shape[axis]) / chunk[axis]) + 1
        if axis < len(chunk) else 1
        for span, axis in zip((region.rows, region.columns), frame.plane, strict=True)
    ]  # fmt: skip
    counts = [*pixels]
    while True:
        touched = [min(count, number) for count, number in zip(counts, chunks, strict=True)]
        if touched[0] * touched[1] * _channel_chunks(frame, level) <= most:
            return counts[0], counts[1]
        longer = touched.index(max(touched))
        counts[longer] = ceil(counts[longer] / 2)
        if counts[longer] * 8 < pixels[longer] or counts[longer] == 1:
            return None


def _channel_chunks(frame: Frame, level: Level) -> int:
    """The chunks that the displayed channels lie in."""
    axis, chunk = frame.channel_axis, level.array.metadata.chunks
    return 1 if axis is None or axis >= len(chunk) else len({channel // chunk[axis] for channel in frame.channels})


def _arranged(frame: Frame, level: Level, items: list[SelectionItem], values: NDArray) -> NDArray:
    """Values of a level as ``(channels, height, width)``, a view if possible."""
    rank = len(level.array.metadata.shape)
    remaining = [axis for axis, item in enumerate(items) if not isinstance(item, int)]
    outer = sum(axis < rank for axis in remaining)
    for axis in range(len(items) - 1, rank - 1, -1):  # of a field's subarray
        item = items[axis]
        index: Any = np.arange(item.start, item.stop) if isinstance(item, slice) else item
        values = values.take(index, axis=axis - rank + outer)
    if len(frame.channels) > 1 and frame.channel_axis is not None:
        return values.transpose([remaining.index(axis) for axis in (frame.channel_axis, *frame.plane)])
    plane = values.transpose([remaining.index(axis) for axis in frame.plane])
    return np.broadcast_to(plane, (len(frame.channels), *plane.shape))


def plain_numbers(values: NDArray, nodata: float | None) -> tuple[NDArray, Mask | None]:
    """Values in a numeric dtype of numpy, and the mask of missing ones: NaN, NaT and ``nodata``.

    Datetimes and timedeltas become int64; numbers of ml_dtypes float32 or complex64, which hold them exactly.
    """
    hidden: Mask | None = None
    if values.dtype.isbuiltin == 2:
        values = values.astype(np.complex64 if numbers_dtype(values.dtype).kind == "c" else np.float32)
    if values.dtype.kind in "mM":
        hidden = np.isnat(values)
        values = values.view(np.dtype(np.int64).newbyteorder(values.dtype.byteorder))
    if values.dtype.kind in "fc":
        hidden = np.isnan(values)
    if nodata is not None:
        equal = values == nodata
        hidden = equal if hidden is None else hidden | equal
    return values, hidden if hidden is not None and hidden.any() else None


def one_component(values: NDArray, component: Component | None) -> NDArray:
    """A real-valued component of complex values, by default the magnitude; real values are unchanged."""
    if values.dtype.kind != "c":
        return values
    if component == "real":
        return values.real
    if component == "imag":
        return values.imag
    return np.asarray(np.angle(values) if component == "phase" else np.abs(values))


def _strips(frame: Frame, block: Block) -> Iterator[Edges]:
    """The row edges of a block, divided into strips of about `STRIP_BYTES` after decoding."""
    rows, nbytes, axis = block.rows, block.plan.nbytes * frame.growth, frame.plane[0]
    if nbytes <= STRIP_BYTES or is_identity(rows) or len(rows) <= 2:
        yield rows
        return
    chunks = block.level.array.metadata.chunks
    size = strip_rows(max(1, int(rows[-1] - rows[0])), nbytes, chunks[axis] if axis < len(chunks) else 1)
    cuts = np.searchsorted(rows, np.arange(rows[0] - rows[0] % size + size, rows[-1], size))
    bounds = np.unique(np.concatenate(([0], cuts, [len(rows) - 1])))
    for first, last in pairwise(bounds.tolist()):
        yield rows[first : last + 1]


# --- estimates -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadEstimate:
    """Upper bound of what a region of this size reads, at any position of a tile and with all images of a mosaic
    present. ``cells`` are counted along both axes of the plane, ``steps`` are cells per pixel."""

    frame: Frame
    level: Level
    steps: tuple[float, float]
    cells: tuple[int, int]
    nbytes: int
    chunks: int

    @classmethod
    def of(cls, frame: Frame, region: Region) -> list[ReadEstimate]:
        """The estimates for the parts of a region in cells, of a mosaic for all of it."""
        image, levels = frame.image, frame.levels_of(frame.image)
        if image.mosaic is not None:
            return [cls._of(frame, choose_level(levels, frame.plane, (region.rows.step, region.columns.step)), region)]
        return [cls._of(frame, level, part) for level, part, _ in divide(image, levels, frame.plane, region)]

    @classmethod
    def _of(cls, frame: Frame, level: Level, region: Region) -> ReadEstimate:
        image = frame.image
        steps = region.rows.step, region.columns.step
        shape, chunk = image.level_shape(level), level.array.metadata.chunks
        repeats = (1, 1) if image.mosaic is None else (image.mosaic.rows, image.mosaic.columns)
        extents, chunks = [], 1
        for span, axis, times in zip((region.rows, region.columns), frame.plane, repeats, strict=True):
            size = shape[axis]
            cells = min(ceil(span.step * span.count / level.factors[axis]), size * times)
            extents.append(cells)
            if axis >= len(chunk):
                continue
            length, whole = chunk[axis], ceil(size / chunk[axis])
            if times == 1:
                chunks *= min(whole, ceil((cells + length - gcd(cells, length)) / length))
            else:  # images of a mosaic
                chunks *= min(times, ceil(cells / max(size, 1)) + 1) * min(whole, ceil((cells - 1) / length) + 1)
        if frame.channel_axis is not None:
            chunks *= _channel_chunks(frame, level)
        rows, columns = extents
        nbytes = rows * columns * len(frame.channels) * image.dtype.itemsize
        return cls(frame, level, steps, (rows, columns), nbytes, chunks)

    @property
    def decoded(self) -> int:
        """Approximate bytes to decode, for any indices along the other axes.

        Whole chunks, or with partial decoding, the part up to the last cell, as streams are decoded from their start;
        once for each strip that a chunk spans.
        """
        (rows, columns), frame, array = self.cells, self.frame, self.level.array.metadata
        axis = frame.plane[0]
        length = array.chunks[axis] if axis < len(array.chunks) else 1
        of_chunk = of_strip = min(rows, length)
        if self.steps[0] > self.level.factors[axis]:  # else there is one strip
            of_strip = min(of_strip, strip_rows(rows, self.nbytes, length))
        nbytes, partial = array.chunk_nbytes, array.codec.partial
        if partial is not None:
            counts = dict(zip(frame.plane, (of_strip, columns), strict=True))
            if frame.channel_axis is not None:
                counts[frame.channel_axis] = len(frame.channels)
            ends = [max(1, min(chunk, size)) for chunk, size in zip(array.chunks, array.shape, strict=True)]
            regions: list[ChunkRegion] = [slice(max(end - counts.get(i, 1), 0), end, 1) for i, end in enumerate(ends)]
            runs = chunk_runs(regions, array.chunks, order=array.order, gap=partial.gap)
            nbytes = min(nbytes, partial.usual_work(runs))
        return self.chunks * ceil(of_chunk / of_strip) * nbytes


def strip_rows(cells: int, nbytes: int, chunk: int) -> int:
    """Rows per strip, for ``cells`` rows of ``nbytes`` in all.

    A multiple of ``chunk`` (rows per chunk) if one fits; otherwise chunks are decoded once per strip.
    """
    rows = max(1, cells * STRIP_BYTES // max(nbytes, 1))
    return rows // chunk * chunk if rows >= chunk else rows


# --- images of a mosaic ----------------------------------------------------------------------------------------


def _overlaps(
    shape: tuple[int, int], cell: Cell, pitch: tuple[int, int], region: Region
) -> tuple[Region, tuple[int, int]] | None:
    """Intersection of a region with an image of this shape, in the image's coordinates, and its place in the region."""
    rows = _overlap(region.rows, cell.row * pitch[0], shape[0])
    columns = _overlap(region.columns, cell.column * pitch[1], shape[1])
    return None if rows is None or columns is None else (Region(rows[0], columns[0]), (rows[1], columns[1]))


def _overlap(span: Span, start: int, size: int) -> tuple[Span, int] | None:
    """Intersection of a span with ``[start, start + size)``, relative to ``start``, and its first pixel's index."""
    first_pixel = round((start - span.start) / span.step)
    count = max(1, ceil(size / span.step))
    first, last = max(first_pixel, 0), min(first_pixel + count, span.count)
    if first >= last:
        return None
    return Span((first - first_pixel) * span.step, span.step, last - first), first


def _assemble(plan: RegionPlan, parts: list[tuple[NDArray, Mask | None]]) -> tuple[NDArray, Mask | None]:
    """Values and mask of a mosaic's region from those of its blocks; pixels between images are masked."""
    shape = (len(plan.frame.channels), *plan.region.shape)
    dtype = np.result_type(*(values.dtype for values, _ in parts)) if parts else np.dtype(np.float32)
    out, hidden = np.zeros(shape, dtype), np.ones(shape, bool)
    for block, (values, missing) in zip(plan.blocks, parts, strict=True):
        (top, left), (height, width) = block.place, values.shape[1:]
        out[:, top : top + height, left : left + width] = values
        hidden[:, top : top + height, left : left + width] = False if missing is None else missing
    return out, hidden
