"""The ``schema`` member of node documents is what TensorStore says of the same array, opened through the service."""

from __future__ import annotations

from typing import Any

import pytest
import tensorstore

from hyperslab.engine.jsontext import dump_json, parse_json
from tests.conformance.service import Conformance, Node
from tests.conformance.vectors import Case, case_id, cases

_DTYPES = [case for case in cases("dtypes") if case["expect"]["accept"] and case["refs"]["tensorstore"]["accept"]]
_INFINITE = {"meta-053"}
"""A size of 2**62, which to TensorStore is no bound at all."""
_DOCUMENTS = [
    case
    for case in cases("metadata")
    if case["refs"]["tensorstore"].get("accept") and "raw" in case and case["id"] not in _INFINITE
]


def theirs(node: Node, **spec: Any) -> Any:
    kvstore = {"driver": "http", "base_url": f"{node.service.url}/zarr/{node.path}/"}
    opened = tensorstore.open({"driver": "zarr", "kvstore": kvstore, **spec}, open=True).result()
    return parse_json(dump_json(opened.schema.to_json()))


@pytest.mark.parametrize("case", _DTYPES, ids=case_id)
def test_every_dtype_and_field_has_the_schema_of_tensorstore(service: Conformance, case: Case) -> None:
    node = service.array(dtype=case["dtype"], shape=[20, 30], chunks=[10, 10], compressor={"id": "blosc"})
    fields = [field[0] for field in case["dtype"]] if isinstance(case["dtype"], list) else [None]

    for field in fields:
        query = {} if field is None else {"field": field}
        assert node.get(**query).json()["schema"] == theirs(node, **query)


@pytest.mark.parametrize("case", _DOCUMENTS, ids=case_id)
def test_every_document_has_the_schema_of_tensorstore(service: Conformance, case: Case) -> None:
    node = service.node({".zarray": case["raw"].encode()})
    document = node.get().json()
    field = document["fields"][0]["name"] if document["fields"] else None

    assert node.get(**({"field": field} if field else {})).json()["schema"] == theirs(
        node, **({"field": field} if field else {})
    )
