"""Deleting nodes: documents and chunks of Zarr v2 go, keys of anything else stay unless they are asked for too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice

from hyperslab.arrays import consolidated
from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.clear import bury_doubt
from hyperslab.arrays.documents import remove_document
from hyperslab.arrays.lease import Turn, alone
from hyperslab.arrays.listing import V3
from hyperslab.arrays.nodes import ArrayNode, BrokenNode, GroupNode, Kind, MountedStore
from hyperslab.arrays.orphans import every_chunk
from hyperslab.arrays.write import node_lock
from hyperslab.engine.metadata import ArrayMetadata, parse_consolidated
from hyperslab.errors import BadMetadata, BadPath, BrokenData, NodeExists, NodeNotFound, StoredTooLarge
from hyperslab.storage.keys import prefixes

_SHOWN = 5
_MOST_NAMED = 100
_CHUNK_LIKE = re.compile(r"\d+([./]\d+)*", re.ASCII)

Owns = Callable[[str], bool]
"""Whether a key belongs to a node."""


@dataclass(slots=True)
class Kept:
    """What a deletion has left where it was: how many keys of the store, and the first of them."""

    count: int = 0
    keys: list[str] = field(default_factory=list)


def refuse_others(catalog: Catalog, mount: MountedStore, prefix: str, node: Node | BrokenNode) -> None:
    """Raise `NodeExists` where anything lies below a node that is none of its own documents and chunks."""
    if mount.store.is_link(prefix):
        return  # only the link goes
    owns = _owner(mount, prefix, node)
    others = (entry.key for entry in mount.store.list_prefix(prefix) if not owns(entry.key))
    found = sorted(islice(others, _SHOWN))
    if not found and isinstance(node, GroupNode):  # what only a .zmetadata knows has no key
        found = [prefix + child.name for child in catalog.some_children(node, _SHOWN)]
    if found:
        raise NodeExists(node.path, _kind(node), "children", "none", found[0], found)


def refuse_v3(mount: MountedStore, prefix: str, *, beside: bool = True) -> None:
    """Raise `NodeExists` where a new node would lie at or below one of Zarr v3; ``beside``: also where documents of v2
    lie beside that of v3."""
    roots = prefixes(prefix)
    names = (V3, mount.metadata_key, ".zgroup")
    versions = iter(mount.store.versions("", [root + name for root in roots for name in names]))
    for root in roots:
        v3, array, group = next(versions), next(versions), next(versions)
        if v3 is not None and ((beside and root == prefix) or array is group is None):
            raise NodeExists(mount.path(root), "Zarr v3 node", "zarr_format", 2, 3, [root + V3])


def refuse_hidden(
    catalog: Catalog, mount: MountedStore, prefix: str, node: Node | BrokenNode | None, new: ArrayMetadata
) -> None:
    """Raise `NodeExists` where an array that replaces what lies at ``prefix`` would hide a node of Zarr v3, or take a
    key of something else for a chunk of its own."""
    arrays = {inner for inner, is_array in _nodes_below(mount, prefix).items() if is_array}
    chunks, owners = every_chunk(new), {prefix: _owner(mount, prefix, node)}
    for entry in mount.store.list_prefix(prefix):
        key = entry.key
        if key.rpartition("/")[2] != V3:
            if chunks.parse_key(key[len(prefix) :]) is None:
                continue
            roots = [root for root in prefixes(key.rpartition("/")[0]) if root in arrays]
            owners |= {r: _owner(mount, r, _opened(catalog, mount, r)) for r in roots if r not in owners}
            if any(owners[root](key) for root in (prefix, *roots)):
                continue
        raise NodeExists(mount.path(prefix), _kind(node), "children", "none", key, [key])


def remove(catalog: Catalog, mount: MountedStore, prefix: str, turn: Turn, *, recursive: bool, foreign: bool) -> Kept:
    """Remove a node whose lock is held, and if ``recursive`` each node below it under the lock of its own: whoever
    writes into one has ended before, or finds it gone. Returns what stays: with ``foreign`` nothing.

    All nodes are known before the first is removed: a listing that fails removes nothing, and a node that is made
    meanwhile stays. Raises `WriteConflict` where the turn is lost on the way: then others may have made something new.
    """
    linked = mount.store.is_link(prefix)
    below = _nodes_below(mount, prefix) if recursive and not linked else {}
    found = _opened(catalog, mount, prefix)
    own = _owner(mount, prefix, found)
    turn.check()
    consolidated.leave_out(mount, prefix)
    for group in () if linked else _groups(prefix, below):  # which open nodes that have no document any more, too
        remove_document(mount, group + ".zmetadata", turn.check)
    if recursive and not (linked or mount.is_remote):  # links to nodes go while there is what they lead to
        mount.store.delete_prefix(prefix, turn.check, lambda key: not _is_linked_node(mount, f"{key}/"))
    for inner, is_array in below.items():
        turn.check()
        with node_lock(mount, inner), alone(mount, inner) if is_array else nullcontext(Turn()) as inner_turn:
            node = _opened(catalog, mount, inner) if is_array else None
            owns = _owner(mount, inner, node) if is_array else None
            _remove_own(mount, inner, owns, inner_turn, foreign=foreign and is_array)
            bury_doubt(node, inner_turn.check)
    _remove_own(mount, prefix, None if linked else own, turn, foreign=foreign or linked)
    bury_doubt(found, turn.check)
    kept = Kept() if linked or foreign else _sweep(mount, prefix, turn)
    catalog.versions.forget(mount, prefix)
    return kept


def _remove_own(mount: MountedStore, prefix: str, owns: Owns | None, turn: Turn, *, foreign: bool) -> None:
    """The documents go first, as they are what makes a node. Where the node is a link, its documents are another
    node's, and only the link goes. Where ``owns`` is None there are no chunks."""
    for name in () if mount.store.is_link(prefix) else (mount.metadata_key, ".zgroup"):
        remove_document(mount, prefix + name, turn.check)
    if foreign:
        mount.store.delete_prefix(prefix, turn.check)
    elif owns is not None:
        mount.store.delete_prefix(prefix, turn.check, lambda key: not owns(key))
    else:
        for name in (".zattrs", ".zmetadata"):
            remove_document(mount, prefix + name, turn.check)


