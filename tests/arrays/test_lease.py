"""The lease of a replica that died is taken over, whatever it was doing."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hyperslab.arrays import lease
from hyperslab.arrays.delete import new_array
from hyperslab.arrays.extent import LARGEST, with_own
from hyperslab.arrays.lease import Lease
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.resize import bury_late
from hyperslab.engine.creation import checked, new_document
from hyperslab.errors import StoreError, WriteConflict
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Absent, WritersSafe
from tests.arrays.counting import CountingStore


@pytest.fixture
def mount(tmp_path: Path) -> MountedStore:
    """Holds a lease on ``a/`` that nobody renews."""
    config = StoreConfig(name="data", url=str(tmp_path), writable=True, durability="rename")
    found = MountedStore("data", open_store(config), writable=True)
    Lease(found, "a/")._acquire()
    return found


def test_taking_over_changes_the_document_that_the_dead_one_may_still_publish(
    mount: MountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_TERM", 0.05)
    before = mount.store.put("a/.zarray", b'{"shape": [4]}')

    with Lease(mount, "a/").held():
        stored = mount.store.get("a/.zarray")

    assert stored is not None
    assert stored.version != before
    assert json.loads(bytes(stored.data))["shape"] == [4]


@pytest.mark.parametrize("document", [None, b"{", b"[1]", b"null"])
def test_an_array_that_is_broken_can_be_taken_over(
    mount: MountedStore, document: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_TERM", 0.05)
    if document is not None:
        mount.store.put("a/.zarray", document)

    with Lease(mount, "a/").held():
        stored = mount.store.get("a/.zarray")

    assert (None if stored is None else bytes(stored.data)) == document


class Faulty(CountingStore):
    """Some puts of a lease fail: before they are stored, or afterwards (``lose_answers``). ``renewed`` is set by one
    that succeeds after all of them."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.failures = 0
        self.failed = False
        self.lose_answers = False
        self.renewed = threading.Event()

    def put(self, key: str, data: Any, *, if_version: str | Absent | None = None) -> str:
        if "/lease/" not in key or not self.failures:
            version = super().put(key, data, if_version=if_version)
            if self.failed:
                self.renewed.set()
            return version
        self.failures -= 1
        self.failed = self.failures == 0
        if self.lose_answers:
            super().put(key, data, if_version=if_version)
        raise StoreError(self.name, key, "a passing failure")


@pytest.fixture
def faulty(tmp_path: Path) -> MountedStore:
    config = StoreConfig(name="data", url=str(tmp_path), writable=True, durability="rename")
    return MountedStore("data", Faulty(open_store(config)), writable=True)


@pytest.mark.parametrize("lose_answers", [False, True])
def test_a_renewal_that_fails_is_followed_by_others(
    faulty: MountedStore, lose_answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_RENEWALS", 1000)
    store = faulty.store
    assert isinstance(store, Faulty)
    store.lose_answers = lose_answers
    held = Lease(faulty, "a/")

    with held.held():
        before = store.get(held._key)
        store.failures = 2
        assert store.renewed.wait(60)
        after = store.get(held._key)

    assert store.failures == 0
    assert before is not None
    assert after is not None
    assert json.loads(bytes(after.data))["holder"] == json.loads(bytes(before.data))["holder"]
    assert store.get(held._key) is None, "it was given back"


def test_a_lease_that_was_lost_is_waited_for_again(mount: MountedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_TERM", 0.05)
    document = mount.store.put("a/.zarray", b'{"shape": [4]}')
    slow, other = Lease(mount, "a/"), Lease(mount, "a/")
    slow._acquire()
    other._acquire()

    with pytest.raises(WriteConflict):
        slow.check()
    monkeypatch.setattr(lease, "_TERM", 20.0)
    again = threading.Thread(target=slow.take_again)
    again.start()
    again.join(0.2)
    assert again.is_alive(), "the other one has it"
    other._release()
    again.join()

    slow.check()
    stored = mount.store.get("a/.zarray")
    assert stored is not None
    assert stored.version != document


def test_taking_over_stops_a_holder_that_changes_the_document_at_that_moment(
    mount: MountedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has announced an append: what it has read is what it will publish on top of."""
    monkeypatch.setattr(lease, "_TERM", 0.05)
    mount.store.put("a/.zarray", b'{"shape": [4]}')
    put = mount.store.put
    announced: list[str] = []

    def put_late(key: str, data: bytes | memoryview, *, if_version: str | Absent | None = None) -> str:
        if key == "a/.zarray" and not announced:
            announced.append(put(key, b'{"shape": [4], "hyperslab": {"extent": [8]}}'))
        return put(key, data, if_version=if_version)

    monkeypatch.setattr(mount.store, "put", put_late)
    with Lease(mount, "a/").held():
        stored = mount.store.get("a/.zarray")

    assert stored is not None
    assert stored.version != announced[0]
    assert json.loads(bytes(stored.data))["hyperslab"]["extent"] == [8]


@pytest.mark.parametrize(
    ("reach", "side", "most"),
    [
        ((LARGEST, 8), 2, 2048),
        ((8, LARGEST), 2, 2048),
        ((LARGEST,) * 2, 2, 65_536),
        ((LARGEST, 4096), 1024, 36),
        ((LARGEST, 256), 256, 64),
    ],
)
def test_tombstones_for_late_requests_are_few_however_far_these_may_reach(
    reach: tuple[int, int], side: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a stream do, whose array grows without an end."""
    inner = open_store(StoreConfig("data", "memory://late", writable=True))
    mount = MountedStore("data", CountingStore(inner, writers_safe=WritersSafe.REPLICAS), writable=True)
    metadata = checked(new_document({"shape": [2 * side] * 2, "chunks": [side] * 2, "dtype": "<i4"}))
    buried = list[str]()
    monkeypatch.setattr(mount.store, "put_tombstones", buried.extend)

    bury_late(new_array(mount, "a/", with_own(metadata, doubt=reach)), lambda: None)

    assert {"a/2.0", "a/2.1"} & {*buried} or {"a/0.2", "a/1.2"} & {*buried}
    assert len(buried) <= most
