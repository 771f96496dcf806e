"""Zarr v3: what zarr-python and TensorStore write is read as they read it, and what is wrong is refused by name."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype

from hyperslab import RemoteArray
from hyperslab.engine.sharding import ShardLevel
from hyperslab.engine.v3 import parse_document
from hyperslab.errors import BadDefinition, BrokenData
from tests.api.support import Served, serving
from tests.documents import array_of, named, sharding, with_entries, zarr_json

pytestmark = pytest.mark.filterwarnings("ignore:(The (data type|codec|.generic. unit)|Combining a|Numcodecs codecs)")

MANY = int(os.environ.get("TEST_EXAMPLES", "25"))
NUMBERS = itertools.count()
DTYPES = ["bool", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "M8[s]", "m8[10us]", "m8", "U3", "S4", "V5"]
DTYPES += ["[('a', 'i4'), ('b', 'f8')]"]
BYTES: list[list[Any]] = [
    [],
    [ZstdCodec(level=1)],
    [GzipCodec(level=1)],
    [Crc32cCodec()],
    [BloscCodec(cname="lz4"), Crc32cCodec()],
]
DOCUMENT: dict[str, Any] = zarr_json([8], [4])
SHARD: dict[str, Any] = sharding([2])
FIELD = {"name": "a", "data_type": "int16"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("v3")
    with serving(folder) as found:
        yield found, folder


def items(dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    raw = np.random.default_rng(len(shape)).integers(1, 100, (*shape, dtype.itemsize), np.uint8)
    if dtype.kind in "bU":
        return (raw[..., 0] % 3).astype(dtype) if dtype.kind == "U" else raw[..., 0] % 2 == 0
    return np.ascontiguousarray(raw).view(dtype)[..., 0]


@settings(deadline=None, max_examples=MANY)
@given(draw=st.data())
def test_what_one_makes_and_another_writes_all_read_alike(data: tuple[Served, Path], draw: DataObject) -> None:
    """zarr-python or the service, by a request or by a key, makes the array; each of them and TensorStore may write."""
    served, folder = data
    dtype = np.dtype(eval(draw.draw(st.sampled_from([d if d.startswith("[") else repr(d) for d in DTYPES]))))
    rank = draw.draw(st.integers(1, 3))
    sizes = [tuple(draw.draw(st.integers(1, 3)) for _ in range(rank))]  # of a chunk, and of what holds it
    shape = tuple(draw.draw(st.integers(1, 9)) for _ in range(rank))
    order = draw.draw(st.permutations(range(rank)))
    # Of times without a unit numpy turns one byte order into the other without swapping, and so does zarr-python.
    orders: list[Any] = ["little"] if dtype == np.dtype("m8") else ["little", "big"]
    endian = BytesCodec(endian=draw.draw(st.sampled_from(orders)))
    chain: list[Any] = [TransposeCodec(order=order), endian, *draw.draw(st.sampled_from(BYTES))]
    in_tensorstore = dtype.kind in "biufc"  # and no codec behind a shard
    for _ in range(draw.draw(st.integers(0, 2)) if dtype.kind != "V" else 0):  # zarr-python has no records in shards
        location: Any = draw.draw(st.sampled_from(["start", "end"]))
        index: list[Any] = [BytesCodec(), *draw.draw(st.sampled_from([[], [Crc32cCodec()]]))]
        chain = [ShardingCodec(chunk_shape=sizes[-1], codecs=chain, index_codecs=index, index_location=location)]
        after = draw.draw(st.sampled_from([[], [], [Crc32cCodec()]]))
        chain, in_tensorstore = [*chain, *after], in_tensorstore and not after
        sizes.append(tuple(size * draw.draw(st.integers(1, 3)) for size in sizes[-1]))
    values, name = items(dtype, shape), f"a{next(NUMBERS)}"
    made: Any = zarr.create(shape=shape, dtype=dtype, chunks=sizes[-1], codecs=chain, store={}, zarr_format=3)
    document = json.loads(made.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes())
    match draw.draw(st.sampled_from(["zarr-python", "request", "key"])):
        case "zarr-python":
            place: dict[str, Any] = {"store": str(folder / name), "zarr_format": 3}
            zarr.create(shape=shape, dtype=dtype, chunks=sizes[-1], codecs=chain, **place)
        case "request":
            members = ("zarr_format", "shape", "data_type", "codecs", "chunk_grid", "fill_value")
            asked = {member: document[member] for member in members}
            answer = served.http.put(f"/v1/metadata/data/{name}", json=asked)
            assert answer.status_code == 201, answer.text
        case "key":
            answer = served.http.put(f"/zarr/data/{name}/zarr.json", content=json.dumps(document))
            assert answer.is_success, answer.text
    url = f"{served.http.base_url}/v1/metadata/data/{name}"
    readers: dict[str, Any] = {
        "zarr-python": zarr.open_array(str(folder / name), mode="r+"),
        "service": RemoteArray(url, headers={"cache-control": "no-cache"}),
        "zarr-python through the service": zarr.open_array(f"{served.http.base_url}/zarr/data/{name}", mode="r"),
    }
    if in_tensorstore:
        readers["tensorstore"] = TensorStore(folder / name)
    for writer in draw.draw(st.lists(st.sampled_from([w for w in readers if "through" not in w]), max_size=2)):
        filled = tuple(slice(*sorted(draw.draw(st.tuples(*[st.integers(0, size)] * 2)))) for size in shape)
        expected = np.array(readers["zarr-python"][...])
        expected[filled] = values[filled]
        readers[writer][filled] = values[filled]
        for reader_name, reader in readers.items():
            np.testing.assert_array_equal(np.asarray(reader[...]), expected, err_msg=f"{reader_name}: {document}")
    steps: list[Any] = [slice(None, None, step) for step in (1, 2, -1, -2, 5, -5)]
    step = tuple(draw.draw(st.sampled_from([*steps, size // 2, slice(size // 3, size)])) for size in shape)
    picked = draw.draw(st.lists(st.integers(0, shape[0] - 1), min_size=1, max_size=4))
    expected = np.array(readers["zarr-python"][...])

    np.testing.assert_array_equal(readers["service"][step], expected[step])
    np.testing.assert_array_equal(readers["service"].oindex[picked], expected[picked])


@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
@pytest.mark.parametrize("endian", ["little", "big"])
def test_times_without_a_unit_are_counts_in_either_byte_order(
    data: tuple[Served, Path], kind: str, endian: str
) -> None:
    served, folder = data
    node, order = folder / f"times-{kind}-{endian}", "<i8" if endian == "little" else ">i8"
    data_type = {"name": f"numpy.{kind}", "configuration": {"unit": "generic", "scale_factor": 1}}
    codecs = [{"name": "bytes", "configuration": {"endian": endian}}]
    document = {**DOCUMENT, "data_type": data_type, "fill_value": 5, "codecs": codecs}
    (node / "c").mkdir(parents=True)
    (node / "zarr.json").write_text(json.dumps(document))
    (node / "c" / "1").write_bytes(np.array([1, -2, 3, 4], order).tobytes())
    array = RemoteArray(f"{served.http.base_url}/v1/slice/data/{node.name}")

    assert array[...].astype("i8").tolist() == [5, 5, 5, 5, 1, -2, 3, 4]
    assert (array.fill_value.astype("i8"), array[5].astype("i8")) == (5, -2)
    assert "fill value</th><td style='text-align:left'>5" in array._repr_html_()  # numpy has no text of it
    array[4:6] = array[6:8]
    assert served.http.put(f"/v1/slice/data/{node.name}?select=6", json=9).status_code == 204
    assert np.frombuffer((node / "c" / "1").read_bytes(), order).tolist() == [3, 4, 9, 4]


@pytest.mark.parametrize("name", ["struct", "structured"])
@pytest.mark.parametrize("endian", ["little", "big"])
def test_fields_lie_in_the_byte_order_that_the_codec_says(data: tuple[Served, Path], endian: str, name: str) -> None:
    """zarr-python #4141."""
    served, folder = data
    node, dtype = folder / f"{name}-{endian}", np.dtype([("a", "i4"), ("b", "f8")])
    stored = dtype.newbyteorder("<" if endian == "little" else ">")
    fields: list[Any] = [["a", "int32"], ["b", "float64"]]
    if name == "struct":
        fields = [{"name": field, "data_type": kind} for field, kind in fields]
    data_type = {"name": name, "configuration": {"fields": fields}}
    codecs = [{"name": "bytes", "configuration": {"endian": endian}}]
    (node / "c").mkdir(parents=True)
    (node / "zarr.json").write_text(
        json.dumps({**DOCUMENT, "data_type": data_type, "fill_value": "A" * 16, "codecs": codecs})
    )
    values = np.array([(1, 2.5), (-3, 1e10), (5, 0), (7, 8)], dtype)
    (node / "c" / "1").write_bytes(values.astype(stored).tobytes())
    array = RemoteArray(f"{served.http.base_url}/v1/metadata/data/{node.name}")

    assert array[4:].tolist() == values.tolist()
    array[5] = values[5 - 4] = (9, -1)
    assert np.frombuffer((node / "c" / "1").read_bytes(), stored).tolist() == values.tolist()


