"""NetCDF and HDF5 become groups that xarray opens equal to the file, with no attribute of ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperslab.conversion import CannotConvert, convert

EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "10"))
DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "S1", "S3"]
CLASSIC = ["i1", "i2", "i4", "f4", "f8", "S1"]


@st.composite
def variables(draw: st.DrawFn, *, classic: bool) -> dict[str, Any]:
    """A variable: its dtype, dimensions, packing, missing values and chunks."""
    dtype = np.dtype(draw(st.sampled_from(CLASSIC if classic else DTYPES)))
    dims = draw(st.sampled_from([(), ("x",), ("time", "x"), ("time", "y", "x"), ("x", "y")]))
    found: dict[str, Any] = {"dtype": dtype, "dims": dims, "attributes": {}, "missing": None, "chunks": None}
    if dtype.kind in "iuf":
        last = dtype.type("nan") if dtype.kind == "f" else np.iinfo(str(dtype)).max
        missing = [None, dtype.type(7), dtype.type(0), last]
        found["missing"] = draw(st.sampled_from(missing))
    packed: list[dict[str, Any]] = [{}, {"scale_factor": 0.5}, {"scale_factor": 0.25, "add_offset": 3.0}]
    packed += [{"flag_values": np.array([0, 1], dtype), "flag_meanings": "no yes"}, {"add_offset": -1.5}]
    packed += [{"missing_value": found["missing"]}] if found["missing"] is not None else []
    packed += [{"_Unsigned": "true"}] if dtype.kind == "i" and found["missing"] is None else []
    if dtype.kind in "iu":
        found["attributes"] = draw(st.sampled_from(packed))
    if dtype.kind == "f":
        ranges = {"units": "K", "valid_range": np.array([0, 5], dtype)}
        found["attributes"] = draw(st.sampled_from([{}, ranges, {"units": ""}, {"scale_factor": 2.0}]))
    if dims and not classic and dtype.kind != "S":
        found["chunks"] = draw(st.sampled_from([None, tuple([2] * len(dims))]))
    return found


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    form = draw(st.sampled_from(["NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET"]))
    one = variables(classic=form != "NETCDF4")
    found: dict[str, Any] = {"form": form, "variables": draw(st.lists(one, min_size=1, max_size=4))}
    found["calendar"] = draw(st.sampled_from(["standard", "proleptic_gregorian", "noleap", "360_day", "julian"]))
    found["units"] = draw(st.sampled_from(["days", "hours", "seconds"])) + " since 2001-01-01"
    found["sizes"] = {
        "time": draw(st.sampled_from([5, 1]) if found["calendar"][0] in "nj3" else st.sampled_from([5, 0])),
        "y": 3,
        "x": draw(st.integers(2, 9)),
    }
    return found


def write(
    path: Path, form: Any, variables: list[dict[str, Any]], calendar: str, units: str, sizes: dict[str, int]
) -> None:
    random = np.random.default_rng(len(variables))
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.setncatts({"title": "é", "numbers": np.array([1, 2], "i4"), "half": np.float32(0.5), "nothing": np.nan})
        file.setncatts({"empty": "", "one": np.array([3], "i2"), "json": '{"a": [1]}', "lines": "a\nb"})
        for name, size in sizes.items():
            file.createDimension(name, None if name == "time" else size)
        time = file.createVariable("time", "f8", ("time",))
        time.setncatts({"units": units, "calendar": calendar, "standard_name": "time"})
        time[:] = np.arange(sizes["time"])
        for number, each in enumerate(variables):
            options: dict[str, Any] = {"zlib": True} if each["chunks"] else {}
            variable: Any = file.createVariable(
                f"v{number}",
                each["dtype"],
                each["dims"],
                fill_value=each["missing"],
                chunksizes=each["chunks"],
                **options,
            )
            variable.set_auto_maskandscale(False)
            variable.setncatts({"long_name": f"variable {number}", **each["attributes"]})
            if 0 not in (shape := [sizes[name] for name in each["dims"]]):
                variable[...] = random.integers(0, 9, shape).astype(each["dtype"])
        if form == "NETCDF4":
            names = file.createVariable("names", str, ("y",))
            names[:] = np.array(["", "é", "long text"], object)


@settings(max_examples=EXAMPLES)
@given(file=files(), zarr_format=st.sampled_from([2, 3]))
def test_xarray_opens_the_group_equal_to_the_file_and_the_file_that_is_made_of_it(
    tmp_path_factory: pytest.TempPathFactory, file: dict[str, Any], zarr_format: Any
) -> None:
    folder = tmp_path_factory.mktemp("dataset")
    write(folder / "a.nc", **file)

    convert(str(folder / "a.nc"), str(folder / "a.zarr"), zarr_format=zarr_format)
    convert(str(folder / "a.zarr"), str(folder / "b.nc"))

    with (
        xr.open_dataset(folder / "a.nc", engine="netcdf4") as expected,
        xr.open_dataset(folder / "a.zarr", engine="zarr") as found,
        xr.open_dataset(folder / "b.nc", engine="netcdf4") as again,
    ):
        for each in (found, again):
            xr.testing.assert_identical(each.load(), expected.load())
            for name, variable in expected.variables.items():
                own = each.variables[name]
                assert own.dtype == variable.dtype, name
                for key in ("units", "calendar", "scale_factor", "add_offset", "_FillValue"):
                    np.testing.assert_equal(own.encoding.get(key), variable.encoding.get(key))


def test_groups_of_a_file_become_groups(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 4)
        file.createVariable("a", "i4", ("x",))[:] = [1, 2, 3, 4]
        inner = file.createGroup("forecast/day")
        inner.createDimension("y", 2)
        inner.setncattr("model", "m")
        inner.createVariable("b", "f8", ("y", "x"))[:] = np.arange(8).reshape(2, 4)

    convert(str(tmp_path / "a.nc"), str(tmp_path / "a.zarr"))

    with (
        xr.open_datatree(tmp_path / "a.nc", engine="netcdf4") as expected,
        xr.open_datatree(tmp_path / "a.zarr", engine="zarr") as found,
    ):
        xr.testing.assert_identical(found.load(), expected.load())


def test_hdf5_without_names_of_dimensions_is_converted_as_xarray_opens_it(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["image"] = np.arange(6, dtype=">i2").reshape(2, 3)
        file["notes"] = ["one", "more"]
        file["table"] = np.array([(1, 2.5)], np.dtype([("a", "i4"), ("b", "f8")], align=True))
        file["image"].attrs["unit"] = "m"

    convert(str(tmp_path / "a.h5"), str(tmp_path / "a.zarr"))

    with (
        xr.open_dataset(tmp_path / "a.h5", engine="h5netcdf", phony_dims="access") as expected,
        xr.open_dataset(tmp_path / "a.zarr", engine="zarr") as found,
    ):
        for name in ("image", "notes", "table"):
            np.testing.assert_array_equal(found[name], expected[name])
            assert found[name].dims == expected[name].dims
        assert found["image"].attrs == {"unit": "m"}


def test_what_zarr_has_no_arrays_of_is_left_out_with_a_note(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = np.arange(3)
        file["a"].attrs["_FillValue"] = "none"
        file["b"] = np.array([44, 1], "u1")
        file["b"].attrs["_FillValue"] = 300
        file["ascii"] = np.array(["x", "yy"], h5py.string_dtype("ascii"))
        file["references"] = np.array([file["a"].ref], h5py.ref_dtype)
        file["nothing"] = h5py.Empty("f4")
        file.create_dataset("pairs", (2,), np.dtype(("i4", (2,))))
        file.create_dataset("kinds", (2,), h5py.enum_dtype({"LAND": 0, "SEA": 1}, "u1"))
        file.attrs["complex"] = 1j
        file.attrs["bytes"] = np.array([b"a", b"b"])

    made = convert(str(tmp_path / "a.h5"), str(tmp_path / "a.zarr"))

    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert sorted(group.array_keys()) == ["a", "ascii", "b", "kinds"]
    assert "_FillValue" not in group["b"].attrs
    assert np.asarray(group["ascii"][...]).tolist() == ["x", "yy"]  # type: ignore[index]
    assert group.attrs.asdict() == {"bytes": ["a", "b"]}
    said = "\n".join(made.lines)
    for part in (
        "/references",
        "/nothing",
        "/pairs",
        "'SEA': 1",
        "'complex' of /",
        "'_FillValue' of /a",
        "'_FillValue' of /b",
    ):
        assert part in said


@pytest.mark.parametrize("kind", ["references", "lists", "cut short", "classic, cut short", "text", "CDF-5"])
def test_what_cannot_be_converted_is_said_in_one_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        if kind == "references":
            file["refs"] = np.array([file.ref], h5py.ref_dtype)
        else:
            file["a"] = np.arange(1000)
        if kind == "lists":
            file.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))[0] = [1, 2]
    if kind.startswith("classic"):
        xr.Dataset({"a": ("x", np.arange(1000.0))}).to_netcdf(path, engine="scipy")
    if kind.endswith("cut short"):
        path.write_bytes(path.read_bytes()[:3000])
    if kind == "text":
        path.write_text("not a file of HDF5")
    if kind == "CDF-5":
        path.write_bytes(b"CDF\5" + bytes(100))

    with pytest.raises(CannotConvert) as raised:
        convert(str(path), str(tmp_path / "out"))

    assert "a.h5" in str(raised.value)
    assert kind != "CDF-5" or "nccopy -k nc4" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()
