"""What client and server both speak: selection text, names of headers, media types, dtype text, objects as bytes.

Nothing here knows an array: a parsed selection is normalised against a shape by `engine.indexing`, and a dtype
text is numpy's view of a Zarr v2 dtype (the strict rules are in `engine.dtypes`).
"""

from __future__ import annotations

from hyperslab.wire.dtypes import (
    PADDING,
    bare_dtype,
    dtype_from_json,
    dtype_to_json,
    field_names,
    format_dtype,
    is_extension_name,
    npy_dtype,
    numpy_dtype,
    parse_dtype,
)
from hyperslab.wire.headers import (
    ARRAY_CHUNKS,
    ARRAY_DTYPE,
    ARRAY_SHAPE,
    CONTENT_DIGEST,
    CSV,
    EVENTS,
    EXPOSED_HEADERS,
    HTML,
    IDEMPOTENCY_KEY,
    JSON,
    LONGEST_DTYPE,
    LONGEST_KEY,
    MERGE_PATCH,
    NPY,
    OBJECTS,
    PROBLEM,
    RAW,
    SERVER_TIMING,
    without_driver,
)
from hyperslab.wire.objects import Packer, pack_objects, unpack_objects
from hyperslab.wire.selections import SelectionItem, format_selection, parse_selection

__all__ = [
    "ARRAY_CHUNKS",
    "ARRAY_DTYPE",
    "ARRAY_SHAPE",
    "CONTENT_DIGEST",
    "CSV",
    "EVENTS",
    "EXPOSED_HEADERS",
    "HTML",
    "IDEMPOTENCY_KEY",
    "JSON",
    "LONGEST_DTYPE",
    "LONGEST_KEY",
    "MERGE_PATCH",
    "NPY",
    "OBJECTS",
    "PADDING",
    "PROBLEM",
    "RAW",
    "SERVER_TIMING",
    "Packer",
    "SelectionItem",
    "bare_dtype",
    "dtype_from_json",
    "dtype_to_json",
    "field_names",
    "format_dtype",
    "format_selection",
    "is_extension_name",
    "npy_dtype",
    "numpy_dtype",
    "pack_objects",
    "parse_dtype",
    "parse_selection",
    "unpack_objects",
    "without_driver",
]
