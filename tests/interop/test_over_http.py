"""A picture of the service opened over HTTP by those who are no Zarr libraries."""

from __future__ import annotations

import warnings
from typing import Any

import fsspec  # type: ignore[import-untyped]
import numpy as np
import obstore.store
import pytest
import rasterio  # type: ignore[import-untyped]
import xarray
import zarr
from zarr.storage import ObjectStore

from tests.conformance.service import Conformance, Node
from tests.server import ServerFactory


@pytest.fixture(params=[".", "/"], ids=["flat", "nested"])
def picture(request: pytest.FixtureRequest, service: Conformance) -> tuple[Node, Any]:
    values = np.arange(20 * 30, dtype="<u2").reshape(20, 30)
    node = service.node()
    members = {"shape": [20, 30], "chunks": [8, 16], "dtype": "<u2", "dimension_separator": request.param}
    names = {"dimension_names": ["y", "x"], "compressor": {"id": "zlib", "level": 1}}
    assert node.put(tail="/a", json={**members, **names}).status_code == 201
    node.below("a").remote()[...] = values
    return node, values


def test_gdal_reads_a_picture(server: ServerFactory, picture: tuple[Node, Any]) -> None:
    """From a server in another process: while GDAL waits for an answer, nothing else runs in this one."""
    node, values = picture
    url = f"{server({'data': node.folder}).url}/zarr/data/a"

    with warnings.catch_warnings(), rasterio.Env(GDAL_HTTP_TIMEOUT="30"):
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(f'ZARR:"/vsicurl/{url}"') as opened:
            np.testing.assert_array_equal(opened.read(1), values)


def test_xarray_opens_the_group_as_a_dataset(service: Conformance, picture: tuple[Node, Any]) -> None:
    node, values = picture

    for consolidated in (None, True, False):
        url = service.target("zarr", node.path)
        with xarray.open_zarr(url, consolidated=consolidated, mask_and_scale=False) as opened:
            assert opened["a"].dims == ("y", "x")
            np.testing.assert_array_equal(opened["a"].values, values)


def test_fsspec_and_obstore_hand_out_the_stored_bytes(service: Conformance, picture: tuple[Node, Any]) -> None:
    node, values = picture
    url, stored = service.target("zarr", node.path), node.keys()

    mapper = fsspec.get_mapper(url)
    remote = obstore.store.HTTPStore.from_url(url, client_options={"allow_http": True})

    assert {key: mapper[key] for key in stored} == stored
    assert {key: bytes(remote.get(key).bytes()) for key in stored} == stored
    group = zarr.open_group(ObjectStore(remote, read_only=True), mode="r", zarr_format=2)
    np.testing.assert_array_equal(group["a"][...], values)  # type: ignore[index]
