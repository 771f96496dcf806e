"""Statistics of an image: windows and histograms from a sample of its coarsest level."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
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
from hyperslab.tiles.image import Image
from hyperslab.tiles.images import Images
from hyperslab.tiles.ome import OmeroChannel
from hyperslab.tiles.query import Component, Rescale, TileQuery
from hyperslab.tiles.read import one_component, plain_numbers
from hyperslab.tiles.resample import NDArray
from hyperslab.tiles.samples import MAX_CHUNKS, SECONDS, StoredCells, sample_boxes, sampled_level

T = TypeVar("T")
Window = tuple[float, float]

PERCENTILES: Final = (0.1, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 99.9)


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
    def of(  # noqa: PLR0917
        cls, parts: list[NDArray], stored: list[NDArray], exact: bool, tag: str, level: str, damage: str | None
    ) -> Sample:
        """The sample of the finite values of several parts, each in one dimension; percentiles are those of what is
        ``stored`` of them, if anything."""
        values = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0)
        if not values.size:
            return cls(values, 0.0, 1.0, (0.0, *(1.0,) * (len(PERCENTILES) - 1)), exact, tag, level, damage)
        some = values[:: -(-values.size // (1 << 20))]
        known = some
        if any(own is not part for own, part in zip(stored, parts, strict=True)) and (size := sum(map(len, stored))):
            known = np.concatenate(stored)[:: -(-size // (1 << 20))]
        percentiles = tuple(float(p) for p in np.percentile(known, PERCENTILES, method="nearest"))
        return cls(some, float(np.min(values)), float(np.max(values)), percentiles, exact, tag, level, damage)

    @property
    def auto(self) -> Window:
        """The window from the first to the last of `PERCENTILES`, of all values if these are equal; never empty."""
        low, high = self.percentiles[0], self.percentiles[-1]
        return (low, high) if low < high else self.minmax

    @property
    def minmax(self) -> Window:
        """The window of all values; never empty."""
        return widened(self.low, self.high)


class Statistics:
    """Takes and caches samples of images. Thread-safe."""

    def __init__(self, images: Images, reader: Reader) -> None:
        self._images = images
        self._reader = reader
        self.stored = StoredCells(reader)
        self._samples: VersionedCache[Sample] = VersionedCache(32 << 20)
        self._planned: VersionedCache[tuple[list[ReadPlan], bool]] = VersionedCache(256)
        self._revalidated: VersionedCache[Sample] = VersionedCache(32 << 20)
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

        found = frame.image.mount.each(window, channels, cancel)
        windows = [
            _completed(limits, None if rescale is not None else channel_facts(frame, channel))
            for (channel, rescale), (limits, _) in zip(channels, found, strict=True)
        ]
        return windows, any(sampled for _, sampled in found)

    def sample(self, subject: Subject, cancel: Cancel | None = None) -> Sample:
        """The sample of a subject, cached; raises the errors of reading, `ChunkCorrupt` only if all chunks tried are
        damaged."""
        image = subject.image
        version = f"{image.version} {time.monotonic() // SECONDS}"

        def current() -> tuple[Sample, str, int]:
            """The sample of the present versions of its chunks."""
            plans, exact = self._plans(subject, cancel)
            take = partial(self._take, subject, plans, exact, cancel)
            sample = self._samples.load(subject.key, _tag_of(plans), take).value
            return sample, version, sample.values.nbytes + 1024

        if not image.mount.is_remote:
            return current()[0]
        return self._revalidated.load(subject.key, version, current).value

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
                parts, stored, error, plan_read = self._read_all(each, subject, cancel)
                damage = damage or error
                tag = tag or _tag_of(plan_read)
                if parts or damage is None:
                    level = sampled_level(subject.image, finer).array.path
                    sample = Sample.of(
                        parts, stored, exact and damage is None, tag, level, None if damage is None else str(damage)
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
        # what is stored may change without the document
        versions = (image.version, f"{image.version} {time.monotonic() // SECONDS}")
        known = (self._planned.get(key, version) for version in versions if image.mosaic is None)
        planned, is_sparse = next(filter(None, known), None), False
        if planned is not None:
            return self._reader.look_up_together(planned[0], cancel), planned[1]
        for one in images:
            level = sampled_level(one, finer)
            array = level.array
            metadata = array.metadata
            shape = one.level_extent(level)
            fixed = dict([subject.channel]) if subject.channel and subject.channel[0] < len(shape) else {}
            # whole chunks are decoded: 1 GiB of them at most, or one
            max_chunks = min(MAX_CHUNKS, max(1, (1 << 30) // (len(images) * max(metadata.chunk_nbytes, 1))))
            max_cells = (4 << 20) // len(images)
            boxes = even = sample_boxes(
                shape, metadata.chunks, fixed, max_cells=max_cells, max_chunks=max_chunks, single=single
            )
            if image.mosaic is None and not single:
                boxes = self.stored.stored_boxes(array, even, fixed, shape)
                is_sparse = boxes is not even
            plans += [self._reader.plan(array, normalise(box, metadata.shape), one.field) for box in boxes]
            size = prod(length for axis, length in enumerate(shape) if axis not in fixed)
        whole = sum(plan.selection.size for plan in plans) == size and image.mosaic is None
        self._planned.put(key, versions[is_sparse], (plans, whole), 1)
        return self._reader.look_up_together(plans, cancel), whole

    def _read_all(
        self, plans: list[ReadPlan], subject: Subject, cancel: Cancel | None
    ) -> tuple[list[NDArray], list[NDArray], ChunkCorrupt | None, list[ReadPlan]]:
        """The finite values of each plan in one dimension, without damaged ones, those of them that are stored, the
        first error, and the plans with the versions that were read."""

        def numbers(values: NDArray) -> NDArray:
            values = one_component(values.view(np.uint8) if values.dtype.kind == "b" else values, subject.component)
            return values[np.isfinite(values)] if values.dtype.kind == "f" else values

        def read(plan: ReadPlan) -> tuple[tuple[NDArray, NDArray] | ChunkCorrupt, ReadPlan]:
            try:
                values, plan = self._reader.read(plan, cancel)
            except ChunkCorrupt as error:
                return error, plan
            values = values if subject.decoder is None else subject.decoder(values)
            rank = len(plan.array.metadata.shape)
            if subject.channel is not None and subject.channel[0] >= rank:  # an axis of the subarray
                values = values.take(subject.channel[1], axis=subject.channel[0] - rank - len(plan.inner_shape))
            values, hidden = plain_numbers(values, subject.nodata)
            stored = self.stored.stored_cells(plan)
            finite = numbers(values.ravel() if hidden is None else values[~hidden])
            if stored is None:
                return (finite, finite), plan
            stored = np.broadcast_to(stored.reshape(*stored.shape, *[1] * (values.ndim - stored.ndim)), values.shape)
            return (finite, numbers(values[stored if hidden is None else stored & ~hidden])), plan

        done = plans[0].array.mount.pool.map(read, plans, cancel) if plans else []
        error = next((each for each, _ in done if isinstance(each, ChunkCorrupt)), None)
        pairs = [each for each, _ in done if not isinstance(each, ChunkCorrupt)]
        return [part for part, _ in pairs], [part for _, part in pairs], error, [plan for _, plan in done]


def _tag_of(plans: Sequence[ReadPlan]) -> str:
    return hashlib.blake2b("|".join(plan.tag for plan in plans).encode(), digest_size=12).hexdigest()


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


def _completed(limits: Window | ChunkCorrupt, facts: OmeroChannel | None) -> Window | ChunkCorrupt:
    """The limits of a channel with the one that its metadata has alone, if any."""
    start, end = (None, None) if facts is None else facts.alone
    if isinstance(limits, ChunkCorrupt):
        return limits
    low, high = limits
    if start is not None:
        return widened(start, high)
    if end is not None:
        return (low, end) if low < end else (2 * end - widened(end, end)[1], end)
    return limits


def of_channel(values: Sequence[T], place: int) -> T | None:
    """The value of the channel at a place: its own, or a single one for all channels."""
    if len(values) == 1:
        return values[0]
    return values[place] if place < len(values) else None


def widened(low: float, high: float) -> Window:
    """A window of at least a minimum width."""
    return (low, high) if high > low else (low, low + max(1.0, abs(low) * 1e-6))
