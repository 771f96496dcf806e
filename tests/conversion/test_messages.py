"""Who serves or streams files that are to be converted is told so, and which command does it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
import xarray as xr
import zarr

from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.service import build
from hyperslab.cli import run
from hyperslab.client.transfer import send_frames
from hyperslab.errors import BadBody
from hyperslab.storage import StoreConfig, open_store


def write(folder: Path, name: str) -> Path:
    path = folder / name
    match path.suffix:
        case ".tif":
            tifffile.imwrite(path, np.zeros((2, 9, 9), "u1"), ome=True, metadata={"axes": "CYX"})
        case ".npy":
            np.save(path, np.zeros(3))
        case _:
            engine = "h5netcdf" if path.suffix == ".h5" else "scipy"
            xr.Dataset({"a": ("x", [1, 2])}).to_netcdf(path, engine=engine)  # type: ignore[call-overload]
    return path


@pytest.mark.parametrize(("name", "kind"), [("a.tif", "TIFF"), ("a.nc", "NetCDF"), ("a.h5", "HDF5"), ("a.npy", "npy")])
def test_serving_a_file_names_the_command_that_converts_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    path = write(tmp_path, name)

    assert run(["serve", str(path)]) == 1

    said = capsys.readouterr().err
    assert kind in said
    assert f"hyperslab convert {path} {path.with_suffix('.zarr')}" in said


NAMES = {"TIFF": ["B.TIF", "b.tiff", "b.lsm"], "NetCDF": ["a.nc4"], "HDF5": ["a.h5", "a.HDF5"], "npy": ["a.npy"]}


@pytest.mark.parametrize("beside", [False, True])
def test_a_folder_of_files_says_what_converts_them(tmp_path: Path, beside: bool) -> None:
    for name in [name for names in NAMES.values() for name in names]:
        (tmp_path / name).write_bytes(b"")
    if beside:
        zarr.create_array(tmp_path / "a.zarr", data=np.zeros(3))
    service = build([MountedStore("files", open_store(StoreConfig("files", str(tmp_path))))])

    page = service.catalog.children(service.catalog.open_group("files"), limit=10)

    assert [node.name for node in page.nodes] == ["a.zarr"] * beside
    assert sorted(page.problems) == sorted(
        f"'{min(names)}' is not served: hyperslab convert makes Zarr of files of {kind}"
        for kind, names in NAMES.items()
    )
    service.close()


def test_a_stream_does_not_take_channels_for_time(tmp_path: Path) -> None:
    with pytest.raises(BadBody, match="hyperslab convert"):
        send_frames("http://127.0.0.1:1/v1/stream/a/b", write(tmp_path, "a.tif"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--chunks", "1,x"], 2, "--chunks is sizes"),
        (["--memory", "much"], 2, "--memory is a size"),
        (["--zarr-format", "4"], 2, "--zarr-format is 2 or 3"),
        (["--compressor", "{"], 2, "--compressor is a name or JSON"),
        (["--compressor", "zipp"], 1, "zipp"),
        (["--axes", "tyx"], 0, "hyperslab serve"),
        (["--axes", "ab"], 2, "--axes"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4)))

    assert run(["convert", str(tmp_path / "a.npy"), str(tmp_path / "out"), *arguments]) == code

    printed = capsys.readouterr()
    assert said in printed.out + printed.err
    assert len(printed.err.splitlines()) <= 1


@pytest.mark.parametrize(
    ("shape", "name", "code", "said"),
    [
        ((2, 3, 4), "out.nc", 2, "say --axes, such as --axes 'zyx'"),
        ((2, 3, 4), "out.ome.tif", 2, "say --axes, such as --axes 'zyx'"),
        ((3,), "out.nc", 1, "axes without names"),
        ((3,), "out.ome.tif", 1, "two to five axes"),
    ],
)
def test_a_file_that_needs_names_of_axes_asks_for_them_where_they_can_be_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shape: tuple[int, ...], name: str, code: int, said: str
) -> None:
    np.save(tmp_path / "a.npy", np.zeros(shape))

    assert run(["convert", str(tmp_path / "a.npy"), str(tmp_path / name)]) == code

    assert said in capsys.readouterr().err
