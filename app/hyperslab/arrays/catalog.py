"""Catalog of the mounted stores: opens the node at a path from its documents."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from hyperslab.arrays import listing
from hyperslab.arrays.chunk_keys import located
from hyperslab.arrays.extent import OWN_MEMBER
from hyperslab.arrays.nodes import (
    V3,
    ArrayNode,
    BrokenNode,
    ChildInfo,
    Children,
    GroupNode,
    KeyForm,
    Kind,
    MountedStore,
    without_unread,
)
from hyperslab.cache import Vanished, VersionedCache
from hyperslab.engine.cf import is_time
from hyperslab.engine.jsontext import dump_copy, parse_json
from hyperslab.engine.metadata import (
    MAX_CONSOLIDATED_BYTES,
    ArrayMetadata,
    UnreadAttributes,
    parse_attributes,
    parse_consolidated,
    parse_group,
    parse_object,
)
from hyperslab.engine.v3 import Document, describes_node, parse_document
from hyperslab.errors import (
    BadMetadata,
    BadPath,
    BrokenData,
    HyperslabError,
    NodeNotFound,
    StoreDenied,
    StoredTooLarge,
    StoreError,
    WrongKind,
)
from hyperslab.storage.base import StoredValue, UnservedEntry
from hyperslab.storage.keys import as_prefix, join, normalise_path, prefixes

_NODE_OVERHEAD = 4096  # Python objects of a parsed node, besides its documents
_NAME_CHILDREN = frozenset({"ome", "multiscales", "plate", "well", "bioformats2raw.layout"})  # by attributes
_LARGE = 1 << 18  # memory of attributes that are not parsed again when another document of the node changes

Node = ArrayNode | GroupNode
T = TypeVar("T")


class Catalog:
    """All mounted stores and their nodes. A document is parsed again only if its version has changed."""

    def __init__(self, mounts: Iterable[MountedStore]) -> None:
        self.mounts: Mapping[str, MountedStore] = {mount.name: mount for mount in mounts}
        self.with_head: Callable[[ArrayNode], ArrayNode] | None = None
        """Adds the head to an array that a stream writes to."""
        self._nodes: VersionedCache[Node] = VersionedCache(64 << 20)
        self._attributes = VersionedCache[_Large](64 << 20)
        self._consolidated = VersionedCache[_ConsolidatedMetadata | BadMetadata](4 * MAX_CONSOLIDATED_BYTES)

    def locate(self, path: str) -> tuple[MountedStore, str]:
        """The store of a path, and the rest of the path; raises `BadPath` and `NodeNotFound`."""
        name, _, rest = normalise_path(path).partition("/")
        mount = self.mounts.get(name)
        if mount is None:
            raise NodeNotFound(path)
        return mount, rest

    def locate_writable(self, path: str) -> tuple[MountedStore, str]:
        """The store of a path, and the prefix of the path in it; raises `ReadOnly` and what `locate` raises."""
        mount, rest = self.locate(path)
        mount.check_writable()
        return mount, as_prefix(rest)

    def open_node(self, path: str, *, fresh: bool = False) -> Node:
        """The array or group at ``path``; the empty path is the group of all stores.

        ``fresh``, for writers: versions are looked up in the store whatever ``recheck`` says. Raises `NodeNotFound`,
        `BadPath`, `BadMetadata`, `CodecRefused` and `StoreError`.
        """
        if not normalise_path(path):
            return GroupNode(None, "", {}, "root")
        mount, rest = self.locate(path)
        try:
            node = self._open_stored(mount, rest, fresh=fresh)
        except (BadPath, StoreError, StoredTooLarge) as error:
            node = self._open_odd(mount, rest, error)
        return located(node) if fresh and isinstance(node, ArrayNode) else self.complete(node)

    def _open_stored(self, mount: MountedStore, rest: str, *, fresh: bool) -> Node:
        prefix, stored = as_prefix(rest), None
        name, keys = (mount.name, rest), mount.document_keys(prefix)
        is_new = mount.is_remote and self._nodes.any_version(name) is None
        if is_new and (fresh or not mount.versions.knows_all(keys)):
            stored = mount.versions.read(keys)  # a look-up before would cost a round trip
            versions = _versions_of(stored)
        else:
            versions = mount.versions.look_up(prefix, keys, fresh=fresh, documents=True)
            node = self._nodes.get(name, _joined(versions))
            if node is not None:
                return node
        *makers, attributes = versions
        if rest not in mount.assume_metadata and not any(makers):
            return self._open_undocumented(mount, rest, has_attributes=attributes is not None)
        load = partial(self._load_node, mount, rest, versions, stored)
        return self._nodes.load(name, _joined(versions), load, count_miss=False).value

    def _load_node(
        self,
        mount: MountedStore,
        rest: str,
        versions: Sequence[str | None],
        stored: Sequence[StoredValue | None] | None,
    ) -> tuple[Node, str, int]:
        """The node of documents of these ``versions``, which may be ``stored``, with its version and memory."""
        keys, attributes, large = mount.document_keys(as_prefix(rest)), versions[-1], None
        if stored is None:
            large = None if attributes is None else self._attributes.get((mount.name, keys[-1]), attributes)
            wanted = keys if large is None else keys[:-1]
            present = [key for key, version in zip(wanted, versions, strict=False) if version is not None]
            found = dict(zip(present, mount.versions.read(present), strict=True))
            stored = [found.get(key) for key in wanted]
            stored += [] if large is None or attributes is None else [StoredValue(b"", attributes)]
        return self._parse(mount, rest, stored, large)

    def _open_odd(self, mount: MountedStore, rest: str, error: HyperslabError) -> Node:
        """The node at a path where a document cannot be read, nor will be soon: values can be read without attributes,
        and a group needs no document. Raises the ``error`` of all its documents where it is something else."""
        prefix, odd = as_prefix(rest), dict[str, BadMetadata]()
        array_key, group_key, v3_key, attributes_key = keys = mount.document_keys(prefix)

        def read(key: str) -> StoredValue | None:
            try:
                return mount.versions.read([key])[0]
            except (BadPath, StoreError, StoredTooLarge) as own:
                is_denied = isinstance(own, StoreDenied) and not mount.is_remote
                if not (is_denied or isinstance(own, StoredTooLarge) or mount.store.is_odd(key)):
                    raise
                too_large = f"it has {own.size} bytes" if isinstance(own, StoredTooLarge) else None
                odd[key] = BadMetadata(key, None, too_large or vars(own)["reason"])
                return None

        stored = [read(key) for key in keys]
        if not odd:
            raise error
        unread = odd.get(v3_key) or odd.get(attributes_key)
        attributes = {} if stored[3] is None else _attributes(stored[3].data, attributes_key)
        attributes = attributes if unread is None else UnreadAttributes(unread)
        is_told = array_key not in odd and v3_key not in odd
        node: Node
        if rest in mount.assume_metadata or (is_told and any(stored[:3])):
            node = self._parse(mount, rest, stored, _Large(attributes, 0))[0]
        elif (is_told and group_key in odd) or self._has_nodes_below(mount, rest):
            zarr_format = 3 if v3_key in odd and stored[1] is None else 2
            node = GroupNode(mount, prefix, attributes, "", implicit=is_told, zarr_format=zarr_format)
        else:
            raise error
        problems = [f"{odd[key]}: it is taken for a group all the same" for key in (array_key, group_key) if key in odd]
        version = f"{_joined(_versions_of(stored))}+odd-{_digest(repr([*map(str, odd.values())]).encode())}"
        return replace(node, version=version, documents={}, problems=(*node.problems, *problems))

    def _has_nodes_below(self, mount: MountedStore, rest: str) -> bool:
        return mount.store.capabilities.listable and listing.has_nodes(mount, as_prefix(rest))

    def find_node(self, path: str, *, fresh: bool = False) -> Node | None:
        """As `open_node`, but None if the node does not exist."""
        try:
            return self.open_node(path, fresh=fresh)
        except NodeNotFound:
            return None

    def find_readable(self, path: str, *, fresh: bool = False) -> Node | None:
        """As `find_node`, but None also for a node that cannot be opened, or a path that leads out of its store; unless
        ``fresh``, also for one that its store fails to read alone. To a writer, that is no absence."""
        return self._readable(path, partial(self.open_node, path, fresh=fresh), fresh=fresh)

    def open_child(self, group: GroupNode, child: ChildInfo) -> Node | None:
        """As `find_readable`, in the versions with which the child of a group was listed."""
        path, mount, rest = join(group.path, child.name), group.mount, group.prefix + child.name
        if mount is None or not any([*child.documents.values()][:-1]):  # all but the attributes
            return self.find_readable(path)
        version = _joined([*child.documents.values()])
        node = self._nodes.get((mount.name, rest), version)

        def load() -> tuple[Node, str, int]:
            others = [key for key, version in child.documents.items() if version is not None and key not in child.read]
            stored_by_key = dict(zip(others, mount.versions.read(others), strict=True))
            return self._parse(mount, rest, [child.read.get(key) or stored_by_key.get(key) for key in child.documents])

        def read() -> Node:
            try:
                return self._nodes.load((mount.name, rest), version, load, count_miss=False).value
            except StoredTooLarge:
                return self.open_node(path)

        node = self._readable(path, read) if node is None else node
        return None if node is None else self.complete(node)

    def child_attributes(self, group: GroupNode, child: ChildInfo) -> Mapping[str, Any]:
        """The attributes of a child of a group as it was listed, by their document alone: the node is not opened, and
        may be broken. Empty where they cannot be read."""
        path, mount = join(group.path, child.name), group.mount
        if child.copied is not None:
            return child.copied
        if mount is None or not any([*child.documents.values()][:-1]):
            node = self.find_readable(path)
            return {} if node is None else without_unread(node)[0]
        v3_key, own_key = [*child.documents][-2:]
        is_mixed = any([*child.documents.values()][:-2])

        def read() -> Mapping[str, Any]:
            for key in (v3_key, own_key):
                version, is_v3 = child.documents[key], key == v3_key
                if version is None or (is_v3 and group.prefix + child.name in mount.assume_metadata):
                    continue
                kept = self._attributes.get((mount.name, key), version, count_miss=False)
                if kept is not None:
                    return {} if isinstance(kept.attributes, UnreadAttributes) else kept.attributes
                stored = child.read.get(key) or mount.versions.read([key])[0]
                if stored is None or (is_v3 and is_mixed and not describes_node(stored.data)):
                    continue
                members = parse_object(stored.data, key, limit=MAX_CONSOLIDATED_BYTES)
                attributes = _Large(_inner(members) if is_v3 else members, 500 + 4 * len(stored.data))
                self._attributes.put((mount.name, key), stored.version, attributes, attributes.nbytes)
                return attributes.attributes
            return {}

        return self._readable(path, read) or {}

    def _readable(self, path: str, read: Callable[[], T], *, fresh: bool = False) -> T | None:
        try:
            return read()
        except (NodeNotFound, BrokenData, BadPath):
            return None
        except StoreError as error:
            if fresh or not listing.concerns_one(self.locate(path)[0], error):
                raise
            return None

    def open_array(self, path: str, *, fresh: bool = False) -> ArrayNode:
        """The array at ``path``; raises `WrongKind` for a group, and what `open_node` raises."""
        node = self.open_node(path, fresh=fresh)
        if isinstance(node, ArrayNode):
            return node
        raise WrongKind(node.path, "group", "array")

    def open_group(self, path: str) -> GroupNode:
        """The group at ``path``; raises `WrongKind` for an array, and what `open_node` raises."""
        node = self.open_node(path)
        if isinstance(node, GroupNode):
            return node
        raise WrongKind(node.path, "array", "group")

    def find_coordinate(self, path: str, name: str) -> ArrayNode | None:
        """The array called ``name`` in the group of the array at ``path``, else in the nearest group above that has
        one: coordinates are inherited. [CF Conventions, "Scope"; `xarray.DataTree`]

        Raises `BrokenData` for the one in the group itself; a broken one above it is none. Blocks.
        """
        folder = path.rpartition("/")[0]
        if not folder or "/" in name:
            return None
        try:
            return self.open_array(f"{folder}/{name}")
        except (NodeNotFound, WrongKind, BadPath, StoreDenied):  # the last: also what some buckets say of a missing key
            mount, rest = self.locate(folder)
            parts = [mount.name, *filter(None, rest.split("/"))]
            above = ["/".join((*parts[:count], name)) for count in range(len(parts) - 1, 0, -1)]
            return next((node for node in mount.each(self.find_readable, above) if isinstance(node, ArrayNode)), None)

    def open_even_broken(self, path: str) -> Node | BrokenNode:
        """As `open_node` with ``fresh``, for deletion: a node with unreadable documents is returned as a `BrokenNode`.

        Raises `BrokenData` only if the broken document belongs to another node.
        """
        try:
            return self.open_node(path, fresh=True)
        except BrokenData as error:
            mount, rest = self.locate(path)
            prefix = as_prefix(rest)
            keys = mount.document_keys(prefix)
            versions = zip(keys, mount.versions.look_up(prefix, keys, documents=True), strict=True)
            documents = {key: version for key, version in versions if version is not None}
            attributes = prefix + ".zattrs"
            at_fault = isinstance(error, BadMetadata | StoredTooLarge) and error.key == attributes
            if not documents.keys() - {attributes} and not at_fault:
                raise
            return BrokenNode(mount, prefix, error, documents)

    def with_inherited(self, array: ArrayNode) -> ArrayNode:
        """The array with the ``units`` and ``calendar`` of the time whose ``bounds`` it is, an array of the same group,
        where it has none of its own; its version is then that of both. [CF Conventions, "Cell boundaries"]

        Blocks. Of 10,000 siblings at most those are tried first that its axes are named after. The result has no
        documents of its own, as those of others may change it.
        """
        if not array.may_inherit:
            return array
        array = replace(array, documents={})
        folder, _, name = array.path.rpartition("/")
        group = self.find_readable(folder)
        if not isinstance(group, GroupNode):
            return array
        others = (child.name for count in (10_000,) for child in self.some_children(group, count))  # lazy
        for sibling in chain(array.dimension_names or (), others):
            parent = self.find_readable(f"{folder}/{sibling}")
            if not isinstance(parent, ArrayNode):
                continue
            given = without_unread(parent)[0]
            if given.get("bounds") == name and is_time(given):
                inherited = {key: given[key] for key in ("units", "calendar") if key in given}
                version = f"{array.version}+{parent.version}"
                return replace(array, attributes={**inherited, **array.attributes}, version=version)
        return array

    def open_known(self, path: str) -> Node | None:
        """As `open_node` for a node that was parsed before and whose versions can be checked without blocking; else
        None."""
        name, _, rest = normalise_path(path).partition("/")
        mount = self.mounts.get(name)
        if mount is None or self._nodes.any_version((mount.name, rest)) is None:
            return None
        prefix = as_prefix(rest)
        keys = mount.document_keys(prefix)
        if mount.is_remote and not mount.versions.knows_all(keys):
            return None
        try:
            versions = mount.versions.look_up(prefix, keys, documents=True)
        except (BadPath, StoreError):  # see `_open_odd`
            return None
        node = self._nodes.get((mount.name, rest), _joined(versions))
        return None if node is None else self.complete(node)

    def array_above(self, mount: MountedStore, key: str, *, fresh: bool = False) -> ArrayNode | None:
        """The array that a key of a store may be a chunk of, or None: one that was found before, or the outermost of
        those whose chunks have such names, or the next above. Raises `BrokenData`."""
        folders, broken = [*above(mount.path(key))], None
        folders.sort(key=lambda path: not isinstance(self.last_known(path), ArrayNode))
        others = [mount.path(prefix) for prefix in reversed(prefixes(key.rpartition("/")[0]))]
        for path in dict.fromkeys([*folders, *others]):
            try:
                node = self.find_node(path, fresh=fresh)
            except BrokenData as error:
                broken = broken or error
                continue
            if isinstance(node, ArrayNode):
                return node
        if broken is not None:
            raise broken
        return None

    def complete(self, node: Node) -> Node:
        """The node; an array with an open stream includes the items that are not in its chunks yet, and has the keys
        under which its chunks were found last (see `chunk_keys`)."""
        if not isinstance(node, ArrayNode):
            return node
        mount, metadata = node.mount, node.metadata
        form = mount.key_forms.get(node.prefix, node.data_id, count_miss=False)
        is_open = metadata.zarr_format == 2 and metadata.document.get("dimension_separator") is None
        if is_open and mount.dimension_separator is not None:
            form = KeyForm("", mount.dimension_separator)
        if form is not None:
            node = node.with_keys(form)
        return node if self.with_head is None or OWN_MEMBER not in metadata.document else self.with_head(node)

    def remembered(self, path: str) -> Node | None:
        """The node of a remote store at a normalised path, as last opened, without any request; else None, also for an
        array with other keys of chunks than it states."""
        mount = self.mounts.get(path.partition("/")[0])
        if mount is None or not mount.is_remote:
            return None
        node = self.last_known(path)
        form = None if node is None else mount.key_forms.any_version(node.prefix)
        return node if form is None or form.problem is None else None

    def last_known(self, path: str) -> Node | None:
        """The node at a normalised path, as last opened, whether or not it has changed; else None."""
        name, _, rest = path.partition("/")
        return self._nodes.any_version((name, rest))

    def last_known_array(self, path: str) -> ArrayNode | None:
        """The array that was last found above a path that ends like a chunk key; None if no node is known there."""
        nodes = map(self.last_known, above(path)) if looks_like_chunk(path.rpartition("/")[2]) else ()
        return next((node for node in nodes if isinstance(node, ArrayNode)), None)

    def unchanged(self, nodes: Sequence[Node]) -> bool:
        """Whether nodes of one store still have the versions that they were opened with, by a single look-up; also
        False if that look-up cannot decide it."""
        mount, versions = nodes[0].mount, self.documents(nodes)
        if mount is None or not versions:
            return False
        return mount.versions.look_up("", [*versions], documents=True) == [*versions.values()]

    def documents(self, nodes: Sequence[Node]) -> Mapping[str, str | None]:
        """Keys and versions of all documents that nodes of one store were opened from. Empty if other keys may change
        the nodes too, as for an implicit group."""
        if any(node.mount is not nodes[0].mount or not node.documents for node in nodes):
            return {}
        if any(isinstance(node, GroupNode) and node.implicit for node in nodes):
            return {}
        return {key: version for node in nodes for key, version in node.documents.items()}

    def children(
        self,
        group: GroupNode,
        *,
        limit: int,
        cursor: str | None = None,
        deadline: float | None = None,
        attributes: bool = False,
    ) -> Children:
        """A page of at most ``limit`` children in order of name, after the name ``cursor``; ``deadline`` and
        ``attributes`` as for `listing.children`."""
        mount = group.mount
        if mount is None:
            stores = listing.KnownChildren({name: self.kind_of_store(name) for name in self.mounts})
            return stores.page(limit=limit, cursor=cursor)
        problems: list[str] = []
        above = [*self._consolidated_above(mount, group.prefix, problems, lists=True)]
        named = _known_children(mount, group.prefix, above)
        page = listing.children(
            mount, group.prefix, named, limit=limit, cursor=cursor, deadline=deadline, attributes=attributes
        )
        if not (mount.store.capabilities.listable or named.names or _NAME_CHILDREN & without_unread(group)[0].keys()):
            problems.append("children are unknown: the store cannot be listed, and no consolidated metadata name any")
        if group.named and mount.store.capabilities.listable:
            page = replace(page, unserved=tuple(sorted({*page.unserved, *listing.absent(group, page, cursor)})))
        if attributes and mount.is_remote and above:
            page = replace(page, nodes=tuple(_with_copies(page.nodes, group.prefix, above)))
        return replace(page, problems=(*problems, *page.problems, *described(page.unserved)))

    def some_children(self, group: GroupNode, count: int) -> list[ChildInfo]:
        """The first ``count`` children, without a limit of time."""
        page = self.children(group, limit=count)
        nodes = [*page.nodes]
        while page.next_cursor is not None and len(nodes) < count:
            page = self.children(group, limit=count - len(nodes), cursor=page.next_cursor)
            nodes += page.nodes
        return nodes

    def count_folders(self, group: GroupNode, most: int) -> int:
        """The number of folders in that of a group, of which each may be a child, up to ``most``; 0 if unknown."""
        mount = group.mount
        is_listable = mount is not None and mount.store.capabilities.listable
        return len(mount.store.list_folders(group.prefix, "", most).names) if mount and is_listable else 0

    def kind_of_store(self, name: str) -> Kind:
        """The kind of the root of a store."""
        try:
            return self.open_node(name).kind
        except (NodeNotFound, StoreError, BrokenData, BadPath):
            # a store that cannot list and has no documents at its root, or that is down
            return "group"

    def _consolidated_above(
        self, mount: MountedStore, path: str, problems: list[str], *, lists: bool = False
    ) -> Iterator[tuple[str, _ConsolidatedMetadata]]:
        """Contents of each ``.zmetadata`` at a path and above it, as text by key, with its prefix, from the root down;
        for a store that cannot list, also those of each ``zarr.json``. A broken one adds to ``problems``, and raises if
        no other document describes the store; unless it only ``lists`` children, also one that is too large.

        Reads of a remote store run concurrently; those of a local store, or with known versions, are lazy.
        """
        names = (".zmetadata",) if mount.store.capabilities.listable else (".zmetadata", V3)
        roots = [root for root in prefixes(path) for _ in names]
        keys = [root + name for root in prefixes(path) for name in names]
        blind = not mount.store.capabilities.listable  # what is denied may as well be absent
        new = not any(self._consolidated.any_version((mount.name, key)) for key in keys)
        if mount.recheck == "always" and mount.is_remote and new:  # a look-up before would cost a round trip
            stored = mount.store.get_each(keys, denied_is_absent=blind)
            versions = _versions_of(stored)
        else:
            try:
                versions = mount.versions.look_up("", keys, documents=True, denied_is_absent=blind)
            except (BadPath, StoreError):
                odd = [key for key in keys if mount.store.is_odd(key)]
                if not odd:
                    raise
                problems += [f"{key!r} is a link that cannot be followed, or not a file: it is ignored" for key in odd]
                roots = [root for root, key in zip(roots, keys, strict=True) if key not in odd]
                keys = [key for key in keys if key not in odd]
                versions = mount.versions.look_up("", keys, documents=True, denied_is_absent=blind)
            stored = [None] * len(keys)
        for root, key, version, document in zip(roots, keys, versions, stored, strict=True):
            if version is None:
                continue
            try:
                nodes = self._consolidated.load((mount.name, key), version, partial(_load, mount, key, document)).value
            except Vanished:
                continue
            except (StoreDenied, StoredTooLarge) as error:
                if blind or (mount.is_remote if isinstance(error, StoreDenied) else not lists):
                    raise
                problems.append(f"{error}; the documents of the nodes themselves are read instead")
                continue
            if not isinstance(nodes, BadMetadata):
                yield root, nodes
            elif mount.store.capabilities.listable:
                problems.append(f"{nodes}; the documents of the nodes themselves are read instead")
            else:
                raise BadMetadata(nodes.key, nodes.member, nodes.reason)

    def is_broken(self, mount: MountedStore, key: str, version: str, found: StoredValue | None = None) -> bool:
        """Whether a stored ``.zmetadata``, which may be ``found``, holds no consolidated metadata."""
        load = partial(_load, mount, key, found)
        with suppress(Vanished, StoredTooLarge):
            return isinstance(self._consolidated.load((mount.name, key), version, load).value, BadMetadata)
        return False

    def _parse(
        self,
        mount: MountedStore,
        rest: str,
        stored: Sequence[StoredValue | None],
        large: _Large | None = None,
    ) -> tuple[Node, str, int]:
        """Parse `MountedStore.document_keys`, with the versions of the bytes in ``stored``; ``large`` attributes are
        known. Returns the node, its version in the cache of nodes, and its memory."""
        prefix, versions, assumed = as_prefix(rest), _versions_of(stored), mount.assume_metadata.get(rest)
        array, group, v3, attributes = stored
        array_key, group_key, v3_key, attributes_key = keys = mount.document_keys(prefix)
        documents, version = dict(zip(keys, versions, strict=True)), _joined(versions)
        if large is None and attributes is not None:
            large = _Large(_attributes(attributes.data, attributes_key), 4 * len(attributes.data))
            if large.nbytes > _LARGE:
                self._attributes.put((mount.name, attributes_key), attributes.version, large, large.nbytes)
        attrs = {} if large is None else large.attributes
        node: Node
        if assumed is not None:
            metadata = ArrayMetadata.from_document(assumed, array_key)
            own, others = f"assumed-{_digest(metadata.to_bytes())}", {attributes_key: documents[attributes_key]}
            node = ArrayNode(mount, prefix, metadata, attrs, f"{own}+{version}", own, others)
        elif v3 is not None and ((array is None and group is None) or describes_node(v3.data)):
            hidden = tuple([key for key in (array_key, group_key) if documents[key] is not None])
            before = self._nodes.any_version((mount.name, rest))
            kept = before.metadata.attributes if isinstance(before, ArrayNode) else None
            try:
                document = parse_document(v3.data, v3_key, kept)
            except BadMetadata as error:
                if listing.may_be_array(v3.data) or not self._has_nodes_below(mount, rest):
                    raise
                group_node = GroupNode(mount, prefix, UnreadAttributes(error), v3.version, zarr_format=3, also=hidden)
                return group_node, version, self._nodes.limit + 1  # not kept: the nodes below may go
            node = _v3_node(mount, prefix, document, v3.version, {v3_key: v3.version}, hidden)
        elif array is not None:
            del documents[group_key]  # an array takes precedence over a group
            metadata = ArrayMetadata.parse(array.data, array_key)
            told = metadata.problems
            node = ArrayNode(mount, prefix, metadata, attrs, version, array.version, documents, problems=told)
        elif group is not None:
            try:
                problems = parse_group(group.data, group_key).problems
            except BadMetadata as error:
                problems = (f"{error}: it is taken for a group all the same",)
            node = GroupNode(mount, prefix, attrs, version, documents=documents, problems=problems)
        else:
            raise NodeNotFound(mount.path(prefix))
        nbytes = 4 * sum(len(s.data) for s in stored[:3] if s is not None) + (0 if large is None else large.nbytes)
        if isinstance(node, GroupNode) and v3 is not None and len(v3.data) > _NODE_OVERHEAD:
            nbytes = 4 * len(dump_copy(dict(node.attributes)))  # of consolidated metadata names are kept
            nbytes += sum(100 + 4 * len(name) for name in node.named)
        return node, version, nbytes + _NODE_OVERHEAD

    def _open_undocumented(self, mount: MountedStore, rest: str, *, has_attributes: bool) -> Node:
        """A node without documents of its own: one in a ``.zmetadata`` at or above it, or an implicit group, shown only
        by its children, which may have attributes."""
        prefix = as_prefix(rest)
        for root, nodes in self._consolidated_above(mount, rest, []):
            node = _from_consolidated(mount, prefix, nodes.documents, prefix[len(root) :])
            if node is not None:
                if mount.store.capabilities.listable:
                    told = f"it has no document: consolidated metadata of {mount.path(root)!r} alone describe it"
                    node = replace(node, problems=(*node.problems, told))
                name, version = (mount.name, f"{rest}/.zmetadata"), node.version
                kept = self._nodes.get(name, version) or node
                self._nodes.put(name, version, kept, _NODE_OVERHEAD)
                return kept
        assumed = mount.assumes(prefix)
        if not assumed and not (mount.store.capabilities.listable and self._is_implicit_group(mount, rest)):
            raise NodeNotFound(mount.path(prefix))
        key = prefix + ".zattrs"
        stored = mount.store.get(key) if has_attributes else None
        attrs = {} if stored is None else _attributes(stored.data, key)
        documents = {**dict.fromkeys(mount.document_keys(prefix)), key: None if stored is None else stored.version}
        version = "implicit" + _joined([*documents.values()])
        return GroupNode(mount, prefix, attrs, version, implicit=True, documents=documents)

    def _is_implicit_group(self, mount: MountedStore, rest: str) -> bool:
        """Whether a prefix is a group without a document: the root of a store, even if empty, or a folder with nodes
        below it, or one too large to be searched in time. A folder inside an array holds chunks and is none."""
        if not rest:
            return True
        above = prefixes(rest)[:-1]
        if any(root.rstrip("/") in mount.assume_metadata for root in above):
            return False
        documents = [root + name for root in above for name in (mount.metadata_key, V3)]  # groups of v3 have one
        if any(mount.versions.look_up("", documents, documents=True, denied_is_absent=True)):
            return False
        return listing.search(mount, as_prefix(rest), time.monotonic() + listing.SEARCH_SECONDS) is not None


def _attributes(data: bytes | memoryview, key: str) -> Mapping[str, Any]:
    """The members of a ``.zattrs``, which may be broken: the node is readable without them."""
    try:
        return parse_attributes(data, key)
    except BadMetadata as error:
        return UnreadAttributes(error)


def _v3_node(  # noqa: PLR0917
    mount: MountedStore,
    prefix: str,
    found: Document,
    version: str,
    documents: Mapping[str, str | None],
    also: tuple[str, ...] = (),
) -> Node:
    """The node described by a ``zarr.json``."""
    attributes = found.attributes
    if found.array is None:
        problems = () if found.broken is None else (str(found.broken),)
        named = {path.partition("/")[0] for path in found.consolidated or () if path.count("/") == 1}
        return GroupNode(mount, prefix, attributes, version, False, documents, problems, 3, also, tuple(sorted(named)))
    told = found.array.problems
    return ArrayNode(mount, prefix, found.array, attributes, version, version, documents, also, problems=told)


class _Large(NamedTuple):
    """Attributes, and the memory that they take."""

    attributes: Mapping[str, Any]
    nbytes: int


class _ConsolidatedMetadata(NamedTuple):
    """Consolidated metadata: the documents as text, by key, and the children of each prefix."""

    documents: Mapping[str, bytes]
    children: Mapping[str, listing.KnownChildren]


def _load(
    mount: MountedStore, key: str, found: StoredValue | None
) -> tuple[_ConsolidatedMetadata | BadMetadata, str, int]:
    """The contents of a ``.zmetadata`` or ``zarr.json``, or the reason why they cannot be read; its version and its
    size in memory."""
    stored = mount.store.get(key, MAX_CONSOLIDATED_BYTES) if found is None else found
    if stored is None:
        raise Vanished
    try:
        of_v3 = key.endswith(V3)
        inside = parse_document(stored.data, key).consolidated if of_v3 else parse_consolidated(stored.data, key)
    except BrokenData as error:
        if isinstance(error, BadMetadata) and not of_v3:
            return error, stored.version, _NODE_OVERHEAD
        inside = None  # opening the node raises
    texts, kinds, nbytes = dict[str, bytes](), dict[str, dict[str, Kind]](), 0
    for sub_path, document in (inside or {}).items():
        text = texts[sub_path] = dump_copy(document)
        path, _, last = sub_path.rpartition("/")
        above, slash, name = path.rpartition("/")
        siblings = kinds.setdefault(above + slash, {})
        if path and (last == ".zarray" or (last == V3 and document.get("node_type") == "array")):
            siblings[name] = "array"
        elif path and last in (".zgroup", V3):
            siblings.setdefault(name, "group")
        nbytes += 2 * len(sub_path) + len(text) + 300  # objects and slots
    children = {inner: listing.KnownChildren(siblings) for inner, siblings in kinds.items()}
    return _ConsolidatedMetadata(texts, children), stored.version, nbytes


def _known_children(
    mount: MountedStore, prefix: str, above: Sequence[tuple[str, _ConsolidatedMetadata]]
) -> listing.KnownChildren:
    """The direct children below a prefix in assumed metadata and in consolidated documents."""
    assumed: dict[str, Kind] = {}
    for path in mount.assume_metadata:
        name, slash, _ = path[len(prefix) :].partition("/")
        if path.startswith(prefix) and name:
            assumed[name] = "group" if slash and name not in assumed else "array"
    listings = [known.children[prefix[len(root) :]] for root, known in above if prefix[len(root) :] in known.children]
    if not assumed and len(listings) == 1:  # as large as it may be
        return listings[0]
    kinds = [assumed, *(each.kinds for each in listings)]
    arrays = {name for each in kinds for name, kind in each.items() if kind == "array"}
    return listing.KnownChildren({name: "array" if name in arrays else "group" for each in kinds for name in each})


def _with_copies(
    children: Sequence[ChildInfo], prefix: str, above: Sequence[tuple[str, _ConsolidatedMetadata]]
) -> Iterator[ChildInfo]:
    """The children of a group, each with its attributes in the first consolidated metadata that name it."""
    for child in children:
        copied: Mapping[str, Any] | None = None
        for root, nodes in above:
            inner, documents = f"{prefix[len(root) :]}{child.name}/", nodes.documents
            if (text := documents.get(inner + V3)) is not None:
                copied = _inner(parse_json(text, limit=len(text)))
            elif inner + ".zarray" in documents or inner + ".zgroup" in documents:
                text = documents.get(inner + ".zattrs", b"{}")
                copied = parse_json(text, limit=len(text))
            if copied is not None:
                break
        yield child if copied is None else replace(child, copied=copied)


def _inner(members: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes in a ``zarr.json``."""
    attributes = members.get("attributes")
    return attributes if isinstance(attributes, dict) else {}


