"""Statistics of an image: windows and histograms from a sample of its coarsest level."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, islice
from math import ceil, prod
from threading import BoundedSemaphore
from typing import Any, Final, TypeVar

import numpy as np

from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.read import Reader
from hyperslab.arrays.workers import Cancel
from hyperslab.cache import VersionedCache
from hyperslab.engine.cf import Decoder
from hyperslab.engine.selection import normalise
from hyperslab.errors import ChunkCorrupt
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.image import Image, Level
from hyperslab.tiles.images import Images
from hyperslab.tiles.ome import OmeroChannel
from hyperslab.tiles.pyramid import level_index
from hyperslab.tiles.query import Component, Rescale, TileQuery
from hyperslab.tiles.read import one_component, plain_numbers
from hyperslab.tiles.resample import NDArray
from hyperslab.wire import SelectionItem

T = TypeVar("T")
Window = tuple[float, float]

PERCENTILES: Final = (0.1, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 99.9)

_MAX_CHUNKS: Final = 1 << 12
_REMOTE_SECONDS: Final = 4.0
"""Seconds until a sample of a remote store is revalidated, which takes some 60 requests."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of a sample: a ``channel`` of an image (axis and index; None for the whole image), without ``nodata``,
    decoded if there is a ``decoder``."""

    image: Image
    channel: tuple[int, int] | None = None
    component: Component | None = None
    nodata: float | None = None
    decoder: Decoder | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        return self.image.path, self.image.field_name, self.channel, self.component, self.nodata, self.decoder


@dataclass(frozen=True, slots=True)
class Sample:
    """Statistics of finite values: at most 2**20 ``values``, their extremes, and the percentiles at `PERCENTILES`.

    ``exact``: taken from all values of the coarsest level. Without any value the range is 0 to 1. ``level`` is the path
    of the array that was read; ``damage`` is the error of chunks left out, if any.
    """

    values: NDArray
    low: float
    high: float
    percentiles: tuple[float, ...]
    exact: bool
    tag: str
    level: str = ""
    damage: str | None = None

    @classmethod
    def of(cls, parts: list[NDArray], exact: bool, tag: str, level: str, damage: str | None) -> Sample:
        """The sample of the finite values of several parts, each in one dimension."""
        values = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0)
        if not values.size:
            return cls(values, 0.0, 1.0, (0.0, *(1.0,) * (len(PERCENTILES) - 1)), exact, tag, level, damage)
        some = values[:: -(-values.size // (1 << 20))]
        percentiles = tuple(float(p) for p in np.percentile(some, PERCENTILES, method="nearest"))
        return cls(some, float(np.min(values)), float(np.max(values)), percentiles, exact, tag, level, damage)

    @property
    def auto(self) -> Window:
        """The window from the first to the last of `PERCENTILES`; never empty."""
        return widened(self.percentiles[0], self.percentiles[-1])

    @property
    def minmax(self) -> Window:
        """The window of all values; never empty."""
        return widened(self.low, self.high)


class Statistics:
    """Takes and caches samples of images. Thread-safe."""

    def __init__(self, images: Images, reader: Reader) -> None:
        self._images = images
        self._reader = reader
        self._samples: VersionedCache[Sample] = VersionedCache(32 << 20)
        self._planned: VersionedCache[tuple[list[ReadPlan], bool]] = VersionedCache(256)
        self._revalidated: VersionedCache[Sample] = VersionedCache(32 << 20)
        self._planes: VersionedCache[tuple[int | None, ...]] = VersionedCache(4 << 20)
        self._large_reads = BoundedSemaphore(2)  # admission does not count the memory of samples

    def windows(
        self, frame: Frame, query: TileQuery, cancel: Cancel | None, channels: Sequence[tuple[int, Rescale | None]]
    ) -> tuple[list[Window | ChunkCorrupt], bool]:
        """Windows of channels, given as index and requested rescaling, and whether any was taken from a sample.

        The query comes first, then the metadata, the dtype, and a sample. A damaged sample's window is its error; other
        errors of `sample` are raised.
        """
        damaged: dict[tuple[Any, ...], ChunkCorrupt] = {}

        def window(requested: tuple[int, Rescale | None]) -> tuple[Window | ChunkCorrupt, bool]:
            channel, rescale = requested
            facts, dtype = channel_facts(frame, channel), frame.dtype
            if isinstance(rescale, tuple):
                return rescale, False
            if rescale is None and facts is not None and facts.window is not None:
                return (facts.window.start, facts.window.end), False
            if rescale == "dtype" or (rescale is None and dtype.itemsize == 1 and dtype.kind in "bu"):
                return natural_range(dtype, query.component), False
            subject = subject_of(frame, channel, query)
            if subject.key not in damaged:  # many channels may share one sample
                try:
                    sample = self.sample(subject, cancel)
                except ChunkCorrupt as error:
                    damaged[subject.key] = error
                else:
                    return sample.minmax if rescale == "minmax" else sample.auto, True
            return damaged[subject.key], True

        windows = frame.image.mount.each(window, channels, cancel)
        return [limits for limits, _ in windows], any(sampled for _, sampled in windows)

    def sample(self, subject: Subject, cancel: Cancel | None = None) -> Sample:
        """The sample of a subject, cached; raises the errors of reading, `ChunkCorrupt` only if all chunks tried are
        damaged."""
        image = subject.image
        version = f"{image.version} {time.monotonic() // _REMOTE_SECONDS}"

        def current() -> tuple[Sample, str, int]:
            """The sample of the present versions of its chunks."""
            plans, exact = self._plans(subject, cancel)
            take = partial(self._take, subject, plans, exact, cancel)
            sample = self._samples.load(subject.key, _tag_of(plans), take).value
            return sample, version, sample.values.nbytes + 1024

        if not image.mount.is_remote:
            return current()[0]
        return self._revalidated.load(subject.key, version, current).value

    def first_plane(self, frame: Frame, query: TileQuery) -> Frame:
        """The frame with another index than the middle of an axis that the query leaves open, if nothing is stored
        in the middle: writers pad arrays to whole shards.

        Of remote stores only shards are looked at. A plane without data anywhere is looked for again after a while.
        """
        image, named = frame.image, {name for name, _ in query.selection}
        level = _sampled_level(image, 0)
        is_padded = bool(level.array.metadata.levels) or not image.mount.is_remote
        axis = next((i for i in frame.at_middle if image.axes[i].name not in named), None)
        if axis is None or not is_padded or image.mosaic is not None or image.is_empty:
            return frame
        key = (image.path, image.field_name, frame.plane, frame.indices, axis)
        versions = (image.version, f"{image.version} {time.monotonic() // _REMOTE_SECONDS}")
        indices = next((cached for v in versions if (cached := self._planes.get(key, v)) is not None), None)
        if indices is None:
            size = image.axes[axis].size
            parts = (size * odd >> n for n in range(2, 7) for odd in range(1, 1 << n, 2))
            likely = dict.fromkeys([size // 2, 0, *parts])  # the middle, the first, and the middles of parts
            chosen = next((i for i in likely if self._has_data(frame, level, axis, i)), None)
            indices = tuple([chosen if i == axis and chosen is not None else at for i, at in enumerate(frame.indices)])
            self._planes.put(key, versions[chosen is None], indices, 256)
        return replace(frame, indices=indices)

    def _has_data(self, frame: Frame, level: Level, axis: int, index: int) -> bool:
        """Whether something other than the fill value is found in a plane of a level, or cannot be read."""
        array, shape = level.array, frame.image.level_extent(level)
        fixed: dict[int, int] = {}
        for i, position in enumerate(frame.indices[: len(shape)]):
            if position is not None:
                place = level_index(index if i == axis else position, level.factors[i], level.offsets[i], shape[i])
                if place is None:
                    return False
                fixed[i] = place
        boxes = sample_boxes(shape, array.metadata.chunks, fixed, max_cells=1 << 18, max_chunks=64)
        plans = [self._reader.plan(array, normalise(box, array.metadata.shape), frame.image.field) for box in boxes]
        fill = array.metadata.fill if frame.image.field is None else np.zeros((), frame.image.dtype)
        for plan in self._reader.look_up_together(plans):
            if not any((plan.versions or {}).values()):
                continue
            try:
                values = self._reader.read(plan)[0]
            except ChunkCorrupt:
                return True
            if not np.array_equal(np.broadcast_to(fill, values.shape).tobytes(), values.tobytes()):
                return True
        return False

    def _take(
        self, subject: Subject, plans: list[ReadPlan], exact: bool, cancel: Cancel | None
    ) -> tuple[Sample, str, int]:
        """Read a sample, whose tag is that of the versions that were read; if all its chunks are damaged, single chunks
        of each level, coarsest first. With it, its tag and size."""
        levels = range(len(subject.image.levels))
        others = ((finer, self._plans(subject, cancel, finer, single=True)[0]) for finer in levels)
        damage, tag = None, ""
        small = sum(plan.nbytes + self._reader.working_memory(plan) for plan in plans) <= 1 << 20
        with nullcontext() if small else self._large_reads:
            for finer, each in chain([(0, plans)], others):
                parts, error, plan_read = self._read_all(each, subject, cancel)
                damage = damage or error
                tag = tag or _tag_of(plan_read)
                if parts or damage is None:
                    level = _sampled_level(subject.image, finer).array.path
                    sample = Sample.of(
                        parts, exact and damage is None, tag, level, None if damage is None else str(damage)
                    )
                    return sample, tag, sample.values.nbytes + 1024
        assert damage is not None
        raise damage

    def _plans(
        self, subject: Subject, cancel: Cancel | None, finer: int = 0, *, single: bool = False
    ) -> tuple[list[ReadPlan], bool]:
        """Plans of a sample of the level ``finer`` levels from the coarsest, and whether they cover all of it."""
        image = subject.image
        images = [] if image.is_empty and image.mosaic is None else [image]
        if image.mosaic is not None:
            cells = image.mosaic.cells[:: max(1, len(image.mosaic.cells) // 6)]
            opened = image.mount.each(lambda cell: self._images.open_cell(cell.path, image.field_name), cells, cancel)
            channel = subject.channel or (0, -1)
            images = [
                one
                for one in opened
                if one is not None and len(one.axes) == len(image.axes) and one.axes[channel[0]].size > channel[1]
            ] or images
        key, plans, size = (subject.key, finer, single), list[ReadPlan](), 0
        planned = self._planned.get(key, image.version) if image.mosaic is None else None
        if planned is not None:
            return self._reader.look_up_together(planned[0], cancel), planned[1]
        for one in images:
            level = _sampled_level(one, finer)
            array = level.array
            metadata = array.metadata
            shape = one.level_extent(level)
            fixed = dict([subject.channel]) if subject.channel and subject.channel[0] < len(shape) else {}
            # whole chunks are decoded: 1 GiB of them at most, or one
            max_chunks = min(_MAX_CHUNKS, max(1, (1 << 30) // (len(images) * max(metadata.chunk_nbytes, 1))))
            max_cells = (4 << 20) // len(images)
            boxes = sample_boxes(
                shape, metadata.chunks, fixed, max_cells=max_cells, max_chunks=max_chunks, single=single
            )
            plans += [self._reader.plan(array, normalise(box, metadata.shape), one.field) for box in boxes]
            size = prod(length for axis, length in enumerate(shape) if axis not in fixed)
        whole = sum(plan.selection.size for plan in plans) == size and image.mosaic is None
        self._planned.put(key, image.version, (plans, whole), 1)
        return self._reader.look_up_together(plans, cancel), whole

    def _read_all(
        self, plans: list[ReadPlan], subject: Subject, cancel: Cancel | None
    ) -> tuple[list[NDArray], ChunkCorrupt | None, list[ReadPlan]]:
        """The finite values of each plan in one dimension, without damaged ones, the first of their errors, and the
        plans with the versions that were read."""

        def read(plan: ReadPlan) -> tuple[NDArray | ChunkCorrupt, ReadPlan]:
            try:
                values, plan = self._reader.read(plan, cancel)
            except ChunkCorrupt as error:
                return error, plan
            values = values if subject.decoder is None else subject.decoder(values)
            rank = len(plan.array.metadata.shape)
            if subject.channel is not None and subject.channel[0] >= rank:  # an axis of the subarray
                values = values.take(subject.channel[1], axis=subject.channel[0] - rank - len(plan.inner_shape))
            values, hidden = plain_numbers(values, subject.nodata)
            values = values.ravel() if hidden is None else values[~hidden]
            values = one_component(values.view(np.uint8) if values.dtype.kind == "b" else values, subject.component)
            return values[np.isfinite(values)] if values.dtype.kind == "f" else values, plan

        done = plans[0].array.mount.pool.map(read, plans, cancel) if plans else []
        error = next((each for each, _ in done if isinstance(each, ChunkCorrupt)), None)
        return [each for each, _ in done if not isinstance(each, ChunkCorrupt)], error, [plan for _, plan in done]


def _tag_of(plans: Sequence[ReadPlan]) -> str:
    return hashlib.blake2b("|".join(plan.tag for plan in plans).encode(), digest_size=12).hexdigest()


def _sampled_level(image: Image, finer: int) -> Level:
    """The level ``finer`` levels from the coarsest, of those that have all channels and half of each other axis."""

    def is_whole(level: Level) -> bool:
        parts = zip(image.axes, image.level_extent(level), level.factors, strict=False)
        return all(
            size == axis.size if axis.type == "channel" else 2 * size * factor >= axis.size
            for axis, size, factor in parts
        )

    levels = [image.levels[0], *filter(is_whole, image.levels[1:])]
    return levels[max(0, len(levels) - 1 - finer)]


def histogram(sample: Sample, bins: int) -> tuple[NDArray, NDArray]:
    """Counts ``(bins,)`` and edges ``(bins + 1,)`` from the least to the largest value."""
    low, high = (bound / 2 for bound in sample.minmax)  # halved, so that the difference is finite
    if low + (high - low) / bins <= low:  # bins narrower than the spacing of floats
        high = low + max(abs(low), 1.0) * 1e-6
    # in float64: numpy's edges have the dtype of the values, which may be too coarse
    counts, edges = np.histogram(sample.values / np.float64(2), bins=bins, range=(low, high))
    return counts, 2 * edges


# --- windows ---------------------------------------------------------------------------------------------------


def subject_of(frame: Frame, channel: int, query: TileQuery) -> Subject:
    """The subject of a channel's statistics: the channel, or all channels if there are more than 16."""
    axis = frame.channel_axis
    # a shared window, so that opening a spectrum does not read all of it
    place = (axis, channel) if axis is not None and frame.image.axes[axis].size <= 16 else None
    return Subject(frame.image, place, query.component, query.nodata, frame.decoder)


