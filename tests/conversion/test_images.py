"""TIFFs of every kind become images of OME-Zarr with the same values and metadata, and a pyramid."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import xarray
import yaozarrs
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from hyperslab.conversion import CannotConvert, Undetermined, convert
from hyperslab.conversion.model import packed
from hyperslab.streams.pyramid import reduce

EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "10"))
AXES = ["yx", "zyx", "tyx", "cyx", "tczyx", "tcyx", "czyx", "tzyx"]
DTYPES = ["u1", "i1", "<u2", ">u2", "i2", "u4", "i4", "f4", ">f8"]
UNITS = {"µm": "micrometer", "nm": "nanometer", "mm": "millimeter", "Å": "angstrom", "pm": "picometer"}
ORDERS = {"ome": "tczyx", "plain": "tczyx", "imagej": "tzcyx"}


@st.composite
def pictures(draw: st.DrawFn) -> dict[str, Any]:
    """A TIFF to be written: its kind, axes, values, and how it is stored."""
    kind = draw(st.sampled_from(["ome", "plain", "imagej"]))
    axes = "".join(sorted(draw(st.sampled_from(AXES)), key=ORDERS[kind].index))
    if kind == "ome":
        axes = "".join([*draw(st.permutations(axes[:-2])), "yx"])
    shape = [draw(st.integers(2, 3) if name in "tcz" else st.integers(2, 40)) for name in axes]
    dtype = np.dtype(draw(st.sampled_from(["u1", "<u2", "f4"] if kind == "imagej" else DTYPES)))
    layout: dict[str, Any] = draw(st.sampled_from([{}, {"rowsperstrip": 7}, {"tile": (16, 16)}, {"tile": (16, 32)}]))
    codecs = [{}, {"compression": "zlib"}, {"compression": "lzw", "predictor": True}, {"compression": "packbits"}]
    packed: dict[str, Any] = draw(st.sampled_from([*codecs, {"compression": "zstd"}]))
    written: dict[str, Any] = draw(st.sampled_from([{}, {"byteorder": ">"}, {"bigtiff": True}]))
    stored: dict[str, Any] = {} if kind == "imagej" else {**layout, **packed, **written}
    values = np.random.default_rng(draw(st.integers(0, 9))).integers(0, 250, shape).astype(dtype)
    sizes = [(draw(st.sampled_from([0.25, 1.0, 1e-3, 250])), draw(st.sampled_from([*UNITS]))) for _ in "xyz"]
    return {"kind": kind, "axes": axes, "values": values, "stored": stored, "sizes": sizes}


def write(
    path: Path, kind: str, axes: str, values: np.ndarray, stored: dict[str, Any], sizes: list[tuple[float, str]]
) -> dict[str, tuple[float, Any]]:
    """Write the TIFF, and return scales and units by axis."""
    metadata: dict[str, Any] = {"axes": axes.upper()}
    expected: dict[str, tuple[float, Any]] = {}
    if kind == "ome":
        metadata |= {"TimeIncrement": 0.5, "TimeIncrementUnit": "min", "Description": "60x <oil> & more"}
        expected = {"t": (0.5, "minute")}
        for name, (size, unit) in zip("xyz", sizes, strict=True):
            metadata |= {f"PhysicalSize{name.upper()}": size, f"PhysicalSize{name.upper()}Unit": unit}
            expected[name] = size, UNITS[unit]
        if "c" in axes:
            names = [f"dye {number}" for number in range(values.shape[axes.index("c")])]
            metadata["Channel"] = {"Name": names, "Color": [-16776961, 16711935, 65535][: len(names)]}
    if kind == "imagej":
        metadata |= {"unit": "um", "spacing": 3.0, "finterval": 2.0}
        stored = {"resolution": (4.0, 2.0), **stored}
        expected = {"x": (0.25, "micrometer"), "y": (0.5, "micrometer")}
        expected |= {"z": (3.0, "micrometer"), "t": (2.0, "second")}
    if kind == "plain":
        stored = {"description": "60x oil", **stored}
    stored = {"ome": kind == "ome", "imagej": kind == "imagej", "photometric": "minisblack", **stored}
    tifffile.imwrite(path, values, metadata=metadata, **stored)
    return expected


@settings(max_examples=EXAMPLES)
@given(picture=pictures(), zarr_format=st.sampled_from([2, 3]), shards=st.sampled_from([None, True]))
def test_an_image_has_the_values_and_metadata_of_its_tiff_and_so_has_the_tiff_that_is_made_of_it(
    tmp_path_factory: pytest.TempPathFactory, picture: dict[str, Any], zarr_format: Any, shards: Any
) -> None:
    folder = tmp_path_factory.mktemp("image")
    expected = write(folder / "image.tif", **picture)

    convert(
        str(folder / "image.tif"), str(folder / "image.zarr"), chunks=(16, 16), zarr_format=zarr_format, shards=shards
    )

    group = zarr.open_group(folder / "image.zarr", mode="r")
    names = [name for name in "tczyx" if name in picture["axes"]]
    values = picture["values"].transpose([picture["axes"].index(name) for name in names])
    document: Any = yaozarrs.open_group(folder / "image.zarr").ome_metadata()
    scales = document.multiscales[0]
    assert [axis.name for axis in scales.axes] == names
    sizes = scales.datasets[0].coordinateTransformations[0].scale
    assert {
        name: (size, axis.unit) for name, size, axis in zip(names, sizes, scales.axes, strict=True) if axis.unit
    } == {name: found for name, found in expected.items() if name in names}
    if picture["kind"] == "ome" and "c" in names:
        labels = [(channel.label, channel.color) for channel in document.omero.channels]
        assert labels == [(f"dye {n}", color) for n, color in enumerate(["FF0000", "00FF00", "0000FF"][: len(labels)])]
    described = {"ome": ("ome_xml", {"Description": "60x <oil> & more"})}
    described["plain"] = "tiff", {"ImageDescription": "60x oil"}
    if picture["kind"] != "imagej":
        assert group.attrs[described[picture["kind"]][0]] == described[picture["kind"]][1]
    convert(str(folder / "image.zarr"), str(folder / "again.ome.tif"))
    convert(str(folder / "again.ome.tif"), str(folder / "again.zarr"), zarr_format=zarr_format)
    np.testing.assert_array_equal(tifffile.imread(folder / "again.ome.tif"), values, strict=False)
    again: Any = yaozarrs.open_group(folder / "again.zarr").ome_metadata()
    assert again.multiscales[0].axes == scales.axes
    assert again.multiscales[0].datasets[0] == scales.datasets[0]
    if picture["kind"] == "ome" and "c" in names:
        assert [(channel.label, channel.color) for channel in again.omero.channels] == labels
    for number, level in enumerate(scales.datasets):
        if number:
            halved = [axis for axis, name in enumerate(names) if name in "zyx" and values.shape[axis] > 1]
            values = reduce(values, "mean", halved)
        array = group[level.path]
        assert isinstance(array, zarr.Array)
        np.testing.assert_array_equal(array[...], values)
        assert array.dtype == values.dtype.newbyteorder("=")
    assert len(scales.datasets) > 1 or min(values.shape[-2:]) <= 16


def test_colour_samples_are_channels(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 255, (30, 40, 3), "u1")
    tifffile.imwrite(
        tmp_path / "rgb.tif", values, photometric="rgb", compression="jpeg", compressionargs={"level": 100}
    )

    convert(str(tmp_path / "rgb.tif"), str(tmp_path / "rgb.zarr"))

    group = zarr.open_group(tmp_path / "rgb.zarr", mode="r")
    document: Any = group.attrs["ome"]
    assert [channel["color"] for channel in document["omero"]["channels"]] == ["FF0000", "00FF00", "0000FF"]
    stored = np.moveaxis(np.asarray(group["0"][...]), 0, -1)  # type: ignore[index]
    np.testing.assert_array_equal(stored, tifffile.imread(tmp_path / "rgb.tif"))


def test_what_a_tiff_says_of_its_values_is_named(tmp_path: Path) -> None:
    tags: Any = [(274, 3, 1, 6, True), (42113, 2, 0, "-9999", True), (34675, 7, 4, b"icc.", True)]
    for name, kind in (("a", {"photometric": "palette", "colormap": np.zeros((3, 256), "u2")}), ("b", {})):
        options: dict[str, Any] = {"photometric": "miniswhite", **kind, "extratags": tags}
        tifffile.imwrite(tmp_path / f"{name}.tif", np.zeros((9, 9), "u1"), **options)

    said = ["\n".join(convert(str(tmp_path / f"{name}.tif"), str(tmp_path / name)).lines) for name in "ab"]

    assert "colour map" in said[0]
    assert "0 as white" in said[1]
    assert all("orientation 6" in each and "-9999" in each and "InterColorProfile" in each for each in said)


def test_tiles_that_are_not_stored_hold_the_missing_value(tmp_path: Path) -> None:
    tiles = [np.ones((16, 16), "i2"), None, None, np.ones((16, 16), "i2")]
    options: dict[str, Any] = {"extratags": [(42113, 2, 0, "-9999", True)], "photometric": "minisblack"}
    tifffile.imwrite(tmp_path / "a.tif", iter(tiles), shape=(30, 32), dtype="i2", tile=(16, 16), **options)

    convert(str(tmp_path / "a.tif"), str(tmp_path / "a.zarr"))

    values = np.asarray(zarr.open_array(tmp_path / "a.zarr" / "0", mode="r")[...])
    np.testing.assert_array_equal(values, tifffile.imread(tmp_path / "a.tif"))
    assert values[0, 31] == -9999


@pytest.mark.parametrize("dtype", ["u1", "u2"])
def test_the_colour_of_one_channel_of_imagej_and_its_other_members_are_kept_or_named(
    tmp_path: Path, dtype: str
) -> None:
    green = np.zeros((3, 256), "u1")
    green[1] = np.arange(256)
    kept = {"c0": -32768.0, "Properties": {"lens": "60x"}}
    colour: dict[str, Any] = {"metadata": {**kept, "ROI": b"Iout"}}
    if dtype == "u1":
        colour["colormap"] = green.astype("u2") * 257
    else:
        colour["metadata"] |= {"LUTs": [green], "mode": "color"}
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((9, 9), dtype), imagej=True, **colour)

    made = convert(str(tmp_path / "a.tif"), str(tmp_path / "a.zarr"))

    group: Any = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert [channel["color"] for channel in group.attrs["ome"]["omero"]["channels"]] == ["00FF00"]
    assert group.attrs["imagej"] == kept
    assert "left out ROI" in made.lines


@pytest.mark.parametrize("out", ["image.zarr", "image.ome.tif", "image.nc"])
def test_what_a_tiff_says_of_itself_is_kept_or_named(tmp_path: Path, out: str) -> None:
    scale: Any = [(33550, 12, 3, (1.0, 2.0, 0.0), True)]
    for time in range(2):
        options: dict[str, Any] = {"description": "60x oil", "datetime": f"2026:01:01 00:00:0{time}"}
        tifffile.imwrite(tmp_path / f"t{time}.tif", np.zeros((9, 9), "u1"), extratags=scale, **options)

    made = convert(str(tmp_path / "t*.tif"), str(tmp_path / out))

    assert "left out what differs from file to file: DateTime" in made.lines
    kept = {"ImageDescription": "60x oil", "ModelPixelScaleTag": [1.0, 2.0, 0.0]}
    if out.endswith("zarr"):
        assert zarr.open_group(tmp_path / out, mode="r").attrs["tiff"] == kept
    elif out.endswith("nc"):
        with xarray.open_dataset(tmp_path / out) as dataset:
            assert json.loads(dataset.attrs["tiff"]) == kept
    else:
        assert "left out attributes, which OME-TIFF does not have: tiff" in made.lines


def test_channels_come_out_again_though_some_have_neither_name_nor_colour_and_windows_are_named(tmp_path: Path) -> None:
    convert(_saved(tmp_path / "a.npy", np.zeros((3, 9, 9), "u1")), str(tmp_path / "a.zarr"), axes="cyx")
    group = zarr.open_group(tmp_path / "a.zarr", mode="r+")
    channels = [{"label": "DAPI"}, {"color": "00FF00"}, {"window": {"min": 0, "max": 9, "start": 1, "end": 5}}]
    group.attrs["ome"] = {**group.attrs["ome"], "omero": {"channels": channels}}  # type: ignore[dict-item]

    made = convert(str(tmp_path / "a.zarr"), str(tmp_path / "a.ome.tif"))
    convert(str(tmp_path / "a.ome.tif"), str(tmp_path / "again.zarr"))

    again: Any = zarr.open_group(tmp_path / "again.zarr", mode="r").attrs["ome"]
    shown = [(each.get("label"), each["color"]) for each in again["omero"]["channels"]]
    assert shown == [("DAPI", "FFFFFF"), (None, "00FF00"), (None, "FFFFFF")]
    assert "left out attributes, which OME-TIFF does not have: window" in made.lines


def _saved(path: Path, values: np.ndarray) -> str:
    np.save(path, values)
    return str(path)


@pytest.mark.parametrize("src", ["cells.companion.ome", "c1.ome.tif", "."])
def test_ome_xml_may_lie_in_a_companion_file(tmp_path: Path, src: str) -> None:
    values = np.arange(2 * 3 * 20 * 30, dtype="u2").reshape(2, 3, 20, 30)
    space, blocks = "http://www.openmicroscopy.org/Schemas/OME/2016-06", ""
    binary = f'<OME xmlns="{space}"><BinaryOnly MetadataFile="cells.companion.ome" UUID="urn:uuid:0"/></OME>'
    for c in range(2):
        tifffile.imwrite(
            tmp_path / f"c{c}.ome.tif", values[c], description=binary, metadata=None, photometric="minisblack"
        )
        uuid = f'<UUID FileName="c{c}.ome.tif">urn:uuid:{c + 1}</UUID>'
        blocks += f'<TiffData FirstC="{c}" IFD="0" PlaneCount="3">{uuid}</TiffData>'
    channels = "".join(f'<Channel ID="Channel:0:{c}" Name="{name}"/>' for c, name in enumerate(("DAPI", "GFP")))
    (tmp_path / "cells.companion.ome").write_text(
        f'<OME xmlns="{space}" UUID="urn:uuid:0"><Instrument ID="Instrument:0"/><Image ID="Image:0">'
        "<Description>60x µ oil</Description>"
        '<Pixels DimensionOrder="XYZCT" Type="uint16" SizeX="30" SizeY="20" SizeZ="3" SizeC="2" SizeT="1">'
        f"{channels}{blocks}</Pixels></Image></OME>",
        encoding="utf-8",
    )

    made = convert(str(tmp_path / src), str(tmp_path / "out"))
    convert(str(tmp_path / "out"), str(tmp_path / "again.ome.tif"))

    assert "left out of the OME-XML: Instrument" in made.lines
    group: Any = zarr.open_group(tmp_path / "out", mode="r")
    np.testing.assert_array_equal(group["0"][...], values)
    assert [channel["label"] for channel in group.attrs["ome"]["omero"]["channels"]] == ["DAPI", "GFP"]
    assert group.attrs["ome_xml"] == {"Description": "60x µ oil"}
    with tifffile.TiffFile(tmp_path / "again.ome.tif") as again:
        assert "<Description>60x µ oil</Description>" in str(again.ome_metadata)
    (tmp_path / "c0.ome.tif").unlink()
    with pytest.raises(CannotConvert, match=r"c0\.ome\.tif"):
        convert(str(tmp_path / src), str(tmp_path / "less"))
    (tmp_path / "cells.companion.ome").unlink()
    with pytest.raises(Undetermined, match=r"is in cells\.companion\.ome, which is not beside it: say --axes"):
        convert(str(tmp_path / "c1.ome.tif"), str(tmp_path / "less"))


def test_images_of_one_file_become_a_collection(tmp_path: Path) -> None:
    first, second = np.arange(600, dtype="u2").reshape(20, 30), np.ones((2, 9, 8), "u1")
    with tifffile.TiffWriter(tmp_path / "two.ome.tif") as writer:
        writer.write(first, metadata={"axes": "YX", "Name": "one"})
        writer.write(second, metadata={"axes": "ZYX", "Name": "two"})

    convert(str(tmp_path / "two.ome.tif"), str(tmp_path / "two.zarr"))

    group = zarr.open_group(tmp_path / "two.zarr", mode="r")
    assert group.attrs["ome"] == {"version": "0.5", "bioformats2raw.layout": 3}
    assert group["OME"].attrs["ome"] == {"version": "0.5", "series": ["0", "1"]}
    assert group["1"].attrs["ome"]["multiscales"][0]["name"] == "two"  # type: ignore[index,call-overload]
    np.testing.assert_array_equal(group["0/0"][...], first)  # type: ignore[index]


@pytest.mark.parametrize(
    ("names", "pattern", "axes"),
    [
        (["scan_t{t:03}_c{c}.tif"], None, "tc"),
        (["Time{t:02}Slice{z}.tif"], None, "tz"),
        (["a_{t}_{c}.tif"], "a_{t}_{c}.tif", "tc"),
        (["x{t}_DAPI_{z}.tif", "x{t}_GFP_{z}.tif"], "x{t}_{c}_{z}.tif", "tcz"),
    ],
)
def test_names_of_files_say_axes(tmp_path: Path, names: list[str], pattern: str | None, axes: str) -> None:
    (tmp_path / "in").mkdir()
    sizes = {name: 2 if name == "t" else len(names) if len(names) > 1 and name == "c" else 11 for name in axes}
    expected = np.arange(np.prod([*sizes.values(), 12]), dtype="u2").reshape(*sizes.values(), 3, 4)
    for at in np.ndindex(*sizes.values()):
        position = dict(zip(axes, at, strict=True))
        name = names[position["c"] if len(names) > 1 else 0].format(**position)
        tifffile.imwrite(tmp_path / "in" / name, expected[at], metadata=None)

    convert(str(tmp_path / "in"), str(tmp_path / "out"), pattern=pattern)

    array = zarr.open_array(tmp_path / "out" / "0", mode="r")
    assert array.metadata.dimension_names == (*axes, "y", "x")  # type: ignore[union-attr]
    np.testing.assert_array_equal(array[...], expected)
    if len(names) > 1:
        omero: Any = zarr.open_group(tmp_path / "out", mode="r").attrs["ome"]
        assert [channel["label"] for channel in omero["omero"]["channels"]] == ["DAPI", "GFP"]


@pytest.mark.parametrize(
    ("files", "option", "said"),
    [
        ({"pages.tif": 3}, "axes", "axes"),
        ({"a_1.tif": 1, "a_2.tif": 1}, "pattern", "the number '1' in 'a_1.tif' says no axis"),
        ({"one.tif": 1, "two.tif": 1}, "pattern", "('one.tif', 'two.tif')"),
    ],
)
def test_what_is_not_said_is_asked_for(tmp_path: Path, files: dict[str, int], option: str, said: str) -> None:
    for name, pages in files.items():
        with tifffile.TiffWriter(tmp_path / name) as writer:
            for _ in range(pages):
                writer.write(np.zeros((9, 9), "u1"), contiguous=False, metadata=None)

    with pytest.raises(Undetermined, match=re.escape(said)) as raised:
        convert(str(tmp_path), str(tmp_path / "out"))

    assert raised.value.option == option
    assert not (tmp_path / "out").exists()


def test_files_that_leave_a_gap_are_refused(tmp_path: Path) -> None:
    for position in ((0, 0), (0, 1), (1, 0)):
        tifffile.imwrite(tmp_path / "t{}_z{}.tif".format(*position), np.zeros((9, 9), "u1"), metadata=None)

    with pytest.raises(CannotConvert, match="no file is at t=1, z=1"):
        convert(str(tmp_path / "*.tif"), str(tmp_path / "out"))


@settings(max_examples=EXAMPLES)
@given(
    values=npst.arrays(
        st.one_of(
            npst.scalar_dtypes().filter(lambda dtype: dtype.itemsize),
            st.just(np.dtype([("a", ">i2"), ("b", "f4")], align=True)),
        ),
        npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9),
    ),
    fortran=st.booleans(),
    zarr_format=st.sampled_from([2, 3]),
)
def test_an_npy_is_what_it_was_when_it_comes_out_of_zarr(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, fortran: bool, zarr_format: Any
) -> None:
    folder = tmp_path_factory.mktemp("npy")
    np.save(folder / "a.npy", values.copy("F") if fortran else values)

    convert(str(folder / "a.npy"), str(folder / "a.zarr"), zarr_format=zarr_format)
    convert(str(folder / "a.zarr"), str(folder / "b.npy"))

    found = np.load(folder / "b.npy")
    assert (found.shape, found.dtype) == (values.shape, packed(values.dtype))  # which holds no padding
    assert found.tobytes() == values.astype(found.dtype).tobytes()


def test_several_files_that_make_no_image_are_refused_and_not_the_first_taken_for_all(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.zeros(3))

    with pytest.raises(CannotConvert, match="2 files of npy are not one array"):
        convert(str(tmp_path), str(tmp_path / "out.zarr"))


def test_an_archive_of_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.zeros(3))

    with pytest.raises(CannotConvert, match=r"a\.npz is an archive of several arrays: save one of them as npy"):
        convert(str(tmp_path / "a.npz"), str(tmp_path / "out"))


def test_an_npy_is_a_plain_array_or_with_axes_an_image(tmp_path: Path) -> None:
    values = np.asfortranarray(np.arange(24, dtype=">i4").reshape(2, 3, 4))
    np.save(tmp_path / "a.npy", values)

    convert(str(tmp_path / "a.npy"), str(tmp_path / "plain"))
    convert(str(tmp_path / "a.npy"), str(tmp_path / "image"), axes="xyz")

    np.testing.assert_array_equal(zarr.open_array(tmp_path / "plain", mode="r")[...], values)
    image = zarr.open_array(tmp_path / "image" / "0", mode="r")
    np.testing.assert_array_equal(image[...], values.transpose())
