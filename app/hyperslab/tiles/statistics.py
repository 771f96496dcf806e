"""How bright a picture is: windows and histograms from a sample of its coarsest level, the same for all its tiles."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from math import prod
from threading import BoundedSemaphore, Lock
from typing import Any, Final

import numpy as np

from hyperslab.arrays.cost import Cancel
from hyperslab.arrays.plan import Part, ReadPlan
from hyperslab.arrays.read import Reader
from hyperslab.cache import VersionedCache
from hyperslab.engine.cf import Decoder
from hyperslab.engine.indexing import normalise
from hyperslab.errors import ChunkCorrupt
from hyperslab.tiles.asked import Component
from hyperslab.tiles.cells import plain_numbers
from hyperslab.tiles.opening import Pictures
from hyperslab.tiles.picture import Picture
from hyperslab.tiles.resample import NDArray
from hyperslab.tiles.sampling import MOST_CHUNKS, chunk_boxes, sample_boxes
from hyperslab.wire import SelectionItem

PERCENTILES: Final = (0.1, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 99.9)

_MOST_CELLS: Final = 4 << 20
_MOST_DECODED: Final = 1 << 30
"""Bytes of the chunks that are looked at, which may be much more than the cells that are wanted: unless a single chunk
has more."""
_MOST_KEPT: Final = 1 << 20
_MOST_IMAGES: Final = 6
_SMALL: Final = 1 << 20
_LARGE_AT_ONCE: Final = 2
"""So many looks at more than `_SMALL` bytes: no plan of an answer counts their memory, several times the cells."""
_CACHE_BYTES: Final = 32 << 20
_MOST_TAGS: Final = 4096
_TAG_SECONDS: Final = 1.0
"""For so long a sample is taken to be current: windows need not follow every single write."""
_FAR_TAG_SECONDS: Final = 4.0
"""The same where every look takes some 60 requests, and somebody who moves about in a picture looks all the time."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a sample is of: a picture's ``channel`` (axis and index; None: all together), without ``nodata``, and
    decoded where there is a ``decoder``."""

    picture: Picture
    channel: tuple[int, int] | None = None
    component: Component | None = None
    nodata: float | None = None
    decoder: Decoder | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        field = self.picture.field.name if self.picture.field is not None else None
        return self.picture.path, field, self.channel, self.component, self.nodata, self.decoder


@dataclass(frozen=True, slots=True)
class Sample:
    """Finite values, of which ``values`` keeps at most a million. ``percentiles`` are those at `PERCENTILES`.

    ``exact``: the whole of the coarsest level was looked at. All ends are 0 and 1 where there was no value at all.
    ``finer`` counts levels from the coarsest to the one that was looked at, ``damage`` says why it is not that one or
    not all of it.
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
    def auto(self) -> tuple[float, float]:
        """The window that all but a thousandth of the values at either end lie in; never empty."""
        return widened(self.percentiles[0], self.percentiles[-1])

    @property
    def minmax(self) -> tuple[float, float]:
        """The window that all values lie in; never empty."""
        return widened(self.low, self.high)


