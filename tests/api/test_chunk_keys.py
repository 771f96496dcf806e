"""Chunks under other keys than the document states: found, reported, and written where the others lie."""

from __future__ import annotations

import json
import shutil
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
from hyperslab.errors import StoreError
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


MIXTURES = pytest.mark.parametrize("foreign", ["first", "last", "stale"])
"""Which chunks lie under keys of another form: the first or the last row; or all, and all but one in the stated one."""


@MIXTURES
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_mixture_of_both_forms_is_reported_and_never_read_as_fill(
    tmp_path: Path, foreign: str, zarr_format: int
) -> None:
    name, other = ("v2", "/") if zarr_format == 2 else ("default", ".")
    stored(tmp_path / "other", zarr_format, encoding(name, other), None)
    right = encoding("v2", ".") if zarr_format == 2 else encoding("default", "/")
    array = zarr.create_array(
        str(tmp_path / "a"), shape=VALUES.shape, chunks=(2, 3), dtype="i4", zarr_format=zarr_format, fill_value=0,  # type: ignore[arg-type]
        chunk_key_encoding=right,  # type: ignore[arg-type]
    )  # fmt: skip
    own = {"first": slice(2, 6), "last": slice(0, 4), "stale": slice(0, 6)}[foreign]
    array[own] = VALUES[own]
    if foreign == "stale":
        (tmp_path / "a" / ("0.0" if zarr_format == 2 else "c/0/0")).unlink()
    rows = {"first": [0], "last": [2], "stale": [0, 1, 2]}[foreign]
    for key in (tmp_path / "other").rglob("*"):
        parts = str(key.relative_to(tmp_path / "other")).replace(".", "/").removeprefix("c/").split("/")
        if key.is_file() and "z" not in key.name and int(parts[0]) in rows:
            place = tmp_path / "a" / key.relative_to(tmp_path / "other")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(key.read_bytes())
    absent, present = ("4:", "0:4") if foreign == "last" else ("0:2", "2:")

    with serving(tmp_path) as data:
        for _ in range(2):
            refused = data.http.get(f"/v1/slice/data/a?select={absent}&format=json")
            assert refused.status_code == 502
            assert "but not this one" in refused.json()["detail"]
            assert data.http.head(f"/v1/slice/data/a?select={absent}").status_code == 502
            found = data.http.get(f"/v1/slice/data/a?select={present}&format=json").json()
            np.testing.assert_array_equal(found, VALUES[:4] if foreign == "last" else VALUES[2:])
            (problem,) = data.http.get("/v1/metadata/data/a").json()["problems"]
            assert "too; only" in problem
        cell = "4,0" if foreign == "last" else "0,0"
        assert data.http.put(f"/v1/slice/data/a?select={cell}", content=bytes(4)).status_code == 502


@pytest.mark.parametrize("remote", [False, True])
def test_present_chunks_cost_no_look_and_absent_ones_one_listing(tmp_path: Path, remote: bool) -> None:
    stored(tmp_path / "open", 2, encoding("v2", "/"), None)
    stored(tmp_path / "stated", 2, encoding("v2", "/"), "/")
    stored(tmp_path / "sparse", 3, encoding("default", "/"), keys("default", "/"))
    (tmp_path / "sparse/c/0/0").unlink()
    (tmp_path / "sparse/c/2/0").unlink()
    expected = VALUES.copy()
    expected[:2, :3] = expected[4:, :3] = 0

    listed: list[str] = []
    with running(tmp_path, remote=remote) as data, httpx.Client(base_url=data.url) as http:
        data.store.before_listing = listed.append
        for _ in range(3):
            for name in ("open", "stated", "sparse"):
                found = http.get(f"/v1/slice/data/{name}?format=json").json()
                np.testing.assert_array_equal(found, expected if name == "sparse" else VALUES)

    assert listed == ["open/", "sparse/"]


