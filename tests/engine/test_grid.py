from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.engine.grid import ChunkGrid

MISSPELT = ["", "0", "0.0.0", "00.0", "0.01", "+0.0", "-1.0", "0.-1", "0/0", "0. 0", "0.0 ", "٣.0", "0.1e0", ".", "0."]
OUTSIDE = ["2.0", "0.3", "0." + "9" * 5000]


@pytest.mark.parametrize("text", [*MISSPELT, *OUTSIDE])
def test_only_the_canonical_spelling_of_a_chunk_in_the_grid_is_a_key(text: str) -> None:
    grid = ChunkGrid((4, 5), (2, 2))

    assert grid.parse_key("1.2") == (1, 2)
    assert grid.parse_key(text) is None


def test_sizes_beyond_64_bits_of_cells_do_not_overflow() -> None:
    grid = ChunkGrid((2**62, 2**62), (2**31, 1))

    assert grid.counts == (2**31, 2**62)
    assert grid.parse_key(f"{2**31 - 1}.{2**62 - 1}") == (2**31 - 1, 2**62 - 1)


@given(st.data(), st.sampled_from([".", "/"]))
def test_parse_key_undoes_key(data: st.DataObject, separator: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 50), max_size=4)))
    chunks = tuple(data.draw(st.integers(1, 60)) for _ in shape)
    grid = ChunkGrid(shape, chunks, separator)
    coords = tuple(data.draw(st.integers(0, count - 1)) for count in grid.counts)

    assert grid.parse_key(grid.key(coords)) == coords
