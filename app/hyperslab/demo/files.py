"""Zarr v2 nodes written straight into a folder."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.wire import dtype_to_json

LZ4: Final = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
ZSTD: Final = {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0}
THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """How an array is stored. With ``sparse``, chunks that hold nothing but the fill value are left out."""

    chunks: tuple[int, ...]
    compressor: Mapping[str, Any] | None = None
    fill_value: Any = 0
    separator: str = "."
    filters: tuple[Mapping[str, Any], ...] | None = None
    sparse: bool = False


def write_group(folder: Path, attributes: Mapping[str, Any] | None = None) -> Path:
    """Make a group and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / ".zgroup", {"zarr_format": 2})
    if attributes:
        _write_json(folder / ".zattrs", attributes)
    return folder


def write_array(folder: Path, values: NDArray[Any], layout: Layout, attributes: Mapping[str, Any]) -> None:
    """Make an array that holds ``values``; its ``.zarray`` comes last."""
    folder.mkdir(parents=True)
    metadata = ArrayMetadata.from_document(_document(values, layout), str(folder / ".zarray"))
    grid = itertools.product(*(range(count) for count in metadata.grid.counts))
    with ThreadPoolExecutor(THREADS) as threads:
        for _ in threads.map(lambda coords: _write_chunk(folder, values, metadata, coords, sparse=layout.sparse), grid):
            pass
    _write_json(folder / ".zattrs", attributes)
    (folder / ".zarray").write_bytes(metadata.to_bytes())


def consolidate(group: Path) -> None:
    """Gather the metadata of a group and of all below it into its ``.zmetadata``."""
    documents = sorted(path for path in group.rglob(".z*") if path.name in {".zgroup", ".zattrs", ".zarray"})
    metadata = {path.relative_to(group).as_posix(): json.loads(path.read_bytes()) for path in documents}
    _write_json(group / ".zmetadata", {"zarr_consolidated_format": 1, "metadata": metadata})


def _document(values: NDArray[Any], layout: Layout) -> dict[str, Any]:
    return {
        "zarr_format": 2,
        "shape": list(values.shape),
        "chunks": list(layout.chunks),
        "dtype": dtype_to_json(values.dtype),
        "order": "C",
        "fill_value": layout.fill_value,
        "compressor": layout.compressor,
        "filters": layout.filters and list(layout.filters),
        "dimension_separator": layout.separator,
    }


def _write_chunk(
    folder: Path, values: NDArray[Any], metadata: ArrayMetadata, coords: tuple[int, ...], *, sparse: bool
) -> None:
    part = values[metadata.grid.bounds(coords)]
    if sparse and not part.any():
        return
    chunk = np.full(metadata.chunks, metadata.fill, values.dtype)
    chunk[tuple(slice(size) for size in part.shape)] = part
    path = folder / metadata.grid.key(coords)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(metadata.codec.encode(chunk))


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
