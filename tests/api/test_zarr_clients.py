"""How Zarr libraries find their way under ``/zarr``; that all read the same values: `tests.interop.test_over_http`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import numpy as np
import pytest
import tensorstore
import zarr

from tests.api.conftest import CUBE, FLOATS
from tests.api.support import Running, request, running, write_array


@pytest.fixture(scope="module")
def plain(example_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The example without its table: zarr-python 3.1 opens no group that holds records with subarrays (issue 3582)."""
    folder = tmp_path_factory.mktemp("plain")
    shutil.copytree(example_store, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("table"))
    with running(folder) as found:
        yield found


def test_zarr_3_through_fsspec_reads_arrays_and_finds_members(plain: Running) -> None:
    group = zarr.open_group(f"{plain.url}/zarr/data", mode="r")

    members = dict(group.members(max_depth=None))
    assert {"cube", "group", "group/floats", "scalar", "sparse", "empty"} <= members.keys()
    np.testing.assert_array_equal(group["cube"][...], CUBE)  # type: ignore[index]
    np.testing.assert_array_equal(group["group/floats"][2:5, ::2], FLOATS[2:5, ::2])  # type: ignore[index]
    assert float(group["sparse"][50, 50]) == 7.5  # type: ignore[index, arg-type]
    assert group.attrs["title"] == "example"


def test_zarr_3_finds_members_by_listing_where_it_is_told_not_to_use_consolidated_metadata(plain: Running) -> None:
    group = zarr.open_group(f"{plain.url}/zarr/data/", mode="r", zarr_format=2, use_consolidated=False)

    assert {"cube", "group", "scalar", "sparse", "empty"} == {name for name, _ in group.members()}


@pytest.mark.filterwarnings("ignore")
def test_zarr_3_opens_a_group_that_holds_an_array_it_does_not_know(tmp_path: Path) -> None:
    write_array(tmp_path, "known", np.arange(4), (2,))
    known = json.loads((tmp_path / "known/.zarray").read_text())
    records = json.dumps(known | {"dtype": [["a", "<f4", [2]]], "fill_value": None})
    for name, text in {
        "group/records": records,
        "small": json.dumps(known | {"dtype": "bfloat16"}),
        "broken": "{",
    }.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / ".zarray").write_text(text)

    with running(tmp_path) as found:
        group = zarr.open_group(f"{found.url}/zarr/data", mode="r")
        assert {name for name, _ in group.members(max_depth=None)} == {"known", "group"}
        np.testing.assert_array_equal(group["known"][...], np.arange(4))  # type: ignore[index]
        made = json.loads(request(found.url, "/zarr/data/.zmetadata").body)
        assert made["left_out"] == ["group/records/.zarray", "small/.zarray"]
        unconsolidated = zarr.open_group(f"{found.url}/zarr/data", mode="r", use_consolidated=False)
        np.testing.assert_array_equal(unconsolidated["known"][...], np.arange(4))  # type: ignore[index]
        of_broken = [
            request(found.url, f"/zarr/data/broken/{name}").status for name in (".zarray", ".zgroup", ".zattrs")
        ]
        assert of_broken == [200, 404, 404]


def test_tensorstore_recognises_an_array_by_its_address_alone(example: Running) -> None:
    array = tensorstore.open(f"{example.url}/zarr/data/cube/").result()

    np.testing.assert_array_equal(array[2].read().result(), CUBE[2])


def test_tensorstore_reads_again_without_a_byte_of_data(example_store: Path) -> None:
    with running(example_store) as found:
        spec = {
            "driver": "zarr",
            "kvstore": {"driver": "http", "base_url": f"{found.url}/zarr/data/cube/"},
            "context": {"cache_pool": {"total_bytes_limit": 100_000_000}},
            "recheck_cached_data": True,
        }
        array = tensorstore.open(spec, read=True).result()
        first = array.read().result()
        reads = len(found.store.chunk_gets())
        second = array.read().result()

        np.testing.assert_array_equal(first, second)
        assert reads == 18
        assert len(found.store.chunk_gets()) == reads, "a 304 reads nothing"


def test_fsspec_lists_and_reads(example: Running) -> None:
    web = fsspec.filesystem("http")
    names = {entry.rstrip("/").rpartition("/")[2] for entry in web.ls(f"{example.url}/zarr/data/", detail=False)}

    assert {"cube", "group", ".zgroup", ".zattrs"} <= names
    assert not web.exists(f"{example.url}/zarr/data/cube/7.7.7")
    assert web.size(f"{example.url}/zarr/data/cube/.zarray") == len(web.cat(f"{example.url}/zarr/data/cube/.zarray"))
    assert web.cat_file(f"{example.url}/zarr/data/cube/.zarray", start=0, end=1) == b"{"
