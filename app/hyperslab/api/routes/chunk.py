"""``GET /v1/chunk/{path}/{i.j.k}``: one chunk, decoded and cut at the edge of the array, or as it is stored."""

from __future__ import annotations

from functools import partial
from typing import Final

from hyperslab.api.array_query import PARAMETERS
from hyperslab.api.array_reply import array_reply
from hyperslab.api.context import Context
from hyperslab.api.request import Request
from hyperslab.api.response import Reply
from hyperslab.api.routing import Endpoint
from hyperslab.api.stored_reply import find_key, stored_reply
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.errors import BadParameter, ChunkNotFound, IndexOutOfRange, KeyNotFound, NotRepresentable

PREFIX: Final = "/v1/chunk"

_STORED = "stored"
_KNOWN = frozenset(PARAMETERS)


def endpoint(context: Context) -> Endpoint:
    """The route."""
    return Endpoint(PREFIX, partial(get_chunk, context))


async def get_chunk(context: Context, request: Request) -> Reply:
    """Answer GET and HEAD."""
    request.query.only(_KNOWN)
    path, _, text = request.tail.rpartition("/")
    if request.query.text("format") == _STORED:
        return await _get_stored(context, request, *await open_chunk(context, request))

    async def answer(array: ArrayNode) -> Reply:
        return await array_reply(context, request, array, array.metadata.grid.bounds(parse_coords(array, text)))

    return await context.answer_from(path, request, answer)


async def open_chunk(context: Context, request: Request) -> tuple[ArrayNode, Coords]:
    """The array and the chunk that a path names; raises as `parse_coords` does."""
    path, _, text = request.tail.rpartition("/")
    array = await context.open_array(path)
    return array, parse_coords(array, text)


def parse_coords(array: ArrayNode, text: str) -> Coords:
    """The coords that ``i.j.k`` names, dots whatever the stored keys have between them.

    Raises `BadParameter` for what is no such text and `IndexOutOfRange` for a chunk outside the grid.
    """
    grid = array.metadata.grid
    coords = ChunkGrid(grid.shape, grid.chunks, ".").parse_key(text)
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


async def _get_stored(context: Context, request: Request, array: ArrayNode, coords: Coords) -> Reply:
    key = array.chunk_key(array.metadata.stored_coords(coords))
    if array.metadata.levels:
        reason = f"the chunk lies in a shard, which /zarr gives whole and in part as {array.mount.name}/{key}"
        raise NotRepresentable(str(array.metadata.dtype.json), _STORED, reason)
    try:
        found = await find_key(context, request, array.mount, f"{array.mount.name}/{key}")
    except KeyNotFound as error:
        raise ChunkNotFound(array.path, key) from error
    return stored_reply(context, found)
