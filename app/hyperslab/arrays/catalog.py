"""From a path to an open node: which store, array or group, and what its documents say."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from hyperslab.arrays import listing
from hyperslab.arrays.extent import OWN_MEMBER
from hyperslab.arrays.nodes import ArrayNode, BrokenNode, ChildInfo, ChildKind, Children, GroupNode, MountedStore
from hyperslab.arrays.versions import VersionBook
from hyperslab.cache import Vanished, VersionedCache
from hyperslab.engine.jsontext import dump_copy, parse_json
from hyperslab.engine.metadata import (
    MAX_CONSOLIDATED_BYTES,
    ArrayMetadata,
    parse_attributes,
    parse_consolidated,
    parse_group,
)
from hyperslab.errors import (
    BadMetadata,
    BadPath,
    BrokenData,
    NodeNotFound,
    StoredTooLarge,
    StoreError,
    UnsupportedFormat,
    WrongKind,
)
from hyperslab.storage.base import Stored
from hyperslab.storage.keys import as_prefix, normalise_path, prefixes

_NODE_CACHE_BYTES = 64 << 20
_NODE_OVERHEAD = 4096  # a parsed node is some kilobytes of Python objects beside its documents

_GATHERED_BYTES = 2 * MAX_CONSOLIDATED_BYTES
_TEXT_OVERHEAD = 150

Node = ArrayNode | GroupNode


class Catalog:
    """All mounted stores, and the nodes in them; documents are parsed again only when their version has changed."""

    def __init__(self, mounts: Iterable[MountedStore], versions: VersionBook | None = None) -> None:
        self.mounts: Mapping[str, MountedStore] = {mount.name: mount for mount in mounts}
        self.versions = versions or VersionBook()
        self._nodes: VersionedCache[Node] = VersionedCache(_NODE_CACHE_BYTES)
        self._gathered: VersionedCache[Mapping[str, bytes] | BadMetadata] = VersionedCache(_GATHERED_BYTES)

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
        if fresh:
            self.versions.forget(mount, as_prefix(rest), documents=True)
        if rest in mount.assume_metadata:
            return self._open_assumed(mount, rest)
        return self._open_stored(mount, rest)

    def open_even_broken(self, path: str) -> Node | BrokenNode:
        """As `open_node` with ``fresh``, for those who remove it: documents that cannot be read make a node as well.

        Raises `BrokenData` only where the document that is broken is not the node's own.
        """
        try:
            return self.open_node(path, fresh=True)
        except BrokenData as error:
            mount, rest = self.locate(path)
            prefix = as_prefix(rest)
            keys = _document_keys(mount, prefix)
            versions = zip(keys, self.versions.versions(mount, prefix, keys), strict=True)
            documents = {key: version for key, version in versions if version is not None}
            if isinstance(error, UnsupportedFormat):
                documents[error.key] = self.versions.versions(mount, prefix, [error.key])[0] or ""
            if not documents.keys() - {prefix + ".zattrs"} and not _is_at_fault(prefix + ".zattrs", error):
                raise
            return BrokenNode(mount.path(prefix), mount, prefix, error, documents)

    def open_known(self, path: str) -> Node | None:
        """As `open_node` where the node was parsed before and a look at its versions blocks on nothing; else None."""
        name, _, rest = normalise_path(path).partition("/")
        mount = self.mounts.get(name)
        if mount is None:
            return None
        prefix = as_prefix(rest)
        keys = _document_keys(mount, prefix)
        if mount.is_remote and not self.versions.knows_all(mount, keys):
            return None
        return self._nodes.get((mount.name, rest), _joined(self.versions.versions(mount, prefix, keys)))

    def remembered(self, path: str) -> Node | None:
        """The node at ``path`` as it was when it was last opened, if it lies in a store that is far; asks nobody."""
        mount, rest = self.locate(path)
        return self._nodes.any_version((mount.name, rest)) if mount.is_remote else None

    def unchanged(self, nodes: Sequence[Node], *, may_block: bool) -> bool:
        """Whether nodes of one store are still what they were when they were opened: one look-up for all of them.

        False also where that cannot be told so cheaply, or only by blocking though it must not (``may_block``).
        """
        mount = nodes[0].mount
        if mount is None or any(node.mount is not mount or not node.documents for node in nodes):
            return False
        if any(isinstance(node, GroupNode) and node.implicit for node in nodes):  # others may have left it empty
            return False
        known = {key: version for node in nodes for key, version in node.documents.items()}
        keys = [*known]
        if mount.is_remote and not (may_block or self.versions.knows_all(mount, keys)):
            return False
        return self.versions.versions(mount, "", keys) == [*known.values()]

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

    def children(
        self,
        group: GroupNode,
        *,
        limit: int,
        cursor: str | None = None,
        each: listing.Each = listing.in_turn,
        deadline: float | None = None,
    ) -> Children:
        """A page of at most ``limit`` children in order of name, after ``cursor`` (a name); ``each`` and ``deadline``
        are those of `listing.children`."""
        if group.mount is None:
            return self._stores(limit, cursor)
        problems: list[str] = []
        known = self._consolidated_at(group.mount, group.prefix, problems) | _assumed_documents(group.mount)
        found = listing.children(
            group.mount, group.prefix, known, limit=limit, cursor=cursor, each=each, deadline=deadline
        )
        nodes = tuple([_as_assumed(group, child) for child in found.nodes])
        return replace(found, nodes=nodes, problems=tuple(problems))

    def some_children(self, group: GroupNode, count: int) -> list[ChildInfo]:
        """The first ``count`` children, however long it takes to find them."""
        found: list[ChildInfo] = []
        cursor: str | None = None
        while len(found) < count:
            page = self.children(group, limit=count - len(found), cursor=cursor)
            found += page.nodes
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    def _consolidated_at(self, mount: MountedStore, prefix: str, problems: list[str]) -> dict[str, Any]:
        """What the ``.zmetadata`` of a group and of all groups above it know, by key in the store."""
        found: dict[str, Any] = {}
        for root, documents in self._consolidated(mount, prefix, problems):
            found |= {root + key: document for key, document in documents.items()}
        return found

    def _consolidated(
        self, mount: MountedStore, path: str, problems: list[str]
    ) -> Iterator[tuple[str, Mapping[str, bytes]]]:
        """The documents of each ``.zmetadata`` at a path and above, as text by key, with its prefix, from the root
        down. One that is broken adds to ``problems``, and is an error where nothing else says what the store holds.

        A far store is asked for all of them at once; of one that is near, and of one whose versions are remembered,
        each is read when the caller comes to it.
        """
        roots = prefixes(path)
        keys = [root + ".zmetadata" for root in roots]
        stored: Sequence[Stored | None] = [None] * len(keys)
        if mount.recheck == "always" and mount.is_remote:
            stored = mount.store.get_each(keys)
            versions = _versions_of(stored)
        else:
            versions = self.versions.versions(mount, "", keys)
        for root, key, version, found in zip(roots, keys, versions, stored, strict=True):
            try:
                documents = None if version is None else self._gathered_at(mount, key, version, found)
            except BadMetadata as error:
                if not mount.store.capabilities.listable:
                    raise
                problems.append(f"{error}; the documents of the nodes themselves are read instead")
                continue
            if documents is not None:
                yield root, documents

    def _gathered_at(
        self, mount: MountedStore, key: str, version: str, stored: Stored | None
    ) -> Mapping[str, bytes] | None:
        """The documents of a ``.zmetadata``, each as text, parsed once for each version of it; raises `BadMetadata`."""

        def load() -> tuple[Mapping[str, bytes] | BadMetadata, str, int]:
            found = mount.store.get(key, MAX_CONSOLIDATED_BYTES) if stored is None else stored
            if found is None:
                raise Vanished
            try:
                documents = {
                    name: dump_copy(document) for name, document in parse_consolidated(found.data, key).items()
                }
            except BadMetadata as error:
                return error, found.version, _NODE_OVERHEAD
            nbytes = sum(len(name) + len(text) + _TEXT_OVERHEAD for name, text in documents.items())
            return documents, found.version, nbytes

        try:
            known = self._gathered.load((mount.name, key), version, load).value
        except Vanished:
            return None
        if isinstance(known, BadMetadata):
            raise BadMetadata(known.key, known.member, known.reason)
        return known

    def _stores(self, limit: int, cursor: str | None) -> Children:
        kinds: dict[str, ChildKind] = {}
        for name in self.mounts:
            try:
                kinds[name] = _kind(self.open_node(name))
            except UnsupportedFormat:
                kinds[name] = "unsupported"
            except (NodeNotFound, StoreError, BrokenData, BadPath):
                # a store that cannot list and has no documents at its root, or one that is down: the others are not
                kinds[name] = "group"
        return listing.page(kinds, limit=limit, cursor=cursor)

    def _open_stored(self, mount: MountedStore, rest: str) -> Node:
        prefix = as_prefix(rest)
        keys = _document_keys(mount, prefix)
        stored = self.versions.read(mount, keys) if self._is_read_unseen(mount, rest, keys) else None
        found = self.versions.versions(mount, prefix, keys) if stored is None else _versions_of(stored)
        if found[0] is None and found[2] is None:
            return self._open_undocumented(mount, rest, prefix, has_attributes=found[1] is not None)
        if stored is not None:
            return self._parse(mount, rest, prefix, stored)
        node = self._nodes.get((mount.name, rest), _joined(found))
        return node if node is not None else self._parse(mount, rest, prefix, self.versions.read(mount, keys))

    def _open_assumed(self, mount: MountedStore, rest: str) -> ArrayNode:
        """An array whose document the operator has given; its attributes are those of the store."""
        prefix = as_prefix(rest)
        key = prefix + ".zattrs"
        node = self._nodes.get((mount.name, rest), _joined(self.versions.versions(mount, prefix, [key])))
        if isinstance(node, ArrayNode):
            return node
        (stored,) = self.versions.read(mount, [key])
        attributes = {} if stored is None else parse_attributes(stored.data, key)
        version = None if stored is None else stored.version
        metadata = ArrayMetadata.from_document(mount.assume_metadata[rest], prefix + mount.metadata_key)
        own = "assumed-" + hashlib.blake2b(metadata.to_bytes(), digest_size=8).hexdigest()
        node = ArrayNode(
            mount.path(prefix),
            mount,
            prefix,
            metadata,
            attributes,
            _joined([own, version]),
            own,
            data_id(metadata),
            {key: version},
        )
        size = _NODE_OVERHEAD + (0 if stored is None else 4 * len(stored.data))
        self._nodes.put((mount.name, rest), _joined([version]), node, size)
        return node

    def _is_read_unseen(self, mount: MountedStore, rest: str, keys: Sequence[str]) -> bool:
        """Whether looking up versions before the documents are read would cost a far store a trip more and spare
        nothing."""
        if not mount.is_remote or self._nodes.any_version((mount.name, rest)):
            return False
        return not self.versions.knows_all(mount, keys)

    def _parse(self, mount: MountedStore, rest: str, prefix: str, stored: Sequence[Stored | None]) -> Node:
        """Parse the documents, those of `_document_keys`; the versions kept are those of the bytes that were read."""
        array, attributes, group = stored
        if array is None and group is None:
            raise NodeNotFound(mount.path(prefix))
        versions = _versions_of(stored)
        version = _joined(versions)
        documents = dict(zip(_document_keys(mount, prefix), versions, strict=True))
        attrs = {} if attributes is None else parse_attributes(attributes.data, prefix + ".zattrs")
        node: Node
        if array is not None:
            del documents[prefix + ".zgroup"]  # where an array is, nobody looks for a group
            metadata = ArrayMetadata.parse(array.data, prefix + mount.metadata_key)
            path, identity = mount.path(prefix), data_id(metadata)
            node = ArrayNode(path, mount, prefix, metadata, attrs, version, array.version, identity, documents)
        else:
            assert group is not None
            problems = parse_group(group.data, prefix + ".zgroup").problems
            path = mount.path(prefix)
            node = GroupNode(path, mount, prefix, attrs, version, documents=documents, problems=problems)
        nbytes = sum(len(s.data) for s in stored if s is not None)
        self._nodes.put((mount.name, rest), version, node, 4 * nbytes + _NODE_OVERHEAD)
        return node

    def _open_undocumented(self, mount: MountedStore, rest: str, prefix: str, *, has_attributes: bool) -> Node:
        """A node that only ``.zmetadata`` knows, or a group that only its children show."""
        node = self._open_consolidated(mount, rest, prefix)
        if node is not None:
            return node
        if any(path.startswith(prefix) for path in mount.assume_metadata):
            return _implicit_group(mount, prefix, has_attributes=has_attributes)
        if mount.store.stat(prefix + listing.V3) is not None:
            raise UnsupportedFormat(mount.path(prefix), prefix + listing.V3)
        if mount.store.capabilities.listable and self._is_implicit_group(mount, rest, prefix):
            return _implicit_group(mount, prefix, has_attributes=has_attributes)
        raise NodeNotFound(mount.path(prefix))

    def _is_implicit_group(self, mount: MountedStore, rest: str, prefix: str) -> bool:
        """The root of a store is a group even while it is empty: that is where the first node will be created. So is a
        folder that there is no time to search to its end: its listing goes on."""
        if not rest:
            return True
        if self._inside_array(mount, rest):
            return False
        return listing.search(mount, prefix, time.monotonic() + listing.SEARCH_SECONDS) is not None

    def _open_consolidated(self, mount: MountedStore, rest: str, prefix: str) -> Node | None:
        """Data with only ``.zmetadata`` and chunks (CONFORMANCE 190), at the root of the store or any ancestor."""
        for root, documents in self._consolidated(mount, rest, []):
            node = _from_consolidated(mount, prefix, documents, prefix[len(root) :])
            if node is not None:
                return node
        return None

    def _inside_array(self, mount: MountedStore, rest: str) -> bool:
        """Whether an ancestor is an array: then this is a directory of chunks, not a group."""
        above = prefixes(rest)[:-1]
        if any(root.rstrip("/") in mount.assume_metadata for root in above):
            return True
        keys = [root + mount.metadata_key for root in above]
        return any(version is not None for version in self.versions.versions(mount, "", keys)) if keys else False


def data_id(metadata: ArrayMetadata) -> str:
    """A digest of all that decides what a chunk's bytes mean: everything but the shape (CONFORMANCE 273) and our own
    notes of appends."""
    members = {name: value for name, value in metadata.document.items() if name not in ("shape", OWN_MEMBER)}
    return hashlib.blake2b(repr(sorted(members.items(), key=lambda m: m[0])).encode(), digest_size=8).hexdigest()


def _document_keys(mount: MountedStore, prefix: str) -> list[str]:
    """The documents whose versions together are the version of a node."""
    return [prefix + mount.metadata_key, prefix + ".zattrs", prefix + ".zgroup"]


def _kind(node: Node) -> Literal["array", "group"]:
    return "array" if isinstance(node, ArrayNode) else "group"


def _joined(versions: list[str | None]) -> str:
    return "+".join(version or "-" for version in versions)


def _versions_of(stored: Sequence[Stored | None]) -> list[str | None]:
    return [None if each is None else each.version for each in stored]


def _is_at_fault(key: str, error: BrokenData) -> bool:
    return isinstance(error, BadMetadata | StoredTooLarge) and error.key == key


def _implicit_group(mount: MountedStore, prefix: str, *, has_attributes: bool) -> GroupNode:
    """A group without a ``.zgroup``; it may have attributes all the same."""
    array, attributes, group = _document_keys(mount, prefix)
    stored = mount.store.get(attributes) if has_attributes else None
    attrs = {} if stored is None else parse_attributes(stored.data, attributes)
    documents = {array: None, attributes: None if stored is None else stored.version, group: None}
    version = "implicit" + _joined([*documents.values()])
    return GroupNode(mount.path(prefix), mount, prefix, attrs, version, implicit=True, documents=documents)


def _as_assumed(group: GroupNode, child: ChildInfo) -> ChildInfo:
    """A child of a group in a store; whatever document it has, what the operator has given comes first."""
    assert group.mount is not None
    return ChildInfo(child.name, "array") if group.prefix + child.name in group.mount.assume_metadata else child


def _assumed_documents(mount: MountedStore) -> dict[str, Any]:
    """The documents that the operator has given, and those of the groups that they lie in, by key."""
    found: dict[str, Any] = {}
    for path, document in mount.assume_metadata.items():
        found |= {root + ".zgroup": {} for root in prefixes(path)[:-1]} | {as_prefix(path) + ".zarray": document}
    return found


def _from_consolidated(mount: MountedStore, prefix: str, documents: Mapping[str, bytes], inner: str) -> Node | None:
    found = [documents.get(inner + name) for name in (".zarray", ".zattrs", ".zgroup")]
    array, attributes, group = [None if text is None else parse_json(text, limit=len(text)) for text in found]
    attributes = attributes or {}
    text = repr((array, attributes, group)).encode()
    version = "consolidated-" + hashlib.blake2b(text, digest_size=8).hexdigest()
    if array is not None:
        metadata = ArrayMetadata.from_document(array, prefix + ".zmetadata")
        return ArrayNode(
            mount.path(prefix), mount, prefix, metadata, attributes, version, version, data_id(metadata), {}
        )
    if group is not None:
        return GroupNode(mount.path(prefix), mount, prefix, attributes, version)
    return None
