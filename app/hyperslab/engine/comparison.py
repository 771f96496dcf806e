"""Comparison of a request with a stored array: whether that is what a new one would be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from hyperslab.engine.chunk_shape import (
    ChunkLayout,
    inner_shapes,
    parse_aspect_ratio,
    parse_chunk_layout,
    parse_elements,
    requested_chunks,
    without_soft,
)
from hyperslab.engine.codec_config import FROM_ITEMS, TO_ITEMS, CodecConfig, complete, plain_config, sized_shuffle
from hyperslab.engine.constraints import CONSTRAINTS, check_units, parse_codec, parse_domain, parse_schema, parse_units
from hyperslab.engine.creation import (
    V3_MEMBERS,
    Request,
    checked,
    has_shards,
    new_document,
    new_fill,
    parse_shards,
    requested_chain,
    with_plain_dtype,
)
from hyperslab.engine.dtypes import dtype_of, parse_dtype
from hyperslab.engine.fill_value import parse_fill_value, parse_new_item, same_object
from hyperslab.engine.metadata import (
    ArrayMetadata,
    parse_compressor,
    parse_filters,
    parse_order,
    parse_separator,
    parse_shape,
)
from hyperslab.engine.schema import schema_document
from hyperslab.engine.v3 import parse_key_encoding, parse_names
from hyperslab.engine.v3_codecs import completed
from hyperslab.errors import BadDefinition, shown
from hyperslab.wire.data_types import OBJECTS, named_configuration, named_type


def first_difference(wanted: Mapping[str, Any], stored: ArrayMetadata) -> tuple[str, Any, Any] | None:
    """The first requested member that a stored array does not match: name, requested and stored value.

    Equivalent notations are equal, and soft constraints match everything. Unlike in TensorStore, the separator is
    compared with the effective one. Raises `BadDefinition` for invalid members.
    """
    wanted = with_plain_dtype(wanted, stored.zarr_format)
    if stored.zarr_format == 2:
        fits, is_v3 = FITS, wanted.get("zarr_format") == 3
        members = {name: value for name, value in wanted.items() if name not in V3_MEMBERS or not is_v3}
    else:
        fits, of_codecs = FITS_V3, () if wanted.get("codecs") is None else ("compressor", "filters", "order")
        members = {name: value for name, value in wanted.items() if value is not None or name not in of_codecs}
        filters = members.get("filters")
        if isinstance(filters, list) and len(filters) >= len(stored.codecs):  # then the last one is not a compressor
            stored = replace(stored, filters=stored.codecs or None, compressor=None)
    read = Request(members, tuple(fits))
    for name, does_fit in fits.items():
        if not read.leaves_open(name) and not read(name, partial(does_fit, stored)):
            schema = schema_document(stored)
            if name == "schema" and (misfit := _misfit(stored, members[name])) is not None:
                return f"schema.{misfit}", members[name][misfit], schema.get(misfit)
            document = schema if name in ("chunk_layout", *CONSTRAINTS) else stored.document
            return name, members[name], document.get(name, getattr(stored, name, None))
    return None


def checked_document(request: Mapping[str, Any], attributes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`new_document` of a request whose members may say one thing twice: in constraints, or as a node document does.
    Raises `BadDefinition` if they differ."""
    document = new_document(request, attributes)
    if any(request.get(name) is not None for name in CONSTRAINTS):
        difference = first_difference(request, checked(document))
        if difference is not None:
            name, wanted, held = difference
            raise BadDefinition(name, f"expected {shown(held)}, as other members have it, found {shown(wanted)}")
    return document


def _fits_chunks(stored: ArrayMetadata, value: Any) -> bool:
    sizes = () if value is True else requested_chunks(value, stored.shape, stored.itemsize)
    return all(size in (0, chunk) for size, chunk in zip(sizes, stored.chunks, strict=False))


