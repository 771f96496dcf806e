"""Listing does not scan chunks: an array of a million of them costs as much as one of two."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
import zarr

from hyperslab import RemoteGroup
from hyperslab.api.app import create_app
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.nodes import ChildInfo, MountedStore
from hyperslab.arrays.service import build
from hyperslab.arrays.tree import find
from hyperslab.storage import StoreConfig, open_store, scan
from hyperslab.storage.base import Entry, Listing, UnservedEntry
from tests.arrays.counting import CountingStore
from tests.conformance.service import DOCUMENT
from tests.server import served

FILES = 2_000
"""Chunks that are really there; the shape speaks of many times as many."""
ARRAY = {**DOCUMENT, "shape": [1_000_000], "chunks": [1], "dtype": "|u1"}


class WatchedStore(CountingStore):
    """Also keeps what was listed and how many entries came back, and the keys that were looked up."""

    def __init__(self, inner: CountingStore) -> None:
        super().__init__(inner)
        self.listed: dict[str, int] = {}
        self.asked: list[str] = []

    def list_dir(self, prefix: str) -> Listing:
        found = super().list_dir(prefix)
        self.listed[prefix] = len(found.entries) + len(found.prefixes)
        return found

    def list_prefix(self, prefix: str, unserved: list[UnservedEntry] | None = None) -> Iterator[Entry]:
        for number, entry in enumerate(super().list_prefix(prefix, unserved), 1):
            self.listed[prefix] = number
            yield entry

    def before(self, operation: str, keys: Sequence[str]) -> None:
        if operation in ("stat", "versions"):
            self.asked.extend(keys)

    def forget(self) -> None:
        self.listed.clear()
        self.asked.clear()
        self.gets.clear()


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``flat`` with all its chunks in one folder, ``g/nested`` with folders of chunks, ``g/small``."""
    folder = tmp_path_factory.mktemp("crowded")
    documents = {
        ".zgroup": {"zarr_format": 2},
        "flat/.zarray": ARRAY,
        "g/.zgroup": {"zarr_format": 2},
        "g/nested/.zarray": {**ARRAY, "shape": [1000, 1000], "chunks": [1, 1], "dimension_separator": "/"},
        "g/small/.zarray": {**ARRAY, "shape": [2]},
    }
    for key, document in documents.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_text(json.dumps(document))
    for i in range(FILES):
        (folder / "flat" / str(i)).touch()
    for i in range(100):
        (folder / "g" / "nested" / str(i)).mkdir()
    (folder / "g" / "nested" / "0" / "0").touch()
    return folder


@pytest.fixture
def watched(crowded: Path) -> Iterator[tuple[WatchedStore, httpx.Client]]:
    store = WatchedStore(open_store(StoreConfig(name="s", url=str(crowded))))  # type: ignore[arg-type]
    with served(create_app(build([MountedStore("s", store)]))) as url, httpx.Client(base_url=url, timeout=60) as http:
        yield store, http


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/metadata/s", "/v1/metadata/s/flat", "/v1/metadata/s/g", "/v1/metadata/s/g/nested"),
        *("/v1/plan/s/flat?select=5", "/zarr/s/", "/zarr/s/flat/", "/zarr/s/g/nested/", "/zarr/s/.zmetadata"),
        *("/zarr/s/flat/.zarray", "/zarr/s/g/nested/5/nothing", "/v1/metadata/s/flat/nothing", "/readyz"),
    ],
)
def test_no_chunk_is_listed_or_looked_up(watched: tuple[WatchedStore, httpx.Client], path: str) -> None:
    store, http = watched
    store.forget()

    answer = http.get(path)

    assert answer.status_code in (200, 404), answer.text
    assert sum(store.listed.values()) < 20, store.listed
    may_look = path == "/v1/metadata/s/g/nested"  # for keys of another form, at a few of its keys
    assert may_look or not any(prefix.startswith(("flat", "g/nested")) for prefix in store.listed)
    assert len(store.asked) + len(store.gets) < 60
    names = {key.rpartition("/")[2] for key in [*store.asked, *store.gets]}
    assert not {name for name in names if name.isdigit() and name not in "05"}  # the first one tells the form of keys


def test_the_children_of_a_crowded_group_are_all_there(watched: tuple[WatchedStore, httpx.Client]) -> None:
    _, http = watched

    with RemoteGroup(str(http.base_url)) as root:
        assert dict(root.open_group("s").children()) == {"flat": "array", "g": "group"}
        assert dict(root.open_group("s/g").children()) == {"nested": "array", "small": "array"}
        assert root.open_array("s/flat").shape == (1_000_000,)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_pages_of_a_large_group_cost_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zarr_format: Literal[2, 3]
) -> None:
    """Some children are looked up twice (the first beyond a page); each document of Zarr v3 is read once, and a folder
    is listed again when it has changed."""
    monkeypatch.setattr(scan, "_SETTLED", 0.0)
    monkeypatch.setattr(scan, "_REMEMBERED", 1e9)
    scans: list[object] = []

    def counted(folder: Any, scandir: Any = os.scandir) -> Any:
        scans.append(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", counted)
    group = zarr.create_group(tmp_path, zarr_format=zarr_format)
    names = [f"a{i:04}" for i in range(1200)]
    array = group.create_array(names[0], shape=1, dtype="i2")
    for name in names[1:]:
        shutil.copytree(tmp_path / array.basename, tmp_path / name)
    (tmp_path / "a0500-link").symlink_to("a0500")
    (tmp_path / "a0500-out").symlink_to("/")
    store = WatchedStore(open_store(StoreConfig(name="s", url=str(tmp_path))))  # type: ignore[arg-type]
    catalog = Catalog([MountedStore("s", store)])
    root, listed = catalog.open_group("s"), list[str]()
    scans.clear()

    for _ in range(2):
        store.forget()
        listed.clear()
        cursor, problems = None, set[str]()
        while True:
            page = catalog.children(root, limit=100, cursor=cursor)
            listed += [child.name for child in page.nodes]
            problems.update(page.problems)
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(store.asked) <= 3.4 * len(names)
        assert not store.listed
    assert len(scans) == 1

    assert listed == sorted([*names, "a0500-link"])
    assert not store.gets  # the second time
    assert [problem for problem in problems if "a0500-out" in problem]
    matches = find(catalog, root, names[-1], limit=9, page=1000)
    while not matches.nodes and matches.next_cursor is not None:  # a page has its time; attributes are looked into
        matches = find(catalog, root, names[-1], limit=9, page=1000, cursor=matches.next_cursor)
    assert matches.nodes == (ChildInfo(f"s/{names[-1]}", "array"),)
    (tmp_path / "a0500-new").mkdir()
    document = "zarr.json" if zarr_format == 3 else ".zgroup"
    shutil.copy(tmp_path / document, tmp_path / "a0500-new" / document)
    page = catalog.children(root, limit=4, cursor="a0499")
    assert [child.name for child in page.nodes] == ["a0500", "a0500-link", "a0500-new", "a0501"]
