"""Chunk keys and codecs of the vectors: what is written where, and what stored bytes read as."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hyperslab import wire
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


_ENCODED = [case for case in cases("codecs") if "encoded_hex" in case]
_GOOD = [case for case in _ENCODED if case["dtype"] != "O"]
_OBJECTS = [case for case in _ENCODED if case["dtype"] == "O"]
_BAD = [case for case in cases("codecs") if "decode_hex" in case]
_FILTERS = {"delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype", "categorize", "shuffle"}


@pytest.mark.parametrize("case", _GOOD, ids=case_id)
def test_bytes_that_numcodecs_has_encoded_are_decoded(service: Conformance, case: Case) -> None:
    decoded = bytes.fromhex(case["refs"]["zarr3"]["decoded_hex"])
    dtype = wire.dtype_from_json(case["dtype"])
    count = len(decoded) // dtype.itemsize
    place: dict[str, Any] = {"compressor": case["config"]}
    if case["config"]["id"] in _FILTERS:
        place = {"filters": [case["config"]], "compressor": None}
    chunk = {"0": bytes.fromhex(case["encoded_hex"])}
    node = service.array(chunk, dtype=case["dtype"], shape=[count], chunks=[count], **place)

    assert node.values().tobytes() == decoded
    assert node.remote()[...].tobytes() == decoded
    np.testing.assert_array_equal(node.values(select="::-2"), np.frombuffer(decoded, dtype)[::-2])


@pytest.mark.parametrize("case", _OBJECTS, ids=case_id)
def test_objects_that_numcodecs_has_encoded_are_decoded(service: Conformance, case: Case) -> None:
    expected = case["refs"]["zarr3"]["decoded"]
    chunk, count = {"0": bytes.fromhex(case["encoded_hex"])}, len(case["values"])
    node = service.array(chunk, dtype="|O", shape=[count], chunks=[count], filters=[case["config"]])

    for values in (node.values(), node.remote()[...]):
        assert [plain(item) for item in values] == expected
    assert node.get("slice", format="json").json() == expected


def plain(item: Any) -> Any:
    return item.tolist() if isinstance(item, np.ndarray) else item


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
