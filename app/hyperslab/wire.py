"""What client and server both speak: selection text, header names, media types, dtype text.

Nothing here knows an array: a parsed selection is normalised against a shape by `engine.indexing`, and a dtype
text is numpy's view of a Zarr v2 dtype (the strict rules are in `engine.dtypes`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any, Final

import numpy as np

from hyperslab.errors import BadSelection

# --- headers -------------------------------------------------------------------------------------------------

ARRAY_SHAPE: Final = "Array-Shape"
"""Shape of the body as JSON, for example ``[4,512,512]``."""
ARRAY_DTYPE: Final = "Array-Dtype"
"""Dtype of the body as JSON in Zarr v2 form, for example ``"<u2"`` or ``[["x","<i4"]]``."""
ARRAY_CHUNKS: Final = "Array-Chunks"
"""What the answer cost: ``touched=8, cached=6, bytes=120433`` (bytes read from the store)."""
SERVER_TIMING: Final = "Server-Timing"
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
CONTENT_DIGEST: Final = "Content-Digest"

EXPOSED_HEADERS: Final = (
    "Accept-Ranges",
    "Array-Chunks",
    "Array-Dtype",
    "Array-Shape",
    "Content-Encoding",
    "Content-Length",
    "Content-Range",
    "ETag",
    "Last-Modified",
    "Link",
    "Location",
    "Retry-After",
    "Server-Timing",
)

# --- media types -----------------------------------------------------------------------------------------------

RAW: Final = "application/octet-stream"
NPY: Final = "application/x-npy"
JSON: Final = "application/json"
CSV: Final = "text/csv"
HTML: Final = "text/html"
PROBLEM: Final = "application/problem+json"
MERGE_PATCH: Final = "application/merge-patch+json"

# --- selections ------------------------------------------------------------------------------------------------

SelectionItem = int | slice | EllipsisType | list[int]
"""One item of a selection: an index, ``a:b:c``, ``...`` or a list of indices along one axis."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def parse_selection(text: str) -> tuple[SelectionItem, ...]:
    """Read numpy text such as ``0:10, ::-2, ..., [1,5,9], -1``; an empty text selects everything.

    Raises `BadSelection` with the offending part and its position.
    """
    if not text.strip():
        return ()
    items = tuple(_parse_item(text, part, position) for part, position in _split(text))
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        part, position = list(_split(text))[ellipses[1]]
        raise BadSelection(text, part.strip(), position + _margin(part), "only one ellipsis is allowed")
    return items


def format_selection(items: Sequence[SelectionItem]) -> str:
    """The text that `parse_selection` reads back as ``items``."""
    return ",".join(_format_item(item) for item in items)


def _split(text: str) -> Iterator[tuple[str, int]]:
    """Parts between commas outside brackets, with their offsets."""
    start, depth = 0, 0
    for i, char in enumerate(text):
        if char == "[":
            if depth:
                raise BadSelection(text, char, i, "lists do not nest")
            depth, opened = 1, i
        elif char == "]":
            if not depth:
                raise BadSelection(text, char, i, "there is no list to close")
            depth = 0
        elif char == "," and not depth:
            yield text[start:i], start
            start = i + 1
    if depth:
        raise BadSelection(text, text[opened:], opened, "the list is not closed")
    yield text[start:], start


def _parse_item(text: str, part: str, position: int) -> SelectionItem:
    stripped = part.strip()
    position += _margin(part)
    if stripped == "...":
        return Ellipsis
    if stripped.startswith("["):
        if not stripped.endswith("]"):
            raise BadSelection(text, stripped, position, "expected a comma after the list")
        return _parse_list(text, stripped[1:-1], position + 1)
    if ":" in stripped:
        return _parse_slice(text, stripped, position)
    return _parse_integer(text, stripped, position)


def _parse_list(text: str, inner: str, position: int) -> list[int]:
    if not inner.strip():
        return []
    result = []
    for part in inner.split(","):
        result.append(_parse_integer(text, part, position))
        position += len(part) + 1
    return result


def _parse_slice(text: str, part: str, position: int) -> slice:
    bounds: list[int | None] = []
    at = position
    for bound in part.split(":"):
        bounds.append(_parse_integer(text, bound, at) if bound.strip() else None)
        at += len(bound) + 1
    if len(bounds) > 3:
        raise BadSelection(text, part, position, "a slice has at most start:stop:step")
    if len(bounds) == 3 and bounds[2] == 0:
        raise BadSelection(text, part, position, "the step must not be zero")
    return slice(*bounds)


def _parse_integer(text: str, part: str, position: int) -> int:
    stripped = part.strip()
    position += _margin(part)
    if not _INTEGER.fullmatch(stripped):
        reason = "expected an integer, a:b:c, ... or [i,j,k]" if stripped else "nothing between the commas"
        raise BadSelection(text, stripped, position, reason)
    return int(stripped)


def _margin(part: str) -> int:
    """White space before the text of a part."""
    return len(part) - len(part.lstrip())


def _format_item(item: SelectionItem) -> str:
    if item is Ellipsis:
        return "..."
    if isinstance(item, slice):
        start, stop, step = ("" if b is None else str(int(b)) for b in (item.start, item.stop, item.step))
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
    if isinstance(item, list):
        return "[" + ",".join(str(int(i)) for i in item) + "]"
    return str(int(item))


# --- dtypes ----------------------------------------------------------------------------------------------------

_EXTENSION = re.compile(r"bfloat16|float8_\w+|float4_\w+|int[24]|uint[24]")


def dtype_from_json(value: Any) -> np.dtype[Any]:
    """numpy's dtype for the JSON of a Zarr v2 dtype, for example ``"<u2"`` or ``[["x", "<i4", [2]]]``.

    Raises `ValueError` for what numpy does not know and `ImportError` for ``bfloat16`` and its like without ml_dtypes.
    """
    if isinstance(value, str):
        return _extension_dtype(value) if _EXTENSION.fullmatch(value) else np.dtype(value)
    return np.dtype([_field_from_json(field) for field in value])


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """The JSON that `dtype_from_json` reads back as ``dtype``."""
    if dtype.names is not None and dtype.fields is not None:
        return [_field_to_json(name, dtype.fields[name][0]) for name in dtype.names]
    if dtype.kind == "V" and dtype.type is not np.void:
        return dtype.name
    return dtype.str if not _EXTENSION.fullmatch(dtype.name) else dtype.name


def format_dtype(dtype: np.dtype[Any]) -> str:
    """The value of the `Array-Dtype` header."""
    return json.dumps(dtype_to_json(dtype), separators=(",", ":"))


def parse_dtype(text: str) -> np.dtype[Any]:
    """Read the value of an `Array-Dtype` header; raises `ValueError`."""
    return dtype_from_json(json.loads(text))


def _extension_dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes  # heavy, and only needed for its own types

    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def _field_from_json(field: Sequence[Any]) -> tuple[Any, ...]:
    name, dtype, *shape = field
    return (name, dtype_from_json(dtype), *(tuple(s) for s in shape))


def _field_to_json(name: str, dtype: np.dtype[Any]) -> list[Any]:
    if dtype.subdtype is None:
        return [name, dtype_to_json(dtype)]
    base, shape = dtype.subdtype
    return [name, dtype_to_json(base), list(shape)]
