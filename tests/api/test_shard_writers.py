"""Zarr v3 and shards, written over HTTP: by other people's libraries through ``/zarr``, and by many at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tensorstore as ts
import zarr

from hyperslab import RemoteArray
from tests.api.support import writable
from tests.layouts import definition

pytestmark = pytest.mark.filterwarnings("ignore:Consolidated metadata is")

A = "/v1/metadata/data/a"
SLICE = "/v1/slice/data/a"
JSON = {"Content-Type": "application/json"}
SHARDED = definition("shards", [10, 8], [4, 8])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with writable(tmp_path) as found:
        yield found


def values(client: httpx.Client) -> Any:
    return np.array(client.get(SLICE, params={"format": "json"}).json())


def test_dask_stores_chunks_smaller_than_the_shard_without_a_lock(client: httpx.Client) -> None:
    """dask #12583 and xarray #10831: tasks write into the same shards."""
    import dask.array

    client.put(A, json=definition("shards", [64, 64], [32, 64])).raise_for_status()
    made = np.arange(64 * 64, dtype="<i4").reshape(64, 64)
    with RemoteArray(f"{client.base_url}{A}") as array:
        lazy = dask.array.from_array(made, chunks=(7, 9))  # type: ignore[no-untyped-call]
        dask.array.store(lazy, array, lock=False, scheduler="threads")

        np.testing.assert_array_equal(array[...], made)


def test_keys_of_shards_are_stored_as_they_are_and_checked(client: httpx.Client, tmp_path: Path) -> None:
    client.put(A, json=SHARDED).raise_for_status()
    client.put(SLICE, content="3", headers=JSON).raise_for_status()
    key = "/zarr/data/a/c/0/0"
    stored = client.get(key)
    tag = stored.headers["etag"]
    cut = stored.content[:-1]
    lying = np.frombuffer(stored.content, np.uint8).copy()
    lying[0] ^= 255

    assert client.put(key, content=cut).status_code == 400
    assert client.put("/zarr/data/a/c/9/0", content=stored.content).status_code == 400
    assert client.put("/zarr/data/a/0.0", content=stored.content).status_code == 400
    assert client.delete(key).status_code == 204
    assert client.get(key).status_code == 404
    assert (values(client)[:4] == 0).all()
    assert client.put(key, content=stored.content, headers={"If-Match": tag}).status_code == 412
    assert client.put(key, content=stored.content, headers={"If-None-Match": "*"}).status_code == 201
    assert (tmp_path / "a/c/0/0").read_bytes() == stored.content
    assert (values(client) == 3).all()


def test_conditions_on_what_lies_in_a_shard_hold_for_the_shard(client: httpx.Client) -> None:
    client.put(A, json=SHARDED).raise_for_status()
    tag = client.put(SLICE, params={"select": ":2,:2"}, content="1", headers=JSON).headers["etag"]
    assert client.get(SLICE, params={"select": ":2,:2"}).headers["etag"] == tag
    beside = client.get(SLICE, params={"select": "3,7"}).headers["etag"]

    def put(select: str, value: str, **headers: str) -> int:
        return client.put(SLICE, params={"select": select}, content=value, headers={**JSON, **headers}).status_code

    assert put("3,7", "2", **{"If-Match": beside}) == 204
    assert put(":2,:2", "9", **{"If-Match": tag}) == 412
    assert put("8:,:", "4", **{"If-None-Match": "*"}) == 204
    assert put("8:,:", "5", **{"If-None-Match": "*"}) == 412
    whole = client.get(SLICE).headers["etag"]
    assert put("", "6", **{"If-Match": whole}) == 204
    assert (values(client) == 6).all()


def test_a_chunk_of_a_shard_is_written_and_removed_alone(client: httpx.Client) -> None:
    client.put(A, json=SHARDED).raise_for_status()
    client.put(SLICE, content="3", headers=JSON).raise_for_status()
    chunk = "/v1/chunk/data/a/0.1"

    assert client.delete(chunk).status_code == 204
    assert client.delete(chunk).status_code == 404
    expected = np.full((10, 8), 3)
    expected[:2, 4:] = 0
    np.testing.assert_array_equal(values(client), expected)
    assert client.put(chunk, content=np.full(8, 7, "<i4").tobytes()).status_code == 204
    expected[:2, 4:] = 7
    np.testing.assert_array_equal(values(client), expected)
    refused = client.put(chunk, params={"format": "stored"}, content=b"")
    assert (refused.status_code, refused.json()["code"]) == (400, "bad-body")


def test_our_member_of_a_document_keeps_no_other_library_from_the_array(client: httpx.Client, tmp_path: Path) -> None:
    """Our member of a zarr.json says that it may be ignored; others read the array, and keep it."""
    client.put(A, json={**SHARDED, "shape": [0, 8]}).raise_for_status()
    for _ in range(2):
        rows = np.ones((3, 8), "<i4").tobytes()
        client.post("/v1/append/data/a", content=rows, headers={"Idempotency-Key": "x"}).raise_for_status()
    own = json.loads((tmp_path / "a/zarr.json").read_text())["hyperslab"]
    assert own["must_understand"] is False
    assert [each["key"] for each in own["appends"]] == ["x"]

    array = zarr.open_array(f"{client.base_url}/zarr/data/a", mode="r+")
    array.resize((2, 8))
    opened = ts.open({"driver": "zarr3", "kvstore": f"file://{tmp_path}/a/"}).result().read().result()

    assert (opened.shape, opened.min()) == ((2, 8), 1)
    assert json.loads((tmp_path / "a/zarr.json").read_text())["hyperslab"]["appends"] == own["appends"]
