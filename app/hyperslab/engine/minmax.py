"""Minimum, maximum and mean of the bins of an axis, from values that come piece by piece."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]

PARTS: Final = 3
"""Of each bin: the least, the largest, the mean."""


def reduced_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """What bins of these values hold: floats of the same size or float32, float64 for integers, the magnitude of
    complex numbers, times as they are; None for what has no order."""
    if dtype.kind in "mM":
        return dtype.newbyteorder("<")
    if dtype.kind in "biu":
        return np.dtype("<f8")
    if dtype.kind in "fc":
        return np.dtype("<f8" if dtype.itemsize >= (8 if dtype.kind == "f" else 16) else "<f4")
    return np.dtype("<f4") if dtype.kind == "V" and dtype.isbuiltin == 2 else None  # the short floats of ml_dtypes


class MinMax:
    """``rows`` of ``length`` items each, cut into ``bins``: bin ``i`` begins with item ``i * length // bins``.

    What is no number counts for nothing; a bin of nothing else has none.
    """

    def __init__(self, rows: int, length: int, bins: int, dtype: np.dtype[Any]) -> None:
        self._length, self._bins = length, bins
        self._edges = np.array([i * length // bins for i in range(bins)], np.int64)
        none = np.datetime64("NaT") if dtype.kind == "M" else np.timedelta64("NaT") if dtype.kind == "m" else math.nan
        self._low = np.full(rows * bins, none, dtype)
        self._high = self._low.copy()
        self._sums = np.zeros(rows * bins)
        self._counts = np.zeros(rows * bins, np.int64)
        self._done = 0

    def add(self, values: NDArray) -> None:
        """The next items, in one dimension."""
        if not values.size:
            return
        values = np.abs(values) if values.dtype.kind == "c" else values
        values = values.astype(self._low.dtype, copy=False)
        bins = np.arange(self._bin(self._done), self._bin(self._done + values.size - 1) + 1)
        starts = bins // self._bins * self._length + self._edges[bins % self._bins] - self._done
        starts[0] = 0
        self._done += values.size
        part = slice(bins[0], bins[-1] + 1)
        for held, least in ((self._low, np.fmin), (self._high, np.fmax)):
            held[part] = least(held[part], least.reduceat(values, starts))
        there = ~np.isnat(values) if values.dtype.kind in "mM" else ~np.isnan(values)
        numbers = values.view("<i8") if values.dtype.kind in "mM" else values
        self._sums[part] += np.add.reduceat(np.where(there, numbers, 0), starts, dtype=np.float64)
        self._counts[part] += np.add.reduceat(there, starts, dtype=np.int64)

    def _bin(self, item: int) -> int:
        row, within = divmod(item, self._length)
        return int(row * self._bins + np.searchsorted(self._edges, within, "right") - 1)

    def result(self) -> NDArray:
        """``(rows * bins, 3)``."""
        dtype = self._low.dtype
        with np.errstate(all="ignore"):
            mean = self._sums / self._counts
            known = np.where(self._counts > 0, mean, 0) if dtype.kind in "mM" else mean
            means = np.rint(known).astype(np.int64).view(dtype) if dtype.kind in "mM" else known.astype(dtype)
        means = np.minimum(np.maximum(means, self._low), self._high)  # rounding leads out; what is missing stays so
        return np.stack([self._low, self._high, means], axis=-1)
