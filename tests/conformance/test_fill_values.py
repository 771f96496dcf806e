"""Every fill value of the vectors: missing chunks read as it, and new arrays get it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.deviations import deviation
from tests.conformance.service import Conformance, problem
from tests.conformance.vectors import Case, case_id, cases

_FOLLOWED = [case for case in cases("fill_values") if deviation("fill_values", case["id"]) is None]
_ACCEPTED = [case for case in _FOLLOWED if case["expect"]["accept"]]
_REFUSED = [case for case in _FOLLOWED if not case["expect"]["accept"]]


@pytest.mark.parametrize("case", _ACCEPTED, ids=case_id)
def test_missing_chunks_read_as_the_fill_value(service: Conformance, case: Case) -> None:
    node = service.array(dtype=case["dtype"], fill_value=case["fill_value"], shape=[3], chunks=[2])

    values, array = node.values(), node.remote()

    expected = bytes(values.nbytes) if case["expect"].get("is_null") else values[:1].tobytes() * 3
    assert values.tobytes() == expected
    assert values[:1].tobytes().hex() == case["expect"].get("stored_hex", values[:1].tobytes().hex())
    assert array[...].tobytes() == expected
    assert node.get().json()["fill_value"] == case["fill_value"]


@pytest.mark.parametrize("case", _ACCEPTED, ids=case_id)
def test_the_client_knows_the_fill_value(service: Conformance, case: Case) -> None:
    array = service.array(dtype=case["dtype"], fill_value=case["fill_value"], shape=[3], chunks=[2]).remote()

    if case["expect"].get("is_null"):
        assert array.fill_value is None
    else:
        fill, first = np.asarray(array.fill_value, array.dtype), array[0]
        narrow = array.dtype.name in ("int4", "int2")  # whose upper bits mean nothing
        assert fill == first if narrow else fill.tobytes() == array[:1].tobytes()


@pytest.mark.parametrize("case", _ACCEPTED, ids=case_id)
def test_new_arrays_have_the_fill_value(service: Conformance, case: Case) -> None:
    node, read = (
        service.node(),
        service.array(dtype=case["dtype"], fill_value=case["fill_value"], shape=[3], chunks=[2]),
    )

    made = node.put(json={"shape": [3], "dtype": case["dtype"], "fill_value": case["fill_value"]})

    if made.status_code == 422:  # what is only read leniently
        assert problem(made)["member"] == "fill_value"
    else:
        assert made.status_code == 201, made.text
        assert node.values().tobytes() == read.values().tobytes()


@pytest.mark.parametrize("case", _REFUSED, ids=case_id)
def test_a_fill_value_that_is_refused_is_named(service: Conformance, case: Case) -> None:
    node = service.array(dtype=case["dtype"], fill_value=case["fill_value"], shape=[3], chunks=[2])

    for answer in (node.get(), node.get("slice"), node.get("chunk", "/0")):
        found = problem(answer)
        assert (found["code"], found["member"]) == ("bad-metadata", "fill_value")
        assert found["reason"]
    asked = problem(service.node().put(json={"shape": [3], "dtype": case["dtype"], "fill_value": case["fill_value"]}))
    assert (asked["code"], asked["member"]) == ("bad-definition", "fill_value")
