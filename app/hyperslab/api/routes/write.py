"""Writes to existing arrays: ``PUT /v1/slice``, ``PUT`` and ``DELETE /v1/chunk``, ``POST /v1/append``; and ``PUT`` and
``DELETE /zarr/{path}/{key}`` for plain Zarr clients, with the same locks and checks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod

from hyperslab.api.request import Request
from hyperslab.api.response import Response, json_response, strong_etag
from hyperslab.api.routes.metadata import document_etag
from hyperslab.api.routes.read import open_chunk
from hyperslab.api.threads import cancelled_when_gone
from hyperslab.api.upload import max_value_bytes, received_body
from hyperslab.api.values_in import appended_values, check_headers, check_kind, parse_values, target
from hyperslab.api.writing import (
    chunk_check,
    key_check,
    node_check,
    values_check,
    written_response,
)
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.plan import MAX_VERSIONS, boxes_that_fit, resolve_field, select
from hyperslab.engine.dtypes import Field
from hyperslab.engine.indexing import touched
from hyperslab.errors import BadParameter, ChunkNotFound, KeyNotFound, TooLarge
from hyperslab.wire import IDEMPOTENCY_KEY, SelectionItem


async def put_slice(request: Request) -> Response:
    """Store a body in the cells of ``select=``; answers 204 with the new tag of the selection (raw)."""
    query = request.query
    query.only(("select", "field", "casting"))
    array = await request.open_array(request.tail)
    return await _put(request, array, query.selection(), resolve_field(array, query.text("field")))


async def put_chunk(request: Request) -> Response:
    """Store one chunk: its values up to the edge of the array, or with ``format=stored`` its encoded bytes."""
    query = request.query
    query.only(("format", "field", "casting"))
    array, coords = await open_chunk(request)
    if query.choice("format", ("raw", "npy", "json", "stored")) == "stored":
        array.mount.check_writable()
        check = chunk_check(request, coords)
        writer = request.service.writer
        write = partial(writer.write_stored, inside=True)
        async with received_body(request, extra_bytes=writer.memory(array, 1)) as body:
            version = await request.write(array.path, write, array.path, coords, bytes(body), check)
        # the tag of a piece of a shard is also where it lies, which the next reader finds out
        tag = () if array.metadata.levels else ((b"etag", strong_etag(version).encode("latin-1")),)
        return Response(204, tag)
    bounds = array.metadata.grid.bounds(coords)
    return await _put(request, array, bounds, resolve_field(array, query.text("field")))


async def delete_chunk(request: Request) -> Response:
    """Answers 404 if the chunk was absent."""
    request.query.only(())
    array, coords = await open_chunk(request)
    check, delete = chunk_check(request, coords), partial(request.service.writer.delete_stored, inside=True)
    if not await request.write(array.path, delete, array.path, coords, check):
        raise ChunkNotFound(array.path, array.chunk_key(coords))
    return Response(204, ())


async def append(request: Request) -> Response:
    """Store a body behind the end of an axis; returns its place."""
    query = request.query
    query.only(("axis", "at", "casting"))
    axis = query.integer("axis", 0, low=-64, high=63)
    at = query.integer("at", 0, low=0, high=2**62) if "at" in query.values else None
    array = await request.open_array(request.tail)
    array.mount.check_writable()
    rank = len(array.metadata.shape)
    if not -rank <= axis < rank:
        raise BadParameter("axis", axis, f"an axis of the array, which has {rank}")
    check_kind(request)
    key = request.header(IDEMPOTENCY_KEY.lower().encode())
    if key is not None and not 0 < len(key) <= 256:
        raise BadParameter(IDEMPOTENCY_KEY, key, "1 to 256 characters")
    extra_bytes = request.service.writer.memory(array, MAX_VERSIONS)  # the body determines the number of chunks
    async with received_body(request, extra_bytes=extra_bytes) as body:
        values = await request.run(appended_values, request, body, array, axis % rank)
        appended = await request.write(
            array.path,
            request.service.appender.append,
            array.path,
            values,
            axis=axis,
            at=at,
            idempotency_key=key,
            made_for=array.metadata.dtype,
            check=node_check(request),
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


async def _put(request: Request, array: ArrayNode, items: tuple[SelectionItem, ...], field: Field | None) -> Response:
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
            values = await request.run(parse_values, request, body, wanted)
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


async def put_key(request: Request) -> Response:
    """Store the body unchanged under a key: 201 for a new key, else 204, with its tag."""
    request.service.catalog.locate(request.tail)[0].check_writable()
    check, writer = key_check(request), request.service.key_writer
    extra_bytes = await request.run(writer.memory, request.tail)
    async with received_body(request, extra_bytes=extra_bytes) as body:
        put = await request.write(_node_of(request), writer.put, request.tail, bytes(body), check)
    return Response(201 if put.created else 204, ((b"etag", strong_etag(put.version).encode("latin-1")),))


async def delete_key(request: Request) -> Response:
    """Answers 404 if the key was absent."""
    check, delete = key_check(request), request.service.key_writer.delete
    if not await request.write(_node_of(request), delete, request.tail, check):
        raise KeyNotFound(request.tail)
    return Response(204, ())


def _node_of(request: Request) -> str:
    """The node of a key, or for a chunk whose key has slashes a part of it."""
    return request.tail.rpartition("/")[0]
