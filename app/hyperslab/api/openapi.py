"""Descriptions of the routes that FastAPI does not know, in OpenAPI's words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from hyperslab.api.negotiation import MEDIA_TYPES
from hyperslab.api.routing import Endpoint
from hyperslab.wire import HTML, JSON, OBJECTS, PROBLEM, RAW

Members = dict[str, Any]


def query(name: str, description: str, schema: Mapping[str, Any], example: Any = None) -> Members:
    """A query parameter."""
    parameter = {"name": name, "in": "query", "description": description, "schema": dict(schema)}
    return parameter if example is None else {**parameter, "example": example}


_TEXT: Final = {"type": "string"}
PATH: Final[Members] = {
    "name": "path",
    "in": "path",
    "required": True,
    "description": "The node: the store's name, then the path in the store; slashes stay as they are.",
    "schema": _TEXT,
    "example": "demo/brain",
}
CHUNK: Final[Members] = {
    "name": "chunk",
    "in": "path",
    "required": True,
    "description": "The indices of the chunk in the chunk grid, with dots between.",
    "schema": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)*$"},
    "example": "0.0.0",
}
SELECT: Final = query(
    "select",
    "What to read, as numpy writes it: integers, `a:b:c` with negative bounds and steps, `...`, and lists "
    "`[1,5,9]` for orthogonal selection. Axes left out at the end are whole, and so is everything by default.",
    _TEXT,
    "10:20,...,::2",
)
FIELD: Final = query("field", "One field of a structured dtype; its subarray dimensions follow the array's.", _TEXT)
FORMS: Final = (
    FIELD,
    query("format", "The form of the answer; wins over Accept.", {"type": "string", "enum": list(MEDIA_TYPES)}, "npy"),
    query(
        "dtype",
        "Another dtype than the stored one, such as `<f4`; `safe` is one that a JavaScript typed array holds.",
        _TEXT,
    ),
)
PAGES: Final = (
    query("limit", "The most children of a group to list.", {"type": "integer", "minimum": 0}),
    query("cursor", "`next_cursor` of the page before.", _TEXT),
)
BOX_BYTES: Final = query("box_bytes", "The most bytes of each box of the split.", {"type": "integer", "minimum": 1})

_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
VALUES: Final[Mapping[str, Any]] = dict.fromkeys([*MEDIA_TYPES.values(), OBJECTS], _BINARY)
DOCUMENT: Final[Mapping[str, Any]] = {JSON: {"schema": {"type": "object"}}}
STORED: Final[Mapping[str, Any]] = {RAW: _BINARY, JSON: {"schema": {"type": "object"}}, HTML: {"schema": _TEXT}}

PROBLEM_CONTENT: Final[Mapping[str, Any]] = {
    PROBLEM: {
        "schema": {
            "type": "object",
            "required": ["type", "title", "status", "detail", "code"],
            "properties": {
                "type": {"type": "string", "format": "uri-reference"},
                "title": _TEXT,
                "status": {"type": "integer"},
                "detail": _TEXT,
                "instance": _TEXT,
                "code": {"type": "string", "description": "Stable; the facts are further members."},
            },
        }
    }
}


def operation(
    summary: str, description: str, parameters: Sequence[Members], content: Mapping[str, Any]
) -> Mapping[str, Any]:
    """A GET operation that honours conditions and ranges."""
    return {
        "summary": summary,
        "description": description,
        "parameters": list(parameters),
        "responses": {
            "200": {"description": "The whole of it.", "content": dict(content)},
            "206": {"description": "The bytes that `Range` asked for.", "content": dict(content)},
            "304": {"description": "`If-None-Match` holds: nothing was read."},
            "default": {"description": "What went wrong.", "content": dict(PROBLEM_CONTENT)},
        },
    }


def describe(app: FastAPI, endpoints: Iterable[Endpoint]) -> Members:
    """The whole description: FastAPI's own routes and the endpoints in front of them."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    for endpoint in endpoints:
        for path, described in endpoint.operations.items():
            operation_id = path.strip("/").replace("/", "_").replace("{", "").replace("}", "").replace(".", "_")
            tagged = {**described, "tags": [endpoint.name], "operationId": f"get_{operation_id}"}
            document["paths"].setdefault(path, {}).setdefault("get", tagged)
    for path, methods in document["paths"].items():
        for described in methods.values():
            _explain_path(path, described)
    document["paths"] = dict(sorted(document["paths"].items()))
    return document


def _explain_path(path: str, described: Members) -> None:
    """FastAPI does not know of the path of a node, which our routes read undecoded."""
    parameters = described.setdefault("parameters", [])
    if "{path}" in path and not any(parameter["in"] == "path" for parameter in parameters):
        described["parameters"] = [PATH, *parameters]
