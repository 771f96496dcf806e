"""Operations: is it alive, can it work, how much does it do; and what a problem's code means."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hyperslab.api import openapi
from hyperslab.api.context import Context
from hyperslab.api.metrics import MEDIA_TYPE
from hyperslab.api.problems import status_of
from hyperslab.api.threads import STORE
from hyperslab.arrays.nodes import MountedStore
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import HyperslabError, RouteNotFound, StoreError, all_errors
from hyperslab.wire import JSON

_READY_SECONDS = 10.0
_MEANING: Final = {200: "The whole of it.", 503: "The same where a store does not answer."}
_TEXT: Final = {"text/plain": {"schema": {"type": "string"}}}
_CODE: Final = {"name": "code", "in": "path", "required": True, "schema": {"type": "string"}, "example": "bad-path"}


def router(context: Context) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["operations"])
    ready = _described(200, 503)

    @routes.head("/healthz", include_in_schema=False)
    @routes.get("/healthz", summary="Say that the process is alive", **_described(200))
    async def healthz() -> Response:
        return _json({"status": "ok"})

    @routes.head("/readyz", include_in_schema=False)
    @routes.get("/readyz", summary="Ask every store, through the threads, whether there can be answers", **ready)
    async def readyz() -> Response:
        checks = await asyncio.gather(*[_check(context, mount) for mount in context.service.catalog.mounts.values()])
        ready = all(check["ready"] for check in checks)
        document = {
            "status": "ready" if ready else "not ready",
            "stores": {check.pop("name"): check for check in checks},
        }
        return _json(document, 200 if ready else 503)

    @routes.head("/metrics", include_in_schema=False)
    @routes.get("/metrics", summary="Show counters to Prometheus", **_described(200, content=_TEXT))
    async def metrics() -> Response:
        return Response(context.metrics.text(), headers={"content-type": MEDIA_TYPE, "cache-control": "no-store"})

    @routes.head("/problems/{code}", include_in_schema=False)
    @routes.get("/problems/{code}", summary="Explain the code of a problem", **_described(200, parameters=[_CODE]))
    async def problem_code(request: Request) -> Response:
        return _json(_explain(request.path_params["code"]))

    return routes


def _described(
    *statuses: int, content: Mapping[str, Any] = openapi.DOCUMENT, parameters: Sequence[openapi.Members] = ()
) -> dict[str, Any]:
    """What the framework is to tell of a route."""
    answers = {str(status): openapi.answer(_MEANING[status], content) for status in statuses}
    extra = {"parameters": list(parameters), "responses": {**answers, **openapi.FAILED}}
    return {"response_class": Response, "openapi_extra": extra}


async def _check(context: Context, mount: MountedStore) -> dict[str, Any]:
    """A store that does not answer within ten seconds is not ready, and neither is one all of whose threads hang."""
    STORE.set(mount.name)
    found: dict[str, Any] = {"name": mount.name, "ready": True, "writable": mount.writable}
    try:
        await asyncio.wait_for(context.threads.run(mount.store.check), _READY_SECONDS)
    except StoreError as error:
        found |= {"ready": False, "problem": error.code, "detail": str(error)}
    except TimeoutError:
        found |= {"ready": False, "problem": "store-timeout", "detail": f"no answer in {_READY_SECONDS:.0f} s"}
    capabilities = asdict(mount.store.capabilities)  # the check may have found some of them out
    return found | {"capabilities": {name: getattr(value, "value", value) for name, value in capabilities.items()}}


def _explain(code: str) -> dict[str, Any]:
    cls = next((cls for cls in all_errors() if cls.code == code and cls is not HyperslabError), None)
    if cls is None:
        raise RouteNotFound(f"/problems/{code}")
    return {"code": code, "title": cls.title, "status": status_of(cls), "members": [f.name for f in fields(cls)]}


def _json(document: dict[str, Any], status: int = 200) -> Response:
    return Response(dump_json(document), status, {"cache-control": "no-store"}, media_type=JSON)
