"""Services and buckets as source and destination, levels that are added, files that are written, and clusters."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr

from hyperslab.conversion import CannotConvert, convert, pyramid, rechunk
from hyperslab.streams.pyramid import reduce
from tests.s3 import S3Bucket
from tests.server import running_server


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A writable store of a service: its folder and URL."""
    folder = tmp_path_factory.mktemp("lab")
    with running_server({"lab": {"url": str(folder), "writable": True}}) as server:
        yield folder, f"{server.url}/v1/metadata/lab"


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    """An OME-TIFF of two named channels and three planes."""
    values = np.random.default_rng(1).integers(0, 999, (2, 3, 70, 83), dtype="u2")
    metadata = {"axes": "CZYX", "Channel": {"Name": ["a", "b"]}, "PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm"}
    tifffile.imwrite(tmp_path / "cells.ome.tif", values, metadata=metadata, photometric="minisblack")
    return tmp_path / "cells.ome.tif"


@pytest.fixture
def climate(tmp_path: Path) -> Path:
    """A NetCDF file with packed values, text and a calendar."""
    dataset = xr.Dataset(
        {
            "t": (("time", "x"), np.arange(12.0).reshape(3, 4), {"units": "K"}),
            "packed": (("x",), np.array([1, np.nan, 3, 4.5])),
            "name": (("x",), np.array(["", "é", "b", "long"], object)),
        },
        coords={"time": xr.date_range("2000-02-28", periods=3, calendar="noleap", use_cftime=True), "x": [1, 2, 3, 4]},
        attrs={"title": "é"},
    )
    packing = {"packed": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9}}
    dataset.to_netcdf(tmp_path / "climate.nc", engine="h5netcdf", encoding=packing)
    return tmp_path / "climate.nc"


def same_arrays(one: Path, other: Path) -> None:
    a, b = (zarr.open_group(path, mode="r") for path in (one, other))
    assert {name for name, _ in a.members(None)} == {name for name, _ in b.members(None)}
    for name, array in a.arrays():
        np.testing.assert_array_equal(array[...], b[name][...])  # type: ignore[index]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_image_on_a_service_is_what_it_is_in_a_folder(lab: Any, cells: Path, zarr_format: Any) -> None:
    folder, url = lab
    options: dict[str, Any] = {"chunks": (16, 16), "zarr_format": zarr_format, "shards": False}
    convert(str(cells), f"{url}/cells{zarr_format}", **options)
    convert(str(cells), str(cells.parent / "local"), **options)

    same_arrays(folder / f"cells{zarr_format}", cells.parent / "local")
    attributes = zarr.open_group(folder / f"cells{zarr_format}", mode="r").attrs.asdict()
    assert attributes == zarr.open_group(cells.parent / "local", mode="r").attrs.asdict()
    with pytest.raises(CannotConvert, match="exists"):
        convert(str(cells), f"{url}/cells{zarr_format}", **options)
    rechunk(f"{url}/cells{zarr_format}", str(cells.parent / "back"), chunks=(40, 40), shards=True)
    same_arrays(cells.parent / "back", cells.parent / "local")
    assert zarr.open_array(cells.parent / "back" / "0", mode="r").chunks == (1, 1, 40, 40)


def test_a_dataset_goes_to_a_service_and_back_and_becomes_a_file_again(lab: Any, climate: Path) -> None:
    with netCDF4.Dataset(climate, "a") as file:
        file["t"].missing_value = np.nan
        inner = file.createGroup("forecast/day")
        inner.setncattr("limit", np.inf)
        inner.createDimension("x", 2)  # another one than that of the file
        inner.createVariable("b", "f4", ("x",), fill_value=False)[:] = [1, np.nan]
        inner.createVariable("crs", "i4", ())
    folder, url = lab
    back, again = climate.parent / "back", climate.parent / "again.nc"
    convert(str(climate), f"{url}/climate")
    convert(f"{url}/climate", str(back), zarr_format=2)
    convert(str(back), str(again))

    for group in ("", "forecast/day"):
        with xr.open_dataset(climate, engine="h5netcdf", group=group) as expected:
            for path, options in ((folder / "climate", {"consolidated": False}), (back, {})):
                with xr.open_dataset(path, engine="zarr", group=group, **options) as found:  # type: ignore[arg-type]
                    xr.testing.assert_identical(found.load(), expected.load())
            with xr.open_dataset(again, engine="h5netcdf", group=group) as found:
                xr.testing.assert_identical(found.load(), expected.load())
                for name, variable in expected.variables.items():
                    assert ("_FillValue" in found[name].encoding) == ("_FillValue" in variable.encoding), name


