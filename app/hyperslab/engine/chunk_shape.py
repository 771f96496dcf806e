"""Choosing a chunk shape: TensorStore's bisection for a number of elements, and zarr-python's guess by bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

DEFAULT_ELEMENTS: Final = 1 << 20
"""Target of elements in a chunk where nothing else is said; the item size plays no part (CONFORMANCE 224)."""

_LARGEST = 2**62
_GUESS_BASE_BYTES = 256 << 10
_GUESS_BYTES = (128 << 10, 64 << 20)


def choose_chunks(
    shape: Sequence[int],
    *,
    chunk_shape: Sequence[int] = (),
    aspect_ratio: Sequence[float] = (),
    elements: int | None = None,
    inner: Sequence[int] = (),
) -> tuple[int, ...]:
    """The chunk shape that TensorStore's zarr driver would choose (CONFORMANCE 223 to 230).

    For each axis ``chunk_shape`` is a size, 0 for free, or -1 for the whole axis, and ``aspect_ratio`` the proportion
    of a free one, 0 for 1; empty means all free and all 1. ``elements`` is the target, reached from below and exceeded
    only by fixed sizes; it counts the subarray dimensions ``inner``, which are always whole. An empty axis has chunk 1.
    """
    target = min(DEFAULT_ELEMENTS if elements is None else elements, _LARGEST)
    sizes = [_fixed_size(size, extent) for size, extent in zip(chunk_shape or [0] * len(shape), shape, strict=True)]
    ratios = [ratio or 1.0 for ratio in (aspect_ratio or [1.0] * len(shape))]
    free = [axis for axis, size in enumerate(sizes) if not size]
    if free:
        caps = [float(min(max(target, 1), max(1, shape[axis]))) for axis in free]
        fixed = math.prod(size for size in sizes if size) * math.prod(inner)
        grown = _grow([float(ratios[axis]) for axis in free], caps, fixed, target)
        for axis, size in zip(free, grown, strict=True):
            sizes[axis] = size
    return tuple(sizes)


def guess_chunks(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The chunk shape that zarr-python guesses, for ``itemsize`` bytes an item (CONFORMANCE 233).

    The target grows tenfold slower than the array: 256 KiB for an array of 1 MiB, twice that for one of 10 MiB.
    """
    chunks = [max(1, size) for size in shape]
    nbytes = math.prod(chunks) * itemsize
    low, high = _GUESS_BYTES
    target = min(max(_GUESS_BASE_BYTES * 2 ** math.log10(nbytes / (1 << 20)), low), high)
    turn = 0
    while not _near(math.prod(chunks) * itemsize, target, high) and math.prod(chunks) > 1:
        axis = turn % len(chunks)
        chunks[axis] = -(-chunks[axis] // 2)
        turn += 1
    return tuple(chunks)


def _fixed_size(size: int, extent: int) -> int:
    return max(1, extent) if size == -1 else size


def _grow(ratios: list[float], caps: list[float], fixed: int, target: int) -> list[int]:
    """Sizes of the free axes: a common factor times their ratios, as large as the target allows.

    TensorStore's search, step by step, because its last step is coarse and the result depends on the way there: it
    halves the logarithm of the factor until the bounds are within a factor of 4, then the factor itself.
    """
    step = 0.5 * min(1.0 / ratio for ratio in ratios)
    low, high = step, 2.0 * max(cap / ratio for cap, ratio in zip(caps, ratios, strict=True))
    while low + step < high:
        middle = math.sqrt(low * high) if high > 4 * low else low + (high - low) / 2
        if middle in (low, high):  # neighbours already: doubles have no more between them
            break
        total = fixed * math.prod(_sizes(middle, ratios, caps))
        if total >= target:
            high = middle
        if total <= target:
            low = middle
    reached = fixed * math.prod(_sizes(high, ratios, caps)) == target
    return _sizes(high if reached else low, ratios, caps)


def _sizes(factor: float, ratios: list[float], caps: list[float]) -> list[int]:
    return [max(1, int(min(ratio * factor, cap))) for ratio, cap in zip(ratios, caps, strict=True)]


def _near(nbytes: int, target: float, high: int) -> bool:
    """Small enough: below the target, or within half of it, and below the most that is allowed."""
    return (nbytes < target or abs(nbytes - target) / target < 0.5) and nbytes < high
