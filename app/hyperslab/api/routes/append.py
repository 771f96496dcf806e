"""``POST /v1/append/{path}``: values behind the end of an axis, at an offset that the server assigns."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request

from hyperslab import errors
from hyperslab.api import docs
from hyperslab.api.exchange import Exchange
from hyperslab.api.node_documents import document_etag
from hyperslab.api.params import AppendQuery, NodePath
from hyperslab.api.response import Response, json_response
from hyperslab.api.routing import Route, Router
from hyperslab.api.upload import received_body
from hyperslab.api.values_in import appended_values, check_kind
from hyperslab.api.writing import node_check
from hyperslab.arrays.plan import MAX_VERSIONS
from hyperslab.errors import BadParameter
from hyperslab.wire import IDEMPOTENCY_KEY, JSON

router = Router(prefix="/v1/append", tags=["writing"], default_response_class=Response, route_class=Route)


@router.post(
    "/{path:node}",
    name="append",
    summary="Append along an axis; the server picks the offset",
    status_code=201,
    responses=docs.problems(
        errors.NodeNotFound, errors.ReadOnly, errors.AppendConflict, errors.BadBody, errors.TooLarge
    )
    | {
        201: docs.answer("Where the values went.", docs.content(JSON), docs.TAG),
        200: docs.answer("Where they went when this request came first.", docs.content(JSON), docs.TAG),
    },
    openapi_extra=docs.body(docs.VALUES_BODY, *docs.KEYED),
)
async def append(request: Request, path: NodePath, query: Annotated[AppendQuery, Query()]) -> Response:
    """Many may append at once. The answer is the place of the values."""
    asked, axis = Exchange(request), query.axis
    array = await asked.open_array(path)
    array.mount.check_writable()
    rank = len(array.metadata.shape)
    if not -rank <= axis < rank:
        raise BadParameter("axis", axis, f"an axis of the array, which has {rank}")
    check_kind(asked)
    key = asked.header(IDEMPOTENCY_KEY.lower().encode())
    if key is not None and not 0 < len(key) <= 256:
        raise BadParameter(IDEMPOTENCY_KEY, key, "1 to 256 characters")
    extra_bytes = asked.service.writer.memory(array, MAX_VERSIONS)  # the body determines the number of chunks
    async with received_body(asked, extra_bytes=extra_bytes) as body:
        values = await asked.run(appended_values, asked, body, array, axis % rank, query.casting)
        appended = await asked.write(
            array.path,
            asked.service.appender.append,
            array.path,
            values,
            axis=axis,
            at=query.at,
            idempotency_key=key,
            made_for=array.metadata.dtype,
            check=node_check(asked),
        )
    etag = ((b"etag", document_etag(appended.array).encode()),)
    document = {
        "path": appended.array.path,
        "axis": appended.axis,
        "offset": appended.offset,
        "length": appended.length,
        "shape": appended.array.metadata.shape,
        "repeated": appended.repeated,
    }
    return json_response(document, status=200 if appended.repeated else 201, headers=etag)
