"""The lease of a replica that died is taken over, whatever it was doing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hyperslab.arrays import lease
from hyperslab.arrays.lease import Lease
from hyperslab.arrays.nodes import MountedStore
from hyperslab.storage import StoreConfig, open_store


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
