"""Rules of access: `allows`, one pure function of principal, action and path, which everything asks.

A rule allows actions at paths. A path is a node's, from the name of its store on; it covers the node and all below. In
a pattern, the segment ``*`` stands for any one segment, and ``**`` for any number of them, also none.

So a principal who may do something at a node may do it at every node below: to delete or replace a group is to be
allowed at each of them. What lies above, *leads to* what may be read, and shows as groups with nothing of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import groupby
from math import inf
from typing import Any, Final, Literal, NamedTuple, get_args

Action = Literal["read", "write", "create", "delete"]
"""``read``: GET, HEAD, points, plans, changes. ``write``: values, attributes, resizes, appends, a stream into what is
there. ``create``: new nodes and streams. ``delete``: DELETE, replacement, a stream that is discarded."""

ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
METRICS: Final = "/metrics"
"""The path of the counters, among those of nodes, which have no slash before them. ``**`` covers it, too."""

SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Pattern(NamedTuple):
    """Segments of paths. ``is_literal``: ``*`` and ``**`` are names, as those of any node may be."""

    segments: tuple[str, ...]
    is_literal: bool = False

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """The pattern of settings. Raises `ValueError`."""
        if text == METRICS:
            return cls((METRICS,), is_literal=True)
        segments = [segment for segment in text.split("/") if segment]
        for segment in segments:
            if segment in (".", "..") or ("*" in segment and segment not in ("*", "**")):
                raise ValueError(f"{text!r}: a segment of a path is a name, * (any one) or ** (any number)")
        if not segments:
            raise ValueError(f"{text!r} names no path: '**' is all of them")
        # a run of ** is one
        runs = [[*run] for _, run in groupby(segments, lambda name: name == "**")]
        return cls(tuple([name for run in runs for name in (run[:1] if run[0] == "**" else run)]))

    @classmethod
    def of(cls, path: str) -> Pattern:
        """The pattern of one node and all below."""
        return cls(tuple([segment for segment in path.split("/") if segment]), is_literal=True)

    def __str__(self) -> str:
        return "/".join(self.segments)

    def covering(self) -> str:
        """A regular expression that matches the beginning of each covered path, behind which a slash is put."""
        wild = {} if self.is_literal else {"*": "[^/]+/", "**": "(?:[^/]+/)*"}
        return "".join(wild.get(segment) or re.escape(segment) + "/" for segment in self.segments)

    def leading(self) -> str:
        """As `covering`, of whole paths to covered ones."""
        text = ""
        for segment in reversed(self.segments):
            if segment == "**" and not self.is_literal:
                text = "(?:[^/]+/)*"
            else:
                one = "[^/]+/" if segment == "*" and not self.is_literal else re.escape(segment) + "/"
                text = f"(?:{one}{text})?"
        return text

    def next_names(self, path: Sequence[str]) -> set[str] | None:
        """Names of children of a path on the way to what is covered; None for any."""
        names = set[str]()
        for depth, segment in enumerate(self.segments):
            if not self.is_literal and (segment == "**" or (segment == "*" and depth == len(path))):
                return None
            if depth == len(path):
                return {segment}
            if segment != path[depth] and (self.is_literal or segment != "*"):
                return names
        return names


@dataclass(frozen=True, slots=True)
class Rule:
    """Actions that are allowed at paths."""

    allow: frozenset[Action]
    paths: tuple[Pattern, ...]


@dataclass(frozen=True)
class View:
    """The paths at which one action, as to read, is allowed."""

    paths: tuple[Pattern, ...]

    @cached_property
    def key(self) -> str:
        """Equal for views of the same paths."""
        return "|".join(sorted({pattern.covering() for pattern in self.paths}))

    @cached_property
    def _covering(self) -> re.Pattern[str] | None:
        return re.compile(self.key) if self.paths else None

    @cached_property
    def _leading(self) -> re.Pattern[str] | None:
        nodes = [pattern.leading() for pattern in self.paths if pattern.segments != (METRICS,)]
        return re.compile("|".join(sorted(set(nodes)))) if nodes else None

    def covers(self, path: str) -> bool:
        """Whether a path, or one above it, is among the paths."""
        return self._covering is not None and self._covering.match(f"{path}/" if path else "") is not None

    def leads_to(self, path: str) -> bool:
        """Whether paths below a path may be covered."""
        return self._leading is not None and self._leading.fullmatch(f"{path}/" if path else "") is not None

    def next_names(self, path: str) -> set[str] | None:
        """Names of children of a path that leads to others, by which these are found; None for any."""
        segments, names = path.split("/") if path else [], set[str]()
        for pattern in self.paths:
            following = pattern.next_names(segments)
            if following is None:
                return None
            names |= following
        return names


@lru_cache(maxsize=1024)
def views_of(rules: tuple[Rule, ...]) -> dict[str, View]:
    """By action, the paths at which rules allow it; those of many links are the same."""
    return {
        action: View(tuple([path for rule in rules if action in rule.allow for path in rule.paths]))
        for action in ACTIONS
    }


@dataclass(frozen=True, eq=False)
class Principal:
    """Principal of a request. ``ends``: when, in seconds since 1970. ``is_anonymous``: without a token."""

    name: str
    rules: tuple[Rule, ...]
    ends: float = inf
    is_anonymous: bool = False
    views: dict[str, View] = field(init=False, repr=False)
    granted: dict[str, Any] = field(init=False, repr=False, default_factory=dict)
    """What the middleware remembers of paths that may be read."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "views", views_of(self.rules))

    def describe(self) -> str:
        """What is allowed where, and until when, for people."""
        rules = [
            f"{', '.join(action for action in ACTIONS if action in rule.allow)} at {', '.join(map(str, rule.paths))}"
            for rule in self.rules
        ]
        return "; ".join([*rules, *([f"until {timestamp(self.ends)}"] if self.ends < inf else [])])

    @property
    def view(self) -> View:
        """What may be read."""
        return self.views["read"]


