"""Writing inside shards: only what changes is decoded, nobody's values are lost, and others read what is stored."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
import zarr

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.other_format import piece_of_shard
from hyperslab.arrays.service import Service, build
from hyperslab.errors import ChangedWhileRead, ChunkCorrupt, TooLarge
from tests.arrays.counting import CountingStore
from tests.arrays.support import local_store, plan_items, read_all, service_on
from tests.documents import array_of, zarr_json

pytestmark = pytest.mark.filterwarnings("ignore:Combining a")

NDArray = np.ndarray[Any, Any]
Codecs = list[dict[str, Any]]
A = "data/a"
LITTLE: Codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
CRC: Codecs = [{"name": "crc32c"}]
GZIP: Codecs = [{"name": "gzip", "configuration": {"level": 1}}]


def sharding(chunk: Sequence[int], codecs: Codecs, location: str = "end") -> dict[str, Any]:
    configuration = {"chunk_shape": [*chunk], "codecs": codecs, "index_codecs": LITTLE + CRC}
    return {"name": "sharding_indexed", "configuration": {**configuration, "index_location": location}}


def transpose(*order: int) -> dict[str, Any]:
    return {"name": "transpose", "configuration": {"order": [*order]}}


CODECS: dict[str, Codecs] = {
    "none": LITTLE,
    "plain": [sharding((2, 3), LITTLE)],
    "index at the start": [sharding((2, 3), LITTLE + GZIP, "start")],
    "nested": [sharding((2, 9), [sharding((2, 3), LITTLE + CRC, "start")])],
    "codecs behind": [sharding((2, 3), LITTLE), *GZIP, *CRC],
    "transposed inside": [sharding((2, 3), [transpose(1, 0), *LITTLE])],
    "transposed outside": [transpose(1, 0), sharding((3, 2), [transpose(1, 0), *LITTLE])],
}


def make(folder: Path, codecs: Codecs, shape: Sequence[int], shard: Sequence[int] = (6, 9)) -> None:
    """An array ``a`` of int32, whose fill value is 7."""
    (folder / "a").mkdir()
    document = zarr_json(shape, shard, "int32", fill_value=7, codecs=codecs)
    (folder / "a" / "zarr.json").write_text(json.dumps(document))


class Model:
    """What the array must hold; whatever is done is done to both."""

    def __init__(self, service: Service, seed: int) -> None:
        self.service, self.chance = service, random.Random(seed)
        self.values: NDArray = np.full((20, 23), 7, "<i4")

    def step(self) -> None:
        value = np.asarray(self.chance.choice([7, 7, 1, 2, 3]), "<i4")
        self.chance.choice([self.write, self.write, self.write, self.points, self.append, self.resize])(value)
        np.testing.assert_array_equal(read_all(self.service), self.values)

    def write(self, value: NDArray) -> None:
        ends = [sorted(self.chance.choices(range(size + 1), k=2)) for size in self.values.shape]
        box = tuple(slice(start, stop, self.chance.choice([1, 1, 2])) for start, stop in ends)
        self.service.writer.write(A, box, value)
        self.values[box] = value

    def points(self, value: NDArray) -> None:
        points = [np.array(self.chance.choices(range(size), k=5)) for size in self.values.shape]
        self.service.writer.write_points(A, points, np.broadcast_to(value, 5))
        self.values[tuple(points)] = value

    def append(self, value: NDArray) -> None:
        axis = self.chance.choice([0, 1])
        rows = np.broadcast_to(value, [3 if a == axis else size for a, size in enumerate(self.values.shape)])
        self.service.appender.append(A, rows, axis=axis)
        self.values = np.concatenate([self.values, rows], axis)

    def resize(self, _: NDArray) -> None:
        shape = (self.chance.randint(1, 30), self.chance.randint(1, 30))
        self.service.resizer.resize(A, shape)
        kept = tuple(slice(min(sizes)) for sizes in zip(shape, self.values.shape, strict=True))
        grown = np.full(shape, 7, "<i4")
        grown[kept] = self.values[kept]
        self.values = grown


@pytest.mark.parametrize("case", CODECS)
def test_what_is_written_is_what_all_read(tmp_path: Path, case: str) -> None:
    make(tmp_path, CODECS[case], (20, 23))
    with service_on(tmp_path) as service:
        model = Model(service, len(case))
        for _ in range(60):
            model.step()

    if case != "transposed outside":  # zarr-python refuses that, and TensorStore codecs behind shards
        np.testing.assert_array_equal(np.asarray(zarr.open_array(str(tmp_path / "a"), mode="r")[...]), model.values)
    if case != "codecs behind":
        opened = ts.open({"driver": "zarr3", "kvstore": f"file://{tmp_path}/a/"}).result()
        np.testing.assert_array_equal(opened.read().result(), model.values)
    sizes = {path: path.stat().st_size for path in (tmp_path / "a" / "c").rglob("*") if path.is_file()}
    array = array_of((tmp_path / "a" / "zarr.json").read_bytes())
    for path, size in sizes.items() if len(array.levels) == 1 and not array.levels[0].after else ():
        pieces = array.levels[0].pieces(path.read_bytes(), "")
        assert pieces, "a shard of fill values is not stored"
        assert size == sum(map(len, pieces.values())) + array.levels[0].index_nbytes, "bytes that nothing refers to"


def counted(folder: Path, **mount: Any) -> tuple[Service, CountingStore]:
    store = CountingStore(local_store(folder))
    service = build([MountedStore("data", store, writable=True, **mount)], cache_bytes=0)
    return service, store


def test_whole_shards_are_not_read_and_each_is_put_once(tmp_path: Path) -> None:
    make(tmp_path, CODECS["plain"], (12, 20))
    service, store = counted(tmp_path)
    service.catalog.open_array(A)

    def asked(box: tuple[slice, ...], value: int) -> tuple[list[str], list[str]]:
        store.gets.clear()
        store.puts.clear()
        service.writer.write(A, box, np.asarray(value, "<i4"))
        return sorted(key for key in store.gets if "zarr.json" not in key), sorted(store.puts)

    keys = [f"a/c/{row}/{column}" for row in (0, 1) for column in (0, 1)]
    assert asked((slice(12), slice(18)), 1) == ([], keys)
    assert asked((slice(1, 12), slice(18)), 2) == (keys[:2], keys)
    assert asked((slice(12), slice(18)), 7) == ([], keys)
    assert not (tmp_path / "a" / "c" / "0" / "0").exists(), "fill values are not stored"
    service.close()


def test_fill_values_are_stored_where_that_is_asked_for(tmp_path: Path) -> None:
    make(tmp_path, CODECS["plain"], (6, 9))
    service, _ = counted(tmp_path, store_data_equal_to_fill_value=True)
    service.writer.write(A, (slice(2), slice(3)), np.asarray(7, "<i4"))
    array = service.catalog.open_array(A)
    stored = (tmp_path / "a" / "c" / "0" / "0").read_bytes()

    assert len(array.metadata.levels[0].pieces(stored, "")) == 1
    service.close()


def test_a_chunk_that_does_not_decode_is_copied_as_it_is(tmp_path: Path) -> None:
    """It hinders nobody who writes beside it, and who writes all of it puts it right. An index that is broken is not
    guessed: only who writes the whole shard does."""
    make(tmp_path, [sharding((2, 3), LITTLE + CRC)], (6, 9))
    shard = tmp_path / "a" / "c" / "0" / "0"
    with service_on(tmp_path) as service:
        service.writer.write(A, (), np.asarray(1, "<i4"))
        data = bytearray(shard.read_bytes())
        data[0] ^= 1
        shard.write_bytes(data)
        broken = bytes(data[:28])

        service.writer.write(A, (slice(5, 6), slice(8, 9)), np.asarray(2, "<i4"))
        assert broken in shard.read_bytes()
        with pytest.raises(ChunkCorrupt):
            service.writer.write(A, (0, 0), np.asarray(3, "<i4"))
        assert broken in shard.read_bytes()
        service.writer.write(A, (slice(2), slice(3)), np.asarray(4, "<i4"))
        expected = np.full((6, 9), 1, "<i4")
        expected[5, 8], expected[:2, :3] = 2, 4
        np.testing.assert_array_equal(read_all(service), expected)

        shard.write_bytes(shard.read_bytes()[:-1])
        cut = shard.read_bytes()
        for box in ((0, 0), (slice(5), slice(9))):
            with pytest.raises(ChunkCorrupt):
                service.writer.write(A, box, np.asarray(5, "<i4"))
            assert shard.read_bytes() == cut
        service.writer.write(A, (), np.asarray(6, "<i4"))
        assert (read_all(service) == 6).all()


def test_a_shard_that_says_it_holds_more_than_it_can_is_not_copied(tmp_path: Path) -> None:
    """Entries that name the same bytes would grow with every copy."""
    make(tmp_path, [sharding((1, 1), LITTLE)], (40, 40), (40, 40))
    with service_on(tmp_path) as service:
        level = service.catalog.open_array(A).metadata.levels[0]
        body = bytes(1 << 20)
        index = np.full((1600, 2), (0, len(body)), np.uint64)
        (tmp_path / "a" / "c" / "0").mkdir(parents=True)
        (tmp_path / "a" / "c" / "0" / "0").write_bytes(body + level.encode_index(index))

        with pytest.raises(ChunkCorrupt, match="more than it could hold"):
            service.writer.write(A, (0, 0), np.asarray(3, "<i4"))


def test_a_shard_that_is_too_large_is_read_and_not_rewritten(tmp_path: Path) -> None:
    make(tmp_path, CODECS["plain"], (60, 87), (60, 90))
    with service_on(tmp_path) as service:
        service.writer.write(A, (), np.asarray(1, "<i4"))
    with service_on(tmp_path, max_chunk_bytes=16384) as service:
        assert service.reader.read(plan_items(service.reader, service.catalog.open_array(A), (0, 0)))[0] == 1
        for change in (
            lambda: service.writer.write(A, (0, 0), np.asarray(3, "<i4")),
            lambda: service.appender.append(A, np.ones((1, 87), "<i4")),
            lambda: service.resizer.resize(A, (50, 87)),
            lambda: service.resizer.resize(A, (60, 90)),  # what lies beyond the edge would be set to the fill value
        ):
            with pytest.raises(TooLarge, match="shard"):
                change()
        assert read_all(service).shape == (60, 87)


def test_the_memory_of_a_write_is_that_of_its_shards(tmp_path: Path) -> None:
    """As they were and as they become; of shards that are no larger than a slab nothing is counted."""
    make(tmp_path, [sharding((10, 10), LITTLE)], (8000, 4000), (4000, 4000))
    with service_on(tmp_path) as service:
        array = service.catalog.open_array(A)
        assert service.writer.memory(array, 1) == 2 * (4 * 4000 * 4000 + 16 * 400 * 400 + 4)  # with the index
        assert service.writer.memory(array, 2) == 2 * service.writer.memory(array, 1)
    with service_on(tmp_path, slab_bytes=64 << 20) as service:
        assert service.writer.memory(service.catalog.open_array(A), 2) == 0


def test_what_others_left_beyond_the_edge_does_not_come_with_growth(tmp_path: Path) -> None:
    """In the chunk that the edge cuts, and in chunks beyond it."""
    make(tmp_path, CODECS["plain"], (6, 9))
    with service_on(tmp_path) as service:
        service.writer.write(A, (), np.asarray(1, "<i4"))
        document = json.loads((tmp_path / "a" / "zarr.json").read_text())
        (tmp_path / "a" / "zarr.json").write_text(json.dumps({**document, "shape": [3, 2]}))
        service.resizer.resize(A, (6, 9))

        expected = np.full((6, 9), 7, "<i4")
        expected[:3, :2] = 1
        np.testing.assert_array_equal(read_all(service), expected)


@pytest.mark.parametrize("inner", [LITTLE, [sharding((), LITTLE, "start")]], ids=["plain", "nested"])
def test_a_shard_without_axes_is_written(tmp_path: Path, inner: Codecs) -> None:
    """zarr-python #3966."""
    make(tmp_path, [sharding((), inner)], (), ())
    with service_on(tmp_path) as service:
        service.writer.write(A, (), np.asarray(5, "<i4"))
        assert read_all(service) == 5
    assert ts.open({"driver": "zarr3", "kvstore": f"file://{tmp_path}/a/"}).result().read().result() == 5


