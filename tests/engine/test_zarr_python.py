"""What zarr-python 3 opens is what it is said to open."""

from __future__ import annotations

from typing import Any

import pytest
from zarr.core.metadata.v2 import ArrayV2Metadata

from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.schema import opens_in_zarr3
from hyperslab.errors import BadMetadata, CodecRefused
from tests.conformance.vectors import cases


def _valid(given: Any) -> bool:
    try:
        ArrayMetadata.from_document(given, ".zarray")
    except (BadMetadata, CodecRefused):
        return False
    return True


def _document(dtype: Any, fill: Any = None, filters: Any = None) -> dict[str, Any]:
    document: dict[str, Any] = {"zarr_format": 2, "shape": [4], "chunks": [4], "compressor": None, "order": "C"}
    return document | {"dtype": dtype, "fill_value": fill, "filters": filters}


_STRINGS = ["|b1", "|u1", "<i2", ">u8", "<f2", "<c8", "|S2", "<U2", "|V2", "<M8[25s]", "<m8[ns]", "bfloat16", "int4"]
_FILLS = [
    None,
    0,
    1,
    1.0,
    2.5,
    True,
    "",
    "NaN",
    "NaT",
    "-Infinity",
    "0x7fc0",
    "YWI=",
    "2020-01-01",
    [0, 0],
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
    assert [given for given in documents if _zarr_python_opens(given) is not opens] == []


def _zarr_python_opens(document: dict[str, Any]) -> bool:
    try:
        ArrayV2Metadata.from_dict(document | {"attributes": {}})
    except Exception:
        return False
    return True
