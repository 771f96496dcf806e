"""Histograms of whatever an array may hold, and which parts of it are looked at to know its values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.arrays.read import Reader
from hyperslab.tiles.info import histogram_document
from hyperslab.tiles.samples import sample_boxes
from hyperslab.tiles.service import Tiles
from hyperslab.tiles.statistics import Sample, histogram
from hyperslab.wire import SelectionItem
from tests.tiles.support import parse_query, write_array


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("<f8", [5.0, 5.0]),
        ("<f8", [0.0, 0.0]),
        ("<f8", [1.0, np.nextafter(1.0, 2.0)]),
        ("<f8", [-1e300, np.nextafter(-1e300, 0)]),
        ("<f8", [0.0, 5e-324]),
        ("<f8", [-1.7e308, 1.7e308]),
        ("<f4", [0.0, 1.4e-45]),
        (">f4", [1.0, np.nextafter(np.float32(1), np.float32(2))]),
        ("<f2", [0.0, 6e-8]),
        ("<u8", [0, 2**64 - 1]),
        ("<i8", [2**62, 2**62 + 1]),
        ("<i8", [-(2**63), 2**63 - 1]),
    ],
)
def test_values_that_hardly_differ_or_differ_greatly_have_a_histogram(dtype: str, values: list[float]) -> None:
    array = np.array(values, dtype)

    counts, edges = histogram(Sample(array, float(array.min()), float(array.max()), (), True, "tag"), 256)

    assert counts.sum() == 2
    assert (np.diff(edges) > 0).all()


def test_a_window_knows_all_corners_of_a_large_chunk(tmp_path: Path, tiles: Tiles) -> None:
    """And is not said to come from all cells."""
    values = np.zeros((2100, 2100), "u1")
    values[1900:, 1900:] = 200
    write_array(tmp_path / "a", values, chunks=values.shape)

    found = histogram_document(tiles, tiles.images.open("data/a"), parse_query([]))

    assert (found["min"], found["max"], found["exact"]) == (0, 200, False)
    assert found["percentiles"]["99.9"] == 200


def cells(box: list[SelectionItem]) -> int:
    return prod(len(range(item.start, item.stop, item.step or 1)) for item in box if isinstance(item, slice))


def touched(box: list[SelectionItem], chunks: Sequence[int]) -> int:
    """How many chunks a box of slices lies in."""
    return prod((item.stop - 1) // chunk - item.start // chunk + 1 for item, chunk in slices(box, chunks))


def slices(box: list[SelectionItem], chunks: Sequence[int]) -> Iterator[tuple[slice, int]]:
    for item, chunk in zip(box, chunks, strict=True):
        assert isinstance(item, slice)
        yield item, chunk


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 700)), min_size=1, max_size=4), st.integers(64, 1 << 20))
def test_boxes_lie_in_single_chunks_but_for_tiny_ones_and_are_not_too_many(
    sides: list[tuple[int, int]], most: int
) -> None:
    shape, chunks = zip(*sides, strict=True)

    boxes = sample_boxes(shape, chunks, {}, max_cells=most)

    assert 1 <= len(boxes) <= 64
    assert sum(map(cells, boxes)) <= most + max(prod(chunks), 1024)
    assert sum(touched(box, chunks) for box in boxes) <= 4096
    if len(boxes) > 1:
        for box in boxes:
            assert all(0 <= item.start < item.stop <= size for item, size in slices(box, shape))
            assert touched(box, chunks) == 1 or prod(chunks) < 512


def test_a_small_array_of_very_many_chunks_is_looked_at_in_places() -> None:
    boxes = sample_boxes((2000, 2000), (1, 1), {}, max_cells=4 << 20)

    assert len(boxes) == 64
    assert {touched(box, (1, 1)) for box in boxes} == {64}


def test_of_a_large_chunk_cells_are_taken_from_all_of_it() -> None:
    assert sample_boxes((5000, 4000), (5000, 4000), {}, max_cells=1 << 20) == [[slice(0, 5000, 16), slice(0, 4000, 16)]]


def test_no_more_chunks_are_looked_at_than_allowed_however_few_cells_are_wanted() -> None:
    """Of chunks that are deep along the axis of which one index is wanted."""
    shape, chunks = (1000, 400, 400), (1000, 4, 4)

    for most in (1, 3, 50, 5000):
        boxes = sample_boxes(shape, chunks, {0: 7}, max_cells=1 << 20, max_chunks=most)
        assert 1 <= sum(touched(box[1:], chunks[1:]) for box in boxes) <= most
        assert {box[0] for box in boxes} == {7}


def test_boxes_are_spread_over_all_axes() -> None:
    boxes = sample_boxes((1000, 1000, 1000), (10, 10, 10), {}, max_cells=64_000)

    for axis in range(3):
        starts = [item.start for box in boxes if isinstance(item := box[axis], slice)]
        assert len(starts) == 64
        assert np.histogram(starts, bins=8, range=(0, 1000))[0].min() >= 4


def test_a_histogram_follows_every_write_and_has_the_tag_of_its_values(
    tmp_path: Path, tiles: Tiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a chunk is written between the look-up of its version and the read."""
    read, query = Reader.read, parse_query([])
    write_array(tmp_path / "a", np.full((8, 8), 1, "u1"))
    array = zarr.open_array(tmp_path / "a", mode="r+")
    assert histogram_document(tiles, tiles.images.open("data/a"), query)["min"] == 1
    array[...] = 2

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(Reader, "read", read)
        array[...] = 3
        return read(*arguments, **options)

    monkeypatch.setattr(Reader, "read", late)
    during, after = (histogram_document(tiles, tiles.images.open("data/a"), query) for _ in range(2))

    assert (Reader.read, during) == (read, after)
    assert after["min"] == 3