def _most_chunks(chunk_nbytes: int, images: int) -> int:
    """How many chunks of each of some images are looked at."""
    return min(MOST_CHUNKS, max(1, _MOST_DECODED // (images * max(chunk_nbytes, 1))))


def widened(low: float, high: float) -> tuple[float, float]:
    """A window that has a width, also where there is only one value."""
    return (low, high) if high > low else (low, low + max(1.0, abs(low) * 1e-6))


class Statistics:
    """Samples, kept while what they were taken from stays the same. Safe to call from many threads."""

    def __init__(self, pictures: Pictures, reader: Reader) -> None:
        self._pictures = pictures
        self._reader = reader
        self._samples: VersionedCache[Sample] = VersionedCache(_CACHE_BYTES)
        self._tags: OrderedDict[tuple[Any, ...], tuple[str, float]] = OrderedDict()
        self._lock = Lock()
        self._turns = BoundedSemaphore(_LARGE_AT_ONCE)

    def sample(self, subject: Subject, cancel: Cancel | None = None) -> Sample:
        """The sample, from the cache while it is current; raises what reading raises, `Cancelled` too.

        Damaged chunks are left out, and `ChunkCorrupt` is raised only where nothing else was found.
        """
        tag = self._current_tag(subject)
        held = None if tag is None else self._samples.get(subject.key, tag)
        return held if held is not None else self._taken(subject, cancel)

    def prepare(self, subjects: Collection[Subject], cancel: Cancel | None = None) -> None:
        """Take samples of one picture that will be wanted, side by side where its store is far.

        Raises as `sample` does, but for damaged chunks.
        """

        def take(subject: Subject) -> None:
            with suppress(ChunkCorrupt):  # which `sample` finds again
                self.sample(subject, cancel)

        each = [*{subject.key: subject for subject in subjects}.values()]
        if len(each) > 1 and (mount := each[0].picture.levels[0].array.mount).is_remote:
            self._reader.each(mount, take, each, cancel)

    def _taken(self, subject: Subject, cancel: Cancel | None) -> Sample:
        plans, exact = self._plans(subject, cancel)
        tag = hashlib.blake2b("|".join(plan.tag for plan in plans).encode(), digest_size=12).hexdigest()

        def take() -> tuple[Sample, str, int]:
            small = sum(plan.nbytes + self._reader.working_memory(plan) for plan in plans) <= _SMALL
            with nullcontext() if small else self._turns:
                sample = self._looked_at(subject, plans, cancel, exact=exact, tag=tag)
            return sample, tag, sample.values.nbytes + 1024

        sample = self._samples.load(subject.key, tag, take).value
        self._note_tag(subject, tag)
        return sample

    def _looked_at(
        self, subject: Subject, plans: list[ReadPlan], cancel: Cancel | None, *, exact: bool, tag: str
    ) -> Sample:
        """Some chunk of another place or level tells more about the brightness than an error would."""
        try:
            return _summary(self._all_values(plans, subject, cancel), exact=exact, tag=tag)
        except ChunkCorrupt as error:
            for finer in range(len(subject.picture.levels)):
                values = self._readable(subject, finer, cancel)
                if values is not None:
                    return replace(_summary(values, exact=False, tag=tag), finer=finer, damage=str(error))
            raise

    def _readable(self, subject: Subject, finer: int, cancel: Cancel | None) -> NDArray | None:
        """The values of chunks that can be decoded; None where there are none."""

        def values(plan: ReadPlan) -> NDArray | None:
            try:
                return self._values(plan, subject, cancel)
            except ChunkCorrupt:
                return None

        plans, _ = self._plans(subject, cancel, finer, chunk_boxes)
        found = self._reader.pool(plans[0].array.mount).map(values, plans, cancel) if plans else []
        whole = [part for part in found if part is not None]
        return np.concatenate(whole) if whole else None

    def _plans(
        self,
        subject: Subject,
        cancel: Cancel | None,
        finer: int = 0,
        boxes_of: Callable[..., list[list[SelectionItem]]] = sample_boxes,
    ) -> tuple[list[ReadPlan], bool]:
        """What to read of a level, and whether that is all of the coarsest one."""
        images = self._images(subject.picture, cancel)
        parts: list[Part] = []
        cells = 0
        for image in images:
            array = image.levels[max(0, len(image.levels) - 1 - finer)].array
            shape = array.metadata.shape
            fixed = dict([subject.channel]) if subject.channel and subject.channel[0] < len(shape) else {}
            boxes = boxes_of(
                shape,
                array.metadata.chunks,
                fixed,
                most_cells=_MOST_CELLS // len(images),
                most_chunks=_most_chunks(array.metadata.chunk_nbytes, len(images)),
            )
            parts += [Part(array, normalise(box, shape), image.field) for box in boxes]
            cells = prod(size for axis, size in enumerate(shape) if axis not in fixed)
        plans = self._reader.plan_together(parts, cancel)
        whole = sum(plan.selection.size for plan in plans) == cells
        return plans, whole and subject.picture.mosaic is None

    def _images(self, picture: Picture, cancel: Cancel | None) -> list[Picture]:
        """The picture itself, or some of a mosaic's."""
        if picture.mosaic is None:
            return [picture] if all(axis.size for axis in picture.axes) else []
        step = max(1, len(picture.mosaic.cells) // _MOST_IMAGES)
        name = picture.field.name if picture.field is not None else None
        cells, mount = picture.mosaic.cells[::step], picture.levels[0].array.mount
        opened = self._reader.each(mount, lambda cell: self._pictures.open_cell(cell.path, name), cells, cancel)
        found = [image for image in opened if image is not None and len(image.axes) == len(picture.axes)]
        return found or [picture]  # its levels are those of an image that is there

    def _all_values(self, plans: list[ReadPlan], subject: Subject, cancel: Cancel | None) -> NDArray:
        if not plans:
            return np.zeros(0)
        pool = self._reader.pool(plans[0].array.mount)
        parts = pool.map(lambda plan: self._values(plan, subject, cancel), plans, cancel)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _values(self, plan: ReadPlan, subject: Subject, cancel: Cancel | None) -> NDArray:
        """All finite values of a box, in one dimension."""
        values = self._reader.read(plan, cancel)
        values = values if subject.decoder is None else subject.decoder(values)
        rank = len(plan.array.metadata.shape)
        if subject.channel is not None and subject.channel[0] >= rank:  # an axis of the subarray
            values = values.take(subject.channel[1], axis=subject.channel[0] - rank - len(plan.inner_shape))
        values, hidden = plain_numbers(values, subject.nodata)
        values = values.ravel() if hidden is None else values[~hidden]
        values = one_component(values.view(np.uint8) if values.dtype.kind == "b" else values, subject.component)
        return values[np.isfinite(values)] if values.dtype.kind == "f" else values

    def _current_tag(self, subject: Subject) -> str | None:
        far = subject.picture.levels[0].array.mount.is_remote
        with self._lock:
            tag, noted = self._tags.get((subject.key, subject.picture.version), (None, 0.0))
        return tag if time.monotonic() - noted < (_FAR_TAG_SECONDS if far else _TAG_SECONDS) else None

    def _note_tag(self, subject: Subject, tag: str) -> None:
        key = (subject.key, subject.picture.version)
        with self._lock:
            self._tags[key] = (tag, time.monotonic())
            self._tags.move_to_end(key)
            while len(self._tags) > _MOST_TAGS:
                self._tags.popitem(last=False)


def one_component(values: NDArray, component: Component | None) -> NDArray:
    """A real part of complex values, their magnitude where none is named; real values are as they were."""
    if values.dtype.kind != "c":
        return values
    if component == "real":
        return values.real
    if component == "imag":
        return values.imag
    return np.asarray(np.angle(values) if component == "phase" else np.abs(values))


def histogram(sample: Sample, bins: int) -> tuple[NDArray, NDArray]:
    """Counts ``(bins,)`` and edges ``(bins + 1,)`` from the least to the largest value."""
    low, high = (bound / 2 for bound in sample.minmax)  # their distance may be more than the largest number
    if low + (high - low) / bins <= low:  # no bin can be that narrow: a number has only so many digits
        high = low + max(abs(low), 1.0) * 1e-6
    # as float64: numpy makes edges of the values' own type, of which there may not be that many between the bounds
    counts, edges = np.histogram(sample.values / np.float64(2), bins=bins, range=(low, high))
    return counts, 2 * edges


def _summary(values: NDArray, *, exact: bool, tag: str) -> Sample:
    if not values.size:
        return Sample(values, 0.0, 1.0, (0.0, *(1.0,) * (len(PERCENTILES) - 1)), exact, tag)
    kept = values[:: -(-values.size // _MOST_KEPT)]
    percentiles = tuple(float(p) for p in np.percentile(kept, PERCENTILES, method="nearest"))
    return Sample(kept, float(values.min()), float(values.max()), percentiles, exact, tag)
