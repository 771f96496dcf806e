"""Services on folders, and arrays in them that zarr-python has written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from hyperslab.arrays.nodes import ArrayNode, MountedStore
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.read import Reader
from hyperslab.arrays.service import Service, build
from hyperslab.engine.dtypes import Field
from hyperslab.engine.selection import normalise
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Store
from hyperslab.wire import SelectionItem

MIB = 1 << 20
LONG_AGO = 1_000_000_000
"""In seconds since 1970."""


def local_store(folder: Path, *, writable: bool = True) -> Store:
    """The store ``data`` on a folder, which waits for no disk."""
    return open_store(StoreConfig(name="data", url=str(folder), writable=writable, durability="rename"))


@contextmanager
def service_over(
    store: Store, *, writable: bool = True, mount: dict[str, Any] | None = None, **sizes: int
) -> Iterator[Service]:
    """A service with ``store`` mounted as ``data``; ``mount`` holds further members of `MountedStore`."""
    service = build([MountedStore("data", store, writable=writable, **(mount or {}))], **sizes)
    try:
        yield service
    finally:
        service.close()


@contextmanager
def service_on(
    folder: Path, *, writable: bool = True, mount: dict[str, Any] | None = None, **sizes: int
) -> Iterator[Service]:
    """A service with ``folder`` mounted as ``data``; ``mount`` holds further members of `MountedStore`."""
    store = local_store(folder, writable=writable)
    with service_over(store, writable=writable, mount=mount, **sizes) as service:
        yield service


def zarr_array(
    folder: Path, values: np.ndarray[Any, Any], chunks: tuple[int, ...], name: str = "a", **options: Any
) -> None:
    """Write ``values`` with zarr-python 3, as an array of Zarr v2 by default."""
    options = {"zarr_format": 2, **options}
    array = zarr.create_array(str(folder / name), shape=values.shape, chunks=chunks, dtype=values.dtype, **options)
    array[...] = values


def read_all(service: Service, path: str = "data/a") -> np.ndarray[Any, Any]:
    """The whole array at ``path`` as it is now."""
    array = service.catalog.open_array(path)
    return service.reader.read(plan_items(service.reader, array, ()))[0]


def open_array(service: Service, path: str = "data/a") -> ArrayNode:
    return service.catalog.open_array(path)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and what it holds, but for the service's own locks."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and ".hyperslab" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def age(folder: Path) -> None:
    """Make files look as if they had been written long ago, as most are that anybody reads."""
    for path in folder.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))


def plan_items(
    reader: Reader, array: ArrayNode, items: Sequence[SelectionItem] = (), field: Field | None = None
) -> ReadPlan:
    """A plan whose versions are looked up when they are first wanted."""
    return reader.plan(array, normalise(items, array.metadata.shape), field)
