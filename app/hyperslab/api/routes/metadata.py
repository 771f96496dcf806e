"""``/v1/metadata/{path}``: documents of arrays and groups; creation, change and deletion of nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import Query, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from hyperslab import errors
from hyperslab.api import docs
from hyperslab.api.exchange import Exchange
from hyperslab.api.middleware.audit import UNCHANGED
from hyperslab.api.node_documents import NO_CHILDREN, array_document, document_etag, group_document
from hyperslab.api.params import ChangeQuery, CreateQuery, DeleteQuery, MetadataQuery, NodePath
from hyperslab.api.representation import Reply, Representation, respond
from hyperslab.api.response import Response, caching, json_body, json_response
from hyperslab.api.routing import Route, Router
from hyperslab.api.upload import json_object
from hyperslab.api.writing import new_node_check, node_check
from hyperslab.arrays.chunk_keys import located
from hyperslab.arrays.delete import Remainder
from hyperslab.arrays.documents import checked_attributes
from hyperslab.arrays.nodes import ArrayNode, GroupNode
from hyperslab.arrays.table import TableQuery, read_table
from hyperslab.arrays.tree import find
from hyperslab.engine.metadata import integral
from hyperslab.engine.validation import Document, validated
from hyperslab.errors import BadDefinition, BadParameter, WrongKind
from hyperslab.wire import JSON, MERGE_PATCH

router = Router(prefix="/v1/metadata", default_response_class=Response, route_class=Route)

DOCUMENT = docs.content(JSON)
REFUSALS = docs.problems(
    errors.NodeNotFound,
    errors.NodeExists,
    errors.BadDefinition,
    errors.ReadOnly,
    errors.WriteForbidden,
    errors.ForeignOrigin,
    errors.PreconditionFailed,
    errors.WriteConflict,
    errors.BadMetadata,
)


class NodeDefinition(BaseModel):
    """What a new node is to be. `engine.creation` validates it as it does stored documents; a whole document of a node
    will do, too."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    kind: Literal["array", "group"] = "array"
    """A group where no member of an array is given."""
    zarr_format: Literal[2, 3] = 2
    attributes: dict[str, Any] = {}
    shape: list[int] = []
    dtype: Any = None
    """As in a `.zarray`, or by its name in numpy or Zarr v3."""
    chunks: list[int | None] | int | bool | None = None
    """0 for a size that is chosen, -1 or null for the whole axis; by default all are chosen."""
    chunk_elements: int | None = None
    """How many items a chunk shall have."""
    chunk_aspect_ratio: list[float | None] | None = None
    chunk_layout: dict[str, Any] | None = None
    """As TensorStore states it."""
    order: Literal["C", "F"] | None = "C"
    compressor: dict[str, Any] | None = {"id": "blosc"}
    """As in a `.zarray`; null for none."""
    filters: list[dict[str, Any]] | None = None
    fill_value: Any = None
    dimension_separator: Literal[".", "/"] | None = None
    data_type: Any = None
    """Of Zarr v3, in place of `dtype`."""
    chunk_grid: Any = None
    shards: list[int | None] | int | bool | Literal["auto"] | None = None
    """The shape of a stored object of Zarr v3."""
    codecs: list[Any] | None = None
    """Of Zarr v3, in place of `compressor`, `filters` and `order`."""
    chunk_key_encoding: Any = None
    dimension_names: list[str | None] | None = None
    rank: int | None = None
    domain: dict[str, Any] | None = None
    codec: dict[str, Any] | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    """As TensorStore states it: other members must fit."""


def _sizes(value: Any) -> Any:
    sizes = [None if size is None else integral(size) for size in value] if isinstance(value, list) else [None]
    if not isinstance(value, list) or sizes.count(None) > value.count(None):
        raise ValueError("expected a list of integers, null where an axis keeps its size")
    return sizes


class Patch(Document):
    """A change of a node."""

    shape: Annotated[list[int | None], BeforeValidator(_sizes)] = Field(default_factory=list)
    """The size of each axis; null keeps it."""
    attributes: Annotated[Any, WithJsonSchema({"type": "object"})] = None
    """A merge patch of the attributes (RFC 7396)."""


