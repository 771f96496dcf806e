"""How much lies under a picture, told before anything is read."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from hyperslab.errors import TooLarge
from hyperslab.tiles.amount import region_chunks
from hyperslab.tiles.asked import parse_asked
from tests.tiles.support import tiles_on, write_plain


def write_empty(folder: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    """An array of bytes none of whose chunks was ever written."""
    write_plain(folder, np.zeros((1,) * len(shape), "u1"), "|u1")
    document = json.loads((folder / ".zarray").read_text()) | {"shape": shape, "chunks": chunks, "fill_value": 0}
    (folder / ".zarray").write_text(json.dumps(document))


@pytest.mark.parametrize("chunks", [(64, 64), (50, 70), (1, 300), (7, 1000)])
@pytest.mark.parametrize("size", [256, 100])
def test_no_tile_touches_more_chunks_than_the_most_that_is_told_for_its_zoom(
    tmp_path: Path, chunks: tuple[int, int], size: int
) -> None:
    write_empty(tmp_path / "a", (1100, 701), chunks)

    with tiles_on(tmp_path) as tiles:
        frame = tiles.frame("data/a", parse_asked([("tile_size", str(size))]))
        for z in range(frame.grid.maxzoom + 1):
            regions = [frame.grid.region(z, *place) for place in product(*map(range, frame.grid.counts(z)))]
            most = region_chunks(frame, regions[0])
            touched = [tiles.source.touched(frame, region) for region in regions]
            assert max(touched) <= most <= 4 * max(touched)


def test_channels_count_by_the_chunks_that_they_lie_in(tmp_path: Path) -> None:
    write_empty(tmp_path / "a", (6, 256, 256), (2, 64, 64))
    (tmp_path / "a" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["c", "y", "x"]}')

    with tiles_on(tmp_path) as tiles:
        for channels, expected in (("0", 16), ("01", 16), ("12", 32), ("024", 48)):
            frame = tiles.frame("data/a", parse_asked([("c", index) for index in channels]))
            assert region_chunks(frame, frame.grid.region(0, 0, 0)) == expected


def test_at_full_size_a_tile_may_have_a_chunk_for_each_of_its_pixels(tmp_path: Path) -> None:
    write_empty(tmp_path / "a", (600, 600), (1, 1))

    with tiles_on(tmp_path) as tiles:
        frame = tiles.frame("data/a", parse_asked([]))
        assert tiles.source.minzoom(frame) == frame.grid.maxzoom == 2
        assert tiles.source.allows(frame, frame.grid.region(2, 0, 0))
        larger = tiles.frame("data/a", parse_asked([("tile_size", "512")]))
        with pytest.raises(TooLarge, match="smaller ones"):
            tiles.source.plan(larger, larger.grid.region(1, 0, 0))
