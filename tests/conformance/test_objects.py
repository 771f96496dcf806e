"""Object arrays: the vectors, every object codec in every form, and the binary form as HTTP has it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from hyperslab import wire
from tests.conformance.service import Array, Conformance, Node, decoded, problem
from tests.conformance.vectors import Case, case_id, cases

_READ = [case for case in cases("objects") if "expect" in case or case["chunks"]]


def plain(item: Any) -> Any:
    """As the vectors spell it."""
    if isinstance(item, np.ndarray):
        return {"array": item.tolist(), "dtype": item.dtype.str}
    return {"bytes": item.hex()} if isinstance(item, bytes) else item


@pytest.mark.parametrize("case", _READ, ids=case_id)
def test_objects_read_as_the_vectors_have_them(service: Conformance, case: Case) -> None:
    """Where no value is expected: what zarr-python 2 reads, but ``b""`` where a missing item is no bytes there."""
    chunks = {key: bytes.fromhex(text) for key, text in case["chunks"].items()}
    node = service.node({".zarray": case["doc"], **chunks})

    if "expect" not in case and not case["refs"]["zarr2"]["ok"]:
        assert problem(node.get("slice"))["code"] == "chunk-corrupt"
        return
    expected = case.get("expect", case["refs"]["zarr2"])["values"]
    if case["doc"]["filters"][0]["id"] == "vlen-bytes":
        expected = [{"bytes": ""} if value == "" else value for value in expected]

    assert [plain(item) for item in node.values()] == expected
    assert [plain(item) for item in node.remote()[...]] == expected
    assert node.get("slice", format="json").status_code == 200


def ragged() -> Array:
    rows = np.empty(5, object)
    for i, row in enumerate([[1, 2], [], [3], [-4, 5, 6], [7]]):
        rows[i] = np.array(row, ">i2")
    return rows


KINDS: Final[dict[str, tuple[dict[str, Any], Any]]] = {
    "vlen-utf8": ({"id": "vlen-utf8"}, ["a", "", "é中", "long text " * 20, "b"]),
    "vlen-bytes": ({"id": "vlen-bytes"}, [b"a\0", b"", b"\xff\xfe", b"x" * 300, b"b"]),
    "vlen-array": ({"id": "vlen-array", "dtype": ">i2"}, ragged()),
    "json2": ({"id": "json2"}, ["a", None, {"k": [1, 2.5, True]}, [[], {}], -(2**70)]),
    "msgpack2": ({"id": "msgpack2"}, ["a", None, {"k": [1, b"\xff", True]}, b"raw", 2**63]),
    "categorize": ({"id": "categorize", "labels": ["x", "yy"], "dtype": "|O"}, ["x", "yy", "", "x", "x"]),
}
"""Codec and five items, by name."""


def objects(items: Any) -> Array:
    values = np.empty(len(items), object)
    for i, item in enumerate(items):
        values[i] = item
    return values


def made(service: Conformance, codec: Any, **members: Any) -> Node:
    node = service.node()
    answer = node.put(json={"shape": [5], "chunks": [2], "dtype": "|O", "filters": [codec], **members})
    assert answer.status_code == 201, answer.text
    return node


def assert_equal(found: Any, expected: Any) -> None:
    assert [plain(item) for item in found] == [plain(item) for item in expected]
    assert [type(item) for item in found] == [type(item) for item in expected]


@pytest.mark.parametrize("name", KINDS)
def test_objects_go_there_and_back_through_the_client(service: Conformance, name: str) -> None:
    codec, items = KINDS[name]
    array = made(service, codec).remote()
    values = objects(items)

    array[...] = values
    assert_equal(array[...], values)
    assert_equal(array[3:0:-2], values[3:0:-2])
    assert_equal(array.vindex[[4, 0]], values[[4, 0]])
    array[1] = values[3]
    array.vindex[[0, 4]] = values[[3, 2]]
    assert_equal(array[[0, 1, 4]], values[[3, 3, 2]])
    array.append(values[:2])
    assert_equal(array[4:], objects([values[2], values[0], values[1]]))


@pytest.mark.parametrize(
    ("name", "fill"),
    [
        *((name, fill) for name in ("vlen-utf8", "categorize") for fill in ("x", 0, "")),
        *(("vlen-bytes", fill) for fill in ("YQA=", 0, "")),
        *((name, fill) for name in ("json2", "msgpack2", "vlen-array") for fill in ("x", 0, {"a": [1]})),
    ],
)
def test_the_client_says_of_the_fill_value_what_missing_items_read_as(
    service: Conformance, name: str, fill: Any
) -> None:
    array = service.array(dtype="|O", shape=[2], chunks=[2], filters=[KINDS[name][0]], fill_value=fill).remote()

    assert_equal([array.fill_value], array[:1])


def test_the_codec_of_arrays_may_stand_for_the_compressor(service: Conformance) -> None:
    array = service.array(dtype="|O", shape=[5], chunks=[2], compressor=KINDS["vlen-array"][0]).remote()

    array[...] = objects([[1, 2], [], [3], [4], [5]])

    assert_equal(array[...], [np.array(row, ">i2") for row in ([1, 2], [], [3], [4], [5])])


def test_arrays_beside_a_fill_value_that_is_none_of_them(service: Conformance) -> None:
    """zarr-python 2 writes ``0`` as the fill value of all objects; in a chunk that is stored it is the array [0]."""
    node = made(service, KINDS["vlen-array"][0], fill_value=0)
    row, zero = np.array([1, 2], ">i2"), np.array([0], ">i2")

    assert node.put("slice", json=[[0], [0], [], [1, 2], []]).status_code == 204
    assert_equal(node.values(), [zero, zero, row[:0], row, row[:0]])
    node.remote().resize((3,))
    node.remote().resize((7,))
    assert_equal(node.values(), [zero, zero, row[:0], zero, 0, 0, 0])
    node.remote().append(objects([row]))
    assert_equal(node.values()[4:], [0, 0, zero, row])


@pytest.mark.parametrize("name", ["json2", "msgpack2"])
@pytest.mark.parametrize(
    ("fill", "value"),
    [
        (0, False),
        (0, -0.0),
        (1, 1.0),
        (True, 1),
        ({"a": 0}, {"a": False}),
        ([[0]], [[0.0]]),
        ({"a": [1]}, {"a": [1.0]}),
    ],
    ids=repr,
)
def test_what_python_takes_for_the_fill_value_is_kept(service: Conformance, name: str, fill: Any, value: Any) -> None:
    node = made(service, KINDS[name][0], fill_value=fill)

    assert node.put("slice", content=wire.pack_objects([value] * 5)).status_code == 204

    assert repr(node.values().tolist()) == repr([value] * 5)
    assert node.put("slice", content=wire.pack_objects([fill] * 5)).status_code == 204
    assert repr(node.values().tolist()) == repr([fill] * 5)
    assert node.chunks() == {}


@pytest.mark.parametrize("name", KINDS)
def test_the_binary_form_is_what_raw_means(service: Conformance, name: str) -> None:
    codec, items = KINDS[name]
    node = made(service, codec)
    body = wire.pack_objects(items)

    for media_type in (wire.OBJECTS, wire.RAW, None):
        sent = node.put("slice", content=body, headers={"Content-Type": media_type} if media_type else {})
        assert sent.status_code == 204, sent.text
        for answer in (node.get("slice"), node.get("slice", format="raw")):
            assert answer.headers["content-type"] == wire.OBJECTS
            assert answer.headers[wire.ARRAY_DTYPE] == '"|O"'
            assert answer.content == body
    assert_equal(decoded(node.get("chunk", "/1")), objects(items)[2:4])
    accepted = service.http.get(service.target("slice", node.path), headers={"Accept": wire.OBJECTS})
    assert accepted.content == body


@pytest.mark.parametrize("name", ["vlen-utf8", "vlen-bytes", "json2", "categorize"])
def test_json_comes_back_as_it_was_sent(service: Conformance, name: str) -> None:
    codec, items = KINDS[name]
    node, copy = made(service, codec), made(service, codec)
    node.remote()[...] = objects(items)

    sent = node.get("slice", format="json")
    assert copy.put("slice", content=sent.content, headers={"Content-Type": wire.JSON}).status_code == 204

    assert_equal(copy.values(), node.values())
    assert copy.get("slice", format="csv").text == node.get("slice", format="csv").text


def test_ranges_and_validators_hold_for_objects(service: Conformance) -> None:
    node = made(service, {"id": "vlen-utf8"})
    node.remote()[...] = objects(["a", "bb", "ccc", "dddd", "eeeee"])
    target = service.target("slice", node.path)
    whole = service.http.get(target)

    part = service.http.get(target, headers={"Range": "bytes=10-19", "If-Range": whole.headers["etag"]})
    again = service.http.get(target, headers={"If-None-Match": whole.headers["etag"]})
    head = service.http.head(target)

    assert (part.status_code, part.content) == (206, whole.content[10:20])
    assert part.headers["content-range"] == f"bytes 10-19/{len(whole.content)}"
    assert (again.status_code, head.headers["etag"]) == (304, whole.headers["etag"])
    node.remote()[0] = "changed"
    assert service.http.get(target, headers={"If-None-Match": whole.headers["etag"]}).status_code == 200


@pytest.mark.parametrize(
    ("name", "item"),
    [
        ("vlen-utf8", 1),
        ("vlen-utf8", b"x"),
        ("vlen-utf8", "\ud800"),
        ("vlen-bytes", "x"),
        ("vlen-array", "x"),
        ("vlen-array", [[1]]),
        ("vlen-array", [1.5]),
        ("categorize", "no label"),
    ],
)
def test_objects_that_the_codec_cannot_hold_are_refused_before_anything_is_stored(
    service: Conformance, name: str, item: Any
) -> None:
    codec, items = KINDS[name]
    node = made(service, codec)

    answer = node.put("slice", content=wire.pack_objects([*items[:4], item]), headers={"Content-Type": wire.OBJECTS})

    assert problem(answer)["code"] == "bad-body"
    assert node.chunks() == {}


def test_bodies_of_another_layout_or_number_are_refused(service: Conformance) -> None:
    node = made(service, {"id": "vlen-utf8"})

    for body in (b"", b"junk that is long", wire.pack_objects(["a", "b"]), wire.pack_objects(["a"] * 6)):
        assert problem(node.put("slice", content=body, headers={"Content-Type": wire.OBJECTS}))["code"] == "bad-body"
    fixed = service.array(dtype="<i4", shape=[1], chunks=[1])
    refused = fixed.put("slice", content=wire.pack_objects(["a"]), headers={"Content-Type": wire.OBJECTS})
    assert problem(refused)["code"] == "bad-body"
    assert problem(node.get("slice", format="npy"))["code"] == "not-representable"


def test_large_objects_come_in_parts_and_the_client_puts_them_together(service: Conformance) -> None:
    """Items of 1 MiB: what a limit of 16 MiB means shows only while they are read."""
    node = service.node()
    node.put(json={"shape": [40], "chunks": [4], "dtype": "|O", "filters": [{"id": "vlen-bytes"}]})
    items = objects([bytes([i]) * (1 << 20) for i in range(40)])
    array = node.remote()
    for i in range(0, 40, 8):
        array[i : i + 8] = items[i : i + 8]

    refused = problem(node.get("slice"))
    in_json = problem(node.get("slice", format="json"))

    assert (refused["status"], refused["code"], in_json["code"]) == (413, "too-large", "too-large")
    assert all(node.get("slice", select=box).status_code == 200 for box in refused["boxes"])
    assert [bytes(item) for item in array[...]] == list(items)


def test_one_object_is_never_too_large(service: Conformance) -> None:
    node = service.node()
    node.put(json={"shape": [1], "chunks": [1], "dtype": "|O", "filters": [{"id": "vlen-bytes"}], "compressor": None})
    item = bytes(20 << 20)

    node.remote()[0] = item

    assert node.remote()[0] == item


def test_deep_nesting_is_refused_and_never_a_fault_of_the_service(service: Conformance) -> None:
    """200 levels of JSON and 900 of msgpack: both decode, and no form of ours holds them."""
    document = "[" * 200 + "]" * 200
    chunk = f'[{document},"|O",[1]]'.encode()
    packed = b"\x93" + b"\x91" * 900 + b"\x90" + b"\xa2|O" + b"\x91\x01"
    for data, codec in ((chunk, "json2"), (packed, "msgpack2")):
        node = service.array({"0": data}, dtype="|O", shape=[1], chunks=[1], filters=[{"id": codec}])
        for form in ("raw", "json", "csv"):
            assert problem(node.get("slice", format=form))["code"] in ("not-representable", "chunk-corrupt")


def test_objects_too_deep_to_be_read_are_not_written(service: Conformance) -> None:
    node = service.node()
    node.put(json={"shape": [1], "chunks": [1], "dtype": "|O", "filters": [{"id": "json2"}], "compressor": None})
    json_type = {"Content-Type": "application/json"}

    for depth in (101, 150, 190, 5000, 500_000):
        for opening, closing in ("[]", ('{"a":', "}")):
            inner = "1" if closing == "}" else ""
            body = f"[{opening * depth}{inner}{closing * depth}]".encode()
            refused = node.put("slice", content=body, headers=json_type)
            assert (refused.status_code, problem(refused)["code"]) == (400, "bad-body")
    shape = {"Array-Shape": "[" * 30_000}
    assert problem(node.put("slice", content=b"[1]", headers=json_type | shape))["code"] == "bad-body"
    assert node.put("slice", content=b"[" * 101 + b"]" * 101, headers=json_type).status_code == 204
    for form in ("raw", "json", "csv"):
        assert node.get("slice", format=form).status_code == 200
