"""What has no value is told from what is dark, and what stands under the pointer stays true when the view changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import expect

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


def test_missing_values_lowest_values_and_the_outside_look_different(viewer: Viewer) -> None:
    for scheme in ("dark", "light"):
        viewer.page.emulate_media(color_scheme=scheme)
        viewer.open_image("/view/data/t?rescale=0,9")
        shown = pixels(viewer.page.screenshot()).astype(int)
        low, missing, high, outside = (
            shown[y : y + 20, x : x + 20] for x, y in ((400, 400), (620, 400), (850, 400), (620, 110))
        )
        assert (low.max(), high.min()) == (0, 255)
        assert missing.std() > 2  # a pattern
        assert missing.min() > 20
        assert missing.max() < 240
        assert outside.std(axis=(0, 1)).max() == 0
        assert len({tuple(pixel) for pixel in shown[120:180, 400]}) == 3  # outside, frame, picture


def test_a_plane_without_values_says_so(viewer: Viewer) -> None:
    viewer.open_image("/view/data/t?t=1")
    word = viewer.page.get_by_text("No values here")

    expect(word).to_be_visible()
    viewer.slider("t").fill("2")
    viewer.settle()
    expect(word).to_be_hidden()
    viewer.slider("t").fill("0")
    viewer.wait_for_query(r"\?t=0$")
    expect(word).to_be_hidden()
    viewer.open_image("/view/data/t?box=30,20,10")
    expect(word).to_be_visible()
    viewer.open_image("/view/data/integers")
    expect(word).to_be_hidden()
