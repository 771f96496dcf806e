"""What people read off the page and take away: colour bar, plots of chosen values, downloads, members, planes.

One load of the page for each of its kinds, with real pointers and keys, on a desktop in the dark and on a phone in the
light; the numbers are numpy's.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from playwright.sync_api import Locator, Page, expect

from tests.server import running_server
from tests.tiles.support import axes_json, write_attributes, write_image
from tests.viewer.support import Viewer, audit, pixels

DAYS = np.arange(40)
SHAPE = (40, 60, 80)
rng = np.random.default_rng(7)
STORED = np.round(rng.normal(0, 900, SHAPE)).astype("<i2")
STORED[:, 5, 6] = -9999
WAVE = (rng.normal(size=(12, 20, 30)) + 1j * rng.normal(size=(12, 20, 30))).astype("<c8")
LONG = np.sin(np.arange(20_000) / 500).astype("<f4").reshape(-1, 1, 1) * np.ones((1, 4, 4), "<f4")
KELVIN = np.linspace(200, 300, 4 * 50 * 70, dtype="<f4").reshape(4, 50, 70)
VOLUME = (rng.integers(0, 4000, (20, 40, 60))).astype("<u2")
PHOTO = rng.integers(0, 255, (30, 40, 3)).astype("u1")
VALUES = np.where(STORED == -9999, np.nan, STORED * 0.01)
LABELS = np.repeat(np.array([2**53 + 1, 2**64 - 1], "<u8"), 30) * np.ones((20, 40, 1), "<u8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("measure")
    root = zarr.open_group(folder, mode="w", zarr_format=2)

    def write(
        path: str, values: Any, names: list[str], chunks: tuple[int, ...] | None = None, **attributes: Any
    ) -> None:
        fill = attributes.get("_FillValue", 0)
        array = root.create_array(
            path, shape=values.shape, chunks=chunks or values.shape, dtype=values.dtype, fill_value=fill
        )
        array[...] = values
        array.attrs.update({"_ARRAY_DIMENSIONS": names, **attributes})

    packed: dict[str, Any] = {"scale_factor": 0.01, "_FillValue": -9999, "units": "degC", "long_name": "anomaly"}
    write("air/anomaly", STORED, ["time", "lat", "lon"], **packed)
    write("air/time", DAYS, ["time"], units="days since 2024-02-01", calendar="standard")
    write("air/lat", np.linspace(-59, 59, 60), ["lat"], units="degrees_north")
    write("air/lon", np.linspace(0, 158, 80), ["lon"], units="degrees_east")
    write("wave", WAVE, ["t", "y", "x"])
    write("long", LONG, ["t", "y", "x"], (2000, 4, 4))
    write("kelvin", KELVIN, ["t", "y", "x"], units="K")
    write("volume", VOLUME, ["z", "y", "x"])
    write("photo", PHOTO, ["y", "x", "c"])
    window = {"min": 0, "max": 4000, "start": 0, "end": 4000}
    channels = [{"label": n, "color": c, "window": window} for n, c in (("Nuclei", "00FF00"), ("Walls", "FF0080"))]
    write_image(folder / "cells", [np.stack([VOLUME, VOLUME[::-1]])], "czyx", {"omero": {"channels": channels}})
    write_attributes(folder / "cells" / "labels", {"labels": ["nuclei"]})
    write_image(folder / "cells" / "labels" / "nuclei", [LABELS], "zyx", {"image-label": {}})
    write_image(folder / "turned", [VOLUME.T], "xyz")
    write("largest", np.uint64(2**64 - 1), [])
    places: Any = {"wells": [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}]}
    write_attributes(folder / "plate", {"plate": {"rows": [{"name": "A"}], "columns": [{"name": "1"}], **places}})
    write_attributes(folder / "plate" / "A" / "1", {"well": {"images": [{"path": "0"}]}})
    write_image(folder / "plate" / "A" / "1" / "0", [VOLUME[0]], "yx")
    many = zarr.open_group(folder / "many", mode="w", zarr_format=2)
    for i in range(230):
        each = many.create_array(f"a{i:04}", shape=(i + 1,), chunks=(i + 1,), dtype="f4")
        each.attrs.update({"units": "K" if i % 10 == 0 else "kg", "long_name": f"thing {i}"})
    return folder


def write_large(folder: Path) -> None:
    """A pyramid of 50,000 by 50,000 pixels and a group of 2,000 members, of which documents alone are stored, and a
    series of a million samples."""
    write_attributes(folder, {})
    factors = [2**level for level in range(9)]
    scales: Any = [{"type": "scale", "scale": [factor, factor]} for factor in factors]
    datasets: Any = [{"path": str(i), "coordinateTransformations": [scale]} for i, scale in enumerate(scales)]
    multiscales = [{"version": "0.4", "axes": axes_json("yx"), "datasets": datasets}]
    write_image(folder / "huge", [np.zeros((1, 1), "u1")] * len(factors), "yx", {"multiscales": multiscales})
    for level, factor in enumerate(factors):
        path = folder / "huge" / str(level) / ".zarray"
        size = -(-50_000 // factor)
        document = json.loads(path.read_text()) | {"shape": [size, size], "chunks": [512, 512], "fill_value": 9}
        path.write_text(json.dumps(document))
    member = json.loads((folder / "huge" / "8" / ".zarray").read_text())
    (folder / "crowd").mkdir()
    (folder / "crowd" / ".zgroup").write_text('{"zarr_format": 2}')
    for i in range(2000):
        path = folder / "crowd" / f"a{i:04}" / ".zarray"
        path.parent.mkdir()
        path.write_text(json.dumps(member))
    samples = zarr.create_array(folder / "samples", shape=(10**6,), chunks=(10**5,), dtype="f4", zarr_format=2)
    samples[...] = np.sin(np.arange(10**6) / 1000)


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    large = tmp_path_factory.mktemp("large")
    write_large(large)
    with running_server({"data": folder, "large": large}) as server:
        yield server.url


def table_of(page: Page, button: str) -> np.ndarray[Any, Any]:
    """The numbers of the CSV file of the plot, without its head and places."""
    with page.expect_download() as saved:
        page.get_by_test_id("series").get_by_role("button", name=button, exact=True).click()
    lines = Path(saved.value.path()).read_text(encoding="utf-8").splitlines()
    return np.array([[float(cell) for cell in line.split(",")[2:]] for line in lines[1:]])


def ready(page: Page) -> None:
    page.locator('[data-testid="series"][aria-busy="false"]').wait_for()


WRITTEN = """() => {
  const [all, write] = [[], CanvasRenderingContext2D.prototype.fillText];
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    all.push(text);
    write.call(this, text, ...rest);
  };
  document.dispatchEvent(new Event("themechange"));
  CanvasRenderingContext2D.prototype.fillText = write;
  return all;
}"""


def test_points_boxes_and_lines_of_a_picture_are_plotted(viewer: Viewer) -> None:
    """CF decoded, flipped latitude, NaN: by clicks, drags and keys, and again from the address."""
    viewer.open_image("/view/data/air/anomaly")
    page = viewer.page
    expect(page.get_by_test_id("colorbar")).to_contain_text("RdBu_r · degC")
    page.mouse.click(500, 300)
    viewer.wait_for_query(r"\?.*points=\d+,\d+")
    ready(page)
    page.mouse.move(640, 330)
    page.keyboard.press("s")
    viewer.wait_for_query(r"\?.*points=\d+,\d+;\d+,\d+")
    ready(page)
    points = [tuple(map(int, text.split(","))) for text in re.findall(r"\d+,\d+", viewer.query.partition("points=")[2])]
    expected = np.stack([VALUES[:, y, x] for x, y in points], axis=1)
    assert np.allclose(table_of(page, "CSV"), expected, equal_nan=True)
    expect(page.get_by_test_id("series")).to_contain_text(f"lon {points[0][0]}, lat {points[0][1]}")
    with page.expect_download() as picture:
        page.get_by_test_id("series").get_by_role("button", name="PNG").click()
    assert pixels(Path(picture.value.path()).read_bytes()).shape[0] > 400
    page.get_by_test_id("series-plot").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("series-reading")).to_contain_text("time 1 (2024-02-02)")

    page.keyboard.press("b")
    page.mouse.move(480, 200)
    page.mouse.down()
    page.mouse.move(600, 260, steps=4)
    page.mouse.up()
    viewer.wait_for_query(r"\?.*area=")
    ready(page)
    x0, y0, x1, y1 = map(int, re.findall(r"\d+", viewer.query.partition("area=")[2])[:4])
    box = VALUES[:, y0:y1, x0:x1].reshape(40, -1)
    ranged = np.stack([np.nanmean(box, 1), np.nanmin(box, 1), np.nanmax(box, 1)], axis=1)
    assert np.allclose(table_of(page, "CSV")[:, -3:], ranged)
    page.mouse.move(300, 400)
    page.get_by_test_id("series-plot").hover(position={"x": 200, "y": 60})
    expect(page.get_by_test_id("series-reading")).to_contain_text("time ")
    audit(page)

    page.keyboard.press("k")
    page.keyboard.press("k")  # across what is visible
    viewer.wait_for_query(r"\?.*line=")
    ready(page)
    ends = [int(text) for text in re.findall(r"\d+", viewer.query.partition("line=")[2])[:4]]
    viewer.open_image(f"/view/data/air/anomaly?line={','.join(map(str, ends))}&time=7")
    ready(page)
    count = ends[2] - ends[0] + 1
    assert np.allclose(table_of(page, "CSV")[:, 0], VALUES[7, ends[1], ends[0] : ends[0] + count], equal_nan=True)


def test_a_series_of_complex_and_of_many_values_is_plotted(viewer: Viewer) -> None:
    """The displayed component; in one request of bins where there are more samples than pixels."""
    viewer.open_image("/view/data/wave?component=phase&points=3,4;20,11")
    ready(viewer.page)
    expected = np.angle(WAVE[:, [4, 11], [3, 20]].astype("c16"))
    assert np.allclose(table_of(viewer.page, "CSV"), expected)
    viewer.open_image("/view/data/long?points=1,2")
    ready(viewer.page)
    asked = [address for address in viewer.tab.asked if "/v1/slice/data/long" in address]
    assert len(asked) == 1
    assert "reduce=minmax" in asked[0]
    assert np.allclose(table_of(viewer.page, "CSV")[:, 0], LONG[:, 2, 1])

    # round distances along a line; nothing is saved of a place that is not there
    viewer.go_to_image("/view/data/air/anomaly?line=3,4,40,40")
    ready(viewer.page)
    written = viewer.page.evaluate(WRITTEN)
    assert [text for text in written if text.endswith(" px")] == [f"{length} px" for length in range(0, 60, 10)]
    viewer.go_to_image("/view/data/air/anomaly?points=999,999")
    ready(viewer.page)
    for name in ("CSV", "PNG"):
        expect(viewer.page.get_by_test_id("series").get_by_role("button", name=name)).to_be_disabled()


def drag_left(limit: Locator, pixels: int) -> None:
    """Drag a limit of a colour bar to the left."""
    place, mouse = limit.bounding_box(), limit.page.mouse
    assert place is not None
    mouse.move(place["x"] + 5, place["y"] + 10)
    mouse.down()
    mouse.move(place["x"] - pixels, place["y"] + 10, steps=4)
    mouse.up()


def test_the_colour_bar_shows_and_sets_the_limits(viewer: Viewer) -> None:
    viewer.open_image("/view/data/kelvin")
    page = viewer.page
    bar = page.get_by_test_id("colorbar")
    expect(bar).to_contain_text("viridis · K")
    upper = bar.get_by_role("slider", name="Upper limit")
    before = float(upper.get_attribute("aria-valuenow") or "nan")
    drag_left(upper, 60)
    viewer.wait_for_query(r"\?.*rescale=")
    viewer.settle()
    dragged = float(upper.get_attribute("aria-valuenow") or "nan")
    assert dragged < before - 5
    upper.press("ArrowRight")
    expect(upper).not_to_have_attribute("aria-valuenow", str(dragged))
    bar.locator(".colorbar-bar").dblclick()
    expect(page).not_to_have_url(re.compile("rescale="))
    page.keyboard.press("m")
    page.get_by_role("searchbox", name="Filter colour maps").fill("vir")
    page.keyboard.press("Enter")
    viewer.wait_for_query(r"\?.*colormap_name=viridis")
    viewer.go_to_image("/view/data/kelvin?rescale=0,2e19")
    expect(bar.locator(".colorbar-tick")).to_have_text(["0", "1e+19", "2e+19"])
    viewer.expected = "400|failed to load"
    viewer.open("/view/data/kelvin?colormap_name=virdis")
    expect(page.locator(".strip")).to_contain_text("did you mean viridis?")


def test_channels_of_a_photograph_are_its_colours(viewer: Viewer) -> None:
    viewer.open_image("/view/data/photo")
    page = viewer.page
    for name in ("Red", "Green", "Blue"):
        expect(page.get_by_role("group", name=name)).to_be_visible()
    expect(page.get_by_role("button", name="As labels")).to_be_hidden()
    switch = page.get_by_role("button", name="RGB", exact=True)
    expect(switch).to_have_attribute("aria-pressed", "true")
    viewer.press("RGB", r"\?.*c=0", exact=True)
    expect(switch).to_have_attribute("aria-pressed", "false")
    expect(page.get_by_test_id("colorbar")).to_be_visible()
    switch.click()
    expect(switch).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_test_id("colorbar")).to_be_hidden()


def saved(dialog: Locator, form: str) -> bytes:
    """What the dialog saves in a format."""
    dialog.get_by_role("button", name=form, exact=True).click()
    with dialog.page.expect_download() as found:
        dialog.get_by_role("button", name="Save", exact=True).click()
    return Path(found.value.path()).read_bytes()


def test_what_is_displayed_is_taken_away(viewer: Viewer) -> None:
    viewer.open_image("/view/data/volume?z=3&points=5,6&area=4,5,20,30")
    page = viewer.page
    page.keyboard.press("x")
    dialog = page.get_by_role("dialog", name="Download")
    expect(dialog.get_by_test_id("download-size")).to_have_text("40 × 60 · 4.7 KiB · 1 chunk")
    audit(page)
    assert np.array_equal(np.load(io.BytesIO(saved(dialog, "npy"))), VOLUME[3])
    dialog.get_by_role("combobox", name="Part").select_option("box")
    assert np.array_equal(np.loadtxt(io.BytesIO(saved(dialog, "CSV")), delimiter=","), VOLUME[3, 5:30, 4:20])
    assert saved(dialog, "TIFF")[:4] == b"II*\0"
    dialog.get_by_role("tab", name="hyperslab get").click()
    expect(dialog.locator("pre")).to_contain_text("--select '3,5:30,4:20' -o 'volume.tiff'")
    dialog.get_by_role("combobox", name="Part").select_option("whole")
    assert np.array_equal(np.frombuffer(saved(dialog, "raw"), "<u2"), VOLUME.ravel())
    view = pixels(saved(dialog, "PNG"))
    assert view.std() > 10
    expect(dialog).to_be_hidden()


def test_three_planes_share_a_cross_hair(viewer: Viewer) -> None:
    viewer.open("/view/data/volume?view=planes")
    page = viewer.page
    page.locator('.planes-view[aria-busy="false"]').wait_for()
    value = page.get_by_test_id("cross-value")
    expect(value).to_have_text(str(VOLUME[10, 20, 30]))
    audit(page)
    place = page.get_by_test_id("pane").first.bounding_box()
    assert place is not None
    page.mouse.click(place["x"] + place["width"] * 0.4, place["y"] + place["height"] * 0.45)
    viewer.wait_for_query(r"\?.*y=")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("]")
    viewer.wait_for_query(r"\?.*z=11")
    at = {name: int(text) for name, text in re.findall(r"[?&]([xyz])=(\d+)", viewer.query)}
    expect(value).to_have_text(str(VOLUME[at["z"], at["y"], at["x"]]))

    viewer.go_to_image("/view/data/turned")  # whose axes are x, y, z
    expect(page.locator(".planes button")).to_have_text(["xy", "xz", "yz"])
    expect(page.locator(".planes [aria-pressed=true]")).to_have_text("xy")
    expect(page.get_by_role("button", name="Values along a line")).to_be_visible()
    viewer.go_to_image("/view/data/plate")
    expect(page.get_by_role("button", name="Values along a line")).to_be_hidden()


def test_many_members_are_a_table(viewer: Viewer) -> None:
    """In few requests, and without a card for each."""
    viewer.open("/view/data/many")
    page = viewer.page
    rows = page.get_by_test_id("members").locator("tbody tr")
    expect(rows).to_have_count(230)
    assert viewer.tab.count("/v1/metadata/data/many?table") == 1
    assert page.locator(".card").count() == 0
    page.get_by_role("button", name="Size").click()
    page.get_by_role("button", name="Size").click()
    viewer.wait_for_query(r"\?.*sort=-nbytes")
    expect(rows.first).to_contain_text("a0229")
    page.get_by_role("searchbox", name="Filter the members").fill("units:K")
    viewer.wait_for_query(r"\?.*filter=units:K")
    expect(rows).to_have_count(23)
    audit(page)
    page.get_by_role("searchbox", name="Filter the tree").fill("long_name:thing 17")
    expect(page.get_by_role("treeitem", name="a0017")).to_be_visible()
    page.locator("#stage").click(position={"x": 5, "y": 5})
    page.keyboard.press("g")
    viewer.wait_for_query(r"\?.*list=cards")
    expect(page.locator(".card").first).to_be_visible()


def test_a_phone_reads_and_takes_as_much(phone: Viewer) -> None:
    """One plane at a time; the date beside the slider."""
    phone.open_image("/view/data/air/anomaly")
    page = phone.page
    expect(page.locator(".dock-place")).to_have_text("2024-02-01")
    place = page.get_by_test_id("picture").bounding_box()
    assert place is not None
    page.touchscreen.tap(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    phone.wait_for_query(r"\?.*points=")
    ready(page)
    expect(page.get_by_test_id("series-plot")).to_be_visible()
    page.get_by_test_id("series-plot").tap()
    expect(page.get_by_test_id("series-reading")).to_have_text(re.compile(r"^time \d+ \(2024-0[23]-\d\d\): "))
    bar, probe = (page.get_by_test_id(name).bounding_box() for name in ("colorbar", "probe"))
    assert bar is not None
    assert probe is not None
    assert bar["y"] + bar["height"] < probe["y"]
    page.evaluate("document.querySelector('.dock-index').value = '10240'")
    assert page.evaluate("((e) => e.scrollWidth <= e.clientWidth)(document.querySelector('.dock-index'))")
    audit(page)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("document.getAnimations().length") == 0  # who wants less motion
    phone.go("/view/data/air/time")
    page.locator('.plot[aria-busy="false"] canvas').tap()
    expect(page.get_by_test_id("probe")).to_contain_text("2024-0")
    phone.go("/view/data/largest")
    expect(page.locator(".single-value")).to_have_text(str(2**64 - 1))
    assert page.evaluate("((e) => e.scrollWidth <= e.clientWidth)(document.querySelector('.single-value'))")
    phone.go("/view/data/volume?view=planes")
    page.locator('.planes-view[aria-busy="false"]').wait_for()
    expect(page.get_by_test_id("pane").nth(1)).to_be_hidden()
    page.get_by_role("button", name="yz", exact=True).tap()
    expect(page.get_by_test_id("pane").nth(1)).to_be_visible()
    phone.wait_for_query(r"\?.*pane=yz")
    audit(page)


def test_each_channel_has_a_colour_bar_in_its_colour_with_limits_of_its_own(viewer: Viewer) -> None:
    viewer.open_image("/view/data/cells")
    page = viewer.page
    bars = [page.get_by_role("group", name=f"Colour bar of {name}") for name in ("Nuclei", "Walls")]
    for bar, name, colour in zip(bars, ("Nuclei", "Walls"), ([0, 255, 0, 255], [255, 0, 128, 255]), strict=True):
        expect(bar.locator(".colorbar-tick")).to_have_text(["0", "1000", "2000", "3000", "4000"])
        viewer.page.wait_for_function(
            "([name, colour]) => { const band = document.querySelector(`[aria-label='${name}'] canvas`);"
            "return String(band.getContext('2d').getImageData(255, 0, 1, 1).data) === String(colour) }",
            arg=[f"Colour bar of {name}", colour],
        )
    drag_left(page.get_by_role("slider", name="Walls: Upper limit of the colours"), 50)
    viewer.wait_for_query(r".*rescale=0,4000&c=1&color=FF0080&rescale=0,[23]\d+")
    audit(page)
    page.keyboard.press("2")
    expect(bars[1]).to_have_count(0)
    expect(bars[0]).to_be_visible()

    page.keyboard.press("l")
    page.locator('[data-labels="shown"]').wait_for()
    place = page.get_by_test_id("picture").bounding_box()
    assert place is not None
    for share, label in ((0.45, 2**53 + 1), (0.55, 2**64 - 1)):
        viewer.values_under(round(place["x"] + share * place["width"]), round(place["y"] + place["height"] / 2))
        expect(page.get_by_test_id("probe-label")).to_have_text(f"nuclei{label}")
    viewer.go("/view/data/cells/labels/nuclei/0?view=values&column=28")
    expect(page.locator("tbody tr").first.locator("td").nth(1)).to_have_text(str(2**53 + 1))
    expect(page.locator("tbody tr").first.locator("td").nth(2)).to_have_text(str(2**64 - 1))
    page.keyboard.press("x")
    dialog = page.get_by_role("dialog", name="Download")
    texts = {name: saved(dialog, name) for name in ("npy", "CSV", "JSON")}
    expected = LABELS[0, :, 28:52].tolist()
    assert np.load(io.BytesIO(texts["npy"])).tolist() == expected
    assert json.loads(texts["JSON"]) == expected
    assert [list(map(int, line.split(b","))) for line in texts["CSV"].split()] == expected


@pytest.mark.parametrize(
    ("address", "requests", "kilobytes"), [("huge", 27, 20.3), ("crowd", 33, 142.4), ("samples", 8, 15.0)]
)
def test_the_first_sight_of_much_costs_little(viewer: Viewer, address: str, requests: int, kilobytes: float) -> None:
    """Requests to the service and their bytes: a fifth more than the page needs."""
    viewer.open(f"/view/large/{address}")
    viewer.page.wait_for_load_state("networkidle")
    count, size = viewer.page.evaluate(
        """() => {
          const all = performance.getEntriesByType("resource").filter(({ name }) => name.includes("/v1/"));
          return [all.length, all.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0)];
        }"""
    )
    assert 0 < count <= 1.2 * requests
    assert 0 < size <= 1200 * kilobytes


CONTROLS = "button, input, select, [role=slider]"


def test_every_control_has_a_name_and_is_reached_by_a_listed_key(viewer: Viewer) -> None:
    """By a key of its own, or by Tab from where the keys of the parts of the page lead."""
    viewer.open_image("/view/data/cells?points=5,6")
    page = viewer.page
    ready(page)
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    listed = set(dialog.locator("kbd").all_inner_texts())
    audit(page)
    page.keyboard.press("Escape")
    controls = page.locator(f":is({CONTROLS}):visible")
    facts = controls.evaluate_all(
        """all => all.map((e) => [
          e.getAttribute('aria-label') || e.textContent || e.labels?.[0]?.textContent || e.title,
          e.closest('[aria-keyshortcuts]')?.getAttribute('aria-keyshortcuts').split(' ') ?? [],
        ])"""
    )
    assert [name for name, _ in facts if not name.strip()] == []
    assert {key for _, keys in facts for key in keys} <= listed
    reached = {name for name, keys in facts if keys}
    focused = "document.activeElement"
    for key, part in (("h", "header"), ("/", "tree"), ("o", "stage"), ("e", "inspector")):
        assert key in listed
        page.evaluate(f"{focused}.blur()")
        page.keyboard.press(key)
        while page.evaluate(f"{focused}.closest('#{part}') !== null"):
            name = "(e) => e.getAttribute('aria-label') || e.textContent || e.labels?.[0]?.textContent || e.title"
            reached.add(page.evaluate(f"({name})({focused})"))
            page.keyboard.press("Tab")
    assert {name for name, _ in facts} - reached == set()

    for key, holds in {
        "j": f"{focused}.matches('.dock-index')",
        "m": f"{focused}.matches('.colormap-popup input')",
    }.items():
        page.evaluate(f"{focused}.blur()")
        if key == "m":
            page.keyboard.press("2")  # a map is for one channel
        page.keyboard.press(key)
        assert page.evaluate(holds), key
