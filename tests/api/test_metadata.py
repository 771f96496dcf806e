"""``/v1/metadata``: the documents of arrays and groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zarr

from hyperslab.storage import StoreConfig, open_store
from tests.api.support import running, serving
from tests.tiles.remote import RemoteStore


def test_every_link_of_a_document_leads_somewhere(client: httpx.Client) -> None:
    links = client.get("/v1/metadata/data/group/floats").json()["links"]

    assert {"self", "slice", "chunk", "plan", "points", "tile", "zarr", "zarr2", "zarr3", "view"} == set(links)
    assert client.get(links["self"]).json()["path"] == "data/group/floats"
    assert client.get(links["slice"]).status_code == 200
    assert client.get(links["chunk"] + "/0.0").status_code == 200
    assert client.get(links["zarr"] + "/.zarray").status_code == 200
    assert client.get(links["view"]).status_code == 200


@pytest.mark.parametrize("sharded", [False, True])
def test_a_link_to_another_format_is_given_where_it_surely_leads_to_the_array(tmp_path: Path, sharded: bool) -> None:
    """xarray takes the fill value of Zarr v2 for missing values."""
    root: Any = zarr.open_group(tmp_path, mode="w", zarr_format=3)
    for name, fill, stored, names in (
        ("sparse", 0, 2, ("y", "x")), ("full", 0, 4, ("y", "x")), ("nan", np.nan, 2, ("y", "x")),
        ("unnamed", 0, 2, None),
    ):  # fmt: skip
        array = root.create_array(
            name, shape=(4, 4), chunks=(2, 2), shards=(4, 2) if sharded else None, dtype="f4", fill_value=fill,
            dimension_names=names,
        )  # fmt: skip
        array[:stored] = 5

    with serving(tmp_path) as found:
        links = {n: found.http.get(f"/v1/metadata/data/{n}").json()["links"] for n in [*root.array_keys()]}
        answers = {n: found.http.get(f"/zarr2/data/{n}/.zarray").status_code for n in links}

    assert {name for name, each in links.items() if "zarr2" in each} == {"nan", "unnamed"}
    assert all("zarr3" in each for each in links.values())
    assert {name for name, status in answers.items() if status == 200} == {"full", "nan", "unnamed"}


@pytest.mark.parametrize("path", ["table", "cube", "group", ""])
def test_documents_that_differ_have_tags_that_differ(client: httpx.Client, path: str) -> None:
    """Whatever the query: equal tags mean equal bytes."""
    first = client.get(f"/v1/metadata/data/{path}?limit=1")
    cursors = [{"limit": "1", "cursor": first.json()["next_cursor"]}] if first.json().get("next_cursor") else []
    fields = [{"field": field["name"]} for field in first.json().get("fields") or []]
    queries = [{}, {"limit": "0"}, {"limit": "1"}, *cursors, *fields]

    answers = [client.get(f"/v1/metadata/data/{path}", params=query) for query in queries]

    assert len({answer.headers["etag"] for answer in answers}) == len({answer.content for answer in answers})


def test_the_tag_follows_attributes_and_children(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path, mode="w", zarr_format=2)
    with running(tmp_path) as found, httpx.Client(base_url=found.url) as fresh:

        def tag() -> str:
            return str(fresh.head("/v1/metadata/data").headers["etag"])

        first = tag()
        group.attrs["a"] = 1
        second = tag()
        group.create_group("child")
        third = tag()

    assert len({first, second, third}) == 3


def test_faults_of_a_group_are_reported_and_the_rest_of_it_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "image"
    zarr.create_array(str(folder / "0"), shape=(4, 4), chunks=(2, 2), dtype="|u1", zarr_format=2)
    (folder / ".zgroup").write_text('{"zarr_format": "2"}')
    transformations = [{"type": "shear"}, {"type": "scale", "scale": [2, 3]}]
    entry = {
        "version": "0.4-x",
        "axes": [{"name": name, "type": "space"} for name in "yx"],
        "datasets": [{"path": 0, "coordinateTransformations": transformations}],
    }
    (folder / ".zattrs").write_text(json.dumps({"multiscales": [entry]}))
    with running(tmp_path) as service, httpx.Client(base_url=service.url) as client:
        found = client.get("/v1/metadata/data/image").json()
        (listed,) = client.get("/v1/metadata/data").json()["children"]

    assert listed == {"name": "image", "kind": "group"}
    assert found["multiscales"][0]["version"] == "0.4"
    assert [axis["name"] for axis in found["multiscales"][0]["axes"]] == ["y", "x"]
    assert found["multiscales"][0]["datasets"] == [{"path": "0", "scale": [2, 3], "translation": None}]
    wrong = [".zgroup: zarr_format", "].version", "].path", "coordinateTransformations[0].type"]
    assert len(found["problems"]) == len(wrong)
    assert all(any(member in problem for problem in found["problems"]) for member in wrong)


def test_names_of_any_kind_are_quoted_in_links(tmp_path: Path) -> None:
    (tmp_path / "größe #1").mkdir()
    (tmp_path / "größe #1" / ".zgroup").write_text('{"zarr_format": 2}')

    with running(tmp_path) as found:
        child = httpx.get(f"{found.url}/v1/metadata/data").json()["children"][0]["name"]
        document = httpx.get(f"{found.url}/v1/metadata/data/gr%C3%B6%C3%9Fe%20%231").json()
        again = httpx.get(found.url + document["links"]["self"]).json()

    assert child == "größe #1"
    assert again == document


def test_groups_that_only_their_children_show_are_looked_into_at_the_same_time(tmp_path: Path) -> None:
    for name in "abcd":
        zarr.create_array(tmp_path / name / "array", shape=(4,), chunks=(4,), dtype="<u2", zarr_format=2)
    store = RemoteStore(open_store(StoreConfig(name="data", url=str(tmp_path))))
    store.meet(4, lambda keys: keys[0] in {"a/", "b/", "c/", "d/"})

    with serving(store, writable=False) as found:
        document = found.http.get("/v1/metadata/data").json()

    assert [(child["name"], child["kind"]) for child in document["children"]] == [(name, "group") for name in "abcd"]
