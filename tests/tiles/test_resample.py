"""Means and nearest cells, against loops over single pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.tiles.pyramid import Edges, Span, box_edges
from hyperslab.tiles.resample import mean, work_dtype

DTYPES = ["?", "u1", "<i2", ">u2", "<u4", "<i4", "<i8", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16"]


def sample(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Values whose sums no float rounds."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2 if dtype == "?" else 120, shape)
    if np.dtype(dtype).kind == "c":
        return (values + 1j * values[..., ::-1]).astype(dtype)
    return values.astype(dtype)


def slow_mean(
    values: np.ndarray, hidden: np.ndarray | None, rows: Edges, columns: Edges
) -> tuple[np.ndarray, np.ndarray]:
    """Each pixel by itself."""
    shape = (*values.shape[:-2], len(rows) - 1, len(columns) - 1)
    out, gone = np.zeros(shape, complex if values.dtype.kind == "c" else float), np.zeros(shape, bool)
    for place in np.ndindex(shape):
        *front, i, j = place
        box = (
            *front,
            slice(rows[i] - rows[0], rows[i + 1] - rows[0]),
            slice(columns[j] - columns[0], columns[j + 1] - columns[0]),
        )
        cells = values[box].astype(out.dtype)
        there = np.ones(cells.shape, bool) if hidden is None else ~hidden[box]
        gone[place] = not there.any()
        out[place] = 0 if gone[place] else cells[there].sum() / there.sum()
    return out.astype(work_dtype(values.dtype)), gone


@st.composite
def spans(draw: st.DrawFn) -> tuple[int, Edges]:
    """The size of a level, and edges of boxes in it as tiles have them."""
    size = draw(st.integers(1, 90))
    step = draw(st.sampled_from([1, 2, 3, 4, 8, 17, 32, 1.5, 2.5]))
    count = draw(st.integers(1, max(1, int(size // step))))
    start = draw(st.integers(0, max(0, int(size // step) - count))) * step
    return size, box_edges(Span(start, step, count), 1, 0, size)


@given(dtype=st.sampled_from(DTYPES), vertical=spans(), horizontal=spans(), share=st.none() | st.floats(0, 1))
def test_a_pixel_is_the_mean_of_its_cells_that_are_not_hidden(
    dtype: str, vertical: tuple[int, Edges], horizontal: tuple[int, Edges], share: float | None
) -> None:
    rows, columns = vertical[1], horizontal[1]
    values = sample(dtype, (2, rows[-1] - rows[0], columns[-1] - columns[0]))
    hidden = None if share is None else np.random.default_rng(1).random(values.shape) < share
    if hidden is not None and values.dtype.kind in "fc":
        values[hidden] = np.nan

    found, gone = mean(values, hidden, rows, columns)

    expected, nothing = slow_mean(values, hidden, rows, columns)
    np.testing.assert_array_equal(nothing if gone is None else gone, nothing)
    np.testing.assert_array_equal(found[~nothing], expected[~nothing].astype(found.dtype))


def test_a_level_that_ends_too_early_is_continued_by_its_last_cell() -> None:
    values = np.array([[1.0, 2.0, 3.0]])
    edges = box_edges(Span(0, 1, 5), 1, 0, 3)

    found, _ = mean(values, None, np.array([0, 1]), edges)

    assert found.tolist() == [[1, 2, 3, 3, 3]]


def test_the_largest_integers_do_not_overflow() -> None:
    values = np.full((4, 4), np.iinfo(np.uint64).max, np.uint64)
    small = np.full((512, 512), 65535, np.uint16)
    edges, wide = np.array([0, 4]), np.array([0, 512])

    assert mean(values, None, edges, edges)[0].item() == float(np.iinfo(np.uint64).max)
    assert mean(small, None, wide, wide)[0].item() == 65535


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_what_has_no_mean_is_hidden_and_what_is_infinite_stays_so(dtype: str) -> None:
    largest = np.finfo(dtype).max
    values = np.array([[np.inf, -np.inf, np.inf, 1, largest, largest, 2, 4]], dtype)
    edges = np.arange(0, 9, 2)

    means, hidden = mean(values, None, np.array([0, 1]), edges)

    assert hidden is not None
    assert hidden.tolist() == [[True, False, False, False]]
    assert means[0, 1] == np.inf
    assert means[0, 3] == 3
