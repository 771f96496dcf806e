"""Creation of arrays of Zarr v3: the ``zarr.json`` of a new array, and comparison of a stored array with a request.

Omitted members have zarr-python 3's defaults, or those of a new Zarr v2 array.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from hyperslab.engine import creation
from hyperslab.engine.chunk_shape import ChunkLayout, choose_chunks, chosen_chunks, parse_chunk_shape
from hyperslab.engine.codec_config import CodecConfig, complete_new
from hyperslab.engine.creation import FITS, Fits, Request, check_usable, new_dtype, of_request, read_layout, same_item
from hyperslab.engine.dtypes import (
    OBJECTS,
    DataType,
    data_type_of,
    dtype_of,
    endian_of,
    named_configuration,
    named_type,
    parse_dtype,
)
from hyperslab.engine.fill_value import check_new_item, fill_of, format_fill, has_no_unit, zero_item
from hyperslab.engine.metadata import (
    ArrayMetadata,
    check_codecs,
    integral,
    parse_compressor,
    parse_filters,
    parse_format,
    parse_separator,
    parse_shape,
)
from hyperslab.engine.v3 import from_document, new_array, parse_key_encoding, parse_names
from hyperslab.engine.v3_codecs import (
    FROM_ITEMS,
    OWN_CODECS,
    TO_ITEMS,
    Chain,
    NamedConfig,
    check_filters,
    codecs_of,
    completed,
    parse_codecs,
    sharded,
)
from hyperslab.errors import BadDefinition, shown

V3_MEMBERS: Final = ("data_type", "chunk_grid", "shards", "codecs", "chunk_key_encoding")
"""Members only for new arrays of Zarr v3."""
MEMBERS: Final = (*creation.MEMBERS, *V3_MEMBERS, "dimension_names")

INNER_ELEMENTS: Final = 1 << 18
"""Target number of elements of a chunk in a shard, as readers fetch such chunks one by one."""
SHARD_BYTES: Final = 64 << 20
"""Target size of a shard, as partial changes read and store all of it."""
_DEFAULT: Final[CodecConfig] = {"id": "zstd", "level": 0, "checksum": False}

Sizes = tuple[int, ...]


def requested_format(members: Mapping[str, Any]) -> int:
    """The Zarr format requested for an array or a group, by default 2; raises `BadDefinition`."""
    found = integral(members.get("zarr_format", 2) or 2)
    if found not in (2, 3):
        raise BadDefinition("zarr_format", f"expected 2 or 3, found {shown(members['zarr_format'])}")
    of_v3 = next((name for name in V3_MEMBERS if members.get(name) is not None), None)
    if found == 2 and of_v3 is not None:
        raise BadDefinition(of_v3, 'is a member of arrays of Zarr v3: add "zarr_format": 3')
    return found


def new_document(request: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The complete ``zarr.json`` of a new array, in a form common to zarr-python 3 and TensorStore.

    Members are those of `creation.new_document`, with ``data_type`` for ``dtype``; ``shards``, the shape of a stored
    object: a list (0 for free, -1 or null for the whole axis), one size for all axes, true or ``"auto"``; ``codecs``
    for ``compressor``, ``filters`` and ``order``: those of a chunk, or with ``sharding_indexed`` all; ``chunk_grid`` as
    stored; ``chunk_key_encoding`` for ``dimension_separator``; ``dimension_names``. Defaults: no shards, Zstandard,
    keys like ``c/0/0``, a fill value of zero (``"NaT"`` for a time without a unit), also for null. Raises
    `BadDefinition`, which names the member.
    """
    read = Request(_with_grid(request), MEMBERS)
    read("zarr_format", lambda value: parse_format(value, 3))
    shape = read("shape", parse_shape)
    data_type, dtype = _read_type(read)
    layout = read_layout(read, shape, dtype)
    shards = read("shards", lambda value: _parse_shards(value, len(shape)), None)
    ordered = not read.leaves_open("dtype") and not dtype.fields and dtype.json != "bfloat16"
    complete = partial(completed, dtype=dtype, rank=len(shape), ordered=ordered)
    requested = None if read.leaves_open("codecs") else read("codecs", complete)
    if requested is not None:
        for name in ("compressor", "filters", "order"):
            if read.members.get(name) is not None:
                raise BadDefinition(name, "is said by codecs")
    if requested is not None and _has_shards(requested):
        if shards is None or min(shards, default=1) < 1:
            raise BadDefinition("shards", "expected the shape of a shard, as codecs say what it holds")
        stored, codecs, chunks = shards, requested, _chain(requested, shards, data_type).shape
        if any(wanted not in (0, size) for wanted, size in zip(layout.chunk_shape, chunks, strict=False)):
            raise BadDefinition("chunks", f"expected {list(chunks)}, the chunk_shape of the codec sharding_indexed")
    else:
        chunks = stored = _chunks(shape, dtype, layout, shards)
        codecs = _codecs_of_v2(read, data_type, dtype, layout, chunks) if requested is None else requested
        if shards is not None:
            stored, codecs = _shards(shards, shape, chunks, dtype), sharded(codecs, chunks)
    fill = read("fill_value", lambda value: format_fill(_parse_fill(value, data_type, dtype), dtype), None)
    names = read("dimension_names", lambda value: parse_names(value, len(shape)), None)
    document = new_array(shape, stored, data_type, fill, codecs, _key_encoding(read), attributes, names)
    metadata = checked(document)
    read("codecs", lambda _: check_filters(metadata.dtype.numpy, metadata.codecs), None)
    check_usable(metadata)
    return document


