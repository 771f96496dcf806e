"""Metadata documents of small arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

LITTLE: Final = {"name": "bytes", "configuration": {"endian": "little"}}


def zarray(shape: Sequence[int] = (4,), chunks: Sequence[int] = (2,), dtype: Any = "<i4", **members: Any) -> Any:
    """A ``.zarray``, in which ``members`` replace and add."""
    usual = {"zarr_format": 2, "shape": [*shape], "chunks": [*chunks], "dtype": dtype, "compressor": None}
    return {**usual, "fill_value": 0, "order": "C", "filters": None, **members}


def zarr_json(shape: Sequence[int], chunk: Sequence[int], data_type: str = "int16", **members: Any) -> Any:
    """A ``zarr.json`` of an array, in which ``members`` replace and add."""
    grid = {"name": "regular", "configuration": {"chunk_shape": [*chunk]}}
    usual = {"zarr_format": 3, "node_type": "array", "shape": [*shape], "data_type": data_type, "chunk_grid": grid}
    return {**usual, "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [LITTLE], **members}
