"""Deletion of nodes: documents and chunks of either format are removed; all other keys stay unless the request includes
them.

Also removal of leftover chunks before a new array is created. An interrupted deletion leaves chunks, and so does a
plain client that removes only an array's document; they must not become data of a new array. A marker in the store
records an unfinished deletion and the pattern of its chunk keys, which distinguishes leftovers from other files with
similar names. Repeating the deletion, or deleting a group above, completes it. (A plain client that puts the document
back has its chunks back.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from urllib.parse import quote, unquote

from hyperslab.arrays import documents
from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.extent import LARGEST
from hyperslab.arrays.lease import Permit, node_lease, node_lock
from hyperslab.arrays.nodes import V3, ArrayNode, BrokenNode, GroupNode, MountedStore
from hyperslab.arrays.read import Reader
from hyperslab.arrays.resize import bury_late
from hyperslab.arrays.update import ChunkWriter
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.engine.metadata import ArrayMetadata, parse_consolidated
from hyperslab.errors import (
    BadMetadata,
    BadPath,
    BrokenData,
    NodeExists,
    NodeNotFound,
    StoreDenied,
    StoredTooLarge,
    StoreError,
    StoreFull,
)
from hyperslab.storage.base import Entry, UnservedEntry
from hyperslab.storage.keys import HIDDEN, STREAM, prefixes

_SHOWN = 5
_CHUNK_LIKE = "c|(c[./])?[0-9]+([./][0-9]+)*"
_MARKERS = f"{HIDDEN}/deleted/"

Owns = Callable[[str], bool]
"""Predicate: whether a key belongs to a node."""


@dataclass(slots=True)
class Remainder:
    """Keys that remain after a deletion: their number, and the first of them."""

    count: int = 0
    keys: list[str] = field(default_factory=list)


def refuse_others(catalog: Catalog, mount: MountedStore, prefix: str, node: Node | BrokenNode | None) -> None:
    """Raise `NodeExists` if a key below a node is not one of its own documents or chunks."""
    if mount.store.is_link(prefix):
        return  # only the link is removed
    owns = _owner(mount, prefix, chunk_spellings(mount, prefix, node))
    unserved = list[UnservedEntry]()
    keys = (entry.key for entry in mount.store.list_prefix(prefix, unserved) if not owns(entry.key))
    names, kind = sorted(islice(keys, _SHOWN)), "group" if node is None else node.kind
    if not names and unserved:
        first, names = min(unserved), sorted(thing.path for thing in unserved)[:_SHOWN]
        raise NodeExists(mount.path(prefix), kind, "children", "none", first.path, names, first.reason)
    if not names and isinstance(node, GroupNode):  # a group known only from .zmetadata has no keys
        names = [prefix + child.name for child in catalog.some_children(node, _SHOWN)]
    if names:
        raise NodeExists(mount.path(prefix), kind, "children", "none", names[0], names)


def refuse_v3(mount: MountedStore, prefix: str, *, coexisting: bool = True) -> None:
    """Raise `NodeExists` if a document of v2 would be ignored because of an existing one of Zarr v3; ``coexisting``:
    also if documents of both exist already."""
    *others, v3 = mount.store.document_versions(prefix, [prefix + name for name in mount.node_names])
    if v3 is not None and (coexisting or not any(others)):
        raise NodeExists(mount.path(prefix), "Zarr v3 node", "zarr_format", 2, 3, [prefix + V3])


def refuse_hidden(
    catalog: Catalog, mount: MountedStore, prefix: str, node: Node | BrokenNode | None, new: ArrayMetadata
) -> None:
    """Raise `NodeExists` if a new array at ``prefix`` would read other keys there as its chunks."""
    arrays = {inner for inner, is_array in _nodes_below(mount, prefix).items() if is_array}
    chunks, owners = _every_chunk(new), {prefix: _owner(mount, prefix, chunk_spellings(mount, prefix, node))}
    for entry in mount.store.list_prefix(prefix):
        key = entry.key
        if chunks.parse_key(key[len(prefix) :]) is None:
            continue
        roots = [root for root in prefixes(key.rpartition("/")[0]) if root in arrays]
        for root in roots:
            if root not in owners:
                owners[root] = _owner(mount, root, chunk_spellings(mount, root, _open(catalog, mount, root)))
        if any(owners[root](key) for root in (prefix, *roots)):
            continue
        raise NodeExists(mount.path(prefix), "group" if node is None else node.kind, "children", "none", key, [key])


def refuse_denied(
    mount: MountedStore, prefix: str, matters: Callable[[str, bool], bool] = lambda _folder, _is_listed: True
) -> None:
    """Raise `StoreDenied` for a folder at or below a prefix that may not be changed or listed, if it ``matters``."""
    for folder, is_listed in mount.store.denied_folders(prefix):
        if matters(folder, is_listed):
            reason = f"the service may not {'change' if is_listed else 'list'} this folder: nothing is removed"
            raise StoreDenied(mount.store.name, folder, reason)


def mark_deletion(mount: MountedStore, prefix: str, spelt: Set[str]) -> None:
    """Mark keys below a prefix that match ``spelt`` (see `chunk_spellings`) as leftovers of a deletion. On a full disk
    no marker is written, and deletion goes on."""
    with suppress(StoreFull):
        mount.store.put(_marker(prefix), "\n".join(sorted(spelt)).encode())


def chunk_spellings(mount: MountedStore, prefix: str, node: Node | BrokenNode | None) -> Set[str]:
    """Key patterns of a node's chunks, with ``*`` for each number, including those of an interrupted deletion at the
    same place. ``""`` matches any chunk key: for an array that cannot be read (None: without a document of its own)."""
    marker = mount.store.get(_marker(prefix))
    left = set[str]() if marker is None else {*bytes(marker.data).decode("ascii", "replace").split("\n")}
    if isinstance(node, ArrayNode):
        return left | {_spelling(node.metadata)}
    unknown = not left if node is None else isinstance(node, BrokenNode) and node.kind == "array"
    return left | {""} if unknown else left


def _spelling(metadata: ArrayMetadata) -> str:
    rank = len(metadata.shape)
    return metadata.grid.key((0,) * rank).replace("0", "*" if rank else "0")


def check_free(array: ArrayNode) -> None:
    """Raise `NodeExists` if a node exists at any depth below a new array; costs one listing."""
    for _ in _leftovers(array):
        pass


def clear_leftovers(reader: Reader, array: ArrayNode, check: Callable[[], None], *, foreign: bool) -> bool:
    """Remove leftover keys that a new array of any shape would read as chunks, and leftovers of an interrupted deletion
    with another key pattern. Returns whether they are marked as leftovers until the array's document is stored (then
    `unmark` them): if the creation is interrupted before that, the next one knows the fill values put in their place.

    The caller holds the node lock and has found no node; ``check`` is called before each removal, and its exception
    ends the work. Costs one listing, nearly always empty. Raises `NodeExists`, before anything is removed, if a node
    exists below the array, or, unless ``foreign``, if keys that look like its chunks are not leftovers.
    """
    mount, prefix = array.mount, array.prefix
    left, spelt_otherwise = dict[Coords, tuple[str, bool]](), set[str]()
    for coords, entry, removed in _leftovers(array):
        if coords is None:
            spelt_otherwise.add(entry.key)
        else:
            left[coords] = entry.version, removed
    keys = sorted(array.chunk_key(coords) for coords, (_, removed) in left.items() if not removed)
    marked = mount.store.stat(_marker(prefix)) is not None if keys or spelt_otherwise else False
    owns = _owner(mount, prefix, chunk_spellings(mount, prefix, None) if marked else set())
    others = [key for key in keys if not owns(key)]
    if others and not foreign:
        raise NodeExists(array.path, "group", "children", "none", others[0], others[:_SHOWN])
    folders = {array.chunk_key(coords).rpartition("/")[0] for coords in left}
    for root in sorted({root for folder in folders for root in prefixes(folder) if len(root) > len(prefix)}):
        if mount.store.is_link(root):  # the chunks belong to the target of the link
            mount.store.delete_prefix(root)
    if any(map(owns, spelt_otherwise)):
        mount.store.delete_prefix(prefix, check, lambda key, _: key not in spelt_otherwise or not owns(key))
    marked = marked or (bool(left) and mount.store.leaves_tombstones())
    if marked:
        mark_deletion(mount, prefix, {_spelling(array.metadata)})
    seen = {coords: version for coords, (version, _) in left.items()} if mount.has_replicas else None
    writer = ChunkWriter(reader, array, seen)

    def remove(coords: Coords) -> None:
        check()
        if left[coords][1]:  # other programs read it as a chunk
            writer.replace(coords)
        else:
            writer.delete(coords)

    if left:
        mount.pool.each(list(left), len(left), remove)
    return marked


def unmark(mount: MountedStore, prefix: str) -> None:
    """Remove the marker of `mark_deletion`."""
    mount.store.delete(_marker(prefix))


def remove(
    catalog: Catalog,
    mount: MountedStore,
    prefix: str,
    permit: Permit,
    *,
    recursive: bool,
    foreign: bool,
    replaces: bool = False,
) -> Remainder:
    """Remove a locked node, and if ``recursive`` each node below it under its own lock, so that concurrent writers
    finish first or fail. Returns the remaining keys; with ``foreign`` only those that cannot be removed.

    All nodes are listed before the first removal: a failed listing removes nothing, and nodes created meanwhile stay.
    Raises `StoreDenied`, before anything is removed, for a folder of a node that may not be changed, and if something
    ``replaces`` the node, also for one that may not be listed, which else remains. Raises `WriteConflict` if the permit
    is lost, as others may have created nodes since.
    """
    store, linked = mount.store, mount.store.is_link(prefix)
    below = _nodes_below(mount, prefix) if recursive and not linked else {}
    opened = _open(catalog, mount, prefix)
    spelt = set[str]() if linked else chunk_spellings(mount, prefix, opened)
    arrays = (*([prefix] if spelt else ()), *[inner for inner, is_array in below.items() if is_array])

    def matters(folder: str, is_listed: bool) -> bool:
        return replaces or folder.startswith(arrays) or (is_listed and (foreign or folder in (prefix, *below)))

    if not linked:
        refuse_denied(mount, prefix, matters)
    permit.check()
    documents.drop_copies(mount, prefix)
    between = {prefix, *(prefix + g for inner in below for g in prefixes(inner[len(prefix) :])[:-1])}
    for group in () if linked else between:  # they would open deleted nodes too
        documents.remove_document(mount, group + ".zmetadata", permit.check)
    if recursive and not (linked or mount.is_remote):  # remove links while their targets exist
        store.delete_prefix(prefix, permit.check, lambda key, linked: not (linked and _is_node(mount, f"{key}/")))
    for inner, is_array in below.items():
        permit.check()
        with node_lock(mount, inner), node_lease(mount, inner) if is_array else nullcontext(Permit()) as inner_permit:
            node = _open(catalog, mount, inner) if is_array else None
            chunks = chunk_spellings(mount, inner, node) if is_array else set[str]()
            _remove_own(mount, inner, chunks, inner_permit, foreign=foreign and bool(chunks))
            bury_late(node, inner_permit.check)
    _remove_own(mount, prefix, spelt, permit, foreign=foreign or linked)
    bury_late(opened, permit.check)
    kept = Remainder()

    def keep(key: str, _: bool) -> bool:
        kept.count += 1
        if len(kept.keys) < 100:
            kept.keys.append(key.encode("utf-8", "backslashreplace").decode())
        return True

    if not linked:
        store.delete_prefix(prefix, permit.check, keep)  # empty folders
        kept.keys.sort()
    mount.versions.forget(prefix)
    return kept


def complete(catalog: Catalog, mount: MountedStore, prefix: str, permit: Permit) -> None:
    """Remove what an interrupted deletion of a locked node, or its creation, has left, streams below it too: no keys of
    others."""
    if is_half_deleted(mount, prefix):
        with suppress(NodeExists):
            refuse_others(catalog, mount, prefix, None)
            remove(catalog, mount, prefix, permit, recursive=False, foreign=False)
    elif [entry.key for entry in islice(mount.store.list_prefix(prefix, []), 2)] == [attributes := prefix + ".zattrs"]:
        documents.remove_document(mount, attributes, permit.check)
    keys = (f"/{entry.key}".partition(f"/{STREAM}/") for entry in mount.store.list_with_streams(prefix))
    for home in {f"{above}/"[1:] for above, is_there, _ in keys if is_there}:
        if not any(mount.store.is_link(root) for root in prefixes(home) if len(root) >= len(prefix)):
            mount.store.delete_prefix(f"{home}{STREAM}/", permit.check)


def _remove_own(mount: MountedStore, prefix: str, spelt: Set[str], permit: Permit, *, foreign: bool) -> None:
    """Remove the documents first, then the chunks. For a link only the link is removed, as its documents belong to
    another node. A marker for chunks that match ``spelt`` remains if this fails."""
    if spelt:
        mark_deletion(mount, prefix, spelt)
    for name in () if mount.store.is_link(prefix) else mount.node_names:
        documents.remove_document(mount, prefix + name, permit.check)
    if foreign:
        mount.store.delete_prefix(prefix, permit.check)
    elif spelt:
        owns = _owner(mount, prefix, spelt)
        mount.store.delete_prefix(prefix, permit.check, lambda key, _: not owns(key))
    else:
        for name in (".zattrs", ".zmetadata"):
            documents.remove_document(mount, prefix + name, permit.check)
    if spelt:
        unmark(mount, prefix)


def is_half_deleted(mount: MountedStore, prefix: str) -> bool:
    """Whether a deletion of an array, or of what was in its place, did not reach its end."""
    return mount.store.stat(_marker(prefix)) is not None


def _marker(prefix: str) -> str:
    """The key of the marker of a prefix: the escaped prefix, or a digest if that is too long for a file name."""
    name = quote(f"/{prefix}", safe="")
    return _MARKERS + (name if len(name) < 256 else blake2b(prefix.encode(), digest_size=12).hexdigest())


def _is_node(mount: MountedStore, prefix: str) -> bool:
    """Whether the target of a link is a node."""
    try:
        return any(mount.store.versions(prefix, [prefix + name for name in mount.node_names]))
    except (BadPath, StoreError):  # a link out of the store, or one that leads nowhere
        return False


def _owner(mount: MountedStore, prefix: str, spelt: Set[str]) -> Owns:
    """Predicate for the keys of one node: its documents, and keys that match ``spelt``, outside the shape too."""
    own = {prefix + name for name in mount.document_names}
    patterns = [
        re.escape(segment).replace(r"\*", "(0|[1-9][0-9]{0,18})") if segment else _CHUNK_LIKE for segment in spelt
    ]
    chunk = re.compile("|".join(patterns))
    return lambda key: key in own or chunk.fullmatch(key, len(prefix)) is not None


def _open(catalog: Catalog, mount: MountedStore, prefix: str) -> Node | BrokenNode | None:
    try:
        return catalog.open_even_broken(mount.path(prefix))
    except (NodeNotFound, BrokenData):
        return None
    except (BadPath, StoreError):
        if not any(mount.store.is_odd(prefix + name) for name in mount.document_names):
            raise
        return None


def _nodes_below(mount: MountedStore, prefix: str) -> dict[str, bool]:
    """Prefixes of all nodes below another one, and whether each may be an array or an interrupted deletion; targets of
    links are excluded. Memory grows with nodes, not chunks."""
    marked = [unquote(marker.key.removeprefix(_MARKERS)) for marker in mount.store.list_dir(_MARKERS).entries]
    nodes = {name[1:]: True for name in marked if name.startswith("/")}
    consolidated = prefixes(prefix)
    for entry in mount.store.list_prefix(prefix, []):
        folder, slash, name = entry.key.rpartition("/")
        inner = folder + slash
        if name in mount.document_names:
            nodes[inner] = nodes.get(inner, False) or name in (mount.metadata_key, V3)
            consolidated += [inner] if name == ".zmetadata" and inner != prefix else []
    for root in [root for root in consolidated if not mount.store.is_odd(f"{root}.zmetadata")]:
        try:
            stored = mount.store.get(root + ".zmetadata")
            documents = {} if stored is None else parse_consolidated(stored.data, root + ".zmetadata")
        except (BadMetadata, StoredTooLarge):
            continue
        nodes |= {root + key.removesuffix(".zarray"): True for key in documents if key.rpartition("/")[2] == ".zarray"}
    inside = {inner: nodes[inner] for inner in sorted(nodes) if inner.startswith(prefix) and inner != prefix}
    above = {root for inner in inside for root in prefixes(inner) if len(root) > len(prefix)}
    links = tuple(root for root in above if mount.store.is_link(root))
    return {inner: is_array for inner, is_array in inside.items() if not inner.startswith(links)}


def _leftovers(array: ArrayNode) -> Iterator[tuple[Coords | None, Entry, bool]]:
    """Existing keys of future chunks of a new array, outside its shape too: coordinates, entry, and whether it is a
    tombstone (`Store.leaves_tombstones`); without coordinates for chunk keys of another pattern. Raises
    `NodeExists`."""
    store, prefix = array.mount.store, array.prefix
    if not store.capabilities.listable:
        return
    everywhere = _every_chunk(array.metadata)
    for entry, removed in store.list_all(prefix):
        key = entry.key[len(prefix) :]
        if not removed and key.rpartition("/")[2] in array.mount.node_names:
            raise NodeExists(array.path, "group", "children", "none", entry.key, [entry.key])
        coords = everywhere.parse_key(key)
        if coords is not None or (not removed and re.fullmatch(_CHUNK_LIKE, key)):
            yield coords, entry, removed


def new_array(mount: MountedStore, prefix: str, metadata: ArrayMetadata) -> ArrayNode:
    """A node for an array that is not stored yet."""
    return ArrayNode(mount, prefix, metadata, {}, "", "", {})


def _every_chunk(metadata: ArrayMetadata) -> ChunkGrid:
    """The grid of all chunks that an array of any shape could have."""
    rank = len(metadata.shape)
    return replace(metadata.grid, shape=(LARGEST,) * rank, chunks=(1,) * rank, edges=())
