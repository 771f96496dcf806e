"""Selections in numpy's notation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Final

from hyperslab.errors import BadSelection

SelectionItem = int | slice | EllipsisType | list[int]
"""Item of a selection: an index, ``a:b:c``, ``...`` or a list of indices."""


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,1000}")  # Python limits integers to 4300 digits


def parse_selection(text: str) -> tuple[SelectionItem, ...]:
    """Parse a selection such as ``0:10, ::-2, ..., [1,5,9], -1``; an empty text selects everything. Trailing commas are
    allowed, also in lists. Raises `BadSelection` with the invalid part and its position."""
    if not text.strip():
        return ()
    parts = [(part.strip(), start + len(part) - len(part.lstrip())) for part, start in _split(text)]
    items = tuple([_parse_item(text, part, position) for part, position in parts])
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise BadSelection(text, *parts[ellipses[1]], "only one ellipsis is allowed")
    return items


def format_selection(items: Sequence[SelectionItem]) -> str:
    """The text of a selection; the inverse of `parse_selection`."""
    return ",".join(_format_item(item) for item in items)


def _split(text: str) -> Iterator[tuple[str, int]]:
    """Parts between top-level commas, with their offsets."""
    start, depth = 0, 0
    for i, char in enumerate(text):
        if char == "[":
            if depth:
                raise BadSelection(text, char, i, "lists do not nest")
            depth, opened = 1, i
        elif char == "]":
            if not depth:
                raise BadSelection(text, char, i, "there is no list to close")
            depth = 0
        elif char == "," and not depth:
            yield text[start:i], start
            start = i + 1
    if depth:
        raise BadSelection(text, text[opened:], opened, "the list is not closed")
    if text[start:].strip() or not start:
        yield text[start:], start


def _parse_item(text: str, stripped: str, position: int) -> SelectionItem:
    if stripped == "...":
        return Ellipsis
    if stripped.startswith("["):
        if not stripped.endswith("]"):
            raise BadSelection(text, stripped, position, "expected a comma after the list")
        *numbers, last = stripped[1:-1].split(",")
        indices, start = [], position + 1
        for number in [*numbers, last] if last.strip() else numbers:
            indices.append(_parse_integer(text, number, start))
            start += len(number) + 1
        return indices
    if ":" not in stripped:
        return _parse_integer(text, stripped, position)
    bounds, start = [], position
    for bound in stripped.split(":"):
        bounds.append(_parse_integer(text, bound, start) if bound.strip() else None)
        start += len(bound) + 1
    if len(bounds) > 3:
        raise BadSelection(text, stripped, position, "a slice has at most start:stop:step")
    if len(bounds) == 3 and bounds[2] == 0:
        raise BadSelection(text, stripped, position, "the step must not be zero")
    return slice(*bounds)


def _parse_integer(text: str, part: str, position: int) -> int:
    stripped = part.strip()
    if not _INTEGER.fullmatch(stripped):
        position += len(part) - len(part.lstrip())
        reason = "expected an integer, a:b:c, ... or [i,j,k]" if stripped else "nothing between the commas"
        if stripped.isascii() and stripped[stripped[:1] in "+-" :].isdecimal():
            reason = "expected at most 1000 digits"
        raise BadSelection(text, stripped, position, reason)
    return int(stripped)


def _format_item(item: SelectionItem) -> str:
    if item is Ellipsis:
        return "..."
    if isinstance(item, slice):
        start, stop, step = ("" if b is None else str(int(b)) for b in (item.start, item.stop, item.step))
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
    if isinstance(item, list):
        return "[" + ",".join(str(int(i)) for i in item) + "]"
    return str(int(item))
