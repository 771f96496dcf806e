"""Walks of the nodes below a group: a search by part of their paths, and a survey of what a store holds.

A walk visits each group before what is in it. Where it stands is said by the group whose children are listed and by the
cursor of that listing, with two slashes between them: a search keeps no state from page to page.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hyperslab.arrays import listing
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.nodes import ArrayNode, Children, GroupNode, Kind, MountedStore
from hyperslab.errors import BadPath, BrokenData, HyperslabError, NodeNotFound, StoreError
from hyperslab.storage.keys import as_prefix, join, normalise_path

_HERE = "//"


class Step(NamedTuple):
    """A node, by its path below the group that is walked, and the cursor behind it."""

    path: str
    kind: Kind
    cursor: str


class OutOfTime(Exception):
    """The deadline of a walk has passed; ``cursor`` says where to go on."""

    def __init__(self, cursor: str) -> None:
        super().__init__(cursor)
        self.cursor = cursor


def walk(
    catalog: Catalog,
    group: GroupNode,
    deadline: float,
    *,
    page: int,
    cursor: str | None = None,
    problems: list[str] | None = None,
) -> Iterator[Step]:
    """All nodes below a group, from behind a ``cursor`` on.

    ``page``: how many children are listed at once. ``problems`` gets what could not be listed, and why; if None that is
    raised, as is what listing the group itself raises. Raises `OutOfTime` after ``deadline``, `BadPath` for a cursor of
    no walk.
    """
    begun = False

    def children(folder: str, after: str) -> Children:
        nonlocal begun
        if begun and time.monotonic() > deadline:
            raise OutOfTime(f"{folder}{_HERE}{after}")
        begun, inner = True, group
        try:
            if folder and group.mount is not None:  # it was just listed, and need not be opened
                inner = GroupNode(group.mount, f"{group.prefix}{folder}/", {}, "")
            elif folder:
                mount, rest = catalog.locate(folder)
                inner = GroupNode(mount, as_prefix(rest), {}, "")
            found = catalog.children(inner, limit=page, cursor=after or None, deadline=deadline)
        except (StoreError, BrokenData, BadPath, NodeNotFound) as error:
            if problems is None or not folder:
                raise
            problems.append(f"{join(group.path, folder)} was not searched: {error}")
            return Children((), None)
        if problems is not None:
            problems.extend(problem for problem in found.problems if problem not in problems)
        return found

    def below(folder: str, after: str | None) -> Iterator[Step]:
        while after is not None:
            found = children(folder, after)
            for child in found.nodes:
                path = join(folder, child.name)
                inside = child.kind == "group"
                yield Step(path, child.kind, f"{path}{_HERE}" if inside else f"{folder}{_HERE}{child.name}")
                if inside:
                    yield from below(path, "")
            after = found.next_cursor

    folder, _, after = (cursor or "").partition(_HERE)
    folder = normalise_path(folder)
    yield from below(folder, after)
    while folder:  # what is behind it in the folders above
        folder, _, name = folder.rpartition("/")
        yield from below(folder, name)


@dataclass(frozen=True, slots=True)
class Match:
    path: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Matches:
    """A page of a search; ``next_cursor`` is None on the last one, and an empty page may have one. ``problems``: what
    could not be searched, and why."""

    nodes: tuple[Match, ...]
    next_cursor: str | None
    problems: tuple[str, ...]


def find(
    catalog: Catalog,
    group: GroupNode,
    text: str,
    *,
    limit: int,
    page: int,
    cursor: str | None = None,
) -> Matches:
    """At most ``limit`` nodes below a group whose path from there contains ``text``, ignoring case, in
    `listing.SEARCH_SECONDS`; other parameters and errors as for `walk`."""
    deadline = time.monotonic() + listing.SEARCH_SECONDS
    matches: list[Match] = []
    problems: list[str] = []
    following = None
    try:
        for step in walk(catalog, group, deadline, page=page, cursor=cursor, problems=problems):
            if text.lower() in step.path.lower():
                matches.append(Match(join(group.path, step.path), step.kind))
            if len(matches) == limit:
                following = step.cursor
                break
    except OutOfTime as stop:
        following = stop.cursor
    return Matches(tuple(matches), following, tuple(problems))


@dataclass(slots=True)
class Survey:
    """What a store holds, counted for people. ``skipped`` holds paths by the reason; ``whole`` is false if time ran
    out; ``example`` can be read in every format."""

    groups: int = 0
    arrays: int = 0
    skipped: dict[str, list[str]] = field(default_factory=dict)
    whole: bool = True
    example: ArrayNode | None = None

    def lines(self) -> Iterator[str]:
        """A sentence for what is there, and one for each reason to skip something."""
        least = "" if self.whole else "at least "
        if self.arrays or self.groups or not self.whole:
            arrays, groups = (
                f"{n:,} {noun}{'' if n == 1 else 's'}" for n, noun in ((self.arrays, "array"), (self.groups, "group"))
            )
            yield f"{least}{arrays} in {groups}"
        else:
            yield "no arrays: there is no .zarray, .zgroup, .zmetadata or zarr.json in it"
        for reason, paths in self.skipped.items():
            shown = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
            yield f"skipped {least}{len(paths)}: {reason} ({shown})"


def survey(catalog: Catalog, mount: MountedStore, *, seconds: float) -> Survey:
    """Look at every node for at most so many seconds."""
    found, end = Survey(), time.monotonic() + seconds
    problems: list[str] = []
    steps = walk(catalog, GroupNode(mount, "", {}, ""), end, page=1000, problems=problems)
    try:
        _count(catalog, mount, "", found, end)
        for step in () if found.arrays else steps:  # what is below an array is its own
            _count(catalog, mount, step.path, found, end)
    except OutOfTime:
        found.whole = False
    except HyperslabError as error:
        problems.append(str(error))
    if problems:
        found.skipped["groups that cannot be listed"] = problems
    return found


def _count(catalog: Catalog, mount: MountedStore, path: str, found: Survey, end: float) -> None:
    """Add a node; groups that only their children show do not count. Raises `OutOfTime`."""
    if time.monotonic() > end:
        raise OutOfTime(path)
    try:
        node = catalog.open_node(join(mount.name, path))
    except NodeNotFound:
        return
    except HyperslabError as error:
        found.skipped.setdefault("broken metadata", []).append(str(error))
        return
    if isinstance(node, GroupNode):
        found.groups += not node.implicit
        return
    found.arrays += 1
    dtype = node.metadata.dtype
    if found.example is None and not dtype.numpy.hasobject and not dtype.fields and 0 not in node.metadata.shape:
        found.example = node
