"""Values of an array as a request asks for them: the query, the body, and the response of slices and chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from secrets import token_bytes
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.conditional import etag_of
from hyperslab.api.context import Context, runs_on_loop
from hyperslab.api.options import ApiOptions
from hyperslab.api.ranges import ByteRange
from hyperslab.api.replay import MOST_KEYS, Sources
from hyperslab.api.representation import Content, DeferredContent, Representation
from hyperslab.api.request import Request
from hyperslab.api.response import Buffer, Headers, array_headers, caching, cost_headers
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.api.values_out import (
    add_objects,
    check_form,
    choose_format,
    converted,
    encode_csv,
    encode_json,
    media_types,
    npy_header,
)
from hyperslab.arrays.cancel import Cancel
from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.limits import boxes_that_fit
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import ReadPlan, require_field, resolve_field, select
from hyperslab.arrays.service import Service
from hyperslab.engine.cf import Decoder
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import Selection, split_rows, split_selection
from hyperslab.engine.minmax import PARTS, MinMax, reduced_dtype
from hyperslab.errors import BadParameter, NotRepresentable, TooLarge
from hyperslab.wire import Packer, SelectionItem, format_dtype

PARAMETERS: Final = ("field", "format", "dtype", "decode")
"""What the query may hold besides the selection."""
DECODINGS: Final = ("cf", "none")
MOST_BINS: Final = 1 << 16
_BINS: Final = 1024
_TEXT: Final[Mapping[str, Callable[[NDArray[Any]], bytes]]] = MappingProxyType({"json": encode_json, "csv": encode_csv})


@dataclass(frozen=True, slots=True)
class ArrayQuery:
    """A selection of an array and how it is to be sent; ``dtype`` None: as it is stored, or as ``decoder`` makes it.

    ``bins``: minimum, maximum and mean of so many parts of the last axis are wanted in place of its values.
    """

    array: ArrayNode
    selection: Selection
    field: Field | None
    form: str
    dtype: np.dtype[Any] | None
    decoder: Decoder | None = None
    bins: int | None = None

    @property
    def out_dtype(self) -> np.dtype[Any]:
        return self.dtype if self.dtype is not None else stored_dtype(self.array, self.field)

    @property
    def is_stored(self) -> bool:
        """Whether the answer holds values as the reader gives them, in the order that it does."""
        return self.decoder is None and self.bins is None

    def decode(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values as they were read, in the dtype of the answer."""
        return values if self.decoder is None else self.decoder(values).astype(self.out_dtype, copy=False)

    @property
    def encode(self) -> Callable[[NDArray[Any]], bytes] | None:
        """What makes a text of the values; None where they are sent in binary form."""
        return _TEXT.get(self.form)

    @property
    def prefix(self) -> bytes:
        """What precedes the values in binary form: an npy header, or nothing."""
        return npy_header(self.shape, self.out_dtype) if self.form == "npy" else b""

    @property
    def media_type(self) -> str:
        return media_types(self.out_dtype)[self.form]

    @property
    def shape(self) -> tuple[int, ...]:
        if self.bins is not None:
            return (*self.selection.shape[:-1], self.bins, PARTS)
        return self.selection.shape + (self.field.shape if self.field is not None else ())

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.out_dtype.itemsize

    def etag(self, tag: str) -> str:
        """A strong entity tag: that of the plan, in this form and dtype."""
        form = self.form if self.dtype is None else f"{self.form} {format_dtype(self.dtype)}"
        if not self.is_stored:
            form = f"{form} {self.decoder is not None and self.array.version} {self.bins}"
        return etag_of(f"{tag} {form}".encode())

    def boxes(self, limit: int) -> list[str]:
        """Selections of at most ``limit`` bytes that make up this one and follow the chunks."""
        inner = self.field.shape if self.field is not None else ()
        return boxes_that_fit(self.array, self.selection, self.out_dtype.itemsize * prod(inner), limit, self.field)

    def most_bytes(self, options: ApiOptions) -> int | None:
        """The cap on the values that go into one answer; objects and bins are held as a whole, in any form."""
        form = "json" if self.out_dtype.hasobject or self.bins is not None else self.form
        return {"json": options.max_json_bytes, "csv": options.max_csv_bytes}.get(form, options.max_read_bytes)

    def check(self, options: ApiOptions) -> None:
        """Refuse before anything is looked up: what has no such form, and what is over the cap."""
        check_form(self.form, self.shape, self.out_dtype)
        limit = self.most_bytes(options)
        if limit is not None and self.nbytes > limit:
            boxes = self.boxes(limit) if self.bins is None else []
            raise TooLarge(f"a selection as {self.form}", self.nbytes, limit, boxes=boxes)


def stored_dtype(array: ArrayNode, field: Field | None) -> np.dtype[Any]:
    """The dtype of the values before any conversion."""
    return field.numpy if field is not None else array.metadata.dtype.numpy


