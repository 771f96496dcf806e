"""Routes that write: FastAPI finds them, our own handlers answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response as StarletteResponse

from hyperslab.api.context import Context
from hyperslab.api.metrics import ROUTE
from hyperslab.api.request import Request
from hyperslab.api.response import Response, RoutedResponse

Handler = Callable[[Context, Request], Awaitable[Response]]


def router(context: Context, *routes: tuple[str, str, Handler]) -> APIRouter:
    """Routes from a method, the prefix of all resources that it is for, and what answers."""

    def endpoint(prefix: str, handler: Handler) -> Callable[[StarletteRequest], Awaitable[StarletteResponse]]:
        async def answer(request: StarletteRequest) -> StarletteResponse:
            request.scope[ROUTE] = prefix.rpartition("/")[2]
            context.pages.check(request.scope)
            return RoutedResponse(partial(handler, context), prefix, request)

        return answer

    found = APIRouter()
    for method, prefix, handler in routes:
        path = prefix + "/{path:path}"
        found.add_api_route(path, endpoint(prefix, handler), methods=[method], response_class=StarletteResponse)
    return found


def written_response(etag: str, chunks: int) -> Response:
    """What a write answers: the tag that its selection has now, and how many chunks it wrote."""
    return Response(204, ((b"etag", etag.encode()), (b"array-chunks", f"written={chunks}".encode())))
