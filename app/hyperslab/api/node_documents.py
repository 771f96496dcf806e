"""Documents of arrays and groups, and their tags."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final
from urllib.parse import quote

from hyperslab.api.options import ApiOptions
from hyperslab.api.response import etag_of
from hyperslab.arrays.nodes import ArrayNode, Children, GroupNode, without_unread
from hyperslab.arrays.other_format import forms
from hyperslab.arrays.plan import resolve_field
from hyperslab.arrays.table import Table
from hyperslab.arrays.tree import Matches
from hyperslab.engine.fill_value import format_fill_value
from hyperslab.engine.schema import schema_document
from hyperslab.tiles.ome import read_ome

NO_CHILDREN: Final = Children((), None)


def document_etag(node: ArrayNode | GroupNode, listed: Children = NO_CHILDREN, *, field: str | None = None) -> str:
    """The tag of a node's document, from its metadata, attributes, listed nodes and the field of its schema."""
    return etag_of(repr((node.path, node.version, node.problems, listed, field)).encode())


def array_document(array: ArrayNode, options: ApiOptions, root: str = "", field: str | None = None) -> dict[str, Any]:
    """The node document of an array; ``root`` is the prefix of links, ``field`` that of the schema.

    Its members are those of docs/reference/http.md. Raises `FieldUnknown`.
    """
    resolve_field(array, field)
    metadata = array.metadata
    stored = metadata.document
    attributes, problems = without_unread(array)
    problems += array.problems
    return {
        "kind": "array",
        "path": array.path,
        "zarr_format": metadata.zarr_format,
        "shape": metadata.shape,
        "chunks": metadata.chunks,
        "dtype": metadata.dtype.json,
        "order": metadata.order,
        "fill_value": stored.get("fill_value"),
        "compressor": stored.get("compressor"),
        "filters": stored.get("filters"),
        "dimension_separator": metadata.dimension_separator,
        "dimension_names": array.axis_names,
        "attributes": attributes,
        "fields": [
            {"name": part.name, "dtype": part.json, "shape": part.shape, "offset": part.offset}
            for part in metadata.dtype.fields
        ]
        or None,
        "nbytes": metadata.nbytes,
        "chunk_grid": metadata.grid.counts,
        "schema": schema_document(metadata, field),
        "limits": {  # null for no limit
            "max_request_bytes": options.max_upload_bytes,
            "max_response_bytes": options.max_response_bytes,
            "max_json_bytes": options.max_json_bytes,
            "max_csv_bytes": options.max_csv_bytes,
            "max_tiff_bytes": options.max_tiff_bytes,
            "max_points": options.max_points,
        },
        "links": _links(array, root, ("slice", "chunk", "plan", "points", "tile")),
        **(_v3_members(array) if metadata.zarr_format == 3 else {}),
        **({"problems": problems} if problems else {}),
    }


def _v3_members(array: ArrayNode) -> dict[str, Any]:
    """Members specific to Zarr v3, as stored; ``shards`` is the shape of a stored object."""
    metadata = array.metadata
    names = ("data_type", "codecs", "chunk_grid", "chunk_key_encoding")
    return {
        **{name: metadata.document[name] for name in names},
        "shards": metadata.levels[0].shape if metadata.levels else None,
        "fill_value": format_fill_value(metadata.fill_value),
        "compressor": metadata.compressor,
        "filters": metadata.filters,
        "also": array.also,
    }


def group_document(group: GroupNode, listed: Children, root: str = "") -> dict[str, Any]:
    """A group with a page of its children, or of a search; ``next_cursor`` is null on the last page."""
    member, name = ("matches", "path") if isinstance(listed, Matches) else ("children", "name")
    attributes, problems = without_unread(group)
    document: dict[str, Any] = {
        "kind": "group",
        "path": group.path,
        "zarr_format": group.zarr_format,
        "attributes": attributes,
        member: _listed(listed, name),
        "next_cursor": listed.next_cursor,
        "links": _links(group, root, ("tile",)),
    }
    if group.also:
        document["also"] = group.also
    if isinstance(listed, Table) and listed.count is not None:
        document["count"] = listed.count
    ome = read_ome(attributes)
    document["problems"] = [*listed.problems, *problems, *group.problems, *ome.problems]
    image, groups = ome.multiscale, {child.name for child in listed.nodes if child.kind == "group"}
    if image is not None and not groups.issuperset(dataset.path for dataset in image.datasets):
        axes = None if image.axes is None else [asdict(axis) for axis in image.axes]
        datasets = [asdict(dataset) for dataset in image.datasets]
        described = {"name": image.name, "version": image.version, "axes": axes, "datasets": datasets}
        document["multiscales"] = [{**described, "type": image.downsampling}]
    return document


def _listed(listed: Children, name: str) -> list[dict[str, Any]]:
    """Children, rows of a table, or nodes that were found; these with the attribute that has the text."""
    if isinstance(listed, Table):
        return [asdict(row) for row in listed.rows]
    attributes = listed.attributes if isinstance(listed, Matches) else {}
    nodes = [(node, attributes.get(node.name)) for node in listed.nodes]
    return [
        {
            name: node.name,
            "kind": node.kind,
            **({"attribute": dict(zip(("name", "value"), own, strict=True))} if own else {}),
        }
        for node, own in nodes
    ]


def _links(node: ArrayNode | GroupNode, root: str, routes: tuple[str, ...]) -> dict[str, str]:
    """Absolute paths, valid under any host name."""
    tail = quote(node.path)
    links = {"self": f"{root}/v1/metadata/{tail}"}
    links |= {route: f"{root}/v1/{route}/{tail}" for route in routes}
    links |= {name: f"{root}/{name}/{tail}" for name in ("zarr", *(f"zarr{number}" for number in forms(node)))}
    return links | {"view": f"{root}/view/{tail}"}
