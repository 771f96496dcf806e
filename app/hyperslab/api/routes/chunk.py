"""``/v1/chunk/{path}/{chunk}``: one chunk, decoded and cut at the edge of the array, or as it is stored."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import Query, Request

from hyperslab.api import docs
from hyperslab.api.exchange import Exchange
from hyperslab.api.params import ChunkName, ChunkQuery, NodePath, NoQuery, WriteChunkQuery
from hyperslab.api.representation import Reply, respond
from hyperslab.api.response import Response, strong_etag
from hyperslab.api.routes.slice import WRITTEN, put_values
from hyperslab.api.routes.zarr import find_key, stored_reply, wanted_bytes
from hyperslab.api.routing import Route, Router
from hyperslab.api.slices import answer_from, array_reply
from hyperslab.api.upload import received_body
from hyperslab.api.writing import chunk_check
from hyperslab.arrays.chunk_keys import elsewhere
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.other_format import piece_of_shard
from hyperslab.arrays.plan import resolve_field
from hyperslab.engine.grid import Coords
from hyperslab.errors import BadParameter, ChunkNotFound, IndexOutOfRange, KeyNotFound, NotRepresentable

router = Router(prefix="/v1/chunk", default_response_class=Response, route_class=Route)


@router.get(
    "/{path:node}/{chunk:last}",
    name="chunk",
    tags=["chunk"],
    summary="Read one chunk",
    responses=docs.READS | docs.found(docs.VALUES, docs.OF_VALUES),
    openapi_extra=docs.headers(*docs.READING),
)
async def get_chunk(
    request: Request, path: NodePath, chunk: ChunkName, query: Annotated[ChunkQuery, Query()]
) -> Response:
    """Decoded and without what lies beyond the edge of the array; a chunk that was never written holds the fill value.
    `format=stored` hands out the stored bytes as they are, and is 404 for a chunk that was never written."""
    asked = Exchange(request)

    async def stored() -> Reply:
        array = await asked.open_array(path)
        return await _stored_reply(asked, array, parse_coords(array, chunk))

    async def values(array: ArrayNode) -> Reply:
        return await array_reply(asked, array, array.metadata.grid.bounds(parse_coords(array, chunk)), query)

    return await respond(asked, stored if query.format == "stored" else partial(answer_from, path, asked, values))


@router.put(
    "/{path:node}/{chunk:last}",
    name="chunk",
    tags=["writing"],
    summary="Write one chunk, decoded or as it is stored",
    status_code=204,
    responses=docs.WRITES | {204: WRITTEN},
    openapi_extra=docs.body(docs.VALUES_BODY, *docs.STATED),
)
async def put_chunk(
    request: Request, path: NodePath, chunk: ChunkName, query: Annotated[WriteChunkQuery, Query()]
) -> Response:
    """Its values up to the edge of the array, or with `format=stored` its encoded bytes."""
    asked = Exchange(request)
    array = await asked.open_array(path)
    coords = parse_coords(array, chunk)
    if query.format != "stored":
        bounds = array.metadata.grid.bounds(coords)
        return await put_values(asked, array, bounds, resolve_field(array, query.field), query.casting)
    array.mount.check_writable()
    check, writer = chunk_check(asked, coords), asked.service.writer
    write = partial(writer.write_stored, inside=True)
    async with received_body(asked, extra_bytes=writer.memory(array, 1)) as body:
        version = await asked.write(array.path, write, array.path, coords, body, check)
    # the tag of a piece of a shard is also where it lies, which the next reader finds out
    tag = () if array.metadata.levels else ((b"etag", strong_etag(version).encode("latin-1")),)
    return Response(204, tag)


@router.delete(
    "/{path:node}/{chunk:last}",
    name="chunk",
    tags=["writing"],
    summary="Remove one chunk: it reads as fill again",
    status_code=204,
    responses=docs.WRITES | {204: docs.answer("It is gone.")},
    openapi_extra=docs.headers(*docs.CONDITIONAL),
)
async def delete_chunk(
    request: Request,
    path: NodePath,
    chunk: ChunkName,
    query: Annotated[NoQuery, Query()],  # noqa: ARG001 - refuses all
) -> Response:
    """404 if the chunk was absent."""
    asked = Exchange(request)
    array = await asked.open_array(path)
    coords = parse_coords(array, chunk)
    check, delete = chunk_check(asked, coords), partial(asked.service.writer.delete_stored, inside=True)
    if not await asked.write(array.path, delete, array.path, coords, check):
        raise ChunkNotFound(array.path, array.chunk_key(coords))
    return Response(204, ())


def parse_coords(array: ArrayNode, text: str) -> Coords:
    """The coordinates in ``i.j.k``, with dots whatever the separator of stored keys.

    Raises `BadParameter` for invalid text and `IndexOutOfRange` for a chunk outside the grid.
    """
    grid = array.metadata.grid
    coords = replace(grid, separator=".", prefix="").parse_key(text)
    if coords is not None:
        return coords
    parts = text.split(".")
    if len(parts) == len(grid.shape) and all(part.isascii() and part.isdecimal() and len(part) < 19 for part in parts):
        for axis, (part, count) in enumerate(zip(parts, grid.counts, strict=True)):
            if int(part) >= count:
                raise IndexOutOfRange(axis, int(part), count)
    first = ".".join("0" * len(grid.shape)) or "0"
    expected = f"the indices of a chunk in a grid of {list(grid.counts)}, such as {first!r}"
    raise BadParameter("chunk", text, expected)


async def _stored_reply(request: Exchange, array: ArrayNode, coords: Coords) -> Reply:
    key, levels = array.chunk_key(array.metadata.stored_coords(coords)), array.metadata.levels
    if any(level.after for level in levels):
        reason = f"its shard is encoded as a whole, which /zarr gives as {array.mount.name}/{key}"
        raise NotRepresentable(str(array.metadata.dtype.json), "stored", reason)
    if levels:
        reader, wanted = request.service.reader, wanted_bytes(request)
        piece = await request.run(piece_of_shard, reader, array, coords, wanted)
        if piece is None:
            raise ChunkNotFound(array.path, key)
        return stored_reply(request, piece)
    try:
        stored = await find_key(request, "zarr", f"{array.mount.name}/{key}")
    except KeyNotFound as error:
        moved = await request.run(elsewhere, array, [coords])
        if moved is None:
            raise ChunkNotFound(array.path, key) from error
        return await _stored_reply(request, moved, coords)
    return stored_reply(request, stored)
