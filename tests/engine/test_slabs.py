from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.engine.grid import ChunkGrid
from hyperslab.engine.indexing import project, split_rows
from hyperslab.engine.selection import Selection, normalise
from tests.engine.strategies import Array, Case, cases


def body(case: Case, selection: Selection, inner_shape: tuple[int, ...]) -> bytes:
    """The C-order bytes of a selection, each item repeated over ``inner_shape`` as int64."""
    out = np.zeros(selection.shape, np.int64)
    for projection in project(selection, case.grid):
        projection.copy_out(case.chunk(projection.coords), out)
    return _repeat(out, inner_shape).tobytes()


def _repeat(values: Array, inner_shape: tuple[int, ...]) -> Array:
    return values.reshape((*values.shape, *(1 for _ in inner_shape))) + np.zeros(inner_shape, np.int64)


@given(cases(), st.lists(st.integers(0, 3), max_size=2), st.integers(1, 2000), st.data())
def test_slabs_put_together_are_the_whole(case: Case, inner: list[int], limit: int, data: st.DataObject) -> None:
    inner_shape = tuple(inner)
    selection = normalise(case.items, case.grid.shape)
    whole = _repeat(case.expected, inner_shape).tobytes()

    slabs = list(split_rows(selection, inner_shape, itemsize=8, grid=case.grid, limit_bytes=limit))

    assert [a for _, a, _ in slabs[:1]] + [b for _, _, b in slabs[-1:]] == ([0, len(whole)] if whole else [])
    assert all(before[2] == after[1] for before, after in pairwise(slabs))
    for part, start, stop in slabs:
        assert 0 < stop - start <= max(limit, 8 * math.prod(inner_shape))
        assert body(case, part, inner_shape) == whole[start:stop]
    first = data.draw(st.integers(0, len(whole)))
    last = data.draw(st.integers(first, len(whole)))
    some = split_rows(
        selection, inner_shape, itemsize=8, grid=case.grid, limit_bytes=limit, start=first, stop=last
    )  # fmt: skip
    wanted = [(a, b) for _, a, b in slabs if a < last and b > first and first < last]
    assert [(a, b) for _, a, b in some] == wanted


def test_a_start_far_inside_a_huge_selection_is_reached_by_arithmetic() -> None:
    size = 2**40
    grid = ChunkGrid((size, size), (1000, 1000))
    start = size * size * 2 - 5

    slabs = list(split_rows(normalise((), grid.shape), (), itemsize=2, grid=grid, limit_bytes=2**20, start=start))

    assert len(slabs) == 1
    assert slabs[0][1] <= start < slabs[0][2] == size * size * 2