def _fits_layout(stored: ArrayMetadata, value: Any) -> bool:
    """Compares hard constraints on shape and order only, as TensorStore does."""
    inner, of_shards = inner_shapes(stored.dtype), {}
    if stored.levels and isinstance(value, Mapping):  # a "chunk" is for reads and writes
        of_shards = {name: value[name] for name in ("chunk", "write_chunk") if name in value}
        value = {name: item for name, item in value.items() if name != "write_chunk"}
    for layout, chunks in ((value, stored.chunks), (of_shards, stored.stored_grid.chunks)):
        parse_chunk_layout(layout, stored.rank, ChunkLayout(), inner)
        hard = parse_chunk_layout(without_soft(layout), stored.rank, ChunkLayout(), inner)
        fits = all(size in (0, -1, chunk) for size, chunk in zip(hard.chunk_shape, chunks, strict=True))
        if not (fits and (stored.rank < 2 or hard.order in (None, stored.order))):
            return False
    return True


def _complete(config: CodecConfig | None) -> dict[str, Any] | None:
    members = {} if config is None else complete(plain_config(config))
    return {name: value for name, value in members.items() if name != "typesize"} or None  # implied by the dtype


def _fits_filters(stored: ArrayMetadata, value: Any) -> bool:
    wanted = [sized_shuffle(config, stored.itemsize) for config in parse_filters(value) or ()]
    return [*map(_complete, wanted)] == [*map(_complete, stored.filters or ())]


def _fits_compressor(stored: ArrayMetadata, value: Any) -> bool:
    return _complete(parse_compressor(value)) == _complete(stored.compressor)


def _same_item(wanted: np.ndarray, found: np.ndarray) -> bool:
    """Whether two fill values of a dtype have the same bits; -0.0 is not 0.0."""
    return same_object(wanted[()], found[()]) if found.dtype.hasobject else wanted.tobytes() == found.tobytes()


def _fits_fill_value(stored: ArrayMetadata, value: Any) -> bool:
    """Compares fill values; null differs from zero."""
    parse = parse_new_item if isinstance(value, Mapping) else parse_fill_value
    wanted, stored_value = parse(value, stored.dtype, stored.codecs), stored.fill_value
    return wanted is stored_value if wanted is None or stored_value is None else _same_item(wanted, stored_value)


def _fits_constraint(name: str, stored: ArrayMetadata, value: Any) -> bool:
    return _fits_schema(stored, {name: value})


def _fits_schema(stored: ArrayMetadata, value: Any) -> bool:
    """Whether a schema fits the array as a whole, or one of its fields."""
    return _misfit(stored, value) is None


def _misfit(stored: ArrayMetadata, value: Any) -> str | None:
    """The first member of a schema that does not fit, as that of the whole array; None if it fits that or a field."""
    wanted, misfit = parse_schema(value), None
    for name in (None, *(field.name for field in stored.dtype.fields)):
        view = schema_document(stored, name)
        found = next((member for member in wanted if not _fits_view(stored, view, member, wanted[member])), None)
        if found is None:
            return None
        misfit = misfit or found
    return misfit


def _fits_view(stored: ArrayMetadata, view: Mapping[str, Any], name: str, value: Any) -> bool:
    """Whether a member of a schema fits a view of an array."""
    if name == "domain":
        ends, labels = parse_domain(value)
        names = [*(stored.dimension_names or ()), *([None] * len(ends))]
        fits = all(not label or name in (None, label) for label, name in zip(labels or (), names, strict=False))
        sizes = [end[0] if isinstance(end, list) else end for end in view["domain"].get("exclusive_max", ())]
        return fits and len(ends) == len(sizes) and all(a in (None, b) for a, b in zip(ends, sizes, strict=True))
    if name in ("chunk_layout", "dimension_units"):
        return _fits_layout(stored, value) if name == "chunk_layout" else _fits_units(stored, view, value)
    if name == "codec":
        zarr_format, members = parse_codec(value)
        rules = {**FITS_V3, "codecs": _fits_codec_constraint} if stored.zarr_format == 3 else FITS
        return zarr_format == stored.zarr_format and all(rules[member](stored, members[member]) for member in members)
    stored_value = view.get(name)
    if name == "fill_value" and isinstance(value, list) and len(value) == 1:
        value = value[0]
    if name != "fill_value" or stored_value is None:
        return type(value) is not bool and bool(value == stored_value)
    shape = np.shape(np.asarray(stored_value, object))
    try:
        return bool(np.broadcast_to(np.asarray(value, object), shape).tolist() == stored_value)
    except ValueError:
        return False


