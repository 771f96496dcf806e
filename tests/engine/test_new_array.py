"""Documents of new arrays: defaults, refusals; and comparing with a stored array."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.engine.chunk_shape import guess_chunks
from hyperslab.engine.comparison import first_difference
from hyperslab.engine.creation import new_document
from hyperslab.engine.dtypes import parse_dtype
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.errors import BadDefinition
from tests.conformance.vectors import Case, case_id, cases
from tests.engine import dtype_strategies as dtypes
from tests.engine.oracles import tensorstore_created

_BLOSC = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}


def _new(**members: Any) -> dict[str, Any]:
    return new_document({"shape": [20, 30], "dtype": "<i4", **members})


def _stored(**members: Any) -> ArrayMetadata:
    return ArrayMetadata.from_document(_new(**members), ".zarray")


_WRITTEN = [case for case in cases("created_docs") if case["id"] not in ("created-000", "created-002")]


@pytest.mark.parametrize("case", _WRITTEN, ids=case_id)
def test_documents_are_those_of_zarr_python_2_and_tensorstore(case: Case) -> None:
    """But for TensorStore's null fill value and Blosc shuffle, and zarr-python 2 leaves the separator out."""
    reference = case["refs"].get("zarr2") or case["refs"]["tensorstore"]
    request = {"dtype": "<f8", **(case.get("kwargs") or case["metadata"])}
    if not reference["ok"]:
        with pytest.raises(BadDefinition):
            new_document(request)
        return
    expected = {"dimension_separator": ".", **json.loads(reference["text"])}
    if "tensorstore" in case["refs"]:
        expected["compressor"]["shuffle"] = 1
        expected["fill_value"] = expected["fill_value"] or 0

    assert new_document(request) == expected


@pytest.mark.parametrize(
    ("dtype", "filters", "fill_value"),
    [
        ("|b1", None, False),
        ("<f4", None, 0.0),
        ("<c8", None, [0.0, 0.0]),
        ("<M8[ns]", None, 0),
        ("|S3", None, "AAAA"),
        (">U3", None, ""),
        ([["a", "<i4"], ["b", "|S2"]], None, "AAAAAAAA"),
        ("int4", None, 0),
        ("bfloat16", None, 0.0),
        ("float8_e8m0fnu", None, None),
        ("float4_e2m1fn", None, None),
        ("|O", [{"id": "vlen-utf8"}], ""),
        ("|O", [{"id": "vlen-bytes"}], ""),
        ("|O", [{"id": "json2"}], None),
    ],
)
def test_fill_value_defaults_to_zero_where_there_is_one(dtype: Any, filters: Any, fill_value: Any) -> None:
    assert _new(dtype=dtype, filters=filters)["fill_value"] == fill_value


@given(
    st.sampled_from(["|S7", "|V5", "<u2", [["a", "|S3", [2]]], [["a", "<c16", [3, 5]]], [["a", "<f4"]]]),
    st.lists(st.integers(0, 10**5), min_size=1, max_size=3),
)
def test_what_lies_within_an_item_counts_as_in_tensorstore(dtype: Any, shape: list[int]) -> None:
    members = {"shape": shape, "dtype": dtype}

    assert new_document(members)["chunks"] == tensorstore_created({"metadata": members})["chunks"]


@pytest.mark.parametrize("case", cases("guess_chunks"), ids=case_id)
def test_chunks_are_normalised_as_in_zarr_python(case: Case) -> None:
    """Null is TensorStore's choice here; zarr-python's guess is asked for with true."""
    if case["typesize"] > 1 << 20 or case["chunks"] is None:
        assert list(guess_chunks(case["shape"], case["typesize"])) == case["refs"]["zarr2"]["chunks"]
        return
    document = new_document({"shape": case["shape"], "dtype": f"|V{case['typesize']}", "chunks": case["chunks"]})

    assert document["chunks"] == case["refs"]["zarr2"]["chunks"]


