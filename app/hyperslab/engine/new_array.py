"""The ``.zarray`` of a new array from what is asked for, and whether a stored array is what is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from hyperslab.engine import compressors
from hyperslab.engine.chunk_layout import (
    ChunkLayout,
    parse_aspect_ratio,
    parse_chunk_layout,
    parse_chunk_shape,
    parse_elements,
)
from hyperslab.engine.chunk_shape import DEFAULT_ELEMENTS, choose_chunks, guess_chunks
from hyperslab.engine.codecs import plain_config
from hyperslab.engine.dtypes import DataType, canonical_json, parse_dtype
from hyperslab.engine.fill_value import format_fill_value, parse_fill_value, parse_new_item, same_object
from hyperslab.engine.jsontext import shown
from hyperslab.engine.members import (
    integral,
    parse_compressor,
    parse_filters,
    parse_format,
    parse_order,
    parse_separator,
    parse_shape,
)
from hyperslab.engine.metadata import ArrayMetadata, check_codecs
from hyperslab.errors import BadDefinition, BadMetadata, CodecRefused, NotRepresentable

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
"""What may be said of a new array; only ``shape`` and ``dtype`` must be."""

_NULL_MEANS_NONE = frozenset({"compressor", "filters", "fill_value"})
_MAX_NEW_ITEM_BYTES = 1 << 20  # a fill value of more would not fit the largest document that is read
_MAX_DEFAULT_CHUNK_BYTES = 16 << 20
_DEFAULT_OBJECTS = 1 << 16
_MOST_TRIED_BYTES = 1 << 12
_MOST_REFUSED_BYTES = 16 << 20
_NO_ZERO = ("float8_e8m0fnu", "float4_e2m1fn")


def new_document(request: Mapping[str, Any]) -> dict[str, Any]:
    """The complete ``.zarray`` of a new array, in the form that zarr-python 2 and 3 and TensorStore read alike.

    ``chunks`` is a list (a size, 0 for free, -1 or null for the whole axis; axes left out are whole), one size for all
    axes, true for zarr-python's guess or false for one chunk; absent, it is left to ``chunk_elements``,
    ``chunk_aspect_ratio`` and TensorStore's ``chunk_layout``. Defaults: order C, Blosc with LZ4 (``compressor: null``
    is none), no filters, a fill value of zero, separator ``"."``. Elsewhere null is as good as absent. Raises
    `BadDefinition`, which names the member, also for members that are unknown (CONFORMANCE 15).
    """
    ask = _Request(request)
    ask("zarr_format", lambda value: parse_format(value, 2), 2)
    shape = ask("shape", parse_shape)
    dtype = ask("dtype", _new_dtype)
    layout = _layout(ask, shape, dtype)
    filters = ask("filters", parse_filters, None)
    document = {
        "zarr_format": 2,
        "shape": list(shape),
        "chunks": list(_chosen_chunks(shape, dtype, layout)),
        "dtype": canonical_json(dtype.json),
        "compressor": ask("compressor", parse_compressor, compressors.DEFAULT),
        "fill_value": None,
        "order": layout.order or "C",
        "filters": None if filters is None else list(filters),
        "dimension_separator": ask("dimension_separator", lambda value: parse_separator(value, "."), "."),
    }
    metadata = _checked(document)
    _check_round_trip(metadata)
    document["filters"] = None if metadata.filters is None else list(metadata.filters)
    document["compressor"] = ask("compressor", lambda _: _complete_compressor(metadata), compressors.DEFAULT)
    if ask.leaves_open("fill_value"):
        document["fill_value"] = _default_fill(metadata)
    else:
        document["fill_value"] = ask("fill_value", partial(_spelled_fill, metadata))
    return document


def first_difference(wanted: Mapping[str, Any], stored: ArrayMetadata) -> tuple[str, Any, Any] | None:
    """The first member of ``wanted`` that the stored array does not have: its name, what is wanted, what is found.

    ``wanted`` holds some of `MEMBERS`. Spellings that mean the same are equal, and what leaves a choice fits everything
    (CONFORMANCE 37 to 39). The separator is compared with the one in effect: other than in TensorStore (CONFORMANCE
    40), no request changes it. Raises `BadDefinition` for members that no array could have.
    """
    ask = _Request(wanted)
    for name, fits in _FITS.items():
        if not ask.leaves_open(name) and not ask(name, partial(fits, stored)):
            return name, wanted[name], stored.document.get(name, getattr(stored, name))
    return None


class _Request:
    """The members of a request, read one by one so that each error names its member."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        for name in members:
            if name not in MEMBERS:
                raise BadDefinition(name, f"is no member of an array; known are {', '.join(MEMBERS)}")
        self.members = members

    def leaves_open(self, name: str) -> bool:
        """Whether nothing is asked of this member."""
        return name not in self.members or (self.members[name] is None and name not in _NULL_MEANS_NONE)

    def __call__(self, name: str, parse: Callable[[Any], T], *default: Any) -> T:
        """The parsed member, or the parsed default; without a default the member is required."""
        if name not in self.members and not default:
            raise BadDefinition(name, "is missing")
        value = default[0] if default and self.leaves_open(name) else self.members[name]
        try:
            return parse(value)
        except ValueError as error:
            raise BadDefinition(name, str(error)) from None


