"""Histograms of whatever an array may hold."""

from __future__ import annotations

import numpy as np
import pytest

from hyperslab.tiles.statistics import Sample, histogram


@pytest.mark.parametrize(
    "values", [[5.0, 5.0], [0.0, 0.0], [1.0, np.nextafter(1.0, 2.0)], [-1e300, np.nextafter(-1e300, 0)]]
)
def test_values_that_hardly_differ_have_a_histogram(values: list[float]) -> None:
    array = np.array(values)

    counts, edges = histogram(Sample(array, array.min(), array.max(), (), True, "tag"), 256)

    assert counts.sum() == 2
    assert (np.diff(edges) > 0).all()
