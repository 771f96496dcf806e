"""The page shows what attributes say that values mean, and loses no peak."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from playwright.sync_api import Browser, expect

from tests.chromium import PHONE, Tab, open_tab
from tests.server import running_server
from tests.viewer.support import Viewer, pixels

PACKED = (1001 + np.arange(64 * 96).reshape(64, 96) % 500).astype("<i2")
PACKED[:32] = -32767
SPIKES = np.sin(np.arange(5_000_000) / 40_000)
SPIKES[1_234_567], SPIKES[3_456_789] = 50, -50


def write(folder: Path, name: str, values: Any, axes: list[str], **attributes: Any) -> None:
    values = np.asarray(values)
    chunks = tuple(min(n, 1 << 18) for n in values.shape)
    array = zarr.create_array(
        str(folder / name), shape=values.shape, chunks=chunks, dtype=values.dtype, zarr_format=2, fill_value=None,
        attributes={"_ARRAY_DIMENSIONS": axes, **attributes},
    )  # fmt: skip
    array[...] = values


@pytest.fixture(scope="module")
def cf_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Arrays of climate data as they are packed, and a long signal."""
    folder = tmp_path_factory.mktemp("cf")
    zarr.open_group(folder, mode="w", zarr_format=2)
    packing = {"scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32767, "units": "K"}
    write(folder, "t", np.stack([PACKED] * 61), ["noleap", "y", "x"], **packing)
    write(folder, "series", PACKED[40], ["x"], **packing)
    write(folder, "one", np.int16(1001), [], **packing)
    write(folder, "noleap", np.arange(61), ["noleap"], units="days since 2000-1-1", calendar="noleap")
    write(folder, "months", np.arange(9), ["months"], units="months since 2000-01-01", calendar="standard")
    write(folder, "by_month", np.zeros((9, 8, 8), "<f4"), ["months", "y", "x"], units="m")
    write(folder, "ms", np.arange(48) * 3_600_000, ["ms"], units="milliseconds since 2000-1-1")
    bits = {"flag_masks": [1, 2, 4], "flag_meanings": "night land ice"}
    write(folder, "bits", np.full((64, 96), 5, "|u1"), ["y", "x"], **bits)
    flags = {"flag_values": [0, 1, 2], "flag_meanings": "clear cloudy ice"}
    write(folder, "clouds", np.full((64, 96), 2, "|u1"), ["y", "x"], **flags)
    write(folder, "broken", PACKED, ["y", "x"], units="K", scale_factor="0.01")
    write(folder, "spikes", SPIKES, ["sample"])
    with running_server({"cf": folder}) as server:
        yield server.url


@pytest.fixture
def cf(tab: Tab, cf_url: str) -> Viewer:
    return Viewer(tab, cf_url)


def under(viewer: Viewer, x: int, y: int) -> str:
    viewer.values_under(x, y)
    return viewer.page.locator(".probe-what").inner_text()


def test_values_under_the_pointer_are_decoded_until_the_user_wants_stored_ones(cf: Viewer) -> None:
    cf.open_image("/view/cf/t?noleap=60")

    assert re.fullmatch(r"29\d\.\d\d? K", under(cf, 600, 600))
    assert under(cf, 600, 200) == "NaN"
    assert "noleap 60 (2000-03-02)" in cf.page.locator(".probe-where").inner_text()
    window = [float(box.input_value()) for box in cf.page.get_by_role("spinbutton", name=re.compile("Window")).all()]
    assert window == pytest.approx([290.01, 295.0], abs=0.1)
    assert len(np.unique(cf.picture()[450:], axis=0)) > 50
    cf.tab.keep("decoded")

    cf.page.get_by_role("button", name="Stored").click()
    cf.wait_for_query(r"t\?decode=none&noleap=60$")
    cf.settle()

    assert re.fullmatch(r"1\d\d\d", under(cf, 600, 600))
    assert under(cf, 600, 200) == "-32767"
    cf.page.reload()
    cf.settle()
    expect(cf.page.get_by_role("button", name="Stored")).to_have_attribute("aria-pressed", "true")
    cf.page.get_by_role("button", name="Decoded").click()
    cf.wait_for_query(r"t\?noleap=60$")
    cf.check_clean()


def test_tables_plots_cards_and_lines_to_copy_are_decoded(cf: Viewer) -> None:
    cf.open("/view/cf/series")
    cf.page.locator('.plot[aria-busy="false"]').wait_for()
    cf.page.mouse.move(600, 400)
    expect(cf.page.locator(".probe-what")).to_have_text(re.compile(r"^29\d\.?\d* K$"))
    expect(cf.page.locator(".code")).to_contain_text("decode=cf")
    cf.page.get_by_role("button", name="Values", exact=True).click()
    expect(cf.page.get_by_role("columnheader").last).to_have_text("value (K)")
    expect(cf.page.locator("tbody td").first).to_have_text(f"{PACKED[40, 0] * 0.01 + 280:.6g}")
    cf.page.get_by_role("button", name="Stored").click()
    expect(cf.page.locator("tbody td").first).to_have_text(str(PACKED[40, 0]))
    expect(cf.page.get_by_role("columnheader").last).to_have_text("value")

    cf.open("/view/cf")
    cards = cf.page.get_by_role("link")
    expect(cards.filter(has_text="one").locator(".card-value")).to_have_text("290.01 K")
    cf.page.wait_for_function("document.querySelectorAll('.card-picture img').length >= 3")
    assert cf.tab.count("/cf/t/thumbnail.png?size=320&flip=auto&aspect=auto&decode=cf") == 1
    cf.check_clean()


@pytest.mark.parametrize(
    ("address", "axis", "shown"),
    [("t?noleap=59", "noleap", "2000-03-01"), ("by_month?months=3", "months", "3 months since 2000-01-01")],
)
def test_places_are_dates_of_their_calendar_and_numbers_where_nobody_can_tell(
    cf: Viewer, address: str, axis: str, shown: str
) -> None:
    cf.open_image(f"/view/cf/{address}")

    expect(cf.slider(axis).locator("xpath=..").locator(".dock-place")).to_have_text(shown)
    cf.check_clean()


def test_times_are_dates_in_tables_and_plots(cf: Viewer) -> None:
    cf.open("/view/cf/noleap?view=values&row=50")
    expect(cf.page.locator("tbody tr").nth(10)).to_have_text("602000-03-02")
    cf.open("/view/cf/ms")
    cf.page.locator('.plot[aria-busy="false"]').wait_for()
    cf.page.mouse.move(600, 400)
    expect(cf.page.locator(".probe-what")).to_have_text(re.compile(r"^2000-01-0[12] \d\d:00:00$"))
    cf.open("/view/cf/noleap")
    cf.page.locator('.plot[aria-busy="false"]').wait_for()
    cf.page.mouse.move(600, 400)
    expect(cf.page.locator(".probe-where")).to_have_text(re.compile(r"noleap \d+ \(2000-0[1-3]-\d\d\)"))
    cf.check_clean()


def test_flags_have_their_meaning(cf: Viewer) -> None:
    cf.open_image("/view/cf/clouds")
    assert under(cf, 600, 400) == "2 ice"
    cf.open_image("/view/cf/bits")
    assert under(cf, 600, 400) == "5 night, ice"
    cf.open("/view/cf/clouds?view=values")
    expect(cf.page.locator("tbody td").first).to_have_text("2 ice")
    cf.check_clean()


def test_malformed_attributes_are_told_and_no_unit_stands_beside_a_packed_number(cf: Viewer) -> None:
    cf.open_image("/view/cf/broken")

    expect(cf.page.locator(".problems")).to_contain_text("scale_factor")
    assert re.fullmatch(r"1\d\d\d", under(cf, 600, 600))
    expect(cf.page.get_by_role("button", name="Stored")).to_have_count(0)
    cf.check_clean()


def test_a_plot_of_millions_of_samples_shows_two_spikes(cf: Viewer) -> None:
    cf.open("/view/cf/spikes")
    cf.page.locator('.plot[aria-busy="false"]').wait_for()
    frame = cf.page.locator(".plot canvas").bounding_box()
    assert frame is not None

    def column(sample: int) -> int:
        return round(64 + sample / (SPIKES.size - 1) * (frame["width"] - 84))

    def drawn(found: Any, sample: int) -> Any:
        """Rows of the plot that are coloured around a sample."""
        part = found[20:-44, column(sample) - 3 : column(sample) + 4].astype(int)
        return ((part.max(axis=-1) - part.min(axis=-1)) > 40).any(axis=1)

    picture = pixels(cf.page.locator(".plot canvas").screenshot())
    cf.tab.keep("spikes")
    high, low, flat = (drawn(picture, sample) for sample in (1_234_567, 3_456_789, 2_500_000))
    middle = len(high) // 2
    assert high[middle // 4 : middle].mean() > 0.9
    assert low[middle : -middle // 4].mean() > 0.9
    assert flat.mean() < 0.2
    assert cf.tab.count("/v1/slice/cf/spikes") == 1
    for sample, value in ((1_234_567, "50"), (3_456_789, "-50")):
        texts = []
        for shift in (-1, 0, 1):
            cf.page.mouse.move(frame["x"] + column(sample) + shift, frame["y"] + 200)
            texts.append(cf.page.locator(".probe-what").inner_text())
        assert any(value in re.findall(r"-?[\d.]+", text) for text in texts), texts
    cf.check_clean()


def test_the_reading_of_a_plot_follows_its_zoom(cf: Viewer) -> None:
    cf.open("/view/cf/spikes?range=1000000,2000000")
    cf.page.locator('.plot[aria-busy="false"]').wait_for()
    cf.page.mouse.move(900, 300)
    for _ in range(6):
        cf.page.mouse.wheel(0, -100)
    cf.wait_for_query(r"spikes\?range=(?!1000000,)")
    cf.page.locator('.plot[aria-busy="false"]').wait_for()
    first, last = map(int, re.findall(r"\d+", cf.query)[-2:])

    sample = int(re.findall(r"\d+", cf.page.locator(".probe-where").inner_text())[0])
    frame = cf.page.locator(".plot canvas").bounding_box()
    assert frame is not None
    expected = first + (900 - frame["x"] - 64) / (frame["width"] - 84) * (last - first)
    assert sample == pytest.approx(expected, abs=(last - first) / 200)
    cf.check_clean()


def test_a_phone_has_one_button_for_both(browser: Browser, cf_url: str) -> None:
    with open_tab(browser, PHONE, "light", has_touch=True, is_mobile=True) as tab:
        phone = Viewer(tab, cf_url)
        phone.open_image("/view/cf/t")
        assert tab.page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
        tab.page.get_by_role("button", name="Decoded").click()
        phone.wait_for_query(r"t\?decode=none")
        tab.page.get_by_role("button", name="Stored").click()
        phone.wait_for_query("t$")
        phone.check_clean()
