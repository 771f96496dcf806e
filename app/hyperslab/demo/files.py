"""Zarr nodes written straight into a folder: of v2, and sharded ones of v3."""

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

from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.v3_creation import checked, new_document
from hyperslab.engine.v3_form import new_group
from hyperslab.wire import dtype_to_json

LZ4: Final = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
ZSTD: Final = {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0}


def write_group(folder: Path, attributes: Mapping[str, Any]) -> Path:
    """Make a group and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / ".zgroup", {"zarr_format": 2})
    _write_json(folder / ".zattrs", attributes)
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
    """Make an array that holds ``values``; its ``.zarray`` comes last. With ``sparse``, chunks of nothing but the fill
    value are left out."""
    folder.mkdir(parents=True)
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

    def write_chunk(coords: tuple[int, ...]) -> None:
        part = values[metadata.grid.bounds(coords)]
        if sparse and not part.any():
            return
        chunk = np.full(metadata.chunks, metadata.fill, values.dtype)
        chunk[tuple(slice(size) for size in part.shape)] = part
        path = folder / metadata.grid.key(coords)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(metadata.codec.encode(chunk))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write_chunk, itertools.product(*map(range, metadata.grid.counts))))
    _write_json(folder / ".zattrs", attributes)
    (folder / ".zarray").write_bytes(metadata.to_bytes())


def write_sharded(
    folder: Path, values: NDArray[Any], names: Sequence[str], *, chunks: Sequence[int], shards: Sequence[int]
) -> None:
    """Make an array of Zarr v3 that holds ``values``; ``names`` are those of its axes. Its ``zarr.json`` comes last."""
    request = {
        "zarr_format": 3,
        "shape": list(values.shape),
        "dtype": dtype_to_json(values.dtype),
        "chunks": list(chunks),
        "shards": list(shards),
        "dimension_names": list(names),
    }
    document = new_document(request, {})
    metadata = checked(document)
    (level,) = metadata.levels
    pieces: dict[tuple[int, ...], dict[int, bytes]] = defaultdict(dict)
    for coords in itertools.product(*map(range, metadata.grid.counts)):
        part = values[metadata.grid.bounds(coords)]
        chunk = np.zeros(metadata.chunks, values.dtype)
        chunk[tuple(slice(size) for size in part.shape)] = part
        origin = tuple(at * size for at, size in zip(coords, metadata.chunks, strict=True))
        pieces[metadata.stored_coords(coords)][level.position(level.local(origin))] = metadata.codec.encode(chunk)
    for coords, shard in pieces.items():
        path = folder / metadata.stored_grid.key(coords)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(level.join(shard))
    _write_json(folder / "zarr.json", document)


def write_v3_group(folder: Path, attributes: Mapping[str, Any]) -> Path:
    """Make a group of Zarr v3 and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "zarr.json", new_group(attributes))
    return folder


def consolidate(group: Path) -> None:
    """Gather the metadata of a group and of all below it into its ``.zmetadata``."""
    documents = sorted(path for path in group.rglob(".z*") if path.name in {".zgroup", ".zattrs", ".zarray"})
    metadata = {path.relative_to(group).as_posix(): json.loads(path.read_bytes()) for path in documents}
    _write_json(group / ".zmetadata", {"zarr_consolidated_format": 1, "metadata": metadata})


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
