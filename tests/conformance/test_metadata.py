"""Whole documents of the vectors: they open, or the problem names the member that is wrong."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
import tensorstore as ts
import zarr

from hyperslab.errors import BrokenData
from tests.conformance.deviations import deviation
from tests.conformance.service import Conformance, problem
from tests.conformance.vectors import Case, case_id, cases

_USUAL = json.loads(cases("metadata")[0]["raw"])
_FOLLOWED = [case for case in cases("metadata") if deviation("metadata", case["id"]) is None]
_ACCEPTED = [case for case in _FOLLOWED if case["expect"]["accept"]]
_REFUSED = [case for case in _FOLLOWED if not case["expect"]["accept"]]


def raw(case: Case) -> bytes:
    return case["raw"].encode() if "raw" in case else base64.b64decode(case["raw_b64"])


def unusual_members(case: Case) -> set[str]:
    """The members in which a document differs from the reference document; none where it is no JSON object, or one that
    is nested too deep to be read."""
    try:
        document = json.loads(raw(case))
    except (ValueError, RecursionError):
        return set()
    if case["note"].startswith("nested"):
        return set()
    if not isinstance(document, dict):
        return set()
    missing: Any = object()
    return {name for name in document.keys() | _USUAL if document.get(name, missing) != _USUAL.get(name, missing)}


@pytest.mark.parametrize("case", _ACCEPTED, ids=case_id)
def test_an_accepted_document_may_be_put_and_opens_everywhere(service: Conformance, case: Case) -> None:
    node = service.node()

    put = node.put("zarr", "/.zarray", content=raw(case))

    assert put.status_code == 201, put.text
    assert node.keys()[".zarray"] == raw(case)
    document = node.get().json()

    assert document["kind"] == "array"
    assert node.remote().shape == tuple(document["shape"])
    assert node.get("zarr", "/.zarray").content == raw(case)
    assert node.get("plan", select=",".join("0:1" for _ in document["shape"])).status_code == 200


@pytest.mark.parametrize("case", _REFUSED, ids=case_id)
def test_a_refused_document_is_not_stored_and_its_problem_names_the_member(service: Conformance, case: Case) -> None:
    node = service.node({".zarray": raw(case)})

    for answer in (node.get(), node.get("slice"), node.get("chunk", "/0.0"), node.get("plan")):
        found = problem(answer)
        assert found["code"] in ("bad-metadata", "codec-refused")
        assert found["reason"]
        if unusual := unusual_members(case):
            blamed = unusual | {"filters"} if case["note"] == "object without codec" else unusual
            assert found["member"].partition("[")[0] in blamed
        else:
            assert found["member"] is None
    with pytest.raises(BrokenData):
        node.remote()
    assert node.get("zarr", "/.zarray").content == raw(case), "the stored bytes can still be looked at"
    other = service.node()
    assert 400 <= problem(other.put("zarr", "/.zarray", content=raw(case)))["status"] < 500
    assert other.keys() == {}


@pytest.mark.parametrize("missing", [["compressor"], ["filters"], ["compressor", "filters"]])
def test_a_document_without_compressor_or_filters_reads_as_in_zarr_python(
    service: Conformance, missing: list[str]
) -> None:
    document = {name: value for name, value in _USUAL.items() if name not in missing}
    node = service.node({".zarray": document, "0.0": np.arange(100, dtype="<i4").tobytes()})
    theirs: Any = zarr.open_array(node.folder, mode="r")
    problems = [f"{node.path.partition('/')[2]}/.zarray: {name}: is missing: taken for null" for name in missing]

    assert node.get().json()["problems"] == problems
    np.testing.assert_array_equal(node.values(), theirs[...])
    for face in ("zarr", "zarr2", "zarr3"):
        ours: Any = zarr.open_array(f"{service.url}/{face}/{node.path}", mode="r")
        np.testing.assert_array_equal(ours[...], theirs[...])
    # which takes no other documents
    by_tensorstore = ts.open({"driver": "zarr", "kvstore": f"{service.url}/zarr2/{node.path}/"}).result()
    np.testing.assert_array_equal(by_tensorstore.read().result(), theirs[...])
    assert problem(service.node().put("zarr", "/.zarray", json=document))["status"] == 422