@pytest.mark.parametrize(
    ("members", "chunks"),
    [
        ({"shape": [1000, 2000, 3000]}, [101, 101, 101]),
        ({"shape": [1000, 2000, 3000], "chunk_elements": 10}, [2, 2, 2]),
        ({"shape": [1000, 2000, 3000], "chunk_aspect_ratio": [1, 2, 2]}, [64, 128, 128]),
        ({"shape": [1000, 2000, 3000], "chunks": [10, 0, 0], "chunk_aspect_ratio": [1, 1, 2]}, [10, 228, 457]),
        ({"shape": [1000, 2000, 3000], "chunks": [-1, 0, 0]}, [1000, 32, 32]),
        ({"shape": [1000, 2000, 3000], "chunks": [1]}, [1, 2000, 3000]),
        ({"shape": [1000, 2000], "chunks": False}, [1000, 2000]),
        ({"shape": [0, 5], "chunks": False}, [1, 5]),
        ({"shape": [10000, 10000], "dtype": "<f8", "chunks": True}, [313, 625]),
        ({"shape": [], "chunks": []}, []),
        ({"shape": [20, 30], "chunks": [50, 50.0]}, [50, 50]),
        ({"shape": [10**6], "dtype": "<U16384"}, [256]),
        ({"shape": [10**6], "dtype": "|V65536"}, [16]),
        ({"shape": [4096], "dtype": [["a", "<i4", [1000]]]}, [1048]),
        ({"shape": [1000, 2000], "dtype": [["x", "<u2", [2, 3]]]}, [418, 418]),
        ({"shape": [1000, 2000], "dtype": [["x", "<u2", [2, 3]], ["y", "<f4", [5]]]}, [418, 418]),
        ({"shape": [1000], "dtype": [["x", "<u2", [2, 3]]], "chunk_elements": 60}, [10]),
        ({"shape": [10**7], "dtype": [["x", [["y", "<u2", [2, 3]]]]]}, [2**20]),
        ({"shape": [10**6], "dtype": "|O", "filters": [{"id": "vlen-utf8"}]}, [65536]),
        ({"shape": [100, 100], "chunks": [10, 5], "chunk_layout": {"chunk": {"shape": [-1, -1]}}}, [10, 5]),
        (
            {"shape": [1000, 2000, 3000], "chunk_layout": {"chunk": {"shape": [100, 0, 0], "elements": 10000}}},
            [100, 10, 10],
        ),
    ],
    ids=str,
)
def test_chunks_are_chosen_within_what_is_asked(members: dict[str, Any], chunks: list[int]) -> None:
    assert _new(**members)["chunks"] == chunks


