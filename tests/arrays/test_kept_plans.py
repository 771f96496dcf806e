"""Who reads the same selection again finds it planned; what is read is what is stored now."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import Blosc, GZip

from hyperslab.arrays.cost import ReadCost
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.service import Service
from hyperslab.errors import IndexOutOfRange
from tests.arrays.support import MIB, age, open_array, service_on, zarr_array

Array = np.ndarray[Any, Any]

VALUES = np.arange(4096, dtype="<i4").reshape(64, 64)
BOX = (slice(3, 50), slice(2, 60, 3))


@pytest.fixture(params=[Blosc(), None, GZip()], ids=["Blosc", "uncompressed", "gzip"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    zarr_array(tmp_path, VALUES, (16, 8), compressors=request.param)
    age(tmp_path)
    return tmp_path


@pytest.fixture(params=[0, MIB], ids=["no cache", "cache"])
def service(request: pytest.FixtureRequest, folder: Path) -> Iterator[Service]:
    with service_on(folder, cache_bytes=request.param) as service:
        yield service


def plan(service: Service, *items: Any) -> ReadPlan:
    return service.reader.plan_items(open_array(service), items)


def read(service: Service, *items: Any) -> Array:
    return service.reader.read(plan(service, *items))


def test_what_was_planned_twice_is_found_again(service: Service) -> None:
    first, second, third = (plan(service, *BOX) for _ in range(3))

    assert first.chunks is not second.chunks
    assert second.chunks is third.chunks
    for found in (first, second, third):
        np.testing.assert_array_equal(service.reader.read(found), VALUES[BOX])


def test_each_answer_is_its_own(service: Service) -> None:
    first, again = read(service, *BOX), read(service, *BOX)
    first[...] = 0

    np.testing.assert_array_equal(again, VALUES[BOX])


def test_another_selection_is_not_taken_for_it(service: Service) -> None:
    selections: list[tuple[Any, ...]] = [
        (3,), (slice(3, 4),), (slice(3, 4), ...), (..., 3), (-61,), ([3, 4],), (slice(3, None),), (slice(None, 3),), (),
    ]  # fmt: skip

    for _ in range(3):
        for items in selections:
            np.testing.assert_array_equal(read(service, *items), VALUES[items])


def test_a_tag_is_of_the_time_of_its_own_plan(service: Service, folder: Path) -> None:
    before = {plan(service, *BOX).tag for _ in range(3)}
    zarr.open_array(str(folder / "a"), mode="r+", zarr_format=2)[10, 10] = -1
    after = plan(service, *BOX).tag

    assert before != {after} == {plan(service, *BOX).tag}
    assert len(before) == 1


def test_what_was_written_since_is_read(service: Service, folder: Path) -> None:
    for _ in range(3):
        read(service, *BOX)
    zarr.open_array(str(folder / "a"), mode="r+", zarr_format=2)[5, 5] = -1
    (folder / "a" / "1.0").unlink()

    expected = VALUES.copy()
    expected[5, 5] = -1
    expected[16:32, :8] = 0
    np.testing.assert_array_equal(read(service, *BOX), expected[BOX])


def test_an_array_that_was_made_anew_is_planned_anew(service: Service, folder: Path) -> None:
    for _ in range(3):
        assert read(service, ..., 60).shape == (64,)
    zarr_array(folder, VALUES[:32, :32] * 2, (5, 5), overwrite=True)
    age(folder)

    np.testing.assert_array_equal(read(service, slice(3, 50)), VALUES[3:32, :32] * 2)
    with pytest.raises(IndexOutOfRange):
        read(service, ..., 60)


def test_many_threads_may_share_a_plan(service: Service) -> None:
    plan(service, *BOX)
    shared = [plan(service, *BOX) for _ in range(2)] * 20
    start = threading.Barrier(4)

    def work(number: int) -> bool:
        if number < 4:
            start.wait()
        return np.array_equal(service.reader.read(shared[number]), VALUES[BOX])

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(40)))


def test_plans_of_many_chunks_are_not_kept(tmp_path: Path) -> None:
    zarr_array(tmp_path, VALUES, (4, 4))
    with service_on(tmp_path, cache_bytes=0) as service:
        for kept, items in ((False, ()), (True, (0,))):
            plan(service, *items)
            assert (plan(service, *items).chunks is plan(service, *items).chunks) is kept


def test_a_read_of_known_versions_is_of_just_those(folder: Path) -> None:
    with service_on(folder, cache_bytes=0) as service:
        array = open_array(service)
        known = service.reader.plan(array, plan(service, *BOX).selection)
        versions = {array.chunk_key(coords): version for coords, version in (known.versions or {}).items()}
        if not service.reader.verifies(known):
            assert array.metadata.batch is None
            return

        found = service.reader.read_exactly(known, versions, ReadCost())
        assert found is not None
        np.testing.assert_array_equal(found, VALUES[BOX])
        for key in versions:
            assert service.reader.read_exactly(known, {**versions, key: "another"}, ReadCost()) is None
            assert service.reader.read_exactly(known, {**versions, key: None}, ReadCost()) is None


def test_where_chunks_are_cached_or_versions_remembered_none_is_compared(folder: Path) -> None:
    for options in ({"cache_bytes": MIB}, {"cache_bytes": 0, "mount": {"recheck": 60.0}}):
        with service_on(folder, **options) as service:
            assert not service.reader.verifies(plan(service, *BOX))
