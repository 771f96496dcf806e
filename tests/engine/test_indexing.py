from __future__ import annotations

import gc
import itertools
import math
import tracemalloc
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.engine.grid import ChunkGrid
from hyperslab.engine.indexing import (
    PointProjection,
    broadcast_points,
    count_by_object,
    project,
    project_points,
    project_stored,
    touched,
)
from hyperslab.engine.selection import IndexAxis, ListAxis, Selection, SliceAxis, normalise
from hyperslab.errors import BadBody, BadSelection, IndexOutOfRange, TooManyIndices
from hyperslab.wire import SelectionItem
from tests.engine.strategies import Array, Case, axis_items, cases


def read(case: Case, selection: Selection) -> Array:
    """A selection assembled from chunks."""
    out = np.full(selection.shape, -2, case.array.dtype)
    for projection in project(selection, case.grid):
        projection.copy_out(case.chunk(projection.coords), out)
    return out


@given(cases())
def test_a_selection_assembled_from_chunks_equals_numpy(case: Case) -> None:
    selection = normalise(case.items, case.grid.shape)

    assert selection.shape == case.expected.shape
    assert selection.size == case.expected.size
    np.testing.assert_array_equal(read(case, selection), case.expected)


@given(cases())
def test_writing_is_the_same_projection_flipped(case: Case) -> None:
    selection = normalise(case.items, case.grid.shape)
    values = -np.arange(1, selection.size + 1).reshape(selection.shape)
    written = case.array.copy()

    for projection in project(selection, case.grid):
        chunk = case.chunk(projection.coords)
        projection.copy_in(values, chunk)
        inside = tuple(slice(0, n) for n in case.grid.extent(projection.coords))
        written[case.grid.bounds(projection.coords)] = chunk[inside]

    index = np.ix_(*(_axis_indices(axis) for axis in selection.axes))
    expected = case.array.copy()
    expected[index] = values.reshape(expected[index].shape)
    np.testing.assert_array_equal(written, expected)


@given(cases())
def test_each_touched_chunk_comes_once_and_is_counted(case: Case) -> None:
    selection = normalise(case.items, case.grid.shape)
    facts = zip(case.grid.shape, case.grid.chunks, strict=True)
    edges = tuple([array("q", itertools.accumulate([1, chunk] * size, initial=0)) for size, chunk in facts])
    for grid in (case.grid, replace(case.grid, edges=edges)):
        coords = [projection.coords for projection in project(selection, grid)]

        assert len(set(coords)) == len(coords) == touched(selection, grid)
        assert all(c in grid for c in coords)
        assert [*count_by_object(selection, grid, grid)] == [(each, 1) for each in coords]
    double = tuple([2 * chunk for chunk in case.grid.chunks])
    facts = zip(case.grid.shape, case.grid.chunks, strict=True)
    edges = tuple([array("q", itertools.accumulate([chunk, 2 * chunk] * size, initial=0)) for size, chunk in facts])
    for shards in (replace(case.grid, chunks=double), replace(case.grid, chunks=double, edges=edges)):
        counted = [(stored.coords, stored.chunks) for stored in project_stored(selection, case.grid, shards)]
        assert [*count_by_object(selection, case.grid, shards)] == counted


@pytest.mark.parametrize("step", [1, 2, 3, 5, 9, -1, -2, -3, -7, -9])
@pytest.mark.parametrize("shard", [6, (3, 9), (9, 6, 3)])
def test_many_shards_are_counted_as_they_are_projected(step: int, shard: int | tuple[int, ...]) -> None:
    grid = ChunkGrid((2990,), (3,))
    edges = () if isinstance(shard, int) else (array("q", itertools.accumulate(shard * 500, initial=0)),)
    shards = ChunkGrid((2990,), (9 if edges else 6,), edges=edges)
    for begin, end in ((0, 2990), (1, 2989), (77, 1234), (1000, 2988)):
        items = slice(begin, end, step) if step > 0 else slice(end - 1, begin, step)
        selection = normalise((items,), (2990,))
        counted = [(stored.coords, stored.chunks) for stored in project_stored(selection, grid, shards)]
        assert [*count_by_object(selection, grid, shards)] == counted


