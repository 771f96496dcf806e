"""New arrays over HTTP: chunk layouts of the vectors, and the documents that the libraries write."""

from __future__ import annotations

import pytest

from tests.conformance.deviations import deviation
from tests.conformance.service import Conformance, problem
from tests.conformance.vectors import Case, case_id, cases

_LAYOUTS = [case for case in cases("chunk_layout") if deviation("chunk_layout", case["id"]) is None]


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
