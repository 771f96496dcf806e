"""Lists the children of a group without entering arrays: an array of a million chunks costs as much as one of two.

A folder without a document is a group if any node exists below it. Each page searches such folders for at most
`SEARCH_SECONDS`; the cursor of an interrupted page says where to continue.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from hyperslab.arrays.nodes import V3, ChildInfo, Children, GroupNode, Kind, MountedStore
from hyperslab.engine.jsontext import parse_object
from hyperslab.engine.metadata import MAX_CONSOLIDATED_BYTES
from hyperslab.errors import BadPath, HyperslabError, StoreDenied, StoredTooLarge, StoreError
from hyperslab.storage.base import Folders, Listing, StoredValue, UnservedEntry
from hyperslab.storage.keys import printable

SEARCH_SECONDS: Final = 2.0


class PartialSearch(NamedTuple):
    """A search that ran out of time. ``after``: the last folder in order of names known to hold no node; None at the
    start."""

    after: str | None


Outcome = Kind | PartialSearch | None


class KnownChildren:
    """Children that other documents name: ``kinds`` by name, and the ``names`` in order."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.kinds, self.names = kinds, sorted(kinds)

    def page(self, *, limit: int, cursor: str | None) -> Children:
        """At most ``limit`` of the children in order of name, after ``cursor``."""
        start = 0 if cursor is None else bisect_right(self.names, cursor)
        chosen = self.names[start : start + limit]
        more = start + limit < len(self.names)
        children = tuple([ChildInfo(name, self.kinds[name]) for name in chosen])
        return Children(children, chosen[-1] if more and chosen else None)


def children(
    mount: MountedStore,
    prefix: str,
    known: KnownChildren,
    *,
    limit: int,
    cursor: str | None,
    deadline: float | None = None,
    attributes: bool = False,
) -> Children:
    """A page of children below ``prefix``, from a listing and those ``known`` otherwise, or from the latter alone if
    the store cannot list.

    ``cursor``: a name, or a name and behind a slash the progress of its search. ``deadline``: replaces that of a page.
    ``attributes``: the ``documents`` of the children include those of attributes. Folders that cannot be read are left
    out, as ``unserved``.
    """
    if not mount.store.capabilities.listable:
        return known.page(limit=limit, cursor=cursor)
    last, slash, after = (cursor or "").partition("/")
    end = time.monotonic() + SEARCH_SECONDS if deadline is None else deadline
    begun, following, first = last if slash else None, last or "", None
    unserved, children, undocumented = set[UnservedEntry](), list[ChildInfo](), set[str]()

    def look(name: str) -> Outcome:
        after_name = after if name == begun else None
        return search(mount, f"{prefix}{name}/", end, after_name, must=name == first, unserved=unserved)

    def result(following: str | None) -> Children:
        nodes, problems = tuple(children[:limit]), list[str]()
        if paths := [repr(printable(prefix + node.name)) for node in nodes if node.name in undocumented]:
            more = f" and {len(paths) - 20} others" if len(paths) > 20 else ""
            problems = [f"consolidated metadata alone describe {', '.join(paths[:20])}{more}: no document does"]
        return Children(nodes, following, tuple(problems), tuple(sorted(unserved)))

    while len(children) <= limit:  # in batches, as some names are not nodes
        listed = _names(mount, prefix, known, following, limit + 2)
        unserved.update(listed.unserved)
        names = [name for name in listed.names if name != cursor]
        first = first or next(iter(names), None)
        kinds, documents, read = _kinds(mount, prefix, names, unserved, attributes=attributes)
        told = {name: known.kinds[name] for name, kind in kinds.items() if kind is None and name in known.kinds}
        kinds |= told
        undocumented.update([name for name in told if not mount.assumes(f"{prefix}{name}/")])
        bare = [name for name, kind in kinds.items() if kind is None]
        if bare and _is_v3(mount, prefix):  # every group has a document, which may be one that cannot be read
            odd = {each.path.rpartition("/")[0] for each in unserved}
            bare = [name for name in bare if printable(prefix + name) in odd]
        kinds |= zip(bare, mount.each(look, bare), strict=True)
        for name, kind in kinds.items():
            if isinstance(kind, PartialSearch) and len(children) <= limit:
                return result(last if kind.after is None else f"{name}/{kind.after}")
            last = name
            if isinstance(kind, str):
                children.append(ChildInfo(name, kind, documents.get(name, {}), read.get(name, {})))
        if listed.following is None:
            break
        following = listed.following
    return result(children[limit - 1].name if len(children) > limit else None)


