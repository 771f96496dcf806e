"""JSON of documents: lenient on reading, strict on writing, bounded."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.engine.jsontext import MAX_DEPTH, KeptValue, dump_copy, dump_in_pieces, dump_json, parse_json

_FINITE = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    _FINITE | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('ab"\\é', max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(_VALUES)
def test_values_survive_exactly(value: Any) -> None:
    assert parse_json(dump_json(value)) == value
    assert json.loads(dump_json(value)) == value


@given(_VALUES, st.integers(0, 9))
def test_a_document_in_pieces_is_the_same(value: Any, depth: int) -> None:
    value = {"short": value, "long": [value] * 20_001, "longer": [[depth] * 25_000, [2**70] * 10_001, [True, 1]]}
    assert dump_in_pieces(value, depth) == dump_json(value)
    assert dump_in_pieces({"nan": [math.nan]}, depth, dump_copy) == b'{"nan":[NaN]}'


@given(_VALUES, _VALUES, st.text('a"\\é', max_size=2))
def test_a_kept_member_is_what_parsing_the_whole_document_finds(value: Any, other: Any, name: str) -> None:
    """Wherever its text stands too: in another member, in a string, after another value of the same name."""
    kept, name = KeptValue(value), name or "a"
    document = {"x": other, name: value, "y": dump_copy(value).decode()}
    assert parse_json(kept.dump(document, name)) == document
    for text in (
        kept.dump(document, name),
        dump_copy({**document, name: other}),
        dump_copy([value]),
        kept.dump(document, name)[:-1] + b"," + dump_copy({name: other})[1:],
    ):
        found = kept.parse(text, name)
        assert found is None or found == parse_json(text)
    again = kept.parse(kept.dump({name: value, "x": 1}, name), name)
    assert again is None or again[name] is value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b"[-0.0]", [-0.0]),
        (b"[18446744073709551616, -9223372036854775809]", [2**64, -(2**63) - 1]),
        (b'["\\ud83d\\ude00"]', ["😀"]),
        (b'"\\u0000"', "\0"),
        (memoryview(b" [1] \n"), [1]),
    ],
)
def test_value_is_read_as_it_was_meant(text: bytes, value: Any) -> None:
    found = parse_json(text)

    assert found == value
    assert repr(found) == repr(value)


def test_numbers_that_are_no_json_are_written_as_the_strings_of_zarr() -> None:
    text = dump_json({"a": (math.nan, [math.inf], -math.inf, 1.5)})

    assert text == b'{"a":["NaN",["Infinity"],"-Infinity",1.5]}'


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"[1,]",
        b"{'a': 1}",
        b"nan",
        b"[1] [2]",
        b"\xff\xfe[\x001\x00]\x00",
        '"é"'.encode("latin-1"),
        b'"\\ud800"',
        b'["\\udc00", NaN]',
        b"// comment\n1",
        b"0x10",
        b"1" * 5000,
        b'"\x01"',
        b'"' + b'\\"' * 500_000,  # in linear time
        b"[" * 300 + b'"' * 500_000,
        b"[" * 300 + b"\\" * 500_000,
    ],
    ids=lambda text: repr(text[:40]),
)
def test_what_is_no_json_is_refused_with_a_reason(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)


@pytest.mark.parametrize("token", ["1", "NaN"])
def test_nesting_is_bounded(token: str) -> None:
    deepest = "[" * MAX_DEPTH + token + "]" * MAX_DEPTH

    assert parse_json(deepest.encode())
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        with pytest.raises(ValueError, match="nested"):
            parse_json(f"{opening * 2000}{token}{closing * 2000}".encode())


def test_size_is_bounded() -> None:
    assert parse_json(b"[1,2]", limit=5) == [1, 2]
    with pytest.raises(ValueError, match="limit is 4"):
        parse_json(b"[1,2]", limit=4)


def test_brackets_in_strings_are_no_nesting() -> None:
    value = ['[{"\\' * 500, {"[" * 500: [[]] * 500}]

    assert parse_json(dump_json(value)) == value
