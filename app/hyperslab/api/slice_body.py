"""The bytes of a planned read: whole from the cache, or a slab at a time from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.bodies import Effort, Opened, Ready, Timings
from hyperslab.api.headers import cost_headers
from hyperslab.api.ranges import ByteRange
from hyperslab.api.reply import Buffer, Headers
from hyperslab.api.warm import WarmKeys
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.read import Reader

MOST_READY = 1 << 20
"""Bytes that may be put together on the event loop: a fraction of a millisecond."""
MOST_READY_CHUNKS = 64
_SHORT = 16 << 20
"""Work that takes some milliseconds at most, in bytes that LZ4 makes in the same time."""
_BRIEF = 4 << 20
"""Work that takes most of a millisecond."""
_INSTANT = 512 << 10
"""Work that takes a fraction of a millisecond."""
_PER_CHUNK = 16 << 10
"""What it takes to find and open a chunk, in the same measure."""


@dataclass(frozen=True)
class SliceBody:
    """``prefix`` (an npy header or nothing) and then the values in C order.

    ``slab_bytes``: of a stream. ``timings`` in seconds by phase.
    """

    reader: Reader
    warm: WarmKeys
    plan: ReadPlan
    prefix: bytes
    slab_bytes: int
    timings: Timings

    @property
    def size(self) -> int:
        return len(self.prefix) + self.plan.nbytes

    @property
    def memory(self) -> int:
        return self.reader.stream_memory(self.plan, self.slab_bytes)

    def head(self) -> Headers:
        plan = self.plan
        return cost_headers(plan.touched, self.reader.count_cached(plan), None, self.timings)

    @property
    def effort(self) -> Effort:
        """Little of a store that is near is read in less time than it takes to watch for the client's leaving; and what
        was read a moment ago in less than a trip to another thread."""
        if self.work > _SHORT:
            return Effort.LONG
        if self.work > _BRIEF or not self._is_warm:
            return Effort.SHORT
        return Effort.NONE if self.work <= _INSTANT else Effort.BRIEF

    @cached_property
    def work(self) -> float:
        """What it takes to read all at once, in bytes that LZ4 makes in the same time.

        Infinite for what is better streamed, takes memory that must be waited for, or comes over a network.
        """
        reader, plan = self.reader, self.plan
        near = not plan.array.mount.is_far
        if not near or plan.nbytes > MOST_READY or plan.touched > MOST_READY_CHUNKS or reader.working_memory(plan):
            return inf
        return reader.effort(plan) + plan.touched * _PER_CHUNK

    @property
    def _is_warm(self) -> bool:
        return self.warm.are_warm(self.plan.array.mount, self._keys)

    @cached_property
    def _keys(self) -> tuple[tuple[str, str | None], ...]:
        array, versions = self.plan.array, self.plan.versions or {}
        return tuple([(array.chunk_key(coords), version) for coords, version in versions.items()])

    @cached_property
    def _versions(self) -> dict[str, str | None]:
        return dict(self._keys)

    def ready(self, part: ByteRange) -> Ready | None:
        plan = self.plan
        if plan.nbytes > MOST_READY or plan.touched > MOST_READY_CHUNKS:
            return None
        cost = ReadCost()
        values = self.reader.read_cached(plan, cost)
        return None if values is None else self._part(values, part, plan.touched, cost, self.timings)

    def fetch(self, part: ByteRange) -> Ready:
        cost = ReadCost()
        values = self.reader.read(self.plan, cost=cost)
        if self.work <= _BRIEF:
            self.warm.note(self.plan.array.mount, self._keys)
        moved = self.reader.moved(self.plan, cost)
        return self._part(values, part, cost.cached, cost, self.timings)._replace(moved=moved)

    @cached_property
    def verifies(self) -> bool:
        return self.reader.verifies(self.plan)

    def fetch_again(self, timings: Timings) -> Ready | None:
        cost = ReadCost()
        if self.verifies:
            values = self.reader.read_exactly(self.plan, self._versions, cost)
        else:
            values = self.reader.read(self.plan, cost=cost)
            if self.reader.moved(self.plan, cost):
                return None
        return None if values is None else self._part(values, ByteRange(0, self.size), cost.cached, cost, timings)

    def _part(self, values: NDArray[Any], part: ByteRange, cached: int, cost: ReadCost, timings: Timings) -> Ready:
        data = bytes_of(values)
        headers = cost_headers(self.plan.touched, cached, cost, timings)
        if self.prefix:
            return Ready((self.prefix + data)[part.start : part.stop], headers)
        return Ready(data[part.start : part.stop], headers)

    def open(self, part: ByteRange, cancel: Cancel) -> Opened:
        before = len(self.prefix)
        head = self.prefix[part.start : part.stop]
        cached = self.reader.count_cached(self.plan)
        start, stop = max(part.start - before, 0), max(part.stop - before, 0)
        slabs = self.reader.stream(self.plan, start, stop, cancel, slab_bytes=self.slab_bytes)
        pieces: Iterator[Buffer] = _joined(head, slabs) if head else slabs
        return Opened(
            pieces,
            lambda: cost_headers(self.plan.touched, cached, slabs.cost, self.timings),
            lambda: self.reader.moved(self.plan, slabs.cost),
        )


def _joined(head: bytes, slabs: Iterator[memoryview]) -> Iterator[Buffer]:
    """The head goes with the first slab in hand, so that it is not sent before anything was read."""
    first = next(slabs, None)
    return chain([head], slabs if first is None else chain([first], slabs))


def bytes_of(values: NDArray[Any]) -> memoryview:
    """The memory of a C-contiguous array."""
    return memoryview(values.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def produce_text(
    reader: Reader, plan: ReadPlan, encode: Callable[[NDArray[Any]], bytes], timings: dict[str, float], cancel: Cancel
) -> Ready:
    """Read everything and encode it; blocks."""
    cost = ReadCost()
    cached = reader.count_cached(plan)
    values = reader.read(plan, cancel, cost)
    cancel.check()
    headers = cost_headers(plan.touched, cached, cost, timings)
    return Ready(encode(values), headers, reader.moved(plan, cost))
