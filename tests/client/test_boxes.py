from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab import wire
from hyperslab.client.indexing import Axis, Box, select
from tests.client.oracle_server import mesh
from tests.client.strategies import chunk_shapes, full_shapes, slices


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


@settings(max_examples=200, deadline=None)
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
