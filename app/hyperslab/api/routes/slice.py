"""``GET /v1/slice/{path}?select=…``: any box, stride or orthogonal selection of an array."""

from __future__ import annotations

from functools import partial
from typing import Final

from hyperslab.api import openapi
from hyperslab.api.array_reply import PARAMETERS, array_reply
from hyperslab.api.context import Context
from hyperslab.api.far_reply import FarReply
from hyperslab.api.reply import Reply
from hyperslab.api.request import Request
from hyperslab.api.routing import Endpoint
from hyperslab.engine.indexing import normalise
from hyperslab.wire import SelectionItem

PREFIX: Final = "/v1/slice"

_KNOWN = frozenset(("select", "reduce", "bins", *PARAMETERS))


def endpoint(context: Context) -> Endpoint:
    """The route."""
    operation = openapi.operation(
        "Read a selection of an array",
        "Values in C order, of any size: what is large is streamed. HEAD costs a plan. `Range`, `If-Range`, "
        "`If-None-Match` and `If-Match` work on the computed bytes.",
        [openapi.PATH, openapi.SELECT, *openapi.FORMS, *openapi.REDUCTION],
        openapi.VALUES,
        openapi.OF_VALUES,
    )
    return Endpoint(PREFIX, partial(get_slice, context), {PREFIX + "/{path}": operation})


async def get_slice(context: Context, request: Request) -> Reply:
    """Answer GET and HEAD."""
    items = _items(request)
    if context.is_far(request.tail):
        return FarReply(context, request.tail, lambda array: normalise(items, array.metadata.shape))
    array = await context.open_array(request.tail)
    return await array_reply(context, request, array, normalise(items, array.metadata.shape))


def _items(request: Request) -> tuple[SelectionItem, ...]:
    request.query.only(_KNOWN)
    return request.query.selection()
