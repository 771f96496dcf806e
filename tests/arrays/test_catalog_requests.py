"""How many requests it takes to open a node of a far store, and which of them are under way at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.storage import open_store
from tests.arrays.counting import CountingStore
from tests.arrays.support import local_store, zarr_array
from tests.documents import zarray
from tests.faults import Before, FaultProxy
from tests.s3 import S3Bucket, S3Server

ARRAY = zarray()
CONSOLIDATED = {"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2}, "g/h/a/.zarray": ARRAY}}

Put = Callable[[Mapping[str, Any]], None]


@pytest.fixture
def put(s3_server: S3Server, s3_bucket: S3Bucket) -> Put:
    """Stores documents by key."""

    def put_all(documents: Mapping[str, Any]) -> None:
        for key, document in documents.items():
            s3_server.client.put_object(Bucket=s3_bucket.name, Key=key, Body=json.dumps(document).encode())

    return put_all


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.url) as running:
        yield running


@pytest.fixture
def catalog(s3_bucket: S3Bucket, proxy: FaultProxy) -> Callable[..., Catalog]:
    """Makes catalogs of the bucket, mounted as ``data``."""

    def mounted(**mount: Any) -> Catalog:
        store = open_store(s3_bucket.at(proxy.url).config(name="data", timeout=60.0, retries=0))
        return Catalog([MountedStore("data", store, **mount)])

    return mounted


def asked(proxy: FaultProxy) -> list[tuple[str, str]]:
    """Method and key of the requests since this was called last, sorted."""
    found = sorted((seen.method, seen.path.partition("?")[0].split("/", 2)[2]) for seen in proxy.seen)
    proxy.seen.clear()
    return found


def meet(proxy: FaultProxy, count: int) -> None:
    """Let the next requests be answered only when so many are under way at once."""
    proxy.inject(Before(threading.Barrier(count, timeout=60).wait), times=count)


DOCUMENTS = ["a/.zarray", "a/.zattrs", "a/.zgroup", "a/zarr.json"]


def test_a_new_node_is_read_at_once_and_a_known_one_looked_up(
    put: Put, proxy: FaultProxy, catalog: Callable[..., Catalog]
) -> None:
    """Of one that has changed, the documents that are there are read."""
    put({"a/.zarray": ARRAY, "a/.zattrs": {"unit": "m"}})
    opened = catalog()
    meet(proxy, 4)

    first = opened.open_array("data/a")

    assert first.attributes == {"unit": "m"}
    assert asked(proxy) == [("GET", key) for key in DOCUMENTS]
    assert opened.open_array("data/a") is first
    assert asked(proxy) == [("HEAD", key) for key in DOCUMENTS]
    put({"a/.zarray": {**ARRAY, "shape": [8]}})
    meet(proxy, 4)
    assert opened.open_array("data/a").metadata.shape == (8,)
    assert asked(proxy) == [*[("GET", key) for key in DOCUMENTS[:2]], *[("HEAD", key) for key in DOCUMENTS]]
    assert opened.open_known("data/a") is None  # which the event loop asks: it must not wait
    assert asked(proxy) == []


def test_what_was_read_is_not_looked_up_while_it_may_be_remembered(
    put: Put, proxy: FaultProxy, catalog: Callable[..., Catalog]
) -> None:
    put({"a/.zarray": ARRAY, ".zmetadata": CONSOLIDATED})
    opened = catalog(recheck="never")
    assert opened.open_known("data/a") is None

    first = opened.open_array("data/a")

    assert asked(proxy) == [("GET", key) for key in DOCUMENTS]
    assert opened.open_array("data/a") is opened.open_known("data/a") is first
    assert asked(proxy) == []
    opened.open_array("data/g/h/a")
    assert asked(proxy)
    opened.open_array("data/g/h/a")  # of ancestors that have no documents this is remembered, too
    assert asked(proxy) == []


def test_the_documents_of_ancestors_are_read_at_once(
    put: Put, proxy: FaultProxy, catalog: Callable[..., Catalog]
) -> None:
    put({".zmetadata": CONSOLIDATED})
    opened = catalog()
    meet(proxy, 4)
    meet(proxy, 4)

    assert opened.open_array("data/g/h/a").metadata.shape == (4,)

    consolidated = [("GET", f"{root}.zmetadata") for root in ("", "g/", "g/h/", "g/h/a/")]
    assert asked(proxy) == sorted(consolidated + [("GET", f"g/h/{key}") for key in DOCUMENTS])


def test_large_attributes_are_not_read_again_when_another_document_changes(tmp_path: Path) -> None:
    zarr_array(tmp_path, np.zeros(3), (1,), attributes={"notes": "x" * 100_000})
    store = CountingStore(local_store(tmp_path))
    service = build([MountedStore("data", store, writable=True)])
    service.catalog.open_array("data/a")
    store.gets.clear()

    for _ in range(3):
        service.appender.append("data/a", np.ones(1))
    array = service.catalog.open_array("data/a")

    assert (array.metadata.shape, len(array.attributes["notes"])) == ((6,), 100_000)
    assert "a/.zattrs" not in store.gets
    (tmp_path / "a" / ".zattrs").write_text("{}")
    assert service.catalog.open_array("data/a").attributes == {}


def test_a_document_is_read_and_parsed_once_for_all_who_open_its_node_at_the_same_time(tmp_path: Path) -> None:
    """Of a large one, each parse keeps the interpreter from all other threads."""
    zarr_array(tmp_path, np.arange(4), (2,))
    together = threading.Barrier(4, timeout=60)

    class Store(CountingStore):
        def before(self, operation: str, keys: Sequence[str]) -> None:  # noqa: ARG002
            if operation == "versions":
                together.wait()

    store = Store(local_store(tmp_path))
    catalog = Catalog([MountedStore("data", store)])
    with ThreadPoolExecutor(4) as threads:
        opened = [*threads.map(catalog.open_array, ["data/a"] * 4)]
    assert all(array is opened[0] for array in opened)
    assert sorted(store.gets) == ["a/.zarray", "a/.zattrs"]