@pytest.mark.parametrize("transposed", [False, True])
def test_texts_in_fortran_order_go_where_they_belong(data: tuple[Served, Path], transposed: bool) -> None:
    """zarr-python #4116."""
    served, folder = data
    order = [{"name": "transpose", "configuration": {"order": [1, 0]}}] if transposed else []
    asked = {"zarr_format": 3, "shape": [2, 3], "data_type": "string", "chunks": [2, 3]}
    name = f"texts-{transposed}"
    made = served.http.put(f"/v1/metadata/data/{name}", json={**asked, "codecs": [*order, {"name": "vlen-utf8"}]})
    assert made.status_code == 201, made.text
    values = np.array([["a", "bb", "ccc"], ["dddd", "e", ""]], object)
    array = RemoteArray(f"{served.http.base_url}/v1/metadata/data/{name}")

    array[...] = np.asfortranarray(values)

    assert array[...].tolist() == values.tolist()
    assert zarr.open_array(str(folder / name), mode="r")[...].tolist() == values.tolist()  # type: ignore[union-attr]


class TensorStore:
    """An array of TensorStore, which is asked as one of numpy is."""

    def __init__(self, folder: Path) -> None:
        kvstore = {"driver": "file", "path": str(folder)}
        self._array = ts.open({"driver": "zarr3", "kvstore": kvstore, "recheck_cached_data": True}).result()

    def __getitem__(self, key: Any) -> Any:
        return self._array[key].read().result()

    def __setitem__(self, key: Any, values: Any) -> None:
        self._array[key].write(values).result()


