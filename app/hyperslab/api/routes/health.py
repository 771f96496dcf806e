"""Operations: is it alive, can it work, how much does it do; and what a problem's code means."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, fields
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from hyperslab.api import docs
from hyperslab.api.metrics import MEDIA_TYPE
from hyperslab.api.problems import UNEXPECTED, remedies
from hyperslab.api.request import Context, Query
from hyperslab.api.threads import STORE
from hyperslab.arrays.nodes import MountedStore
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import RouteNotFound, StoreError, all_errors
from hyperslab.wire import HTML, JSON


def router(context: Context) -> APIRouter:
    """The routes."""
    routes = APIRouter()

    @routes.api_route("/healthz", methods=["GET", "HEAD"], response_class=Response)
    async def healthz() -> Response:
        return _json({"status": "ok"})

    @routes.api_route("/readyz", methods=["GET", "HEAD"], response_class=Response)
    async def readyz(request: Request) -> Response:
        all_stores = Query.parse(request.scope["query_string"]).flag("stores")
        mounts = context.service.catalog.mounts.values()
        patience = 10.0 if all_stores else 2.0  # seconds that a probe waits for a store
        checks = await asyncio.gather(*[_check(context, mount, patience) for mount in mounts])
        needed = [all_stores or not mount.is_remote for mount in mounts]  # the folders of this machine
        ready = all(check["ready"] for check, counts in zip(checks, needed, strict=True) if counts)
        document = {
            "status": "ready" if ready else "not ready",
            "stores": {check.pop("name"): check for check in checks},
        }
        return _json(document, 200 if ready else 503)

    @routes.api_route("/metrics", methods=["GET", "HEAD"], response_class=Response)
    async def metrics() -> Response:
        return Response(context.metrics.text(), headers={"content-type": MEDIA_TYPE, "cache-control": "no-store"})

    @routes.api_route("/problems/{code}", methods=["GET", "HEAD"], response_class=Response)
    async def problem_code(request: Request) -> Response:
        explained = _explain(request.path_params["code"])
        if "text/html" not in request.headers.get("accept", ""):
            return _json(explained)
        page = docs.render_problem(explained, request.scope.get("root_path", ""))
        return Response(page, media_type=HTML, headers=docs.HEADERS)

    return routes


async def _check(context: Context, mount: MountedStore, patience: float) -> dict[str, Any]:
    """A store that does not answer within so many seconds is not ready, and neither is one all of whose threads
    hang."""
    STORE.set(mount.name)
    found: dict[str, Any] = {"name": mount.name, "ready": True, "writable": mount.writable}
    try:
        await asyncio.wait_for(context.threads.run(mount.store.check), patience)
    except StoreError as error:
        found |= {"ready": False, "problem": error.code, "detail": str(error)}
    except TimeoutError:
        found |= {"ready": False, "problem": "store-timeout", "detail": f"no answer in {patience:.0f} s"}
    capabilities = asdict(mount.store.capabilities)  # the check may have found some of them out
    return found | {"capabilities": {name: getattr(value, "value", value) for name, value in capabilities.items()}}


def _explain(code: str) -> dict[str, Any]:
    """Raises `RouteNotFound` for a code that no problem has."""
    remedy = remedies().get(code)
    if remedy is None:
        raise RouteNotFound(f"/problems/{code}")
    known: dict[str, Any] = {"code": code, "title": UNEXPECTED, "status": 500, "members": ["id"]}
    cls = next((cls for cls in all_errors() if cls.code == code), None)
    if cls is not None:
        known |= {"title": cls.title, "status": cls.http_status, "members": [f.name for f in fields(cls)]}
    return {**known, "remedy": remedy}


def _json(document: dict[str, Any], status: int = 200) -> Response:
    return Response(dump_json(document), status, {"cache-control": "no-store"}, media_type=JSON)
