"""Conditional requests: validators, and their precedence as in RFC 9110 §13.2.2."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, Literal

from hyperslab.api.response import http_date
from hyperslab.errors import BadParameter, PreconditionFailed

Tags = tuple[str, ...] | Literal["*"]
"""Entity tags as sent, with quotes and ``W/``; ``*`` matches any."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditional headers of a request; None for absent ones.

    Checked against the present state: a strong ``etag`` with its quotes, None if the resource does not exist (for
    writes), and ``modified`` in seconds since 1970 if known.
    """

    if_match: Tags | None = None
    if_none_match: Tags | None = None
    if_modified_since: float | None = None
    if_unmodified_since: float | None = None
    if_range: str | None = None

    @classmethod
    def parse(cls, header: Callable[[bytes], str | None]) -> Conditions:
        """Raises `BadParameter` for an invalid list of tags, as ignoring it could lose an update."""
        return cls(
            _tags("If-Match", header(b"if-match")),
            _tags("If-None-Match", header(b"if-none-match")),
            _date(header(b"if-modified-since")),
            _date(header(b"if-unmodified-since")),
            header(b"if-range"),
        )

    def check(self, etag: str | None, modified: float | None = None, *, reading: bool = True) -> bool:
        """False if the client's copy is current (304). Raises `PreconditionFailed` (412)."""
        unmodified = self.if_unmodified_since
        if self.if_match is not None:
            if etag is None or (self.if_match != "*" and etag not in self.if_match):
                raise PreconditionFailed("If-Match", _sent(self.if_match), etag)
        elif unmodified is not None and modified is not None and int(modified) > unmodified:
            raise PreconditionFailed("If-Unmodified-Since", http_date(unmodified), etag)
        if self.if_none_match is not None:
            tags = self.if_none_match
            if etag is None or (tags != "*" and etag not in [tag.removeprefix("W/") for tag in tags]):
                return True
            if reading:
                return False
            raise PreconditionFailed("If-None-Match", _sent(self.if_none_match), etag)
        since = self.if_modified_since
        return not (reading and since is not None and modified is not None and int(modified) <= since)

    def range_applies(self, etag: str | None, modified: float | None, at: float) -> bool:
        """Whether If-Range allows a partial response; ``at`` is the present time in seconds since 1970."""
        if self.if_range is None:
            return True
        if '"' in self.if_range:
            return self.if_range.strip() == etag  # strong comparison: a weak tag never matches
        date = _date(self.if_range)
        # a date is a strong validator only after a second without changes (RFC 9110 §8.8.2.2)
        return date is not None and modified is not None and date == int(modified) <= at - 1


CONDITIONAL: Final = frozenset(
    (b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since", b"if-range")
)
"""The headers that `Conditions` are made of."""
UNCONDITIONAL: Final = Conditions()


def _sent(tags: Tags) -> str:
    return tags if isinstance(tags, str) else ", ".join(tags)


def _tags(name: str, text: str | None) -> Tags | None:
    if text is None:
        return None
    if text.strip() == "*":
        return "*"
    tags, position = [], 0
    tag = re.compile(r'\s*((?:W/)?"[\x21\x23-\x7e\x80-\xff]*")\s*(?:,|$)')
    while match := tag.match(text, position):
        tags.append(match[1])
        position = match.end()
    if re.fullmatch(r"\s*[\x21\x23-\x2b\x2d-\x7e]+\s*", text) and not text.strip().startswith("W/"):
        return (f'"{text.strip()}"',)  # a single tag without quotes, as object stores take it
    if position < len(text) or not tags:
        raise BadParameter(name, text, 'a list of entity tags such as "abc", "def", or *')
    return tuple(tags)


def _date(text: str | None) -> float | None:
    """Seconds since 1970; None for an invalid date, whose header is ignored."""
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
