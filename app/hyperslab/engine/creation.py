"""Creation of Zarr v2 arrays: documents of new ones, and comparison of requests with stored ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from hyperslab.engine.chunk_shape import (
    ChunkLayout,
    chosen_chunks,
    parse_aspect_ratio,
    parse_chunk_layout,
    parse_elements,
    requested_chunks,
    without_soft,
)
from hyperslab.engine.codec_config import DEFAULT, CodecConfig, complete, complete_new, plain_config
from hyperslab.engine.codecs import make_codec
from hyperslab.engine.dtypes import DataType, canonical_json, named_dtype, parse_dtype
from hyperslab.engine.fill_value import format_fill_value, parse_fill_value, parse_new_item, same_object
from hyperslab.engine.metadata import (
    REQUIRED,
    ArrayMetadata,
    check_codecs,
    parse_compressor,
    parse_filters,
    parse_format,
    parse_order,
    parse_separator,
    parse_shape,
)
from hyperslab.engine.schema import schema_document
from hyperslab.errors import BadDefinition, BadMetadata, CodecRefused, NotRepresentable
from hyperslab.wire import numpy_dtype

T = TypeVar("T")

MEMBERS: Final = (
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


NULL_MEANS_NONE: Final = frozenset({"compressor", "filters", "fill_value"})
"""Members for which null is a value; for others it means absent."""


class Request:
    """Parser of a request's members, whose errors name the member; raises `BadDefinition` for others than ``known``."""

    def __init__(self, members: Mapping[str, Any], known: Sequence[str]) -> None:
        for name in members:
            if name not in known:
                raise BadDefinition(name, f"is no member of an array; known are {', '.join(known)}")
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


def read_layout(read: Request, shape: tuple[int, ...], dtype: DataType) -> ChunkLayout:
    """The constraints of a request on chunks and order."""
    rank = len(shape)
    hard = ChunkLayout(
        # with the extent for a whole axis, as -1 in a ``chunk_layout`` would be a soft constraint
        chunk_shape=read("chunks", lambda value: requested_chunks(value, shape, dtype.itemsize), None),
        aspect_ratio=read("chunk_aspect_ratio", lambda value: parse_aspect_ratio(value, rank), None),
        elements=read("chunk_elements", parse_elements, None),
        order=read("order", lambda value: None if value is None else parse_order(value), None),
    )
    return read("chunk_layout", lambda value: parse_chunk_layout(value, rank, hard), {})


def new_document(request: Mapping[str, Any]) -> dict[str, Any]:
    """The complete ``.zarray`` of a new array, in the form that zarr-python 2 and 3 and TensorStore read alike.

    ``chunks`` is a list (a size, 0 for free, -1 or null for the whole axis; omitted axes are whole), one size for all
    axes, true for zarr-python's guess or false for one chunk; without it, ``chunk_elements``, ``chunk_aspect_ratio``
    and TensorStore's ``chunk_layout`` apply. Defaults: order C, Blosc with LZ4 (``compressor: null`` for none), no
    filters, a fill value of zero, separator ``"."``. Raises `BadDefinition`, also for unknown members.
    """
    read = Request(request, MEMBERS)
    read("zarr_format", lambda value: parse_format(value, 2), 2)
    shape = read("shape", parse_shape)
    dtype = read("dtype", lambda value: new_dtype(parse_dtype(value)))
    layout = read_layout(read, shape, dtype)
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
    metadata = _checked(document)
    check_usable(metadata)
    draft, nbytes = metadata.compressor, 0 if metadata.filters else metadata.chunk_nbytes
    compressor = read(
        "compressor", lambda _: None if draft is None else complete_new(draft, chunk_nbytes=nbytes), DEFAULT
    )
    if not read.leaves_open("fill_value"):
        fill_value = read("fill_value", partial(_encode_fill, metadata))
    else:  # zero, as in zarr-python 2; null for dtypes without a zero that all libraries read
        fill_value = (
            None if dtype.json in ("float8_e8m0fnu", "float4_e2m1fn") else format_fill_value(metadata.fill, dtype)
        )
    document["filters"] = None if metadata.filters is None else list(metadata.filters)
    return document | {"compressor": compressor, "fill_value": fill_value}


