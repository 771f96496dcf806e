"""Byte ranges of one value: few requests for many ranges that lie close together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

GAP: Final = 256 * 1024
"""Bytes that it is cheaper to read and drop than to ask for the next range on its own."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes of a version of a value from ``start`` on; shorter than asked for where the value ends."""

    start: int
    data: memoryview
    version: str


def merge(ranges: Sequence[tuple[int, int]], gap: int = GAP) -> list[tuple[int, int]]:
    """The requests ``[start, stop)`` that cover all ranges that are not empty, sorted."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(r for r in ranges if r[0] < r[1]):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def cut(spans: Sequence[Span], ranges: Sequence[tuple[int, int]]) -> list[bytes | memoryview]:
    """Each range out of the sorted spans that `merge` asked for; short or empty where the value ends before it."""
    return [_cut_one(spans, start, stop) for start, stop in ranges]


def _cut_one(spans: Sequence[Span], start: int, stop: int) -> bytes | memoryview:
    if start >= stop:
        return b""
    span = next(span for span in reversed(spans) if span.start <= start)
    return span.data[start - span.start : stop - span.start]
