"""Reading equals numpy, touches only what it must, and never answers from a stale cache."""

from __future__ import annotations

import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hyperslab.arrays.chunks import UNKNOWN, ReadCost
from hyperslab.arrays.limits import BytesInFlight
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.plan import ReadPlan
from hyperslab.arrays.service import build
from hyperslab.arrays.workers import Cancel
from hyperslab.engine.selection import normalise
from hyperslab.errors import Cancelled, TooLarge
from hyperslab.storage.base import AT_ONCE
from hyperslab.wire import SelectionItem
from tests.arrays.counting import CountingStore
from tests.arrays.support import local_store, open_array, plan_items, read_all, service_on, service_over, zarr_array


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], str, tuple[SelectionItem, ...]]:
    """A shape, chunks, an order and a selection that fits."""
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=0, max_size=3)))
    chunks = tuple(draw(st.integers(1, 10)) for _ in shape)
    items: list[SelectionItem] = []
    for size in shape[: draw(st.integers(0, len(shape)))]:
        bound = st.none() | st.integers(-11, 11)
        kinds: list[st.SearchStrategy[Any]] = [
            st.builds(slice, bound, bound, st.none() | st.integers(-4, 4).filter(bool))
        ]
        if size:
            kinds += [st.integers(-size, size - 1), st.lists(st.integers(-size, size - 1), max_size=6)]
        items.append(draw(st.one_of(kinds)))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), Ellipsis)
        if items[-1] is not Ellipsis and len(items) - 1 < len(shape):
            items = [item for item in items if item is not Ellipsis]  # positions would shift
    return shape, chunks, draw(st.sampled_from("CF")), tuple(items)


def numpy_orthogonal(values: NDArray[Any], items: tuple[SelectionItem, ...]) -> NDArray[Any]:
    """What the selection means, one axis at a time."""
    expanded: list[SelectionItem] = []
    for item in items:
        if item is Ellipsis:
            expanded += [slice(None)] * (values.ndim - (len(items) - 1))
        else:
            expanded.append(item)
    result, axis = values, 0
    for item in expanded:
        if isinstance(item, list):
            result = np.take(result, np.array(item, dtype=np.int64), axis=axis)
        else:
            result = result[(slice(None),) * axis + (item,)]
        axis += not isinstance(item, int)
    return result


