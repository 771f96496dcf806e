"""Rows of chunks are the chunks of `project`, taken together."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab.engine.chunk_rows import ChunkRow, project_rows, single_row
from hyperslab.engine.grid import ChunkGrid
from hyperslab.engine.indexing import normalise, project, touched_coords
from tests.engine.strategies import Case, cases


@given(cases(), st.integers(1, 4))
@settings(max_examples=300)
def test_a_selection_assembled_from_rows_is_numpys(case: Case, most: int) -> None:
    selection = normalise(case.items, case.grid.shape)
    out = np.full(selection.shape, -2, case.array.dtype)

    for row in project_rows(selection, case.grid, most):
        chunks = [case.chunk(projection.coords) for projection in row.projections()]
        before = np.full_like(chunks[0], -3)
        row.move(1, ())(np.stack([before, *chunks]), out)

    np.testing.assert_array_equal(out, case.expected)


@given(cases(), st.integers(1, 4))
def test_each_chunk_is_in_one_row(case: Case, most: int) -> None:
    selection = normalise(case.items, case.grid.shape)

    rows = list(project_rows(selection, case.grid, most))

    chunks = [projection.coords for row in rows for projection in row.projections()]
    assert sorted(chunks) == sorted(touched_coords(selection, case.grid))
    assert all(1 <= len(row) <= most for row in rows)


@given(cases(), st.sampled_from("./"))
def test_keys_are_those_of_the_grid(case: Case, separator: str) -> None:
    grid = ChunkGrid(case.grid.shape, case.grid.chunks, separator)  # type: ignore[arg-type]

    for row in project_rows(normalise(case.items, grid.shape), grid, 3):
        assert row.keys("a/", grid) == ["a/" + grid.key(one.coords) for one in row.projections()]


def rows_of(shape: tuple[int, ...], chunks: tuple[int, ...], most: int) -> list[ChunkRow]:
    return list(project_rows(normalise((), shape), ChunkGrid(shape, chunks), most))


def test_rows_run_along_the_axis_with_most_chunks() -> None:
    assert [len(row) for row in rows_of((100, 4), (10, 2), 64)] == [10, 10]
    assert [len(row) for row in rows_of((4, 100), (2, 10), 64)] == [10, 10]


def test_a_chunk_at_the_edge_is_on_its_own() -> None:
    assert [len(row) for row in rows_of((95,), (10,), 64)] == [9, 1]


def test_an_axis_of_very_many_chunks_is_not_worked_out_beforehand() -> None:
    rows = project_rows(normalise((), (1 << 40,)), ChunkGrid((1 << 40,), (1,)), 8)

    assert len(next(rows)) == 8


def test_fields_have_their_subarrays_behind_them() -> None:
    grid, values = ChunkGrid((6, 4), (2, 4)), np.arange(6 * 4 * 3).reshape(6, 4, 3)
    (row,) = project_rows(normalise((slice(None), slice(1, 3)), grid.shape), grid, 8)
    out = np.zeros((6, 2, 3), values.dtype)

    row.move(0, (3,))(values.reshape(3, 2, 4, 3), out)

    np.testing.assert_array_equal(out, values[:, 1:3])


def test_a_row_of_one_chunk_is_that_chunk() -> None:
    for shape, chunks in (((), ()), ((3, 5), (3, 5))):
        grid = ChunkGrid(shape, chunks)
        (projection,) = project(normalise((), shape), grid)

        assert single_row(projection).keys("", grid) == [grid.key(projection.coords)]
        assert list(single_row(projection).projections()) == [projection]
