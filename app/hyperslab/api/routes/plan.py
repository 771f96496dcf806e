"""``GET /v1/plan/{path}?select=…``: the cost of a slice, and its split into requests within limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query, Request

from hyperslab.api import docs
from hyperslab.api.exchange import Exchange
from hyperslab.api.params import NodePath, PlanQuery
from hyperslab.api.representation import Representation, respond
from hyperslab.api.response import Response, json_body
from hyperslab.api.routing import Route, Router
from hyperslab.api.slices import array_query, look_up, values_etag, with_inherited, with_labels, with_layout
from hyperslab.wire import JSON, SelectionItem, dtype_to_json, parse_selection

router = Router(prefix="/v1/plan", tags=["plan"], default_response_class=Response, route_class=Route)


@router.get(
    "/{path:node}",
    name="plan",
    summary="Plan a slice",
    responses=docs.READS | docs.found(docs.content(JSON)),
    openapi_extra=docs.headers(*docs.READING),
)
async def get_plan(request: Request, path: NodePath, query: Annotated[PlanQuery, Query()]) -> Response:
    """Shape, dtype and bytes of the answer, the chunks it touches and how many of them are cached, its ETag, and a
    split into boxes of at most `box_bytes` that follow the chunks. No data is read; `format` is that of the slice."""
    asked, items = Exchange(request), parse_selection(query.select)
    return await respond(asked, lambda: _plan(asked, path, items, query))


async def _plan(request: Exchange, path: str, items: Sequence[SelectionItem], query: PlanQuery) -> Representation:
    """HTTP caches always revalidate it: the chunk cache changes even if the store does not."""
    array = await with_inherited(request, await request.open_array(path), query.decode)
    if query.sel:
        array, items = await with_labels(request, array, items, query)
    wanted = array_query(array, items, query, query.format, None)
    if wanted.form == "tiff":
        wanted = await with_layout(request, wanted)
    reader, options = request.service.reader, request.context.options
    plan, tag, cached = await look_up(request, reader.plan(array, wanted.selection, wanted.field, wanted.source))
    limit = wanted.max_bytes(options)
    box_bytes = query.box_bytes or min(64 << 20, limit or 64 << 20)
    etag = values_etag(tag, wanted.words)
    document = {
        "path": array.path,
        "shape": wanted.shape,
        "dtype": dtype_to_json(wanted.dtype),
        "nbytes": wanted.nbytes,
        "format": wanted.form,
        "media_type": wanted.media_type,
        "limit": limit,
        "chunks": {"touched": plan.touched, "cached": cached},
        "etag": etag,
        "boxes": await request.run(wanted.boxes, box_bytes),
    }
    own = f'"{etag[1:-1]}-{cached}-{box_bytes}"'
    return Representation(own, JSON, json_body(document))
