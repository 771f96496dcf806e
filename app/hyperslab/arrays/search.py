"""Nodes anywhere below a group, found by a part of their path, a page at a time: each group before what is in it.

Where a search stands is said by the group whose children are listed and by the cursor of that listing, with two slashes
between them: nothing has to be kept from page to page. Time is bounded as it is for a listing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hyperslab.arrays import listing
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.nodes import ChildKind, Children, GroupNode
from hyperslab.errors import BadPath, BrokenData, NodeNotFound, StoreError
from hyperslab.storage.keys import as_prefix, join, normalise_path

_HERE = "//"


@dataclass(frozen=True, slots=True)
class Match:
    path: str
    kind: ChildKind


@dataclass(frozen=True, slots=True)
class Matches:
    """A page of a search; ``next_cursor`` is None on the last one, and an empty page may have one. ``problems``: what
    could not be searched, and why."""

    nodes: tuple[Match, ...]
    next_cursor: str | None
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    """A node, by its path below the group that is searched, and the cursor behind it."""

    path: str
    kind: ChildKind
    cursor: str


class _TimeIsUp(Exception):
    def __init__(self, cursor: str) -> None:
        super().__init__(cursor)
        self.cursor = cursor


def find(
    catalog: Catalog,
    group: GroupNode,
    text: str,
    *,
    limit: int,
    page: int,
    cursor: str | None = None,
    each: listing.Each = listing.in_turn,
) -> Matches:
    """At most ``limit`` nodes below a group whose path from there has ``text`` in it, in any case of letters.

    ``page``: how many children are listed at once. Raises what listing the group raises, and `BadPath` for a cursor
    that nobody has given.
    """
    wanted = text.lower()
    deadline = time.monotonic() + listing.SEARCH_SECONDS
    problems: dict[str, None] = {}
    listed = 0

    def children(folder: str, after: str) -> Children:
        nonlocal listed
        if listed and time.monotonic() > deadline:
            raise _TimeIsUp(f"{folder}{_HERE}{after}")
        listed += 1
        try:
            below = _below(catalog, group, folder)
            found = catalog.children(below, limit=page, cursor=after or None, each=each, deadline=deadline)
        except (StoreError, BrokenData, BadPath, NodeNotFound) as error:
            if not folder:
                raise
            problems[f"{join(group.path, folder)} was not searched: {error}"] = None
            return Children((), None)
        problems.update(dict.fromkeys(found.problems))
        return found

    folder, _, after = (cursor or "").partition(_HERE)
    matches: list[Match] = []
    try:
        for step in _all_from(children, normalise_path(folder), after):
            if wanted in step.path.lower():
                matches.append(Match(join(group.path, step.path), step.kind))
            if len(matches) == limit:
                return Matches(tuple(matches), step.cursor, tuple(problems))
    except _TimeIsUp as stop:
        return Matches(tuple(matches), stop.cursor, tuple(problems))
    return Matches(tuple(matches), None, tuple(problems))


def _all_from(children: Callable[[str, str], Children], folder: str, after: str) -> Iterator[_Step]:
    """What is behind a place in the listing of a folder, in this folder and in those above it."""
    yield from _walk(children, folder, after)
    while folder:
        folder, _, name = folder.rpartition("/")
        yield from _walk(children, folder, name)


def _walk(children: Callable[[str, str], Children], folder: str, after: str | None) -> Iterator[_Step]:
    while after is not None:
        found = children(folder, after)
        for child in found.nodes:
            path = join(folder, child.name)
            inside = child.kind == "group"
            yield _Step(path, child.kind, f"{path}{_HERE}" if inside else f"{folder}{_HERE}{child.name}")
            if inside:
                yield from _walk(children, path, "")
        after = found.next_cursor


def _below(catalog: Catalog, group: GroupNode, folder: str) -> GroupNode:
    """A group that was just listed: it needs not be opened for its children to be."""
    if not folder:
        return group
    if group.mount is not None:
        return GroupNode(join(group.path, folder), group.mount, f"{group.prefix}{folder}/", {}, "")
    mount, rest = catalog.locate(folder)
    return GroupNode(folder, mount, as_prefix(rest), {}, "")