def checked(document: Mapping[str, Any]) -> ArrayMetadata:
    """The array described by a ``zarr.json`` of a request. Raises `BadDefinition`, also for codecs without an
    encoder."""
    with of_request():
        metadata = from_document(document, "zarr.json").array
        if metadata is None:
            raise BadDefinition("node_type", "expected 'array', found 'group'")
        of_v2 = [config for config in metadata.codecs if config["id"] not in OWN_CODECS]
        check_codecs(None, of_v2[-1] if of_v2 else None, "zarr.json", creating=True)
    return metadata


def _with_grid(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request with its ``chunk_grid`` expressed as ``chunks`` or ``shards``."""
    if request.get("chunk_grid") is None:
        return request
    try:
        name, configuration = named_configuration(request["chunk_grid"], "a chunk grid")
    except ValueError as error:
        raise BadDefinition("chunk_grid", str(error)) from None
    shape = configuration.get("chunk_shape")
    are_sizes = isinstance(shape, list) and all((integral(size) or 0) > 0 for size in shape)
    if name != "regular" or configuration.keys() != {"chunk_shape"} or not are_sizes:
        raise BadDefinition("chunk_grid", "expected a regular grid, with its chunk_shape")
    codecs, shards = request.get("codecs"), request.get("shards")
    has_shards = (shards is not None and shards is not False) or (isinstance(codecs, list) and _has_shards(codecs))
    member = "shards" if has_shards else "chunks"
    stated = request.get(member)
    if stated is not None and stated is not True and stated not in ("auto", shape):
        raise BadDefinition("chunk_grid", f"says {shown(shape)}, and {member} {shown(stated)}")
    return {name: value for name, value in request.items() if name != "chunk_grid"} | {member: shape}


def _read_type(read: Request) -> tuple[Any, DataType]:
    """The data type, in the byte order of a v2 ``dtype``. Records are always little-endian, as zarr-python reads no
    others."""
    if read.leaves_open("data_type") == read.leaves_open("dtype"):
        raise BadDefinition("data_type", "expected either data_type, or dtype as in Zarr v2")
    if not read.leaves_open("data_type"):
        dtype = read("data_type", lambda value: new_dtype(dtype_of(value)))
        name, configuration = named_type(read.members["data_type"])
        return {"name": name, "configuration": configuration} if configuration else name, dtype
    requested = read("dtype", lambda value: new_dtype(parse_dtype(value, v3=True)))
    filters = read("filters", parse_filters, None) or ({"id": "vlen-utf8"},)
    data_type = read("dtype", lambda value: data_type_of(value, filters[0]["id"]))
    return data_type, dtype_of(data_type, ">" if not requested.fields and endian_of(requested.json) == "big" else "<")


def _parse_shards(value: Any, rank: int) -> Sizes | None:
    """Sizes by axis, 0 for free and -1 for the whole axis; None without shards."""
    if value is None or value is False:
        return None
    if value is True or value == "auto":
        return (0,) * rank
    size = integral(value)
    return parse_chunk_shape(value if size is None else [size] * rank, rank)


def _has_shards(codecs: Sequence[Any]) -> bool:
    return "sharding_indexed" in [codec.get("name") if isinstance(codec, dict) else codec for codec in codecs]


def _chain(codecs: Any, shape: Sizes, data_type: Any) -> Chain:
    with of_request():
        return parse_codecs(codecs, shape, data_type, "zarr.json")


def _chunks(shape: Sizes, dtype: DataType, layout: ChunkLayout, shards: Sizes | None) -> Sizes:
    """The shape of chunks; a chosen one divides the shards."""
    if shards is None:
        return chosen_chunks(shape, dtype, layout)
    within = tuple([min(size, shard) if shard > 0 else size for size, shard in zip(shape, shards, strict=True)])
    chunks = chosen_chunks(within, dtype, layout, INNER_ELEMENTS)
    requested = layout.chunk_shape or (0,) * len(shape)
    found = list(chunks)
    for axis, (chunk, fixed, shard) in enumerate(zip(chunks, requested, shards, strict=True)):
        if not fixed and shard > 0:  # few enough divisors to search
            parts = range(min(-(-shard // chunk), 1 << 16), 0, -1)
            found[axis] = shard // next(count for count in parts if shard % count == 0)
    return tuple(found)


def _shards(requested: Sizes, shape: Sizes, chunks: Sizes, dtype: DataType) -> Sizes:
    """The shape of shards of whole chunks, of about `SHARD_BYTES` along free axes."""
    counts = tuple([size // chunk if size > 0 else size for size, chunk in zip(requested, chunks, strict=True)])
    for axis, (size, chunk) in enumerate(zip(requested, chunks, strict=True)):
        if size > 0 and size % chunk:
            raise BadDefinition("shards", f"axis {axis}: {size} is no multiple of {chunk}, the size of a chunk")
    grid = tuple([max(1, -(-n // chunk)) for n, chunk in zip(shape, chunks, strict=True)])
    most = max(1, SHARD_BYTES // (math.prod(chunks) * dtype.itemsize))
    counts = choose_chunks(grid, chunk_shape=counts, elements=most)
    return tuple([count * chunk for count, chunk in zip(counts, chunks, strict=True)])


def _codecs_of_v2(
    read: Request, data_type: Any, dtype: DataType, layout: ChunkLayout, chunks: Sizes
) -> list[NamedConfig]:
    """The codecs of a chunk, from filters, compressor and order."""
    filters = read("filters", parse_filters, None) or ()
    if dtype.numpy.hasobject and not filters:
        filters = ({"id": OBJECTS[named_type(data_type)[0]]},)
    named = read.members.get("compressor")
    if isinstance(named, dict) and "name" in named:  # Zarr v3 form
        behind, compressor = read("compressor", lambda value: completed([value], dtype, len(chunks))), None
    else:
        behind, compressor = [], read("compressor", parse_compressor, _DEFAULT)
    with of_request():
        check_codecs(filters, compressor, "zarr.json", creating=True)
    if compressor is not None:
        nbytes = 0 if filters else math.prod(chunks) * dtype.itemsize
        compressor = read("compressor", lambda _: complete_new(compressor or {}, chunk_nbytes=nbytes), _DEFAULT)
    configs = (*filters, *([] if compressor is None else [compressor]))
    at_fault = "filters" if filters else "compressor"
    return [*read(at_fault, lambda _: codecs_of(dtype, layout.order or "C", configs, len(chunks)), None), *behind]


def _key_encoding(read: Request) -> NamedConfig:
    separator = read("dimension_separator", lambda value: value and parse_separator(value), None)
    default = {"name": "default", "configuration": {"separator": separator or "/"}}
    if separator is not None and not read.leaves_open("chunk_key_encoding"):
        raise BadDefinition("dimension_separator", "is said by chunk_key_encoding")
    prefix, separator = read("chunk_key_encoding", parse_key_encoding, default)
    return {"name": "default" if prefix else "v2", "configuration": {"separator": separator}}


def _parse_fill(value: Any, data_type: Any, dtype: DataType) -> np.ndarray:
    if value is None:
        if has_no_unit(dtype.numpy):
            return np.array("NaT", dtype.numpy)
        return zero_item(dtype, [{"id": OBJECTS[named_type(data_type)[0]]}] if dtype.numpy.hasobject else ())
    item = fill_of(value, data_type, dtype)
    if has_no_unit(dtype.numpy) and not np.isnat(item):
        raise ValueError(f"zarr-python reads no number of a time without a unit: expected 'NaT', found {shown(value)}")
    if not dtype.numpy.hasobject:
        check_new_item(value, item)
    return item


# --- comparison with a stored array ----------------------------------------------------------------------------


def first_difference(wanted: Mapping[str, Any], stored: ArrayMetadata) -> tuple[str, Any, Any] | None:
    """As `creation.first_difference`, with a stored array of either format."""
    if stored.zarr_format == 2:
        members = {
            name: value for name, value in wanted.items() if name not in V3_MEMBERS or wanted.get("zarr_format") != 3
        }
        return creation.first_difference(members, stored)
    of_codecs = () if wanted.get("codecs") is None else ("compressor", "filters", "order")
    members = {name: value for name, value in wanted.items() if value is not None or name not in of_codecs}
    filters = members.get("filters")
    if isinstance(filters, list) and len(filters) >= len(stored.codecs):  # then the last one is not a compressor
        stored = replace(stored, filters=stored.codecs or None, compressor=None)
    return creation.first_difference(members, stored, _FITS_V3)


_RECASTING: Final = (*TO_ITEMS, *FROM_ITEMS, "scale_offset", "cast_value", "byteswap", "bits")
"""Codecs that hide the byte order of the array's items."""


def _fits_dtype(stored: ArrayMetadata, value: Any) -> bool:
    """Whether byte order fits, that of the stored items: irrelevant for records, which are little-endian, and behind
    codecs that change it."""
    dtype, found = parse_dtype(value, v3=True).numpy, stored.dtype.numpy
    if dtype.names or any(config["id"] in _RECASTING for config in stored.codecs):
        return dtype.newbyteorder("<") == found.newbyteorder("<")
    return dtype == found


def _fits_data_type(stored: ArrayMetadata, value: Any) -> bool:
    """Whether the types are equal; ``variable_length_bytes`` is ``bytes``, and ``structured`` is ``struct``."""
    wanted, found = dtype_of(value), stored.document["data_type"]
    return wanted.numpy == dtype_of(found).numpy and OBJECTS.get(named_type(value)[0]) == OBJECTS.get(named_type(found)[0])


def _fits_grid(stored: ArrayMetadata, value: Any) -> bool:
    wanted, found = (named_configuration(grid, "a chunk grid") for grid in (value, stored.document["chunk_grid"]))
    return wanted == found


def _fits_shards(stored: ArrayMetadata, value: Any) -> bool:
    wanted = _parse_shards(value, len(stored.shape))
    if wanted is None or not stored.levels:
        return wanted is None and not stored.levels
    found = zip(wanted, stored.levels[0].shape, stored.shape, strict=True)
    return all(size in (0, shard) or (size == -1 and shard >= n) for size, shard, n in found)


def _fits_codecs(stored: ArrayMetadata, value: Any) -> bool:
    """Whether codecs of a chunk fit, or with ``sharding_indexed`` all."""
    data_type = stored.document["data_type"]
    is_swapped = any(config["id"] == "byteswap" for config in stored.codecs)
    codecs = completed(value, dtype_of(data_type, ">") if is_swapped else stored.dtype, stored.rank)
    whole = stored.stored_grid.chunks
    found = _chain(stored.document["codecs"], whole, data_type)
    if _has_shards(codecs):
        return _chain(codecs, whole, data_type) == found
    return _chain(codecs, stored.chunks, data_type) == replace(found, shards=())


def _fits_filters(stored: ArrayMetadata, value: Any) -> bool:
    """Whether filters fit; the codec of variable-length items is implied."""
    return FITS["filters"](stored, value) or (
        stored.dtype.numpy.hasobject and not value and len(stored.filters or ()) == 1
    )


def _fits_compressor(stored: ArrayMetadata, value: Any) -> bool:
    """Whether a compressor of Zarr v2 or v3 fits. Null fits an array with filters only."""
    found = stored.compressor
    if value is None and found is not None:
        return found["id"] in (*TO_ITEMS, "shuffle") or "32" in found["id"]
    if isinstance(value, dict) and "name" in value:
        codecs = ["bytes", *completed([value], stored.dtype, stored.rank)]
        value = _chain(codecs, stored.chunks, "uint8").configs[-1]
    elif isinstance(value, dict) and value.get("shuffle") == -1:
        itemsize = stored.itemsize if found is None else found.get("typesize") or stored.itemsize
        value = {**value, "shuffle": 1 if itemsize > 1 else 2}
    return FITS["compressor"](stored, value)


def _fits_fill_value(stored: ArrayMetadata, value: Any) -> bool:
    return same_item(_parse_fill(value, stored.document["data_type"], stored.dtype), stored.fill)


def _fits_keys(stored: ArrayMetadata, value: Any) -> bool:
    return parse_key_encoding(value) == (stored.grid.prefix, stored.grid.separator)


_FITS_V3: Final[Fits] = {
    **FITS,
    "dtype": _fits_dtype,
    "data_type": _fits_data_type,
    "chunk_grid": _fits_grid,
    "shards": _fits_shards,
    "codecs": _fits_codecs,
    "compressor": _fits_compressor,
    "filters": _fits_filters,
    "order": lambda stored, value: len(stored.shape) < 2 or FITS["order"](stored, value),
    "fill_value": _fits_fill_value,
    "chunk_key_encoding": _fits_keys,
    "dimension_names": lambda stored, value: parse_names(value, len(stored.shape)) == stored.dimension_names,
}
