"""Paths and keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.errors import BadPath
from hyperslab.storage.keys import normalise_path
from tests.conformance.vectors import Case, case_id, cases


@pytest.mark.parametrize("case", cases("paths"), ids=case_id)
def test_paths_are_normalised_as_the_references_do(case: Case) -> None:
    if "error" in case["expect"]:
        with pytest.raises(BadPath):
            normalise_path(case["path"])
    else:
        assert normalise_path(case["path"]) == case["expect"]["path"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a/../b", "'..'"),
        ("a\\..\\b", "'..'"),
        ("./a", "'.'"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("a\x7f", "control character"),
        ("a/\ud800", "not UTF-8"),
        ("a" * 1025, "1025 bytes"),
        ("é" * 513, "1026 bytes"),
        (".hyperslab/locks", "belong to the service"),
        ("a/.hyperslab.tmp.1", "belong to the service"),
    ],
)
def test_what_no_store_may_hold_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(BadPath, match=reason) as refused:
        normalise_path(text)

    assert len(refused.value.path) <= 256


@given(st.text())
def test_a_normalised_path_is_safe_and_stays_as_it_is(text: str) -> None:
    try:
        path = normalise_path(text)
    except BadPath:
        return

    assert normalise_path(path) == path
    assert not {"", ".", ".."} & set(path.split("/")) or path == ""
    assert "\\" not in path
    assert "\0" not in path
