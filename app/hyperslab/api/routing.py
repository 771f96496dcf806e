"""The classes of routes and routers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from hyperslab.api.middleware.edge import route_path


class Router(APIRouter):
    """A router with all routes below its prefix. FastAPI would try them one by one, and those of the one that matches
    twice, which takes as long as a cached slice."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether the path of a request is below the prefix; of its routes, one may match, or none."""
        is_below = scope["type"] == "http" and f"{route_path(scope)}/".startswith(f"{self.prefix}/")
        return (Match.FULL if is_below else Match.NONE), {}


class Route(APIRoute):
    """A route whose endpoint takes the request, parameters of the path, and one model, ``query``. They are validated as
    FastAPI does, but without its solver of dependencies, which takes as long as a cached slice."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function that calls the endpoint."""
        endpoint, dependant = self.endpoint, self.dependant
        model: type[BaseModel] | None = None
        for field in dependant.query_params:
            model = field.field_info.annotation  # type: ignore[assignment]

        async def handle(request: Request) -> Response:
            values: dict[str, Any] = {} if dependant.request_param_name is None else {"request": request}
            for field in dependant.path_params:
                found, errors = field.validate(request.path_params[field.name], values, loc=("path", field.name))
                if errors:
                    raise RequestValidationError(errors)
                values[field.name] = found
            if model is not None:
                pairs = request.query_params.multi_items()
                sent: dict[str, str | list[str]] = dict(pairs)
                if len(sent) < len(pairs):  # those given more than once are lists
                    every = {name: request.query_params.getlist(name) for name in sent}
                    sent |= {name: texts for name, texts in every.items() if len(texts) > 1}
                try:
                    values["query"] = model.model_validate(sent)
                except ValidationError as error:
                    found = [{**each, "loc": ("query", *each["loc"])} for each in error.errors()]
                    raise RequestValidationError(found) from error
            response: Response = await endpoint(**values)
            return response

        return handle
