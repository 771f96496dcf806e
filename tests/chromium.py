"""Headless Chromium for the tests of pages. A `Tab` remembers what went wrong in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Page,
    Playwright,
    Request,
    Response,
    expect,
    sync_playwright,
)

from tests.tools import artifacts, chromium

FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
WEBGL_FLAGS: Final = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")
"""WebGL without a GPU: slow, so only for pages that need it."""
DESKTOP: Final = (1280, 800)
PHONE: Final = (390, 844)
PATIENCE: Final = 60_000
"""Milliseconds: no test of a page is about how long something takes."""

expect.set_options(timeout=PATIENCE)


@dataclass  # Playwright hangs attributes on whatever handles its events: no slots
class Tab:
    """A page. ``errors``: console errors, exceptions and violations of the content policy.

    ``failed``: requests that were answered with an error or not at all; ``asked``: the addresses of all requests.
    """

    page: Page
    errors: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._on_console)
        self.page.on("pageerror", self._on_exception)
        self.page.on("request", self._on_request)
        self.page.on("response", self._on_response)
        self.page.on("requestfailed", self._on_failure)

    def keep(self, name: str) -> None:
        """Keep a screenshot for people to look at as ``{name}.png``."""
        self.page.screenshot(path=artifacts("viewer") / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower())}.png")

    def count(self, part: str) -> int:
        """How many requests had this in their address."""
        return sum(part in address for address in self.asked)

    def wait_for_request(self, part: str) -> None:
        """Until there was one with this in its address, for what is asked for in the background."""
        if not self.count(part):
            self.page.wait_for_event("request", lambda request: part in request.url)

    def clear(self) -> None:
        """Forget what has happened and what pages have kept, but for files in the browser's cache."""
        for other in self.page.context.pages[1:]:
            other.close()
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.evaluate(
            "() => { try { localStorage.clear(); sessionStorage.clear(); } catch { /* about:blank */ } }"
        )
        self.page.emulate_media(color_scheme="dark", reduced_motion="no-preference")
        self.page.mouse.move(0, 0)
        self.page.goto("about:blank")
        for noted in (self.errors, self.failed, self.asked):
            noted.clear()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """For what the page does not tell of itself; raises `TimeoutError` when patience is at an end."""
        deadline = monotonic() + PATIENCE / 1000
        while not holds():
            if monotonic() > deadline:
                raise TimeoutError
            self.page.wait_for_timeout(100)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _on_exception(self, error: Error) -> None:
        self.errors.append(str(error))

    def _on_request(self, request: Request) -> None:
        self.asked.append(request.url)

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.failed.append(f"{response.status} {response.url}")

    def _on_failure(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the page itself has changed its mind
            self.failed.append(f"{request.failure} {request.url}")


@contextmanager
def open_tab(
    browser: Browser, size: tuple[int, int] = DESKTOP, scheme: Literal["dark", "light"] = "dark", **options: Any
) -> Iterator[Tab]:
    """A tab with a profile of its own; ``options`` are those of a Playwright context."""
    width, height = size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
    context.set_default_timeout(PATIENCE)
    try:
        yield Tab(context.new_page())
    finally:
        context.close()


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """For no longer than a module: its event loop runs all the while, and other tests want loops of their own."""
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """One Chromium for all tests of a module; it has no WebGL."""
    with _launched(playwright, *FLAGS) as browser:
        yield browser


@pytest.fixture(scope="module")
def webgl_browser(playwright: Playwright) -> Iterator[Browser]:
    """One with WebGL, drawn by the processor."""
    with _launched(playwright, *FLAGS, *WEBGL_FLAGS) as browser:
        yield browser


@contextmanager
def _launched(playwright: Playwright, *flags: str) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=chromium(), args=list(flags))
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[Tab]:
    """What all tests of a module share: to open a tab costs as much as what most of them do in it."""
    with open_tab(browser) as opened:
        yield opened


@pytest.fixture
def tab(window: Tab) -> Iterator[Tab]:
    """A dark tab of a desktop's size."""
    yield window
    window.clear()