def test_one_array_of_a_dataset_becomes_a_file_and_has_its_name(climate: Path) -> None:
    convert(str(climate), str(climate.parent / "group"))
    with pytest.raises(CannotConvert, match="name one, such as GROUP/t"):
        convert(str(climate), str(climate.parent / "t.npy"))
    for suffix in ("npy", "nc"):
        convert(str(climate.parent / "group" / "t"), str(climate.parent / f"t.{suffix}"))
    with pytest.raises(CannotConvert, match="files of several kinds"):
        convert(str(climate.parent), str(climate.parent / "other"))

    assert np.load(climate.parent / "t.npy").shape == (3, 4)
    with xr.open_dataset(climate.parent / "t.nc", engine="h5netcdf") as found:
        assert dict(found.sizes) == {"time": 3, "x": 4}
        assert [*found] == ["t"]


def test_an_image_in_a_bucket(s3_bucket: S3Bucket, cells: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("access_key_id", "secret_access_key", "region"):
        monkeypatch.setenv(f"AWS_{name.upper()}", s3_bucket.options[name])
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_bucket.options["endpoint"])
    convert(str(cells), f"{s3_bucket.url}/cells", chunks=(16, 16))
    convert(f"{s3_bucket.url}/cells", str(cells.parent / "back"))
    convert(str(cells), str(cells.parent / "local"), chunks=(16, 16))

    same_arrays(cells.parent / "back", cells.parent / "local")


def test_an_image_becomes_an_ome_tiff_again(cells: Path) -> None:
    convert(str(cells), str(cells.parent / "image"), chunks=(16, 16))
    convert(str(cells.parent / "image"), str(cells.parent / "again.ome.tif"))
    convert(str(cells.parent / "again.ome.tif"), str(cells.parent / "twice"), chunks=(16, 16))
    convert(str(cells.parent / "image"), str(cells.parent / "cells.npy"))

    same_arrays(cells.parent / "image", cells.parent / "twice")
    first, second = (zarr.open_group(cells.parent / name, mode="r").attrs["ome"] for name in ("image", "twice"))
    assert first == second
    np.testing.assert_array_equal(np.load(cells.parent / "cells.npy"), tifffile.imread(cells))


def test_an_image_becomes_a_pyramid_of_tiff_a_dataset_and_no_other_file(cells: Path) -> None:
    values = tifffile.imread(cells)[:, :1]
    tifffile.imwrite(cells, values, metadata={"axes": "CZYX", "Channel": {"Name": ["a", "b"]}, "PhysicalSizeX": 0.5})
    folder = cells.parent
    convert(str(cells), str(folder / "image"), chunks=(16, 16))
    for name in ("image.ome.tif", "image.nc"):
        convert(str(folder / "image"), str(folder / name))

    group = zarr.open_group(folder / "image", mode="r")
    with tifffile.TiffFile(folder / "image.ome.tif") as file:
        levels = file.series[0].levels
        assert len(levels) == len([*group.arrays()]) > 2
        for number, level in enumerate(levels):
            np.testing.assert_array_equal(level.asarray(), group[str(number)][...])  # type: ignore[index]
    with xr.open_dataset(folder / "image.nc", engine="h5netcdf") as found:
        assert found.x[1] == 0.5
        assert [*found.c.values] == ["a", "b"]
        np.testing.assert_array_equal(found["Image0"], values[:, 0])
    for name, said in (("a.h5", "are written"), ("s3://b/a.nc", "bucket takes Zarr"), ("image.nc", "exists")):
        with pytest.raises(CannotConvert, match=said):
            convert(str(folder / "image"), name if ":" in name else str(folder / name))
    with pytest.raises(CannotConvert, match="those of Zarr"):
        convert(str(folder / "image"), str(folder / "a.nc"), shards=True)