class RewrittenStore(CountingStore):
    """Another program stores ``then`` at ``key`` just before that is read next."""

    key, then = "", b""

    def before(self, operation: str, keys: Sequence[str]) -> None:
        if operation == "get" and keys[0] == self.key:
            self.key = ""
            self.inner.put(keys[0], self.then)


def rewritten(folder: Path, codecs: Codecs) -> tuple[RewrittenStore, Service, NDArray]:
    """A shard of which the first chunk is cached, and its negative, of another size, to be put in its place."""
    make(folder, codecs, (6, 9))
    values, shard = np.arange(54, dtype="<i4").reshape(6, 9), folder / "a" / "c" / "0" / "0"
    then = np.where(values % 9 < 6, -values, 7)
    with service_on(folder) as service:
        service.writer.write(A, (), then)
        store = RewrittenStore(local_store(folder))
        store.then = shard.read_bytes()
        service.writer.write(A, (), values)
    service = build([MountedStore("data", store)])
    first = plan_items(service.reader, service.catalog.open_array(A), (slice(0, 2), slice(0, 3)))
    assert service.reader.read(first)[0][1, 2] == 11
    return store, service, then


def test_a_shard_that_is_rewritten_before_it_is_read_is_of_one_version_beside_its_cached_chunks(tmp_path: Path) -> None:
    store, service, then = rewritten(tmp_path, CODECS["codecs behind"])
    store.key = "a/c/0/0"

    np.testing.assert_array_equal(read_all(service), then)
    assert not store.key