def _new_dtype(value: Any) -> DataType:
    dtype = parse_dtype(value)
    if dtype.itemsize > _MAX_NEW_ITEM_BYTES:
        raise ValueError(f"an item of more than {_MAX_NEW_ITEM_BYTES} bytes")
    return dtype


def _layout(ask: _Request, shape: tuple[int, ...], dtype: DataType) -> ChunkLayout:
    rank = len(shape)
    hard = ChunkLayout(
        chunk_shape=ask("chunks", lambda value: _firm_chunks(value, shape, dtype.itemsize), None),
        aspect_ratio=ask("chunk_aspect_ratio", lambda value: parse_aspect_ratio(value, rank), None),
        elements=ask("chunk_elements", parse_elements, None),
        order=ask("order", lambda value: None if value is None else parse_order(value), None),
    )
    return ask("chunk_layout", lambda value: parse_chunk_layout(value, rank, hard), {})


def _firm_chunks(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Sizes by axis, 0 for free: a whole axis is a number here, because -1 in a ``chunk_layout`` yields to others."""
    asked = _asked_chunks(value, shape, itemsize)
    return tuple(max(1, extent) if size == -1 else size for size, extent in zip(asked, shape, strict=False))


def _asked_chunks(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Sizes by axis, 0 for free and -1 for whole, from the forms that zarr-python takes (CONFORMANCE 234)."""
    if value is None:
        return ()
    if value is True:
        return guess_chunks(shape, itemsize)
    if value is False:
        return (-1,) * len(shape)
    size = integral(value)
    if size is not None and (size > 0 or size == -1):
        return (size,) * len(shape)
    if not isinstance(value, list) or len(value) > len(shape):
        raise ValueError(f"expected a list of up to {len(shape)} sizes, a size, true or false, found {shown(value)}")
    return parse_chunk_shape([*value, *[-1] * (len(shape) - len(value))], len(shape))


def _chosen_chunks(shape: tuple[int, ...], dtype: DataType, layout: ChunkLayout) -> tuple[int, ...]:
    """Large items get fewer of them in a chunk, where nothing is said of that."""
    inner = _elements_of_item(dtype)
    largest = _MAX_DEFAULT_CHUNK_BYTES * inner // dtype.itemsize
    default = _DEFAULT_OBJECTS if dtype.is_object else min(DEFAULT_ELEMENTS, largest)
    return choose_chunks(
        shape,
        chunk_shape=layout.chunk_shape,
        aspect_ratio=layout.aspect_ratio,
        elements=default if layout.elements is None else layout.elements,
        inner=(inner,),
    )


def _elements_of_item(dtype: DataType) -> int:
    """How many elements TensorStore sees in one item: the subarray of a field, and each byte of bytes.

    It is told which field it opens; no field is named here, so the one that counts is the one with the most.
    """
    fields = [(field.numpy, math.prod(field.shape)) for field in dtype.fields] or [(dtype.numpy, 1)]
    return max(count * (base.itemsize if _is_bytes(base) else 1) for base, count in fields)


def _is_bytes(base: np.dtype[Any]) -> bool:
    return base.kind == "S" or (base.type is np.void and base.names is None)


def _checked(document: Mapping[str, Any]) -> ArrayMetadata:
    """The draft as it would be read, and what of its codecs can be written."""
    try:
        metadata = ArrayMetadata.from_document(document, ".zarray")
        check_codecs(metadata.filters, metadata.compressor, ".zarray", creating=True)
    except BadMetadata as error:
        raise BadDefinition(error.member or "document", error.reason) from None
    except CodecRefused as error:
        raise BadDefinition(error.member or "document", f"codec {error.codec!r}: {error.reason}") from None
    return metadata


def _check_round_trip(metadata: ArrayMetadata) -> None:
    """Raise `BadDefinition` where the codecs cannot hold zeros of this dtype, and so surely nothing.

    A few of them are tried, and a whole chunk before anything is refused: some codecs want a multiple of bytes.
    """
    if metadata.filters is None and metadata.codec.lossless:
        return
    few = list(metadata.chunks)
    for axis, size in enumerate(few):
        few[axis] = max(1, min(size, _MOST_TRIED_BYTES * size // (math.prod(few) * metadata.itemsize)))
    for chunks in (tuple(few), metadata.chunks):
        if math.prod(chunks) * metadata.itemsize > _MOST_REFUSED_BYTES:
            return
        refusal = _refusal(metadata, chunks)
        if refusal is None:
            return
    raise BadDefinition("filters" if metadata.filters else "compressor", f"nothing could be stored: {refusal}")


def _refusal(metadata: ArrayMetadata, chunks: tuple[int, ...]) -> NotRepresentable | None:
    """Why zeros in a chunk of this shape cannot be encoded, or not be decoded again; None where they can."""
    tried = ArrayMetadata.from_document({**metadata.document, "chunks": list(chunks)}, ".zarray")
    zeros = np.empty(chunks, tried.dtype.numpy, order=tried.order)
    zeros[...] = tried.fill
    try:
        tried.codec.encode_readably(zeros, ".zarray")
    except NotRepresentable as error:
        return error
    return None


def _complete_compressor(metadata: ArrayMetadata) -> Mapping[str, Any] | None:
    if metadata.compressor is None:
        return None
    return compressors.complete_new(metadata.compressor, chunk_nbytes=0 if metadata.filters else metadata.chunk_nbytes)


def _default_fill(metadata: ArrayMetadata) -> Any:
    """Zero, as in zarr-python 2; null where the dtype has none that all libraries read."""
    return None if metadata.dtype.json in _NO_ZERO else format_fill_value(metadata.fill, metadata.dtype)


def _spelled_fill(metadata: ArrayMetadata, value: Any) -> Any:
    """The fill value as it is written; refused where another library would read something else."""
    spelled = format_fill_value(parse_new_item(value, metadata.dtype, metadata.codecs), metadata.dtype)
    parts = spelled if isinstance(spelled, list) else [spelled]
    if metadata.dtype.numpy.kind in "fc" and any(isinstance(part, str) and part.startswith("0x") for part in parts):
        raise ValueError("Zarr v2 has no spelling for a NaN with a payload that other libraries read")
    return spelled


# --- comparing with a stored array -----------------------------------------------------------------------------


def _fits_shape(stored: ArrayMetadata, value: Any) -> bool:
    return parse_shape(value) == stored.shape


def _fits_dtype(stored: ArrayMetadata, value: Any) -> bool:
    return parse_dtype(value).numpy == stored.dtype.numpy


def _fits_chunks(stored: ArrayMetadata, value: Any) -> bool:
    asked = () if value is True else _asked_chunks(value, stored.shape, stored.itemsize)
    whole = [max(1, extent) if size == -1 else size for size, extent in zip(asked, stored.shape, strict=False)]
    return all(size in (0, chunk) for size, chunk in zip(whole, stored.chunks, strict=False))


def _fits_order(stored: ArrayMetadata, value: Any) -> bool:
    return parse_order(value) == stored.order


def _fits_compressor(stored: ArrayMetadata, value: Any) -> bool:
    config = parse_compressor(value)
    if config is None or stored.compressor is None:
        return config is stored.compressor
    return compressors.complete(plain_config(config)) == compressors.complete(stored.compressor)


def _fits_filters(stored: ArrayMetadata, value: Any) -> bool:
    asked, found = parse_filters(value) or (), stored.filters or ()
    wanted = [compressors.complete(plain_config(config)) for config in asked]
    return wanted == [compressors.complete(config) for config in found]


def _fits_fill_value(stored: ArrayMetadata, value: Any) -> bool:
    """Bit for bit: -0.0 is not 0.0, and null is not zero."""
    asked, found = parse_fill_value(value, stored.dtype, stored.codecs), stored.fill_value
    if asked is None or found is None:
        return asked is found
    return same_object(asked[()], found[()]) if stored.dtype.is_object else asked.tobytes() == found.tobytes()


def _fits_separator(stored: ArrayMetadata, value: Any) -> bool:
    return parse_separator(value, ".") == stored.dimension_separator


_FITS: Final[Mapping[str, Callable[[ArrayMetadata, Any], bool]]] = {
    "zarr_format": lambda _, value: bool(parse_format(value, 2)),
    "shape": _fits_shape,
    "dtype": _fits_dtype,
    "chunks": _fits_chunks,
    "order": _fits_order,
    "compressor": _fits_compressor,
    "filters": _fits_filters,
    "fill_value": _fits_fill_value,
    "dimension_separator": _fits_separator,
}
