"""The children of a group, found without looking into arrays: an array of a million chunks costs as much as one of
two.

A folder without a document is a group where any node lies below, however deep. It is searched folder by folder, and no
longer than `SEARCH_SECONDS` for a page: a page that time cuts short has a cursor that says where to go on.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from hyperslab.arrays.nodes import ChildInfo, ChildKind, Children, MountedStore
from hyperslab.errors import BadPath, StoreError
from hyperslab.storage.base import Listing

V3: Final = "zarr.json"
"""The document of a Zarr v3 node, of whatever kind."""
SEARCH_SECONDS: Final = 2.0


class Unfinished(NamedTuple):
    """A search that has ended for lack of time. ``after``: the folder up to which, in the order of names, there is no
    node; None where it has not begun."""

    after: str | None


Found = ChildKind | Unfinished | None


class Each(Protocol):
    """Calls something with every item, and returns what comes of that in the same order."""

    def __call__(self, work: Callable[[str], Found], items: Sequence[str], /) -> list[Found]: ...


def in_turn(work: Callable[[str], Found], items: Sequence[str]) -> list[Found]:
    """One item after the other."""
    return [work(item) for item in items]


def page(kinds: Mapping[str, ChildKind], *, limit: int, cursor: str | None) -> Children:
    """At most ``limit`` of the children in order of name, after ``cursor``."""
    names = sorted(kinds)
    start = 0 if cursor is None else bisect_right(names, cursor)
    chosen = names[start : start + limit]
    more = start + limit < len(names)
    return Children(tuple(ChildInfo(name, kinds[name]) for name in chosen), chosen[-1] if more and chosen else None)


def children(
    mount: MountedStore,
    prefix: str,
    consolidated: Mapping[str, Any],
    *,
    limit: int,
    cursor: str | None,
    each: Each = in_turn,
    deadline: float | None = None,
) -> Children:
    """A page of children below ``prefix``: from a listing, or from ``.zmetadata`` where the store cannot list.

    ``each``: how several prefixes are looked into. ``cursor``: a name, or a name and with a slash before it how far
    that one has been searched. ``deadline``: another end than that of a page. A folder that may not be entered is left
    out.
    """
    known = consolidated_kinds(consolidated, prefix)
    if not mount.store.capabilities.listable:
        return page(known, limit=limit, cursor=cursor)
    names = sorted({*mount.store.list_dir(prefix).prefixes, *known})
    last, slash, after = (cursor or "").partition("/")
    if cursor is not None:
        names = names[bisect_left(names, last) if slash else bisect_right(names, last) :]
    end = time.monotonic() + SEARCH_SECONDS if deadline is None else deadline
    first = names[0] if names else None

    def look(name: str) -> Found:
        begun = after if slash and name == last else None
        return search(mount, f"{prefix}{name}/", end, begun, must=name == first)

    found: list[ChildInfo] = []
    while names and len(found) <= limit:  # a batch at a time: names that are not nodes do not count
        batch, names = names[: limit + 1], names[limit + 1 :]
        for name, kind in _kinds(mount, prefix, batch, known, lambda bare: each(look, bare)).items():
            if isinstance(kind, Unfinished) and len(found) <= limit:
                return Children(tuple(found), last if kind.after is None else f"{name}/{kind.after}")
            last = name
            if isinstance(kind, str):
                found.append(ChildInfo(name, kind))
    if len(found) <= limit:
        return Children(tuple(found), None)
    return Children(tuple(found[:limit]), found[limit - 1].name)


def has_children(mount: MountedStore, prefix: str) -> bool:
    """Whether a listing shows a node directly below, or a group that only its children show."""
    found = children(mount, prefix, {}, limit=1, cursor=None)
    while not found.nodes and found.next_cursor is not None:
        found = children(mount, prefix, {}, limit=1, cursor=found.next_cursor)
    return bool(found.nodes)


def consolidated_kinds(documents: Mapping[str, Any], prefix: str) -> dict[str, ChildKind]:
    """The direct children that ``.zmetadata`` knows."""
    kinds: dict[str, ChildKind] = {}
    for key in documents:
        name, _, document = key.removeprefix(prefix).rpartition("/")
        if not key.startswith(prefix) or not name or "/" in name:
            continue
        if document == ".zarray":
            kinds[name] = "array"
        elif document == ".zgroup":
            kinds.setdefault(name, "group")
    return kinds


def search(mount: MountedStore, prefix: str, deadline: float, after: str | None = None, *, must: bool = True) -> Found:
    """What a folder is that has no document of Zarr v2: None where no node lies below (TensorStore writes no groups,
    CONFORMANCE 177). ``must``: looks into one folder more, however late it is, so that there is an end some time."""
    documents = {mount.metadata_key, ".zgroup", ".zmetadata", V3}
    steps = _folders(mount, prefix, None if after is None else after.split("/") if after else [])
    for step in count():
        if time.monotonic() > deadline and not (must and step == 0):
            return Unfinished(after)
        folder, listed = next(steps, (None, None))
        if folder is None or listed is None:
            return None
        names = documents & {entry.key.rpartition("/")[2] for entry in listed.entries}
        if names:
            return "unsupported" if not folder and names == {V3} else "group"
        after = folder
    raise AssertionError


def _folders(
    mount: MountedStore, prefix: str, after: Sequence[str] | None, folder: str = ""
) -> Iterator[tuple[str, Listing]]:
    """A folder and all below it, each before those in it, in order of name; from the first behind ``after``: its names
    from here on (none: this one; None: nothing has been seen yet)."""
    listed = _listed(mount, prefix + folder + "/" if folder else prefix)
    if after is None:
        yield folder, listed
    first = after[0] if after else ""
    for name in listed.prefixes:
        if name >= first:
            below = after[1:] if after and name == first else None
            yield from _folders(mount, prefix, below, f"{folder}/{name}" if folder else name)


def _listed(mount: MountedStore, prefix: str) -> Listing:
    """Nothing for a folder that nobody can get at."""
    try:
        return mount.store.list_dir(prefix)
    except (BadPath, StoreError) as error:
        if not _concerns_one(mount, error):
            raise
        return Listing((), ())


def _kinds(
    mount: MountedStore,
    prefix: str,
    names: Sequence[str],
    known: Mapping[str, ChildKind],
    look: Callable[[Sequence[str]], list[Found]],
) -> dict[str, Found]:
    """What each of several names is, in their order; ``look`` is asked for those without a document."""
    keys = [f"{prefix}{name}/{document}" for name in names for document in (mount.metadata_key, ".zgroup")]
    versions = _versions(mount, prefix, keys)
    kinds: dict[str, Found] = {}
    for i, name in enumerate(names):
        array, group = versions[2 * i], versions[2 * i + 1]
        kinds[name] = "array" if array is not None else "group" if group is not None else known.get(name)
    bare = [name for name, kind in kinds.items() if kind is None]
    return kinds | dict(zip(bare, look(bare), strict=True))


def _versions(mount: MountedStore, prefix: str, keys: list[str]) -> list[str | None]:
    """The version of each key; a document that nobody can get at (see `_concerns_one`) is none, and its siblings are
    what they are."""
    try:
        return mount.store.versions(prefix, keys)
    except (BadPath, StoreError) as error:
        if not _concerns_one(mount, error):
            raise
        if len(keys) == 1:
            return [None]
        return [version for key in keys for version in _versions(mount, prefix, [key])]


def _concerns_one(mount: MountedStore, error: BadPath | StoreError) -> bool:
    """Whether an error concerns this key alone, and will be reported when the key itself is asked for: a link that
    leads out of the store or, in a folder that exists, what may not be entered (``lost+found``) or is no file."""
    if isinstance(error, StoreError) and not mount.is_remote:
        mount.store.check()
        return True
    return isinstance(error, BadPath)
