"""From a path to an open node: which store, array or group, and what its documents say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from hyperslab.arrays import listing
from hyperslab.arrays.extent import OWN_MEMBER
from hyperslab.arrays.nodes import ArrayNode, BrokenNode, Children, GroupNode, MountedStore
from hyperslab.arrays.versions import VersionBook
from hyperslab.cache import VersionedCache
from hyperslab.engine.metadata import ArrayMetadata, parse_attributes, parse_consolidated, parse_group
from hyperslab.errors import BadPath, BrokenData, NodeNotFound, StoreError, WrongKind
from hyperslab.storage.keys import normalise_path

_NODE_CACHE_BYTES = 64 << 20
_NODE_OVERHEAD = 4096  # a parsed node is some kilobytes of Python objects beside its documents

Node = ArrayNode | GroupNode


class Catalog:
    """All mounted stores, and the nodes in them; documents are parsed again only when their version has changed."""

    def __init__(self, mounts: Iterable[MountedStore], versions: VersionBook | None = None) -> None:
        self.mounts: Mapping[str, MountedStore] = {mount.name: mount for mount in mounts}
        self.versions = versions or VersionBook()
        self._nodes: VersionedCache[Node] = VersionedCache(_NODE_CACHE_BYTES)

    def locate(self, path: str) -> tuple[MountedStore, str]:
        """The store that a path lies in, and the rest of the path; raises `BadPath` and `NodeNotFound`."""
        name, _, rest = normalise_path(path).partition("/")
        mount = self.mounts.get(name)
        if mount is None:
            raise NodeNotFound(path)
        return mount, rest

    def open_node(self, path: str, *, fresh: bool = False) -> Node:
        """The array or group at ``path``; the empty path is the group of all stores.

        ``fresh`` asks the store even where ``recheck`` would not: writers do. Raises `NodeNotFound`, `BadPath`,
        `BadMetadata`, `CodecRefused` and `StoreError`.
        """
        if not normalise_path(path):
            return GroupNode("", None, "", {}, "root")
        mount, rest = self.locate(path)
        if rest in mount.assume_metadata:
            return _assumed(mount, rest)
        if fresh:
            self.versions.forget(mount, f"{rest}/" if rest else "", documents=True)
        return self._open_stored(mount, rest)

    def open_even_broken(self, path: str) -> Node | BrokenNode:
        """As `open_node` with ``fresh``, for those who remove it: documents that cannot be read make a node as well.

        Raises `BrokenData` only where the document that is broken is not the node's own.
        """
        try:
            return self.open_node(path, fresh=True)
        except BrokenData as error:
            mount, rest = self.locate(path)
            prefix = f"{rest}/" if rest else ""
            keys = _document_keys(mount, prefix)
            versions = zip(keys, self.versions.versions(mount, prefix, keys), strict=True)
            documents = {key: version for key, version in versions if version is not None}
            if not documents.keys() - {prefix + ".zattrs"}:
                raise
            return BrokenNode(_path(mount, rest), mount, prefix, error, documents)

    def open_known(self, path: str) -> Node | None:
        """As `open_node` where the node was parsed before and a look at its versions blocks on nothing; else None."""
        name, _, rest = normalise_path(path).partition("/")
        mount = self.mounts.get(name)
        if mount is None:
            return None
        prefix = f"{rest}/" if rest else ""
        keys = _document_keys(mount, prefix)
        if not (mount.store.capabilities.cheap_stat or self.versions.knows_all(mount, keys)):
            return None
        return self._nodes.get((mount.name, rest), _joined(self.versions.versions(mount, prefix, keys)))

    def unchanged(self, nodes: Sequence[Node], *, may_block: bool) -> bool:
        """Whether nodes of one store are still what they were when they were opened: one look-up for all of them.

        False also where that cannot be told so cheaply, or only by blocking unless that ``may_block``.
        """
        mount = nodes[0].mount
        if mount is None or any(node.mount is not mount for node in nodes):
            return False
        keys = [key for node in nodes for key in _document_keys(mount, node.prefix)]
        if not (may_block or mount.store.capabilities.cheap_stat or self.versions.knows_all(mount, keys)):
            return False
        found = self.versions.versions(mount, "", keys)
        return all(_joined(found[3 * i : 3 * i + 3]) == node.version for i, node in enumerate(nodes))

    def open_array(self, path: str, *, fresh: bool = False) -> ArrayNode:
        """The array at ``path``; also raises `WrongKind` where there is a group."""
        node = self.open_node(path, fresh=fresh)
        if isinstance(node, ArrayNode):
            return node
        raise WrongKind(node.path, "group", "array")

    def open_group(self, path: str) -> GroupNode:
        """The group at ``path``; also raises `WrongKind` where there is an array."""
        node = self.open_node(path)
        if isinstance(node, GroupNode):
            return node
        raise WrongKind(node.path, "array", "group")

    def children(self, group: GroupNode, *, limit: int, cursor: str | None = None) -> Children:
        """A page of at most ``limit`` children in order of name, after ``cursor`` (a name)."""
        if group.mount is None:
            return self._stores(limit, cursor)
        known = self._consolidated_at(group.mount, group.prefix)
        return listing.children(group.mount, group.prefix, known, limit=limit, cursor=cursor)

    def consolidated(self, mount: MountedStore, prefix: str) -> Mapping[str, Any]:
        """The documents of the store's ``.zmetadata`` by key; empty where it has none."""
        key = prefix + ".zmetadata"
        (version,) = self.versions.versions(mount, prefix, [key])
        if version is None:
            return {}
        stored = mount.store.get(key)
        return {} if stored is None else parse_consolidated(stored.data, key)

    def _consolidated_at(self, mount: MountedStore, prefix: str) -> dict[str, Any]:
        """What the ``.zmetadata`` of a group and of all groups above it know, by key in the store."""
        found: dict[str, Any] = {}
        for root in _ancestors(prefix.rstrip("/")):
            found |= {root + key: document for key, document in self.consolidated(mount, root).items()}
        return found

    def _stores(self, limit: int, cursor: str | None) -> Children:
        kinds = {}
        for name in self.mounts:
            try:
                kinds[name] = _kind(self.open_node(name))
            except (NodeNotFound, StoreError, BrokenData, BadPath):
                # a store that cannot list and has no documents at its root, or one that is down: the others are not
                kinds[name] = "group"
        return listing.page(kinds, limit=limit, cursor=cursor)

    def _open_stored(self, mount: MountedStore, rest: str) -> Node:
        prefix = f"{rest}/" if rest else ""
        found = self.versions.versions(mount, prefix, _document_keys(mount, prefix))
        if found[0] is None and found[2] is None:
            return self._open_undocumented(mount, rest, prefix)
        version = _joined(found)
        node = self._nodes.get((mount.name, rest), version)
        return node if node is not None else self._parse(mount, rest, prefix)

    def _parse(self, mount: MountedStore, rest: str, prefix: str) -> Node:
        """Read and parse the documents; the versions kept are those of the bytes that were read."""
        store = mount.store
        attributes = store.get(prefix + ".zattrs")
        array = store.get(prefix + mount.metadata_key)
        group = store.get(prefix + ".zgroup")
        if array is None and group is None:
            raise NodeNotFound(_path(mount, rest))
        stored = [array, attributes, group]
        versions = [None if s is None else s.version for s in stored]
        version = _joined(versions)
        documents = dict(zip(_document_keys(mount, prefix), versions, strict=True))
        attrs = {} if attributes is None else parse_attributes(attributes.data, prefix + ".zattrs")
        node: Node
        if array is not None:
            del documents[prefix + ".zgroup"]  # where an array is, nobody looks for a group
            metadata = ArrayMetadata.parse(array.data, prefix + mount.metadata_key)
            path, identity = _path(mount, rest), data_id(metadata)
            node = ArrayNode(path, mount, prefix, metadata, attrs, version, array.version, identity, documents)
        else:
            assert group is not None
            parse_group(group.data, prefix + ".zgroup")
            node = GroupNode(_path(mount, rest), mount, prefix, attrs, version, documents=documents)
        nbytes = sum(len(s.data) for s in stored if s is not None)
        self._nodes.put((mount.name, rest), version, node, 4 * nbytes + _NODE_OVERHEAD)
        return node

    def _open_undocumented(self, mount: MountedStore, rest: str, prefix: str) -> Node:
        """A node that only ``.zmetadata`` knows, or a group that only its children show."""
        node = self._open_consolidated(mount, rest, prefix)
        if node is not None:
            return node
        if mount.store.capabilities.listable and self._is_implicit_group(mount, rest, prefix):
            return GroupNode(_path(mount, rest), mount, prefix, {}, "implicit", implicit=True)
        raise NodeNotFound(_path(mount, rest))

    def _is_implicit_group(self, mount: MountedStore, rest: str, prefix: str) -> bool:
        """The root of a store is a group even while it is empty: that is where the first node will be created."""
        if not rest:
            return True
        return not self._inside_array(mount, rest) and listing.is_implicit_group(mount, prefix)

    def _open_consolidated(self, mount: MountedStore, rest: str, prefix: str) -> Node | None:
        """Data with only ``.zmetadata`` and chunks (CONFORMANCE 190), at the root of the store or any ancestor."""
        for root in _ancestors(rest):
            documents = self.consolidated(mount, root)
            inner = prefix[len(root) :]
            node = _from_consolidated(mount, rest, prefix, documents, inner)
            if node is not None:
                return node
        return None

    def _inside_array(self, mount: MountedStore, rest: str) -> bool:
        """Whether an ancestor is an array: then this is a directory of chunks, not a group."""
        keys = [root + mount.metadata_key for root in _ancestors(rest)[:-1]]
        return any(version is not None for version in self.versions.versions(mount, "", keys)) if keys else False


