"""Where to look in an image: a level, boxes of cells, and what is stored of it.

Writers pad arrays to whole shards, and leave out what they do not have: pictures and contrast limits come from what is
stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, islice
from math import ceil, prod
from typing import Any, Final

import numpy as np

from hyperslab.arrays.chunk_keys import elsewhere
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.read import Reader
from hyperslab.cache import VersionedCache
from hyperslab.engine.grid import Coords
from hyperslab.engine.selection import IndexAxis, ListAxis, normalise
from hyperslab.errors import ChunkCorrupt, StoreDenied
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.image import Image, Level
from hyperslab.tiles.pyramid import level_index
from hyperslab.tiles.query import TileQuery
from hyperslab.tiles.read import plain_numbers
from hyperslab.tiles.resample import Mask, NDArray
from hyperslab.wire import SelectionItem

MAX_CHUNKS: Final = 1 << 12
SECONDS: Final = 4.0
"""Seconds until what was not stored is looked for again, and a remote sample is revalidated, which takes some
60 requests."""
_INDEX_BYTES: Final = 16 << 20
_READ: Final = 64
"""The most chunks that are read to find one with data."""

Places = tuple[int | None, ...]


class StoredCells:
    """Finds what is stored of arrays by the versions of chunks and the indexes of shards. Thread-safe."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._planes: VersionedCache[Places] = VersionedCache(4 << 20)

    def first_plane(self, frame: Frame, query: TileQuery) -> Frame:
        """The frame with other indices along the axes that the query leaves open, if nothing is stored at those by
        default: of the chunk with data that lies nearest to them, and nearest to the middle of what is stored along
        axes that begin in the middle.

        Of remote stores only shards are looked at. An array without data anywhere is looked at again after a while.
        """
        image, named = frame.image, {name for name, _ in query.selection}
        level = sampled_level(image, 0)
        rank, metadata = level.array.metadata.rank, level.array.metadata
        is_known = level.array.head is None and (bool(metadata.levels) or not image.mount.is_remote)
        free = [
            axis
            for axis, index in enumerate(frame.indices[:rank])
            if index is not None and image.axes[axis].name not in named and image.axes[axis].size > 1
        ]
        if not free or not is_known or image.mosaic is not None or image.is_empty:
            return frame
        key = (image.path, image.field_name, frame.plane, frame.indices, *free)
        versions = (image.version, f"{image.version} {time.monotonic() // SECONDS}")
        indices = next((cached for v in versions if (cached := self._planes.get(key, v)) is not None), None)
        if indices is None:
            chosen = self._plane_with_data(frame, level, free)
            indices = frame.indices if chosen is None else chosen
            self._planes.put(key, versions[chosen is None], indices, 256)
        return replace(frame, indices=indices)

    def _plane_with_data(self, frame: Frame, level: Level, free: Sequence[int]) -> Places | None:
        """The indices of a plane with data; None if there is none."""
        array, shape = level.array, frame.image.level_extent(level)
        places = {
            axis: level_index(index, level.factors[axis], level.offsets[axis], shape[axis])
            for axis, index in enumerate(frame.indices[: len(shape)])
            if index is not None
        }
        known = {axis: place for axis, place in places.items() if place is not None}
        middle = [axis for axis in free if axis in frame.at_middle]
        if len(known) == len(places):
            for most in (4, 256):  # of an array that is full, a few tell
                pieces = self.pieces(array, known, most)
                if pieces is None:
                    return frame.indices
                some = pieces[:: max(1, len(pieces) // _READ)][:_READ]
                places_of = (self._data_in(frame, level, piece, known, {}) for piece in some)
                if len(pieces) and (not middle or any(place is not None for place in places_of)):
                    return frame.indices
        named = {axis: place for axis, place in known.items() if axis not in free}
        pieces = self.pieces(array, named)
        if pieces is None or not len(pieces):
            return None
        centres = pieces + np.array(_sizes(array)) / 2
        wanted = {axis: np.median(centres[:, axis]) if axis in middle else known.get(axis, 0) for axis in free}
        distances = sum(abs(centres[:, axis] - place) / shape[axis] for axis, place in wanted.items())
        for piece in pieces[np.argsort(distances, kind="stable")[:_READ]]:
            found = self._data_in(frame, level, piece, named, wanted)
            if found is not None:
                cells = {axis: ceil(level.offsets[axis] + place * level.factors[axis]) for axis, place in found.items()}
                return tuple(
                    [
                        min(max(cells[axis], 0), frame.image.axes[axis].size - 1) if axis in free else index
                        for axis, index in enumerate(frame.indices)
                    ]
                )
        return None

    def _data_in(
        self,
        frame: Frame,
        level: Level,
        piece: NDArray,
        fixed: Mapping[int, int],
        wanted: Mapping[int, float],
    ) -> dict[int, int] | None:
        """Indices outside of the plane, along axes that are not ``fixed``, at which many cells of a piece have another
        value than the fill value, those nearest to ``wanted``; None if no cell has. A piece that cannot be read has
        data."""
        array, image = level.array, frame.image
        shape = image.level_extent(level)
        rest = [axis for axis in range(len(shape)) if axis not in fixed]
        ends = [min(first + size, end) for first, size, end in zip(piece.tolist(), _sizes(array), shape, strict=True)]
        steps = dict(zip(rest, _steps([ends[axis] - int(piece[axis]) for axis in rest], 1 << 20), strict=True))
        items: list[SelectionItem] = [
            fixed[axis] if axis in fixed else slice(int(piece[axis]), ends[axis], steps[axis])
            for axis in range(len(shape))
        ]
        along = [axis for axis in rest if frame.indices[axis] is not None]
        try:
            plan = self._reader.plan(array, normalise(items, array.metadata.shape), image.field)
            values, hidden = plain_numbers(self._reader.read(plan)[0], None)
        except ChunkCorrupt:
            return {axis: int(piece[axis]) for axis in along}
        fill = array.metadata.fill if image.field is None else np.zeros((), image.dtype)
        there = values != plain_numbers(np.asarray(fill).reshape(()), None)[0]
        if hidden is not None:
            there &= ~hidden
        other = [i for i in range(values.ndim) if i >= len(rest) or rest[i] not in along]
        counts = np.asarray(np.count_nonzero(there, axis=tuple(other)))
        if not counts.any() or not along:
            return {} if counts.any() else None
        places: NDArray = np.argwhere(2 * counts >= counts.max()).reshape(-1, len(along))
        places = places * [steps[axis] for axis in along] + piece[along]
        nearest = int(np.argmin(np.abs(places - np.array([wanted[axis] for axis in along])).sum(axis=1)))
        return dict(zip(along, places[nearest].tolist(), strict=True))

    def pieces(self, array: ArrayNode, fixed: Mapping[int, int], most: int = MAX_CHUNKS) -> NDArray | None:
        """The first items of stored chunks, or shards nested in shards, with the indices ``fixed`` along some axes,
        ``(n, rank)``: of at most ``most`` stored objects, evenly spread. None if a shard's index is broken."""
        metadata = array.metadata
        grid = metadata.stored_grid
        if metadata.levels:
            most = max(1, min(most, _READ, _INDEX_BYTES // metadata.levels[0].index_nbytes))
        counts = [1 if axis in fixed else number for axis, number in enumerate(grid.counts)]
        firsts = [grid.axes[axis].locate(fixed[axis])[0] if axis in fixed else 0 for axis in range(len(counts))]
        places = np.ndindex(*counts) if prod(counts) <= most else dict.fromkeys(islice(_spread(counts), most))
        objects = [tuple(a + b for a, b in zip(firsts, place, strict=True)) for place in places]
        pieces = self._pieces_of(array, objects, fixed)
        store = array.mount.store
        if pieces is None or len(pieces) or prod(counts) <= most or not store.capabilities.listable:
            return pieces
        keys = list[str]()
        with suppress(StoreDenied):  # of few, none may be in the sample
            keys = [entry.key[len(array.prefix) :] for entry in islice(store.list_prefix(array.prefix, []), MAX_CHUNKS)]
        objects = [coords for key in keys if (coords := grid.parse_key(key)) is not None]
        near = [coords for coords in objects if all(coords[axis] == firsts[axis] for axis in fixed)]
        return self._pieces_of(array, near[:: max(1, len(near) // most)][:most], fixed)

    def _pieces_of(self, array: ArrayNode, objects: Sequence[Coords], fixed: Mapping[int, int]) -> NDArray | None:
        try:
            pieces = self._reader.stored_pieces(*self._versions(array, objects))
        except ChunkCorrupt:
            return None
        for axis, (size, end) in enumerate(zip(_sizes(array), array.metadata.shape, strict=True)):
            index, first = fixed.get(axis), pieces[:, axis]
            pieces = pieces[first < end if index is None else (first <= index) & (index < first + size)]
        return pieces

    def _versions(self, array: ArrayNode, objects: Sequence[Coords]) -> tuple[ArrayNode, Mapping[Coords, str | None]]:
        """The versions of stored objects, and the array with the keys under which they lie."""
        keys = [*map(array.chunk_key, objects)]
        versions = dict(zip(objects, array.mount.versions.look_up(array.prefix, keys), strict=True))
        absent = [coords for coords, version in versions.items() if version is None]
        moved = elsewhere(array, absent) if absent else None
        return (array, versions) if moved is None else self._versions(moved, objects)

    def stored_boxes(
        self, array: ArrayNode, boxes: list[list[SelectionItem]], fixed: Mapping[int, int], shape: Sequence[int]
    ) -> list[list[SelectionItem]]:
        """Boxes of a sample, or as many in stored chunks if most of them are in none."""
        slices = zip(boxes[0], shape, strict=True)
        is_whole = len(boxes) == 1 and all(item == slice(0, size) for item, size in slices if isinstance(item, slice))
        if is_whole or array.head is not None or (array.mount.is_remote and not array.metadata.levels):
            return boxes
        firsts: list[list[Any]] = [[item.start if isinstance(item, slice) else item for item in box] for box in boxes]
        items, grid = np.array(firsts, np.int64), array.metadata.stored_grid
        owners = np.stack([axis.cells(items[:, i]) for i, axis in enumerate(grid.axes)], axis=1)
        array, versions = self._versions(array, [*dict.fromkeys(map(tuple, owners.tolist()))])
        try:
            is_sparse = 2 * np.count_nonzero(self._reader.are_stored(array, versions, items)) < len(boxes)
        except ChunkCorrupt:
            return boxes
        pieces = self.pieces(array, fixed) if is_sparse else None
        if pieces is None or not len(pieces):
            return boxes
        found: list[list[SelectionItem]] = []
        for piece in pieces[np.unique(np.linspace(0, len(pieces) - 1, len(boxes)).astype(int))].tolist():
            box: list[SelectionItem] = []
            for axis, (first, item) in enumerate(zip(piece, boxes[0], strict=True)):
                end = min(first + _sizes(array)[axis], shape[axis])
                box.append(slice(first, end, item.step) if isinstance(item, slice) else item)
            found += [box] if all(axis in fixed or first < shape[axis] for axis, first in enumerate(piece)) else []
        return found or boxes

    def stored_cells(self, plan: ReadPlan) -> Mask | None:
        """Which of the values that were read lie in what is stored; None if all do, or it is not known."""
        array, versions = plan.array, plan.versions or {}
        if array.head is not None or not (array.metadata.levels or None in versions.values()):
            return None
        columns, firsts = list[NDArray](), list[NDArray]()
        for axis, chosen in enumerate(plan.selection.axes):
            if isinstance(chosen, IndexAxis):
                items = np.array([chosen.index])
            elif isinstance(chosen, ListAxis):
                items = chosen.indices
            else:
                items = chosen.start + chosen.step * np.arange(chosen.count)
            sizes = _sizes(array)[axis]
            pieces = items // sizes if array.metadata.levels else array.metadata.grid.axes[axis].cells(items)
            _, first, column = np.unique(pieces, return_index=True, return_inverse=True)
            columns, firsts = [*columns, column], [*firsts, items[first]]
        shape = [len(first) for first in firsts]
        try:
            each = np.stack([axis.ravel() for axis in np.meshgrid(*firsts, indexing="ij")], axis=1)
            there = self._reader.are_stored(array, versions, each).reshape(shape)
        except ChunkCorrupt:
            return None
        if there.all():
            return None
        mask: Mask = there[np.ix_(*columns)].reshape(plan.selection.shape)
        return mask


def _sizes(array: ArrayNode) -> tuple[int, ...]:
    """The shape of what `Reader.stored_pieces` tells."""
    return array.metadata.levels[0].chunks if array.metadata.levels else array.metadata.chunks


def sampled_level(image: Image, finer: int) -> Level:
    """The level ``finer`` levels from the coarsest, of those that have all channels and half of each other axis."""

    def is_whole(level: Level) -> bool:
        parts = zip(image.axes, image.level_extent(level), level.factors, strict=False)
        return all(
            size == axis.size if axis.type == "channel" else 2 * size * factor >= axis.size
            for axis, size, factor in parts
        )

    levels = [image.levels[0], *filter(is_whole, image.levels[1:])]
    return levels[max(0, len(levels) - 1 - finer)]


def sample_boxes(
    shape: Sequence[int],
    chunks: Sequence[int],
    fixed: Mapping[int, int],
    *,
    max_cells: int,
    max_chunks: int = MAX_CHUNKS,
    single: bool = False,
) -> list[list[SelectionItem]]:
    """Selections of about ``max_cells`` cells in at most ``max_chunks`` chunks, but at least one; deterministic.

    A single one of the whole array if that is within the limits; else up to 64, each within a chunk, or a few adjacent
    ones if chunks are tiny, with a step in large chunks. ``single``: always within one chunk. ``fixed``: an index for
    some of the axes.
    """
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    steps_of = list(chunks)
    if not single:
        number = prod(ceil(shape[axis] / chunks[axis]) for axis in free)
        if number <= max_chunks and prod(shape[axis] for axis in free) <= max_cells:
            return [[fixed.get(axis, slice(0, shape[axis])) for axis in range(len(shape))]]
        steps_of = _grown(shape, chunks, free, min(64, max_chunks))
        max_chunks //= prod(extent // chunk for extent, chunk in zip(steps_of, chunks, strict=True))
    counts = [ceil(shape[axis] / steps_of[axis]) for axis in free]
    extents = [min(steps_of[axis], shape[axis]) for axis in free]
    steps = _steps(extents, max_cells // 8)
    number = max(1, min(64, max_cells // _cells(extents, steps), prod(counts), max_chunks))
    places: set[tuple[int, ...]] = set()
    for coords in islice(_spread(counts), 16 * number):  # in a small grid they repeat
        places.add(coords)
        if len(places) == number:
            break
    boxes = []
    for coords in sorted(places):
        box: list[SelectionItem] = [fixed.get(axis, 0) for axis in range(len(shape))]
        for axis, coord, extent, step in zip(free, coords, extents, steps, strict=True):
            start = coord * steps_of[axis]
            box[axis] = slice(start, min(start + extent, shape[axis]), step)
        boxes.append(box)
    return boxes


def _grown(shape: Sequence[int], chunks: Sequence[int], free: Sequence[int], most: int) -> list[int]:
    """The extents of a chunk; of up to ``most`` adjacent ones, near-cubical, if a chunk has few cells."""
    extents, number = list(chunks), 1
    while 2 * number <= most and prod(extents[axis] for axis in free) < 512:
        growing = [axis for axis in free if extents[axis] < shape[axis]]
        if not growing:
            break
        extents[min(growing, key=extents.__getitem__)] *= 2
        number *= 2
    return extents


def _steps(extents: Sequence[int], max_cells: int) -> list[int]:
    """Steps that limit the cells of a box: powers of two, the longest axis first."""
    steps = [1] * len(extents)
    while _cells(extents, steps) > max(1, max_cells):
        counts = [ceil(extent / step) for extent, step in zip(extents, steps, strict=True)]
        steps[counts.index(max(counts))] *= 2
    return steps


def _cells(extents: Sequence[int], steps: Sequence[int]) -> int:
    return prod(ceil(extent / step) for extent, step in zip(extents, steps, strict=True))


def _spread(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Low-discrepancy positions in a grid: a Kronecker sequence over the powers of the generalised golden ratio, the
    root of x^(rank + 1) = x + 1."""
    ratio = 2.0
    for _ in range(32):
        ratio = (1 + ratio) ** (1 / (len(counts) + 1))
    for i in count():
        fractions = ((0.5 + (i + 1) * ratio ** -(axis + 1)) % 1 for axis in range(len(counts)))
        yield tuple(int(fraction * size) for fraction, size in zip(fractions, counts, strict=True))
