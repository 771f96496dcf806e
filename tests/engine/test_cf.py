"""CF decoding: xarray and cftime are the oracles."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import cftime
import numpy as np
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st
from xarray.backends.zarr import FillValueCoder

from hyperslab.engine.cf import Decoder, Flag, format_fill, make_decoder, parse_fill
from hyperslab.errors import NotRepresentable

DTYPES = ("|i1", "|u1", "<i2", ">i2", "<u2", "<i4", "<u4", ">f4", "<f4", "<f8", "<i8")
NUMBERS = st.sampled_from([0.01, -2.5, 0.1, 280.0, 1.5, 1e-7])


def oracle(values: np.ndarray, attributes: dict[str, Any], fill: Any = None) -> Any:
    """What `xarray.open_zarr` makes of it, which takes a fill value for a ``_FillValue``."""
    attributes = attributes if fill is None else {**attributes, "_FillValue": fill}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = xarray.conventions.decode_cf_variable(
            "x", xarray.Variable("x", values, attributes), decode_timedelta=False
        )
        return found.values


@st.composite
def packed(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, Any], Any]:
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    low, high = (-100, 100) if dtype.kind != "u" else (0, 127)
    item = st.integers(low, high).map(lambda n: n / 4 if dtype.kind == "f" else n)
    values = np.array(draw(st.lists(item, max_size=20)), dtype)
    attributes: dict[str, Any] = {}
    for name in ("scale_factor", "add_offset"):
        if draw(st.booleans()):
            attributes[name] = draw(NUMBERS)
    for name in ("_FillValue", "missing_value"):
        if draw(st.booleans()):
            attributes[name] = draw(item)
    if "missing_value" in attributes and draw(st.booleans()):
        attributes["missing_value"] = [attributes["missing_value"], draw(item)]
    if draw(st.booleans()):
        attributes["units"] = draw(st.sampled_from(["K", "1", "days"]))
    if (
        dtype.kind in "iu"
        and dtype.isnative
        and dtype.itemsize < 8
        and draw(st.booleans())
        and "missing_value" not in attributes
    ):
        attributes["_Unsigned"] = draw(st.sampled_from(["true", "false"]))
    fill = draw(st.none() | item)
    if fill is not None and dtype.kind == "f" and draw(st.booleans()):
        fill = math.nan
    return values, attributes, None if fill is None else np.array(fill, dtype)


@given(packed())
def test_packed_values_are_those_of_xarray(case: tuple[np.ndarray, dict[str, Any], Any]) -> None:
    values, attributes, fill = case
    if fill is not None:
        attributes.pop("_FillValue", None)  # xarray's writer keeps one of them
    expected = oracle(values, attributes, None if fill is None else fill[()])
    decoder = make_decoder(values.dtype, attributes, fill)

    found = decoder(values)

    np.testing.assert_array_equal(found, expected)
    assert found.dtype.newbyteorder("=") == expected.dtype
    assert found.dtype == decoder.dtype


@given(
    st.sampled_from(["days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds", "D", "s"]),
    st.sampled_from(["2000-1-1", "1970-01-01 06:00:00", "1850-02-28T12:30:00Z", "2010-06-01 00:00:00 +02:00"]),
    st.sampled_from(["standard", "gregorian", "PROLEPTIC_GREGORIAN", None]),
    st.lists(st.integers(-20_000, 20_000), min_size=1, max_size=9),
    st.sampled_from(["<i4", "<f8", ">f4", "<i8"]),
)
def test_times_of_the_standard_calendar_are_those_of_xarray(
    unit: str, since: str, calendar: str | None, counts: list[int], dtype: str
) -> None:
    values = np.array(counts, dtype) / (4 if dtype[1] == "f" else 1)
    values = values.astype(dtype)
    attributes = {"units": f"{unit} since {since}"} | ({"calendar": calendar} if calendar else {})

    found = make_decoder(values.dtype, attributes)(values)

    np.testing.assert_array_equal(found, oracle(values, attributes))
    assert found.dtype == "<M8[ns]"


@pytest.mark.parametrize(
    ("units", "calendar"),
    [
        ("days since 2000-1-1", "noleap"),
        ("days since 2000-1-1", "365_day"),
        ("hours since 0001-01-01", "360_day"),
        ("months since 2000-01-01", "360_day"),
        ("common_years since 2000-01-01", "noleap"),
        ("days since 1850-01-01 12:00", "all_leap"),
        ("days since 1500-01-01", "julian"),
        ("milliseconds since 2000-1-1", "noleap"),
    ],
)
def test_times_of_other_calendars_are_text_of_cftime(units: str, calendar: str) -> None:
    values = np.array([[0, 1, 59], [60, 365, 366]], "<i4")
    expected = cftime.num2date(values, units, calendar, only_use_cftime_datetimes=True)

    found = make_decoder(values.dtype, {"units": units, "calendar": calendar})(values)

    assert found.tolist() == [[date.isoformat() for date in row] for row in expected]


@pytest.mark.parametrize("calendar", ["standard", "gregorian", "julian", "proleptic_gregorian"])
@pytest.mark.parametrize(
    "since", ["-4712-01-01 12:00:00", "-0001-12-31 23:59:59.999999", "-10-1-1 00:00 -6:00", "0001-01-01", "1582-10-04"]
)
def test_dates_around_year_1_are_cftimes_without_its_warning(calendar: str, since: str) -> None:
    """Which a program could silence only for all of its threads."""
    values = np.array([0, 1, -1, 366, 1_720_000, -1_720_000, 2_299_160, 59.25, -577_735.75, 1 / 3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = cftime.num2date(values, f"days since {since}", calendar, only_use_cftime_datetimes=True)
    filters = [*warnings.filters]

    times = make_decoder(values.dtype, {"units": f"days since {since}", "calendar": calendar}).to(np.dtype("<M8[us]"))
    found = times(values)

    assert found.tolist() == np.array([date.isoformat() for date in expected], found.dtype).tolist()
    assert filters == warnings.filters


@pytest.mark.parametrize(
    ("units", "calendar"),
    [
        *((f"days since {date}", "standard") for date in ("-0000-01-01", "-12345-01-01", "-5-02-30")),
        ("days since -4-02-29", "julian"),
        ("days since 2000-01-01", "martian"),
        ("days since 2000-01-01", ""),
        ("months since 2000-01-01", "standard"),
        ("nanoseconds since 2000-01-01", "noleap"),
        ("days since yesterday", "noleap"),
        ("days since 2000-02-30", "standard"),
        ("days since 111111111111111111111111111111m", "standard"),
        ("days since 0000-01-01", "standard"),
    ],
)
def test_times_that_nobody_can_tell_stay_numbers(units: str, calendar: str) -> None:
    decoder = make_decoder(np.dtype("<i4"), {"units": units, "calendar": calendar})

    assert not decoder.changes
    assert re.fullmatch(
        rf"units '{units}' of calendar '{calendar}' are no time: the [a-z ]+; numbers stay numbers", decoder.problems[0]
    )


def test_dates_that_nanoseconds_do_not_reach_are_refused_or_told_in_another_unit() -> None:
    decoder = make_decoder(np.dtype("<f8"), {"units": "days since 0001-01-01", "calendar": "proleptic_gregorian"})
    values = np.array([0, 730_119, np.nan])

    assert decoder(values[1:]).tolist()[0] == np.datetime64("2000-01-01", "ns").astype(int)
    with pytest.raises(NotRepresentable, match=r"<M8\[us\]"):
        decoder(values)
    np.testing.assert_array_equal(
        decoder.to(np.dtype("<M8[us]"))(values), np.array(["0001-01-01", "2000-01-01", "NaT"], "<M8[us]")
    )
    assert decoder(np.array(730_119.0)).shape == ()


@pytest.mark.parametrize(
    ("dtype", "attributes", "stored", "expected"),
    [
        ("<i2", {"valid_range": [0, 10]}, [-1, 0, 10, 11], [np.nan, 0, 10, np.nan]),
        ("<f4", {"valid_min": 0}, [-1.5, 2.5], [np.nan, 2.5]),
        ("<i2", {"valid_max": 100, "scale_factor": 0.5}, [100, 101], [50, np.nan]),
        ("<i2", {"valid_range": [0.0, 50.0], "scale_factor": 0.5}, [100, 101, -1], [50, np.nan, np.nan]),
        ("|i1", {"valid_range": [0, -2], "_Unsigned": "true"}, [-1, -2, 5], [np.nan, 254, 5]),
        ("|i1", {"missing_value": -1, "_Unsigned": "true"}, [-1, -2], [np.nan, 254]),
        ("|u1", {"_FillValue": 200, "_Unsigned": "false"}, [200, 255], [np.nan, -1]),
        ("<f4", {"missing_value": 1e20}, [np.float32(1e20), 1], [np.nan, 1]),
        ("<f2", {"missing_value": 1e20}, [np.inf, 1], [np.inf, 1]),
        ("|i1", {"dtype": "bool"}, [0, 1], [False, True]),
    ],
)
def test_what_xarray_leaves_alone_follows_the_conventions(
    dtype: str, attributes: dict[str, Any], stored: list[Any], expected: list[Any]
) -> None:
    np.testing.assert_array_equal(make_decoder(np.dtype(dtype), attributes)(np.array(stored, dtype)), expected)


@pytest.mark.parametrize(
    "attributes",
    [
        {"scale_factor": "0.1"},
        {"scale_factor": 0},
        {"scale_factor": [1, 2]},
        {"scale_factor": math.nan},
        {"add_offset": None, "scale_factor": {"a": 1}},
        {"add_offset": True},
        {"_FillValue": "x"},
        {"_FillValue": 10**400},
        {"missing_value": [[1]]},
        {"valid_range": [3]},
        {"valid_range": [5, 1]},
        {"valid_min": "low"},
        {"flag_values": "0b, 1b", "flag_meanings": "a b"},
        {"flag_values": [0, 1], "flag_meanings": "a"},
        {"flag_masks": [0.5], "flag_meanings": "a"},
        {"flag_masks": [1], "flag_values": [0.5], "flag_meanings": "a"},
        {"_Unsigned": "maybe"},
    ],
)
def test_malformed_attributes_are_problems_and_count_for_nothing(attributes: dict[str, Any]) -> None:
    decoder = make_decoder(np.dtype("<i2"), attributes)

    assert not decoder.changes
    assert not decoder.is_cf
    assert len(decoder.problems) == 1
    np.testing.assert_array_equal(decoder(np.arange(3, dtype="<i2")), [0, 1, 2])


def test_a_good_attribute_counts_beside_a_malformed_one() -> None:
    decoder = make_decoder(np.dtype("<i2"), {"scale_factor": 0.5, "valid_range": "0..9"})

    assert decoder(np.array([3], "<i2")).tolist() == [1.5]
    assert "valid_range" in decoder.problems[0]


def test_flags_have_meanings_and_a_fill_value_that_is_one_of_them_hides_nothing() -> None:
    attributes = {"flag_values": [0, 1], "flag_meanings": "clear cloudy"}
    decoder = make_decoder(np.dtype("|u1"), attributes, np.array(0, "|u1"))

    assert decoder.flags == (Flag("clear", 0), Flag("cloudy", 1))
    assert decoder.is_cf
    assert not decoder.hides
    masks = make_decoder(np.dtype("|u1"), {"flag_masks": [1, 6], "flag_values": [1, 4], "flag_meanings": ["a", "b"]})
    assert masks.flags == (Flag("a", 1, 1), Flag("b", 4, 6))


def test_a_fill_value_alone_hides_what_it_hides_in_xarray_but_no_coordinate() -> None:
    def made(fill: Any, **how: Any) -> Decoder:
        return make_decoder(np.dtype("<i2"), {}, np.array(fill, "<i2"), **how)

    values = np.array([0, -9, 4], "<i2")
    np.testing.assert_array_equal(made(-9)(values), oracle(values, {}, np.int16(-9)))
    assert [made(-9).is_cf, made(-9, named=True).is_cf, made(0, named=True).is_cf] == [False, True, False]
    assert not made(0, coordinate=True).changes


@pytest.mark.parametrize("dtype", ["|b1", "<c8", "<M8[s]", "|S3", "<U2", [("a", "<i2")]])
def test_what_is_no_number_is_left_alone(dtype: Any) -> None:
    decoder = make_decoder(np.dtype(dtype), {"scale_factor": 2.0, "_FillValue": 0, "units": "days since 2000-01-01"})

    assert not decoder.changes
    assert not decoder.is_cf


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        *(("<f4", value) for value in (-9999.0, math.nan, math.inf, float(np.float32(1e20)))),
        *(("|i1", -1), ("<u8", 2**64 - 1), ("<f2", 0.5), (">f8", -0.0), ("<c8", -9 + 1j), ("|b1", False)),
    ],
)
def test_fill_values_of_zarr_v3_are_spelt_as_xarray_spells_them(dtype: str, value: Any) -> None:
    written = FillValueCoder.encode(value, np.dtype(dtype))

    assert format_fill(value, np.dtype(dtype)) == written
    np.testing.assert_equal(parse_fill(written, np.dtype(dtype)), FillValueCoder.decode(written, np.dtype(dtype)))


@pytest.mark.parametrize(
    ("dtype", "given", "found"),
    [
        ("<f4", -9999, -9999),
        ("<f8", "NaN", math.nan),
        ("<f8", "AAAA", None),
        ("<f8", "eA==", None),
        ("<f8", [1.5], None),
        ("<i2", 5.0, 5),
        ("<i2", math.nan, None),
        ("<i2", "AAAAAAAA8D8=", None),
        ("<c8", ["AAAAAAAA8D8=", "x"], None),
        ("<c8", 2, 2 + 0j),
        ("|b1", 1, None),
        ("<U3", "abc", None),
    ],
)
def test_other_spellings_of_a_fill_value_are_numbers_or_nothing(dtype: str, given: Any, found: Any) -> None:
    np.testing.assert_equal(parse_fill(given, np.dtype(dtype)), found)


def test_a_decoder_of_zarr_v3_hides_its_own_fill_value_and_says_what_it_cannot_read() -> None:
    missing = {"_FillValue": format_fill(-9.0, np.dtype("<f4"))}
    np.testing.assert_array_equal(
        make_decoder(np.dtype("<f4"), missing, v3=True)(np.array([-9, 0], "<f4")), [np.nan, 0]
    )
    pair = {"_FillValue": format_fill(1 + 1j, np.dtype("<c8"))}
    found = make_decoder(np.dtype("<c8"), pair, v3=True)(np.array([1 + 1j, 1], "<c8"))
    assert np.isnan([found[0].real, found[0].imag]).all()
    assert found[1] == 1
    assert "_FillValue" in make_decoder(np.dtype("<f4"), {"_FillValue": "?"}, v3=True).problems[0]
    both = make_decoder(np.dtype("<i2"), {"_FillValue": -1}, np.array(0, "<i2"))
    assert both(np.array([-1, 0, 1], "<i2")).tolist()[2] == 1
    assert "both" in both.problems[0]


@pytest.mark.parametrize("dtype", ["<i8", "<u8", "<f8"])
@pytest.mark.parametrize("calendar", ["standard", "noleap"])
def test_counts_of_no_date_are_refused_or_stay_numbers(dtype: str, calendar: str) -> None:
    """numpy 2.5 raises where it wrapped around."""
    info = np.iinfo(dtype) if dtype[1] != "f" else np.finfo(dtype)
    values = np.array([info.max, 0], dtype)
    decoder = make_decoder(values.dtype, {"units": "days since 2000-01-01", "calendar": calendar})

    if calendar == "noleap":
        assert decoder(values).tolist() == [str(values[0])[:32], "2000-01-01T00:00:00"]
        return
    for unit in ("<M8[ns]", "<M8[us]", "<M8[D]", "<M8[ps]"):
        with pytest.raises(NotRepresentable):
            decoder.to(np.dtype(unit))(values)


@pytest.mark.parametrize("unit", ["<M8[ps]", "<M8[fs]"])
def test_a_finer_unit_that_does_not_reach_a_date_is_refused(unit: str) -> None:
    decoder = make_decoder(np.dtype("<i4"), {"units": "days since 2000-01-01"})

    with pytest.raises(NotRepresentable, match=r"fewer years"):
        decoder.to(np.dtype(unit))(np.array([0], "<i4"))


def test_floats_that_are_far_from_their_reference_date_keep_their_date() -> None:
    """500 years of nanoseconds are more than 64 bits hold."""
    values = np.array([146_097.5, 0.25])

    found = make_decoder(values.dtype, {"units": "days since 1800-01-01"})(values)

    np.testing.assert_array_equal(found, np.array(["2200-01-01T12", "1800-01-01T06"], "<M8[ns]"))


@pytest.mark.parametrize("calendar", ["standard", "noleap", "julian", "360_day"])
def test_short_names_of_units_count_as_the_long_ones(calendar: str) -> None:
    def decoded(units: str) -> list[Any]:
        attributes = {"units": f"{units} since 2000-01-01", "calendar": calendar}
        return list(make_decoder(np.dtype("f8"), attributes, None, v3=True)(np.array([0, 1.5, 86_400e6])))

    assert decoded("us") == decoded("microseconds")
    assert decoded("US") == decoded("us")
    if calendar == "standard":
        assert decoded("ns") == decoded("nanoseconds")
