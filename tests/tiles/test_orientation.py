"""Which way up a picture is, and how high its cells are: drawn so, and told by the coordinates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperslab.errors import BadParameter
from hyperslab.tiles.info import info_document
from hyperslab.tiles.service import Tiles
from tests.tiles.support import Array, numbers, parse_query, write_array, write_attributes, write_image

VALUES = np.random.default_rng(1).integers(0, 255, (150, 210), dtype=np.uint8)
UP, DOWN = np.linspace(-45, 45, 31), np.linspace(45, -45, 31)


def mosaic(tiles: Tiles, path: str, zoom: int, **query: str) -> Array:
    """All tiles of a zoom as one array of numbers."""
    rows, columns = tiles.frame(tiles.images.open(path), parse_query(query.items())).grid.counts(zoom)
    return np.block(
        [[numbers(tiles, path, (zoom, x, y), [*query.items()]) for x in range(columns)] for y in range(rows)]
    )


def natural(tiles: Tiles, path: str, **query: str) -> dict[str, Any]:
    return info_document(tiles, tiles.images.open(path), parse_query(query.items()), "", "")


@pytest.mark.parametrize(
    ("flip", "aspect", "expected"),
    [
        ("none", "1", VALUES),
        ("y", "1", VALUES[::-1]),
        ("x", "1", VALUES[:, ::-1]),
        ("x,y", "1", VALUES[::-1, ::-1]),
        ("none", "4", VALUES.repeat(4, axis=0)),
        ("none", "0.5", VALUES.repeat(2, axis=1)),
        ("y", "2", VALUES[::-1].repeat(2, axis=0)),
    ],
)
def test_each_pixel_shows_the_cell_that_belongs_there(
    tmp_path: Path, tiles: Tiles, flip: str, aspect: str, expected: Array
) -> None:
    write_array(tmp_path / "a", VALUES, chunks=(40, 50), attributes={"_ARRAY_DIMENSIONS": ["y", "x"]})

    query = {"flip": flip, "aspect": aspect, "tile_size": "64"}
    info = natural(tiles, "data/a", **query)
    shown, coarse = (mosaic(tiles, "data/a", info["maxzoom"] - coarser, **query) for coarser in (0, 1))

    assert (info["height"], info["width"]) == expected.shape
    np.testing.assert_array_equal(shown, expected)
    whole = expected.reshape(expected.shape[0] // 2, 2, expected.shape[1] // 2, 2).mean((1, 3))
    assert np.abs(coarse - whole).max() <= 0.5  # rounded


@pytest.mark.parametrize(
    ("y", "attributes", "flip"),
    [
        (UP, {"units": "degrees_north"}, ["y"]),
        (DOWN, {"units": "degrees_north"}, []),
        (UP, {"axis": "Y"}, ["y"]),
        (UP, {}, ["y"]),
        (UP, {"positive": "down"}, []),
        (DOWN, {"positive": "down"}, ["y"]),
        (UP, {"units": "hPa"}, []),
        (UP, {"units": "days since 2000-01-01"}, []),
        (UP, {"units": "degrees_north", "scale_factor": -0.5}, []),
        (UP**2, {"axis": "Y"}, []),
        (UP[1:], {"axis": "Y"}, []),
    ],
)
def test_larger_coordinates_are_above(
    tmp_path: Path, tiles: Tiles, y: Array, attributes: Mapping[str, Any], flip: list[str]
) -> None:
    write_attributes(tmp_path, {})
    write_array(tmp_path / "a", np.zeros((31, 20)), attributes={"_ARRAY_DIMENSIONS": ["y", "x"]})
    write_array(tmp_path / "y", y, attributes=dict(attributes))

    info = natural(tiles, "data/a")
    auto = natural(tiles, "data/a", flip="auto")
    transposed = natural(tiles, "data/a", axes="x,y")

    assert info["natural"]["flip"] == tuple(auto["flip"]) == tuple(flip)
    assert info["flip"] == []
    runs_left = y.shape == (31,) and bool(np.all(np.diff(y * attributes.get("scale_factor", 1)) < 0))
    assert transposed["natural"]["flip"] == (("y",) if runs_left else ())


@pytest.mark.parametrize(
    ("rows", "columns", "aspect"),
    [
        ((0.5, "degrees_north"), (0.25, "degrees_east"), 2),
        ((0.5, "km"), (250, "m"), 2),
        ((0.5, "K"), (0.25, "m"), 1),
        ((0.5, None), (0.25, None), 2),
        ((0.2525, "m"), (0.25, "m"), 1),
    ],
)
def test_regular_coordinates_say_how_high_a_cell_is(
    tmp_path: Path, tiles: Tiles, rows: tuple[float, str | None], columns: tuple[float, str | None], aspect: float
) -> None:
    write_attributes(tmp_path, {})
    write_array(tmp_path / "a", np.zeros((31, 20)), attributes={"_ARRAY_DIMENSIONS": ["y", "x"]})
    for name, size, (step, unit) in (("y", 31, rows), ("x", 20, columns)):
        write_array(tmp_path / name, np.arange(size) * step, attributes={"units": unit} if unit else {})

    assert natural(tiles, "data/a")["natural"]["aspect"] == aspect
    write_array(tmp_path / "x", np.arange(20.0) ** 2)
    assert natural(tiles, "data/a")["natural"]["aspect"] == 1


def test_an_image_has_the_height_of_its_voxels(tmp_path: Path, tiles: Tiles) -> None:
    write_image(tmp_path, [np.zeros((12, 40, 50), np.uint8)], "zyx")
    document = (tmp_path / ".zattrs").read_text().replace("[1, 1, 1]", "[1.5, 0.5, 0.5]")
    (tmp_path / ".zattrs").write_text(document.replace('"z", "type": "space"', '"z", "type": "space", "unit": "foot"'))

    assert natural(tiles, "data")["natural"] == {"flip": (), "aspect": 1, "steps": ((0.5, None), (0.5, None))}
    assert natural(tiles, "data", axes="z,x")["natural"]["aspect"] == 1  # feet and what?
    (tmp_path / ".zattrs").write_text(document)
    stretched = natural(tiles, "data", axes="z,x", aspect="auto")

    assert stretched["natural"]["aspect"] == 3
    assert (stretched["height"], stretched["width"], stretched["pixels_per_cell"]) == (36, 50, [3, 1])


def test_coordinates_that_cannot_be_read_are_reported(tmp_path: Path, tiles: Tiles) -> None:
    write_attributes(tmp_path, {})
    write_array(tmp_path / "a", np.zeros((31, 20)), attributes={"_ARRAY_DIMENSIONS": ["y", "x"]})
    write_array(tmp_path / "y", UP)
    (tmp_path / "y" / "0").write_bytes(b"broken")

    info = natural(tiles, "data/a", flip="auto", aspect="auto")

    assert info["flip"] == []
    assert "the coordinates data/y cannot be read" in info["problems"][0]


@pytest.mark.parametrize(("name", "value"), [("flip", "t"), ("flip", "z")])
def test_what_cannot_be_turned_or_stretched_is_refused(tmp_path: Path, tiles: Tiles, name: str, value: str) -> None:
    write_array(tmp_path / "a", np.zeros((3, 4, 5)), attributes={"_ARRAY_DIMENSIONS": ["z", "y", "x"]})

    with pytest.raises(BadParameter, match=name):
        tiles.frame(tiles.images.open("data/a"), parse_query([(name, value)]))