@pytest.mark.parametrize("remote", [False, True])
def test_where_chunks_lie_is_known_after_the_first_write_of_a_new_array(tmp_path: Path, remote: bool) -> None:
    listed: list[str] = []
    writable = StoreConfig(name="data", url=str(tmp_path), writable=True)
    store = HookedStore(open_store(writable), cheap_stat=not remote)
    service = build([MountedStore("data", store, writable=True)])
    with served(create_app(service)) as url, httpx.Client(base_url=url) as http:
        made = {"kind": "array", "shape": [4, 4], "chunks": [2, 2], "dtype": "<i4"}
        http.put("/v1/metadata/data/a", json=made).raise_for_status()
        for row in range(3):
            http.put(f"/v1/slice/data/a?select={row}", json=row + 1).raise_for_status()
            store.before_listing = listed.append
        found = http.get("/v1/slice/data/a?select=:,0&format=json").json()

    assert (found, listed) == ([1, 2, 3, 0], [])


def test_a_failing_look_fails_the_read_and_is_not_remembered(tmp_path: Path) -> None:
    stored(tmp_path / "a", 2, encoding("v2", "/"), None)

    def fail(prefix: str) -> None:
        raise StoreError("data", prefix, "it is down")

    with running(tmp_path, remote=True) as data, httpx.Client(base_url=data.url) as http:
        data.store.before_listing = fail
        assert http.get("/v1/slice/data/a").status_code == 502
        data.store.before_listing = lambda _: None
        found = http.get("/v1/slice/data/a?format=json").json()

    np.testing.assert_array_equal(found, VALUES)


def test_an_array_that_was_read_empty_is_looked_at_again(tmp_path: Path) -> None:
    stored(tmp_path / "a", 2, encoding("v2", "/"), None)
    shutil.move(tmp_path / "a" / "0", tmp_path / "0")
    shutil.move(tmp_path / "a" / "1", tmp_path / "1")
    shutil.move(tmp_path / "a" / "2", tmp_path / "2")

    with serving(tmp_path) as data:
        assert not np.any(data.http.get("/v1/slice/data/a?format=json").json())
        for name in "012":
            shutil.move(tmp_path / name, tmp_path / "a" / name)
        np.testing.assert_array_equal(data.http.get("/v1/slice/data/a?format=json").json(), VALUES)
        # put right by hand: the document is the same, and its keys are the stated ones
        for path in [*(tmp_path / "a").glob("*/*")]:
            path.rename(tmp_path / "a" / f"{path.parent.name}.{path.name}")
        np.testing.assert_array_equal(data.http.get("/v1/slice/data/a?format=json").json(), VALUES)


@pytest.mark.parametrize("sharded", [False, True])
def test_every_face_finds_chunks_under_other_keys(tmp_path: Path, sharded: bool) -> None:
    if sharded:
        zarr.create_array(
            str(tmp_path / "a"), shape=VALUES.shape, chunks=(1, 2), shards=(2, 4), dtype="i4", fill_value=0,
            chunk_key_encoding=encoding("default", "."),  # type: ignore[arg-type]
        )[...] = VALUES  # fmt: skip
        document = json.loads((tmp_path / "a/zarr.json").read_bytes())
        (tmp_path / "a/zarr.json").write_text(json.dumps(document | {"chunk_key_encoding": keys("default", "/")}))
    else:
        stored(tmp_path / "a", 2, encoding("v2", "/"), None)

    for face in ("/zarr2", "/zarr3", "/v1/chunk"):
        with serving(tmp_path) as data:  # which has not been asked before
            if face == "/v1/chunk":
                answer = data.http.get("/v1/chunk/data/a/1.1?format=stored")
                assert answer.status_code == 200
                continue
            array = zarr.open_array(f"{data.url}{face}/data/a", mode="r", zarr_format=int(face[-1]))  # type: ignore[arg-type]
            np.testing.assert_array_equal(np.asarray(array[...]), VALUES)


def test_the_store_says_what_no_document_and_no_listing_can(tmp_path: Path) -> None:
    stored(tmp_path / "a", 2, encoding("v2", "/"), None)
    (tmp_path / "a" / "0" / "0").unlink()  # the first chunk, which could be tried without a listing
    store = HookedStore(open_store(StoreConfig(name="data", url=str(tmp_path))), listable=False, cheap_stat=False)

    mount = MountedStore("data", store, dimension_separator="/")
    with served(create_app(build([mount]))) as url:
        found = httpx.get(f"{url}/v1/slice/data/a?select=2:&format=json").json()

    np.testing.assert_array_equal(found, VALUES[2:])
