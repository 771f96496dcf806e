"""Writes, resizes and appends of the vectors, and what is stored after each of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hyperslab.errors import HyperslabError
from tests.conformance.deviations import deviation
from tests.conformance.service import DOCUMENT, Conformance, Node
from tests.conformance.test_slices import index
from tests.conformance.vectors import Case, case_id, cases
from tests.engine.arrays import array_of
from tests.engine.oracles import tensorstore_open

_CASES = [case for case in cases("history") if deviation("history", case["id"]) is None]
_NUMBERS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def expected_steps(case: Case) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = case["refs"][case["follow"]]
    return found


def new_array(service: Conformance, case: Case) -> Node:
    store = "explicit" if case.get("write_empty") is True else "data"
    members = {"dtype": case["dtype"], "shape": case["shape"], "chunks": case["chunks"], "fill_value": case["fill"]}
    node = service.node(store=store)
    made = node.put(json={**members, "order": case.get("order", "C"), "compressor": None})
    assert made.status_code == 201, made.text
    return node


def numbers(value: Any, dtype: str) -> Any:
    """Values as numpy takes them."""
    flat = np.array(value, object)
    spelled = [_NUMBERS.get(item, item) if isinstance(item, str) else item for item in flat.reshape(-1).tolist()]
    return np.array(spelled, dtype).reshape(flat.shape)


def do(node: Node, step: dict[str, Any], dtype: str) -> None:
    """One step through `RemoteArray`; raises what the server refuses with."""
    array = node.remote()
    match step["do"]:
        case "write":
            array[tuple(index(item) for item in step["sel"])] = numbers(step["value"], dtype)
        case "resize":
            options = {name: True for name in ("expand_only", "shrink_only") if step.get("ts_options", {}).get(name)}
            array.resize(step["shape"], **options)
        case "append":
            array.append(numbers(step["value"], dtype), axis=step.get("axis", 0))
        case other:
            pytest.fail(f"no such step: {other}")


@pytest.mark.parametrize("case", _CASES, ids=case_id)
def test_every_step_leaves_what_the_reference_leaves(service: Conformance, case: Case) -> None:
    node = new_array(service, case)
    for number, (step, expected) in enumerate(zip(case["steps"], expected_steps(case), strict=True)):
        if expected["ok"]:
            do(node, step, case["dtype"])
        else:
            with pytest.raises((HyperslabError, ValueError)):
                do(node, step, case["dtype"])

        assert node.chunks() == expected["chunks"], number
        assert_values(node, expected, case["dtype"])


def assert_values(node: Node, expected: dict[str, Any], dtype: str) -> None:
    wanted = numbers(expected["values"], dtype)
    for values in (node.values(), node.remote()[...]):
        assert list(np.shape(values)) == expected["shape"]
        assert np.asarray(values, dtype).tobytes() == wanted.tobytes()


def test_what_a_shrink_cuts_off_never_comes_back(service: Conformance) -> None:
    """The rule of our own where the references bring stale bytes back to light (CONFORMANCE 211, 237, 238)."""
    (case,) = (case for case in cases("history") if case["id"] == "history-040")
    node = new_array(service, case)
    shrunk = [{"0": "0100020003000400"}, {"0": "0100020000000000"}, {}, {}]
    values = [[1, 2, 3, 4], [1, 2], [0, 0], [0, 0, 0, 0]]

    for step, chunks, shown in zip(case["steps"], shrunk, values, strict=True):
        do(node, step, case["dtype"])
        assert node.chunks() == chunks
        assert node.values().tolist() == shown


def test_a_shrink_in_one_dimension_clears_the_rest_of_the_edge_chunks(service: Conformance) -> None:
    (case,) = (case for case in cases("history") if case["id"] == "history-037")
    node = new_array(service, case)

    for step in case["steps"]:
        do(node, step, case["dtype"])

    assert node.chunks() == {"0.0": "0100020000000000"}
    node.remote().resize((4, 4))
    assert node.values().tolist() == [[1, 2, 0, 0], *[[0] * 4] * 3]


def test_bytes_that_another_library_has_left_beyond_the_edge_show_only_where_that_grows_the_array(
    service: Conformance,
) -> None:
    """Through ``/zarr`` a library finds what it has stored; `resize` shows fill values (CONFORMANCE 237, 238)."""
    node = service.array({"0": bytes.fromhex("0100020003000400")}, dtype="<i2", shape=[2], chunks=[4], fill_value=7)

    put = node.put("zarr", "/.zarray", content=json.dumps({**node.document(), "shape": [3]}))
    assert (put.status_code, node.values().tolist()) == (204, [1, 2, 3])
    node.remote().resize((4,))

    assert node.values().tolist() == [1, 2, 3, 7]


@pytest.mark.parametrize("value", [5, 9], ids=["other", "fill"])
@pytest.mark.parametrize("compressor", [None, {"id": "zlib", "level": 1}], ids=["plain", "zlib"])
def test_a_write_keeps_what_lies_beyond_the_edge(service: Conformance, value: int, compressor: Any) -> None:
    """As TensorStore and zarr-python 2 do, also where all of the chunk that lies inside the array is written
    (CONFORMANCE 211, 213)."""
    codec = array_of([4], "|u1", compressor).codec
    old = {"1": codec.encode(np.array([1, 2, 3, 4], "|u1"))}
    members = {"dtype": "|u1", "shape": [5], "chunks": [4], "fill_value": 9, "compressor": compressor}
    node = service.array(old, **members)
    theirs = tensorstore_open({**DOCUMENT, **members}, old)
    theirs[...] = value

    node.remote()[...] = value

    stored = {key: codec.decode(bytes.fromhex(data), key).tolist() for key, data in node.chunks().items()}
    kept = {key.decode(): theirs.kvstore.read(key).result().value for key in theirs.kvstore.list().result()}
    del kept[".zarray"]
    assert stored == {key: codec.decode(data, key).tolist() for key, data in kept.items()}
    assert stored["1"] == [value, 2, 3, 4]
    node.remote().resize((8,))
    assert node.values().tolist() == [value] * 5 + [9, 9, 9]


def test_an_edge_chunk_that_is_broken_is_written_anew(service: Conformance) -> None:
    node = service.array({"1": b"no chunk"}, dtype="|u1", shape=[6], chunks=[4], fill_value=9)

    assert node.put("slice", content=b"1", params={"select": "4"}).status_code == 502
    assert node.put("slice", content=b"12", params={"select": "4:"}).status_code == 204

    assert node.chunks() == {"1": b"12\t\t".hex()}
