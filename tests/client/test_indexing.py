from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab import errors, wire
from hyperslab.client.indexing import Axis, Box, Selection, select, select_blocks, select_orthogonal
from tests.client.strategies import chunk_shapes, full_shapes, keys, mesh, shapes, slices

Array = np.ndarray[Any, np.dtype[Any]]


def numbered(shape: tuple[int, ...]) -> Array:
    return np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)


def apply(selection: Selection, array: Array) -> Any:
    """What a selection takes, worked out from its axes one by one."""
    if 0 in selection.shape:
        return np.empty(selection.shape, array.dtype)
    along = [axis for axis in selection.axes if isinstance(axis, range)]
    index: list[Any] = []
    place = 0
    if not selection.pointwise:
        items = [axis if isinstance(axis, int) else [int(i) for i in axis] for axis in selection.axes]
        raw = array[mesh(",".join(map(str, items)), array.shape)] if items else array.copy()
        return selection.to_result(np.asarray(raw))
    for axis in selection.axes:
        place += isinstance(axis, range)
        at = place if isinstance(axis, range) else 0
        index.append(np.asarray(axis).reshape([-1 if i == at else 1 for i in range(1 + len(along))]))
    return selection.to_result(array[tuple(index)])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_selection_of_any_key_is_numpys(data: st.DataObject) -> None:
    array = numbered(data.draw(shapes))
    key = data.draw(keys(array.shape))
    try:
        expected = array[key]
    except IndexError:
        with pytest.raises(IndexError):
            select(key, array.shape)
        return

    try:
        selection = select(key, array.shape)
    except IndexError:  # numpy does not look at all indices where there is nothing to take
        assert expected.size == 0
        return
    found = apply(selection, array)

    assert selection.shape == np.shape(expected)
    assert selection.scalar == isinstance(expected, np.generic)
    assert np.array_equal(found, expected)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_blocks_are_chunks(data: st.DataObject) -> None:
    shape = data.draw(full_shapes)
    chunks = data.draw(chunk_shapes(shape))
    counts = [-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True)]
    block = tuple(data.draw(st.integers(-count, count - 1)) for count in counts)
    array = numbered(shape)
    starts = [(i % count) * chunk for i, count, chunk in zip(block, counts, chunks, strict=True)]
    expected = array[tuple(slice(start, start + chunk) for start, chunk in zip(starts, chunks, strict=True))]

    found = apply(select_blocks(block, shape, chunks), array)

    assert np.array_equal(found, expected)
    assert found.shape == expected.shape


def test_blocks_take_slices_of_chunks_and_an_ellipsis() -> None:
    array = numbered((10, 7))

    assert np.array_equal(apply(select_blocks((slice(1, 3), ...), array.shape, (4, 3)), array), array[4:10])


@pytest.mark.parametrize("key", [slice(None, None, 2), [0, 1], None, np.array([True, False, True])])
def test_blocks_refuse_steps_lists_and_new_axes(key: Any) -> None:
    with pytest.raises(IndexError):
        select_blocks(key, (10,), (4,))


@pytest.mark.parametrize("key", [(None, 0), [[0, 1], [1, 0]], np.ones((10, 7), bool)])
def test_orthogonal_selection_refuses_what_is_not_one_index_an_axis(key: Any) -> None:
    with pytest.raises(IndexError):
        select_orthogonal(key, (10, 7))


@pytest.mark.parametrize(
    "key", [1.0, "x", [1.5], np.zeros(0), b"x", object(), {1}, (..., ...), np.ones(3, bool), ([0, 1], [0, 1, 2])]
)
def test_what_numpy_refuses_is_an_index_error(key: Any) -> None:
    with pytest.raises(IndexError):
        select(key, (10, 7))


def test_index_errors_carry_facts() -> None:
    with pytest.raises(errors.IndexOutOfRange, match="index 7 is out of bounds for axis 1 with size 7"):
        select((0, 7), (10, 7))
    with pytest.raises(errors.TooManyIndices):
        select((0, 0, 0), (10, 7))


def test_a_slice_with_step_zero_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="step cannot be zero"):
        select(slice(None, None, 0), (10,))


