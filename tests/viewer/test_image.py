"""Pictures: what is drawn is what is stored, and every control changes what it says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from playwright.sync_api import expect

from tests.viewer.support import Viewer, pixels, read

MICROSCOPE = "/view/demo/microscope"
BRAIN = "/view/demo/brain"


def steps(value: float, low: float, high: float) -> int:
    return int(np.clip(np.floor((value - low) * 255 / (high - low) + 0.5), 0, 255))


def test_the_demo_volume_is_zoomed_coloured_and_overlaid(viewer: Viewer, demo_store: Path) -> None:
    viewer.open_image(MICROSCOPE)
    expect(viewer.page).to_have_title("microscope · Hyperslab")
    expect(viewer.page.get_by_test_id("scalebar")).to_have_text(re.compile("µm"))
    before = viewer.picture()
    assert before.std() > 20
    check_values_of_all_channels(viewer, demo_store)

    for _ in range(6):
        viewer.page.keyboard.press("+")
    viewer.wait_for_query(r"\?box=")
    viewer.settle()
    viewer.tab.wait_for_request("/microscope/2/")
    assert np.abs(viewer.picture().astype(int) - before).mean() > 5
    viewer.page.keyboard.press("0")
    viewer.wait_for_query("$")

    viewer.press("nuclei", exact=True)
    viewer.page.locator('[data-labels="shown"]').wait_for()
    viewer.page.get_by_label("Opacity of the labels").fill("1")
    viewer.wait_for_query(r".*opacity=1")
    assert np.abs(viewer.picture().astype(int) - before).mean() > 8
    viewer.press("nuclei", exact=True)
    viewer.page.locator('[data-labels="none"]').wait_for()

    viewer.press("Hide Membranes")
    viewer.page.keyboard.press("2")
    viewer.page.get_by_label("Nuclei: colour").fill("#ff0000")
    viewer.wait_for_query(r".*color=FF0000")
    viewer.settle()
    red, green, blue = (float(channel.mean()) for channel in np.moveaxis(viewer.picture(), -1, 0))
    assert red > 5
    assert green < red / 10
    assert blue < red / 10
    assert "off=1," in viewer.query
    assert "off=2," in viewer.query


def test_pixels_on_the_screen_are_the_values_in_the_store(viewer: Viewer, demo_store: Path) -> None:
    viewer.open_image(f"{BRAIN}?z=20&rescale=0,2000&box=256,200,40")

    where, values = viewer.values_under(640, 420)

    assert where["z"] == 20
    assert values == [read(demo_store, "brain")[20, where["y"], where["x"]]]
    shown = viewer.page.screenshot(clip={"x": 640, "y": 420, "width": 1, "height": 1})
    assert values[0] > 0
    assert abs(int(pixels(shown)[0, 0, 0]) - steps(values[0], 0, 2000)) <= 1


def test_the_slider_and_the_plane_switch_draw_other_planes(viewer: Viewer, demo_store: Path) -> None:
    """Its neighbours are fetched ahead; many quick moves end at the last."""
    viewer.open_image(BRAIN)
    before = viewer.picture()
    viewer.slider("z").fill("12")
    viewer.settle()
    assert np.abs(viewer.picture().astype(int) - before).mean() > 2
    viewer.wait_for_query(r"\?z=12$")
    viewer.tab.wait_for_request("z=13")
    viewer.tab.wait_for_request("z=11")

    for z in range(20, 50):
        viewer.slider("z").fill(str(z))
    viewer.wait_for_query(r"\?z=49$")
    viewer.settle()
    assert viewer.tab.count("z=49") > 0

    viewer.press("xz", r"\?axes=z,x&z=49$", exact=True)
    expect(viewer.slider("y")).to_be_visible()
    expect(viewer.page.locator(".code code")).to_contain_text("select=:,256,:")
    where, values = viewer.values_under(660, 430)
    assert values == [read(demo_store, "brain")[where["z"], where["y"], where["x"]]]


def test_play_runs_until_it_is_stopped(viewer: Viewer) -> None:
    viewer.open_image(f"{BRAIN}?z=30")

    viewer.press("Play z")
    expect(viewer.slider("z")).to_have_value(re.compile("3[3-9]|[45]."))
    viewer.press("Stop z")

    expect(viewer.page.get_by_role("button", name="Play z")).to_be_visible()
    viewer.settle()


def test_window_follows_the_numbers_and_the_handles(viewer: Viewer) -> None:
    viewer.open_image(f"{BRAIN}?z=32")
    before = viewer.picture()

    viewer.page.get_by_label("Contrast limits: upper limit", exact=True).fill("6000")
    viewer.page.keyboard.press("Enter")
    viewer.wait_for_query(r"\?z=32&rescale=")
    viewer.settle()
    darker = viewer.picture()
    viewer.page.get_by_role("slider", name="Contrast limits: lower limit, handle").focus()
    viewer.page.keyboard.press("Shift+ArrowRight")
    viewer.wait_for_query(r"\?z=32&rescale=[1-9]")

    assert "rescale=0,6000" not in viewer.query
    assert darker.mean() < before.mean() * 0.7


def test_colour_maps_are_chosen_from_swatches_and_coordinates_stand_beside_values(viewer: Viewer) -> None:
    viewer.open_image("/view/demo/climate/sst")
    viewer.values_under(640, 430)
    expect(viewer.page.get_by_test_id("probe")).to_contain_text("time 0 (2023-01-01)")
    expect(viewer.page.get_by_test_id("probe")).to_contain_text("degC")

    for name in ("magma", "viridis"):
        viewer.page.locator(".colormap-button").click()
        viewer.page.get_by_label("Filter colour maps").fill(name)
        viewer.page.wait_for_load_state("networkidle")
        viewer.page.get_by_role("option", name=name, exact=True).click()
        viewer.wait_for_query(rf"\?colormap_name={name}$")
        viewer.settle()
        if name == "magma":
            picture = viewer.picture().astype(int)
            assert np.abs(picture[..., 0] - picture[..., 2]).max() > 60

    swatch = viewer.page.locator(".colormap-button .swatch")
    expect(swatch).to_have_css("background-image", re.compile("viridis"))
    viewer.page.wait_for_load_state("networkidle")
    shown = pixels(swatch.screenshot()).astype(int)
    np.testing.assert_allclose(shown[6, [2, -3]], [(70, 8, 92), (248, 230, 33)], atol=25)


def test_a_label_image_is_drawn_in_its_colours(viewer: Viewer, demo_store: Path) -> None:
    viewer.open_image("/view/demo/microscope/labels/nuclei?z=8")

    where, values = viewer.values_under(640, 420)

    assert values == [read(demo_store, "microscope/labels/nuclei/0")[8, where["y"], where["x"]]]
    expect(viewer.page.get_by_role("heading", name="Channels")).to_have_count(0)


def check_values_of_all_channels(viewer: Viewer, demo_store: Path) -> None:
    where, values = viewer.values_under(500, 300)
    assert values == read(demo_store, "microscope/0")[:, where["z"], where["y"], where["x"]].tolist()


def test_values_of_all_channels_stand_under_the_cursor(viewer: Viewer, demo_store: Path) -> None:
    """Also of a corner of the image in shards, as OME-Zarr 0.5."""
    viewer.open_image("/view/demo/sharded")
    check_values_of_all_channels(viewer, demo_store)
