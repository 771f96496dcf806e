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

from hyperslab.api.answers import MOST_KEYS, Sources
from hyperslab.api.bodies import Bytes, Produced
from hyperslab.api.conditional import etag_of
from hyperslab.api.context import Context
from hyperslab.api.conversion import converted
from hyperslab.api.encoders import check_npy, encode_json, npy_header
from hyperslab.api.headers import array_headers, caching, cost_headers
from hyperslab.api.negotiation import choose_format, media_types
from hyperslab.api.object_body import ObjectBody
from hyperslab.api.representation import Representation
from hyperslab.api.request import Request
from hyperslab.api.slice_body import MOST_READY_CHUNKS, SliceBody, produce_text
from hyperslab.api.tables import check_table, encode_csv
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.arrays.limits import boxes_that_fit
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import ReadPlan, require_field, resolve_field
from hyperslab.arrays.read import Reader
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import Selection, touched
from hyperslab.errors import TooLarge
from hyperslab.wire import format_dtype

PARAMETERS: Final = ("field", "format", "dtype")
"""What the query may hold besides the selection."""

_TEXT: Final[Mapping[str, Callable[[NDArray[Any]], bytes]]] = MappingProxyType({"json": encode_json, "csv": encode_csv})
TEXT_IS_LARGER: Final = 4
"""How many times the memory of a number its text takes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A selection of an array and how it is to be sent; ``dtype`` None: as it is stored."""

    array: ArrayNode
    selection: Selection
    field: Field | None
    form: str
    dtype: np.dtype[Any] | None

    @property
    def out_dtype(self) -> np.dtype[Any]:
        return self.dtype if self.dtype is not None else stored_dtype(self.array, self.field)

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
        return self.selection.shape + (self.field.shape if self.field is not None else ())

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.out_dtype.itemsize

    def etag(self, tag: str) -> str:
        """A strong entity tag: that of the plan, in this form and dtype."""
        form = self.form if self.dtype is None else f"{self.form} {format_dtype(self.dtype)}"
        return etag_of(f"{tag} {form}".encode())

    def boxes(self, limit: int) -> list[str]:
        """Selections of at most ``limit`` bytes that make up this one and follow the chunks."""
        inner = self.field.shape if self.field is not None else ()
        return boxes_that_fit(self.array, self.selection, self.out_dtype.itemsize * prod(inner), limit)

    def check(self, limit: int | None) -> None:
        """Refuse before anything is looked up: what has no such form, and what is more than ``limit`` bytes."""
        if self.form == "csv":
            check_table(self.shape, self.out_dtype)
        elif self.form == "npy":
            check_npy(self.out_dtype)
        if limit is not None and self.nbytes > limit:
            raise TooLarge(f"a selection as {self.form}", self.nbytes, limit, boxes=self.boxes(limit))


def stored_dtype(array: ArrayNode, field: Field | None) -> np.dtype[Any]:
    """The dtype of the values before any conversion."""
    return field.numpy if field is not None else array.metadata.dtype.numpy


def wanted(request: Request, array: ArrayNode, selection: Selection, *, negotiate: bool = True) -> Wanted:
    """Read ``field``, ``format`` and ``dtype``; the Accept header too if ``negotiate``."""
    query = request.query
    offered = media_types(array.metadata.dtype.numpy)
    form = choose_format(query.text("format"), request.header(b"accept") if negotiate else None, offered)
    resolve = resolve_field if query.text("dtype") is None else require_field  # records as a whole have no other dtype
    field = resolve(array, query.text("field"))
    dtype = converted(query.text("dtype"), stored_dtype(array, field))
    return Wanted(array, selection, field, form, dtype)


async def array_reply(context: Context, request: Request, array: ArrayNode, selection: Selection) -> Representation:
    """A slice or a chunk. Its tag is worked out from versions; no chunk is read before conditions are weighed."""
    return await planned_reply(context, request, asked_for(context, request, array, selection))


async def planned_reply(context: Context, request: Request, asked: Wanted) -> Representation:
    """See `array_reply`."""
    began = perf_counter()
    plan = await make_plan(context, request, asked)
    return _reply(context, request, asked, plan, perf_counter() - began)


