"""Phones, themes, WebGL."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.chromium import open_tab
from tests.viewer.support import Pixels, Viewer, pixels, viewing


def background(viewer: Viewer) -> str:
    return viewer.page.evaluate("getComputedStyle(document.body).backgroundColor")  # type: ignore[no-any-return]


def test_the_page_works_on_a_phone(phone: Viewer) -> None:
    page = phone.page
    phone.open("/")
    expect(page.locator(".card").first).to_be_visible()

    page.get_by_role("button", name="Hierarchy").tap()
    page.get_by_role("tree").get_by_role("link", name="microscope").tap()
    phone.settle()
    expect(page.get_by_role("tree")).not_to_be_visible()
    page.get_by_role("button", name="Panels (i)").tap()
    page.get_by_role("button", name="Hide Membranes").tap()
    phone.wait_for_query(r"microscope\?off=2")
    phone.settle()

    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_nothing_is_wider_than_a_phone(phone: Viewer) -> None:
    overflowing = "[...document.querySelectorAll('header *')].filter((e) => e.getBoundingClientRect().right > 391)"

    for path in ("", "view/demo/microscope", "view/demo/signal", "view/demo/events"):
        phone.open(f"/{path}")
        phone.page.wait_for_load_state("networkidle")
        assert phone.page.evaluate(f"{overflowing}.length") == 0, path


@pytest.mark.parametrize(("scheme", "dark"), [("dark", True), ("light", False)])
def test_follows_the_system_and_a_choice_wins(viewer: Viewer, scheme: Any, dark: bool) -> None:
    viewer.page.emulate_media(color_scheme=scheme)
    viewer.open_image("/view/demo/climate/sst?colormap_name=turbo")
    first = background(viewer)

    viewer.page.keyboard.press("t")
    second = background(viewer)
    viewer.page.reload()

    assert (first == "rgb(16, 18, 22)") is dark
    assert first != second
    assert background(viewer) == second


PRETEND = """
const get = WebGL2RenderingContext.prototype.getParameter;
WebGL2RenderingContext.prototype.getParameter = function (name) {
  return name === 0x9246 ? "A graphics processor" : get.call(this, name);
};
"""


def test_webgl_and_canvas_draw_alike(
    browser: Browser, webgl_browser: Browser, url: str, request: pytest.FixtureRequest
) -> None:
    address = "/view/demo/climate/sst?colormap_name=turbo&box=90,45,60"  # the land has no values: it is not seen
    with open_tab(browser, scheme="light") as tab, viewing(tab, url, request) as viewer:
        canvas = _picture(viewer, address)
    with open_tab(webgl_browser, scheme="light") as tab, viewing(tab, url, request) as viewer:
        tab.page.add_init_script(PRETEND)
        webgl = _picture(viewer, address)

    differing = (abs(webgl.astype(int) - canvas) > 8).any(axis=-1)
    assert differing.mean() < 0.15  # edges of the large pixels may be one screen pixel apart


def _picture(viewer: Viewer, address: str) -> Pixels:
    viewer.open_image(address)
    viewer.page.wait_for_load_state("networkidle")
    clip = {"x": 400, "y": 200, "width": 400, "height": 300}
    return pixels(viewer.page.screenshot(clip=clip))  # type: ignore[arg-type]
