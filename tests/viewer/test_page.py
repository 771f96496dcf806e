"""Everything around pictures: the way through the hierarchy, plots, tables, lines to copy, keys, trouble."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import zarr
from playwright.sync_api import Route, expect

from hyperslab.demo import tables
from tests.chromium import Tab
from tests.server import running_server
from tests.viewer.support import Viewer, pixels, read, viewing


def test_home_shows_the_store_with_pictures_of_what_is_in_it(viewer: Viewer) -> None:
    viewer.open("/")

    cards = viewer.page.locator(".card")
    expect(cards).to_have_count(8)
    expect(viewer.page.locator(".card img")).to_have_count(3)
    expect(viewer.page.locator(".card", has_text="speed_of_light")).to_contain_text("299792458 m/s")
    viewer.page.wait_for_load_state("networkidle")


def test_tree_leads_to_a_node_with_keys_alone(viewer: Viewer) -> None:
    viewer.open("/")
    tree = viewer.page.get_by_role("tree")
    expect(tree.get_by_role("treeitem", name="climate")).to_be_visible()

    tree.get_by_role("link", name="demo").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        viewer.page.keyboard.press(key)
    expect(tree.get_by_role("treeitem", name="sst")).to_contain_text("365 × 90 × 180 · float32")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        viewer.page.keyboard.press(key)

    expect(viewer.page).to_have_url(re.compile("/view/demo/climate/lat$"))
    expect(viewer.page.locator('[data-view="plot"]')).to_have_attribute("aria-busy", "false")


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        (
            "climate/sst",
            ["365 × 90 × 180", "time, lat, lon", "float32 (<f4)", "73 × 45 × 90 · 20 chunks", "zstd", "NaN"],
        ),
        (
            "sharded/0",
            [
                *("1 × 4 × 96 × 96 · 192 chunks", "1 × 16 × 192 × 192 · 12 shards", "Zarr v3", "c, z, y, x"),
                "sharding_indexed (bytes, zstd (level 0))",
            ],
        ),
    ],
)
def test_array_tells_its_metadata_and_attributes(viewer: Viewer, path: str, texts: list[str]) -> None:
    viewer.open(f"/view/demo/{path}")

    for text in texts:
        expect(viewer.page.locator(".facts")).to_contain_text(text)
    if path == "climate/sst":
        expect(viewer.page.locator(".json")).to_contain_text("sea surface temperature")


def test_one_axis_is_plotted_and_read_off(viewer: Viewer) -> None:
    viewer.open("/view/demo/signal?range=1000,1400")
    plot = viewer.page.locator('[data-view="plot"]')
    expect(plot).to_have_attribute("aria-busy", "false")

    viewer.page.mouse.move(600, 400)
    where = viewer.page.locator(".probe-where").inner_text()
    value = viewer.page.locator(".probe-what").inner_text()

    index = int(re.findall(r"\d+", where)[0])
    stored = tables.signal()[index]
    assert 1000 < index < 1400
    assert float(value.removesuffix(" mV")) == pytest.approx(float(stored), rel=1e-5)
    assert pixels(plot.locator("canvas").screenshot()).std() > 5
    viewer.page.keyboard.press("+")
    viewer.wait_for_query(r"signal\?range=1\d+,1[0-3]\d+$")
    viewer.page.keyboard.press("0")
    viewer.wait_for_query("signal$")
    expect(plot).to_have_attribute("aria-busy", "false")


def test_records_are_a_table_with_pages(viewer: Viewer) -> None:
    viewer.open("/view/demo/events")
    rows = viewer.page.locator("tbody tr")
    expect(rows).to_have_count(50)

    viewer.press("Next rows")
    viewer.wait_for_query(r"events\?row=50$")
    expect(rows.first.get_by_role("rowheader")).to_have_text("50")

    titles = viewer.page.get_by_role("columnheader").all_inner_texts()[1:]
    cells = dict(zip(titles, rows.first.get_by_role("cell").all_inner_texts(), strict=True))
    stored = tables.events()[50]
    assert float(cells["time (s)"]) == pytest.approx(float(stored["time"]), rel=1e-5)
    assert float(cells["energy (keV)"]) == pytest.approx(float(stored["energy"]), rel=1e-5)
    assert cells["id"] == str(stored["id"])
    assert cells["label"] == stored["label"].decode()


def test_a_field_of_records_is_plotted(viewer: Viewer) -> None:
    viewer.open("/view/demo/events?view=plot")

    viewer.page.get_by_label("Field").select_option("energy")

    viewer.wait_for_query(r"events\?view=plot&field=energy$")
    expect(viewer.page.locator('[data-view="plot"]')).to_have_attribute("aria-busy", "false")
    assert viewer.tab.count("dtype=safe&field=energy") == 1


def test_a_single_value_and_texts_are_shown(viewer: Viewer) -> None:
    viewer.open("/view/demo/speed_of_light")
    expect(viewer.page.locator("table")).to_have_text("299792458m/s")

    viewer.page.get_by_role("tree").get_by_role("link", name="stations").click()

    expect(viewer.page.locator("tbody tr").first).to_have_text("0Reykjavík")


def test_numbers_of_a_plane_are_a_table_too(viewer: Viewer, demo_store: Path) -> None:
    viewer.open("/view/demo/brain?view=values&z=30&row=250&column=240")
    expect(viewer.page.locator("tbody tr")).to_have_count(50)

    cells = viewer.page.locator("tbody tr").first.get_by_role("cell").all_inner_texts()

    assert [int(cell) for cell in cells] == read(demo_store, "brain")[30, 250, 240:264].tolist()


def test_lines_to_copy_read_exactly_what_is_visible(viewer: Viewer, demo_store: Path) -> None:
    viewer.open_image("/view/demo/brain?z=20&box=256,200,40")
    code = viewer.page.locator(".code code")
    expect(code).to_contain_text("select=20,")

    address = re.findall(r"'(http[^']+)'", code.inner_text())[0]
    select = httpx.URL(address).params["select"]
    values = httpx.get(address.replace("format=npy", "format=json")).json()

    rows, columns = (slice(*map(int, part.split(":"))) for part in select.split(",")[1:])
    assert rows.start <= 200 < rows.stop
    assert columns.stop - columns.start == pytest.approx(41, abs=1)
    np.testing.assert_array_equal(values, read(demo_store, "brain")[20, rows, columns])
    viewer.page.get_by_role("tab", name="Python").click()
    expect(code).to_contain_text(f"slab = a[{select}]")
    neuroglancer = viewer.page.get_by_role("link", name="Open in neuroglancer").get_attribute("href")
    assert neuroglancer is not None
    assert "%7Czarr%3A" in neuroglancer


def test_keys_are_listed(viewer: Viewer) -> None:
    viewer.open("/")
    expect(viewer.page.locator(".card").first).to_be_visible()

    viewer.page.keyboard.press("?")
    expect(viewer.page.get_by_role("dialog", name="Keys")).to_contain_text("Zoom in and out")
    viewer.page.keyboard.press("Escape")

    expect(viewer.page.get_by_role("dialog")).to_have_count(0)


def test_errors_are_shown_in_the_words_of_the_service(viewer: Viewer) -> None:
    viewer.expected = "404|demo/50%"
    trouble = viewer.page.get_by_role("alert")
    viewer.open("/view/demo/50%")
    expect(trouble).to_contain_text("demo/50%")  # badly encoded
    viewer.open("/view/demo/climate/nothing")

    expect(trouble).to_contain_text("No array or group at this path")
    expect(trouble).to_contain_text("node-not-found")
    viewer.press("Open demo/climate")
    expect(viewer.page.get_by_role("heading", name="climate")).to_be_visible()
    assert len(viewer.tab.failed) == 2


@pytest.fixture(scope="module")
def odd_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Stores: an empty one, one of many groups and a name that wants quoting, one whose picture is damaged, a plate."""
    folder = tmp_path_factory.mktemp("odd")
    zarr.open_group(folder / "empty", mode="w", zarr_format=2)
    root = zarr.open_group(folder / "many", mode="w", zarr_format=2)
    for i in range(130):
        (folder / "many" / f"g{i:03}").mkdir()
        (folder / "many" / f"g{i:03}" / ".zgroup").write_text('{"zarr_format": 2}')
    quoted = root.create_array("it's a name? & 100%", shape=(4, 5), chunks=(4, 5), dtype="<i4")
    quoted[...] = np.arange(20).reshape(4, 5)
    torn = zarr.open_group(folder / "torn", mode="w", zarr_format=2)
    damaged = torn.create_array("picture", shape=(64, 64), chunks=(64, 64), dtype="<u2", compressors=None)
    damaged[...] = 7
    (folder / "torn" / "picture" / "0.0").write_bytes(b"short")
    write_plate(zarr.open_group(folder / "plate", mode="w", zarr_format=2))
    with running_server({name: folder / name for name in ("empty", "many", "torn", "plate")}) as server:
        yield server.url


