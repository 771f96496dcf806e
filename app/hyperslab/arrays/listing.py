"""The children of a group, found without looking into arrays: an array of a million chunks costs as much as one of
two."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from hyperslab.arrays.nodes import ChildInfo, Children, MountedStore
from hyperslab.errors import BadPath
from hyperslab.storage.base import Listing

Kind = Literal["array", "group"]

_PAGE = 1000
_DEEPEST_IMPLICIT = 4
_WIDEST_IMPLICIT = 16


def page(kinds: Mapping[str, Kind], *, limit: int, cursor: str | None) -> Children:
    """At most ``limit`` of the children in order of name, after ``cursor``."""
    names = sorted(kinds)
    start = 0 if cursor is None else bisect_right(names, cursor)
    chosen = names[start : start + limit]
    more = start + limit < len(names)
    return Children(tuple(ChildInfo(name, kinds[name]) for name in chosen), chosen[-1] if more and chosen else None)


def children(
    mount: MountedStore, prefix: str, consolidated: Mapping[str, Any], *, limit: int, cursor: str | None
) -> Children:
    """A page of children below ``prefix``: from a listing, or from ``.zmetadata`` where the store cannot list."""
    known = consolidated_kinds(consolidated, prefix)
    if not mount.store.capabilities.listable:
        return page(known, limit=limit, cursor=cursor)
    names = sorted({*mount.store.list_dir(prefix).prefixes, *known})
    start = 0 if cursor is None else bisect_right(names, cursor)
    return _listed_page(mount, prefix, names[start:], known, limit)


def arrays_below(mount: MountedStore, prefix: str) -> Iterator[str]:
    """The prefix of every array below a group; none below an array, and none behind a link: that is a node of its own,
    elsewhere."""
    if mount.store.versions(prefix, [prefix + mount.metadata_key])[0] is not None:
        return
    found: Children | None = None
    while found is None or found.next_cursor is not None:
        found = children(mount, prefix, {}, limit=_PAGE, cursor=None if found is None else found.next_cursor)
        for child in found.nodes:
            inner = f"{prefix}{child.name}/"
            if mount.store.is_link(inner):
                continue
            yield from [inner] if child.kind == "array" else arrays_below(mount, inner)


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


def _listed_page(mount: MountedStore, prefix: str, names: list[str], known: dict[str, Kind], limit: int) -> Children:
    """Look at candidates a batch at a time until the page is full: names that are not nodes do not count."""
    found: list[ChildInfo] = []
    while names and len(found) <= limit:
        batch, names = names[: limit + 1], names[limit + 1 :]
        found += _nodes_among(mount, prefix, batch, known)
    if len(found) <= limit:
        return Children(tuple(found), None)
    return Children(tuple(found[:limit]), found[limit - 1].name)


def _nodes_among(mount: MountedStore, prefix: str, names: list[str], known: dict[str, Kind]) -> list[ChildInfo]:
    keys = [f"{prefix}{name}/{document}" for name in names for document in (mount.metadata_key, ".zgroup")]
    versions = _versions(mount, prefix, keys)
    nodes = []
    for i, name in enumerate(names):
        array, group = versions[2 * i], versions[2 * i + 1]
        kind = "array" if array is not None else "group" if group is not None else known.get(name)
        if kind is None and is_implicit_group(mount, f"{prefix}{name}/"):
            kind = "group"
        if kind is not None:
            nodes.append(ChildInfo(name, kind))
    return nodes


def _versions(mount: MountedStore, prefix: str, keys: list[str]) -> list[str | None]:
    """The version of each key; a document behind a link that leads out of the store is none, and its siblings are."""
    try:
        return mount.store.versions(prefix, keys)
    except BadPath:
        if len(keys) == 1:
            return [None]
        return [version for key in keys for version in _versions(mount, prefix, [key])]


def _documented(mount: MountedStore, listed: Listing) -> bool:
    names = {entry.key.rpartition("/")[2] for entry in listed.entries}
    return bool(names & {mount.metadata_key, ".zgroup", ".zmetadata"})