def test_index_arrays_that_are_ranges_travel_as_slices() -> None:
    assert select(np.array([2, 4, 6]), (10,)).axes == (range(2, 8, 2),)
    assert select(np.array([6, 3, 0]), (10,)).axes == (range(6, -3, -3),)
    assert select([5], (10,)).axes == (5,)


def test_selections_are_within_the_shape_that_is_known() -> None:
    assert select(..., (10, 7)).axes == (range(10), range(7))


def test_an_open_mesh_is_one_box_and_a_diagonal_is_points() -> None:
    assert not select(np.ix_([0, 3, 4], [1, 2, 5]), (10, 7)).pointwise
    assert select(([0, 3, 4], [1, 2, 5]), (10, 7)).pointwise


def test_huge_axes_cost_nothing() -> None:
    selection = select((slice(5, None), -1), (2**62 - 1, 2**40))

    assert selection.axes == (range(5, 2**62 - 1), 2**40 - 1)


@pytest.mark.parametrize("key", [np.array([2**64 - 1], "u8"), [2**63], 2**63, np.uint64(2**64 - 1)])
def test_indices_beyond_64_bits_do_not_wrap_around(key: Any) -> None:
    with pytest.raises(errors.IndexOutOfRange):
        select(key, (10,))


# --- boxes -----------------------------------------------------------------------------------------------------------


@st.composite
def axes_of(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Axis, ...]:
    """An index, a range or a list for each axis, none of them empty."""
    axes: list[Axis] = []
    for length in shape:
        taken = range(length)[draw(slices(length))]
        lists = st.lists(st.integers(0, length - 1), min_size=1, max_size=9).map(np.array)
        options = st.one_of(st.integers(0, length - 1), st.just(taken if taken else range(length)), lists)
        axes.append(draw(options))
    return tuple(axes)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_boxes_fill_a_result_exactly_once(data: st.DataObject) -> None:
    shape = data.draw(full_shapes)
    array = np.arange(int(np.prod(shape))).reshape(shape)
    whole = Box.of(data.draw(axes_of(shape)))
    chunks, limit, inside = data.draw(chunk_shapes(shape)), data.draw(st.integers(1, 500)), data.draw(st.booleans())
    result = np.full(whole.shape, -1)

    for box in whole.cut(chunks, 8, limit, inside_chunks=inside):
        region = box.region_of(result)
        assert (region == -1).all()
        region[...] = array[mesh(box.text, shape)]
        assert not inside or region.nbytes <= max(8, limit)

    assert np.array_equal(result, array[mesh(whole.text, shape)])


def test_cuts_lie_on_chunk_edges_along_the_first_axis() -> None:
    whole = Box.of((range(10, 100), range(50)))

    boxes = whole.cut((16, 25), 1, 2000)

    assert [box.text for box in boxes] == ["10:48,0:50", "48:80,0:50", "80:100,0:50"]


def test_a_row_of_chunks_that_is_too_large_is_cut_along_the_next_axis() -> None:
    boxes = Box.of((range(32), range(50))).cut((16, 25), 1, 500)

    assert [box.text for box in boxes] == ["0:16,0:25", "0:16,25:50", "16:32,0:25", "16:32,25:50"]


def test_cuts_of_a_reversed_range_lie_on_chunk_edges_too() -> None:
    boxes = Box.of((range(9, -1, -1),)).cut((4,), 1, 4)

    assert [box.text for box in boxes] == ["9:7:-1", "7:3:-1", "3::-1"]


def test_one_chunk_is_cut_only_where_it_has_to_be() -> None:
    whole = Box.of((range(100),))

    assert len(whole.cut((100,), 1, 10)) == 1
    assert len(whole.cut((100,), 1, 10, inside_chunks=True)) == 10


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=3000))
@settings(max_examples=20, deadline=None)
def test_lists_are_cut_so_that_a_url_stays_short(indices: list[int]) -> None:
    boxes = Box.of((np.array(indices),)).cut((10,), 1, 1 << 30)

    assert all(len(box.text) < 5000 for box in boxes)
    assert [i for box in boxes for i in wire.parse_selection(box.text)[0]] == indices  # type: ignore[union-attr]


def test_a_cut_of_an_axis_of_10_to_the_18_chunks_is_cheap() -> None:
    axis = select(slice(10**17, 10**17 + 1000), (10**18,)).axes[0]

    assert len(Box.of((axis,)).cut((1,), 1, 100)) == 10
