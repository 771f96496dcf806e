"""Writer of Zarr nodes to a folder: v2, and sharded v3."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.engine.creation import checked, new_document
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.sharding import merge_shard
from hyperslab.engine.v3 import new_group
from hyperslab.wire import dtype_to_json

LZ4: Final = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
ZSTD: Final = {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0}


def write_group(folder: Path, attributes: Mapping[str, Any], *, zarr_format: int = 2) -> Path:
    """Write a group and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    documents: dict[str, Mapping[str, Any]] = {".zgroup": {"zarr_format": 2}, ".zattrs": attributes}
    if zarr_format == 3:
        documents = {"zarr.json": new_group(attributes)}
    for name, document in documents.items():
        _write_json(folder / name, document)
    return folder


def write_array(
    folder: Path,
    values: NDArray[Any],
    attributes: Mapping[str, Any],
    *,
    chunks: Sequence[int],
    compressor: Mapping[str, Any] | None = None,
    fill_value: Any = 0,
    separator: str = ".",
    filters: Sequence[Mapping[str, Any]] | None = None,
    sparse: bool = False,
) -> None:
    """Write an array, its ``.zarray`` last. ``sparse``: omit chunks that are zero."""
    document = {
        "zarr_format": 2,
        "shape": list(values.shape),
        "chunks": list(chunks),
        "dtype": dtype_to_json(values.dtype),
        "order": "C",
        "fill_value": fill_value,
        "compressor": compressor,
        "filters": filters,
        "dimension_separator": separator,
    }
    metadata = ArrayMetadata.from_document(document, str(folder / ".zarray"))
    _write_chunks(folder, metadata, values, sparse=sparse)
    _write_json(folder / ".zattrs", attributes)
    (folder / ".zarray").write_bytes(metadata.to_bytes())


def write_sharded(
    folder: Path, values: NDArray[Any], names: Sequence[str], *, chunks: Sequence[int], shards: Sequence[int]
) -> None:
    """Write a sharded array of Zarr v3, its ``zarr.json`` last; ``names`` are the names of its axes."""
    request = {"zarr_format": 3, "shape": [*values.shape], "dtype": dtype_to_json(values.dtype), "chunks": [*chunks]}
    document = new_document({**request, "shards": [*shards], "dimension_names": [*names]})
    _write_chunks(folder, checked(document), values)
    _write_json(folder / "zarr.json", document)


def _write_chunks(folder: Path, metadata: ArrayMetadata, values: NDArray[Any], *, sparse: bool = False) -> None:
    """Write the chunks or shards of an array."""
    stored: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for coords in itertools.product(*map(range, metadata.grid.counts)):
        if not sparse or values[metadata.grid.bounds(coords)].any():
            stored[metadata.stored_coords(coords)].append(coords)

    def encoded(coords: tuple[int, ...]) -> bytes:
        part = values[metadata.grid.bounds(coords)]
        chunk = np.full(metadata.chunks, metadata.fill, values.dtype)
        chunk[tuple(slice(size) for size in part.shape)] = part
        return metadata.codec.encode(chunk)

    def write(at: tuple[int, ...]) -> None:
        path = folder / metadata.stored_grid.key(at)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not metadata.levels:
            path.write_bytes(encoded(at))
            return
        chunks = {metadata.origin(coords): encoded(coords) for coords in stored[at]}
        path.write_bytes(merge_shard(metadata.levels, None, chunks, "") or b"")

    folder.mkdir(parents=True)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, stored))


def consolidate(group: Path) -> None:
    """Write consolidated metadata of a group."""
    documents = sorted(path for path in group.rglob(".z*") if path.name in {".zgroup", ".zattrs", ".zarray"})
    metadata = {path.relative_to(group).as_posix(): json.loads(path.read_bytes()) for path in documents}
    _write_json(group / ".zmetadata", {"zarr_consolidated_format": 1, "metadata": metadata})


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