@pytest.mark.parametrize("forgotten", [True, False], ids=["index is read", "index is cached"])
def test_cached_chunks_never_meet_the_index_of_another_version(tmp_path: Path, forgotten: bool) -> None:
    store, service, then = rewritten(tmp_path, CODECS["plain"])
    array, key = service.catalog.open_array(A), "a/c/0/0"
    plan = service.reader.look_up(plan_items(service.reader, array))
    if forgotten:
        service.reader.cache.drop(array.cache_key(key))
        store.key = key
    else:
        store.inner.put(key, store.then)

    found, plan = service.reader.read(plan)

    np.testing.assert_array_equal(found, then)
    assert plan.versions == {(0, 0): store.versions("", [key])[0]}


def test_chunks_that_are_all_cached_are_not_read_once_the_shard_is_another(tmp_path: Path) -> None:
    store, service, then = rewritten(tmp_path, CODECS["plain"])
    first = plan_items(service.reader, service.catalog.open_array(A), (slice(0, 2), slice(0, 3)))
    store.inner.put("a/c/0/0", store.then)

    np.testing.assert_array_equal(service.reader.read(first)[0], then[:2, :3])


def test_a_chunk_is_located_by_the_index_of_the_version_that_it_is_read_in(tmp_path: Path) -> None:
    store, service, then = rewritten(tmp_path, CODECS["plain"])
    array = service.catalog.open_array(A)
    store.inner.put("a/c/0/0", store.then)

    piece = piece_of_shard(service.reader, array, (1, 0), (0, 24))

    assert piece is not None
    np.testing.assert_array_equal(np.frombuffer(piece.prefetched(0, piece.size), "<i4"), then[2:4, :3].ravel())


