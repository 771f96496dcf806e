"""Labels: values of a coordinate, which select positions along its axis, by the rules of xarray's ``sel`` (an index of
pandas).

A label is an exact value; a part of a date (``2001-01``) stands for all of that time. Ranges of labels include both
ends, in the order of the coordinate. Numbers, dates and durations may be given as text.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Positions = int | range | NDArray[np.int64]
"""One position, which drops the axis, or several."""
Method = Literal["nearest", "pad", "ffill", "backfill", "bfill"]

_PER_DAY: Final = {"D": 1, "h": 24, "m": 1440} | {f"{p}s": 86400 * 1000**n for n, p in enumerate(("", "m", "u", "n"))}
_UNITS: Final = tuple(_PER_DAY)


def positions(values: NDArray[Any], label: Any, *, method: Method | None = None, dates: bool = False) -> Positions:
    """The positions of a label, of a list of labels, or of a slice from one label to another (both included).

    Args:
        values: The coordinate, with one axis.
        method: What is taken where no value is the label: the nearest (of two the greater), the one before (``pad``,
            ``ffill``) or the one after (``backfill``, ``bfill``); for single labels and lists.
        dates: The values are text in the form of dates (of calendars that numpy has not).

    Raises:
        KeyError: No value is the label, or for a slice, the values are in no order and an end is not among them.
        ValueError: The label is no value of this kind, or ``method`` goes with a slice.
    """
    if isinstance(label, slice):
        if method is not None:
            raise ValueError("method= goes with labels, not with a slice")
        return _between(values, label, dates=dates)
    if np.ndim(label) == 0:
        return _of_label(values, label, method, dates=dates)
    found = [_of_label(values, each, method, dates=False) for each in label]
    several = next((each for each, at in zip(label, found, strict=True) if not isinstance(at, int)), None)
    if several is not None:
        raise KeyError(f"{several!r} stands at several positions, and cannot be one of a list")
    return np.asarray(found, np.int64)


def _of_label(values: NDArray[Any], label: Any, method: Method | None, *, dates: bool) -> Positions:
    first, after = _interval(values, label, dates=dates)
    if method is not None:
        return _near(values, first, method, label)
    here = np.flatnonzero(values == first if after is None else (values >= first) & (values < after))
    if not here.size:
        raise KeyError(f"no value is {label!r}")
    first_at, last = int(here[0]), int(here[-1])
    if here.size == 1 and (after is None or not _is_coarser(values, label)):
        return first_at
    return range(first_at, last + 1) if last - first_at + 1 == here.size else here


def _between(values: NDArray[Any], label: slice, *, dates: bool) -> range:
    """Positions from one label to another."""
    falling = _falls(values)
    if not falling and not bool((values[1:] >= values[:-1]).all()):
        raise KeyError("the coordinate is in no order, so that a range of its values selects nothing certain")
    rising = values[::-1] if falling else values
    low, high = (label.stop, label.start) if falling else (label.start, label.stop)
    start, stop = 0, values.size
    if low is not None:
        start = int(np.searchsorted(rising, _interval(values, low, dates=dates)[0], "left"))
    if high is not None:
        value, after = _interval(values, high, dates=dates)
        stop = int(np.searchsorted(rising, value, "right") if after is None else np.searchsorted(rising, after, "left"))
    if falling:
        start, stop = values.size - stop, values.size - start
    return range(values.size)[start : max(start, stop)][:: label.step]


def _near(values: NDArray[Any], label: Any, method: Method, given: Any) -> int:
    if values.dtype.kind in "OSUTb":
        raise ValueError("method= needs numbers or times")
    if method == "nearest":
        allowed = np.ones(values.shape, np.bool_)
    else:
        before = method in ("pad", "ffill")
        allowed = values <= label if before != _falls(values) else values >= label
    here = np.flatnonzero(allowed & (values == values))  # noqa: PLR0124 - not NaN, not NaT
    if not here.size:
        raise KeyError(f"no value is near {given!r}")
    near = values[here] if values.dtype.kind in "mM" else values[here].astype(np.longdouble)
    far = np.abs(near - label)
    nearest = far == np.min(far)
    return int(here[nearest][np.argmax(near[nearest])])


def _falls(values: NDArray[Any]) -> bool:
    """Whether values are in order, the greatest first."""
    return values.size > 1 and bool((values[1:] <= values[:-1]).all()) and not bool((values == values[0]).all())


def _interval(values: NDArray[Any], label: Any, *, dates: bool) -> tuple[Any, Any]:
    """A label as one of the values, or for a time, its beginning and the end of it."""
    kind = values.dtype.kind
    try:
        if kind == "M":
            return _time(values.dtype, label)
        if kind == "m":
            return np.timedelta64(label), None
        if kind in "OSUT":
            text = label.decode() if isinstance(label, bytes) else str(label)
            return (text, text + "\U0010ffff") if dates else (text.encode() if kind == "S" else text, None)
        if kind == "b":
            return {"true": True, "false": False}[str(label).lower()], None
        if isinstance(label, str):
            label = int(label) if kind in "iu" else float(label)
        if not np.issubdtype(type(label), np.number) or np.isnan(label):
            raise ValueError("not a number")  # noqa: TRY301
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        raise ValueError(f"{label!r} is no label of a coordinate of {values.dtype}") from error
    return label, None


def _time(dtype: np.dtype[Any], label: Any) -> tuple[Any, Any]:
    """The first of the times of ``dtype`` in a time, and the first after it; None for the latter where it is one time.

    Times that the dtype cannot hold become its ends, as numpy's conversions overflow silently.
    """
    text = label if isinstance(label, str) else str(label) if isinstance(label, np.datetime64) else label.isoformat()
    date = np.datetime64(_date(text))
    unit, step = np.datetime_data(dtype)
    furthest = (2**63 - 2) * step // _PER_DAY[unit] if unit in _PER_DAY else 365 * 10**6
    ends = np.array([2 - 2**63, 2**63 - 2]).view(dtype)

    def first_from(time: np.datetime64) -> Any:
        day = int(time.astype("M8[D]").astype(np.int64))
        if abs(day) > furthest:
            return ends[int(day > 0)]
        floor = time.astype(dtype)
        return floor if floor == time else (floor.astype(np.int64) + 1).view(dtype)

    first, after = first_from(date), first_from((date.astype(np.int64) + 1).view(date.dtype))
    if isinstance(label, str):
        return first, after
    return first, None if first == date else first


def _date(text: str) -> str:
    """A date in ISO 8601, to be read by numpy: of years of four digits, in UTC."""
    text = text.strip().removesuffix("Z").removesuffix("+00:00")
    if not re.fullmatch(r"\d{4}(-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?)?)?)?", text, re.ASCII):
        raise ValueError("not a date")
    return text


def _is_coarser(values: NDArray[Any], label: str) -> bool:
    """Whether the unit of a date is longer than that of the coordinate, so that it stands for a time and not for a
    value: as for pandas, days are the longest unit of values."""
    if values.dtype.kind != "M":
        return True
    unit = np.datetime_data(np.datetime64(_date(label)).dtype)[0]
    if unit not in _UNITS:
        return True
    own = next((each for each in _UNITS if bool((values.astype(f"M8[{each}]") == values).all())), "ns")
    return _UNITS.index(unit) < _UNITS.index(own)
