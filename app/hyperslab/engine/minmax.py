"""Minimum, maximum and mean of bins along an axis, accumulated from parts."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from hyperslab.wire import is_extension, numbers_dtype

NDArray = np.ndarray[Any, np.dtype[Any]]

PARTS: Final = 3
"""Values per bin: minimum, maximum, mean."""
_LARGEST: Final = float(np.nextafter(2.0**63, 0))


def reduced_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The dtype of bins: floats of the same size or float32, float64 for integers, floats for magnitudes of complex
    numbers, times unchanged; None for unordered dtypes."""
    if is_extension(dtype):
        return np.dtype("<f4")
    if dtype.kind in "mM":
        return dtype.newbyteorder("<")
    if dtype.kind in "biu":
        return np.dtype("<f8")
    if dtype.kind in "fc":
        return np.dtype("<f8" if dtype.itemsize >= (8 if dtype.kind == "f" else 16) else "<f4")
    return None


class MinMax:
    """Accumulator for ``rows`` of ``length`` items in ``bins``, of which bin ``i`` starts at item ``i * length //
    bins``. NaN and NaT are ignored; a bin of nothing else is NaN or NaT."""

    def __init__(self, rows: int, length: int, bins: int, dtype: np.dtype[Any]) -> None:
        self._length, self._bins = length, bins
        self._edges = np.array([i * length // bins for i in range(bins)], np.int64)
        missing = np.array(np.iinfo(np.int64).min).view(dtype) if dtype.kind in "mM" else math.nan  # NaT of any unit
        self._low = np.full(rows * bins, missing, dtype)
        self._high = self._low.copy()
        self._sums = np.zeros(rows * bins)
        self._counts = np.zeros(rows * bins, np.int64)
        self._done = 0

    def add(self, values: NDArray) -> None:
        """Add the next items, in one dimension."""
        if values.size:
            with np.errstate(all="ignore"):
                self._add(values)

    def _add(self, values: NDArray) -> None:
        values = values.astype(numbers_dtype(values.dtype), copy=False)
        values = np.abs(values) if values.dtype.kind == "c" else values
        values = values.astype(self._low.dtype, copy=False)
        bins = np.arange(self._bin(self._done), self._bin(self._done + values.size - 1) + 1)
        starts = bins // self._bins * self._length + self._edges[bins % self._bins] - self._done
        starts[0] = 0
        self._done += values.size
        part = slice(bins[0], bins[-1] + 1)
        for result, reduce in ((self._low, np.fmin), (self._high, np.fmax)):
            result[part] = reduce(result[part], reduce.reduceat(values, starts))
        valid = ~np.isnat(values) if values.dtype.kind in "mM" else ~np.isnan(values)
        numbers = values.view("<i8") if values.dtype.kind in "mM" else values
        self._sums[part] += np.add.reduceat(np.where(valid, numbers, 0), starts, dtype=np.float64)
        self._counts[part] += np.add.reduceat(valid, starts, dtype=np.int64)

    def _bin(self, item: int) -> int:
        row, within = divmod(item, self._length)
        return int(row * self._bins + np.searchsorted(self._edges, within, "right") - 1)

    def result(self) -> NDArray:
        """The statistics, ``(rows * bins, 3)``."""
        dtype = self._low.dtype
        with np.errstate(all="ignore"):
            mean = self._sums / self._counts
            if dtype.kind in "mM":
                finite = np.clip(np.where(self._counts > 0, mean, 0), -_LARGEST, _LARGEST)
                means = np.rint(finite).astype(np.int64).view(dtype)
            else:
                means = mean.astype(dtype)
        means = np.minimum(np.maximum(means, self._low), self._high)  # rounding may exceed them; NaN is kept
        return np.stack([self._low, self._high, means], axis=-1)
