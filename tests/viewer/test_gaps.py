"""What has no value is told from what is dark, and what stands under the pointer stays true when the view changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.chromium import Tab
from tests.server import running_server
from tests.tiles.support import write_array, write_attributes
from tests.viewer.support import Viewer, pixels


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("gaps")
    write_attributes(folder, {})
    values = np.zeros((3, 40, 60), "<f4")
    values[0, :, 20:40] = np.nan
    values[0, :, 40:] = 9
    values[1] = np.nan
    write_array(folder / "t", values, attributes={"_ARRAY_DIMENSIONS": ["t", "y", "x"]})
    write_array(folder / "integers", np.zeros((40, 60), "u1"))
    with running_server({"data": folder}) as server:
        yield server.url


@pytest.fixture
def gaps(tab: Tab, url: str) -> Viewer:
    return Viewer(tab, url)


def test_missing_values_lowest_values_and_the_outside_look_different(gaps: Viewer) -> None:
    for scheme in ("dark", "light"):
        gaps.page.emulate_media(color_scheme=scheme)
        gaps.open_image("/view/data/t?rescale=0,9")
        shown = pixels(gaps.page.screenshot()).astype(int)
        low, missing, high, outside = (
            shown[y : y + 20, x : x + 20] for x, y in ((400, 400), (620, 400), (850, 400), (620, 110))
        )
        assert (low.max(), high.min()) == (0, 255)
        assert missing.std() > 2  # a pattern
        assert missing.min() > 20
        assert missing.max() < 240
        assert outside.std(axis=(0, 1)).max() == 0
        assert len({tuple(pixel) for pixel in shown[120:180, 400]}) == 3  # outside, frame, picture
    gaps.check_clean()


def test_a_plane_without_values_says_so(gaps: Viewer) -> None:
    gaps.open_image("/view/data/t?t=1")
    word = gaps.page.get_by_text("No values here")

    expect(word).to_be_visible()
    gaps.slider("t").fill("2")
    gaps.settle()
    expect(word).to_be_hidden()
    gaps.slider("t").fill("0")
    gaps.wait_for_query(r"\?t=0$")
    expect(word).to_be_hidden()
    gaps.open_image("/view/data/t?box=30,20,10")
    expect(word).to_be_visible()
    gaps.open_image("/view/data/integers")
    expect(word).to_be_hidden()
    gaps.check_clean()


def test_a_swatch_shows_its_colour_map_to_the_end(viewer: Viewer) -> None:
    viewer.open_image("/view/demo/climate/sst?colormap_name=viridis")
    swatch = viewer.page.locator(".colormap-button .swatch")
    expect(swatch).to_have_css("background-image", re.compile("url"))
    viewer.page.wait_for_load_state("networkidle")

    shown = pixels(swatch.screenshot()).astype(int)

    np.testing.assert_allclose(shown[6, [2, -3]], [(70, 8, 92), (248, 230, 33)], atol=25)


def test_the_reading_of_a_plot_follows_the_wheel(viewer: Viewer) -> None:
    viewer.open("/view/demo/signal")
    viewer.page.locator('.plot[aria-busy="false"]').wait_for()
    viewer.page.mouse.move(500, 400)
    for _ in range(3):
        viewer.page.mouse.wheel(0, -300)
    viewer.wait_for_query(r"\?range=")
    viewer.page.locator('.plot[aria-busy="false"]').wait_for()

    found = re.search(r"range=(\d+),(\d+)", viewer.query)
    reading = re.search(r"sample (\d+)", viewer.page.get_by_test_id("probe").inner_text())
    assert found is not None
    assert reading is not None
    first, last = int(found[1]), int(found[2])
    box = viewer.page.locator(".plot").bounding_box()
    assert box is not None
    share = (500 - box["x"] - 64) / (box["width"] - 64 - 20)
    assert int(reading[1]) == pytest.approx(first + share * (last - first), abs=(last - first) / 100)
    viewer.check_clean()
