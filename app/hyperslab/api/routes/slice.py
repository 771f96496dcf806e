"""``/v1/slice/{path}?select=…``: any box, stride or orthogonal selection of an array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Annotated

from fastapi import Query, Request

from hyperslab.api import docs
from hyperslab.api.exchange import Exchange
from hyperslab.api.params import Casting, NodePath, SliceQuery, WriteQuery
from hyperslab.api.representation import respond
from hyperslab.api.response import Response
from hyperslab.api.routing import Route, Router
from hyperslab.api.slices import answer_from, array_reply, labelled_reply, with_labels
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.api.upload import max_value_bytes, received_body
from hyperslab.api.values_in import check_headers, check_kind, parse_values, target
from hyperslab.api.writing import values_check, written_response
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import boxes_that_fit, resolve_field, select
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import touched
from hyperslab.errors import TooLarge
from hyperslab.wire import SelectionItem, parse_selection

router = Router(prefix="/v1/slice", default_response_class=Response, route_class=Route)
WRITTEN = docs.answer("It is stored.", headers={**docs.TAG, **docs.CHUNKS})


@router.get(
    "/{path:node}",
    name="slice",
    tags=["slice"],
    summary="Read a selection of an array",
    responses=docs.READS | docs.found({**docs.VALUES, **docs.content("image/tiff")}, docs.OF_VALUES),
    openapi_extra=docs.headers(*docs.READING),
)
async def get_slice(request: Request, path: NodePath, query: Annotated[SliceQuery, Query()]) -> Response:
    """Values in C order, of any size: what is large is streamed. HEAD costs a plan. `Range`, `If-Range`,
    `If-None-Match` and `If-Match` work on the computed bytes."""
    asked, items = Exchange(request), parse_selection(query.select)
    reply = labelled_reply if query.sel else array_reply
    return await respond(asked, lambda: answer_from(path, asked, lambda array: reply(asked, array, items, query)))


@router.put(
    "/{path:node}",
    name="slice",
    tags=["writing"],
    summary="Write a selection of an array",
    status_code=204,
    responses=docs.WRITES | {204: WRITTEN},
    openapi_extra=docs.body(docs.VALUES_BODY, *docs.STATED),
)
async def put_slice(request: Request, path: NodePath, query: Annotated[WriteQuery, Query()]) -> Response:
    """A body of one value fills the selection. The answer has the new tag of the selection, as raw."""
    asked = Exchange(request)
    items: Sequence[SelectionItem] = parse_selection(query.select)
    array = await asked.open_array(path)
    if query.sel:
        items = (await with_labels(asked, array, items, query))[1]
    return await put_values(asked, array, items, resolve_field(array, query.field), query.casting)


async def put_values(
    request: Exchange, array: ArrayNode, items: Sequence[SelectionItem], field: Field | None, casting: Casting
) -> Response:
    """Store a body in the cells of a selection."""
    array.mount.check_writable()
    request.service.reader.check_chunk(array)  # splitting the request would not help
    selection, field = select(array, field, items)
    check = values_check(request)
    name = None if field is None else field.name
    try:
        wanted = target(array, selection.shape, field)
        check_kind(request)
        check_headers(request, wanted)
        extra_bytes = request.service.writer.memory(array, touched(selection, array.metadata.stored_grid))
        async with received_body(request, extra_bytes=extra_bytes) as body:
            values = await request.run(parse_values, request, body, wanted, casting)
            write = partial(request.service.writer.write, array.path, items, values, field=name)
            made_for = array.metadata.dtype
            async with cancelled_when_gone(request.receive) as cancel:
                written = await request.write(
                    array.path, write, seen=selection, made_for=made_for, check=check, cancel=cancel
                )
    except TooLarge as error:
        item = array.metadata.itemsize if field is None else prod(field.shape) * field.numpy.itemsize
        limit = max_value_bytes(request)
        boxes = error.boxes or await request.run(boxes_that_fit, array, selection, item, limit, field)
        raise replace(error, boxes=boxes) from error
    return written_response(written.tag, written.chunks)