def completed_document(stated: Mapping[str, Any]) -> dict[str, Any]:
    """A complete ``.zarray`` from some members, others as in a new array.

    The text ``"null"`` means null where that is a value, as TOML has no null. Raises `BadDefinition`.
    """
    known = (*REQUIRED, "dimension_separator")
    for name in stated:
        if name not in known:
            raise BadDefinition(name, f"is no member of a .zarray; known are {', '.join(known)}")
    document = {name: None if name in NULL_MEANS_NONE and value == "null" else value for name, value in stated.items()}
    document |= {"dtype": named_dtype(document["dtype"])} if "dtype" in document else {}
    if any(name not in document for name in REQUIRED):
        shaping = ("shape", "dtype", "chunks", "filters")
        document = new_document({name: document[name] for name in shaping if name in document}) | document
    _checked(document, creating=False)
    return document


def new_dtype(dtype: DataType) -> DataType:
    """The dtype; raises `ValueError` if its items are too large for a new array."""
    most = 1 << 20  # so that fill values fit into documents
    if dtype.itemsize > most:
        raise ValueError(f"an item of more than {most} bytes")
    return dtype


def _checked(document: Mapping[str, Any], *, creating: bool = True) -> ArrayMetadata:
    """The parsed draft; ``creating``: also check that its codecs can be written. Raises `BadDefinition`."""
    with of_request():
        metadata = ArrayMetadata.from_document(document, ".zarray")
        check_codecs(metadata.filters, metadata.compressor, ".zarray", creating=creating)
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
    refusal = _refusal(metadata, _cut(metadata, 1 << 12)) and _refusal(metadata, _cut(metadata, 16 << 20))
    if refusal is not None:
        member = "codecs" if metadata.zarr_format == 3 else "filters" if metadata.filters else "compressor"
        raise BadDefinition(member, f"nothing could be stored: {refusal}")


