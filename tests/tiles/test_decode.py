"""Pictures of values as CF attributes mean them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperslab.tiles.info import histogram_document, info_document
from hyperslab.tiles.service import Tiles
from tests.tiles.support import Array, numbers, parse_query, pixels, tile, write_array

_PACKED = {"scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32767, "units": "K"}


@pytest.fixture
def packed(tmp_path: Path) -> Array:
    """Packed temperatures at ``t``; what they mean, NaN where they are missing."""
    stored = np.arange(-2000, 2096, dtype="<i2").reshape(64, 64)
    stored[20:30, 5:50] = -32767
    write_array(tmp_path / "t", stored, (16, 16), attributes=_PACKED, fill_value=None)
    write_array(tmp_path / "unpacked", np.where(stored == -32767, np.nan, stored * 0.01 + 280.0), (16, 16))
    return np.where(stored == -32767, np.nan, stored * 0.01 + 280.0)


@pytest.mark.usefixtures("packed")
@pytest.mark.parametrize("query", [[], [("colormap_name", "viridis")], [("rescale", "270,280"), ("tile_size", "64")]])
def test_packed_values_are_drawn_as_those_that_they_mean(tiles: Tiles, query: list[Any]) -> None:
    decoded = tile(tiles, "data/t", (0, 0, 0), [*query, ("decode", "cf")])
    unpacked = tile(tiles, "data/unpacked", (0, 0, 0), query)
    stored = tile(tiles, "data/t", (0, 0, 0), query)

    np.testing.assert_array_equal(pixels(decoded), pixels(unpacked))
    assert not np.array_equal(pixels(stored), pixels(unpacked))


def test_windows_histograms_and_numbers_are_decoded(tiles: Tiles, packed: Array) -> None:
    asked = parse_query([("decode", "cf")])
    info = info_document(tiles, tiles.images.open("data/t"), asked, "", "")
    counted = histogram_document(tiles, tiles.images.open("data/t"), asked)
    plain = info_document(tiles, tiles.images.open("data/t"), parse_query([]), "", "")
    values = numbers(tiles, "data/t", (0, 0, 0), [("decode", "cf"), ("tile_size", "64")])

    assert info["decoded"]["unit"] == "K"
    assert (info["dtype"], plain["dtype"], plain["decoded"]) == ("<f8", "<i2", None)
    assert info["rescale_auto"] == pytest.approx([np.nanmin(packed), np.nanmax(packed)], abs=0.1)
    assert (counted["min"], counted["max"]) == (np.nanmin(packed), np.nanmax(packed))
    assert counted["count"] == np.isfinite(packed).sum()
    np.testing.assert_array_equal(values, packed)


def test_malformed_attributes_break_no_picture_and_are_reported(tmp_path: Path, tiles: Tiles) -> None:
    write_array(tmp_path / "a", np.eye(8, dtype="<i2"), attributes={"scale_factor": "no"}, fill_value=None)
    for decode in ("cf", "none"):
        info = info_document(tiles, tiles.images.open("data/a"), parse_query([("decode", decode)]), "", "")
        assert "scale_factor" in info["problems"][0]
        tile(tiles, "data/a", (0, 0, 0), [("decode", decode)])


def test_a_mean_of_flags_is_none_of_them_and_dates_are_drawn_as_numbers(tmp_path: Path, tiles: Tiles) -> None:
    flags = np.where(np.arange(128 * 128).reshape(128, 128) % 2, 0, 4).astype("|u1")
    attributes = {"flag_values": [0, 4], "flag_meanings": "clear ice", "_FillValue": 255}
    write_array(tmp_path / "f", flags, attributes=attributes, fill_value=None)
    days = {"units": "days since 2000-1-1", "calendar": "noleap"}
    write_array(tmp_path / "d", np.arange(64, dtype="<i4").reshape(8, 8), attributes=days, fill_value=None)
    asked = [("decode", "cf"), ("tile_size", "64")]
    assert set(np.unique(numbers(tiles, "data/f", (0, 0, 0), asked))) <= {0, 4}
    assert info_document(tiles, tiles.images.open("data/d"), parse_query(asked), "", "")["rescale_auto"] == [0, 63]
