"""Pictures of today's writers: axes by their names, flips, colours, plates, collections and padded arrays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from hyperslab.tiles.info import histogram_document, info_document
from hyperslab.tiles.service import Tiles
from tests.tiles.support import Array, axes_json, numbers, parse_query, write_array, write_attributes, write_image

Json = dict[str, Any]


def info(tiles: Tiles, path: str, **query: str) -> Json:
    return info_document(tiles, tiles.images.open(path), parse_query(query.items()), "", "")


def v3_array(folder: Path, values: Array, **options: Any) -> None:
    chunks = tuple(min(16, size) for size in values.shape)
    array = zarr.create_array(str(folder), shape=values.shape, dtype=values.dtype, chunks=chunks, **options)
    array[...] = values


@pytest.mark.parametrize(("names", "plane", "selection"), [
    ("zyx", "yx", {"z": 2}),
    ("xyz", "yx", {"z": 2}),
    ("yxz", "yx", {"z": 2}),
    ("xzy", "yx", {"z": 1}),
    ("tzx", "zx", {"t": 0}),
    ("yz", "yz", {}),
    ("xy", "yx", {}),
    ("xt", "tx", {}),
])  # fmt: skip
def test_x_runs_right_and_y_down_whatever_the_order_of_axes(
    tmp_path: Path, tiles: Tiles, names: str, plane: str, selection: Json
) -> None:
    values = np.arange(np.prod((4, 3, 5)[: len(names)]), dtype="u1").reshape((4, 3, 5)[: len(names)])
    selection = {name: (values.shape[names.index(name)] // 2 if name == "z" else 0) for name in selection}
    write_image(tmp_path / "ome", [values], names)
    write_array(tmp_path / "v2", values, attributes={"_ARRAY_DIMENSIONS": [*names]})
    v3_array(tmp_path / "v3", values, dimension_names=names)
    v3_array(tmp_path / "nwb", values, attributes={"_ARRAY_DIMENSIONS": [*names]})  # of hdmf-zarr: no names of v3
    v3_array(tmp_path / "funlib", values, attributes={"axis_names": [*names]})

    for path in ("ome", "v2", "v3", "nwb", "funlib"):
        found = info(tiles, f"data/{path}")
        assert (found["plane"], found["selection"]) == ([*plane], selection), path
        index = tuple(selection.get(name, slice(None)) for name in names)
        left = [name for name in names if name in plane]
        expected = values[index] if left == [*plane] else values[index].T
        np.testing.assert_array_equal(numbers(tiles, f"data/{path}", (0, 0, 0)), expected)


@pytest.mark.parametrize(("dimensions", "plane"), [
    ("lat lon height", "lat lon"),
    ("x y height", "y x"),
    ("rlon rlat depth", "rlat rlon"),
    ("easting northing", "northing easting"),
    ("projection_x_coordinate projection_y_coordinate", "projection_y_coordinate projection_x_coordinate"),
    ("west_east south_north", "south_north west_east"),
    ("xi_rho eta_rho s_rho", "eta_rho xi_rho"),
    ("XC YC", "YC XC"),
    ("x_1 y_1 level", "y_1 x_1"),
    ("station year", "station year"),
    ("sample line", "line sample"),
])  # fmt: skip
def test_names_of_any_model_and_map_say_what_runs_across(
    tmp_path: Path, tiles: Tiles, dimensions: str, plane: str
) -> None:
    names = dimensions.split()
    values = np.arange(np.prod((4, 3, 5)[: len(names)]), dtype="f4").reshape((4, 3, 5)[: len(names)])
    v3_array(tmp_path / "a", values, dimension_names=names)

    assert info(tiles, "data/a")["plane"] == plane.split()


def test_a_name_that_is_null_is_only_that_axis(tmp_path: Path, tiles: Tiles) -> None:
    v3_array(tmp_path / "v3", np.zeros((2, 5, 5), "f4"), dimension_names=("time", None, "x"))
    v3_array(tmp_path / "both", np.zeros((2, 5, 5), "f4"), dimension_names=("time", None, "x"),
             attributes={"_ARRAY_DIMENSIONS": ["a", "y", "b"]})  # fmt: skip
    write_array(tmp_path / "v2", np.zeros((2, 5, 5), "f4"), attributes={"_ARRAY_DIMENSIONS": ["time", None, "x"]})

    axes = {path: [axis["name"] for axis in info(tiles, f"data/{path}")["axes"]] for path in ("v3", "both", "v2")}

    assert axes == {"v3": ["time", "d1", "x"], "both": ["time", "y", "x"], "v2": ["time", "d1", "x"]}


def test_cells_of_funlib_have_their_sizes_and_channels_are_no_depth(tmp_path: Path, tiles: Tiles) -> None:
    facts = {"axis_names": ["c^", "z", "y", "x"], "voxel_size": [40, 4, 8], "units": ["nm"] * 3, "offset": [80, 0, 8]}
    v3_array(tmp_path / "a", np.zeros((2, 6, 5, 5), "u1"), attributes=facts)

    found = info(tiles, "data/a")

    assert (found["channel_axis"], found["plane"], found["selection"]) == ("c", ["y", "x"], {"z": 3})
    assert [(axis["scale"], axis["translation"], axis["unit"]) for axis in found["axes"]] == [
        (None, None, None), (40, 80, "nm"), (4, 0, "nm"), (8, 8, "nm")
    ]  # fmt: skip
    assert found["natural"]["aspect"] == 0.5


@pytest.mark.parametrize(("scale", "flip"), [([1, 1], []), ([-1, 1], ["y"]), ([1, -1], ["x"]), ([-2, -1], ["y", "x"])])
def test_negative_steps_flip(tmp_path: Path, tiles: Tiles, scale: list[float], flip: list[str]) -> None:
    levels = [np.arange(4096, dtype="u2").reshape(64, 64), np.arange(1024, dtype="u2").reshape(32, 32)]
    write_image(tmp_path / "a", levels, "yx")
    datasets = [
        {"path": str(i), "coordinateTransformations": [{"type": "scale", "scale": [s * 2**i for s in scale]}]}
        for i in range(2)
    ]
    write_attributes(
        tmp_path / "a", {"multiscales": [{"version": "0.4", "axes": axes_json("yx"), "datasets": datasets}]}
    )

    found = info(tiles, "data/a", flip="auto")

    assert (found["natural"]["flip"], found["flip"], found["problems"]) == (tuple(flip), flip, [])
    assert found["levels"][1]["factor"] == [2, 2]


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "u2", "i8", ">u2"])
def test_levels_of_other_dtypes_are_used(tmp_path: Path, tiles: Tiles, dtype: str) -> None:
    full = np.full((128, 128), 40, "u1")
    half = np.full((64, 64), 300 if np.dtype(dtype).itemsize > 1 else 77, dtype)
    write_image(tmp_path / "a", [full, half], "yx")
    write_image(tmp_path / "labels", [full, half], "yx", {"image-label": {}})

    assert info(tiles, "data/a")["problems"] == []
    for path in ("data/a", "data/labels"):
        coarse = numbers(tiles, path, (0, 0, 0), [("tile_size", "64")])
        assert (coarse.dtype, int(coarse.min()), int(coarse.max())) == (np.uint8, *[min(int(half.max()), 255)] * 2)


RGB = ["FF0000", "00FF00", "0000FF"]


@pytest.mark.parametrize("order", ["yxc", "cyx", "ycx"])
@pytest.mark.parametrize("labels", [None, ["r", "g", "b"], ["0", "1", "2"], [None] * 3], ids=str)
def test_three_bytes_without_colours_are_red_green_and_blue(
    tmp_path: Path, tiles: Tiles, order: str, labels: list[str | None] | None
) -> None:
    photo = np.zeros((96, 128, 3), "u1") + np.array([230, 150, 190], "u1")
    moved = photo.transpose([["y", "x", "c"].index(name) for name in order]).copy()
    channels = [{} if label is None else {"label": label} for label in labels or ()]
    write_image(tmp_path / "a", [moved], order, None if labels is None else {"omero": {"channels": channels}})

    found = info(tiles, "data/a")

    assert [(c["color"], c["active"]) for c in found["channels"]] == [(colour, True) for colour in RGB]
    assert [c["window"]["end"] for c in found["channels"]] == [255] * 3
    assert found["problems"] == []
    assert numbers(tiles, "data/a", (0, 0, 0))[:, 5, 5].tolist() == [230, 150, 190]


@pytest.mark.parametrize("channels", [
    [{"label": "DAPI"}, {"label": "GFP"}, {"label": "Cy5"}],
    [{"color": "FFFFFF"}, {}, {}],
])  # fmt: skip
def test_three_stains_are_no_photograph(tmp_path: Path, tiles: Tiles, channels: list[Json]) -> None:
    write_image(tmp_path / "a", [np.zeros((3, 8, 8), "u1")], "cyx", {"omero": {"channels": channels}})

    assert [c["color"] for c in info(tiles, "data/a")["channels"]] != RGB


@pytest.mark.parametrize(("window", "expected"), [
    ({"start": 10, "end": 90}, (10, 90)),
    ({"min": 0, "max": 200}, (0, 200)),
    ({"start": 10, "end": 90, "min": 0, "max": "x"}, (10, 90)),
    ({"min": 5, "max": 5, "start": 10, "end": 90}, (10, 90)),
])  # fmt: skip
def test_each_part_of_a_channel_is_used_if_others_are_missing(
    tmp_path: Path, tiles: Tiles, window: Json, expected: tuple[float, float]
) -> None:
    channels = [{"window": window}, {"color": "#00ff00"}]
    write_image(tmp_path / "a", [np.zeros((2, 8, 8), "u2")], "cyx", {"omero": {"channels": channels}})

    found = info(tiles, "data/a")

    assert (found["channels"][0]["window"]["start"], found["channels"][0]["window"]["end"]) == expected
    assert found["channels"][1]["color"] == "00FF00"
    assert len(found["problems"]) == ("x" in window.values())


@pytest.mark.parametrize(("omero", "expected"), [
    ({"channels": [{}, {}]}, "omero.channels: 2 are described, the image has 3"),
    ({"channels": [{}] * 5}, "omero.channels: 5 are described, the image has 3"),
    ({"channels": [], "rdefs": {"defaultZ": 4}}, "omero.rdefs.defaultZ: 4 is beyond the last of 4"),
    ({"channels": [], "rdefs": {"defaultT": 1}}, "omero.rdefs.defaultT: 1 is beyond the last of 1"),
    ({"channels": [{}] * 3, "rdefs": {"defaultZ": 3, "defaultT": 0}}, None),
])  # fmt: skip
def test_settings_of_what_the_image_does_not_have_are_named(
    tmp_path: Path, tiles: Tiles, omero: Json, expected: str | None
) -> None:
    write_image(tmp_path / "a", [np.zeros((3, 4, 8, 8), "u2")], "czyx", {"omero": omero})

    assert info(tiles, "data/a")["problems"] == ([] if expected is None else [expected])


@pytest.mark.parametrize(("first", "second", "expected"), [
    ([{"type": "scale", "scale": [1, 1]}], [{"type": "scale", "scale": [-2, 2]}], "'1' runs the other way along y"),
    ([{"type": "scale", "scale": [1, 0]}], [{"type": "scale", "scale": [2, 2]}], "0 is not the size of a cell"),
    ([{"type": "translation", "translation": [1, 1]}, {"type": "scale", "scale": [1, 1]}],
     [{"type": "scale", "scale": [2, 2]}, {"type": "translation", "translation": [1, 1]}],
     "translation stands before scale"),
])  # fmt: skip
def test_transformations_that_make_no_pyramid_are_named(
    tmp_path: Path, tiles: Tiles, first: list[Json], second: list[Json], expected: str
) -> None:
    write_image(tmp_path / "a", [np.zeros((64, 64), "u2"), np.zeros((32, 32), "u2")], "yx")
    datasets = [{"path": str(i), "coordinateTransformations": steps} for i, steps in enumerate((first, second))]
    write_attributes(
        tmp_path / "a", {"multiscales": [{"version": "0.4", "axes": axes_json("yx"), "datasets": datasets}]}
    )

    found = info(tiles, "data/a")

    (problem,) = found["problems"]
    assert expected in problem
    assert found["levels"][1]["factor"] == [2, 2]


@pytest.mark.parametrize("version", ["0.3", "0.4"])
def test_axes_that_are_names_belong_to_version_3(tmp_path: Path, tiles: Tiles, version: str) -> None:
    write_image(tmp_path / "a", [np.zeros((3, 8, 8), "u2")], "cyx")
    attributes = json.loads((tmp_path / "a" / ".zattrs").read_text())
    attributes["multiscales"][0] |= {"version": version, "axes": ["c", "y", "x"]}
    write_attributes(tmp_path / "a", attributes)

    found = info(tiles, "data/a")

    assert (found["channel_axis"], found["plane"]) == ("c", ["y", "x"])
    assert len(found["problems"]) == (version == "0.4")


@pytest.mark.parametrize(("names", "expected"), [
    ("zcyx", ["level '0' has the dimensions z, c, y, x, the axes are c, z, y, x"]),
    ("czyx", []),
    (["c", None, None, None], []),
])  # fmt: skip
def test_dimensions_that_are_not_the_axes_are_named(
    tmp_path: Path, tiles: Tiles, names: Any, expected: list[str]
) -> None:
    steps = [{"type": "scale", "scale": [1, 1, 1, 1]}]
    multiscale = {"axes": axes_json("czyx"), "datasets": [{"path": "0", "coordinateTransformations": steps}]}
    zarr.create_group(str(tmp_path / "a"), attributes={"ome": {"version": "0.5", "multiscales": [multiscale]}})
    v3_array(tmp_path / "a" / "0", np.zeros((2, 3, 8, 8), "u2"), dimension_names=names)

    assert info(tiles, "data/a")["problems"] == expected


def test_labels_that_are_listed_and_missing_are_named(tmp_path: Path, tiles: Tiles) -> None:
    write_image(tmp_path / "a", [np.zeros((8, 8), "u2")], "yx")
    write_attributes(tmp_path / "a" / "labels", {"labels": ["cells", "gone"]})
    write_image(tmp_path / "a" / "labels" / "cells", [np.zeros((8, 8), "u2")], "yx", {"image-label": {}})

    assert info(tiles, "data/a")["problems"] == ["labels: 'gone' is not there"]


@pytest.mark.parametrize(("window", "expected"), [
    ({"start": 10}, (10, 80)), ({"end": 50}, (5, 50)), ({"min": 7}, (7, 80)), ({"start": 90}, (90, 91)),
    ({"end": 3}, (2, 3)),
])  # fmt: skip
def test_a_limit_that_stands_alone_is_used(
    tmp_path: Path, tiles: Tiles, window: Json, expected: tuple[float, float]
) -> None:
    values = np.arange(5, 81, dtype="u2").reshape(1, 4, 19)
    write_image(tmp_path / "a", [values], "cyx", {"omero": {"channels": [{"window": window}]}})

    found = info(tiles, "data/a")

    assert (found["channels"][0]["window"]["start"], found["channels"][0]["window"]["end"]) == expected
    assert len(found["problems"]) == 1


def ome_6(version: str, *steps: Json) -> Json:
    """As ngff-zarr 0.50 writes: the coordinate system that the datasets are transformed to is the second."""
    axes = [{**axis, **({} if axis["name"] == "c" else {"unit": "micrometer"})} for axis in axes_json("cyx")]
    systems = [{"name": "world", "axes": axes_json("zyx")}, {"name": "intrinsic", "axes": axes}]
    datasets = [
        {"path": str(i), "coordinateTransformations": [{**step, "input": str(i), "output": {"name": "intrinsic"}}]}
        for i, step in enumerate(steps)
    ]
    affine = {"type": "affine", "affine": [[1]], "input": {"name": "intrinsic"}, "output": {"name": "world"}}
    multiscale = {"coordinateSystems": systems, "datasets": datasets, "coordinateTransformations": [affine]}
    return {"ome": {"version": version, "multiscales": [multiscale], "scene": {"anything": 1}}}


@pytest.mark.parametrize("version", ["0.6", "0.6.dev3", "0.6-dev1", "0.9.dev1"])
def test_the_axes_and_transformations_of_version_6_are_read(tmp_path: Path, tiles: Tiles, version: str) -> None:
    values = np.zeros((3, 64, 64), "u2") + np.array([100, 200, 300], "u2")[:, None, None]
    steps: list[Json]
    half = {"type": "scale", "scale": [1, 1, 1]}
    steps = [
        {"type": "sequence", "transformations": [{"type": "scale", "scale": [1, 0.5, 0.5]}, {"type": "identity"}]},
        {"type": "sequence", "transformations": [half, {"type": "translation", "translation": [0, 0.25, 0.25]}]},
    ]
    attributes = ome_6(version, *steps)
    zarr.create_group(str(tmp_path / "a"), attributes=attributes)
    v3_array(tmp_path / "a" / "0", values)
    v3_array(tmp_path / "a" / "1", values[:, ::2, ::2])

    found = info(tiles, "data/a")

    assert [(a["name"], a["type"], a["unit"], a["scale"]) for a in found["axes"]] == [
        ("c", "channel", None, 1), ("y", "space", "micrometer", 0.5), ("x", "space", "micrometer", 0.5)
    ]  # fmt: skip
    assert (found["channel_axis"], found["problems"]) == ("c", [])
    assert [(level["factor"], level["offset"]) for level in found["levels"]] == [([1, 1], [0, 0]), ([2, 2], [0, 0])]


def test_images_of_version_9_have_any_axes(tmp_path: Path, tiles: Tiles) -> None:
    """RFC 3, which ngff-zarr 0.50 writes as 0.9.dev1: any number of axes of any type in any order."""
    attributes = ome_6("0.9.dev1", {"type": "identity"})
    axes = [{"name": name, "type": "other"} for name in "lightsp"]
    attributes["ome"]["multiscales"][0]["coordinateSystems"][1]["axes"] = axes
    zarr.create_group(str(tmp_path / "a"), attributes=attributes)
    v3_array(tmp_path / "a" / "0", np.zeros((1, 2, 1, 2, 1, 3, 3), "u2"))

    found = info(tiles, "data/a")

    assert ([axis["name"] for axis in found["axes"]], found["problems"]) == ([*"lightsp"], [])


def test_transformations_that_are_not_read_are_named(tmp_path: Path, tiles: Tiles) -> None:
    zarr.create_group(str(tmp_path / "a"), attributes=ome_6("0.6", {"type": "affine", "affine": [[1]]}))
    v3_array(tmp_path / "a" / "0", np.zeros((3, 64, 64), "u2"))

    found = info(tiles, "data/a")

    assert found["channel_axis"] == "c"
    assert any("'affine'" in problem for problem in found["problems"])


def test_an_image_of_spatialdata_has_no_problems(tmp_path: Path, tiles: Tiles) -> None:
    """The attributes that spatialdata 0.8 writes."""
    datasets = [
        {"path": str(i), "coordinateTransformations": [{"type": "scale", "scale": [1.0, 2.0**i, 2.0**i]}]}
        for i in range(2)
    ]
    identity = {"type": "identity", "input": {"name": "cyx"}, "output": {"name": "global"}}
    multiscale = {"name": "a", "axes": axes_json("cyx"), "datasets": datasets, "coordinateTransformations": [identity]}
    ome = {
        "version": "0.5-dev-spatialdata",
        "multiscales": [multiscale],
        "omero": {"channels": [{"label": "DAPI"}, {"label": 1}]},
    }
    zarr.create_group(str(tmp_path / "a"), attributes={"ome": ome, "spatialdata_attrs": {"version": "0.3"}})
    v3_array(tmp_path / "a" / "0", np.zeros((2, 64, 64), "u2"))
    v3_array(tmp_path / "a" / "1", np.zeros((2, 32, 32), "u2"))

    found = info(tiles, "data/a")

    assert found["problems"] == []
    assert found["levels"][1]["factor"] == [2, 2]


def write_plate(folder: Path, shapes: dict[str, tuple[int, ...]], field: str = "0", names: str = "yx") -> None:
    columns = [{"name": path.partition("/")[2]} for path in shapes]
    wells = [{"path": path, "rowIndex": 0, "columnIndex": i} for i, path in enumerate(shapes)]
    plate = {"version": "0.4", "rows": [{"name": "B"}], "columns": columns, "wells": wells}
    write_attributes(folder, {"plate": plate})
    for i, (path, shape) in enumerate(shapes.items()):
        write_attributes(folder / path, {"well": {"version": "0.4", "images": [{"path": field}]}})
        write_image(folder / path / field, [np.full(shape, i + 1, "u2")], names)


def test_a_plate_shows_whole_wells_of_any_size(tmp_path: Path, tiles: Tiles) -> None:
    write_plate(tmp_path / "p", {"B/03": (64, 64), "B/04": (128, 96), "B/05": (30, 200)})

    found = info(tiles, "data/p")
    values = numbers(tiles, "data/p", (0, 0, 0), [("tile_size", "1024")])

    assert {int(v): int((values == v).sum()) for v in np.unique(values) if v} == {1: 64**2, 2: 128 * 96, 3: 30 * 200}
    assert [(one["width"], one["height"]) for one in found["images"]] == [(64, 64), (96, 128), (200, 30)]
    assert found["problems"] == []


def test_a_well_larger_than_those_looked_at_is_reduced_to_its_place(tmp_path: Path, tiles: Tiles) -> None:
    shapes: dict[str, tuple[int, ...]] = {
        f"B/{i}": (256, 256) if i == 1 else (64, 64) for i in range(40)
    }  # every third is looked at
    write_plate(tmp_path / "p", shapes)

    found = info(tiles, "data/p")
    second = found["images"][1]
    zoom = found["maxzoom"]
    values = numbers(tiles, "data/p", (zoom, second["x"] // 256, 0))

    assert int((values == 2).sum()) == 64 * 64


@pytest.mark.parametrize("field", ["0_registered", "0.zarr", "field-1", "a/b", "0 1"])
def test_plates_and_wells_open_whatever_their_images_are_called(tmp_path: Path, tiles: Tiles, field: str) -> None:
    write_plate(tmp_path / "p", {"B/03": (64, 64), "B/04_x": (64, 64)}, field)

    plate, well = info(tiles, "data/p"), info(tiles, "data/p/B/03")

    assert (plate["kind"], len(plate["images"])) == ("plate", 2)
    assert (well["kind"], well["images"][0]["path"]) == ("well", f"data/p/B/03/{field}")
    assert len(well["problems"]) == 1
    assert set(np.unique(numbers(tiles, "data/p", (0, 0, 0)))) == {0, 1, 2}


def test_a_well_without_the_plane_that_is_shown_is_blank(tmp_path: Path, tiles: Tiles) -> None:
    write_plate(tmp_path / "p", {"B/03": (5, 64, 64), "B/04": (2, 64, 64)}, names="zyx")

    shown = [set(np.unique(numbers(tiles, "data/p", (0, 0, 0), [("z", str(z))])).tolist()) for z in (1, 4)]

    assert shown == [{0, 1, 2}, {0, 1}]


def test_several_positions_are_images_of_the_root(tmp_path: Path, tiles: Tiles) -> None:
    """As ome-writers 0.3 writes them, with a position whose name has a slash."""
    write_attributes(tmp_path / "a", {"bioformats2raw.layout": 3})
    write_attributes(tmp_path / "a" / "OME", {"series": ["Pos0", "Pos/B", "Pos2"]})
    for i, name in enumerate(("Pos0", "Pos/B", "Pos2")):
        write_image(tmp_path / "a" / name, [np.full((64, 64), i + 1, "u2")], "yx")

    found = info(tiles, "data/a")

    assert [one["path"] for one in found["images"]] == ["data/a/Pos0", "data/a/Pos/B", "data/a/Pos2"]
    assert set(np.unique(numbers(tiles, "data/a", (0, 0, 0)))) == {0, 1, 2, 3}
    assert found["problems"] == []


def test_positions_without_a_list_are_those_numbered_from_0(tmp_path: Path, tiles: Tiles) -> None:
    write_attributes(tmp_path / "a", {"bioformats2raw.layout": 3})
    for name in [*range(18), 30]:
        write_image(tmp_path / "a" / str(name), [np.full((8, 8), name + 1, "u2")], "yx")

    found = info(tiles, "data/a")

    assert [one["path"] for one in found["images"]] == [f"data/a/{i}" for i in range(18)]
    assert found["problems"] == []


def test_paths_with_outer_slashes_and_dots_are_those_without(tmp_path: Path, tiles: Tiles) -> None:
    write_plate(tmp_path / "p", {"B/03": (64, 64), "B/04": (64, 64)})
    attributes = json.loads((tmp_path / "p" / ".zattrs").read_text())
    for well, path in zip(attributes["plate"]["wells"], ("/B/03", "./B/04/"), strict=True):
        well["path"] = path
    (tmp_path / "p" / ".zattrs").write_text(json.dumps(attributes))

    found = info(tiles, "data/p")

    assert [one["path"] for one in found["images"]] == ["data/p/B/03", "data/p/B/04"]
    assert set(np.unique(numbers(tiles, "data/p", (0, 0, 0)))) == {0, 1, 2}
    assert len(found["problems"]) == 2


def test_a_well_with_other_axes_is_left_out_and_named(tmp_path: Path, tiles: Tiles) -> None:
    write_plate(tmp_path / "p", {"B/03": (64, 64), "B/04": (64, 64)})
    write_image(tmp_path / "p" / "B" / "04" / "0", [np.full((3, 64, 64), 2, "u2")], "cyx")

    assert info(tiles, "data/p")["problems"] == ["data/p/B/04 has the axes c, y, x, not y, x: it is left out"]


def test_a_broken_well_is_named_and_one_not_yet_written_is_not(tmp_path: Path, tiles: Tiles) -> None:
    write_plate(tmp_path / "p", {"B/03": (64, 64), "B/04": (64, 64), "B/05": (64, 64)})
    (tmp_path / "p" / "B" / "04" / "0" / "0" / ".zarray").write_text("{")
    shutil.rmtree(tmp_path / "p" / "B" / "05")

    (problem,) = info(tiles, "data/p")["problems"]

    assert problem.startswith("data/p/B/04 cannot be shown: ")


@pytest.mark.parametrize("first", [0, 37])
def test_the_first_picture_is_not_the_padding_of_a_shard(tmp_path: Path, tiles: Tiles, first: int) -> None:
    """As webknossos 4.3 writes: the array is as large as whole shards."""
    array = zarr.create_array(
        str(tmp_path / "a"), shape=(1024, 256, 256), chunks=(16, 64, 64), shards=(1024, 256, 256), dtype="u1",
        fill_value=0, dimension_names=("z", "y", "x"),
    )  # fmt: skip
    array[first : first + 40, :80, :100] = 7

    found = info(tiles, "data/a")

    assert first <= found["selection"]["z"] < first + 48
    assert numbers(tiles, "data/a", (0, 0, 0)).max() == 7
    assert info(tiles, "data/a", z="512")["selection"] == {"z": 512}


@pytest.mark.parametrize(("names", "shape", "box", "expected"), [
    (None, (64, 64, 64, 64), (slice(4), slice(2, 6), slice(40), slice(40)), {"d0": 2, "d1": 4}),
    ("zyx", (256, 2048, 2048), (slice(1, 5), slice(1900, 1930), slice(9, 40)), {"z": 3}),
    ("tzyx", (16, 64, 128, 128), (slice(4, 6), slice(3, 9), slice(50), slice(50)), {"t": 4, "z": 6}),
    ("tyx", (16, 128, 128), (slice(9, 11), slice(50), slice(50)), {"t": 9}),
])  # fmt: skip
def test_the_first_picture_is_of_what_is_stored(
    tmp_path: Path, tiles: Tiles, names: str | None, shape: tuple[int, ...], box: tuple[slice, ...], expected: Json
) -> None:
    chunks = (1, 8, 16, 16)[-len(shape) :] if names and names[0] == "t" else (8, 8, 16, 16)[-len(shape) :]
    for name, shards in (("sharded", shape), ("chunks", None)):
        array = zarr.create_array(
            str(tmp_path / name), shape=shape, chunks=chunks, shards=shards, dtype="u2", fill_value=0, compressors=None,
            dimension_names=names,
        )  # fmt: skip
        array[box] = 700

        found = info(tiles, f"data/{name}")

        assert {axis: abs(found["selection"][axis] - place) <= 2 for axis, place in expected.items()} == dict.fromkeys(
            expected, True
        )
        place = (found["maxzoom"], box[-1].start // 256 if box[-1].start else 0, (box[-2].start or 0) // 256)
        assert numbers(tiles, f"data/{name}", place).max() == 700
        assert info(tiles, f"data/{name}", **dict.fromkeys(expected, "0"))["selection"] == dict.fromkeys(expected, 0)


@pytest.mark.parametrize(("shape", "shards"), [
    ((2048, 1024), (2048, 1024)), ((2048, 1024), None), ((128, 512, 512), (128, 512, 512)), ((128, 512, 512), None),
])  # fmt: skip
def test_contrast_limits_are_those_of_what_is_stored(
    tmp_path: Path, tiles: Tiles, shape: tuple[int, ...], shards: tuple[int, ...] | None
) -> None:
    array = zarr.create_array(
        str(tmp_path / "a"), shape=shape, chunks=(8, 32, 32)[-len(shape) :], shards=shards, dtype="u2", fill_value=0,
        compressors=None,
    )  # fmt: skip
    array[..., 32:64, 64:96] = 700 if len(shape) == 2 else 0
    if len(shape) == 3:
        array[8:16, 32:64, 64:96] = 700
    array[(*[slice(8, 16)] * (len(shape) - 2), slice(32, 64), slice(64, 65))] = 200

    found = info(tiles, "data/a")

    assert (found["rescale_auto"], found["channels"][0]["window"]["start"]) == ([200, 700], 200)
    assert histogram_document(tiles, tiles.images.open("data/a"), parse_query([]))["max"] == 700


@pytest.mark.parametrize(("rest", "side"), [(0, 64), (1, 10)])
def test_cells_that_alone_differ_from_all_others_are_seen(tmp_path: Path, tiles: Tiles, rest: int, side: int) -> None:
    """A chunk of one value alone is stored, or less than one cell in a thousand is another."""
    array = zarr.create_array(str(tmp_path / "a"), shape=(8, 256, 256), chunks=(1, 64, 64), dtype="u2", fill_value=0)
    array[...] = rest
    array[5, :side, :side] = 300

    assert info(tiles, "data/a")["rescale_auto"] == [rest, 300]


def test_contrast_limits_of_an_array_of_whole_chunks_are_those_of_all_values(tmp_path: Path, tiles: Tiles) -> None:
    values = np.random.default_rng(1).integers(0, 60000, (64, 128, 128)).astype("u2")
    v3_array(tmp_path / "a", values, shards=(64, 128, 128))

    assert info(tiles, "data/a")["rescale_auto"] == np.percentile(values, [0.1, 99.9], method="nearest").tolist()
