"""Colour maps, tints, and colours of labels."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from hyperslab.tiles.colour import COLORMAPS, gradient_lut, label_colours, named_lut, step_lut, tint


@pytest.mark.parametrize("name", COLORMAPS)
def test_every_listed_map_is_there_in_both_directions(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lut, turned = named_lut(name), named_lut(f"{name}_r")

    assert lut.shape == (256, 4)
    assert (lut[:, 3] == 255).all()
    np.testing.assert_array_equal(turned, lut[::-1])


def test_maps_are_those_that_everybody_knows() -> None:
    assert named_lut("viridis")[[0, 255]].tolist() == [[68, 1, 84, 255], [253, 231, 37, 255]]
    assert named_lut("gray")[:, 0].tolist() == list(range(256))
    assert named_lut("tab10")[[0, 25, 26]].tolist() == [[31, 119, 180, 255]] * 2 + [[255, 127, 14, 255]]


@pytest.mark.parametrize("name", ["nope", "nope_r", "cmocean:nope", ":viridis", "viridis:", "", "Viridis", "[1]"])
def test_unknown_maps_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"colour map|one of"):
        named_lut(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("virdis", "viridis"), ("Viridis_r", "viridis_r"), ("jett", "jet"), ("rdbu", "RdBu"), ("", "")],
)
def test_a_misspelt_map_is_answered_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"did you mean {meant}\?$" if meant else "info.json"):
        named_lut(name)


def test_tables_cannot_be_changed_by_who_uses_them() -> None:
    with pytest.raises(ValueError, match="read-only"):
        named_lut("viridis")[0] = 0


def test_maps_through_given_colours_hit_each_of_them() -> None:
    lut = gradient_lut([(0, 0, 0, 255), (255, 0, 0, 255), (255, 255, 255, 0)])

    assert lut[[0, 255]].tolist() == [[0, 0, 0, 255], [255, 255, 255, 0]]
    assert lut[127, 0] >= 254
    assert tint((255, 128, 0))[255].tolist() == [255, 128, 0, 255]
    spread_out = np.bincount(step_lut(np.arange(12, dtype=np.uint8).reshape(3, 4))[:, 0])
    assert spread_out.tolist() == [86, 0, 0, 0, 85, 0, 0, 0, 85]


@pytest.mark.parametrize("dtype", ["u1", "i4", "<u8", ">i8"])
def test_labels_have_the_same_colour_in_every_dtype(dtype: str) -> None:
    labels = np.arange(100)

    np.testing.assert_array_equal(label_colours(labels.astype(dtype)), label_colours(labels))


def test_neighbouring_labels_can_be_told_apart() -> None:
    colours = label_colours(np.arange(1, 500))[:, :3].astype(int)

    distance = np.abs(np.diff(colours, axis=0)).sum(axis=1)
    assert np.median(distance) > 150
    assert (colours.max(axis=1) > 180).all()


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", ">u2", "<i4", "<i8", "<u8", "<f4", "<f8"])
def test_chosen_colours_are_those_of_equal_values(dtype: str) -> None:
    values = [0, 1, 0.1, 2.5, -7, 255, 2**53, 2**53 + 1, 2**63 - 1, 2**64 - 1, -(2**63), 1e300]
    chosen = {value: (i + 1, 0, 0, 255) for i, value in enumerate(values)}
    held = [v for v in values if np.dtype(dtype).kind == "f" or (v == int(v) and _fits(v, dtype))]
    with np.errstate(over="ignore"):
        labels = np.array([*held, 3], dtype)

    found = label_colours(labels, chosen, only_chosen=True)

    with np.errstate(over="ignore"):
        last = {np.dtype(dtype).type(v).item(): chosen[v] for v in sorted(held)}  # of equal values the largest
    assert found.tolist() == [list(last.get(label.item(), (0, 0, 0, 0))) for label in labels]


def _fits(value: float, dtype: str) -> bool:
    if dtype == "?":
        return value in (0, 1)
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)