@given(case=cases(), slab_bytes=st.integers(1, 300), window=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_reading_equals_numpy_whole_and_by_the_slab(
    tmp_path: Path, case: Any, slab_bytes: int, window: tuple[float, float]
) -> None:
    """For any array, selection, slab size and byte range: the bytes are numpy's."""
    shape, chunks, order, items = case
    values = np.arange(int(np.prod(shape)), dtype="<i4").reshape(shape)
    folder = tmp_path / "a"
    zarr_array(tmp_path, values, chunks, order=order, overwrite=folder.exists(), fill_value=7)
    expected = np.ascontiguousarray(numpy_orthogonal(values, items)).reshape(numpy_orthogonal(values, items).shape)
    with service_on(tmp_path, slab_bytes=slab_bytes) as service:
        plan = plan_items(service.reader, open_array(service), items)
        body = expected.tobytes()
        start, stop = sorted(int(bound * len(body)) for bound in window)

        np.testing.assert_array_equal(service.reader.read(plan)[0], expected)
        assert plan.shape == expected.shape
        assert plan.nbytes == len(body)
        assert b"".join(bytes(slab) for slab in service.reader.stream(plan, 0, len(body))) == body
        assert b"".join(bytes(slab) for slab in service.reader.stream(plan, start, stop)) == body[start:stop]


def test_only_the_chunks_touched_are_read_and_a_write_behind_our_back_is_seen(tmp_path: Path) -> None:
    """Planning reads none, a second read comes from the cache, and the tag changes with the chunks touched alone."""
    values = np.arange(100, dtype="<i4").reshape(10, 10)
    zarr_array(tmp_path, values, (5, 5))
    store = CountingStore(local_store(tmp_path))
    with service_over(store) as service:

        def plan(*items: slice) -> ReadPlan:
            return service.reader.look_up(plan_items(service.reader, open_array(service), items))

        rows, other = (slice(0, 5), slice(None)), (slice(5, 10), slice(5, 10))
        open_array(service)
        store.gets.clear()
        before = plan(*rows).tag, plan(*other).tag
        assert store.gets == []
        for cached in (0, 2):
            cost = ReadCost()
            service.reader.read(plan_items(service.reader, open_array(service), rows), cost=cost)
            assert sorted(store.gets) == ["a/0.0", "a/0.1"]
            assert (cost.touched, cost.cached) == (2, cached)
        cancel = Cancel()
        cancel.set()
        with pytest.raises(Cancelled):
            service.reader.read(plan(), cancel)

        zarr.open_array(str(tmp_path / "a"), mode="r+", zarr_format=2)[0, 0] = 99
        assert read_all(service)[0, 0] == 99
        assert (plan(*rows).tag != before[0], plan(*other).tag != before[1]) == (True, False)


def test_an_answer_that_would_wash_out_the_cache_is_read_around_it(tmp_path: Path) -> None:
    zarr_array(tmp_path, np.arange(10_000, dtype="<i4"), (100,))
    with service_on(tmp_path, cache_bytes=4000) as service:
        plan = plan_items(service.reader, open_array(service), (slice(0, 100),))
        service.reader.read(plan)
        read_all(service)

        assert service.reader.count_cached(service.reader.look_up(plan)) == 1
        assert service.cache.stats().entries == 1


def test_the_event_loop_does_not_wait_for_a_thread_that_loads_the_same_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv
    monkeypatch.setattr(os, "RWF_NOWAIT", 8, raising=False)
    monkeypatch.setattr(os, "preadv", lambda descriptor, buffers, offset, _=0: preadv(descriptor, buffers, offset))
    zarr_array(tmp_path, np.arange(100, dtype="<i4"), (100,))
    with service_on(tmp_path) as service, ThreadPoolExecutor(2) as pool:
        array, (loading, go_on) = open_array(service), (Event(), Event())
        name = array.cache_key(array.chunk_key((0,)))

        def slowly() -> tuple[NDArray[Any], str, int]:
            loading.set()
            assert go_on.wait(60)
            return np.arange(100, dtype="<i4"), "other", 400

        def read() -> NDArray[Any]:
            AT_ONCE.set(True)  # for this thread
            return service.reader.read(plan_items(service.reader, array, ()))[0]

        pool.submit(service.cache.load, name, UNKNOWN, slowly)
        assert loading.wait(60)
        try:
            assert pool.submit(read).result(60).tolist() == [*range(100)]
        finally:
            go_on.set()


def test_small_chunks_of_a_shard_are_cached_by_their_first_read(tmp_path: Path) -> None:
    zarr_array(tmp_path, np.arange(4096, dtype="<i4").reshape(64, 64), (8, 8), shards=(32, 32), zarr_format=3)
    with service_on(tmp_path) as service:
        first, second = ReadCost(), ReadCost()
        for cost in (first, second):
            service.reader.read(plan_items(service.reader, open_array(service), (slice(0, 40),)), cost=cost)

    assert (first.cached, first.bytes_read > 0) == (0, True)
    assert (second.cached, second.bytes_read) == (40, 0)


@pytest.mark.parametrize(("dtype", "nbytes"), [("<i4", 400), (str, 7200)])
def test_a_chunk_may_be_as_large_as_the_operator_allows(tmp_path: Path, dtype: Any, nbytes: int) -> None:
    """Objects count as many bytes as short ones take."""
    zarr.create_array(tmp_path / "a", shape=(300,), chunks=(100,), dtype=dtype, zarr_format=2)
    with service_on(tmp_path, max_chunk_bytes=nbytes) as service:
        plan_items(service.reader, open_array(service))
    with service_on(tmp_path, max_chunk_bytes=nbytes - 1) as service, pytest.raises(TooLarge) as caught:
        plan_items(service.reader, open_array(service))

    assert (caught.value.requested, caught.value.limit) == (nbytes, nbytes - 1)


def test_a_chunk_too_large_for_the_cache_is_not_taken_for_one_that_was_written(tmp_path: Path) -> None:
    """Objects count with all that they hold, so that no cache may have room for a chunk of few."""
    array = zarr.create_array(tmp_path / "a", shape=(4,), chunks=(2,), dtype=str, zarr_format=2)
    array[...] = np.array([letter * 100 for letter in "abcd"], object)
    with service_on(tmp_path, cache_bytes=200) as service:
        plan = service.reader.look_up(service.reader.plan(open_array(service), normalise((), (4,))))
        cost = ReadCost()

        service.reader.read(plan, cost=cost)

        assert not cost.changed


def test_remembered_versions_spare_the_store_and_go_stale_as_the_operator_chose(tmp_path: Path) -> None:
    zarr_array(tmp_path, np.zeros(4, "<i2"), (2,))
    with service_on(tmp_path, mount={"recheck": "never"}) as service:
        read_all(service)
        zarr.open_array(str(tmp_path / "a"), mode="r+", zarr_format=2)[:] = 5

        np.testing.assert_array_equal(read_all(service), [0, 0, 0, 0])
    with service_on(tmp_path, mount={"recheck": 0.0}) as service:
        np.testing.assert_array_equal(read_all(service), [5, 5, 5, 5])


def test_a_chunk_that_slabs_cut_is_decoded_once(tmp_path: Path) -> None:
    """Where its codec cannot be entered midway: in a larger slab, or from the cache until its row of chunks is done."""
    values = np.arange(64 * 64, dtype="<i4").reshape(64, 64)
    zarr_array(tmp_path, values, (32, 32), compressors={"id": "zlib", "level": 1})
    for slab_bytes, cache_bytes in ((4096, 0), (512, 1 << 16)):
        with service_on(tmp_path) as plain:
            store = CountingStore(plain.catalog.mounts["data"].store)
            service = build([MountedStore("data", store)], cache_bytes=cache_bytes, slab_bytes=slab_bytes)
            plan = plan_items(service.reader, service.catalog.open_array("data/a"), ())
            store.gets.clear()

            body = b"".join(bytes(slab) for slab in service.reader.stream(plan, 0, plan.nbytes))

            assert body == values.tobytes()
            assert sorted(store.gets) == ["a/0.0", "a/0.1", "a/1.0", "a/1.1"]


BLOSC = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}


