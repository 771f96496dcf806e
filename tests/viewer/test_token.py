"""The page of a service that asks for a token: how it is given, kept, sent and forgotten."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from playwright.sync_api import Locator, Request, expect

from tests.server import running_server
from tests.viewer.support import Viewer, read

TOKEN: Final = "sésame".encode().hex()
REFUSED: Final = "The service rejected this token."


@pytest.fixture(scope="module")
def url(demo_store: Path) -> Iterator[str]:
    with running_server({"demo": demo_store}, read_tokens=[TOKEN]) as server:
        yield server.url


def form(viewer: Viewer) -> Locator:
    return viewer.page.get_by_role("dialog", name="This service asks for a token")


def give(viewer: Viewer, token: str) -> None:
    form(viewer).get_by_label("Token").fill(token)
    viewer.page.keyboard.press("Enter")


def give_anew(viewer: Viewer) -> None:
    """Give the token in the place of one that was refused: the page begins again."""
    with viewer.page.expect_event("load"):
        give(viewer, TOKEN)


def forget(viewer: Viewer) -> Locator:
    return viewer.page.get_by_role("button", name="Forget token")


def withdraw(viewer: Viewer, script: str) -> None:
    """Put a token in the place of the page's that the service does not know, and run a script at once."""
    viewer.page.evaluate(f"sessionStorage.setItem('hyperslab-token', 'withdrawn'); {script}")


def run(codes: list[str]) -> list[str]:
    """What pieces of Python print, one line each, where the environment has the token."""
    environment = {**os.environ, "TOKEN": TOKEN}
    command = [sys.executable, "-c", "\n".join(codes)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=300
    ).stdout.splitlines()


@pytest.fixture(autouse=True)
def unauthorized(viewer: Viewer) -> None:
    """Requests are answered 401 before there is a token."""
    viewer.expected = "401"


def test_form_is_named_labelled_and_takes_the_focus(viewer: Viewer) -> None:
    viewer.open("/")

    field = form(viewer).get_by_label("Token")
    expect(field).to_be_focused()
    expect(field).to_have_attribute("type", "password")
    expect(forget(viewer)).to_have_count(0)
    for _ in range(3):
        viewer.page.keyboard.press("Escape")
    expect(field).to_be_visible()


def test_a_refused_token_is_reported_and_another_one_is_asked_for(viewer: Viewer) -> None:
    for wrong in ("nope", "two words", "sésame", "snow☃"):
        viewer.open("/")
        give(viewer, wrong)
        expect(form(viewer).get_by_role("alert")).to_have_text(REFUSED)
        expect(form(viewer).get_by_label("Token")).to_have_attribute("aria-invalid", "true")
    give(viewer, TOKEN)

    expect(form(viewer)).to_have_count(0)
    expect(viewer.page.locator(".card")).to_have_count(8)


def test_pictures_of_all_kinds_come_with_the_token_and_never_in_an_address(viewer: Viewer, demo_store: Path) -> None:
    carried: list[tuple[str, str | None]] = []

    def note(request: Request) -> None:
        if "/v1/" in request.url:
            carried.append((request.url, request.header_value("authorization")))

    viewer.open("/")
    give(viewer, TOKEN)
    expect(viewer.page.locator(".card img")).to_have_count(3)
    viewer.page.on("request", note)

    viewer.open_image("/view/demo/brain?z=30&colormap_name=viridis")
    axes, values = viewer.values_under(640, 420)
    swatch = viewer.page.locator(".colormap .swatch").first

    assert values == [read(demo_store, "brain")[axes["z"], axes["y"], axes["x"]]]
    assert viewer.picture().std() > 5
    expect(swatch).to_have_css("background-image", re.compile('^url\\("blob:'))
    tiles = [url for url, _ in carried if re.search(r"/\d+/\d+/\d+\.png", url)]
    assert tiles
    assert {header for _, header in carried} == {f"Bearer {TOKEN}"}
    assert not any(TOKEN in address for address in [*viewer.tab.asked, viewer.page.url])
    viewer.page.remove_listener("request", note)


