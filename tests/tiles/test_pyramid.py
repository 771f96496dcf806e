"""Which tiles there are, what they show, and which level they are made from."""

from __future__ import annotations

from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.tiles.image import Level
from hyperslab.tiles.pyramid import Span, TileGrid, axis_factor, box_edges, choose_level, level_index

sizes = st.integers(1, 100_000)


def level(*factors: float) -> Level:
    return Level("", None, factors)  # type: ignore[arg-type]


@given(sizes, sizes, st.sampled_from([64, 100, 256, 1024]))
def test_the_last_zoom_is_full_resolution_and_the_first_one_tile(height: int, width: int, size: int) -> None:
    grid = TileGrid(height, width, size)

    assert grid.maxzoom == max(0, ceil(log2(max(height, width) / size)))
    assert grid.factor(grid.maxzoom) == 1
    assert grid.counts(0) == (1, 1)


@given(st.integers(1, 3000), st.integers(1, 3000), st.data())
def test_tiles_of_a_zoom_cover_the_plane_without_overlap(height: int, width: int, data: st.DataObject) -> None:
    grid = TileGrid(height, width, 256)
    z = data.draw(st.integers(0, grid.maxzoom))
    rows, columns = grid.counts(z)

    spans = [grid.region(z, row, 0).rows for row in range(rows)]

    assert sum(span.count for span in spans) == ceil(height / grid.factor(z))
    assert all(span.start == i * 256 * grid.factor(z) for i, span in enumerate(spans))
    assert all(0 < span.count <= 256 for span in spans)
    assert grid.region(z, 0, columns - 1).columns.count > 0


@pytest.mark.parametrize(
    ("full", "size", "ratio", "factor"),
    [
        (100, 100, None, 1),
        (1025, 512, None, 2),  # the writer has rounded down
        (1025, 513, None, 2),  # or up
        (1025, 513, 2.0, 2),
        (900, 300, 2.0, 3),  # the sizes tell otherwise
        (100, 40, None, 2.5),
        (100, 40, 2.5, 2.5),
        (5, 5, 2.0, 1),
        (0, 0, 2.0, 1),
        (7, 1, 8.0, 8),
        (5, 0, 2.0, 1),
        (100, 50, -2.0, 2),
    ],
)
def test_the_factor_of_a_level_follows_metadata_that_fits_the_sizes(
    full: int, size: int, ratio: float | None, factor: float
) -> None:
    assert axis_factor(full, size, ratio) == factor


@pytest.mark.parametrize(("step", "expected"), [(1, 1), (1.9, 1), (2, 2), (3, 2), (4, 4), (64, 8)])
def test_the_coarsest_level_that_is_fine_enough_is_taken(step: float, expected: float) -> None:
    levels = [level(1.0, f, f) for f in (1.0, 2.0, 4.0, 8.0)]

    assert choose_level(levels, (1, 2), (step, step)).factors[1] == expected


def test_both_axes_of_the_plane_have_to_be_fine_enough() -> None:
    levels = [level(1.0, 1.0), level(1.0, 4.0), level(4.0, 4.0)]

    assert choose_level(levels, (0, 1), (2, 4)).factors == (1.0, 4.0)


@given(st.integers(1, 500), st.sampled_from([1.0, 2.0, 2.5, 3.0]), st.integers(0, 5), st.integers(1, 40))
def test_boxes_follow_each_other_and_are_never_empty(size: int, step: float, start: int, count: int) -> None:
    count = min(count, max(1, int(size / step) - start))
    edges = box_edges(Span(start * step, step, count), 1, max(size, int((start + count) * step)))

    assert len(edges) == count + 1
    assert (np.diff(edges) >= 1).all()


def test_scales_that_are_decimal_fractions_do_not_shift_boxes() -> None:
    factor = 0.65 / 0.325 * (1 + 1e-12)

    assert box_edges(Span(0, 2, 1000), factor, 1000).tolist() == list(range(1001))


@given(st.integers(1, 200), st.sampled_from([1, 2, 4]))
def test_a_position_stays_on_the_axis_in_every_level(size: int, factor: int) -> None:
    cells = ceil(size / factor)

    assert all(0 <= level_index(i, factor, cells) == i // factor < cells for i in range(size))
