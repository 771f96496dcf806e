"""``PUT`` and ``DELETE /zarr/{path}/{key}``: plain Zarr clients write through the same locks and checks as everyone."""

from __future__ import annotations

from fastapi import APIRouter

from hyperslab.api import writing
from hyperslab.api.conditional import strong_etag
from hyperslab.api.context import Context
from hyperslab.api.preconditions import key_check
from hyperslab.api.reply import Answer
from hyperslab.api.request import Request
from hyperslab.api.routes.zarr import PREFIX
from hyperslab.api.upload import received_body
from hyperslab.api.writing import Operation
from hyperslab.errors import KeyNotFound


def router(context: Context) -> APIRouter:
    """The routes."""
    return writing.router(context, [Operation("PUT", PREFIX, put_key), Operation("DELETE", PREFIX, delete_key)])


async def put_key(context: Context, request: Request) -> Answer:
    """Store the body under a key as it is: 201 where the key is new, else 204, with its tag."""
    context.service.catalog.locate(request.tail)[0].check_writable()
    check = key_check(request)
    beside = await context.threads.run(context.service.key_writer.memory, request.tail)
    async with received_body(context, request, beside=beside) as body:
        put = await context.writes.run(_node(request), context.service.key_writer.put, request.tail, bytes(body), check)
    etag = ((b"etag", strong_etag(put.version).encode("latin-1")),)
    return Answer(201 if put.created else 204, etag)


async def delete_key(context: Context, request: Request) -> Answer:
    """Answers 404 where the key was not there."""
    check = key_check(request)
    if not await context.writes.run(_node(request), context.service.key_writer.delete, request.tail, check):
        raise KeyNotFound(request.tail)
    return Answer(204, ())


def _node(request: Request) -> str:
    """The node that a key belongs to, or for a chunk whose key has slashes a part of it."""
    return request.tail.rpartition("/")[0]
