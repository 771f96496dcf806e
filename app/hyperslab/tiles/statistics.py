"""How bright an image is: windows and histograms from a sample of its coarsest level, the same for all its tiles."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from math import ceil, prod
from threading import BoundedSemaphore
from typing import Any, Final, TypeVar

import numpy as np

from hyperslab.arrays.cancel import Cancel
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.read import Reader
from hyperslab.cache import VersionedCache
from hyperslab.engine.cf import Decoder
from hyperslab.engine.indexing import normalise
from hyperslab.errors import ChunkCorrupt
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.image import Image
from hyperslab.tiles.images import Images
from hyperslab.tiles.ome import OmeroChannel
from hyperslab.tiles.query import Component, Rescale, TileQuery
from hyperslab.tiles.read import one_component, plain_numbers
from hyperslab.tiles.resample import NDArray
from hyperslab.wire import SelectionItem

T = TypeVar("T")
Window = tuple[float, float]

PERCENTILES: Final = (0.1, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 99.9)

_MOST_CHUNKS: Final = 1 << 12
_SECONDS: Final = 1.0
"""A sample is checked once in so many seconds: windows need not follow every single write."""
_REMOTE_SECONDS: Final = 4.0
"""The same for remote stores: every check takes some 60 requests, and panning in an image checks all the time."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a sample is taken of: an image's ``channel`` (axis and index; None: all together), without ``nodata``, and
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
    """Finite values, of which ``values`` keeps at most a million. ``percentiles`` are those at `PERCENTILES`.

    ``exact``: they are all values of the coarsest level. All ends are 0 and 1 if there was no value at all. ``finer``
    counts levels from the coarsest to the one that was read, ``damage`` says why it is not that one or not all of it.
    """

    values: NDArray
    low: float
    high: float
    percentiles: tuple[float, ...]
    exact: bool
    tag: str
    finer: int = 0
    damage: str | None = None

    @property
    def auto(self) -> Window:
        """The window that all but a thousandth of the values at either end lie in; never empty."""
        return widened(self.percentiles[0], self.percentiles[-1])

    @property
    def minmax(self) -> Window:
        """The window that all values lie in; never empty."""
        return widened(self.low, self.high)


