"""Every dtype of the vectors, read and written in every form, through HTTP and through `RemoteArray`."""

from __future__ import annotations

import csv
import io
import json
import zlib
from typing import Any

import numpy as np
import pytest

from hyperslab import wire
from tests.conformance.service import Array, Conformance, Node, decoded, problem
from tests.conformance.vectors import Case, case_id, cases, is_firm

_PLAIN = [case for case in cases("dtypes") if case["expect"]["accept"] and case["dtype"] != "|O"]
_REFUSED = [case for case in cases("dtypes") if not case["expect"]["accept"]]

COUNT, CHUNK = 6, 4
CODEC = {"id": "zlib", "level": 1}


def stored_items(dtype: np.dtype[Any]) -> Array:
    """``COUNT`` items with bytes of every kind, as a chunk may hold them: bools that are not 0 or 1, NaNs with
    payloads, padding that is not empty."""
    noise = np.random.default_rng(7).integers(0, 256, COUNT * dtype.itemsize, np.uint8)
    items = noise.view(dtype)
    _make_sense(items)
    return items


def _make_sense(items: Array) -> None:
    """Code points that exist, wherever there is text, and a time without a value among all others."""
    if items.dtype.names is not None:
        for name in items.dtype.names:
            _make_sense(items[name])
    elif items.dtype.kind in "mM":
        items[1] = "NaT"
    elif items.dtype.kind == "U":
        letters = np.array(["a", "é", "中", "\U0001f600"])
        length = items.dtype.itemsize // 4
        items[...] = np.array(["".join(letters[(i + np.arange(length)) % 4]) for i in range(items.size)]).reshape(
            items.shape
        )


def meant(items: Array) -> Array:
    """What the stored items mean: the oracle for bools and narrow integers."""
    out = items.copy()
    if items.dtype.names is not None:
        for name in items.dtype.names:
            out[name] = meant(items[name])
    elif items.dtype.kind == "b":
        out[...] = items.view(np.uint8) != 0
    elif items.dtype.name in ("int4", "int2"):
        bits = int(items.dtype.name[3:])
        low = items.view(np.uint8).astype(int) & (2**bits - 1)
        out[...] = np.where(low >= 2 ** (bits - 1), low - 2**bits, low).astype(np.int8).view(items.dtype)
    return out


