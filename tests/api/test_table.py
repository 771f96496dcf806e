"""A group as a table, and nodes found by their attributes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zarr

from hyperslab.api.options import ApiOptions
from hyperslab.arrays import listing, table
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.tree import find
from hyperslab.storage import StoreConfig, open_store
from tests.api.support import problem, running, serving
from tests.arrays.counting import CountingStore

ROOT = "/v1/metadata/data"
TEMPERATURE = {"units": "K", "long_name": "Air temperature", "valid_min": 180.5}


@pytest.fixture(scope="module", params=[2, 3], ids=["v2", "v3"])
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder: Path = tmp_path_factory.mktemp("table")
    form: Any = {"zarr_format": request.param}
    root = zarr.open_group(folder, mode="w", attributes={"title": "All of it"}, **form)

    def write(name: str, shape: tuple[int, ...], dtype: str, attributes: dict[str, Any]) -> None:
        root.create_array(name, shape=shape, chunks=tuple(max(1, n // 2) for n in shape), dtype=dtype)
        root[name].attrs.update(attributes)

    write("air", (10, 4), "f4", TEMPERATURE)
    write("mass", (100,), "f8", {"units": "kg m-2", "long_name": "mass of water"})
    write("flux", (3, 3, 3), "i2", {"units": "W m-2 K-1"})
    write("deep/er/sea", (2,), "u1", {"units": "degC", "nested": {"channels": [{"label": "Größe µ"}, {"label": "x"}]}})
    root.create_group("scans", attributes={"title": "Human brain, left"})
    return folder


@pytest.fixture(scope="module")
def http(folder: Path) -> Iterator[httpx.Client]:
    with serving(folder, writable=False) as found:
        yield found.http


def found(http: httpx.Client, text: str, path: str = "") -> dict[str, tuple[str, str] | None]:
    """Paths below the store, each with the attribute that has the text."""
    matches: dict[str, tuple[str, str] | None] = {}
    query: dict[str, Any] = {"search": text, "limit": 2}
    while True:
        answer = http.get(f"{ROOT}{path}", params=query).raise_for_status().json()
        for match in answer["matches"]:
            own = match.get("attribute")
            matches[match["path"].removeprefix("data/")] = own and (own["name"], own["value"])
        query["cursor"] = answer["next_cursor"]
        if query["cursor"] is None:
            return matches


def rows(http: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    return http.get(ROOT, params={"table": "true", **query}).raise_for_status().json()["children"]  # type: ignore[no-any-return]


def test_nodes_are_found_by_names_and_values_of_their_attributes(http: httpx.Client) -> None:
    assert found(http, "units:K") == {"air": ("units", "K"), "flux": ("units", "W m-2 K-1")}
    assert found(http, "units: DEGC") == {"deep/er/sea": ("units", "degC")}
    assert found(http, "title:brain") == {"scans": ("title", "Human brain, left")}
    assert found(http, "valid_m") == {"air": ("valid_min", "180.5")}
    assert found(http, "valid_min:180.5") == {"air": ("valid_min", "180.5")}
    assert found(http, "label:größe µ") == {"deep/er/sea": ("nested.channels.label", "Größe µ")}
    assert found(http, "air") == {"air": None}
    assert found(http, "Water") == {"mass": ("long_name", "mass of water")}
    assert found(http, "title:K") == found(http, "nothing") == {}
    assert [*found(http, "units:")] == ["air", "deep/er/sea", "flux", "mass"]


@pytest.mark.parametrize("listable", [True, False], ids=["bucket", "server"])
def test_a_search_reads_no_more_than_attributes_and_nothing_where_consolidated_metadata_tell_them(
    folder: Path, tmp_path: Path, listable: bool
) -> None:
    """A name needs no document, and an array whose own document is broken has attributes all the same."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    v3 = (tmp_path / "zarr.json").exists()
    consolidate: Any = {"zarr_format": 3 if v3 else 2}
    with pytest.warns(UserWarning, match="Consolidated metadata") if v3 else nullcontext():
        zarr.consolidate_metadata(tmp_path, **consolidate)

    def read_by_search(text: str, **claims: Any) -> tuple[list[str], set[str]]:
        store = CountingStore(open_store(StoreConfig(name="data", url=str(tmp_path))), **claims)
        catalog = Catalog([MountedStore("data", store)])
        group = catalog.open_group("data")
        list(catalog.children(group, limit=9).nodes)
        store.gets.clear()
        matches = find(catalog, group, text, limit=9, page=9)
        return [child.name for child in matches.nodes], {*store.gets} - {".zmetadata"}

    assert read_by_search("air")[0] == ["data/air"]
    assert not {key for key in read_by_search("a")[1] if "/" not in key or key.startswith(("air/", "mass/", "scans/"))}
    if not v3:
        (tmp_path / "mass" / ".zarray").write_text("{}")
        names, read = read_by_search("kg m-2")
        assert names == ["data/mass"]
        assert {key.rpartition("/")[2] for key in read} == {".zattrs"}
    if not (v3 and listable):  # each zarr.json tells the kind of its node
        names, read = read_by_search("degc", cheap_stat=False, listable=listable)
        assert names == ["data/deep/er/sea"]
        assert not {key for key in read if key.split("/")[-2:-1] in (["air"], ["flux"], ["mass"], ["sea"])}


