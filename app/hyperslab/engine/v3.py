"""Zarr v3 documents: ``zarr.json`` of arrays and groups, parsed into the engine's own metadata.

Parsing is strict: each error names the key, the member and what is wrong with it. [Zarr v3 core specification]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hyperslab.engine.chain import Inflates
from hyperslab.engine.codecs import make_codec
from hyperslab.engine.grid import ChunkGrid, Separator
from hyperslab.engine.jsontext import parse_json
from hyperslab.engine.metadata import (
    MAX_CONSOLIDATED_BYTES,
    ArrayMetadata,
    Members,
    Order,
    check_object,
    parse_chunks,
    parse_object,
    parse_shape,
)
from hyperslab.engine.sharding import make_levels
from hyperslab.engine.v3_codecs import parse_codecs
from hyperslab.engine.v3_dtypes import dtype_of, fill_of, named_configuration
from hyperslab.errors import BadMetadata, shown

ARRAY_MEMBERS: Final = ("shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs")
"""The members that every array has, beside the two that say what the document is."""
_OPTIONAL: Final = ("attributes", "dimension_names", "storage_transformers", "consolidated_metadata")


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed ``zarr.json``: ``array`` is None for a group. ``consolidated``: the documents of nodes below a group by
    path, None where it has none."""

    array: ArrayMetadata | None
    attributes: Mapping[str, Any]
    members: Mapping[str, Any]
    consolidated: Mapping[str, Any] | None = None


def parse_document(data: bytes | memoryview, key: str) -> Document:
    """The node that the bytes of a ``zarr.json`` describe; raises `BadMetadata` and `CodecRefused`."""
    return from_document(parse_object(data, key, limit=MAX_CONSOLIDATED_BYTES), key)


def describes_node(data: bytes | memoryview) -> bool:
    """Whether a ``zarr.json`` says what it describes: one that does not counts for nothing beside documents of v2."""
    try:
        document = parse_json(data, limit=MAX_CONSOLIDATED_BYTES)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("zarr_format") == 3 and "node_type" in document


def from_document(value: Any, key: str) -> Document:
    """`parse_document` of JSON that has been parsed."""
    read = Members(check_object(value, key), key)
    read.require("zarr_format", "node_type")
    read("zarr_format", _format)
    kind = read("node_type", _node_type)
    known = {"zarr_format", "node_type", *_OPTIONAL} | ({*ARRAY_MEMBERS} if kind == "array" else set())
    for name, member in read.document.items():
        if name not in known and not (isinstance(member, dict) and member.get("must_understand") is False):
            raise BadMetadata(key, name, "is unknown, and nothing says that it may be ignored (must_understand: false)")
    attributes = read("attributes", _attributes)
    read("storage_transformers", _no_transformers)
    array = _array(read, key) if kind == "array" else None
    consolidated = read("consolidated_metadata", _consolidated)
    return Document(array, attributes, read.document, None if array else consolidated)


def _array(read: Members, key: str) -> ArrayMetadata:
    read.require(*ARRAY_MEMBERS)
    shape = read("shape", parse_shape)
    data_type = read.document["data_type"]
    dtype = read("data_type", dtype_of)
    outer = read("chunk_grid", lambda value: _regular(value, shape, dtype.itemsize))
    prefix, separator = read("chunk_key_encoding", parse_key_encoding)
    chain = parse_codecs(read.document["codecs"], outer, data_type, key)
    if chain.big:
        dtype = dtype_of(data_type, ">")
    fill = read("fill_value", lambda value: fill_of(value, data_type, dtype))
    names = read("dimension_names", lambda value: parse_names(value, len(shape)))
    filters, compressor = chain.configs[:-1], chain.configs[-1] if chain.configs else None
    if compressor is not None and compressor["id"] in _FILTERS:
        filters, compressor = chain.configs, None
    order: Order = "F" if chain.fortran else "C"
    try:
        codec = make_codec(chain.shape, dtype, order, filters, compressor)
        levels = make_levels(chain.shards, codec)
    except Inflates as error:
        raise BadMetadata(key, "codecs", f"codec {error.index} {error}") from None
    return ArrayMetadata(
        shape=shape,
        chunks=chain.shape,
        dtype=dtype,
        order=order,
        fill_value=fill,
        compressor=compressor,
        filters=filters or None,
        dimension_separator=separator,
        grid=ChunkGrid(shape, chain.shape, separator, prefix),
        codec=codec,
        fill_reads_alike=True,
        document=read.document,
        zarr_format=3,
        dimension_names=names,
        levels=levels,
    )


_FILTERS: Final = ("transpose", "byteswap", "bits", "scale_offset", "cast_value", "vlen-utf8", "vlen-bytes")


def _format(value: Any) -> int:
    if type(value) is int and value == 3:
        return value
    raise ValueError(f"expected 3, found {shown(value)}")


def _node_type(value: Any) -> str:
    if value in ("array", "group"):
        return str(value)
    raise ValueError(f"expected 'array' or 'group', found {shown(value)}")


def _attributes(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise ValueError(f"expected an object, found {shown(value)}")


def _no_transformers(value: Any) -> None:
    if value is None or value == []:
        return
    named = value[0] if isinstance(value, list) else value
    name = named.get("name") if isinstance(named, dict) else named
    raise ValueError(f"the storage transformer {shown(name)} is unknown")


def _consolidated(value: Any) -> Mapping[str, Any] | None:
    """Documents by path; what zarr-python writes."""
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("kind") != "inline" or not isinstance(value.get("metadata"), dict):
        raise ValueError(f"expected an object of kind 'inline' with metadata, found {shown(value)}")
    return dict(value["metadata"])


def _regular(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    name, configuration = named_configuration(value, "a chunk grid")
    if name != "regular":
        raise ValueError(f"the chunk grid {name!r} is unknown")
    extra = sorted(configuration.keys() - {"chunk_shape"})
    if extra:
        raise ValueError(f"the regular grid has no parameter {extra[0]!r}")
    chunks = configuration.get("chunk_shape")
    if not isinstance(chunks, list) or any(type(size) is not int or size < 1 for size in chunks):
        raise ValueError(f"chunk_shape: expected positive integers, found {shown(chunks)}")
    return parse_chunks(chunks, shape, itemsize)


def parse_key_encoding(value: Any) -> tuple[str, Separator]:
    """What keys of chunks begin with, and what lies between their numbers; raises `ValueError`."""
    name, configuration = named_configuration(value, "a chunk key encoding")
    if name not in ("default", "v2"):
        raise ValueError(f"the chunk key encoding {name!r} is unknown")
    extra = sorted(configuration.keys() - {"separator"})
    separator = configuration.get("separator", "/" if name == "default" else ".")
    if extra or separator not in ("/", "."):
        raise ValueError(f"{shown(extra[0] if extra else separator)}: expected a separator, '/' or '.'")
    return ("c" if name == "default" else ""), separator


def parse_names(value: Any, rank: int) -> tuple[str | None, ...] | None:
    """Names of dimensions, None for one without; None for null. Raises `ValueError`."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != rank:
        raise ValueError(f"expected a list of {rank} names, found {shown(value)}")
    if any(name is not None and not isinstance(name, str) for name in value):
        raise ValueError(f"expected names or null, found {shown(value)}")
    return tuple(value)
