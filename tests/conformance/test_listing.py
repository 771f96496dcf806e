"""Listing does not scan chunks: an array of a million of them costs as much as one of two."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from hyperslab import RemoteGroup
from hyperslab.api.app import create_app
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Entry, Listing, Unserved
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

    def list_prefix(self, prefix: str, unserved: list[Unserved] | None = None) -> Iterator[Entry]:
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
    assert not any(prefix.startswith(("flat", "g/nested")) for prefix in store.listed)
    assert len(store.asked) + len(store.gets) < 60
    names = {key.rpartition("/")[2] for key in [*store.asked, *store.gets]}
    assert not {name for name in names if name.isdigit() and name not in "05"}  # the first one tells the form of keys


def test_the_children_of_a_crowded_group_are_all_there(watched: tuple[WatchedStore, httpx.Client]) -> None:
    _, http = watched

    with RemoteGroup(str(http.base_url)) as root:
        assert dict(root.open_group("s").children()) == {"flat": "array", "g": "group"}
        assert dict(root.open_group("s/g").children()) == {"nested": "array", "small": "array"}
        assert root.open_array("s/flat").shape == (1_000_000,)
