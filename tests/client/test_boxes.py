from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab import wire
from hyperslab.client.boxes import Box, Cutter, relative, whole_box
from hyperslab.client.indexing import Axis, select
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
    whole = whole_box(data.draw(axes_of(shape)))
    cutter = Cutter(data.draw(chunk_shapes(shape)), 8, data.draw(st.integers(1, 500)), data.draw(st.booleans()))
    result = np.full(whole.shape, -1)

    for box in cutter.cut(whole):
        region = box.region_of(result)
        assert (region == -1).all()
        region[...] = array[mesh(box.text, shape)]
        assert not cutter.inside_chunks or region.nbytes <= max(8, cutter.limit)

    assert np.array_equal(result, array[mesh(whole.text, shape)])


def test_cuts_lie_on_chunk_edges_along_the_first_axis() -> None:
    whole = whole_box((range(10, 100), range(50)))

    boxes = Cutter((16, 25), 1, 2000).cut(whole)

    assert [box.text for box in boxes] == ["10:48,0:50", "48:80,0:50", "80:100,0:50"]


def test_a_row_of_chunks_that_is_too_large_is_cut_along_the_next_axis() -> None:
    boxes = Cutter((16, 25), 1, 500).cut(whole_box((range(32), range(50))))

    assert [box.text for box in boxes] == ["0:16,0:25", "0:16,25:50", "16:32,0:25", "16:32,25:50"]


def test_cuts_of_a_reversed_range_lie_on_chunk_edges_too() -> None:
    boxes = Cutter((4,), 1, 4).cut(whole_box((range(9, -1, -1),)))

    assert [box.text for box in boxes] == ["9:7:-1", "7:3:-1", "3::-1"]


def test_one_chunk_is_cut_only_where_it_has_to_be() -> None:
    whole = whole_box((range(100),))

    assert len(Cutter((100,), 1, 10).cut(whole)) == 1
    assert len(Cutter((100,), 1, 10, inside_chunks=True).cut(whole)) == 10


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=3000))
@settings(max_examples=20, deadline=None)
def test_lists_are_cut_so_that_a_url_stays_short(indices: list[int]) -> None:
    boxes = Cutter((10,), 1, 1 << 30).cut(whole_box((np.array(indices),)))

    assert all(len(box.text) < 5000 for box in boxes)
    assert [i for box in boxes for i in wire.parse_selection(box.text)[0]] == indices  # type: ignore[union-attr]


def test_a_cut_of_an_axis_of_10_to_the_18_chunks_is_cheap() -> None:
    axis = select(slice(10**17, 10**17 + 1000), (10**18,)).axes[0]

    assert len(Cutter((1,), 1, 100).cut(whole_box((axis,)))) == 10


def test_a_part_knows_its_region_within_the_whole() -> None:
    whole = Box((range(10, 20),), (slice(100, 110),))
    part = Box((range(12, 15),), (slice(102, 105),))

    assert relative(part, whole) == (slice(2, 5),)