@pytest.mark.parametrize(("location", "order"), [("start", [2, 1, 0]), ("end", [1, 2, 0])])
def test_what_tensorstore_writes_is_read_and_changed(
    data: tuple[Served, Path], location: str, order: list[int]
) -> None:
    served, folder = data
    inner = {"name": "transpose", "configuration": {"order": [1, 0]}}
    bytes_codec = {"name": "bytes", "configuration": {"endian": "big"}}
    shard = {
        "chunk_shape": [4, 2],
        "codecs": [inner, bytes_codec, {"name": "gzip", "configuration": {"level": 1}}],
        "index_codecs": [{**inner, "configuration": {"order": order}}, bytes_codec, {"name": "crc32c"}],
        "index_location": location,
    }
    metadata = {
        "shape": [21, 13],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 6]}},
        "codecs": [{"name": "sharding_indexed", "configuration": shard}],
    }
    shutil.rmtree(folder / "ts", ignore_errors=True)
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder / "ts")}, "metadata": metadata}
    values = np.arange(273, dtype="f4").reshape(21, 13)
    ts.open(spec, create=True, delete_existing=True).result().write(values).result()

    found = served.http.get("/v1/metadata/data/ts").json()

    assert (found["chunks"], found["shards"], found["dtype"]) == ([4, 2], [8, 6], ">f4")
    array = RemoteArray(f"{served.http.base_url}/v1/metadata/data/ts")
    np.testing.assert_array_equal(np.asarray(array), values)
    np.testing.assert_array_equal(array[[20, 0, 0], ::-3], values[[20, 0, 0], ::-3])
    array[7:9] = values[7:9] = -1
    np.testing.assert_array_equal(TensorStore(folder / "ts")[:], values)


