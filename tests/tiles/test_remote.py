"""Pictures in a remote store: requests that do not depend on each other are sent at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import zarr

from hyperslab.errors import StoreDenied
from hyperslab.storage.base import Entry
from hyperslab.tiles.info import histogram_document, info_document
from hyperslab.tiles.service import TilePlace
from tests.tiles.remote import remote_tiles
from tests.tiles.support import parse_query, rendering, write_array, write_attributes, write_image

PLAIN = parse_query([])


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows are looked at again for every tile."""
    monkeypatch.setattr("hyperslab.tiles.statistics.SECONDS", 1e-9)


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype="<u2").reshape(shape)


def write_plate(folder: Path, there: Sequence[int], wells: int = 9) -> None:
    """A row of wells with an image each, some of which are there; the values of each are its number."""
    named = [{"path": f"A/{i}", "rowIndex": 0, "columnIndex": i} for i in range(wells)]
    columns = [{"name": str(i)} for i in range(wells)]
    write_attributes(folder, {"plate": {"version": "0.4", "rows": [{"name": "A"}], "columns": columns, "wells": named}})
    for i in there:
        write_well(folder, i)


def write_well(folder: Path, number: int) -> None:
    write_attributes(folder / "A" / str(number), {"well": {"version": "0.4", "images": [{"path": "0"}]}})
    write_image(folder / "A" / str(number) / "0", [np.full((8, 8), number, "<u2")], "yx")


def is_of_chunks(keys: Sequence[str]) -> bool:
    return not keys[0].rpartition("/")[2].startswith((".z", "zarr.json"))


def test_a_window_asks_for_the_versions_of_its_chunks_once(tmp_path: Path) -> None:
    write_array(tmp_path / "a", np.zeros((4096, 2048), "<u2"), (512, 512))

    with remote_tiles(tmp_path) as (tiles, store):
        found = histogram_document(tiles, tiles.images.open("data/a"), PLAIN)

    assert not found["exact"]
    assert [len(keys) for keys in store.lookups if is_of_chunks(keys)] == [16]


@pytest.mark.parametrize("denied", [False, True])
def test_what_is_stored_of_many_shards_takes_few_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, denied: bool
) -> None:
    """Of 512 shards one is there, with a single chunk; some buckets deny the list that would tell which."""
    array = zarr.create_array(
        tmp_path / "a", shape=(256, 1024, 1024), chunks=(8, 32, 32), shards=(32, 128, 128), dtype="u2", fill_value=0
    )
    array[200:204, 1000:1010, 900:910] = 700

    def deny(*_: object) -> Iterator[Entry]:
        raise StoreDenied("data", "list", "not allowed")

    with remote_tiles(tmp_path) as (tiles, store):
        if denied:
            monkeypatch.setattr(store, "list_prefix", deny)
        found = info_document(tiles, tiles.images.open("data/a"), PLAIN, "", "")

    assert found["rescale_auto"] == ([0, 1] if denied else [0, 700])
    assert 200 <= found["selection"]["d0"] < 204 or denied
    assert sum(map(len, store.lookups)) < 500


@pytest.mark.usefixtures("always")
def test_window_and_tile_are_checked_at_the_same_time(tmp_path: Path) -> None:
    write_array(tmp_path / "a", ramp(64, 64))

    with remote_tiles(tmp_path) as (tiles, store):
        image = tiles.images.open("data/a")
        place = TilePlace("data/a", 0, 0, 0, 256)
        before = tiles.picture(image, PLAIN, "png", place)
        store.forget()
        store.meet(2, lambda _: True)
        after = tiles.picture(image, PLAIN, "png", place)

    assert after.tag == before.tag
    assert len(store.lookups) == 2


@pytest.mark.usefixtures("always")
def test_a_window_that_changes_changes_the_tag_of_tiles_elsewhere(tmp_path: Path) -> None:
    """And is that of what is there now."""
    values = ramp(512, 512) % 100
    write_array(tmp_path / "a", values, (256, 256))

    with remote_tiles(tmp_path) as (tiles, _):
        before = rendering(tiles, "data/a", PLAIN, (1, 0, 0), "png")
        values[300:, 300:] += 5000
        write_array(tmp_path / "a" / "moved", values, (256, 256))
        (tmp_path / "a" / "moved" / "1.1").rename(tmp_path / "a" / "1.1")
        after = rendering(tiles, "data/a", PLAIN, (1, 0, 0), "png")

    assert after.tag != before.tag


def test_windows_of_remote_pictures_last_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperslab.tiles.statistics.SECONDS", 1e6)
    write_array(tmp_path / "a", ramp(64, 64))

    with remote_tiles(tmp_path) as (tiles, store):
        first = histogram_document(tiles, tiles.images.open("data/a"), PLAIN)
        store.forget()
        second = histogram_document(tiles, tiles.images.open("data/a"), PLAIN)

    assert first == second
    assert not any(is_of_chunks(keys) for keys in store.lookups)


def test_levels_are_opened_at_the_same_time(tmp_path: Path) -> None:
    write_image(tmp_path / "a", [ramp(64, 64), ramp(32, 32), ramp(16, 16)], "yx")

    with remote_tiles(tmp_path) as (tiles, store):
        store.meet(3, lambda keys: keys[0].endswith(".zarray") and keys[0].count("/") == 2)
        picture = tiles.images.open("data/a")

    assert len(picture.levels) == 3


def test_channels_have_their_windows_at_the_same_time(tmp_path: Path) -> None:
    write_image(tmp_path / "a", [ramp(3, 8, 8)], "cyx", chunks=(1, 8, 8))

    with remote_tiles(tmp_path) as (tiles, store):
        store.meet(3, is_of_chunks)
        found = info_document(tiles, tiles.images.open("data/a"), PLAIN, "http://host", "")

    assert [channel["window"]["start"] for channel in found["channels"]] == [0, 64, 128]


def test_a_plate_is_checked_by_one_look_up(tmp_path: Path) -> None:
    write_plate(tmp_path / "a", range(9))

    with remote_tiles(tmp_path) as (tiles, store):
        before = tiles.images.open("data/a")
        store.forget()
        after = tiles.images.open("data/a")

    assert after is before
    assert len(store.lookups) == 1
    assert not store.gets


def test_a_plate_is_like_its_first_image_as_soon_as_that_is_there(tmp_path: Path) -> None:
    write_plate(tmp_path / "a", [3, 4])

    with remote_tiles(tmp_path) as (tiles, _):
        before = tiles.images.open("data/a").levels[0].array.path
        write_well(tmp_path / "a", 0)
        after = tiles.images.open("data/a").levels[0].array.path

    assert (before, after) == ("data/a/A/3/0/0", "data/a/A/0/0/0")


def test_the_images_of_a_plate_that_may_be_there_are_looked_for_at_the_same_time(tmp_path: Path) -> None:
    write_plate(tmp_path / "a", [3])

    with remote_tiles(tmp_path) as (tiles, store):
        store.meet(7, lambda keys: keys[0] in {f"a/A/{i}/.zarray" for i in range(1, 8)})
        picture = tiles.images.open("data/a")

    assert picture.levels[0].array.path == "data/a/A/3/0/0"
