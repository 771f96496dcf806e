"""The demo store is what it says: read back by the libraries whose format it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import xarray
import yaozarrs
import zarr
from numcodecs import blosc

from hyperslab import demo
from hyperslab.demo import brain, climate, tables

MB = 1_000_000


@pytest.fixture
def store(demo_store: Path) -> Path:
    return demo_store


def read(folder: Path) -> Any:
    return zarr.open_array(folder, mode="r", zarr_format=2)[...]


def test_the_demo_has_a_few_tens_of_megabytes(store: Path) -> None:
    size = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())

    assert 20 * MB < size < 80 * MB


def test_a_corner_of_the_microscope_is_stored_in_shards(store: Path) -> None:
    sharded: Any = zarr.open_array(store / "sharded" / "0", mode="r", zarr_format=3)

    assert (sharded.shards, sharded.chunks) == ((1, 16, 192, 192), (1, 4, 96, 96))
    np.testing.assert_array_equal(sharded[...], read(store / "microscope" / "0")[:, :, :384, :384])


def test_climate_is_the_same_each_time_it_is_made(store: Path) -> None:
    """As are the others: the recorded answers of the HTTP interface tell their values."""
    cube = climate.cube()

    np.testing.assert_array_equal(read(store / "climate" / "sst"), cube["sst"])
    np.testing.assert_array_equal(read(store / "climate" / "land"), cube["land"])


def test_signal_texts_and_the_scalar_read_back(store: Path) -> None:
    np.testing.assert_array_equal(read(store / "signal"), tables.signal())
    assert read(store / "stations").tolist() == list(tables.STATIONS)
    assert read(store / "speed_of_light") == 299_792_458.0


@pytest.mark.parametrize("field", ["time", "id", "energy", "x", "y", "z"])
def test_each_field_of_the_table_reads_back(store: Path, field: str) -> None:
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{store / 'events'}/"}, "field": field}
    values = tensorstore.open(spec, read=True).result().read().result()
    expected = tables.events()[field]

    np.testing.assert_array_equal(values, expected)


@pytest.mark.filterwarnings("ignore:Object at sharded")  # which is of Zarr v3
def test_zarr_python_finds_every_node(store: Path) -> None:
    nodes = {name for name, _ in zarr.open_group(store, mode="r", zarr_format=2).members(max_depth=None)}

    assert {"brain", "climate/sst", "events", "microscope/labels/nuclei/3", "speed_of_light", "stations"} <= nodes


def test_the_table_is_stored_as_numpy_holds_it(store: Path) -> None:
    chunk = np.frombuffer(blosc.decompress((store / "events" / "0").read_bytes()), tables.EVENT)

    np.testing.assert_array_equal(chunk, tables.events()[: len(chunk)])


def test_a_corner_of_the_brain_that_is_empty_is_not_stored(store: Path) -> None:
    assert not (store / "brain" / "3.3.0").exists()
    assert (store / "brain" / "0.1.1").exists()


def test_the_brain_has_ventricles_that_end_in_white_matter_and_a_scalp(store: Path) -> None:
    plane = read(store / "brain")[29]
    places = {brain.CSF: [(240, 235), (240, 285)], brain.SCALP: [(240, 60)], 0.0: [(30, 60), (480, 435)]}
    places[brain.WHITE] = [(240, 135), (240, 360), (180, 235), (330, 235)]

    for tissue, middles in places.items():
        found = [np.median(plane[y - 3 : y + 4, x - 3 : x + 4]) for y, x in middles]
        assert found == pytest.approx([tissue] * len(middles), rel=0.12)


def test_tensorstore_opens_the_brain(store: Path) -> None:
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{store / 'brain'}/"}}
    array = tensorstore.open(spec, read=True).result()

    assert array.schema.chunk_layout.read_chunk.shape == (16, 128, 128)
    np.testing.assert_array_equal(array[31].read().result(), read(store / "brain")[31])


@pytest.mark.parametrize("node", ["microscope", "microscope/labels/nuclei", "sharded"])
def test_image_and_labels_are_valid_ome_zarr(store: Path, node: str) -> None:
    yaozarrs.validate_zarr_store(str(store / node))


def test_each_level_halves_the_plane_and_keeps_the_depth(store: Path) -> None:
    shapes = [zarr.open_array(store / "microscope" / str(level), mode="r").shape for level in range(4)]

    assert shapes == [(3, 16, 768 >> level, 1024 >> level) for level in range(4)]


def test_every_chunk_of_the_image_is_stored(store: Path) -> None:
    chunks = [path for path in (store / "microscope" / "0").rglob("*") if path.name.isdecimal() and path.is_file()]

    assert len(chunks) == 3 * 16 * 3 * 4


def test_xarray_opens_the_climate_with_its_coordinates(store: Path) -> None:
    with xarray.open_zarr(store / "climate", consolidated=True, chunks=None) as dataset:
        assert dataset.sst.dims == ("time", "lat", "lon")
        assert str(dataset.time.values[0]) == "2023-01-01T00:00:00.000000000"
        assert bool((dataset.sst.isnull().any("time") == dataset.land).all())
        assert 20 < float(dataset.sst.sel(lat=0, method="nearest").mean()) < 35


def test_the_second_call_finds_what_the_first_has_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []
    monkeypatch.setattr(demo, "write_demo", calls.append)

    assert demo.make_demo(tmp_path / "cache") == demo.make_demo(tmp_path / "cache")
    assert len(calls) == 1


def test_a_demo_store_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(root: Path) -> None:
        (root / "half").write_bytes(b"")
        raise OSError("no space left")

    monkeypatch.setattr(demo, "write_demo", fail)

    with pytest.raises(OSError, match="no space left"):
        demo.make_demo(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_whoever_comes_second_takes_what_the_first_has_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def be_overtaken(root: Path) -> None:
        (root / "mine").write_bytes(b"")
        demo.demo_folder(tmp_path).mkdir()
        (demo.demo_folder(tmp_path) / "theirs").write_bytes(b"")

    monkeypatch.setattr(demo, "write_demo", be_overtaken)

    folder = demo.make_demo(tmp_path)

    assert [path.name for path in folder.iterdir()] == ["theirs"]
    assert list(tmp_path.iterdir()) == [folder]
