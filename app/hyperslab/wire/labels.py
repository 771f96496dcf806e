"""Labels: values of a coordinate, which select positions along its axis, by the rules of xarray's ``sel`` (an index of
pandas).

A label is an exact value; a part of a date (``2001-01``) stands for all of that time. Ranges of labels include both
ends, in the order of the coordinate. Numbers, dates and durations may be given as text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

Positions = int | range | NDArray[np.int64]
"""One position, which drops the axis, or several."""
Method = Literal["nearest", "pad", "ffill", "backfill", "bfill"]

_PER_DAY: Final = {"D": 1, "h": 24, "m": 1440} | {f"{p}s": 86400 * 1000**n for n, p in enumerate(("", "m", "u", "n"))}
_UNITS: Final = tuple(_PER_DAY)


def parse_label(text: str) -> str | list[str] | slice:
    """A label in text, a list of labels (``[45,50]``), or a range from one to another (``2001-01..2001-03``, also open,
    ``2001-03..``, and with a step, ``1..9..2``). A label in double quotes is a JSON string, for commas and dots.

    Raises `ValueError`.
    """
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        inside = _split(text[1:-1], ",")
        return [_plain(each) for each in (inside if inside[-1].strip() else inside[:-1])]
    parts = _split(text, "..")
    if len(parts) == 1:
        return _plain(text)
    if len(parts) > 3 or (len(parts) == 3 and not re.fullmatch(r"\s*[1-9][0-9]{0,17}\s*", parts[2])):
        raise ValueError("a range is from..to, or from..to..step with a step of 1 or more")
    first, last = (_plain(each) if each.strip() else None for each in parts[:2])
    return slice(first, last, int(parts[2]) if len(parts) == 3 else None)


def _split(text: str, separator: str) -> list[str]:
    """The text between separators, of which those in double quotes are none."""
    parts: list[list[str]] = [[]]
    for token in re.findall(rf'"(?:[^"\\]|\\.)*"|{re.escape(separator)}|.', text, re.DOTALL):
        parts.append([]) if token == separator else parts[-1].append(token)
    return ["".join(part) for part in parts]


def _plain(text: str) -> str:
    text = text.strip()
    if text.startswith('"'):
        text = json.loads(text)
        if isinstance(text, str):
            return text
    if not text:
        raise ValueError('a label is missing (the empty one is "")')
    return text


def label_text(value: Any) -> str:
    """A value of a coordinate as a label in text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.datetime64):
        return str(value).removesuffix("T00:00:00.000000000").removesuffix(".000000000")
    return str(value)


def item(found: Positions) -> Any:
    """Positions as a key along an axis: an integer, a slice, or an array of integers."""
    if not isinstance(found, range):
        return found
    return slice(found.start, found.stop if found.stop >= 0 else None, found.step) if found else slice(0, 0)


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
        if method is None:
            return _of_label(values, label, dates=dates)
        return int(each_position(values, [label], method)[0])
    return each_position(values, label, method)


def each_position(values: NDArray[Any], labels: Sequence[Any], method: Method | None = None) -> NDArray[np.int64]:
    """The position of each of several labels; arguments and errors as of `positions`, and `KeyError` for a label that
    stands at several. A part of a date is its first moment, as in xarray."""
    if values.dtype.kind in "OSUTb":
        if method is not None:
            raise ValueError("method= needs numbers or times")
        labels_of = values.tolist()
        order, times = np.arange(values.size), Counter(labels_of)
        first = dict(zip(reversed(labels_of), reversed(range(values.size)), strict=True))
        keys = [_interval(values, label, dates=False)[0] for label in labels]
        found = np.array([first.get(key, -1) for key in keys], np.int64)
        several = np.array([times[key] > 1 for key in keys], np.bool_)
    else:
        wanted, exact = _array_of(values, labels)
        order = np.argsort(values, kind="stable")
        order = order[values[order] == values[order]]  # not NaN, not NaT
        rising = values[order]
        if method is None:
            before, after = np.searchsorted(rising, wanted, "left"), np.searchsorted(rising, wanted, "right")
            found, several = np.where((after > before) & exact, before, -1), after > before + 1
        else:
            found, several = _near(rising, wanted, method, falls=_falls(values)), np.zeros(len(labels), np.bool_)
    for label, at, often in zip(labels, found, several, strict=True) if len(found) else ():
        if at < 0:
            raise KeyError(f"no value is {'' if method is None else 'near '}{label!r}", label)
        if often:
            raise KeyError(f"{label!r} stands at several positions, and cannot be one of a list", label)
    return np.asarray(order[found], np.int64)


