"""``PUT``, ``PATCH`` and ``DELETE /v1/metadata/{path}``: creation, change and deletion of nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any
from urllib.parse import quote

from hyperslab.api.request import Request
from hyperslab.api.response import Response, json_response
from hyperslab.api.routes.metadata import array_document, document_etag, group_document
from hyperslab.api.upload import json_object
from hyperslab.api.writing import node_check
from hyperslab.arrays.delete import Remainder
from hyperslab.arrays.documents import checked_attributes
from hyperslab.arrays.nodes import ArrayNode, GroupNode
from hyperslab.errors import BadDefinition, BadParameter
from hyperslab.wire import MERGE_PATCH


async def put_node(request: Request) -> Response:
    """Create a node from its document: 201 with the document, 200 for an existing node that fits with ``mode=open``.

    ``mode`` is ``create`` (the default), ``open`` or ``replace``; the latter takes ``foreign`` as in `delete_node`.
    """
    request.query.only(("mode", "foreign"))
    mode = request.query.choice("mode", ("create", "open", "replace")) or "create"
    definition = await json_object(request, writes=mode != "open")  # which may have nothing to store
    foreign = _foreign(request, "mode=replace", allowed=mode == "replace")
    options: dict[str, Any] = {"mode": mode, "foreign": foreign, "check": node_check(request)}
    make = partial(request.service.creator.create_node, request.tail, definition, **options)
    made = await request.write(request.tail, make)
    return await _node_answer(request, made.node, status=201 if made.created else 200, kept=made.kept)


async def patch_node(request: Request) -> Response:
    """Change ``shape`` (null keeps an axis) and ``attributes`` (a merge patch); returns the changed document."""
    query = request.query
    query.only(("expand_only", "shrink_only"))
    patch = await json_object(request, MERGE_PATCH)
    unknown = sorted(set(patch) - {"shape", "attributes"})
    if unknown or not patch:
        raise BadDefinition(unknown[0] if unknown else "body", "expected the members shape and attributes")
    attributes = checked_attributes(patch["attributes"]) if "attributes" in patch else None
    service, check = request.service, node_check(request)
    change: Callable[[], ArrayNode | GroupNode]
    if "shape" in patch:
        bounds = {name: query.flag(name) for name in ("expand_only", "shrink_only")}
        sizes = patch["shape"] if isinstance(patch["shape"], list) else None
        if sizes is None or any(isinstance(n, bool) or not isinstance(n, int | None) for n in sizes):
            raise BadDefinition("shape", "expected a list of integers, null where an axis keeps its size")
        resize = partial(service.resizer.resize, request.tail, sizes, attributes=attributes)
        change = partial(resize, check=check, **bounds)
    else:
        change = partial(service.creator.change_attributes, request.tail, attributes or {}, check=check)
    return await _node_answer(request, await request.write(request.tail, change))


async def delete_node(request: Request) -> Response:
    """Delete a node; nodes below it only with ``recursive=true``, and other keys than Zarr's only with
    ``foreign=true``.

    Answers 200 with the remaining keys, or 204 without any.
    """
    request.query.only(("recursive", "foreign"))
    recursive = request.query.flag("recursive", bare=False)
    foreign = _foreign(request, "recursive=true", allowed=recursive)
    check = node_check(request)
    delete, path = request.service.creator.delete, request.tail
    kept = await request.write(path, delete, path, recursive=recursive, foreign=foreign, check=check)
    return json_response({"path": request.tail, "kept": asdict(kept)}) if kept.count else Response(204, ())


def _foreign(request: Request, only_with: str, *, allowed: bool) -> bool:
    foreign = request.query.flag("foreign", bare=False)
    if foreign and not allowed:
        raise BadParameter("foreign", "true", f"it together with {only_with}")
    return foreign


async def _node_answer(
    request: Request, node: ArrayNode | GroupNode, status: int = 200, kept: Remainder | None = None
) -> Response:
    node = await request.run(request.service.catalog.whole, node)
    if isinstance(node, ArrayNode):
        document, tag = array_document(node, request.context.options, request.root_path), document_etag(node)
    else:
        list_children = request.service.catalog.children
        children = await request.run(list_children, node, limit=request.context.options.max_listed)
        document, tag = group_document(node, children, request.root_path), document_etag(node, children)
    if kept is not None and kept.count:
        document["kept"] = asdict(kept)
    location = f"{request.root_path}/v1/metadata/{quote(node.path)}".encode()
    headers = ((b"etag", tag.encode()), (b"location", location))
    return json_response(document, status=status, headers=headers)
