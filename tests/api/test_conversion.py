"""``dtype=``: which conversions there are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hyperslab.api.values_out import converted
from hyperslab.errors import BadParameter, NotRepresentable


def dtype(text: str) -> np.dtype[Any]:
    """numpy's, and by their names those of ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, text, text))


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


SAFE = """
|b1 |u1
>i2 <i2
|u1 same
<u4 same
<i8 <f8
>u8 <f8
>f2 <f4
<f4 same
>f8 <f8
<M8[ns] <i8
>m8[s] <i8
bfloat16 <f4
float8_e5m2 <f4
int4 |i1
"""


@pytest.mark.parametrize(("source", "safe"), rows(SAFE))
def test_safe_is_what_a_typed_array_holds(source: str, safe: str) -> None:
    assert converted("safe", dtype(source)) == (None if safe == "same" else dtype(safe))


@pytest.mark.parametrize("source", ["<c8", "|S3", "<U2", "|V4", "O", [("a", "<i4")]])
def test_what_no_typed_array_holds_is_refused(source: str) -> None:
    with pytest.raises(NotRepresentable):
        converted("safe", np.dtype(source))


def test_no_conversion_is_made_where_none_is_asked_for() -> None:
    assert converted(None, np.dtype("<i4")) is None
    assert converted("<i4", np.dtype("<i4")) is None


SAME_KIND = """
<i4 >i4
<i8 float32
<f8 <f4
<u8 |u1
<M8[D] <M8[ns]
<M8[D] <i8
<f4 <c16
<f4 bfloat16
bfloat16 <f4
bfloat16 <f2
int4 |i1
int2 <i8
int4 <f8
<u8 int4
int4 float8_e5m2
float8_e8m0fnu <c8
"""


@pytest.mark.parametrize(("source", "target"), rows(SAME_KIND))
def test_conversions_of_the_same_kind_are_made(source: str, target: str) -> None:
    assert converted(target, dtype(source)) == dtype(target)


LOSSES = """
<f4 <i4
<c8 <f4
|i1 |u1
<M8[D] <i4
<M8[D] <f8
|S4 <f4
bfloat16 <i4
bfloat16 int4
<f4 int4
int4 |u1
<c8 bfloat16
<M8[s] M8[as]
<M8[s] M8[2147483647as]
<M8[as] M8[2147483647Y]
"""
LACKING = """
float8_e5m2 float8_e8m0fnu
float8_e8m0fnu float4_e2m1fn
int4 int2
int4 <m8[s]
"""


@pytest.mark.parametrize(("source", "target"), rows(LOSSES + LACKING.lstrip()))
def test_conversions_that_lose_the_meaning_or_that_ml_dtypes_lacks_are_refused(source: str, target: str) -> None:
    """Among them those between units of time that are too far apart."""
    with pytest.raises(NotRepresentable) as refused:
        converted(target, dtype(source))
    assert ("ml_dtypes has this" in str(refused.value)) == ([source, target] in rows(LACKING))


UNKNOWN = "<i3 O object |S3 |V4 i4,i4 (2,)i4 bfloat17 float4_nonsense [1] < a5 <f16 <c32 longdouble M8[01s] <m8[01ns]"


@pytest.mark.parametrize("text", ["", "<f4 ", "M8[s/2]", "M8[", *UNKNOWN.split()])
def test_an_unknown_dtype_is_refused(text: str) -> None:
    with pytest.raises(BadParameter):
        converted(text, np.dtype("<i4"))
