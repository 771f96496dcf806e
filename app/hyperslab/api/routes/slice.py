"""``GET /v1/slice/{path}?select=…``: any box, stride or orthogonal selection of an array."""

from __future__ import annotations

from functools import partial
from typing import Final

from hyperslab.api.array_query import PARAMETERS
from hyperslab.api.array_reply import array_reply
from hyperslab.api.context import Context
from hyperslab.api.request import Request
from hyperslab.api.response import Reply
from hyperslab.api.routing import Endpoint

PREFIX: Final = "/v1/slice"

_KNOWN = frozenset(("select", "reduce", "bins", *PARAMETERS))


def endpoint(context: Context) -> Endpoint:
    """The route."""
    return Endpoint(PREFIX, partial(get_slice, context))


async def get_slice(context: Context, request: Request) -> Reply:
    """Answer GET and HEAD."""
    request.query.only(_KNOWN)
    items = request.query.selection()

    return await context.answer_from(request.tail, request, lambda array: array_reply(context, request, array, items))