def delta(dtype: str) -> dict[str, Any]:
    return {"name": "numcodecs.delta", "configuration": {"dtype": dtype}}


def rectilinear(*lengths: Any) -> dict[str, Any]:
    return {"chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [*lengths]}}}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (rectilinear([3, 4]), "end before"),
        (rectilinear([3, 0, 5]), "length"),
        (rectilinear([[3, 2, 1], 5]), "length"),
        (rectilinear(True), "length"),
        (rectilinear([]), "length"),
        ({**rectilinear([1, [2, 2**59]]), "shape": [2**60]}, "different lengths"),
        ({**rectilinear([2, 3, 3]), "codecs": [SHARD]}, "does not divide"),
        ({"data_type": "int17"}, "int17"),
        ({"codecs": [delta("M8[s/2]"), *DOCUMENT["codecs"]]}, "dtype"),  # never reaches numpy
        ({"codecs": [delta("(1000000000,)i4"), *DOCUMENT["codecs"]]}, "dtype"),
        ({"codecs": [{"name": "zip"}, *DOCUMENT["codecs"]]}, "zip"),
        ({"codecs": [{"name": "numcodecs.pickle"}]}, "pickle"),
        ({"chunk_grid": {"name": "hexagonal"}}, "hexagonal"),
        ({"chunk_key_encoding": {"name": "hashed"}}, "hashed"),
        ({"codecs": [*DOCUMENT["codecs"], {"name": "zip", "must_understand": True}]}, "zip"),
        ({"codecs": [*DOCUMENT["codecs"], {"name": "zip", "must_understand": False}]}, "zip"),
        ({"codecs": [{**DOCUMENT["codecs"][0], "must_understand": 0}]}, "must_understand"),
        ({"data_type": {"name": "int16", "must_understand": False}}, "must_understand"),
        ({"storage_transformers": [{"name": "mirror"}]}, "mirror"),
        ({"storage_transformers": [{"name": "mirror", "must_understand": False}]}, "mirror"),
        ({"data_type": {"name": "struct", "configuration": {"fields": [{**FIELD, "unit": "m"}]}}}, "unit"),
        ({"extra": {"must_understand": True}}, "extra"),
        ({"fill_value": "nan", "data_type": "float32"}, "fill_value"),
        ({"codecs": [sharding([2], index=[])]}, "index_codecs"),
        ({"codecs": [sharding([3])]}, "chunk_shape"),
    ],
)
def test_what_is_unknown_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BrokenData, match=named):
        parse_document(json.dumps({**DOCUMENT, **change}).encode(), "a/zarr.json")


def test_what_a_filter_leaves_out_is_as_zarr_python_takes_it(data: tuple[Served, Path]) -> None:
    served, folder = data
    node = folder / "left-out"
    node.mkdir()
    scaled = {"name": "numcodecs.fixedscaleoffset", "configuration": {"offset": 1, "scale": 1}}
    codecs = [scaled, *DOCUMENT["codecs"], {"name": "numcodecs.shuffle", "configuration": {}}]
    document = {**DOCUMENT, "data_type": "int64", "codecs": codecs}
    (node / "zarr.json").write_text(json.dumps(document))
    zarr.open_array(str(node), mode="r+")[...] = np.arange(8)

    url = f"{served.http.base_url}/v1/metadata/data/left-out"
    np.testing.assert_array_equal(RemoteArray(url)[...], np.arange(8))
    assert served.http.put(
        "/v1/metadata/data/shuffled",
        json={"zarr_format": 3, "shape": [8], "dtype": "<i8", "filters": [{"id": "shuffle"}], "compressor": None},
    ).json()["codecs"][1]["configuration"] == {"elementsize": 4}  # as numcodecs means it in Zarr v2
    v2 = served.http.get("/zarr2/data/left-out/.zarray").json()
    assert v2["compressor"] == {"id": "shuffle", "elementsize": 8}


ZARRITA: list[Any] = [[], [named("gzip", level=1)], [named("transpose", order=[0])]]
"""Codecs without one that turns items into bytes, which zarrita.js writes and reads."""


