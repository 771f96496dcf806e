"""New arrays over HTTP: chunk layouts of the vectors, and the documents that the libraries write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.deviations import deviation
from tests.conformance.service import Conformance, problem
from tests.conformance.vectors import Case, case_id, cases

_LAYOUTS = [case for case in cases("chunk_layout") if deviation("chunk_layout", case["id"]) is None]
_GUESSED = [case for case in cases("guess_chunks") if case["chunks"] is not None]


@pytest.mark.parametrize("case", _LAYOUTS, ids=case_id)
def test_layouts_give_the_chunks_of_tensorstore(service: Conformance, case: Case) -> None:
    schema, node = case.get("schema", {}), service.node()
    members = case.get("metadata") or {"shape": schema["domain"]["shape"], "dtype": "|u1"}
    layout = {"chunk_layout": schema["chunk_layout"]} if "chunk_layout" in schema else {}

    made = node.put(json={**members, "compressor": None, **layout})

    if "error" in case["expect"]:
        assert problem(made)["member"].startswith("chunk_layout")
        assert node.keys() == {}
    else:
        assert made.status_code == 201, made.text
        assert (made.json()["chunks"], made.json()["order"]) == (case["expect"]["chunks"], case["expect"]["order"])


@pytest.mark.parametrize("case", cases("created_docs"), ids=case_id)
def test_documents_mean_what_those_of_the_libraries_mean(service: Conformance, case: Case) -> None:
    """The same request to each: all that is asked for is in both documents, and ours opens where theirs lies."""
    reference = case["refs"].get("zarr2") or case["refs"]["tensorstore"]
    asked = {"dtype": "<f8", **(case.get("kwargs") or case["metadata"])}
    ours = service.node()

    made = ours.put(json=asked if isinstance(asked["shape"], list) else {**asked, "shape": [asked["shape"]]})

    if not reference["ok"]:
        assert problem(made)["code"] == "bad-definition"
        return
    assert made.status_code == 201, made.text
    theirs = service.node({".zarray": reference["text"].encode()})
    members = [name for name in asked if name in ("shape", "chunks", "dtype", "order", "fill_value", "compressor")]
    stated: list[dict[str, Any]] = [node.get().json() for node in (ours, theirs)]
    assert [stated[0][name] for name in members] == [stated[1][name] for name in members]
    assert ours.values().tobytes() == theirs.values().tobytes()
    assert json.loads(ours.keys()[".zarray"])["zarr_format"] == 2
