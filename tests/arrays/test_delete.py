"""Deleting while others write: nothing of what was there comes back. And what a link leads to stays."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from hyperslab.arrays import create, documents
from hyperslab.arrays.keys import KeyReader
from hyperslab.arrays.lease import Permit
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.errors import StoreError, WriteConflict
from hyperslab.storage.base import Entry, UnservedEntry
from tests.arrays.counting import CountingStore
from tests.arrays.support import local_store, read_all, service_on, snapshot

A = "data/group/inner/a"
DEFINITION = {"shape": [8], "chunks": [4], "dtype": "<i4"}


class SlowStore(CountingStore):
    """Is held up before it stores the first chunk."""

    came, go_on = threading.Event(), threading.Event()

    def before(self, operation: str, keys: Sequence[str]) -> None:
        if operation == "put" and keys[0].endswith("/0"):
            self.came.set()
            self.go_on.wait(60)


def test_a_write_under_way_does_not_outlive_the_group_that_is_deleted(tmp_path: Path) -> None:
    store = SlowStore(local_store(tmp_path))
    service = build([MountedStore("data", store, writable=True)])
    service.creator.create_array(A, DEFINITION)
    writing = threading.Thread(target=service.writer.write, args=(A, (), np.array(7, "<i4")))
    writing.start()
    assert store.came.wait(60)
    deleting = threading.Thread(target=service.creator.delete, args=("data/group",), kwargs={"recursive": True})
    deleting.start()
    deleting.join(0.5)
    store.go_on.set()
    writing.join()
    deleting.join()

    assert not (tmp_path / "group").exists()
    _create_again(service)
    service.close()


def _create_again(service: Service) -> None:
    service.creator.create_array(A, DEFINITION)
    assert not read_all(service, A).any()


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[Service]:
    """An array ``keep`` of ones, and beside it a group ``g`` with an array and a link ``latest`` to ``keep``."""
    with service_on(tmp_path) as service:
        for name in ("data/keep", "data/g/a"):
            service.creator.create_array(name, DEFINITION)
            service.writer.write(name, (), np.array(1, "<i4"))
        (tmp_path / "g" / "latest").symlink_to("../keep")
        yield service


@pytest.mark.parametrize("path", ["data/g", "data/g/latest"])
def test_a_delete_removes_a_link_and_not_what_it_leads_to(tmp_path: Path, linked: Service, path: str) -> None:
    linked.creator.delete(path, recursive=True)

    assert not (tmp_path / path.removeprefix("data/")).exists()
    assert read_all(linked, "data/keep").all()


@pytest.mark.parametrize("path", ["data/g", "data/g/latest"])
def test_a_replacement_takes_the_place_of_a_link_and_not_of_what_it_leads_to(linked: Service, path: str) -> None:
    linked.creator.create_array(path, DEFINITION, mode="replace")

    assert not read_all(linked, path).any()
    assert read_all(linked, "data/keep").all()


def test_links_in_a_circle_are_listed_and_deleted_as_the_links_they_are(tmp_path: Path, linked: Service) -> None:
    (tmp_path / "g" / "loop").symlink_to(tmp_path / "g")
    (tmp_path / "keep" / "self").symlink_to("self")

    document = KeyReader(linked.catalog, linked.reader).find("data/.zmetadata")

    found = json.loads(document.data)["metadata"]  # type: ignore[union-attr]
    assert {key for key in found if key.endswith(".zarray")} == {"keep/.zarray", "g/a/.zarray", "g/latest/.zarray"}
    linked.creator.delete("data/g/loop", recursive=True)
    assert sorted(path.name for path in (tmp_path / "g").iterdir()) == [".zgroup", "a", "latest"]
    (tmp_path / "g" / "loop").symlink_to(tmp_path / "g")
    linked.creator.delete("data/g", recursive=True)
    assert not (tmp_path / "g").exists()


class HalfListed(CountingStore):
    """Fails while it lists all that lies below ``g``."""

    def list_prefix(self, prefix: str, unserved: list[UnservedEntry] | None = None) -> Iterator[Entry]:
        yield from super().list_prefix(prefix, unserved)
        if prefix == "g/":
            raise StoreError("data", prefix, "no answer")


def test_a_delete_that_cannot_be_listed_removes_nothing(tmp_path: Path, linked: Service) -> None:
    linked.creator.create_group("data/g/z", {})
    store = HalfListed(local_store(tmp_path))
    service = build([MountedStore("data", store, writable=True)])
    before = snapshot(tmp_path)

    with pytest.raises(StoreError):
        service.creator.delete("data/g", recursive=True)

    assert snapshot(tmp_path) == before
    service.close()


class Lost(Permit):
    """A lease that ran out on the way."""

    def check(self) -> None:
        raise WriteConflict("a", "another writer may go on")


def test_who_has_lost_the_turn_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies there by then may be somebody else's."""
    with service_on(tmp_path) as service:
        service.creator.create_array(A, DEFINITION)
        before = snapshot(tmp_path)
        monkeypatch.setattr(create, "node_lease", lambda *_: nullcontext(Lost()))

        with pytest.raises(WriteConflict):
            service.creator.delete(A)
        with pytest.raises(WriteConflict):
            service.creator.create_array(A, DEFINITION, mode="replace")
        with pytest.raises(WriteConflict):
            documents.remove_document(service.catalog.mounts["data"], f"{A[5:]}/.zarray", Lost().check)

        assert snapshot(tmp_path) == before
