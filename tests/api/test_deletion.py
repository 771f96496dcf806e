"""Deleting and replacing: what is not of Zarr stays, and is named, unless it is asked for too."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from hyperslab import RemoteGroup, errors
from hyperslab.arrays import documents
from tests.api.support import DEFINITION, Served, problem, serving
from tests.s3 import S3Server
from tests.storage.test_contract import bucket_of

EXP = "/v1/metadata/data/exp"
FOREIGN = ["exp/notes.txt", "exp/tiffs/a.tif"]
V3 = ["exp/v3/c/0", "exp/v3/zarr.json"]
GROUP = b'{"zarr_format": 2}'


def mixed(data: Served, tmp_path: Path) -> None:
    """A group ``exp`` that holds an array of Zarr v3 and foreign files."""
    v3 = tmp_path.with_name(f"{tmp_path.name}-v3")
    zarr.create_array(str(v3), data=np.ones(4), zarr_format=3)
    files = {f"exp/v3/{path.relative_to(v3)}": path.read_bytes() for path in v3.rglob("*") if path.is_file()}
    for key, value in {"exp/.zgroup": GROUP, "exp/tiffs/a.tif": b"II*", "exp/notes.txt": b"x", **files}.items():
        data.store.put(key, value)


def nodes(data: Served, *paths: str) -> None:
    for path in paths:
        data.http.put(f"{EXP}{path}", json=DEFINITION).raise_for_status()
        data.http.put(f"/v1/slice/data/exp{path}", json=7).raise_for_status()


def test_a_group_goes_alone_only_where_nothing_else_lies_below(data: Served, tmp_path: Path) -> None:
    mixed(data, tmp_path)
    before = sorted(data.keys())

    refused = data.http.delete(EXP)
    with pytest.raises(errors.NodeExists, match=r"exp/notes\.txt"):
        del RemoteGroup(f"{data.http.base_url}/v1/metadata/data")["exp"]

    assert problem(refused) == (409, "node-exists")
    assert refused.json()["keys"] == [*FOREIGN, *V3]
    assert sorted(data.keys()) == before
    for key in [*FOREIGN, *V3]:
        data.store.delete(key)
    assert data.http.delete(EXP).status_code == 204
    assert data.keys() == []


def test_an_array_at_any_depth_below_a_group_refuses_its_deletion(data: Served) -> None:
    deep = "H5/a/b/c/d/e/.zarray"
    for key in ("H5/.zgroup", *(f"H5/{n:02}/x" for n in range(20)), deep):
        data.store.put(key, GROUP)

    refused = data.http.delete("/v1/metadata/data/H5")

    assert problem(refused) == (409, "node-exists")
    assert len(refused.json()["keys"]) == 5
    assert data.store.get(deep) is not None


@pytest.mark.parametrize("data", ["folder", "bucket", "memory", "fsspec"], indirect=True)
def test_a_recursive_deletion_takes_zarr_and_names_what_stays(data: Served, tmp_path: Path) -> None:
    mixed(data, tmp_path)
    nodes(data, "/a", "/g/deep/er/b")
    data.store.put("exp/a/readme.md", b"x")  # beside the chunks of an array
    data.store.put("exp/a/9", bytes(8))  # a chunk that a plain shrink has left
    group = RemoteGroup(f"{data.http.base_url}/v1/metadata/data")

    kept = group.delete("exp", recursive=True)

    stayed = sorted([*FOREIGN, "exp/a/readme.md"])
    assert kept == {"count": 3, "keys": stayed}
    assert sorted(data.keys()) == [".zgroup", *stayed]


def test_foreign_keys_go_where_that_is_said(data: Served, tmp_path: Path) -> None:
    mixed(data, tmp_path)
    nodes(data, "/a")

    assert problem(data.http.delete(EXP, params={"foreign": "true"})) == (400, "bad-parameter")
    assert data.http.delete(EXP, params={"recursive": "true", "foreign": "true"}).status_code == 204
    assert data.keys() == [".zgroup"]


def test_a_flag_without_a_value_destroys_nothing(data: Served) -> None:
    nodes(data, "/a")
    before = sorted(data.keys())

    for query in ("recursive=", "recursive", "recursive=true&foreign="):
        for path in ("/v1/metadata/data", EXP):
            assert problem(data.http.delete(f"{path}?{query}")) == (400, "bad-parameter")

    assert sorted(data.keys()) == before


def test_an_array_with_something_of_others_is_no_exception(data: Served) -> None:
    nodes(data, "")
    data.store.put("exp/notes.txt", b"x")
    data.store.put("exp/inner/.zarray", GROUP)

    refused = data.http.delete(EXP)
    answer = data.http.delete(EXP, params={"recursive": "true"})

    assert refused.json()["keys"] == ["exp/inner/.zarray", "exp/notes.txt"]
    assert answer.json() == {"path": "data/exp", "kept": {"count": 1, "keys": ["exp/notes.txt"]}}
    assert sorted(data.keys()) == [".zgroup", "exp/notes.txt"]


def test_what_is_left_of_v3_is_part_of_a_node_that_is_of_both_formats(data: Served) -> None:
    for name in ("exp/zarr.json", "exp/c/0", "exp/c"):
        nodes(data, "")
        for key in {"exp/zarr.json", name}:
            data.store.put(key, b'{"zarr_format": 3, "node_type": "array"}')

        assert data.http.delete(EXP, params={"recursive": "true"}).status_code == 204
        assert data.keys() == [".zgroup"]


@pytest.mark.parametrize("data", ["folder", "bucket", "memory", "fsspec"], indirect=True)
def test_a_replacement_leaves_what_is_not_of_zarr(data: Served, tmp_path: Path) -> None:
    mixed(data, tmp_path)
    nodes(data, "/a")

    made = data.http.put(EXP, params={"mode": "replace"}, json={"kind": "group"})

    assert made.json()["kept"] == {"count": 2, "keys": FOREIGN}
    assert sorted(data.keys()) == [".zgroup", "exp/.zgroup", *FOREIGN]


def test_an_array_does_not_take_a_file_named_like_a_chunk_for_its_own(data: Served) -> None:
    key = "exp/1"
    for name, value in {"exp/.zgroup": GROUP, key: b"{}"}.items():
        data.store.put(name, value)
    nodes(data, "/0")
    before = sorted(data.keys())

    refused = data.http.put(EXP, params={"mode": "replace"}, json=DEFINITION)

    assert problem(refused) == (409, "node-exists")
    assert refused.json()["keys"] == [key]
    assert sorted(data.keys()) == before
    made = data.http.put(EXP, params={"mode": "replace", "foreign": "true"}, json=DEFINITION)
    assert (made.status_code, sorted(data.keys())) == (201, [".zgroup", "exp/.zarray"])


CREATIONS: list[tuple[str, Any]] = [
    (EXP, DEFINITION),
    (f"{EXP}?mode=open", DEFINITION),
    (EXP, {"kind": "group"}),
    (f"{EXP}?mode=open", {"kind": "group", "zarr_format": 2}),
    ("/zarr/data/exp/.zgroup", {"zarr_format": 2}),
    ("/zarr/data/exp/.zarray", {**DEFINITION, "zarr_format": 2, "order": "C", "fill_value": 0, "filters": None}),
    ("/zarr/data/exp/.zmetadata", {"zarr_consolidated_format": 1, "metadata": {}}),
]


def test_no_other_node_is_made_where_one_of_v3_lies(data: Served) -> None:
    data.store.put("exp/zarr.json", b'{"zarr_format": 3, "node_type": "group"}')

    for url, body in CREATIONS:
        refused = data.http.put(url, json=body)

        assert problem(refused) == (409, "node-exists")
    assert problem(data.http.put("/v1/metadata/data", json=DEFINITION)) == (409, "node-exists")
    assert data.keys() == ["exp/zarr.json"]


def test_links_and_what_is_no_key_are_named_and_kept(tmp_path: Path) -> None:
    with serving(tmp_path) as data:
        nodes(data, "/a")
        folder = tmp_path / "exp"
        (folder / "empty" / "folder").mkdir(parents=True)
        (folder / "gone").symlink_to("nowhere")
        (folder / "out").symlink_to("/etc")
        (tmp_path / "raw").mkdir()
        (folder / "raw").symlink_to("../raw")
        (folder / "node").symlink_to("a")

        kept = data.http.delete(EXP, params={"recursive": "true"}).json()["kept"]

    assert kept == {"count": 3, "keys": ["exp/gone", "exp/out", "exp/raw"]}
    assert sorted(path.name for path in folder.iterdir()) == ["gone", "out", "raw"]


@pytest.mark.parametrize("odd", ["a//0.0", "a/0.0//x", "a/x\\y", "a/\x01", "a/../k"])
def test_what_cannot_be_a_key_blocks_no_more_than_its_own_node(s3_server: S3Server, odd: str) -> None:
    bucket, foreign = s3_server.new_bucket(), {"recursive": "true", "foreign": "true"}
    with serving(bucket.config(name="data", writable=True)) as data:
        nodes(data, "/a", "/c")
        s3_server.client.put_object(Bucket=bucket.name, Key=f"exp/{odd}", Body=b"x")

        refused = data.http.delete(f"{EXP}/a").json()
        assert refused["code"] == "node-exists"
        assert refused["reason"] in refused["detail"]
        assert data.http.delete(f"{EXP}/c").status_code == 204
        assert data.http.delete(EXP, params=foreign).json()["kept"] == {"count": 1, "keys": refused["keys"]}
        nodes(data, "/a")
        assert data.http.put(f"{EXP}/a?mode=replace", json=DEFINITION).json()["kept"]["keys"] == refused["keys"]


def test_a_node_that_is_made_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(tmp_path) as data:
        nodes(data, "/a")
        drop_copies = documents.drop_copies

        def late(*args: Any) -> None:
            drop_copies(*args)
            nodes(data, "/late")

        monkeypatch.setattr(documents, "drop_copies", late)
        kept = data.http.delete(EXP, params={"recursive": "true"}).json()["kept"]

        assert kept["keys"] == ["exp/late/.zarray", "exp/late/0", "exp/late/1"]
        assert data.http.get("/v1/slice/data/exp/late?format=json").json() == [7, 7, 7, 7]


def test_folders_that_consoles_make_block_nothing_on_google_cloud_storage(s3_server: S3Server) -> None:
    with ExitStack() as stack:
        config = bucket_of(stack, s3_server, "google", {}, writable=True)
        data = stack.enter_context(serving(replace(config, name="data")))
        nodes(data, "/a")
        for key in ("exp/", "exp/a/", "exp/a/0/", "exp/empty/"):
            s3_server.client.put_object(Bucket=config.url.removeprefix("gs://"), Key=key, Body=b"")

        assert [child["name"] for child in data.http.get(EXP).json()["children"]] == ["a"]
        assert data.http.delete(f"{EXP}/a").status_code == 204
        nodes(data, "/a")
        assert data.http.delete(EXP, params={"recursive": "true"}).status_code == 204
