"""The programs that write, each as a function from an array's name to an open array.

Runs in worker processes, one of which has zarr-python 2 and nothing of ours: at import only the standard library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Selection = tuple[Any, ...]
Write = Callable[[Selection, Any], Any]
"""Stores values in the cells of a selection; returns when they are stored."""


def hyperslab(root: str, name: str) -> Write:
    """Our use case on a folder, without HTTP; a write waits for the rename, not for the disk."""
    from hyperslab.arrays.nodes import MountedStore
    from hyperslab.arrays.service import build
    from hyperslab.storage import StoreConfig, open_store

    store = open_store(StoreConfig(name="data", url=root, writable=True, durability="rename"))
    writer = build([MountedStore("data", store, writable=True)], cache_bytes=0).writer
    return lambda selection, values: writer.write(f"data/{name}", selection, values)


def remote_array(root: str, name: str) -> Write:
    """Our client; ``root`` is the URL of a server whose store is called ``data``."""
    from hyperslab import RemoteArray

    return RemoteArray(f"{root}/v1/metadata/data/{name}").__setitem__


def tensorstore(root: str, name: str) -> Write:
    return _tensorstore(root, name, sync=False)


def tensorstore_sync(root: str, name: str) -> Write:
    return _tensorstore(root, name, sync=True)


def zarr_python(root: str, name: str) -> Write:
    """zarr-python, whichever is installed."""
    import zarr

    write: Write = zarr.open_array(f"{root}/{name}", mode="r+").__setitem__
    return write


WRITERS: dict[str, Callable[[str, str], Write]] = {
    "write-hyperslab": hyperslab,
    "write-remote-array": remote_array,
    "write-tensorstore": tensorstore,
    "write-tensorstore-sync": tensorstore_sync,
    "write-zarr-python": zarr_python,
}


def _tensorstore(root: str, name: str, *, sync: bool) -> Write:
    import tensorstore as ts

    kvstore = {"driver": "file", "path": f"{root}/{name}/"}
    array = ts.open({"driver": "zarr", "kvstore": kvstore, "context": {"file_io_sync": sync}}).result()
    return lambda selection, values: array[selection].write(values).result()
