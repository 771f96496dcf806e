"""``POST /v1/link``: a signed link, by which programs that send no token read or change a node and all below it."""

from __future__ import annotations

import time
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from pydantic import Field

from hyperslab import errors
from hyperslab.access import DURATION, Action, Principal, allows, seconds_in, sees, timestamp
from hyperslab.api import docs
from hyperslab.api.exchange import Exchange
from hyperslab.api.links import PREFIX
from hyperslab.api.middleware.access import OUTER_ROOT, PRINCIPAL, unauthorized
from hyperslab.api.params import PATH, NoQuery
from hyperslab.api.response import Response, json_response
from hyperslab.api.routing import Route
from hyperslab.api.upload import check_is_json, parse_json_body, received_body
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES
from hyperslab.engine.validation import Document, validated
from hyperslab.errors import BadDefinition, NodeNotFound, WriteForbidden
from hyperslab.storage.keys import normalise_path
from hyperslab.wire import JSON

router = APIRouter(default_response_class=Response, route_class=Route)

FORM: Final = "application/x-www-form-urlencoded"
"""Media type that curl sends without being told."""


class LinkDefinition(Document):
    """What a link is for."""

    path: str = Field(json_schema_extra=dict(PATH))
    """The node, and all below it."""
    allow: list[Action] = Field(["read"], min_length=1)
    """What may be done there."""
    expires: str = Field(json_schema_extra={"pattern": f"^{DURATION}$"})
    """A duration: `30s`, `15m`, `12h`, `7d`."""


@router.post(
    "/v1/link",
    name="link",
    tags=["metadata"],
    summary="Make a signed link to a node",
    status_code=201,
    responses=docs.problems(errors.BadDefinition, errors.NodeNotFound, errors.WriteForbidden, errors.ForeignOrigin)
    | {201: docs.answer("The prefix of its URLs, and when it ends.", docs.content(JSON))},
    openapi_extra=docs.body(
        {
            JSON: {
                "schema": docs.schema(LinkDefinition),
                "example": {"path": "demo/brain", "allow": ["read"], "expires": "7d"},
            }
        },
        *docs.DIGEST,
    ),
)
async def post_link(
    request: Request,
    query: Annotated[NoQuery, Query()],  # noqa: ARG001 - refuses all
) -> Response:
    """For one who may do there what it allows. Routes follow the prefix: `{prefix}/zarr/{path}`,
    `{prefix}/view/{path}`. A link ends at the latest with the token or the link by which it was made."""
    asked = Exchange(request)
    check_is_json(asked, FORM)
    async with received_body(asked, default_type=JSON, max_bytes=MAX_DOCUMENT_BYTES) as body:
        wanted = validated(LinkDefinition, parse_json_body(body))
    try:
        seconds = seconds_in(wanted.expires)
    except ValueError as error:
        raise BadDefinition("expires", str(error)) from error
    path = normalise_path(wanted.path)
    principal: Principal | None = asked.scope.get(PRINCIPAL)
    maker, latest = "anonymous", time.time() + seconds
    if principal is not None:
        for action in (denied for denied in wanted.allow if not allows(principal, denied, path)):
            if principal.is_anonymous:
                raise unauthorized(request.scope, f"a bearer token is needed to {action}")
            raise WriteForbidden(action, path) if sees(principal, path) else NodeNotFound(path)
        maker, latest = principal.name, min(latest, principal.ends)
    text = asked.context.guard.links.sign(path, wanted.allow, latest, maker)
    host = asked.header(b"host") or ":".join(map(str, asked.scope.get("server") or ("localhost",)))
    root = asked.scope.get(OUTER_ROOT, asked.root_path)
    prefix = f"{asked.scope['scheme']}://{host}{root}{PREFIX}{text}"
    return json_response({"prefix": prefix, "expires": timestamp(int(latest))}, status=201)
