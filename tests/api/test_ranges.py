"""Byte ranges and how several travel in one answer."""

from __future__ import annotations

from email import message_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperslab.api.ranges import ByteRange, Multipart, parse_range, place_of
from hyperslab.errors import RangeNotSatisfiable


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bytes=0-0", [(0, 1)]),
        ("bytes=0-", [(0, 100)]),
        ("bytes=10-19", [(10, 20)]),
        ("bytes=90-1000", [(90, 100)]),
        ("bytes=-1", [(99, 100)]),
        ("bytes=-1000", [(0, 100)]),
        ("Bytes=0-9", [(0, 10)]),
        ("bytes=0-9,20-29", [(0, 10), (20, 30)]),
        ("bytes= 0-9 , 20-29 ", [(0, 10), (20, 30)]),
        ("bytes=20-29,0-9", [(20, 30), (0, 10)]),
        ("bytes=0-9,10-19", [(0, 20)]),
        ("bytes=0-50,40-60,5-6", [(0, 61)]),
        ("bytes=0-9,200-300", [(0, 10)]),
        ("bytes=0-99999999999999999999", [(0, 100)]),
    ],
)
def test_ranges_are_resolved_against_the_size(text: str, found: list[tuple[int, int]]) -> None:
    assert parse_range(text, 100) == [ByteRange(*pair) for pair in found]


@pytest.mark.parametrize(
    "text",
    [
        *(None, "items=0-9", "bytes", "bytes=", "bytes=a-b", "bytes=5-2", "bytes=-", "bytes=1-2-3"),
        *("bytes=0-9,x", "bytes=+1-2", "bytes=٣-٤", "0-9"),
    ],
)
def test_what_is_no_range_of_bytes_is_ignored(text: str | None) -> None:
    assert parse_range(text, 100) is None


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=5-", (5, None)),
        (" Bytes = 10-19 ", (10, 20)),
        ("bytes=-5", None),
        ("bytes=0-1,5-6", None),
        ("bytes=5-2", None),
        ("items=0-1", None),
        ("bytes", None),
        ("bytes=99999999999999999999-", None),
        ("bytes=0-99999999999999999999", None),
    ],
)
def test_one_range_that_is_counted_from_the_beginning_has_a_place(text: str, place: tuple[int, int | None]) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize(
    "text",
    [
        "bytes=100-",
        "bytes=100-200",
        "bytes=-0",
        "bytes=500-,600-",
        "bytes=" + ",".join(f"{i}-{i}" for i in range(65)),  # too many, though they touch
    ],
)
def test_ranges_that_cannot_be_met_are_refused_with_the_size(text: str) -> None:
    with pytest.raises(RangeNotSatisfiable) as caught:
        parse_range(text, 100)

    assert caught.value.size == 100


@given(st.integers(1, 200), st.lists(st.tuples(st.integers(0, 250), st.integers(0, 250)), min_size=1, max_size=20))
def test_the_ranges_cover_the_bytes_asked_for_each_once(size: int, pairs: list[tuple[int, int]]) -> None:
    ordered = [(min(pair), max(pair)) for pair in pairs]
    wanted = {i for first, last in ordered for i in range(first, min(last + 1, size))}
    text = "bytes=" + ",".join(f"{first}-{last}" for first, last in ordered)
    if not wanted:
        with pytest.raises(RangeNotSatisfiable):
            parse_range(text, size)
        return

    found = parse_range(text, size)

    assert found is not None
    covered = [i for part in found for i in range(part.start, part.stop)]
    assert len(covered) == len(set(covered))
    assert set(covered) == wanted


def test_a_multipart_body_parses_as_mime_and_has_the_size_foretold() -> None:
    body = bytes(range(100))
    layout = Multipart([ByteRange(0, 10), ByteRange(50, 51)], 100, "application/x-npy")

    sent = (
        b"".join(head + body[r.start : r.stop] for head, r in zip(layout.heads, layout.ranges, strict=True))
        + layout.end
    )

    assert len(sent) == layout.nbytes
    message = message_from_bytes(b"Content-Type: " + layout.content_type.encode() + b"\r\n\r\n" + sent)
    parts = message.get_payload()
    assert isinstance(parts, list)
    assert [part["Content-Range"] for part in parts] == ["bytes 0-9/100", "bytes 50-50/100"]  # type: ignore[index]
    assert [part.get_payload(decode=True) for part in parts] == [body[:10], body[50:51]]  # type: ignore[union-attr]


def test_a_range_of_an_empty_body_is_ignored() -> None:
    assert parse_range("bytes=0-99", 0) is None
