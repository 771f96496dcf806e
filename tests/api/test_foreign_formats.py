"""What is not Zarr v2 is named and not taken for something empty; however far down nodes lie, they are listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from hyperslab import RemoteGroup, cli
from hyperslab.arrays import listing
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.keys import KeyReader
from hyperslab.arrays.nodes import GroupNode
from hyperslab.errors import StoreError
from hyperslab.storage import StoreConfig
from tests.api.support import DEFINITION, Served, problem, serving
from tests.documents import zarray

ARRAY = json.dumps(zarray()).encode()
GROUP = b'{"zarr_format": 2}'
ROOT = "/v1/metadata/data"


def v3_group(folder: Path) -> None:
    """As zarr-python writes by default: a group, and in it an array."""
    group = zarr.create_group(str(folder), zarr_format=3)
    group.create_array("a", data=np.ones(4))


def copied(data: Served, folder: Path, prefix: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            data.store.put(f"{prefix}{path.relative_to(folder)}", path.read_bytes())


def test_zarr_v3_is_read_and_changed_beside_v2(data: Served, tmp_path: Path) -> None:
    v3_group(tmp_path / "v3")
    copied(data, tmp_path / "v3", "exp/v3/")
    data.store.put("exp/b/.zarray", ARRAY)

    for path in ("exp/v3", "exp/v3/a"):
        assert data.http.get(f"{ROOT}/{path}").json()["zarr_format"] == 3
        stored = (tmp_path / path.removeprefix("exp/") / "zarr.json").read_bytes()
        assert data.http.get(f"/zarr/data/{path}/zarr.json").content == stored
        for name in (".zgroup", ".zarray", ".zattrs", ".zmetadata"):
            assert data.http.get(f"/zarr/data/{path}/{name}").status_code == 404
    assert data.http.get("/v1/slice/data/exp/v3/a?format=json").json() == [1, 1, 1, 1]
    changes: list[tuple[str, str, Any]] = [
        ("PUT", "slice/data/exp/v3/a?select=1:3", {"content": np.array([2.0, 3.0]).tobytes()}),
        ("POST", "append/data/exp/v3/a", {"content": np.full(5, 4.0).tobytes()}),
        ("PATCH", "metadata/data/exp/v3/a", {"json": {"shape": [7]}}),
        ("PATCH", "metadata/data/exp/v3/a", {"json": {"shape": [9]}}),
        ("DELETE", "chunk/data/exp/v3/a/0", {}),
        ("PUT", "slice/data/exp/v3/a?select=:1", {"content": np.ones(1).tobytes()}),
    ]
    for method, route, body in changes:
        assert data.http.request(method, f"/v1/{route}", **body).is_success, route
    changed = [1.0, 0, 0, 0, 4, 4, 4, 0, 0]
    assert data.http.get("/v1/slice/data/exp/v3/a?format=json").json() == changed
    ours = json.loads(data.http.get("/zarr/data/exp/v3/a/zarr.json").content).get(
        "hyperslab", {"must_understand": False}
    )
    assert ours == {"must_understand": False}
    found = zarr.open_array(f"{data.http.base_url}/zarr/data/exp/v3/a", mode="r")
    np.testing.assert_array_equal(np.asarray(found[...]), changed)

    kinds = [(child["name"], child["kind"]) for child in data.http.get(f"{ROOT}/exp").json()["children"]]
    assert kinds == [("b", "array"), ("v3", "group")]
    made = data.http.get("/zarr/data/.zmetadata").json()["metadata"]
    assert made.keys() == {".zgroup", "exp/.zgroup", "exp/b/.zarray"}
    group = RemoteGroup(f"{data.http.base_url}{ROOT}")
    assert "a (9,) float64" in str(group.tree())
    np.testing.assert_array_equal(np.asarray(group["exp/v3/a"])[1:], changed[1:])
    assert problem(data.http.delete(f"{ROOT}/exp/v3")) == (409, "node-exists")
    assert data.http.delete(f"{ROOT}/exp/v3?recursive=true").status_code == 204
    assert sorted(data.keys()) == ["exp/b/.zarray"]


def test_a_store_of_v3_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    v3_group(tmp_path / "data")
    (tmp_path / "c.toml").write_text(f'[stores.data]\nurl = "{tmp_path / "data"}"\n')
    with serving(StoreConfig(name="data", url=str(tmp_path / "data"), writable=True)) as data:
        assert data.http.get(ROOT).json()["children"] == [{"name": "a", "kind": "array"}]
        assert data.http.get("/v1/metadata").json()["children"] == [{"name": "data", "kind": "group"}]
        assert cli.run(["info", f"{data.http.base_url}{ROOT}"]) == 0
        assert "a (4,) float64" in capsys.readouterr().out

    assert cli.run(["check", "--config", str(tmp_path / "c.toml")]) == 0


def test_a_node_in_both_formats_is_that_of_v3(data: Served, tmp_path: Path) -> None:
    v3_group(tmp_path / "v3")
    copied(data, tmp_path / "v3", "exp/")
    data.store.put("exp/a/.zarray", ARRAY)

    found = data.http.get(f"{ROOT}/exp/a").json()

    assert (found["zarr_format"], found["dtype"], found["also"]) == (3, "<f8", ["exp/a/.zarray"])
    data.store.put("exp/a/zarr.json", b"{}")
    assert data.http.get(f"{ROOT}/exp/a").json()["dtype"] == "<i4"


@pytest.mark.parametrize("multiscales", [
    {"layout": [{"asset": "0"}, {"asset": "1", "derived_from": "0"}], "resampling_method": "average"},
    [{"datasets": [{"path": "0"}, {"path": "1"}], "type": "reduce", "metadata": {"method": "pyramid_coarsen"}}],
], ids=["GeoZarr", "ndpyramid"])  # fmt: skip
def test_a_pyramid_of_groups_is_a_group_without_problems(tmp_path: Path, multiscales: Any) -> None:
    """Each level is a dataset of xarray, where an image of OME-Zarr has arrays."""
    group = zarr.create_group(str(tmp_path / "g"), attributes={"multiscales": multiscales})
    for level in "01":
        group.create_array(f"{level}/t2m", data=np.ones((4, 4)))
    with serving(tmp_path) as data:
        document = data.http.get(f"{ROOT}/g").json()
        assert (document["problems"], document.get("multiscales")) == ([], None)
        assert problem(data.http.get("/v1/tile/data/g/info.json")) == (422, "wrong-kind")
        assert data.http.get("/v1/tile/data/g/0/t2m/info.json").json()["problems"] == []


def test_nodes_show_however_deep_or_far_behind_they_lie(data: Served) -> None:
    for key in (*(f"lab/{n:02}/x" for n in range(20)), "lab/zz/a/b/c/d/e/f/.zarray", "other/x.tif"):
        data.store.put(key, ARRAY)

    assert data.http.get(ROOT).json()["children"] == [{"name": "lab", "kind": "group"}]
    assert data.http.get(f"{ROOT}/lab").json()["children"] == [{"name": "zz", "kind": "group"}]
    assert data.http.get(f"{ROOT}/lab/zz").status_code == 200
    assert problem(data.http.get(f"{ROOT}/other")) == (404, "node-not-found")
    assert "lab/zz/a/b/c/d/e/f/.zarray" in data.http.get("/zarr/data/.zmetadata").json()["metadata"]


@pytest.mark.parametrize("data", ["folder"], indirect=True)
def test_a_page_that_time_cuts_short_says_where_to_go_on(data: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b", "d/x/y", "d/z", "f/g/h"):
        for n in range(3):
            data.store.put(f"{name}/{n}/file", b"")
    for array in ("a", "d/z/1/deep", "e", "f/g/h/array"):
        data.store.put(f"{array}/.zarray", ARRAY)
    whole = data.http.get(ROOT).json()
    monkeypatch.setattr(listing, "SEARCH_SECONDS", -1.0)

    pages: list[Any] = []
    cursor = None
    while not pages or cursor is not None:
        answer = data.http.get(ROOT, params={"limit": 2} | ({} if cursor is None else {"cursor": cursor}))
        pages.append(answer.json()["children"])
        cursor = answer.json()["next_cursor"]

    assert [] in pages
    assert [child for page in pages for child in page] == whole["children"]
    assert [child["name"] for child in whole["children"]] == ["a", "d", "e", "f"]
    assert list(RemoteGroup(f"{data.http.base_url}{ROOT}")) == ["a", "d", "e", "f"]
    names = {name for name in data.http.get("/zarr/data/.zmetadata").json()["metadata"] if name.endswith(".zarray")}
    assert names == {"a/.zarray", "d/z/1/deep/.zarray", "e/.zarray", "f/g/h/array/.zarray"}
    for odd in ("d/../../..", "d//", "/", "d/x/y/zzz", "zzz/1"):
        assert data.http.get(ROOT, params={"cursor": odd}).status_code == 200


def test_metadata_that_cannot_be_gathered_in_time_is_not_made_up(data: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    data.store.put("a/.zarray", ARRAY)
    assert data.http.get("/zarr/data/.zmetadata").status_code == 200
    monkeypatch.setattr(KeyReader, "consolidation_seconds", -1.0)

    assert problem(data.http.get("/zarr/data/.zmetadata")) == (404, "form-not-found")


@pytest.mark.parametrize("broken", [b"{", b"[]", b'{"metadata": 3}'])
def test_live_documents_count_where_the_consolidated_one_is_broken(data: Served, broken: bytes) -> None:
    data.http.put(f"{ROOT}/exp/g/a", json=DEFINITION).raise_for_status()
    data.store.put("exp/.zmetadata", broken)

    for path in ("exp", "exp/g"):
        found = data.http.get(f"{ROOT}/{path}")
        assert (found.status_code, len(found.json()["children"])) == (200, 1)
        (told,) = found.json()["problems"]
        assert "exp/.zmetadata" in told
    assert data.http.get(ROOT).json()["problems"] == []
    assert problem(data.http.get(f"{ROOT}/exp/none")) == (404, "node-not-found")
    assert data.http.get("/zarr/data/exp/g/none/.zarray").status_code == 404
    assert data.http.get("/v1/slice/data/exp/g/a?format=json").json() == [0, 0, 0, 0]
    assert data.http.delete(f"{ROOT}/exp?recursive=true").status_code == 204
    assert data.keys() == [".zgroup"]


@pytest.mark.parametrize("data", ["folder"], indirect=True)
@pytest.mark.parametrize("seconds", [2.0, -1.0], ids=["in time", "out of time"])
def test_nodes_are_found_by_part_of_their_path(data: Served, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """In pages that go on where the last one ended, whatever ended it; `Cells` is found inside groups, behind bare
    folders and as what cannot be read."""
    for key in ("exp/.zgroup", "exp/b/.zgroup", "exp/b/Cells/.zgroup"):
        data.store.put(key, GROUP)
    for array in ("exp/b/Cells/0", "exp/b/Cells/1", "exp/cellsize", "lab/H5/a/my cells", "lab/cells/deep", "zz/x"):
        data.store.put(f"{array}/.zarray", ARRAY)
    for key in ("exp/v3 cells/zarr.json", "notes cells/a.txt", "exp/cellsize/0", "lab/H5/.zattrs"):
        data.store.put(key, b"{}")
    monkeypatch.setattr(listing, "SEARCH_SECONDS", seconds)

    def found(path: str, text: str, limit: int) -> list[tuple[str, str]]:
        matches: list[tuple[str, str]] = []
        query: dict[str, Any] = {"search": text, "limit": limit}
        while True:
            answer = data.http.get(f"/v1/metadata{path}", params=query)
            assert answer.status_code == 200
            assert len(answer.json()["matches"]) <= limit
            assert answer.json()["problems"] == []
            matches += [(match["path"], match["kind"]) for match in answer.json()["matches"]]
            query["cursor"] = answer.json()["next_cursor"]
            if query["cursor"] is None:
                return matches

    everywhere = [
        ("data/exp/b/Cells", "group"),
        ("data/exp/b/Cells/0", "array"),
        ("data/exp/b/Cells/1", "array"),
        ("data/exp/cellsize", "array"),
        ("data/exp/v3 cells", "array"),
        ("data/lab/H5/a/my cells", "array"),
        ("data/lab/cells", "group"),
        ("data/lab/cells/deep", "array"),
    ]
    assert found("", "cELLs", 3) == found("/data", "cELLs", 1) == found("/data", "cELLs", 1000) == everywhere
    assert found("/data/lab", "H5/A", 5) == [("data/lab/H5/a", "group"), everywhere[5]]
    assert found("/data/lab", "lab", 5) == found("/data", "nowhere", 5) == []


def test_a_search_refuses_what_it_cannot_mean(data: Served) -> None:
    data.store.put("a/.zarray", ARRAY)

    assert problem(data.http.get(f"{ROOT}/a", params={"search": "x"})) == (422, "wrong-kind")
    assert problem(data.http.get(ROOT, params={"search": "x", "limit": 0})) == (400, "bad-parameter")
    for cursor in ("../../..//", "a/../..//x", ".hyperslab//"):
        assert problem(data.http.get(ROOT, params={"search": "x", "cursor": cursor})) == (400, "bad-path")
    for cursor in ("gone//", "a//", "//", "x", "//x/y", "a//../.."):
        assert data.http.get(ROOT, params={"search": "", "cursor": cursor}).json()["children"] is not None
        assert data.http.get("/v1/metadata", params={"search": "x", "cursor": cursor}).json()["matches"] == []


def test_a_search_says_what_it_could_not_search(data: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    data.store.put("a/x/.zarray", ARRAY)
    data.store.put("b/x/.zarray", ARRAY)
    whole = Catalog.children

    def children(self: Catalog, group: GroupNode, **facts: Any) -> Any:
        if group.prefix == "a/":
            raise StoreError("data", "a/", "it is away")
        return whole(self, group, **facts)

    monkeypatch.setattr(Catalog, "children", children)
    found = data.http.get(ROOT, params={"search": "x"}).json()

    assert [match["path"] for match in found["matches"]] == ["data/b/x"]
    assert len(found["problems"]) == 1
    assert found["problems"][0].startswith("data/a was not searched: ")
