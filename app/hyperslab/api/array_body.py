"""Body of a response: the values of a planned read, in the form that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from secrets import token_bytes
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.array_query import ArrayQuery
from hyperslab.api.conditional import etag_of
from hyperslab.api.headers import cost_headers
from hyperslab.api.ranges import ByteRange
from hyperslab.api.replay import MOST_KEYS, Sources
from hyperslab.api.representation import Content
from hyperslab.api.response import Buffer, Headers
from hyperslab.api.values_out import add_objects
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.limits import boxes_that_fit
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.service import Service
from hyperslab.engine.indexing import split_rows
from hyperslab.engine.minmax import MinMax, reduced_dtype
from hyperslab.errors import TooLarge
from hyperslab.wire import Packer

TEXT_IS_LARGER: Final = 4
"""How many times the memory of a number its text takes."""
_DECODING: Final = 4
"""Arrays of the size of a slab that decoding holds at once."""
_REFERENCES: Final = 1 << 20
"""Bytes of references that are read before what they refer to is measured."""
_REFERENCE: Final = np.dtype(object).itemsize


class ArrayBody:
    """The values of ``plan``, as a stream or as a whole.

    ``most_objects``: the most bytes that the binary form of objects may come to; ``timings`` in seconds by phase.
    """

    def __init__(
        self, service: Service, query: ArrayQuery, plan: ReadPlan, most_objects: int, timings: Mapping[str, float]
    ) -> None:
        self._reader = service.reader
        self._query = query
        self._plan = plan
        self._most_objects = most_objects
        self._timings = timings
        self._spent = ReadCost()
        self._cached = None if plan.found is None else self._reader.count_cached(plan)
        self._slab = self._reader.choose_slab(plan, service.in_flight.room)

    @property
    def size(self) -> int | None:
        query = self._query
        is_binary = query.encode is None and query.bins is None and not self._plan.dtype.hasobject
        return len(query.prefix) + query.nbytes if is_binary else None

    @property
    def memory(self) -> int:
        """Of a stream: its slabs; beside one of them, what CF decoding makes of it and needs on the way."""
        slab = min(self._plan.nbytes, self._slab)
        return self._reader.stream_memory(self._plan, self._slab) + self._decoding(slab)

    @property
    def whole_memory(self) -> int:
        """Of `make`."""
        query, plan, reader = self._query, self._plan, self._reader
        if query.bins is not None:
            slab = reader.choose_slab(plan)
            return reader.stream_memory(plan, slab) + TEXT_IS_LARGER * (query.nbytes + slab)
        if query.encode is None and not plan.dtype.hasobject:
            return plan.nbytes + self._decoding(plan.nbytes) + reader.working_memory(plan)
        decoded = 0 if query.decoder is None else (1 + TEXT_IS_LARGER) * query.nbytes
        return TEXT_IS_LARGER * plan.nbytes + reader.working_memory(plan) + decoded

    def cost(self) -> Headers:
        cached = self._spent.cached if self._cached is None else self._cached
        return cost_headers(self._plan.touched, cached, self._spent, self._timings)

    def open(self, part: ByteRange, cancel: Cancel) -> Iterator[Buffer]:
        """A slab at a time; the prefix goes out when the first one is in hand."""
        query, stored = self._query, max(self._plan.dtype.itemsize, 1)
        prefix, item = query.prefix, max(query.out_dtype.itemsize, 1)
        start, stop = max(part.start - len(prefix), 0), max(part.stop - len(prefix), 0)
        first, last = start // item, -(-stop // item)
        slabs = self._reader.stream(self._plan, first * stored, last * stored, cancel, slab_bytes=self._slab)
        self._spent = slabs.cost
        slab, at = next(slabs, None), first * item
        if part.start < len(prefix):
            yield prefix[part.start : part.stop]
        while slab is not None:
            values = None if query.decoder is None else query.decode(np.frombuffer(slab, self._plan.dtype))
            piece = slab if values is None else bytes_of(values)
            yield piece[max(start - at, 0) : max(stop - at, 0)]
            at += len(piece)
            slab = next(slabs, None)

    def make(self, cancel: Cancel) -> Content:
        """The whole body, with the tag of what was read; blocks.

        Raises `TooLarge` for objects (a single one never is) and `NotRepresentable`.
        """
        query, plan, etag = self._query, self._plan, None
        if query.bins is not None:
            data: Buffer = self._reduced(cancel)
        elif plan.dtype.hasobject:
            data = self._objects(cancel)
            etag = etag_of(token_bytes()) if self._spent.moved else None
        else:
            data, plan = self._values(cancel)
            etag = query.etag(plan.tag)
        return Content(data, cost=self.cost(), etag=etag or query.etag(plan.tag), sources=_sources(plan))

    def _decoding(self, nbytes: int) -> int:
        """Bytes that decoding so many stored ones takes."""
        query = self._query
        if query.decoder is None:
            return 0
        return _DECODING * (nbytes // self._plan.dtype.itemsize) * max(8, query.out_dtype.itemsize)

    def _values(self, cancel: Cancel) -> tuple[Buffer, ReadPlan]:
        query, plan, reader = self._query, self._plan, self._reader
        if query.encode is not None or query.decoder is not None or not plan.nbytes:
            values, plan = reader.read_tagged(plan, cancel, self._spent)
            cancel.check()
            values = query.decode(values)
            return query.prefix + bytes_of(values) if query.encode is None else query.encode(values), plan
        prefix = query.prefix
        data = reader.buffer(len(prefix) + plan.nbytes)
        data[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        out = data[len(prefix) :].view(plan.dtype).reshape(plan.shape)
        _, plan = reader.read_tagged(plan, cancel, self._spent, out)
        return memoryview(data.data), plan

    def _objects(self, cancel: Cancel) -> bytes:
        """Memory is bounded by the limit and what some chunks decode to, whatever all of them would."""
        plan, packer, values = self._plan, Packer(), np.empty(self._plan.shape, object)
        flat, grid = values.reshape(-1), plan.array.metadata.grid
        for part, start, stop in split_rows(
            plan.selection, (), itemsize=_REFERENCE, grid=grid, limit_bytes=_REFERENCES
        ):
            done = stop // _REFERENCE
            out = flat[start // _REFERENCE : done].reshape(part.shape)
            self._reader.fill_slab(plan, part, out, cost=self._spent, cancel=cancel)
            add_objects(packer, out)
            if packer.nbytes > self._most_objects and values.size > 1:
                each = -(-packer.nbytes // done)  # if those that were not read yet are like those that were
                boxes = boxes_that_fit(plan.array, plan.selection, each, self._most_objects)
                nbytes = each * plan.selection.size
                raise TooLarge("a selection of objects, as raw", nbytes, self._most_objects, boxes=boxes)
        return packer.finish() if self._query.encode is None else self._query.encode(values)

    def _reduced(self, cancel: Cancel) -> bytes:
        """Bins of the last axis, reduced slab by slab; subarrays of a field count as their length."""
        query, plan = self._query, self._plan
        *outer, length = plan.selection.shape
        dtype = reduced_dtype(plan.dtype if query.decoder is None else query.decoder.dtype)
        assert query.bins is not None and dtype is not None  # noqa: PT018 - both belong to what was asked for
        reduced, inner = MinMax(prod(outer), length, query.bins, dtype), prod(plan.inner_shape)
        slabs = self._reader.stream(plan, 0, plan.nbytes, cancel)
        self._spent = slabs.cost
        for slab in slabs:
            values = np.frombuffer(slab, plan.dtype)
            values = values if query.decoder is None else query.decoder(values)
            reduced.add(values if inner == 1 else np.linalg.norm(values.reshape(-1, inner), axis=1))
        result = reduced.result().reshape(query.shape).astype(query.out_dtype, copy=False)
        return query.prefix + bytes_of(result) if query.encode is None else query.encode(result)


def bytes_of(values: NDArray[Any]) -> memoryview:
    """The memory of a C-contiguous array."""
    return memoryview(values.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def _sources(plan: ReadPlan) -> Sources | None:
    """The documents and chunks that the answer is made of; None where they are many."""
    array = plan.array
    if plan.versions is None or not array.documents or plan.touched > MOST_KEYS - len(array.documents):
        return None
    keys = (*array.documents, *map(array.chunk_key, plan.versions))
    versions = [*array.documents.values(), *plan.versions.values()]
    return Sources(array.mount, keys, versions, plan.touched)