_STREAM_LEVELS = {"zlib": (10, -1), "gzip": (-1,), "bz2": (0,), "zstd": (23, -131073)}
_SNAPPY_AND_LIKE: list[dict[str, Any]] = [{"clevel": 10}, {"shuffle": 3}, {"cname": "snappy"}, {"typesize": 4}]
_LONG_STRINGS = [{"id": "astype", "decode_dtype": "<f4", "encode_dtype": dtype} for dtype in ("<f4", "|S2000000000")]
_PCO_DTYPES: list[Any] = ["|u1", "|b1", ">i4", "<c8", "|S4", [["a", "<i4"]]]
_ALONE: dict[str, list[Any]] = {
    "nope": [1],
    "attributes": [{}],
    "zarr_format": ["3"],
    "shape": [None, 20, [-1], [True]],
    "dtype": ["longdouble", "|V1048577"],
    "chunks": [[1, 2, 3], "auto", 0, [-2, 1], [1.5, 1], [2**40, 2**40]],
    "chunk_elements": [-1, "many"],
    "chunk_aspect_ratio": [[1], [math.nan, 1]],
    "chunk_layout": [{"nope": 1}],
    "order": ["K"],
    "dimension_separator": ["-"],
    "compressor": [
        *("zlib", {}, {"id": "nope"}, {"id": "pickle"}, {"id": "zlib", "nope": 1}),
        *({"id": name, "level": level} for name, levels in _STREAM_LEVELS.items() for level in levels),
        *({"id": "blosc", **parameter} for parameter in _SNAPPY_AND_LIKE),
        {"id": "pcodec", "delta_spec": "try_consecutive"},
        {"id": "pcodec", "delta_spec": "none", "delta_encoding_order": 1},
    ],
    "filters": [{"id": "delta"}],
    "fill_value": ["x", 2**31],
}
_TOGETHER: list[tuple[str, dict[str, Any]]] = [
    ("chunk_layout", {"chunks": [10, 20], "chunk_layout": {"chunk": {"shape": [10, 21]}}}),
    ("chunk_layout", {"chunks": [-1, 0], "chunk_layout": {"chunk": {"shape": [5, 0]}}}),
    ("chunk_layout", {"chunk_elements": 10, "chunk_layout": {"chunk": {"elements": 11}}}),
    ("chunk_layout", {"order": "C", "chunk_layout": {"inner_order": [1, 0]}}),
    ("compressor", {"shape": [2**30], "chunks": [2**30]}),
    *(("filters[0]", {"filters": [{"id": name}]}) for name in ("delta", "pickle")),
    ("filters", {"dtype": "|O"}),
    ("filters", {"dtype": "<M8[s]", "filters": [{"id": "delta", "dtype": "<M8[s]"}]}),
    ("filters", {"dtype": "<M8[s]", "filters": [{"id": "bitround", "keepbits": 4}]}),
    ("filters", {"dtype": "<i4", "filters": [{"id": "vlen-utf8"}]}),
    ("filters", {"dtype": "|O", "filters": [{"id": "vlen-array", "dtype": "<M8[s]"}]}),
    ("filters", {"dtype": "|O", "filters": [{"id": "vlen-array", "dtype": "<m8[s]"}, {"id": "zlib"}]}),
    ("filters[1]", {"filters": _LONG_STRINGS}),
    *(
        ("compressor", {"dtype": dtype, "compressor": {"id": "pcodec"}, "chunks": [2**26], "shape": [2**26]})
        for dtype in _PCO_DTYPES
    ),
    ("filters", {"dtype": "|u1", "chunks": [7, 1], "filters": [{"id": "delta", "dtype": "<i4"}]}),
    ("fill_value", {"dtype": "<f4", "fill_value": "0x7fc00001"}),
    ("fill_value", {"dtype": "<c8", "fill_value": [0, "0x7fc00001"]}),
    ("fill_value", {"dtype": "|V3", "fill_value": 0}),
]


@pytest.mark.parametrize(
    ("member", "members"), [*((m, {m: value}) for m in _ALONE for value in _ALONE[m]), *_TOGETHER], ids=str
)
def test_member_that_cannot_be_is_refused_by_name(member: str, members: dict[str, Any]) -> None:
    with pytest.raises(BadDefinition) as caught:
        _new(**members)

    assert caught.value.member == member
    assert caught.value.reason


@given(dtypes.simple_dtypes | dtypes.structured_dtypes, st.lists(st.integers(0, 1000), max_size=4))
def test_document_of_a_new_array_opens_and_fits_its_own_request(dtype: Any, shape: list[int]) -> None:
    request = {"shape": shape, "dtype": dtype, "order": "F"}

    document = new_document(request)

    stored = ArrayMetadata.from_document(document, ".zarray")
    assert stored.dtype.numpy == parse_dtype(dtype).numpy
    assert first_difference(request, stored) is None
    assert first_difference(document, stored) is None
    assert new_document(document) == document


