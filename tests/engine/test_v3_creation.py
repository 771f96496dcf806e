"""Documents of new arrays of Zarr v3: zarr-python 3 and TensorStore read them as they are meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import zarr

from hyperslab.engine.comparison import first_difference
from hyperslab.engine.creation import checked, new_document, requested_format
from hyperslab.engine.jsontext import dump_json
from hyperslab.errors import BadDefinition

pytestmark = pytest.mark.filterwarnings("ignore:(The (data type|codec|.generic. unit)|Numcodecs codecs|Object arrays)")

GRID = {"name": "regular", "configuration": {"chunk_shape": [50, 40]}}
SHARDED = {"name": "sharding_indexed", "configuration": {"chunk_shape": [10, 20], "codecs": ["bytes", "crc32c"]}}
SCALED = {"name": "scale_offset"}
TIME = {"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 25}}
RECORD = {"name": "structured", "configuration": {"fields": [["a", "int32"], ["b", "float64"]]}}
DELTA = {"id": "delta", "dtype": "<i4"}
QUANTIZED = {"id": "quantize", "digits": 2, "dtype": "<f8", "astype": "<f4"}
NARROWED = {"id": "delta", "dtype": "<i4", "astype": "|i1"}
WIDENED = {"name": "numcodecs.astype", "configuration": {"decode_dtype": "<i2", "encode_dtype": "<i4"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}


def in_shards(codec: Any, **members: Any) -> dict[str, Any]:
    return {"name": "sharding_indexed", "configuration": {"chunk_shape": [10, 20], "codecs": [codec], **members}}


SWAPPED = {"name": "transpose", "configuration": {"order": [0, 2, 1]}}
TEXT = {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}
GOOD: list[tuple[dict[str, Any], Any, Any]] = [  # request, chunks, shards
    ({"data_type": "uint16"}, (100, 200), None),
    ({"dtype": ">i4", "order": "F", "compressor": {"id": "blosc", "shuffle": -1}}, (100, 200), None),
    ({"data_type": "float64", "chunks": [10, 10], "shards": [50, 100]}, (10, 10), (50, 100)),
    ({"data_type": "float64", "chunks": 10, "shards": [-1, 20]}, (10, 10), (100, 20)),
    ({"data_type": "float64", "chunks": [7, 9], "shards": "auto"}, (7, 9), (105, 207)),
    ({"shape": [10**5, 2000, 2000], "data_type": "uint16", "shards": True}, (64, 64, 64), (320, 320, 320)),
    ({"shape": [10**5, 2000, 2000], "data_type": "uint16", "shards": [10, 1024, 509]}, (10, 256, 509), (10, 1024, 509)),
    ({"shape": [], "data_type": "int8", "shards": True}, (), ()),
    ({"shape": [0, 5], "data_type": "int8", "shards": True}, (1, 5), (1, 5)),
    ({"data_type": "int32", "codecs": [SHARDED], "shards": [20, 40]}, (10, 20), (20, 40)),
    ({"data_type": "int32", "codecs": [SHARDED], "chunk_grid": GRID}, (10, 20), (50, 40)),
    ({"data_type": "int32", "codecs": ["bytes", "gzip"], "chunk_grid": GRID}, (50, 40), None),
    ({"data_type": "int32", "chunk_grid": {**GRID, "must_understand": True}}, (50, 40), None),
    (
        {"data_type": "int32", "codecs": ["bytes", {"name": "blosc"}], "shards": [20, 20], "chunks": 10},
        (10, 10),
        (20, 20),
    ),
    ({"data_type": "int32", "compressor": {"name": "zstd", "configuration": {"level": 3}}}, (100, 200), None),
    ({"data_type": "int32", "compressor": None, "dimension_separator": "."}, (100, 200), None),
    ({"data_type": "int32", "chunk_key_encoding": "v2", "fill_value": None}, (100, 200), None),
    ({"dtype": "<i4", "filters": [DELTA], "compressor": {"id": "bz2"}}, (100, 200), None),
    ({"data_type": "float32", "fill_value": "0x7fc00001"}, (100, 200), None),
    ({"data_type": "complex64", "fill_value": ["NaN", "-Infinity"]}, (100, 200), None),
    ({"data_type": TIME, "fill_value": "NaT"}, (100, 200), None),
    ({"data_type": TEXT, "fill_value": "é"}, None, None),
    ({"data_type": "string", "fill_value": "é"}, None, None),
    ({"shape": [2, 3, 4], "data_type": "string", "codecs": [SWAPPED, "vlen-utf8"]}, None, None),
    ({"shape": [6], "data_type": "string", "codecs": ["vlen-utf8", *["numcodecs.bz2"] * 3]}, None, None),
    ({"dtype": "|O", "filters": [{"id": "vlen-bytes"}], "fill_value": "YQ=="}, None, None),
    ({"dtype": "|S3", "fill_value": "YQ=="}, None, None),
    ({"dtype": "|V2", "fill_value": [1, 2]}, None, None),
    ({"data_type": RECORD, "fill_value": {"a": 1, "b": "Infinity"}}, None, None),
    ({"dtype": [["a", ">i4"], ["b", ">f8"]], "fill_value": "AQAAAAAAAAAAAPB/"}, None, None),
    ({"data_type": "bfloat16", "shards": [50, 50], "chunks": 25}, (25, 25), (50, 50)),
    ({"data_type": "float8_e8m0fnu"}, (100, 200), None),
    ({"data_type": "int4", "fill_value": -8}, (100, 200), None),
    ({"data_type": {"name": "int16"}}, (100, 200), None),
    ({"data_type": {"name": "int16", "configuration": {}, "must_understand": True}}, (100, 200), None),
    ({"data_type": "int16", "codecs": ["bytes", {"name": "numcodecs.lz4"}, {"name": "fletcher32"}]}, (100, 200), None),
    ({"data_type": "int16", "codecs": ["bytes", {"name": "crc32c"}], "filters": None, "order": None}, (100, 200), None),
    ({"data_type": "variable_length_bytes", "filters": []}, None, None),
    ({"shape": [100], "data_type": "int16", "order": "F"}, (100,), None),
    ({"dtype": ">i4", "codecs": ["bytes", "zstd"]}, (100, 200), None),
    ({"dtype": ">M8", "codecs": ["bytes"]}, (100, 200), None),
    ({"data_type": "int32", "codecs": [BIG]}, (100, 200), None),
    ({"data_type": "int8", "filters": [{"id": "shuffle"}], "compressor": None}, (100, 200), None),
    ({"dtype": "<u4", "filters": [DELTA, {"id": "crc32"}], "compressor": None}, (100, 200), None),
    ({"dtype": "<u4", "filters": [DELTA], "compressor": {"name": "blosc"}}, (100, 200), None),
    ({"dtype": "<f4", "filters": [{"id": "pcodec"}], "compressor": None}, (100, 200), None),
    ({"data_type": "bool", "filters": [{"id": "packbits"}], "compressor": None}, (100, 200), None),
    ({"data_type": "int32", "codecs": [{"name": "transpose", "configuration": {"order": "F"}}, "bytes"]}, None, None),
    (
        {"data_type": "int32", "shards": [20, 40], "codecs": [in_shards("bytes", index_codecs=["bytes", "crc32c"])]},
        None,
        (20, 40),
    ),
    ({"dtype": ">f4", "compressor": {"id": "pcodec"}}, (100, 200), None),
    ({"dtype": "<f4", "filters": [{"id": "bitround", "keepbits": 3}, DELTA]}, (100, 200), None),
    ({"dtype": "<i4", "filters": [NARROWED], "compressor": {"id": "blosc", "shuffle": -1}}, (100, 200), None),
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "data_type: expected either"),
    ({"data_type": "int8", "dtype": "|i1"}, "data_type: expected either"),
    ({"data_type": "int33"}, "data_type: .*'int33'"),
    ({"data_type": "int8", "shards": [30, 30], "chunks": 20}, "shards: axis 0: 30 is no multiple of 20"),
    ({"data_type": "int8", "shards": [30]}, "shards: expected a list of 2"),
    ({"data_type": "int8", "shards": [2**40, 1], "chunks": 1}, "limit is 4194304"),
    ({"data_type": "int8", "codecs": [{"name": "transpose", "configuration": {"order": "F"}}, SHARDED]}, "shards: exp"),
    ({"data_type": "int8", "codecs": [SHARDED], "shards": [15, 20]}, "10 does not divide 15"),
    ({"data_type": "int8", "codecs": [SHARDED], "shards": [20, 20], "chunks": 5}, r"chunks: expected \[10, 20\]"),
    ({"data_type": "int8", "codecs": ["zstd"]}, "codecs: no codec turns items"),
    ({"data_type": "int8", "codecs": ["bytes", "zip"]}, "codecs.*'zip'"),
    ({"data_type": "int8", "codecs": ["bytes"], "order": "F"}, "order: is said by codecs"),
    ({"data_type": "int8", "codecs": ["bytes"], "compressor": {"id": "zlib"}}, "compressor: is said by codecs"),
    ({"data_type": "int8", "codecs": [{**SCALED, "configuration": {"offset": None}}, "bytes"]}, "expected a number"),
    ({"data_type": "int8", "codecs": [{**SCALED, "configuration": {"scale": "x"}}, "bytes"]}, "expected an integer"),
    ({"data_type": "int8", "codecs": "bytes"}, "codecs: expected a list"),
    ({"data_type": "int8", "codecs": ["bytes", "numcodecs.pickle"]}, "codecs.*pickle"),
    ({"data_type": "int8", "compressor": {"id": "base64"}}, "compressor: .*'base64'"),
    ({"data_type": "float32", "fill_value": 1e300}, "fill_value: .*out of range"),
    ({"data_type": "int8", "fill_value": 200}, "fill_value"),
    ({"data_type": "string", "fill_value": 0}, "fill_value"),
    ({"data_type": "int8", "dimension_names": ["x"]}, "dimension_names: expected a list of 2"),
    ({"data_type": "int8", "chunk_grid": {"name": "other"}}, "chunk_grid"),
    ({"data_type": "int8", "chunk_grid": GRID, "chunks": [1, 1]}, "chunk_grid"),
    *(({"data_type": "int8", "chunk_grid": {**GRID, "configuration": {"chunk_shape": shape}}}, "chunk_grid: expected")
      for shape in (5, [5, 0], [5, -1], [5, None])),
    ({"data_type": "int8", "chunk_grid": GRID, "shards": 0}, "chunk_grid: says"),
    ({"data_type": "int8", "chunk_key_encoding": "v4"}, "chunk_key_encoding"),
    ({"data_type": "int8", "chunk_key_encoding": "v2", "dimension_separator": "/"}, "dimension_separator"),
    ({"data_type": "int8", "unknown": 1}, "unknown: is no member"),
    ({"dtype": "<i4", "codecs": [BIG]}, "codecs: bytes.endian: 'big', but .* dtype is 'little'"),
    ({"dtype": "<i4", "shards": [20, 20], "chunks": 10, "codecs": [BIG]}, "codecs: bytes.endian: 'big'"),
    ({"dtype": "<i4", "shards": [20, 20], "codecs": [in_shards(BIG)]}, "codecs: bytes.endian: 'big'"),
    ({"dtype": "<i2", "filters": [DELTA]}, "filters: delta takes items of int32, and is given int16"),
    ({"dtype": "<f4", "filters": [DELTA]}, "filters: delta takes items of int32, and is given float32"),
    ({"dtype": "<i4", "filters": [{**DELTA, "dtype": ">i4"}]}, "filters: delta takes items of >i4, and is given int32"),
    ({"dtype": "<i4", "filters": [NARROWED, DELTA]}, "filters: delta takes items of int32, and is given int8"),
    ({"data_type": "int32", "codecs": [WIDENED, "bytes"]}, "codecs: astype takes items of int16, and is given int32"),
    ({"dtype": "<f8", "filters": [QUANTIZED]}, "filters: quantize: .* not read its float64 where it stores float32"),
    ({"data_type": "int8", "filters": [{"id": "packbits"}]}, "filters: packbits takes .* given int8"),
    ({"dtype": "<i4", "codecs": ["bytes", {"name": "numcodecs.bz2", "configuration": {"level": 0}}, "crc32"]}, "bz2"),
    ({"dtype": "<M8", "fill_value": 5}, "fill_value: .* expected 'NaT', found 5"),
]  # fmt: skip
NOT_ZARR_PYTHON = ("bfloat16", "float8_e8m0fnu", "int4")
TENSORSTORE = (*NOT_ZARR_PYTHON, "int8", "uint16", "int32", "float32", "float64", "complex64")


@pytest.mark.parametrize(("request_", "chunks", "shards"), GOOD)
def test_what_is_asked_for_is_what_libraries_read(
    tmp_path: Path, request_: dict[str, Any], chunks: Any, shards: Any
) -> None:
    asked = {"zarr_format": 3, "shape": [100, 200], **request_}
    document = new_document(asked, {"a": [1]})
    (tmp_path / "zarr.json").write_bytes(dump_json(document))
    metadata = checked(document)
    assert first_difference(asked, metadata) is None
    chunks = metadata.chunks if chunks is None else chunks
    if document["data_type"] not in NOT_ZARR_PYTHON:
        array = zarr.open_array(tmp_path, mode="r")
        assert (array.shape, array.chunks, array.shards) == (metadata.shape, chunks, shards)
        assert array.metadata.attributes == {"a": [1]}
        assert equal(metadata.fill, array.fill_value)
    if document["data_type"] in TENSORSTORE and "numcodecs" not in json.dumps(document["codecs"]):
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path)}}
        opened = tensorstore.open(spec).result()
        layout = opened.chunk_layout  # of rank 0 it says nothing
        assert (layout.read_chunk.shape or ()) == chunks
        assert (layout.write_chunk.shape or ()) == (shards or chunks)
        assert equal(metadata.fill, opened.fill_value)


def equal(fill: np.ndarray[Any, Any], found: Any) -> bool:
    return (
        bool(fill[()] == found) if fill.dtype.hasobject else np.asarray(found, fill.dtype).tobytes() == fill.tobytes()
    )


@pytest.mark.parametrize(("request_", "reason"), BAD)
def test_what_cannot_be_is_refused_by_name(request_: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadDefinition, match=reason):
        new_document({"zarr_format": 3, "shape": [100, 200], **request_}, {})


@pytest.mark.parametrize(
    ("wanted", "member"),
    [
        ({"zarr_format": 2}, "zarr_format"),
        ({"data_type": "uint32"}, "data_type"),
        ({"dtype": ">i4"}, "dtype"),
        ({"chunks": [10, 20]}, "chunks"),
        ({"shards": [20, 20]}, "shards"),
        ({"shards": False}, "shards"),
        ({"codecs": ["bytes"]}, "codecs"),
        ({"compressor": {"id": "zstd", "level": 5}}, "compressor"),
        ({"compressor": None}, "compressor"),
        ({"fill_value": 1}, "fill_value"),
        ({"order": "F"}, "order"),
        ({"chunk_key_encoding": "v2"}, "chunk_key_encoding"),
        ({"dimension_names": ["y", "x"]}, "dimension_names"),
        ({"shards": [40, 40], "chunks": [10, 10], "codecs": ["bytes", "zstd"], "dtype": "<i4", "zarr_format": 3}, None),
        ({"shards": True, "fill_value": None, "dimension_names": ["y", None]}, None),
    ],
)
def test_a_stored_array_is_what_is_asked_for_or_not(wanted: dict[str, Any], member: str | None) -> None:
    asked = {"shape": [100, 200], "data_type": "int32", "chunks": 10, "shards": 40, "dimension_names": ["y", None]}
    stored = checked(new_document({"zarr_format": 3, **asked}, {}))
    difference = first_difference(wanted, stored)
    assert (None if difference is None else difference[0]) == member


def test_filters_alone_may_be_split_from_a_compressor_as_the_request_likes() -> None:
    asked = {"zarr_format": 3, "shape": [4], "dtype": "<i4", "filters": [DELTA, {"id": "shuffle"}], "compressor": None}
    stored = checked(new_document(asked, {}))

    def differs(**wanted: Any) -> str | None:
        difference = first_difference(wanted, stored)
        return None if difference is None else difference[0]

    assert differs(compressor=None) is None
    assert differs(filters=[DELTA], compressor={"id": "shuffle"}) is None
    assert differs(filters=[DELTA]) is None
    assert differs(filters=[DELTA], compressor={"id": "zstd"}) == "compressor"
    assert differs(filters=[{"id": "shuffle"}, DELTA], compressor=None) == "filters"
    assert differs(filters=[DELTA, {"id": "shuffle"}], compressor={"id": "zstd"}) == "compressor"


@pytest.mark.parametrize("members", [{"zarr_format": 4}, {"zarr_format": "3"}, {"shards": [1]}, {"data_type": "int8"}])
def test_a_format_that_is_none_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(BadDefinition):
        requested_format(members)
