"""Nodes of Zarr v3 are made, changed and removed as those of v2 are; zarr-python and TensorStore open what was made."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import zarr

from tests.api.support import Served, serving
from tests.documents import zarray

pytestmark = pytest.mark.filterwarnings("ignore:(The (data type|codec)|Consolidated metadata|Numcodecs codecs)")

ROOT = "/v1/metadata/data"
ARRAY = {"zarr_format": 3, "shape": [8, 8], "data_type": "uint16", "chunks": [2, 2], "shards": [4, 4]}


def keys_of(data: Served) -> list[str]:
    return sorted(data.keys())


def document(data: Served, path: str = "") -> Any:
    stored = data.store.get(f"{path}/zarr.json".lstrip("/"))
    assert stored is not None
    return json.loads(bytes(stored.data))


def test_an_array_is_made_with_its_groups_and_written(data: Served) -> None:
    body = {**ARRAY, "dimension_names": ["y", None], "attributes": {"unit": "K"}, "fill_value": 7}
    made = data.http.put(f"{ROOT}/a/b/x", json=body)
    assert made.status_code == 201, made.text
    assert made.json() | {"links": 0, "schema": 0, "limits": 0, "codecs": 0} == made.json() | {
        "zarr_format": 3, "shape": [8, 8], "chunks": [2, 2], "shards": [4, 4], "dimension_names": ["y", None],
        "attributes": {"unit": "K"}, "fill_value": 7, "also": [], "links": 0, "schema": 0, "limits": 0, "codecs": 0,
    }  # fmt: skip
    assert made.headers["ETag"] == data.http.get(f"{ROOT}/a/b/x").headers["ETag"]
    assert keys_of(data) == ["a/b/x/zarr.json", "a/b/zarr.json", "a/zarr.json", "zarr.json"]
    values = np.arange(64, dtype="<u2").reshape(8, 8)
    assert data.http.put("/v1/slice/data/a/b/x", content=values.tobytes()).status_code == 204
    url = f"{data.http.base_url}/zarr/data"
    opened = zarr.open_group(url, mode="r")["a/b/x"]
    assert isinstance(opened, zarr.Array)
    np.testing.assert_array_equal(np.asarray(opened[...]), values)
    assert (opened.attrs["unit"], opened.metadata.dimension_names) == ("K", ("y", None))  # type: ignore[union-attr]
    kvstore = {"driver": "http", "base_url": f"{url}/a/b/x/"}
    read = tensorstore.open({"driver": "zarr3", "kvstore": kvstore}).result().read().result()
    np.testing.assert_array_equal(read, values)


def test_modes_conditions_and_formats_hold_for_arrays_of_v3(data: Served) -> None:
    put = data.http.put
    assert put(f"{ROOT}/x", json=ARRAY).status_code == 201
    assert put(f"{ROOT}/x", json=ARRAY).status_code == 409
    assert put(f"{ROOT}/x?mode=open", json=ARRAY).status_code == 200
    assert put(f"{ROOT}/x?mode=open", json={"shards": [4, 4], "zarr_format": 3}).status_code == 200
    assert put(f"{ROOT}/x?mode=open", json={"shape": [8, 8]}).status_code == 200
    for member, wanted in {"shards": [2, 2], "data_type": "int8", "dimension_names": ["a", "b"]}.items():
        answer = put(f"{ROOT}/x?mode=open", json={**ARRAY, member: wanted})
        assert (answer.status_code, answer.json()["member"]) == (409, member), answer.text
    v2 = {"shape": [4], "dtype": "<i4", "zarr_format": 2}
    assert put(f"{ROOT}/x?mode=open", json=v2).json()["member"] == "zarr_format"
    assert put(f"{ROOT}/x", json=ARRAY, headers={"If-None-Match": "*"}).status_code == 412
    assert put(f"{ROOT}/x?mode=replace", json=v2).status_code == 201
    assert put(f"{ROOT}/x?mode=open", json=ARRAY).json()["member"] == "zarr_format"
    assert [key for key in keys_of(data) if key.startswith("x")] == ["x/.zarray"]
    assert put(f"{ROOT}/x?mode=replace", json=ARRAY).status_code == 201
    assert [key for key in keys_of(data) if key.startswith("x")] == ["x/zarr.json"]
    assert put(f"{ROOT}/x/y", json=ARRAY).json()["code"] == "wrong-kind"  # nothing lies below an array
    assert put(f"{ROOT}/s", json={"shape": [1], "dtype": "<i4", "shards": [1]}).json()["member"] == "shards"
    assert put(f"{ROOT}/s", json={**ARRAY, "zarr_format": 4}).json()["member"] == "zarr_format"


def test_a_group_may_hold_nodes_of_both_formats(data: Served) -> None:
    put = data.http.put
    assert put(f"{ROOT}/g", json={"zarr_format": 3, "attributes": {"a": 1}}).status_code == 201
    assert put(f"{ROOT}/g", json={"zarr_format": 2}).status_code == 409
    assert put(f"{ROOT}/g?mode=open", json={"zarr_format": 2}).json()["member"] == "zarr_format"
    assert put(f"{ROOT}/g?mode=open", json={"kind": "group"}).status_code == 200
    assert put(f"{ROOT}/g/v2", json={"shape": [4], "dtype": "<i4"}).status_code == 201
    assert put(f"{ROOT}/h/v2", json={"shape": [4], "dtype": "<i4"}).status_code == 201
    assert put(f"{ROOT}/h/v3", json=ARRAY).status_code == 201
    assert put(f"{ROOT}/g/v3", json=ARRAY).status_code == 201
    for group, zarr_format in (("g", 3), ("h", 2)):
        found = data.http.get(f"{ROOT}/{group}").json()
        assert (found["zarr_format"], [child["name"] for child in found["children"]]) == (zarr_format, ["v2", "v3"])
    assert [key for key in keys_of(data) if key.count("/") < 2] == ["g/zarr.json", "h/.zgroup", "zarr.json"]


def test_a_group_that_only_its_children_show_stays_so(data: Served) -> None:
    """A document would hide those below it that have none."""
    data.store.put("old/deep/x/.zarray", json.dumps(zarray()).encode())
    assert data.http.put(f"{ROOT}/old/new/y", json=ARRAY).status_code == 201
    assert keys_of(data) == ["old/deep/x/.zarray", "old/new/y/zarr.json", "old/new/zarr.json"]
    assert [child["name"] for child in data.http.get(f"{ROOT}/old").json()["children"]] == ["deep", "new"]


def test_attributes_and_shapes_change_and_arrays_go(data: Served) -> None:
    assert data.http.put(f"{ROOT}/g/x", json=ARRAY).status_code == 201
    tag = data.http.get("/v1/slice/data/g/x").headers["ETag"]
    patched = data.http.patch(f"{ROOT}/g/x", json={"attributes": {"a": {"b": 1}}})
    assert patched.json()["attributes"] == {"a": {"b": 1}}
    assert document(data, "g/x")["attributes"] == {"a": {"b": 1}}
    assert data.http.get("/v1/slice/data/g/x").headers["ETag"] == tag  # values have not changed
    stale = {"If-Match": data.http.get(f"{ROOT}/g/x").headers["ETag"]}
    both = {"attributes": {"a": None, "c": 2}, "shape": [12, None]}
    answer = data.http.patch(f"{ROOT}/g/x", json=both, headers=stale)
    assert (answer.status_code, answer.json()["shape"], answer.json()["attributes"]) == (200, [12, 8], {"c": 2})
    assert data.http.patch(f"{ROOT}/g/x", json=both, headers=stale).status_code == 412
    assert data.http.patch(f"{ROOT}/g", json={"attributes": {"n": 1}}).json()["attributes"] == {"n": 1}
    assert data.http.patch(f"{ROOT}/g/x", json={"shape": [2, 2]}).json()["shape"] == [2, 2]
    assert data.http.put("/v1/slice/data/g/x", content=bytes([1]) * 8).status_code == 204
    assert data.http.delete(f"{ROOT}/g").status_code == 409
    assert data.http.delete(f"{ROOT}/g?recursive=true").status_code == 204
    assert keys_of(data) == ["zarr.json"]


def test_consolidated_metadata_in_a_group_follow(data: Served) -> None:
    assert data.http.put(f"{ROOT}/g/x", json=ARRAY).status_code == 201
    assert "consolidated_metadata" not in document(data)
    url = f"{data.http.base_url}/zarr/data"
    local = zarr.storage.MemoryStore()
    group = zarr.create_group(local, attributes={"k": 1})
    group.create_array("g/x", shape=(1,), dtype="u1")  # out of date, as what a client saw before may be
    group.create_array("elsewhere", shape=(1,), dtype="u1")
    zarr.consolidate_metadata(local)
    sent = bytes(local._store_dict["zarr.json"].to_bytes())
    assert data.http.put(f"{url}/zarr.json", content=sent).status_code == 204
    inside = document(data)["consolidated_metadata"]["metadata"]
    assert (inside["g/x"]["shape"], inside["elsewhere"]["shape"]) == ([8, 8], [1])
    assert data.http.put(f"{ROOT}/g/y/z", json=ARRAY).status_code == 201
    assert data.http.patch(f"{ROOT}/g/x", json={"shape": [10, 8], "attributes": {"a": 1}}).status_code == 200
    assert data.http.patch(f"{ROOT}", json={"attributes": {"r": 1}}).status_code == 200
    root = document(data)
    inside = root["consolidated_metadata"]["metadata"]
    assert root["attributes"] == {"k": 1, "r": 1}
    assert sorted(inside) == ["elsewhere", "g", "g/x", "g/y", "g/y/z"]
    assert (inside["g/x"]["shape"], inside["g/x"]["attributes"]) == ([10, 8], {"a": 1})
    assert inside["g/y/z"] == document(data, "g/y/z")
    opened = zarr.open_group(url, mode="r", use_consolidated=True)["g/x"]
    assert opened.shape == (10, 8)  # type: ignore[union-attr]
    assert data.http.delete(f"{ROOT}/g/y?recursive=true").status_code == 204
    assert data.http.delete(f"{url}/g/x/zarr.json").status_code == 204
    assert sorted(document(data)["consolidated_metadata"]["metadata"]) == ["elsewhere", "g"]


@pytest.mark.parametrize(
    ("change", "member"),
    [
        ({"shape": [-1, 2]}, "shape"),
        ({"codecs": [{"name": "no"}]}, "'no'"),
        ({"unknown": 1}, "unknown"),
        ({"storage_transformers": [{"name": "t"}]}, "storage_transformers"),
        ({"fill_value": "x"}, "fill_value"),
        ({"zarr_format": 2}, "zarr_format"),
        ({"node_type": "table"}, "node_type"),
    ],
)
def test_a_document_put_as_a_key_is_checked(tmp_path: Path, change: dict[str, Any], member: str) -> None:
    with serving(tmp_path) as data:
        assert data.http.put(f"{ROOT}/x", json=ARRAY).status_code == 201
        sent = {**document(data, "x"), **change}
        answer = data.http.put("/zarr/data/y/zarr.json", json=sent)
        assert answer.status_code == 422
        assert member in answer.json()["detail"]
        assert "y/zarr.json" not in keys_of(data)


def test_keys_are_put_byte_for_byte_and_hide_nothing(data: Served) -> None:
    put, url = data.http.put, "/zarr/data"
    assert put(f"{ROOT}/x", json=ARRAY).status_code == 201
    text = json.dumps({**document(data, "x"), "extra": {"must_understand": False}}, indent=1).encode()
    first = put(f"{url}/y/zarr.json", content=text, headers={"If-None-Match": "*"})
    assert first.status_code == 201
    assert data.http.get(f"{url}/y/zarr.json").content == text
    assert put(f"{url}/y/zarr.json", content=text, headers={"If-None-Match": "*"}).status_code == 412
    assert put(f"{url}/y/zarr.json", content=text, headers={"If-Match": first.headers["ETag"]}).status_code == 204
    assert put(f"{url}/y/z/zarr.json", content=text).json()["code"] == "wrong-kind"
    group = b'{"zarr_format": 3, "node_type": "group", "attributes": {}}'
    assert put(f"{url}/y/zarr.json", content=group).status_code == 409  # an array would be gone
    assert put(f"{url}/g/zarr.json", content=group).status_code == 201
    assert put(f"{url}/g/zarr.json", content=text).status_code == 409
    assert put(f"{url}/g/.zgroup", content=b'{"zarr_format": 2}').status_code == 409  # would count for nothing
    smaller = json.dumps({**json.loads(text), "shape": [2, 2]}).encode()
    assert put("/v1/slice/data/y", content=bytes([1]) * 128).status_code == 204
    assert put(f"{url}/y/zarr.json", content=smaller).status_code == 204
    assert put(f"{url}/y/zarr.json", content=text).status_code == 204
    grown = np.frombuffer(data.http.get("/v1/slice/data/y").content, "<u2").reshape(8, 8)
    assert grown[:2, :2].all()
    assert grown.sum() == grown[:2, :2].sum()  # what was cut off has not come back
    assert put(f"{url}/y/c/0/0", content=b"no shard").status_code == 400
    assert put(f"{url}/y/0.0", content=b"").status_code == 400


def test_a_document_of_v3_may_take_over_an_array_of_v2(data: Served) -> None:
    v2 = {"shape": [4], "dtype": "<i4", "chunks": [2], "compressor": None}
    assert data.http.put(f"{ROOT}/x", json=v2).status_code == 201
    assert data.http.put("/v1/slice/data/x", content=np.arange(4, dtype="<i4").tobytes()).status_code == 204
    body = {**v2, "zarr_format": 3, "chunk_key_encoding": "v2"}
    assert data.http.put(f"{ROOT}/like", json=body).status_code == 201
    assert data.http.put("/zarr/data/x/zarr.json", json=document(data, "like")).status_code == 201
    found = data.http.get(f"{ROOT}/x").json()
    assert (found["zarr_format"], found["also"]) == (3, ["x/.zarray"])
    assert data.http.delete("/zarr/data/x/.zarray").status_code == 204
    assert data.http.get("/v1/slice/data/x?format=json").json() == [0, 1, 2, 3]
    assert data.http.delete("/zarr/data/x/zarr.json").status_code == 204
    assert data.http.put(f"{ROOT}/x", json=body).status_code == 201  # what an array has left is cleared
    assert data.http.get("/v1/slice/data/x?format=json").json() == [0, 0, 0, 0]


def test_of_many_creators_one_makes_the_node(data: Served) -> None:
    bodies = [{**ARRAY, "attributes": {"by": n}, "shape": [8, 8 + n]} for n in range(6)]
    bodies += [{"shape": [8], "dtype": "<i4", "attributes": {"by": n}} for n in range(6, 12)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: data.http.put(f"{ROOT}/g/x", json=body), bodies))
    assert sorted(answer.status_code for answer in answers) == [201] + 11 * [409]
    (made,) = [answer.json() for answer in answers if answer.status_code == 201]
    found = data.http.get(f"{ROOT}/g/x").json()
    assert found == made
    assert found["attributes"] == bodies[found["attributes"]["by"]]["attributes"]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with serving(tmp_path) as data:
        for change in ({"shards": [3, 3]}, {"data_type": "int3"}, {"codecs": "zstd"}, {"dimension_names": ["x"]}):
            answer = data.http.put(f"{ROOT}/x", json={**ARRAY, **change})
            assert (answer.status_code, answer.json()["member"]) == (422, next(iter(change))), answer.text
        assert keys_of(data) == []


def test_an_encoded_chunk_is_put_into_its_shard_and_leaves_the_others(data: Served) -> None:
    assert data.http.put(f"{ROOT}/x", json=ARRAY).status_code == 201
    values = np.arange(64, dtype="<u2").reshape(8, 8)
    assert data.http.put("/v1/slice/data/x", content=values.tobytes()).status_code == 204
    source, target = "/v1/chunk/data/x/0.1?format=stored", "/v1/chunk/data/x/3.2?format=stored"
    encoded, before = data.http.get(source).content, data.http.get(target)

    stale = data.http.put(target, content=encoded, headers={"If-Match": '"x"'})
    broken = data.http.put(target, content=encoded[:-1] + b"!!")
    beyond = data.http.put("/v1/chunk/data/x/4.0?format=stored", content=encoded)
    assert [stale.status_code, broken.status_code, beyond.status_code] == [412, 400, 422], broken.text
    assert data.http.get(target).content == before.content
    tag = data.http.get("/v1/chunk/data/x/3.2").headers["ETag"]
    put = data.http.put(target, content=encoded, headers={"If-Match": tag})

    after = data.http.get(target)
    assert (put.status_code, after.content) == (204, encoded), put.text
    assert "etag" not in put.headers
    assert after.headers["ETag"] != before.headers["ETag"]
    values[6:8, 4:6] = values[0:2, 2:4]
    np.testing.assert_array_equal(zarr.open_array(f"{data.http.base_url}/zarr/data/x", mode="r")[...], values)
    assert data.http.put(f"{ROOT}/empty", json=ARRAY).status_code == 201
    assert data.http.put("/v1/chunk/data/empty/0.1?format=stored", content=encoded).status_code == 204
    found = np.asarray(zarr.open_array(f"{data.http.base_url}/zarr/data/empty", mode="r")[...])
    np.testing.assert_array_equal(found[0:2, 2:4], values[0:2, 2:4])
    assert np.count_nonzero(found) == 4