MEANT: Mapping[str, tuple[dict[str, Any], str]] = {
    "anndata": ({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [4, 3]}, "csr_matrix 4 × 3"),
    "column": ({"encoding-type": "categorical", "ordered": False}, "categorical"),
    "table": ({"encoding-type": "anndata", "spatialdata-encoding-type": "ngff:regions_table"}, "ngff:regions_table"),
    "spatialdata": ({"spatialdata_attrs": {"version": "0.2"}}, "SpatialData"),
    "nwb": (
        {"neurodata_type": "TimeSeries", "_LINKS": [{"name": "data", "path": "/a/data", "source": "."}, None]},
        "TimeSeries, data → /a/data",
    ),
    "vcf": ({"vcf_zarr_version": "0.5", "source": "bio2zarr"}, "VCF Zarr 0.5"),
    "mdio": ({"apiVersion": "1.2.3", "createdOn": "2026-11-27"}, "MDIO 1.2.3"),
    "positions": ({"ome": {"version": "0.5", "bioformats2raw.layout": 3}}, "series of images"),
    "odd": ({"encoding-type": {}, "neurodata_type": 3, "_LINKS": [None, 1], "description": ["x"], "ome": "y"}, "group"),
}
"""By name of a group: its attributes as the packages of these formats write them, and what the page says."""


