"""TIFF files of slices, read by tifffile."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import numpy as np
import pytest
import tifffile
import zarr

from hyperslab.api.options import ApiOptions
from tests.api.support import problem, serving

RANDOM = np.random.default_rng(3)
OME: dict[str, Any] = {
    "multiscales": [
        {
            "version": "0.4",
            "axes": [
                {"name": "t", "type": "time", "unit": "second"},
                {"name": "c", "type": "channel"},
                {"name": "z", "type": "space", "unit": "micrometer"},
                {"name": "y", "type": "space", "unit": "micrometer"},
                {"name": "x", "type": "space", "unit": "micrometer"},
            ],
            "datasets": [
                {"path": f"s/{i}", "coordinateTransformations": [{"type": "scale", "scale": [5, 1, 2, n, n]}]}
                for i, n in enumerate((0.25, 0.5))
            ],
        }
    ],
    "omero": {"channels": [{"label": "DNA <1>", "color": "0000FF"}, {"label": "actin", "color": "00FF00"}]},
}
ARRAYS: Mapping[str, tuple[np.ndarray[Any, Any], dict[str, Any]]] = {
    "cells/s/0": (RANDOM.integers(0, 60000, (3, 2, 4, 10, 12), "<u2"), {}),
    "cells/s/1": (RANDOM.integers(0, 60000, (3, 2, 4, 5, 6), "<u2"), {}),
    "photo": (RANDOM.integers(0, 255, (7, 9, 3), "u1"), {"_ARRAY_DIMENSIONS": ["y", "x", "c"]}),
    "clear": (RANDOM.integers(0, 255, (7, 9, 4), "u1"), {}),
    "stack": (RANDOM.integers(0, 255, (2, 7, 9, 3), "u1"), {}),
    "last": (RANDOM.integers(0, 255, (7, 9, 5), "<u2"), {"_ARRAY_DIMENSIONS": ["y", "x", "c"]}),
    "turned": (RANDOM.normal(size=(4, 5, 3)), {"_ARRAY_DIMENSIONS": ["x", "y", "z"]}),
    "sst": (
        np.array([[[1, -999], [3, 4]]], "<i2"),
        {"_ARRAY_DIMENSIONS": ["time", "lat", "lon"], "scale_factor": 0.5, "_FillValue": -999, "units": "K"},
    ),
    "line": (np.arange(5, dtype=">f4"), {}),
    "point": (np.array(7, "<u4"), {}),
    "half": (np.linspace(0, 1, 12, dtype="<f2").reshape(3, 4), {}),
    "mask": (np.eye(3, 4, dtype=bool), {}),
    "labels": (np.array([[2**53 + 1, 0], [-1, 2**62]], "<i8"), {}),
    "wave": (np.exp(1j * np.arange(12)).astype("<c8").reshape(3, 4), {}),
    "six": (np.zeros((1, 2, 1, 2, 3, 4), "<u2"), {}),
    "dates": (np.array([["2020-01-01"]], "<M8[D]"), {}),
    "many": (np.zeros((70000, 1, 2), "u1"), {}),
    "none": (np.zeros((0, 4), "u1"), {}),
}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("tiff")
    zarr.open_group(folder / "cells", mode="w", zarr_format=2, attributes=OME)
    for name, (values, attributes) in ARRAYS.items():
        chunks = tuple(max(1, n) for n in values.shape)
        array = zarr.create_array(
            folder / name, shape=values.shape, chunks=chunks, dtype=values.dtype, attributes=attributes, zarr_format=2
        )
        array[...] = values
    with serving(folder, ApiOptions(max_tiff_bytes=1 << 20)) as found:
        yield found.http


def tiff(http: httpx.Client, name: str, **query: str) -> tifffile.TiffFile:
    answer = http.get(f"/v1/slice/data/{name}", params={"format": "tiff", **query})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/tiff"), answer.text
    return tifffile.TiffFile(io.BytesIO(answer.content))


@pytest.mark.parametrize(
    ("name", "select", "axes", "order"),
    [
        ("cells/s/0", "", "TCZYX", None),
        ("cells/s/0", ":,1,::2,2:,::-1", "TZYX", None),
        ("cells/s/0", "0,1,2", "YX", None),
        ("cells/s/0", "[2,0],:,1", "TCYX", None),
        ("photo", "", "YXS", None),
        ("clear", "2:5", "YXS", None),
        ("stack", "", "ZYXS", None),
        ("photo", "...,1", "YX", None),
        ("last", "", "CYX", (2, 0, 1)),
        ("turned", "", "ZYX", (2, 1, 0)),
        ("line", "1:", "YX", None),
        ("half", "", "YX", None),
        ("mask", "", "YX", None),
        ("labels", "", "YX", None),
        ("wave", "", "YX", None),
        ("six", "0", "CZYX", None),
    ],
)
def test_a_file_has_the_values_and_axes_of_a_slice(
    http: httpx.Client, name: str, select: str, axes: str, order: tuple[int, ...] | None
) -> None:
    values = ARRAYS[name][0]
    items = eval(f"np.index_exp[{select}]") if select else np.index_exp[...]
    expected = values[items] if not isinstance(items[0], list) else values[items[0]][:, :, 1]
    expected = expected if order is None else expected.transpose(order)

    with tiff(http, name, select=select) as found:
        series = found.series[0]
        assert np.array_equal(series.asarray().reshape(expected.shape), expected)
        assert series.axes == axes
        assert {len(found.pages)} == {int(np.prod(expected.shape[: -3 if axes[-1] == "S" else -2]))}
        assert found.is_ome is (values.dtype != np.int64)
        assert found.byteorder == "<"


def test_a_file_says_the_sizes_of_pixels_and_the_channels_of_its_image(http: httpx.Client) -> None:
    with tiff(http, "cells/s/1", select=":,::-1,:,::2") as found:
        xml = ElementTree.fromstring(found.ome_metadata or "")
    space = {"ome": "http://www.openmicroscopy.org/Schemas/OME/2016-06"}
    (pixels,) = xml.findall(".//ome:Pixels", space)
    (image,) = xml.findall(".//ome:Image", space)
    channels = xml.findall(".//ome:Channel", space)

    sizes = {name: pixels.attrib[name] for name in pixels.attrib if name.startswith(("Physical", "Time"))}
    assert sizes == {
        **{"PhysicalSizeX": "0.5", "PhysicalSizeY": "1.0", "PhysicalSizeZ": "2.0", "TimeIncrement": "5.0"},
        **{f"PhysicalSize{axis}Unit": "µm" for axis in "XYZ"},
        "TimeIncrementUnit": "s",
    }
    assert [pixels.attrib[f"Size{axis}"] for axis in "TCZYX"] == ["3", "2", "4", "3", "6"]
    assert [channel.attrib["Name"] for channel in channels] == ["actin", "DNA <1>"]
    assert [int(channel.attrib["Color"]) & 0xFFFFFFFF for channel in channels] == [0x00FF00FF, 0x0000FFFF]
    assert image.attrib["Name"] == "data/cells/s/1"
    assert "UUID" not in xml.attrib


def test_a_file_has_decoded_and_converted_values(http: httpx.Client) -> None:
    with tiff(http, "sst", decode="cf") as found:
        assert np.array_equal(found.asarray().squeeze(), [[0.5, np.nan], [1.5, 2]], equal_nan=True)
    with tiff(http, "labels", dtype="<f8") as found:
        assert found.is_ome
        assert found.asarray().dtype == np.float64
    with tiff(http, "point") as found:
        assert found.asarray().tolist() == [[7]]


def test_the_same_selection_is_the_same_file(http: httpx.Client) -> None:
    """So tags and ranges hold, of a file that is made anew each time, and follow the image that names its channels."""
    url = "/v1/slice/data/cells/s/0?select=0&format=tiff"
    whole, head = http.get(url), http.head(url)
    part = http.get(url, headers={"Range": "bytes=100-299", "If-Range": whole.headers["etag"]})
    again = http.get(url.replace("&format=tiff", ""), headers={"Accept": "image/tiff"})
    plan = http.get(url.replace("slice", "plan", 1)).json()

    assert (part.status_code, part.content) == (206, whole.content[100:300])
    assert again.content == whole.content
    assert head.headers["etag"] == whole.headers["etag"] == plan["etag"]
    assert http.get(url, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    assert (plan["format"], plan["media_type"], plan["limit"]) == ("tiff", "image/tiff", 1 << 20)
    renamed = {"attributes": {"omero": {"channels": [{"label": "other"}]}}}
    http.patch("/v1/metadata/data/cells", json=renamed).raise_for_status()
    changed = http.get(url)
    assert b"other" in changed.content
    assert changed.headers["etag"] != whole.headers["etag"]
    http.patch("/v1/metadata/data/cells", json={"attributes": {"omero": OME["omero"]}}).raise_for_status()


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ("six?format=tiff", (422, "not-representable")),
        ("dates?format=tiff", (422, "not-representable")),
        ("none?format=tiff", (422, "not-representable")),
        ("line?format=tiff&reduce=minmax", (400, "bad-parameter")),
        ("many?format=tiff", (413, "too-large")),
        ("cells/s/0?format=tif", (400, "bad-parameter")),
    ],
)
def test_what_no_file_can_hold_is_refused(http: httpx.Client, query: str, refusal: tuple[int, str]) -> None:
    assert problem(http.get(f"/v1/slice/data/{query}")) == refusal


def test_a_file_over_the_limit_comes_in_parts(example_store: Path) -> None:
    with serving(example_store, ApiOptions(max_tiff_bytes=20_000), writable=False) as found:
        refused = found.http.get("/v1/slice/data/cube?format=tiff")
        boxes = refused.json()["boxes"]
        sizes = [tiff(found.http, "cube", select=box).asarray().nbytes for box in boxes]

    assert problem(refused) == (413, "too-large")
    assert sum(sizes) == 20 * 30 * 40 * 2
    assert max(sizes) <= 20_000
