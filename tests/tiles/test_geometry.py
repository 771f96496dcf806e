"""Deep Zoom and IIIF: which cells their tiles and images show."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import BadParameter, TooLarge
from hyperslab.tiles import iiif
from hyperslab.tiles.pyramid import Region, Span, TileGrid

GRID = TileGrid(600, 1000, 256)
sides = st.integers(1, 5000)


# --- Deep Zoom -------------------------------------------------------------------------------------------------


@given(sides, sides, st.integers(0, 3), st.data())
def test_tiles_of_a_level_show_each_pixel_and_the_overlap(
    height: int, width: int, overlap: int, data: st.DataObject
) -> None:
    grid = TileGrid(height, width, 64)
    level = data.draw(st.integers(0, grid.deep_zoom_level))
    factor = 2 ** (grid.deep_zoom_level - level)
    rows = ceil(ceil(height / factor) / 64)

    regions = [grid.deep_zoom_region(level, row, 0, overlap=overlap) for row in range(rows)]

    spans = [region.rows for region in regions if region is not None]
    assert len(spans) == rows
    assert spans[0].start == 0
    assert sum(span.count for span in spans) == ceil(height / factor) + sum(
        min(overlap, ceil(height / factor) - 64 * i) + overlap for i in range(1, rows)
    )
    assert grid.deep_zoom_region(level, rows, 0, overlap=overlap) is None


# --- IIIF ------------------------------------------------------------------------------------------------------


def parse(region: str = "full", size: str = "max", rotation: str = "0", file: str = "default.png") -> iiif.ImageRequest:
    return iiif.parse_request(region, size, rotation, file)


def shown(grid: TileGrid, region: str, size: str) -> Region:
    return parse(region, size).region(grid)


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("full", (0, 0, 1000, 600)),
        ("square", (200, 0, 600, 600)),
        ("10,20,30,40", (10, 20, 30, 40)),
        ("900,500,500,500", (900, 500, 100, 100)),
        ("pct:10,50,20,10", (100, 300, 200, 60)),
    ],
)
def test_regions_are_cut_at_the_edges(region: str, expected: tuple[int, int, int, int]) -> None:
    found = parse(region).region(GRID)

    assert (found.columns.start, found.rows.start, found.columns.count, found.rows.count) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("max", (1000, 600)),
        ("500,", (500, 300)),
        (",300", (500, 300)),
        ("100,200", (100, 200)),
        ("!400,100", (167, 100)),
        ("!4000,4000", (1000, 600)),
        ("pct:50", (500, 300)),
        ("1,", (1, 1)),
    ],
)
def test_sizes_follow_the_proportions(size: str, expected: tuple[int, int]) -> None:
    found = parse(size=size).region(GRID)

    assert (found.columns.count, found.rows.count) == expected


def test_a_tile_at_the_edge_has_the_step_of_all_others() -> None:
    found = shown(TileGrid(1999, 5000, 256), "0,0,2048,1999", "256,250")

    assert (found.rows, found.columns) == (Span(0, 8, 250), Span(0, 8, 256))


@pytest.mark.parametrize(
    ("rotation", "expected"), [("0", (False, 0)), ("90.0", (False, 1)), ("!270", (True, 3)), ("360", (False, 0))]
)
def test_right_angles_and_mirrors(rotation: str, expected: tuple[bool, int]) -> None:
    found = parse(rotation=rotation)

    assert (found.mirrored, found.quarters) == expected


REFUSED: dict[str, list[str]] = {
    "region": ["5,5", "1000,0,5,5", "0,0,0,5", "1.5,0,5,5", "pct:0,0,1000", "everything"],
    "size": ["^max", "2000,", "0,", ",", "!5,", "large"],
    "rotation": ["45", "361", "-90"],
    "file": ["best.png", "default.tif", "default"],
}


@pytest.mark.parametrize(("segment", "text"), [(name, text) for name, texts in REFUSED.items() for text in texts])
def test_what_the_protocol_does_not_have_is_refused(segment: str, text: str) -> None:
    with pytest.raises(BadParameter):
        parse(**{segment: text}).region(GRID)


@pytest.mark.parametrize("grid", [TileGrid(0, 5, 256), TileGrid(5, 0, 256), TileGrid(0, 0, 256)])
@pytest.mark.parametrize("region", ["full", "square", "0,0,1,1", "pct:0,0,100,100"])
@pytest.mark.parametrize("size", ["max", "1,", "pct:50"])
def test_an_image_without_pixels_has_no_part_to_show(grid: TileGrid, region: str, size: str) -> None:
    with pytest.raises(BadParameter, match=r"region=.* pixels"):
        shown(grid, region, size)


def test_an_image_has_so_many_pixels_at_most() -> None:
    grid = TileGrid(20_000, 30_000, 256)

    for size in ("30000,", "20000,100"):
        with pytest.raises(TooLarge):
            shown(grid, "full", size)
    most = shown(grid, "full", "max")

    assert most.rows.count * most.columns.count <= iiif.MOST_PIXELS
    assert max(shown(TileGrid(5, 10**6, 256), "full", "max").shape) == iiif.MOST_ACROSS
    assert shown(grid, "full", "!30000,20000") == most
    assert shown(grid, "full", "!300,200").shape == (200, 300)


@given(sides, sides)
def test_every_tile_that_a_client_works_out_is_a_valid_request(height: int, width: int) -> None:
    grid = TileGrid(height, width, 256)
    for factor in iiif.info_document(grid, "x")["tiles"][0]["scaleFactors"]:
        left = (width - 1) // (256 * factor) * 256 * factor
        across, down = min(256 * factor, width - left), min(256 * factor, height)
        found = shown(grid, f"{left},0,{across},{down}", f"{ceil(across / factor)},{ceil(down / factor)}")

        assert found.shape == (ceil(down / factor), ceil(across / factor))
