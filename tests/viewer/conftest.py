"""A real server with the demo store, and the page that it serves in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.chromium import PHONE, Tab, browser, open_tab, playwright, tab, webgl_browser, window
from tests.server import running_server
from tests.viewer.support import Viewer, viewing

__all__ = ["browser", "playwright", "tab", "webgl_browser", "window"]


@pytest.fixture(scope="session")
def demo_url(demo_store: Path) -> Iterator[str]:
    with running_server({"demo": demo_store}) as server:
        yield server.url


@pytest.fixture(scope="session")
def url(demo_url: str) -> str:
    """The service of `viewer`; a module that has one of its own puts it in this place."""
    return demo_url


@pytest.fixture
def viewer(tab: Tab, url: str, request: pytest.FixtureRequest) -> Iterator[Viewer]:
    with viewing(tab, url, request) as viewer:
        yield viewer


@pytest.fixture
def phone(browser: Browser, url: str, request: pytest.FixtureRequest) -> Iterator[Viewer]:
    """A phone in its owner's hand."""
    with (
        open_tab(browser, PHONE, "light", has_touch=True, is_mobile=True, device_scale_factor=2) as opened,
        viewing(opened, url, request) as viewer,
    ):
        yield viewer