@given(cases())
def test_a_chunk_is_covered_when_all_its_cells_are_selected_in_order(case: Case) -> None:
    selection = normalise(case.items, case.grid.shape)
    out = np.full(selection.shape, -2)

    for projection in project(selection, case.grid):
        out[...] = -2
        projection.copy_out(case.chunk(projection.coords), out)
        cells = case.array[case.grid.bounds(projection.coords)]

        selected = out[np.isin(out, cells)]

        assert projection.covers_chunk == (list(selected) == list(cells.flat) and _regular(projection.chunk_region))


@given(cases(), st.sampled_from("CF"))
def test_a_chunk_is_decoded_in_place_only_where_that_gives_the_same(case: Case, out_order: Any) -> None:
    selection = normalise(case.items, case.grid.shape)
    out = np.full(selection.shape, -2, order=out_order)

    for projection in project(selection, case.grid):
        chunk = case.chunk(projection.coords)
        place = projection.contiguous_out(out, case.order)
        if place is None:
            projection.copy_out(chunk, out)
        else:
            assert place.flags.c_contiguous if case.order == "C" else place.flags.f_contiguous
            place[...] = chunk

    np.testing.assert_array_equal(out, case.expected)


@given(cases(), st.integers(0, 40), st.integers(1, 12))
def test_item_runs_hold_every_selected_item_and_no_gap_that_may_be_left_out(case: Case, gap: int, limit: int) -> None:
    for projection in project(normalise(case.items, case.grid.shape), case.grid):
        numbers = np.arange(math.prod(case.grid.chunks)).reshape(case.grid.chunks, order=case.order)  # type: ignore[call-overload]
        wanted = set(numbers[np.ix_(*map(_as_indices, projection.chunk_region))].flat)

        runs = projection.item_runs(case.grid.chunks, case.order, gap=gap, limit=limit)
        exact = projection.item_runs(case.grid.chunks, case.order)

        assert wanted <= {i for run in runs for i in range(*run)}
        assert wanted == {i for run in exact for i in range(*run)}
        assert len(runs) <= limit
        assert all(b[0] - a[1] > gap for a, b in itertools.pairwise(runs))
        assert (runs[0][0], runs[-1][1]) == (min(wanted), max(wanted) + 1)


@given(cases(), st.data())
def test_restrict_narrows_one_axis_of_the_output(case: Case, data: st.DataObject) -> None:
    selection = normalise(case.items, case.grid.shape)
    for axis, length in enumerate(selection.shape):
        start = data.draw(st.integers(0, length))
        stop = data.draw(st.integers(start, length))

        narrowed = selection.restrict(axis, start, stop)

        expected = case.expected[(slice(None),) * axis + (slice(start, stop),)]
        assert narrowed.shape == expected.shape
        np.testing.assert_array_equal(read(case, narrowed), expected)


@given(cases(max_rank=3))
def test_subarray_dimensions_follow_the_selection(case: Case) -> None:
    selection = normalise(case.items, case.grid.shape)
    out = np.full((*selection.shape, 2, 3), -2)
    back: dict[tuple[int, ...], Array] = {}

    for projection in project(selection, case.grid):
        chunk = np.stack([case.chunk(projection.coords)] * 6, axis=-1).reshape(*case.grid.chunks, 2, 3)
        projection.copy_out(chunk, out)
        back[projection.coords] = chunk

    np.testing.assert_array_equal(out, np.broadcast_to(case.expected[..., None, None], out.shape))
    for projection in project(selection, case.grid):
        before = back[projection.coords].copy()
        projection.copy_in(out, back[projection.coords])
        np.testing.assert_array_equal(back[projection.coords], before)


