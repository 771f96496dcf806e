"""Merging byte ranges."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hyperslab.storage.ranges import Span, cut, merge

RANGES = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 130)))


@given(RANGES, st.binary(max_size=100), st.integers(0, 40))
def test_parts_cut_from_merged_requests_equal_slices(ranges: list[tuple[int, int]], value: bytes, gap: int) -> None:
    spans = [Span(start, memoryview(value)[start:stop], "v") for start, stop in merge(ranges, gap)]

    assert [bytes(part) for part in cut(spans, ranges)] == [value[start:stop] for start, stop in ranges]


@given(RANGES, st.integers(0, 40))
def test_requests_are_sorted_and_further_apart_than_the_gap(ranges: list[tuple[int, int]], gap: int) -> None:
    requests = merge(ranges, gap)

    assert all(start < stop for start, stop in requests)
    assert all(before[1] + gap < after[0] for before, after in pairwise(requests))
