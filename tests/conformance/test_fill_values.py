"""Every fill value of the vectors: missing chunks read as it, and new arrays get it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

from tests.conformance.deviations import deviation
from tests.conformance.service import Conformance, problem
from tests.conformance.vectors import Case, case_id, cases

_FOLLOWED = [case for case in cases("fill_values") if deviation("fill_values", case["id"]) is None]
_ACCEPTED = [case for case in _FOLLOWED if case["expect"]["accept"]]
_REFUSED = [case for case in _FOLLOWED if not case["expect"]["accept"]]


@pytest.mark.parametrize("case", _ACCEPTED, ids=case_id)
def test_missing_chunks_read_as_the_fill_value_also_in_new_arrays(service: Conformance, case: Case) -> None:
    node = service.array(dtype=case["dtype"], fill_value=case["fill_value"], shape=[3], chunks=[2])
    new, asked = service.node(), {"shape": [3], "dtype": case["dtype"], "fill_value": case["fill_value"]}
    is_null = case["expect"].get("is_null")

    values, array, made = node.values(), node.remote(), new.put(json=asked)

    first = values[:1].tobytes()
    assert values.tobytes() == (bytes(values.nbytes) if is_null else first * 3)
    assert first.hex() == case["expect"].get("stored_hex", first.hex())
    assert array[...].tobytes() == values.tobytes()
    assert array.info["fill_value"] == case["fill_value"]
    if is_null:
        assert array.fill_value is None
    else:
        fill = np.asarray(array.fill_value, array.dtype)
        narrow = array.dtype.name in ("int4", "int2")  # whose upper bits mean nothing
        assert fill == array[0] if narrow else fill.tobytes() == first
    if made.status_code == 422:  # what is only read leniently
        assert problem(made)["member"] == "fill_value"
    else:
        assert made.status_code == 201, made.text
        assert new.values().tobytes() == values.tobytes()


@pytest.mark.parametrize("case", _REFUSED, ids=case_id)
def test_a_fill_value_that_is_refused_is_named(service: Conformance, case: Case) -> None:
    node = service.array(dtype=case["dtype"], fill_value=case["fill_value"], shape=[3], chunks=[2])

    for answer in (node.get(), node.get("slice"), node.get("chunk", "/0")):
        found = problem(answer)
        assert (found["code"], found["member"]) == ("bad-metadata", "fill_value")
        assert found["reason"]
    asked = problem(service.node().put(json={"shape": [3], "dtype": case["dtype"], "fill_value": case["fill_value"]}))
    assert (asked["code"], asked["member"]) == ("bad-definition", "fill_value")


_OF_TEXT = ({"id": "vlen-utf8"}, {"id": "categorize", "labels": ["x"], "dtype": "|O"})


@pytest.mark.parametrize(
    "members",
    [
        {"dtype": "|S3", "fill_value": 0},
        {"dtype": ">U3", "fill_value": 0},
        *({"dtype": "|O", "filters": [codec], "fill_value": 0} for codec in _OF_TEXT),
        *({"dtype": "|O", "filters": [{"id": "vlen-bytes"}], "fill_value": fill} for fill in (0, "")),
    ],
    ids=lambda members: f"{members['dtype']}-{members.get('filters', [{}])[0].get('id')}-{members['fill_value']!r}",
)
def test_what_libraries_would_not_read_from_the_fill_value_is_stored(
    service: Conformance, members: dict[str, Any]
) -> None:
    """Of a missing chunk zarr-python 2 makes ``"0"``, ``b"0"``, 0 or ``""`` here, and zarr-python 3 ``"0"``."""
    node = service.array(shape=[3], chunks=[2], **members)

    assert node.put("slice", json=["", "", ""]).status_code == 204

    assert sorted(node.chunks()) == ["0", "1"]
    if members.get("filters") == [_OF_TEXT[0]]:
        theirs = zarr.open_array(service.target("zarr", node.path), mode="r", zarr_format=2)
        assert theirs[...].tolist() == ["", "", ""]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "members",
    [
        {"dtype": "|S3", "fill_value": "eHk="},
        {"dtype": ">U3", "fill_value": "xy"},
        {"dtype": "|O", "filters": [_OF_TEXT[0]], "fill_value": "xy"},
    ],
    ids=lambda members: members["dtype"],
)
def test_what_all_libraries_read_from_the_fill_value_need_not_be_stored(
    service: Conformance, members: dict[str, Any]
) -> None:
    node = service.array(shape=[3], chunks=[2], **members)

    assert node.put("slice", json=["xy", "xy", "xy"]).status_code == 204

    assert node.chunks() == {}
