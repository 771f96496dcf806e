"""Arrays of one chunk, and what holds of all codecs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.engine.metadata import ArrayMetadata
from tests.documents import zarray

Array = NDArray[Any]
Config = Mapping[str, Any]

COMPRESSORS: Final[tuple[Config | None, ...]] = (
    None,
    {"id": "blosc"},
    {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2},
    {"id": "blosc", "cname": "zlib", "clevel": 1, "shuffle": 0},
    {"id": "blosc", "cname": "blosclz", "clevel": 9, "shuffle": -1},
    {"id": "blosc", "cname": "lz4hc", "clevel": 0},
    {"id": "zlib", "level": 1},
    {"id": "gzip", "level": 5},
    {"id": "bz2", "level": 9},
    {"id": "lzma", "preset": 1},
    {"id": "zstd", "level": -5},
    {"id": "zstd", "level": 3, "checksum": True},
    {"id": "lz4", "acceleration": 2},
)
"""Compressors for bytes of any kind."""

BYTE_FILTERS: Final[tuple[Config, ...]] = (
    {"id": "base64"},
    {"id": "crc32"},
    {"id": "crc32", "location": "end"},
    {"id": "crc32c"},
    {"id": "adler32"},
    {"id": "fletcher32"},
    {"id": "jenkins_lookup3", "initval": 7},
    {"id": "shuffle", "elementsize": 4},
)
"""Filters for bytes of any kind (in fours)."""


def array_of(
    chunks: Sequence[int],
    dtype: Any,
    compressor: Config | None = None,
    *,
    filters: Sequence[Config] | None = None,
    order: str = "C",
) -> ArrayMetadata:
    """An array of exactly one chunk."""
    of_filters = None if filters is None else list(filters)
    document = zarray(chunks, chunks, dtype, compressor=compressor, fill_value=None, order=order, filters=of_filters)
    return ArrayMetadata.from_document(document, ".zarray")


def values_of(shape: Sequence[int], dtype: np.dtype[Any], order: str = "C") -> Array:
    """Values that compress well, of any dtype but objects; bools are 0 and 1."""
    rng = np.random.default_rng(42)
    count = math.prod(shape)
    if dtype.kind == "b":
        items: Array = rng.integers(0, 2, count).astype(dtype)
    elif dtype.kind == "U":
        items = rng.choice(np.array(["", "a", "é中", "xyz"]), count).astype(dtype)
    else:
        some = rng.integers(0, 256, (-(-count // 6), dtype.itemsize), dtype=np.uint8)
        items = np.repeat(some, 6, axis=0)[:count].reshape(-1).view(dtype)
    return np.asarray(items.reshape(tuple(shape)), order="F" if order == "F" else "C")
