"""Operations: liveness, readiness, metrics; and explanations of problem codes."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, fields
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request

from hyperslab import errors
from hyperslab.api import docs
from hyperslab.api.metrics import MEDIA_TYPE
from hyperslab.api.params import ReadyQuery
from hyperslab.api.problems import UNEXPECTED, remedies
from hyperslab.api.response import Response, json_body, page_response
from hyperslab.api.routing import Route
from hyperslab.api.services import Services
from hyperslab.api.threads import STORE
from hyperslab.arrays.nodes import MountedStore
from hyperslab.errors import ERRORS, RouteNotFound, StoreError
from hyperslab.wire import HTML, JSON

PLAIN_PAGE: Final = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
}
router = APIRouter(tags=["operations"], default_response_class=Response, route_class=Route)


@router.get("/healthz", name="healthz", summary="Say that the process is alive", responses=docs.page(JSON))
async def healthz() -> Response:
    """Whatever the stores do."""
    return _json({"status": "ok"})


@router.get(
    "/readyz",
    name="readyz",
    summary="Say whether this process can work, and which stores answer",
    responses=docs.page(JSON) | {503: docs.answer("The same where it is not ready.", docs.content(JSON))},
)
async def readyz(request: Request, query: Annotated[ReadyQuery, Query()]) -> Response:
    """It can if its local folders are readable, or with `stores` all stores."""
    services, all_stores = request.app.state.services, query.stores
    mounts = services.service.catalog.mounts.values()
    patience = 10.0 if all_stores else 2.0  # seconds
    checks = await asyncio.gather(*[_check(services, mount, patience) for mount in mounts])
    needed = [all_stores or not mount.is_remote for mount in mounts]
    ready = all(check["ready"] for check, counts in zip(checks, needed, strict=True) if counts)
    document = {
        "status": "ready" if ready else "not ready",
        "stores": {check.pop("name"): check for check in checks},
    }
    return _json(document, 200 if ready else 503)


@router.get("/metrics", name="metrics", summary="Show counters to Prometheus", responses=docs.page("text/plain"))
async def metrics(request: Request) -> Response:
    """In the text format of Prometheus."""
    return page_response(request.app.state.services.metrics.text(), MEDIA_TYPE, {"cache-control": "no-store"})


@router.get(
    "/problems/{code:last}",
    name="problems",
    summary="Explain the code of a problem",
    responses=docs.problems(errors.RouteNotFound) | docs.page(JSON, HTML),
)
async def problem_code(
    request: Request, code: Annotated[str, Path(description="The code of a problem.", examples=["bad-path"])]
) -> Response:
    """As JSON, or as a page where that is accepted: what it means, its facts, and what to do."""
    remedy = remedies().get(code)
    if remedy is None:
        raise RouteNotFound(f"/problems/{code}")
    explained: dict[str, Any] = {"code": code, "title": UNEXPECTED, "status": 500, "members": ["id"]}
    cls = ERRORS.get(code)
    if cls is not None:
        explained |= {"title": cls.title, "status": cls.http_status, "members": [f.name for f in fields(cls)]}
    explained["remedy"] = remedy
    if HTML not in request.headers.get("accept", ""):
        return _json(explained)
    page = docs.render_problem(explained, request.scope.get("root_path", ""))
    return page_response(page, HTML, {"cache-control": "no-cache", **PLAIN_PAGE})


async def _check(services: Services, mount: MountedStore, patience: float) -> dict[str, Any]:
    """Readiness of a store: not ready without an answer within ``patience`` seconds, also if all of its threads
    hang."""
    STORE.set(mount.name)
    state: dict[str, Any] = {"name": mount.name, "ready": True, "writable": mount.writable}
    try:
        await asyncio.wait_for(services.threads.run(mount.store.check), patience)
    except StoreError as error:
        state |= {"ready": False, "problem": error.code, "detail": str(error)}
    except TimeoutError:
        state |= {"ready": False, "problem": "store-timeout", "detail": f"no answer in {patience:.0f} s"}
    capabilities = asdict(mount.store.capabilities)  # the check may have detected some of them
    return state | {"capabilities": {name: getattr(value, "value", value) for name, value in capabilities.items()}}


def _json(document: dict[str, Any], status: int = 200) -> Response:
    return page_response(json_body(document), JSON, {"cache-control": "no-store"}, status)
