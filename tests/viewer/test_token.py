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
from playwright.sync_api import Browser, Locator, Request, expect

from tests.chromium import PHONE, Tab, open_tab
from tests.server import running_server
from tests.viewer.support import Viewer, read

TOKEN: Final = "sésame".encode().hex()
REFUSED: Final = "The service rejected this token."


@pytest.fixture(scope="module")
def guarded_url(demo_store: Path) -> Iterator[str]:
    with running_server({"demo": demo_store}, read_tokens=[TOKEN]) as server:
        yield server.url


@pytest.fixture
def guarded(tab: Tab, guarded_url: str) -> Viewer:
    return Viewer(tab, guarded_url)


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


def trouble(viewer: Viewer) -> list[str]:
    """What has failed, but for the requests that were answered 401 before there was a token."""
    return [failed for failed in [*viewer.tab.failed, *viewer.tab.errors] if "401" not in failed]


def test_form_is_named_labelled_and_takes_the_focus(guarded: Viewer) -> None:
    guarded.open("/")

    field = form(guarded).get_by_label("Token")
    expect(field).to_be_focused()
    expect(field).to_have_attribute("type", "password")
    expect(forget(guarded)).to_have_count(0)
    guarded.tab.keep("token form")
    for _ in range(3):
        guarded.page.keyboard.press("Escape")
    expect(field).to_be_visible()
    assert trouble(guarded) == []


def test_token_that_is_refused_is_told_and_another_one_taken(guarded: Viewer) -> None:
    for wrong in ("nope", "two words", "sésame", "snow☃"):
        guarded.open("/")
        give(guarded, wrong)
        expect(form(guarded).get_by_role("alert")).to_have_text(REFUSED)
        expect(form(guarded).get_by_label("Token")).to_have_attribute("aria-invalid", "true")
    guarded.tab.keep("token refused")
    give(guarded, TOKEN)

    expect(form(guarded)).to_have_count(0)
    expect(guarded.page.locator(".card")).to_have_count(8)
    assert trouble(guarded) == []


def test_pictures_of_all_kinds_come_with_the_token_and_never_in_an_address(guarded: Viewer, demo_store: Path) -> None:
    carried: list[tuple[str, str | None]] = []

    def note(request: Request) -> None:
        if "/v1/" in request.url:
            carried.append((request.url, request.header_value("authorization")))

    guarded.open("/")
    give(guarded, TOKEN)
    expect(guarded.page.locator(".card img")).to_have_count(3)
    guarded.page.on("request", note)

    guarded.open_image("/view/demo/brain?z=30&colormap_name=viridis")
    axes, values = guarded.values_under(640, 420)
    swatch = guarded.page.locator(".colormap .swatch").first

    assert values == [read(demo_store, "brain")[axes["z"], axes["y"], axes["x"]]]
    assert guarded.picture().std() > 5
    expect(swatch).to_have_css("background-image", re.compile('^url\\("blob:'))
    tiles = [url for url, _ in carried if re.search(r"/\d+/\d+/\d+\.png", url)]
    assert tiles
    assert {header for _, header in carried} == {f"Bearer {TOKEN}"}
    assert not any(TOKEN in address for address in [*guarded.tab.asked, guarded.page.url])
    guarded.tab.keep("image with token")
    assert trouble(guarded) == []


def test_token_is_kept_for_the_tab_and_nowhere_else(guarded: Viewer) -> None:
    guarded.open("/view/demo/signal")
    give(guarded, TOKEN)
    expect(guarded.page.locator('[data-view="plot"]')).to_have_attribute("aria-busy", "false")

    guarded.page.reload()

    expect(guarded.page.locator('[data-view="plot"]')).to_have_attribute("aria-busy", "false")
    expect(form(guarded)).to_have_count(0)
    assert TOKEN in guarded.page.evaluate("JSON.stringify(sessionStorage)")
    assert TOKEN not in guarded.page.evaluate("JSON.stringify(localStorage) + document.cookie")
    assert trouble(guarded) == []
    other = guarded.page.context.new_page()
    other.goto(f"{guarded.url}/view/demo/signal")
    expect(other.get_by_role("dialog")).to_be_visible()


