"""From paths to pictures: images, labels, plates, wells, collections, and what broken metadata leaves of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyperslab.errors import BadMetadata, ChunkCorrupt, FieldUnknown, NodeNotFound, WrongKind
from hyperslab.tiles.info import histogram_document, info_document
from hyperslab.tiles.service import Tiles
from tests.tiles.support import (
    Array,
    Query,
    axes_json,
    numbers,
    parse_query,
    pixels,
    tile,
    write_array,
    write_attributes,
    write_image,
)


def info(tiles: Tiles, path: str, query: Query = ()) -> dict[str, Any]:
    asked = parse_query(query)
    return info_document(tiles, tiles.images.open(path, asked.field), asked, "http://host/v1/tile/" + path, "")


def ramp(*shape: int, dtype: str = "<u2") -> Array:
    found: Array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    return found


def test_an_image_is_described_for_viewers(tmp_path: Path, tiles: Tiles) -> None:
    levels = [ramp(2, 10, 600, 500), ramp(2, 10, 300, 250), ramp(2, 10, 150, 125)]
    window = {"min": 0, "max": 4095, "start": 100, "end": 900}
    described: dict[str, Any] = {"label": "DAPI", "color": "0000FF", "window": window}
    channels = [described, {"label": "GFP", "color": "00FF00", "active": False}]
    omero = {"omero": {"channels": channels, "rdefs": {"defaultZ": 3}}}
    write_image(tmp_path / "a", levels, "czyx", omero, chunks=(1, 10, 75, 125))

    found = info(tiles, "data/a")

    assert (found["kind"], found["name"], found["path"], found["dtype"]) == ("multiscale", "picture", "data/a", "<u2")
    assert [axis["name"] for axis in found["axes"]] == ["c", "z", "y", "x"]
    axis = {"name": "y", "type": "space", "unit": None, "size": 600, "scale": 1, "translation": None}
    assert found["axes"][2] == axis
    assert (found["plane"], found["width"], found["height"]) == (["y", "x"], 500, 600)
    assert (found["tile_size"], found["minzoom"], found["maxzoom"]) == (256, 0, 2)
    assert [level["factor"] for level in found["levels"]] == [[1, 1], [2, 2], [4, 4]]
    assert found["levels"][2] == {"path": "data/a/2", "shape": [2, 10, 150, 125], "factor": [4, 4], "offset": [0, 0]}
    assert (found["channel_axis"], found["selection"]) == ("c", {"z": 3})
    first, second = found["channels"]
    assert first == {"index": 0, **described, "active": True, "inverted": False}
    assert (second["label"], second["active"]) == ("GFP", False)
    assert second["window"]["start"] < second["window"]["end"]
    assert found["problems"] == []
    assert found["tilejson"] == "3.0.0"
    assert found["tiles"] == ["http://host/v1/tile/data/a/{z}/{x}/{y}.png"]
    assert "viridis" in found["colormaps"]
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("orders", ["<>", "><"])
def test_levels_may_differ_in_the_order_of_bytes(tmp_path: Path, tiles: Tiles, orders: str) -> None:
    fine = np.arange(600 * 500, dtype="u2").reshape(600, 500)
    coarse = fine[::2, ::2] // 3  # other values, to tell which level was drawn
    write_image(
        tmp_path / "a", [fine.astype(f"{orders[0]}u2"), coarse.astype(f"{orders[1]}u2")], "yx", chunks=(256, 256)
    )
    write_image(tmp_path / "b", [fine, coarse], "yx", chunks=(256, 256))

    found = info(tiles, "data/a")
    drawn, expected = (tile(tiles, f"data/{name}", (0, 0, 0)) for name in "ab")
    read, values = (numbers(tiles, f"data/{name}", (1, 0, 0)) for name in "ab")

    assert ([level["path"] for level in found["levels"]], found["problems"]) == (["data/a/0", "data/a/1"], [])
    np.testing.assert_array_equal(pixels(drawn), pixels(expected))
    np.testing.assert_array_equal(read, values)
    assert read.dtype == np.dtype("<u2")


DESCRIPTIONS: list[tuple[Array, list[str] | None, Query, dict[str, Any]]] = [
    (
        ramp(5, 30, 40, dtype="<f4"),
        ["time", "lat", "lon"],
        [],
        {"kind": "array", "plane": ["lat", "lon"], "selection": {"time": 0}, "channel_axis": None, "fields": None},
    ),
    *(
        (np.zeros(shape), None, [], {"height": shape[-2], "width": shape[-1], "minzoom": 0, "maxzoom": 0})
        for shape in ((0, 0), (4, 0, 7), (2, 3))
    ),
    (
        ramp(50, 60, 70),
        ["z", "y", "x"],
        [("axes", "z,x"), ("y", "-1"), ("tile_size", "64")],
        {"plane": ["z", "x"], "height": 50, "width": 70, "selection": {"y": 59}, "tile_size": 64, "maxzoom": 1},
    ),
    (
        np.zeros((4, 4), [("x", "<f4"), ("n", "<i2")]),
        None,
        [("field", "n")],
        {"fields": ["x", "n"], "field": "n", "dtype": "<i2"},
    ),
]


@pytest.mark.parametrize(("values", "names", "query", "expected"), DESCRIPTIONS)
def test_an_array_is_described(
    tmp_path: Path, tiles: Tiles, values: Array, names: list[str] | None, query: Query, expected: dict[str, Any]
) -> None:
    options = {"fill_value": b"\0" * 6} if values.dtype.names else {}
    write_array(tmp_path / "a", values, attributes={"_ARRAY_DIMENSIONS": names} if names else {}, **options)

    found = info(tiles, "data/a", query)

    assert {name: found[name] for name in expected} == expected
    assert len(found["channels"]) == 1
    assert found["rescale_auto"] == [found["channels"][0]["window"][end] for end in ("start", "end")]
    if values.size and not values.dtype.names:
        write_array(tmp_path / "a", values + 1)
        assert info(tiles, "data/a", [])["etag"] != found["etag"]


@pytest.mark.parametrize(("wanted", "index"), [(0, 0), (2, 2), (3, 1)])
def test_a_picture_begins_where_its_metadata_wants_if_there_is_such_a_place(
    tmp_path: Path, tiles: Tiles, wanted: int, index: int
) -> None:
    write_image(tmp_path / "a", [ramp(3, 8, 8)], "zyx", {"omero": {"channels": [], "rdefs": {"defaultZ": wanted}}})

    assert info(tiles, "data/a")["selection"] == {"z": index}


def write_damaged_image(folder: Path, damaged: list[str]) -> None:
    """An image of two levels, of which the coarser is one chunk; ``damaged`` chunks cannot be decoded."""
    write_image(folder, [ramp(64, 64), ramp(64, 64)[::2, ::2] + 7], "yx", compressors=None)
    for key in damaged:
        (folder / key).write_bytes(b"short")


def test_a_damaged_chunk_is_left_out_of_the_window_and_named(tmp_path: Path, tiles: Tiles) -> None:
    write_array(tmp_path / "a", ramp(64, 64), (32, 64), compressors=None)
    (tmp_path / "a" / "1.0").write_bytes(b"short")

    found = info(tiles, "data/a")
    counted = histogram_document(tiles, tiles.images.open("data/a"), parse_query([]))

    assert found["rescale_auto"] == [2, 2045]
    assert [problem for problem in found["problems"] if "1.0" in problem and "leaves out" in problem]
    assert (counted["exact"], counted["count"], counted["max"]) == (False, 32 * 64, 2047)


def test_a_finer_level_tells_the_window_where_the_coarsest_is_damaged(tmp_path: Path, tiles: Tiles) -> None:
    write_damaged_image(tmp_path / "a", ["1/0.0", "0/0.0"])

    found = info(tiles, "data/a")
    counted = histogram_document(tiles, tiles.images.open("data/a"), parse_query([]))

    assert found["rescale_auto"][1] > 4000
    assert counted["level"] == "data/a/0"


def test_without_a_chunk_that_can_be_read_no_window_is_invented(tmp_path: Path, tiles: Tiles) -> None:
    """Whoever gives one sees an error for each tile, not for the description."""
    write_damaged_image(tmp_path / "a", ["1/0.0", *(f"0/{i}.{j}" for i in range(2) for j in range(2))])

    found = info(tiles, "data/a")
    given = info(tiles, "data/a", [("rescale", "0,100")])
    with pytest.raises(ChunkCorrupt):
        tile(tiles, "data/a", (0, 0, 0))

    assert found["rescale_auto"] is None
    assert [problem for problem in found["problems"] if "a/1/0.0" in problem]
    assert found["channels"][0]["window"] == {"min": 0, "max": 65535, "start": 0, "end": 65535}
    assert given["problems"] == found["problems"]


@pytest.mark.parametrize(
    ("levels", "axes", "kept", "problems"),
    [
        ([(2, 64, 64), (2, 0, 0)], "cyx", [0], ["level '1' has no cells"]),
        ([(2, 64, 64), (1, 32, 32)], "cyx", [0], ["level '1' has other channels"]),
        ([(128, 128), None, "S4", (4, 4, 4), (16, 16)], "yx", [0, 4], ["datasets[1]", "dtype", "axes"]),
    ],
)
def test_a_level_that_cannot_stand_for_the_first_is_left_out_and_says_why(
    tmp_path: Path, tiles: Tiles, levels: list[Any], axes: str, kept: list[int], problems: list[str]
) -> None:
    """None is a level that is missing, a dtype one of other values."""
    arrays = [np.zeros(s if isinstance(s, tuple) else (32, 32), s if isinstance(s, str) else "<u2") for s in levels]
    write_image(tmp_path / "a", arrays, axes)
    for i, shape in enumerate(levels):
        if shape is None:
            (tmp_path / "a" / str(i) / ".zarray").unlink()

    found = info(tiles, "data/a")

    assert [level["path"] for level in found["levels"]] == [f"data/a/{i}" for i in kept]
    assert all(part in problem for part, problem in zip(problems, found["problems"], strict=True))


def test_label_images_are_found_beside_the_image(tmp_path: Path, tiles: Tiles) -> None:
    write_image(tmp_path / "a", [ramp(8, 8)], "yx")
    write_attributes(tmp_path / "a" / "labels", {"labels": ["cells", True, "nuclei"]})
    write_image(tmp_path / "a" / "labels" / "cells", [ramp(8, 8)], "yx", {"image-label": {"version": "0.4"}})

    found, label = info(tiles, "data/a"), info(tiles, "data/a/labels/cells")

    assert found["labels"] == [{"name": name, "path": f"data/a/labels/{name}"} for name in ("cells", "nuclei")]
    assert "labels[1]" in found["problems"][0]
    assert (label["kind"], label["labels"]) == ("labels", [])


OUTSIDE = {"path": "../x", "coordinateTransformations": [{"type": "scale", "scale": [1, 1]}]}


@pytest.mark.parametrize(
    "multiscales",
    [
        [{"version": "0.4", "datasets": [{"path": {}}]}],
        [{"version": "0.4", "axes": axes_json("yx"), "datasets": [OUTSIDE]}],
        "nonsense",
    ],
    ids=["no path", "a path outside", "nonsense"],
)
def test_an_image_with_broken_metadata_is_shown_as_a_plain_array(
    tmp_path: Path, tiles: Tiles, multiscales: Any
) -> None:
    write_attributes(tmp_path / "a", {"multiscales": multiscales})
    write_array(tmp_path / "a" / "1", ramp(8, 8))

    found = info(tiles, "data/a")
    shown = numbers(tiles, "data/a", (0, 0, 0))

    assert (found["kind"], found["path"]) == ("array", "data/a/1")
    assert len(found["problems"]) >= 1
    np.testing.assert_array_equal(shown, ramp(8, 8))


_SCALED = {"coordinateTransformations": [{"type": "scale", "scale": [0.5, 0.5]}]}


@pytest.mark.parametrize(
    ("changes", "group", "axes", "scale"),
    [
        ({"axes": None}, {}, "yx", [0.5, 0.5]),
        ({"axes": axes_json("zyx")}, {}, "yx", [None, None]),
        ({"coordinateTransformations": [{"type": "identity"}]}, {}, "yx", [0.5, 0.5]),
        ({"datasets": [{"path": "0", "coordinateTransformations": []}, {"path": "1"}]}, {}, "yx", [None, None]),
        ({"datasets": [{"path": 0, **_SCALED}, {"path": 1, **_SCALED}]}, {}, "yx", [0.5, 0.5]),
        ({"version": "0.4-dev-spatialdata"}, {}, "yx", [0.5, 0.5]),
        ({}, {"zarr_format": "2"}, "yx", [0.5, 0.5]),
    ],
    ids=["no axes", "too many axes", "identity", "empty", "integer paths", "version", "format as text"],
)
def test_what_is_broken_in_metadata_costs_no_more_than_itself(
    tmp_path: Path, tiles: Tiles, changes: Any, group: Any, axes: str, scale: list[float | None]
) -> None:
    write_image(tmp_path / "a", [ramp(8, 8), ramp(8, 8)[::2, ::2]], "yx", {"omero": {"channels": [{"label": "GFP"}]}})
    attributes = json.loads((tmp_path / "a" / ".zattrs").read_text())
    entry = attributes["multiscales"][0] | {"datasets": [{"path": str(i), **_SCALED} for i in (0, 1)]} | changes
    write_attributes(tmp_path / "a", {**attributes, "multiscales": [entry]})
    (tmp_path / "a" / ".zgroup").write_text(json.dumps({"zarr_format": 2} | group))

    found = info(tiles, "data/a")

    assert (found["kind"], len(found["levels"])) == ("multiscale", 2)
    assert "".join(axis["name"] for axis in found["axes"]) == axes
    assert [axis["scale"] for axis in found["axes"]] == scale
    assert found["channels"][0]["label"] == "GFP"
    assert [problem for problem in found["problems"] if not problem.startswith("omero")] != []


COLLECTION = {"bioformats2raw.layout": 3}
WELL = {"well": {"images": [{"path": "0"}]}}
ONE_WELL = [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}]
PLATE = {"plate": {"rows": [{"name": "A"}], "columns": [{"name": "1"}], "wells": ONE_WELL}}


@pytest.mark.parametrize(
    ("groups", "error", "text"),
    [
        ({}, NodeNotFound, "data/a"),
        ({"a": {"title": "just a group"}}, WrongKind, "group"),
        ({"a": {"multiscales": [{"datasets": [{"path": "0"}]}]}}, BadMetadata, "there is no array"),
        ({"a": PLATE}, BadMetadata, "none of 1 images"),
        *(({"a": COLLECTION, "a/0": inner}, BadMetadata, "group") for inner in (COLLECTION, WELL)),
        *(({"a": WELL, "a/0": inner}, BadMetadata, "none of 1 images") for inner in (COLLECTION, WELL)),
    ],
)
def test_what_is_no_image_is_refused_with_the_reason(
    tmp_path: Path, tiles: Tiles, groups: dict[str, Any], error: type[Exception], text: str
) -> None:
    for path, attributes in groups.items():
        write_attributes(tmp_path / path, attributes)

    with pytest.raises(error, match=text):
        info(tiles, "data/a")


def test_a_broken_plate_names_the_document_that_it_is_in(tmp_path: Path, tiles: Tiles) -> None:
    write_attributes(tmp_path / "v2", PLATE)
    (tmp_path / "v3").mkdir()
    document = {"zarr_format": 3, "node_type": "group", "attributes": {"ome": {"version": "0.5", **PLATE}}}
    (tmp_path / "v3" / "zarr.json").write_text(json.dumps(document))

    for key in ("v2/.zattrs", "v3/zarr.json"):
        with pytest.raises(BadMetadata, match=f"{key}: plate: none of 1 images"):
            info(tiles, f"data/{key[:2]}")


def test_channels_without_a_colour_have_one_in_turn_and_samples_of_photographs_their_own(
    tmp_path: Path, tiles: Tiles
) -> None:
    write_image(tmp_path / "many", [ramp(9, 4, 4)], "cyx")
    write_image(tmp_path / "one", [ramp(1, 4, 4)], "cyx")
    write_array(tmp_path / "photograph", ramp(4, 4, 4, dtype="u1"))

    def colours(path: str) -> list[str]:
        return [channel["color"] for channel in info(tiles, path)["channels"]]

    turn = ["00FF00", "FF00FF", "00FFFF", "FFFF00", "FF0000", "0000FF", "FFFFFF"]
    assert colours("data/many") == [*turn, *turn[:2]]
    assert colours("data/one") == ["FFFFFF"]
    assert colours("data/photograph")[:3] == ["FF0000", "00FF00", "0000FF"]


def write_plate(folder: Path, height: int = 100, width: int = 80) -> dict[str, Array]:
    """Wells A1, A3 and B2 of a plate of two by three, each with two fields; brightness tells them apart."""
    wells = {"A/1": (0, 0), "A/3": (0, 2), "B/2": (1, 1)}
    block = {
        "version": "0.4",
        "name": "screen",
        "rows": [{"name": n} for n in "AB"],
        "columns": [{"name": n} for n in "123"],
        "wells": [{"path": path, "rowIndex": r, "columnIndex": c} for path, (r, c) in wells.items()],
    }
    write_attributes(folder, {"plate": block})
    fields = {}
    for i, path in enumerate(wells):
        write_attributes(folder / path, {"well": {"version": "0.4", "images": [{"path": "0"}, {"path": "1"}]}})
        for j in range(2):
            image = np.full((height, width), 50 * (i + 1) + j, np.uint8)
            write_image(folder / path / str(j), [image, image[::2, ::2]], "yx")
            fields[f"{path}/{j}"] = image
    return fields


def test_a_plate_is_a_mosaic_of_the_first_fields_of_its_wells(tmp_path: Path, tiles: Tiles) -> None:
    fields = write_plate(tmp_path / "a")

    found = info(tiles, "data/a", [("tile_size", "64")])
    z, cells = found["maxzoom"], {image["path"]: image for image in found["images"]}
    picture = np.zeros((found["height"], found["width"], 4), np.uint8)
    for row in range(-(-found["height"] // 64)):
        for column in range(-(-found["width"] // 64)):
            part = pixels(tile(tiles, "data/a", (z, column, row), [("tile_size", "64")]))
            target = picture[64 * row : 64 * row + 64, 64 * column : 64 * column + 64]
            target[...] = part[: target.shape[0], : target.shape[1]]

    assert (found["kind"], found["name"], len(cells)) == ("plate", "screen", 3)
    assert found["rows"] == [{"name": "A", "y": 0}, {"name": "B", "y": cells["data/a/B/2"]["y"]}]
    assert [column["name"] for column in found["columns"]] == ["1", "2", "3"]
    assert found["columns"][2]["x"] == cells["data/a/A/3"]["x"]
    expected = np.zeros_like(picture)
    for path in ("A/1", "A/3", "B/2"):
        cell = cells[f"data/a/{path}"]
        place = (slice(cell["y"], cell["y"] + cell["height"]), slice(cell["x"], cell["x"] + cell["width"]))
        expected[place] = [*[fields[f"{path}/0"][0, 0]] * 3, 255]
    np.testing.assert_array_equal(picture, expected)


def test_images_of_a_mosaic_begin_on_whole_pixels_at_every_zoom(tmp_path: Path, tiles: Tiles) -> None:
    write_plate(tmp_path / "a")

    found = info(tiles, "data/a", [("tile_size", "64")])
    coarse = pixels(tile(tiles, "data/a", (0, 0, 0), [("tile_size", "64")]))

    factor = 2 ** found["maxzoom"]
    cell = next(image for image in found["images"] if image["path"] == "data/a/B/2")
    top, left = cell["y"] / factor, cell["x"] / factor
    assert (top, left) == (int(top), int(left))
    assert coarse[int(top), int(left)].tolist() == [150, 150, 150, 255]
    assert coarse[int(top) - 1, int(left)].tolist()[3] == 0


@pytest.mark.parametrize("path", ["data/a", "data/a/A/1", "data/a/A/1/0"])
def test_a_field_that_no_image_has_is_told_of(tmp_path: Path, tiles: Tiles, path: str) -> None:
    write_plate(tmp_path / "a")

    with pytest.raises(FieldUnknown, match="'nope'"):
        tiles.images.open(path, "nope")


@pytest.mark.parametrize("missing", ["A/1", "B/2"])
def test_wells_that_are_missing_leave_a_gap(tmp_path: Path, tiles: Tiles, missing: str) -> None:
    write_plate(tmp_path / "a")
    (tmp_path / "a" / missing / ".zattrs").unlink()

    found = info(tiles, "data/a", [("tile_size", "64")])
    cell = next(image for image in found["images"] if image["path"] == f"data/a/{missing}")
    place = (found["maxzoom"], cell["x"] // 64, cell["y"] // 64)
    shown = pixels(tile(tiles, "data/a", place, [("tile_size", "64")]))

    assert shown[cell["y"] % 64, cell["x"] % 64, 3] == 0


@pytest.mark.parametrize("filled", [["B12"], ["H12"], ["D5", "D6", "D7"]])
def test_a_plate_that_is_being_filled_shows_what_is_there(tmp_path: Path, tiles: Tiles, filled: list[str]) -> None:
    rows, columns = "ABCDEFGH", range(1, 13)
    wells = [{"path": f"{r}/{c}", "rowIndex": i, "columnIndex": c - 1} for i, r in enumerate(rows) for c in columns]
    block = {"rows": [{"name": r} for r in rows], "columns": [{"name": str(c)} for c in columns], "wells": wells}
    write_attributes(tmp_path / "a", {"plate": {"version": "0.4", **block}})
    for name in filled:
        well = tmp_path / "a" / name[0] / name[1:]
        write_attributes(well, {"well": {"version": "0.4", "images": [{"path": "0"}]}})
        write_image(well / "0", [np.full((40, 50), 2000, "<u2")], "yx")

    found, again = info(tiles, "data/a"), info(tiles, "data/a")
    shown = pixels(tile(tiles, "data/a", (0, 0, 0), [("rescale", "0,2000")]))

    assert found == again
    assert found["rescale_auto"][0] == 2000
    assert [problem for problem in found["problems"] if "first 8" in problem and filled[0][0] in problem]
    assert len(found["images"]) == 96
    assert (shown[..., 3] > 0).any()


def test_a_plate_of_absurd_extent_costs_nothing(tmp_path: Path, tiles: Tiles) -> None:
    rows = [{"name": str(i)} for i in range(3000)]
    block = {"rows": rows, "columns": [{"name": "1"}], "wells": [{"path": "0/1", "rowIndex": 0, "columnIndex": 0}]}
    write_attributes(tmp_path / "a", {"plate": block})
    write_attributes(tmp_path / "a" / "0" / "1", {"well": {"images": [{"path": "0"}]}})
    write_image(tmp_path / "a" / "0" / "1" / "0", [np.full((4, 4), 9, np.uint8)], "yx")

    found = info(tiles, "data/a", [("tile_size", "64")])
    shown = pixels(tile(tiles, "data/a", (0, 0, 0), [("tile_size", "64")]))

    assert found["height"] >= 3000 * 4
    assert shown[0, 0].tolist() == [9, 9, 9, 255]


@pytest.mark.parametrize("name", ["/", "//", ".", "..", "nowhere", "OME"])
def test_a_collection_passes_over_what_is_no_image(tmp_path: Path, tiles: Tiles, name: str) -> None:
    write_attributes(tmp_path / "a", {"bioformats2raw.layout": 3})
    write_attributes(tmp_path / "a" / "OME", {"series": [name, "7"]})
    write_image(tmp_path / "a" / "7", [np.full((4, 4), 7, np.uint8)], "yx")

    found = info(tiles, "data/a")

    assert found["path"] == "data/a/7"
    assert len(found["problems"]) == 1
    assert repr(name) in found["problems"][0]


def test_what_is_labelled_but_no_integer_is_shown_as_brightness(tmp_path: Path, tiles: Tiles) -> None:
    values = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    write_image(tmp_path / "a", [values], "yx", {"image-label": {"version": "0.4"}})

    found = info(tiles, "data/a")
    shown = pixels(tile(tiles, "data/a", (0, 0, 0)))

    assert found["kind"] == "multiscale"
    assert found["problems"] == ["image-label: labels are integers, not float32"]
    assert shown[0, 0, 0] < shown[2, 3, 0]


def test_of_several_pyramids_the_first_valid_one_is_shown(tmp_path: Path, tiles: Tiles) -> None:
    write_image(tmp_path / "a", [np.zeros((4, 4), np.uint8), np.zeros((2, 2), np.uint8)], "yx")
    attributes = json.loads((tmp_path / "a" / ".zattrs").read_text())
    valid = attributes["multiscales"][0]
    broken = {"version": "0.4", "axes": "yx"}

    for entries in ([valid, broken], [broken, valid]):
        write_attributes(tmp_path / "a", {"multiscales": entries})
        found = info(tiles, "data/a")
        assert found["kind"] == "multiscale"
        assert len(found["levels"]) == 2
        assert f"multiscales[{entries.index(broken)}].axes: expected a list, found 'yx'" in found["problems"]