class Statistics:
    """Samples, cached while what they were taken from stays the same. Safe to call from many threads."""

    def __init__(self, images: Images, reader: Reader) -> None:
        self._images = images
        self._reader = reader
        self._samples: VersionedCache[Sample] = VersionedCache(32 << 20)
        self._large_reads = BoundedSemaphore(2)  # admission does not count the memory of samples

    def windows(
        self, frame: Frame, query: TileQuery, cancel: Cancel | None, wanted: Sequence[tuple[int, Rescale | None]]
    ) -> tuple[list[Window | ChunkCorrupt], bool]:
        """What is shown of some channels, by index and by what is wanted, or why it cannot be told: by the query, the
        metadata or the dtype, else from samples, which are taken concurrently from a remote store. And whether any was.

        Raises as `sample` does, but for damaged chunks.
        """
        damaged: dict[tuple[Any, ...], ChunkCorrupt] = {}

        def window(one: tuple[int, Rescale | None]) -> tuple[Window | ChunkCorrupt, bool]:
            channel, rescale = one
            facts, dtype = channel_facts(frame, channel), frame.dtype
            if isinstance(rescale, tuple):
                return rescale, False
            if rescale is None and facts is not None and facts.window is not None:
                return (facts.window.start, facts.window.end), False
            if rescale == "dtype" or (rescale is None and dtype.itemsize == 1 and dtype.kind in "bu"):
                return natural_range(dtype, query.component), False
            subject = subject_of(frame, channel, query)
            if subject.key not in damaged:  # it may be that of many channels
                try:
                    sample = self.sample(subject, cancel)
                except ChunkCorrupt as error:
                    damaged[subject.key] = error
                else:
                    return sample.minmax if rescale == "minmax" else sample.auto, True
            return damaged[subject.key], True

        found = frame.image.mount.each(window, wanted, cancel)
        return [each for each, _ in found], any(sampled for _, sampled in found)

    def sample(self, subject: Subject, cancel: Cancel | None = None) -> Sample:
        """The sample, from the cache while it is current; raises what reading raises, `Cancelled` too.

        Damaged chunks are left out, and `ChunkCorrupt` is raised only if nothing else was found.
        """
        seconds = _REMOTE_SECONDS if subject.image.mount.is_remote else _SECONDS
        version = f"{subject.image.version} {time.monotonic() // seconds}"

        def load() -> tuple[Sample, str, int]:
            plans, exact = self._plans(subject, cancel)
            tag = hashlib.blake2b("|".join(plan.tag for plan in plans).encode(), digest_size=12).hexdigest()
            sample = self._samples.any_version(subject.key)
            if sample is None or sample.tag != tag:
                small = sum(plan.nbytes + self._reader.working_memory(plan) for plan in plans) <= 1 << 20
                with nullcontext() if small else self._large_reads:
                    sample = self._take(subject, plans, exact, tag, cancel)
            return sample, version, sample.values.nbytes + 1024

        return self._samples.load(subject.key, version, load).value

    def _take(self, subject: Subject, plans: list[ReadPlan], exact: bool, tag: str, cancel: Cancel | None) -> Sample:
        """Where all that was planned is damaged, any chunk of another place or level tells more than an error."""
        levels = range(len(subject.image.levels))
        others = ((finer, self._plans(subject, cancel, finer, single=True)[0]) for finer in levels)
        damage: ChunkCorrupt | None = None
        for finer, each in chain([(0, plans)], others):
            parts, error = self._read_all(each, subject, cancel)
            damage = damage or error
            if damage is None:
                return _summary(parts, exact=exact, tag=tag)
            if parts:
                return replace(_summary(parts, exact=False, tag=tag), finer=finer, damage=str(damage))
        assert damage is not None
        raise damage

    def _plans(
        self, subject: Subject, cancel: Cancel | None, finer: int = 0, *, single: bool = False
    ) -> tuple[list[ReadPlan], bool]:
        """What to read of a level, and whether that is all of the coarsest one."""
        image = subject.image
        images = [] if image.is_empty and image.mosaic is None else [image]  # or some of a mosaic's
        if image.mosaic is not None:
            cells = image.mosaic.cells[:: max(1, len(image.mosaic.cells) // 6)]
            opened = image.mount.each(lambda cell: self._images.open_cell(cell.path, image.field_name), cells, cancel)
            images = [one for one in opened if one is not None and len(one.axes) == len(image.axes)] or images
        plans: list[ReadPlan] = []
        size = 0
        for one in images:
            array = one.levels[max(0, len(one.levels) - 1 - finer)].array
            metadata = array.metadata
            shape = metadata.shape
            fixed = dict([subject.channel]) if subject.channel and subject.channel[0] < len(shape) else {}
            # whole chunks are decoded, of 1 GiB at most unless a single one has more: cells alone say too little
            most_chunks = min(_MOST_CHUNKS, max(1, (1 << 30) // (len(images) * max(metadata.chunk_nbytes, 1))))
            most_cells = (4 << 20) // len(images)
            boxes = sample_boxes(
                shape, metadata.chunks, fixed, most_cells=most_cells, most_chunks=most_chunks, single=single
            )
            plans += [self._reader.plan(array, normalise(box, shape), one.field) for box in boxes]
            size = prod(length for axis, length in enumerate(shape) if axis not in fixed)
        plans = self._reader.look_up_together(plans, cancel)
        whole = sum(plan.selection.size for plan in plans) == size
        return plans, whole and image.mosaic is None

    def _read_all(
        self, plans: list[ReadPlan], subject: Subject, cancel: Cancel | None
    ) -> tuple[list[NDArray], ChunkCorrupt | None]:
        """All finite values of each box, in one dimension, without boxes that cannot be decoded; and why the first of
        these cannot."""

        def read(plan: ReadPlan) -> NDArray | ChunkCorrupt:
            try:
                values = self._reader.read(plan, cancel)[0]
            except ChunkCorrupt as error:
                return error
            values = values if subject.decoder is None else subject.decoder(values)
            rank = len(plan.array.metadata.shape)
            if subject.channel is not None and subject.channel[0] >= rank:  # an axis of the subarray
                values = values.take(subject.channel[1], axis=subject.channel[0] - rank - len(plan.inner_shape))
            values, hidden = plain_numbers(values, subject.nodata)
            values = values.ravel() if hidden is None else values[~hidden]
            values = one_component(values.view(np.uint8) if values.dtype.kind == "b" else values, subject.component)
            return values[np.isfinite(values)] if values.dtype.kind == "f" else values

        found = plans[0].array.mount.pool.map(read, plans, cancel) if plans else []
        error = next((each for each in found if isinstance(each, ChunkCorrupt)), None)
        return [each for each in found if not isinstance(each, ChunkCorrupt)], error


def _summary(parts: list[NDArray], *, exact: bool, tag: str) -> Sample:
    values = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0)
    if not values.size:
        return Sample(values, 0.0, 1.0, (0.0, *(1.0,) * (len(PERCENTILES) - 1)), exact, tag)
    some = values[:: -(-values.size // (1 << 20))]
    percentiles = tuple(float(p) for p in np.percentile(some, PERCENTILES, method="nearest"))
    return Sample(some, float(values.min()), float(values.max()), percentiles, exact, tag)


def histogram(sample: Sample, bins: int) -> tuple[NDArray, NDArray]:
    """Counts ``(bins,)`` and edges ``(bins + 1,)`` from the least to the largest value."""
    low, high = (bound / 2 for bound in sample.minmax)  # their distance may be more than the largest number
    if low + (high - low) / bins <= low:  # no bin can be that narrow: a number has only so many digits
        high = low + max(abs(low), 1.0) * 1e-6
    # as float64: numpy makes edges of the values' own type, of which there may not be that many between the bounds
    counts, edges = np.histogram(sample.values / np.float64(2), bins=bins, range=(low, high))
    return counts, 2 * edges


# --- windows ---------------------------------------------------------------------------------------------------


def subject_of(frame: Frame, channel: int, query: TileQuery) -> Subject:
    """What the statistics of a channel are taken from."""
    axis = frame.channel_axis
    # of more channels, all share one window: else a first look at a spectrum would read it all
    place = (axis, channel) if axis is not None and frame.image.axes[axis].size <= 16 else None
    return Subject(frame.image, place, query.component, query.nodata, frame.decoder)


def natural_range(dtype: np.dtype[Any], component: Component | None) -> Window:
    """What the dtype can hold; for floats 0 to 1, for angles a full turn."""
    if dtype.kind in "iumM":
        info = np.iinfo(dtype if dtype.kind in "iu" else np.int64)
        return float(info.min), float(info.max)
    return (-math.pi, math.pi) if dtype.kind == "c" and component == "phase" else (0.0, 1.0)


def channel_facts(frame: Frame, channel: int) -> OmeroChannel | None:
    """What ``omero`` says of a channel."""
    omero = frame.image.omero
    return omero.channels[channel] if omero is not None and channel < len(omero.channels) else None


def at(values: Sequence[T], place: int) -> T | None:
    """The value for one of several channels: its own, or the only one for all."""
    if len(values) == 1:
        return values[0]
    return values[place] if place < len(values) else None


def widened(low: float, high: float) -> Window:
    """A window that is not empty, also if there is only one value."""
    return (low, high) if high > low else (low, low + max(1.0, abs(low) * 1e-6))


# --- boxes of a sample -----------------------------------------------------------------------------------------


def sample_boxes(
    shape: Sequence[int],
    chunks: Sequence[int],
    fixed: Mapping[int, int],
    *,
    most_cells: int,
    most_chunks: int = _MOST_CHUNKS,
    single: bool = False,
) -> list[list[SelectionItem]]:
    """Selections of about ``most_cells`` cells together: one that is everything if that is few cells and chunks, else
    each within one chunk, or a few adjacent ones if those are tiny. Of large chunks every n-th cell.

    ``most_chunks``: not more of them, but at least one. ``single``: always each within one chunk. ``fixed`` are axes of
    which one index is wanted. The same arguments give the same boxes.
    """
    free = [axis for axis in range(len(shape)) if axis not in fixed]
    steps_of = list(chunks)
    if not single:
        number = prod(ceil(shape[axis] / chunks[axis]) for axis in free)
        if number <= most_chunks and prod(shape[axis] for axis in free) <= most_cells:
            return [[fixed.get(axis, slice(0, shape[axis])) for axis in range(len(shape))]]
        steps_of = _grown(shape, chunks, free, min(64, most_chunks))
        most_chunks //= prod(extent // chunk for extent, chunk in zip(steps_of, chunks, strict=True))
    counts = [ceil(shape[axis] / steps_of[axis]) for axis in free]
    extents = [min(steps_of[axis], shape[axis]) for axis in free]
    steps = _steps(extents, most_cells // 8)
    number = max(1, min(64, most_cells // _cells(extents, steps), prod(counts), most_chunks))
    places: set[tuple[int, ...]] = set()
    for coords in islice(_spread(counts), 16 * number):  # in a small grid they keep falling together
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
    """Extents of a chunk, or of up to ``most`` adjacent chunks if one has few cells, as cubical as can be."""
    extents, number = list(chunks), 1
    while 2 * number <= most and prod(extents[axis] for axis in free) < 512:
        growing = [axis for axis in free if extents[axis] < shape[axis]]
        if not growing:
            break
        extents[min(growing, key=extents.__getitem__)] *= 2
        number *= 2
    return extents


def _steps(extents: Sequence[int], most_cells: int) -> list[int]:
    """Powers of two: every n-th cell along each axis, of the longest first, until the box has few enough."""
    steps = [1] * len(extents)
    while _cells(extents, steps) > max(1, most_cells):
        counts = [ceil(extent / step) for extent, step in zip(extents, steps, strict=True)]
        steps[counts.index(max(counts))] *= 2
    return steps


def _cells(extents: Sequence[int], steps: Sequence[int]) -> int:
    return prod(ceil(extent / step) for extent, step in zip(extents, steps, strict=True))


def _spread(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Places in a grid that fill it evenly and line up along no axis: a Kronecker sequence over the powers of the
    generalised golden ratio, the root of x^(rank + 1) = x + 1, which are the least rational."""
    ratio = 2.0
    for _ in range(32):
        ratio = (1 + ratio) ** (1 / (len(counts) + 1))
    for i in count():
        fractions = ((0.5 + (i + 1) * ratio ** -(axis + 1)) % 1 for axis in range(len(counts)))
        yield tuple(int(fraction * size) for fraction, size in zip(fractions, counts, strict=True))
