"""Downsampling: mean or nearest cell per pixel. Pure numpy.

Integers are summed exactly and floats in double precision, so pixels do not depend on how the plane is tiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hyperslab.tiles.pyramid import Edges

NDArray = np.ndarray[Any, np.dtype[Any]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def is_identity(edges: Edges) -> bool:
    """Whether each pixel covers one cell."""
    return bool(np.all(np.diff(edges) == 1))


def work_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float dtype of means and windows: float32 if it is exact for all values, else float64; complex likewise."""
    if dtype.kind == "c":
        return np.dtype(np.complex64 if dtype.itemsize <= 8 else np.complex128)
    small = dtype.itemsize <= (4 if dtype.kind == "f" else 2)
    return np.dtype(np.float32 if small else np.float64)


@np.errstate(over="ignore", invalid="ignore")  # infinities are kept without a warning
def mean(values: NDArray, hidden: Mask | None, rows: Edges, columns: Edges) -> tuple[NDArray, Mask | None]:
    """Mean per pixel of the cells that are not ``hidden``, and the mask of pixels without a mean: no such cells, or
    infinities of both signs.

    ``values`` is ``(…, height, width)`` and starts at ``rows[0]``, ``columns[0]``. The result is in `work_dtype`, or
    ``values`` itself if each pixel covers one cell.
    """
    if is_identity(rows) and is_identity(columns):
        return values, hidden
    vertical, horizontal = _boxes(rows, values.shape[-2]), _boxes(columns, values.shape[-1])
    dtype = _sum_dtype(values.dtype, vertical, horizontal)
    if hidden is None:
        counts: NDArray = np.multiply.outer(_sizes(vertical), _sizes(horizontal))
        sums = _box_sums(values, vertical, horizontal, dtype)
    else:
        counts = _box_sums(~hidden, vertical, horizontal, np.dtype(np.int64))
        sums = _box_sums(np.where(hidden, values.dtype.type(0), values), vertical, horizontal, dtype)
        hidden, counts = counts == 0, np.maximum(counts, 1)
    means: NDArray = (sums / counts).astype(work_dtype(values.dtype))
    invalid: Mask = np.isnan(means)
    if not invalid.any():
        return means, hidden
    return means, invalid if hidden is None else hidden | invalid


def nearest(values: NDArray, rows: Edges, columns: Edges) -> NDArray:
    """The middle cell of each pixel; for values without a mean, such as labels."""
    if is_identity(rows) and is_identity(columns):
        return values
    vertical, horizontal = _boxes(rows, values.shape[-2]), _boxes(columns, values.shape[-1])
    middle_rows, middle_columns = (boxes[:-1] + np.diff(boxes) // 2 for boxes in (vertical, horizontal))
    return values[..., middle_rows[:, None], middle_columns]


def _boxes(edges: Edges, size: int) -> Edges:
    """Edges relative to the first, such that no pixel beyond the last cell is empty."""
    relative = edges - edges[0]
    starts = np.minimum(relative[:-1], size - 1)
    return np.append(starts, max(min(int(relative[-1]), size), int(starts[-1]) + 1))


def _sizes(edges: Edges) -> Edges:
    """Cells per pixel; 1 for those that share the last cell."""
    return np.maximum(np.diff(edges), 1)


def _sum_dtype(dtype: np.dtype[Any], rows: Edges, columns: Edges) -> np.dtype[Any]:
    if dtype.kind == "c":
        return np.dtype(np.complex128)
    if dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize <= 4):
        cells = int(np.max(_sizes(rows))) * int(np.max(_sizes(columns)))
        small = dtype.kind in "bu" and dtype.itemsize <= 2 and cells <= 1 << 16
        return np.dtype(np.uint32 if small else np.int64)
    return np.dtype(np.float64)


def _box_sums(values: NDArray, rows: Edges, columns: Edges, dtype: np.dtype[Any]) -> NDArray:
    """Sums per pixel, along rows first, which are contiguous in memory."""
    for edges, rest in ((rows, (slice(None),)), (columns, ())):
        axis, stop, sizes = -1 - len(rest), int(edges[-1]), np.diff(edges)
        step = int(sizes[0])
        uniform = bool(np.all(sizes[:-1] == step)) and 0 < sizes[-1] <= step
        if not uniform or step > 16:  # from there on `numpy.add.reduceat` is as fast
            values = np.add.reduceat(values[(..., slice(stop), *rest)], edges[:-1], axis=axis, dtype=dtype)
            continue
        shape = list(values.shape)
        shape[axis] = len(sizes)
        sums = np.zeros(shape, dtype)
        for offset in range(step):
            part = values[(..., slice(offset, stop, step), *rest)]
            sums[(..., slice(part.shape[axis]), *rest)] += part
        values = sums
    return values
