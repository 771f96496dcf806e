"""The programs that are compared: readers and writers, each as a function from an array's name to an open array.

Runs in worker processes, one of which has zarr-python 2 and nothing of ours: at import only the standard library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

Selection = tuple[Any, ...]
Write = Callable[[Selection, Any], Any]
"""Stores values in the cells of a selection; returns when they are stored."""

BUCKET: Final = "bucket"
_REGION: Final = "us-east-1"


class ArrayReader(Protocol):
    """An open array."""

    def prepare(self) -> None:
        """Bring about the state that a read is to find; not timed."""

    def read(self, selection: Selection) -> Any:
        """The values as a numpy array."""


class Opened:
    """An array object of a library."""

    def __init__(self, read: Callable[[Selection], Any]) -> None:
        self.read = read

    def prepare(self) -> None:
        """Nothing: the libraries cache no chunks."""


class InProcess:
    """Our engine without HTTP, on a folder or another URL. With a cache, which each read finds empty."""

    def __init__(self, url: str, name: str, *, cache_bytes: int, **options: str) -> None:
        from hyperslab.arrays.nodes import MountedStore
        from hyperslab.arrays.service import build
        from hyperslab.storage import StoreConfig, open_store

        store = open_store(StoreConfig(name="data", url=url, options=options))
        service = build([MountedStore("data", store)], cache_bytes=cache_bytes)
        self._array = service.catalog.open_array(f"data/{name}")
        self._reader = service.reader

    def prepare(self) -> None:
        self._reader.cache.clear()

    def read(self, selection: Selection) -> Any:
        from hyperslab.engine.selection import normalise

        return self._reader.read(self._reader.plan(self._array, normalise(selection, self._array.metadata.shape)))[0]


def hyperslab(root: str, name: str) -> ArrayReader:
    return InProcess(root, name, cache_bytes=0)


def hyperslab_fresh(root: str, name: str) -> ArrayReader:
    return InProcess(root, name, cache_bytes=256 << 20)


def remote_array(root: str, name: str) -> ArrayReader:
    """Our client; ``root`` is the URL of a server whose store is called ``data``."""
    from hyperslab import RemoteArray

    return Opened(RemoteArray(f"{root}/v1/metadata/data/{name}").__getitem__)


def url(root: str, name: str) -> ArrayReader:
    """Bytes over one plain connection; ``root`` is a URL with ``{name}`` and ``{select}`` in it."""
    import numpy as np
    import urllib3

    pool = urllib3.PoolManager(1)

    def read(selection: Selection) -> Any:
        select = ",".join(f"{s.start}:{s.stop}" if isinstance(s, slice) else str(s) for s in selection)
        answer = pool.request("GET", root.format(name=name, select=select))
        if answer.status != 200:
            raise ConnectionError(f"{answer.status}: {answer.data[:200]!r}")
        return np.frombuffer(answer.data, "u1")

    return Opened(read)


def tensorstore(root: str, name: str) -> ArrayReader:
    import tensorstore as ts

    is_url = root.startswith("http")
    kvstore = {"driver": "file", "path": f"{root}/{name}"}
    if is_url:
        kvstore = {"driver": "http", "base_url": f"{root}/{name}/"}
    is_v3 = not is_url and Path(root, name, "zarr.json").exists()
    array = ts.open({"driver": "zarr3" if is_v3 else "zarr", "kvstore": kvstore}, read=True).result()
    return Opened(lambda selection: array[selection].read().result())


def zarr_python(root: str, name: str) -> ArrayReader:
    """zarr-python, whichever is installed."""
    return Opened(_open_zarr(root, name).__getitem__)


def zarr_obstore(root: str, name: str) -> ArrayReader:
    """zarr-python 3 with obstore as its HTTP client."""
    import zarr
    from obstore.store import HTTPStore
    from zarr.storage import ObjectStore

    store = HTTPStore.from_url(f"{root}/{name}", client_options={"allow_http": True})
    return Opened(zarr.open_array(ObjectStore(store, read_only=True), mode="r", zarr_format=2).__getitem__)


def zarrs(root: str, name: str) -> ArrayReader:
    """zarr-python 3 with the codec pipeline of zarrs."""
    import zarr
    import zarrs as _  # noqa: F401  (fails here where it is not installed)

    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        array = _open_zarr(root, name)
    return Opened(array.__getitem__)


def bucket_options(endpoint: str) -> dict[str, str]:
    """Those of our stores for a bucket that is open to all."""
    return {"endpoint": endpoint, "region": _REGION, "anonymous": "true"}


def bucket_hyperslab(root: str, name: str) -> ArrayReader:
    """Our engine on the bucket of an endpoint."""
    return InProcess(f"s3://{BUCKET}", name, cache_bytes=0, **bucket_options(root))


def bucket_tensorstore(root: str, name: str) -> ArrayReader:
    import tensorstore as ts

    place = {"bucket": BUCKET, "path": f"{name}/", "endpoint": root, "aws_region": _REGION}
    kvstore = {"driver": "s3", "aws_credentials": {"type": "anonymous"}, **place}
    array = ts.open({"driver": "zarr", "kvstore": kvstore}, read=True).result()
    return Opened(lambda selection: array[selection].read().result())


def bucket_threads(root: str, name: str) -> ArrayReader:
    """All objects of an array and nothing else, by as many threads as we allow ourselves for one bucket."""
    from concurrent.futures import ThreadPoolExecutor

    import obstore

    from hyperslab.storage.objects import WIDTH

    client, keys = _objects(root, name)
    pool = ThreadPoolExecutor(WIDTH)
    return Opened(lambda _: list(pool.map(lambda key: obstore.get(client, key).bytes(), keys)))


def bucket_async(root: str, name: str) -> ArrayReader:
    """All objects of an array at once."""
    import asyncio

    import obstore

    client, keys = _objects(root, name)

    async def get(key: str) -> Any:
        return await (await obstore.get_async(client, key)).bytes_async()

    async def get_all() -> list[Any]:
        return await asyncio.gather(*map(get, keys))

    return Opened(lambda _: asyncio.run(get_all()))


PROGRAMS: dict[str, Callable[[str, str], ArrayReader]] = {
    "hyperslab": hyperslab,
    "hyperslab-fresh": hyperslab_fresh,
    "remote-array": remote_array,
    "url": url,
    "tensorstore": tensorstore,
    "zarr-python": zarr_python,
    "zarr-obstore": zarr_obstore,
    "zarrs": zarrs,
    "bucket-hyperslab": bucket_hyperslab,
    "bucket-tensorstore": bucket_tensorstore,
    "bucket-threads": bucket_threads,
    "bucket-async": bucket_async,
}


def _open_zarr(root: str, name: str) -> Any:
    import zarr

    return zarr.open_array(f"{root}/{name}", mode="r")


def _objects(endpoint: str, name: str) -> tuple[Any, list[str]]:
    """A client of the bucket, and the keys of an array's chunks."""
    import json
    from itertools import product

    import obstore
    from obstore.store import S3Store

    client = S3Store(
        BUCKET, endpoint=endpoint, region=_REGION, skip_signature=True, client_options={"allow_http": True}
    )
    document = json.loads(obstore.get(client, f"{name}/.zarray").bytes().to_bytes())
    counts = [-(-n // chunk) for n, chunk in zip(document["shape"], document["chunks"], strict=True)]
    return client, [f"{name}/{'.'.join(map(str, coords))}" for coords in product(*map(range, counts))]


# --- writers ---------------------------------------------------------------------------------------------------------


def write_hyperslab(root: str, name: str) -> Write:
    """Our use case on a folder, without HTTP; a write waits for the rename, not for the disk."""
    from hyperslab.arrays.nodes import MountedStore
    from hyperslab.arrays.service import build
    from hyperslab.storage import StoreConfig, open_store

    store = open_store(StoreConfig(name="data", url=root, writable=True, durability="rename"))
    writer = build([MountedStore("data", store, writable=True)], cache_bytes=0).writer
    return lambda selection, values: writer.write(f"data/{name}", selection, values)


def write_remote_array(root: str, name: str) -> Write:
    """Our client; ``root`` is the URL of a server whose store is called ``data``."""
    from hyperslab import RemoteArray

    return RemoteArray(f"{root}/v1/metadata/data/{name}").__setitem__


def write_zarr_python(root: str, name: str) -> Write:
    """zarr-python, whichever is installed."""
    import zarr

    write: Write = zarr.open_array(f"{root}/{name}", mode="r+").__setitem__
    return write


def write_tensorstore(root: str, name: str, *, sync: bool) -> Write:
    import tensorstore as ts

    kvstore = {"driver": "file", "path": f"{root}/{name}/"}
    array = ts.open({"driver": "zarr", "kvstore": kvstore, "context": {"file_io_sync": sync}}).result()
    return lambda selection, values: array[selection].write(values).result()


WRITERS: dict[str, Callable[[str, str], Write]] = {
    "write-hyperslab": write_hyperslab,
    "write-remote-array": write_remote_array,
    "write-tensorstore": partial(write_tensorstore, sync=False),
    "write-tensorstore-sync": partial(write_tensorstore, sync=True),
    "write-zarr-python": write_zarr_python,
}