@pytest.mark.parametrize("codecs", ZARRITA)
def test_what_zarrita_and_gdal_leave_out_is_told_and_the_array_is_read(
    data: tuple[Served, Path], codecs: list[Any]
) -> None:
    """Codecs without ``bytes``, and null for the fill value, which GDAL writes where there is no missing value."""
    served, folder = data
    node = folder / f"left-out-{len(codecs)}{json.dumps(codecs)[11:15]}"
    node.mkdir()
    chunk = np.arange(1, 5, dtype="<i2").tobytes()
    (node / "c").mkdir()
    (node / "c" / "1").write_bytes(gzip.compress(chunk) if codecs and codecs[0]["name"] == "gzip" else chunk)
    document = {**DOCUMENT, "codecs": codecs, "fill_value": None}
    (node / "zarr.json").write_text(json.dumps(document))

    url, name = f"{served.http.base_url}/v1/metadata/data/{node.name}", f"data/{node.name}"
    np.testing.assert_array_equal(RemoteArray(url)[...], [0, 0, 0, 0, 1, 2, 3, 4])
    lines = served.http.get(url).json()["problems"]
    assert [line.split(": ")[1] for line in lines] == ["codecs", "fill_value"]
    for route in ("zarr2", "zarr3"):
        array = zarr.open_array(f"{served.http.base_url}/{route}/{name}", mode="r")
        np.testing.assert_array_equal(array[...], [0, 0, 0, 0, 1, 2, 3, 4])
    served.http.put(f"/v1/slice/{name}?select=0", json=9).raise_for_status()
    served.http.patch(url, json={"shape": [6]}).raise_for_status()
    assert json.loads((node / "zarr.json").read_bytes()) == {**document, "shape": [6]}
    assert served.http.get(f"/v1/slice/{name}?format=json").json() == [9, 0, 0, 0, 1, 2]
    assert served.http.put(f"/zarr/{name}-new/zarr.json", json=document).status_code == 422
    assert served.http.put(f"{url}-new", json=document).status_code == 422


IGNORED: dict[str, Any] = {"must_understand": False}


def test_a_member_that_is_unknown_and_need_not_be_understood_is_ignored() -> None:
    found = parse_document(json.dumps({**DOCUMENT, "extra": IGNORED}).encode(), "a/zarr.json")

    assert found.array is not None
    assert found.array.shape == (8,)


def test_a_codec_that_is_known_is_applied_though_it_need_not_be_understood() -> None:
    codecs = [*DOCUMENT["codecs"], {"name": "gzip", "configuration": {"level": 1}, **IGNORED}]

    assert [codec["id"] for codec in array_of({**DOCUMENT, "codecs": codecs}).codecs] == ["gzip"]


def shard_in(folder: Path) -> tuple[Path, ShardLevel]:
    """An array of one shard with four chunks; its file, and how it is laid out."""
    document = zarr_json([8], [8], codecs=[SHARD])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "zarr.json").write_text(json.dumps(document))
    zarr.open_array(str(folder), mode="r+")[:] = np.arange(1, 9)
    return folder / "c" / "0", array_of(document).levels[0]


@pytest.mark.parametrize(
    ("entries", "cut"),
    [({1: (10**6, 4)}, None), ({0: (0, 3)}, None), ({}, 10), ({}, 0), ({}, 67)],
    ids=["beyond the end", "cut chunk", "cut index", "empty", "no room for the index"],
)
def test_a_forged_shard_is_corrupt_and_never_fill_values(
    data: tuple[Served, Path], entries: dict[int, tuple[int, int]], cut: int | None
) -> None:
    served, folder = data
    path, level = shard_in(folder / "forged")
    path.write_bytes(with_entries(level, path.read_bytes(), entries)[:cut])

    answers = [served.http.get(f"/v1/slice/data/forged?select={select}") for select in (":", "0:4")]

    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(502, "chunk-corrupt")}
    if entries:  # the other chunks are sound
        assert served.http.get("/v1/slice/data/forged?select=4:&format=json").json() == [5, 6, 7, 8]


def test_a_part_of_a_shard_takes_its_index_and_one_range(data: tuple[Served, Path]) -> None:
    served, folder = data
    path, level = shard_in(folder / "part")

    read = served.http.get("/v1/slice/data/part?select=2:4&format=json")

    assert read.json() == [3, 4]
    assert int(read.headers["array-chunks"].split("bytes=")[1]) == 4
    assert path.stat().st_size == 16 + level.index_nbytes


