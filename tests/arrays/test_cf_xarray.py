"""CF decoding of what `Dataset.to_zarr` writes, in both formats: `xarray.open_zarr` is the oracle."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hyperslab.arrays.service import Service
from hyperslab.errors import NotRepresentable
from tests.arrays.support import open_array, read_all, service_on

INTEGERS = ("i1", "u1", "i2", ">i2", "u2", "i4", "u4", "i8", "u8")
FLOATS = ("f2", "f4", ">f4", "f8")
UNITS = (
    *("days", "day", "Days", "DAYS", "d", "hours", "hour", "hr", "hrs", "h", "minutes", "minute", "min", "mins"),
    *("seconds", "second", "Seconds", "sec", "secs", "s", "milliseconds", "msec", "ms", "microseconds", "microsec"),
    *("nanoseconds", "nanosecond", "months", "common_years", "years", "weeks"),
)
REFERENCES = (
    *(
        "2000-01-01",
        "2000-1-1",
        "1-1-1",
        "0001-01-01 00:00:00",
        "2-3-4",
        "1970-01-01T00:00:00Z",
        "1900-01-01 00:00:0.0",
    ),
    *("2010-06-01 00:00:00 +02:00", "1968-5-23 00:00:00 UTC", "1850-02-28T12:30", "1582-10-15", "1582-10-04"),
    *("2000-01-01 06:00:00.5", "2261-01-01", "2300-01-01", "-4712-01-01 12:00:00"),
    *("2000-02-30", "yesterday", "0000-01-01", "1500-02-29", "1999-12-31T23:59:59+00:00"),
)
PANDAS_ALONE = (
    *("20000101", "2000", "2000-01", "01-JAN-1900 00:00:00", "1 January 2000", "2000/1/1 12:00", "13.02.2000"),
    *("1970-01-01T00:00:00.123456789", "1992-10-8 15:15:42.5 -6:00", "2000-01-01 12"),
)
"""Reference dates that cftime cannot read, or not all of, so that xarray reads them for some units alone."""
CALENDARS = (
    *(None, "standard", "gregorian", "Proleptic_Gregorian", "noleap", "365_day", "360_day", "julian", "all_leap"),
    *("", "martian", "none"),
)
Variable = tuple[np.ndarray[Any, Any], dict[str, Any]]


@st.composite
def numbers(draw: st.DrawFn, dtype: str) -> np.ndarray[Any, Any]:
    """Few different values, so that some are missing ones; a scalar, nothing, or a row."""
    kind = np.dtype(dtype)
    item: st.SearchStrategy[Any] = st.integers(0 if kind.kind == "u" else -5, 5)
    if kind.kind == "f":
        item = st.one_of(item.map(lambda n: n / 4), st.just(math.nan))
    elif draw(st.booleans()):
        item = st.one_of(item, st.sampled_from([int(np.iinfo(kind).min), int(np.iinfo(kind).max)]))
    shape = draw(st.sampled_from([(), (0,), (1,), (6,), (6,), (6,)]))
    return np.array(draw(st.lists(item, min_size=math.prod(shape), max_size=math.prod(shape))), kind).reshape(shape)


@st.composite
def packed(draw: st.DrawFn) -> Variable:
    values = draw(numbers(draw(st.sampled_from(INTEGERS + FLOATS))))
    kind, attributes = values.dtype.kind, dict[str, Any]()
    candidates = [*map(int, np.arange(3)), *([float("nan"), 0.5] if kind == "f" else [int(np.iinfo(values.dtype).max)])]
    fill = draw(st.sampled_from([None, *candidates, *values.ravel()[:2].tolist()]))
    if fill is not None:
        attributes["_FillValue"] = values.dtype.type(fill)
    for name, choices in (("scale_factor", (0.01, 2.5, 3)), ("add_offset", (280.0, -0.5, 7))):
        if draw(st.booleans()) and (kind != "f" or name == "add_offset"):
            attributes[name] = draw(st.sampled_from(choices))
    if draw(st.booleans()) and values.dtype.isnative:
        attributes["missing_value"] = draw(st.sampled_from([1, [1, 2], [2, 1]]))
    if kind in "iu" and values.dtype.isnative and "missing_value" not in attributes and draw(st.booleans()):
        attributes["_Unsigned"] = draw(st.sampled_from(["true", "false"]))
    elif kind in "iu" and fill is None and not attributes and draw(st.booleans()):
        attributes["dtype"] = "bool"
    attributes["units"] = draw(st.sampled_from(["K", "1", "mm", "days"]))
    return values, attributes


@st.composite
def times(draw: st.DrawFn) -> Variable:
    unit = draw(st.sampled_from(UNITS))
    values = draw(numbers(draw(st.sampled_from(["i2", "i4", "i8", "u4", "f4", "f8"]))))
    if values.dtype.kind == "f":
        values = np.ma.fix_invalid(values * draw(st.sampled_from([1, 1000.1, 1234.5])), fill_value=np.nan).data
    elif values.dtype.itemsize > 2 and np.abs(values.astype("f8")).max(initial=0) < 6:
        values = values * values.dtype.type(draw(st.sampled_from([1, 1000, 146_000])))
    calendar = draw(st.sampled_from(CALENDARS))
    known = unit.lower().rstrip("s") in ("day", "hour", "minute", "second") and calendar in CALENDARS[:4]
    since = draw(st.sampled_from(REFERENCES + (PANDAS_ALONE if known else ())))
    attributes: dict[str, Any] = {"units": f"{unit} since {since}"}
    if calendar is not None:
        attributes["calendar"] = calendar
    if draw(st.booleans()) and values.size:
        attributes["_FillValue"] = values.ravel()[0]
    return values, attributes


def in_xarray(folder: Path, name: str, zarr_format: int, *, decode_times: bool) -> np.ndarray[Any, Any] | None:
    """What xarray reads; None if it cannot."""
    others = {other.name for other in folder.iterdir()} - {name}
    try:
        opened = xarray.open_zarr(
            folder, chunks=None, consolidated=False, zarr_format=zarr_format, decode_timedelta=False,
            decode_times=decode_times, drop_variables=sorted(others),
        )  # fmt: skip
        return np.asarray(opened[name].values)
    except (ValueError, TypeError, OverflowError):
        return None


def in_ours(service: Service, name: str) -> np.ndarray[Any, Any] | None:
    """What we decode, in microseconds where nanoseconds cannot hold it; None if these cannot either."""
    decoder, stored = open_array(service, f"data/{name}").decoder, read_all(service, f"data/{name}")
    for dtype in (decoder.dtype, np.dtype("<M8[us]")):
        try:
            found = decoder.to(dtype)(stored)
        except NotRepresentable:
            continue
        assert found.dtype == (dtype if decoder.dtype.kind == "M" else decoder.dtype)
        return found
    return None


def same(ours: np.ndarray[Any, Any] | None, theirs: np.ndarray[Any, Any], stored: np.ndarray[Any, Any]) -> bool:
    """Whether values and dtypes are equal; dates of cftime are text of ours, or datetimes that hold them.

    ``stored`` are xarray's numbers. It takes a missing one for the reference date where cftime counts.
    """
    missing = np.isnan(stored.ravel()) if stored.dtype.kind == "f" else np.zeros(stored.size, bool)
    if theirs.dtype == object:
        texts = [date.isoformat() for date in theirs.ravel()]
        if ours is None or ours.dtype.kind == "M":
            try:
                expected = np.array(texts, "<M8[us]")
            except ValueError:  # a day that the Julian calendar alone has
                return ours is None
        else:
            expected = np.array(texts, "<U32")
    else:
        if ours is None or ours.dtype.newbyteorder("=") != theirs.dtype:
            return False
        if theirs.dtype.kind != "M":
            return bool(np.array_equal(ours, theirs, equal_nan=theirs.dtype.kind in "fc"))
        expected = theirs.ravel()
    if ours is None:
        return False
    found = ours.ravel()
    hidden = found == "NaT" if found.dtype.kind == "U" else np.isnat(found)
    none = missing | (np.isnat(expected) if expected.dtype.kind == "M" else False)
    return bool(np.array_equal(hidden, none) and np.array_equal(found[~none], expected[~none]))


@pytest.mark.filterwarnings("ignore")
@given(variables=st.lists(packed() | times(), min_size=3, max_size=6))
@settings(
    max_examples=16, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
)  # shrinking takes minutes
def test_values_are_those_of_xarray_in_both_formats(
    variables: list[Variable], tmp_path_factory: pytest.TempPathFactory
) -> None:
    for zarr_format in (2, 3):
        folder = tmp_path_factory.mktemp("cf")
        data = xarray.Dataset()
        for number, (values, attributes) in enumerate(variables):
            dims = [f"d{size}" for size in values.shape]
            data[f"v{number}"] = xarray.Variable(dims, values, attributes)
        data.to_zarr(folder, zarr_format=zarr_format, consolidated=False)
        with service_on(folder, writable=False) as service:
            for name, variable in data.variables.items():
                decoder = open_array(service, f"data/{name}").decoder
                theirs = in_xarray(folder, str(name), zarr_format, decode_times=True)
                plain = in_xarray(folder, str(name), zarr_format, decode_times=False)
                ours = in_ours(service, str(name))
                about = zarr_format, variable, theirs, ours, decoder
                if theirs is not None and plain is not None:
                    assert same(ours, theirs, plain), about
                    assert decoder.problems == (), about
                elif decoder.problems and plain is not None:
                    assert same(ours, plain, plain), about


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_spans_of_time_are_numbers_of_their_unit_and_missing_ones_are_missing(tmp_path: Path, zarr_format: Any) -> None:
    spans = np.array([1, "NaT", 36], "m8[h]").astype("m8[ns]")
    xarray.Dataset({"lead": ("x", spans)}).to_zarr(tmp_path, zarr_format=zarr_format, consolidated=False)
    with service_on(tmp_path, writable=False) as service:
        decoder = open_array(service, "data/lead").decoder

        np.testing.assert_array_equal(decoder(read_all(service, "data/lead")), [1, np.nan, 36])
        assert decoder.document(open_array(service, "data/lead").attributes)["unit"] == "hours"
