"""Zarr v3 documents: parser of ``zarr.json`` of arrays and groups into the engine's metadata, and new documents.

Parsing is strict: errors name the key, the member and the fault. [Zarr v3 core specification]
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from hyperslab.engine.chain import Inflates
from hyperslab.engine.codecs import ChunkCodec, make_codec
from hyperslab.engine.dtypes import data_type_of, dtype_of
from hyperslab.engine.fill_value import fill_of, format_fill
from hyperslab.engine.grid import ChunkGrid, Separator
from hyperslab.engine.jsontext import KeptValue, parse_json
from hyperslab.engine.metadata import (
    MAX_CONSOLIDATED_BYTES,
    MAX_SIZE,
    ArrayMetadata,
    Coding,
    Members,
    Order,
    UnreadAttributes,
    check_object,
    one_of,
    parse_chunks,
    parse_object,
    parse_shape,
)
from hyperslab.engine.sharding import make_levels
from hyperslab.engine.v3_codecs import MAX_INDEX, Chain, NamedConfig, codecs_of, parse_codecs, with_bytes
from hyperslab.errors import BadMetadata, shown
from hyperslab.wire.data_types import named_configuration

ARRAY_MEMBERS: Final = ("shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs")
"""Required members of an array, besides ``zarr_format`` and ``node_type``."""
_CONSOLIDATED: Final = "consolidated_metadata"
_LARGE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed ``zarr.json``: ``array`` is None for a group. ``consolidated``: documents of nodes below a group by
    relative key, None without consolidated metadata, or with such that cannot be read for the reason in ``broken``."""

    array: ArrayMetadata | None
    attributes: Mapping[str, Any]
    members: Mapping[str, Any]
    consolidated: Mapping[str, Any] | None = None
    broken: BadMetadata | None = None


def parse_document(
    data: bytes | memoryview, key: str, kept: KeptValue | None = None, *, exact: bool = False
) -> Document:
    """The node described by the bytes of a ``zarr.json``; raises `BadMetadata` and `CodecRefused`. ``kept``: attributes
    that an earlier version had. ``exact``: what is read with a problem is refused."""
    held = None if kept is None else kept.parse(bytes(data), "attributes")
    value = parse_object(data, key, limit=MAX_CONSOLIDATED_BYTES) if held is None else held
    document = from_document(value, key, exact=exact)
    if document.array is None or len(data) < _LARGE:
        return document
    kept = KeptValue(document.members.get("attributes")) if held is None else kept
    return replace(document, array=replace(document.array, attributes=kept))


def describes_node(data: bytes | memoryview) -> bool:
    """Whether a ``zarr.json`` states a node type; otherwise documents of v2 take precedence."""
    try:
        document = parse_json(data, limit=MAX_CONSOLIDATED_BYTES)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("zarr_format") == 3 and "node_type" in document


def from_document(value: Any, key: str, *, exact: bool = False) -> Document:
    """`parse_document` for parsed JSON."""
    read = Members(check_object(value, key), key)
    read.require("zarr_format", "node_type")
    read("zarr_format", lambda value: one_of((3,), value))
    kind = read("node_type", lambda value: _node_type(value, read.document))
    members = {"zarr_format", "node_type", "attributes"}
    if kind == "array":
        members |= {*ARRAY_MEMBERS, "dimension_names", "storage_transformers"}
    if kind == "group" or read.document.get(_CONSOLIDATED) is None:  # releases of zarr-python write null for arrays
        members.add(_CONSOLIDATED)
    for name, member in read.document.items():
        if name not in members and not (isinstance(member, dict) and member.get("must_understand") is False):
            raise BadMetadata(key, name, "is unknown, and nothing says that it may be ignored (must_understand: false)")
    given = read.document.get("attributes")
    attributes: Mapping[str, Any] = {}
    try:
        attributes = {} if given is None else check_object(given, key, "attributes")
    except BadMetadata as error:  # the node is readable without them
        if exact:
            raise
        attributes = UnreadAttributes(error)
    read("storage_transformers", _no_transformers)
    if kind == "array":
        return Document(_array(read, key, exact=exact), attributes, read.document)
    try:
        return Document(None, attributes, read.document, read(_CONSOLIDATED, _consolidated))
    except BadMetadata as error:
        if exact:
            raise
        return Document(None, attributes, read.document, broken=error)


