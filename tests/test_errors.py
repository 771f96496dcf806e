"""Errors are facts: they survive pickling and the trip over the wire as the same class."""

from __future__ import annotations

import pickle
from dataclasses import MISSING, fields
from typing import Any

import pytest

from hyperslab import errors

ALL = list(errors.ERRORS.values())


def example(cls: type[errors.HyperslabError]) -> errors.HyperslabError:
    """An instance with a plausible value for every fact."""
    samples: dict[str, Any] = {"int": 3, "float": 1.5, "Any": 1.5, "list[str]": ["a", "b"]}
    needed = [f for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    return cls(**{f.name: samples.get(str(f.type), "text") for f in needed})


@pytest.mark.parametrize("cls", ALL)
def test_an_error_survives_pickling(cls: type[errors.HyperslabError]) -> None:
    error = example(cls)
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is cls
    assert copy.facts() == error.facts()
    assert str(copy) == str(error) != ""


def test_codes_are_unique_and_speakable() -> None:
    codes = [cls.code for cls in ALL]

    assert len(set(codes)) == len(codes)
    assert all(code == code.lower() and " " not in code for code in codes)


def test_an_unknown_code_or_a_missing_fact_makes_no_error() -> None:
    assert errors.from_facts("no-such-code", {}) is None
    assert errors.from_facts("index-out-of-range", {"axis": 0}) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (float("inf"), "Infinity"),
        ("it's", '"it\'s"'),
        ((3, None), "[3, null]"),
        ({"id": "zlib", "level": [True]}, '{"id": "zlib", "level": [true]}'),
        ([[[[1]]]], "[[[[…]]]]"),
        (list(range(9)), "[0, 1, 2, 3, 4, 5, 6, 7, …]"),
        (2**5000, "an integer of 5001 bits"),
    ],
)
def test_values_in_sentences_are_json(value: Any, text: str) -> None:
    assert errors.shown(value) == text
    assert text in str(errors.BadParameter("x", value, "another"))
    assert text in str(errors.NodeExists("a", "array", "order", value, value))
    assert text in str(errors.BadBody("the body", [value], 1)) or isinstance(value, str | list)
