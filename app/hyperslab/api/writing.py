"""Routes that write: FastAPI finds them, our own handlers answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response

from hyperslab.api.context import Context
from hyperslab.api.metrics import ROUTE
from hyperslab.api.reply import Answer, Delivered, request_at
from hyperslab.api.request import Request

Handler = Callable[[Context, Request], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Operation:
    """A method on all resources below ``prefix``."""

    method: str
    prefix: str
    handler: Handler

    @property
    def name(self) -> str:
        """What the route is called in the metrics."""
        return self.prefix.rpartition("/")[2]


def router(context: Context, operations: Sequence[Operation]) -> APIRouter:
    """All operations as routes."""
    routes = APIRouter()
    for operation in operations:
        path, endpoint = operation.prefix + "/{path:path}", _endpoint(context, operation)
        routes.add_api_route(path, endpoint, methods=[operation.method], response_class=Response)
    return routes


def written_answer(etag: str, chunks: int) -> Answer:
    """What a write answers: the tag that its selection has now, and how many chunks it wrote."""
    return Answer(204, ((b"etag", etag.encode()), (b"array-chunks", f"written={chunks}".encode())))


def _endpoint(context: Context, operation: Operation) -> Callable[[StarletteRequest], Awaitable[Response]]:
    async def endpoint(request: StarletteRequest) -> Response:
        request.scope[ROUTE] = operation.name
        context.pages.check(request.scope)
        ours = request_at(operation.prefix, request)
        return Delivered(await operation.handler(context, ours), ours)

    return endpoint