def _node_type(value: Any, document: Mapping[str, Any]) -> str:
    kind = str(one_of(("array", "group"), value))
    described = sum(member in document for member in ARRAY_MEMBERS)
    if kind == "group" and described > len(ARRAY_MEMBERS) // 2:
        raise ValueError("it is 'group', but the document describes an array")
    if kind == "array" and not described:
        raise ValueError(
            "it is 'array', but the document describes none: it has no shape, data type, chunks and codecs"
        )
    return kind


def _array(read: Members, key: str, *, exact: bool) -> ArrayMetadata:
    read.require(*ARRAY_MEMBERS)
    shape = read("shape", parse_shape)
    data_type = read.document["data_type"]
    dtype = read("data_type", dtype_of)
    outer, edges = read("chunk_grid", lambda value: _chunk_grid(value, shape, dtype.itemsize))
    prefix, separator = read("chunk_key_encoding", parse_key_encoding)

    codecs, problems = read.document["codecs"] if exact else with_bytes(read.document["codecs"]), list[str]()
    if codecs is not read.document["codecs"]:
        problems.append(f"{key}: codecs: none turns items into bytes: taken for little-endian, as zarrita.js has it")
    no_fill = read.document["fill_value"] is None and not exact
    if no_fill:
        problems.append(f"{key}: fill_value: expected a value, found null: items that are not stored are zero or empty")

    @lru_cache(256)
    def parse(outer: tuple[int, ...]) -> tuple[Chain, Order, Coding]:
        chain = parse_codecs(codecs, outer, data_type, key)
        order: Order = "F" if chain.fortran else "C"
        try:
            codec = make_codec(chain.shape, dtype_of(data_type, ">" if chain.big else "<"), order, chain.configs)
            return chain, order, Coding(codec, make_levels(chain.shards, codec))
        except Inflates as error:
            raise BadMetadata(key, "codecs", f"codec {error.index} {error}") from None
        except (ValueError, TypeError) as error:  # an invalid number in a configuration
            raise BadMetadata(key, "codecs", str(error)) from None

    chain, order, (codec, levels) = parse(outer)
    dtype = codec.dtype
    fill = read("fill_value", lambda value: None if no_fill else _checked_fill(fill_of(value, data_type, dtype), codec))
    names = read("dimension_names", lambda value: parse_names(value, len(shape)))
    filters, compressor = chain.split()
    grid = stored_grid = ChunkGrid(shape, outer, separator, prefix, edges)
    if levels:  # inner chunks are regular, and divide each shard
        for chunk, lengths in zip(chain.shape, edges, strict=False):
            wrong = np.flatnonzero(np.asarray(lengths, np.int64) % chunk)
            if len(wrong):
                reason = f"chunk_shape: {chunk} does not divide the shard that ends at {lengths[wrong[0]]}"
                raise BadMetadata(key, "codecs", reason)
        grid = ChunkGrid(shape, chain.shape, separator, prefix)
    elif edges:
        codec = replace(codec, partial=None, start=None)
    return ArrayMetadata(
        shape=shape,
        chunks=chain.shape,
        dtype=dtype,
        order=order,
        fill_value=fill,
        compressor=compressor,
        filters=filters,
        dimension_separator=separator,
        grid=grid,
        stored_grid=stored_grid,
        codec=codec,
        fill_reads_alike=fill is not None,
        document=read.document,
        zarr_format=3,
        dimension_names=names,
        levels=levels,
        coding_of=(lambda shape: parse(shape)[2]) if edges else None,
        problems=tuple(problems),
    )


def whole_document(metadata: ArrayMetadata) -> Mapping[str, Any]:
    """The ``zarr.json`` of an array, with the members that others require in place of those that were tolerated."""
    document = metadata.document
    if metadata.zarr_format == 2 or not metadata.problems:
        return document
    fill = format_fill(metadata.fill, document["data_type"])
    return {**document, "codecs": with_bytes(document["codecs"]), "fill_value": fill}


