"""Histograms of whatever an array may hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hyperslab.tiles.info import histogram_document
from hyperslab.tiles.query import parse_query
from hyperslab.tiles.service import Tiles
from hyperslab.tiles.statistics import Sample, histogram
from tests.tiles.support import write_array


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

    found = histogram_document(tiles, "data/a", parse_query([]))

    assert (found["min"], found["max"], found["exact"]) == (0, 200, False)
    assert found["percentiles"]["99.9"] == 200
