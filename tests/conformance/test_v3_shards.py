"""Reading of shards: how much is asked of the store, what others got wrong, and what is forged."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import Service, build
from hyperslab.engine.dtypes import parse_dtype
from hyperslab.engine.filters import cast
from hyperslab.engine.sharding import ShardLevel
from hyperslab.engine.v3 import parse_document
from hyperslab.errors import BadMetadata, BrokenData, ChunkCorrupt, NotRepresentable, TooLarge
from hyperslab.storage import StoreConfig, open_store
from tests.arrays.support import plan_items
from tests.documents import LITTLE, array_of, sharding, with_entries, zarr_json
from tests.faults import FaultProxy
from tests.s3 import S3Server

pytestmark = pytest.mark.filterwarnings("ignore:(The (data type|codec)|Combining a|Consolidated metadata)")

SHAPE = (128, 96)
VALUES = np.arange(128 * 96, dtype="<u2").reshape(SHAPE)


def write(folder: Path, codecs: list[Any] | None = None, **options: Any) -> Path:
    """An array ``a`` in shards of 64 × 96 with chunks of 16 × 32; the file of the first shard."""
    codec = ShardingCodec(chunk_shape=(16, 32), codecs=codecs or [BytesCodec(), GzipCodec(level=1)], **options)
    place: dict[str, Any] = {"store": str(folder / "a"), "zarr_format": 3, "overwrite": True}
    array: Any = zarr.create(shape=SHAPE, dtype="u2", chunks=(64, 96), codecs=[codec], fill_value=9, **place)
    array[...] = VALUES
    return folder / "a" / "c" / "0" / "0"


def level_of(folder: Path) -> ShardLevel:
    return array_of((folder / "a" / "zarr.json").read_bytes()).levels[0]


def service_of(config: StoreConfig, **options: Any) -> Service:
    return build([MountedStore("data", open_store(config))], **options)


def read(service: Service, key: Any) -> Any:
    return service.reader.read(plan_items(service.reader, service.catalog.open_array("data/a"), key))[0]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Iterator[tuple[Service, Callable[[], int]]]:
    """A service on a folder, or a bucket, and how often what is stored under a chunk's key was asked for since."""
    write(tmp_path)
    if request.param == "folder":
        service, count = service_of(StoreConfig(name="data", url=str(tmp_path))), 0
        store = service.catalog.mounts["data"].store
        for name in ("get", "get_part", "get_end", "get_ranges", "stat", "versions"):

            def counted(original: Any, *args: Any, **options: Any) -> Any:
                nonlocal count
                count += any("c/" in arg for arg in args if isinstance(arg, str))
                return original(*args, **options)

            monkeypatch.setattr(store, name, partial(counted, getattr(store, name)))

        def since() -> int:
            nonlocal count
            found, count = count, 0
            return found

        yield service, since
        service.close()
        return
    server: S3Server = request.getfixturevalue("s3_server")
    bucket = server.new_bucket()
    with FaultProxy(server.url) as proxy:
        service = service_of(bucket.at(proxy.url).config(name="data"))
        store = service.catalog.mounts["data"].store
        writable = open_store(bucket.config(writable=True))
        for path in sorted((tmp_path / "a").rglob("*")):
            if path.is_file():
                writable.put(path.relative_to(tmp_path).as_posix(), path.read_bytes())

        def requests() -> int:
            found = sum("/c/" in seen.path for seen in proxy.seen)
            proxy.seen.clear()
            return found

        yield service, requests
        service.close()


@pytest.mark.parametrize("asked", ["folder", "bucket"], indirect=True)
def test_a_slice_in_a_shard_takes_two_requests_and_one_once_the_index_is_known(
    asked: tuple[Service, Callable[[], int]],
) -> None:
    service, since = asked
    array = service.catalog.open_array("data/a")
    since()

    for key, most in ((np.s_[5:40, 10:40], 2), (np.s_[20:60, 70:96], 1), (np.s_[5:40, 10:40], 1)):
        found = service.reader.read(plan_items(service.reader, array, key))[0]
        np.testing.assert_array_equal(found, VALUES[key])
        assert since() <= most, key