def test_token_is_forgotten_with_all_that_was_read(guarded: Viewer) -> None:
    guarded.open("/view/demo/brain")
    give(guarded, TOKEN)
    guarded.settle()

    forget(guarded).click()

    expect(form(guarded)).to_be_visible()
    expect(guarded.page.locator("canvas")).to_have_count(0)
    expect(forget(guarded)).to_have_count(0)
    assert guarded.page.evaluate("sessionStorage.length") == 0
    assert trouble(guarded) == []


def test_token_that_is_no_longer_good_is_asked_for_again(guarded: Viewer) -> None:
    guarded.open("/")
    give(guarded, TOKEN)
    expect(guarded.page.locator(".card")).to_have_count(8)

    withdraw(guarded, "document.querySelector('.card[href$=brain]').click()")
    expect(form(guarded).get_by_role("alert")).to_have_text(REFUSED)
    give_anew(guarded)

    guarded.settle()
    assert guarded.page.url.endswith("/view/demo/brain")
    assert trouble(guarded) == []


def test_token_that_is_withdrawn_while_tiles_load_is_asked_for_again(guarded: Viewer) -> None:
    guarded.open("/view/demo/brain?z=30")
    give(guarded, TOKEN)
    guarded.settle()

    withdraw(guarded, "")
    guarded.slider("z").fill("50")
    guarded.wait_for_query("brain\\?z=50$")
    give_anew(guarded)

    guarded.settle()
    guarded.wait_for_query("brain\\?z=50$")
    assert guarded.picture().std() > 5


def test_lines_to_copy_and_links_work_with_a_token_and_do_not_tell_it(guarded: Viewer) -> None:
    guarded.open("/view/demo/brain")
    give(guarded, TOKEN)
    guarded.settle()

    code = guarded.page.get_by_label("Code")
    expect(code).to_contain_text('curl -H "Authorization: Bearer $TOKEN" -o slab.npy')
    codes = []
    for language in ("Python", "zarr", "numpy"):
        guarded.page.get_by_role("tab", name=language).click()
        expect(code).to_contain_text("os.environ['TOKEN']")
        codes.append(f"{code.inner_text()}\nprint(slab.shape); del slab")
    assert run(codes) == ["(512, 512)"] * 3
    assert TOKEN not in guarded.page.content()
    expect(guarded.page.get_by_role("link", name="neuroglancer")).to_have_count(0)
    with guarded.page.expect_download() as saved:
        guarded.page.get_by_role("link", name="Picture as PNG").click()
    assert saved.value.suggested_filename == "brain.png"
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")
    assert trouble(guarded) == []


def test_lines_that_open_a_group_work_with_a_token(guarded: Viewer) -> None:
    guarded.open("/view/demo/climate")
    give(guarded, TOKEN)

    code = guarded.page.get_by_label("Code")
    codes = []
    for language, end in (("Python", "del g"), ("zarr", "print(sorted(g))"), ("xarray", "print(sorted(d.variables))")):
        guarded.page.get_by_role("tab", name=language).click()
        expect(code).to_contain_text("os.environ['TOKEN']")
        codes.append(f"{code.inner_text()}\n{end}")
    printed = run(codes)
    assert len(printed) == 3
    assert all("sst" in line for line in printed)


def test_form_fits_a_phone(browser: Browser, guarded_url: str) -> None:
    with open_tab(browser, PHONE, "light", has_touch=True, is_mobile=True, device_scale_factor=2) as tab:
        viewer = Viewer(tab, guarded_url)
        viewer.open("/view/demo/brain")
        viewer.tab.keep("token form on a phone")
        give(viewer, TOKEN)
        viewer.settle()

        expect(forget(viewer)).to_be_in_viewport(ratio=1)
        tab.keep("image with token on a phone")
        assert trouble(viewer) == []


def test_service_without_tokens_is_never_sent_one_and_shows_no_way_to_forget_it(viewer: Viewer) -> None:
    carried: list[str | None] = []
    viewer.page.on("request", lambda request: carried.append(request.header_value("authorization")))

    viewer.open_image("/view/demo/brain")

    expect(forget(viewer)).to_have_count(0)
    assert set(carried) == {None}
    assert np.ptp(viewer.picture()) > 0
    viewer.check_clean()
