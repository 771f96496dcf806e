"""``.zmetadata`` stays true however many write at once, and a broken one stands in nobody's way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hyperslab.arrays import consolidated
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.errors import ConsolidatedBehind, StoreFull
from hyperslab.storage import StoreConfig, open_store
from hyperslab.storage.base import Absent, VersionConflict
from tests.arrays.counting import CountingStore
from tests.arrays.support import read_all, service_on

EMPTY = '{"zarr_consolidated_format": 1, "metadata": {}}'


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with service_on(tmp_path) as found:
        found.creator.create_group("data", {})
        yield found


def test_it_holds_what_many_creators_make_at_once(tmp_path: Path, service: Service) -> None:
    (tmp_path / ".zmetadata").write_text(EMPTY)
    definition = {"shape": [1], "dtype": "<f8"}

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda i: service.creator.create_array(f"data/n{i}", definition), range(200)))

    document = json.loads((tmp_path / ".zmetadata").read_text())
    assert {f"n{i}/.zarray" for i in range(200)} <= set(document["metadata"])
    assert document["zarr_consolidated_format"] == 1


@pytest.mark.parametrize("text", ["not JSON", "[1]", "{}", '{"zarr_consolidated_format": 1, "metadata": 5}'])
def test_changes_succeed_beside_a_broken_one(tmp_path: Path, service: Service, text: str) -> None:
    service.creator.create_array("data/a", {"shape": [4], "dtype": "<i4"})
    (tmp_path / ".zmetadata").write_text(text)

    service.resizer.resize("data/a", [6])
    service.creator.change_attributes("data/a", {"unit": "m"})
    appended = service.appender.append("data/a", np.ones(2, "<i4"))

    assert (appended.offset, appended.array.attributes) == (6, {"unit": "m"})
    assert (tmp_path / ".zmetadata").read_text() == text


def test_it_knows_the_documents_of_arrays_by_their_own_name(tmp_path: Path) -> None:
    """Also where the operator has given them another one in the store."""
    with service_on(tmp_path, mount={"metadata_key": ".array"}) as service:
        (tmp_path / ".zmetadata").write_text('{"zarr_consolidated_format": 1, "metadata": {}}')
        service.creator.create_array("data/a", {"shape": [4], "dtype": "<i4"})
        service.resizer.resize("data/a", [6])
        stored = (tmp_path / "a" / ".array").read_bytes()

        metadata = json.loads((tmp_path / ".zmetadata").read_text())["metadata"]
        assert metadata["a/.zarray"] == json.loads(stored)
        service.key_writer.put("data/a/.array", stored.replace(b"[6]", b"[7]"))
        metadata = json.loads((tmp_path / ".zmetadata").read_text())["metadata"]
        assert metadata["a/.zarray"]["shape"] == [7]
        assert "a/.array" not in metadata


class Unconsolidated(CountingStore):
    """Raises ``error`` where ``.zmetadata`` is to be put."""

    error: Exception | None = None

    def put(self, key: str, data: bytes | memoryview, *, if_version: str | Absent | None = None) -> str:
        if key == ".zmetadata" and self.error is not None:
            raise self.error
        return super().put(key, data, if_version=if_version)


@pytest.mark.parametrize("error", [VersionConflict(".zmetadata", "1"), StoreFull("data", ".zmetadata", "no space")])
def test_where_it_cannot_follow_what_is_published_is_not_done_again(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consolidated, "_LONGEST_PAUSE", 0.0)
    config = StoreConfig(name="data", url=str(tmp_path), writable=True, durability="rename")
    store = Unconsolidated(open_store(config))
    service = build([MountedStore("data", store, writable=True)])
    service.creator.create_array("data/a", {"shape": [2], "dtype": "<i4", "chunks": [2]})
    (tmp_path / ".zmetadata").write_text(EMPTY)
    service.appender.append("data/a", np.array([1, 2], "<i4"))
    rows = np.array([3, 4], "<i4")

    store.error = error
    with pytest.raises(ConsolidatedBehind, match="is done"):
        service.appender.append("data/a", rows, idempotency_key="k")
    assert read_all(service).tolist() == [0, 0, 1, 2, 3, 4]
    assert _consolidated_shape(tmp_path) == [4]
    with pytest.raises(ConsolidatedBehind):
        service.resizer.resize("data/a", [8])

    store.error = None
    assert service.appender.append("data/a", rows, idempotency_key="k").repeated
    assert _consolidated_shape(tmp_path) == [8]
    (tmp_path / ".zmetadata").write_text(EMPTY)
    assert service.resizer.resize("data/a", [8]).metadata.shape == (8,)
    assert _consolidated_shape(tmp_path) == [8]
    assert read_all(service).tolist() == [0, 0, 1, 2, 3, 4, 0, 0]
    service.close()


def _consolidated_shape(folder: Path) -> list[int]:
    shape: list[int] = json.loads((folder / ".zmetadata").read_text())["metadata"]["a/.zarray"]["shape"]
    return shape
