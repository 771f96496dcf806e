"""From a region of a frame to numbers: which cells of which level to read, and their mean under each pixel.

A plan is made first and reads nothing: its ``tag`` is what entity tags are made of. Large reads are done in strips, so
that memory does not grow with what lies under a tile.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.read import Reader
from hyperslab.engine.indexing import Selection, touched, touched_coords
from hyperslab.errors import TileNotFound
from hyperslab.tiles.amount import check_amount, coarsest_zoom, is_allowed
from hyperslab.tiles.cells import Block, arranged, level_shape, plain_numbers, selection, stacked, strips
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.opening import Pictures
from hyperslab.tiles.picture import Cell, Level, Picture
from hyperslab.tiles.pyramid import Edges, Region, Span, box_edges, choose_level
from hyperslab.tiles.resample import Mask, NDArray, mean, nearest


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """All that has to be read for a region. ``nbytes`` are read before anything is made smaller."""

    frame: Frame
    region: Region
    blocks: tuple[Block, ...]
    nbytes: int
    tag: str

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.region.shape


@dataclass(frozen=True, slots=True)
class Reading:
    """How a region is read. ``as_labels``: one of the cells under a pixel instead of their mean."""

    as_labels: bool = False
    nodata: float | None = None
    cancel: Cancel | None = None
    cost: ReadCost = field(default_factory=ReadCost)


class Source:
    """Plans and reads regions, of at most ``max_bytes`` and so many chunks each. Safe to call from many threads."""

    def __init__(self, pictures: Pictures, reader: Reader, *, max_bytes: int) -> None:
        self.pictures = pictures
        self.reader = reader
        self.max_bytes = max_bytes

    def plan(self, frame: Frame, region: Region, cancel: Cancel | None = None) -> RegionPlan:
        """What to read. Raises `Cancelled`, `TileNotFound` for a picture without cells, and `TooLarge` where a region
        would read more than allowed."""
        if 0 in [axis.size for axis in frame.picture.axes]:
            raise TileNotFound(frame.picture.path, "any", "the array has no cells")
        check_amount(frame, region, self.max_bytes)
        region = frame.cells(region)
        if frame.cell_pitch is None:
            blocks = [self._block(frame, frame.picture, region, (0, 0), cancel)]
        else:
            blocks = self._blocks_of_mosaic(frame, region, frame.cell_pitch, cancel)
        digest = hashlib.blake2b(frame.picture.version.encode(), digest_size=12)
        for block in blocks:
            digest.update(f"{block.read.tag}|{block.place}\n".encode())
        return RegionPlan(frame, region, tuple(blocks), sum(b.read.nbytes for b in blocks), digest.hexdigest())

    def allows(self, frame: Frame, region: Region) -> bool:
        """Whether a region reads no more than is allowed."""
        return is_allowed(frame, region, self.max_bytes)

    def minzoom(self, frame: Frame) -> int:
        """The coarsest zoom whose tiles read no more than is allowed."""
        return coarsest_zoom(frame, self.max_bytes)

    def beside(self, plan: RegionPlan) -> int:
        """Bytes that the chunks in hand take beside what is read of them, while the images of a mosaic are read in
        parallel."""
        if not plan.blocks:
            return 0
        largest = self._largest(plan)
        pool = self.reader.pool(plan.blocks[0].read.array.mount)
        return largest * (1 + pool.most_helpers(len(plan.blocks) - 1, largest))

    def _largest(self, plan: RegionPlan) -> int:
        return max(self.reader.working_memory(block.read) for block in plan.blocks)

    def touched(self, frame: Frame, region: Region) -> int:
        """How many chunks a region of a single image touches; from arithmetic alone."""
        array, part = _part(frame, region)
        return touched(part, array.metadata.grid)

    def is_quick(self, frame: Frame, region: Region, most_chunks: int) -> bool:
        """Whether planning a region of a single image looks at no more chunks than that, and waits for no store."""
        if self.touched(frame, region) > most_chunks:
            return False
        array, part = _part(frame, region)
        if not array.mount.is_remote:
            return True
        keys = [array.chunk_key(coords) for coords in touched_coords(part, array.metadata.grid)]
        return self.reader.versions.knows_all(array.mount, keys)

    def read(self, plan: RegionPlan, how: Reading) -> tuple[NDArray, Mask | None]:
        """Values ``(channels, height, width)`` and which of them are not there; raises what `Reader.read` raises."""
        values, hidden = self._read_stored(plan, how)
        return _turned(values, plan.frame), None if hidden is None else _turned(hidden, plan.frame)

    def _read_stored(self, plan: RegionPlan, how: Reading) -> tuple[NDArray, Mask | None]:
        if not plan.blocks:
            return _put_together(plan, [])
        pool = self.reader.pool(plan.blocks[0].read.array.mount)
        parts = pool.map(
            lambda block: self._read_block(plan.frame, block, how),
            plan.blocks,
            how.cancel,
            nbytes=self._largest(plan),
        )
        if len(parts) == 1 and plan.blocks[0].shape == plan.shape:
            return parts[0]
        return _put_together(plan, parts)

    def _blocks_of_mosaic(
        self, frame: Frame, region: Region, pitch: tuple[int, int], cancel: Cancel | None
    ) -> list[Block]:
        assert frame.picture.mosaic is not None
        shown = [c for c in frame.picture.mosaic.cells if _overlaps(frame.cell_shape, c, pitch, region) is not None]
        pool = self.reader.pool(frame.picture.levels[0].array.mount)
        found = pool.map(lambda cell: self._block_of_cell(frame, cell, region, pitch, cancel), shown, cancel)
        return [block for block in found if block is not None]

    def _block_of_cell(
        self, frame: Frame, cell: Cell, region: Region, pitch: tuple[int, int], cancel: Cancel | None
    ) -> Block | None:
        """None where the image is missing, broken or unlike the others."""
        name = frame.picture.field.name if frame.picture.field is not None else None
        picture = self.pictures.open_cell(cell.path, name)
        if picture is None or not _is_like(picture, frame.picture):
            return None
        rows, columns = frame.plane
        shape = min(frame.cell_shape[0], picture.axes[rows].size), min(frame.cell_shape[1], picture.axes[columns].size)
        overlap = _overlaps(shape, cell, pitch, region)
        return None if overlap is None else self._block(frame, picture, *overlap, cancel)

    def _block(
        self, frame: Frame, picture: Picture, region: Region, place: tuple[int, int], cancel: Cancel | None
    ) -> Block:
        level = choose_level(picture.levels, frame.plane, (region.rows.step, region.columns.step))
        rows, columns = _edges(frame, picture, level, region)
        read = self.reader.plan(level.array, selection(frame, level, rows, columns), picture.field, cancel=cancel)
        return Block(level, frame.plane[0], read, rows, columns, place)

    def _read_block(self, frame: Frame, block: Block, how: Reading) -> tuple[NDArray, Mask | None]:
        return stacked([self._read_strip(frame, block, rows, how) for rows in strips(block, frame.growth)])

    def _read_strip(self, frame: Frame, block: Block, rows: Edges, how: Reading) -> tuple[NDArray, Mask | None]:
        values = self._read_cells(frame, block, rows, how)
        values, hidden = plain_numbers(values if frame.decoder is None else frame.decoder(values), how.nodata)
        if not how.as_labels and not (frame.decoder is not None and frame.decoder.flags):  # flags have no mean
            return mean(values, hidden, rows, block.columns)
        picked = nearest(values, rows, block.columns)
        return picked, None if hidden is None else nearest(hidden, rows, block.columns)

    def _read_cells(self, frame: Frame, block: Block, rows: Edges, how: Reading) -> NDArray:
        plan = block.read
        if rows is block.rows:
            return arranged(frame, block, self.reader.read(plan, how.cancel, how.cost), rows)
        part = selection(frame, block.level, rows, block.columns)
        out = np.empty(part.shape + plan.inner_shape, plan.dtype)
        self.reader.fill_slab(plan, part, out, cost=how.cost, cancel=how.cancel)
        return arranged(frame, block, out, rows)


def _turned(values: NDArray, frame: Frame) -> NDArray:
    """Rows and columns in the order in which they are shown."""
    order = tuple(slice(None, None, -1 if backwards else None) for backwards in frame.flip)
    return np.ascontiguousarray(values[(..., *order)]) if any(frame.flip) else values


def _part(frame: Frame, region: Region) -> tuple[ArrayNode, Selection]:
    """What is read for a region of a single image."""
    region = frame.cells(region)
    level = choose_level(frame.picture.levels, frame.plane, (region.rows.step, region.columns.step))
    return level.array, selection(frame, level, *_edges(frame, frame.picture, level, region))


def _edges(frame: Frame, picture: Picture, level: Level, region: Region) -> tuple[Edges, Edges]:
    """Which rows and columns of a level lie under each pixel of a region."""
    shape = level_shape(picture, level)
    vertical, horizontal = frame.plane
    rows = box_edges(region.rows, level.factors[vertical], shape[vertical])
    return rows, box_edges(region.columns, level.factors[horizontal], shape[horizontal])


# --- images of a mosaic ----------------------------------------------------------------------------------------


def _is_like(picture: Picture, template: Picture) -> bool:
    """Whether a frame of the template can be laid over a picture."""
    return len(picture.axes) == len(template.axes) and all(
        axis.name == wanted.name and (axis.size == wanted.size or axis.type in ("space", "time"))
        for axis, wanted in zip(picture.axes, template.axes, strict=True)
    )


def _overlaps(
    shape: tuple[int, int], cell: Cell, pitch: tuple[int, int], region: Region
) -> tuple[Region, tuple[int, int]] | None:
    """What a region shows of an image of this shape: in the image's own coordinates, and the place in the region."""
    rows = _overlap(region.rows, cell.row * pitch[0], shape[0])
    columns = _overlap(region.columns, cell.column * pitch[1], shape[1])
    return None if rows is None or columns is None else (Region(rows[0], columns[0]), (rows[1], columns[1]))


def _overlap(span: Span, start: int, size: int) -> tuple[Span, int] | None:
    """The pixels of a span that show ``[start, start + size)``, counted from ``start``, and the place of the first."""
    first_pixel = round((start - span.start) / span.step)
    count = max(1, ceil(size / span.step))
    first, last = max(first_pixel, 0), min(first_pixel + count, span.count)
    if first >= last:
        return None
    return Span((first - first_pixel) * span.step, span.step, last - first), first


def _put_together(plan: RegionPlan, parts: list[tuple[NDArray, Mask | None]]) -> tuple[NDArray, Mask | None]:
    shape = (len(plan.frame.channels), *plan.shape)
    dtype = np.result_type(*(values.dtype for values, _ in parts)) if parts else np.dtype(np.float32)
    out, hidden = np.zeros(shape, dtype), np.ones(shape, bool)
    for block, (values, missing) in zip(plan.blocks, parts, strict=True):
        (top, left), (height, width) = block.place, block.shape
        out[:, top : top + height, left : left + width] = values
        hidden[:, top : top + height, left : left + width] = False if missing is None else missing
    return out, hidden
