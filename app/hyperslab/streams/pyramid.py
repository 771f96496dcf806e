"""Downsampling by two along some axes, which makes each level of a pyramid from the level above."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

import numpy as np

from hyperslab.wire import extension_name, kind_of, numbers_dtype, part_dtype
from hyperslab.wire.data_types import EXTENSION_FLOATS

Method = Literal["decimate", "mean", "min", "max", "mode", "nearest"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)
_SLAB: Final = 4 << 20
"""Larger blocks are reduced row by row: sums stay in the CPU cache, in half the time (benchmark ``streams``)."""


def why_not(method: str, dtype: np.dtype[Any]) -> str | None:
    """Reason why a method cannot reduce a dtype; None if it can."""
    kind = kind_of(dtype)
    if method == "mean" and kind not in "iufc":
        return "a mean needs numbers"
    return f"{method} needs items that have an order" if method in ("min", "max") and kind in "cV" else None


def reduce(block: np.ndarray, method: str, axes: Sequence[int]) -> np.ndarray:
    """Halve a block along ``axes``, to ⌈n/2⌉ items; never a view of it.

    An item is reduced from two items along each axis, at an odd edge from one. ``decimate`` and ``nearest`` take the
    first. ``mean`` is rounded once, integers half to even, and exact for all widths; floats are summed in
    float64. NaN wins in ``mean``, ``min`` and ``max``. ``mode`` is the smallest of the most frequent.
    """
    if block.nbytes > _SLAB and 0 not in axes:
        inner = [axis - 1 for axis in axes]
        out = np.empty([-(-size // 2) if axis in axes else size for axis, size in enumerate(block.shape)], block.dtype)
        for index, part in enumerate(block):
            out[index] = reduce(part, method, inner)
        return out
    if method in ("decimate", "nearest"):
        return block[tuple([slice(None, None, 2 if axis in axes else 1) for axis in range(block.ndim)])].copy()
    items = block.astype(numbers_dtype(block.dtype).newbyteorder("="), copy=False)
    if method == "mean":
        return _cast(_mean(items, axes), block.dtype)
    values: np.ndarray | None = None
    if items.dtype.kind not in ("biu" if method == "mode" else "biufmM"):
        values, codes = np.unique(items, return_inverse=True)
        items = codes.reshape(items.shape)
    if method == "mode":
        reduced = _mode(items, axes)
    else:
        reduced = _pairwise(np.minimum if method == "min" else np.maximum, items, axes, items.dtype)
    return (reduced if values is None else values[reduced]).astype(block.dtype, copy=False)


def _cast(means: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Means in a dtype, rounded once. ``ml_dtypes`` converts by way of float32, so that is rounded to odd: a value
    whose last bit is 1 never lies half way between two values of a narrower float."""
    if extension_name(dtype) is not None and means.dtype.kind == "c":
        return _cast(np.ascontiguousarray(means).view(np.float64), part_dtype(dtype)).view(dtype)
    if dtype.name not in EXTENSION_FLOATS:
        return means.astype(dtype, copy=False)
    single = means.astype(np.float32)
    error = means - single
    even = (error != 0) & np.isfinite(single) & (single.view(np.uint32) & 1 == 0)
    neighbour = np.nextafter(single, np.copysign(np.float32(np.inf), error).astype(np.float32))
    return np.where(even, neighbour, single).astype(dtype)


def _pairwise(ufunc: np.ufunc, items: np.ndarray, axes: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray:
    """``ufunc`` of pairs along each axis in turn, in ``dtype``; an item without a partner is kept."""
    for axis in sorted(axes):
        pairs, odd = divmod(items.shape[axis], 2)
        before = (slice(None),) * axis
        out = np.empty((*items.shape[:axis], pairs + odd, *items.shape[axis + 1 :]), dtype)
        first, second = items[(*before, slice(0, 2 * pairs, 2))], items[(*before, slice(1, 2 * pairs, 2))]
        ufunc(first, second, out=out[(*before, slice(0, pairs))], dtype=dtype.type)
        if odd:
            out[(*before, slice(pairs, None))] = items[(*before, slice(2 * pairs, None))]
        items = out
    return items


def _mean(items: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    kind, itemsize, halvings = items.dtype.kind, items.dtype.itemsize, len(axes)
    if kind in "fc":
        counts: Any = 1  # of the items in each sum
        for axis in axes:
            pairs, odd = divmod(items.shape[axis], 2)
            counts = counts * np.array([2] * pairs + [1] * odd).reshape(-1, *[1] * (items.ndim - 1 - axis))
        with np.errstate(invalid="ignore", over="ignore"):
            sums = _pairwise(np.add, items, axes, np.dtype("f8" if kind == "f" else "c16"))
            sums /= counts
        return sums
    items = _evened(items, axes)
    if itemsize < 8:
        sums = _pairwise(np.add, items, axes, np.dtype(f"{kind}{2 * itemsize}"))
        _round(sums, sums >> halvings, halvings)
        return sums
    # sums of the upper bits and of the lower ones have room in 64 bits
    high = _pairwise(np.add, items >> halvings, axes, items.dtype)
    low = _pairwise(np.add, items & ((1 << halvings) - 1), axes, items.dtype)
    _round(low, high + (low >> halvings), halvings)
    low += high
    return low


def _round(sums: np.ndarray, quotient: np.ndarray, halvings: int) -> None:
    """Divide sums in place by a power of two, rounding half to even; ``quotient``: parity of the results."""
    quotient &= 1
    sums += quotient
    sums += (1 << (halvings - 1)) - 1
    sums >>= halvings


def _evened(items: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """The items with odd edges repeated: mean and mode do not change if every item counts twice."""
    if all(items.shape[axis] % 2 == 0 for axis in axes):
        return items
    return np.pad(items, [(0, size % 2 if axis in axes else 0) for axis, size in enumerate(items.shape)], "edge")


def _mode(items: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """The smallest of the most frequent items of each block: sorted, the first of the longest runs."""
    items = _evened(items, axes)
    steps = [(slice(0, None, 2), slice(1, None, 2)) if axis in axes else (slice(None),) for axis in range(items.ndim)]
    candidates = [items[index] for index in itertools.product(*steps)]
    for end in range(len(candidates) - 1, 0, -1):
        for row in range(end):
            one, other = candidates[row], candidates[row + 1]
            candidates[row], candidates[row + 1] = np.minimum(one, other), np.maximum(one, other)
    best = candidates[0].copy()
    longest = np.ones(best.shape, np.uint8)
    run = longest.copy()
    for previous, item in itertools.pairwise(candidates):
        run *= item == previous
        run += 1
        np.copyto(best, item, where=run > longest)
        np.maximum(longest, run, out=longest)
    return best
