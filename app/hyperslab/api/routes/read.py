"""Values of arrays: ``GET /v1/slice/{path}?select=…``, any box, stride or orthogonal selection; ``GET
/v1/chunk/{path}/{i.j.k}``, one chunk, decoded and cut at the edge of the array, or as stored; and ``GET
/v1/plan/{path}?select=…``, the cost of a slice, and its split into requests within limits."""

from __future__ import annotations

from dataclasses import replace

from hyperslab.api.representation import Reply, Representation
from hyperslab.api.request import Request
from hyperslab.api.response import Response
from hyperslab.api.routes.zarr import find_key, stored_reply, wanted_bytes
from hyperslab.api.slices import PARAMETERS, answer_from, array_query, array_reply, look_up, values_etag, with_inherited
from hyperslab.api.values_out import media_types
from hyperslab.arrays.faces import piece_of_shard
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.engine.grid import Coords
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import BadParameter, ChunkNotFound, IndexOutOfRange, KeyNotFound, NotRepresentable
from hyperslab.wire import JSON, dtype_to_json


async def get_slice(request: Request) -> Response:
    """Answer GET and HEAD."""
    request.query.only(("select", "reduce", "bins", *PARAMETERS))
    items = request.query.selection()
    return await answer_from(request.tail, request, lambda array: array_reply(request, array, items))


async def get_chunk(request: Request) -> Reply:
    """Answer GET and HEAD."""
    request.query.only(PARAMETERS)
    path, _, text = request.tail.rpartition("/")
    if request.query.text("format") == "stored":
        return await _get_stored(request, *await open_chunk(request))

    async def answer(array: ArrayNode) -> Response:
        return await array_reply(request, array, array.metadata.grid.bounds(parse_coords(array, text)))

    return await answer_from(path, request, answer)


async def open_chunk(request: Request) -> tuple[ArrayNode, Coords]:
    """The array and the chunk coordinates of a path; raises as `parse_coords` does."""
    path, _, text = request.tail.rpartition("/")
    array = await request.open_array(path)
    return array, parse_coords(array, text)


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


async def _get_stored(request: Request, array: ArrayNode, coords: Coords) -> Reply:
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
        found = await find_key(request, request.context.keys["/zarr"], f"{array.mount.name}/{key}")
    except KeyNotFound as error:
        raise ChunkNotFound(array.path, key) from error
    return stored_reply(request, found)


async def get_plan(request: Request) -> Reply:
    """Answer GET and HEAD; ``format`` is that of the planned response, the plan itself is JSON.

    HTTP caches always revalidate it: the chunk cache changes even if the store does not.
    """
    query = request.query
    query.only(("select", "box_bytes", *PARAMETERS))
    items = query.selection()
    array = await with_inherited(request, await request.open_array(request.tail))
    wanted = array_query(request, array, items, negotiate=False)
    reader, options = request.service.reader, request.context.options
    plan, tag, cached = await look_up(request, reader.plan(array, wanted.selection, wanted.field, wanted.source))
    limit = wanted.max_bytes(options)
    box_bytes = query.integer("box_bytes", min(64 << 20, limit or 64 << 20), low=1, high=1 << 62)
    etag = values_etag(tag, wanted.words)
    document = {
        "path": array.path,
        "shape": wanted.shape,
        "dtype": dtype_to_json(wanted.dtype),
        "nbytes": wanted.nbytes,
        "format": wanted.form,
        "media_type": media_types(wanted.dtype)[wanted.form],
        "limit": limit,
        "chunks": {"touched": plan.touched, "cached": cached},
        "etag": etag,
        "boxes": await request.run(wanted.boxes, box_bytes),
    }
    own = f'"{etag[1:-1]}-{cached}-{box_bytes}"'
    return Representation(own, JSON, dump_json(document))