@router.get(
    "/{path:node}",
    name="metadata",
    tags=["metadata"],
    summary="Describe an array or a group",
    responses=docs.problems(errors.NodeNotFound, errors.WrongKind, errors.FieldUnknown, errors.BadMetadata)
    | docs.found(DOCUMENT),
    openapi_extra=docs.headers(*docs.READING),
)
async def get_metadata(request: Request, path: NodePath, query: Annotated[MetadataQuery, Query()]) -> Response:
    """An array: shape, chunks, dtype, codecs, attributes, limits, links, and its schema as TensorStore states it. A
    group: attributes, its children a page at a time, and OME-Zarr multiscales where it has them. Without a path: the
    stores."""
    asked = Exchange(request)
    most = asked.context.options.max_listed
    least = 0 if query.search is None and not query.table else 1
    limit = (min(500, most) if query.table else most) if query.limit is None else query.limit
    for name in ("sort", "filter", "columns"):
        if getattr(query, name) is not None and not query.table:
            raise BadParameter(name, getattr(query, name), "table=true beside it")
    if query.table and query.search is not None:
        raise BadParameter("search", query.search, "no table beside it: filter finds rows")
    if not least <= limit <= most:
        raise BadParameter("limit", str(limit), f"an integer from {least} to {most}")
    return await respond(asked, lambda: _document(asked, path, query, limit, most))


@router.get("", name="metadata", include_in_schema=False)
async def get_stores(request: Request, query: Annotated[MetadataQuery, Query()]) -> Response:
    """The stores."""
    return await get_metadata(request, "", query)


async def _document(request: Exchange, path: str, query: MetadataQuery, limit: int, most: int) -> Reply:
    options, catalog, node = request.context.options, request.service.catalog, await request.open_node(path)
    if isinstance(node, ArrayNode) and (query.search is not None or query.table):
        raise WrongKind(node.path, "array", "group")
    if isinstance(node, ArrayNode):
        request.expect(node, sum(map(len, node.metadata.stored_grid.edges)))

    def describe() -> tuple[str, bytes]:
        if isinstance(node, ArrayNode):
            array = located(node)
            document = array_document(array, options, request.root_path, query.field)
            array = catalog.with_inherited(array) if query.decode == "cf" else array
            if query.decode == "cf":
                document["decoded"] = array.decoder.document(array.attributes)
            return document_etag(array, field=query.field), json_body(document, array.metadata.text_depth)
        listed = NO_CHILDREN
        if query.search is not None:
            listed = find(catalog, node, query.search, limit=limit, page=most, cursor=query.cursor)
        elif query.table:
            columns = [name.strip() for name in (query.columns or "long_name,title").split(",")]
            wanted = TableQuery(limit, query.cursor, query.sort, query.filter, columns)
            listed = read_table(catalog, node, wanted)
        elif limit:
            listed = catalog.children(node, limit=limit, cursor=query.cursor)
        return document_etag(node, listed), json_body(group_document(node, listed, request.root_path))

    tag, document = await request.run(describe)  # the time grows with the attributes and the children
    return Representation(tag, JSON, document, always=caching(node.mount, options))


@router.put(
    "/{path:inner}",
    name="metadata",
    tags=["writing"],
    summary="Create an array or a group",
    status_code=201,
    responses=REFUSALS
    | {
        201: docs.answer("The document of what was made.", DOCUMENT, {**docs.TAG, **docs.PLACE}),
        200: docs.answer("The document of what was there and fits.", DOCUMENT, {**docs.TAG, **docs.PLACE}),
    },
    openapi_extra=docs.body(
        {JSON: {"schema": docs.schema(NodeDefinition), "example": {"shape": [100, 100], "dtype": "<u2"}}}, *docs.WRITING
    ),
)
async def put_node(request: Request, path: NodePath, query: Annotated[CreateQuery, Query()]) -> Response:
    """With all its ancestors. The body is the definition: `shape` and `dtype`, and many more members, or those of a
    group."""
    asked = Exchange(request)
    definition = await json_object(asked, path, writes=query.mode != "open")  # which may have nothing to store
    _check_foreign(query.foreign, "mode=replace", allowed=query.mode == "replace")
    options: dict[str, Any] = {"mode": query.mode, "foreign": query.foreign, "check": new_node_check(asked, path)}
    make = partial(asked.service.creator.create_node, path, definition, **options)
    made = await asked.write(path, make)
    if not made.created:
        asked.scope[UNCHANGED] = True
    return await _node_answer(asked, made.node, status=201 if made.created else 200, kept=made.kept)


