"""Selections of the vectors in every mode: ``select=`` where text can say them, and the client's brackets for all."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from hyperslab import RemoteArray, wire
from tests.conformance.deviations import deviation
from tests.conformance.service import Conformance, Node, problem
from tests.conformance.vectors import Case, case_id, cases

_FOLLOWED = [case for case in cases("slices") if deviation("slices", case["id"]) is None]
_TEXT = [case for case in _FOLLOWED if case["mode"] in ("basic", "oindex")]


@cache
def numbers(service: Conformance, shape: tuple[int, ...], chunks: tuple[int, ...], order: str) -> Node:
    """An array that holds 0, 1, 2, …"""
    node = service.array(dtype="<i4", shape=shape, chunks=chunks, order=order, fill_value=-1)
    if math.prod(shape):
        node.remote()[...] = np.arange(math.prod(shape), dtype="<i4").reshape(shape)
    return node


def node_of(service: Conformance, case: Case) -> Node:
    return numbers(service, tuple(case["shape"]), tuple(case["chunks"]), case.get("order", "C"))


def index(item: Any) -> Any:
    """One item of a key, as Python writes it."""
    if not isinstance(item, dict):
        return item
    ((kind, value),) = item.items()
    if kind == "slice":
        return slice(*value)
    if kind in ("ints", "bools"):
        return np.array(value, np.int64 if kind == "ints" else bool)
    return ... if kind == "ellipsis" else None


def select(array: RemoteArray, case: Case) -> Any:
    key = tuple(index(item) for item in case["sel"])
    targets: dict[str, Any] = {"basic": array, "oindex": array.oindex, "vindex": array.vindex, "blocks": array.blocks}
    return targets[case["mode"]][key]


@pytest.mark.parametrize("case", _FOLLOWED, ids=case_id)
def test_the_client_selects_as_the_vectors_do(service: Conformance, case: Case) -> None:
    array = node_of(service, case).remote()

    if "error" in case["expect"]:
        with pytest.raises((IndexError, ValueError)):  # numpy's, for a step of 0
            select(array, case)
        return
    found = np.asarray(select(array, case))

    assert (list(found.shape), found.dtype) == (case["expect"]["shape"], np.dtype("<i4"))
    assert found.reshape(-1).tolist() == case["expect"]["values"]


def text_of(case: Case) -> str | None:
    """The selection as ``select=``; None for what it has no words for: new axes, masks, points."""
    items = [index(item) for item in case["sel"]]
    arrays = [item for item in items if isinstance(item, np.ndarray)]
    if any(item is None for item in items) or any(a.dtype == bool or a.ndim != 1 for a in arrays):
        return None
    if case["mode"] == "basic" and len(arrays) > 1:
        return None
    return wire.format_selection([item.tolist() if isinstance(item, np.ndarray) else item for item in items])


@pytest.mark.parametrize("case", [case for case in _TEXT if text_of(case) is not None], ids=case_id)
def test_select_text_means_the_same(service: Conformance, case: Case) -> None:
    node, text = node_of(service, case), text_of(case)

    if "error" in case["expect"]:
        assert problem(node.get("slice", select=text))["status"] in (400, 422)
        return
    found = node.values(select=text)

    assert list(found.shape) == case["expect"]["shape"]
    assert found.reshape(-1).tolist() == case["expect"]["values"]
    assert node.get("slice", select=text, format="json").json() == found.tolist()
    assert node.get("plan", select=text).json()["shape"] == case["expect"]["shape"]


@pytest.mark.parametrize(
    "case", [c for c in _FOLLOWED if c["mode"] == "blocks" and "error" not in c["expect"]], ids=case_id
)
def test_blocks_are_what_the_chunk_route_gives(service: Conformance, case: Case) -> None:
    node = node_of(service, case)
    if not all(isinstance(item, int) and item >= 0 for item in case["sel"]) or len(case["sel"]) < len(case["shape"]):
        return

    answer = node.get("chunk", "/" + ".".join(map(str, case["sel"])))

    assert np.frombuffer(answer.content, "<i4").tolist() == case["expect"]["values"]
