"""The address holds all that is on the screen, and the browser's buttons go back and forth in it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.viewer.support import Viewer

PARSE = "state.parse(new URL(a, location.origin))"
PARSED = f"argument.map((a) => {PARSE})"
CHANNEL = {"index": 1, "active": True, "color": "", "window": [0, 9], "inverted": False}
ROUND_TRIPS = [
    "/view/demo/microscope?axes=z,x&y=100&gamma=0.5",
    "/view/demo/microscope?off=0,4D7CFF,110,1900,0&c=1&c=2&color=28E66E&color=FF3CB4&rescale=130,1500&rescale=110,1500&z=3",
    "/view/demo/microscope?z=3&off=1,28E66E,130,1500,0&off=2,FF3CB4,110,1500,1&c=0&color=&rescale=1,2&invert=1",
    "/view/demo/brain?rescale=0,900.5&invert=1&colormap_name=viridis_r&smooth=1&box=100,120.5,64",
    "/view/demo/climate/sst?view=values&time=12&row=50&column=24",
    "/view/demo/signal?range=100,2000",
    "/view/demo/events?view=plot&field=energy",
    "/view/demo/microscope?overlay=demo/microscope/labels/nuclei&opacity=0.3",
    "/view/a%20b/c%2Bd/%C3%A9?sel=c:3&sel=view:7&t=1",
    "/",
]


@pytest.fixture
def module(viewer: Viewer) -> str:
    """The address of the page's own code for states."""
    viewer.open("/view/demo/speed_of_light")
    found = viewer.page.locator('meta[name="hyperslab-static"]').get_attribute("content")
    return f"{viewer.url}{found}/state.js"


def call(viewer: Viewer, module: str, expression: str, argument: Any) -> Any:
    script = f"async ([module, argument]) => {{ const state = await import(module); return {expression}; }}"
    return viewer.page.evaluate(script, [module, argument])


def test_an_address_that_was_read_is_written_as_the_same_state(viewer: Viewer, module: str) -> None:
    written = call(viewer, module, f"argument.map((a) => state.format({PARSE}))", ROUND_TRIPS)

    assert call(viewer, module, PARSED, written) == call(viewer, module, PARSED, ROUND_TRIPS)


def test_an_address_is_read_with_care(viewer: Viewer, module: str) -> None:
    expected: list[tuple[str, str, Any]] = [
        ("/view/a%20b/c", "path", "a b/c"),
        ("/view//a/%zz//b%/", "path", "a/%zz/b%"),
        ("/view/x?axes=z,x", "plane", ["z", "x"]),
        ("/view/x?axes=z", "plane", None),
        ("/view/x?z=4&sel=c:2", "at", {"z": 4, "c": 2}),
        ("/view/x?z=-4&t=one", "at", {}),
        ("/view/x?gamma=-1", "gamma", 1),
        ("/view/x?opacity=7", "opacity", 0.5),
        ("/view/x?c=0&c=1&rescale=1,2", "channels", None),
        ("/view/x?c=1&rescale=0,9&off=0", "channels", [CHANNEL]),
        ("/view/x?box=1,2", "box", None),
        ("/view/x?box=1,2,0", "box", None),
        ("/view/x?range=5,2", "range", None),
        ("/view/x?range=0.5,2", "range", None),
        ("/view/x?view=nonsense", "view", ""),
    ]

    states = call(viewer, module, PARSED, [address for address, _, _ in expected])

    read = [(address, name, state[name]) for (address, name, _), state in zip(expected, states, strict=True)]
    assert read == expected


def test_a_link_brings_back_what_was_on_the_screen(viewer: Viewer) -> None:
    viewer.open_image("/view/demo/brain?z=40&rescale=100,1500&colormap_name=magma&gamma=0.8&box=260,240,200")
    first = viewer.picture()

    viewer.page.reload()
    viewer.settle()

    assert np.abs(viewer.picture().astype(int) - first).max() <= 1
    expect(viewer.page.get_by_role("button", name="magma")).to_be_visible()
    expect(viewer.slider("z")).to_have_value("40")


def test_back_and_forward_undo_and_redo_one_thing_at_a_time(viewer: Viewer) -> None:
    viewer.open("/")
    viewer.page.locator(".card", has_text="brain").click()
    viewer.settle()
    viewer.slider("z").fill("10")
    viewer.slider("z").fill("11")
    viewer.wait_for_query(r"brain\?z=11$")
    viewer.press("yz", exact=True)
    viewer.wait_for_query(r"brain\?axes=z,y&z=11$")

    viewer.page.go_back()
    expect(viewer.slider("z")).to_have_value("11")
    viewer.page.go_back()
    expect(viewer.slider("z")).to_have_value("32")
    viewer.page.go_back()
    expect(viewer.page.get_by_role("heading", name="demo")).to_be_visible()
    viewer.page.go_forward()
    viewer.page.go_forward()
    expect(viewer.slider("z")).to_have_value("11")
    viewer.page.go_forward()
    expect(viewer.slider("x")).to_be_visible()
    viewer.settle()


def test_the_view_can_be_moved_and_comes_back(viewer: Viewer) -> None:
    viewer.open_image("/view/demo/brain?box=256,256,100")

    viewer.page.keyboard.press("ArrowRight")
    viewer.wait_for_query(r"brain\?box=27\d")
    viewer.page.reload()
    viewer.settle()

    assert re.search(r"\?box=27\d[.\d]*,256", viewer.query)


def test_channels_that_a_link_does_not_name_are_off_and_keep_their_colours(viewer: Viewer) -> None:
    viewer.open_image("/view/demo/microscope?c=1&rescale=130,1500&box=1e9,1e9,64")

    expect(viewer.page.get_by_role("button", name="Hide ")).to_have_count(1)
    expect(viewer.page.get_by_role("button", name="Show ")).to_have_count(2)
    expect(viewer.page.get_by_label("Nuclei: colour")).not_to_have_value("#ffffff")