def _array_of(values: NDArray[Any], labels: Sequence[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels of numbers or times as an array that compares with the values, and which of them the dtype can hold."""
    positions = [_interval(values, label, dates=False)[0] for label in labels]
    exact = np.ones(len(positions), np.bool_)
    kind: np.dtype[Any] | None = None
    if values.dtype.kind in "fmM":
        kind = values.dtype
    elif not all(isinstance(each, int | np.integer) and -(2**63) <= each < 2**63 for each in positions):
        kind = np.dtype(np.float64)
    if values.dtype.kind == "M":
        pairs = zip(positions, labels, strict=True)
        exact = np.array([first == np.datetime64(_iso(label)) for first, label in pairs], np.bool_)
    return np.array(positions, kind), exact


def _near(rising: NDArray[Any], wanted: NDArray[Any], method: Method, *, falls: bool) -> NDArray[np.int64]:
    """For each label the place of the first of the nearest values, which rise; -1 without one."""
    above = np.searchsorted(rising, wanted, "left")
    below = np.searchsorted(rising, wanted, "right") - 1
    if method == "nearest" and rising.size:
        exact = rising if rising.dtype.kind in "mM" else rising.astype(np.longdouble)
        up, down = (exact[np.clip(near, 0, rising.size - 1)] for near in (above, below))
        take = (below < 0) | ((above < rising.size) & (np.abs(up - wanted) <= np.abs(wanted - down)))
    else:
        take = np.full(wanted.shape, (method in ("pad", "ffill")) == falls)
    near = np.where(take, np.where(above < rising.size, above, -1), below)
    return (
        np.where(near < 0, -1, np.searchsorted(rising, rising[near], "left"))
        if rising.size
        else np.full(near.shape, -1)
    )


def _of_label(values: NDArray[Any], label: Any, *, dates: bool) -> Positions:
    first, after = _interval(values, label, dates=dates)
    after = None if values.dtype.kind == "m" else after
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
        first, last = (
            None if end is None else _of_label(values, end, dates=dates) for end in (label.start, label.stop)
        )
        if values.dtype.kind == "M" or isinstance(first, range | np.ndarray) or isinstance(last, range | np.ndarray):
            raise KeyError("the coordinate is in no order, so that a range of its values selects nothing certain")
        return range(values.size)[first : None if last is None else last + 1 : label.step]
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
            return _span(label)
        if kind in "OSUT":
            said = label.isoformat() if hasattr(label, "isoformat") else label  # of a date of cftime
            text = said.decode() if isinstance(said, bytes) else str(said)
            end = text + "\U0010ffff" if dates and said is label else None
            return text.encode() if kind == "S" and end is None else text, end
        if kind == "b":
            return {"true": True, "false": False}[str(label).lower()], None
        if isinstance(label, str):
            label = int(label) if re.fullmatch(r"\s*[+-]?[0-9]{1,30}\s*", label) and kind in "iu" else float(label)
        if not np.issubdtype(type(label), np.number) or np.isnan(label):
            raise ValueError("not a number")  # noqa: TRY301
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
        raise ValueError(f"{label!r} is no label of a coordinate of {values.dtype}") from error
    if kind == "f":  # xarray's labels have the precision of the values
        with np.errstate(over="ignore"):
            return values.dtype.type(label), None
    return label, None


def _time(dtype: np.dtype[Any], label: Any) -> tuple[Any, Any]:
    """The first of the times of ``dtype`` in a time, and the first after it; None for the latter where it is one time.

    Times that the dtype cannot hold become its ends, as numpy's conversions overflow silently.
    """
    date = np.datetime64(_iso(label))
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


def _span(label: Any) -> tuple[Any, Any]:
    """A duration, also as ``5 days`` or ``12h``; of text also the end of a range to it, which includes all of the
    longest unit that it is a multiple of."""
    if not isinstance(label, str):
        return np.timedelta64(label), None
    match = re.fullmatch(r"\s*([+-]?[0-9]{1,18})\s*(days?|D|hours?|h|minutes?|min|m|seconds?|s|ms|us|ns)\s*", label)
    name = "" if match is None else match[2] if match[2] in _UNITS else {"d": "D"}.get(match[2][0], match[2][0])
    count = 0 if match is None else int(match[1]) * (_PER_DAY["ns"] // _PER_DAY[name])
    if match is None or abs(count) > 2**62:
        raise ValueError("not a duration")
    unit = next(candidate for candidate in _UNITS if count % (_PER_DAY["ns"] // _PER_DAY[candidate]) == 0)
    span, one = (np.timedelta64(number, "ns") for number in (count, _PER_DAY["ns"] // _PER_DAY[unit]))
    return span, span + one


def _iso(label: Any) -> str:
    """A date in ISO 8601, to be read by numpy: of years of four digits, in UTC."""
    text = label if isinstance(label, str) else str(label) if isinstance(label, np.datetime64) else label.isoformat()
    text = text.strip().removesuffix("Z").removesuffix("+00:00")
    if not re.fullmatch(r"\d{4}(-\d\d(-\d\d([T ]\d\d(:\d\d(:\d\d(\.\d{1,9})?)?)?)?)?)?", text, re.ASCII):
        raise ValueError("not a date")
    return text


def _is_coarser(values: NDArray[Any], label: str) -> bool:
    """Whether the unit of a date is longer than that of the coordinate, so that it stands for a time and not for a
    value: as for pandas, days are the longest unit of values."""
    if values.dtype.kind != "M":
        return True
    unit = np.datetime_data(np.datetime64(_iso(label)).dtype)[0]
    if unit not in _UNITS:
        return True
    own = next((candidate for candidate in _UNITS if bool((values.astype(f"M8[{candidate}]") == values).all())), "ns")
    return _UNITS.index(unit) < _UNITS.index(own)
