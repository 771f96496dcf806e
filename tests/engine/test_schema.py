"""The schema of an array, equal to TensorStore's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorstore
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.engine.jsontext import dump_json, parse_json
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.schema import MAX_FILL_NUMBERS, schema_document
from tests.documents import LITTLE, array_of, named, zarr_json, zarray
from tests.engine.oracles import tensorstore_open

_TWO_FIELDS = [["x", "<u2", [2, 3]], ["y", "<f4", [5]]]


def _document(**members: Any) -> dict[str, Any]:
    return {**zarray([20, 30], [10, 10], "<u2", fill_value=None), **members}


def _ours(document: dict[str, Any], field: str | None = None) -> dict[str, Any]:
    return schema_document(ArrayMetadata.from_document(document, ".zarray"), field)


def _theirs(document: dict[str, Any], **spec: Any) -> Any:
    return _strict(tensorstore_open(document, **spec).schema.to_json())


def _strict(value: Any) -> Any:
    """The value with NaN and infinities as strings."""
    return parse_json(dump_json(value))


@pytest.mark.parametrize("dtype", [_TWO_FIELDS, "<i4"], ids=["structured", "plain"])
def test_field_that_there_is_not_is_a_key_error(dtype: Any) -> None:
    with pytest.raises(KeyError):
        _ours(_document(dtype=dtype), "z")


_COMPRESSORS = [None, *({"id": name} for name in ("blosc", "zlib", "gzip", "bz2", "zstd"))]
_BASES = ["|b1", "<i2", ">u4", "<f4", ">f8", "<c8", "|S2", "|V3", "bfloat16", "int4"]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 20)), max_size=4),
    st.lists(st.tuples(st.sampled_from(_BASES), st.lists(st.integers(1, 3), max_size=2)), min_size=1, max_size=3),
    st.sampled_from("CF"),
    st.sampled_from(_COMPRESSORS),
)
def test_every_field_of_every_array_has_the_schema_of_tensorstore(
    axes: list[tuple[int, int]], bases: list[tuple[str, list[int]]], order: str, compressor: Any
) -> None:
    fields = {f"f{i}": [base, shape] for i, (base, shape) in enumerate(bases)}
    shape, chunks = [size for size, _ in axes], [chunk for _, chunk in axes]
    dtype = [[name, *rest] for name, rest in fields.items()]
    document = _document(dtype=dtype, shape=shape, chunks=chunks, order=order, compressor=compressor)

    for name in fields:
        assert _ours(document, name) == _theirs(document, field=name)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"dtype": "<M8[ns]", "fill_value": "NaT"}, {"dtype": "int64", "fill_value": -(2**63), "rank": 2}),
        ({"dtype": ">m8[10s]", "fill_value": 7}, {"dtype": "int64", "fill_value": 7}),
        ({"dtype": ">U3", "fill_value": "é"}, {"dtype": "ustring", "fill_value": "é", "rank": 2}),
        ({"dtype": "|S3", "fill_value": "YWJj"}, {"dtype": "char", "fill_value": [97, 98, 99], "rank": 3}),
        ({"dtype": "|V2", "fill_value": "YWI="}, {"dtype": "byte", "fill_value": [97, 98]}),
        ({"dtype": [["s", "|S1", [2]]], "fill_value": "YWI="}, {"fill_value": [[97], [98]], "rank": 4}),
        ({"dtype": [["n", [["a", "<i2"], ["b", "|u1"]]]]}, {"dtype": "byte", "rank": 3}),
        ({"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "fill_value": 0}, {"dtype": "ustring", "fill_value": ""}),
        ({"dtype": "|O", "filters": [{"id": "vlen-bytes"}]}, {"dtype": "string", "rank": 2}),
        ({"dtype": "|O", "filters": [{"id": "vlen-bytes"}], "fill_value": "AGE="}, {"fill_value": "AGE="}),
        (
            {"dtype": "|O", "filters": [{"id": "json2"}], "fill_value": {"a": 1}},
            {"dtype": "json", "fill_value": {"a": 1}},
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_other_dtypes_are_stated_in_the_nearest_terms(members: dict[str, Any], expected: dict[str, Any]) -> None:
    schema = _ours(_document(**members))

    assert {name: schema[name] for name in expected} == expected


def test_huge_fill_value_is_left_out() -> None:
    assert "fill_value" not in _ours(_document(dtype=f"|S{MAX_FILL_NUMBERS + 1}", fill_value=""))
    assert "fill_value" in _ours(_document(dtype=f"|S{MAX_FILL_NUMBERS}", fill_value=""))


@pytest.mark.parametrize("sharded", [False, True])
def test_an_array_of_v3_has_the_schema_of_tensorstore(tmp_path: Path, *, sharded: bool) -> None:
    """What is written at once is a shard, and the codec is that of a ``zarr.json``."""
    shard = {"chunk_shape": [2, 3], "codecs": [LITTLE], "index_codecs": [LITTLE], "index_location": "end"}
    codecs = [named("sharding_indexed", **shard)] if sharded else [named("transpose", order=[1, 0]), LITTLE]
    document = zarr_json([8, 6], [4, 6], codecs=codecs)
    (tmp_path / "zarr.json").write_bytes(dump_json(document))

    opened = tensorstore.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path)}}).result()

    assert schema_document(array_of(document)) == opened.schema.to_json()