def lay(service: Conformance, dtype: Any, items: Array) -> Node:
    """An array that holds ``items``, compressed."""
    whole = np.zeros(-(-COUNT // CHUNK) * CHUNK, items.dtype)
    whole.view(np.uint8)[: items.nbytes] = items.view(np.uint8)
    parts = {str(i): zlib.compress(whole[CHUNK * i :][:CHUNK].tobytes()) for i in range(len(whole) // CHUNK)}
    return service.array(parts, dtype=dtype, shape=[COUNT], chunks=[CHUNK], compressor=CODEC)


def assert_same_bits(found: Array, expected: Array) -> None:
    """Named fields bit for bit; padding means nothing."""
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.names is None:
        assert found.tobytes() == expected.tobytes()
        return
    for name in expected.dtype.names:
        assert_same_bits(np.ascontiguousarray(found[name]), np.ascontiguousarray(expected[name]))


@pytest.mark.parametrize("case", _PLAIN, ids=case_id)
def test_every_form_is_what_is_stored(service: Conformance, case: Case) -> None:
    """Bits as raw, npy, chunks and for the client; one value an item as JSON and CSV."""
    items = stored_items(wire.dtype_from_json(case["dtype"]))
    node, expected = lay(service, case["dtype"], items), meant(items)
    document, array = node.get().json(), node.remote()

    assert document["dtype"] == case["dtype"]
    assert document["nbytes"] == node.get("plan").json()["nbytes"] == COUNT * case["expect"]["itemsize"]
    assert_same_bits(node.values(), expected)
    assert_same_bits(node.values(select="4:0:-2"), expected[4:0:-2])
    assert_same_bits(decoded(node.get("chunk", "/1")), expected[4:])
    assert node.get("chunk", "/1", format="stored").content == node.keys()["1"]
    npy = np.load(io.BytesIO(node.get("slice", select="1:5", format="npy").content), allow_pickle=False)
    assert_same_bits(npy.view(expected.dtype), expected[1:5])

    listed = json.loads(node.get("slice", format="json").content, parse_constant=pytest.fail)
    assert len(listed) == COUNT
    assert node.get("slice", select="2", format="json").json() == listed[2]
    rows = list(csv.reader(io.StringIO(node.get("slice", format="csv").text)))
    assert len(rows) == COUNT + (items.dtype.names is not None)
    assert len({len(row) for row in rows}) == 1

    assert array.dtype == expected.dtype
    assert_same_bits(array[...], expected)
    assert_same_bits(array[[5, 0, 3]], expected[[5, 0, 3]])
    assert_same_bits(array.blocks[1], expected[4:])
    assert_same_bits(np.asarray(array[2]).reshape(1), np.asarray(expected[2]).reshape(1))


@pytest.mark.parametrize("case", _PLAIN, ids=case_id)
def test_every_form_writes_the_same_bits(service: Conformance, case: Case) -> None:
    items = stored_items(wire.dtype_from_json(case["dtype"]))
    expected, backwards = meant(items), np.ascontiguousarray(items[::-1])
    node = lay(service, case["dtype"], np.zeros(COUNT, items.dtype))

    def npy(values: Array) -> bytes:
        file = io.BytesIO()
        np.save(file, values.view(wire.npy_dtype(values.dtype)), allow_pickle=False)
        return file.getvalue()

    for media_type, values, sent in (
        (wire.RAW, items, items.tobytes()),
        (wire.NPY, backwards, npy(backwards)),
        (None, items, items.tobytes()),
    ):
        answer = node.put("slice", content=sent, headers={"Content-Type": media_type} if media_type else {})
        assert answer.status_code == 204, (media_type, answer.text)
        assert_same_bits(node.values(), meant(values))
    one = npy(expected[3:4].reshape(()))
    assert node.put("slice", params={"select": "0"}, content=one, headers={"Content-Type": wire.NPY}).is_success
    array = node.remote()
    array[1] = expected[4]
    assert_same_bits(array[...], expected[[3, 4, 2, 3, 4, 5]])

    copy, as_json = service.node(), {"Content-Type": wire.JSON}
    made = copy.put(json={"shape": [COUNT], "chunks": [CHUNK], "dtype": case["dtype"], "compressor": None})
    assert made.status_code == 201, made.text
    listed = node.get("slice", format="json")
    assert copy.put("slice", content=listed.content, headers=as_json).status_code == 204
    assert copy.get("slice", format="json").json() == listed.json()
    copy.remote()[...] = items
    stored = np.frombuffer(b"".join(copy.keys()[key] for key in ("0", "1")), items.dtype)[:COUNT]
    assert_same_bits(stored, expected)
    assert_same_bits(copy.values(), expected)


_NOTES_OF_NUMPY = {
    "numpy name, not a type string",
    "numpy char code",
    "numpy char code, no size",
    "native order is not allowed in stored metadata",
    "subarray shape must be a list (numpy accepts an int)",
}


@pytest.mark.parametrize("case", _REFUSED, ids=case_id)
def test_a_dtype_that_is_refused_is_named(service: Conformance, case: Case) -> None:
    node = service.array(dtype=case["dtype"], shape=[20, 30], chunks=[10, 10])

    stored = problem(node.get())
    answer = service.node().put(json={"shape": [20], "dtype": case["dtype"]})

    assert (stored["code"], stored["member"]) == ("bad-metadata", "dtype")
    if case["note"] in _NOTES_OF_NUMPY:  # which a request may use, and no document
        dtype = case["dtype"] if isinstance(case["dtype"], str) else [tuple(field) for field in case["dtype"]]
        assert wire.dtype_from_json(answer.json()["dtype"]) == np.dtype(dtype)
        return
    asked = problem(answer)
    assert (asked["code"], asked["member"]) == ("bad-definition", "dtype")
    assert stored["reason"]
    assert asked["reason"]


def test_all_firm_vectors_are_among_these() -> None:
    left = [case["id"] for case in cases("dtypes") if case not in _PLAIN + _REFUSED]

    assert [case["dtype"] for case in cases("dtypes") if case["id"] in left and is_firm(case)] in ([], ["|O"])
