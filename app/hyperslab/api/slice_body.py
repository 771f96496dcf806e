"""The bytes of a planned read: whole from the cache, or a slab at a time from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.bodies import Opened, Ready, Timings
from hyperslab.api.headers import cost_headers
from hyperslab.api.ranges import ByteRange
from hyperslab.api.reply import Buffer, Headers
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.read import Reader
from hyperslab.engine.minmax import MinMax

MOST_READY = 1 << 20
"""Bytes that may be put together on the event loop: a fraction of a millisecond."""
MOST_READY_CHUNKS = 64
_SHORT = 16 << 20
"""Work that takes some milliseconds at most, in bytes that LZ4 makes in the same time."""
_DECODING = 4
"""Arrays of the size of a slab that decoding holds at once."""
_PER_CHUNK = 16 << 10
"""What it takes to find and open a chunk, in the same measure."""


@dataclass(frozen=True)
class SliceBody:
    """``prefix`` (an npy header or nothing) and then the values in C order.

    ``slab_bytes``: of a stream. ``timings`` in seconds by phase.
    """

    reader: Reader
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

    @cached_property
    def is_small(self) -> bool:
        """Little of a local store, with memory that need not be waited for."""
        reader, plan = self.reader, self.plan
        if plan.array.mount.is_remote or plan.nbytes > MOST_READY or plan.touched > MOST_READY_CHUNKS:
            return False
        decoded = plan.touched * plan.array.metadata.chunk_nbytes * plan.array.metadata.codec.effort
        return not reader.working_memory(plan) and decoded + plan.touched * _PER_CHUNK <= _SHORT

    def ready(self, part: ByteRange) -> Ready | None:
        plan = self.plan
        if plan.nbytes > MOST_READY or plan.touched > MOST_READY_CHUNKS:
            return None
        cost = ReadCost()
        if self.reader.count_cached(plan) < plan.touched:
            return None
        return self._part(self.reader.read(plan, cost=cost), part, plan.touched, cost, self.timings)

    def fetch(self, part: ByteRange) -> Ready:
        cost = ReadCost()
        values = self.reader.read(self.plan, cost=cost)
        moved = cost.moved
        return self._part(values, part, cost.cached, cost, self.timings)._replace(moved=moved)

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
            lambda: slabs.cost.moved,
        )


@dataclass(frozen=True, slots=True)
class DecodedBody:
    """``prefix`` and then values that ``decode`` makes of those that were read, one of ``dtype`` for each of them."""

    reader: Reader
    plan: ReadPlan
    prefix: bytes
    decode: Callable[[NDArray[Any]], NDArray[Any]]
    dtype: np.dtype[Any]
    slab_bytes: int
    timings: Timings

    @property
    def size(self) -> int:
        return len(self.prefix) + self.plan.nbytes // self.plan.dtype.itemsize * self.dtype.itemsize

    @property
    def memory(self) -> int:
        """Beside a slab, what decoding makes of it and needs on the way."""
        slab = min(self.plan.nbytes, self.slab_bytes) // self.plan.dtype.itemsize
        return self.reader.stream_memory(self.plan, self.slab_bytes) + _DECODING * slab * max(8, self.dtype.itemsize)

    @property
    def is_small(self) -> bool:
        return self.size <= MOST_READY and not self.plan.array.mount.is_remote

    def head(self) -> Headers:
        return cost_headers(self.plan.touched, self.reader.count_cached(self.plan), None, self.timings)

    def ready(self, part: ByteRange) -> Ready | None:  # noqa: ARG002 - calendars take too long for the event loop
        return None

    def fetch(self, part: ByteRange) -> Ready:
        cost = ReadCost()
        data = self.prefix + bytes_of(self.decode(self.reader.read(self.plan, cost=cost)))
        headers = cost_headers(self.plan.touched, cost.cached, cost, self.timings)
        return Ready(data[part.start : part.stop], headers, cost.moved)

    def open(self, part: ByteRange, cancel: Cancel) -> Opened:
        before, stored, item = len(self.prefix), self.plan.dtype.itemsize, self.dtype.itemsize
        start, stop = max(part.start - before, 0), max(part.stop - before, 0)
        first, last = start // item, -(-stop // item)
        cached = self.reader.count_cached(self.plan)
        slabs = self.reader.stream(self.plan, first * stored, last * stored, cancel, slab_bytes=self.slab_bytes)

        def pieces() -> Iterator[Buffer]:
            at = first * item
            for slab in slabs:
                piece = bytes_of(self.decode(np.frombuffer(slab, self.plan.dtype)))
                yield piece[max(start - at, 0) : max(stop - at, 0)]
                at += len(piece)

        head = self.prefix[part.start : part.stop]
        return Opened(
            _joined(head, pieces()) if head else pieces(),
            lambda: cost_headers(self.plan.touched, cached, slabs.cost, self.timings),
            lambda: slabs.cost.moved,
        )


def _joined(head: bytes, slabs: Iterator[Buffer]) -> Iterator[Buffer]:
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
    return Ready(encode(values), headers, cost.moved)


def produce_reduced(  # noqa: PLR0917 - all but the last belong to the request
    reader: Reader,
    plan: ReadPlan,
    decode: Callable[[NDArray[Any]], NDArray[Any]] | None,
    reduction: Callable[[], MinMax],
    encode: Callable[[NDArray[Any]], bytes],
    timings: Timings,
    cancel: Cancel,
) -> Ready:
    """Reduce everything slab by slab; subarrays of a field count as their length. Blocks."""
    reduced, inner = reduction(), prod(plan.inner_shape)
    cached = reader.count_cached(plan)
    slabs = reader.stream(plan, 0, plan.nbytes, cancel)
    for slab in slabs:
        values = np.frombuffer(slab, plan.dtype)
        values = values if decode is None else decode(values)
        reduced.add(values if inner == 1 else np.linalg.norm(values.reshape(-1, inner), axis=1))
    headers = cost_headers(plan.touched, cached, slabs.cost, timings)
    return Ready(encode(reduced.result()), headers, slabs.cost.moved)
