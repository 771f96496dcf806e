"""Chunks under other keys than the document states: found, reported, and written where the others lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zarr

from hyperslab import cli
from hyperslab.api.app import create_app
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.storage import StoreConfig, open_store
from tests.api.support import HookedStore, running, serving
from tests.server import served

VALUES = np.arange(1, 49, dtype="i4").reshape(6, 8)


def stored(folder: Path, zarr_format: Any, actual: dict[str, str], stated: Any) -> bytes:
    """An array with ``actual`` chunk keys, whose document then states others; its first document is returned."""
    array = zarr.create_array(
        str(folder), shape=VALUES.shape, chunks=(2, 3), dtype="i4", zarr_format=zarr_format, fill_value=0,
        chunk_key_encoding=actual,  # type: ignore[arg-type]
    )  # fmt: skip
    array[...] = VALUES
    path, member = (
        (folder / ".zarray", "dimension_separator")
        if zarr_format == 2
        else (folder / "zarr.json", "chunk_key_encoding")
    )
    right = path.read_bytes()
    document = json.loads(right)
    document.pop(member)
    path.write_text(json.dumps(document if stated is None else document | {member: stated}))
    return right


def keys(name: str, separator: str) -> dict[str, Any]:
    return {"name": name, "configuration": {"separator": separator}}


def encoding(name: str, separator: str) -> dict[str, str]:
    return {"name": name, "separator": separator}


@pytest.mark.parametrize(("zarr_format", "actual", "stated", "example"), [
    (2, encoding("v2", "/"), None, "1/2"),  # zarr-python 2 with a NestedDirectoryStore, early bioformats2raw
    (2, encoding("v2", "/"), ".", "1/2"),
    (2, encoding("v2", "."), "/", "1.2"),
    (3, encoding("default", "."), keys("default", "/"), "c.1.2"),
    (3, encoding("default", "/"), keys("default", "."), "c/1/2"),
    (3, encoding("v2", "/"), keys("default", "/"), "1/2"),
    (3, encoding("default", "/"), keys("v2", "."), "c/1/2"),
], ids=str)  # fmt: skip
def test_chunks_under_other_keys_are_read_reported_and_written_there(
    tmp_path: Path,
    zarr_format: int,
    actual: dict[str, str],
    stated: Any,
    example: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    right = stored(tmp_path / "a", zarr_format, actual, stated)

    with serving(tmp_path) as data:
        found = data.http.get("/v1/slice/data/a?format=json").json()
        problems = data.http.get("/v1/metadata/data/a").json()["problems"]
        info = data.http.get("/v1/tile/data/a/info.json").json()
        assert data.http.put("/v1/slice/data/a?select=2:4", content=np.full((2, 8), 7, "i4").tobytes()).is_success
        assert data.http.post("/v1/append/data/a", content=np.full((2, 8), 9, "i4").tobytes()).is_success
        assert data.http.patch("/v1/metadata/data/a", json={"shape": [7, 8]}).is_success
    settings = tmp_path / "hyperslab.toml"
    settings.write_text(f'[stores]\nd = "{tmp_path}"\n')
    cli.run(["check", "--config", str(settings)])

    np.testing.assert_array_equal(found, VALUES)
    assert len(problems) == 1
    assert "are read" in problems[0]
    assert problems == info["problems"]
    assert problems[0] in capsys.readouterr().err
    document = tmp_path / "a" / (".zarray" if zarr_format == 2 else "zarr.json")
    document.write_bytes(json.dumps(json.loads(right) | {"shape": [7, 8]}).encode())
    expected = np.vstack([VALUES, np.full((1, 8), 9)])
    expected[2:4] = 7
    np.testing.assert_array_equal(np.asarray(zarr.open_array(str(tmp_path / "a"), mode="r")[...]), expected)
    names = [str(path.relative_to(tmp_path / "a")) for path in (tmp_path / "a").rglob("*") if path.is_file()]
    chunks = [name for name in names if "z" not in name]
    assert example in chunks
    assert {name.count("/") for name in chunks} == {example.count("/")}


@pytest.mark.parametrize("stated", [".", "/"])
def test_right_keys_of_full_and_empty_arrays_are_no_problem(tmp_path: Path, stated: str) -> None:
    stored(tmp_path / "full", 2, encoding("v2", stated), stated)
    zarr.create_array(str(tmp_path / "empty"), shape=(4, 4), chunks=(2, 2), dtype="i4", zarr_format=2)

    with serving(tmp_path) as data:
        for name in ("full", "empty"):
            assert "problems" not in data.http.get(f"/v1/metadata/data/{name}").json()


def test_keys_of_both_forms_are_reported(tmp_path: Path) -> None:
    stored(tmp_path / "a", 2, encoding("v2", "/"), None)
    (tmp_path / "a" / "0.0").write_bytes((tmp_path / "a" / "0" / "0").read_bytes())

    with serving(tmp_path) as data:
        assert data.http.get("/v1/slice/data/a?select=0,0&format=json").json() == 1
        (problem,) = data.http.get("/v1/metadata/data/a").json()["problems"]

    assert "too; only" in problem


def test_a_remote_store_is_asked_once_and_only_where_the_document_leaves_it_open(tmp_path: Path) -> None:
    stored(tmp_path / "open", 2, encoding("v2", "/"), None)
    stored(tmp_path / "stated", 2, encoding("v2", "/"), "/")

    listed: list[str] = []
    with running(tmp_path, remote=True) as data, httpx.Client(base_url=data.url) as http:
        data.store.before_listing = listed.append
        for name in ("open", "stated"):
            for _ in range(3):
                found = http.get(f"/v1/slice/data/{name}?format=json").json()
                np.testing.assert_array_equal(found, VALUES)

    assert listed == ["open/"]


def test_the_store_says_what_no_document_and_no_listing_can(tmp_path: Path) -> None:
    stored(tmp_path / "a", 2, encoding("v2", "/"), None)
    (tmp_path / "a" / "0" / "0").unlink()  # the first chunk, which could be tried without a listing
    store = HookedStore(open_store(StoreConfig(name="data", url=str(tmp_path))), listable=False, cheap_stat=False)

    mount = MountedStore("data", store, dimension_separator="/")
    with served(create_app(build([mount]))) as url:
        found = httpx.get(f"{url}/v1/slice/data/a?select=2:&format=json").json()

    np.testing.assert_array_equal(found, VALUES[2:])