def _sweep(mount: MountedStore, prefix: str, turn: Turn) -> Kept:
    """What is left, after removing empty folders."""
    kept = Kept()

    def keep(key: str) -> bool:
        kept.count += 1
        if len(kept.keys) < _MOST_NAMED:
            kept.keys.append(key.encode("utf-8", "backslashreplace").decode())
        return True

    mount.store.delete_prefix(prefix, turn.check, keep)
    kept.keys.sort()
    return kept


def _is_linked_node(mount: MountedStore, prefix: str) -> bool:
    if not mount.store.is_link(prefix):
        return False
    try:
        found = mount.store.versions(prefix, [prefix + mount.metadata_key, prefix + ".zgroup"])
    except BadPath:  # a link that leads out of the store
        return False
    return any(version is not None for version in found)


def _owner(mount: MountedStore, prefix: str, node: Node | BrokenNode | None) -> Owns:
    """What belongs to one node: its documents and, of an array, its chunks, those outside the shape too.

    Of an array that cannot be read (None: that has no document of its own) all that is spelt like a chunk. Where a
    document of Zarr v3 lies beside an array's, both may have the same chunks: then they are not the array's alone.
    """
    documents = frozenset(prefix + name for name in (mount.metadata_key, ".zgroup", ".zattrs", ".zmetadata"))
    if isinstance(node, GroupNode) or (isinstance(node, BrokenNode) and node.kind == "group"):
        return documents.__contains__
    if mount.store.versions(prefix, [prefix + V3])[0] is not None:
        return documents.__contains__
    if isinstance(node, ArrayNode):
        chunks = every_chunk(node.metadata)
        return lambda key: key in documents or chunks.parse_key(key[len(prefix) :]) is not None
    return lambda key: key in documents or _CHUNK_LIKE.fullmatch(key, len(prefix)) is not None


def _opened(catalog: Catalog, mount: MountedStore, prefix: str) -> Node | BrokenNode | None:
    try:
        return catalog.open_even_broken(mount.path(prefix))
    except (NodeNotFound, BrokenData):
        return None


def _nodes_below(mount: MountedStore, prefix: str) -> dict[str, bool]:
    """The prefix of every node below another one, and whether it is an array; none behind a link: that is a node of
    its own, elsewhere. Memory grows with the nodes and not with the chunks."""
    found: dict[str, bool] = {}
    gathered = prefixes(prefix)
    for entry in mount.store.list_prefix(prefix):
        folder, slash, name = entry.key.rpartition("/")
        inner = folder + slash
        if name in (mount.metadata_key, ".zgroup", ".zattrs", ".zmetadata"):
            found[inner] = found.get(inner, False) or name == mount.metadata_key
            gathered += [inner] if name == ".zmetadata" and inner != prefix else []
    for root in gathered:
        found |= dict.fromkeys(_consolidated_arrays(mount, root), True)
    inside = {inner: found[inner] for inner in sorted(found) if inner.startswith(prefix) and inner != prefix}
    above = {root for inner in inside for root in prefixes(inner) if len(root) > len(prefix)}
    links = tuple(root for root in above if mount.store.is_link(root))
    return {inner: is_array for inner, is_array in inside.items() if not inner.startswith(links)}


def _consolidated_arrays(mount: MountedStore, root: str) -> list[str]:
    """The prefixes of the arrays that a ``.zmetadata`` knows; one that is broken knows none."""
    try:
        stored = mount.store.get(root + ".zmetadata")
        documents = {} if stored is None else parse_consolidated(stored.data, root + ".zmetadata")
    except (BadMetadata, StoredTooLarge):
        return []
    return [root + key.removesuffix(".zarray") for key in documents if key.rpartition("/")[2] == ".zarray"]


def _kind(node: Node | BrokenNode | None) -> Kind:
    if isinstance(node, BrokenNode):
        return node.kind
    return "array" if isinstance(node, ArrayNode) else "group"


def _groups(prefix: str, below: Iterable[str]) -> set[str]:
    """A node, and the groups between it and the nodes below it."""
    return {prefix, *(prefix + group for inner in below for group in prefixes(inner[len(prefix) :])[:-1])}
