"""The children of a group, found without looking into arrays: an array of a million chunks costs as much as one of
two."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from hyperslab.arrays.nodes import ChildInfo, Children, MountedStore
from hyperslab.errors import BadPath, StoreDenied, StoreError
from hyperslab.storage.base import Listing

Kind = Literal["array", "group"]

_DEEPEST_IMPLICIT = 4
_WIDEST_IMPLICIT = 16


class Each(Protocol):
    """Calls something with every item, and returns what comes of that in the same order."""

    def __call__(self, work: Callable[[str], bool], items: Sequence[str], /) -> list[bool]: ...


def in_turn(work: Callable[[str], bool], items: Sequence[str]) -> list[bool]:
    """One item after the other."""
    return [work(item) for item in items]


def page(kinds: Mapping[str, Kind], *, limit: int, cursor: str | None) -> Children:
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
    strict: bool = False,
    each: Each = in_turn,
) -> Children:
    """A page of children below ``prefix``: from a listing, or from ``.zmetadata`` where the store cannot list.

    ``each``: how several prefixes are looked into. ``strict``: raises `errors.StoreDenied` for a folder that may not be
    entered, which else is left out.
    """
    known = consolidated_kinds(consolidated, prefix)
    if not mount.store.capabilities.listable:
        return page(known, limit=limit, cursor=cursor)
    names = sorted({*mount.store.list_dir(prefix).prefixes, *known})
    start = 0 if cursor is None else bisect_right(names, cursor)
    return _listed_page(mount, prefix, names[start:], known, limit=limit, strict=strict, each=each)


def has_children(mount: MountedStore, prefix: str) -> bool:
    """Whether a listing shows a node directly below, or a group that only its children show."""
    return bool(children(mount, prefix, {}, limit=1, cursor=None).nodes)


def consolidated_kinds(documents: Mapping[str, Any], prefix: str) -> dict[str, Kind]:
    """The direct children that ``.zmetadata`` knows."""
    kinds: dict[str, Kind] = {}
    for key in documents:
        name, _, document = key.removeprefix(prefix).rpartition("/")
        if not key.startswith(prefix) or not name or "/" in name:
            continue
        if document == ".zarray":
            kinds[name] = "array"
        elif document == ".zgroup":
            kinds.setdefault(name, "group")
    return kinds


def is_implicit_group(mount: MountedStore, prefix: str, depth: int = 0) -> bool:
    """Whether some array or group lies below, though no ``.zgroup`` says so (TensorStore writes none, CONFORMANCE
    177)."""
    if depth >= _DEEPEST_IMPLICIT:
        return False
    listed = mount.store.list_dir(prefix)
    if _documented(mount, listed):
        return True
    return any(is_implicit_group(mount, f"{prefix}{name}/", depth + 1) for name in listed.prefixes[:_WIDEST_IMPLICIT])


def _listed_page(
    mount: MountedStore,
    prefix: str,
    names: list[str],
    known: dict[str, Kind],
    *,
    limit: int,
    strict: bool,
    each: Each,
) -> Children:
    """Look at candidates a batch at a time until the page is full: names that are not nodes do not count."""
    found: list[ChildInfo] = []
    while names and len(found) <= limit:
        batch, names = names[: limit + 1], names[limit + 1 :]
        found += _nodes_among(mount, prefix, batch, known, strict=strict, each=each)
    if len(found) <= limit:
        return Children(tuple(found), None)
    return Children(tuple(found[:limit]), found[limit - 1].name)


def _nodes_among(
    mount: MountedStore, prefix: str, names: list[str], known: dict[str, Kind], *, strict: bool, each: Each
) -> list[ChildInfo]:
    keys = [f"{prefix}{name}/{document}" for name in names for document in (mount.metadata_key, ".zgroup")]
    versions = _versions(mount, prefix, keys, strict)
    kinds: dict[str, Kind | None] = {}
    for i, name in enumerate(names):
        array, group = versions[2 * i], versions[2 * i + 1]
        kinds[name] = "array" if array is not None else "group" if group is not None else known.get(name)
    bare = [name for name, kind in kinds.items() if kind is None]
    shows = each(lambda name: _shows_nodes(mount, f"{prefix}{name}/", strict), bare)
    kinds |= {name: "group" for name, shown in zip(bare, shows, strict=True) if shown}
    return [ChildInfo(name, kind) for name, kind in kinds.items() if kind is not None]


def _versions(mount: MountedStore, prefix: str, keys: list[str], strict: bool) -> list[str | None]:
    """The version of each key; a document that nobody can get at (see `_concerns_one`) is none, and its siblings are
    what they are."""
    try:
        return mount.store.versions(prefix, keys)
    except (BadPath, StoreError) as error:
        if not _concerns_one(mount, error, strict):
            raise
        if len(keys) == 1:
            return [None]
        return [version for key in keys for version in _versions(mount, prefix, [key], strict)]


def _shows_nodes(mount: MountedStore, prefix: str, strict: bool) -> bool:
    """`is_implicit_group`; False for a folder that nobody can get at."""
    try:
        return is_implicit_group(mount, prefix)
    except StoreError as error:
        if not _concerns_one(mount, error, strict):
            raise
        return False


def _concerns_one(mount: MountedStore, error: BadPath | StoreError, strict: bool) -> bool:
    """Whether an error concerns this key alone, and will be reported when the key itself is asked for: a link that
    leads out of the store or, in a folder that exists, what may not be entered (``lost+found``) or is no file."""
    if isinstance(error, StoreError) and not mount.is_far:
        if strict and isinstance(error, StoreDenied):
            return False
        mount.store.check()
        return True
    return isinstance(error, BadPath)


def _documented(mount: MountedStore, listed: Listing) -> bool:
    names = {entry.key.rpartition("/")[2] for entry in listed.entries}
    return bool(names & {mount.metadata_key, ".zgroup", ".zmetadata"})