def allows(principal: Principal, action: Action, path: str) -> bool:
    """Whether a principal may do something at the node of a path."""
    return principal.views[action].covers(path)


def sees(principal: Principal, path: str) -> bool:
    """Whether a principal may know of the node at a path: it may be read, or leads to what may be."""
    return principal.view.covers(path) or principal.view.leads_to(path)


def rule(allow: Iterable[Action], paths: Iterable[str]) -> Rule:
    """A rule from texts. Raises `ValueError` for a pattern that is none."""
    return Rule(frozenset(allow), tuple([Pattern.parse(path) for path in paths]))


EVERYTHING: Final = rule(ACTIONS, ["**"])
READING: Final = rule(["read"], ["**"])


def digest(token: bytes) -> bytes:
    """What is kept of a token. A table of digests is looked up in a time that tells nothing of a token: who wants to
    come nearer to an entry must find texts with a given beginning of their digest, and has then no part of it."""
    return sha256(token).digest()


DURATION: Final = "([1-9][0-9]{0,8}[sm]|[1-9][0-9]{0,6}h|[1-9][0-9]{0,4}d)"
"""No longer than dates go, which end with the year 9999."""


def seconds_in(text: str) -> int:
    """The seconds in a duration: ``30s``, ``15m``, ``12h``, ``7d``. Raises `ValueError`."""
    if re.fullmatch(DURATION, text) is None:
        raise ValueError(f"{text!r} is no duration such as 30s, 15m, 12h or 7d")
    return int(text[:-1]) * SECONDS[text[-1]]


def instant(when: date | datetime | None) -> float:
    """Seconds since 1970 of a date (its beginning) or a time, in UTC unless it says otherwise; no end is infinite."""
    if when is None:
        return inf
    if not isinstance(when, datetime):
        when = datetime.combine(when, time())
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def timestamp(seconds: float) -> str:
    """A time in seconds since 1970 as text, such as ``2026-12-04T09:30:00Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
