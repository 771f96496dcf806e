"""Reduction against a model that visits item by item with Python's own numbers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hyperslab.streams import pyramid
from hyperslab.streams.pyramid import METHODS, reduce

INTEGERS = [np.dtype(order + kind) for kind in ("i1", "u2", "i4", "u8", "i8") for order in "<>"]
FLOATS = [np.dtype(kind) for kind in ("<f2", ">f4", "<f8")]
SHAPES = [(2, 2), (5, 7), (1, 6), (3, 5, 4), (2, 3, 3, 5)]


def blocks(a: np.ndarray, axes: tuple[int, ...]) -> dict[tuple[int, ...], list[Any]]:
    """For each item of the reduced array those that it stands for, as Python's own values, first in front."""
    found: dict[tuple[int, ...], list[Any]] = {}
    for index in np.ndindex(a.shape):
        target = tuple(i // 2 if axis in axes else i for axis, i in enumerate(index))
        found.setdefault(target, []).append(a[index].item())
    return found


def smallest_of_the_most_frequent(items: list[Any]) -> Any:
    counts = Counter(items)
    return min(item for item, count in counts.items() if count == max(counts.values()))


def exact_mean(items: list[Any]) -> int:
    return round(Fraction(sum(items), len(items)))


MODEL: dict[str, Callable[[list[Any]], Any]] = {
    "decimate": lambda items: items[0],
    "nearest": lambda items: items[0],
    "mean": exact_mean,
    "min": min,
    "max": max,
    "mode": smallest_of_the_most_frequent,
}


def check(a: np.ndarray, method: str, axes: tuple[int, ...], model: Callable[[list[Any]], Any]) -> None:
    got = reduce(a, method, axes)

    assert got.dtype == a.dtype
    assert got.shape == tuple(-(-size // 2) if axis in axes else size for axis, size in enumerate(a.shape))
    assert {index: got[index].item() for index in np.ndindex(got.shape)} == {
        index: model(items) for index, items in blocks(a, axes).items()
    }


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
def test_integers_are_reduced_exactly(method: str, data: st.DataObject) -> None:
    dtype, shape = data.draw(st.sampled_from(INTEGERS)), data.draw(st.sampled_from(SHAPES))
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    edges = st.sampled_from([low, low + 1, low + 2, high - 2, high - 1, high])
    few = st.integers(max(low, -2), 2)
    a = data.draw(hnp.arrays(dtype, shape, elements=st.one_of(edges, few)))
    axes = data.draw(st.sampled_from([c for n in (1, 2, 3) for c in itertools.combinations(range(len(shape)), n)]))

    check(a, method, axes, MODEL[method])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
@settings(max_examples=15)
def test_floats_are_reduced_in_double_precision(method: str, dtype: np.dtype[Any], data: st.DataObject) -> None:
    a = data.draw(hnp.arrays(dtype, (3, 5, 4), elements={"allow_nan": False, "min_value": -1000, "max_value": 1000}))

    def mean(items: list[float]) -> float:
        return float(dtype.type(math.fsum(items) / len(items)))

    if method == "mean" and dtype.itemsize == 8:
        expected = {index: mean(items) for index, items in blocks(a, (0, 1, 2)).items()}
        got = reduce(a, method, (0, 1, 2))
        assert all(math.isclose(got[index], value, abs_tol=1e-9) for index, value in expected.items())
    else:
        check(a, method, (0, 1, 2), mean if method == "mean" else MODEL[method])


def test_nan_wins_but_is_one_value_among_others_for_a_mode() -> None:
    a = np.array([[np.nan, 1, np.nan, np.nan], [3, 1, 2, 5]], "<f4")

    for method in ("mean", "min", "max"):
        assert np.isnan(reduce(a, method, (0, 1))).all()
    np.testing.assert_array_equal(reduce(a, "mode", (0, 1)), np.array([[1, np.nan]], "<f4"))
    np.testing.assert_array_equal(reduce(a, "nearest", (0, 1)), np.array([[np.nan, np.nan]], "<f4"))


@pytest.mark.parametrize(
    ("method", "items", "expected"),
    [
        ("min", [True, True, False, True], False),
        ("max", [False, False, True, False], True),
        ("mode", [True, False, False, True], False),
        ("mean", [1 + 2j, 3 - 2j, 0, 0], 1),
        ("mode", [2j, 1 + 9j, 1 + 9j, 2j], 2j),
        ("min", ["b", "a", "c", "d"], "a"),
        ("mode", [b"b", b"b", b"a", b"a"], b"a"),
        ("max", np.array([1, "NaT", 3, 4], "M8[s]"), np.datetime64("NaT", "s")),
        ("min", np.array([5, 3, 4, 9], "m8[us]"), np.timedelta64(3, "us")),
        ("mode", np.array([5, 3, 4, 5], "M8[ns]"), np.datetime64(5, "ns")),
        ("mode", np.array([(1, 2.0), (0, 3.0), (1, 2.0), (0, 1.0)], [("a", "<i2"), ("b", "<f4")]), (1, 2.0)),
        ("decimate", np.array([(1, [1, 2])] * 4, [("a", "<i2"), ("b", "<f4", (2,))]), (1, [1, 2])),
        ("mean", np.array([-8, -7, 7, 7], ml_dtypes.int4), 0),
        ("max", np.array([3, 1, 0, 2], ml_dtypes.uint2), 3),
        ("mode", np.array([3, 1, 1, 2], ml_dtypes.bfloat16), 1),
        ("mean", np.array([1, 1.0078125, 1, 1.0078125], ml_dtypes.bfloat16), 1.0),
        ("mean", np.array([448, 1, 1, 1], ml_dtypes.float8_e4m3fn), 112),
    ],
)
def test_other_dtypes_are_reduced_in_their_own(method: str, items: Any, expected: Any) -> None:
    a = np.array(items).reshape(2, 2)

    got = reduce(a, method, (0, 1))

    assert got.dtype == a.dtype
    np.testing.assert_array_equal(got, np.array([[expected]], a.dtype))


def test_means_of_narrow_floats_are_rounded_once() -> None:
    """A little more than half way between 0.5 and the next of bfloat16: float32 would say half way, and that even."""
    a = np.array([[1, 1.0078125], [2.0**-30, 0]], ml_dtypes.bfloat16)

    assert reduce(a, "mean", (0, 1))[0, 0] == ml_dtypes.bfloat16(0.50390625)


def test_large_blocks_are_reduced_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.random.default_rng(0).integers(0, 2**16, (3, 2, 9, 8), dtype=np.uint16)
    whole = {method: reduce(a, method, (2, 3)) for method in METHODS}
    monkeypatch.setattr(pyramid, "_SLAB", 64)

    for method in METHODS:
        np.testing.assert_array_equal(reduce(a, method, (2, 3)), whole[method])


def test_what_is_reduced_is_no_view() -> None:
    a = np.ones((3, 4, 4), np.uint8)

    for method, axes in itertools.product(METHODS, [(1, 2), (0, 1, 2)]):
        assert not np.shares_memory(reduce(a, method, axes), a)
