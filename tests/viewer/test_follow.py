"""The page follows what changes, and the end of an axis that grows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from tests.server import running_server
from tests.viewer.support import Viewer

RAW = {"content-type": "application/octet-stream"}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with running_server({"data": {"url": str(tmp_path), "writable": True}}) as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    document = {"shape": [2, 64, 64], "chunks": [1, 64, 64], "dtype": "|u1", "dimension_names": ["t", "y", "x"]}
    with httpx.Client(base_url=url) as client:
        assert client.put("/v1/metadata/data/a", json=document).status_code == 201
        yield client


def frame(level: int) -> bytes:
    return np.full((1, 64, 64), level, "u1").tobytes()


def shows(viewer: Viewer, level: int) -> bool:
    return abs(int(viewer.picture()[300:500, 500:700].mean()) - level) < 4


def test_the_page_shows_each_end_of_an_array_that_grows(viewer: Viewer, client: httpx.Client) -> None:
    viewer.open_image("/view/data/a?t=0&rescale=0,255")
    switch = viewer.page.get_by_role("button", name="Follow changes")
    expect(switch).to_have_attribute("aria-pressed", "false")
    switch.click()
    viewer.wait_for_query(".*follow=1")
    viewer.tab.wait_for_request("/v1/changes/data/a")
    for last in (*range(3), 30):  # one by one, then many that nobody waits for
        for level in range(client.get("/v1/metadata/data/a").json()["shape"][0] - 2, last + 1):
            client.post("/v1/append/data/a", content=frame(8 * level), headers=RAW).raise_for_status()
        expect(viewer.slider("t")).to_have_value(str(last + 2))
        viewer.settle()
        viewer.tab.wait_until(partial(shows, viewer, 8 * last))


def test_values_that_change_in_place_are_drawn_anew(viewer: Viewer, client: httpx.Client) -> None:
    viewer.open_image("/view/data/a?t=0&rescale=0,255&follow=1")
    viewer.tab.wait_for_request("/v1/changes/data/a")
    client.put("/v1/slice/data/a", params={"select": "0:1"}, content=frame(200), headers=RAW).raise_for_status()

    viewer.page.wait_for_function(
        "() => performance.getEntriesByType('resource').filter(({ name }) => /png[?].*v=data/.test(name)).length > 0"
    )
    viewer.tab.wait_until(partial(shows, viewer, 200))