def _cut(metadata: ArrayMetadata, nbytes: int) -> tuple[int, ...]:
    """The shape of a chunk, reduced to about ``nbytes``."""
    shape = list(metadata.chunks)
    for axis, size in enumerate(shape):
        shape[axis] = max(1, min(size, nbytes * size // (math.prod(shape) * metadata.itemsize)))
    return tuple(shape)


def _refusal(metadata: ArrayMetadata, chunks: tuple[int, ...]) -> NotRepresentable | None:
    """The error of encoding and decoding a chunk of this shape with the fill value, if any."""
    codecs = [config for config in metadata.codecs if config["id"] != "transpose"]  # its shape is that of the chunk
    codec = make_codec(chunks, metadata.dtype, metadata.order, codecs)
    zeros = np.empty(chunks, metadata.dtype.numpy, order=metadata.order)
    zeros[...] = metadata.fill
    if metadata.dtype.numpy.hasobject and metadata.codecs[0]["id"] == "vlen-array":  # needs items of its dtype
        item = np.zeros(1, numpy_dtype(metadata.codecs[0]["dtype"]))
        zeros = np.fromiter([item] * zeros.size, object, zeros.size).reshape(chunks, order=metadata.order)
    try:
        codec.encode_readably(zeros, ".zarray")
    except NotRepresentable as error:
        return error
    return None


def _encode_fill(metadata: ArrayMetadata, value: Any) -> Any:
    """The JSON of a new fill value; raises `ValueError` if other libraries would read another one."""
    encoded = format_fill_value(parse_new_item(value, metadata.dtype, metadata.codecs), metadata.dtype)
    parts = encoded if isinstance(encoded, list) else [encoded]
    if metadata.dtype.numpy.kind in "fc" and any(isinstance(part, str) and part.startswith("0x") for part in parts):
        raise ValueError("Zarr v2 has no spelling for a NaN with a payload that other libraries read")
    return encoded


# --- comparison with a stored array ----------------------------------------------------------------------------


Fits = Mapping[str, Callable[[ArrayMetadata, Any], bool]]
"""Predicates by member: whether a stored array matches the requested value; they raise `ValueError` if invalid."""


def first_difference(
    wanted: Mapping[str, Any], stored: ArrayMetadata, fits: Fits | None = None
) -> tuple[str, Any, Any] | None:
    """The first requested member that a stored array does not match: name, requested and stored value.

    ``fits`` has predicates for the allowed members, by default `FITS`. Equivalent notations are equal, and soft
    constraints match everything. Unlike in TensorStore, the separator is compared with the effective one. Raises
    `BadDefinition` for invalid members.
    """
    known = FITS if fits is None else fits
    read = Request(wanted, tuple(known))
    for name, does_fit in known.items():
        if not read.leaves_open(name) and not read(name, partial(does_fit, stored)):
            found = schema_document(stored) if name == "chunk_layout" else stored.document
            return name, wanted[name], found.get(name, getattr(stored, name, None))
    return None


def _fits_chunks(stored: ArrayMetadata, value: Any) -> bool:
    sizes = () if value is True else requested_chunks(value, stored.shape, stored.itemsize)
    return all(size in (0, chunk) for size, chunk in zip(sizes, stored.chunks, strict=False))


def _fits_layout(stored: ArrayMetadata, value: Any) -> bool:
    """Compares hard constraints on shape and order only, as TensorStore does."""
    rank = len(stored.shape)
    parse_chunk_layout(value, rank, ChunkLayout())
    hard = parse_chunk_layout(without_soft(value), rank, ChunkLayout())
    sizes = zip(hard.chunk_shape, stored.chunks, strict=True)
    return all(size in (0, -1, chunk) for size, chunk in sizes) and (rank < 2 or hard.order in (None, stored.order))


def _complete(config: CodecConfig | None) -> dict[str, Any] | None:
    members = {} if config is None else complete(plain_config(config))
    return {name: value for name, value in members.items() if name != "typesize"} or None  # implied by the dtype


def _fits_filters(stored: ArrayMetadata, value: Any) -> bool:
    return [*map(_complete, parse_filters(value) or ())] == [*map(_complete, stored.filters or ())]


def same_item(wanted: np.ndarray, found: np.ndarray) -> bool:
    """Whether two fill values of a dtype have the same bits; -0.0 is not 0.0."""
    return same_object(wanted[()], found[()]) if found.dtype.hasobject else wanted.tobytes() == found.tobytes()


def _fits_fill_value(stored: ArrayMetadata, value: Any) -> bool:
    """Compares fill values; null differs from zero."""
    wanted, found = parse_fill_value(value, stored.dtype, stored.codecs), stored.fill_value
    return wanted is found if wanted is None or found is None else same_item(wanted, found)


FITS: Final[Fits] = {
    "zarr_format": lambda stored, value: value == stored.zarr_format,
    "shape": lambda stored, value: parse_shape(value) == stored.shape,
    "dtype": lambda stored, value: parse_dtype(value).numpy == stored.dtype.numpy,
    "chunks": _fits_chunks,
    "chunk_layout": _fits_layout,
    "chunk_elements": lambda _, value: parse_elements(value) is not None,
    "chunk_aspect_ratio": lambda stored, value: parse_aspect_ratio(value, len(stored.shape)) != (),
    "order": lambda stored, value: parse_order(value) == stored.order,
    "compressor": lambda stored, value: _complete(parse_compressor(value)) == _complete(stored.compressor),
    "filters": _fits_filters,
    "fill_value": _fits_fill_value,
    "dimension_separator": lambda stored, value: parse_separator(value) == stored.dimension_separator,
}
"""Predicates for arrays of Zarr v2."""