def test_all_of_a_shard_is_read_at_once_and_so_in_one_version(
    data: tuple[Served, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, folder = data
    count, unwrapped = 1 << 21, 0
    document = zarr_json([count], [count], codecs=[sharding([1 << 14]), named("gzip", level=1)])
    (folder / "large").mkdir()
    (folder / "large" / "zarr.json").write_text(json.dumps(document))
    values = np.arange(count, dtype="<i2")
    zarr.open_array(str(folder / "large"), mode="r+")[:] = values
    unwrap = ShardLevel.unwrap

    def counted(self: ShardLevel, stored: Any, key: str) -> Any:
        nonlocal unwrapped
        unwrapped += 1
        return unwrap(self, stored, key)

    monkeypatch.setattr(ShardLevel, "unwrap", counted)

    assert served.http.get("/v1/slice/data/large").content == values.tobytes()
    assert unwrapped == 1


LENGTHS: list[Any] = [
    [[10, 5, 15], [8, 9]],
    [[[1, 3], 20, [2, 10]], 5],
    [[[10, 4]], [9, 8, [3, 10**12]]],
    [[10, 5, 15], [6, [3, 2], 6]],
]


@settings(max_examples=6)
@given(draw=st.data())
def test_chunks_of_several_lengths_are_read(data: tuple[Served, Path], draw: DataObject) -> None:
    """zarr-python 3.1 does not know the grid: the chunks are made here, each by itself."""
    served, folder = data
    shape, lengths = (30, 17), draw.draw(st.sampled_from(LENGTHS))
    sharded = lengths == LENGTHS[-1] and draw.draw(st.booleans())
    codecs = [sharding([5, 3])] if sharded else DOCUMENT["codecs"]
    values = np.arange(30 * 17, dtype="i2").reshape(shape)
    shutil.rmtree(folder / "edges", ignore_errors=True)
    (folder / "edges").mkdir()
    (folder / "edges" / "zarr.json").write_text(
        json.dumps({**DOCUMENT, "shape": shape, **rectilinear(*lengths), "codecs": codecs, "fill_value": -1})
    )
    parsed = array_of((folder / "edges" / "zarr.json").read_bytes())
    for coords in np.ndindex(*parsed.stored_grid.counts):
        chunk = np.full(parsed.stored_grid.chunk_shape(coords), -1, "i2")
        inside = parsed.stored_grid.bounds(coords)
        chunk[tuple(slice(0, axis.stop - axis.start) for axis in inside)] = values[inside]
        place: dict[str, Any] = {"store": str(folder / "one"), "zarr_format": 3, "overwrite": True}
        whole = [ShardingCodec(chunk_shape=(5, 3))] if sharded else [BytesCodec()]
        one: Any = zarr.create(shape=chunk.shape, dtype="i2", chunks=chunk.shape, codecs=whole, fill_value=-2, **place)
        one[...] = chunk
        stored = folder / "edges" / parsed.stored_grid.key(coords)
        stored.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "one" / "c" / "0" / "0", stored)
    array = RemoteArray(f"{served.http.base_url}/v1/metadata/data/edges")
    step = tuple(slice(None, None, draw.draw(st.sampled_from([1, 2, 3, 7, -1, -4]))) for _ in shape)
    rows = draw.draw(st.lists(st.integers(0, 29), min_size=1, max_size=9))

    np.testing.assert_array_equal(np.asarray(array), values)
    np.testing.assert_array_equal(array[step], values[step])
    np.testing.assert_array_equal(array[rows, 3:], values[rows, 3:])
    assert served.http.get("/v1/chunk/data/edges/1.1?format=json").status_code == 200
    with pytest.raises(BadDefinition, match="rectilinear"):
        array[0] = 1
    with pytest.raises(BadDefinition, match="rectilinear"):
        array.resize((31, 17))
    with pytest.raises(TypeError, match="several"):
        _ = array.blocks
    columns = [row % 17 for row in rows]
    np.testing.assert_array_equal(array.vindex[rows, columns], values[rows, columns])
