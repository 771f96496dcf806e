"""Metadata documents: what opens, what does not and why, and what survives being written back."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab.engine.codec_config import CODECS
from hyperslab.engine.fill_value import format_fill_value, zero_item
from hyperslab.engine.jsontext import dump_json, parse_json
from hyperslab.engine.metadata import (
    MAX_ARRAY_BYTES,
    ArrayMetadata,
    parse_attributes,
    parse_consolidated,
    parse_group,
)
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
    "compressor": ["", {"id": None}, {"id": "zlib", "level": "1"}, {"id": "zlib", "nope": 1}],
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


def test_chunk_of_an_empty_axis_may_be_zero() -> None:
    metadata = _parse(shape=[0, 5], chunks=[0, 5])

    assert metadata.chunks == (1, 5)
    assert json.loads(metadata.to_bytes())["chunks"] == [0, 5]


def test_empty_list_of_filters_is_no_filters_and_written_as_null() -> None:
    metadata = _parse(filters=[])

    assert metadata.filters is None
    assert metadata.document["filters"] == []
    assert json.loads(metadata.to_bytes())["filters"] is None


def test_bare_nan_is_read_and_written_as_a_string() -> None:
    data = dump_json(_document(dtype="<f4", fill_value=1)).replace(b'"fill_value":1', b'"fill_value":NaN')

    metadata = ArrayMetadata.parse(data, ".zarray")

    assert metadata.fill.tobytes().hex() == "0000c07f"
    assert json.loads(metadata.to_bytes())["fill_value"] == "NaN"


def test_resizing_keeps_every_other_member_unknown_ones_included() -> None:
    document = _document(foo={"a": [1, 2**70]}, _nczarr_array={"dimrefs": ["/x"]}, dtype="<u1")

    resized = ArrayMetadata.from_document(document, ".zarray").with_shape((5, 0))

    assert resized.shape == (5, 0)
    assert parse_json(resized.to_bytes()) == {**document, "shape": [5, 0]}


def test_resizing_to_what_cannot_be_is_refused_and_changes_nothing() -> None:
    metadata = _parse()

    for shape in ((-1, 2), (1,), (1, 2, 3)):
        with pytest.raises(BadMetadata):
            metadata.with_shape(shape)
    assert metadata.shape == (20, 30)


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
    fill = data.draw(st.none() | st.just(format_fill_value(zero_item(dtype), dtype)))
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


@settings(max_examples=80, deadline=None)
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


def test_group_may_hold_other_members() -> None:
    document = {"zarr_format": 2, "consolidated_metadata": None}

    assert parse_group(dump_json(document), "a/.zgroup").document == document


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"zarr_format": 3}', b'{"zarr_format": "3"}'])
def test_what_is_no_group_is_refused(text: bytes) -> None:
    with pytest.raises(BadMetadata) as caught:
        parse_group(text, "a/.zgroup")
    assert caught.value.key == "a/.zgroup"


def test_a_group_whose_format_is_text_is_a_group_with_a_problem() -> None:
    """As WEBKNOSSOS writes it; the document stays as it was."""
    found = parse_group(b'{"zarr_format": "2"}', "a/.zgroup")

    assert found.document == {"zarr_format": "2"}
    assert found.problems == ('a/.zgroup: zarr_format: expected 2, found "2"',)


def test_attributes_may_hold_what_old_writers_wrote() -> None:
    text = b'\xef\xbb\xbf{"fill": NaN, "big": 1234567890123456789012, "1": "\\u00e9"}'

    found = parse_attributes(text, ".zattrs")

    assert math.isnan(found.pop("fill"))
    assert found == {"big": 1234567890123456789012, "1": "é"}


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"{", b'"x"'])
def test_attributes_must_be_an_object(text: bytes) -> None:
    with pytest.raises(BadMetadata) as caught:
        parse_attributes(text, "a/.zattrs")
    assert caught.value.key == "a/.zattrs"


@pytest.mark.parametrize(
    ("document", "member"),
    [
        ({"metadata": {}}, "zarr_consolidated_format"),
        ({"zarr_consolidated_format": 2, "metadata": {}}, "zarr_consolidated_format"),
        ({"zarr_consolidated_format": 1}, "metadata"),
        ({"zarr_consolidated_format": 1, "metadata": []}, "metadata"),
        ({"zarr_consolidated_format": 1, "metadata": {"a/.zattrs": 3}}, "metadata['a/.zattrs']"),
    ],
)
def test_consolidated_metadata_that_is_wrong_names_the_member(document: Any, member: str) -> None:
    with pytest.raises(BadMetadata) as caught:
        parse_consolidated(dump_json(document), ".zmetadata")
    assert (caught.value.key, caught.value.member) == (".zmetadata", member)


def test_values_are_counted_before_any_is_made() -> None:
    hostile = b'{"zarr_consolidated_format":1,"metadata":{"x/.zattrs":{"a":[' + b"[]," * (5 << 20) + b"[]]}}}"

    with pytest.raises(BadMetadata, match="more than 8388608 values"):
        parse_consolidated(hostile, ".zmetadata")
