"""The Zarr v3 form of arrays of Zarr v2: zarr-python 3 and TensorStore read the same chunks in the same way."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import json
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BytesCodec
from zarr.codecs import numcodecs as zarr_filters

from hyperslab.engine.jsontext import dump_json
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.other_format import v2_document
from hyperslab.engine.v3 import document_of, from_document, new_array
from hyperslab.errors import BrokenData
from tests.documents import zarray

pytestmark = pytest.mark.filterwarnings("ignore:(The (data type|codec)|Numcodecs codecs|Combining a|Object arrays)")

DTYPES: list[Any] = ["|b1", "|i1", "<u2", ">i4", "<i8", "<f2", ">f4", "<f8", "<c8", ">c16", "<M8[25us]", ">m8[s]"]
DTYPES += ["<U3", ">U2", "|S4", "|V5", [["a", "<i4"], ["b", "|V3"], ["c", [["d", "<f8"]]]]]
TENSORSTORE = {"|b1", "|i1", "<u2", ">i4", "<i8", "<f2", ">f4", "<f8", "<c8", ">c16"}
COMPRESSORS: list[dict[str, Any] | None] = [
    None,
    {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": -1, "blocksize": 0},
    {"id": "gzip", "level": 5},
    {"id": "zstd", "level": 3},
    {"id": "zlib", "level": 1},
    {"id": "bz2", "level": 1},
    {"id": "lz4"},
    {"id": "lzma"},
]
FILTERS: list[list[dict[str, Any]] | None] = [
    None,
    [{"id": "shuffle", "elementsize": 2}],
    [{"id": "crc32c", "location": "end"}],
    [{"id": "adler32"}],
    [{"id": "delta", "dtype": "<f8", "astype": "<f4"}],
    [{"id": "fixedscaleoffset", "offset": 0, "scale": 1, "dtype": "<f8", "astype": "<i4"}],
    [{"id": "packbits"}],
]


def values(metadata: ArrayMetadata) -> np.ndarray[Any, Any]:
    dtype = metadata.dtype.numpy
    numbers = np.arange(1, 13).reshape(metadata.shape) % 3
    if dtype.kind in "VSmM":
        raw = (numbers[..., None] + np.arange(dtype.itemsize)).astype("u1")
        return np.ascontiguousarray(raw).view(dtype)[..., 0]
    return numbers.astype(dtype)


@given(
    dtype=st.sampled_from(DTYPES),
    order=st.sampled_from("CF"),
    compressor=st.sampled_from(COMPRESSORS),
    filters=st.sampled_from(FILTERS),
    separator=st.sampled_from("./"),
)
def test_what_v2_stores_is_read_as_v3(
    tmp_path_factory: pytest.TempPathFactory, dtype: Any, order: str, compressor: Any, filters: Any, separator: str
) -> None:
    if filters is not None and filters[0]["id"] in ("delta", "fixedscaleoffset", "packbits"):
        dtype = "|b1" if filters[0]["id"] == "packbits" else "<f8"
    stored = zarray([3, 4], [2, 2], dtype, order=order, filters=filters, compressor=compressor, fill_value=None)
    stored |= {"dimension_separator": separator}
    metadata = ArrayMetadata.from_document(stored, ".zarray")
    wanted = values(metadata)
    document = document_of(metadata, {"a": 1}, ["y", "x"])
    folder = tmp_path_factory.mktemp("form")
    store(folder, metadata, wanted)
    (folder / "zarr.json").write_bytes(dump_json(document))
    again = from_document(json.loads(dump_json(document)), "zarr.json").array
    assert again is not None
    assert again.dtype.numpy == metadata.dtype.numpy
    assert (again.fill == metadata.fill).all()
    for coords in np.ndindex(2, 2):
        data = (folder / again.grid.key(coords)).read_bytes()
        assert again.codec.decode(data, "").tobytes() == metadata.codec.decode(data, "").tobytes()
    np.testing.assert_array_equal(zarr.open_array(folder, mode="r", zarr_format=3)[...], wanted)
    simple = all("numcodecs" not in codec["name"] for codec in document["codecs"])
    if isinstance(dtype, str) and dtype in TENSORSTORE and simple:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder)}}
        np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), wanted)


@pytest.mark.parametrize(
    ("dtype", "members", "reason"),
    [
        ([["a", "<i4", [2]]], {}, "subarrays"),
        ([["a", "<i4"], ["", "|V4"]], {}, "padding"),
        ([["a", "<i4"], ["b", ">i4"]], {}, "one byte order"),
        ([["a", ">i4"]], {}, "little-endian"),
        (">i4", {"filters": [{"id": "delta", "dtype": ">i4"}]}, "little-endian"),
        ("|O", {"filters": [{"id": "json2"}]}, "json2"),
        ("<i4", {"compressor": {"id": "base64"}}, "base64"),
        ("<i4", {"filters": [{"id": "crc32"}, {"id": "delta", "dtype": "<i4"}]}, "delta"),
    ],
)
def test_what_v3_has_no_form_for_is_said(dtype: Any, members: dict[str, Any], reason: str) -> None:
    document = zarray([3], [2], dtype, **{"fill_value": None, **members})
    with pytest.raises(ValueError, match=reason):
        document_of(ArrayMetadata.from_document(document, ".zarray"), {}, None)


def store(folder: Path, metadata: ArrayMetadata, items: np.ndarray[Any, Any]) -> None:
    for coords in np.ndindex(metadata.grid.counts):
        chunk = np.zeros(metadata.chunks, metadata.dtype.numpy)
        part = items[metadata.grid.bounds(coords)]
        chunk[tuple(map(slice, part.shape))] = part
        path = folder / metadata.grid.key(coords)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(metadata.codec.encode(chunk))


LITTLE: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
BLOSC = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0}
CAST = {"data_type": "int16", "rounding": "nearest-even", "scalar_map": {"encode": [["NaN", 0]]}}
CHAINS: list[list[Any]] = [
    [{"name": "transpose", "configuration": {"order": [1, 0]}}, LITTLE, {"name": "blosc", "configuration": BLOSC}],
    [{"name": "scale_offset", "configuration": {"offset": 1, "scale": 2}}, LITTLE, {"name": "crc32c"}],
    [{"name": "cast_value", "configuration": CAST}, LITTLE, {"name": "gzip", "configuration": {"level": 1}}],
    [{"name": "reshape", "configuration": {"shape": [[0, 1]]}}, LITTLE],
    [{"name": "numcodecs.delta", "configuration": {"dtype": "<f4"}}, LITTLE, {"name": "zstd"}],
    [{"name": "packbits", "configuration": {"first_bit": 0, "last_bit": 7}}],
]
ODD: list[Any] = [None, True, -1, 2**64, 1.5, float("nan"), "", "C", "int8", [], [0], [[1, 2]], {}, {"name": "bytes"}]
ODD += [{"name": "cast_value"}, {"name": "struct", "configuration": {"fields": [["a", "i4"]]}}, {"id": "zlib"}]


def places(value: Any, found: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all that lies in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found, *[place for name, part in inner for place in places(part, (*found, name))]]


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain[0]["name"])
@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_document_with_anything_in_it_is_read_or_refused(chain: Any, is_sharded: bool) -> None:
    index = {"chunk_shape": [2, 2], "codecs": chain, "index_codecs": [LITTLE, {"name": "crc32c"}]}
    codecs = [{"name": "sharding_indexed", "configuration": index}] if is_sharded else chain
    document = new_array([3, 4], [2, 2], "float32", 0, codecs, {"name": "default"}, {}, ["y", None])
    refused = 0
    for (*way, last), odd in itertools.product([place for place in places(document) if place], ODD):
        changed = copy.deepcopy(document)
        functools.reduce(operator.getitem, way, changed)[last] = copy.deepcopy(odd)
        try:
            array: Any = from_document(changed, "zarr.json").array
        except BrokenData:
            refused += 1
            continue
        with contextlib.suppress(ValueError):
            again, chunk = ArrayMetadata.from_document(v2_document(array), ".zarray"), np.full(array.chunks, array.fill)
            data = array.codec.encode(chunk)
            assert again.codec.decode(data, "").tobytes() == array.codec.decode(data, "").tobytes()
    assert refused > 100


@pytest.mark.parametrize(
    ("rounding", "read"),
    [({}, [2, -2, 2]), ({"rounding": "towards-zero"}, [1, -1, 2]), ({"rounding": "nearest-away"}, [2, -2, 3])],
)
def test_numbers_are_cast_with_the_rounding_that_the_codec_names(rounding: Any, read: list[int]) -> None:
    cast = {"name": "cast_value", "configuration": {"data_type": "int8", **rounding}}
    document = new_array([3], [3], "float32", 0, [cast, {"name": "bytes"}], {"name": "default"}, {}, None)
    array: Any = from_document(document, "zarr.json").array

    stored = array.codec.encode(np.array([1.5, -1.5, 2.5], "<f4"))

    assert np.frombuffer(stored, np.int8).tolist() == array.codec.decode(stored, "").tolist() == read


def test_integers_that_no_float_has_are_rounded_as_the_codec_says() -> None:
    cast = {"name": "cast_value", "configuration": {"data_type": "float64", "rounding": "towards-positive"}}
    document = new_array([2], [2], "uint64", 0, [cast, {"name": "bytes"}], {"name": "default"}, {}, None)
    array: Any = from_document(document, "zarr.json").array

    stored = array.codec.encode(np.array([2**53 + 1, 2**53], "<u8"))

    assert np.frombuffer(stored, "<f8").tolist() == [2.0**53 + 2, 2.0**53]


@pytest.mark.parametrize(("last", "read"), [(15, [4464, 7]), (63, [70_000, 7])])
def test_what_packbits_cuts_off_is_told_as_it_will_be_read(last: int, read: list[int]) -> None:
    packbits = {"name": "packbits", "configuration": {"first_bit": 0, "last_bit": last}}
    document = new_array([2], [2], "uint64", 0, [packbits], {"name": "default"}, {}, None)
    array: Any = from_document(document, "zarr.json").array

    _, readable = array.codec.encode_readably(np.array([70_000, 7], "<u8"), "")

    assert readable.tolist() == read
    assert array.codec.lossless == (last == 63)


@pytest.mark.parametrize("name", ["int8", "uint16", "int64"])
def test_a_fill_value_of_integers_with_a_fraction_of_zero_is_read_as_zarr_python_reads_it(
    tmp_path: Path, name: str
) -> None:
    zarr.create_array(str(tmp_path), shape=(4,), chunks=(2,), dtype=name, fill_value=7)
    document = json.loads((tmp_path / "zarr.json").read_bytes()) | {"fill_value": 3.0}
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    array: Any = from_document(document, "zarr.json").array

    assert array.fill == zarr.open_array(str(tmp_path), mode="r")[0] == 3
    with pytest.raises(BrokenData, match="fill_value"):
        from_document({**document, "fill_value": 3.5}, "zarr.json")


@pytest.mark.skipif(zarr.__version__.startswith("3.1."), reason="zarr-python 3.1 does not read what it writes here")
@pytest.mark.filterwarnings("ignore:(Numcodecs codecs|invalid value)")
@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("kind", ["astype", "delta", "fixedscaleoffset"])
@pytest.mark.parametrize(("dtype", "stored"), [("|i1", "<i8"), ("<i4", "<i2"), ("<i4", ">i8"), ("<u8", ">i4")])
def test_the_byte_order_of_what_a_filter_stores_is_that_of_the_bytes(
    tmp_path: Path, dtype: str, stored: str, kind: str, endian: Any
) -> None:
    each: Any = {
        "astype": zarr_filters.AsType(encode_dtype=stored, decode_dtype=dtype),
        "delta": zarr_filters.Delta(dtype=dtype, astype=stored),
        "fixedscaleoffset": zarr_filters.FixedScaleOffset(offset=3, scale=2, dtype=dtype, astype=stored),
    }[kind]
    serializer = BytesCodec(endian=endian)
    whole: Any = {"shape": (3,), "chunks": (3,), "dtype": dtype, "compressors": None}
    array: Any = zarr.create_array(tmp_path, filters=[each], serializer=serializer, **whole)
    array[...] = [5, 3, 7]

    found: Any = from_document(json.loads((tmp_path / "zarr.json").read_bytes()), "zarr.json").array

    assert found.codec.decode((tmp_path / "c" / "0").read_bytes(), "").tolist() == array[...].tolist() == [5, 3, 7]
    assert found.codec.encode(np.array([5, 3, 7], dtype)) == (tmp_path / "c" / "0").read_bytes()