def test_what_a_node_means_stands_beside_its_name(tab: Tab, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    root = zarr.open_group(tmp_path, mode="w", zarr_format=3)
    for name, (attributes, _) in MEANT.items():
        root.create_group(name, attributes=attributes)
    references: dict[str, Any] = {
        "_DTYPE": "object_reference",
        "neurodata_type": "VectorData",
        "description": "Electrodes",
    }
    root.create_array("array", shape=(2,), dtype="u1", attributes=references)

    with running_server({"meant": tmp_path}) as server, viewing(tab, server.url, request) as viewer:
        viewer.open("/view/meant")
        cards, tree = viewer.page.locator(".card"), viewer.page.get_by_role("tree")
        for name, (_, text) in MEANT.items():
            expect(cards.filter(has_text=name).locator(".card-about")).to_have_text(text)
            item = tree.get_by_role("treeitem", name=name, exact=True)
            expect(item.locator(".tree-about")).to_have_text("" if text == "group" else text)
        expect(cards.filter(has_text="array").locator(".card-about")).to_have_text("2 · uint8 · VectorData")
        viewer.open("/view/meant/array")
        expect(viewer.page.locator(".facts")).to_contain_text("VectorData")
        viewer.open("/view/meant/nwb")
        expect(viewer.page.locator(".browse-head")).to_contain_text("TimeSeries, data → /a/data · 0 members")


@pytest.fixture
def odd(tab: Tab, odd_url: str, request: pytest.FixtureRequest) -> Iterator[Viewer]:
    with viewing(tab, odd_url, request) as viewer:
        yield viewer


def write_plate(plate: zarr.Group) -> None:
    """One row of two wells with an image of 40 by 40 pixels each."""
    wells: list[Any] = [{"path": f"A/{c + 1}", "rowIndex": 0, "columnIndex": c} for c in range(2)]
    columns: list[Any] = [{"name": "1"}, {"name": "2"}]
    rows: list[Any] = [{"name": "A"}]
    plate.attrs["plate"] = {"version": "0.4", "rows": rows, "columns": columns, "wells": wells}
    row = plate.create_group("A")
    for name in "12":
        well = row.create_group(name)
        well.attrs["well"] = {"version": "0.4", "images": [{"path": "0"}]}
        image = well.create_group("0")
        scale = [{"type": "scale", "scale": [0.5, 0.5]}]
        axes: list[Any] = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
        datasets: list[Any] = [{"path": "0", "coordinateTransformations": scale}]
        image.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": datasets}]
        image.create_array("0", shape=(40, 40), chunks=(40, 40), dtype="u1", fill_value=90)


def test_long_lists_come_in_pages_and_odd_names_work(odd: Viewer) -> None:
    odd.open("/")
    expect(odd.page.locator(".card")).to_have_count(4)
    odd.page.locator(".card", has_text="many").click()
    tree = odd.page.get_by_role("tree")
    tree.get_by_role("button", name="Show more").click()
    expect(tree.get_by_role("treeitem", name="g129")).to_be_visible()

    odd.page.get_by_label("Filter the tree").fill("100%")
    tree.get_by_role("link", name="it's a name? & 100%").click()
    odd.settle()

    assert odd.page.url.endswith("/view/many/it's%20a%20name%3F%20%26%20100%25")
    expect(odd.page.locator(".code code")).to_contain_text("select=")
    words = shlex.split(odd.page.locator(".code code").inner_text())
    assert words[:-1] == ["curl", "-o", "slab.npy"]
    assert np.load(io.BytesIO(httpx.get(words[-1]).content)).size == 20
    _, values = odd.values_under(650, 400)
    assert 0 <= values[0] < 20


def test_the_filter_finds_what_is_not_loaded(odd: Viewer) -> None:
    held: list[Route] = []

    def page_of_one(route: Route) -> None:
        route.continue_(url=f"{route.request.url}&limit=1")

    odd.page.route("**/v1/metadata/?search=*", lambda route: page_of_one(route) if held else held.append(route))
    odd.open("/")
    tree, field = odd.page.get_by_role("tree"), odd.page.get_by_label("Filter the tree")
    expect(tree.get_by_role("treeitem")).to_have_count(4)

    with odd.page.expect_request("**/v1/metadata/?search=*"):
        field.fill("PICTURE")
    expect(odd.page.locator(".tree-hint")).to_have_text("Searching…")
    expect(tree.get_by_role("link")).to_have_count(0)
    page_of_one(held[0])
    expect(tree.get_by_role("link", name="picture")).to_be_visible()
    expect(tree.locator(".tree-row:visible")).to_have_count(2)
    expect(odd.page.locator(".tree-hint")).to_be_hidden()

    field.fill("g12")
    expect(tree.get_by_role("link", name=re.compile("^g12"))).to_have_count(10)
    tree.get_by_role("link", name="g129").click()
    expect(odd.page).to_have_url(re.compile("/view/many/g129$"))
    field.fill("no such name")
    expect(odd.page.locator(".tree-hint")).to_have_text("No match.")
    field.fill("")
    expect(odd.page.locator(".tree-hint")).to_be_hidden()
    rows = tree.locator('[data-path="many"] > ul > li')
    expect(rows).to_have_count(102)  # a page of children, what is open beyond it, and a button for the rest
    expect(rows.nth(100)).to_have_attribute("data-path", "many/g129")
    expect(tree.get_by_role("link", name="picture")).to_be_hidden()


def test_an_empty_store_says_so(odd: Viewer) -> None:
    odd.open("/view/empty")

    expect(odd.page.locator(".empty")).to_have_text("This group is empty.")


def test_damaged_data_is_reported_on_the_page(odd: Viewer) -> None:
    odd.expected = "502|failed to load"
    odd.open("/view/torn/picture")

    expect(odd.page.get_by_role("alert").first).to_contain_text("0.0")


def test_a_picture_that_is_cut_while_somebody_looks_is_shown_as_it_is_now(tab: Tab, tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "stack", shape=(8, 64, 64), chunks=(1, 64, 64), dtype="u1", zarr_format=2)
    array[:] = np.arange(8)[:, None, None] * 20
    with running_server({"data": tmp_path}) as server:
        viewer = Viewer(tab, server.url)
        viewer.open_image("/view/data/stack")
        slider = viewer.page.locator("input[data-axis]")
        expect(slider).to_have_attribute("max", "7")

        array.resize((3, 64, 64))
        slider.fill("6")

        expect(slider).to_have_attribute("max", "2")
        expect(viewer.page.get_by_role("alert")).to_contain_text("the current version is shown")


def test_a_plate_names_the_well_under_the_cursor(odd: Viewer) -> None:
    odd.open_image("/view/plate")

    odd.values_under(800, 420)
    expect(odd.page.locator(".probe-what")).to_have_text("A/2")
    odd.values_under(450, 420)
    expect(odd.page.locator(".probe-what")).to_have_text("A/1")
    expect(odd.page.locator(".margin-row:visible")).to_have_text(["A"])
    expect(odd.page.locator(".margin-column:visible")).to_have_text(["1", "2"])
    for well in "12":
        place = odd.page.locator(".margin-column", has_text=well).bounding_box()
        assert place is not None
        odd.values_under(round(place["x"] + place["width"] / 2), 420)
        expect(odd.page.locator(".probe-what")).to_have_text(f"A/{well}")
    odd.page.mouse.click(800, 420)
    expect(odd.page).to_have_url(re.compile("/view/plate/A/2$"))
    odd.settle()
