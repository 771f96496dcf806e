"""The members of a ``.zarray``, one parser each: JSON in, checked values out, or `ValueError` with a reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal

from hyperslab.engine.dtypes import MAX_RANK, DataType
from hyperslab.errors import shown

Order = Literal["C", "F"]
Separator = Literal[".", "/"]
CodecConfig = Mapping[str, Any]

MAX_SIZE: Final = 2**62
"""The longest axis; positions stay within 64-bit integers with room for the overhang of an edge chunk."""
MAX_FILTERS: Final = 64
MAX_CHUNK_BYTES: Final = 2**63 - 1


def parse_format(value: Any, supported: int) -> int:
    """The number of a format, which must be the supported one; 2.0 passes for 2."""
    if type(value) in (int, float) and value == supported:
        return supported
    raise ValueError(f"expected {supported}, found {shown(value)}")


def parse_shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise ValueError(f"expected a list of at most {MAX_RANK} integers, found {shown(value)}")
    return tuple([parse_size(size, 0) for size in value])


def parse_chunks(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) != len(shape):
        raise ValueError(f"expected a list of {len(shape)} integers, one for each axis, found {shown(value)}")
    chunks = tuple([_parse_chunk(chunk, size) for chunk, size in zip(value, shape, strict=True)])
    if math.prod(chunks) * itemsize > MAX_CHUNK_BYTES:
        raise ValueError("a chunk has more bytes than 64 bits can count")
    return chunks


def _parse_chunk(value: Any, size: int) -> int:
    """zarr-python 2 writes chunk 0 for an empty axis where it was asked for one chunk (CONFORMANCE 22)."""
    return 1 if size == 0 and type(value) is int and value == 0 else parse_size(value, 1)


def parse_size(value: Any, low: int) -> int:
    """An integer from ``low`` to `MAX_SIZE`; an integral float passes (CONFORMANCE 18)."""
    number = integral(value)
    if number is not None and low <= number <= MAX_SIZE:
        return number
    raise ValueError(f"expected integers from {low} to 2**62, found {shown(value)}")


def integral(value: Any) -> int | None:
    """The integer that a JSON number is; None for all else, true and false included."""
    if type(value) is int:
        return value
    return int(value) if type(value) is float and value.is_integer() else None


def check_rank(dtype: DataType, rank: int) -> DataType:
    inner = max((len(field.shape) for field in dtype.fields), default=0)
    if rank + inner > MAX_RANK:
        raise ValueError(f"{rank} axes and {inner} of a subarray, the limit is {MAX_RANK}")
    return dtype


def parse_order(value: Any) -> Order:
    if value == "C":
        return "C"
    if value == "F":
        return "F"
    raise ValueError(f"expected 'C' or 'F', found {shown(value)}")


def parse_separator(value: Any, default: Separator) -> Separator:
    if value is None:
        return default
    if value == ".":
        return "."
    if value == "/":
        return "/"
    raise ValueError(f"expected '.' or '/', found {shown(value)}")


def parse_compressor(value: Any) -> CodecConfig | None:
    return None if value is None else _checked_config(value)


def parse_filters(value: Any) -> tuple[CodecConfig, ...] | None:
    if value is None:
        return None
    if isinstance(value, list):
        if len(value) > MAX_FILTERS:
            raise ValueError(f"{len(value)} filters, the limit is {MAX_FILTERS}")
        return tuple([_checked_config(config) for config in value]) or None
    raise ValueError(f"expected null or a list of codecs, found {shown(value)}")


def _checked_config(value: Any) -> CodecConfig:
    if isinstance(value, dict) and isinstance(value.get("id"), str):
        return value
    raise ValueError(f"expected an object with a string 'id', found {shown(value)}")
