"""Layouts: which nodes a stream makes, their documents, and where frames lie in them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import yaozarrs
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.streams.layout import StreamArray, StreamPlan
from hyperslab.streams.settings import parse_settings
from tests.streams.support import dimension, image, plate


def layout(*arrays: dict[str, Any], version: int = 2, **others: Any) -> StreamPlan:
    return StreamPlan.of(parse_settings({"zarr_format": version, "arrays": list(arrays), **others}), "data/run")


def only(array: dict[str, Any], version: int = 2) -> StreamArray:
    (made,) = layout(array, version=version).arrays
    return made


def test_a_level_of_zarr_v2_is_created_by_a_whole_body() -> None:
    level = only(image("a/b", attributes={"who": "me"}, storage_order=["c", "t", "x", "y"])).levels[1]

    assert level.path == "data/run/a/b/1"
    assert level.definition == {
        "zarr_format": 2,
        "shape": [2, 0, 5, 5],
        "chunks": [1, 2, 4, 4],
        "dtype": "<u2",
        "dimension_names": ["c", "t", "x", "y"],
        "attributes": {},
        "dimension_separator": "/",
        "compressor": {"id": "blosc"},
        "fill_value": 7,
    }


def test_an_array_of_zarr_v3_is_created_with_its_shards() -> None:
    sizes = [
        dimension("t", None, 5, shard=2, unit="second", scale=0.5),
        dimension("y", 8, 4),
        dimension("x", 8, 4, shard=2),
    ]
    array = only(image("a", dimensions=sizes, pyramid=None, attributes={"who": "me"}, compressor=None), version=3)
    (level,) = array.levels

    assert (array.path, level.path, level.object_rows) == ("data/run/a", "data/run/a", 10)
    assert level.definition == {
        "zarr_format": 3,
        "shape": [0, 8, 8],
        "chunks": [5, 4, 4],
        "shards": [10, 4, 8],
        "dtype": "<u2",
        "dimension_names": ["t", "y", "x"],
        "attributes": {"dimension_units": ["0.5 second", None, None], "dimension_scales": [0.5, 1, 1], "who": "me"},
        "compressor": None,
        "fill_value": 7,
    }


@pytest.mark.parametrize(
    ("dimensions", "order", "most", "shapes", "halved"),
    [
        ([("t", 3, 1), ("y", 10, 4), ("x", 9, 4)], None, None, [(3, 10, 9), (3, 5, 5), (3, 3, 3)], (1, 2)),
        ([("t", 3, 1), ("y", 10, 4), ("x", 9, 4)], None, 1, [(3, 10, 9), (3, 5, 5)], (1, 2)),
        ([("t", 3, 1), ("y", 10, 4), ("x", 9, 4)], None, 0, [(3, 10, 9)], None),
        ([("t", 3, 1), ("y", 8, 8), ("x", 8, 4)], None, None, [(3, 8, 8)], None),
        ([("t", 3, 1), ("y", 8, 8), ("x", 9, 4)], None, None, [(3, 8, 9)], None),
        ([("z", 5, 1), ("y", 8, 2), ("x", 8, 2)], None, None, [(5, 8, 8), (3, 4, 4), (2, 2, 2)], (0, 1, 2)),
        ([("z", 1, 1), ("y", 8, 2), ("x", 8, 2)], None, None, [(1, 8, 8), (1, 4, 4), (1, 2, 2)], (1, 2)),
        ([("z", 5, 1), ("c", 2, 1), ("y", 4, 2), ("x", 4, 2)], None, None, [(5, 2, 4, 4), (5, 2, 2, 2)], (2, 3)),
        ([("z", 5, 1), ("c", 2, 1), ("y", 4, 2), ("x", 4, 2)], "cxzy", None, [(2, 4, 5, 4), (2, 2, 3, 2)], (0, 2, 3)),
        ([("t", 2, 1), ("z", 3, 1), ("y", 4, 2), ("x", 4, 2)], None, None, [(2, 3, 4, 4), (2, 2, 2, 2)], (1, 2, 3)),
        ([("y", 7, 2), ("x", 5, 2)], "xy", None, [(5, 7), (3, 4), (2, 2)], (0, 1)),
    ],
)  # fmt: skip
def test_levels_halve_space_while_it_is_larger_than_a_chunk(
    dimensions: list[tuple[str, int, int]],
    order: str | None,
    most: int | None,
    shapes: list[tuple[int, ...]],
    halved: tuple[int, ...] | None,
) -> None:
    sizes = [dimension(*parts) for parts in dimensions]
    pyramid = {"method": "mean", "max_levels": most}
    array = only(image("a", dimensions=sizes, storage_order=order and [*order], pyramid=pyramid))
    rows = 1 if len(sizes) == 2 else dimensions[0][1]

    assert [tuple(step["shape"]) for step in array.plan()] == shapes
    assert [level.stored_shape(level.rows(rows, final=True)) for level in array.levels] == shapes
    assert [level.halved for level in array.levels[1:]] == [halved] * (len(shapes) - 1)


def test_rows_of_levels_are_halved_along_the_append_dimension() -> None:
    sizes = [dimension("z", None), dimension("y", 16), dimension("x", 16)]
    levels = only(image("a", dimensions=sizes)).levels

    assert [[level.rows(rows, final=False) for level in levels] for rows in (0, 1, 3, 7)] == [
        [0, 0, 0], [1, 0, 0], [3, 1, 0], [7, 3, 1],
    ]  # fmt: skip
    assert [level.rows(7, final=True) for level in levels] == [7, 4, 2]


def test_the_plan_counts_chunks_and_shards() -> None:
    sizes = [dimension("t", 7, 2, shard=2), dimension("y", 10), dimension("x", 9, shard=3)]
    array = image("a", dimensions=sizes, pyramid={"method": "min", "max_levels": 0})
    grown = image("a", dimensions=[dimension("t", None, 2), *sizes[1:2], dimension("x", 9)], pyramid=None)

    assert only(array, version=3).plan() == [
        {
            "path": "data/run/a/0",
            "shape": [7, 10, 9],
            "chunks": [2, 4, 4],
            "shards": [4, 4, 12],
            "chunk_count": 4 * 3 * 3,
            "shard_count": 2 * 3 * 1,
        }
    ]
    assert only(grown).plan()[0] == {
        "path": "data/run/a", "shape": [None, 10, 9], "chunks": [2, 4, 4], "shards": None, "chunk_count": None,
        "shard_count": None,
    }  # fmt: skip


@given(data=st.data())
def test_frames_lie_where_the_order_of_storage_puts_them(data: st.DataObject) -> None:
    """Frame by frame, and as a block of rows with one transpose: both are numpy's own transpose of all that came."""
    names = "tcz"[: data.draw(st.integers(0, 3))] + "yx"
    sizes = [data.draw(st.integers(1, 3)) for _ in names]
    order = data.draw(st.permutations(names))
    dimensions = [dimension(name, size, 2) for name, size in zip(names, sizes, strict=True)]
    array = only(image("a", dtype="<i4", dimensions=dimensions, storage_order=order, pyramid=None, fill_value=None))
    (level,) = array.levels
    frames = np.arange(np.prod(sizes), dtype="<i4").reshape(-1, *sizes[-2:])
    rows = len(frames) // array.frames_per_row
    expected = frames.reshape(sizes).transpose([names.index(name) for name in order])

    one_by_one = np.full(level.stored_shape(rows), -1, "<i4")
    for number, frame in enumerate(frames):
        one_by_one[array.stored_box(number)] = frame[(None,) * (len(names) - 2)].transpose(level.order)
    by_rows = np.full(level.stored_shape(rows), -1, "<i4")
    for start, stop in itertools.pairwise([0, rows // 2, rows]):
        part = frames[start * array.frames_per_row : stop * array.frames_per_row]
        by_rows[level.stored_box(start, stop)] = part.reshape(-1, *level.inner).transpose(level.order)

    assert array.frames == len(frames)
    assert array.frame_nbytes == frames[0].nbytes
    np.testing.assert_array_equal(one_by_one, expected)
    np.testing.assert_array_equal(by_rows, expected)


@pytest.mark.parametrize("version", [2, 3])
def test_images_plates_and_wells_are_valid_documents(version: int) -> None:
    made = layout(image("", attributes={"who": "me"}), image("labels/a"), plates=[plate("p")], version=version).groups

    below = [
        "/labels",
        "/labels/a",
        "/p",
        *[f"/p/{name}" for name in ("A", "A/1", "A/1/0", "A/1/1", "B", "B/2", "B/2/0")],
    ]
    assert list(made) == [f"data/run{path}" for path in ("", *below)]
    assert (made["data/run/labels"], made["data/run/p/A"]) == ({}, {})
    assert made["data/run"]["who"] == "me"
    for path in ("", "/labels/a", "/p", "/p/A/1"):
        attributes = made[f"data/run{path}"]
        yaozarrs.validate_ome_object(attributes if version == 2 else attributes["ome"])


def test_an_ome_image_says_where_each_level_lies() -> None:
    sizes = [
        dimension("t", None, unit="second", scale=2), dimension("z", 4, scale=0.5),
        dimension("y", 16, unit="micrometer"), dimension("x", 16, scale=0.25),
    ]  # fmt: skip
    made = {
        method: layout(image("a/cells", dimensions=sizes, pyramid={"method": method})).groups["data/run/a/cells"]
        for method in ("mean", "decimate")
    }
    (mean,), (decimated,) = (document["multiscales"] for document in made.values())

    assert (mean["version"], mean["name"], mean["type"]) == ("0.4", "cells", "mean")
    assert mean["axes"] == [
        {"name": "t", "type": "time", "unit": "second"}, {"name": "z", "type": "space"},
        {"name": "y", "type": "space", "unit": "micrometer"}, {"name": "x", "type": "space"},
    ]  # fmt: skip
    assert mean["datasets"][2] == {
        "path": "2",
        "coordinateTransformations": [
            {"type": "scale", "scale": [2, 2, 4, 1]},
            {"type": "translation", "translation": [0, 0.75, 1.5, 0.375]},
        ],
    }
    assert decimated["datasets"][2]["coordinateTransformations"][1]["translation"] == [0, 0, 0, 0]
    assert mean["metadata"].keys() == {"description", "method", "version", "kwargs"}


def test_a_plate_counts_its_fields() -> None:
    made = layout(image("a"), plates=[plate("p")]).groups
    document = made["data/run/p"]["plate"]

    assert document["field_count"] == 2
    assert document["acquisitions"] == [
        {"id": 3, "name": "first", "maximumfieldcount": 2, "starttime": 0, "endtime": 1}
    ]
    assert document["wells"][1] == {"path": "B/2", "rowIndex": 1, "columnIndex": 1}
    assert made["data/run/p/A/1"]["well"]["images"][1] == {"path": "1", "acquisition": 3}


@pytest.mark.parametrize(
    ("names", "warned"),
    [("tcyx", 0), ("yx", 0), ("czyx", 0), ("ctyx", 1), ("zcyx", 1), ("tabyx", 1), ("tabcyx", 2)],
)
def test_what_ome_zarr_does_not_allow_of_axes_is_warned_of(names: str, warned: int) -> None:
    types = {"t": "time", "c": "channel", "a": "angle", "b": "phase"}
    sizes = [{**dimension(name, 2), "type": types.get(name, "space")} for name in names]

    assert len(only(image("a", dimensions=sizes)).warnings) == warned