def _checked_fill(fill: np.ndarray, codec: ChunkCodec) -> np.ndarray:
    """The fill value, if codecs of numbers can encode and decode it. [zarr-extensions, "cast_value"]"""
    items = fill.reshape(1)
    for link in codec.links:
        if link.id in ("scale_offset", "cast_value"):
            items = np.asarray(link.encode(items))
            link.decode(items.tobytes(), None)
        elif link.id != "transpose":
            break
    return fill


def _no_transformers(value: Any) -> None:
    if value is None or value == []:
        return
    named = value[0] if isinstance(value, list) else value
    name = named.get("name") if isinstance(named, dict) else named
    raise ValueError(f"the storage transformer {shown(name)} is unknown")


def _consolidated(value: Any) -> Mapping[str, Any] | None:
    """Documents by key; zarr-python writes them by path."""
    if value is None:
        return None
    if not isinstance(value, dict) or value.get("kind") != "inline" or not isinstance(value.get("metadata"), dict):
        raise ValueError(f"expected an object of kind 'inline' with metadata, found {shown(value)}")
    documents = {f"{path}/zarr.json" if path else "zarr.json": node for path, node in value["metadata"].items()}
    if other := next((path for path, document in documents.items() if not isinstance(document, dict)), None):
        raise ValueError(f"metadata: {other!r}: expected a JSON object, found {shown(documents[other])}")
    return documents


