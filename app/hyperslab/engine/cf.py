"""Decoding of values by the CF conventions: packing, missing values, flags and times.

The results, including dtypes, are those of xarray, except that values outside ``valid_range`` are missing, timedeltas
stay numbers, and times of non-standard calendars are text.
"""

from __future__ import annotations

import base64
import cmath
import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import numpy as np

from hyperslab.errors import NotRepresentable
from hyperslab.wire import is_extension
from hyperslab.wire.items import NON_FINITE

NDArray = np.ndarray[Any, np.dtype[Any]]
DType = np.dtype[Any]

_TIME: Final = np.dtype("<M8[ns]")
_DATE_TEXT: Final = np.dtype("<U32")
_NOT_A_TIME: Final = np.iinfo(np.int64).min
_NANOSECONDS: Final = {
    **dict.fromkeys(("day", "d"), 86_400 * 10**9),
    **dict.fromkeys(("hour", "hr", "h"), 3600 * 10**9),
    **dict.fromkeys(("minute", "min"), 60 * 10**9),
    **dict.fromkeys(("second", "sec", "s"), 10**9),
    **dict.fromkeys(("millisecond", "millisec", "msec", "ms"), 10**6),
    **dict.fromkeys(("microsecond", "microsec", "us"), 10**3),
    **dict.fromkeys(("nanosecond", "ns"), 1),
}
_PANDAS_UNITS: Final = ("day", "hour", "minute", "second", "millisecond", "microsecond", "nanosecond")
"""Units of which xarray lets pandas count; cftime counts others."""
_SPAN_UNITS: Final = tuple([f"{unit}s" for unit in _PANDAS_UNITS])
_CALENDAR_UNITS: Final = {
    "360_day": {"month": 30 * 86_400 * 10**9},
    "noleap": {"common_year": 365 * 86_400 * 10**9},
    "365_day": {"common_year": 365 * 86_400 * 10**9},
}
"""Units that are of one length in these calendars, in nanoseconds."""
Bounds = tuple[float | None, float | None]
"""The least and the greatest valid value, None without."""
_PROLEPTIC: Final = "proleptic_gregorian"
_STANDARD: Final = ("standard", "gregorian", _PROLEPTIC)
_CALENDARS: Final = (*_STANDARD, "julian", "noleap", "365_day", "all_leap", "366_day", "360_day", "tai")
_WITH_JULIAN: Final = ("standard", "gregorian", "julian")
_REFORM: Final = datetime(1582, 10, 15)
"""The first day of the Gregorian calendar."""
_REFORM_DAY: Final = 2_299_161
"""Its Julian day number."""