def array_query(
    request: Request, array: ArrayNode, items: Sequence[SelectionItem], *, negotiate: bool = True
) -> ArrayQuery:
    """Read ``field``, ``format`` and ``dtype``; the Accept header too if ``negotiate``. The ``items`` may go on into
    the subarray of the field."""
    query = request.query
    offered = media_types(array.metadata.dtype.numpy)
    form = choose_format(query.text("format"), request.header(b"accept") if negotiate else None, offered)
    field = resolve_field(array, query.text("field"))
    selection = select(array, field, items)
    if query.text("dtype") is not None:  # records as a whole have no other
        field = require_field(array, query.text("field"))
    selection, field = split_selection(selection, array.metadata.rank, field)
    decoder = decoder_of(array, query.choice("decode", DECODINGS))
    source = stored_dtype(array, field) if decoder is None else decoder.dtype
    bins = _bins(request, selection)
    if bins is not None:
        reduced = reduced_dtype(source)
        if reduced is None:
            raise NotRepresentable(str(source), "minimum and maximum", "these values have no order")
        source = reduced
    dtype = converted(query.text("dtype"), source)
    if decoder is None and bins is None:
        return ArrayQuery(array, selection, field, form, dtype)
    dtype = source if dtype is None else dtype
    return ArrayQuery(array, selection, field, form, dtype, decoder and decoder.to(dtype), bins)


def decoder_of(array: ArrayNode, decode: str | None) -> Decoder | None:
    """What ``decode=`` asks for; None where values are to be as they are stored."""
    decoder = array.decoder if decode == "cf" else None
    return decoder if decoder is not None and decoder.changes else None


def _bins(request: Request, selection: Selection) -> int | None:
    """``reduce=minmax`` and ``bins=``: how many parts of the last axis are wanted; never more than it is long."""
    query = request.query
    if query.choice("reduce", ("minmax",)) is None:
        if "bins" in query.values:
            raise BadParameter("bins", query.values["bins"], "reduce=minmax beside it")
        return None
    bins = query.integer("bins", _BINS, low=1, high=MOST_BINS)
    if not selection.shape:
        raise BadParameter("reduce", "minmax", "a selection of one axis or more, the last of which is reduced")
    return min(bins, selection.shape[-1])


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
        self._slab = self._reader.choose_slab(plan, service.in_flight)

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
        interval = (first * stored, last * stored)
        slabs = self._reader.stream(self._plan, *interval, cancel, self._spent, slab_bytes=self._slab)
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
            values, plan = reader.read(plan, cancel, self._spent)
            cancel.check()
            values = query.decode(values)
            return query.prefix + bytes_of(values) if query.encode is None else query.encode(values), plan
        prefix = query.prefix
        data = reader.buffers.take(len(prefix) + plan.nbytes)
        data[: len(prefix)] = np.frombuffer(prefix, np.uint8)
        out = data[len(prefix) :].view(plan.dtype).reshape(plan.shape)
        _, plan = reader.read(plan, cancel, self._spent, out)
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
        for slab in self._reader.stream(plan, 0, plan.nbytes, cancel, self._spent):
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


_MOST_CHUNKS: Final = 1024
"""Chunks of an answer whose versions come with the data; the versions of more are better listed."""
_MOST_REMOTE: Final = 32 << 20
"""Bytes of a remote answer that is read before any of it is sent: less than a stream of it would hold."""


async def array_reply(
    context: Context, request: Request, array: ArrayNode, items: Sequence[SelectionItem]
) -> Representation:
    """A slice or a chunk.

    A small answer that is wanted as a whole is read at once, and its tag is made of the versions that come with the
    data. For all others versions are looked up first, so that conditions are weighed before any data is read.
    """
    query = array_query(request, array, items)
    query.check(context.options)
    began = perf_counter()
    plan = plan_of(context, query)
    is_small = _is_small(context, query, plan)
    cached = None
    if not (is_small and request.wants_all):
        plan = await look_up(context, request, plan)
    elif query.encode is None and query.is_stored and runs_on_loop(array.mount, plan.touched, plan.nbytes):
        cached = context.service.reader.look_up_cached(plan)
    timings = {"plan": perf_counter() - began}
    body = ArrayBody(context.service, query, cached or plan, context.options.max_json_bytes, timings)
    representation = Representation(
        context,
        None if plan.found is None else query.etag(plan.tag),
        query.media_type,
        body,
        headers=array_headers(query.shape, query.out_dtype),
        always=caching(array.mount, context.options, negotiated=request.query.text("format") is None),
        sources=None if plan.found is None else _sources(plan),
    )
    if cached is not None:
        return representation.with_content(body.make(Cancel()))
    if body.size is None or (is_small and request.header(b"range") is None):
        return replace(representation, body=DeferredContent(body.make, body.whole_memory, body.size, body.cost))
    return representation


def _is_small(context: Context, query: ArrayQuery, plan: ReadPlan) -> bool:
    """Whether the answer is read as a whole before any of it is sent: about as much as a stream would hold of it."""
    if query.bins is not None or plan.dtype.hasobject:
        return False
    most = _MOST_REMOTE if plan.array.mount.is_remote else context.service.reader.slab_bytes
    return plan.touched <= _MOST_CHUNKS and query.nbytes <= most


def plan_of(context: Context, query: ArrayQuery) -> ReadPlan:
    """What is read for a query; nothing is looked up."""
    dtype = query.dtype if query.is_stored else None
    return context.service.reader.plan(query.array, query.selection, query.field, dtype)


async def look_up(context: Context, request: Request, plan: ReadPlan) -> ReadPlan:
    """`Reader.look_up`: of very many chunks that takes long, and ends when the client leaves."""
    reader = context.service.reader
    if runs_on_loop(plan.array.mount, plan.touched):
        return reader.look_up(plan)
    async with cancelled_when_gone(request.receive) as cancel:
        return await context.threads.run(reader.look_up, plan, cancel)
