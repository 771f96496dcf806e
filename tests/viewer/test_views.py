"""The views of one array agree: what the picture shows, the table shows, the link saves and a finger reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

from tests.chromium import Tab
from tests.server import running_server
from tests.tiles.support import write_array, write_attributes
from tests.viewer.support import Viewer

CUBE = np.arange(9 * 200 * 300).reshape(9, 200, 300)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("views")
    write_attributes(folder, {})
    write_array(folder / "unnamed", CUBE)
    write_array(folder / "waves", (np.arange(1, 41)[:, None] * np.exp(1j * np.linspace(0, 3, 60))).astype("c8"))
    with running_server({"data": folder}) as server:
        yield server.url


@pytest.fixture
def views(tab: Tab, url: str) -> Viewer:
    return Viewer(tab, url)


def first_cell(viewer: Viewer) -> tuple[str, str, str]:
    """Row, column and value at the top left of the table."""
    viewer.page.locator('.values[aria-busy="false"]').wait_for()
    row, column = (viewer.page.locator(place).first.inner_text() for place in ("tbody th", "thead th >> nth=1"))
    return row, column, viewer.page.locator("td").first.inner_text()


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("", (4, 0, 0)),
        ("?d0=2", (2, 0, 0)),
        ("?box=150,100,40", (4, 78, 130)),
        ("?axes=d2,d0&d1=7", (0, 7, 0)),
        ("?axes=d0,d1", (0, 0, 150)),
    ],
)
def test_values_are_those_of_the_picture(views: Viewer, query: str, place: tuple[int, int, int]) -> None:
    views.open_image(f"/view/data/unnamed{query}")

    views.page.get_by_role("button", name="Values", exact=True).click()
    row, column, value = first_cell(views)

    index = int(value)
    found = [int(n) for n in np.unravel_index(index, CUBE.shape)]
    tolerance = [0, 3, 3] if "box" in query else [0, 0, 0]
    assert all(abs(a - b) <= slack for a, b, slack in zip(found, place, tolerance, strict=True)), found
    plane = re.search(r"axes=d(\d),d(\d)", query)
    rows, columns = (int(n) for n in plane.groups()) if plane else (1, 2)
    assert [int(row), int(column)] == [found[rows], found[columns]]
    views.check_clean()
