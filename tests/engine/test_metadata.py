"""Metadata documents: what opens, what does not and why, and what survives being written back."""

from __future__ import annotations

import base64
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.engine.codec_config import CODECS
from hyperslab.engine.fill_value import format_fill_value, zero_item
from hyperslab.engine.jsontext import dump_json, parse_json
from hyperslab.engine.metadata import MAX_ARRAY_BYTES, ArrayMetadata, parse_consolidated
from hyperslab.errors import BadMetadata, BrokenData
from tests.conformance.deviations import deviation
from tests.conformance.vectors import Case, case_id, cases
from tests.documents import zarray
from tests.engine import dtype_strategies as dtypes

_DEVIATED = [case for case in cases("metadata") if deviation("metadata", case["id"]) is not None]


def _raw(case: Case) -> bytes:
    return case["raw"].encode() if "raw" in case else base64.b64decode(case["raw_b64"])


def _document(**members: Any) -> dict[str, Any]:
    return {**zarray([20, 30], [10, 10]), **members}


def _parse(**members: Any) -> ArrayMetadata:
    return ArrayMetadata.parse(dump_json(_document(**members)), ".zarray")


@pytest.mark.parametrize("case", _DEVIATED, ids=case_id)
def test_document_that_only_others_refuse_opens(case: Case) -> None:
    assert not case["expect"]["accept"]
    assert ArrayMetadata.parse(_raw(case), ".zarray").document["zarr_format"] == 2


_WRONG: dict[str, list[Any]] = {
    "zarr_format": [True],
    "shape": [[20, math.inf], [20, 2**62 + 1], [20, 1e300], [1] * 65],
    "chunks": [[10, 0], [10, False], [2**31, 2**31]],
    "dtype": ["|O", [["a", "<i4", [1] * 63]]],
    "order": [0],
    "dimension_separator": ["//", "", ["."]],
    "compressor": ["", {"id": None}, {"id": "zlib", "level": "one"}, {"id": "zlib", "nope": 1}],
    "filters": [{}, False, [{"id": "delta"}], [{}]],
    "fill_value": ["x", 2**31],
}


@pytest.mark.parametrize(
    ("member", "value"), [(m, v) for m in _WRONG for v in _WRONG[m]], ids=lambda value: str(value)[:24]
)
def test_wrong_member_is_named(member: str, value: Any) -> None:
    chunked = {"chunks": [1] * 65} if member == "shape" and len(value) == 65 else {}

    with pytest.raises(BadMetadata) as caught:
        ArrayMetadata.from_document(_document(**{**chunked, member: value}), ".zarray")

    assert caught.value.key == ".zarray"
    assert str(caught.value.member).startswith(member) or (member, value) == ("dtype", "|O")


def test_sizes_are_exact_far_beyond_64_bits() -> None:
    metadata = _parse(shape=[2**62, 2**62, 2**40], chunks=[2**20, 2**20, 2], dtype="<c16")

    assert metadata.nbytes == 2 ** (62 + 62 + 40 + 4)
    assert metadata.chunk_nbytes == 2 ** (20 + 20 + 1 + 4)
    assert metadata.grid.counts == (2**42, 2**42, 2**39)


@given(
    st.data(),
    dtypes.simple_dtypes | dtypes.structured_dtypes,
    st.sampled_from("CF"),
    st.sampled_from([None, ".", "/"]),
    st.lists(st.tuples(st.integers(0, 2**62), st.integers(1, 1000)), max_size=4),
)
def test_documents_survive_being_read_and_written(
    data: st.DataObject, spelled: Any, order: str, separator: str | None, axes: list[tuple[int, int]]
) -> None:
    dtype = ArrayMetadata.from_document(_document(dtype=spelled, fill_value=None), ".zarray").dtype
    fill = data.draw(st.none() | st.just(format_fill_value(zero_item(dtype))))
    shape, chunks = [size for size, _ in axes], [chunk for _, chunk in axes]
    document = _document(dtype=spelled, shape=shape, chunks=chunks, order=order, fill_value=fill)
    document["dimension_separator"] = separator

    metadata = ArrayMetadata.parse(dump_json(document), ".zarray")

    assert (metadata.shape, metadata.chunks, metadata.order) == (tuple(shape), tuple(chunks), order)
    assert metadata.rank == len(axes)
    assert metadata.dimension_separator == (separator or ".")
    assert parse_json(metadata.to_bytes()) == document


_JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1, 2, 2**31, 2**62, 2**64, -0.0, 1.5, 1e300, math.nan, math.inf])
    | st.sampled_from(
        ["", "C", ".", "|O", "<i4", "|S4", "<M8[s]", "bfloat16", "NaN", "AAAA", "vlen-utf8", "blosc", "é"]
    )
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "level", "dtype"]), inner),
    max_leaves=5,
)
_CODEC_IDS = st.sampled_from([*CODECS, "pickle", "nope"])
_PARAMETERS = st.sampled_from(sorted({parameter for codec in CODECS.values() for parameter in codec}))
_CODECS = st.builds(lambda name, members: {**members, "id": name}, _CODEC_IDS, st.dictionaries(_PARAMETERS, _JUNK))
_MEMBERS = st.dictionaries(st.sampled_from(sorted(_document())), _JUNK, max_size=3)


@given(_MEMBERS, st.none() | _CODECS, st.lists(_CODECS, max_size=2))
def test_junk_opens_or_is_refused_and_never_fails_otherwise(
    members: dict[str, Any], compressor: Any, filters: list[Any]
) -> None:
    document = {**_document(compressor=compressor, filters=filters), **members}

    try:
        metadata = ArrayMetadata.from_document(document, ".zarray")
    except BrokenData as error:
        assert error.facts()["key"] == ".zarray"  # noqa: PT017 - either outcome will do
    else:
        assert metadata.fill.shape == ()
        assert ArrayMetadata.parse(metadata.to_bytes(), ".zarray").shape == metadata.shape


def test_document_of_no_end_is_refused_unread() -> None:
    with pytest.raises(BadMetadata, match="limit"):
        ArrayMetadata.parse(b" " * (MAX_ARRAY_BYTES + 1), ".zarray")


def test_values_are_counted_before_any_is_made() -> None:
    hostile = b'{"zarr_consolidated_format":1,"metadata":{"x/.zattrs":{"a":[' + b"[]," * (5 << 20) + b"[]]}}}"

    with pytest.raises(BadMetadata, match="more than 8388608 values"):
        parse_consolidated(hostile, ".zmetadata")
