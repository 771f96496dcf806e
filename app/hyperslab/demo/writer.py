"""Writes the nodes of the demo store, through the service."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.keys import HIDDEN
from hyperslab.wire import dtype_to_json

LZ4: Final = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
ZSTD: Final = {"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0}


class Writer:
    """Writes nodes to a folder; to be closed after use."""

    def __init__(self, folder: Path) -> None:
        store = open_store(StoreConfig("demo", str(folder), writable=True, durability="rename"))
        self._service = build([MountedStore("demo", store, writable=True)])
        self._folder = folder

    def close(self) -> None:
        """Stop the service, and remove its locks."""
        self._service.close()
        shutil.rmtree(self._folder / HIDDEN, ignore_errors=True)

    def group(self, path: str, attributes: Mapping[str, Any], *, zarr_format: int = 2) -> None:
        """Write a group at a path (``""`` for the root)."""
        self._service.creator.create_group(f"demo/{path}".rstrip("/"), attributes, zarr_format=zarr_format)

    def array(
        self, path: str, values: NDArray[Any], dimensions: str, attributes: Mapping[str, Any], **definition: Any
    ) -> None:
        """Write an array of Zarr v2 by default, without compressor. ``dimensions`` are names between spaces,
        ``definition`` are further members of its node document."""
        members = {"shape": [*values.shape], "dtype": dtype_to_json(values.dtype), **definition}
        if definition.get("zarr_format") == 3:
            members |= {"attributes": attributes, "dimension_names": dimensions.split()}
        else:
            members = {"compressor": None, "fill_value": 0, **members}
            members["attributes"] = {**attributes, "_ARRAY_DIMENSIONS": dimensions.split()}
        self._service.creator.create_array(f"demo/{path}", members)
        self._service.writer.write(f"demo/{path}", (), values)

    def consolidate(self, path: str) -> None:
        """Write consolidated metadata of a group of Zarr v2."""
        group = self._folder / path
        documents = sorted(file for file in group.rglob(".z*") if file.name in {".zgroup", ".zattrs", ".zarray"})
        metadata = {file.relative_to(group).as_posix(): json.loads(file.read_bytes()) for file in documents}
        text = json.dumps({"zarr_consolidated_format": 1, "metadata": metadata}, indent=2, ensure_ascii=False)
        (group / ".zmetadata").write_text(text + "\n", encoding="utf-8")
