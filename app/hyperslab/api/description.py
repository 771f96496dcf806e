"""``/openapi.json``: every operation there is, and what it takes and answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from hyperslab.api import auth, openapi
from hyperslab.api.openapi import Members
from hyperslab.api.options import ApiOptions
from hyperslab.api.routes import points, view
from hyperslab.api.routing import Endpoint
from hyperslab.wire import HTML, JSON

_HEAD: Final = "HEAD works wherever GET does, and OPTIONS everywhere."
_TOKEN: Final = "bearer"
_FULL_PATH: Final[Mapping[str, str]] = {"/v1/chunk/{path}": "/v1/chunk/{path}/{chunk}"}
"""What is one parameter to the framework, which knows no more than where a path begins, and is two to us."""
_PAGES: Final[Mapping[str, Members]] = {
    "/": openapi.page("Show the viewer", HTML),
    "/view/{path}": openapi.page("Show the viewer on a node", HTML, [openapi.PATH]),
    "/v1": openapi.page("List these routes in short", JSON),
    "/openapi.json": openapi.page("Describe these routes for programs", JSON),
    "/docs": openapi.page("Describe these routes for people", HTML),
}


def describe(app: FastAPI, endpoints: Iterable[Endpoint], options: ApiOptions) -> Members:
    """The whole description: FastAPI's own routes, the endpoints in front of them, and pages."""
    text = f"{app.description} {_HEAD}"
    document = get_openapi(title=app.title, version=app.version, description=text, routes=app.routes)
    paths: dict[str, Members] = {}
    for path, methods in document["paths"].items():
        paths.setdefault(_FULL_PATH.get(path, path), {}).update(methods)
    for endpoint in endpoints:
        for path, described in endpoint.operations.items():
            paths.setdefault(path, {})["get"] = {**described, "tags": [endpoint.name], "operationId": _id(path)}
    for path, described in _PAGES.items():
        paths.setdefault(path, {})["get"] = {**described, "tags": ["pages"], "operationId": _id(path)}
    for path, methods in paths.items():
        for method, described in methods.items():
            described["security"] = _security(path, method, options)
    document["paths"] = dict(sorted(paths.items()))
    document.setdefault("components", {})["securitySchemes"] = {_TOKEN: {"type": "http", "scheme": "bearer"}}
    return document


def _id(path: str) -> str:
    name = path.strip("/").replace("/", "_").replace("{", "").replace("}", "").replace(".", "_")
    return f"get_{name or 'home'}"


def _security(path: str, method: str, options: ApiOptions) -> list[dict[str, Any]]:
    """The token that an operation needs with these options."""
    reads = method == "get"
    needed: dict[str, Any] = {_TOKEN: []}
    if auth.is_open(path.encode()) or (reads and view.is_page(path.encode())):
        return []
    if options.read_tokens:
        return [needed]
    if reads or not options.write_tokens:
        return []
    return [{}, needed] if path.startswith(points.PREFIX) else [needed]  # only some points are written