def absent(group: GroupNode, page: Children, cursor: str | None) -> Iterator[UnservedEntry]:
    """The children that only the consolidated metadata of a ``zarr.json`` name, within a page after a cursor."""
    here, unserved = {child.name for child in page.nodes}, {entry.path for entry in page.unserved}
    (first, begun, _), (last, cut, _) = (cursor or "").partition("/"), (page.next_cursor or "").partition("/")
    start = 0 if cursor is None else (bisect_left if begun else bisect_right)(group.named, first)
    stop = len(group.named) if page.next_cursor is None else (bisect_left if cut else bisect_right)(group.named, last)
    for name in group.named[start:stop]:
        if name not in here and printable(group.prefix + name) not in unserved:
            yield UnservedEntry.at(group.prefix, name, "consolidated metadata name it, and it has no document")


def _names(mount: MountedStore, prefix: str, known: KnownChildren, first: str, count: int) -> Folders:
    """Names of possible children: those of folders, and those that are ``known``."""
    listed, start = mount.store.list_folders(prefix, first, count), bisect_left(known.names, first)
    also, beyond = known.names[start : start + count], known.names[start + count : start + count + 1]
    names, ends = sorted({*listed.names, *also}), [*beyond, *filter(None, [listed.following])]
    return Folders(names[: bisect_left(names, min(ends))] if ends else names, min(ends, default=None), listed.unserved)


def _kinds(
    mount: MountedStore,
    prefix: str,
    names: list[str],
    unserved: set[UnservedEntry],
    *,
    attributes: bool,
) -> tuple[dict[str, Outcome], dict[str, Mapping[str, str | None]], dict[str, Mapping[str, StoredValue]]]:
    """The kind of each child by its documents, None without any; with ``attributes`` the versions of these by key where
    all can be read, and those of them that were read."""
    kinds, documents = dict[str, Outcome](), dict[str, Mapping[str, str | None]]()
    read = dict[str, Mapping[str, StoredValue]]()
    of_document = (*mount.node_names, ".zattrs") if attributes else mount.node_names
    keys = [f"{prefix}{name}/{each}" for name in names for each in of_document]
    refused = set[UnservedEntry]()
    versions = _versions(mount, prefix, keys, refused)
    unserved |= refused
    broken = {each.path for each in refused}
    of_v3 = dict[str, str]()
    for index, name in enumerate(names):
        first = index * len(of_document)
        array, group, v3 = versions[first : first + 3]
        own = keys[first : first + len(of_document)]
        if attributes and not (broken and broken.intersection(map(printable, [prefix + name, *own]))):
            documents[name] = dict(zip(own, versions[first : first + 4], strict=True))
        is_array = array is not None or f"{prefix}{name}" in mount.assume_metadata
        kinds[name] = "array" if is_array else "group" if group is not None else None
        if v3 is not None:
            of_v3[name] = v3

    def kind(name: str) -> Kind:
        key = f"{prefix}{name}/{V3}"
        known = mount.kinds_of_v3.get(key, of_v3[name])
        if known is not None:
            return known
        found, stored = _kind_of_v3(mount, key)
        if found is None:  # its document says nothing
            return "group" if has_nodes(mount, f"{prefix}{name}/") else "array"
        if stored is not None:
            mount.kinds_of_v3.put(key, stored.version, found, 300 + 2 * len(key))
            if attributes and len(stored.data) < 1 << 20:
                read[name] = {key: stored}
        return found

    kinds |= zip(of_v3, mount.each(kind, [*of_v3]), strict=True)
    return kinds, documents, read


