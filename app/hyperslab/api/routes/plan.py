"""``GET /v1/plan/{path}?select=…``: what a slice would cost, and how to cut it into requests that fit."""

from __future__ import annotations

from functools import partial
from typing import Final

from hyperslab.api.array_query import PARAMETERS, array_query
from hyperslab.api.array_reply import look_up, plan_of
from hyperslab.api.context import Context
from hyperslab.api.representation import Representation
from hyperslab.api.request import Request
from hyperslab.api.response import Reply
from hyperslab.api.routing import Endpoint
from hyperslab.engine.jsontext import dump_json
from hyperslab.wire import JSON, dtype_to_json

PREFIX: Final = "/v1/plan"

_BOX_BYTES = 64 << 20
_KNOWN = frozenset(("select", "box_bytes", *PARAMETERS))


def endpoint(context: Context) -> Endpoint:
    """The route."""
    return Endpoint(PREFIX, partial(get_plan, context))


async def get_plan(context: Context, request: Request) -> Reply:
    """Answer GET and HEAD; ``format`` says which answer is planned, the plan itself is JSON.

    Caches always ask whether it is still good: what is cached changes, though the store may not.
    """
    query = request.query
    query.only(_KNOWN)
    items = query.selection()
    array = await context.open_array(request.tail)
    asked = array_query(request, array, items, negotiate=False)
    plan = await look_up(context, request, plan_of(context, asked))
    limit = asked.most_bytes(context.options)
    box_bytes = query.integer("box_bytes", min(_BOX_BYTES, limit or _BOX_BYTES), low=1, high=1 << 62)
    cached = context.service.reader.count_cached(plan)
    etag = asked.etag(plan.tag)
    document = {
        "path": array.path,
        "shape": asked.shape,
        "dtype": dtype_to_json(asked.out_dtype),
        "nbytes": asked.nbytes,
        "format": asked.form,
        "media_type": asked.media_type,
        "limit": limit,
        "chunks": {"touched": plan.touched, "cached": cached},
        "etag": etag,
        "boxes": await context.threads.run(asked.boxes, box_bytes),
    }
    tag = f'"{etag[1:-1]}-{cached}-{box_bytes}"'
    return Representation(context, tag, JSON, dump_json(document))
