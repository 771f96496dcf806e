"""The page behind a signed link: how one is made, what it shows, and what is said when it has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import expect

from hyperslab.api.links import Links
from tests.server import running_server
from tests.viewer.support import Viewer, audit

TOKEN: Final = "shared" * 5
KEY: Final = "a key for the tests of links"


@pytest.fixture(scope="module")
def url(demo_store: Path) -> Iterator[str]:
    with running_server({"demo": demo_store}, read_tokens=[TOKEN], link_keys={"a": KEY}) as server:
        yield server.url


def link(path: str, seconds: float = 600) -> str:
    """A link's prefix below the service."""
    return f"/link/{Links({'a': KEY}).sign(path, ['read'], time.time() + seconds, 'anna')}"


def test_share_copies_a_link_to_the_view_which_opens_without_a_token(viewer: Viewer) -> None:
    viewer.expected = "401"
    viewer.open("/view/demo/brain?z=40")
    form = viewer.page.get_by_role("textbox", name="Token")
    form.fill("wrong")
    viewer.page.keyboard.press("Enter")
    expect(form).to_have_attribute("aria-invalid", "true")
    audit(viewer.page)
    form.fill(TOKEN)
    viewer.page.keyboard.press("Enter")
    viewer.settle()
    audit(viewer.page)
    viewer.page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    viewer.press("Share", exact=True)
    expect(viewer.page.get_by_text("Copied", exact=True)).to_be_visible()
    copied = viewer.page.evaluate("copied")

    assert copied.startswith(f"{viewer.url}/link/a.")
    assert copied.endswith("/view/demo/brain?z=40")
    viewer.page.evaluate("sessionStorage.clear()")
    viewer.page.goto(copied)
    viewer.settle()
    assert viewer.picture().std() > 5
    expect(viewer.page.get_by_role("button", name="Share", exact=True)).to_be_hidden()


def test_behind_a_link_the_page_shows_what_it_leads_to_and_an_image_element_draws(viewer: Viewer) -> None:
    prefix = link("demo/brain")
    viewer.open(f"{prefix}/view/demo")
    tree = viewer.page.get_by_role("tree")
    expect(tree.get_by_role("treeitem", name="brain")).to_be_visible()
    expect(tree.get_by_role("treeitem", name="microscope")).to_have_count(0)
    drawn = viewer.page.evaluate(
        "(src) => new Promise((done) => { const i = new Image(); i.onload = () => done(i.width); i.src = src; })",
        f"{prefix}/v1/tile/demo/brain/0/0/0.png",
    )
    assert drawn == 256


def test_a_link_that_has_ended_says_so_and_asks_for_no_token(viewer: Viewer) -> None:
    viewer.expected = "401"
    viewer.open(f"{link('demo', -1)}/view/demo")
    expect(viewer.page.get_by_role("heading", name="This link has ended")).to_be_visible()

    viewer.open(f"{link('demo', 3)}/view/demo")
    viewer.page.get_by_role("tree").wait_for()
    time.sleep(3)
    viewer.page.get_by_role("treeitem", name="brain").click()
    expect(viewer.page.get_by_text("This link has ended").first).to_be_visible()
    expect(viewer.page.get_by_role("textbox", name="Token")).to_have_count(0)