def data_id(metadata: ArrayMetadata) -> str:
    """A digest of all that decides what a chunk's bytes mean: everything but the shape (CONFORMANCE 273) and our own
    notes of appends."""
    members = {name: value for name, value in metadata.document.items() if name not in ("shape", OWN_MEMBER)}
    return hashlib.blake2b(repr(sorted(members.items(), key=lambda m: m[0])).encode(), digest_size=8).hexdigest()


def _document_keys(mount: MountedStore, prefix: str) -> list[str]:
    """The documents whose versions together are the version of a node."""
    return [prefix + mount.metadata_key, prefix + ".zattrs", prefix + ".zgroup"]


def _path(mount: MountedStore, rest: str) -> str:
    return f"{mount.name}/{rest}" if rest else mount.name


def _kind(node: Node) -> Literal["array", "group"]:
    return "array" if isinstance(node, ArrayNode) else "group"


def _joined(versions: list[str | None]) -> str:
    return "+".join(version or "-" for version in versions)


def _ancestors(rest: str) -> list[str]:
    """Prefixes from the root of the store down to the node itself: ``["", "a/", "a/b/"]``."""
    parts = rest.split("/") if rest else []
    return ["".join(part + "/" for part in parts[:depth]) for depth in range(len(parts) + 1)]


def _assumed(mount: MountedStore, rest: str) -> ArrayNode:
    document = mount.assume_metadata[rest]
    prefix = f"{rest}/" if rest else ""
    metadata = ArrayMetadata.from_document(document, prefix + mount.metadata_key)
    version = "assumed-" + hashlib.blake2b(metadata.to_bytes(), digest_size=8).hexdigest()
    return ArrayNode(_path(mount, rest), mount, prefix, metadata, {}, version, version, data_id(metadata), {})


def _from_consolidated(
    mount: MountedStore, rest: str, prefix: str, documents: Mapping[str, Any], inner: str
) -> Node | None:
    attributes = documents.get(inner + ".zattrs", {})
    array, group = documents.get(inner + ".zarray"), documents.get(inner + ".zgroup")
    text = repr((array, attributes, group)).encode()
    version = "consolidated-" + hashlib.blake2b(text, digest_size=8).hexdigest()
    if array is not None:
        metadata = ArrayMetadata.from_document(array, prefix + ".zmetadata")
        return ArrayNode(
            _path(mount, rest), mount, prefix, metadata, attributes, version, version, data_id(metadata), {}
        )
    if group is not None:
        return GroupNode(_path(mount, rest), mount, prefix, attributes, version)
    return None
