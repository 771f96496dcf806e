"""Numbers into colours, against formulas written out for single values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hyperslab.tiles.render import Scale, composite, indexed, to_planes, to_steps, unique_inverse

WINDOWS = [Scale(0, 255), Scale(0, 1), Scale(10, 90), Scale(-50, 200), Scale(0, 65535), Scale(20.5, 20.75)]


def step_of(value: float, scale: Scale) -> int:
    """One value, in double precision."""
    share: float = min(max((value - scale.low) / (scale.high - scale.low), 0), 1) ** scale.gamma
    step = math.floor(share * 255 + 0.5)
    return 255 - step if scale.inverted else step


@pytest.mark.parametrize("scale", WINDOWS)
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "<u2", ">i2", "<i4", "<u8", "<f2", ">f4", "<f8"])
def test_values_are_spread_over_the_window(dtype: str, scale: Scale) -> None:
    values = np.arange(-100 if np.dtype(dtype).kind in "if" else 0, 127).astype(dtype)

    steps = to_steps(values, scale)

    assert steps.dtype == np.uint8
    assert steps.tolist() == [step_of(float(v), scale) for v in values]


@given(arrays(np.uint8, st.integers(1, 600)), st.booleans())
def test_bytes_through_a_table_are_the_same_as_one_by_one(values: np.ndarray, inverted: bool) -> None:
    scale = Scale(13, 201, gamma=1.7, inverted=inverted)

    np.testing.assert_array_equal(
        to_steps(values, scale), [to_steps(values[i : i + 1], scale)[0] for i in range(len(values))]
    )


def test_the_widest_and_the_narrowest_windows_work() -> None:
    info = np.iinfo(np.int64)
    ends = np.array([info.min, 0, info.max])

    assert to_steps(ends, Scale(float(info.min), float(info.max))).tolist() == [0, 128, 255]
    assert to_steps(np.array([0.0, 1e-320]), Scale(0, 1e-320)).tolist() == [0, 0]


@pytest.mark.parametrize("gamma", [1, 0.5])
@pytest.mark.parametrize(("dtype", "most"), [("<f8", 1.7e308), ("<f4", 3.3e38), ("<f4", 1.7e308), ("<u2", 1.7e308)])
def test_a_window_may_be_wider_than_the_largest_number(dtype: str, most: float, gamma: float) -> None:
    values = np.array([-most, -most / 2, 0, most / 2, most]) if dtype == "<f8" or most < 1e39 else np.zeros(5)

    steps = to_steps(values.astype(dtype), Scale(-most, most, gamma))

    shares = (values / most + 1) / 2
    np.testing.assert_array_equal(steps, np.floor(shares**gamma * 255 + 0.5))


@given(arrays(np.uint8, (3, 4, 5)), st.lists(st.tuples(*[st.integers(0, 255)] * 3), min_size=3, max_size=3))
def test_channels_add_up_as_light_does(values: np.ndarray, colours: list[tuple[int, int, int]]) -> None:
    picture = composite(values, [Scale(0, 255)] * 3, colours)

    light = np.floor(values[:, None] * np.array(colours, float)[:, :, None, None] / 255 + 0.5).sum(axis=0)
    np.testing.assert_array_equal(picture.rgb, np.minimum(light, 255))
    assert picture.alpha is None


def test_a_pixel_is_seen_where_any_channel_has_a_value() -> None:
    values = np.full((2, 1, 3), 100, np.uint8)
    hidden = np.array([[[True, True, False]], [[True, False, False]]])

    picture = composite(values, [Scale(0, 255)] * 2, [(255, 0, 0), (255, 0, 0)], hidden)

    assert picture.alpha is not None
    assert picture.alpha.tolist() == [[0, 255, 255]]
    assert picture.rgb[0].tolist() == [[0, 100, 200]]


LABELS: list[np.ndarray[Any, Any]] = [
    np.array([[0, 5, 5], [7, 0, 9]], np.uint8),
    np.array([[-3, 4], [4, -3]], np.int16),
    np.array([[1 << 40, 3], [0, 1 << 40]], np.int64),
    np.array([[(1 << 64) - 1, (1 << 64) - 2]], np.uint64),
    np.array([[True, False]]),
    np.zeros((0, 4), np.int32),
]


@pytest.mark.parametrize("values", LABELS, ids=lambda v: str(v.dtype))
def test_distinct_values_are_found_as_numpy_does(values: np.ndarray) -> None:
    found, index = unique_inverse(values)

    expected, inverse = np.unique(values, return_inverse=True)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(index, inverse.reshape(values.shape))
    assert found.dtype == values.dtype


@pytest.mark.parametrize("count", [3, 256, 1000])
def test_any_number_of_colours_can_be_painted(count: int) -> None:
    rng = np.random.default_rng(count)
    colours, index = rng.integers(0, 256, (count, 4), dtype=np.uint8), rng.integers(0, count, (40, 40))
    hidden = rng.random((40, 40)) < 0.1

    planes = to_planes(indexed(index, colours, hidden))

    assert planes.alpha is not None
    expected = colours.T[:, index]
    expected[3, hidden] = 0
    np.testing.assert_array_equal(planes.alpha, expected[3])
    np.testing.assert_array_equal(planes.rgb, expected[:3])
