"""Creation of arrays: the documents of new ones, in the form that zarr-python and TensorStore read alike.

Omitted members have the defaults of zarr-python, 2 for arrays of Zarr v2 and 3 for those of Zarr v3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from hyperslab.engine.chunk_shape import (
    ChunkLayout,
    choose_chunks,
    chosen_chunks,
    inner_shapes,
    parse_aspect_ratio,
    parse_chunk_layout,
    parse_chunk_shape,
    parse_elements,
    requested_chunks,
)
from hyperslab.engine.codec_config import (
    DEFAULT,
    CodecConfig,
    check_writable,
    complete_new,
    plain_config,
    sized_shuffle,
)
from hyperslab.engine.codecs import make_codec
from hyperslab.engine.constraints import CONSTRAINTS, with_constraints
from hyperslab.engine.dtypes import DataType, canonical_json, data_type_of, dtype_of, endian_of, parse_dtype
from hyperslab.engine.fill_value import (
    check_new_item,
    fill_of,
    format_fill,
    format_fill_value,
    parse_new_item,
    zero_item,
)
from hyperslab.engine.metadata import (
    REQUIRED,
    ArrayMetadata,
    check_codecs,
    integral,
    parse_compressor,
    parse_filters,
    parse_order,
    parse_separator,
    parse_shape,
)
from hyperslab.engine.v3 import from_document, new_array, parse_key_encoding, parse_names
from hyperslab.engine.v3_codecs import Chain, NamedConfig, check_filters, codecs_of, completed, parse_codecs, sharded
from hyperslab.errors import BadDefinition, BadMetadata, CodecRefused, NotRepresentable, shown
from hyperslab.wire import numpy_dtype
from hyperslab.wire.data_types import (
    OBJECTS,
    RECORDS,
    implied_codec,
    named_configuration,
    named_dtype,
    named_type,
    with_records,
)
from hyperslab.wire.items import has_no_unit

T = TypeVar("T")
Sizes = tuple[int, ...]

V2_MEMBERS: Final = (
    "zarr_format",
    "shape",
    "dtype",
    "chunks",
    "chunk_elements",
    "chunk_aspect_ratio",
    "chunk_layout",
    "order",
    "compressor",
    "filters",
    "fill_value",
    "dimension_separator",
)
"""Members of a request; ``shape`` and ``dtype`` are required."""
V3_MEMBERS: Final = ("data_type", "chunk_grid", "shards", "codecs", "chunk_key_encoding")
"""Members only for new arrays of Zarr v3."""
MEMBERS: Final = (*V2_MEMBERS, *V3_MEMBERS, "dimension_names", *CONSTRAINTS)

NULL_MEANS_NONE: Final = frozenset({"compressor", "filters", "fill_value"})
"""Members for which null is a value; for others it means absent."""
INNER_ELEMENTS: Final = 1 << 18
"""Target number of elements of a chunk in a shard, as readers fetch such chunks one by one."""
SHARD_BYTES: Final = 64 << 20
"""Target size of a shard, as partial changes read and store all of it."""
V3_DEFAULT: Final[CodecConfig] = {"id": "zstd", "level": 0, "checksum": False}


class Request:
    """Parser of a request's members, whose errors name the member; raises `BadDefinition` for others than ``known``."""

    def __init__(self, members: Mapping[str, Any], known: Sequence[str], what: str = "an array") -> None:
        for name in members:
            if name not in known:
                raise BadDefinition(name, f"is no member of {what}; known are {', '.join(known)}")
        self.members = members

    def leaves_open(self, name: str) -> bool:
        """Whether a member is absent, or null without a meaning."""
        return name not in self.members or (self.members[name] is None and name not in NULL_MEANS_NONE)

    def __call__(self, name: str, parse: Callable[[Any], T], *default: Any) -> T:
        """The parsed member, or the parsed default; without a default the member is required. Raises
        `BadDefinition`."""
        if name not in self.members and not default:
            raise BadDefinition(name, "is missing")
        value = default[0] if default and self.leaves_open(name) else self.members[name]
        try:
            return parse(value)
        except ValueError as error:
            raise BadDefinition(name, str(error)) from None