@given(st.integers(0, 12), st.data())
def test_progressions_have_one_spelling(size: int, data: st.DataObject) -> None:
    item = data.draw(axis_items(size).filter(lambda item: isinstance(item, slice)))

    (axis,) = normalise((item,), (size,)).axes

    assert isinstance(axis, SliceAxis)
    assert [axis.start + i * axis.step for i in range(axis.count)] == list(range(size))[item]  # type: ignore[index]
    assert axis.count > 1 or (axis.step == 1 and (axis.count or not axis.start))


def test_sizes_up_to_2_to_the_62_cost_nothing() -> None:
    size = 2**62
    grid = ChunkGrid((size, size), (2**20, 1000))

    whole = normalise((slice(None, None, -3), slice(None)), grid.shape)
    corner = normalise((slice(size - 2, None), [-1, 0]), grid.shape)

    assert whole.shape == (-(-size // 3), size)
    assert touched(whole, grid) == 2**42 * -(-size // 1000)
    assert next(project(whole, grid)).coords == (2**42 - 1, 0)
    assert [p.coords for p in project(corner, grid)] == [(2**42 - 1, 0), (2**42 - 1, (size - 1) // 1000)]


@pytest.mark.parametrize(("items", "axis", "index"), [
    ((10,), 0, 10),
    ((-11,), 0, -11),
    ((0, [1, 2, 99]), 1, 99),
    ((..., [-6]), 1, -6),
    ((0, [1, 9999999999999999999]), 1, 9999999999999999999),
    ((9999999999999999999,), 0, 9999999999999999999),
])  # fmt: skip
def test_an_index_outside_is_named(items: tuple[SelectionItem, ...], axis: int, index: int) -> None:
    with pytest.raises(IndexOutOfRange) as caught:
        normalise(items, (10, 5))

    assert (caught.value.axis, caught.value.index, caught.value.size) == (axis, index, (10, 5)[axis])


@pytest.mark.parametrize("items", [(..., ...), (slice(None, None, 0),)])
def test_what_numpy_does_not_understand_is_refused(items: tuple[SelectionItem, ...]) -> None:
    with pytest.raises(BadSelection):
        normalise(items, (10, 5))


@given(st.data(), st.integers(0, 20))
def test_points_gather_and_scatter_as_numpy_does(data: st.DataObject, count: int) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    grid = ChunkGrid(shape, tuple(data.draw(st.integers(1, 8)) for _ in shape))
    coordinates = [np.array(data.draw(_indices(size, count)), dtype=np.int64) for size in shape]
    array = np.arange(math.prod(shape)).reshape(shape)
    case = Case(array, grid, data.draw(st.sampled_from("CF")), ())
    out = np.full(count, -2)
    back = array.copy()
    values = -1 - np.arange(count)

    projections = list(project_points(coordinates, grid, grid))
    for projection in projections:
        chunk = case.chunk(projection.coords)
        projection.copy_out(chunk, out)
        projection.copy_in(values, chunk)
        back[grid.bounds(projection.coords)] = chunk[tuple(slice(0, n) for n in grid.extent(projection.coords))]

    expected = array.copy()
    expected[tuple(coordinates)] = values
    np.testing.assert_array_equal(out, array[tuple(coordinates)])
    np.testing.assert_array_equal(back, expected)
    assert len({p.coords for p in projections}) == len(projections)
    _assert_runs_hold_points(projections, case)


def test_points_of_rank_zero_are_the_one_item() -> None:
    grid = ChunkGrid((), ())
    (projection,) = project_points([], grid, grid)
    out = np.zeros(1)

    projection.copy_out(np.array(5.0), out)

    assert out.tolist() == [5.0]
    assert projection.item_runs(()) == [(0, 1)]


def test_points_in_huge_arrays_are_found_by_arithmetic() -> None:
    grid = ChunkGrid((2**62, 2**62), (3, 5))

    (projection,) = project_points([[-1], [-1]], grid, grid)

    assert projection.coords == ((2**62 - 1) // 3, (2**62 - 1) // 5)


def test_bad_points_are_refused() -> None:
    with pytest.raises(IndexOutOfRange):
        broadcast_points([[0, 6], [0, 0]], (6, 7))
    with pytest.raises(TooManyIndices):
        broadcast_points([[0]], (6, 7))
    with pytest.raises(BadBody):
        broadcast_points([[0, 1], [0, 1, 2]], (6, 7))


def _axis_indices(axis: IndexAxis | SliceAxis | ListAxis) -> list[int]:
    if isinstance(axis, IndexAxis):
        return [axis.index]
    if isinstance(axis, ListAxis):
        return [int(i) for i in axis.indices]
    return [axis.start + i * axis.step for i in range(axis.count)]


def _as_indices(region: Any) -> list[int]:
    if isinstance(region, int):
        return [region]
    return [int(i) for i in np.arange(1000)[region]]


def _regular(regions: tuple[Any, ...]) -> bool:
    """In order along each axis; where axes have one cell, order along them says nothing."""
    return all(_as_indices(region) == sorted(set(_as_indices(region))) for region in regions)


def _indices(size: int, count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(-size, size - 1), min_size=count, max_size=count)


def _assert_runs_hold_points(projections: list[PointProjection], case: Case) -> None:
    numbers = np.arange(math.prod(case.grid.chunks)).reshape(case.grid.chunks, order=case.order)  # type: ignore[call-overload]
    for projection in projections:
        runs = projection.item_runs(case.grid.chunks, case.order)
        assert {i for run in runs for i in range(*run)} == set(numbers[projection.inside].flat)


def peak_of(work: Callable[[], object]) -> int:
    """The most memory that ``work`` allocates at a time, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shard", [2, 200])
@pytest.mark.parametrize("items", [(0, slice(None, None, -1)), ([0], slice(1, None, 2))])
def test_projections_of_many_chunks_are_not_held_at_once(items: tuple[SelectionItem, ...], shard: int) -> None:
    """They would be a million live objects, through which the collector walks while all threads stand still."""
    grid, stored = ChunkGrid((1, 100_000), (1, 2)), ChunkGrid((1, 100_000), (1, shard))
    selection = normalise(items, grid.shape)

    def count() -> None:
        projections = (part for group in project_stored(selection, grid, stored) for part in group.parts)
        assert sum(1 for _ in projections) == 50_000

    assert peak_of(count) < 2_000_000


def test_many_points_are_projected_as_arrays_of_numbers() -> None:
    grid, stored = ChunkGrid((100_000,), (2,)), ChunkGrid((100_000,), (200,))
    before = len(gc.get_objects())

    points = project_points([np.arange(100_000)[::-1]], grid, stored)

    assert len(points) == 50_000
    assert len(gc.get_objects()) < before + 1000


@given(cases(), st.integers(1, 3), st.integers(0, 20))
def test_points_are_grouped_by_the_object_that_their_chunks_are_in(case: Case, times: int, count: int) -> None:
    grid = case.grid
    stored = replace(grid, chunks=tuple([size * times for size in grid.chunks]))
    count *= bool(case.array.size)
    draws = np.random.default_rng(count)
    coordinates = [draws.integers(0, size, count) if count else np.empty(0, np.int64) for size in grid.shape]

    points = project_points(coordinates, grid, stored)
    objects = [
        {tuple([coord // times for coord in part.coords]) for part in points.between(first, stop)}
        for first, stop in itertools.pairwise(points.objects)
    ]

    assert all(len(coords) == 1 for coords in objects)
    assert len({*itertools.chain(*objects)}) == len(objects)
    positions = [int(position) for part in points for position in part.positions]
    assert sorted(positions) == [*range(count if grid.shape else 1)]
