"""``dtype=``: which conversions there are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hyperslab.api.values_out import converted
from hyperslab.errors import BadParameter, NotRepresentable


@pytest.mark.parametrize(
    ("source", "safe"),
    [
        ("|b1", "|u1"),
        (">i2", "<i2"),
        ("|u1", None),
        ("<u4", None),
        ("<i8", "<f8"),
        (">u8", "<f8"),
        (">f2", "<f4"),
        ("<f4", None),
        (">f8", "<f8"),
        ("<M8[ns]", "<i8"),
        (">m8[s]", "<i8"),
        (ml_dtypes.bfloat16, "<f4"),
        (ml_dtypes.float8_e5m2, "<f4"),
        (ml_dtypes.int4, "|i1"),
    ],
)
def test_safe_is_what_a_typed_array_holds(source: str, safe: str | None) -> None:
    assert converted("safe", np.dtype(source)) == (None if safe is None else np.dtype(safe))


@pytest.mark.parametrize("source", ["<c8", "|S3", "<U2", "|V4", "O", [("a", "<i4")]])
def test_what_no_typed_array_holds_is_refused(source: str) -> None:
    with pytest.raises(NotRepresentable):
        converted("safe", np.dtype(source))


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        (None, "<i4", None),
        ("<i4", "<i4", None),
        (">i4", "<i4", ">i4"),
        ("float32", "<i8", "<f4"),
        ("<f4", "<f8", "<f4"),
        ("|u1", "<u8", "|u1"),
        ("<M8[ns]", "<M8[D]", "<M8[ns]"),
        ("<i8", "<M8[D]", "<i8"),
        ("<c16", "<f4", "<c16"),
        ("bfloat16", "<f4", ml_dtypes.bfloat16),
        ("<f4", ml_dtypes.bfloat16, "<f4"),
        ("<f2", ml_dtypes.bfloat16, "<f2"),
        ("|i1", ml_dtypes.int4, "|i1"),
        ("<i8", ml_dtypes.int2, "<i8"),
        ("<f8", ml_dtypes.int4, "<f8"),
        ("int4", "<u8", ml_dtypes.int4),
        ("float8_e5m2", ml_dtypes.int4, ml_dtypes.float8_e5m2),
        ("<c8", ml_dtypes.float8_e8m0fnu, "<c8"),
    ],
)
def test_conversions_of_the_same_kind_are_made(text: str | None, source: str, target: str | None) -> None:
    assert converted(text, np.dtype(source)) == (None if target is None else np.dtype(target))


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("<i4", "<f4"),
        ("<f4", "<c8"),
        ("|u1", "|i1"),
        ("<i4", "<M8[D]"),
        ("<f8", "<M8[D]"),
        ("<f4", "|S4"),
        ("<i4", ml_dtypes.bfloat16),
        ("int4", ml_dtypes.bfloat16),
        ("int4", "<f4"),
        ("|u1", ml_dtypes.int4),
        ("bfloat16", "<c8"),
    ],
)
def test_conversions_that_lose_the_meaning_are_refused(text: str, source: str) -> None:
    with pytest.raises(NotRepresentable):
        converted(text, np.dtype(source))


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("float8_e8m0fnu", ml_dtypes.float8_e5m2),
        ("float4_e2m1fn", ml_dtypes.float8_e8m0fnu),
        ("int2", ml_dtypes.int4),
        ("<m8[s]", ml_dtypes.int4),
    ],
)
def test_conversions_that_ml_dtypes_lacks_are_refused(text: str, source: str) -> None:
    with pytest.raises(NotRepresentable, match="ml_dtypes has this"):
        converted(text, np.dtype(source))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x4",
        "<i3",
        "O",
        "object",
        "|S3",
        "|V4",
        "i4,i4",
        "(2,)i4",
        "<f4 ",
        "bfloat17",
        "float4_nonsense",
        "[1]",
        "<",
        "a5",
        "<f16",
        "<c32",
        "longdouble",
        "M8[0s]",
        "<m8[00ns]",
        "M8[s/0]",
        "M8[",
    ],
)
def test_an_unknown_dtype_is_refused(text: str) -> None:
    with pytest.raises(BadParameter):
        converted(text, np.dtype("<i4"))


@pytest.mark.parametrize(
    ("text", "source"), [("M8[as]", "<M8[s]"), ("M8[2147483647as]", "<M8[s]"), ("M8[2147483647Y]", "<M8[as]")]
)
def test_units_of_time_that_are_too_far_apart_are_refused(text: str, source: str) -> None:
    with pytest.raises(NotRepresentable):
        converted(text, np.dtype(source))
