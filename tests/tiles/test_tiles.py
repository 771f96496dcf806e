"""Tiles of stored arrays equal a plain rendering of the whole plane, pixel for pixel: every dtype, level and edge."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab.errors import BadParameter, FieldUnknown, HyperslabError, NotRepresentable, TileNotFound
from hyperslab.tiles.colour import label_colours, named_lut
from hyperslab.tiles.service import Rendering, Tiles
from hyperslab.tiles.statistics import Statistics
from tests.tiles.support import (
    Array,
    draw,
    numbers,
    parse_query,
    pixels,
    rendering,
    same_picture,
    slow_grey,
    slow_steps,
    tile,
    tiles_on,
    write_array,
    write_attributes,
    write_image,
    write_plain,
)

FLOATS = ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]
NUMBERS = ["?", "i1", "u1", "<i2", ">i2", "<u2", ">u2", "<i4", ">u4", "<i8", ">u8", *FLOATS]
SIZE = 64
SMALL = ("tile_size", str(SIZE))


def values_of(dtype: str, shape: tuple[int, ...]) -> Array:
    """Values whose sums are exact in any float."""
    found = np.random.default_rng(7).integers(0, 2 if dtype == "?" else 100, shape)
    if np.dtype(dtype).kind == "i":
        found -= 30
    return found.astype(dtype)


@pytest.mark.parametrize("dtype", [*NUMBERS, ">c8", "<c16"])
def test_every_dtype_is_drawn_and_read_at_every_level_and_edge(tmp_path: Path, tiles: Tiles, dtype: str) -> None:
    plane = values_of(dtype, (150, 70))
    if plane.dtype.kind == "f":
        plane[3:9, 5:40] = np.nan
    write_array(tmp_path / "a", plane)
    little = np.dtype(dtype).newbyteorder("<")

    for z, factor in ((0, 4), (1, 2), (2, 1)):
        for x, y in [(0, 0), (1, 0), (0, 1), (1, 2)]:
            if x * SIZE * factor < 70 and y * SIZE * factor < 150:
                raw = draw(rendering(tiles, "data/a", parse_query([SMALL]), (z, x, y), "raw"))
                array = numbers(tiles, "data/a", (z, x, y), [SMALL])
                assert raw.dtype == array.dtype == little
                assert raw.body == array.tobytes()
                if plane.dtype.kind != "c":
                    found = pixels(tile(tiles, "data/a", (z, x, y), [SMALL, ("rescale", "-5,60")]))
                    same_picture(found, slow_grey(plane, factor, (x, y), (-5, 60), SIZE))


def grey(values: Array, low: float, high: float, hidden: Any = False) -> Array:
    """RGBA of numbers, some of which are hidden."""
    steps = slow_steps(np.where(hidden, 0, values).astype(values.dtype), low, high)
    return np.stack([steps, steps, steps, np.where(hidden, np.uint8(0), np.full_like(steps, 255))], axis=-1)


def mapped(name: str, values: Array, low: float, high: float, hidden: Any = False) -> Array:
    steps = slow_steps(np.where(hidden, 0, values).astype(values.dtype), low, high)
    return np.where(np.broadcast_to(hidden, values.shape)[..., None], np.uint8(0), named_lut(name)[steps])


def with_nan(distinct: int) -> Array:
    plane = (np.arange(SIZE * SIZE) % distinct).reshape(SIZE, SIZE).astype(np.float32)
    plane[5, 5] = np.nan
    return plane


SMALL_FLOATS = np.arange(-8, 8).reshape(4, 4)
COMPLEX = np.random.default_rng(0).integers(-9, 9, (40, 40)) + 1j * np.random.default_rng(1).integers(-9, 9, (40, 40))
COMPLEX[0, 0] = complex(np.nan, 1)
DAYS = np.arange(100.0).reshape(10, 10)
NO_DAY = DAYS == 44
NODATA = np.full((2 * SIZE, 2 * SIZE), 40, np.uint8)
NODATA[::2], NODATA[:2, :2] = 255, 255
CORNER = np.indices((SIZE, SIZE)).sum(0) == 0
PHOTO = values_of("u1", (40, 50, 3))
BLACK, RED, GREEN, NONE = [0, 0, 0, 255], [255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 0, 0]
PICTURES: list[tuple[Array, list[tuple[str, str]], Any]] = [
    *(
        (SMALL_FLOATS.astype(getattr(ml_dtypes, name)), [("rescale", "-8,8")], grey(SMALL_FLOATS.astype("f4"), -8, 8))
        for name in ("bfloat16", "float8_e4m3fn", "int4")
    ),
    *(
        (
            COMPLEX.astype(dtype),
            [("component", name), ("rescale", "-4,5")],
            grey(part(COMPLEX.astype(dtype)), -4, 5, np.isnan(COMPLEX)),
        )
        for dtype in ("<c8", ">c16")
        for name, part in (("abs", np.abs), ("real", np.real), ("imag", np.imag), ("phase", np.angle))
    ),
    *(
        (
            np.where(NO_DAY, np.iinfo("i8").min, DAYS.astype("i8")).astype(dtype),
            [("rescale", "0,100")],
            grey(DAYS, 0, 100, NO_DAY),
        )
        for dtype in ("<M8[s]", ">M8[ms]", "<m8[D]")
    ),
    (DAYS.astype("<u2"), [("colormap_name", "magma_r"), ("rescale", "0,99")], mapped("magma_r", DAYS, 0, 99)),
    *((with_nan(n), [("rescale", "0,255")], grey(with_nan(n), 0, 255, np.isnan(with_nan(n)))) for n in (20, 256)),
    *(
        (
            with_nan(n),
            [("rescale", "0,255"), ("colormap_name", "viridis")],
            mapped("viridis", with_nan(n), 0, 255, np.isnan(with_nan(n))),
        )
        for n in (20, 256)
    ),
    (NODATA, [("nodata", "255")], grey(np.full((SIZE, SIZE), 40.0), 0, 255, CORNER)),
    (PHOTO, [], np.dstack([PHOTO, np.full((40, 50), 255, np.uint8)])),
    (
        np.array([[1, 2], [3, 1]], np.uint8),
        [("colormap", '{"1": "#ff0000", "3": [0, 255, 0]}')],
        [[RED, NONE], [GREEN, RED]],
    ),
    (
        np.array([[0.5, np.nan], [np.inf, 2]]),
        [("colormap", '{"0.5": "ff0000", "2": "00ff00"}')],
        [[RED, NONE], [NONE, GREEN]],
    ),
    (np.array([[np.nan, 1.0]]), [("rescale", "0,1"), ("bg", "102030")], [[[16, 32, 48, 255], [255, 255, 255, 255]]]),
    (np.full((8, 8), 7, np.uint16), [], [[BLACK] * 8] * 8),
    (np.full((8, 8), np.nan), [], [[NONE] * 8] * 8),
]


@pytest.mark.parametrize(("values", "query", "expected"), PICTURES)
def test_a_picture_shows_its_values_as_the_query_wants(
    tmp_path: Path, tiles: Tiles, values: Array, query: list[tuple[str, str]], expected: Any
) -> None:
    write_plain(tmp_path / "a", values, values.dtype.name if values.dtype.kind == "V" else values.dtype.str)

    found = pixels(tile(tiles, "data/a", (0, 0, 0), [SMALL, *query]))

    whole = np.full((SIZE, SIZE, 4), [16, 32, 48, 255] if "bg" in dict(query) else NONE, np.uint8)
    whole[: len(expected), : len(expected[0])] = expected
    same_picture(found, whole)


Z_Y_X = ["z", "y", "x"]
PLANES: list[tuple[tuple[int, ...], list[str] | None, list[tuple[str, str]], Callable[[Array], Array]]] = [
    ((4, 5, 6), Z_Y_X, [("axes", "z,y"), ("x", "3")], lambda v: v[:, :, 3]),
    ((4, 5, 6), Z_Y_X, [("axes", "z,x"), ("y", "3")], lambda v: v[:, 3]),
    ((4, 5, 6), Z_Y_X, [("axes", "y,z"), ("x", "3")], lambda v: v[:, :, 3].T),
    ((4, 5, 6), Z_Y_X, [("axes", "x,y"), ("z", "3")], lambda v: v[3].T),
    ((5, 6, 3), Z_Y_X, [("z", "4")], lambda v: v[4]),
    ((5, 8, 8), None, [("d0", "0")], lambda v: v[0]),
    ((5, 8, 8), None, [("d0", "-1")], lambda v: v[4]),
    ((5, 8, 8), None, [], lambda v: v[2]),
    ((5, 8, 8), ["size", "y", "x"], [("sel", "size:3")], lambda v: v[3]),
    *(
        (
            (3, 4, 5),
            ["t", "y", name],
            [("axes", f"{name.replace('%', '%25').replace(',', '%2C')},t"), ("y", "1")],
            lambda v: v[:, 1].T,
        )
        for name in ("a,b", "per%cent", "50%2C", "x", "%")
    ),
]


@pytest.mark.parametrize(("shape", "names", "query", "plane"), PLANES)
def test_a_plane_lies_where_the_query_wants_it(
    tmp_path: Path, tiles: Tiles, shape: tuple[int, ...], names: list[str] | None, query: Any, plane: Any
) -> None:
    volume = values_of("u1", shape)
    write_array(tmp_path / "a", volume, attributes={"_ARRAY_DIMENSIONS": names} if names else {})

    np.testing.assert_array_equal(numbers(tiles, "data/a", (0, 0, 0), query), plane(volume))


ORIGIN = (0, 0, 0)
REFUSALS: list[tuple[tuple[int, ...], str, tuple[int, int, int], list[tuple[str, str]], type[HyperslabError], str]] = [
    *(((4, 4), dtype, ORIGIN, [], NotRepresentable, "brightness") for dtype in ("S4", "<U3", "V5")),
    ((9,), "f8", ORIGIN, [], NotRepresentable, "two axes"),
    *((shape, "f8", ORIGIN, [], TileNotFound, "") for shape in ((0, 5), (0, 0), (0, 4, 4))),
    ((0, 4, 4), "f8", ORIGIN, [], TileNotFound, "no cells"),
    *(
        ((100, 100), "f8", place, [SMALL], TileNotFound, "tiles" if 0 <= place[0] < 2 else "levels 0 to 1")
        for place in ((0, 1, 0), (0, 0, 1), (2, 0, 0), (1, -1, 0), (1, 2, 0), (99, 0, 0))
    ),
    ((4, 8, 8), "f8", ORIGIN, [("d0", "4")], TileNotFound, "d0"),
    ((4, 8, 8), "f8", ORIGIN, [("w", "1")], BadParameter, "w=1"),
    ((4, 8, 8), "f8", ORIGIN, [("axes", "d1,w")], BadParameter, "axes='d1,w': expected one of the axes d0, d1, d2"),
    ((4, 8, 8), "f8", ORIGIN, [("axes", "d1,%64%31")], BadParameter, "two different axes"),
    ((4, 8, 8), "f8", ORIGIN, [("d1", "1")], BadParameter, "d1=1: expected an axis outside the plane: d0"),
    ((8, 8), "f8", ORIGIN, [("d1", "1")], BadParameter, "an axis outside the plane: there is none"),
    ((4, 8, 8), "f8", ORIGIN, [("flip", "d0")], BadParameter, "axes of the plane, d1 and d2"),
    ((4, 8, 8), "f8", ORIGIN, [("c", "0")] * 17, BadParameter, "at most 16 channels"),
    ((4, 8, 8), "f8", ORIGIN, [("c", "1")], TileNotFound, "c has 1 cells"),
    ((4, 8, 8), "f8", ORIGIN, [("d0", "1"), ("d0", "2")], BadParameter, "one index"),
    ((4, 8, 8), "f8", ORIGIN, [("colormap_name", "nope")], BadParameter, "colormap_name"),
    ((4, 8, 8), "f8", ORIGIN, [("colormap_name", "cmap:nope")], BadParameter, "colormap_name"),
    ((4, 8, 8), "f8", ORIGIN, [("color", "f00"), ("color", "0f0")], BadParameter, "one for each of 1 "),
    ((4, 8, 8), "f8", ORIGIN, [("labels", "1")], BadParameter, "an array of integers, this one has float64"),
    ((4, 8, 8), "f8", ORIGIN, [("c", "0"), ("c", "0"), ("colormap", "f00,0f0")], BadParameter, "a single channel"),
]


@pytest.mark.parametrize(("shape", "dtype", "place", "query", "error", "text"), REFUSALS)
def test_what_cannot_be_drawn_is_refused_with_the_reason(
    tmp_path: Path, tiles: Tiles, shape: Any, dtype: str, place: Any, query: Any, error: Any, text: str
) -> None:
    write_array(tmp_path / "a", np.zeros(shape, dtype))

    with pytest.raises(error) as raised:
        tile(tiles, "data/a", place, query)

    assert text in str(raised.value)


def test_a_field_of_a_record_is_a_picture(tmp_path: Path, tiles: Tiles) -> None:
    plane = np.zeros((20, 30), [("name", "S4"), ("height", "<f4"), ("rgb", "u1", (3,))])
    plane["height"] = np.arange(600).reshape(20, 30)
    plane["rgb"] = np.random.default_rng(0).integers(0, 256, (20, 30, 3))
    write_plain(tmp_path / "a", plane, [["name", "|S4"], ["height", "<f4"], ["rgb", "|u1", [3]]])

    by_default = pixels(tile(tiles, "data/a", (0, 0, 0), [SMALL, ("rescale", "0,600")]))
    colour = pixels(tile(tiles, "data/a", (0, 0, 0), [SMALL, ("field", "rgb")]))
    raw = numbers(tiles, "data/a", (0, 0, 0), [SMALL, ("field", "rgb")])
    with pytest.raises(FieldUnknown):
        tile(tiles, "data/a", (0, 0, 0), [("field", "width")])
    with pytest.raises(NotRepresentable):
        tile(tiles, "data/a", (0, 0, 0), [("field", "name")])

    np.testing.assert_array_equal(by_default[:20, :30, 0], slow_steps(plane["height"], 0, 600))
    np.testing.assert_array_equal(colour[:20, :30, :3], plane["rgb"])
    np.testing.assert_array_equal(raw, plane["rgb"].transpose(2, 0, 1))


def pyramid(base: Array, factors: list[int]) -> list[Array]:
    """Levels that can be told apart: each holds its own number."""
    shapes = [tuple(-(-n // f) for n in base.shape) for f in factors]
    return [base, *(np.full(shape, 10 * (i + 1), base.dtype) for i, shape in enumerate(shapes))]


def test_a_tile_is_made_from_the_coarsest_level_that_is_fine_enough(tmp_path: Path, tiles: Tiles) -> None:
    write_image(tmp_path / "a", pyramid(np.zeros((512, 500), np.uint8), [2, 8]), "yx")

    shown = [pixels(tile(tiles, "data/a", (z, 0, 0), [SMALL]))[0, 0, 0] for z in range(4)]

    assert shown == [20, 10, 10, 0]


@pytest.mark.parametrize("factor", [3, 2.5])
def test_levels_whose_factor_is_no_power_of_two_are_used(tmp_path: Path, tiles: Tiles, factor: float) -> None:
    base = values_of("<u2", (300, 300))
    size = round(300 / factor)
    write_image(tmp_path / "a", [base, np.full((size, size), 77, np.uint16)], "yx")

    coarse = numbers(tiles, "data/a", (0, 0, 0), [("tile_size", "75")])
    finer = numbers(tiles, "data/a", (1, 0, 0), [("tile_size", "75")])

    assert (coarse == 77).all()
    assert coarse.shape == (75, 75)
    np.testing.assert_array_equal(finer, np.rint(base.reshape(150, 2, 150, 2).mean(axis=(1, 3)))[:75, :75])


@pytest.mark.parametrize("rounding", ["down", "up"])
def test_both_ways_to_round_the_size_of_a_level_give_whole_tiles(tmp_path: Path, tiles: Tiles, rounding: str) -> None:
    base = values_of("u1", (129, 131))
    half = tuple((n if rounding == "down" else n + 1) // 2 for n in base.shape)
    write_image(tmp_path / "a", [base, values_of("u1", half)], "yx")

    found = pixels(tile(tiles, "data/a", (1, 1, 1), [SMALL, ("rescale", "0,100")]))

    assert found[0, 0, 3] == 255
    assert found[1:, :, 3].max() == 0
    assert found[0, :2, 3].tolist() == [255, 255]


def test_numbers_of_pixels_without_a_value_have_none(tmp_path: Path, tiles: Tiles) -> None:
    floats = np.ones((100, 90), "<f4")
    floats[:8, :8] = np.nan
    times = floats.astype("<M8[D]")
    write_array(tmp_path / "floats", floats)
    write_plain(tmp_path / "times", times, "<M8[D]")

    mean = numbers(tiles, "data/floats", (0, 0, 0), [SMALL])
    count = numbers(tiles, "data/times", (0, 0, 0), [SMALL])

    assert np.isnan(mean[:4, :4]).all()
    assert (mean[4:, 4:] == 1).all()
    assert (count[:4, :4] == np.iinfo(np.int64).min).all()
    assert (count[4:, 4:] == 1).all()


def test_large_reads_in_strips_give_the_same_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plane = values_of("<f4", (700, 260))
    plane[100:300, 40:50] = np.nan
    write_array(tmp_path / "a", plane, (96, 100))
    query = [("tile_size", "90"), ("rescale", "0,100")]

    with tiles_on(tmp_path) as tiles:
        whole = tile(tiles, "data/a", (0, 0, 0), query)
    monkeypatch.setattr("hyperslab.tiles.read.STRIP_BYTES", 50_000)
    with tiles_on(tmp_path) as tiles:
        in_strips = tile(tiles, "data/a", (0, 0, 0), query)

    assert in_strips == whole


@settings(max_examples=25)
@given(data=st.data())
def test_any_tile_of_any_image_equals_the_plain_rendering(tmp_path: Path, tiles: Tiles, data: st.DataObject) -> None:
    height, width = (data.draw(st.integers(1, 300), label=side) for side in ("height", "width"))
    chunks = tuple(data.draw(st.integers(7, 130)) for _ in range(2))
    plane = values_of(data.draw(st.sampled_from(NUMBERS)), (height, width))
    levels = [plane, plane[::2, ::2]][: data.draw(st.integers(1, 2), label="levels")]
    write_image(tmp_path / "a", levels, "yx", chunks=chunks)

    grid = tiles.frame(tiles.images.open("data/a"), parse_query([SMALL])).grid
    z = data.draw(st.integers(0, grid.maxzoom), label="z")
    rows, columns = grid.counts(z)
    place = data.draw(st.integers(0, columns - 1)), data.draw(st.integers(0, rows - 1))
    found = pixels(tile(tiles, "data/a", (z, *place), [SMALL, ("rescale", "-10,80")]))

    coarse = len(levels) == 2 and grid.factor(z) >= 2
    expected = slow_grey(levels[coarse], grid.factor(z) // (1 + coarse), place, (-10, 80), SIZE)
    same_picture(found, expected)


def channels_image(folder: Path) -> Array:
    stack = values_of("<u2", (3, SIZE, SIZE)) * 10
    window, other = ({"min": 0, "max": 1000, "start": start, "end": end} for start, end in ((0, 500), (100, 900)))
    channels = [
        {"label": "a", "color": "FF0000", "active": True, "window": window},
        {"label": "b", "color": "00FF00", "active": False, "window": window},
        {"label": "c", "color": "4080FF", "inverted": True, "window": other},
    ]
    write_image(folder, [stack], "cyx", {"omero": {"channels": channels}})
    return stack


def light(steps: Array, colour: tuple[int, int, int]) -> Array:
    found: Array = np.floor(steps[..., None] * np.array(colour, float) / 255 + 0.5)
    return found


def test_channels_are_shown_as_omero_says(tmp_path: Path, tiles: Tiles) -> None:
    stack = channels_image(tmp_path / "a")

    found = pixels(tile(tiles, "data/a", (0, 0, 0), [SMALL]))

    first, third = slow_steps(stack[0].astype("f4"), 0, 500), 255 - slow_steps(stack[2].astype("f4"), 100, 900)
    expected = np.minimum(light(first, (255, 0, 0)) + light(third, (0x40, 0x80, 255)), 255)
    np.testing.assert_array_equal(found[..., :3], expected)


def test_channels_are_shown_as_the_query_says(tmp_path: Path, tiles: Tiles) -> None:
    stack = channels_image(tmp_path / "a")
    first = [("c", "1"), ("color", "#ff00ff"), ("rescale", "0,100")]
    query = [SMALL, *first, ("c", "0"), ("color", "0f0"), ("rescale", "50,950")]

    found = pixels(tile(tiles, "data/a", (0, 0, 0), query))
    raw = numbers(tiles, "data/a", (0, 0, 0), query)

    magenta, green = slow_steps(stack[1].astype("f4"), 0, 100), slow_steps(stack[0].astype("f4"), 50, 950)
    expected = np.minimum(light(magenta, (255, 0, 255)) + light(green, (0, 255, 0)), 255)
    np.testing.assert_array_equal(found[..., :3], expected)
    np.testing.assert_array_equal(raw, stack[[1, 0]])


@pytest.mark.parametrize(
    "query",
    [
        [],
        [("c", "0")],
        [("c", "0"), ("c", "1"), ("c", "2"), ("invert", "1")],
        [("c", "1"), ("c", "0"), ("invert", "0"), ("invert", "1"), ("gamma", "0.4")],
        [("c", "2"), ("gamma", "2.5"), ("colormap_name", "viridis"), ("invert", "1")],
    ],
)
def test_a_legend_has_the_colours_of_the_tiles(tmp_path: Path, tiles: Tiles, query: list[tuple[str, str]]) -> None:
    """Each bar is a ramp through the window as a tile of that channel alone shows it."""
    window = {"start": 0, "end": 255, "min": 0, "max": 255}
    channels = [
        {"color": c, "window": window, "inverted": i == 0} for i, c in enumerate(("FF0000", "00FF00", "FFFFFF"))
    ]
    ramp = np.broadcast_to(np.arange(256, dtype="<u2"), (3, 256, 256))
    write_image(tmp_path / "a", [ramp], "cyx", {"omero": {"channels": channels}})

    bars = pixels(tiles.legend(tiles.images.open("data/a"), parse_query(query)))
    shown = tiles.frame(tiles.images.open("data/a"), parse_query(query)).channels
    others = [pair for pair in query if pair[0] not in ("c", "invert")]
    inverted = [value for name, value in query if name == "invert"]
    for place, channel in enumerate(shown):
        own = [("invert", inverted[min(place, len(inverted) - 1)])] if inverted else []
        drawn = pixels(tile(tiles, "data/a", (0, 0, 0), [("c", str(channel)), *own, *others]))
        np.testing.assert_array_equal(bars[16 * place + 3], drawn[0])


def test_labels_have_the_colours_of_their_metadata_or_their_own(tmp_path: Path, tiles: Tiles) -> None:
    plane = np.random.default_rng(0).integers(0, 6, (SIZE, SIZE)).astype(np.int32)
    colors: list[Any] = [{"label-value": 1, "rgba": [255, 0, 0, 255]}, {"label-value": 2, "rgba": [0, 0, 255, 128]}]
    colors.append({"label-value": 3})
    write_image(tmp_path / "a", [plane, plane[::2, ::2]], "yx", {"image-label": {"colors": colors}})

    found = pixels(tile(tiles, "data/a", (0, 0, 0), [SMALL]))
    faded = pixels(tile(tiles, "data/a", (0, 0, 0), [SMALL, ("opacity", "0.5")]))

    lut = label_colours(np.arange(6), {1: (255, 0, 0, 255), 2: (0, 0, 255, 128)})
    assert lut[0].tolist() == [0, 0, 0, 0]
    np.testing.assert_array_equal(found[..., 3], lut[plane][..., 3])
    np.testing.assert_array_equal(found[plane > 0], lut[plane][plane > 0])
    assert set(np.unique(faded[..., 3])) == {0, 64, 128}


def test_more_labels_than_a_palette_holds_keep_their_colours_in_every_tile(tmp_path: Path, tiles: Tiles) -> None:
    plane = np.arange(4 * SIZE * SIZE, dtype=np.uint64).reshape(2 * SIZE, 2 * SIZE) + (1 << 62)
    write_array(tmp_path / "a", plane)

    found = pixels(tile(tiles, "data/a", (1, 1, 1), [SMALL, ("labels", "1")]))
    coarse = pixels(tile(tiles, "data/a", (0, 0, 0), [SMALL, ("labels", "1")]))

    np.testing.assert_array_equal(found, label_colours(plane[SIZE:, SIZE:].ravel()).reshape(SIZE, SIZE, 4))
    np.testing.assert_array_equal(coarse, label_colours(plane[1::2, 1::2].ravel()).reshape(SIZE, SIZE, 4))


def test_numbers_of_labels_are_labels_unless_their_mean_is_wanted(tmp_path: Path, tiles: Tiles) -> None:
    plane = (np.indices((2 * SIZE, 2 * SIZE)).sum(0) % 2 * 4).astype(np.uint8)
    write_image(tmp_path / "a", [plane], "yx", {"image-label": {"version": "0.4"}})

    labels, means = (numbers(tiles, "data/a", (0, 0, 0), [SMALL, *query]) for query in ([], [("labels", "0")]))

    assert set(np.unique(labels)) <= {0, 4}
    assert (means == 2).all()


def test_windows_without_numbers_are_the_same_for_all_tiles(tmp_path: Path, tiles: Tiles) -> None:
    plane = np.zeros((2 * SIZE, 2 * SIZE), np.int16)
    plane[:SIZE], plane[SIZE:] = 100, 300
    write_array(tmp_path / "a", plane)

    shown = {
        keyword: [pixels(tile(tiles, "data/a", (1, 0, y), [SMALL, ("rescale", keyword)]))[0, 0, 0] for y in (0, 1)]
        for keyword in ("auto", "minmax", "dtype")
    }

    assert shown["auto"] == shown["minmax"] == [0, 255]
    assert shown["dtype"] == slow_steps(np.array([100, 300], np.float32), -32768, 32767).tolist()


def test_rare_extremes_do_not_make_a_picture_dark_unless_they_are_wanted(tmp_path: Path, tiles: Tiles) -> None:
    plane = np.random.default_rng(0).normal(1000, 10, (200, 200)).astype("f4")
    plane[0, 0] = 1e9
    write_array(tmp_path / "a", plane)

    found, wide = (pixels(tile(tiles, "data/a", (0, 0, 0), [("rescale", name)])) for name in ("auto", "minmax"))

    assert 100 < np.median(found[:200, :200, 0]) < 155
    assert (wide[:200, :200, 0] > 0).sum() == 1


def test_a_tag_changes_with_the_data_the_query_and_the_format_and_with_nothing_else(
    tmp_path: Path, tiles: Tiles
) -> None:
    write_array(tmp_path / "a", np.zeros((2 * SIZE, SIZE)), (SIZE, SIZE))
    array = zarr.open_array(str(tmp_path / "a"), zarr_format=2)
    array[...] = 1

    def tag(query: list[tuple[str, str]], place: tuple[int, int, int] = (1, 0, 0), fmt: str = "png") -> str:
        return rendering(tiles, "data/a", parse_query([SMALL, *query]), place, fmt).tag

    window = [("rescale", "0,1")]
    first = tag(window)
    queries = [
        [("rescale", "0,2")],
        *([*window, pair] for pair in (("flip", "d1"), ("axes", "d1,d0"), ("opacity", "0.5"))),
    ]
    others = [*map(tag, queries), tag(window, (1, 0, 1)), tag(window, fmt="webp"), tag(window, fmt="npy")]
    different = {first, *others}
    array[SIZE:] = 2
    assert tag(window) == first
    assert tag([("rescale", "0.0,1.0"), ("empty", "204")]) == first
    array[0, 0] = 5
    assert tag(window) not in different

    assert len(different) == 8


def test_windows_follow_the_data_when_they_are_looked_at_again(tmp_path: Path, tiles: Tiles) -> None:
    write_array(tmp_path / "a", values_of("<u2", (8, 8)))

    before = tile(tiles, "data/a", (0, 0, 0), [("rescale", "minmax")])
    zarr.open_array(str(tmp_path / "a"), zarr_format=2)[...] = values_of("<u2", (8, 8)) * 7
    after = tile(tiles, "data/a", (0, 0, 0), [("rescale", "minmax")])

    np.testing.assert_allclose(pixels(before), pixels(after), atol=1)


def test_the_cache_is_bounded_in_bytes(tmp_path: Path) -> None:
    write_array(tmp_path / "a", np.random.default_rng(0).integers(0, 255, (512, 512), dtype=np.uint8), (64, 64))

    with tiles_on(tmp_path, cache_bytes=20_000) as tiles:
        for x in range(8):
            tile(tiles, "data/a", (3, x, 0), [SMALL])
        stats = tiles.cache.stats()

    assert stats.nbytes <= 20_000
    assert stats.evictions > 0


@pytest.mark.parametrize(
    ("dtype", "query", "omero", "endless"),
    [
        ("u1", [], False, True),
        ("<u2", [("rescale", "0,9")], False, True),
        ("<u2", [], True, True),
        ("<u2", [("labels", "true")], False, True),
        ("<u2", [], False, False),
        ("u1", [("rescale", "auto")], True, False),
        ("u1", [("flip", "auto")], False, False),
        ("u1", [("aspect", "auto")], False, False),
    ],
)
def test_a_picture_is_replayed_for_as_long_as_its_sources_tell_all(
    tmp_path: Path, tiles: Tiles,
    dtype: str, query: list[tuple[str, str]], omero: bool, endless: bool,
) -> None:  # fmt: skip
    """Whatever is changed: where the tag is another one then, so is the version of a source, or the picture expires."""
    window = {"channels": [{"color": "FFFFFF", "window": {"min": 0, "max": 9, "start": 0, "end": 9}}]}
    extra = {"omero": window} if omero else {}
    levels = [values_of(dtype, (256, 256)), values_of(dtype, (128, 128))]
    write_image(tmp_path / "image", levels, "yx", extra, chunks=(64, 64))
    write_array(tmp_path / "plane", levels[0], (64, 64))
    (tmp_path / "plane" / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": ["y", "x"]}))
    for name in "yx":
        write_array(tmp_path / name, np.arange(256.0))

    def shown(path: str) -> Rendering:
        return rendering(tiles, f"data/{path}", parse_query([SMALL, *query]), (1, 0, 0), "png")

    def change(array: str) -> None:
        found = zarr.open_array(str(tmp_path / array), zarr_format=2)
        found[...] = np.asarray(found[...])[::-1]

    changes: list[tuple[str, Callable[[], Any]]] = [
        *[("image", partial(change, f"image/{level}")) for level in "01"],
        ("image", lambda: write_image(tmp_path / "image", [levels[1], levels[1]], "yx", extra, chunks=(64, 64))),
        ("image", lambda: write_attributes(tmp_path / "image", {})),
        *[("plane", partial(change, array)) for array in ("plane", "y", "x")],
        ("plane", lambda: (tmp_path / "plane" / ".zattrs").write_text("{}")),
    ]
    for path, act in changes:
        before = shown(path)
        assert path == "plane" or (before.until == inf) == endless
        keys = [*before.sources]
        act()
        now = before.plan.frame.image.mount.versions.look_up("", keys)
        try:
            tag = shown(path).tag
        except HyperslabError:  # it is no picture any more
            tag = ""
        assert keys
        assert tag == before.tag or now != [*before.sources.values()] or before.until < inf


def test_a_picture_of_a_group_without_a_document_is_not_replayed(tmp_path: Path, tiles: Tiles) -> None:
    """Whether it is a group depends on those above it."""
    write_image(tmp_path / "a" / "image", [values_of("u1", (64, 64))], "yx")
    (tmp_path / "a" / "image" / ".zgroup").unlink()

    assert not rendering(tiles, "data/a/image", parse_query([]), (0, 0, 0), "png").sources


def test_a_sample_is_taken_once_however_many_ask_for_it_at_once(
    tmp_path: Path, tiles: Tiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_array(tmp_path / "a", np.arange(4096, dtype="<u2").reshape(64, 64))
    take, begun, another = Statistics._take, Barrier(8), Event()
    taken: list[None] = []

    def counted(*args: Any, **options: Any) -> Any:
        taken.append(None)
        if len(taken) > 1:
            another.set()
        another.wait(0.1)
        return take(*args, **options)

    def tag(_: int) -> str:
        begun.wait(60)
        return rendering(tiles, "data/a", parse_query([]), (0, 0, 0), "png").tag

    monkeypatch.setattr(Statistics, "_take", counted)
    with ThreadPoolExecutor(8) as pool:
        tags = set(pool.map(tag, range(8)))

    assert (len(tags), len(taken)) == (1, 1)
