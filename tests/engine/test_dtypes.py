"""Zarr v2 dtypes to numpy: every accepted spelling, every refused one, and bits that have no meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.engine.dtypes import MAX_FIELDS, canonical_json, parse_dtype
from tests.conformance.vectors import Case, case_id, cases
from tests.engine.dtype_strategies import structured_dtypes

_ACCEPTED = [case for case in cases("dtypes") if case["expect"]["accept"]]
_READ_BY_ZARR_2 = [case for case in _ACCEPTED if case["refs"]["zarr2"]["accept"]]
_IN_NUMPY = [c for c in _READ_BY_ZARR_2 if not any(s in str(c["dtype"]) for s in ("float", "int2", "int4", "''"))]


@pytest.mark.parametrize("case", _IN_NUMPY, ids=case_id)
def test_numpy_dtype_is_the_one_that_zarr_python_reads(case: Case) -> None:
    assert parse_dtype(case["dtype"]).numpy == _from_descr(case["refs"]["zarr2"]["numpy"])


@pytest.mark.parametrize("case", [c for c in _ACCEPTED if "ts_dtype" in c["expect"]], ids=case_id)
def test_numpy_dtype_has_the_meaning_that_tensorstore_gives_it(case: Case) -> None:
    names = {"char": "S", "byte": "V"}
    dtype = parse_dtype(case["dtype"]).numpy

    assert names.get(case["expect"]["ts_dtype"], dtype.name) in (dtype.kind, case["expect"]["ts_dtype"])


_TEXTS = ["|S67108865", "<U16777217", "<i04", "<M8[01s]", "<M8[2147483648s]", "<M8[s/7]", "<M8[ns]x", "<i4[ns]", "<O"]
_TEXTS += ["int4 ", "float8_e4m3", "float6_e2m3fn", "<i4\n", "<i٤"]
_STRUCTS: list[Any] = [
    *([], [["", "|V3"]], [["", [["a", "<i4"]]]], [["", "bfloat16"], ["a", "<i4"]], [["a"]], [["a", None]]),
    *([["a", "<i4", shape]] for shape in (None, [True], [2.0], [1] * 65)),
    *([["a", "|V1", [2**62, 4]]], [["a", "|V60000000"], ["b", "|V60000000"]]),
    *([[f"f{i}", "|u1"] for i in range(MAX_FIELDS + 1)], (("a", "<i4"),)),
]


@pytest.mark.parametrize("value", [*_TEXTS, *_STRUCTS], ids=lambda value: str(value)[:30])
def test_spelling_with_no_or_two_meanings_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_dtype(value)


@given(structured_dtypes)
def test_a_structured_dtype_is_the_packed_struct_of_numpy(fields: list[Any]) -> None:
    dtype = parse_dtype(fields)

    assert dtype.numpy == np.dtype([_numpy_field(field) for field in fields])
    assert [field.name for field in dtype.fields] == [field[0] for field in fields]
    for field in dtype.fields:
        assert dtype.numpy[field.name] == np.dtype((field.numpy, field.shape))
        assert dtype.numpy.fields is not None
        assert dtype.numpy.fields[field.name][1] == field.offset


def test_new_arrays_get_the_spelling_that_every_library_reads() -> None:
    assert canonical_json("<u1") == "|u1"
    assert canonical_json(">S3") == "|S3"
    assert canonical_json("<M8[1s]") == "<M8[s]"
    assert canonical_json("bfloat16") == "bfloat16"
    assert canonical_json([["a", ">b1", [2]], ["", "|V1"], ["n", [["i", "<i1"]]]]) == [
        ["a", "|b1", [2]],
        ["", "|V1"],
        ["n", [["i", "|i1"]]],
    ]


def test_clean_returns_the_array_itself_where_there_is_nothing_to_do() -> None:
    for text, values in (("<i4", [1, 2]), ("|b1", [True, False]), ("int4", [0, 7])):
        dtype = parse_dtype(text)
        array = np.array(values, dtype.numpy)

        assert dtype.clean(array) is array


@given(st.binary(min_size=24, max_size=24))
def test_clean_reaches_into_nested_fields_and_subarrays_and_spares_the_rest(raw: bytes) -> None:
    dtype = parse_dtype(
        [["x", "<u2"], ["n", [["b", "|b1", [2]], ["i", "int4"]]], ["", "|V1"], ["b", "|b1"], ["v", "|V1"]]
    )
    stored = np.frombuffer(raw, dtype.numpy)

    cleaned = dtype.clean(stored)

    assert np.all(cleaned["n"]["b"].view(np.uint8) <= 1)
    np.testing.assert_array_equal(cleaned["n"]["b"], stored["n"]["b"].view(np.uint8) != 0)
    np.testing.assert_array_equal(cleaned["b"], stored["b"].view(np.uint8) != 0)
    np.testing.assert_array_equal(cleaned["n"]["i"].view(np.int8), stored["n"]["i"].astype(np.int8))
    assert cleaned["x"].tobytes() == stored["x"].tobytes()
    assert cleaned["v"].tobytes() == stored["v"].tobytes()
    assert stored.tobytes() == raw


def _from_descr(descr: Any) -> np.dtype[Any]:
    if isinstance(descr, str):
        return np.dtype(descr)
    return np.dtype([(name, _from_descr(base), *(tuple(sizes) for sizes in shape)) for name, base, *shape in descr])


def _numpy_field(field: list[Any]) -> tuple[Any, ...]:
    name, base, *shape = field
    numpy = np.dtype([_numpy_field(inner) for inner in base]) if isinstance(base, list) else parse_dtype(base).numpy
    return (name, numpy, *(tuple(sizes) for sizes in shape))
