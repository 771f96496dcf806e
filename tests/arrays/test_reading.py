"""How reads go about it: what they ask the store for, which threads they use, and that the values are numpy's."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numcodecs import Blosc, Zstd
from zarr.codecs import BloscCodec, ZstdCodec

from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.plan import resolve_field
from hyperslab.arrays.service import Service, build
from hyperslab.errors import ChunkCorrupt
from hyperslab.storage.base import Store
from tests.arrays.counting import CountingStore, is_document
from tests.arrays.support import MIB, age, local_store, open_array, plan_items, service_on, zarr_array

Array = np.ndarray[Any, Any]


@pytest.fixture
def asked(tmp_path: Path) -> CountingStore:
    zarr_array(tmp_path, np.arange(400, dtype="<i4").reshape(20, 20), (5, 5))
    age(tmp_path)
    return CountingStore(local_store(tmp_path, writable=False))


def service_of(store: Store, cache_bytes: int) -> Service:
    return build([MountedStore("data", store)], cache_bytes=cache_bytes)


class TestVersions:
    def test_of_very_many_chunks_those_absent_or_in_the_cache_are_used_in_the_version_that_was_planned(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hyperslab.arrays.read.MAX_VERSIONS", 3)  # of more chunks only hashes of versions are kept
        zarr_array(tmp_path, np.arange(400, dtype="<i4").reshape(20, 20), (5, 5))
        (tmp_path / "a" / "1.1").unlink()  # of what is not there nothing is asked again
        with service_on(tmp_path) as service:
            first, again, changed = ReadCost(), ReadCost(), ReadCost()
            for cost in (first, again):
                plan = service.reader.look_up(plan_items(service.reader, open_array(service)))
                service.reader.read(plan, cost=cost)
            (tmp_path / "a" / "0.0").write_bytes((tmp_path / "a" / "3.3").read_bytes())
            plan = service.reader.look_up(plan_items(service.reader, open_array(service)))
            values = service.reader.read(plan, cost=changed)[0]

        assert (first.cached, again.cached, changed.cached) == (1, 16, 15)
        np.testing.assert_array_equal(values[:5, :5], values[15:, 15:])

    def test_a_first_read_asks_for_none_and_has_all(self, asked: CountingStore) -> None:
        for cache_bytes in (0, MIB):
            service = service_of(asked, cache_bytes)
            plan = plan_items(service.reader, open_array(service), (slice(3, 9), slice(2, 20)))

            values, read = service.reader.read(plan)

            np.testing.assert_array_equal(values, np.arange(400).reshape(20, 20)[3:9, 2:20])
            assert all(map(is_document, asked.looked_up))
            assert read.tag == service.reader.look_up(plan).tag
            asked.lookups.clear()

    def test_cached_chunks_are_revalidated(self, asked: CountingStore) -> None:
        service = service_of(asked, MIB)
        plan = plan_items(service.reader, open_array(service), ())
        service.reader.read(plan_items(service.reader, open_array(service), (slice(0, 5),)))

        service.reader.read(plan)

        assert sum(not is_document(key) for key in asked.looked_up) == 4
        assert service.cache.stats().entries == 16

    def test_a_read_reports_a_write_since_its_versions_were_looked_up(self, asked: CountingStore) -> None:
        for cache_bytes in (0, MIB):
            service = service_of(asked, cache_bytes)
            plan = service.reader.look_up(plan_items(service.reader, open_array(service), ()))
            folder = Path(asked.url.removeprefix("file://")) / "a"
            shutil.copy(folder / "3.3", folder / "0.0")
            cost = ReadCost()

            values, read = service.reader.read(plan, cost=cost)

            assert values[0, 0] == values[15, 15]
            assert cost.changed
            assert read.tag != plan.tag
            shutil.copy(folder / "3.2", folder / "0.0")


@st.composite
def arrays(draw: st.DrawFn) -> tuple[Array, tuple[int, ...], dict[str, Any], tuple[Any, ...]]:
    """Values, chunks, options of the array, and a selection."""
    shape = tuple(draw(st.lists(st.integers(1, 24), min_size=1, max_size=3)))
    chunks = tuple(draw(st.integers(1, 9)) for _ in shape)
    dtype = draw(st.sampled_from(("|u1", "<u2", ">f8", "|b1")))
    values = (np.arange(np.prod(shape)) % 251 % 7).reshape(shape).astype(dtype)
    options: dict[str, Any] = {"order": draw(st.sampled_from("CF")), "fill_value": 1}
    options["compressors"] = draw(st.sampled_from((None, Blosc(), Blosc(shuffle=2, blocksize=64), Zstd())))
    options["chunk_key_encoding"] = {"name": "v2", "separator": draw(st.sampled_from("./"))}
    items = tuple(
        draw(st.integers(0, n - 1) | st.builds(slice, st.integers(0, n), st.integers(0, n), st.integers(1, 3)))
        for n in shape
    )
    return values, chunks, options, items


@given(case=arrays(), gone=st.sets(st.integers(0, 40), max_size=4), old=st.booleans())
def test_small_chunks_read_around_the_cache_equal_numpy(
    tmp_path_factory: pytest.TempPathFactory, case: Any, gone: set[int], old: bool
) -> None:
    values, chunks, options, items = case
    folder = tmp_path_factory.mktemp("small")
    zarr_array(folder, values, chunks, **options)
    expected = values.copy()
    with service_on(folder, cache_bytes=0) as service:
        array = open_array(service)
        for number, coords in enumerate(np.ndindex(*array.metadata.grid.counts)):
            if number in gone:
                (folder / array.chunk_key(coords)).unlink(missing_ok=True)
                expected[array.metadata.grid.bounds(coords)] = 1
        if old:
            age(folder)

        found = service.reader.read(plan_items(service.reader, array, items))[0]

        np.testing.assert_array_equal(found, expected[items])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with service_on(tmp_path, cache_bytes=0) as running:
        yield running


class TestAroundTheCache:
    def test_a_read_counts_chunks_and_bytes_and_times_its_phases(self, tmp_path: Path, service: Service) -> None:
        zarr_array(tmp_path, np.arange(64, dtype="<i8").reshape(8, 8), (2, 2), compressors=None)
        cost = ReadCost()

        service.reader.read(plan_items(service.reader, open_array(service), (slice(0, 4),)), cost=cost)

        assert (cost.touched, cost.cached, cost.bytes_read) == (8, 0, 8 * 32)
        assert set(cost.timings) >= {"fetch", "decode"}


class TestThroughTheCache:
    """4 MiB in chunks of 8 KiB, and a cache of 64 MiB: answers up to 16 MiB are kept at once."""

    @pytest.fixture
    def values(self, tmp_path: Path) -> Array:
        values = np.random.default_rng(1).integers(0, 50, (1024, 1024)).astype("<i4")
        zarr_array(tmp_path, values, (64, 32), compressors=Blosc(), fill_value=7)
        age(tmp_path)
        return values

    @pytest.fixture
    def service(self, values: Array, tmp_path: Path) -> Iterator[Service]:  # noqa: ARG002 - the array must be there
        with service_on(tmp_path, cache_bytes=64 * MIB) as service:
            yield service

    def read(self, service: Service, *items: Any) -> tuple[Array, ReadCost]:
        cost = ReadCost()
        return service.reader.read(plan_items(service.reader, open_array(service), items), cost=cost)[0], cost

    def test_chunks_that_are_there_are_used_and_others_read(
        self, values: Array, service: Service, tmp_path: Path
    ) -> None:
        """Also one that was written since; those that are absent are filled, and not kept."""
        self.read(service, slice(0, 512), slice(0, 512))
        found, cost = self.read(service, slice(256, 1024, 3), slice(200, 900))
        np.testing.assert_array_equal(found, values[256:1024:3, 200:900])
        assert 0 < cost.cached < cost.touched

        self.read(service)
        shutil.copy(tmp_path / "a" / "3.3", tmp_path / "a" / "0.0")
        found, cost = self.read(service)
        values[:64, :32] = values[192:256, 96:128]
        np.testing.assert_array_equal(found, values)
        assert cost.cached == cost.touched - 1

        service.cache.clear()
        (tmp_path / "a" / "2.1").unlink()
        values[128:192, 32:64] = 7
        for _ in range(2):
            np.testing.assert_array_equal(self.read(service)[0], values)
        assert service.reader.cache.stats().entries == 16 * 32 - 1

    def test_a_larger_answer_is_kept_when_it_is_asked_for_again(self, tmp_path: Path) -> None:
        values = np.arange(5 << 20, dtype="<i4").reshape(2560, 2048)
        zarr_array(tmp_path / "large", values, (128, 64), compressors=Blosc())
        age(tmp_path)
        with service_on(tmp_path / "large", cache_bytes=256 * MIB) as service:
            costs = []
            for _ in range(3):
                found, cost = self.read(service)
                np.testing.assert_array_equal(found, values)
                costs.append(cost.cached)

            assert costs == [0, 0, cost.touched]
            service.cache.clear()
            assert self.read(service)[1].cached == 0
            assert self.read(service)[1].cached == 0

    @pytest.mark.parametrize("is_remote", [False, True])
    def test_large_chunks_are_kept_when_they_are_asked_for_again(self, tmp_path: Path, *, is_remote: bool) -> None:
        """Small answers too; what comes from far away is kept at once."""
        values = np.arange(1 << 20, dtype="<i4").reshape(1024, 1024)
        zarr_array(tmp_path / "large", values, (512, 1024), compressors=Zstd())
        age(tmp_path)
        store = RemoteStore(tmp_path / "large") if is_remote else local_store(tmp_path / "large", writable=False)
        service, cached = service_of(store, 64 * MIB), []
        for column in range(4):
            found, cost = self.read(service, slice(None), column)
            np.testing.assert_array_equal(found, values[:, column])
            cached.append(cost.cached)
        assert cached == ([0, 2, 2, 2] if is_remote else [0, 0, 2, 2])

    @pytest.mark.parametrize("sharded", [False, True])
    @pytest.mark.parametrize("codec", ["lz4", "zstd", "raw"])
    def test_of_large_chunks_what_was_asked_for_again_is_kept(
        self, tmp_path: Path, codec: str, *, sharded: bool
    ) -> None:
        """The blocks of Blosc, the beginning of a stream and a little more, the ranges of uncompressed chunks; of the
        present version alone."""
        values = np.random.default_rng(1).integers(0, 999, (32, 256, 256)).astype("<u2") // 8
        how: dict[str, Any] = {"compressors": {"lz4": Blosc(), "zstd": Zstd(), "raw": None}[codec]}
        if sharded:
            of_v3 = {"lz4": BloscCodec(cname="lz4", shuffle="shuffle"), "zstd": ZstdCodec(), "raw": None}
            how = {"compressors": of_v3[codec], "shards": (32, 256, 256), "zarr_format": 3}
        zarr_array(tmp_path / "large", values, (16, 256, 256), **how)
        age(tmp_path)
        with service_on(tmp_path / "large", cache_bytes=64 * MIB) as service:

            def cached(*items: Any) -> int:
                found, cost = self.read(service, *items)
                np.testing.assert_array_equal(found, values[items])
                return cost.cached

            assert [cached(3, slice(10, 200)) for _ in range(4)] == [0, 0, 1, 1]
            assert service.cache.stats().nbytes < values.nbytes // 4
            assert cached(3, slice(20, 100, 7), slice(5, 90)) == 1
            assert cached(2, slice(10, 200)) == (codec != "raw")
            assert cached(12) == (codec == "raw"), "now it is kept whole"
            assert [cached(slice(0, 16), 9) for _ in range(3)][1:] == [1, 1]
            np.testing.assert_array_equal(self.read(service)[0], values)

            values[3] += 1
            zarr_array(tmp_path / "large", values, (16, 256, 256), overwrite=True, **how)
            np.testing.assert_array_equal(self.read(service, 3, slice(10, 200))[0], values[3, 10:200])

    def test_fields_come_from_whole_records(self, tmp_path: Path) -> None:
        values = np.zeros(4096, [("a", "<i4"), ("b", "<f8")])
        values["a"], values["b"] = np.arange(4096), np.arange(4096) / 3
        zarr_array(tmp_path / "table", values, (256,), compressors=Blosc())
        age(tmp_path)
        with service_on(tmp_path / "table", cache_bytes=64 * MIB) as service:
            array = open_array(service)
            for name, cached in (("a", 0), ("b", 16)):
                cost = ReadCost()
                plan = plan_items(service.reader, array, (), resolve_field(array, name))
                np.testing.assert_array_equal(service.reader.read(plan, cost=cost)[0], values[name])
                assert cost.cached == cached


class RemoteStore(CountingStore):
    """A folder as if behind a network: notes also who fetches chunks."""

    def __init__(self, root: Path) -> None:
        super().__init__(local_store(root, writable=False), cheap_stat=False, width=4)
        self.fetchers: set[int] = set()

    def before(self, operation: str, keys: Sequence[str]) -> None:
        if operation == "get" and not is_document(keys[0]):
            self.fetchers.add(threading.get_ident())


class TestRemoteChunks:
    """One task for each chunk."""

    @pytest.fixture
    def values(self) -> Array:
        return np.random.default_rng(3).integers(1, 999, (50, 60), dtype="<i4")

    @pytest.fixture
    def store(self, tmp_path: Path, values: Array) -> RemoteStore:
        zarr_array(tmp_path, values, (5, 5))
        (tmp_path / "a" / "1.1").unlink()
        values[5:10, 5:10] = 0
        return RemoteStore(tmp_path)

    def read(self, store: RemoteStore, items: Any, cache_bytes: int = 0) -> Array:
        service = service_of(store, cache_bytes)
        found = service.reader.read(plan_items(service.reader, open_array(service), items))[0]
        service.close()
        return found

    @pytest.mark.parametrize("items", [(), (slice(7, None, 3), slice(None, 7)), (slice(3, 50, 9), 8), (8,)])
    @pytest.mark.parametrize("cache_bytes", [0, 4 * MIB])
    def test_values_equal_numpy(self, store: RemoteStore, values: Array, items: Any, cache_bytes: int) -> None:
        np.testing.assert_array_equal(self.read(store, items, cache_bytes), values[items])

    def test_versions_come_with_the_data(self, store: RemoteStore) -> None:
        self.read(store, ())

        assert all(map(is_document, store.looked_up))
        assert len(store.chunk_gets()) == 120
        assert store.fetchers != {threading.get_ident()}

    def test_a_broken_chunk_is_named(self, store: RemoteStore, tmp_path: Path) -> None:
        (tmp_path / "a" / "9.11").write_bytes(b"nonsense")

        with pytest.raises(ChunkCorrupt, match=r"a/9\.11"):
            self.read(store, ())


class TestLargeChunks:
    """Chunks of 1 MiB, read in parts."""

    @pytest.fixture(params=[Blosc(), None, Zstd()], ids=str)
    def values(self, request: pytest.FixtureRequest, tmp_path: Path) -> Array:
        values = (np.arange(1 << 20) % 1000).astype("<u2").reshape(1024, 1024)
        zarr_array(tmp_path, values, (512, 1024), compressors=request.param)
        age(tmp_path)
        return values

    @pytest.mark.parametrize("values", [Blosc(), None], indirect=True, ids=str)
    def test_a_few_rows_are_not_read_whole(self, values: Array, tmp_path: Path, service: Service) -> None:
        cost, whole = ReadCost(), (tmp_path / "a" / "0.0").stat().st_size

        found = service.reader.read(plan_items(service.reader, open_array(service), (slice(10, 12),)), cost=cost)[0]

        np.testing.assert_array_equal(found, values[10:12])
        assert cost.bytes_read < whole

    @pytest.mark.parametrize(
        "items", [(), (5,), (slice(None), 7), (slice(100, 700, 3), slice(3, 900, 2)), (slice(500, 530),), (511, 1023)]
    )
    def test_values_equal_numpy(self, values: Array, service: Service, items: Any) -> None:
        for _ in range(2):  # the second time in used memory
            found = service.reader.read(plan_items(service.reader, open_array(service), items))[0]
            np.testing.assert_array_equal(found, values[items])

    def test_a_cut_or_missing_chunk_never_shows_memory_of_another(
        self, values: Array, tmp_path: Path, service: Service
    ) -> None:
        """Whether it is gone, broken, cut, or has more behind it where all of it is read."""

        def read(start: int, stop: int) -> Array:
            return service.reader.read(plan_items(service.reader, open_array(service), (slice(start, stop),)))[0]

        first, second = tmp_path / "a" / "0.0", tmp_path / "a" / "1.0"
        stored = second.read_bytes()
        read(600, 602)
        for data in (b"short", *(stored[:size] for size in (0, 10, 20, 40, len(stored) // 8, len(stored) - 1))):
            second.write_bytes(data)
            age(tmp_path)
            with pytest.raises(ChunkCorrupt) as caught:
                read(1020, 1024)
            assert caught.value.key == "a/1.0"
        second.write_bytes(stored)
        with first.open("ab") as file:
            file.write(bytes(1 << 21))
        with pytest.raises(ChunkCorrupt):
            read(0, 512)
        first.unlink()
        np.testing.assert_array_equal(read(510, 514), np.concatenate([np.zeros((2, 1024)), values[512:514]]))
