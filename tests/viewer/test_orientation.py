"""Pictures stand the right way up and have the proportions of what they show, with labels, links and readings."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.server import running_server
from tests.tiles.support import write_array, write_attributes, write_image
from tests.viewer.support import Viewer, pixels

NORTH = np.arange(12.0)[:, None] * 100 + np.arange(20.0)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("oriented")
    write_attributes(folder, {})
    write_array(folder / "t", NORTH, attributes={"_ARRAY_DIMENSIONS": ["lat", "lon"]})
    write_array(folder / "lat", np.arange(12.0) * 5, attributes={"units": "degrees_north"})
    write_array(folder / "lon", np.arange(20.0) * 10, attributes={"units": "degrees_east"})
    corner = np.zeros((6, 40, 60), "u1")
    corner[0, :8, :10] = 1
    write_image(folder / "cells", [corner * 200], "zyx")
    write_attributes(folder / "cells" / "labels", {"labels": ["one"]})
    colours = {"image-label": {"version": "0.4", "colors": [{"label-value": 1, "rgba": [255, 0, 0, 255]}]}}
    write_image(folder / "cells" / "labels" / "one", [corner], "zyx", colours)
    for path in (folder / "cells" / ".zattrs", folder / "cells" / "labels" / "one" / ".zattrs"):
        path.write_text(path.read_text().replace("[1, 1, 1]", "[4, 1, 1]"))
    with running_server({"data": folder}) as server:
        yield server.url


def edges(viewer: Viewer, red: int = 150) -> tuple[int, int, int, int]:
    """Top, bottom, left and right of what is bright, in pixels of the screen; the tools are no part of it."""
    rows, columns = np.nonzero(viewer.picture()[100:-60, :640, 0] > red)
    return int(np.min(rows)), int(np.max(rows)) + 1, int(np.min(columns)), int(np.max(columns)) + 1


def test_north_is_above_and_readings_follow(viewer: Viewer) -> None:
    viewer.open_image("/view/data/t?rescale=0,1200")

    for pressed, query in ((True, r"rescale=0,1200$"), (False, r"flip=none&rescale=0,1200$")):
        expect(viewer.page.get_by_role("button", name="Flip lat")).to_have_attribute(
            "aria-pressed", str(pressed).lower()
        )
        viewer.wait_for_query(r"\?" + query)
        readings = [viewer.values_under(620, y) for y in (330, 480)]
        for where, values in readings:
            assert values == [NORTH[where["lat"], where["lon"]]]
        assert (readings[0][1] > readings[1][1]) == pressed
        shown = pixels(viewer.page.screenshot())[[330, 480], 620, 0].astype(int)
        assert (shown[0] > shown[1]) == pressed
        link = viewer.page.get_by_role("link", name="Picture as PNG").get_attribute("href")
        assert link is not None
        image = pixels(viewer.page.request.get(link).body()).astype(int)
        assert (image[0, 0, 0] > image[-1, 0, 0]) == pressed
        assert image.shape[0] * 20 == image.shape[1] * 6  # 5° by 10°
        if pressed:
            viewer.press("Flip lat")
            viewer.settle()
    viewer.press("Flip lon", r"\?flip=lon&rescale=0,1200$")
    left, right = (viewer.values_under(x, 400)[0]["lon"] for x in (420, 820))
    assert left > right


def test_a_place_stays_in_view_when_the_picture_is_turned(viewer: Viewer) -> None:
    viewer.open_image("/view/data/t?box=12.5,7.5,18")
    before = viewer.values_under(624, 424)

    viewer.press("Flip lat")
    viewer.press("Flip lon")
    viewer.press("1:1", r"\?flip=lon&aspect=1&box=12.5,7.5,18$")

    assert viewer.values_under(624, 424) == before


def test_voxels_have_their_height_until_they_are_wanted_square(viewer: Viewer) -> None:
    viewer.open_image("/view/data/cells?axes=z,x&y=0")
    top, bottom, left, right = edges(viewer)
    assert (bottom - top) / (right - left) == pytest.approx(0.4, rel=0.05)
    readings = {viewer.values_under(x, y)[0]["z"] for x in (400, 800) for y in range(290, 520, 10)}
    assert readings == set(range(6))

    viewer.press("1:1", r"\?axes=z,x&aspect=1&y=0$")

    top, bottom, left, right = edges(viewer)
    assert (bottom - top) / (right - left) == pytest.approx(0.1, rel=0.1)


def test_the_demo_microscope_is_as_thick_as_it_is(viewer: Viewer, demo_url: str) -> None:
    viewer.url = demo_url
    viewer.open_image("/view/demo/microscope?axes=z,x")

    expect(viewer.page.get_by_test_id("scalebar")).to_have_text(re.compile(r"^\d+ µm$"))


@pytest.mark.parametrize("plane", ["y,x", "z,x"])
def test_labels_are_turned_and_stretched_with_their_picture(viewer: Viewer, plane: str) -> None:
    first, second = plane.split(",")
    viewer.open_image(f"/view/data/cells?axes={plane}&z=0&y=0&opacity=1")
    seen = set()
    for flipped in (None, first, second, first):  # neither, the rows, both, the columns
        if flipped is not None:
            viewer.press(f"Flip {flipped}")
            viewer.settle()
        image = edges(viewer)
        viewer.press("one", exact=True)
        viewer.page.locator('[data-labels="shown"]').wait_for()
        viewer.settle()
        np.testing.assert_allclose(edges(viewer, 240), image, atol=2)
        seen.add(image)
        viewer.press("one", exact=True)
        viewer.page.locator('[data-labels="none"]').wait_for()
        viewer.settle()
    assert len(seen) == 4


def test_cards_show_pictures_the_right_way_up(viewer: Viewer) -> None:
    viewer.open("/view/data")

    image = viewer.page.locator('a.card[href$="/t"] img')
    expect(image).to_be_visible()
    shown = pixels(image.screenshot()).astype(int)
    assert shown[4, 20, 0] > shown[-4, 20, 0]
