"""Decoding of values by the CF conventions: packing, missing values, flags and times.

The results, including dtypes, are those of xarray, except that values outside ``valid_range`` are missing, timedeltas
stay numbers, and times of non-standard calendars are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from hyperslab.engine.jsontext import NON_FINITE
from hyperslab.errors import NotRepresentable

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
Bounds = tuple[float | None, float | None]
"""The least and the greatest valid value, None without."""
_STANDARD: Final = ("standard", "gregorian", "proleptic_gregorian")


@dataclass(frozen=True, slots=True)
class Flag:
    """Meaning of a value, or of a value in the bits of ``mask``."""

    meaning: str
    value: int | float
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """Encoding of times as ``units since a date`` in a calendar. If datetime64 can represent that, ``first`` is the
    date in nanoseconds since 1970 and ``step`` the unit in nanoseconds."""

    units: str
    calendar: str
    first: int | None
    step: int

    @property
    def dtype(self) -> DType:
        return _TIME if self.calendar in _STANDARD else _DATE_TEXT

    def decode(self, numbers: NDArray, dtype: DType) -> NDArray:
        """Dates as ``dtype``; raises `NotRepresentable` for dates out of its range."""
        valid = np.isfinite(numbers) if numbers.dtype.kind == "f" else numbers != _NOT_A_TIME
        if self.first is not None:
            numbers = numbers.astype(np.float64 if numbers.dtype.kind == "f" else np.int64)
            estimate = np.where(valid, numbers, 0).astype(np.float64) * self.step + self.first
            if not estimate.size or np.abs(estimate).max() < 2**63 - 2**12:
                counts = (np.where(valid, numbers, 0) * np.int64(self.step)).astype(np.int64) + np.int64(self.first)
                return np.where(valid, counts, _NOT_A_TIME).view(_TIME).astype(dtype, copy=False)
        texts = np.full(numbers.shape, "NaT", _DATE_TEXT)
        try:
            texts[valid] = [date.isoformat() for date in _dates(numbers[valid], self.units, self.calendar)]
        except (ValueError, OverflowError):  # one is not a date and stays a number
            texts[valid] = [self._text(number) for number in numbers[valid]]
        if dtype.kind == "U":
            return texts
        try:
            dates = texts.astype("<M8[us]")
        except ValueError as error:
            raise NotRepresentable(self.units, str(dtype), f"a time is beyond all dates: {error}") from error
        found = dates.astype(dtype)
        if not np.array_equal(found.astype("<M8[us]"), dates, equal_nan=True):
            reason = "times before 1678 or after 2262 do not fit into it: ask for dtype=<M8[us]"
            raise NotRepresentable(self.units, str(dtype), reason)
        return found

    def _text(self, number: Any) -> str:
        try:
            return str(_dates(np.array([number]), self.units, self.calendar)[0].isoformat())
        except (ValueError, OverflowError):
            return str(number)[: _DATE_TEXT.itemsize // 4]


def _dates(numbers: NDArray, units: str, calendar: str) -> NDArray:
    import cftime

    return np.atleast_1d(cftime.num2date(numbers, units, calendar, only_use_cftime_datetimes=True))


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
            out[hidden | _outside(out, self.bounds)] = np.nan if out.dtype.kind == "f" else _NOT_A_TIME
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
    dtype: DType, attributes: Mapping[str, Any], fill: Any = None, *, named: bool = False, coordinate: bool = False
) -> Decoder:
    """The decoder of values of ``dtype``. Malformed attributes are ignored and reported as problems.

    ``fill`` is the array's fill value, which marks missing values like ``_FillValue``, unless the array is the
    ``coordinate`` of its own axis, or it is a flag's value. ``named``: axes have names or values a unit, as in climate
    data, so that a fill value other than zero marks missing values on purpose.
    """
    if dtype.kind not in "iuf" or dtype.isbuiltin == 2:  # the latter are of ml_dtypes
        return Decoder(dtype, dtype, dtype)
    read = _Attributes(attributes, dtype)
    signed = read.signed()
    stored = signed or dtype
    scale, offset = read.number("scale_factor"), read.number("add_offset")
    flags = tuple(read.flags())
    listed = [*read.missing("_FillValue", stored), *read.missing("missing_value", stored)]
    own = None if coordinate or fill is None else _stored(fill.item(), stored, wraps=bool(signed))
    if own is not None and any(flag.mask is None and flag.value == own for flag in flags):
        own = None
    # NaN as a fill value hides nothing, but keeps xarray from choosing a wider dtype
    quiet = stored.kind == "f" and any(map(_is_nan, (own, *listed)))
    listed, own = [value for value in listed if not _is_nan(value)], None if _is_nan(own) else own
    bounds = read.bounds(stored, packed=scale is not None or offset is not None)
    times = read.times()
    decoder = Decoder(
        dtype, dtype, dtype, signed, tuple(dict.fromkeys(listed if own is None else [*listed, own])), *bounds,
        scale=scale, offset=offset, times=times, flags=flags, problems=tuple(read.problems),
    )  # fmt: skip
    numbers = _numbers(decoder, stored, quiet=quiet)
    is_bounded = {*bounds[0], *bounds[1]} != {None}
    is_marked = bool(listed or flags or times or signed or is_bounded) or (named and bool(own))
    is_bool = attributes.get("dtype") == "bool" and dtype.kind in "iu" and not decoder.hides and not decoder.is_packed
    found = np.dtype(bool) if is_bool else numbers if times is None else times.dtype
    return replace(decoder, numbers=numbers, dtype=found, is_cf=is_marked or is_bool or decoder.is_packed)


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
    return isinstance(value, float) and math.isnan(value)


def _stored(value: Any, dtype: DType, *, wraps: bool) -> Any:
    """A number as stored in ``dtype``: floats are rounded, integers wrapped around if ``wraps``."""
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            return dtype.type(value).item()
    if not wraps or not isinstance(value, int):
        return value
    span = 2 ** (8 * dtype.itemsize)
    least = 0 if dtype.kind == "u" else -span // 2
    return (value - least) % span + least if -span // 2 <= value < span else value


class _Attributes:
    """Parser of CF attributes, with their ``problems``."""

    def __init__(self, attributes: Mapping[str, Any], dtype: DType) -> None:
        self._attributes = attributes
        self._dtype = dtype
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
        values = [_parsed(value) for value in self._list(name)]
        good = [value for value in values if value is not None and (stored.kind == "f" or not _is_nan(value))]
        if len(good) < len(values):
            self._wrong(name, "numbers that the array can hold")
        known = [(value, _stored(value, stored, wraps=stored.kind != self._dtype.kind)) for value in good]
        return [held for value, held in known if not (math.isinf(held) and math.isfinite(value))]

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
        units = self._attributes.get("units")
        text = units if isinstance(units, str) and len(units) < 200 else ""
        found = re.fullmatch(r"\s*(\S+)\s+since\s+(.+?)\s*", text, re.DOTALL | re.ASCII)
        if found is None:
            return None
        attribute = self._attributes.get("calendar", "standard")
        calendar = attribute.lower() if isinstance(attribute, str) else str(attribute)
        name = found[1].lower().removesuffix("s") if len(found[1]) > 2 else found[1].lower()
        step = _NANOSECONDS.get(name)
        unit = found[1] if step != 1 else "microseconds"  # the smallest unit of cftime
        try:
            zero = _dates(np.zeros(1, np.int64), f"{unit} since {found[2]}", calendar)[0]
        except (ValueError, OverflowError, TypeError) as error:
            self.problems.append(f"units {units!r} of calendar {calendar!r} are no time: {error}; numbers stay numbers")
            return None
        counts = calendar in _STANDARD and step is not None and 1678 <= zero.year < 2262
        first = np.datetime64(zero.isoformat(), "ns").astype(np.int64).item() if counts else None
        return Times(f"{found[1]} since {found[2]}", calendar, first, step or 1)


def _parsed(value: Any) -> int | float | None:
    """A JSON number of 64 bits, or NaN or an infinity as text; else None."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if isinstance(value, float) or -(2**63) <= value < 2**64 else None
    return NON_FINITE.get(value) if isinstance(value, str) else None
