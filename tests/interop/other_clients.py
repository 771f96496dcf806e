"""``python other_clients.py URL``: what icechunk, VirtualiZarr and CloudVolume read of the store of
`test_other_clients`. Runs where these are installed, without the rest of the tests; prints JSON.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

import icechunk
import numpy as np
import xarray
import zarr
from cloudvolume import CloudVolume
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import HTTPStore
from virtualizarr import open_virtual_dataset
from virtualizarr.parsers import ZarrParser


def session_of(url: str) -> Any:
    """A session of icechunk that writes to memory, and whose virtual chunks may lie below ``url``."""
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(url, icechunk.http_store()))
    access = {url: icechunk.Credentials.HttpAccess()}
    created = icechunk.Repository.create(icechunk.in_memory_storage(), config, authorize_virtual_chunk_access=access)
    return created.writable_session("main")


def by_reference(host: str) -> Any:
    """A chunk that icechunk reads while its entity tag is the one that it was told."""
    session = session_of(f"{host}/zarr/")
    definition: Any = {"shape": (4, 6), "chunks": (4, 4), "dtype": "<u2", "compressors": None}
    array = zarr.create_group(session.store).create_array("a", **definition)
    for chunk in ("c/0/0", "c/0/1"):
        url = f"{host}/zarr/data/plain/v/{chunk}"
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
            tag, size = answer.headers["ETag"], int(answer.headers["Content-Length"])
        session.store.set_virtual_ref(f"a/{chunk}", url, offset=0, length=size, checksum=tag)
    return np.asarray(array[...]).tolist()


def virtualized(host: str) -> Any:
    """The references that VirtualiZarr finds by listing, read by xarray through icechunk."""
    registry = ObjectStoreRegistry({host: HTTPStore.from_url(host, client_options={"allow_http": True})})
    session = session_of(f"{host}/zarr/")
    with open_virtual_dataset(f"{host}/zarr/data/plain", registry=registry, parser=ZarrParser()) as found:
        found.vz.to_icechunk(session.store)
    return xarray.open_zarr(session.store, consolidated=False)["v"].values.tolist()


def volume(host: str) -> Any:
    """A part of the image, at x 3 to 5, y 2 and z 1 to 3; of Zarr v3, CloudVolume reads no shards."""
    return CloudVolume(f"zarr2://{host}/zarr2/data/image")[3:6, 2:3, 1:4].squeeze().tolist()


if __name__ == "__main__":
    (_, service) = sys.argv
    print(json.dumps({function.__name__: function(service) for function in (by_reference, virtualized, volume)}))
