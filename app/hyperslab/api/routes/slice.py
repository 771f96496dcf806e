"""``GET /v1/slice/{path}?select=…``: any box, stride or orthogonal selection of an array."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from hyperslab.api.array_reply import PARAMETERS, array_reply
from hyperslab.api.context import Context
from hyperslab.api.far_reply import FarReply
from hyperslab.api.reply import Reply
from hyperslab.api.request import Request
from hyperslab.api.routing import Endpoint
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import resolve_field, select
from hyperslab.engine.indexing import Selection
from hyperslab.wire import SelectionItem

PREFIX: Final = "/v1/slice"

_KNOWN = frozenset(("select", "reduce", "bins", *PARAMETERS))


def endpoint(context: Context) -> Endpoint:
    """The route."""
    return Endpoint(PREFIX, partial(get_slice, context))


async def get_slice(context: Context, request: Request) -> Reply:
    """Answer GET and HEAD."""
    items = _items(request)
    if context.is_remote(request.tail):
        return FarReply(context, request.tail, lambda array: _selection(request, array, items))
    array = await context.open_array(request.tail)
    return await array_reply(context, request, array, _selection(request, array, items))


def _selection(request: Request, array: ArrayNode, items: Sequence[SelectionItem]) -> Selection:
    return select(array, resolve_field(array, request.query.text("field")), items)


def _items(request: Request) -> tuple[SelectionItem, ...]:
    request.query.only(_KNOWN)
    return request.query.selection()
