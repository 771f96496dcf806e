"""The page shows what attributes say that values mean, and loses no peak."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from playwright.sync_api import expect

from tests.chromium import PHONE
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
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
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


def under(viewer: Viewer, x: int, y: int) -> str:
    viewer.values_under(x, y)
    return viewer.page.locator(".probe-what").inner_text()


def test_values_under_the_pointer_are_decoded_until_the_user_wants_stored_ones(viewer: Viewer) -> None:
    viewer.open_image("/view/cf/t?noleap=60")

    assert re.fullmatch(r"29\d\.\d\d? K", under(viewer, 600, 600))
    assert under(viewer, 600, 200) == "NaN"
    assert "noleap 60 (2000-03-02)" in viewer.page.locator(".probe-where").inner_text()
    ends = viewer.page.get_by_role("spinbutton", name=re.compile("Contrast limits")).all()
    assert [float(box.input_value()) for box in ends] == pytest.approx([290.01, 295.0], abs=0.1)
    assert len(np.unique(viewer.picture()[450:].reshape(-1, 3), axis=0)) > 50

    viewer.press("Stored", r"t\?decode=none&noleap=60$")

    assert re.fullmatch(r"1\d\d\d", under(viewer, 600, 600))
    assert under(viewer, 600, 200) == "-32767"
    viewer.page.reload()
    viewer.settle()
    expect(viewer.page.get_by_role("button", name="Stored")).to_have_attribute("aria-pressed", "true")
    viewer.press("Decoded")
    viewer.wait_for_query(r"t\?noleap=60$")


def test_tables_plots_cards_and_lines_to_copy_are_decoded(viewer: Viewer) -> None:
    viewer.open("/view/cf/series")
    viewer.page.locator('.plot[aria-busy="false"]').wait_for()
    viewer.page.mouse.move(600, 400)
    expect(viewer.page.locator(".probe-what")).to_have_text(re.compile(r"^29\d\.?\d* K$"))
    expect(viewer.page.locator(".code")).to_contain_text("decode=cf")
    viewer.press("Values", exact=True)
    expect(viewer.page.get_by_role("columnheader").last).to_have_text("value (K)")
    expect(viewer.page.locator("tbody td").first).to_have_text(f"{PACKED[40, 0] * 0.01 + 280:.6g}")
    viewer.press("Stored")
    expect(viewer.page.locator("tbody td").first).to_have_text(str(PACKED[40, 0]))
    expect(viewer.page.get_by_role("columnheader").last).to_have_text("value")

    viewer.go("/view/cf")
    cards = viewer.page.get_by_role("link")
    expect(cards.filter(has_text="one").locator(".card-value")).to_have_text("290.01 K")
    viewer.page.locator(".card-picture img").nth(2).wait_for()
    assert viewer.tab.count("/cf/t/thumbnail.png?size=320&flip=auto&aspect=auto&decode=cf") == 1


def test_places_are_dates_of_their_calendar_and_numbers_where_nobody_can_tell(viewer: Viewer) -> None:
    viewer.open_image("/view/cf/t?noleap=59")
    place = viewer.slider("noleap").locator("xpath=..").locator(".dock-place")
    expect(place).to_have_text("2000-03-01")
    viewer.go_to_image("/view/cf/by_month?months=3")
    place = viewer.slider("months").locator("xpath=..").locator(".dock-place")
    expect(place).to_have_text("3 months since 2000-01-01")


def test_times_are_dates_in_tables_and_plots(viewer: Viewer) -> None:
    viewer.open("/view/cf/noleap?view=values&row=50")
    expect(viewer.page.locator("tbody tr").nth(10)).to_have_text("602000-03-02")
    viewer.go("/view/cf/ms")
    viewer.page.locator('.plot[aria-busy="false"]').wait_for()
    viewer.page.mouse.move(600, 400)
    expect(viewer.page.locator(".probe-what")).to_have_text(re.compile(r"^2000-01-0[12] \d\d:00:00$"))
    viewer.go("/view/cf/noleap")
    viewer.page.locator('.plot[aria-busy="false"]').wait_for()
    viewer.page.mouse.move(600, 400)
    expect(viewer.page.locator(".probe-where")).to_have_text(re.compile(r"noleap \d+ \(2000-0[1-3]-\d\d\)"))


def test_flags_have_their_meaning(viewer: Viewer) -> None:
    viewer.open_image("/view/cf/clouds")
    assert under(viewer, 600, 400) == "2 ice"
    viewer.go_to_image("/view/cf/bits")
    assert under(viewer, 600, 400) == "5 night, ice"
    viewer.go("/view/cf/clouds?view=values")
    expect(viewer.page.locator("tbody td").first).to_have_text("2 ice")


def test_malformed_attributes_are_reported_and_no_unit_stands_beside_a_packed_number(viewer: Viewer) -> None:
    viewer.open_image("/view/cf/broken")

    expect(viewer.page.locator(".problems")).to_contain_text("scale_factor")
    assert re.fullmatch(r"1\d\d\d", under(viewer, 600, 600))
    expect(viewer.page.get_by_role("button", name="Stored")).to_have_count(0)


def test_a_plot_of_millions_of_samples_shows_two_spikes(viewer: Viewer) -> None:
    viewer.open("/view/cf/spikes")
    viewer.page.locator('.plot[aria-busy="false"]').wait_for()
    frame = viewer.page.locator(".plot canvas").bounding_box()
    assert frame is not None

    def column(sample: int) -> int:
        return round(64 + sample / (SPIKES.size - 1) * (frame["width"] - 84))

    def drawn(found: Any, sample: int) -> Any:
        """Rows of the plot that are coloured around a sample."""
        part = found[20:-44, column(sample) - 3 : column(sample) + 4].astype(int)
        return ((part.max(axis=-1) - part.min(axis=-1)) > 40).any(axis=1)

    picture = pixels(viewer.page.locator(".plot canvas").screenshot())
    high, low, flat = (drawn(picture, sample) for sample in (1_234_567, 3_456_789, 2_500_000))
    middle = len(high) // 2
    assert high[middle // 4 : middle].mean() > 0.9
    assert low[middle : -middle // 4].mean() > 0.9
    assert flat.mean() < 0.2
    assert viewer.tab.count("/v1/slice/cf/spikes") == 1
    for sample, value in ((1_234_567, "50"), (3_456_789, "-50")):
        texts = []
        for shift in (-1, 0, 1):
            viewer.page.mouse.move(frame["x"] + column(sample) + shift, frame["y"] + 200)
            texts.append(viewer.page.locator(".probe-what").inner_text())
        assert any(value in re.findall(r"-?[\d.]+", text) for text in texts), texts


def test_the_reading_of_a_plot_follows_its_zoom(viewer: Viewer) -> None:
    viewer.open("/view/cf/spikes?range=1000000,2000000")
    viewer.page.locator('.plot[aria-busy="false"]').wait_for()
    viewer.page.mouse.move(900, 300)
    for _ in range(6):
        viewer.page.mouse.wheel(0, -100)
    viewer.wait_for_query(r"spikes\?range=(?!1000000,)")
    viewer.page.locator('.plot[aria-busy="false"]').wait_for()
    first, last = map(int, re.findall(r"\d+", viewer.query)[-2:])

    sample = int(re.findall(r"\d+", viewer.page.locator(".probe-where").inner_text())[0])
    frame = viewer.page.locator(".plot canvas").bounding_box()
    assert frame is not None
    expected = first + (900 - frame["x"] - 64) / (frame["width"] - 84) * (last - first)
    assert sample == pytest.approx(expected, abs=(last - first) / 200)


def test_a_phone_has_one_button_for_both(phone: Viewer) -> None:
    phone.open_image("/view/cf/t")

    assert phone.page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
    phone.press("Decoded")
    phone.wait_for_query(r"t\?decode=none")
    phone.press("Stored")
    phone.wait_for_query("t$")
