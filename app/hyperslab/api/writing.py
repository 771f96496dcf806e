"""Routes that write: FastAPI finds them, our own handlers answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import APIRouter
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response

from hyperslab.api.context import Context
from hyperslab.api.metrics import ROUTE
from hyperslab.api.reply import Answer, Delivered, request_at
from hyperslab.api.request import Request

Handler = Callable[[Context, Request], Awaitable[Answer]]


def router(context: Context, *routes: tuple[str, str, Handler]) -> APIRouter:
    """Routes from a method, the prefix of all resources that it is for, and what answers."""

    def endpoint(prefix: str, handler: Handler) -> Callable[[StarletteRequest], Awaitable[Response]]:
        async def answer(request: StarletteRequest) -> Response:
            request.scope[ROUTE] = prefix.rpartition("/")[2]
            context.pages.check(request.scope)
            ours = request_at(prefix, request)
            return Delivered(await handler(context, ours), ours)

        return answer

    found = APIRouter()
    for method, prefix, handler in routes:
        path = prefix + "/{path:path}"
        found.add_api_route(path, endpoint(prefix, handler), methods=[method], response_class=Response)
    return found


def written_answer(etag: str, chunks: int) -> Answer:
    """What a write answers: the tag that its selection has now, and how many chunks it wrote."""
    return Answer(204, ((b"etag", etag.encode()), (b"array-chunks", f"written={chunks}".encode())))
