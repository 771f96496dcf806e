"""OME-Zarr's attributes of 0.4 and 0.5 become each other, and nobody else's attributes are touched."""

from __future__ import annotations

from typing import Any

import pytest
import yaozarrs

from hyperslab.engine.other_format import v2_attributes, v3_attributes

AXES = [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
LEVEL = {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1.0, 1.0]}]}
IMAGE = [{"version": "0.4", "name": "i", "axes": AXES, "datasets": [LEVEL]}]
WINDOW = {"min": 0, "max": 9, "start": 0, "end": 9}
PLATE = {
    "version": "0.4",
    "name": "p",
    "rows": [{"name": "A"}],
    "columns": [{"name": "1"}],
    "wells": [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}],
}


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("image", {"multiscales": IMAGE}),
        (
            "image",
            {"multiscales": IMAGE, "omero": {"version": "0.4", "channels": [{"color": "FF0000", "window": WINDOW}]}},
        ),
        ("cells", {"multiscales": IMAGE, "image-label": {"version": "0.4", "colors": [{"label-value": 1}]}}),
        ("plate", {"plate": PLATE}),
        ("1", {"well": {"version": "0.4", "images": [{"path": "0"}]}}),
        ("labels", {"labels": ["cells"]}),
        ("OME", {"series": ["0", "1"]}),
        ("collection", {"bioformats2raw.layout": 3}),
    ],
)
def test_each_block_has_its_place_in_both_versions(name: str, block: dict[str, Any]) -> None:
    before = {**block, "mine": {"version": 7}}

    made = v3_attributes(before, name)

    assert made.keys() == {"ome", "mine"}
    assert made["mine"] == before["mine"]
    yaozarrs.validate_ome_object({"ome": made["ome"]})
    assert '"version": "0.4"' not in str(made).replace("'", '"')
    back = v2_attributes(made, None)
    assert back == before
    if name not in ("OME", "labels", "collection"):
        yaozarrs.validate_ome_object(back)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("any", {}),
        ("any", {"labels": ["a"], "series": ["b"], "well": 3, "plate": "x", "omero": {}}),
        ("any", {"multiscales": [{"version": "0.3", "axes": ["y", "x"], "datasets": [{"path": "0"}]}]}),
        ("any", {"multiscales": [{"version": ["0.4"], "axes": AXES, "datasets": []}]}),
        ("any", {"multiscales": IMAGE, "ome": {"version": "0.5"}}),
        ("labels", {"labels": {"a": 1}}),
        ("any", {"multiscales": [None, 3], "plate": [{}]}),
    ],
)
def test_what_is_no_ome_zarr_of_this_version_stays_as_it_is(name: str, attributes: dict[str, Any]) -> None:
    assert v3_attributes(attributes, name) == attributes


@pytest.mark.parametrize("ome", [{"version": "0.6"}, "x", None, {"version": ["0.5"]}])
def test_other_versions_stay_in_zarr_v2_too(ome: Any) -> None:
    assert v2_attributes({"ome": ome}, ("y", None)) == {"ome": ome}
    assert v2_attributes({}, ("y", "x")) == {"_ARRAY_DIMENSIONS": ["y", "x"]}