@router.patch(
    "/{path:inner}",
    name="metadata",
    tags=["writing"],
    summary="Resize an array, merge attributes",
    responses=REFUSALS | {200: docs.answer("The document as it is now.", DOCUMENT, {**docs.TAG, **docs.PLACE})},
    openapi_extra=docs.body(
        {
            media_type: {"schema": docs.schema(Patch), "example": {"attributes": {}}}
            for media_type in (JSON, MERGE_PATCH)
        },
        *docs.WRITING,
    ),
)
async def patch_node(request: Request, path: NodePath, query: Annotated[ChangeQuery, Query()]) -> Response:
    """`shape`, in which null keeps an axis, and `attributes`, a merge patch (RFC 7396)."""
    asked = Exchange(request)
    patch = validated(Patch, await json_object(asked, path, MERGE_PATCH))
    sent = patch.model_fields_set
    if not sent:
        raise BadDefinition("body", "expected the members shape and attributes")
    attributes = await asked.run(checked_attributes, patch.attributes) if "attributes" in sent else None
    service, check = asked.service, node_check(asked)
    change: Callable[[], ArrayNode | GroupNode]
    if "shape" in sent:
        bounds = {"expand_only": query.expand_only, "shrink_only": query.shrink_only}
        change = partial(service.resizer.resize, path, patch.shape, attributes=attributes, check=check, **bounds)
    else:
        change = partial(service.creator.change_attributes, path, attributes or {}, check=check)
    return await _node_answer(asked, await asked.write(path, change))


@router.delete(
    "/{path:inner}",
    name="metadata",
    tags=["writing"],
    summary="Delete a node",
    responses=REFUSALS
    | {
        200: docs.answer("It is gone; `kept` counts and names the keys that stayed.", DOCUMENT),
        204: docs.answer("It is gone, with all that was below it."),
    },
    openapi_extra=docs.headers(*docs.CONDITIONAL),
)
async def delete_node(request: Request, path: NodePath, query: Annotated[DeleteQuery, Query()]) -> Response:
    """Nodes below it only with `recursive=true`, and other keys than Zarr's only with `foreign=true`."""
    asked = Exchange(request)
    _check_foreign(query.foreign, "recursive=true", allowed=query.recursive)
    check, delete = node_check(asked), asked.service.creator.delete
    kept = await asked.write(path, delete, path, recursive=query.recursive, foreign=query.foreign, check=check)
    return json_response({"path": path, "kept": asdict(kept)}) if kept.count else Response(204, ())


def _check_foreign(foreign: bool, only_with: str, *, allowed: bool) -> None:
    if foreign and not allowed:
        raise BadParameter("foreign", "true", f"it together with {only_with}")


async def _node_answer(
    request: Exchange, node: ArrayNode | GroupNode, status: int = 200, kept: Remainder | None = None
) -> Response:
    location = f"{request.root_path}/v1/metadata/{quote(node.path)}".encode()
    if not request.may("read", node.path):
        return Response(201 if status == 201 else 204, ((b"location", location),))
    options, catalog = request.context.options, request.service.catalog

    def describe() -> Response:
        whole, depth = catalog.complete(node), 0
        if isinstance(whole, ArrayNode):
            document, tag = array_document(whole, options, request.root_path), document_etag(whole)
            depth = whole.metadata.text_depth
        else:
            children = catalog.children(whole, limit=options.max_listed)
            document, tag = group_document(whole, children, request.root_path), document_etag(whole, children)
        if kept is not None and kept.count:
            document["kept"] = asdict(kept)
        headers = ((b"etag", tag.encode()), (b"location", location))
        return json_response(document, status=status, headers=headers, depth=depth)

    return await request.run(describe)  # the time grows with the attributes