def _chunk_grid(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[tuple[int, ...], tuple[Sequence[int], ...]]:
    """The shape of chunks; for varying chunks the largest one and all edges: see `ChunkGrid`."""
    name, configuration = named_configuration(value, "a chunk grid")
    if name not in _GRIDS:
        raise ValueError(f"the chunk grid {name!r} is unknown")
    extra = sorted(configuration.keys() - {*_GRIDS[name]})
    if extra:
        raise ValueError(f"the {name} grid has no parameter {extra[0]!r}")
    if name == "regular":
        chunks = configuration.get("chunk_shape")
        if not isinstance(chunks, list) or any(type(size) is not int or size < 1 for size in chunks):
            raise ValueError(f"chunk_shape: expected positive integers, found {shown(chunks)}")
        return parse_chunks(chunks, shape, itemsize), ()
    if configuration.get("kind") != "inline":
        raise ValueError(f"kind: expected 'inline', found {shown(configuration.get('kind'))}")
    lengths = configuration.get("chunk_shapes")
    if not isinstance(lengths, list) or len(lengths) != len(shape):
        raise ValueError(f"chunk_shapes: expected lengths for {len(shape)} axes, found {shown(lengths)}")
    axes = [_edges(along, size) for along, size in zip(lengths, shape, strict=True)]
    edges = tuple([along for _, along in axes])
    return parse_chunks([longest for longest, _ in axes], shape, itemsize), edges if any(edges) else ()


_GRIDS: Final = {"regular": ("chunk_shape",), "rectilinear": ("kind", "chunk_shapes")}


def _edges(value: Any, size: int) -> tuple[int, Sequence[int]]:
    """The longest chunk of an axis, and the edges of chunks up to its end; no edges for chunks of one length.

    Lengths are one for all chunks, one for each, or runs of ``[length, count]``. [zarr-extensions, "rectilinear"]
    """
    if type(value) is int:
        value = [[value, size or 1]]
    if not isinstance(value, list) or not value:
        raise ValueError(f"chunk_shapes: expected a length or a list of lengths, found {shown(value)}")
    runs = np.ones((len(value), 2), np.int64)
    for start in range(0, len(value), 4096):  # a call that takes a million lengths would hold Python's lock for long
        numbers = batch = value[start : start + 4096]
        kinds = {*map(type, batch)}
        if kinds != {int}:
            numbers = [n for run in batch for n in (run if type(run) is list and len(run) == 2 else (run, 1))]
            kinds = {*map(type, numbers)}
        if kinds != {int} or (table := np.reshape(numbers, (len(batch), -1))).min() < 1 or table.max() > MAX_SIZE:
            wrong = next(run for run in batch if not _is_run(run))
            raise ValueError(f"chunk_shapes: expected a length or [length, count], found {shown(wrong)}")
        runs[start : start + 4096, : table.shape[1]] = table
    lengths, counts = runs[:, 0], np.minimum(runs[:, 1], -(-max(size, 1) // runs[:, 0]))
    ends = np.cumsum(lengths * counts, dtype=np.uint64)  # exact up to the first one beyond the axis
    last = int(np.argmax(ends >= size))
    if ends[last] < size:
        raise ValueError(f"chunk_shapes: the chunks end before the axis does, at {size}")
    lengths, counts = lengths[: last + 1], counts[: last + 1]
    before = int(ends[last - 1]) if last else 0
    counts[last] = max(1, -(-(size - before) // int(lengths[last])))
    longest = int(np.max(lengths))
    if bool((lengths == longest).all()):
        return longest, ()
    if counts.sum() > MAX_INDEX:
        raise ValueError(f"chunk_shapes: more than {MAX_INDEX} chunks of different lengths along an axis")
    edges = array("q", [0])
    edges.frombytes(np.cumsum(np.repeat(lengths, counts)).tobytes())
    return longest, edges


def _is_run(run: Any) -> bool:
    numbers = run if type(run) is list and len(run) == 2 else (run, 1)
    return all(type(number) is int and 1 <= number <= MAX_SIZE for number in numbers)


def parse_key_encoding(value: Any) -> tuple[str, Separator]:
    """The prefix and the separator of chunk keys; raises `ValueError`."""
    name, configuration = named_configuration(value, "a chunk key encoding")
    if name not in ("default", "v2"):
        raise ValueError(f"the chunk key encoding {name!r} is unknown")
    extra = sorted(configuration.keys() - {"separator"})
    separator = configuration.get("separator", "/" if name == "default" else ".")
    if extra or separator not in ("/", "."):
        raise ValueError(f"{shown(extra[0] if extra else separator)}: expected a separator, '/' or '.'")
    return ("c" if name == "default" else ""), separator


def parse_names(value: Any, rank: int) -> tuple[str | None, ...] | None:
    """Dimension names, None for an unnamed one; None for null. Raises `ValueError`."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != rank:
        raise ValueError(f"expected a list of {rank} names, found {shown(value)}")
    if any(name is not None and not isinstance(name, str) for name in value):
        raise ValueError(f"expected names or null, found {shown(value)}")
    return tuple(value)


# --- new documents ---------------------------------------------------------------------------------------------------


def document_of(
    metadata: ArrayMetadata, attributes: Mapping[str, Any], names: Sequence[str | None] | None
) -> dict[str, Any]:
    """The ``zarr.json`` of an array of Zarr v2, with the same chunk keys and stored chunks.

    ``names`` of its dimensions. A fill value of null becomes zero. Raises `ValueError` if v3 has no such array.
    """
    dtype, codecs = metadata.dtype, metadata.codecs
    data_type = data_type_of(dtype.json, codecs[0]["id"] if dtype.numpy.hasobject and codecs else None)
    fill = format_fill(metadata.fill, data_type)
    encoded = codecs_of(dtype, metadata.order, codecs, len(metadata.shape))
    keys = {"name": "v2", "configuration": {"separator": metadata.dimension_separator}}
    return new_array(metadata.shape, metadata.chunks, data_type, fill, encoded, keys, attributes, names)


def new_array(  # noqa: PLR0917 - the members of a document, in their order
    shape: Sequence[int],
    chunks: Sequence[int],
    data_type: Any,
    fill: Any,
    codecs: Sequence[NamedConfig],
    keys: NamedConfig,
    attributes: Mapping[str, Any],
    names: Sequence[str | None] | None,
) -> dict[str, Any]:
    """The ``zarr.json`` of an array; ``chunks`` is the shape of a stored object."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": keys,
        "fill_value": fill,
        "codecs": list(codecs),
        "attributes": dict(attributes),
        **({} if names is None else {"dimension_names": list(names)}),
    }


def new_group(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The ``zarr.json`` of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}
