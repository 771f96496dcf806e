from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab import errors, wire
from hyperslab.client.indexing import Axis, Box, format_axes, lengths, select, select_blocks, select_orthogonal
from tests.client.strategies import chunk_shapes, full_shapes, mesh, slices


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


def test_two_ellipses_are_refused_in_the_words_of_numpy() -> None:
    with pytest.raises(IndexError, match="single ellipsis"):
        select((..., ...), (10, 7))


@pytest.mark.parametrize(
    ("key", "axes"),
    [
        (np.array([2, 4, 6]), (range(2, 8, 2), range(7))),
        (np.array([6, 3, 0]), (range(6, -3, -3), range(7))),
        ([5], (5, range(7))),
        (..., (range(10), range(7))),
        (slice(5, None), (range(5, 10), range(7))),
    ],
)
def test_ranges_travel_as_slices_within_the_shape_that_is_known(key: Any, axes: tuple[Any, ...]) -> None:
    assert select(key, (10, 7)).axes == axes


@pytest.mark.parametrize("key", [np.array([2**64 - 1], "u8"), [2**63], 2**63, np.uint64(2**64 - 1)])
def test_indices_beyond_64_bits_do_not_wrap_around(key: Any) -> None:
    with pytest.raises(errors.IndexOutOfRange):
        select(key, (10,))


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


@given(st.data())
def test_boxes_fill_a_result_exactly_once(data: st.DataObject) -> None:
    shape = data.draw(full_shapes)
    array = np.arange(int(np.prod(shape))).reshape(shape)
    axes = data.draw(axes_of(shape))
    chunks, limit, inside = data.draw(chunk_shapes(shape)), data.draw(st.integers(1, 500)), data.draw(st.booleans())
    result = np.full(lengths(axes), -1)

    for box in Box(axes, result, chunks, 8).cut(limit, inside_chunks=inside):
        assert (box.values == -1).all()
        box.values[...] = array[mesh(format_axes(box.axes), shape)]
        assert not inside or box.values.nbytes <= max(8, limit)

    assert np.array_equal(result, array[mesh(format_axes(axes), shape)])


@pytest.mark.parametrize(
    ("axes", "chunks", "limit", "cut"),
    [
        ((range(10, 100), range(50)), (16, 25), 2000, ["10:48,0:50", "48:80,0:50", "80:100,0:50"]),
        ((range(32), range(50)), (16, 25), 500, ["0:16,0:25", "0:16,25:50", "16:32,0:25", "16:32,25:50"]),
        ((range(9, -1, -1),), (4,), 4, ["9:7:-1", "7:3:-1", "3::-1"]),
        ((range(100),), (100,), 10, ["0:100"]),
    ],
)
def test_cuts_lie_on_chunk_edges_along_the_first_axes(axes: Any, chunks: Any, limit: int, cut: list[str]) -> None:
    assert [format_axes(box.axes) for box in Box(axes, np.empty(lengths(axes)), chunks, 1).cut(limit)] == cut


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=3000))
@settings(max_examples=20)
def test_lists_are_cut_so_that_a_url_stays_short(indices: list[int]) -> None:
    boxes = Box((np.array(indices),), np.empty(len(indices)), (10,), 1).cut(1 << 30)
    texts = [format_axes(box.axes) for box in boxes]

    assert all(len(text) < 5000 for text in texts)
    assert [i for text in texts for i in wire.parse_selection(text)[0]] == indices  # type: ignore[union-attr]


def test_huge_axes_cost_nothing() -> None:
    assert select((slice(5, None), -1), (2**62 - 1, 2**40)).axes == (range(5, 2**62 - 1), 2**40 - 1)
    axis = select(slice(10**17, 10**17 + 1000), (10**18,)).axes[0]
    assert len(Box((axis,), np.empty(1000), (1,), 1).cut(100)) == 10
