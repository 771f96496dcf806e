"""Byte ranges (RFC 9110 §14): parser, and layout of multipart responses."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hyperslab.errors import RangeNotSatisfiable


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """Bytes ``[start, stop)``, never empty."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def content_range(self, size: int) -> str:
        return f"bytes {self.start}-{self.stop - 1}/{size}"


def parse_range(text: str | None, size: int) -> list[ByteRange] | None:
    """The ranges of a Range header for a body of ``size`` bytes; None if the header is ignored.

    Ignored are other units, invalid range sets, and ranges of an empty body (some clients send one with every request).
    Overlapping and touching ranges are merged. Raises `RangeNotSatisfiable` if all ranges are outside, or if more than
    64 were asked for, also such that would be merged (RFC 9110 §14.2: a sign of a broken or an unfriendly client).
    """
    if text is None or size == 0:
        return None
    unit, equals, specs = text.partition("=")
    if not equals or unit.strip().lower() != "bytes":
        return None
    parsed = [_parse_spec(spec.strip()) for spec in specs.split(",") if spec.strip()]
    if not parsed or None in parsed:
        return None
    found: list[ByteRange] = []
    for first, last in [spec for spec in parsed if spec is not None]:
        start = max(0, size - (last or 0)) if first is None else first
        stop = size if first is None or last is None else min(last + 1, size)
        found += [ByteRange(start, stop)] if start < stop else []
    merged: list[ByteRange] = []
    for part in sorted(found):
        if merged and part.start <= merged[-1].stop:
            merged[-1] = ByteRange(merged[-1].start, max(merged[-1].stop, part.stop))
        else:
            merged.append(part)
    if not merged or len(parsed) > 64:
        raise RangeNotSatisfiable(text, size)
    return found if len(found) == len(merged) else merged  # in requested order


def place_of(text: str) -> tuple[int, int | None] | None:
    """Start and stop (None: the end) of a Range header with a single range whose place does not depend on the size."""
    unit, equals, spec = text.partition("=")
    parsed = _parse_spec(spec.strip()) if equals and unit.strip().lower() == "bytes" else None
    if parsed is None or parsed[0] is None or max(parsed[0], parsed[1] or 0) >= 1 << 62:
        return None
    return parsed[0], None if parsed[1] is None else parsed[1] + 1


def _parse_spec(spec: str) -> tuple[int | None, int | None] | None:
    match = re.fullmatch("([0-9]{0,30})-([0-9]{0,30})", spec)
    if match is None or not (match[1] or match[2]):
        return None
    first = int(match[1]) if match[1] else None
    last = int(match[2]) if match[2] else None
    if first is not None and last is not None and last < first:
        return None
    return first, last


@dataclass(frozen=True)
class Multipart:
    """The layout of a ``multipart/byteranges`` body, known in full before any part is read."""

    ranges: Sequence[ByteRange]
    size: int
    media_type: str

    @cached_property
    def boundary(self) -> str:
        return secrets.token_hex(12)

    @property
    def content_type(self) -> str:
        return f"multipart/byteranges; boundary={self.boundary}"

    @cached_property
    def heads(self) -> list[bytes]:
        """The head of each part, with the line break after the preceding part."""
        return [
            f"\r\n--{self.boundary}\r\nContent-Type: {self.media_type}\r\n"
            f"Content-Range: {part.content_range(self.size)}\r\n\r\n".encode()
            for part in self.ranges
        ]

    @cached_property
    def end(self) -> bytes:
        return f"\r\n--{self.boundary}--\r\n".encode()

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.heads)) + sum(map(len, self.ranges)) + len(self.end)
