"""Deleting while others write: nothing of what was there comes back."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Absent
from tests.arrays.counting import CountingStore
from tests.arrays.support import read_all

A = "data/group/inner/a"
DEFINITION = {"shape": [8], "chunks": [4], "dtype": "<i4"}


class SlowStore(CountingStore):
    """Is held up before it stores the first chunk."""

    came, go_on = threading.Event(), threading.Event()

    def put(self, key: str, data: bytes | memoryview, *, if_version: str | Absent | None = None) -> str:
        if key.endswith("/0"):
            self.came.set()
            self.go_on.wait(20)
        return super().put(key, data, if_version=if_version)


def test_a_write_under_way_does_not_outlive_the_group_that_is_deleted(tmp_path: Path) -> None:
    store = SlowStore(open_store(StoreConfig(name="data", url=str(tmp_path), writable=True, durability="rename")))
    service = build([MountedStore("data", store, writable=True)])
    service.creator.create_array(A, DEFINITION)
    writing = threading.Thread(target=service.writer.write, args=(A, (), np.array(7, "<i4")))
    writing.start()
    assert store.came.wait(20)
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
