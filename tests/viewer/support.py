"""The viewer page as a person sees it."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from tests.chromium import Tab
from tests.tools import node_modules

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
"""``(height, width, 3)``."""


def read(store: Path, path: str) -> Any:
    """An array of the store, as zarr-python reads it."""
    return zarr.open_array(store / path, mode="r", zarr_format=2)


AXE = "() => axe.run(document, {resultTypes: ['violations'], rules: {'scrollable-region-focusable': {enabled: true}}})"

GO = "address => { history.pushState(null, '', address); dispatchEvent(new PopStateEvent('popstate')); }"


def audit(page: Page) -> None:
    """No serious fault by axe-core, in the dark and in the light."""
    page.evaluate((node_modules() / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found = page.evaluate(AXE)["violations"]
        serious = [
            (each["id"], each["nodes"][0]["html"][:160]) for each in found if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], scheme


def pixels(png: bytes) -> Pixels:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


@dataclass(slots=True)
class Viewer:
    """The page in a tab; ``url`` is the service's. ``expected`` is a regular expression for errors that a test is
    about."""

    tab: Tab
    url: str
    expected: str = ""

    @property
    def page(self) -> Page:
        return self.tab.page

    @property
    def query(self) -> str:
        """The state in the address."""
        return self.page.evaluate("decodeURIComponent(location.search)")  # type: ignore[no-any-return]

    def wait_for_query(self, pattern: str) -> None:
        """Wait until the address has a state like this (a regular expression)."""
        expect(self.page).to_have_url(re.compile(rf".*/view/[^?]*{pattern}"))

    def open(self, address: str) -> None:
        """Load an address below the service, ``/`` or ``/view/…``."""
        self.page.goto(self.url + address)

    def open_image(self, address: str) -> None:
        self.open(address)
        self.settle()

    def go(self, address: str) -> None:
        """Show an address as a step back does, without loading the page again."""
        self.page.evaluate(GO, address)
        self.page.locator('#stage[aria-busy="false"]').wait_for()

    def go_to_image(self, address: str) -> None:
        self.go(address)
        self.settle()

    def settle(self) -> None:
        """Wait until the newest frame is on the screen."""
        self.page.locator('.image-view[aria-busy="false"]').wait_for()

    def press(self, name: str | re.Pattern[str], query: str | None = None, *, exact: bool = False) -> None:
        """Click a button; wait, if its state is given as a regular expression, for the address and the frame."""
        self.page.get_by_role("button", name=name, exact=exact).click()
        if query is not None:
            self.wait_for_query(query)
            self.settle()

    def slider(self, axis: str) -> Locator:
        return self.page.locator(f'input[data-axis="{axis}"]')

    def picture(self) -> Pixels:
        """What the canvas shows, without what lies over it."""
        over = self.page.locator(".picture-frame > :not(.picture)")
        over.evaluate_all("all => all.forEach((one) => (one.style.opacity = 0))")
        shown = pixels(self.page.locator(".picture canvas").first.screenshot())
        over.evaluate_all("all => all.forEach((one) => (one.style.opacity = ''))")
        return shown

    def values_under(self, x: int, y: int) -> tuple[dict[str, int], list[float]]:
        """Axes and values that the page names for a point of the screen."""
        self.page.mouse.move(x, y)
        probe = self.page.get_by_test_id("probe")
        probe.locator('.probe-what[aria-busy="false"]').wait_for()
        axes = re.findall(r"(\w+) (\d+)", probe.locator(".probe-where").inner_text())
        texts = re.findall(r"-?[\d.]+(?:e[+-]\d+)?", probe.locator(".probe-what").inner_text())
        return {name: int(index) for name, index in axes}, [float(text) for text in texts]

    def check_clean(self) -> None:
        """Nothing has failed but what is expected: no console error, no breach of the content policy, no request, no
        tile."""
        failed = [*self.tab.errors, *self.tab.failed]
        unexpected = [text for text in failed if not self.expected or not re.search(self.expected, text)]
        assert unexpected == [], unexpected
        picture = self.page.get_by_test_id("picture")
        assert self.expected or picture.count() == 0 or picture.get_attribute("data-failed-tiles") == "0"


@contextmanager
def viewing(tab: Tab, url: str, request: pytest.FixtureRequest) -> Iterator[Viewer]:
    """The page in a tab, which is clean at the end; a screenshot of it is kept if the test fails."""
    viewer = Viewer(tab, url)
    yield viewer
    if hasattr(sys, "last_value"):  # by pytest, which deletes it when a test begins
        tab.keep(request.node.name.removeprefix("test_"))
    viewer.check_clean()
