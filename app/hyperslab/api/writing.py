"""Routes that write: FastAPI finds and describes them, our own handlers answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response

from hyperslab.api import openapi
from hyperslab.api.context import Context
from hyperslab.api.metrics import ROUTE
from hyperslab.api.reply import Answer, Delivered, request_at
from hyperslab.api.request import Request

Handler = Callable[[Context, Request], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Operation:
    """A method on all resources below ``prefix``; ``body`` maps the media types that it takes to their schemas,
    ``answers`` statuses to what comes with them."""

    method: str
    prefix: str
    summary: str
    handler: Handler
    answers: Mapping[int, openapi.Members]
    parameters: Sequence[openapi.Members] = ()
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the route is called, among the numbers and in the description."""
        return self.prefix.rpartition("/")[2]

    @property
    def description(self) -> dict[str, Any]:
        """In OpenAPI's words."""
        answers = {str(status): answer for status, answer in self.answers.items()}
        parameters = [openapi.PATH, *self.parameters]
        described: dict[str, Any] = {"parameters": parameters, "responses": {**answers, **openapi.FAILED}}
        return described | ({"requestBody": {"required": True, "content": dict(self.body)}} if self.body else {})


def router(context: Context, operations: Sequence[Operation]) -> APIRouter:
    """All operations as routes."""
    routes = APIRouter(tags=["writing"])
    for operation in operations:
        routes.add_api_route(
            operation.prefix + "/{path:path}",
            _endpoint(context, operation),
            methods=[operation.method],
            summary=operation.summary,
            status_code=next(iter(operation.answers)),
            response_class=Response,  # without a media type of its own
            openapi_extra=operation.description,
            name=f"{operation.method.lower()}_{operation.name}",
        )
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
