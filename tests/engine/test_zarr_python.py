"""What zarr-python 3 opens is what it is said to open: all that every version opens, and nothing that 3.1 does not."""

from __future__ import annotations

from typing import Any, Final

import pytest
import zarr
from zarr.core.metadata.v2 import ArrayV2Metadata
from zarr.core.metadata.v3 import ArrayV3Metadata

from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.schema import opens_in_zarr3, opens_v3_in_zarr3
from hyperslab.engine.v3 import from_document
from hyperslab.errors import BadMetadata, CodecRefused
from tests.conformance.vectors import cases
from tests.documents import LITTLE, named, sharding, zarr_json, zarray

IS_OLDEST: Final = zarr.__version__.startswith("3.1.")
"""Later versions open more."""


def _valid(given: Any) -> bool:
    try:
        ArrayMetadata.from_document(given, ".zarray")
    except (BadMetadata, CodecRefused):
        return False
    return True


def _document(dtype: Any, fill: Any = None, filters: Any = None) -> dict[str, Any]:
    document: dict[str, Any] = zarray([4], [4], dtype, fill_value=fill, filters=filters)
    return document


_STRINGS = ["|b1", "|u1", "<i2", ">u8", "<f2", "<c8", "|S2", "<U2", "|V2", "<M8[25s]", "<m8[ns]", "bfloat16", "int4"]
_FILLS = [
    *(None, 0, 1, 1.0, 2.5, True, "", "NaN", "NaT", "-Infinity", "0x7fc0", "YWI=", "2020-01-01", [0, 0]),
    ["NaN", 1.0],
]
_FIELDS: list[list[Any]] = [
    [["a", "<i2"], ["b", "|S2"]],
    [["a", "<i2", [1]]],
    [["a", "<i2", []]],
    [["a", [["b", "<i2"]]]],
    [["a", "float8_e5m2"]],
    [["", "|V1"], ["a", "|b1"]],
]
_OBJECT: list[list[dict[str, Any]]] = [[{"id": name}] for name in ("vlen-utf8", "vlen-bytes", "json2", "msgpack2")]
_OBJECT += [[{"id": "vlen-array", "dtype": "<i4"}], [{"id": "vlen-utf8"}, {"id": "zlib", "level": 1}]]


def _given() -> list[dict[str, Any]]:
    found = [_document(dtype, fill) for dtype in _STRINGS for fill in _FILLS]
    found += [_document(dtype, fill) for dtype in _FIELDS for fill in (None, 0, "AAAAAA==", "AAA=", "AAA")]
    found += [_document("|O", fill, filters) for filters in _OBJECT for fill in (None, 0, "", "YWI=")]
    found += [_document(case["dtype"]) for case in cases("dtypes") if case["expect"]["accept"]]
    return found + [_document(case["dtype"], case["fill_value"]) for case in cases("fill_values")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("opens", [True, False])
def test_zarr_python_3_opens_what_it_is_said_to_and_nothing_else(*, opens: bool) -> None:
    documents = [given for given in _given() if _valid(given) and bool(opens_in_zarr3(given)) is opens]

    assert len(documents) > 50
    if opens or IS_OLDEST:
        assert [given for given in documents if _zarr_python_opens(given) is not opens] == []


def _zarr_python_opens(document: dict[str, Any]) -> bool:
    try:
        ArrayV2Metadata.from_dict(document | {"attributes": {}})
    except Exception:
        return False
    return True


_BYTES: dict[str, Any] = LITTLE
_V3: dict[str, Any] = zarr_json([8, 6], [4, 6])


_TURNED: dict[str, Any] = named("transpose", order=[1, 0])
_CODECS: list[list[Any]] = [
    *([codec, _BYTES] for codec in (_TURNED, named("transpose", order="F"), named("numcodecs.delta", dtype="<i2"))),
    *([_BYTES, codec] for codec in ("crc32c", {"name": "crc32c"}, {"name": "gzip"}, named("gzip", level=1))),
    *([_BYTES, codec] for codec in (named("bz2", level=1), named("numcodecs.bz2", level=1))),
    [_BYTES, named("numcodecs.base64")],
    [_BYTES, {"name": "crc32c", "must_understand": False}],
    [named("bitround", keepbits=3), _BYTES],
    [sharding([2, 3], index=[_BYTES])],
    [sharding([2, 3], [_TURNED, _BYTES])],
    [_TURNED, sharding([2, 2])],
    [_TURNED, sharding([3, 4])],
    [sharding([2, 6], [sharding([2, 3])])],
    [sharding([2, 3], index=[_BYTES, "crc32c"])],
]
_CHANGES: Final[list[Any]] = [
    *({"codecs": codecs} for codecs in _CODECS),
    *({"data_type": kind} for kind in ("float32", "bfloat16", "int4", named("int16"))),
    {"data_type": {"name": "int16"}},
    {"data_type": "r16", "fill_value": [0, 0]},
    {"data_type": "string", "fill_value": "", "codecs": [{"name": "vlen-utf8"}]},
    {"data_type": "bytes", "fill_value": "", "codecs": [{"name": "vlen-bytes"}]},
    {"data_type": "variable_length_bytes", "fill_value": "YQ==", "codecs": [{"name": "vlen-bytes"}]},
    {"data_type": "variable_length_bytes", "fill_value": [1], "codecs": [{"name": "vlen-bytes"}]},
    {"data_type": named("null_terminated_bytes", length_bytes=2), "fill_value": "YQ=="},
    {"data_type": named("null_terminated_bytes", length_bytes=2), "fill_value": [1]},
    {"data_type": "complex64", "fill_value": [1, "NaN"]},
    {"data_type": {"name": "complex64"}, "fill_value": [1, "NaN"]},
    {"data_type": named("numpy.datetime64", unit="s", scale_factor=1), "fill_value": "NaT"},
    *(
        {"data_type": named(f"numpy.{kind}64", unit="generic", scale_factor=1), "fill_value": fill}
        for kind in ("datetime", "timedelta")
        for fill in (5, "NaT")
    ),
    {"data_type": named("structured", fields=[["a", "int16"]]), "fill_value": "AAA="},
    {"data_type": named("struct", fields=[{"name": "a", "data_type": "int16"}]), "fill_value": {"a": 1}},
    *({"chunk_key_encoding": keys} for keys in ("v2", "default", named("v2"))),
    {"shape": [float(8), 6]},
    {"storage_transformers": []},
    {"consolidated_metadata": None},
    {"extra": {"must_understand": False}},
    {"dimension_names": ["y", None]},
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", _CHANGES)
def test_zarr_python_3_opens_documents_of_v3_that_it_is_said_to(change: dict[str, Any]) -> None:
    document = {**_V3, **change}
    from_document(document, "zarr.json")
    try:
        ArrayV3Metadata.from_dict({**document, "attributes": {}})
        opens = not document.get("storage_transformers")  # refused where the array is opened
    except Exception:
        opens = False

    assert opens_v3_in_zarr3(document) <= opens
    if IS_OLDEST:
        assert opens_v3_in_zarr3(document) is opens