def natural_range(dtype: np.dtype[Any], component: Component | None) -> Window:
    """The range of a dtype; 0 to 1 for floats, -π to π for phases."""
    if dtype.kind in "iumM":
        info = np.iinfo(dtype if dtype.kind in "iu" else np.int64)
        return float(info.min), float(info.max)
    return (-math.pi, math.pi) if dtype.kind == "c" and component == "phase" else (0.0, 1.0)


def channel_facts(frame: Frame, channel: int) -> OmeroChannel | None:
    """The ``omero`` entry of a channel, if any."""
    omero = frame.image.omero
    return omero.channels[channel] if omero is not None and channel < len(omero.channels) else None


def of_channel(values: Sequence[T], place: int) -> T | None:
    """The value of the channel at a place: its own, or a single one for all channels."""
    if len(values) == 1:
        return values[0]
    return values[place] if place < len(values) else None


def widened(low: float, high: float) -> Window:
    """A window of at least a minimum width."""
    return (low, high) if high > low else (low, low + max(1.0, abs(low) * 1e-6))


# --- selections of a sample ------------------------------------------------------------------------------------


def sample_boxes(
    shape: Sequence[int],
    chunks: Sequence[int],
    fixed: Mapping[int, int],
    *,
    max_cells: int,
    max_chunks: int = _MAX_CHUNKS,
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