@pytest.mark.parametrize(
    ("made", "asked"),
    [
        ({}, {}),
        ({"dtype": "|u1"}, {"dtype": ">u1"}),
        ({"dtype": "<M8[s]"}, {"dtype": "<M8[1s]"}),
        ({"compressor": {"id": "zlib", "level": 1}}, {"compressor": {"id": "zlib"}}),
        ({"compressor": {"id": "zstd"}}, {"compressor": {"checksum": False, "level": 0, "id": "zstd"}}),
        (
            {"filters": [{"id": "delta", "dtype": "<i4"}]},
            {"filters": [{"id": "delta", "dtype": "<i4", "astype": "<i4"}]},
        ),
        ({}, {"filters": []}),
        ({"fill_value": 5}, {"fill_value": 5.0}),
        ({"dtype": "<f4", "fill_value": 0.1}, {"fill_value": 0.1}),
        ({"dtype": "<f4", "fill_value": "NaN"}, {"fill_value": "NaN"}),
        ({"dtype": "|S3", "fill_value": "YQAA"}, {"fill_value": "YQ=="}),
        ({"dtype": "|O", "filters": [{"id": "json2"}], "fill_value": {"a": [1]}}, {"fill_value": {"a": [1]}}),
        ({"chunks": [5, 7]}, {"chunks": [0, 7]}),
        ({"chunks": [20, 7]}, {"chunks": [-1, 7]}),
        ({"chunks": [20, 30]}, {"chunks": False}),
        ({"chunks": [5, 7]}, {"chunks": True}),
        ({"chunks": [5, 7]}, {"chunks": None, "chunk_elements": 3, "chunk_aspect_ratio": [1, 9], "chunk_layout": {}}),
        ({"order": "F"}, {"order": None, "shape": None}),
        ({"dimension_separator": "/"}, {"dimension_separator": "/"}),
    ],
    ids=str,
)
def test_what_means_the_same_or_leaves_a_choice_fits(made: dict[str, Any], asked: dict[str, Any]) -> None:
    assert first_difference(asked, _stored(**made)) is None


@pytest.mark.parametrize(
    ("made", "asked", "difference"),
    [
        ({}, {"shape": [20, 31]}, ("shape", [20, 31], [20, 30])),
        ({}, {"shape": [20]}, ("shape", [20], [20, 30])),
        ({"chunks": [5, 7]}, {"chunks": [5, 8]}, ("chunks", [5, 8], [5, 7])),
        ({}, {"dtype": "<u4"}, ("dtype", "<u4", "<i4")),
        ({}, {"dtype": ">i4"}, ("dtype", ">i4", "<i4")),
        ({}, {"order": "F"}, ("order", "F", "C")),
        ({"compressor": None}, {"compressor": {"id": "zlib"}}, ("compressor", {"id": "zlib"}, None)),
        ({}, {"compressor": None}, ("compressor", None, _BLOSC)),
        ({}, {"filters": [{"id": "packbits"}]}, ("filters", [{"id": "packbits"}], None)),
        ({"fill_value": 5}, {"fill_value": 6}, ("fill_value", 6, 5)),
        ({"fill_value": 0}, {"fill_value": None}, ("fill_value", None, 0)),
        ({"dtype": "<f4", "fill_value": 0.0}, {"fill_value": -0.0}, ("fill_value", -0.0, 0.0)),
        (
            {"dtype": "|O", "filters": [{"id": "json2"}], "fill_value": 0},
            {"fill_value": False},
            ("fill_value", False, 0),
        ),
        ({}, {"dimension_separator": "/"}, ("dimension_separator", "/", ".")),
        ({}, {"shape": [1, 1], "dtype": "<u4", "order": "F"}, ("shape", [1, 1], [20, 30])),
    ],
    ids=str,
)
def test_first_member_that_differs_is_named_with_both_values(
    made: dict[str, Any], asked: dict[str, Any], difference: tuple[str, Any, Any]
) -> None:
    assert first_difference(asked, _stored(**made)) == difference


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_fill_value_of_a_schema_extends_to_all_items(zarr_format: int) -> None:
    request = {"schema": {"dtype": "uint16", "domain": {"shape": [3]}, "fill_value": [7]}, "zarr_format": zarr_format}

    made = new_document(request)

    assert (made["shape"], made["fill_value"]) == ([3], 7)
