"""How much lies under a picture, told before anything is read."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.workers import WorkerPool
from hyperslab.errors import TooLarge
from hyperslab.tiles.read import ReadEstimate
from hyperslab.tiles.service import Tiles
from tests.tiles.support import Query, parse_query, rendering, tiles_on, write_attributes, write_plain


def write_empty(folder: Path, shape: tuple[int, ...], chunks: tuple[int, ...], codec: object = None) -> None:
    """An array of bytes none of whose chunks was ever written."""
    write_plain(folder, np.zeros((1,) * len(shape), "u1"), "|u1")
    facts = {"shape": shape, "chunks": chunks, "fill_value": 0, "compressor": codec}
    (folder / ".zarray").write_text(json.dumps(json.loads((folder / ".zarray").read_text()) | facts))


@pytest.mark.parametrize("chunks", [(64, 64), (50, 70), (1, 300), (7, 1000)])
@pytest.mark.parametrize("size", [256, 100])
def test_no_tile_touches_more_chunks_than_the_most_that_is_told_for_its_zoom(
    tmp_path: Path, tiles: Tiles, chunks: tuple[int, int], size: int
) -> None:
    write_empty(tmp_path / "a", (1100, 701), chunks)

    frame = tiles.frame(tiles.images.open("data/a"), parse_query([("tile_size", str(size))]))
    for z in range(frame.grid.maxzoom + 1):
        regions = [frame.grid.region(z, *place) for place in product(*map(range, frame.grid.counts(z)))]
        most = sum(part.chunks for part in ReadEstimate.of(frame, regions[0]))
        touched = [tiles.reader.plan(frame, region).blocks[0].plan.touched for region in regions]
        assert max(touched) <= most <= 4 * max(touched)


def test_channels_count_by_the_chunks_that_they_lie_in(tmp_path: Path, tiles: Tiles) -> None:
    write_empty(tmp_path / "a", (6, 256, 256), (2, 64, 64))
    (tmp_path / "a" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["c", "y", "x"]}')

    for channels, expected in (("0", 16), ("01", 16), ("12", 32), ("024", 48)):
        frame = tiles.frame(tiles.images.open("data/a"), parse_query([("c", index) for index in channels]))
        assert ReadEstimate.of(frame, frame.grid.region(0, 0, 0))[0].chunks == expected


def test_at_full_size_a_tile_may_have_a_chunk_for_each_of_its_pixels(tmp_path: Path, tiles: Tiles) -> None:
    write_empty(tmp_path / "a", (600, 600), (1, 1))

    frame = tiles.frame(tiles.images.open("data/a"), parse_query([]))
    assert tiles.reader.minzoom(frame, sampled=False) == frame.grid.maxzoom == 2
    assert tiles.reader.excess(frame, frame.grid.region(2, 0, 0)) is None
    larger = tiles.frame(tiles.images.open("data/a"), parse_query([("tile_size", "512")]))
    with pytest.raises(TooLarge, match="smaller ones"):
        tiles.reader.plan(larger, larger.grid.region(1, 0, 0))


BZ2 = {"id": "bz2", "level": 1}
BLOSC = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}


@pytest.mark.parametrize(("codec", "minzoom"), [(None, 0), (BLOSC, 0), (BZ2, 1)])
def test_what_deep_chunks_decode_is_bounded_and_the_coarsest_zoom_agrees(
    tmp_path: Path, tiles: Tiles, codec: object, minzoom: int
) -> None:
    """Of uncompressed and of Blosc chunks only a part is decoded."""
    write_empty(tmp_path / "a", (512, 4096, 4096), (512, 128, 128), codec)

    frame = tiles.frame(tiles.images.open("data/a"), parse_query([]))
    assert tiles.reader.minzoom(frame) == minzoom
    tiles.reader.plan(frame, frame.grid.region(minzoom, 0, 0))
    if minzoom:
        with pytest.raises(TooLarge, match=f"decoded.*: {1 << 33} bytes, the limit is {1 << 32}; .*from zoom 1 "):
            tiles.reader.plan(frame, frame.grid.region(0, 0, 0))


def test_at_full_size_four_times_as_much_may_be_decoded(tmp_path: Path) -> None:
    write_empty(tmp_path / "a", (4096, 600, 600), (1, 4096, 4096), BZ2)

    with tiles_on(tmp_path, max_bytes=1 << 26) as tiles:
        frame = tiles.frame(tiles.images.open("data/a"), parse_query([("axes", "d0,d2")]))
        assert tiles.reader.minzoom(frame) == frame.grid.maxzoom == 4
        tiles.reader.plan(frame, frame.grid.region(4, 0, 0))
        larger = tiles.frame(tiles.images.open("data/a"), parse_query([("axes", "d0,d2"), ("tile_size", "512")]))
        with pytest.raises(TooLarge, match="smaller ones"):
            tiles.reader.plan(larger, larger.grid.region(3, 0, 0))


def test_chunks_that_strips_cut_count_as_often_as_they_are_decoded(tmp_path: Path, tiles: Tiles) -> None:
    write_empty(tmp_path / "a", (8192, 8192), (8192, 1024), BZ2)

    frame = tiles.frame(tiles.images.open("data/a"), parse_query([]))
    assert ReadEstimate.of(frame, frame.grid.region(0, 0, 0))[0].decoded == 4 * 8192 * 8192


def test_a_chunk_that_is_decoded_whole_counts_as_memory_of_its_tile(tmp_path: Path, tiles: Tiles) -> None:
    write_empty(tmp_path / "a", (4096, 4096), (4096, 4096), BZ2)

    found = rendering(tiles, "data/a", parse_query([("rescale", "0,9")]), (4, 0, 0), "png")

    assert found.memory > 4096 * 4096


@pytest.mark.parametrize(
    ("shape", "chunks", "query", "read"),
    [
        ((256, 256), (64, 64), [], 256 * 256),
        ((256, 256), (64, 64), [("decode", "cf")], (1 + 8) * 256 * 256),
        ((16_000, 16_000), (250, 250), [], 64 << 20),
    ],
)
def test_the_memory_of_a_tile_is_what_is_read_at_once_and_its_pixels(
    tmp_path: Path, tiles: Tiles, shape: tuple[int, int], chunks: tuple[int, int], query: Query, read: int
) -> None:
    write_empty(tmp_path / "a", shape, chunks)
    (tmp_path / "a" / ".zattrs").write_text('{"scale_factor": 0.5}')

    found = rendering(tiles, "data/a", parse_query([("rescale", "0,9"), *query]), (0, 0, 0), "png")

    assert found.memory == read + 16 * (250**2 if shape[0] > 256 else 256**2)


def test_images_of_a_well_are_read_concurrently_as_far_as_their_chunks_fit(
    tmp_path: Path, tiles: Tiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_attributes(tmp_path / "a", {"well": {"version": "0.4", "images": [{"path": "0"}, {"path": "1"}]}})
    for name in "01":
        write_empty(tmp_path / "a" / name, (4096, 4096), (4096, 4096), BZ2)
        (tmp_path / "a" / name / "0.0").unlink()
    in_hand: list[int] = []
    each = WorkerPool.map

    def watched(*args: Any, nbytes: int = 0) -> Any:
        in_hand.append(nbytes)
        return each(*args, nbytes=nbytes)

    monkeypatch.setattr(WorkerPool, "map", watched)
    monkeypatch.setattr(WorkerPool, "max_helpers", lambda _, count, nbytes: min(count, 3) if nbytes else 9)

    frame = tiles.frame(tiles.images.open("data/a"), parse_query([]))
    plan = tiles.reader.plan(frame, frame.grid.region(0, 0, 0))
    assert plan.working_memory == 2 * plan.largest > 2 * 4096 * 4096
    in_hand.clear()
    tiles.reader.read(plan, as_labels=False, nodata=None, cancel=None, cost=ReadCost())
    assert in_hand == [plan.largest]
