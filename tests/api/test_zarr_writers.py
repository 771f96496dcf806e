"""Other people's libraries write through ``/zarr``, and we and the others see it at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import obstore.store
import pytest
import tensorstore as ts
import xarray
import zarr
from zarr.storage import ObjectStore

from tests.api.support import npy, writable

VALUES = np.arange(80, dtype="<f4").reshape(10, 8)
EXPECTED = np.vstack([VALUES, np.zeros((2, 8), "<f4"), np.ones((3, 8), "<f4")])
EXPECTED[2:5] = -1


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A writable service on an empty folder."""
    with writable(tmp_path) as client:
        yield str(client.base_url).rstrip("/")


def read(url: str, path: str) -> Any:
    answer = httpx.get(f"{url}/v1/slice/data/{path}?format=npy")
    assert answer.status_code == 200, answer.text
    return npy(answer.content)


def write(array: Any) -> None:
    """What zarr-python 3 can do to an array of 10 x 8."""
    array[...] = VALUES
    array[2:5] = -1
    array.attrs["unit"] = "K"
    array.resize((12, 8))
    array.append(np.ones((3, 8), "<f4"))


FORMATS: dict[str, dict[str, Any]] = {
    "v2": {"zarr_format": 2},
    "v2, slashes": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "v3": {"zarr_format": 3},
    "v3, shards": {"zarr_format": 3, "shards": (4, 6)},
}


@pytest.mark.parametrize("library", ["fsspec", "obstore"])
@pytest.mark.parametrize("name", FORMATS)
def test_zarr_3_creates_writes_resizes_and_appends(url: str, library: str, name: str) -> None:
    where: Any = f"{url}/zarr/data/a"
    if library == "obstore":
        where = ObjectStore(obstore.store.HTTPStore.from_url(where, client_options={"allow_http": True}))

    write(zarr.create_array(where, shape=(10, 8), chunks=(4, 3), dtype="<f4", **FORMATS[name]))

    np.testing.assert_array_equal(read(url, "a"), EXPECTED)
    assert httpx.get(f"{url}/v1/metadata/data/a").json()["attributes"] == {"unit": "K"}
    httpx.put(f"{url}/v1/slice/data/a?select=0,0", json=5).raise_for_status()
    driver = "zarr" if name.startswith("v2") else "zarr3"
    seen = ts.open({"driver": driver, "kvstore": f"{url}/zarr/data/a/"}).result().read().result()
    assert seen[0, 0] == 5
    np.testing.assert_array_equal(seen[1:], EXPECTED[1:])


def test_zarr_3_makes_hierarchies(url: str) -> None:
    group = zarr.open_group(f"{url}/zarr/data/g", mode="a", zarr_format=2)
    group.attrs["title"] = "new"
    group.create_group("inner").create_array("a", shape=(4,), dtype="<i4")[:] = 3

    document = httpx.get(f"{url}/v1/metadata/data/g").json()
    assert document["attributes"] == {"title": "new"}
    assert document["children"] == [{"name": "inner", "kind": "group"}]
    assert read(url, "g/inner/a").tolist() == [3] * 4


@pytest.mark.filterwarnings("ignore:Consolidated metadata is")
@pytest.mark.parametrize("name", ["v2", "v3", "v3, shards"])
def test_xarray_writes_appends_and_fills_regions(url: str, name: str) -> None:
    zarr_format: Any = 2 if name == "v2" else 3
    encoding = {"t": {"chunks": (1, 5), "shards": (2, 5)}} if name == "v3, shards" else None
    where = f"{url}/zarr/data/set"
    first = xarray.Dataset(
        {"t": (("time", "x"), np.arange(10, dtype="<f4").reshape(2, 5))},
        coords={"time": [0, 1], "x": list("abcde") if name == "v2" else range(5)},
        attrs={"title": "cube"},
    )
    second = first.assign_coords(time=[2, 3])
    first.to_zarr(where, zarr_format=zarr_format, mode="w-", encoding=encoding)
    xarray.testing.assert_identical(xarray.open_zarr(where).load(), first)

    second.to_zarr(where, zarr_format=zarr_format, append_dim="time")
    region = {"time": slice(1, 3), "x": slice(0, 5)}
    (first.drop_vars(["time", "x"]) * 10).to_zarr(where, zarr_format=zarr_format, region=region)

    expected = xarray.concat([first, second], dim="time")
    expected["t"][1:3] = first["t"].values * 10
    xarray.testing.assert_equal(xarray.open_zarr(where).load(), expected)
