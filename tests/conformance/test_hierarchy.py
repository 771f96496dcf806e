"""Groups, attributes and consolidated metadata of the vectors, and the paths that lead to nodes."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import zarr

from tests.api.support import request
from tests.conformance.service import DOCUMENT, Conformance, Node, problem
from tests.conformance.vectors import Case, case_id, cases

_ARRAY = {**DOCUMENT, "shape": [2], "chunks": [2], "dtype": "|u1", "fill_value": 0}
del _ARRAY["zarr_format"]


def do(root: Node, step: dict[str, Any]) -> httpx.Response:
    service = root.service
    target = service.target("metadata", f"{root.path}/{step.get('path', '')}")
    match step["do"]:
        case "create_array":
            return service.http.put(target, json=_ARRAY)
        case "create_group":
            return service.http.put(target, json={"kind": "group"})
        case "require_group":
            return service.http.put(target, json={"kind": "group"}, params={"mode": "open"})
        case "attrs":
            return service.http.patch(target, json={"attributes": step["value"]})
        case "delete":
            return service.http.delete(target)
        case "consolidate":
            return service.http.get(service.target("zarr", f"{root.path}/.zmetadata"))
    raise AssertionError(step)


@pytest.mark.parametrize("case", cases("hierarchy"), ids=case_id)
def test_operations_leave_the_keys_that_zarr_python_2_leaves(service: Conformance, case: Case) -> None:
    """But for ``.zmetadata``, which is made on the fly, and empty parents that no one asks to be removed."""
    if any(".." in step.get("path", "") for step in case["steps"]):
        return  # which an HTTP client resolves by itself: see `test_paths_are_normalised`
    root, reference = service.node({".zgroup": {"zarr_format": 2}}), case["refs"]["zarr2"]

    *before, last = [do(root, step) for step in case["steps"]]

    assert all(answer.is_success for answer in before)
    assert last.is_success == reference["ok"], last.text
    if not reference["ok"]:
        assert problem(last)["status"] in (400, 409, 422)
        return
    assert sorted(root.keys()) == [key for key in reference["keys"] if key != ".zmetadata"]
    if "zmetadata" in reference:
        assert made_up(last.json()) == made_up(reference["zmetadata"])


def made_up(document: dict[str, Any]) -> dict[str, Any]:
    """Without what is left out where it is empty, or spelled out where it is the default."""
    documents = {key: value for key, value in document["metadata"].items() if value}
    for value in documents.values():
        value.pop("dimension_separator", None)
    return {**document, "metadata": documents}


_PATHS = [case for case in cases("paths") if len(case["path"]) < 255]  # no file has a longer name


@pytest.mark.parametrize("case", _PATHS, ids=case_id)
def test_paths_are_normalised(service: Conformance, case: Case) -> None:
    """By the service: the request is sent exactly as it is spelt here."""
    root = service.node({f"{case['expect'].get('path', '')}/.zgroup".lstrip("/"): {"zarr_format": 2}})
    spelled = quote(case["path"], safe="/")

    answer = request(service.url, f"/v1/metadata/{root.path}/{spelled}")

    found = json.loads(answer.body)
    if "error" in case["expect"]:
        assert (answer.status, found["code"]) == (400, "bad-path")
    else:
        expected = "/".join(part for part in (root.path, case["expect"]["path"]) if part)
        assert (answer.status, found["path"]) == (200, expected)


def test_no_node_is_made_with_the_name_of_a_document(service: Conformance) -> None:
    root = service.node({".zgroup": {"zarr_format": 2}})

    for name in ("a/.zarray", ".zgroup", "a/.zattrs/b", ".zmetadata", "zarr.json"):
        assert problem(root.put(tail=f"/{name}", json={"kind": "group"}))["code"] == "bad-path"
    assert list(root.keys()) == [".zgroup"]


def test_no_array_is_made_above_nodes_of_another_library(service: Conformance) -> None:
    """TensorStore writes no groups: an array must not swallow what lies below."""
    root = service.node({"a/b/.zarray": {**DOCUMENT, "shape": [2], "chunks": [2], "dtype": "|u1"}})

    assert problem(root.put(tail="/a", json=_ARRAY))["code"] == "node-exists"
    assert root.put(tail="/a", json={"kind": "group"}).status_code == 201


def test_consolidated_metadata_alone_makes_a_hierarchy(service: Conformance) -> None:
    """Data with only ``.zmetadata`` and chunks (CONFORMANCE 190)."""
    document = {**DOCUMENT, "shape": [2], "chunks": [2], "dtype": "|u1"}
    documents = {".zgroup": {"zarr_format": 2}, "a/.zarray": document, "a/.zattrs": {"x": 1}, "g/.zgroup": {}}
    whole = {"zarr_consolidated_format": 1, "metadata": documents}
    node = service.node({".zmetadata": whole, "a/0": b"\x05\x06"})

    assert [child["name"] for child in node.get().json()["children"]] == ["a", "g"]
    assert node.below("a").get().json()["attributes"] == {"x": 1}
    assert node.below("a").values().tolist() == [5, 6]
    assert node.below("a").remote()[...].tolist() == [5, 6]


def test_groups_without_a_document_show_through_their_children(service: Conformance) -> None:
    """As TensorStore writes them (CONFORMANCE 177, 182)."""
    node = service.node({"a/b/.zarray": {**DOCUMENT, "shape": [2], "chunks": [2], "dtype": "|u1"}})

    assert node.get().json()["children"] == [{"name": "a", "kind": "group"}]
    assert node.below("a").get().json()["children"] == [{"name": "b", "kind": "array"}]
    assert [name for name, _ in service.group.open_group(node.path).children()] == ["a"]


def implicit_group(service: Conformance, attributes: Any) -> Node:
    """Without a ``.zgroup``, below a root that has one."""
    document = {**DOCUMENT, "shape": [2], "chunks": [2], "dtype": "|u1"}
    files = {".zgroup": {"zarr_format": 2}, "g/.zattrs": attributes, "g/a/.zarray": document}
    return service.node(files).below("g")


def test_groups_without_a_document_have_attributes(service: Conformance) -> None:
    """As `/zarr` shows them to plain clients, for which it makes up the ``.zgroup``."""
    group = implicit_group(service, {"n": 1})
    root = Node(service, group.path.removesuffix("/g"), group.folder.parent)

    assert group.get().json()["attributes"] == {"n": 1}
    assert zarr.open_group(service.target("zarr", group.path), mode="r", zarr_format=2).attrs.asdict() == {"n": 1}
    assert root.get("zarr", "/.zmetadata").json()["metadata"]["g/.zattrs"] == {"n": 1}
    remote = service.group.open_group(group.path)
    remote.attrs.update(m=2)
    assert dict(remote.attrs) == {"n": 1, "m": 2}
    assert group.get().json()["attributes"] == {"n": 1, "m": 2}


@pytest.mark.parametrize("mode", ["create", "open"])
def test_a_group_that_gets_its_document_keeps_its_attributes(service: Conformance, mode: str) -> None:
    group = implicit_group(service, {"n": 1, "m": 1})

    made = group.put(json={"kind": "group", "attributes": {"m": 2}}, params={"mode": mode})

    assert made.status_code == 201
    assert made.json()["attributes"] == {"n": 1, "m": 2}
    assert sorted(group.keys()) == [".zattrs", ".zgroup", "a/.zarray"]


@pytest.mark.parametrize("attributes", [{"n": 1}, b"broken"], ids=["sound", "broken"])
def test_a_group_without_a_document_is_replaced_with_all_below_it(service: Conformance, attributes: Any) -> None:
    group = implicit_group(service, attributes)

    assert group.put(json={"kind": "group"}, params={"mode": "replace"}).status_code == 201

    assert list(group.keys()) == [".zgroup"]


def test_a_group_without_a_document_whose_attributes_are_broken_says_so_and_can_be_deleted(
    service: Conformance,
) -> None:
    group = implicit_group(service, b"broken")

    document = group.get().json()
    assert (document["attributes"], [line.partition(":")[0] for line in document["problems"]]) == (
        {},
        [f"{group.path.removeprefix('data/')}/.zattrs"],
    )
    assert group.below("a").get().status_code == 200
    gone = service.http.delete(service.target("metadata", group.path), params={"recursive": True})
    assert (gone.status_code, group.keys()) == (204, {})


def test_an_array_comes_before_a_group_at_the_same_path(service: Conformance) -> None:
    node = service.node(
        {"a/.zarray": {**DOCUMENT, "shape": [2], "chunks": [2], "dtype": "|u1"}, "a/.zgroup": {"zarr_format": 2}}
    )

    assert node.get().json()["children"] == [{"name": "a", "kind": "array"}]
    assert node.below("a").get().json()["kind"] == "array"


def test_chunks_of_a_nested_array_are_no_nodes(service: Conformance) -> None:
    chunks = {"0/0": b"abcd", "1/1": b"abcd"}
    node = service.array(chunks, shape=[4, 4], chunks=[2, 2], dtype="|u1", dimension_separator="/")

    assert problem(node.below("0").get())["code"] == "node-not-found"
    assert node.values(select="0,:2").tolist() == [97, 98]


def test_a_store_may_call_its_metadata_otherwise(service: Conformance) -> None:
    """``metadata_key``: plain Zarr clients find it under the usual name all the same."""
    document = {**DOCUMENT, "shape": [2], "chunks": [2], "dtype": "|u1"}
    node = service.node({"a/zarray": document, "a/0": b"\x05\x06"}, store="renamed")

    assert node.get().json()["children"] == [{"name": "a", "kind": "array"}]
    assert node.below("a").remote()[...].tolist() == [5, 6]
    assert node.get("zarr", "/a/.zarray").json() == document
    assert zarr.open_array(service.target("zarr", f"{node.path}/a"), mode="r")[...].tolist() == [5, 6]  # type: ignore[union-attr]


def test_what_else_lies_beside_an_array_is_ignored(service: Conformance) -> None:
    """Another version's metadata, files of the system, chunks outside the grid (CONFORMANCE 3)."""
    others = {
        "zarr.json": {"zarr_format": 3},
        ".DS_Store": b"\0",
        "notes.txt": b"",
        "0.0.0": b"x",
        "7": b"x",
        "c/0": b"x",
    }
    node = service.array({"0": b"\x05\x06", **others}, shape=[2], chunks=[2], dtype="|u1")  # type: ignore[dict-item]

    assert node.values().tolist() == [5, 6]
    assert node.get().json()["kind"] == "array"
    assert zarr.open_array(service.target("zarr", node.path), mode="r")[...].tolist() == [5, 6]  # type: ignore[union-attr]
