"""Walks over the nodes below a group: a search by text in paths, and a survey of a store's contents.

A walk visits each group before its children. Its cursor is the path of the group being listed and the cursor of that
listing, separated by two slashes: a search keeps no state between pages.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import NamedTuple

from hyperslab.arrays import listing
from hyperslab.arrays.catalog import Catalog, described
from hyperslab.arrays.chunk_keys import located
from hyperslab.arrays.listing import concerns_one
from hyperslab.arrays.nodes import ArrayNode, ChildInfo, Children, GroupNode, Kind, MountedStore
from hyperslab.arrays.table import Sought, TextMatch
from hyperslab.errors import BadPath, BrokenData, HyperslabError, NodeNotFound, StoreError
from hyperslab.storage.base import UnservedEntry
from hyperslab.storage.keys import as_prefix, join, normalise_path

_HERE = "//"


class Step(NamedTuple):
    """A node by its path below the walked group, and the cursor after it; where it has the text that is ``sought``, if
    it has."""

    path: str
    kind: Kind
    cursor: str
    found: TextMatch | None = None


class OutOfTime(Exception):
    """The deadline of a walk has passed; ``cursor`` says where to continue."""

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
    unserved: list[UnservedEntry] | None = None,
    sought: Sought | None = None,
) -> Iterator[Step]:
    """All nodes below a group, after ``cursor``.

    ``page``: size of each listing. ``sought``: nodes are looked into, of which time may run out too. ``problems``
    receives failed listings and their reasons, with those of single things unless ``unserved`` receives these; None
    raises them, as the listing of the group itself always does, unless they concern one folder
    (`listing.concerns_one`). Raises `OutOfTime` after ``deadline``, `BadPath` for an invalid cursor.
    """
    begun = looked = False

    def below(folder: str, after: str | None) -> Iterator[Step]:
        nonlocal begun, looked
        while after is not None:
            if begun and time.monotonic() > deadline:
                raise OutOfTime(f"{folder}{_HERE}{after}")
            begun, inner = True, group
            try:
                if folder:  # just listed; no need to open it
                    mount, rest = catalog.locate(join(group.path, folder))
                    inner = GroupNode(mount, as_prefix(rest), {}, "")
                children = catalog.children(
                    inner, limit=page, cursor=after or None, deadline=deadline, attributes=sought is not None
                )
            except (StoreError, BrokenData, BadPath, NodeNotFound) as error:
                one = inner.mount and isinstance(error, StoreError | BadPath) and concerns_one(inner.mount, error)
                if not folder or not (one or problems is not None):
                    raise
                if problems is None:
                    return
                problems.append(f"{join(group.path, folder)} was not searched: {error}")
                return
            if unserved is not None:
                unserved.extend(children.unserved)
            if problems is not None:
                all_problems = problems if unserved is None else [*problems, *described(children.unserved)]
                problems.extend(problem for problem in children.problems if problem not in all_problems)
            looks = repeat(None) if sought is None else sought.look_all(catalog, inner, children.nodes, folder)
            for child, last in zip(children.nodes, [after, *(child.name for child in children.nodes)], strict=False):
                if looked and time.monotonic() > deadline:
                    raise OutOfTime(f"{folder}{_HERE}{last}")
                looked, match = sought is not None, next(looks)
                path = join(folder, child.name)
                inside = child.kind == "group"
                yield Step(path, child.kind, f"{path}{_HERE}" if inside else f"{folder}{_HERE}{child.name}", match)
                if inside:
                    yield from below(path, "")
            after = children.next_cursor

    folder, _, after = (cursor or "").partition(_HERE)
    folder = normalise_path(folder)
    yield from below(folder, after)
    while folder:  # continue in the folders above
        folder, _, name = folder.rpartition("/")
        yield from below(folder, name)


@dataclass(frozen=True, slots=True)
class Matches(Children):
    """A page of a search, whose nodes are named by their paths; ``problems``: nodes that could not be searched, and the
    reasons; ``attributes``: name and value of the one that was found, by path, where the path has not the text."""

    attributes: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def find(catalog: Catalog, group: GroupNode, text: str, *, limit: int, page: int, cursor: str | None = None) -> Matches:
    """At most ``limit`` nodes below a group with ``text`` in their relative path or their attributes (see `Sought`),
    within `listing.SEARCH_SECONDS`; other parameters and errors as for `walk`."""
    deadline = time.monotonic() + listing.SEARCH_SECONDS
    matches: list[ChildInfo] = []
    problems: list[str] = []
    following, sought, attributes = None, Sought(text), dict[str, tuple[str, str]]()
    try:
        for step in walk(catalog, group, deadline, page=page, cursor=cursor, problems=problems, sought=sought):
            if step.found is None:
                continue
            path = join(group.path, step.path)
            matches.append(ChildInfo(path, step.kind))
            if step.found.attribute is not None:
                attributes[path] = step.found.attribute
            if len(matches) == limit:
                following = step.cursor
                break
    except OutOfTime as stop:
        following = stop.cursor
    return Matches(tuple(matches), following, tuple(problems), attributes=attributes)


@dataclass(slots=True)
class Survey:
    """Counts of a store's contents, for people. ``skipped``: paths by reason of what is broken, ``unserved`` of what
    has no key; ``problems`` of what was read all the same, and of listings; ``whole`` is False if time ran out;
    ``example`` can be read in every format."""

    groups: int = 0
    arrays: int = 0
    skipped: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unserved: dict[str, list[str]] = field(default_factory=dict)
    whole: bool = True
    example: ArrayNode | None = None

    def lines(self) -> Iterator[str]:
        """A sentence for the contents, and one for each reason to skip nodes."""
        least = "" if self.whole else "at least "
        if self.arrays or self.groups or not self.whole:
            arrays, groups = (
                f"{n:,} {noun}{'' if n == 1 else 's'}" for n, noun in ((self.arrays, "array"), (self.groups, "group"))
            )
            yield f"{least}{arrays} in {groups}"
        else:
            yield "no arrays: there is no .zarray, .zgroup, .zmetadata or zarr.json in it"
        for reason, paths in chain(self.skipped.items(), self.unserved.items()):
            shown = ", ".join(paths[:3]) + (", …" if len(paths) > 3 else "")
            yield f"skipped {least}{len(paths)}: {reason} ({shown})"
        yield from (f"problem: {problem}" for problem in self.problems[:10])
        if len(self.problems) > 10:
            yield f"problem: {len(self.problems) - 10} more"


def survey(catalog: Catalog, mount: MountedStore, *, seconds: float) -> Survey:
    """Survey all nodes within ``seconds``."""
    result, end = Survey(), time.monotonic() + seconds
    problems, unserved = list[str](), list[UnservedEntry]()
    root = GroupNode(mount, "", {}, "")
    try:
        steps = walk(catalog, root, end, page=1000, problems=problems, unserved=unserved)
        for step in chain([Step("", "group", "")], steps):
            if time.monotonic() > end:
                result.whole = False
                break
            _count(catalog, join(mount.name, step.path), result)
            if result.arrays and not step.path:  # keys below an array are its own
                break
    except OutOfTime:
        result.whole = False
    except HyperslabError as error:
        problems.append(str(error))
    result.problems = [*problems, *result.problems]
    for thing in sorted({*unserved}):
        result.unserved.setdefault(thing.reason, []).append(thing.path)
    return result


def _count(catalog: Catalog, path: str, found: Survey) -> None:
    """Count a node, except implicit groups."""
    try:
        node = catalog.open_node(path)
        problems = located(node).problems if isinstance(node, ArrayNode) else ()
    except NodeNotFound:
        return
    except HyperslabError as error:
        found.skipped.setdefault("broken metadata", []).append(str(error))
        return
    if isinstance(node, GroupNode):
        found.groups += not node.implicit
        return
    found.arrays += 1
    found.problems += problems
    dtype = node.metadata.dtype
    if found.example is None and not dtype.numpy.hasobject and not dtype.fields and 0 not in node.metadata.shape:
        found.example = node
