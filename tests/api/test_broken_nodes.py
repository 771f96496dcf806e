"""Nodes whose documents cannot be read: what they hold is told to everybody, and who may write can be rid of them."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from hyperslab import RemoteArray, RemoteGroup
from hyperslab.conversion.places import StorePlace
from hyperslab.errors import StoreDenied
from hyperslab.storage import StoreConfig
from tests.api.support import DEFINITION, Served, problem, serving
from tests.documents import zarray
from tests.s3 import S3Server

A = "/v1/metadata/data/a"
NOBODY = 65534
BROKEN = {
    "no JSON": {".zarray": b"{"},
    "no object": {".zarray": b"[1]"},
    "a member that is wrong": {".zarray": json.dumps(zarray(chunks=[0])).encode()},
    "a codec that is refused": {".zarray": json.dumps(zarray(compressor={"id": "pickle"})).encode()},
}


@pytest.mark.parametrize(
    ("data", "name"), [*(("folder", name) for name in BROKEN), ("bucket", "no JSON")], indirect=["data"]
)
def test_a_broken_node_can_be_replaced_and_deleted_and_all_else_tells_what_is_broken(data: Served, name: str) -> None:
    data.break_node(BROKEN[name])
    before = sorted(data.keys())

    assert data.http.get(A).status_code == 502
    answers = [
        data.http.put(A, json=DEFINITION),
        data.http.put(A, params={"mode": "open"}, json=DEFINITION),
        data.http.put(f"{A}/below", json=DEFINITION),
        data.http.patch(A, json={"shape": [2]}),
        data.http.patch(A, json={"attributes": {"k": 1}}),
        data.http.put("/v1/slice/data/a", json=1),
        data.http.put("/v1/chunk/data/a/0", json=1),
        data.http.delete("/v1/chunk/data/a/0"),
        data.http.post("/v1/append/data/a", json=[1]),
        data.http.put("/zarr/data/a/0", content=bytes(8)),
        data.http.delete("/zarr/data/a/0"),
    ]

    assert {problem(answer)[0] for answer in answers} == {502}
    assert {problem(answer)[1] for answer in answers} <= {"bad-metadata", "codec-refused"}
    assert sorted(data.keys()) == before

    assert data.http.put(A, params={"mode": "replace"}, json=DEFINITION).status_code == 201
    assert data.http.get(A).json()["shape"] == [4]
    assert sorted(data.keys()) == [".zgroup", "a/.zarray"]
    assert data.http.get("/v1/slice/data/a?format=json").json() == [0, 0, 0, 0]

    assert data.http.delete(A).status_code == 204
    data.break_node(BROKEN[name])
    assert data.http.delete(A).status_code == 204
    assert data.http.get(A).status_code == 404
    assert data.keys() == [".zgroup"]


@pytest.mark.parametrize("broken", [b"{", b"", b"[1]"])
@pytest.mark.parametrize("data", ["folder", "bucket"], indirect=True)
def test_broken_attributes_hide_no_values_but_what_they_mean(data: Served, broken: bytes) -> None:
    http = data.http
    for path in ("a", "g/b"):
        http.put(f"/v1/metadata/data/{path}", json=DEFINITION).raise_for_status()
    for name in ("a", "g"):
        data.store.put(f"{name}/.zattrs", broken)
    wrong = "a/.zattrs: not JSON" if broken != b"[1]" else "a/.zattrs: expected a JSON object"

    assert http.put("/v1/slice/data/a?select=1", json=7).status_code == 204
    assert RemoteArray(f"{http.base_url}/v1/slice/data/a")[...].tolist() == [0, 7, 0, 0]
    (line,) = http.get(A).json()["problems"]
    assert line.startswith(wrong)
    group = http.get("/v1/metadata/data/g").json()
    assert ([child["name"] for child in group["children"]], len(group["problems"])) == (["b"], 1)
    (row, _) = http.get("/v1/metadata/data?table=true").json()["children"]
    assert (row["shape"], row["problem"]) == ([4], line)

    decoded = [f"/v1/slice/data/a?decode=cf&{form}" for form in ("format=json", "reduce=minmax&bins=2")]
    for target in (*decoded, "/v1/tile/data/a/thumbnail.png", "/v1/tile/data/g/info.json", f"{A}?decode=cf"):
        assert problem(http.get(target)) == (502, "bad-metadata"), target
    assert problem(http.patch(A, json={"attributes": {"k": 1}})) == (502, "bad-metadata")
    assert problem(http.get("/zarr3/data/a/zarr.json")) == (404, "form-not-found")
    stored = data.store.get("a/.zattrs")
    assert stored is not None
    assert stored.data == broken
    consolidated = http.get("/zarr/data/.zmetadata").json()
    assert consolidated["metadata"].keys() == {".zgroup", "g/.zgroup", "g/b/.zarray"}
    assert consolidated["left_out"] == ["a/.zattrs", "g/.zattrs"]
    assert http.get("/zarr3/data/zarr.json").json()["consolidated_metadata"]["metadata"].keys() == {"g", "g/b"}
    for route in ("zarr2", "zarr3"):
        assert problem(http.get(f"/{route}/data/g/.zattrs"))[0] == 404
        assert list(zarr.open_group(f"{data.url}/{route}/data/g", mode="r")) == ["b"]

    http.put("/zarr/data/a/.zattrs", json={"scale_factor": 0.5}).raise_for_status()
    assert http.get("/v1/slice/data/a?decode=cf&format=json").json()[1] == 3.5
    assert http.delete("/v1/metadata/data/g?recursive=true").status_code == 204


def test_broken_attributes_in_a_zarr_json_hide_no_values_but_what_they_mean(tmp_path: Path) -> None:
    with serving(tmp_path) as data:
        http = data.http
        for path, kind in (("g", {"kind": "group"}), ("a", DEFINITION), ("g/b", DEFINITION)):
            http.put(f"/v1/metadata/data/{path}", json={"zarr_format": 3, **kind}).raise_for_status()
        for path in ("a", "g"):
            document = {**json.loads((tmp_path / path / "zarr.json").read_bytes()), "attributes": [1]}
            (tmp_path / path / "zarr.json").write_text(json.dumps(document))

        assert http.put("/v1/slice/data/a?select=1", json=7).status_code == 204
        assert http.get("/v1/slice/data/a?format=json").json() == [0, 7, 0, 0]
        (line,) = http.get(A).json()["problems"]
        assert line.startswith("a/zarr.json: attributes: expected a JSON object, found [1]: ")
        group = http.get("/v1/metadata/data/g").json()
        assert ([child["name"] for child in group["children"]], len(group["problems"])) == (["b"], 1)
        for target in ("/v1/slice/data/a?decode=cf&format=json", "/v1/tile/data/g/info.json"):
            assert problem(http.get(target)) == (502, "bad-metadata"), target
        assert problem(http.patch(A, json={"attributes": {"k": 1}})) == (502, "bad-metadata")
        http.patch(A, json={"shape": [5]}).raise_for_status()
        assert json.loads((tmp_path / "a" / "zarr.json").read_bytes())["attributes"] == [1]
        inline = http.get("/zarr3/data/zarr.json").json()["consolidated_metadata"]["metadata"]
        assert inline.keys() == {"g", "g/b"}
        assert inline["g"]["attributes"] == {}
        assert http.get("/zarr2/data/.zmetadata").json()["metadata"].keys() == {".zgroup", "g/.zgroup", "g/b/.zarray"}
        for route in ("zarr2", "zarr3"):
            assert list(zarr.open_group(f"{data.url}/{route}/data/g", mode="r")) == ["b"]
        assert problem(http.put("/zarr/data/a/zarr.json", json=document)) == (422, "bad-definition")


@pytest.mark.parametrize("data", ["folder", "bucket"], indirect=True)
@pytest.mark.parametrize("broken", [b"", b"[1]", b'{"metadata": {"a/.zarray": 3}}'])
def test_a_group_of_v2_opens_where_its_own_documents_are_broken(data: Served, broken: bytes) -> None:
    """They are made of the nodes, as if they were absent."""
    data.http.put(A, json=DEFINITION).raise_for_status()
    made = data.http.get("/zarr/data/.zmetadata")
    for name in (".zgroup", ".zmetadata"):
        data.store.put(name, broken)

    assert len(data.http.get("/v1/metadata/data").json()["problems"]) == 2
    for route in ("zarr", "zarr2", "zarr3"):
        assert list(zarr.open_group(f"{data.url}/{route}/data", mode="r")) == ["a"]
    for name in ("zarr", "zarr2"):
        answer = data.http.get(f"/{name}/data/.zmetadata")
        assert (answer.content, answer.headers["etag"]) == (made.content, made.headers["etag"])
        assert (
            data.http.head(f"/{name}/data/.zgroup").headers["etag"]
            == data.http.get(f"/{name}/data/.zgroup").headers["etag"]
        )
    stored = data.store.get(".zmetadata")
    assert stored is not None
    assert stored.data == broken


@pytest.mark.parametrize("broken", [5, {"kind": "inline", "metadata": {"a": 5}}, {"kind": "other", "metadata": {}}])
def test_broken_consolidated_metadata_of_v3_take_nothing_from_their_group(tmp_path: Path, broken: Any) -> None:
    with serving(tmp_path) as data:
        for path, kind in (("g", {"kind": "group", "attributes": {"k": 1}}), ("g/a", DEFINITION)):
            data.http.put(f"/v1/metadata/data/{path}", json={"zarr_format": 3, **kind}).raise_for_status()
        key = tmp_path / "g" / "zarr.json"
        document = {**json.loads(key.read_bytes()), "consolidated_metadata": broken}
        assert problem(data.http.put("/zarr/data/g/zarr.json", json=document)) == (422, "bad-definition")
        key.write_text(json.dumps(document))

        group = data.http.get("/v1/metadata/data/g").json()
        assert (group["attributes"], [child["name"] for child in group["children"]]) == ({"k": 1}, ["a"])
        (line,) = group["problems"]
        assert line.startswith("g/zarr.json: consolidated_metadata: ")
        opened = zarr.open_group(f"{data.url}/zarr3/data/g", mode="r")
        assert (dict(opened.attrs), list(opened)) == ({"k": 1}, ["a"])
        data.http.patch("/v1/metadata/data/g/a", json={"shape": [5]}).raise_for_status()
        assert json.loads(key.read_bytes()) == document


def test_a_broken_group_with_children_goes_only_recursively(data: Served) -> None:
    data.http.put("/v1/metadata/data/a/inner/b", json=DEFINITION)
    data.store.put("a/.zgroup", b"{")

    refused = data.http.delete(A)
    kept = data.keys()
    deleted = data.http.delete(A, params={"recursive": True})

    assert problem(refused) == (409, "node-exists")
    assert "a/inner/b/.zarray" in kept
    assert deleted.status_code == 204
    assert data.keys() == [".zgroup"]


def test_conditions_hold_for_broken_nodes_too(data: Served) -> None:
    """Their tags are those of the stored documents, since there is no other that could be read."""
    data.break_node(BROKEN["no JSON"])
    tag = data.http.get("/zarr/data/a/.zarray").headers["etag"]
    replace: Any = {"params": {"mode": "replace"}, "json": DEFINITION}

    assert problem(data.http.delete(A, headers={"If-Match": '"other"'})) == (412, "precondition-failed")
    assert problem(data.http.put(A, **replace, headers={"If-None-Match": "*"})) == (412, "precondition-failed")
    assert sorted(data.keys()) == ["a/.zarray", "a/0", "a/1"]
    assert data.http.put(A, **replace, headers={"If-Match": tag}).status_code == 201
    data.store.put("a/.zarray", b"{")
    assert data.http.delete(A, headers={"If-Match": "*"}).status_code == 204


def test_a_consolidated_document_forgets_the_broken_node(data: Served) -> None:
    data.http.put("/v1/metadata/data/b", json=DEFINITION)
    data.break_node(BROKEN["no JSON"])
    documents = dict.fromkeys(("a/.zarray", "b/.zarray"), zarray())
    data.store.put(".zmetadata", json.dumps({"zarr_consolidated_format": 1, "metadata": documents}).encode())

    assert data.http.delete(A).status_code == 204

    assert data.http.get("/zarr/data/.zmetadata").json()["metadata"].keys() == {"b/.zarray"}
    assert data.http.get(A).status_code == 404


def test_a_node_below_a_consolidated_document_that_is_broken_is_not_taken_for_broken(data: Served) -> None:
    """It has no document of its own: what is broken is not its own, and would stay."""
    data.store.put(".zmetadata", b"{")

    assert problem(data.http.delete(A)) == (404, "node-not-found")
    assert data.http.put(A, params={"mode": "replace"}, json=DEFINITION).status_code == 201
    assert data.store.get(".zmetadata") is not None


def test_the_client_shows_a_broken_node_among_the_others_and_can_be_rid_of_it(data: Served) -> None:
    group = RemoteGroup(f"{data.http.base_url}/v1/metadata/data")
    group.create_array("b", (4,), "<i4")
    for name in ("a", "c"):
        data.break_node(BROKEN["no JSON"], name)

    lines = str(group.tree()).splitlines()
    group.delete("a")
    group.create_array("c", (5,), "<i4", mode="replace")

    assert lines[1].startswith("├── a, which is broken: a/.zarray: not JSON")
    assert lines[2] == "├── b (4,) int32, 16 B"
    assert {name: array.shape for name, array in group.arrays()} == {"b": (4,), "c": (5,)}


def test_a_store_that_is_read_only_keeps_its_broken_nodes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".zarray").write_text("{")
    with serving(StoreConfig(name="data", url=str(tmp_path)), writable=False) as data:
        assert problem(data.http.delete(A)) == (403, "read-only")
        assert problem(data.http.put(A, params={"mode": "replace"}, json=DEFINITION)) == (403, "read-only")
    assert (tmp_path / "a" / ".zarray").exists()


def test_a_folder_or_a_pipe_in_the_place_of_a_value_is_a_fault_of_the_store(tmp_path: Path) -> None:
    """No mistake in the request, nor fill values where it is no folder; other nodes do not suffer from it."""
    with serving(tmp_path) as data:
        for name in ("a", "b", "c"):
            data.http.put(f"/v1/metadata/data/{name}", json=DEFINITION).raise_for_status()
        (tmp_path / "a" / "1").mkdir()
        os.mkfifo(tmp_path / "a" / "0")
        os.mkfifo(tmp_path / "b" / ".zattrs")

        answers = [
            data.http.get("/v1/slice/data/a"),
            data.http.get("/v1/chunk/data/a/0"),
            data.http.put("/v1/slice/data/a?select=1:3", content=bytes(8)),
            data.http.put("/v1/chunk/data/a/1", content=b"12345678"),
        ]
        group = data.http.get("/v1/metadata/data").json()

    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (502, "store-failed")
        assert "stands where the value of this key should be" in answer.json()["detail"]
    assert [child["name"] for child in group["children"]] == ["a", "b", "c"]


def test_what_is_wrong_with_one_document_does_not_hide_its_siblings(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with serving(tmp_path) as data:
        for name in ("a", "b"):
            data.http.put(f"/v1/metadata/data/{name}", json=DEFINITION).raise_for_status()
        for name in ("circle", "pipe", "out", "attributes"):
            (tmp_path / name).mkdir()
        (tmp_path / "circle" / ".zarray").symlink_to(tmp_path / "circle" / ".zarray")
        os.mkfifo(tmp_path / "pipe" / ".zgroup")
        secret = tmp_path_factory.mktemp("outside") / "secret"
        secret.write_text(json.dumps(zarray()))
        (tmp_path / "out" / ".zarray").symlink_to(secret)
        (tmp_path / "attributes" / ".zarray").write_bytes(secret.read_bytes())
        (tmp_path / "attributes" / ".zattrs").symlink_to(secret)

        children = data.http.get("/v1/metadata/data").json()["children"]
        consolidated = data.http.get("/zarr/data/.zmetadata").json()["metadata"]
        alone = [problem(data.http.get(f"/v1/metadata/data/{name}")) for name in ("circle", "pipe", "out")]

    assert {"a", "b"} <= {child["name"] for child in children}
    assert sorted(consolidated) == [".zgroup", "a/.zarray", "b/.zarray"]
    assert alone == [(502, "store-failed"), (200, None), (400, "bad-path")]


@pytest.fixture
def unprivileged_folder() -> Iterator[Path]:
    """A folder of the user who runs the test; of nobody, who runs it then, where that is root, who may enter any."""
    with tempfile.TemporaryDirectory() as name:
        root = os.geteuid() == 0
        if root:
            os.chown(name, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            if root:
                os.seteuid(0)


def test_a_folder_that_may_not_be_entered_does_not_hide_its_siblings(unprivileged_folder: Path) -> None:
    """As ``lost+found`` may not, on a disk of its own."""
    forbidden = unprivileged_folder / "lost+found"
    store = StoreConfig(name="data", url=str(unprivileged_folder), writable=True, durability="rename")
    with serving(store) as data:
        data.http.put(A, json=DEFINITION).raise_for_status()
        forbidden.mkdir(mode=0)

        group = data.http.get("/v1/metadata/data").json()
        alone = data.http.get("/v1/metadata/data/lost+found")
        refused = data.http.delete("/v1/metadata/data")
        removed = data.http.delete("/v1/metadata/data?recursive=true&foreign=true")
        forbidden.chmod(0o755)

    assert [child["name"] for child in group["children"]] == ["a"]
    assert group["problems"] == ["'lost+found' is not served: Permission denied (EACCES)"]
    assert problem(alone) == (502, "store-denied")
    assert problem(refused) == (409, "node-exists")
    assert removed.json()["kept"] == {"count": 1, "keys": ["lost+found"]}
    assert [path.name for path in unprivileged_folder.iterdir() if not path.name.startswith(".")] == ["lost+found"]


@pytest.mark.parametrize("name", [".zarray", ".zattrs", ".zgroup", ".zmetadata", "0"])
def test_what_is_too_large_is_named_unread_and_can_be_deleted(tmp_path: Path, name: str) -> None:
    """A file of a tebibyte takes no space on the disk where it is all holes, and would take as much memory."""
    (tmp_path / "a").mkdir()
    if name in (".zattrs", "0"):
        (tmp_path / "a" / ".zarray").write_text(json.dumps(zarray()))
    with (tmp_path / "a" / name).open("wb") as sparse:
        sparse.truncate(1 << 40)
    with serving(tmp_path) as data:
        http, target = data.http, {"0": "/v1/slice/data/a", ".zmetadata": A + "/x"}.get(name, A)
        answer = http.get(target)
        if name in (".zattrs", ".zgroup"):
            assert answer.json()["problems"][0].startswith(f"a/{name}: it has {1 << 40} bytes: ")
        else:
            code = "chunk-corrupt" if name == "0" else "stored-too-large"
            assert (answer.status_code, answer.json()["code"], answer.json()["key"]) == (502, code, f"a/{name}")
            assert str(1 << 40) in answer.json()["detail"]
            assert name == "0" or answer.json()["limit"] <= 64 << 20
        size = len('{"zarr_format":2}') if name == ".zgroup" else 1 << 40
        assert http.head(f"/zarr/data/a/{name}").headers["content-length"] == str(size)
        if name == "0":
            assert http.put("/v1/slice/data/a?select=0", json=1).json()["code"] == "chunk-corrupt"
            assert http.put("/v1/slice/data/a", json=1).status_code == 204
        assert http.delete(A).status_code == (502 if name == ".zmetadata" else 204)


V3_ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4],
    "data_type": "int32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default"},
    "fill_value": 0,
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({**V3_ARRAY, "node_type": "group"}, "it is 'group', but the document describes an array"),
        ({"zarr_format": 3, "node_type": "array", "attributes": {}}, "it is 'array', but the document describes none"),
    ],
)
def test_a_document_with_the_wrong_node_type_is_reported(tmp_path: Path, document: dict[str, Any], reason: str) -> None:
    with serving(tmp_path) as data:
        data.break_node({"zarr.json": json.dumps(document).encode()})

        answer = data.http.get(A)

    assert problem(answer) == (502, "bad-metadata")
    assert answer.json()["member"] == "node_type"
    assert answer.json()["reason"].startswith(reason)


def test_a_group_whose_document_describes_an_array_says_so(tmp_path: Path) -> None:
    with serving(tmp_path) as data:
        data.break_node({".zgroup": json.dumps(zarray()).encode()})

        assert data.http.get(A).json()["problems"] == ["a/.zgroup: it describes an array, which belongs into a .zarray"]


@pytest.mark.parametrize(("shape", "chunks", "then"), [([0], [0], [65536]), ([0, 4], [0, 2], [32768, 2])])
def test_an_empty_array_without_a_chunk_size_grows(
    tmp_path: Path, shape: list[int], chunks: list[int], then: list[int]
) -> None:
    rows = np.arange(2 * math.prod(shape[1:]), dtype="<i4").reshape(2, *shape[1:]) + 1
    with serving(tmp_path) as data:
        data.break_node({".zarray": json.dumps(zarray(shape=shape, chunks=chunks, dtype="<i4")).encode()})

        assert data.http.get(A).json()["chunks"] == then
        data.http.post("/v1/append/data/a", content=rows.tobytes()).raise_for_status()
        data.http.patch(A, json={"shape": [3.0, *shape[1:]]}).raise_for_status()

        assert data.http.get(A).json()["chunks"] == then
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "a"))[:2], rows)


@pytest.mark.parametrize("mode", [0, 0o555], ids=oct)
def test_a_folder_that_may_not_be_changed_is_named_before_anything_is_removed(
    unprivileged_folder: Path, mode: int
) -> None:
    """Of an array, by whatever request; one that may not be listed at all stays where its group is deleted."""
    store = StoreConfig(name="data", url=str(unprivileged_folder), writable=True, durability="rename")
    group, forbidden = "/v1/metadata/data/g", unprivileged_folder / "g/sub"
    with serving(store) as data:
        for path in ("/a", "/sub/b", "/z"):
            data.http.put(f"{group}{path}", json=DEFINITION).raise_for_status()
        before = sorted(data.keys())
        forbidden.chmod(mode)

        refused = [data.http.put(group, json=DEFINITION, params={"mode": "replace", "foreign": "true"})]
        with pytest.raises(StoreDenied, match="'sub/'"):
            StorePlace(str(unprivileged_folder / "g"), "job").clear()
        if mode:
            refused.append(data.http.delete(f"{group}?recursive=true"))
        forbidden.chmod(0o755)
        after = sorted(data.keys())
        forbidden.chmod(mode)
        removed = data.http.delete(f"{group}?recursive=true") if not mode else None
        forbidden.chmod(0o755)

    assert [(problem(answer), answer.json()["key"]) for answer in refused] == [
        ((502, "store-denied"), "g/sub/") for _ in refused
    ]
    assert after == before
    assert removed is None or removed.json()["kept"] == {"count": 1, "keys": ["g/sub"]}


def test_folder_objects_of_a_bucket_are_no_keys(s3_server: S3Server) -> None:
    """Consoles, and file systems on buckets, make an object of no bytes for each folder, also where a chunk may lie."""
    bucket = s3_server.new_bucket()
    with serving(bucket.config(name="data", writable=True)) as data:
        for _ in range(2):
            assert data.http.put(A, json=DEFINITION).status_code == 201
            for key in ("a/", "a/0/"):
                s3_server.client.put_object(Bucket=bucket.name, Key=key, Body=b"")
            assert data.http.get("/v1/slice/data/a?format=json").json() == [0, 0, 0, 0]
            assert data.http.delete(A).status_code == 204
        assert data.http.get(A).status_code == 404
        assert [entry.key for entry in data.store.list_prefix("a/")] == []
