"""Fields: the vectors of zarr-python 2, and the views that TensorStore has of one field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hyperslab import RemoteArray, wire
from hyperslab.errors import FieldUnknown
from tests.conformance.service import Array, Conformance, Node, problem
from tests.conformance.test_slices import index
from tests.conformance.vectors import Case, case_id, cases

_SELECTED = [case for case in cases("fields_zarr") if "sel" in case]
_SET = [case for case in cases("fields_zarr") if "set" in case]


def records(case: Case) -> Array:
    """Field ``k`` of record ``i`` holds ``10 * i + k``."""
    items = np.zeros(4, wire.dtype_from_json(case["dtype"]))
    for k, name in enumerate(items.dtype.names or ()):
        items[name] = (10 * np.arange(4) + k).reshape([4] + [1] * (items[name].ndim - 1))
    return items


def lay(service: Conformance, case: Case) -> Node:
    items = records(case)
    chunks = {str(i): items[2 * i : 2 * i + 2].tobytes() for i in range(2)}
    return service.array(chunks, dtype=case["dtype"], shape=[4], chunks=[2])


@pytest.mark.parametrize("case", _SELECTED, ids=case_id)
def test_fields_are_selected_as_in_zarr_python_2(service: Conformance, case: Case) -> None:
    array, reference = lay(service, case).remote(), case["refs"]["zarr2"]
    names = [item["field"] for item in case["sel"] if isinstance(item, dict) and "field" in item]
    others = [index(item) for item in case["sel"] if not (isinstance(item, dict) and "field" in item)]
    key: Any = (*others, *([names if len(names) > 1 else names[0]] if names else []))

    if not reference["ok"]:
        with pytest.raises(FieldUnknown) as caught:
            array[key]
        assert caught.value.fields == list(records(case).dtype.names or ())
        return
    found = np.asarray(array[key])

    assert list(found.shape) == reference["shape"]
    assert found.dtype == wire.dtype_from_json(reference["dtype"])
    assert plain(found) == reference["values"]


def plain(values: Array) -> Any:
    """Nested lists, records as lists too."""
    listed = values.tolist()
    if values.dtype.names is None:
        return listed
    return list(listed) if isinstance(listed, tuple) else [list(record) for record in listed]


@pytest.mark.parametrize("case", _SET, ids=case_id)
def test_setting_a_field_keeps_the_others(service: Conformance, case: Case) -> None:
    by_client, by_http = lay(service, case), lay(service, case)

    by_client.remote()[case["set"]] = np.array(case["value"])
    answer = by_http.put("slice", params={"field": case["set"]}, json=case["value"])

    assert answer.status_code == 204, answer.text
    assert by_client.chunks() == by_http.chunks() == case["refs"]["zarr2"]["chunks"]


def test_every_route_takes_a_field(service: Conformance) -> None:
    dtype = [["x", "<u2", [2, 3]], ["y", "<f4", [5]]]
    items = np.zeros((4, 4), wire.dtype_from_json(dtype))
    items["x"] = np.arange(96).reshape(4, 4, 2, 3)
    items["y"] = np.arange(80).reshape(4, 4, 5) / 4
    node = service.array(dtype=dtype, shape=[4, 4], chunks=[2, 4])
    node.remote()[...] = items

    assert node.get(field="y").json()["schema"]["rank"] == 3
    assert node.get("plan", field="x", select="0").json()["shape"] == [4, 2, 3]
    np.testing.assert_array_equal(node.values(field="x", select="1:3,::-1"), items["x"][1:3, ::-1])
    np.testing.assert_array_equal(
        np.frombuffer(node.get("chunk", "/1.0", field="y").content, "<f4").reshape(2, 4, 5), items["y"][2:]
    )
    points = {"coordinates": [[0, 1], [3, 3]]}
    gathered = service.http.post(service.target("points", node.path), params={"field": "x"}, json=points)
    assert gathered.content == items["x"][[0, 3], [1, 3]].tobytes()
    array = node.remote()
    for found in (array["y"], array["y", ...], array.with_field("y")[...], RemoteArray(array.url, field="y")[...]):
        np.testing.assert_array_equal(found, items["y"])
    np.testing.assert_array_equal(array["x", 1, 2:, 0, ::2], items["x"][1, 2:, 0, ::2])
    np.testing.assert_array_equal(array.with_field("x").oindex[[0, 3], 1:2], items["x"][[0, 3], 1:2])
    assert (array.with_field("x").shape, array.with_field("x").dtype) == ((4, 4, 2, 3), np.dtype("<u2"))


def test_tiles_take_a_field_and_draw_the_first_unless_told(service: Conformance) -> None:
    node = service.array(dtype=[["x", "|u1"], ["y", "<f4"]], shape=[8, 8], chunks=[8, 8], fill_value="BwAAgD8=")

    values = {field: node.get("tile", "/0/0/0.raw", field=field).content for field in ("x", "y")}

    assert values == {"x": b"\7" * 64, "y": np.float32(1).tobytes() * 64}
    assert node.get("tile", "/0/0/0.raw").content == values["x"]
    assert node.get("tile", "/info.json").json()["fields"] == ["x", "y"]


def test_where_one_field_is_needed_a_missing_name_is_an_error_that_lists_them(service: Conformance) -> None:
    node = service.array(dtype=[["x", "|u1"], ["y", "<f4"]], shape=[8], chunks=[8])

    refused = problem(node.get("slice", dtype="<f8"))

    assert (refused["status"], refused["code"], refused["fields"]) == (422, "field-required", ["x", "y"])
    assert node.values(dtype="<f8", field="x").dtype == np.dtype("<f8")


@pytest.mark.parametrize("route", ["slice", "plan", "metadata", "chunk/0", "tile/0/0/0.png"])
def test_a_field_that_there_is_not_is_an_error_that_lists_the_fields(service: Conformance, route: str) -> None:
    records_ = service.array(dtype=[["x", "|u1"], ["y", "<f4"]], shape=[4], chunks=[4])
    plain_ = service.array(dtype="<f4", shape=[4], chunks=[4])
    name, slash, tail = route.partition("/")

    unknown = problem(records_.get(name, slash + tail, field="z"))
    unnecessary = problem(plain_.get(name, slash + tail, field="x"))

    assert (unknown["status"], unknown["code"], unknown["fields"]) == (422, "field-unknown", ["x", "y"])
    assert (unnecessary["status"], unnecessary["code"], unnecessary["fields"]) == (422, "field-unknown", [])


def test_padding_is_no_field_and_keeps_its_place(service: Conformance) -> None:
    aligned = np.dtype([("a", "u1"), ("b", "<i4")], align=True)
    items = np.zeros(4, aligned)
    items["a"], items["b"] = range(4), range(10, 14)
    dtype = [["a", "|u1"], ["", "|V3"], ["b", "<i4"]]
    node = service.array({"0": items.tobytes()}, dtype=dtype, shape=[4], chunks=[4])

    document, answer, array = node.get().json(), node.get("slice"), node.remote()

    assert [field["name"] for field in document["fields"]] == ["a", "b"]
    assert wire.parse_dtype(answer.headers[wire.ARRAY_DTYPE]) == aligned == array.dtype
    np.testing.assert_array_equal(array[...], items)
    np.testing.assert_array_equal(array["b"], items["b"])
    array[1:3] = np.array([(7, -1), (8, -2)], aligned)
    assert node.values()["b"].tolist() == [10, -1, -2, 13]
