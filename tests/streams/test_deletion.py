"""Streams that are removed as nodes: nothing of them stays, in folders and in buckets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hyperslab.arrays.create import Creator
from hyperslab.errors import StoreError
from tests.streams.support import Lab, client_of, dimension

BOTH = pytest.mark.parametrize("lab", ["folder", "bucket"], indirect=True, scope="module")
SIDE = [dimension("y", 8, 8), dimension("x", 8, 8)]
ARRAYS: list[dict[str, Any]] = [{"key": "a", "dtype": "|u1", "dimensions": [dimension("t", None, 2), *SIDE]}]

REMOVALS: dict[str, list[tuple[str, str, dict[str, str], Any]]] = {
    "node": [("DELETE", "lab/up/run", {"recursive": "true"}, None)],
    "array and group": [("DELETE", "lab/up/run/a", {}, None), ("DELETE", "lab/up/run", {}, None)],
    "group above": [("DELETE", "lab/up", {"recursive": "true"}, None)],
    "with foreign keys": [("DELETE", "lab/up", {"recursive": "true", "foreign": "true"}, None)],
    "store": [("DELETE", "lab", {"recursive": "true"}, None)],
    "replaced by an array": [("PUT", "lab/up/run", {"mode": "replace"}, {"shape": [2], "dtype": "u1"})],
    "group above replaced": [("PUT", "lab/up", {"mode": "replace"}, {"kind": "group"})],
}


@pytest.mark.parametrize(
    ("lab", "removal", "finished"),
    [
        *[("folder", removal, number % 2 == 0) for number, removal in enumerate(REMOVALS)],
        ("bucket", "array and group", True),
        ("bucket", "with foreign keys", False),
        ("bucket", "group above replaced", False),
    ],
    indirect=["lab"],
    scope="module",
)
def test_a_stream_is_gone_with_its_node(lab: Lab, removal: str, finished: bool) -> None:
    client, path = lab.client, "/v1/stream/lab/up/run"
    assert client.put(path, json={"arrays": ARRAYS}, params={"if_exists": "replace"}).status_code == 201
    assert client.patch(path, content=bytes(3 * 64)).status_code == 204
    if finished:
        client.delete(path, params={"finish": "true"}).raise_for_status()

    for method, node, parameters, body in REMOVALS[removal]:
        client.request(method, f"/v1/metadata/{node}", params=parameters, json=body).raise_for_status()

    assert client.get(path).status_code == 404
    files = [str(file.relative_to(lab.place.files())) for file in lab.place.files().rglob("*")]
    assert [name for name in files if ".hyperslab.stream" in name and "lease" not in name] == []
    if removal == "replaced by an array":
        client.delete("/v1/metadata/lab/up/run").raise_for_status()
    again = client.put(path, json={"arrays": ARRAYS})
    assert (again.status_code, again.json()["arrays"]["a"]["offset"]) == (201, 0)
    client.delete(path, params={"discard": "true"}).raise_for_status()


@BOTH
def test_a_stream_at_the_root_is_gone_with_all_nodes(lab: Lab) -> None:
    client = lab.client
    assert client.put("/v1/stream/lab", json={"arrays": ARRAYS}, params={"if_exists": "replace"}).status_code == 201
    client.delete("/v1/metadata/lab", params={"recursive": "true"}).raise_for_status()
    assert client.get("/v1/stream/lab").status_code == 404
    assert client.put("/v1/stream/lab", json={"arrays": ARRAYS}).status_code == 201
    client.delete("/v1/stream/lab", params={"discard": "true"}).raise_for_status()


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("again", ["discard", "open"])
def test_a_discard_that_is_gone_on_with_spares_an_array_that_came_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str, finished: bool, zarr_format: int
) -> None:
    path, node = "/v1/stream/lab/run", "/v1/metadata/lab/run"
    stream = {"arrays": [{**ARRAYS[0], "key": key} for key in ("a", "b", "c")], "zarr_format": zarr_format}
    remove = Creator.delete

    def delete(creator: Creator, removed: str, **options: Any) -> Any:
        if removed == "lab/run/b":
            raise StoreError("lab", removed, "the disk is gone")
        return remove(creator, removed, **options)

    with client_of({"url": str(tmp_path), "writable": True}) as client:
        client.put(path, json=stream).raise_for_status()
        if finished:
            client.delete(path, params={"finish": "true"}).raise_for_status()
        with monkeypatch.context() as failing:
            failing.setattr(Creator, "delete", delete)
            assert client.delete(path, params={"discard": "true"}).status_code == 502
        assert [client.get(f"{node}/{key}").status_code for key in "abc"] == [200, 200, 404]
        client.put(f"{node}/c", json={"shape": [3], "dtype": "u1"}).raise_for_status()
        client.put("/v1/slice/lab/run/c", content=b"abc").raise_for_status()

        if again == "discard":
            client.delete(path, params={"discard": "true"}).raise_for_status()
        else:
            opening = client.put(path, json=stream)
            assert (opening.status_code, opening.json()["path"]) == (409, "lab/run/c")

        assert client.get("/v1/slice/lab/run/c").content == b"abc"
        assert [client.get(f"{node}/{key}").status_code for key in "ab"] == [404, 404]
        assert not [file for file in tmp_path.rglob("*.json") if ".hyperslab.stream" in str(file)]