def _fits_units(stored: ArrayMetadata, view: Mapping[str, Any], value: Any) -> bool:
    """Whether no axis has another unit, as in TensorStore; an axis without any fits all."""
    units, there = parse_units(value), parse_units(view.get("dimension_units"))
    check_units(units, stored.zarr_format)
    fits = all(None in pair or pair[0] == pair[1] for pair in zip(units, there, strict=False))
    return fits and len(units) in (stored.rank, view["rank"])


FITS: Final[Mapping[str, Callable[[ArrayMetadata, Any], bool]]] = {
    "zarr_format": lambda stored, value: value == stored.zarr_format,
    "shape": lambda stored, value: parse_shape(value) == stored.shape,
    "dtype": lambda stored, value: parse_dtype(value).numpy == stored.dtype.numpy,
    "chunks": _fits_chunks,
    "chunk_layout": _fits_layout,
    "chunk_elements": lambda _, value: parse_elements(value) is not None,
    "chunk_aspect_ratio": lambda stored, value: parse_aspect_ratio(value, stored.rank) != (),
    "order": lambda stored, value: parse_order(value) == stored.order,
    "compressor": _fits_compressor,
    "filters": _fits_filters,
    "fill_value": _fits_fill_value,
    "dimension_separator": lambda stored, value: parse_separator(value) == stored.dimension_separator,
    **{name: partial(_fits_constraint, name) for name in CONSTRAINTS if name != "schema"},
    "schema": _fits_schema,
}
"""Predicates by member: whether a stored array of Zarr v2 matches the requested value; they raise `ValueError`."""


# --- Zarr v3 ---------------------------------------------------------------------------------------------------------

_RECASTING: Final = (*TO_ITEMS, *FROM_ITEMS, "scale_offset", "cast_value", "byteswap", "bits")
"""Codecs that hide the byte order of the array's items."""


def _fits_dtype(stored: ArrayMetadata, value: Any) -> bool:
    """Whether byte order fits, that of the stored items: irrelevant for records, which are little-endian, and behind
    codecs that change it."""
    dtype, actual = parse_dtype(value, v3=True).numpy, stored.dtype.numpy
    if dtype.names or any(config["id"] in _RECASTING for config in stored.codecs):
        return dtype.newbyteorder("<") == actual.newbyteorder("<")
    return dtype == actual


def _fits_data_type(stored: ArrayMetadata, value: Any) -> bool:
    """Whether the types are equal; ``variable_length_bytes`` is ``bytes``, and ``structured`` is ``struct``."""
    wanted, actual = ((dtype_of(kind).numpy, OBJECTS.get(named_type(kind)[0])) for kind in (value, _data_type(stored)))
    return wanted == actual


def _data_type(stored: ArrayMetadata) -> Any:
    return stored.document["data_type"]


def _fits_grid(stored: ArrayMetadata, value: Any) -> bool:
    wanted, actual = (named_configuration(grid, "a chunk grid") for grid in (value, stored.document["chunk_grid"]))
    return wanted == actual


def _fits_shards(stored: ArrayMetadata, value: Any) -> bool:
    wanted = parse_shards(value, stored.rank)
    if wanted is None or not stored.levels:
        return wanted is None and not stored.levels
    shards = zip(wanted, stored.levels[0].shape, stored.shape, strict=True)
    return all(size in (0, shard) or (size == -1 and shard >= n) for size, shard, n in shards)


