"""Runs of items of a stored chunk: ``(start, stop)`` in stored order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Run: TypeAlias = tuple[int, int]
Region: TypeAlias = int | slice | NDArray[np.int64]
"""Selection along an axis of a chunk."""


def merge_runs(runs: Iterable[Run], gap: int) -> list[Run]:
    """Merge runs, sorted by start, that are at most ``gap`` items apart."""
    merged: list[Run] = []
    for run in runs:
        if merged and run[0] - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], max(run[1], merged[-1][1]))
        else:
            merged.append(run)
    return merged


def covers(runs: Sequence[Run], others: Sequence[Run]) -> bool:
    """Whether ``others`` lie within ``runs``, which are sorted, with gaps between them."""
    return merge_runs(sorted([*runs, *others]), 0) == [*runs]


def bounded(runs: list[Run], limit: int) -> list[Run]:
    """The runs, or if there are more than ``limit``, one around all; not for empty lists."""
    return runs if len(runs) <= limit else [(runs[0][0], runs[-1][1])]


def _axis_runs(region: Region) -> list[Run]:
    """The runs along an axis, sorted and disjoint."""
    if isinstance(region, int):
        return [(region, region + 1)]
    if not isinstance(region, slice):
        return runs_of(region)
    if region.step == 1:
        return [(region.start, region.stop)]
    indices = range(region.start, -1 if region.stop is None else region.stop, region.step)
    return [(i, i + 1) for i in (indices if region.step > 0 else reversed(indices))]


def runs_of(indices: NDArray[np.int64]) -> list[Run]:
    """Runs of consecutive numbers among ``indices`` (in any order, possibly repeated, not empty)."""
    sorted_ = np.unique(indices)
    cuts = np.flatnonzero(np.diff(sorted_) != 1) + 1
    starts = sorted_[np.concatenate(([0], cuts))]
    stops = sorted_[np.concatenate((cuts - 1, [-1]))] + 1
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def chunk_runs(
    regions: Sequence[Region], chunks: Sequence[int], *, order: str = "C", gap: int = 0, limit: int = 1024
) -> list[Run]:
    """The runs of a region of a chunk, merged across ``gap`` items, about ``limit`` at most.

    If there are more, runs are merged along the fastest axes first, in the worst case to one.
    """
    axes = list(zip(regions, chunks, strict=True))
    runs, stride = [(0, 1)], 1
    for region, size in reversed(axes) if order == "C" else axes:
        runs = _spread(_axis_runs(region), runs, stride, gap, limit)
        stride *= size
    return runs


def _spread(outer: list[Run], inner: list[Run], stride: int, gap: int, limit: int) -> list[Run]:
    """Repeat ``inner``, a pattern of ``stride`` items, for each index of ``outer``."""
    first, last = inner[0][0], inner[-1][1]
    repeats = sum(stop - start for start, stop in outer)
    if repeats * len(inner) > limit:
        inner = [(first, last)]
    if len(inner) == 1 and (stride - (last - first) <= gap or repeats > limit):
        spans = [(start * stride + first, (stop - 1) * stride + last) for start, stop in outer]
    else:
        indices = (i * stride for start, stop in outer for i in range(start, stop))
        spans = [(i + start, i + stop) for i in indices for start, stop in inner]
    return bounded(merge_runs(spans, gap), limit)
