"""Open modes of the libraries, as requests of ours: what is there afterwards, or that it is refused."""

from __future__ import annotations

from typing import Any, Final

import httpx
import pytest

from tests.conformance.deviations import deviation
from tests.conformance.service import DOCUMENT, Conformance, Node, problem
from tests.conformance.vectors import Case, case_id, cases

_ARRAY: Final = {**DOCUMENT, "shape": [4], "chunks": [2], "dtype": "|u1", "fill_value": 0}
_STATES: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "array": {".zarray": _ARRAY, "0": b"\5\5", "1": b"\5\5"},
    "group": {".zgroup": {"zarr_format": 2}},
}
_MODES: Final = {"r": None, "r+": None, "a": "open", "w": "replace", "w-": "create", "x": "create"}
_OF_ZARR_PYTHON = [case for case in cases("open_modes") if case["api"] == "zarr-python"]
_OF_TENSORSTORE = [
    case for case in cases("open_modes") if case["api"] == "tensorstore" and deviation("open_modes", case["id"]) is None
]


def opened(node: Node, kind: str) -> httpx.Response:
    """A GET that only an array, or only a group, answers."""
    return (
        node.get("slice")
        if kind == "array"
        else node.service.http.get(node.service.target("zarr", f"{node.path}/.zgroup"))
    )


@pytest.mark.parametrize("case", _OF_ZARR_PYTHON, ids=case_id)
def test_modes_do_what_they_do_in_zarr_python(service: Conformance, case: Case) -> None:
    node, mode, reference = service.node(_STATES[case["state"]]), _MODES[case["mode"]], case["refs"]["zarr2"]
    definition = _ARRAY if case["open"] == "array" else {"kind": "group"}

    answer = opened(node, case["open"]) if mode is None else node.put(json=definition, params={"mode": mode})

    assert answer.is_success == reference["ok"], answer.text
    if reference["ok"]:
        assert sorted(node.keys()) == reference["after"]
        assert opened(node, case["open"]).is_success
    else:
        assert problem(answer)["status"] in (404, 409, 422)
        assert sorted(node.keys()) == sorted(_STATES[case["state"]])


def mode_of(flags: dict[str, bool]) -> str | None:
    """``mode=`` for TensorStore's flags; None for opening alone. Open is the default where neither is given."""
    if not flags.get("create"):
        return None
    if flags.get("delete_existing"):
        return "replace"
    return "open" if flags.get("open") else "create"


@pytest.mark.parametrize("case", _OF_TENSORSTORE, ids=case_id)
def test_flags_do_what_they_do_in_tensorstore(service: Conformance, case: Case) -> None:
    node, mode, reference = service.node(_STATES[case["state"]]), mode_of(case["flags"]), case["refs"]["tensorstore"]
    changes: dict[str, dict[str, Any]] = {"other shape": {"shape": [5]}, "other dtype": {"dtype": "|i1"}}
    changed = changes.get(case.get("spec_metadata", ""), {})
    definition = {"kind": "array"} if case.get("spec_metadata", "").startswith("no ") else {**_ARRAY, **changed}

    if mode is None and not changed:
        answer = opened(node, "array")
    elif mode is None and case["state"] == "array":  # a constraint on what is there
        answer = node.put(json=definition, params={"mode": "open"})
    else:
        answer = opened(node, "array") if mode is None else node.put(json=definition, params={"mode": mode})

    assert answer.is_success == reference["ok"], answer.text
    if reference["ok"]:
        assert sorted(node.keys()) == reference["after"]
        assert node.get().json()["shape"] == reference["shape"]
    else:
        assert problem(answer)["status"] in (404, 409, 422)
        assert sorted(node.keys()) == sorted(_STATES[case["state"]])
