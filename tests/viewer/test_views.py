"""The views of one array agree: what the picture shows, the table shows, the link saves and a finger reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from playwright.sync_api import Route, expect

from tests.server import running_server
from tests.tiles.support import write_array, write_attributes, write_image
from tests.viewer.support import Viewer, pixels

CUBE = np.arange(9 * 200 * 300).reshape(9, 200, 300)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("views")
    write_attributes(folder, {})
    write_array(folder / "unnamed", CUBE)
    write_array(folder / "waves", (np.arange(1, 41)[:, None] * np.exp(1j * np.linspace(0, 3, 60))).astype("c8"))
    bright = np.zeros((2, 40, 60), "u1")
    bright[0, :, :20] = bright[1, :, 40:] = 255
    write_image(folder / "pair", [bright], "cyx")
    write_array(folder / "classes", (np.indices((60, 80)).sum(0) // 20).astype("i4"))
    write_array(folder / "columns", np.arange(400000).reshape(100000, 4), chunks=(10000, 4))
    write_array(folder / "dated", np.full((3, 40, 60), 7), attributes={"_ARRAY_DIMENSIONS": ["time", "y", "x"]})
    write_array(folder / "time", np.arange(3), attributes={"units": "days since 2001-02-03"})
    gaps = np.zeros((3, 40, 60), "<f4")
    gaps[0, :, 20:40], gaps[0, :, 40:], gaps[1] = np.nan, 9, np.nan
    write_array(folder / "t", gaps, attributes={"_ARRAY_DIMENSIONS": ["t", "y", "x"]})
    with running_server({"data": folder}) as server:
        yield server.url


def first_cell(viewer: Viewer) -> tuple[str, str, str]:
    """Row, column and value at the top left of the table."""
    viewer.page.locator('.values[aria-busy="false"]').wait_for()
    row, column = (viewer.page.locator(place).first.inner_text() for place in ("tbody th", "thead th >> nth=1"))
    return row, column, viewer.page.locator("td").first.inner_text()


def test_values_are_those_of_the_picture(viewer: Viewer) -> None:
    viewer.open_image("/view/data/unnamed")
    for query, place in (
        ("", (4, 0, 0)),
        ("?d0=2", (2, 0, 0)),
        ("?box=150,100,40", (4, 78, 130)),
        ("?axes=d2,d0&d1=7", (0, 7, 0)),
        ("?axes=d0,d1", (0, 0, 150)),
    ):
        viewer.go_to_image(f"/view/data/unnamed{query}")

        viewer.press("Values", exact=True)
        row, column, value = first_cell(viewer)

        index = int(value)
        found = [int(n) for n in np.unravel_index(index, CUBE.shape)]
        tolerance = [0, 3, 3] if "box" in query else [0, 0, 0]
        assert all(abs(a - b) <= slack for a, b, slack in zip(found, place, tolerance, strict=True)), found
        plane = re.search(r"axes=d(\d),d(\d)", query)
        rows, columns = (int(n) for n in plane.groups()) if plane else (1, 2)
        assert [int(row), int(column)] == [found[rows], found[columns]]


def test_the_link_saves_what_is_visible(viewer: Viewer) -> None:
    viewer.open_image("/view/data/unnamed?d0=2&rescale=72000,240000&box=150,100,40")

    link = viewer.page.get_by_role("link", name="Picture as PNG").get_attribute("href")
    assert link is not None
    saved = pixels(viewer.page.request.get(link).body()).astype(int)

    assert 40 <= saved.shape[1] <= 42
    assert abs(saved[saved.shape[0] // 2, saved.shape[1] // 2, 0] - (CUBE[2, 100, 150] - 72000) * 255 / 168000) < 3


def test_complex_values_are_drawn_by_the_part_that_is_chosen(viewer: Viewer) -> None:
    viewer.open_image("/view/data/waves")
    shown = [viewer.picture().astype(int)]

    for name, query in (("Real", "real"), ("Imaginary", "imag"), ("Phase", "phase"), ("Magnitude", "")):
        viewer.press(name, rf"\?component={query}$" if query else "$", exact=True)
        expect(viewer.page.get_by_role("button", name=name, exact=True)).to_have_attribute("aria-pressed", "true")
        shown.append(viewer.picture().astype(int))

    assert np.abs(shown[0] - shown[-1]).max() < 3
    assert all(np.abs(a - b).mean() > 5 for i, a in enumerate(shown[:4]) for b in shown[:i])


def test_integers_are_shown_as_labels(viewer: Viewer) -> None:
    viewer.open_image("/view/data/classes")
    viewer.press("As labels", r"\?labels=1$")

    colours = {tuple(pixel) for pixel in viewer.picture()[400, 40:600:10].tolist()}
    assert len(colours) >= 4
    assert any(max(colour) - min(colour) > 60 for colour in colours)


def test_channels_that_nobody_has_described_are_all_shown(viewer: Viewer) -> None:
    viewer.open_image("/view/data/pair")
    expect(viewer.page.get_by_role("button", name="Hide Channel 1")).to_be_visible()

    left, right = (viewer.picture()[350, x].tolist() for x in (100, 600))
    assert max(left) > 200
    assert max(right) > 200
    assert left != right
    _, values = viewer.values_under(400, 400)
    assert len(values) >= 2


def test_arrays_much_longer_than_wide_open_as_plots_or_tables(viewer: Viewer) -> None:
    """As a picture they would be a line. Every line of a plot is read off."""
    viewer.open("/view/data/columns?range=100,140")
    viewer.page.locator('.plot[aria-busy="false"]').wait_for()
    viewer.page.mouse.move(600, 400)
    index = int(re.findall(r"\d+", viewer.page.locator(".probe-where").inner_text())[1])
    told = [f"d1 {column}{4 * index + column}" for column in range(4)]
    expect(viewer.page.locator(".probe-channel")).to_have_text(told)
    expect(viewer.page.locator(".code")).to_contain_text("select=100:141,:")
    viewer.press("Values", exact=True)
    viewer.page.locator("tbody td").first.wait_for()
    assert first_cell(viewer) == ("0", "0", "0")

    shapes = {
        **{
            (10**6, 2): "plot",
            (2, 10**6): "plot",
            (10**5, 3): "plot",
            (1, 50): "plot",
            (10**6, 1, 1): "plot",
            (3, 1): "plot",
            (9,): "plot",
        },
        **{(10**5, 128): "values", (5, 10**5, 3): "values", (2**53, 3): "values"},
        **{(300, 20): "image", (40, 30, 3): "image", (512, 700, 3): "image", (20000, 4, 4): "image", (1, 1): "image"},
    }
    static = viewer.page.locator('meta[name="hyperslab-static"]').get_attribute("content")
    script = """async ([file, shapes]) => {
      const { viewsOf } = await import(file);
      return shapes.map((shape) => viewsOf({ kind: "array", dtype: "<f4", attributes: {}, shape }));
    }"""
    found = viewer.page.evaluate(script, [f"{static}/nodes.js", [list(shape) for shape in shapes]])
    assert dict(zip(shapes, (views[0] for views in found), strict=True)) == shapes
    assert all(
        {"values", "image" if len(shape) > 1 else "plot"} <= set(views)
        for shape, views in zip(shapes, found, strict=True)
    )


def test_a_tap_reads_the_value(phone: Viewer) -> None:
    phone.open_image("/view/data/dated")
    phone.page.touchscreen.tap(200, 400)

    probe = phone.page.get_by_test_id("probe")
    expect(probe).to_contain_text("time 0 (2001-02-03)")
    expect(probe.locator('.probe-what[aria-busy="false"]')).to_have_text("7")


def test_the_page_comes_back_when_the_service_does(viewer: Viewer) -> None:
    away = True

    def answer(route: Route) -> None:
        if away:
            route.abort("connectionrefused")
        else:
            route.continue_()

    viewer.expected = "ERR_CONNECTION_REFUSED"
    viewer.open_image("/view/data/unnamed")
    viewer.page.route(re.compile("/(v1|healthz)"), answer)
    viewer.page.get_by_role("treeitem", name="waves").get_by_role("link").click()
    expect(viewer.page.get_by_role("heading", name="The service cannot be reached")).to_be_visible()
    away = False

    viewer.settle()
    expect(viewer.page).to_have_title("waves · Hyperslab")


def test_missing_values_lowest_values_and_the_outside_look_different(viewer: Viewer) -> None:
    for scheme in ("dark", "light"):
        viewer.page.emulate_media(color_scheme=scheme)
        viewer.open_image("/view/data/t?rescale=0,9")
        shown = pixels(viewer.page.screenshot()).astype(int)
        low, missing, high, outside = (
            shown[y : y + 20, x : x + 20] for x, y in ((400, 400), (620, 400), (850, 400), (620, 110))
        )
        assert (low.max(), high.min()) == (0, 255)
        assert missing.std() > 2  # a pattern
        assert missing.min() > 20
        assert missing.max() < 240
        assert np.max(outside.std(axis=(0, 1))) == 0
        assert len({tuple(pixel) for pixel in shown[120:180, 400]}) == 3  # outside, frame, picture


def test_a_plane_without_values_says_so(viewer: Viewer) -> None:
    viewer.open_image("/view/data/t?t=1")
    word = viewer.page.get_by_text("No values here")

    expect(word).to_be_visible()
    viewer.slider("t").fill("2")
    viewer.settle()
    expect(word).to_be_hidden()
    viewer.slider("t").fill("0")
    viewer.wait_for_query(r"\?t=0$")
    expect(word).to_be_hidden()
    viewer.go_to_image("/view/data/t?box=30,20,10")
    expect(word).to_be_visible()
    viewer.go_to_image("/view/data/classes")
    expect(word).to_be_hidden()
