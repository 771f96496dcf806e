"""Chunk keys and codecs of the vectors: what is written where, and what stored bytes read as."""

from __future__ import annotations

from typing import Any

import pytest

from hyperslab.errors import ChunkCorrupt
from tests.conformance.service import Conformance, problem
from tests.conformance.vectors import Case, case_id, cases


@pytest.mark.parametrize("case", cases("chunk_keys"), ids=case_id)
def test_an_element_is_stored_under_the_expected_key(service: Conformance, case: Case) -> None:
    members = {"shape": case["shape"], "chunks": case["chunks"], "dimension_separator": case["dimension_separator"]}
    node = service.array(dtype="|u1", fill_value=0, **members)
    at = ",".join(map(str, case["index"]))

    assert node.put("slice", params={"select": at}, json=7).status_code == 204

    assert list(node.chunks()) == [case["expect"]["key"]]
    assert node.values(select=at).tolist() == 7
    chunk = "/" + (".".join(map(str, case["expect"]["grid"])) or "0")
    assert node.get("chunk", chunk, format="stored").content == node.keys()[case["expect"]["key"]]


_BAD = [case for case in cases("codecs") if "decode_hex" in case]


@pytest.mark.parametrize("case", _BAD, ids=case_id)
def test_hostile_bytes_are_a_corrupt_chunk(service: Conformance, case: Case) -> None:
    node = service.array({"0": bytes.fromhex(case["decode_hex"])}, **hostile_array(case))

    for answer in (node.get("slice"), node.get("slice", format="json"), node.get("chunk", "/0")):
        found = problem(answer)
        assert (found["status"], found["code"]) == (502, "chunk-corrupt")
        assert found["key"].endswith("/0")
        assert found["reason"]
    with pytest.raises(ChunkCorrupt):
        node.remote()[...]


def hostile_array(case: Case) -> dict[str, Any]:
    config = case["config"]
    if config["id"] in ("vlen-utf8", "vlen-bytes", "vlen-array", "json2", "msgpack2"):
        return {"dtype": "|O", "shape": [2], "chunks": [2], "filters": [config]}
    return {"dtype": "|u1", "shape": [100], "chunks": [100], "compressor": config}