CODECS: dict[str, list[Any]] = {
    "none": [],
    "gzip": [GzipCodec(level=1)],
    "blosc in blocks": [zarr.codecs.BloscCodec(cname="lz4", typesize=2, shuffle="shuffle", blocksize=1 << 14)],
}
READ_IN_PARTS = [(name, chunk) for name in CODECS for chunk in ((8, 8), (512, 640))]


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Arrays of shards of 4 × 4 chunks, some of which are not stored; larger chunks can be entered midway."""
    folder = tmp_path_factory.mktemp("layouts")
    for number, (name, chunk) in enumerate(READ_IN_PARTS):
        codec = ShardingCodec(chunk_shape=chunk, codecs=[BytesCodec(), *CODECS[name]])
        shard = tuple(4 * size for size in chunk)
        shape = (2 * shard[0] - chunk[0] // 2, shard[1] + 3)
        values = np.random.default_rng(number).integers(0, 900, shape, np.uint16)
        values[: 2 * chunk[0], chunk[1] : 2 * chunk[1]] = 0
        values[:, shard[1] // 2 :] //= 100
        place: dict[str, Any] = {"store": str(folder / str(number)), "zarr_format": 3}
        array: Any = zarr.create(shape=shape, dtype="u2", chunks=shard, codecs=[codec], **place)
        array[...] = values
    return folder


@given(draw=st.data())
def test_no_more_bytes_are_read_of_a_folder_than_tensorstore_reads(layouts: Path, draw: DataObject) -> None:
    name, cache_bytes = (
        str(draw.draw(st.sampled_from(range(len(READ_IN_PARTS))))),
        draw.draw(st.sampled_from([0, 1 << 28])),
    )
    service = service_of(StoreConfig(name="data", url=str(layouts)), cache_bytes=cache_bytes)
    store, ours = service.catalog.mounts["data"].store, 0

    def counted(read: Any, key: str, *args: Any, **options: Any) -> Any:
        nonlocal ours
        found = read(key, *args, **options)
        if "/c/" in key:
            ours += sum(map(len, found)) if isinstance(found, list) else len(found.data)
        return found

    for method in ("get", "get_part", "get_end", "get_ranges"):
        setattr(store, method, partial(counted, getattr(store, method)))
    array = service.catalog.open_array(f"data/{name}")
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(layouts / name)}}
    other = ts.open(spec, read=True).result()
    key: list[Any] = []
    for size in array.metadata.shape:
        start, stop = sorted(draw.draw(st.tuples(st.integers(0, size - 1), st.integers(1, size))))
        part = slice(start, max(stop, start + 1), draw.draw(st.sampled_from([1, 1, 3, 40, 700])))
        key.append(draw.draw(st.sampled_from([slice(None), start, part])))

    found = service.reader.read(plan_items(service.reader, array, tuple(key)))[0]

    before = read_by_tensorstore()
    np.testing.assert_array_equal(found, other[tuple(key)].read().result())
    assert ours <= read_by_tensorstore() - before
    service.close()


def read_by_tensorstore() -> int:
    """Bytes that it has read of files."""
    (metric,) = ts.experimental_collect_matching_metrics("/tensorstore/kvstore/file/bytes_read")
    return sum(each["value"] for each in metric["values"])


class _NoIndex(SimpleHTTPRequestHandler):
    """A server of files that lists no folders."""

    def list_directory(self, path: Any) -> None:  # noqa: ARG002
        self.send_error(404)

    def log_message(self, *_: Any) -> None:
        pass


def test_groups_of_a_store_that_cannot_list_are_listed_by_consolidated_metadata(tmp_path: Path) -> None:
    write(tmp_path)
    root = zarr.open_group(str(tmp_path), mode="a", zarr_format=3)
    root.create_group("g").create_group("deep")
    zarr.consolidate_metadata(str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_NoIndex, directory=str(tmp_path)))
    Thread(target=server.serve_forever, daemon=True).start()
    service = service_of(StoreConfig(name="data", url=f"http://127.0.0.1:{server.server_port}/"))

    found = {path: service.catalog.children(service.catalog.open_group(path), limit=9) for path in ("data", "data/g")}

    assert [(child.name, child.kind) for child in found["data"].nodes] == [("a", "array"), ("g", "group")]
    assert [(child.name, child.kind) for child in found["data/g"].nodes] == [("deep", "group")]
    (tmp_path / "g" / "deep" / "zarr.json").unlink()
    assert service.catalog.open_node("data/g/deep").kind == "group"
    np.testing.assert_array_equal(read(service, np.s_[5:20, 3:9]), VALUES[5:20, 3:9])
    service.close()
    server.shutdown()
    server.server_close()


ENTRIES = {
    "beyond the end": {1: (10**6, 4)},
    "around": {1: (2**63, 2**63)},
    "just below none": {1: (2**64 - 2, 1)},
    "half of none": {1: (2**64 - 1, 4)},
    "as long as the shard": {1: (0, 2**40)},
    "empty": {1: (0, 0)},
    "the index itself": {1: (-16, 16)},
}


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
@pytest.mark.parametrize("name", ENTRIES)
def test_a_forged_entry_is_corrupt_and_harms_no_other_chunk(tmp_path: Path, name: str, cache_bytes: int) -> None:
    path = write(tmp_path)
    path.write_bytes(with_entries(level_of(tmp_path), path.read_bytes(), ENTRIES[name]))
    service = service_of(StoreConfig(name="data", url=str(tmp_path)), cache_bytes=cache_bytes)

    for key in (np.s_[0:16, 32:64], np.s_[0:64, 0:96], np.s_[3, 40]):
        with pytest.raises(ChunkCorrupt):
            read(service, key)
    np.testing.assert_array_equal(read(service, np.s_[16:64, :]), VALUES[16:64])
    service.close()


@pytest.mark.parametrize("codec", ["blosc", "zstd", "gzip"])
def test_a_cut_or_changed_chunk_is_corrupt_and_nothing_is_read_behind_it(tmp_path: Path, codec: str) -> None:
    """numcodecs believes the sizes that a frame states."""
    codecs: dict[str, Any] = {"blosc": zarr.codecs.BloscCodec(), "zstd": zarr.codecs.ZstdCodec(), "gzip": GzipCodec()}
    path = write(tmp_path, [BytesCodec(), codecs[codec]])
    level, stored = level_of(tmp_path), path.read_bytes()
    start, nbytes = (int(n) for n in level.split(stored, "c/0/0")[0])
    frame = bytearray(stored[start : start + nbytes])
    service = service_of(StoreConfig(name="data", url=str(tmp_path)), cache_bytes=0)

    def is_corrupt() -> None:
        for key in (np.s_[0:16, 0:32], np.s_[0:16, :]):  # alone, and beside others
            with pytest.raises(ChunkCorrupt):
                read(service, key)
        np.testing.assert_array_equal(read(service, np.s_[16:64, :]), VALUES[16:64])

    np.testing.assert_array_equal(read(service, np.s_[3:64, 5:]), VALUES[3:64, 5:])
    for cut in (0, 1, 15, 16, 17, nbytes // 2, nbytes - 1):
        path.write_bytes(with_entries(level, stored, {0: (start, cut)}))
        is_corrupt()
    if codec == "blosc":
        fields = ((4, 2**31 - 1), (8, 2**31 - 1), (12, 2**31 - 1), (12, 16), (4, 0), (8, 1), (16, 0), (20, 2**31 - 1))
        for at, value in (*fields, (20, nbytes), (16, nbytes + 20)):  # the last two lead into the next chunk
            forged = frame[:at] + value.to_bytes(4, "little") + frame[at + 4 :]
            path.write_bytes(stored[:start] + forged + stored[start + nbytes :])
            is_corrupt()
    service.close()


def test_shards_too_deep_or_with_too_many_chunks_are_refused_before_anything_is_allocated() -> None:
    codecs: list[dict[str, Any]] = [LITTLE]
    for _ in range(50):
        codecs = [sharding([1], codecs, index=[LITTLE])]
    for size, chain in ((1, codecs), (10**9, codecs[0]["configuration"]["codecs"])):
        document = zarr_json([size], [size], "uint8", codecs=chain)
        with pytest.raises(BrokenData):
            parse_document(json.dumps(document).encode(), "zarr.json")


def test_an_index_larger_than_memory_allows_is_not_read(tmp_path: Path) -> None:
    place: dict[str, Any] = {"store": str(tmp_path / "a"), "zarr_format": 3}
    codec = ShardingCodec(chunk_shape=(1,), codecs=[BytesCodec()])
    array: Any = zarr.create(shape=(64,), dtype="u1", chunks=(64,), codecs=[codec], **place)
    array[...] = range(64)

    for allowed in (1000, 2000):
        service = service_of(StoreConfig(name="data", url=str(tmp_path)), max_chunk_bytes=allowed)
        if allowed < 64 * 16:
            with pytest.raises(TooLarge, match="index"):
                read(service, np.s_[3:5,])
        else:
            assert read(service, np.s_[3:5,]).tolist() == [3, 4]
        service.close()
    service = service_of(StoreConfig(name="data", url=str(tmp_path)), slab_bytes=1000)
    plan = plan_items(service.reader, service.catalog.open_array("data/a"), np.s_[3:5,])
    assert 2 * 64 * 16 < service.reader.working_memory(plan) < 6 * 64 * 16, "an index is counted before it is read"
    service.close()


@pytest.mark.parametrize("after", [[], [GzipCodec(level=1)]], ids=["", "a codec behind the shard"])
@pytest.mark.parametrize("key", [np.s_[:, :], np.s_[3:400, 5:], np.s_[:40, 7:9]])
def test_what_threads_hold_of_shards_is_counted(tmp_path: Path, after: list[Any], key: Any) -> None:
    codec = ShardingCodec(chunk_shape=(32, 64), codecs=[BytesCodec()])
    place: dict[str, Any] = {"store": str(tmp_path / "a"), "zarr_format": 3}
    array: Any = zarr.create(shape=(512, 2500), dtype="u2", chunks=(512, 1024), codecs=[codec, *after], **place)
    array[...] = np.random.default_rng(0).integers(0, 9999, array.shape)
    service = service_of(StoreConfig(name="data", url=str(tmp_path)), slab_bytes=64 << 10, cache_bytes=0)
    plan = plan_items(service.reader, service.catalog.open_array("data/a"), key)
    out = np.empty(plan.shape, plan.dtype)

    tracemalloc.start()
    service.reader.read(plan, out=out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    np.testing.assert_array_equal(out, array[key])
    assert peak <= service.reader.working_memory(plan) + (256 << 10)
    service.close()


def test_what_others_have_read_wrong(tmp_path: Path) -> None:
    """Reordered and repeated selections of a shard, codecs around it, axes in another order on both sides of it, a
    shard without axes, and one whose last chunks were never written: zarr-python #4203, #4202, #3966, #3413."""
    service = service_of(StoreConfig(name="data", url=str(tmp_path)))
    write(tmp_path)
    rows, columns = [127, 3, 3, 64, 0], [95, 0, 33, 33]
    np.testing.assert_array_equal(read(service, (rows, columns)), VALUES[np.ix_(rows, columns)])

    for outer in (TransposeCodec(order=(1, 0)), None):
        inner: list[Any] = [TransposeCodec(order=(1, 0)), BytesCodec(endian="big"), Crc32cCodec()]
        shape = (32, 16) if outer else (16, 32)
        chain: list[Any] = [ShardingCodec(chunk_shape=shape, codecs=inner), *([] if outer else [GzipCodec()])]
        place: dict[str, Any] = {"store": str(tmp_path / "a"), "zarr_format": 3, "overwrite": True}
        codecs = [outer, *chain] if outer else chain
        array: Any = zarr.create(shape=SHAPE, dtype="u2", chunks=(64, 96), codecs=codecs, **place)
        array[...] = VALUES
        np.testing.assert_array_equal(read(service, np.s_[::-1, 5:70]), VALUES[::-1, 5:70])

    path = write(tmp_path)
    none = 2**64 - 1
    path.write_bytes(with_entries(level_of(tmp_path), path.read_bytes(), dict.fromkeys(range(6, 12), (none, none))))
    expected = VALUES[:64].copy()
    expected[32:] = 9
    np.testing.assert_array_equal(read(service, np.s_[:64, :]), expected)

    document = json.loads((tmp_path / "a" / "zarr.json").read_text())
    document |= {"shape": [], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": []}}}
    document["codecs"][0]["configuration"]["chunk_shape"] = []
    (tmp_path / "a" / "zarr.json").write_text(json.dumps(document))
    assert read(service, ()) == 9
    service.close()


@pytest.mark.parametrize(
    ("values", "before", "after", "rounding", "limits", "expected"),
    [
        ([-2.5, -0.5, 0.5, 1.5, 1.2], "<f8", "|i1", "nearest-even", None, [-2, 0, 0, 2, 1]),
        ([-2.5, -0.5, 0.5, 1.5, 1.2], "<f8", "|i1", "nearest-away", None, [-3, -1, 1, 2, 1]),
        ([-2.5, -0.5, 0.5, 1.5, 1.2], "<f8", "|i1", "towards-zero", None, [-2, 0, 0, 1, 1]),
        ([-2.5, -0.5, 0.5, 1.5, 1.2], "<f8", "|i1", "towards-positive", None, [-2, 0, 1, 2, 2]),
        ([-2.5, -0.5, 0.5, 1.5, 1.2], "<f8", "|i1", "towards-negative", None, [-3, -1, 0, 1, 1]),
        ([np.nextafter(0.5, 0)], "<f8", "|i1", "nearest-away", None, [0]),
        ([300, -300, 1e300, -0.0], "<f8", "|u1", "nearest-even", "clamp", [255, 0, 255, 0]),
        ([300, -1, 256, 7], "<i2", "|u1", "nearest-even", "wrap", [44, 255, 0, 7]),
        ([2**64 - 1, 2**63], "<u8", "<i8", "nearest-even", "wrap", [-1, -(2**63)]),
        ([2.0**63, -1e30], "<f8", "<i8", "nearest-even", "clamp", [2**63 - 1, -(2**63)]),
        ([7, 8, -9], "<i2", "int4", "nearest-even", "wrap", [7, -8, 7]),
        ([1e300, -1e300, np.inf], "<f8", "<f4", "nearest-even", "clamp", [np.inf, -np.inf, np.inf]),
        ([65535, 65536], "<i4", "<f2", "towards-zero", "clamp", [65504, np.inf]),
        ([65519, -65519], "<i4", "<f2", "towards-positive", "clamp", [np.inf, -65504]),
        ([65519, 65520], "<i4", "<f2", "nearest-even", "clamp", [65504, np.inf]),
        ([464, 465, -1000], "<f8", "float8_e4m3fn", "nearest-even", "clamp", [448, 448, -448]),
        ([1 + 2**-8 + 2**-30], "<f8", "bfloat16", "nearest-even", None, [1 + 2**-7]),
        ([-1e-300, 0.3], "<f8", "float4_e2m1fn", "towards-zero", None, [-0.0, 0]),
        ([0.1, -0.1], "<f8", "<f4", "towards-negative", None, [0.09999999403953552, -0.10000000149011612]),
        ([2049, 2051], "<i4", "<f2", "nearest-away", None, [2050, 2052]),
        ([300], "<i2", "|u1", "nearest-even", "error", None),
        ([np.nan], "<f8", "|u1", "nearest-even", "clamp", None),
        ([np.inf], "<f8", "|u1", "nearest-even", "clamp", None),
        ([65519], "<i4", "<f2", "towards-positive", None, None),
        ([7], "<f8", "float4_e2m1fn", "nearest-even", None, None),
        ([np.inf], "<f8", "float8_e4m3fn", "nearest-even", "clamp", None),
        ([0], "<f8", "float8_e8m0fnu", "nearest-even", "clamp", None),
        ([np.inf], "<f8", "|u1", "nearest-even", "wrap", None),
        ([1e300], "<f8", "<f4", "nearest-even", None, None),
    ],
)
def test_values_are_cast_as_the_extension_says(
    values: list[float], before: str, after: str, rounding: str, limits: str | None, expected: list[float] | None
) -> None:
    items, target = np.array(values, before), parse_dtype(after, v3=True).numpy

    if expected is None:
        with pytest.raises(ValueError, match=r"range|value"):
            cast(items, target, [], rounding, limits)
    else:
        found = cast(items, target, [], rounding, limits)
        assert found.astype("i8" if target.kind in "iu" or target.name == "int4" else "f8").tolist() == expected


def test_the_first_of_two_values_for_a_number_counts_and_nan_is_found_in_every_type() -> None:
    target = parse_dtype("bfloat16", v3=True).numpy
    mapped = [(np.array(value).astype(target), np.array(to, "u1")) for value, to in ((np.nan, 3), (1, 5), (1, 6))]

    assert cast(np.array([np.nan, 1, 2]).astype(target), np.dtype("u1"), mapped, "nearest-even", None).tolist() == [
        3,
        5,
        2,
    ]


SCALED: list[dict[str, Any]] = [{"name": "scale_offset", "configuration": {"offset": 100, "scale": 2}}]
CAST: list[dict[str, Any]] = [{"name": "cast_value", "configuration": {"data_type": "uint8"}}]


def numbers(data_type: str, codecs: list[dict[str, Any]], fill: Any, endian: str = "little") -> bytes:
    codecs = [*codecs, {"name": "bytes", "configuration": {"endian": endian}}]
    return json.dumps(zarr_json([3], [3], data_type, fill_value=fill, codecs=codecs)).encode()


@pytest.mark.parametrize(
    ("data_type", "values", "stored"),
    [
        ("int16", [100, 101, 0], np.array([0, 2, -200], ">i2")),
        ("uint8", [100, 227, 101], np.array([0, 254, 2], "u1")),
        ("float32", [100, 101, 99.5], np.array([0, 2, -1], ">f4")),
        ("float32", [np.inf, 3e38, 100], np.array([np.inf, np.inf, 0], ">f4")),
        ("int64", [-(2**62) + 100, 2**62 + 99, 100], np.array([-(2**63), 2**63 - 2, 0], ">i8")),
    ],
)
def test_numbers_are_scaled_in_their_own_arithmetic(data_type: str, values: list[Any], stored: NDArray[Any]) -> None:
    """Those that the data type does not hold, and those that leave a remainder, are errors: none is another number."""
    array = array_of(numbers(data_type, SCALED, 100, "big"))
    given = np.array(values, array.dtype.numpy)

    assert array.codec.encode(given) == stored.tobytes()
    given[np.isinf(stored)] = 0  # too large once it is doubled
    assert np.nan_to_num(array.codec.decode(stored.tobytes(), "c/0"), posinf=0).tolist() == given.tolist()
    if stored.dtype.kind != "f":
        for outside in ([100, 101, int(np.iinfo(stored.dtype).max)], [int(np.iinfo(stored.dtype).min), 101, 102]):
            with pytest.raises(NotRepresentable, match="range"):
                array.codec.encode(np.array(outside, array.dtype.numpy))
        with pytest.raises(ChunkCorrupt, match="multiple"):
            array.codec.decode(np.array([0, 1, 2], stored.dtype).tobytes(), "c/0")


def test_a_stored_number_that_means_none_of_the_data_type_is_corrupt() -> None:
    codecs = [{"name": "scale_offset", "configuration": {"offset": 200}}]
    array = array_of(numbers("uint8", codecs, 200))

    with pytest.raises(ChunkCorrupt, match="range"):
        array.codec.decode(bytes([0, 55, 56]), "c/0")


@pytest.mark.parametrize(
    ("data_type", "codecs", "fill"),
    [("float32", CAST, "NaN"), ("float32", CAST, 256), ("uint8", SCALED, 0), ("uint16", [*SCALED, *CAST], 228)],
)
def test_a_fill_value_that_the_codecs_cannot_store_is_refused(data_type: str, codecs: list[Any], fill: Any) -> None:
    with pytest.raises(BadMetadata, match="fill_value"):
        parse_document(numbers(data_type, codecs, fill), "zarr.json")


@pytest.mark.parametrize(("data_type", "scale"), [("bool", 1), ("complex64", 1), ("int16", 0), ("float32", 0)])
def test_what_cannot_be_scaled_is_refused(data_type: str, scale: int) -> None:
    codecs = [{"name": "scale_offset", "configuration": {"scale": scale}}]
    with pytest.raises(BadMetadata, match=r"scale|takes"):
        parse_document(numbers(data_type, codecs, [0, 0] if data_type == "complex64" else 0), "zarr.json")


@pytest.mark.parametrize(("padding", "stored"), [("first_byte", [0, 7, 8, 9]), ("last_byte", [7, 8, 9, 0])])
def test_whole_bytes_are_unpacked_with_and_without_the_byte_of_padding_that_zarrs_leaves_out(
    padding: str, stored: list[int]
) -> None:
    document = json.loads(numbers("uint8", [], 0))
    document["codecs"] = [{"name": "packbits", "configuration": {"padding_encoding": padding}}]
    array = array_of(document)

    assert array.codec.encode(np.array([7, 8, 9], "u1")) == bytes(stored)
    assert array.codec.decode(bytes(stored), "c/0").tolist() == [7, 8, 9]
    assert array.codec.decode(bytes([7, 8, 9]), "c/0").tolist() == [7, 8, 9]
    for wrong in ([7, 8], [*stored, 0], [1, 7, 8, 1]):
        with pytest.raises(ChunkCorrupt):
            array.codec.decode(bytes(wrong), "c/0")


def test_bits_are_chosen_of_each_part_of_a_complex_number() -> None:
    document = json.loads(numbers("complex64", [], [0, 0]))
    document["codecs"] = [{"name": "packbits", "configuration": {"first_bit": 16}}]
    array = array_of(document)
    values = np.array([1 - 2j, 0.5j, 3], "<c8")

    stored = array.codec.encode(values)

    assert stored == values.view("<u2")[1::2].tobytes()
    assert array.codec.decode(stored, "c/0").tolist() == values.tolist()
