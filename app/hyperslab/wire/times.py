"""Times as counts of a unit: from other units and from ISO 8601 text.

Counts that do not fit into 64 bits are errors. numpy wraps them around in text, and before 2.5 between units.
"""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction
from typing import Any, Final

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]
DType = np.dtype[Any]

_DAY: Final = 86_400 * 10**18
_LENGTHS: Final = {
    "Y": _DAY * 146_097 // 400, "M": _DAY * 146_097 // 4800, "W": 7 * _DAY, "D": _DAY, "h": _DAY // 24,
    "m": 60 * 10**18, "s": 10**18, "ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1,
}  # fmt: skip
"""Attoseconds of a unit; years and months have the mean length that numpy gives spans of them."""
_MONTHS: Final = {"Y": 12, "M": 1}
_LONGEST: Final = {"Y": 366, "M": 31}
_DAYS: Final = np.dtype("<M8[D]")
_NOT_A_TIME: Final = -(2**63)
_ISO: Final = re.compile(
    r"([+-]?[0-9]{1,19})(?:-([0-9]{2})(?:-([0-9]{2})"
    r"(?:[T ]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,30}))?)?)?)?)?)?Z?"
)


def cast_times(values: NDArray, dtype: DType) -> NDArray:
    """Times or spans of time (datetime64, timedelta64), any shape, as ``dtype``; rounded down to coarser units.

    Raises `OverflowError` for a count out of the range of 64 bits.
    """
    (unit, multiple), (wanted, of) = np.datetime_data(values.dtype), np.datetime_data(dtype)
    if "generic" in (unit, wanted) or (unit, multiple) == (wanted, of):
        return values.astype(dtype)
    by_calendar = values.dtype.kind == dtype.kind == "M" and (unit in _MONTHS) != (wanted in _MONTHS)
    if by_calendar and "D" not in (unit, wanted):
        return cast_times(cast_times(values, _DAYS), dtype)
    missing = np.isnat(values)
    counts = np.where(missing, 0, values.astype(np.int64))
    largest = max(abs(int(np.min(counts, initial=0))), abs(int(np.max(counts, initial=0))))
    ratio = Fraction(multiple * _LENGTHS[unit], of * _LENGTHS[wanted])
    if largest * (multiple * _LONGEST.get(unit, 1) if by_calendar else ratio.numerator) >= 2**63:
        raise OverflowError(f"a time does not fit into {dtype.name}")
    if by_calendar:
        return values.astype(dtype)
    # not by numpy, whose products of multiples and units overflow
    divisor = min(ratio.denominator, 2**63 - 1)
    counts_cast = np.where(missing, _NOT_A_TIME, counts * np.int64(ratio.numerator if largest else 1) // divisor)
    return counts_cast.view(dtype.newbyteorder("=")).astype(dtype)


def count_of(text: str, dtype: DType, *, exact: bool = False) -> int:
    """The count of a time in ISO 8601 (``2001-02-03T04:05:06.7``, shorter down to the year, UTC) in the unit of a
    datetime64 ``dtype``: rounded down, or ``exact``.

    Raises `ValueError` for other text, a dtype without a unit, and inexact counts; `OverflowError` for a count out of
    the range of 64 bits.
    """
    match = _ISO.fullmatch(text)
    unit, multiple = np.datetime_data(dtype)
    if match is None:
        raise ValueError(f"{text[:80]!r} is no time as 2001-02-03T04:05:06")
    if unit == "generic":
        raise ValueError(f"{text} has no count, as {dtype.str!r} has no unit")
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    hour, minute, second = (int(part or 0) for part in match.group(4, 5, 6))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text} has no such hour, minute or second")
    cycles, within = divmod(year - 1970, 400)  # the Gregorian calendar repeats itself
    try:
        days = 146_097 * cycles + date(1970 + within, month, day).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError as error:
        raise ValueError(f"{text} is no date: {error}") from None
    fraction = Fraction(int(match[7] or 0), 10 ** len(match[7] or "")) + hour * 3600 + minute * 60 + second
    if unit in _MONTHS:
        position, length = 12 * (year - 1970) + month - 1 + (day - 1 + fraction / 86_400) / 31, _MONTHS[unit]
    else:
        position, length = (days * 86_400 + fraction) * 10**18, _LENGTHS[unit]
    count, rest = divmod(position, length * multiple)
    if exact and rest:
        raise ValueError(f"{text} falls between two values of the unit")
    if abs(count) >= 2**63:
        raise OverflowError(f"{text} does not fit into {dtype.name}")
    return int(count)
