"""Making a picture smaller: the mean of the cells under each pixel, or one of them. Pure numpy.

Sums of integers are exact and those of floats in double precision: a pixel does not depend on how tiles are cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hyperslab.tiles.pyramid import Edges

NDArray = np.ndarray[Any, np.dtype[Any]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def is_identity(edges: Edges) -> bool:
    """Whether each pixel is one cell."""
    return bool(np.all(np.diff(edges) == 1))


def work_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The float in which values are averaged and windowed: float32 where it holds them all exactly, else float64."""
    if dtype.kind == "c":
        return np.dtype(np.complex64 if dtype.itemsize <= 8 else np.complex128)
    small = dtype.itemsize <= (4 if dtype.kind == "f" else 2)
    return np.dtype(np.float32 if small else np.float64)


@np.errstate(over="ignore", invalid="ignore")  # what is infinite stays so, and is no reason to warn
def mean(values: NDArray, hidden: Mask | None, rows: Edges, columns: Edges) -> tuple[NDArray, Mask | None]:
    """The mean of the cells of each pixel that are not ``hidden``, and the pixels that have none: all their cells are
    hidden, or both infinities are among them.

    ``values`` is ``(…, height, width)`` and starts at ``rows[0]``, ``columns[0]``. Where pixels are cells it comes back
    as it is, else in `work_dtype`.
    """
    if is_identity(rows) and is_identity(columns):
        return values, hidden
    vertical, horizontal = _boxes(rows, values.shape[-2]), _boxes(columns, values.shape[-1])
    dtype = _sum_dtype(values.dtype, vertical, horizontal)
    if hidden is None:
        counts: NDArray = np.multiply.outer(_sizes(vertical), _sizes(horizontal))
        sums = _box_sums(values, vertical, horizontal, dtype)
        return _with_holes((sums / counts).astype(work_dtype(values.dtype)), None)
    counts = _box_sums(~hidden, vertical, horizontal, np.dtype(np.int64))
    sums = _box_sums(np.where(hidden, values.dtype.type(0), values), vertical, horizontal, dtype)
    return _with_holes((sums / np.maximum(counts, 1)).astype(work_dtype(values.dtype)), counts == 0)


def _with_holes(means: NDArray, hidden: Mask | None) -> tuple[NDArray, Mask | None]:
    holes: Mask = np.isnan(means)
    if not holes.any():
        return means, hidden
    return means, holes if hidden is None else hidden | holes


def nearest(values: NDArray, rows: Edges, columns: Edges) -> NDArray:
    """The middle one of the cells of each pixel; for values that have no mean, such as labels."""
    if is_identity(rows) and is_identity(columns):
        return values
    vertical, horizontal = _boxes(rows, values.shape[-2]), _boxes(columns, values.shape[-1])
    middle_rows, middle_columns = (boxes[:-1] + np.diff(boxes) // 2 for boxes in (vertical, horizontal))
    return values[..., middle_rows[:, None], middle_columns]


def _boxes(edges: Edges, size: int) -> Edges:
    """Edges relative to the first, of boxes that are not empty even where the cells end too early."""
    relative = edges - edges[0]
    starts = np.minimum(relative[:-1], size - 1)
    return np.append(starts, max(min(int(relative[-1]), size), int(starts[-1]) + 1))


def _sizes(edges: Edges) -> Edges:
    """Cells per box; one where two boxes share the last cell."""
    return np.maximum(np.diff(edges), 1)


def _sum_dtype(dtype: np.dtype[Any], rows: Edges, columns: Edges) -> np.dtype[Any]:
    if dtype.kind == "c":
        return np.dtype(np.complex128)
    if dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize <= 4):
        cells = int(_sizes(rows).max()) * int(_sizes(columns).max())
        small = dtype.kind in "bu" and dtype.itemsize <= 2 and cells <= 1 << 16
        return np.dtype(np.uint32 if small else np.int64)
    return np.dtype(np.float64)


def _box_sums(values: NDArray, rows: Edges, columns: Edges, dtype: np.dtype[Any]) -> NDArray:
    """Rows first: they lie in memory one after the other, and less is left to do for the columns."""
    for edges, rest in ((rows, (slice(None),)), (columns, ())):
        axis, stop, sizes = -1 - len(rest), int(edges[-1]), np.diff(edges)
        step = int(sizes[0])
        uniform = bool(np.all(sizes[:-1] == step)) and 0 < sizes[-1] <= step
        if not uniform or step > 16:  # of more, `numpy.add.reduceat` is as fast
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
