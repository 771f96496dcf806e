"""The ``.zarray`` of a new array from what is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from hyperslab.engine import compressors
from hyperslab.engine.array_request import NULL_MEANS_NONE, ArrayRequest, asked_chunks
from hyperslab.engine.chunk_layout import ChunkLayout, parse_aspect_ratio, parse_chunk_layout, parse_elements
from hyperslab.engine.chunk_shape import DEFAULT_ELEMENTS, choose_chunks
from hyperslab.engine.dtypes import DataType, canonical_json, named_dtype, parse_dtype
from hyperslab.engine.fill_value import format_fill_value, parse_new_item
from hyperslab.engine.members import (
    parse_compressor,
    parse_filters,
    parse_format,
    parse_order,
    parse_separator,
    parse_shape,
)
from hyperslab.engine.metadata import REQUIRED, ArrayMetadata, check_codecs
from hyperslab.errors import BadDefinition, BadMetadata, CodecRefused, NotRepresentable
from hyperslab.wire import numpy_dtype

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
    ask = ArrayRequest(request)
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
    document["fill_value"] = _fill_value(ask, metadata)
    return document


def completed_document(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The ``.zarray`` of an array that has lost its own, from what is known of it; what is left out is as in a new one
    (CONFORMANCE 204).

    The word ``"null"`` stands for null where that has a meaning: TOML has none. Raises `BadDefinition`.
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


def check_usable(metadata: ArrayMetadata) -> None:
    """Raise `BadDefinition` if nothing could be stored in an array of this metadata, as for `new_document`."""
    _check_round_trip(_checked(metadata.document))


def _new_dtype(value: Any) -> DataType:
    dtype = parse_dtype(value)
    if dtype.itemsize > _MAX_NEW_ITEM_BYTES:
        raise ValueError(f"an item of more than {_MAX_NEW_ITEM_BYTES} bytes")
    return dtype


def _layout(ask: ArrayRequest, shape: tuple[int, ...], dtype: DataType) -> ChunkLayout:
    rank = len(shape)
    hard = ChunkLayout(
        # a whole axis is a number here: -1 in a ``chunk_layout`` would yield to the numbers of others
        chunk_shape=ask("chunks", lambda value: asked_chunks(value, shape, dtype.itemsize), None),
        aspect_ratio=ask("chunk_aspect_ratio", lambda value: parse_aspect_ratio(value, rank), None),
        elements=ask("chunk_elements", parse_elements, None),
        order=ask("order", lambda value: None if value is None else parse_order(value), None),
    )
    return ask("chunk_layout", lambda value: parse_chunk_layout(value, rank, hard), {})


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


def _checked(document: Mapping[str, Any], *, creating: bool = True) -> ArrayMetadata:
    """The draft as it would be read; ``creating``: its codecs can be written, too."""
    try:
        metadata = ArrayMetadata.from_document(document, ".zarray")
        check_codecs(metadata.filters, metadata.compressor, ".zarray", creating=creating)
    except BadMetadata as error:
        raise BadDefinition(error.member or "document", error.reason) from None
    except CodecRefused as error:
        raise BadDefinition(error.member or "document", f"codec {error.codec!r}: {error.reason}") from None
    return metadata


def _check_round_trip(metadata: ArrayMetadata) -> None:
    """Raise `BadDefinition` where the codecs cannot even hold zeros of this dtype. A few zeros are tried first, and a
    whole chunk, or much of it, before anything is refused: some codecs want a multiple of some number of bytes.
    """
    refusal = _refusal(metadata, _cut(metadata, _MOST_TRIED_BYTES)) and _refusal(
        metadata, _cut(metadata, _MOST_REFUSED_BYTES)
    )
    if refusal is not None:
        raise BadDefinition("filters" if metadata.filters else "compressor", f"nothing could be stored: {refusal}")


def _cut(metadata: ArrayMetadata, nbytes: int) -> tuple[int, ...]:
    """The shape of the chunk, or of a part of it that has about so many bytes."""
    shape = list(metadata.chunks)
    for axis, size in enumerate(shape):
        shape[axis] = max(1, min(size, nbytes * size // (math.prod(shape) * metadata.itemsize)))
    return tuple(shape)


def _refusal(metadata: ArrayMetadata, chunks: tuple[int, ...]) -> NotRepresentable | None:
    """Why zeros in a chunk of this shape cannot be encoded, or not be decoded again; None where they can."""
    tried = ArrayMetadata.from_document({**metadata.document, "chunks": list(chunks)}, ".zarray")
    zeros = np.empty(chunks, tried.dtype.numpy, order=tried.order)
    zeros[...] = tried.fill
    if metadata.dtype.is_object and metadata.codecs[0]["id"] == "vlen-array":  # an empty item says nothing of its dtype
        item = np.zeros(1, numpy_dtype(metadata.codecs[0]["dtype"]))
        zeros = np.fromiter([item] * zeros.size, object, zeros.size).reshape(chunks, order=tried.order)
    try:
        tried.codec.encode_readably(zeros, ".zarray")
    except NotRepresentable as error:
        return error
    return None


def _complete_compressor(metadata: ArrayMetadata) -> Mapping[str, Any] | None:
    if metadata.compressor is None:
        return None
    return compressors.complete_new(metadata.compressor, chunk_nbytes=0 if metadata.filters else metadata.chunk_nbytes)


def _fill_value(ask: ArrayRequest, metadata: ArrayMetadata) -> Any:
    """What is asked for; else zero, as in zarr-python 2, or null where not all libraries read a zero of the dtype."""
    if not ask.leaves_open("fill_value"):
        return ask("fill_value", partial(_spelled_fill, metadata))
    return None if metadata.dtype.json in _NO_ZERO else format_fill_value(metadata.fill, metadata.dtype)


def _spelled_fill(metadata: ArrayMetadata, value: Any) -> Any:
    """The fill value as it is written; refused where another library would read something else."""
    spelled = format_fill_value(parse_new_item(value, metadata.dtype, metadata.codecs), metadata.dtype)
    parts = spelled if isinstance(spelled, list) else [spelled]
    if metadata.dtype.numpy.kind in "fc" and any(isinstance(part, str) and part.startswith("0x") for part in parts):
        raise ValueError("Zarr v2 has no spelling for a NaN with a payload that other libraries read")
    return spelled