def search(
    mount: MountedStore,
    prefix: str,
    end: float,
    after: str | None = None,
    *,
    must: bool = True,
    unserved: set[UnservedEntry] | None = None,
) -> Outcome:
    """The kind of a folder without a Zarr v2 document: None if no node exists below it (TensorStore writes no groups).
    ``must``: search at least one more folder after the deadline, so that repeated searches end. ``unserved`` receives
    what has no key, or cannot be read."""
    seen = set[UnservedEntry]() if unserved is None else unserved
    documents = {*mount.node_names, ".zmetadata"}
    folders = _folders(mount, prefix, None if after is None else after.split("/") if after else [], seen)
    while must or time.monotonic() <= end:
        folder, listed = next(folders, (None, None))
        if listed is None:
            return None
        names = documents & {entry.key.rpartition("/")[2] for entry in listed.entries}
        if names:
            return "group"
        seen.update(listed.unserved)
        must, after = False, folder
    return PartialSearch(after)


def _folders(
    mount: MountedStore, prefix: str, after: Sequence[str] | None, unserved: set[UnservedEntry], folder: str = ""
) -> Iterator[tuple[str, Listing]]:
    """A folder and all below it, parents first, in order of name, from the first after ``after``: its remaining names
    (none: this folder; None: the start)."""
    try:
        listed = mount.store.list_dir(prefix + folder + "/" if folder else prefix)
    except (BadPath, StoreError) as error:
        if not concerns_one(mount, error):
            raise
        unserved.add(UnservedEntry.at("", f"{prefix}{folder}".rstrip("/"), error.reason))
        return
    if after is None:
        yield folder, listed
    first = after[0] if after else ""
    for name in listed.prefixes:
        if name >= first:
            below = after[1:] if after and name == first else None
            yield from _folders(mount, prefix, below, unserved, f"{folder}/{name}" if folder else name)


def _kind_of_v3(mount: MountedStore, key: str) -> tuple[Kind | None, StoredValue | None]:
    """The node type of a ``zarr.json``, None of a broken one, and what was read."""
    try:
        stored = mount.store.get(key, MAX_CONSOLIDATED_BYTES)
    except StoredTooLarge:
        return None, None
    except HyperslabError:
        return "array", None
    text, document = b"" if stored is None else bytes(stored.data), None
    if b'"group"' in text or b"\\" in text:
        document = parse_object(text, limit=MAX_CONSOLIDATED_BYTES)
    is_group = document is not None and document.get("node_type") == "group"
    return "group" if is_group else "array" if may_be_array(text) else None, stored


def may_be_array(text: bytes | memoryview) -> bool:
    """Whether a ``zarr.json`` that may be broken speaks of an array."""
    return b'"shape"' in bytes(text)


def has_nodes(mount: MountedStore, prefix: str) -> bool:
    """Whether a folder has nodes below it, or is too large to be searched in time; chunks in ``c`` are no nodes."""
    folders = mount.store.list_folders(prefix, "", sys.maxsize).names
    end = time.monotonic() + SEARCH_SECONDS
    return any(search(mount, f"{prefix}{name}/", end) is not None for name in folders if name != "c")


def _is_v3(mount: MountedStore, prefix: str) -> bool:
    try:
        return mount.store.stat(prefix + V3) is not None
    except (BadPath, StoreError) as error:
        if not concerns_one(mount, error):
            raise
        return True


def _versions(mount: MountedStore, prefix: str, keys: list[str], unserved: set[UnservedEntry]) -> list[str | None]:
    """The version of each document; None, and its folder is ``unserved``, for one that cannot be read (see
    `concerns_one`)."""
    try:
        return mount.store.document_versions(prefix, keys)
    except (BadPath, StoreError) as error:
        if not concerns_one(mount, error):
            raise
        if len(keys) == 1:
            denied = isinstance(error, StoreDenied)
            unserved.add(UnservedEntry.at("", keys[0].rpartition("/")[0] if denied else keys[0], error.reason))
            return [None]
        folders = [list(inside) for _, inside in groupby(keys, lambda key: key.rpartition("/")[0])]
        runs = folders if len(folders) > 1 else [[key] for key in keys]
        return [version for run in runs for version in _versions(mount, prefix, run, unserved)]


def concerns_one(mount: MountedStore, error: BadPath | StoreError) -> bool:
    """Whether an error affects this key alone, and will be raised when it is requested: a link out of the store, an
    entry without permission (``lost+found``) or, in an existing folder, of a kind other than a file."""
    if isinstance(error, StoreDenied) and mount.is_remote:
        return True
    if isinstance(error, StoreError) and not mount.is_remote:
        mount.store.check()
        return True
    return isinstance(error, BadPath)
