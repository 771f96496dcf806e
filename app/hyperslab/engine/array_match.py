"""Whether a stored array is what is asked for, member by member."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from hyperslab.engine import compressors
from hyperslab.engine.array_request import ArrayRequest, asked_chunks
from hyperslab.engine.chunk_layout import (
    ChunkLayout,
    parse_aspect_ratio,
    parse_chunk_layout,
    parse_elements,
    without_soft,
)
from hyperslab.engine.codecs import plain_config
from hyperslab.engine.dtypes import parse_dtype
from hyperslab.engine.fill_value import parse_fill_value, same_object
from hyperslab.engine.members import (
    parse_compressor,
    parse_filters,
    parse_format,
    parse_order,
    parse_separator,
    parse_shape,
)
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.schema import schema_document


def first_difference(wanted: Mapping[str, Any], stored: ArrayMetadata) -> tuple[str, Any, Any] | None:
    """The first member of ``wanted`` that the stored array does not have: its name, what is wanted, what is found.

    ``wanted`` holds some of `array_request.MEMBERS`. Spellings that mean the same are equal, and what leaves a choice
    fits everything (CONFORMANCE 37 to 39). Unlike in TensorStore (CONFORMANCE 40), the separator is compared with the
    one in effect: no request changes it. Raises `BadDefinition` for members that no array could have.
    """
    ask = ArrayRequest(wanted)
    for name, fits in _FITS.items():
        if not ask.leaves_open(name) and not ask(name, partial(fits, stored)):
            found = schema_document(stored) if name == "chunk_layout" else stored.document
            return name, wanted[name], found.get(name, getattr(stored, name, None))
    return None


def _fits_shape(stored: ArrayMetadata, value: Any) -> bool:
    return parse_shape(value) == stored.shape


def _fits_dtype(stored: ArrayMetadata, value: Any) -> bool:
    return parse_dtype(value).numpy == stored.dtype.numpy


def _fits_chunks(stored: ArrayMetadata, value: Any) -> bool:
    asked = () if value is True else asked_chunks(value, stored.shape, stored.itemsize)
    return all(size in (0, chunk) for size, chunk in zip(asked, stored.chunks, strict=False))


def _fits_layout(stored: ArrayMetadata, value: Any) -> bool:
    """Soft constraints, elements and aspect ratios are advice for a new array, as in TensorStore."""
    rank = len(stored.shape)
    parse_chunk_layout(value, rank, ChunkLayout())
    hard = parse_chunk_layout(without_soft(value), rank, ChunkLayout())
    sizes = zip(hard.chunk_shape, stored.chunks, strict=True)
    return all(size in (0, -1, chunk) for size, chunk in sizes) and (rank < 2 or hard.order in (None, stored.order))


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
    "chunk_layout": _fits_layout,
    "chunk_elements": lambda _, value: parse_elements(value) is not None,
    "chunk_aspect_ratio": lambda stored, value: parse_aspect_ratio(value, len(stored.shape)) != (),
    "order": _fits_order,
    "compressor": _fits_compressor,
    "filters": _fits_filters,
    "fill_value": _fits_fill_value,
    "dimension_separator": _fits_separator,
}
