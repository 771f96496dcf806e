"""Levels lie where their transformations say, and end where their arrays end; the rest comes from finer levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperslab.tiles.info import info_document
from hyperslab.tiles.service import Tiles
from tests.tiles.support import (
    Array,
    Query,
    axes_json,
    numbers,
    parse_query,
    pixels,
    tile,
    write_array,
    write_attributes,
    write_image,
)

PLANE = np.add.outer(np.arange(300) * 1000, np.arange(260)).astype("f4")
MARK = 0.25
"""Added to what a coarser level holds, so that pixels tell where they come from."""
BOTH = ("0", "1")


def scale(*numbers: float) -> dict[str, Any]:
    return {"type": "scale", "scale": [*numbers]}


def translation(*numbers: float) -> dict[str, Any]:
    return {"type": "translation", "translation": [*numbers]}


def blocks(plane: Array, factors: tuple[int, int], first: tuple[int, int], shape: tuple[int, int]) -> Array:
    """Means of blocks from the cell ``first`` on, marked; zero beyond the plane, as a writer pads."""
    out = np.zeros(shape, plane.dtype)
    for y, x in np.ndindex(shape):
        top, left = first[0] + y * factors[0], first[1] + x * factors[1]
        block = plane[max(top, 0) : max(top + factors[0], 0), max(left, 0) : max(left + factors[1], 0)]
        out[y, x] = block.mean() + MARK if block.size else 0
    return out


@dataclass(frozen=True)
class Case:
    """A second level: its transformations, and what it covers."""

    steps: Sequence[dict[str, Any]]
    first: tuple[int, int] = (0, 0)
    shape: tuple[int, int] = (150, 130)
    factors: tuple[int, int] = (2, 2)
    of_finest: Sequence[dict[str, Any]] = (scale(1, 1),)
    outer: Sequence[dict[str, Any]] = ()
    order: tuple[str, ...] = BOTH
    problem: str | None = None


SHORT = "level '1' has only "
CASES = {
    "as it should be": Case([scale(2, 2), translation(0.5, 0.5)]),
    "without the half cell": Case([scale(2, 2)]),
    "padded": Case([scale(2, 2)], shape=(256, 256)),
    "padded to the size of the finest": Case([scale(2, 2)], shape=(300, 260)),
    "short": Case([scale(2, 2)], shape=(100, 130), problem=SHORT + "y from 0 to 200 of 300: "),
    "cropped": Case([scale(2, 2), translation(40.5, 60.5)], (40, 60), (60, 50), problem=SHORT + "y from 40 to 160 of"),
    "cropped, edge to edge": Case([scale(2, 2), translation(40, 60)], (40, 60), (60, 50), problem=SHORT),
    "cropped at an odd cell": Case([scale(2, 2), translation(41.5, 61.5)], (41, 61), (60, 50), problem=SHORT),
    "beginning before the finest": Case([scale(2, 2), translation(-7.5, -3.5)], (-8, -4), (154, 132)),
    "of other units, from elsewhere": Case(
        [scale(0.65, 1), translation(100.1625, -19.75)],
        of_finest=[scale(0.325, 0.5), translation(100, -20)],
    ),
    "coarser along one axis": Case([scale(1, 4)], factors=(1, 4), shape=(300, 65)),
    "divided by three": Case([scale(3, 3)], factors=(3, 3), shape=(100, 87)),
    "with outer transformations": Case(
        [scale(2, 2), translation(0.5, 0.5)], outer=[scale(0.1, 0.1), translation(-5, 5)]
    ),
    "in another order": Case([scale(2, 2)], order=("1", "0"), problem="not in order of resolution"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_level_lies_where_its_transformations_say(tmp_path: Path, tiles: Tiles, case: Case) -> None:
    datasets = {"0": case.of_finest, "1": case.steps}
    multiscale = {
        "version": "0.4",
        "axes": axes_json("yx"),
        "datasets": [{"path": path, "coordinateTransformations": [*datasets[path]]} for path in case.order],
        **({"coordinateTransformations": [*case.outer]} if case.outer else {}),
    }
    write_attributes(tmp_path / "a", {"multiscales": [multiscale]})
    write_array(tmp_path / "a" / "0", PLANE)
    level = blocks(PLANE, case.factors, case.first, case.shape)
    write_array(tmp_path / "a" / "1", level)

    info = info_document(tiles, tiles.images.open("data/a"), parse_query([]), "", "")
    small = [("tile_size", "64")]
    step = 2 ** (zoom := 2)
    found = np.block([
        [numbers(tiles, "data/a", (4 - 1 - zoom, x, y), small) for x in range(2)] for y in range(2)
    ])  # fmt: skip

    assert [found["path"] for found in info["levels"]] == ["data/a/0", "data/a/1"]
    assert info["levels"][1]["factor"] == list(case.factors)
    assert info["levels"][1]["offset"] == list(case.first)
    assert (info["problems"] == []) if case.problem is None else (case.problem in info["problems"][0])
    expected = np.zeros((75, 65))
    for y, x in np.ndindex(75, 65):
        expected[y, x] = PLANE[y * step : (y + 1) * step, x * step : (x + 1) * step].mean()
    assert found.shape == expected.shape
    error = found - expected
    ends = [first + n * each for first, n, each in zip(case.first, case.shape, case.factors, strict=True)]
    inside = np.zeros(found.shape, bool)
    inside[
        -(-max(case.first[0], 0) // step) : ends[0] // step if ends[0] < 300 else 75,
        -(-max(case.first[1], 0) // step) : ends[1] // step if ends[1] < 260 else 65,
    ] = True
    if all(step % each == 0 for each in case.factors) and not case.first[0] % step:
        np.testing.assert_allclose(error[inside], MARK, atol=0.05)
        np.testing.assert_allclose(error[~inside], 0, atol=0.05)
    else:  # half a cell of the level at most
        assert np.abs(error[inside] - MARK).max() <= 1.5 * max(case.factors) * 1001
        assert np.abs(error[inside].mean() - MARK) <= 520 * max(case.factors)


@pytest.mark.parametrize(("names", "index"), [("zyx", "z"), ("tyx", "t"), ("cyx", "c")])
def test_an_index_that_a_level_does_not_have_is_taken_from_a_finer_one(
    tmp_path: Path, tiles: Tiles, names: str, index: str
) -> None:
    volume = np.stack([np.full((128, 128), at, "u1") for at in range(5)])
    datasets = [
        {"path": path, "coordinateTransformations": [scale(1, step, step)]} for path, step in (("0", 1), ("1", 2))
    ]
    write_attributes(
        tmp_path / "a", {"multiscales": [{"version": "0.4", "axes": axes_json(names), "datasets": datasets}]}
    )
    write_array(tmp_path / "a" / "0", volume)
    write_array(tmp_path / "a" / "1", volume[:3, ::2, ::2] + np.uint8(100))

    found = [int(numbers(tiles, "data/a", (0, 0, 0), [("tile_size", "64"), (index, str(at))]).max()) for at in range(5)]

    assert found == [100, 101, 102, 3, 4]
    assert len(info_document(tiles, tiles.images.open("data/a"), parse_query([]), "", "")["problems"]) == 1


def test_an_axis_that_was_halved_has_no_neighbour_for_the_last_index(tmp_path: Path, tiles: Tiles) -> None:
    volume = np.stack([np.full((128, 128), at, "u1") for at in range(5)])
    write_image(tmp_path / "a", [volume, volume[:4:2, ::2, ::2] + np.uint8(100)], "zyx")

    small: Query = [("tile_size", "64")]
    found = [int(numbers(tiles, "data/a", (0, 0, 0), [*small, ("z", str(at))]).max()) for at in range(5)]

    assert found == [100, 100, 102, 102, 4]


def test_padding_is_no_part_of_the_window_nor_of_a_thumbnail(tmp_path: Path, tiles: Tiles) -> None:
    full = np.full((300, 300), 1000, "u2")
    half = np.zeros((512, 512), "u2")
    half[:150, :150] = 1000
    write_image(tmp_path / "a", [full, half], "yx")
    datasets = [{"path": str(i), "coordinateTransformations": [scale(1 + i, 1 + i)]} for i in range(2)]
    write_attributes(
        tmp_path / "a", {"multiscales": [{"version": "0.4", "axes": axes_json("yx"), "datasets": datasets}]}
    )

    info = info_document(tiles, tiles.images.open("data/a"), parse_query([]), "", "")

    assert info["rescale_auto"][0] == 1000
    assert (np.asarray(pixels(tile(tiles, "data/a", (0, 0, 0)))[:150, :150, 0]) == 0).all()  # the window starts there
    assert (numbers(tiles, "data/a", (0, 0, 0)) == 1000).all()