def prepared_reply(context: Context, request: Request, array: ArrayNode, selection: Selection) -> Representation | None:
    """`array_reply` where nothing has to be waited for; else None."""
    if array.mount.is_far or not _is_brief(array, selection):
        return None
    asked = asked_for(context, request, array, selection)
    began = perf_counter()
    plan = context.service.reader.plan(asked.array, asked.selection, asked.field, asked.dtype)
    return _reply(context, request, asked, plan, perf_counter() - began)


def asked_for(context: Context, request: Request, array: ArrayNode, selection: Selection) -> Wanted:
    """What a request wants of an array; raises for what it cannot have, before anything is looked up."""
    asked = wanted(request, array, selection)
    asked.check(most_bytes(context, asked))
    return asked


def _reply(context: Context, request: Request, asked: Wanted, plan: ReadPlan, seconds: float) -> Representation:
    return representation_of(context, request, asked, plan, _body(context, asked, plan, {"plan": seconds}))


def representation_of(
    context: Context, request: Request, asked: Wanted, plan: ReadPlan, body: SliceBody | Produced | Bytes
) -> Representation:
    """The values, with the tag of their plan."""
    array = asked.array
    return Representation(
        context,
        asked.etag(plan.tag),
        asked.media_type,
        body,
        headers=array_headers(plan.shape, plan.dtype),
        always=caching(array.mount, context.options, negotiated=request.query.text("format") is None),
        sources=_sources(plan, body),
    )


def _sources(plan: ReadPlan, body: SliceBody | Produced | Bytes) -> Sources | None:
    """The documents and chunks that the answer is made of; None where they are many."""
    array = plan.array
    if plan.versions is None or not array.documents or plan.touched > MOST_KEYS - len(array.documents):
        return None
    keys = (*array.documents, *map(array.chunk_key, plan.versions))
    versions = [*array.documents.values(), *plan.versions.values()]
    again = body if isinstance(body, SliceBody) else None
    return Sources(array.mount, keys, versions, plan.touched, documents=len(array.documents), body=again)


async def make_plan(context: Context, request: Request, asked: Wanted) -> ReadPlan:
    """`Reader.plan`, on the loop where only a few versions are to be looked up in a store that is near.

    Planning a selection of very many chunks takes long, and ends when the client leaves.
    """
    plan = context.service.reader.plan
    arguments = (asked.array, asked.selection, asked.field, asked.dtype)
    if _is_brief(asked.array, asked.selection):
        return await context.near(asked.array.mount, plan, *arguments)
    async with cancelled_when_gone(request.receive) as cancel:
        return await context.threads.run(plan, *arguments, cancel=cancel)


def _is_brief(array: ArrayNode, selection: Selection) -> bool:
    """Whether a plan looks up a few versions only."""
    return touched(selection, array.metadata.grid) <= MOST_READY_CHUNKS


def most_bytes(context: Context, asked: Wanted) -> int | None:
    """The cap on the values that go into one answer; objects are held as a whole, in any form."""
    options = context.options
    form = "json" if asked.out_dtype.hasobject else asked.form
    return {"json": options.max_json_bytes, "csv": options.max_csv_bytes}.get(form, options.max_read_bytes)


def _body(context: Context, asked: Wanted, plan: ReadPlan, timings: dict[str, float]) -> SliceBody | Produced:
    reader = context.service.reader
    encode = asked.encode
    if plan.dtype.hasobject:
        limit = context.options.max_json_bytes
        objects = ObjectBody(reader, plan, encode, limit, timings)
        return Produced(objects.produce, memory=text_memory(reader, plan), head=objects.head)
    if encode is None:
        slab_bytes = reader.choose_slab(plan, context.service.in_flight.room)
        return SliceBody(reader, context.warm_keys, plan, asked.prefix, slab_bytes, timings)
    return Produced(
        partial(produce_text, reader, plan, encode, timings),
        memory=text_memory(reader, plan),
        head=lambda: cost_headers(plan.touched, reader.count_cached(plan), None, timings),
    )


def text_memory(reader: Reader, plan: ReadPlan) -> int:
    """Bytes that values take while they are read and made a text of."""
    return TEXT_IS_LARGER * plan.nbytes + reader.working_memory(plan)