def requested_format(members: Mapping[str, Any]) -> int:
    """The Zarr format requested for an array or a group, by default 2; raises `BadDefinition`."""
    given = integral(members.get("zarr_format", 2) or 2)
    if given not in (2, 3):
        raise BadDefinition("zarr_format", f"expected 2 or 3, found {shown(members['zarr_format'])}")
    of_v3 = next((name for name in V3_MEMBERS if members.get(name) is not None), None)
    if given == 2 and of_v3 is not None:
        raise BadDefinition(of_v3, 'is a member of arrays of Zarr v3: add "zarr_format": 3')
    return given


def new_document(request: Mapping[str, Any], attributes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The complete ``.zarray`` of a new array, or of Zarr v3 the ``zarr.json``, which holds the ``attributes``.

    ``chunks`` is a list (a size, 0 for free, -1 or null for the whole axis; omitted axes are whole), one size for all
    axes, true for zarr-python's guess or false for one chunk; without it, ``chunk_elements``, ``chunk_aspect_ratio``
    and TensorStore's ``chunk_layout`` apply. Defaults of Zarr v2: order C, Blosc with LZ4 (``compressor: null`` for
    none), no filters, a fill value of zero, separator ``"."``.

    Zarr v3 also has ``data_type`` for ``dtype``; ``shards``, the shape of a stored object: a list (0 for free, -1 or
    null for the whole axis), one size for all axes, true or ``"auto"``; ``codecs`` for ``compressor``, ``filters`` and
    ``order``: those of a chunk, or with ``sharding_indexed`` all; ``chunk_grid`` as stored; ``chunk_key_encoding`` for
    ``dimension_separator``; ``dimension_names``. Defaults: no shards, Zstandard, keys like ``c/0/0``, a fill value of
    zero (``"NaT"`` for a time without a unit), also for null. Raises `BadDefinition`, which names the member.
    """
    zarr_format = requested_format(request)
    request = with_plain_dtype(with_constraints(request, zarr_format), zarr_format)
    return _new_v2(request) if zarr_format == 2 else _new_v3(request, attributes or {})


def with_plain_dtype(request: Mapping[str, Any], zarr_format: int) -> Mapping[str, Any]:
    """A request whose dtype is as in a document of this format, from any notation of `named_dtype`. A dtype of objects
    implies its filter. Raises `BadDefinition`."""
    read = Request(request, tuple(request))
    members = dict(request)
    if zarr_format == 3 and not read.leaves_open("data_type") and _is_no_data_type(members["data_type"]):
        members["dtype"] = members.pop("data_type")
    if members.get("dtype") is None:
        return request
    dtype = members.pop("dtype")
    codec = implied_codec(dtype)
    named = {"dtype": read("dtype", lambda _: named_dtype(dtype), dtype)}
    if zarr_format == 3 and codec in OBJECTS.values():
        named = {"data_type": data_type_of("|O", codec)}
    elif zarr_format == 3 and isinstance(dtype, Mapping) and "object_codec_id" not in dtype:
        named = {"data_type": dtype}
    elif codec is not None and not members.get("filters"):
        named["filters"] = [{"id": codec}]
    return {**members, **named}


def _is_no_data_type(value: Any) -> bool:
    """Whether a ``data_type`` is not of Zarr v3, but a valid dtype in other notation."""
    try:
        dtype_of(value)
    except ValueError:
        with suppress(ValueError):
            return parse_dtype(named_dtype(value), v3=True) is not None
    return False


def _new_v2(request: Mapping[str, Any]) -> dict[str, Any]:
    read = Request(request, V2_MEMBERS)
    shape = read("shape", parse_shape)
    dtype = read("dtype", lambda value: _not_too_large(parse_dtype(value)))
    layout = _read_layout(read, shape, dtype)
    filters = read("filters", parse_filters, None)
    document = {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(chosen_chunks(shape, dtype, layout)),
        "dtype": canonical_json(dtype.json),
        "compressor": read("compressor", parse_compressor, DEFAULT),
        "fill_value": None,
        "order": layout.order or "C",
        "filters": None if filters is None else list(filters),
        "dimension_separator": read("dimension_separator", parse_separator, "."),
    }
    metadata = checked(document)
    check_usable(metadata)
    nbytes = 0 if metadata.filters else metadata.chunk_nbytes
    document["compressor"] = read("compressor", lambda _: complete_new(metadata.compressor, nbytes), DEFAULT)
    document["filters"] = None if metadata.filters is None else list(metadata.filters)
    if not read.leaves_open("fill_value"):
        document["fill_value"] = read("fill_value", partial(_encode_fill, metadata))
    elif dtype.json not in ("float8_e8m0fnu", "float4_e2m1fn"):  # these have no zero that all libraries read
        document["fill_value"] = format_fill_value(metadata.fill)
    return document


def _new_v3(request: Mapping[str, Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    read = Request(_with_grid(_with_shards(request)), MEMBERS)
    shape = read("shape", parse_shape)
    data_type, dtype = _read_type(read)
    layout = _read_layout(read, shape, dtype)
    shards = read("shards", lambda value: parse_shards(value, len(shape)), None)
    ordered = not read.leaves_open("dtype") and not dtype.fields and dtype.json != "bfloat16"
    complete = partial(completed, dtype=dtype, rank=len(shape), ordered=ordered)
    requested = None if read.leaves_open("codecs") else read("codecs", complete)
    if requested is not None:
        for name in ("compressor", "filters", "order"):
            if read.members.get(name) is not None:
                raise BadDefinition(name, "is said by codecs")
    if requested is not None and has_shards(requested):
        if shards is None or min(shards, default=1) < 1:
            chunk = requested[0].get("configuration", {}).get("chunk_shape")
            if not isinstance(chunk, list) or len(chunk) != len(shape) or not all(integral(n) for n in chunk):
                raise BadDefinition("shards", "expected the shape of a shard, as codecs say what it holds")
            shards = _shards(shards or (0,) * len(shape), shape, tuple(chunk), dtype)
        stored, codecs, chunks = shards, requested, requested_chain(requested, shards, data_type).shape
        if any(wanted not in (0, size) for wanted, size in zip(layout.chunk_shape, chunks, strict=False)):
            raise BadDefinition("chunks", f"expected {list(chunks)}, the chunk_shape of the codec sharding_indexed")
    else:
        chunks = stored = _chunks(shape, dtype, layout, shards)
        codecs = _codecs_of_v2(read, data_type, dtype, layout, chunks) if requested is None else requested
        if shards is not None:
            stored, codecs = _shards(shards, shape, chunks, dtype), sharded(codecs, chunks)
    if dtype.fields and requested_chain(codecs, stored, data_type).big:
        # which zarr-python 3.1 misreads; it knows no such records
        data_type, dtype = with_records(data_type, "struct"), dtype_of(data_type, ">")
    fill = read("fill_value", lambda value: format_fill(new_fill(value, data_type, dtype), data_type), None)
    names = read("dimension_names", lambda value: parse_names(value, len(shape)), None)
    document = new_array(shape, stored, data_type, fill, codecs, _key_encoding(read), attributes, names)
    metadata = checked(document)
    read("codecs", lambda _: check_filters(metadata.dtype.numpy, metadata.codecs), None)
    check_usable(metadata)
    return document


def completed_document(stated: Mapping[str, Any]) -> dict[str, Any]:
    """A complete ``.zarray`` from some members, others as in a new array.

    The text ``"null"`` means null where that is a value, as TOML has no null. Raises `BadDefinition`.
    """
    Request(stated, (*REQUIRED, "dimension_separator"), "a .zarray")
    document = {name: None if name in NULL_MEANS_NONE and value == "null" else value for name, value in stated.items()}
    document = {**with_plain_dtype(document, 2)}
    if isinstance(document.get("fill_value"), Mapping) and "dtype" in document:
        with suppress(ValueError):  # of the dtype, which is named below
            dtype = parse_dtype(document["dtype"])
            document["fill_value"] = Request(document, tuple(document))(
                "fill_value", lambda value: format_fill_value(parse_new_item(value, dtype))
            )
    if any(name not in document for name in REQUIRED):
        shaping = ("shape", "dtype", "chunks", "filters")
        document = _new_v2({name: document[name] for name in shaping if name in document}) | document
    with of_request():
        ArrayMetadata.from_document(document, ".zarray")
    return document


# --- checks of the document of a request -----------------------------------------------------------------------------


def checked(document: Mapping[str, Any]) -> ArrayMetadata:
    """The array of a ``.zarray`` or ``zarr.json`` of a request. Raises `BadDefinition`, also for codecs without an
    encoder."""
    with of_request():
        if document["zarr_format"] == 2:
            metadata: ArrayMetadata | None = ArrayMetadata.from_document(document, ".zarray")
        else:
            metadata = from_document(document, "zarr.json", exact=True).array
        if metadata is None:
            raise BadDefinition("node_type", "expected 'array', found 'group'")
        for index, config in enumerate(metadata.codecs):
            is_filter = metadata.zarr_format == 2 and index < len(metadata.filters or ())
            check_writable(config, f"filters[{index}]" if is_filter else "compressor", "")
    return metadata


@contextmanager
def of_request() -> Iterator[None]:
    """Translate errors of a document into `BadDefinition` of the request that it was made from."""
    try:
        yield
    except BadMetadata as error:
        raise BadDefinition(error.member or "document", error.reason) from None
    except CodecRefused as error:
        raise BadDefinition(error.member or "document", f"codec {error.codec!r}: {error.reason}") from None


def check_usable(metadata: ArrayMetadata) -> None:
    """Raise `BadDefinition` if the codecs cannot encode the fill value in this dtype. Small chunks are tried first, and
    larger ones before an error, as some codecs require a multiple of some size."""
    refusal = _refusal(metadata, 1 << 12) and _refusal(metadata, 16 << 20)
    if refusal is not None:
        member = "codecs" if metadata.zarr_format == 3 else "filters" if metadata.filters else "compressor"
        raise BadDefinition(member, f"nothing could be stored: {refusal}")


def _refusal(metadata: ArrayMetadata, nbytes: int) -> NotRepresentable | None:
    """The error of encoding and decoding a chunk of about ``nbytes`` with the fill value, if any."""
    chunks = list(metadata.chunks)
    for axis, size in enumerate(chunks):
        chunks[axis] = max(1, min(size, nbytes * size // (math.prod(chunks) * metadata.itemsize)))
    codecs = [config for config in metadata.codecs if config["id"] != "transpose"]  # its shape is that of the chunk
    codec = make_codec(tuple(chunks), metadata.dtype, metadata.order, codecs)
    filled = np.empty(chunks, metadata.dtype.numpy, order=metadata.order)
    filled[...] = metadata.fill
    if metadata.dtype.numpy.hasobject and metadata.codecs[0]["id"] == "vlen-array":  # needs items of its dtype
        item = np.zeros(1, numpy_dtype(metadata.codecs[0]["dtype"]))
        filled = np.fromiter([item] * filled.size, object, filled.size).reshape(chunks, order=metadata.order)
    try:
        codec.encode_readably(filled, ".zarray")
    except NotRepresentable as error:
        return error
    return None


# --- members ---------------------------------------------------------------------------------------------------------


def _read_layout(read: Request, shape: Sizes, dtype: DataType) -> ChunkLayout:
    """The constraints of a request on chunks and order."""
    rank = len(shape)
    hard = ChunkLayout(
        # with the extent for a whole axis, as -1 in a ``chunk_layout`` would be a soft constraint
        chunk_shape=read("chunks", lambda value: requested_chunks(value, shape, dtype.itemsize), None),
        aspect_ratio=read("chunk_aspect_ratio", lambda value: parse_aspect_ratio(value, rank), None),
        elements=read("chunk_elements", parse_elements, None),
        order=read("order", lambda value: None if value is None else parse_order(value), None),
    )
    return read("chunk_layout", lambda value: parse_chunk_layout(value, rank, hard, inner_shapes(dtype)), {})


def _read_type(read: Request) -> tuple[Any, DataType]:
    """The data type, in the byte order of a v2 ``dtype``. Records are always little-endian, as zarr-python reads no
    others."""
    if read.leaves_open("data_type") == read.leaves_open("dtype"):
        raise BadDefinition("data_type", "expected either data_type, or dtype as in Zarr v2")
    if not read.leaves_open("data_type"):
        dtype = read("data_type", lambda value: _not_too_large(dtype_of(value)))
        name, configuration = named_type(read.members["data_type"])
        if name in RECORDS:
            return with_records(read.members["data_type"], name), dtype
        return {"name": name, "configuration": configuration} if configuration else name, dtype
    requested = read("dtype", lambda value: _not_too_large(parse_dtype(value, v3=True)))
    filters = read("filters", parse_filters, None) or ({"id": "vlen-utf8"},)
    data_type = read("dtype", lambda value: data_type_of(value, filters[0]["id"]))
    return data_type, dtype_of(data_type, ">" if not requested.fields and endian_of(requested.json) == "big" else "<")


def _not_too_large(dtype: DataType) -> DataType:
    most = 1 << 20  # so that fill values fit into documents
    if dtype.itemsize > most:
        raise ValueError(f"an item of more than {most} bytes")
    return dtype


def _encode_fill(metadata: ArrayMetadata, value: Any) -> Any:
    """The JSON of a new fill value of Zarr v2; raises `ValueError` if other libraries would read another one."""
    encoded = format_fill_value(parse_new_item(value, metadata.dtype, metadata.codecs))
    parts = encoded if isinstance(encoded, list) else [encoded]
    if metadata.dtype.numpy.kind in "fc" and any(isinstance(part, str) and part.startswith("0x") for part in parts):
        raise ValueError("Zarr v2 has no spelling for a NaN with a payload that other libraries read")
    return encoded


def new_fill(value: Any, data_type: Any, dtype: DataType) -> np.ndarray:
    """The item of a requested fill value of Zarr v3; raises `ValueError`."""
    if value is None:
        if has_no_unit(dtype.numpy):
            return fill_of("NaT", data_type, dtype)
        return zero_item(dtype, [{"id": OBJECTS[named_type(data_type)[0]]}] if dtype.numpy.hasobject else ())
    item = fill_of(value, data_type, dtype)
    if has_no_unit(dtype.numpy) and format_fill(item, data_type) != "NaT":
        raise ValueError(f"zarr-python reads no number of a time without a unit: expected 'NaT', found {shown(value)}")
    if not dtype.numpy.hasobject:
        check_new_item(value, item)
    return item


def _with_shards(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request with the ``write_chunk`` of its layout as ``shards``, if that of ``read_chunk`` is another one, or
    has fewer elements."""
    layout = request.get("chunk_layout")
    parts = [layout.get(name) if isinstance(layout, Mapping) else None for name in ("read_chunk", "write_chunk")]

    def shape_and_size(part: Any) -> tuple[Any, int | None]:
        """The shape of a part of the layout, and its number of elements, also if that is soft."""
        if not isinstance(part, Mapping):
            return None, None
        counts = [part.get(name) for name in ("elements", "elements_soft_constraint")]
        return part.get("shape"), next((count for count in counts if type(count) is int and count > 0), None)

    (chunk, most), (shard, least) = map(shape_and_size, parts)
    if shard is None and least is not None and (chunk is not None or most is not None):
        sizes = [integral(size) or 0 for size in request["shape"]] if isinstance(request.get("shape"), list) else []
        shard = [*choose_chunks(sizes, elements=least)]
        if isinstance(chunk, list) and len(chunk) == len(shard):  # of whole chunks
            shard = [
                max(n, size // n * n) if type(n) is int and n > 0 else size
                for n, size in zip(chunk, shard, strict=True)
            ]
    is_smaller = most is not None and isinstance(shard, list) and all(type(n) is int for n in shard)
    is_smaller = is_smaller and most < math.prod(map(abs, shard))
    if not isinstance(layout, Mapping) or not isinstance(shard, list) or (chunk in (None, shard) and not is_smaller):
        return request
    rest = {name: value for name, value in layout.items() if name != "write_chunk"}
    shards = [0 if size is None else size for size in shard]
    return {**request, "chunk_layout": rest, **({} if request.get("shards") is not None else {"shards": shards})}


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
    is_sharded = (shards is not None and shards is not False) or (isinstance(codecs, list) and has_shards(codecs))
    member = "shards" if is_sharded else "chunks"
    stated = request.get(member)
    if stated is not None and stated is not True and stated not in ("auto", shape):
        raise BadDefinition("chunk_grid", f"says {shown(shape)}, and {member} {shown(stated)}")
    return {name: value for name, value in request.items() if name != "chunk_grid"} | {member: shape}


def parse_shards(value: Any, rank: int) -> Sizes | None:
    """Sizes by axis, 0 for free and -1 for the whole axis; None without shards. Raises `ValueError`."""
    if value is None or value is False:
        return None
    if value is True or value == "auto":
        return (0,) * rank
    size = integral(value)
    return parse_chunk_shape(value if size is None else [size] * rank, rank)


def has_shards(codecs: Sequence[Any]) -> bool:
    """Whether ``sharding_indexed`` is among codecs, in any form."""
    return "sharding_indexed" in [codec.get("name") if isinstance(codec, dict) else codec for codec in codecs]


def requested_chain(codecs: Any, shape: Sizes, data_type: Any) -> Chain:
    """`parse_codecs` of a request; raises `BadDefinition`."""
    with of_request():
        return parse_codecs(codecs, shape, data_type, "zarr.json")


def _chunks(shape: Sizes, dtype: DataType, layout: ChunkLayout, shards: Sizes | None) -> Sizes:
    """The shape of chunks; a chosen one divides the shards."""
    if shards is None:
        return chosen_chunks(shape, dtype, layout)
    within = tuple([min(size, shard) if shard > 0 else size for size, shard in zip(shape, shards, strict=True)])
    chunks = list(chosen_chunks(within, dtype, layout, INNER_ELEMENTS))
    requested = layout.chunk_shape or (0,) * len(shape)
    for axis, (chunk, fixed, shard) in enumerate(zip(chunks, requested, shards, strict=True)):
        if not fixed and shard > 0:  # few enough divisors to search
            parts = range(min(-(-shard // chunk), 1 << 16), 0, -1)
            chunks[axis] = shard // next(count for count in parts if shard % count == 0)
    return tuple(chunks)


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
    named, compressor, behind = read.members.get("compressor"), None, list[NamedConfig]()
    if isinstance(named, dict) and "name" in named:  # Zarr v3 form
        behind = read("compressor", lambda value: completed([value], dtype, len(chunks)))
    else:
        compressor = read("compressor", parse_compressor, V3_DEFAULT)
    with of_request():
        check_codecs(filters, compressor, "zarr.json", creating=True)
    filters = tuple([sized_shuffle(plain_config(config), dtype.itemsize) for config in filters])
    compressor = None if compressor is None else plain_config(compressor)
    nbytes = 0 if filters else math.prod(chunks) * dtype.itemsize
    full = read("compressor", lambda _: complete_new(compressor, nbytes), V3_DEFAULT)
    configs = (*filters, *([] if full is None else [full]))
    at_fault = "filters" if filters else "compressor"
    return [*read(at_fault, lambda _: codecs_of(dtype, layout.order or "C", configs, len(chunks)), None), *behind]


def _key_encoding(read: Request) -> NamedConfig:
    separator = read("dimension_separator", lambda value: value and parse_separator(value), None)
    default = {"name": "default", "configuration": {"separator": separator or "/"}}
    if separator is not None and not read.leaves_open("chunk_key_encoding"):
        raise BadDefinition("dimension_separator", "is said by chunk_key_encoding")
    prefix, separator = read("chunk_key_encoding", parse_key_encoding, default)
    return {"name": "default" if prefix else "v2", "configuration": {"separator": separator}}