@pytest.mark.parametrize("remote", [False, True])
def test_a_search_out_of_time_goes_on_from_its_cursor(
    folder: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """However little time each page has, each reads at least one node more, and the same nodes are found."""
    monkeypatch.setattr(listing, "SEARCH_SECONDS", -1.0)
    with running(folder, remote=remote) as running_, httpx.Client(base_url=running_.url) as http:
        assert list(found(http, "units:")) == ["air", "deep/er/sea", "flux", "mass"]
        names, cursor = list[str](), None
        while True:
            page = http.get(ROOT, params={"table": "", **({"cursor": cursor} if cursor else {})}).json()
            names += [row["name"] for row in page["children"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        partial = http.get(ROOT, params={"table": "", "sort": "nbytes"}).json()
    assert names == ["air", "deep", "flux", "mass", "scans"]
    assert "time ran out" in partial["problems"][0]


def test_a_table_has_a_row_for_each_child(http: httpx.Client) -> None:
    page = http.get(ROOT, params={"table": "true", "columns": "long_name,valid_min"}).json()
    air, deep, *_ = page["children"]

    assert {name: air[name] for name in ("name", "kind", "shape", "chunks", "nbytes", "units", "attributes")} == {
        **{"name": "air", "kind": "array", "shape": [10, 4], "chunks": [5, 2], "nbytes": 160, "units": "K"},
        "attributes": {"long_name": "Air temperature", "valid_min": 180.5},
    }
    assert np.dtype(air["dtype"]) == np.float32
    assert (deep["name"], deep["kind"], deep["shape"], deep["attributes"]) == ("deep", "group", None, {})
    assert page["next_cursor"] is None


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("name", ["air", "deep", "flux", "mass", "scans"]),
        ("-name", ["scans", "mass", "flux", "deep", "air"]),
        ("nbytes", ["flux", "air", "mass", "deep", "scans"]),
        ("-nbytes", ["mass", "air", "flux", "deep", "scans"]),
        ("-shape", ["mass", "air", "flux", "deep", "scans"]),
        ("units", ["air", "mass", "flux", "deep", "scans"]),
        ("-long_name", ["mass", "air", "deep", "flux", "scans"]),
        ("valid_min", ["air", "deep", "flux", "mass", "scans"]),
        ("kind", ["air", "flux", "mass", "deep", "scans"]),
    ],
)
def test_rows_come_in_the_order_of_any_column_page_by_page(http: httpx.Client, sort: str, names: list[str]) -> None:
    assert [row["name"] for row in rows(http, sort=sort)] == names
    paged, cursor = list[str](), None
    while True:
        query: dict[str, Any] = {
            "table": "true",
            "sort": sort,
            "limit": 2,
            **({} if cursor is None else {"cursor": cursor}),
        }
        page = http.get(ROOT, params=query).json()
        paged += [row["name"] for row in page["children"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert paged == names


def test_rows_are_filtered_by_name_and_attributes(http: httpx.Client) -> None:
    assert [row["name"] for row in rows(http, filter="units:K", sort="-name")] == ["flux", "air"]
    assert [row["name"] for row in rows(http, filter="brain", limit=1)] == ["scans"]
    assert rows(http, filter="sea") == []
    counted = http.get(ROOT, params={"table": "true", "sort": "-dtype", "limit": 1, "filter": "units:m"}).json()
    assert counted["count"] == 2


def test_a_broken_child_has_a_row_that_says_why(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path, mode="w", zarr_format=2)
    root.create_array("fine", shape=(1,), dtype="u1")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / ".zarray").write_text(
        '{"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|u1", "order": "C", "fill_value": 0, '
        '"filters": null, "compressor": {"id": "made-up"}}'
    )
    with serving(tmp_path, ApiOptions(max_listed=1000), writable=False) as found_:
        (fine, odd) = rows(found_.http)
        broken = found_.http.get(f"{ROOT}/odd")
    assert (fine["problem"], odd["kind"], odd["shape"]) == (None, "array", None)
    assert "made-up" in odd["problem"]
    assert (broken.json()["title"], broken.json()["code"]) == ("Unknown codec", "codec-refused")


@pytest.mark.parametrize(
    ("path", "query", "refusal"),
    [
        ("", {"sort": "name"}, (400, "bad-parameter")),
        ("", {"filter": "x"}, (400, "bad-parameter")),
        ("", {"table": "true", "search": "x"}, (400, "bad-parameter")),
        ("", {"table": "true", "limit": 0}, (400, "bad-parameter")),
        ("", {"table": "true", "limit": 1001}, (400, "bad-parameter")),
        ("", {"table": "true", "sort": "nbytes", "cursor": "air"}, (400, "bad-parameter")),
        ("/air", {"table": "true"}, (422, "wrong-kind")),
    ],
)
def test_what_no_table_can_mean_is_refused(
    http: httpx.Client, path: str, query: dict[str, Any], refusal: tuple[int, str]
) -> None:
    assert problem(http.get(ROOT + path, params=query)) == refusal


def test_the_rows_in_order_have_a_limit(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_SORTED", 2)
    page = http.get(ROOT, params={"table": "true", "sort": "-name"}).json()
    assert [row["name"] for row in page["children"]] == ["deep", "air"]
    assert "first 2 children" in page["problems"][0]