def _from_consolidated(mount: MountedStore, prefix: str, documents: Mapping[str, bytes], inner: str) -> Node | None:
    v3 = documents.get(inner + V3)
    if v3 is not None:
        version = f"consolidated-{_digest(v3)}"
        return _v3_node(mount, prefix, parse_document(v3, prefix + V3), version, {})
    stored = [documents.get(inner + name) for name in (".zarray", ".zattrs", ".zgroup")]
    array, attributes, group = [None if text is None else parse_json(text, limit=len(text)) for text in stored]
    attributes = attributes or {}
    version = f"consolidated-{_digest(repr((array, attributes, group)).encode())}"
    if array is not None:
        metadata = ArrayMetadata.from_document(array, prefix + ".zmetadata")
        return ArrayNode(mount, prefix, metadata, attributes, version, version, {}, problems=metadata.problems)
    return None if group is None else GroupNode(mount, prefix, attributes, version)


def looks_like_chunk(name: str) -> bool:
    """Whether a name may end a chunk key, or is ``c``, the first segment of chunk keys of Zarr v3."""
    return name == "c" or name.removeprefix("c.").replace(".", "").isdecimal()


def above(path: str) -> Iterator[str]:
    """Paths of possible arrays above a chunk path, outermost first."""
    parts = path.split("/")
    first = len(parts) - 1
    while first > 1 and looks_like_chunk(parts[first - 1]):
        first -= 1
    return ("/".join(parts[:end]) for end in range(max(first, 1), len(parts)))


def described(unserved: Sequence[UnservedEntry], most: int = 20) -> list[str]:
    """A sentence for each thing that is not served, of many for the first."""
    more = [f"{len(unserved) - most} more are not served"] if len(unserved) > most else []
    return [*map(str, unserved[:most]), *more]


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _joined(versions: Sequence[str | None]) -> str:
    return "+".join(version or "-" for version in versions)


def _versions_of(stored: Sequence[StoredValue | None]) -> list[str | None]:
    return [None if value is None else value.version for value in stored]