@dataclass(frozen=True, slots=True)
class Flag:
    """Meaning of a value, or of a value in the bits of ``mask``."""

    meaning: str
    value: int | float
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """Encoding of times as ``units`` (``days since 2000-01-01``) in a calendar; ``step`` is the unit in nanoseconds.

    In a standard calendar ``first`` is the reference date in nanoseconds since 1970, of any size. Floats are cut to
    nanoseconds if ``exact``, else rounded to microseconds, as xarray does by pandas and by cftime.
    """

    units: str
    calendar: str
    step: int
    first: int | None = None
    exact: bool = False

    @property
    def dtype(self) -> DType:
        return _TIME if self.calendar in _STANDARD else _DATE_TEXT

    def decode(self, numbers: NDArray, dtype: DType) -> NDArray:
        """Dates as ``dtype``; raises `NotRepresentable` for dates out of its range."""
        valid = np.isfinite(numbers) if numbers.dtype.kind == "f" else numbers != _NOT_A_TIME
        counts = self._counts(np.where(valid, numbers, numbers.dtype.type(0)), valid)
        if counts is not None:
            return self._convert(np.where(valid, counts, _NOT_A_TIME).view(_TIME), dtype)
        texts = np.full(numbers.shape, "NaT", _DATE_TEXT)
        dates = self._dates(numbers[valid])
        if dtype.kind == "U":  # what is no date stays a number
            texts[valid] = [date or str(number)[:32] for date, number in zip(dates, numbers[valid], strict=True)]
            return texts
        reason = "a time is no date of the Gregorian calendar that numpy can hold"
        if None in dates:
            raise NotRepresentable(self.units, str(dtype), reason)
        texts[valid] = dates
        try:
            return self._convert(texts.astype("<M8[us]"), dtype)
        except ValueError as error:  # a leap day of the Julian calendar
            raise NotRepresentable(self.units, str(dtype), reason) from error

    def _counts(self, numbers: NDArray, valid: NDArray) -> NDArray | None:
        """Nanoseconds since 1970; None if a valid time does not fit into 64 bits, or the calendar is another."""
        first = self.first
        if first is None:
            return None
        if numbers.dtype.kind == "f":
            numbers = numbers.astype(np.float64)
            ends = [float(number) * self.step + first for number in _ends(numbers[valid])]
        else:
            ends = [int(number) * self.step + first for number in _ends(numbers[valid])]
        if any(abs(end) >= 2**63 - 2**12 for end in ends):
            return None
        wrapped = np.array(first % 2**64, np.uint64).view(np.int64)  # sums wrap around, to a result that fits
        if numbers.dtype.kind != "f":
            return numbers.astype(np.int64) * np.int64(self.step) + wrapped
        if not self.exact:
            return _microseconds(numbers, self.step) * np.int64(1000) + wrapped
        whole = np.trunc(numbers) if np.abs(numbers * self.step).max(initial=0) >= 2**63 else np.zeros_like(numbers)
        rest = ((numbers - whole) * self.step).astype(np.int64)
        return whole.astype(np.int64) * np.int64(self.step) + rest + wrapped

    def _convert(self, dates: NDArray, dtype: DType) -> NDArray:
        """Dates in the unit of ``dtype``."""
        try:  # numpy raises from 2.5 on, and wraps around before
            times = dates.astype(dtype)
            is_finer = np.datetime_data(dtype)[0] in ("ns", "ps", "fs", "as")
            if not is_finer or np.array_equal(times.astype(dates.dtype), dates, equal_nan=True):
                return times
        except OverflowError:
            pass
        reason = "the unit holds fewer years than these times have: ask for dtype=<M8[us]"
        raise NotRepresentable(self.units, str(dtype), reason)

    def _dates(self, numbers: NDArray) -> list[str | None]:
        """Dates in ISO 8601; None for what cftime refuses, or 64 bits of microseconds do not reach."""
        if not numbers.size:
            return []
        try:
            if max(abs(end.item()) for end in _ends(numbers)) * self.step < 2**63 * 1000:
                calendar = _PROLEPTIC if self.calendar in _WITH_JULIAN else self.calendar
                dates = np.atleast_1d(_cftime(numbers, self.units, calendar))
                return [_iso(date, self.calendar) for date in dates]
        except (ValueError, OverflowError):
            pass
        return [None] if numbers.size == 1 else [date for number in numbers for date in self._dates(number[None])]


def _ends(numbers: NDArray) -> list[Any]:
    """The least and the greatest number, if there are any."""
    return [numbers.min(), numbers.max()] if numbers.size else []


def _microseconds(numbers: NDArray, step: int) -> NDArray:
    """Floats times ``step`` nanoseconds, in microseconds as cftime rounds them.

    That is to the nearest one, but for what is within a microsecond of a whole second: that is rounded towards it,
    unless the unit is milliseconds or less.
    """
    exact = numbers.astype(np.longdouble) * (step / 1000)
    counts: NDArray = np.rint(exact).astype(np.int64)
    if step > 10**6:
        counts = np.where(counts % 10**6 == 1, np.floor(exact).astype(np.int64), counts)
        counts = np.where(counts % 10**6 == 10**6 - 1, np.ceil(exact).astype(np.int64), counts)
    return counts


def _cftime(numbers: NDArray | int, units: str, calendar: str) -> Any:
    import cftime

    return cftime.num2date(numbers, units, calendar, only_use_cftime_datetimes=True)


