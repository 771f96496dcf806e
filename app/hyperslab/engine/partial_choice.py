"""The partial decoder that suits an array."""

from __future__ import annotations

import math
from typing import Final, Literal

import numpy as np

from hyperslab.engine.codecs_chain import Config
from hyperslab.engine.dtypes import DataType
from hyperslab.engine.partial import PartialDecoder, RawPartial
from hyperslab.engine.partial_blosc import BloscPartial
from hyperslab.engine.partial_streams import FILLS, StreamPartial

SMALL_FAST: Final = 256 << 10
SMALL_SLOW: Final = 64 << 10
"""Chunks of fewer bytes are decoded whole (by fast and by slow codecs): finding out what to leave out costs as much."""


def make_partial(
    compressor: Config | None, chunks: tuple[int, ...], *, dtype: DataType, order: Literal["C", "F"]
) -> PartialDecoder | None:
    """The partial decoder of an array without filters.

    None for other compressors than Blosc and streams, and for chunks so small that it would not pay.
    """
    name: str | None = compressor["id"] if compressor else None
    kind = _kind(name)
    nbytes = math.prod(chunks) * dtype.itemsize
    slow = compressor is not None and (name in FILLS or compressor.get("cname") in ("zlib", "zstd"))
    if kind is None or dtype.is_object or nbytes < (SMALL_SLOW if slow else SMALL_FAST):
        return None
    probe = np.full(dtype.itemsize, 0x7E, np.uint8).view(dtype.numpy)
    return kind(chunks, dtype, order, nbytes, dtype.clean(probe) is not probe, name)


def _kind(codec: str | None) -> type[PartialDecoder] | None:
    if codec is None:
        return RawPartial
    if codec in FILLS:
        return StreamPartial
    return BloscPartial if codec == "blosc" else None
