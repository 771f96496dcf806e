"""Operations: liveness, readiness, metrics; and explanations of problem codes."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, fields
from typing import Any

from hyperslab.api import docs
from hyperslab.api.metrics import MEDIA_TYPE
from hyperslab.api.problems import UNEXPECTED, remedies
from hyperslab.api.request import Context, Request
from hyperslab.api.response import Response, page_response
from hyperslab.api.threads import STORE
from hyperslab.arrays.nodes import MountedStore
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import ERRORS, RouteNotFound, StoreError
from hyperslab.wire import HTML, JSON


async def healthz(_: Request) -> Response:
    """Answer GET and HEAD."""
    return _json({"status": "ok"})


async def readyz(request: Request) -> Response:
    """Whether the stores are readable: local folders, or with ``stores`` all of them."""
    all_stores = request.query.flag("stores")
    mounts = request.service.catalog.mounts.values()
    patience = 10.0 if all_stores else 2.0  # seconds
    checks = await asyncio.gather(*[_check(request.context, mount, patience) for mount in mounts])
    needed = [all_stores or not mount.is_remote for mount in mounts]
    ready = all(check["ready"] for check, counts in zip(checks, needed, strict=True) if counts)
    document = {
        "status": "ready" if ready else "not ready",
        "stores": {check.pop("name"): check for check in checks},
    }
    return _json(document, 200 if ready else 503)


async def metrics(request: Request) -> Response:
    """The metrics in Prometheus' format."""
    return page_response(request.context.metrics.text(), MEDIA_TYPE, {"cache-control": "no-store"})


async def problem_code(request: Request) -> Response:
    """The explanation of a problem code, as a page or as JSON; raises `RouteNotFound` for an unknown one."""
    code = request.scope["path"].rpartition("/")[2]
    remedy = remedies().get(code)
    if remedy is None:
        raise RouteNotFound(f"/problems/{code}")
    explained: dict[str, Any] = {"code": code, "title": UNEXPECTED, "status": 500, "members": ["id"]}
    cls = ERRORS.get(code)
    if cls is not None:
        explained |= {"title": cls.title, "status": cls.http_status, "members": [f.name for f in fields(cls)]}
    explained["remedy"] = remedy
    if "text/html" not in request.header(b"accept", ""):
        return _json(explained)
    return page_response(docs.render_problem(explained, request.root_path), HTML, docs.HEADERS)


async def _check(context: Context, mount: MountedStore, patience: float) -> dict[str, Any]:
    """Readiness of a store: not ready without an answer within ``patience`` seconds, also if all of its threads
    hang."""
    STORE.set(mount.name)
    found: dict[str, Any] = {"name": mount.name, "ready": True, "writable": mount.writable}
    try:
        await asyncio.wait_for(context.threads.run(mount.store.check), patience)
    except StoreError as error:
        found |= {"ready": False, "problem": error.code, "detail": str(error)}
    except TimeoutError:
        found |= {"ready": False, "problem": "store-timeout", "detail": f"no answer in {patience:.0f} s"}
    capabilities = asdict(mount.store.capabilities)  # the check may have detected some of them
    return found | {"capabilities": {name: getattr(value, "value", value) for name, value in capabilities.items()}}


def _json(document: dict[str, Any], status: int = 200) -> Response:
    return page_response(dump_json(document), JSON, {"cache-control": "no-store"}, status)
