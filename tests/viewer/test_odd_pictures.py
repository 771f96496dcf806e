"""Pictures that are unlike the demo's: labels of another geometry, and what the service refuses to draw."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Route, expect

from tests.server import running_server
from tests.tiles.support import axes_json, write_array, write_attributes, write_image, write_plain
from tests.viewer.support import Pixels, Viewer, pixels

RED = {"image-label": {"version": "0.4", "colors": [{"label-value": 1, "rgba": [255, 0, 0, 255]}]}}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("odd")
    write_labelled(folder / "labelled")
    write_channels(folder / "channels")
    names = {"_ARRAY_DIMENSIONS": ["depth, m", "y", "100 %"]}
    write_array(folder / "named", np.arange(24000, dtype="<u2").reshape(20, 30, 40), attributes=names)
    write_array(folder / "days", 2459000.5 + np.arange(1600).reshape(40, 40) / 1600)
    write_array(folder / "frames", np.zeros((60, 40, 40), "u1"), attributes={"_ARRAY_DIMENSIONS": ["t", "y", "x"]})
    write_array(folder / "constant", np.full(300, 2**62, "<i8"))
    write_array(folder / "extreme", np.resize([-1.7e308, np.nan, 1.7e308, np.inf], 300))
    write_array(folder / "dates", np.arange("2020-02-01", "2021-02-01", dtype="<M8[D]"))
    write_array(folder / "instants", np.resize(np.array(["2020-02-01T10:20:30.5", "NaT"], "<M8[ns]"), 40))
    write_array(folder / "integers", np.full((40, 40), 2**62 + 1, "<i8"))
    write_array(folder / "unsigned", np.full((40, 40), 2**64 - 1, "<u8"))
    for name, shape, chunks in (
        *(("vast", [10**6] * 2, [1024] * 2), ("vaster", [2**40] * 2, [1024] * 2), ("dotted", [10**6] * 2, [512] * 2)),
        *(("tall", [2**53, 3], [2**22, 3]), ("wide", [3, 2**53], [3, 2**22])),
    ):  # of chunks of "dotted", which are small, enough can be read for a sample of the whole
        write_plain(folder / name, np.zeros((1, 1), "u1"), "|u1")
        document = json.loads((folder / name / ".zarray").read_text()) | {"shape": shape, "chunks": chunks}
        (folder / name / ".zarray").write_text(json.dumps(document | {"fill_value": 90}))
        (folder / name / "0.0").unlink()
    with running_server({"odd": folder}) as server:
        yield server.url


def write_labelled(folder: Path) -> None:
    """A dark image with the same square in label images of its size, of half of it, cut into other pixels, and of a
    part of it; and with one beside it."""
    write_image(folder, [np.zeros((2, 2, 4, 300, 400), "<u2")], "tczyx")
    names = {"same": (300, 400), "half": (150, 200), "oblong": (300, 200)}
    write_attributes(folder / "labels", {"labels": [*names, "gone", "part", "beside"]})
    for name, (height, width) in names.items():
        square = np.zeros((height, width), "u1")
        square[height // 3 : height // 2, width // 4 : width // 2] = 1
        scale = [{"type": "scale", "scale": [300 / height, 400 / width]}]
        datasets: list[Any] = [{"path": "0", "coordinateTransformations": scale}]
        multiscales = [{"version": "0.4", "axes": axes_json("yx"), "datasets": datasets}]
        write_image(folder / "labels" / name, [square], "yx", RED | {"multiscales": multiscales})
    part = np.zeros((2, 75, 100), "u1")
    part[1, 10:35, 20:70] = 1
    for name, begin in (("part", [2, 80.5, 60.5]), ("beside", [0, 0, 400.5])):
        steps: list[Any] = [{"type": "scale", "scale": [1, 2, 2]}, {"type": "translation", "translation": begin}]
        datasets = [{"path": "0", "coordinateTransformations": steps}]
        multiscales = [{"version": "0.4", "axes": axes_json("zyx"), "datasets": datasets}]
        write_image(folder / "labels" / name, [part], "zyx", RED | {"multiscales": multiscales})


def write_channels(folder: Path) -> None:
    """Eighteen bright channels, all but two of which are on."""
    window = {"min": 0, "max": 100, "start": 0, "end": 100}
    channels = [{"label": f"c{i}", "color": "FFFFFF", "window": window, "active": i < 16} for i in range(18)]
    write_image(folder, [np.full((18, 64, 64), 90, "<u2")], "cyx", {"omero": {"channels": channels}})
    few = np.broadcast_to(np.arange(64, dtype="<u2") * 10, (2, 64, 64)) + np.array([0, 1000], "<u2")[:, None, None]
    write_image(folder.with_name("few"), [few], "cyx", {"omero": {"channels": channels[:2]}})
    write_image(folder.with_name("undescribed"), [few], "cyx")


def red_box(picture: Pixels) -> tuple[int, int, int, int]:
    """Where the red pixels of a picture are."""
    rows, columns = np.nonzero((picture[..., 0] > 200) & (picture[..., 1] < 50))
    return int(np.min(rows)), int(np.max(rows)), int(np.min(columns)), int(np.max(columns))


def test_labels_lie_where_they_belong_whatever_their_axes_and_size(viewer: Viewer) -> None:
    boxes = []
    viewer.open_image("/view/odd/labelled?t=1&z=3")
    for name in ("same", "half", "part"):
        viewer.go_to_image(f"/view/odd/labelled?t=1&z=3&opacity=1&overlay=odd/labelled/labels/{name}")
        viewer.page.locator('[data-labels="shown"]').wait_for()
        boxes.append(red_box(viewer.picture()))

        label = viewer.page.get_by_test_id("probe-label")
        top, bottom, left, right = boxes[-1]
        frame = viewer.page.get_by_test_id("picture").bounding_box()
        assert frame is not None
        for x, number in ((left + 5, "1"), (right - 5, "1"), (right + 5, "0")):
            viewer.values_under(round(frame["x"] + x), round(frame["y"] + (top + bottom) / 2))
            expect(label).to_have_text(f"{name}{number}")

    np.testing.assert_allclose(boxes[1:], [boxes[0]] * 2, atol=2)
    top, bottom, left, right = boxes[0]
    assert (right - left) / (bottom - top) == pytest.approx(2, rel=0.05)


def test_labels_that_cannot_be_drawn_say_why(viewer: Viewer) -> None:
    viewer.open_image("/view/odd/labelled")
    for query, name, reason in (
        ("axes=z,x&", "same", "they have no axis z"),
        ("", "oblong", "not divided alike"),
        ("z=1&", "part", "they lie at z = 2 to 3"),
        ("z=1&", "beside", "outside the picture"),
        ("", "gone", "there is no array and no group"),
    ):
        viewer.expected = "404" if name == "gone" else ""
        viewer.go_to_image(f"/view/odd/labelled?{query}overlay=odd/labelled/labels/{name}")

        expect(viewer.page.get_by_role("alert")).to_contain_text(reason)
        expect(viewer.page.locator(".overlay-panel")).to_contain_text(reason)
        viewer.press(name, exact=True)
        expect(viewer.page.locator(".overlay-panel")).not_to_contain_text(reason)


def test_a_colour_map_is_for_one_channel_and_waits_while_there_are_several(viewer: Viewer) -> None:
    viewer.open_image("/view/odd/undescribed")
    composited, button = viewer.picture(), viewer.page.locator(".colormap-button")
    expect(button).to_be_hidden()

    viewer.press("Hide Channel 1")
    button.click()
    viewer.page.get_by_role("option", name="viridis", exact=True).click()
    viewer.wait_for_query(r"\?.*colormap_name=viridis")
    viewer.settle()
    mapped = viewer.picture()
    viewer.press("Show Channel 1")
    expect(button).to_be_hidden()
    viewer.settle()
    np.testing.assert_array_equal(viewer.picture(), composited)

    viewer.go_to_image("/view/odd/undescribed?colormap_name=viridis")
    expect(button).to_have_text("viridis")
    np.testing.assert_array_equal(viewer.picture(), mapped)


def test_more_channels_than_can_be_shown_are_refused_and_the_picture_stays(viewer: Viewer) -> None:
    viewer.open_image("/view/odd/channels")
    before = viewer.picture()

    viewer.press("Show c17")
    expect(viewer.page.locator("#toasts")).to_contain_text("No more than 16 channels")
    viewer.page.wait_for_timeout(300)
    viewer.settle()

    np.testing.assert_array_equal(viewer.picture()[:600], before[:600])  # the message lies below
    viewer.press("Hide c3")
    viewer.press("Show c17", r"\?.*c=17")


def test_a_refused_tile_is_shown_in_the_words_of_the_service_until_something_changes(viewer: Viewer) -> None:
    viewer.expected = "nope|400"
    viewer.open("/view/odd/labelled/labels/same/0?colormap_name=nope")

    expect(viewer.page.get_by_role("alert")).to_contain_text("colormap_name")
    assert viewer.page.get_by_test_id("picture").get_attribute("data-failed-tiles") != "0"
    viewer.press("nope")
    viewer.page.get_by_role("option", name="viridis", exact=True).click()
    viewer.settle()
    expect(viewer.page.get_by_role("alert")).to_have_count(0)


def test_the_ends_of_a_window_have_the_digits_that_tell_its_values_apart(viewer: Viewer) -> None:
    viewer.open_image("/view/odd/days?rescale=2459000.5,2459001.5")

    low, high = (viewer.page.locator(".channel-window input").nth(side) for side in (0, 1))
    assert (low.input_value(), high.input_value()) == ("2459000.5", "2459001.5")
    viewer.page.get_by_role("slider", name="lower limit, handle").press("ArrowRight")
    viewer.wait_for_query(r"\?rescale=2459000\.50\d*,2459001\.5$")


def test_both_ends_of_a_window_can_be_moved_beyond_the_other(viewer: Viewer) -> None:
    viewer.open_image("/view/odd/days?rescale=0,1")
    low, high = (viewer.page.locator(".channel-window input").nth(side) for side in (0, 1))

    low.fill("2459000")
    low.press("Enter")
    expect(low).to_have_attribute("aria-invalid", "true")
    high.fill("2459001.5")
    high.press("Enter")

    viewer.wait_for_query(r"\?rescale=2459000,2459001\.5$")
    expect(low).not_to_have_attribute("aria-invalid", "true")


def test_what_is_played_moves_no_other_node_that_is_being_opened(viewer: Viewer) -> None:
    viewer.open_image("/view/odd/frames?rescale=0,9")
    viewer.page.keyboard.press("Space")
    expect(viewer.slider("t")).not_to_have_value("0")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    viewer.page.route("**/v1/tile/odd/labelled/info.json*", hold)

    viewer.page.evaluate(
        "history.pushState(null, '', '/view/odd/labelled'); dispatchEvent(new PopStateEvent('popstate'))"
    )
    viewer.tab.wait_until(lambda: bool(held))
    viewer.page.wait_for_timeout(400)  # three frames of what was played
    held[0].continue_()
    viewer.page.locator('[aria-label="Picture of odd/labelled"]').wait_for()
    viewer.settle()

    assert viewer.page.url.endswith("/view/odd/labelled")


def test_a_series_of_one_huge_value_or_of_the_largest_between_gaps_is_drawn(viewer: Viewer) -> None:
    viewer.open("/view/odd/constant")
    for name in ("constant", "extreme"):
        viewer.go(f"/view/odd/{name}")
        viewer.page.locator('.plot[aria-busy="false"]').wait_for()

        orange = pixels(viewer.page.locator(".plot canvas").screenshot())[:, 70:, :].astype(int)
        assert ((orange[..., 0] > 150) & (orange[..., 2] < 100)).sum() > 100, name


def test_integers_are_shown_with_all_their_digits(viewer: Viewer) -> None:
    viewer.open_image("/view/odd/integers")
    for name, value in (("integers", 2**62 + 1), ("unsigned", 2**64 - 1)):
        viewer.go_to_image(f"/view/odd/{name}")
        viewer.values_under(640, 420)

        expect(viewer.page.locator(".probe-what")).to_have_text(str(value))
        viewer.go(f"/view/odd/{name}?view=values")
        cell = viewer.page.locator("tbody td").first
        expect(cell).to_have_text(str(value))
        expect(cell).to_have_class("number")

    static = viewer.page.locator('meta[name="hyperslab-static"]').get_attribute("content")
    text = r'[9223372036854775807, -1234567890123456, 12, 0.5000000000000001, 1e300, "1234567890123456789 \" 1", null]'

    script = "async ([file, text]) => (await import(file)).parseExactly(text).map((v) => `${typeof v} ${v}`)"
    found = viewer.page.evaluate(script, [f"{static}/api.js", text])

    assert found[:4] == [
        "bigint 9223372036854775807",
        "bigint -1234567890123456",
        "number 12",
        "number 0.5000000000000001",
    ]
    assert found[4:] == ["number 1e+300", 'string 1234567890123456789 " 1', "object null"]


def test_the_wand_takes_the_window_from_the_data_of_its_channel(viewer: Viewer) -> None:
    """Not from what the metadata says."""
    viewer.open_image("/view/odd/few")

    viewer.press("c1: contrast limits from the data")
    viewer.wait_for_query(r"\?.*rescale=0,100&.*rescale=1000,1630")


def test_axes_of_any_name_make_a_plane_that_a_link_brings_back(viewer: Viewer) -> None:
    viewer.open_image("/view/odd/named")

    viewer.press("100 % × depth, m", r"\?axes=")
    viewer.page.reload()
    viewer.settle()

    expect(viewer.page.get_by_role("button", name="100 % × depth, m")).to_have_attribute("aria-pressed", "true")
    assert viewer.slider("y").count() == 1
    assert viewer.tab.count("/0/0/0.png?axes=depth%252C+m%2C100+%2525") > 0


def test_of_a_vast_array_without_a_pyramid_a_part_is_shown_and_said_to_be_one(viewer: Viewer) -> None:
    """All of it would take thousands of the largest tiles."""
    viewer.open("/view/odd/vast?rescale=0,255")
    expect(viewer.page.locator("#toasts")).to_contain_text("Only a part is shown")
    viewer.settle()

    assert (viewer.picture()[300, 300] == 90).all()
    assert "box" not in viewer.query
    assert viewer.tab.count("/v1/tile/odd/vast/12/") > 0
    coarse = [address for address in viewer.tab.asked if re.search(r"/vast/\d/", address)]
    assert coarse == []
    viewer.page.keyboard.press("+")
    viewer.wait_for_query(r"\?.*box=")
    viewer.page.keyboard.press("0")
    viewer.wait_for_query(r"\?rescale=0,255$")
    sampled = viewer.page.get_by_text("Single cells are shown, not means")
    expect(sampled).to_be_hidden()
    viewer.go_to_image("/view/odd/dotted?rescale=0,255")
    expect(sampled).to_be_visible()
    viewer.go_to_image("/view/odd/dotted?rescale=0,255&box=500000,500000,600")
    expect(sampled).to_be_hidden()


def test_a_link_to_any_place_shows_the_picture(viewer: Viewer) -> None:
    viewer.open_image("/view/odd/integers?rescale=0,9&box=1e300,1e300,1e-300")
    for box in ("", "-1e300,20,1e300", "20,20,1e-9", "0,0,1e12"):
        if box:
            viewer.go_to_image(f"/view/odd/integers?rescale=0,9&box={box}")

        assert (viewer.picture() == 255).all(axis=-1).any(), box


@pytest.mark.parametrize("name", ["vaster", "tall", "wide"])
def test_of_a_plane_beyond_all_measure_a_part_is_shown_at_every_zoom(viewer: Viewer, name: str) -> None:
    viewer.open(f"/view/odd/{name}?view=image&rescale=0,255")
    expect(viewer.page.locator("#toasts")).to_contain_text("Only a part is shown")
    viewer.settle()

    for _ in range(12):
        viewer.page.keyboard.press("+")
    viewer.wait_for_query(r"\?.*box=")
    viewer.settle()

    picture = viewer.picture()
    assert (picture[picture.shape[0] // 2, picture.shape[1] // 2] == 90).all()
    viewer.page.keyboard.press("0")
    viewer.wait_for_query(r"\?view=image&rescale=0,255$")
    assert viewer.tab.count(f"/v1/tile/odd/{name}/") < 100


def test_dates_are_plotted_as_dates_at_ticks_that_people_would_choose(viewer: Viewer) -> None:
    viewer.open("/view/odd/dates")
    for name, shown in (("dates", r"2020-\d\d-\d\d"), ("instants", r"2020-02-01 10:20:30\.500|NaT")):
        viewer.go(f"/view/odd/{name}")
        viewer.page.locator('.plot[aria-busy="false"]').wait_for()

        viewer.page.mouse.move(600, 401)
        viewer.page.mouse.move(600, 400)
        expect(viewer.page.locator(".probe-what")).to_have_text(re.compile(f"^({shown})$"))

    static = viewer.page.locator('meta[name="hyperslab-static"]').get_attribute("content")
    wanted = {
        ("<M8[D]", 19000, 19365): ["2022-04-01", "2022-07-01", "2022-10-01", "2023-01-01"],
        ("<M8[D]", 0, 9): ["1970-01-01", "1970-01-03", "1970-01-05", "1970-01-07", "1970-01-09"],
        ("<M8[M]", 0, 35): ["1970-01-01", "1970-07-01", "1971-01-01", "1971-07-01", "1972-01-01", "1972-07-01"],
        ("<M8[Y]", 0, 60): [f"{year}-01-01" for year in range(1970, 2031, 10)],
        ("<M8[10m]", 0, 70): [f"1970-01-01 {hour:02}:00" for hour in (0, 2, 4, 6, 8, 10)],
        ("<M8[ns]", 0, 5e9): [f"1970-01-01 00:00:0{second}" for second in range(6)],
        ("<M8[us]", 0, 400_000): ["1970-01-01 00:00:00", *(f"1970-01-01 00:00:00.{n}00" for n in range(1, 5))],
        ("<M8[s]", -1e15, 1e15): [],
    }

    script = """async ([file, asked]) => {
      const { datesOf } = await import(file);
      return asked.map(([dtype, low, high]) => {
        const dates = datesOf(dtype);
        return dates.ticks(low, high, 6).map((value, i, all) => dates.text(value, all[1] - all[0]));
      });
    }"""
    found = viewer.page.evaluate(script, [f"{static}/dates.js", [list(asked) for asked in wanted]])

    assert dict(zip(wanted, found, strict=True)) == wanted