def _iso(date: Any, calendar: str) -> str:
    """A date of cftime in ISO 8601; one of the proleptic Gregorian calendar in another with Julian dates, which have no
    year 0. cftime itself warns of years before 1 in these."""
    text: str = date.isoformat()
    if calendar not in _WITH_JULIAN:
        return text
    day = date.toordinal()
    if day >= _REFORM_DAY and calendar != "julian":
        return text
    years, days = divmod(4 * (day + 32_082) + 3, 1461)  # of years that begin on the first of March of -4800
    months, days = divmod(5 * (days // 4) + 2, 153)
    year = years - 4800 + months // 10
    year -= year < 1
    return f"{year:0{4 + (year < 0)}}-{(months + 2) % 12 + 1:02}-{days // 5 + 1:02}T{text.partition('T')[2]}"


def _proleptic(text: str, calendar: str) -> Any:
    """A reference date of a calendar with Julian dates, as one of cftime in the proleptic Gregorian calendar."""
    import cftime

    before = re.match(r"-0*([1-9]\d{0,3})(?!\d)", text)  # the Julian calendar is the same 10,000 years later
    if before is None and text.startswith("-"):
        raise ValueError(text)
    if before is not None:
        text, calendar = f"{10_001 - int(before[1]):04}{text[before.end() :]}", "julian"
    date = _cftime(0, f"microseconds since {text}", calendar)
    day = cftime.datetime.fromordinal(date.toordinal() - 3_652_500 * (before is not None), calendar=_PROLEPTIC)
    return day.replace(hour=date.hour, minute=date.minute, second=date.second, microsecond=date.microsecond)


def _gregorian_date(text: str, calendar: str) -> tuple[datetime, int] | None:
    """A reference date as pandas reads it, in UTC, and its nanoseconds beyond microseconds; None for others, which are
    left to cftime: also of the Julian calendar.

    Years of fewer than four digits come first, and are no abbreviations.
    """
    from dateutil import parser

    def zone(_: str | None, seconds: int | None) -> timezone | None:
        return None if seconds is None else timezone(timedelta(seconds=seconds))

    if not re.search(r"\d{4}", text.partition(":")[0]):
        text = re.sub(r"^\d+(?=[-/. ])", lambda year: year[0].zfill(4), text)
    if text.startswith("-") or not re.search(r"\d{4}", text.partition(":")[0]):
        return None
    try:
        date = parser.parse(text, default=datetime(1, 1, 1), tzinfos=zone)
        date = date if date.tzinfo is None else date.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, ArithmeticError):
        return None
    finer = re.search(r"\d[.,]\d{6}(\d{1,3})", text)
    return (date, int(finer[1].ljust(3, "0")) if finer else 0) if calendar == _PROLEPTIC or date >= _REFORM else None


def is_time(attributes: Mapping[str, Any]) -> bool:
    """Whether ``units`` are those of times, readable or not."""
    units = attributes.get("units")
    return isinstance(units, str) and "since" in units


def _parse_times(units: str, calendar: Any) -> Times | str | None:  # noqa: PLR0911
    """Times of the attribute ``units``; the reason if it cannot be read, None if it is of no times."""
    import cftime

    match = re.fullmatch(r"\s*(\S+)\s+since\s+(.+?)\s*", units, re.DOTALL | re.ASCII)
    if match is None:
        return None
    name = match[1].lower()
    calendar = calendar.lower() if isinstance(calendar, str) else calendar
    if calendar not in _CALENDARS:
        return "the calendar is unknown"
    singular = name.removesuffix("s") if len(name) > 2 else name
    singular = {"us": "microsecond", "ns": "nanosecond"}.get(singular, singular)  # which cftime does not know
    unit = match[1] if name.startswith(singular) else f"{singular}s"
    step = (_NANOSECONDS | _CALENDAR_UNITS.get(calendar, {})).get(singular)
    if step is None or (step == 1 and calendar not in _STANDARD):
        return "the unit is none of this calendar"
    text = f"{unit} since {match[2]}"
    gregorian = _gregorian_date(match[2], calendar) if calendar in _STANDARD else None
    if gregorian is not None:
        first = (gregorian[0] - datetime(1970, 1, 1)) // timedelta(microseconds=1) * 1000 + gregorian[1]
        exact = abs(first) < 2**63 and singular in _PANDAS_UNITS
        return Times(f"{unit} since {gregorian[0].isoformat()}", calendar, step, first, exact)
    try:
        if calendar in _WITH_JULIAN:
            zero = _proleptic(match[2], calendar)
            text = f"{unit} since {zero.isoformat(' ')}"
        else:
            zero = _cftime(0, f"microseconds since {match[2]}", calendar)
        if calendar in _STANDARD:
            microseconds = cftime.date2num(zero, "microseconds since 1970-01-01", _PROLEPTIC)
            return Times(text, calendar, step, int(microseconds) * 1000)
    except (ValueError, OverflowError, TypeError):
        return "the reference date cannot be read"
    return Times(text, calendar, step)


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decoder of stored values of dtype ``source`` to ``dtype``; ``numbers`` is the dtype before conversion to dates.

    Values outside of ``stored_bounds`` are missing, as are unpacked ones outside of ``bounds``. ``is_cf``: attributes
    request decoding, not only a fill value.
    """

    source: DType
    numbers: DType
    dtype: DType
    signed: DType | None = None
    missing: tuple[Any, ...] = ()
    stored_bounds: Bounds = (None, None)
    bounds: Bounds = (None, None)
    scale: int | float | None = None
    offset: float | None = None
    times: Times | None = None
    flags: tuple[Flag, ...] = ()
    is_cf: bool = False
    problems: tuple[str, ...] = ()

    @property
    def is_packed(self) -> bool:
        """Whether values have a scale or an offset."""
        return self.scale is not None or self.offset is not None

    @property
    def changes(self) -> bool:
        """Whether decoded values may differ from stored ones, in value or dtype."""
        return self.dtype != self.source or self.hides or self.is_packed

    @property
    def hides(self) -> bool:
        """Whether some values may be missing."""
        return bool(self.missing) or {*self.stored_bounds, *self.bounds} != {None}

    def without_times(self) -> Decoder:
        """The decoder that leaves times as numbers."""
        return self if self.times is None else replace(self, dtype=self.numbers, times=None)

    def to(self, dtype: DType) -> Decoder:
        """The decoder to another dtype of dates."""
        return replace(self, dtype=dtype) if self.dtype.kind == dtype.kind == "M" else self

    def __call__(self, stored: NDArray) -> NDArray:
        """Decoded values, as a new array; raises `NotRepresentable` for dates out of range."""
        values = stored if self.signed is None else stored.view(self.signed)
        hidden = _outside(values, self.stored_bounds)
        for value in self.missing:
            hidden = hidden | (values == value)
        with np.errstate(all="ignore"):
            out = np.array(values, self.numbers, order="C")
            if self.scale is not None:
                out *= self.numbers.type(self.scale)
            if self.offset is not None:
                out += self.numbers.type(self.offset)
        if self.hides:
            nothing = {"f": math.nan, "c": complex(math.nan, math.nan)}.get(out.dtype.kind, _NOT_A_TIME)
            out[hidden | _outside(out, self.bounds)] = nothing
        if self.times is not None:
            return self.times.decode(out, self.dtype)
        return out.astype(self.dtype, copy=False)

    def document(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The description for clients; ``unit`` is that of the decoded numbers, None for dates."""
        unit = attributes.get("units")
        packed = any(attributes.get(name) is not None for name in ("scale_factor", "add_offset"))  # valid or not
        return {
            "dtype": self.dtype.str,
            "cf": self.is_cf,
            "changes": self.changes,
            "packed": packed,
            "unit": unit if isinstance(unit, str) and self.times is None and packed == self.is_packed else None,
            "calendar": None if self.times is None else self.times.calendar,
            "flags": [{"meaning": f.meaning, "value": f.value, "mask": f.mask} for f in self.flags],
            "problems": list(self.problems),
        }


def _outside(values: NDArray, bounds: Bounds) -> Any:
    """Whether each value is outside of bounds; NaN is not."""
    low, high = bounds
    below = np.False_ if low is None else values < low
    return below if high is None else below | (values > high)


def make_decoder(
    dtype: DType,
    attributes: Mapping[str, Any],
    fill: Any = None,
    *,
    v3: bool = False,
    named: bool = False,
    coordinate: bool = False,
) -> Decoder:
    """The decoder of values of ``dtype``. Malformed attributes are ignored and reported as problems.

    ``fill`` is the fill value of an array of Zarr v2, which marks missing values like ``_FillValue``, unless the array
    is the ``coordinate`` of its own axis, boolean, or it is a flag's value. In Zarr v3 (``v3``) it marks none, and
    ``_FillValue`` has the form of `parse_fill`. ``named``: axes have names or values a unit, as in climate data, so
    that a fill value other than zero marks missing values on purpose.
    """
    if dtype.kind not in "iufc" or is_extension(dtype):  # the latter are of ml_dtypes
        return Decoder(dtype, dtype, dtype)
    read = _Attributes(attributes, dtype, v3=v3)
    signed = read.signed()
    stored = signed or dtype
    names = (
        ("_FillValue", "missing_value") if dtype.kind != "c" else ("_FillValue",) if v3 else ()
    )  # JSON has no others
    listed = [value for name in names for value in read.missing(name, stored)]
    is_span = str(attributes.get("dtype")).startswith("timedelta64") and attributes.get("units") in _SPAN_UNITS
    if is_span and (stored.kind, stored.itemsize) == ("i", 8):  # as xarray writes them
        listed.append(_NOT_A_TIME)
    own = None if fill is None else _stored(fill.item(), stored, wraps=bool(signed))
    # NaN as a fill value hides nothing, but keeps xarray from choosing a wider dtype
    quiet = stored.kind in "fc" and any(map(_is_nan, (own, *listed)))
    listed, own = [value for value in listed if not _is_nan(value)], None if _is_nan(own) else own
    flags = tuple(read.flags())
    is_bool = attributes.get("dtype") == "bool" and dtype.kind in "iu"
    if coordinate or is_bool or any(flag.mask is None and flag.value == own for flag in flags):
        own = None
    missing = tuple(dict.fromkeys(listed if own is None else [*listed, own]))
    if dtype.kind == "c":
        numbers = stored.newbyteorder("<") if missing else stored
        decoder = Decoder(dtype, numbers, numbers, missing=missing, problems=tuple(read.problems))
        return replace(decoder, is_cf=bool(listed) or (named and bool(own)))
    if "_FillValue" in attributes and own is not None and not {*listed} <= {own}:
        read.problems.append(f"_FillValue differs from the array's fill value {own}; both are taken for missing values")
    scale, offset = read.number("scale_factor"), read.number("add_offset")
    bounds = read.bounds(stored, packed=scale is not None or offset is not None)
    times = read.times()
    decoder = Decoder(
        dtype, dtype, dtype, signed, missing, *bounds,
        scale=scale, offset=offset, times=times, flags=flags, problems=tuple(read.problems),
    )  # fmt: skip
    numbers = _numbers(decoder, stored, quiet=quiet)
    is_bounded = {*bounds[0], *bounds[1]} != {None}
    is_marked = bool(listed or flags or times or signed or is_bounded) or (named and bool(own))
    is_bool = is_bool and not decoder.hides and not decoder.is_packed
    decoded = np.dtype(bool) if is_bool else numbers if times is None else times.dtype
    return replace(decoder, numbers=numbers, dtype=decoded, is_cf=is_marked or is_bool or decoder.is_packed)


def parse_fill(value: Any, dtype: DType) -> bool | int | float | complex | None:
    """``_FillValue`` as xarray writes it in Zarr v3: floats in base64 of 8 bytes, little endian, complex numbers as two
    of them, others as they are; floats also as JSON numbers. None if it is of another form, or of another dtype."""
    if dtype.kind == "c":
        parts = value if isinstance(value, list) and len(value) == 2 else [value, 0.0]
        real, imaginary = (parse_fill(part, np.dtype("<f8")) for part in parts)
        return None if real is None or imaginary is None else complex(real, imaginary)
    if dtype.kind == "b":
        return value if isinstance(value, bool) else None
    if dtype.kind == "f" and isinstance(value, str):
        try:
            return float(struct.unpack("<d", base64.b64decode(value, validate=True))[0])
        except (ValueError, struct.error):
            pass
    number = _parsed(value) if dtype.kind in "iuf" else None
    if dtype.kind == "f" or number is None:
        return number
    return int(number) if math.isfinite(number) else None


def format_fill(value: Any, dtype: DType) -> Any:
    """The inverse of `parse_fill`; None for dtypes of which xarray reads none."""
    if is_extension(dtype) or dtype.kind not in "biufc":
        return None
    if dtype.kind == "c":
        return [format_fill(part, np.dtype("<f8")) for part in (value.real, value.imag)]
    return base64.b64encode(struct.pack("<d", value)).decode() if dtype.kind == "f" else value


def _numbers(decoder: Decoder, stored: DType, *, quiet: bool) -> DType:
    """The dtype of decoded numbers, by xarray's rules; little endian unless it is the stored one."""
    scale, hides = decoder.scale, decoder.hides
    if not decoder.is_packed and not hides:
        return stored
    if not decoder.is_packed and stored.kind != "f":
        return np.dtype("<i8" if decoder.times else "<f4" if stored.itemsize <= 2 else "<f8")
    if not decoder.is_packed or (quiet and not hides):
        return stored.newbyteorder("<")
    whole = isinstance(scale, int) and abs(scale) < 2**53 and stored.kind in "iu"
    return np.dtype("<i8" if whole and decoder.offset is None and not hides else "<f8")


def _is_nan(value: Any) -> bool:
    return isinstance(value, float | complex) and cmath.isnan(value)


def _stored(value: Any, dtype: DType, *, wraps: bool) -> Any:
    """A number as stored in ``dtype``: floats are rounded, integers wrapped around if ``wraps``."""
    if dtype.kind in "fc":
        with np.errstate(all="ignore"):
            return dtype.type(value).item()
    if not wraps or not isinstance(value, int):
        return value
    span = 2 ** (8 * dtype.itemsize)
    least = 0 if dtype.kind == "u" else -span // 2
    return (value - least) % span + least if -span // 2 <= value < span else value


class _Attributes:
    """Parser of CF attributes, with their ``problems``."""

    def __init__(self, attributes: Mapping[str, Any], dtype: DType, *, v3: bool) -> None:
        self._attributes = attributes
        self._dtype = dtype
        self._v3 = v3
        self.problems: list[str] = []

    def _wrong(self, name: str, expected: str) -> None:
        self.problems.append(f"{name}: expected {expected}, found {str(self._attributes[name])[:60]!r}; it is ignored")

    def _list(self, name: str) -> list[Any]:
        """An attribute as a list; empty if absent."""
        value = self._attributes.get(name)
        return [] if value is None else value if isinstance(value, list) else [value]

    def number(self, name: str) -> int | float | None:
        found = self._list(name)
        if not found:
            return None
        value = _parsed(found[0]) if len(found) == 1 else None
        if value is None or not math.isfinite(value) or (name == "scale_factor" and value == 0):
            self._wrong(name, "a finite number")
            return None
        return value

    def signed(self) -> DType | None:
        """The dtype that ``_Unsigned`` requests, if it differs."""
        text = str(self._attributes.get("_Unsigned", "")).lower()
        if not text:
            return None
        if text not in ("true", "false") or self._dtype.kind == "f":
            self._wrong("_Unsigned", "true or false, of integers")
            return None
        kind = "u" if text == "true" else "i"
        return None if self._dtype.kind == kind else np.dtype(f"{self._dtype.byteorder}{kind}{self._dtype.itemsize}")

    def missing(self, name: str, stored: DType) -> list[Any]:
        """Numbers of the attributes ``_FillValue`` and ``missing_value``, as stored."""
        own_form = self._v3 and name == "_FillValue"
        if own_form and stored.kind == "c":
            given = [self._attributes[name]] if self._attributes.get(name) is not None else []
        else:
            given = self._list(name)
        values = [parse_fill(value, stored) if own_form else _parsed(value) for value in given]
        good = [value for value in values if value is not None and (stored.kind in "fc" or not _is_nan(value))]
        if len(good) < len(values):
            self._wrong(name, "numbers that the array can hold")
        pairs = [(value, _stored(value, stored, wraps=stored.kind != self._dtype.kind)) for value in good]
        return [held for value, held in pairs if not (cmath.isinf(held) and cmath.isfinite(value))]

    def bounds(self, stored: DType, *, packed: bool) -> tuple[Bounds, Bounds]:
        """Bounds of stored values and of unpacked ones; bounds of packed integers are unpacked if one is a float."""
        low, high = [self.number(name) if name in self._attributes else None for name in ("valid_min", "valid_max")]
        if "valid_range" in self._attributes:
            pair = [_parsed(value) for value in self._list("valid_range")]
            if len(pair) != 2 or any(value is None or not math.isfinite(value) for value in pair):
                self._wrong("valid_range", "two finite numbers")
            else:
                low, high = pair
        unpacked = packed and stored.kind in "iu" and (isinstance(low, float) or isinstance(high, float))
        if not unpacked:
            wraps = stored.kind != self._dtype.kind
            low, high = (None if bound is None else _stored(bound, stored, wraps=wraps) for bound in (low, high))
        if low is not None and high is not None and low > high:
            self.problems.append(f"the valid range from {low} to {high} holds no value; it is ignored")
            low = high = None
        return ((None, None), (low, high)) if unpacked else ((low, high), (None, None))

    def flags(self) -> Iterator[Flag]:
        """Flags of ``flag_values``, ``flag_masks`` and ``flag_meanings``."""
        names = [name for name in ("flag_values", "flag_masks") if name in self._attributes]
        if not names:
            return
        text = self._attributes.get("flag_meanings")
        meanings = text.split() if isinstance(text, str) else text if isinstance(text, list) else []
        values, masks = ([_parsed(value) for value in self._list(name)] for name in ("flag_values", "flag_masks"))
        counts = {len(meanings), *(len(self._list(name)) for name in names)}
        is_good = len(counts) == 1 and all(isinstance(meaning, str) for meaning in meanings)
        whole = all(isinstance(value, int) for value in (masks and values) + masks)  # bits of integers
        if not is_good or None in values or not whole:
            self._wrong(names[0], "a number for each of flag_meanings")
            return
        for i, meaning in enumerate(meanings[:4096]):
            mask = masks[i] if masks else None
            value = values[i] if values else mask
            if value is not None:
                yield Flag(meaning, value, None if mask is None else int(mask))

    def times(self) -> Times | None:
        units, calendar = self._attributes.get("units"), self._attributes.get("calendar")
        calendar = "standard" if calendar is None else calendar
        text = units if isinstance(units, str) and len(units) < 200 else ""
        times = _parse_times(text, calendar)
        if not isinstance(times, str):
            return times
        of = f"units {text!r} of calendar {str(calendar)[:60]!r}"
        self.problems.append(f"{of} are no time: {times}; numbers stay numbers")
        return None


def _parsed(value: Any) -> int | float | None:
    """A JSON number of 64 bits, or NaN or an infinity as text; else None."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if isinstance(value, float) or -(2**63) <= value < 2**64 else None
    return NON_FINITE.get(value) if isinstance(value, str) else None