class BusyStore(CountingStore):
    """Before each read of a shard, another replica has written to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(local_store(folder), cheap_stat=False)
        self.writer = build([MountedStore("data", local_store(folder), writable=True)])
        self.writes = 0

    def before(self, operation: str, keys: Sequence[str]) -> None:
        if operation == "get" and "/c/" in keys[0]:
            self.writes += 1
            self.writer.writer.write(A, (), np.array(self.writes, "<i4"))


@pytest.mark.parametrize("codecs", ["plain", "index at the start", "nested"])
def test_a_shard_that_is_written_before_every_read_is_read_whole(tmp_path: Path, codecs: str) -> None:
    """A slice and a stored chunk are of one version, and the newest; one too large for that is said to be busy."""
    make(tmp_path, CODECS[codecs], [6, 9])
    store = BusyStore(tmp_path)
    store.writer.writer.write(A, (), np.array(100, "<i4"))
    service = build([MountedStore("data", store)])
    array = service.catalog.open_array(A)

    values = service.reader.read(plan_items(service.reader, array, [slice(0, 3), slice(0, 4)]))[0]
    first = store.writes
    piece = piece_of_shard(service.reader, array, (1, 1), (0, 1 << 20))

    assert np.unique(values).tolist() == [first]
    assert piece is not None
    stored = np.asarray(array.metadata.codec.decode(piece.prefetched(0, piece.size), ""))
    assert np.unique(stored).tolist() == [store.writes]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hyperslab.arrays.shards._WHOLE_BYTES", 0)
        with pytest.raises(ChangedWhileRead):
            service.reader.read(plan_items(service.reader, array, [slice(0, 3), slice(0, 4)]))
    service.close()
    store.writer.close()
