"""``.zmetadata`` stays true however many write at once, and a broken one stands in nobody's way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hyperslab.arrays.service import Service
from tests.arrays.support import service_on


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with service_on(tmp_path) as found:
        found.creator.create_group("data", {})
        yield found


def test_it_holds_what_many_creators_make_at_once(tmp_path: Path, service: Service) -> None:
    (tmp_path / ".zmetadata").write_text('{"zarr_consolidated_format": 1, "metadata": {}}')
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
