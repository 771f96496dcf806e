"""What is remembered of a store is never older than the service's own writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from hyperslab.arrays.nodes import MountedStore, Recheck, VersionBook
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.service import Service, build
from hyperslab.engine.selection import normalise
from hyperslab.storage import open_store
from hyperslab.storage.base import MAX_BYTES, Store, StoredValue
from tests.arrays.counting import CountingStore
from tests.arrays.support import local_store, plan_items, read_all, service_on
from tests.s3 import S3Bucket

A = "data/a"


class SlowAnswers(CountingStore):
    """Lets something happen after the store has looked up versions and before its answer arrives."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.meanwhile: Callable[[], object] | None = None

    def versions(self, prefix: str, keys: Sequence[str]) -> list[str | None]:
        found = super().versions(prefix, keys)
        self._meanwhile()
        return found

    def get_each(
        self, keys: Sequence[str], max_bytes: int = MAX_BYTES, *, denied_is_absent: bool = False
    ) -> list[StoredValue | None]:
        found = super().get_each(keys, max_bytes, denied_is_absent=denied_is_absent)
        self._meanwhile()
        return found

    def _meanwhile(self) -> None:
        action, self.meanwhile = self.meanwhile, None
        if action is not None:
            action()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SlowAnswers]:
    found = SlowAnswers(local_store(tmp_path))
    yield found
    found.close()


def service_over(store: Store, recheck: Recheck) -> Service:
    return build([MountedStore("data", store, writable=True, recheck=recheck)])


@pytest.mark.parametrize("recheck", ["never", 3600.0])
def test_a_look_up_that_began_before_a_write_is_not_remembered_after_it(store: SlowAnswers, recheck: Recheck) -> None:
    service = service_over(store, recheck)
    service.creator.create_array(A, {"shape": [4], "chunks": [4], "dtype": "<i4"})
    service.writer.write(A, (), np.array(1, "<i4"))
    array = service.catalog.open_array(A)
    old = service.reader.look_up(plan_items(service.reader, array, ())).tag
    array.mount.versions.forget("a/")

    store.meanwhile = lambda: service.writer.write(A, (), np.array(9, "<i4"))
    assert array.mount.versions.look_up("a/", ["a/0"])

    plan = service.reader.look_up(plan_items(service.reader, service.catalog.open_array(A), ()))
    assert plan.tag != old
    assert read_all(service).tolist() == [9] * 4


def test_a_look_up_that_began_before_a_key_was_forgotten_is_not_remembered(store: SlowAnswers) -> None:
    book = VersionBook(store, "never")

    def change() -> None:
        store.put("a/.zarray", b"{}")
        book.forget("a/")

    store.meanwhile = change
    assert book.look_up("a/", ["a/.zarray"]) == [None]

    assert not book.knows_all(["a/.zarray"])
    assert book.look_up("a/", ["a/.zarray"]) == store.versions("a/", ["a/.zarray"])
    assert book.knows_all(["a/.zarray"])


def test_what_is_remembered_is_asked_for_anew_by_writers(store: SlowAnswers) -> None:
    book = VersionBook(store, "never")
    assert book.look_up("", ["a"]) == [None]
    version = store.put("a", b"by another program")

    assert book.look_up("", ["a"]) == [None]
    assert book.look_up("", ["a"], fresh=True) == [version] == book.look_up("", ["a"])


@pytest.mark.parametrize("recheck", ["never", 3600.0])
def test_what_is_read_counts_as_looked_up(store: SlowAnswers, recheck: Recheck) -> None:
    book = VersionBook(store, recheck)
    store.put("a/.zarray", b"{}")

    read = book.read(["a/.zarray", "a/.zattrs"])

    assert [stored and bytes(stored.data) for stored in read] == [b"{}", None]
    assert book.knows_all(["a/.zarray", "a/.zattrs"])
    assert book.look_up("a/", ["a/.zarray", "a/.zattrs"]) == [read[0] and read[0].version, None]


def test_a_read_that_began_before_a_write_is_not_remembered_after_it(store: SlowAnswers) -> None:
    book = VersionBook(store, "never")
    store.put("a/.zarray", b"old")

    store.meanwhile = lambda: book.record("a/.zarray", store.put("a/.zarray", b"new"))
    book.read(["a/.zarray"])

    assert book.look_up("a/", ["a/.zarray"]) == store.versions("a/", ["a/.zarray"])


def test_the_versions_of_several_arrays_of_a_bucket_are_looked_up_together(s3_bucket: S3Bucket) -> None:
    """So many that they are listed, of one array and of two."""
    store = open_store(s3_bucket.config(name="data", writable=True))
    service = build([MountedStore("data", store, writable=True)])
    plans: list[ReadPlan] = []
    put: dict[str, dict[tuple[int, ...], str | None]] = {}
    for name in "ab":
        definition = {"shape": [70], "chunks": [1], "dtype": "|u1", "compressor": None}
        service.creator.create_array(f"data/{name}", definition)
        put[f"{name}/"] = {(i,): store.put(f"{name}/{i}", bytes([i])) if i % 9 else None for i in range(70)}
        plans.append(service.reader.plan(service.catalog.open_array(f"data/{name}"), normalise((), (70,))))

    for chosen in (plans, plans[:1], plans[1:]):
        found = service.reader.look_up_together(chosen)
        assert [plan.versions for plan in found] == [put[plan.array.prefix] for plan in chosen]
    service.close()


def test_large_attributes_are_neither_parsed_nor_written_anew_by_an_append(tmp_path: Path) -> None:
    """In Zarr v3 they stand in the document that holds the shape; what another program makes of them is seen."""
    attributes: dict[str, Any] = {"title": "a" * 100_000, "nan": float("nan"), "big": 2**70, "text": 'of "é"'}
    group = zarr.open_group(tmp_path, mode="w", zarr_format=3)
    group.create_array("a", shape=(0, 2), chunks=(1, 2), dtype="i2", attributes=attributes)
    with service_on(tmp_path) as service:
        parsed = []
        for row in range(4):
            service.appender.append(A, np.full((1, 2), row, "i2"))
            parsed.append(service.catalog.open_array(A).metadata.attributes)
            if row == 2:
                zarr.open_array(tmp_path / "a", mode="r+").attrs["title"] = "another"

    assert parsed[2] is parsed[1] is not None
    assert parsed[3] is not parsed[2]
    found: Any = zarr.open_array(tmp_path / "a", mode="r")
    assert found[:].tolist() == [[row, row] for row in range(4)]
    assert {**found.attrs, "nan": None} == {**attributes, "nan": None, "title": "another"}
