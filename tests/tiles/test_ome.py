"""OME-Zarr metadata: the specification's own suites, and a rule at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.engine.other_format import dimensions_in, v2_attributes, v3_attributes
from hyperslab.tiles.ome import Cell, Mosaic, Window, broken_dataset_paths, label_paths, read_ome, series_paths
from tests.tiles.support import axes_json

Json = dict[str, Any]
CHANNEL: Json = {"color": "00ff00", "window": {"min": 0, "max": 255, "start": 10, "end": 200}, "label": "GFP"}


def image(**changes: Any) -> Json:
    """A valid image; ``changes`` to its only multiscale, of which None removes a member."""
    datasets = [
        {"path": str(i), "coordinateTransformations": [{"type": "scale", "scale": [1, factor, factor]}]}
        for i, factor in enumerate((0.5, 1.0))
    ]
    entry: Json = {"version": "0.4", "name": "cells", "axes": axes_json("cyx"), "datasets": datasets}
    entry |= changes
    return {"multiscales": [{k: v for k, v in entry.items() if v is not None}]}


def plate(**changes: Any) -> Json:
    block: Json = {
        "rows": [{"name": "A"}, {"name": "B"}],
        "columns": [{"name": "1"}, {"name": "2"}],
        "wells": [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}, {"path": "B/2", "rowIndex": 1, "columnIndex": 1}],
        "version": "0.4",
    }
    block |= changes
    return {"plate": {k: v for k, v in block.items() if v is not None}}


def test_a_valid_image_is_read_whole() -> None:
    found = read_ome(image(type="gaussian"))

    assert found.problems == ()
    assert found.multiscale is not None
    assert found.multiscale.axes is not None
    assert [(axis.name, axis.type) for axis in found.multiscale.axes] == [
        ("c", "channel"),
        ("y", "space"),
        ("x", "space"),
    ]
    assert [(d.path, d.scale) for d in found.multiscale.datasets] == [("0", (1, 0.5, 0.5)), ("1", (1, 1, 1))]
    assert (found.multiscale.name, found.multiscale.downsampling) == ("cells", "gaussian")


def test_the_transformation_of_the_whole_pyramid_comes_after_that_of_a_level() -> None:
    outer = [{"type": "scale", "scale": [1, 10, 10]}, {"type": "translation", "translation": [0, 5, 5]}]
    inner = [{"type": "scale", "scale": [1, 2, 2]}, {"type": "translation", "translation": [0, 1, 1]}]
    datasets = [{"path": "0", "coordinateTransformations": inner}]

    found = read_ome(image(datasets=datasets, coordinateTransformations=outer))

    assert found.multiscale is not None
    level = found.multiscale.datasets[0]
    assert (level.scale, level.translation) == ((1, 20, 20), (0, 15, 15))


@pytest.mark.parametrize(
    ("document", "member"),
    [
        (image(datasets=[]), "datasets: expected at least 1"),
        (image(datasets=None), "datasets: missing"),
        ({"multiscales": []}, "multiscales: expected at least 1"),
        ({"multiscales": {}}, "multiscales: expected a list"),
        ({"multiscales": [None]}, "multiscales[0]: expected an object"),
    ],
)
def test_what_names_no_level_is_no_image(document: Json, member: str) -> None:
    found = read_ome(document)

    assert found.multiscale is None
    assert len(found.problems) == 1
    assert member in found.problems[0]


SCALE: Json = {"type": "scale", "scale": [1, 2, 2]}
SHIFT: Json = {"type": "translation", "translation": [0, 1, 1]}


def levels(*transformations: Any, path: Any = "0") -> Json:
    return image(datasets=[{"path": path, "coordinateTransformations": [*transformations]}])


@pytest.mark.parametrize(
    ("document", "member", "scale"),
    [
        (image(axes=None), "multiscales[0].axes: missing", (1, 0.5, 0.5)),
        (image(axes=[]), "multiscales[0].axes: expected at least 1", (1, 0.5, 0.5)),
        (image(axes="cyx"), "multiscales[0].axes: expected a list", (1, 0.5, 0.5)),
        (image(axes=axes_json("yyx")), "multiscales[0].axes[1]: 'y' is there twice", (1, 0.5, 0.5)),
        (image(axes=axes_json("tcx")), "multiscales[0].axes: expected 2 or 3 axes of type space", (1, 0.5, 0.5)),
        (image(axes=[{"type": "space"}, *axes_json("yx")]), "axes[0].name: missing", (1, 0.5, 0.5)),
        (image(axes=[3, *axes_json("yx")]), "axes[0]: expected an object", (1, 0.5, 0.5)),
        (image(axes=[{"name": "z", "type": 1}, *axes_json("yx")]), "axes[0].type: expected a string", (1, 0.5, 0.5)),
        *(
            (
                image(axes=[{"name": "z", "type": "space", "unit": unit}, *axes_json("yx")]),
                "axes[0].unit",
                (1, 0.5, 0.5),
            )
            for unit in ("", 7, ["micrometer"])
        ),
        (image(version="0.4-x"), "version: '0.4-x' is none of", (1, 0.5, 0.5)),
        (image(version="9.9"), "version: '9.9' is none of", (1, 0.5, 0.5)),
        (image(version=0.4), "version: 0.4 is none of", (1, 0.5, 0.5)),
        (image(coordinateTransformations=[{"type": "affine"}]), "[0].type: expected scale", (1, 0.5, 0.5)),
        (image(coordinateTransformations=[]), "coordinateTransformations: expected at least 1", (1, 0.5, 0.5)),
        (image(datasets=[{"path": "0"}]), "datasets[0].coordinateTransformations: missing", None),
        (levels(), "datasets[0].coordinateTransformations: expected at least 1", None),
        (levels({"type": "rotation"}), "coordinateTransformations[0].type: expected scale, ", None),
        (levels({"type": "affine"}, SCALE), "coordinateTransformations[0].type: expected scale, ", (1, 2, 2)),
        (levels({"type": "scale", "scale": ["a", 1, 1]}), "coordinateTransformations[0].scale[0]", None),
        (levels({"type": "scale", "scale": [2, 2]}), "scale: expected 3 numbers, one for each axis, found 2", None),
        (levels(SHIFT), "coordinateTransformations: scale is missing", None),
        (levels(SCALE, {**SCALE, "scale": [9, 9, 9]}), "[1]: scale is there twice", (1, 2, 2)),
        (levels(SCALE, path=0), "datasets[0].path: expected a string, found 0: read as '0'", (1, 2, 2)),
    ],
)
def test_what_is_broken_in_an_image_is_left_out_and_named(
    document: Json, member: str, scale: tuple[float, ...] | None
) -> None:
    found = read_ome({**document, "omero": {"channels": [CHANNEL]}})

    assert len(found.problems) == 1
    assert member in found.problems[0]
    assert found.multiscale is not None
    assert found.omero is not None
    assert found.multiscale.datasets[0].path == "0"
    assert found.multiscale.datasets[0].scale == scale
    if "axes" not in member or "[" in member.removeprefix("multiscales[0]"):
        assert found.multiscale.axes is not None
        assert [axis.name for axis in found.multiscale.axes][2:] == ["x"]


@pytest.mark.parametrize("number", [10**400, -(10**400), float("inf"), float("nan"), True, "1"])
@pytest.mark.parametrize(
    ("place", "document"),
    [
        ("image-label.colors[0].label-value", lambda n: {"image-label": {"colors": [{"label-value": n}]}}),
        ("image-label.colors[0].rgba[0]", lambda n: {"image-label": {"colors": [{"label-value": 1, "rgba": [n] * 4}]}}),
        ("omero.rdefs.defaultZ", lambda n: {"omero": {"channels": [], "rdefs": {"defaultZ": n}}}),
        ("scale[0]", lambda n: image(datasets=[{"path": "0", "coordinateTransformations": [scale_of(n)]}])),
    ],
)
def test_a_number_that_no_float_can_hold_is_none(place: str, document: Callable[[Any], Json], number: Any) -> None:
    found = read_ome(document(number))

    assert len(found.problems) == 1
    assert place in found.problems[0]


def scale_of(number: Any) -> Json:
    return {"type": "scale", "scale": [number] * 3}


def test_older_versions_are_tolerated() -> None:
    first = {"multiscales": [{"version": "0.1", "datasets": [{"path": "0"}]}]}
    third = {"multiscales": [{"version": "0.3", "axes": ["z", "y", "x"], "datasets": [{"path": "0"}, {"path": "1"}]}]}

    oldest, newer = read_ome(first), read_ome(third)

    assert oldest.problems == newer.problems == ()
    assert oldest.multiscale is not None
    assert oldest.multiscale.axes is None
    assert newer.multiscale is not None
    assert newer.multiscale.axes is not None
    assert [axis.type for axis in newer.multiscale.axes] == ["space"] * 3


def test_the_attributes_of_version_5_are_found_in_their_place() -> None:
    document = image(version=None)

    found = read_ome({"ome": {"version": "0.5", **document}})

    assert found.multiscale is not None
    assert found.multiscale.version == "0.5"


def test_channels_have_colours_windows_and_places_to_begin() -> None:
    omero = {
        "channels": [{**CHANNEL, "active": False, "inverted": True}],
        "rdefs": {"defaultZ": 3, "defaultT": 0, "model": "greyscale"},
    }

    found = read_ome({**image(), "omero": omero}).omero

    assert found is not None
    assert (found.default_z, found.default_t, found.greyscale) == (3, 0, True)
    (channel,) = found.channels
    assert channel.window == Window(0, 255, 10, 200)
    assert (channel.color, channel.label, channel.active, channel.inverted) == ("00FF00", "GFP", False, True)


@pytest.mark.parametrize(
    ("window", "found"),
    [
        ({"start": 10, "max": 255}, Window(10, 255, 10, 255)),
        ({"start": 10, "min": 0, "max": 255}, Window(0, 255, 10, 255)),
        ({"end": 200, "min": 0, "max": 255}, Window(0, 255, 0, 200)),
        ({"end": 200, "min": 0}, Window(0, 200, 0, 200)),
        ({"end": 200, "start": 10, "max": 255}, Window(10, 255, 10, 200)),
    ],
)
def test_each_end_of_a_window_counts_without_the_others(window: Json, found: Window) -> None:
    ome = read_ome({**image(), "omero": {"channels": [{"window": window}]}})

    assert ome.omero is not None
    assert ome.omero.channels[0].window == found
    assert ome.problems == ()


@pytest.mark.parametrize(
    ("change", "member", "lost"),
    [
        ({"color": 255}, "color", "color"),
        ({"color": "green"}, "color", "color"),
        ({"window": {"min": 0, "start": 0, "end": "1"}}, "window.end", "window"),
        ({"window": {"start": 0, "end": 0}}, "not below", "window"),
        ({"window": {"min": 1, "max": 0, "start": 0, "end": float("nan")}}, "window.end", "window"),
        ({"window": 3}, "window", "window"),
    ],
)
def test_one_broken_member_of_a_channel_costs_only_that_member(change: Json, member: str, lost: str) -> None:
    found = read_ome({**image(), "omero": {"channels": [{**CHANNEL, **change}, CHANNEL]}})

    assert found.multiscale is not None
    assert found.omero is not None
    assert getattr(found.omero.channels[0], lost) is None
    assert getattr(found.omero.channels[1], lost) is not None
    assert f"omero.channels[0].{lost}" in found.problems[0]
    assert member in found.problems[0]
    assert len(found.problems) == 1 + (member == "window.end")  # and that no two ends are left


def test_labels_may_be_numbers_and_active_too() -> None:
    channels = [{**CHANNEL, "label": 488, "active": 0}, {**CHANNEL, "label": 561.5, "active": 1}]

    found = read_ome({**image(), "omero": {"channels": channels}})

    assert found.omero is not None
    assert [(channel.label, channel.active) for channel in found.omero.channels] == [("488", False), ("561.5", True)]
    assert found.problems[0] == "omero.channels[0].active: expected true or false, found 0: read as false"


def test_settings_beside_the_attributes_of_version_5_count_and_are_named() -> None:
    settings = {"channels": [CHANNEL]}

    found = read_ome({"ome": {"version": "0.5", **image()}, "omero": settings})
    inner = read_ome({"ome": {"version": "0.5", **image(), "omero": settings}, "omero": {"channels": []}})

    assert found.omero == inner.omero is not None
    assert ([*found.problems], inner.problems) == (["omero: stands beside 'ome', not in it; it is used"], ())


@pytest.mark.parametrize(
    ("omero", "labels"), [([], None), ({}, None), ({"channels": None}, None), ({"channels": [1, CHANNEL]}, ["", "GFP"])]
)
def test_channels_that_make_no_sense_are_left_out_and_a_broken_one_keeps_its_place(omero: Any, labels: Any) -> None:
    found = read_ome({**image(), "omero": omero})

    assert found.multiscale is not None
    assert (None if found.omero is None else [channel.label for channel in found.omero.channels]) == labels
    assert len(found.problems) == 1


@pytest.mark.parametrize(
    "block",
    [
        {"colors": []},
        {"colors": [{"rgba": [0, 0, 0, 0]}]},
        {"colors": [{"label-value": 1, "rgba": [0, 0, 0]}]},
        {"colors": [{"label-value": 1, "rgba": [0, 0, 0, 256]}]},
        {"colors": [{"label-value": 1, "rgba": [0, 0, 0, 0.5]}]},
        {"properties": [{}]},
        {"version": "1"},
        3,
    ],
)
def test_broken_label_metadata_still_makes_a_label_image(block: Any) -> None:
    found = read_ome({"image-label": block})

    assert found.image_label is not None
    assert found.image_label == {}
    assert len(found.problems) == 1


def test_a_plate_knows_its_wells() -> None:
    found = read_ome(plate(name="screen", acquisitions=[{"id": 0, "name": "first"}])).mosaic

    cells = (Cell("A/1", 0, 0), Cell("B/2", 1, 1))
    assert found == Mosaic("plate", "screen", 2, 2, cells, (("A", "B"), ("1", "2")))


@pytest.mark.parametrize(
    ("change", "member"),
    [
        ({"rows": None}, "plate.rows: missing"),
        ({"wells": []}, "plate.wells: expected at least 1"),
        ({"wells": [{"path": "A1"}]}, "wells[0].path"),
        ({"wells": [{"path": "../x", "rowIndex": 0, "columnIndex": 0}]}, "wells[0].path"),
        ({"wells": [{"path": "Z/1", "rowIndex": 9, "columnIndex": 0}]}, "wells[0].rowIndex"),
    ],
)
def test_a_plate_without_wells_is_none(change: Json, member: str) -> None:
    found = read_ome(plate(**change))

    assert found.mosaic is None
    assert member in found.problems[0]


SECOND_WELL: Json = {"path": "B/2", "rowIndex": 1, "columnIndex": 1}


@pytest.mark.parametrize(
    ("change", "member", "wells"),
    [
        ({"rows": [{"name": "A"}, {"name": "A"}]}, "plate.rows[1]: 'A' is there twice", ["A/1", "B/2"]),
        ({"columns": [{"name": "1-2"}, {"name": "2"}]}, "columns[0].name", ["A/1", "B/2"]),
        ({"wells": [{"path": "A/1", "rowIndex": 0}, SECOND_WELL]}, "wells[0].columnIndex: missing", ["A/1", "B/2"]),
        ({"wells": [{"path": "A/1", "rowIndex": 9, "columnIndex": 0}]}, "wells[0].rowIndex: 9 is beyond", ["A/1"]),
        ({"wells": [{"path": "A1"}, SECOND_WELL]}, "wells[0].path", ["B/2"]),
        ({"wells": [{"path": "A1", "rowIndex": 0, "columnIndex": 0}, SECOND_WELL]}, "wells[0].path", ["A1", "B/2"]),
        ({"wells": [SECOND_WELL, SECOND_WELL]}, "is there twice", ["B/2"]),
        ({"wells": [SECOND_WELL, SECOND_WELL | {"path": "B/1"}]}, "'B/1' has the place of 'B/2'", ["B/2"]),
        ({"field_count": 0}, "field_count", ["A/1", "B/2"]),
        ({"acquisitions": [{"id": -1}]}, "acquisitions[0].id", ["A/1", "B/2"]),
        ({"acquisitions": 3}, "plate.acquisitions: expected a list", ["A/1", "B/2"]),
        ({"version": "x"}, "version", ["A/1", "B/2"]),
    ],
)
def test_what_is_broken_in_a_plate_is_left_out_and_named(change: Json, member: str, wells: list[str]) -> None:
    found = read_ome(plate(**change))

    assert found.mosaic is not None
    assert found.mosaic.cells == tuple(Cell(path, *((1, 1) if path == "B/2" else (0, 0))) for path in wells)
    assert len(found.problems) == 1
    assert member in found.problems[0]


@pytest.mark.parametrize(
    ("images", "paths"),
    [
        ([], None),
        (None, None),
        ([{"path": "../b"}], None),
        ([{"path": "a//b"}, {"path": "0"}], ["0"]),
        ([{"path": "a/b"}, {"path": "0"}], ["a/b", "0"]),
        ([{"path": 0}], ["0"]),
        ([{"path": "0"}, {"path": "0"}], ["0"]),
        ([{"path": "0", "acquisition": "x"}], ["0"]),
    ],
)
def test_what_is_broken_in_a_well_is_left_out_and_named(images: Any, paths: list[str] | None) -> None:
    found = read_ome({"well": {"images": images}})

    assert (None if found.mosaic is None else [cell.path for cell in found.mosaic.cells]) == paths
    assert "well.images" in found.problems[0]


def test_lists_of_labels_and_images_are_read() -> None:
    problems: list[str] = []
    assert label_paths({"labels": ["cells", "nuclei"]}, problems) == ("cells", "nuclei")
    assert series_paths({"series": ["0", "1"]}, problems) == ("0", "1")
    assert label_paths({}, problems) == ()
    assert problems == []
    assert label_paths({"labels": [3, True, "/cells"]}, problems) == ("3", "cells")
    assert [problem.partition(":")[0] for problem in problems] == ["labels[0]", "labels[1]", "labels[2]"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def spots(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a document: what holds it, and its key there."""
    members = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in members:
        yield document, key
        yield from spots(value)


