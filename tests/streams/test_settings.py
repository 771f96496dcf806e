"""Settings of streams: what is refused, and by which name."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from typing import Any

import pytest

from hyperslab.errors import BadDefinition
from hyperslab.streams.layout import StreamPlan
from hyperslab.streams.pyramid import METHODS
from hyperslab.streams.settings import difference, parse_settings
from tests.streams.support import dimension, image, plate

SETTINGS: dict[str, Any] = {
    "zarr_format": 3,
    "arrays": [
        image("sample/cells", attributes={"a": 1}),
        image("", pyramid={"method": "nearest", "max_levels": 1}),
        image("labels/nuclei", dtype="|u1", pyramid=None),
    ],
    "plates": [plate("plate")],
    "expires_in": 60,
    "ack": "chunk",
}
DIMENSIONS = "arrays.0.dimensions"
FIELD = "plates.0.wells.0.fields.0"


def changed(path: str, value: Any) -> dict[str, Any]:
    """`SETTINGS` with one member replaced."""
    document = copy.deepcopy(SETTINGS)
    *way, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    inner: Any = document
    for part in way:
        inner = inner[part]
    inner[last] = value
    return document


REFUSED: list[tuple[str, Any, str]] = [
    ("zarr_format", 4, "zarr_format"),
    ("zarr_format", "3", "zarr_format"),
    ("arrays", {}, "arrays"),
    ("arrays.0", 7, "arrays.0"),
    ("expires_in", 0, "expires_in"),
    ("expires_in", 86_401, "expires_in"),
    ("ack", "never", "ack"),
    ("pad", True, "pad"),
    ("arrays.0.dimension", [], "arrays.0.dimension"),
    ("arrays.0.dtype", "<u3", "arrays.0.dtype"),
    ("arrays.0.dtype", "|O", "arrays.0.dtype"),
    ("arrays.0.fill_value", -1, "arrays.0.fill_value"),
    ("arrays.0.fill_value", "zero", "arrays.0.fill_value"),
    ("arrays.0.attributes", {"_ARRAY_DIMENSIONS": []}, "arrays.0.attributes"),
    ("arrays.0.attributes", {"ome": {}}, "arrays.0.attributes"),
    ("arrays.0.attributes", [], "arrays.0.attributes"),
    ("arrays.0.compressor", {"id": "pickle"}, "arrays.0.compressor"),
    ("arrays.0.compressor", "blosc", "arrays.0.compressor"),
    ("arrays.0.codecs", [{"name": "bytes"}, {"name": "secret"}], "arrays.0.codecs.1"),
    ("arrays.0.codecs", ["bytes"] * 65, "arrays.0.codecs"),
    ("arrays.0.storage_order", ["t", "c", "y", "y"], "arrays.0.storage_order"),
    ("arrays.0.storage_order", ["t", "c", "y"], "arrays.0.storage_order"),
    ("arrays.0.storage_order", [["t"], "c", "y", "x"], "arrays.0.storage_order"),
    ("arrays.0.pyramid", {"method": "median"}, "arrays.0.pyramid.method"),
    ("arrays.0.pyramid", {}, "arrays.0.pyramid.method"),
    ("arrays.0.pyramid", {"method": "mean", "max_levels": -1}, "arrays.0.pyramid.max_levels"),
    ("arrays.0.pyramid", {"method": "mean", "levels": 1}, "arrays.0.pyramid.levels"),
    (DIMENSIONS, [dimension("x", 5)], DIMENSIONS),
    (DIMENSIONS, [dimension("t", 5), dimension("y", 5), dimension("y", 5)], DIMENSIONS),
    (f"{DIMENSIONS}.0.size", 0, f"{DIMENSIONS}.0.size"),
    (f"{DIMENSIONS}.0.size", 1.5, f"{DIMENSIONS}.0.size"),
    (f"{DIMENSIONS}.0.size", True, f"{DIMENSIONS}.0.size"),
    (f"{DIMENSIONS}.1.size", None, f"{DIMENSIONS}.1.size"),
    (f"{DIMENSIONS}.2.chunk", 0, f"{DIMENSIONS}.2.chunk"),
    (f"{DIMENSIONS}.2.chunk", None, f"{DIMENSIONS}.2.chunk"),
    (f"{DIMENSIONS}.2.shard", 0, f"{DIMENSIONS}.2.shard"),
    (f"{DIMENSIONS}.2.scale", 0, f"{DIMENSIONS}.2.scale"),
    (f"{DIMENSIONS}.2.scale", -0.1, f"{DIMENSIONS}.2.scale"),
    (f"{DIMENSIONS}.2.scale", float("inf"), f"{DIMENSIONS}.2.scale"),
    (f"{DIMENSIONS}.2.unit", 5, f"{DIMENSIONS}.2.unit"),
    (f"{DIMENSIONS}.2.kind", "space", f"{DIMENSIONS}.2.kind"),
    (f"{DIMENSIONS}.3.type", "channel", f"{DIMENSIONS}.3.type"),
    (f"{DIMENSIONS}.0.name", "", f"{DIMENSIONS}.0.name"),
    *[("arrays.0.key", key, "arrays.0.key") for key in ("a//b", "/a", "a/", "..", "a/.../b", "__a", "a b", "ä", 7)],
    *[("arrays.0.key", f"a/{name}", "arrays.0.key") for name in ("zarr.json", ".zattrs", "frames.jsonl", ".hyperslab")],
    ("arrays.0.key", "labels/nuclei", "arrays.2.key"),
    ("arrays.0.key", "labels/nuclei/a", "arrays.0.key"),
    ("arrays.0.key", "7/a", "arrays.0.key"),
    ("arrays.0.key", "plate/A/1/0", "plates.0.wells.0.fields.0.key"),
    ("arrays.0.key", "plate/A/1/0/3", "arrays.0.key"),
    ("arrays.2.key", "plate/A", f"{FIELD}.key"),
    ("plates.0.key", "labels/nuclei", "plates.0.key"),
    ("plates.0.rows", ["A", "a"], "plates.0.rows"),
    ("plates.0.rows", [], "plates.0.rows"),
    ("plates.0.columns", ["1-2"], "plates.0.columns"),
    ("plates.0.wells.0.row", "C", "plates.0.wells.0.row"),
    ("plates.0.wells.0.fields", [], "plates.0.wells.0.fields"),
    (f"{FIELD}.acquisition", 7, f"{FIELD}.acquisition"),
    (f"{FIELD}.key", "0/1", f"{FIELD}.key"),
    ("plates.0.wells.0.fields.1.key", "0", "plates.0.wells.0.fields.1"),
    (
        "plates.0.wells.1",
        {"row": "A", "column": "1", "fields": [{"key": "a", "array": {}}]},
        "plates.0.wells.1.fields.0.array.dtype",
    ),
    (f"{FIELD}.array.key", "0", f"{FIELD}.array.key"),
    (f"{FIELD}.array.dimensions.0.size", None, f"{FIELD}.array.dimensions.0.size"),
    ("plates.0.acquisitions.0.id", -1, "plates.0.acquisitions.0.id"),
    ("plates.0.acquisitions", [{"id": 0}, {"id": 0}], "plates.0.acquisitions.1"),
]


@pytest.mark.parametrize(("path", "value", "member"), REFUSED)
def test_what_is_wrong_is_refused_by_the_path_of_its_member(path: str, value: Any, member: str) -> None:
    with pytest.raises(BadDefinition) as caught:
        StreamPlan.of(parse_settings(changed(path, value)), "data/run")

    assert caught.value.member == member


@pytest.mark.parametrize(
    ("dtype", "refused"),
    [
        ("|b1", {"mean"}),
        ("<c8", {"min", "max"}),
        ("<M8[s]", {"mean"}),
        ("|S3", {"mean"}),
        ([["a", "<i2"], ["b", "<f4"]], {"mean", "min", "max"}),
        ("bfloat16", set()),
        ("int4", set()),
    ],
)
def test_each_method_of_a_pyramid_takes_the_dtypes_that_it_can(dtype: Any, refused: set[str]) -> None:
    for method in METHODS:
        document = {"arrays": [image("a", dtype=dtype, fill_value=None, pyramid={"method": method})]}
        with pytest.raises(BadDefinition, match=r"a mean|min needs|max needs") if method in refused else nullcontext():
            parse_settings(document)


def test_shards_are_of_zarr_v3() -> None:
    document = changed("zarr_format", 2)
    document["arrays"][0]["dimensions"][3]["shard"] = 2

    with pytest.raises(BadDefinition) as caught:
        parse_settings(document)

    assert caught.value.member == "arrays.0.dimensions.3.shard"


@pytest.mark.parametrize("document", [None, [], "x", {}, {"arrays": []}])
def test_a_stream_has_at_least_one_array(document: Any) -> None:
    with pytest.raises(BadDefinition):
        parse_settings(document)


def test_settings_become_the_same_again_from_their_document() -> None:
    settings = parse_settings(SETTINGS)

    again = parse_settings(json.loads(json.dumps(settings.to_document())))

    assert again == settings
    assert difference(settings, again) is None


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("arrays.0.dimensions.2.chunk", 7, "arrays.0.dimensions.2.chunk"),
        ("arrays.0.dtype", ">u2", "arrays.0.dtype"),
        ("arrays.0.dtype", "uint16", None),
        ("arrays.0.storage_order", ["t", "c", "y", "x"], None),
        ("arrays.0.pyramid", None, "arrays.0.pyramid"),
        ("arrays.1.attributes", {"new": True}, None),
        (f"{FIELD}.key", "9", f"{FIELD}.key"),
        ("plates", [], "plates"),
        ("ack", "tail", "ack"),
    ],
)
def test_the_first_difference_is_named(path: str, value: Any, found: str | None) -> None:
    assert difference(parse_settings(SETTINGS), parse_settings(changed(path, value))) == found
