"""Labels select what they select in xarray, whose index is one of pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.wire.labels import parse_label, positions

DAYS = np.datetime64("2001-01-01", "ns") + np.arange(400) * np.timedelta64(1, "D")
LABELS: list[tuple[str, Any]] = [
    ("45", "45"),
    (" 2001-01 .. 2001-03 ", slice("2001-01", "2001-03")),
    ("..9", slice(None, "9")),
    ("1..", slice("1", None)),
    ("1..9..2", slice("1", "9", 2)),
    ("[1, 2,]", ["1", "2"]),
    ('["a,b",c]', ["a,b", "c"]),
    ('"1..2"', "1..2"),
    ('"a\\"..b".."]"', slice('a"..b', "]")),
    ('""', ""),
]

NUMBERS = [np.array([1, 2, 3, 5, 8]), np.array([8.5, 5, 3, 2, -1]), np.array([1, 1, 2, 3]), np.array([3, 1, 2], "f4")]
TEXTS = [np.array(["a", "b", "d"], object), np.array([b"a", b"c"])]
TIMES = [DAYS, DAYS[::-1], DAYS.astype("M8[s]"), DAYS[::7] + np.timedelta64(90, "m")]

numbers: st.SearchStrategy[Any] = st.sampled_from([-5, 0, 1, 2, 3, 3.5, 4, 5, 8, 8.5, 100])
dates = st.sampled_from(["1999", "2001", "2001-02", "2001-01-08", "2001-01-08T01:30", "2001-01-08T02", "2001-12-24"])
instants: st.SearchStrategy[Any] = dates.filter(lambda text: len(text) > 7).map(np.datetime64) | dates


def chosen(values: np.ndarray[Any, Any], label: Any, method: Any = None) -> list[int] | None:
    try:
        found = positions(values, label, method=method)
    except KeyError:
        return None
    return [found] if isinstance(found, int) else [int(at) for at in found]


def expected(values: np.ndarray[Any, Any], label: Any, method: Any = None) -> list[int] | None:
    array = xarray.DataArray(np.arange(values.size), dims="x", coords={"x": values})
    try:
        return np.atleast_1d(array.sel(x=label, method=method).values).tolist() or None
    except KeyError:
        return None


@given(st.sampled_from(NUMBERS), numbers | st.lists(numbers, min_size=1, max_size=3), st.none() | numbers)
def test_a_number_chooses_as_xarray_does(values: np.ndarray[Any, Any], label: Any, end: float | None) -> None:
    repeats, rises = np.unique(values).size < values.size, (np.diff(values) >= 0).all() or (np.diff(values) <= 0).all()
    if not (repeats and isinstance(label, list)):
        assert chosen(values, label) == expected(values, label)
    if (rises or not repeats) and not isinstance(label, list):
        assert (chosen(values, slice(label, end)) or None) == expected(values, slice(label, end))
    if rises and not repeats:
        for method in ("nearest", "pad", "backfill"):
            assert chosen(values, label, method) == expected(values, label, method)


@given(st.sampled_from(TIMES), instants, st.none() | instants)
def test_a_time_chooses_as_xarray_does(values: np.ndarray[Any, Any], label: Any, end: Any) -> None:
    assert chosen(values, label) == expected(values, label)
    if values[0] < values[-1]:  # pandas refuses others
        assert (chosen(values, slice(label, end)) or None) == expected(values, slice(label, end))
    for method in ("nearest", "ffill", "bfill") if len(str(label)) > 12 else ():
        assert chosen(values, label, method) == expected(values, label, method)


@pytest.mark.parametrize(
    "values", [*TEXTS, DAYS - DAYS[5], np.array([False, True])], ids=lambda values: str(values.dtype)
)
def test_a_value_of_any_other_kind_chooses_itself(values: np.ndarray[Any, Any]) -> None:
    for at, label in enumerate(values):
        assert chosen(values, label) == [at]


def test_dates_in_text_and_times_that_the_coordinate_cannot_hold() -> None:
    noleap = np.array(["2001-02-27T00:00:00", "2001-02-28T00:00:00", "2001-03-01T00:00:00"], object)

    assert positions(noleap, slice("2001-02-28", "2001-03"), dates=True) == range(1, 3)
    assert positions(noleap, "2001-02", dates=True) == range(2)
    assert positions(DAYS, slice("1000", "9999")) == range(400)


@pytest.mark.parametrize(
    ("values", "label", "method", "message"),
    [
        (NUMBERS[0], "x", None, "'x' is no label"),
        (NUMBERS[0], float("nan"), None, "nan is no label"),
        (DAYS, "yesterday", None, "'yesterday' is no label"),
        (DAYS, 5, None, "5 is no label"),
        (DAYS, np.datetime64("NaT", "s"), None, "NaT.* is no label"),
        (TEXTS[0], "c", "nearest", "needs numbers or times"),
        (NUMBERS[0], slice(1, 2), "nearest", "not with a slice"),
    ],
)
def test_what_is_no_label_is_named(values: np.ndarray[Any, Any], label: Any, method: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        positions(values, label, method=method)


def test_a_range_in_no_order_and_one_of_a_list_that_is_several_are_refused() -> None:
    with pytest.raises(KeyError, match="in no order"):
        positions(DAYS[[2, 0, 1]], slice("2001-01-01", "2001-01-02"))
    with pytest.raises(KeyError, match=r"no value is 1\.5"):
        positions(NUMBERS[3], slice(1.5, 2))
    with pytest.raises(KeyError, match="several positions"):
        positions(NUMBERS[2], [1, 2])


@pytest.mark.parametrize(("text", "label"), LABELS)
def test_the_text_of_a_label_is_parsed(text: str, label: Any) -> None:
    assert parse_label(text) == label


@pytest.mark.parametrize("text", ["", "[1,,2]", "1..2..0", "1..2..3..4", '"a', '"a"b'])
def test_a_text_that_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_label(text)


@given(st.sampled_from(["0 days", "2 days", "48h", "1D", "90 min", "26h"]), st.sampled_from(["3 days", "60h", "200 s"]))
def test_a_duration_chooses_as_xarray_does(label: str, end: str) -> None:
    values = np.arange(100) * np.timedelta64(1, "h")

    assert chosen(values, label) == expected(values, label)
    assert (chosen(values, slice(label, end)) or None) == expected(values, slice(label, end))