def _fits_codecs(stored: ArrayMetadata, value: Any) -> bool:
    """Whether codecs of a chunk fit, or with ``sharding_indexed`` all."""
    data_type, whole = _data_type(stored), stored.stored_grid.chunks
    is_swapped = any(config["id"] == "byteswap" for config in stored.codecs)
    codecs = completed(value, dtype_of(data_type, ">") if is_swapped else stored.dtype, stored.rank)
    requested = requested_chain(stored.document["codecs"], whole, data_type)
    if has_shards(codecs):
        return requested_chain(codecs, whole, data_type) == requested
    return requested_chain(codecs, stored.chunks, data_type) == replace(requested, shards=())


def _fits_codec_constraint(stored: ArrayMetadata, value: Any) -> bool:
    """Whether codecs fit, of which members that are left out may be any. [TensorStore, "Codec"]"""
    codecs = completed(stored.document["codecs"], stored.dtype, stored.rank)
    if not has_shards(value):
        while (first := codecs[0])["name"] == "sharding_indexed":
            codecs = first["configuration"]["codecs"]
    return _includes(codecs, value) or (has_shards(value) <= bool(stored.levels) and _fits_codecs(stored, value))


def _includes(found: Any, wanted: Any) -> bool:
    """Whether codecs are of the same names, with the members that are wanted."""
    if not isinstance(found, list) or not isinstance(wanted, list) or len(found) != len(wanted):
        return bool(found == wanted)
    for have, want in zip(found, wanted, strict=True):
        name, members = named_configuration(want, "a codec", optional=True)
        configuration = have.get("configuration", {})
        lists = [member for member in members if member in ("codecs", "index_codecs")]
        fits = all(configuration.get(member) == members[member] for member in members if member not in lists)
        if (
            name != have["name"]
            or not fits
            or not all(_includes(configuration[member], members[member]) for member in lists)
        ):
            return False
    return True


def _fits_v3_filters(stored: ArrayMetadata, value: Any) -> bool:
    """Whether filters fit; the codec of variable-length items is implied."""
    is_implied = stored.dtype.numpy.hasobject and not value and len(stored.filters or ()) == 1
    return _fits_filters(stored, value) or is_implied


def _fits_v3_compressor(stored: ArrayMetadata, value: Any) -> bool:
    """Whether a compressor of Zarr v2 or v3 fits. Null fits an array with filters only."""
    compressor = stored.compressor
    if value is None and compressor is not None:
        return compressor["id"] in (*TO_ITEMS, "shuffle") or "32" in compressor["id"]
    if isinstance(value, dict) and "name" in value:
        codecs = ["bytes", *completed([value], stored.dtype, stored.rank)]
        value = requested_chain(codecs, stored.chunks, "uint8").configs[-1]
    elif isinstance(value, dict) and value.get("shuffle") == -1:
        itemsize = stored.itemsize if compressor is None else compressor.get("typesize") or stored.itemsize
        value = {**value, "shuffle": 1 if itemsize > 1 else 2}
    return _fits_compressor(stored, value)


FITS_V3: Final[Mapping[str, Callable[[ArrayMetadata, Any], bool]]] = {
    **FITS,
    "dtype": _fits_dtype,
    "data_type": _fits_data_type,
    "chunk_grid": _fits_grid,
    "shards": _fits_shards,
    "codecs": _fits_codecs,
    "compressor": _fits_v3_compressor,
    "filters": _fits_v3_filters,
    "order": lambda stored, value: stored.rank < 2 or FITS["order"](stored, value),
    "fill_value": lambda stored, value: _same_item(new_fill(value, _data_type(stored), stored.dtype), stored.fill),
    "chunk_key_encoding": lambda of, value: parse_key_encoding(value) == (of.grid.prefix, of.grid.separator),
    "dimension_names": lambda stored, value: parse_names(value, stored.rank) == stored.dimension_names,
}
"""Predicates for arrays of Zarr v3."""