@pytest.mark.parametrize(
    ("compressor", "room", "slab"),  # KiB
    [
        (BLOSC, 0, 128),  # a full house: cut the rows of chunks, which can be entered midway
        (BLOSC, 8192, 512),  # there is memory: do not cut them
        ({"id": "zlib", "level": 1}, 0, 512),  # a cut would decode each chunk four times
        ({"id": "zlib", "level": 1}, 8192, 512),
    ],
)
def test_slabs_are_as_large_as_the_memory_that_is_free_allows(
    tmp_path: Path, compressor: Any, room: int, slab: int
) -> None:
    values = np.arange(512 * 512, dtype="<i4").reshape(512, 512)
    zarr_array(tmp_path, values, (256, 256), compressors=compressor)
    with service_on(tmp_path, slab_bytes=128 << 10) as service:
        reader, plan = service.reader, plan_items(service.reader, open_array(service), ())
        chosen = reader.choose_slab(plan, BytesInFlight(room << 10))
        slabs = [bytes(each) for each in reader.stream(plan, 0, plan.nbytes, slab_bytes=chosen)]

    assert chosen == slab << 10
    assert {len(each) for each in slabs} == {chosen}
    assert b"".join(slabs) == values.tobytes()


def test_a_few_bytes_are_read_from_their_own_chunks(tmp_path: Path) -> None:
    values = np.arange(64 * 4096, dtype="<i4").reshape(64, 4096)
    zarr_array(tmp_path, values, (1, 64))
    with service_on(tmp_path) as service:
        plan = service.reader.look_up(plan_items(service.reader, open_array(service), ()))
        for start, stop in ((0, 10), (99_999, 100_321), (plan.nbytes - 1, plan.nbytes), (40_000, 80_000)):
            cost = ReadCost()

            body = b"".join(bytes(slab) for slab in service.reader.stream(plan, start, stop, cost=cost))

            assert body == values.tobytes()[start:stop]
            assert cost.touched <= 3 * max(stop - start, 4096) // 256


def test_a_slab_projects_its_own_chunks_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the time for each slab would grow with the answer."""
    values = np.arange(300 * 8, dtype="<i4").reshape(300, 8)
    zarr_array(tmp_path, values, (1, 4))
    with service_on(tmp_path, slab_bytes=128, cache_bytes=0) as service:
        plan = service.reader.look_up(service.reader.plan(open_array(service), normalise((), (300, 8))))
        objects = type(plan).objects
        asked: list[int] = []

        def counted(part: ReadPlan) -> Any:
            asked.append(part.selection.size)
            return objects(part)

        monkeypatch.setattr(type(plan), "objects", counted)
        body = b"".join(bytes(slab) for slab in service.reader.stream(plan, 0, plan.nbytes))

    assert max(asked) == 128 // 4
    assert body == values.tobytes()


def test_a_shard_that_is_not_stored_is_filled_without_a_look_at_its_chunks(tmp_path: Path) -> None:
    shape = (1, 1_000_000)
    zarr.create_array(
        str(tmp_path / "a"), shape=shape, chunks=(1, 2), shards=shape, dtype="u1", fill_value=7, zarr_format=3
    )
    with service_on(tmp_path) as service:
        plan = service.reader.look_up(plan_items(service.reader, open_array(service), (slice(None), slice(5, None, 3))))
        tracemalloc.start()
        try:
            values, cost = np.empty(plan.shape, plan.dtype), ReadCost()
            service.reader.read(plan, cost=cost, out=values)
            assert tracemalloc.get_traced_memory()[1] < 2_000_000  # of 333,332 chunks
        finally:
            tracemalloc.stop()
    assert (values == 7).all()
    assert (cost.touched, cost.cached) == (333_332, 333_332)
