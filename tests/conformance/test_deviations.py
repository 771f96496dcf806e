"""The table of deviations is honest: it names cases that exist, each once, and of the firm ones only what it must."""

from __future__ import annotations

from collections import Counter

from tests.conformance.deviations import CHOICES, DEVIATIONS, Choice, Deviation
from tests.conformance.vectors import cases, is_firm


def test_every_deviation_is_from_a_case_that_exists_and_is_listed_once() -> None:
    known = Counter((deviation.topic, deviation.case_id) for deviation in DEVIATIONS)

    assert [case for case, count in known.items() if count > 1] == []
    assert [(t, i) for t, i in known if i not in {case["id"] for case in cases(t)}] == []


def test_of_the_firm_cases_only_the_one_of_negative_steps_is_deviated_from() -> None:
    """``3:5:-1`` is empty, because selections equal numpy's."""
    firm = [
        deviation.case_id
        for deviation in DEVIATIONS
        for case in cases(deviation.topic)
        if case["id"] == deviation.case_id and "level" in case.get("expect", {}) and is_firm(case)
    ]

    assert firm == ["slice-025"]


def test_every_deviation_and_choice_has_a_reason() -> None:
    entries: list[Deviation | Choice] = [*DEVIATIONS, *CHOICES]

    for entry in entries:
        assert entry.subject
        assert entry.ours
        assert entry.reason.endswith(".")
