"""Metadata documents of small arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.sharding import ShardLevel
from hyperslab.engine.v3 import parse_document


def named(name: str, **configuration: Any) -> dict[str, Any]:
    """A codec, or what else a ``zarr.json`` names with a configuration."""
    return {"name": name, "configuration": configuration}


LITTLE: Final = named("bytes", endian="little")
CRC32C: Final = {"name": "crc32c"}


def sharding(chunk: Sequence[int], codecs: Sequence[Any] = (LITTLE,), index: Sequence[Any] = (LITTLE, CRC32C)) -> Any:
    """The codec of shards of such chunks."""
    return named("sharding_indexed", chunk_shape=[*chunk], codecs=[*codecs], index_codecs=[*index])


def zarray(shape: Sequence[int] = (4,), chunks: Sequence[int] = (2,), dtype: Any = "<i4", **members: Any) -> Any:
    """A ``.zarray``, in which ``members`` replace and add."""
    usual = {"zarr_format": 2, "shape": [*shape], "chunks": [*chunks], "dtype": dtype, "compressor": None}
    return {**usual, "fill_value": 0, "order": "C", "filters": None, **members}


def zarr_json(
    shape: Sequence[int], chunk: Sequence[int], data_type: str | Mapping[str, Any] = "int16", **members: Any
) -> Any:
    """A ``zarr.json`` of an array, in which ``members`` replace and add."""
    grid = named("regular", chunk_shape=[*chunk])
    usual = {"zarr_format": 3, "node_type": "array", "shape": [*shape], "data_type": data_type, "chunk_grid": grid}
    return {**usual, "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [LITTLE], **members}


def array_of(document: bytes | Mapping[str, Any]) -> ArrayMetadata:
    """What a ``zarr.json`` says of an array."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    array = parse_document(data, "zarr.json").array
    assert array is not None
    return array


def with_entries(level: ShardLevel, stored: bytes, entries: Mapping[int, tuple[int, int]]) -> bytes:
    """A shard whose index says of some chunks that they lie elsewhere; a negative start counts from the end."""
    index = level.split(stored, "c/0").copy()
    for at, (start, nbytes) in entries.items():
        index[at] = (start if start >= 0 else len(stored) + start, nbytes)
    return stored[: -level.index_nbytes] + level.encode_index(index)
