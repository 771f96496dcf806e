"""Which tiles there are, what they show, and which level they are made from; the same of Deep Zoom and IIIF."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import BadParameter, TooLarge
from hyperslab.tiles import iiif
from hyperslab.tiles.image import Level
from hyperslab.tiles.pyramid import Region, Span, TileGrid, axis_factor, box_edges

GRID = TileGrid(600, 1000, 256)
sides = st.integers(1, 5000)


def level(*factors: float) -> Level:
    return Level("", None, factors, (0.0,) * len(factors))  # type: ignore[arg-type]


@given(st.integers(1, 3000), st.integers(1, 3000), st.data())
def test_tiles_of_a_zoom_cover_the_plane_without_overlap(height: int, width: int, data: st.DataObject) -> None:
    grid = TileGrid(height, width, 256)
    z = data.draw(st.integers(0, grid.maxzoom))
    rows, columns = grid.counts(z)

    spans = [grid.region(z, row, 0).rows for row in range(rows)]

    assert sum(span.count for span in spans) == ceil(height / grid.factor(z))
    assert all(span.start == i * 256 * grid.factor(z) for i, span in enumerate(spans))
    assert all(0 < span.count <= 256 for span in spans)
    assert grid.region(z, 0, columns - 1).columns.count > 0


@pytest.mark.parametrize(
    ("full", "size", "ratio", "factor"),
    [
        (100, 100, None, 1),
        (1025, 512, None, 2),  # the writer has rounded down
        (1025, 513, None, 2),  # or up
        (1025, 513, 2.0, 2),
        (900, 300, 2.0, 2),  # whatever the sizes tell: the level ends early
        (300, 256, 2.0, 2),  # or is padded
        (256, 256, 2.0, 2),
        (10_000, 5000, 0.217 / 0.1084, 2),  # scales of three digits
        (10_000, 3948, 2.53, 10_000 / 3948),
        (100, 40, None, 2.5),
        (100, 40, 2.5, 2.5),
        (5, 5, None, 1),
        (0, 0, 2.0, 1),
        (7, 1, 8.0, 8),
        (5, 0, 2.0, 1),
    ],
)
def test_the_factor_of_a_level_follows_metadata_that_fits_the_sizes(
    full: int, size: int, ratio: float | None, factor: float
) -> None:
    assert axis_factor(full, size, ratio) == factor


@given(st.integers(1, 500), st.sampled_from([1.0, 2.0, 2.5, 3.0]), st.integers(0, 5), st.integers(1, 40))
def test_boxes_follow_each_other_and_are_never_empty(size: int, step: float, start: int, count: int) -> None:
    count = min(count, max(1, int(size / step) - start))
    edges = box_edges(Span(start * step, step, count), 1, 0, max(size, int((start + count) * step)))

    assert len(edges) == count + 1
    assert (np.diff(edges) >= 1).all()


def test_scales_that_are_decimal_fractions_do_not_shift_boxes() -> None:
    factor = 0.65 / 0.325 * (1 + 9e-7)

    for cells in (1, 1000):
        found = box_edges(Span(0, 2 * cells, 1_000_000), factor, 0, 1_000_000 * cells)
        np.testing.assert_array_equal(found, cells * np.arange(1_000_001))


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

    assert most.rows.count * most.columns.count <= iiif.MAX_AREA
    assert max(shown(TileGrid(5, 10**6, 256), "full", "max").shape) == iiif.MAX_SIDE
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
