"""``PUT`` and ``DELETE /zarr/{path}/{key}``: plain Zarr clients write through the same locks and checks as everyone."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response

from hyperslab.api.conditional import strong_etag
from hyperslab.api.context import Context
from hyperslab.api.metrics import ROUTE
from hyperslab.api.preconditions import key_check
from hyperslab.api.reply import Answer, Delivered, request_at
from hyperslab.api.request import Request
from hyperslab.api.routes.zarr import PREFIX
from hyperslab.api.upload import received_body
from hyperslab.arrays.access import check_writable
from hyperslab.errors import KeyNotFound


def router(context: Context) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["writing"])

    def add(method: str, summary: str, handler: Any) -> None:
        async def endpoint(request: StarletteRequest) -> Response:
            request.scope[ROUTE] = "zarr"
            ours = request_at(PREFIX, request)
            return Delivered(await handler(context, ours), ours)

        name = f"{method.lower()}_zarr"
        routes.add_api_route(PREFIX + "/{path:path}", endpoint, methods=[method], summary=summary, name=name)

    add("PUT", "Write a metadata document or an encoded chunk", put_key)
    add("DELETE", "Remove a key", delete_key)
    return routes


async def put_key(context: Context, request: Request) -> Answer:
    """Store the body under a key as it is: 201 where the key is new, else 204, with its tag."""
    check_writable(context.service.catalog.locate(request.tail)[0])
    check = key_check(request)
    async with received_body(context, request) as body:
        put = await context.threads.run(context.service.key_writer.put, request.tail, bytes(body), check)
    etag = ((b"etag", strong_etag(put.version).encode("latin-1")),)
    return Answer(201 if put.created else 204, etag)


async def delete_key(context: Context, request: Request) -> Answer:
    """Answers 404 where the key was not there."""
    check = key_check(request)
    if not await context.threads.run(context.service.key_writer.delete, request.tail, check):
        raise KeyNotFound(request.tail)
    return Answer(204, ())
