"""A selection of an array in the form that was asked for: what slices and chunks have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.api.bodies import Bytes, Produced
from hyperslab.api.conditional import etag_of
from hyperslab.api.context import Context
from hyperslab.api.headers import array_headers, caching, cost_headers
from hyperslab.api.object_body import ObjectBody
from hyperslab.api.replay import MOST_KEYS, Sources
from hyperslab.api.reply import Headers
from hyperslab.api.representation import Representation
from hyperslab.api.request import Request
from hyperslab.api.slice_body import MOST_READY_CHUNKS, DecodedBody, SliceBody, bytes_of, produce_reduced, produce_text
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.api.values_out import (
    check_form,
    choose_format,
    converted,
    encode_csv,
    encode_json,
    media_types,
    npy_header,
)
from hyperslab.arrays.limits import boxes_that_fit
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import ReadPlan, require_field, resolve_field
from hyperslab.arrays.read import Reader
from hyperslab.engine.cf import Decoder
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import Selection, split_selection, touched
from hyperslab.engine.minmax import PARTS, MinMax, reduced_dtype
from hyperslab.errors import BadParameter, NotRepresentable, TooLarge
from hyperslab.wire import format_dtype

PARAMETERS: Final = ("field", "format", "dtype", "decode")
"""What the query may hold besides the selection."""

_TEXT: Final[Mapping[str, Callable[[NDArray[Any]], bytes]]] = MappingProxyType({"json": encode_json, "csv": encode_csv})
TEXT_IS_LARGER: Final = 4
"""How many times the memory of a number its text takes."""
DECODINGS: Final = ("cf", "none")
MOST_BINS: Final = 1 << 16
_BINS: Final = 1024


@dataclass(frozen=True, slots=True)
class Wanted:
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

    def check(self, limit: int | None) -> None:
        """Refuse before anything is looked up: what has no such form, and what is more than ``limit`` bytes."""
        check_form(self.form, self.shape, self.out_dtype)
        if limit is not None and self.nbytes > limit:
            boxes = self.boxes(limit) if self.bins is None else []
            raise TooLarge(f"a selection as {self.form}", self.nbytes, limit, boxes=boxes)


def stored_dtype(array: ArrayNode, field: Field | None) -> np.dtype[Any]:
    """The dtype of the values before any conversion."""
    return field.numpy if field is not None else array.metadata.dtype.numpy


def wanted(request: Request, array: ArrayNode, selection: Selection, *, negotiate: bool = True) -> Wanted:
    """Read ``field``, ``format`` and ``dtype``; the Accept header too if ``negotiate``. The selection may go on into
    the subarray of the field."""
    query = request.query
    offered = media_types(array.metadata.dtype.numpy)
    form = choose_format(query.text("format"), request.header(b"accept") if negotiate else None, offered)
    resolve = resolve_field if query.text("dtype") is None else require_field  # records as a whole have no other dtype
    field = resolve(array, query.text("field"))
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
        return Wanted(array, selection, field, form, dtype)
    dtype = source if dtype is None else dtype
    return Wanted(array, selection, field, form, dtype, decoder and decoder.to(dtype), bins)


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


async def array_reply(context: Context, request: Request, array: ArrayNode, selection: Selection) -> Representation:
    """A slice or a chunk. Its tag is worked out from versions; no chunk is read before conditions are weighed."""
    return await planned_reply(context, request, asked_for(context, request, array, selection))


async def planned_reply(context: Context, request: Request, asked: Wanted) -> Representation:
    """See `array_reply`."""
    began = perf_counter()
    plan = await make_plan(context, request, asked)
    return _reply(context, request, asked, plan, perf_counter() - began)


def _planned(asked: Wanted) -> tuple[ArrayNode, Selection, Field | None, np.dtype[Any] | None]:
    """What is read for it."""
    return asked.array, asked.selection, asked.field, asked.dtype if asked.is_stored else None


def asked_for(context: Context, request: Request, array: ArrayNode, selection: Selection) -> Wanted:
    """What a request wants of an array; raises for what it cannot have, before anything is looked up."""
    asked = wanted(request, array, selection)
    asked.check(most_bytes(context, asked))
    return asked


def _reply(context: Context, request: Request, asked: Wanted, plan: ReadPlan, seconds: float) -> Representation:
    return representation_of(context, request, asked, plan, _body(context, asked, plan, {"plan": seconds}))


def representation_of(
    context: Context, request: Request, asked: Wanted, plan: ReadPlan, body: SliceBody | DecodedBody | Produced | Bytes
) -> Representation:
    """The values, with the tag of their plan."""
    array = asked.array
    return Representation(
        context,
        asked.etag(plan.tag),
        asked.media_type,
        body,
        headers=array_headers(asked.shape, asked.out_dtype),
        always=caching(array.mount, context.options, negotiated=request.query.text("format") is None),
        sources=_sources(plan),
    )


def _sources(plan: ReadPlan) -> Sources | None:
    """The documents and chunks that the answer is made of; None where they are many."""
    array = plan.array
    if plan.versions is None or not array.documents or plan.touched > MOST_KEYS - len(array.documents):
        return None
    keys = (*array.documents, *map(array.chunk_key, plan.versions))
    versions = [*array.documents.values(), *plan.versions.values()]
    return Sources(array.mount, keys, versions, plan.touched)


async def make_plan(context: Context, request: Request, asked: Wanted) -> ReadPlan:
    """`Reader.plan`, on the loop where only a few versions are to be looked up in a store that is near.

    Planning a selection of very many chunks takes long, and ends when the client leaves.
    """
    plan = context.service.reader.plan
    arguments = _planned(asked)
    if _is_brief(asked.array, asked.selection):
        return await context.near(asked.array.mount, plan, *arguments)
    async with cancelled_when_gone(request.receive) as cancel:
        return await context.threads.run(plan, *arguments, cancel=cancel)


def _is_brief(array: ArrayNode, selection: Selection) -> bool:
    """Whether a plan looks up a few versions only."""
    return touched(selection, array.metadata.grid) <= MOST_READY_CHUNKS


def most_bytes(context: Context, asked: Wanted) -> int | None:
    """The cap on the values that go into one answer; objects and bins are held as a whole, in any form."""
    options = context.options
    form = "json" if asked.out_dtype.hasobject or asked.bins is not None else asked.form
    return {"json": options.max_json_bytes, "csv": options.max_csv_bytes}.get(form, options.max_read_bytes)


def _body(
    context: Context, asked: Wanted, plan: ReadPlan, timings: dict[str, float]
) -> SliceBody | DecodedBody | Produced:
    reader = context.service.reader
    encode = asked.encode
    if asked.bins is not None:
        return _reduced(reader, asked, plan, timings)
    if plan.dtype.hasobject:
        limit = context.options.max_json_bytes
        objects = ObjectBody(reader, plan, encode, limit, timings)
        return Produced(objects.produce, memory=text_memory(reader, plan), head=objects.head)
    if encode is None:
        slab_bytes = reader.choose_slab(plan, context.service.in_flight.room)
        if asked.decoder is not None:
            return DecodedBody(reader, plan, asked.prefix, asked.decode, asked.out_dtype, slab_bytes, timings)
        return SliceBody(reader, plan, asked.prefix, slab_bytes, timings)
    head = partial(_head, reader, plan, timings)
    if asked.decoder is None:
        produce = partial(produce_text, reader, plan, encode, timings)
        return Produced(produce, memory=text_memory(reader, plan), head=head)
    produce = partial(produce_text, reader, plan, lambda values: encode(asked.decode(values)), timings)
    return Produced(produce, memory=text_memory(reader, plan) + (1 + TEXT_IS_LARGER) * asked.nbytes, head=head)


def _head(reader: Reader, plan: ReadPlan, timings: dict[str, float]) -> Headers:
    return cost_headers(plan.touched, reader.count_cached(plan), None, timings)


def _reduced(reader: Reader, asked: Wanted, plan: ReadPlan, timings: dict[str, float]) -> Produced:
    """Bins of the last axis: read as a stream is, so that memory grows with the bins alone."""

    def encode(values: NDArray[Any]) -> bytes:
        values = values.reshape(asked.shape).astype(asked.out_dtype, copy=False)
        return asked.prefix + bytes_of(values) if asked.encode is None else asked.encode(values)

    slab, (*outer, length) = reader.choose_slab(plan), plan.selection.shape
    dtype = reduced_dtype(plan.dtype if asked.decoder is None else asked.decoder.dtype)
    assert asked.bins is not None and dtype is not None  # noqa: PT018 - both belong to what was asked for
    reduction = partial(MinMax, prod(outer), length, asked.bins, dtype)
    produce = partial(produce_reduced, reader, plan, asked.decoder, reduction, encode, timings)
    memory = reader.stream_memory(plan, slab) + TEXT_IS_LARGER * (asked.nbytes + slab)
    return Produced(produce, memory=memory, head=partial(_head, reader, plan, timings))


def text_memory(reader: Reader, plan: ReadPlan) -> int:
    """Bytes that values take while they are read and made a text of."""
    return TEXT_IS_LARGER * plan.nbytes + reader.working_memory(plan)