def test_token_is_kept_for_the_tab_and_nowhere_else(viewer: Viewer) -> None:
    viewer.open("/view/demo/signal")
    give(viewer, TOKEN)
    expect(viewer.page.locator('[data-view="plot"]')).to_have_attribute("aria-busy", "false")

    viewer.page.reload()

    expect(viewer.page.locator('[data-view="plot"]')).to_have_attribute("aria-busy", "false")
    expect(form(viewer)).to_have_count(0)
    assert TOKEN in viewer.page.evaluate("JSON.stringify(sessionStorage)")
    assert TOKEN not in viewer.page.evaluate("JSON.stringify(localStorage) + document.cookie")
    other = viewer.page.context.new_page()
    other.goto(f"{viewer.url}/view/demo/signal")
    expect(other.get_by_role("dialog")).to_be_visible()


def test_token_is_forgotten_with_all_that_was_read(viewer: Viewer) -> None:
    viewer.open("/view/demo/brain")
    give(viewer, TOKEN)
    viewer.settle()

    forget(viewer).click()

    expect(form(viewer)).to_be_visible()
    expect(viewer.page.locator("canvas")).to_have_count(0)
    expect(forget(viewer)).to_have_count(0)
    assert viewer.page.evaluate("sessionStorage.length") == 0


def test_token_that_is_no_longer_good_is_asked_for_again(viewer: Viewer) -> None:
    viewer.open("/")
    give(viewer, TOKEN)
    expect(viewer.page.locator(".card")).to_have_count(8)

    withdraw(viewer, "document.querySelector('.card[href$=brain]').click()")
    expect(form(viewer).get_by_role("alert")).to_have_text(REFUSED)
    give_anew(viewer)

    viewer.settle()
    assert viewer.page.url.endswith("/view/demo/brain")


def test_token_that_is_withdrawn_while_tiles_load_is_asked_for_again(viewer: Viewer) -> None:
    viewer.open("/view/demo/brain?z=30")
    give(viewer, TOKEN)
    viewer.settle()

    viewer.expected = "401|failed to load"
    withdraw(viewer, "")
    viewer.slider("z").fill("50")
    viewer.wait_for_query("brain\\?z=50$")
    give_anew(viewer)

    viewer.settle()
    viewer.wait_for_query("brain\\?z=50$")
    assert viewer.picture().std() > 5


def test_lines_to_copy_and_links_work_with_a_token_and_do_not_tell_it(viewer: Viewer) -> None:
    viewer.open("/view/demo/brain")
    give(viewer, TOKEN)
    viewer.settle()

    code = viewer.page.get_by_label("Code")
    expect(code).to_contain_text('curl -H "Authorization: Bearer $TOKEN" -o slab.npy')
    codes = []
    for language in ("Python", "zarr", "numpy"):
        viewer.page.get_by_role("tab", name=language).click()
        expect(code).to_contain_text("os.environ['TOKEN']")
        codes.append(f"{code.inner_text()}\nprint(slab.shape); del slab")
    assert run(codes) == ["(512, 512)"] * 3
    assert TOKEN not in viewer.page.content()
    expect(viewer.page.get_by_role("link", name="neuroglancer")).to_have_count(0)
    with viewer.page.expect_download() as saved:
        viewer.page.get_by_role("link", name="Picture as PNG").click()
    assert saved.value.suggested_filename == "brain.png"
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")


def test_lines_that_open_a_group_work_with_a_token(viewer: Viewer) -> None:
    viewer.open("/view/demo/climate")
    give(viewer, TOKEN)

    code = viewer.page.get_by_label("Code")
    codes = []
    for language, end in (("Python", "del g"), ("zarr", "print(sorted(g))"), ("xarray", "print(sorted(d.variables))")):
        viewer.page.get_by_role("tab", name=language).click()
        expect(code).to_contain_text("os.environ['TOKEN']")
        codes.append(f"{code.inner_text()}\n{end}")
    printed = run(codes)
    assert len(printed) == 3
    assert all("sst" in line for line in printed)


def test_form_fits_a_phone(phone: Viewer) -> None:
    phone.expected = "401"
    phone.open("/view/demo/brain")
    give(phone, TOKEN)
    phone.settle()

    expect(forget(phone)).to_be_in_viewport(ratio=1)


def test_service_without_tokens_is_never_sent_one_and_shows_no_way_to_forget_it(viewer: Viewer, demo_url: str) -> None:
    viewer.url = demo_url
    carried: list[str | None] = []

    def note(request: Request) -> None:
        carried.append(request.header_value("authorization"))

    viewer.page.on("request", note)

    viewer.open_image("/view/demo/brain")

    viewer.page.remove_listener("request", note)
    expect(forget(viewer)).to_have_count(0)
    assert set(carried) == {None}
    assert np.ptp(viewer.picture()) > 0