def test_what_a_file_cannot_hold_is_said_and_leaves_none(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("z", data=np.array([1j]), dimension_names=["x"])
    group.create_array("n", data=np.arange(4), dimension_names=["x"])  # another x

    with pytest.raises(CannotConvert, match=r"a\.nc cannot hold it"):
        convert(str(tmp_path / "a.zarr"), str(tmp_path / "a.nc"))

    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]


@pytest.mark.parametrize("method", ["mean", "min", "max", "mode", "nearest", "decimate"])
def test_levels_are_added_to_an_array(tmp_path: Path, method: str) -> None:
    values = np.random.default_rng(2).integers(0, 5, (3, 50, 61), "u1")
    np.save(tmp_path / "a.npy", values)
    zarr.create_group(tmp_path / "image", attributes={"note": "kept"})
    convert(str(tmp_path / "a.npy"), str(tmp_path / "image" / "0"), chunks=(1, 16, 16))

    pyramid(str(tmp_path / "image" / "0"), axes="tyx", method=method)

    group = zarr.open_group(tmp_path / "image", mode="r")
    document: Any = group.attrs["ome"]
    assert group.attrs["note"] == "kept"
    assert [each["path"] for each in document["multiscales"][0]["datasets"]] == ["0", "1", "2"]
    for level in ("1", "2"):
        values = reduce(values, method, (1, 2))
        np.testing.assert_array_equal(group[level][...], values)  # type: ignore[index]
    assert pyramid(str(tmp_path / "image")).lines == ("it has all levels",)


def test_levels_are_added_to_an_image_of_a_service(lab: Any) -> None:
    folder, url = lab
    values = np.random.default_rng(2).integers(0, 999, (40, 50), "u2")
    image = zarr.create_group(folder / "flat", zarr_format=2)
    image.create_array("0", data=values, chunks=(16, 16), chunk_key_encoding={"name": "v2", "separator": "/"})
    place: Any = [{"type": "scale", "scale": [0.5, 0.25]}]
    axes: Any = [{"name": name, "type": "space", "unit": "micrometer"} for name in "yx"]
    image.attrs["multiscales"] = [
        {"version": "0.4", "name": "i", "axes": axes, "datasets": [{"path": "0", "coordinateTransformations": place}]}
    ]

    pyramid(f"{url}/flat")

    group = zarr.open_group(folder / "flat", mode="r")
    scales: Any = group.attrs["multiscales"]
    assert [each["coordinateTransformations"][0]["scale"] for each in scales[0]["datasets"]] == [
        [0.5, 0.25],
        [1.0, 0.5],
        [2.0, 1.0],
    ]
    np.testing.assert_array_equal(group["1"][...], reduce(values, "mean", (0, 1)))  # type: ignore[index]


def test_a_killed_worker_of_a_cluster_costs_its_tasks_alone(cells: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    killed: list[int] = []
    with distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as cluster:

        def kill(done: int, _: int) -> None:
            if done and not killed:
                killed.append(next(iter(cluster.workers.values())).process.process._process.pid)
                os.kill(killed[0], signal.SIGKILL)

        convert(str(cells), str(tmp_path / "out"), chunks=(16, 16), scheduler=cluster.scheduler_address, progress=kill)
    convert(str(cells), str(tmp_path / "local"), chunks=(16, 16))

    assert killed
    same_arrays(tmp_path / "out", tmp_path / "local")


def test_a_cluster_that_goes_away_leaves_what_the_next_run_goes_on_with(cells: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:

        def stop(done: int, _: int) -> None:
            if done:
                cluster.close()

        options: Any = {"scheduler": cluster.scheduler_address, "progress": stop}
        with pytest.raises(CannotConvert, match=r"is gone .*run the command again"):
            convert(str(cells), str(tmp_path / "out"), chunks=(16, 16), **options)
    assert not [*(tmp_path / "out").rglob("zarr.json")]

    convert(str(cells), str(tmp_path / "out"), chunks=(16, 16))
    convert(str(cells), str(tmp_path / "local"), chunks=(16, 16))

    same_arrays(tmp_path / "out", tmp_path / "local")


def test_a_cluster_that_is_not_there_is_said(cells: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("Timed out")

    monkeypatch.setattr(distributed, "Client", refuse)
    with pytest.raises(CannotConvert, match="no scheduler can be reached"):
        convert(str(cells), str(tmp_path / "out"), scheduler="tcp://127.0.0.1:1")

    assert not (tmp_path / "out" / "zarr.json").exists()
