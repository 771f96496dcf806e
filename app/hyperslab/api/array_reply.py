"""Responses with values of an array: what slices and chunks have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Final

from hyperslab.api.array_body import ArrayBody
from hyperslab.api.array_query import ArrayQuery, array_query
from hyperslab.api.context import Context, runs_on_loop
from hyperslab.api.headers import array_headers, caching
from hyperslab.api.representation import DeferredContent, Representation
from hyperslab.api.request import Request
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.arrays.cost import Cancel
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import ReadPlan
from hyperslab.wire import SelectionItem

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
    return context.service.reader.plan_only(query.array, query.selection, query.field, dtype)


async def look_up(context: Context, request: Request, plan: ReadPlan) -> ReadPlan:
    """`Reader.look_up`: of very many chunks that takes long, and ends when the client leaves."""
    reader = context.service.reader
    if runs_on_loop(plan.array.mount, plan.touched):
        return reader.look_up(plan)
    async with cancelled_when_gone(request.receive) as cancel:
        return await context.threads.run(reader.look_up, plan, cancel)