@given(st.data(), JSON)
def test_nothing_in_the_metadata_makes_reading_it_fail(data: st.DataObject, rubbish: Any) -> None:
    document = copy.deepcopy(
        {**image(), **plate(), "omero": {"channels": [CHANNEL]}, "well": {"images": [{"path": "0"}]}}
    )
    holder, key = data.draw(st.sampled_from(list(spots(document))))

    holder[key] = rubbish

    for attributes in (document, {"ome": {"version": "0.5", **document}}):
        read_ome(attributes)
        broken_dataset_paths(attributes)
        dimensions_in(attributes, "0")
        v2_attributes(v3_attributes(attributes, "image"), ("y", "x"))


@pytest.mark.parametrize(
    ("axes", "datasets", "names"),
    [
        ([{"name": "y"}, {"name": "x"}], ["0", "1"], ("y", "x")),
        ([{"name": "y"}, {"name": "x"}], ["0"], None),
        ([{"name": "y"}, {"type": "space"}], ["1"], None),
    ],
)
def test_a_level_has_the_axes_of_its_image(axes: list[Any], datasets: list[str], names: tuple[str, ...] | None) -> None:
    attributes = {"multiscales": [{"axes": axes, "datasets": [{"path": path} for path in datasets]}]}

    assert dimensions_in(attributes, "1") == names
