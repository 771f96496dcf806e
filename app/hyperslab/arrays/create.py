"""Creating and deleting nodes, and changing their attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from hyperslab.arrays import consolidated
from hyperslab.arrays.access import check_not_assumed, check_writable
from hyperslab.arrays.attributes import (
    attribute_difference,
    attributes_text,
    split_definition,
    with_dimension_names,
)
from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.delete import Kept, refuse_hidden, refuse_others, refuse_v3, remove
from hyperslab.arrays.documents import put_document
from hyperslab.arrays.lease import Turn, alone
from hyperslab.arrays.listing import V3
from hyperslab.arrays.nodes import ArrayNode, BrokenNode, GroupNode, MountedStore
from hyperslab.arrays.orphans import check_free, clear_orphans
from hyperslab.arrays.patch import plan_attributes, put_attributes
from hyperslab.arrays.read import Reader
from hyperslab.arrays.write import node_lock
from hyperslab.engine.array_match import first_difference
from hyperslab.engine.metadata import MAX_ARRAY_BYTES, ArrayMetadata, dump_json
from hyperslab.engine.new_array import new_document
from hyperslab.errors import (
    BadDefinition,
    BadPath,
    NodeExists,
    NodeNotFound,
    UnsupportedFormat,
    WriteConflict,
    WrongKind,
)
from hyperslab.storage.base import ABSENT, Absent, VersionConflict
from hyperslab.storage.keys import as_prefix, normalise_path, prefixes

Mode = Literal["create", "open", "replace"]
"""``create`` fails where anything is there (zarr-python's ``w-``), ``open`` takes what fits (``a``), ``replace``
deletes it (``w``)."""

NodeCheck = Callable[[Node | BrokenNode | None], None]
"""Given the node as it is now (None: nothing there); raises `errors.PreconditionFailed`."""

_GROUP_DOCUMENT = {"zarr_format": 2}
_DOCUMENT_NAMES = frozenset({".zarray", ".zgroup", ".zattrs", ".zmetadata", V3})
_MOST_TRIES = 32


@dataclass(frozen=True, slots=True)
class Made:
    """The node as it is now, whether this request has made it, and what it has left of what was there."""

    node: Node
    created: bool
    kept: Kept = field(default_factory=Kept)


class Creator:
    """Makes, changes and deletes nodes. An array exists from the moment its ``.zarray`` does, which is stored last."""

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self._catalog = catalog
        self._reader = reader

    def create_array(
        self,
        path: str,
        definition: Mapping[str, Any],
        *,
        mode: Mode = "create",
        foreign: bool = False,
        check: NodeCheck | None = None,
    ) -> Made:
        """Make an array as ``definition`` says (the members of a node document), with all its ancestors. What replaces
        takes nodes of Zarr v2 away, and where ``foreign`` all other keys too.

        Raises `BadDefinition` before anything is stored, `NodeExists` where mode and what is there do not go together.
        """
        attributes, members = split_definition(definition)

        def fits(node: Node) -> None:
            if not isinstance(node, ArrayNode):
                raise NodeExists(node.path, "group", "kind", "array", "group")
            difference = first_difference(members, node.metadata)
            if difference is None:
                names, rank = definition.get("dimension_names"), len(node.metadata.shape)
                difference = attribute_difference(with_dimension_names(attributes, names, rank), node.attributes)
            if difference is not None:
                raise NodeExists(node.path, "array", *difference)

        if mode == "open" and self._exists(path):  # then a few members may stand for all
            return self._open(path, fits, check)
        document = new_document(members)
        metadata = ArrayMetadata.from_document(document, ".zarray")
        attributes = with_dimension_names(attributes, definition.get("dimension_names"), len(metadata.shape))
        return self._create(path, metadata, attributes, mode=mode, fits=fits, check=check, foreign=foreign)

    def create_group(
        self,
        path: str,
        attributes: Mapping[str, Any],
        *,
        mode: Mode = "create",
        foreign: bool = False,
        check: NodeCheck | None = None,
    ) -> Made:
        """Make a group, with all its ancestors; ``foreign`` as for `create_array`."""

        def fits(node: Node) -> None:
            if not isinstance(node, GroupNode):
                raise NodeExists(node.path, "array", "kind", "group", "array")
            difference = attribute_difference(attributes, node.attributes)
            if difference is not None:
                raise NodeExists(node.path, "group", *difference)

        return self._create(path, None, attributes, mode=mode, fits=fits, check=check, foreign=foreign)

    def delete(
        self, path: str, *, recursive: bool = False, foreign: bool = False, check: NodeCheck | None = None
    ) -> Kept:
        """Remove a node, also one that is broken, and if ``recursive`` all nodes below it; else `NodeExists` is raised
        where any key is not the node's own. Keys that are not of Zarr v2 stay unless ``foreign``; returns which.

        Its document goes first: what is left when the process is killed half way is no node any more.
        """
        mount, rest = self._locate(path)
        prefix = as_prefix(rest)
        with node_lock(mount, prefix), alone(mount, prefix) as turn:  # an append under way ends first
            node = self._catalog.open_even_broken(path)
            if check is not None:
                check(node)
            check_not_assumed(mount, prefix, below=recursive)
            if isinstance(node, BrokenNode) and isinstance(node.error, UnsupportedFormat) and not foreign:
                raise node.error
            if not recursive:
                refuse_others(self._catalog, mount, prefix, node)
            kept = remove(self._catalog, mount, prefix, turn, recursive=recursive, foreign=foreign)
            consolidated.follow(mount, prefix, (), removed_below=True)
            return kept

    def change_attributes(self, path: str, patch: Mapping[str, Any], *, check: NodeCheck | None = None) -> Node:
        """Merge a JSON merge patch (RFC 7396) into the attributes; returns the node as it is then."""
        mount, rest = self._locate(path)
        prefix = as_prefix(rest)
        with node_lock(mount, prefix), alone(mount, prefix) if check is not None else nullcontext():
            for _ in range(_MOST_TRIES):
                node = self._catalog.open_node(path, fresh=True)
                if check is not None:
                    check(node)
                if put_attributes(mount, prefix, plan_attributes(mount, prefix, node, patch), self._catalog.versions):
                    return self._catalog.open_node(path, fresh=True)
        raise WriteConflict(prefix + ".zattrs", f"other writers came first {_MOST_TRIES} times")

    def _create(
        self,
        path: str,
        metadata: ArrayMetadata | None,
        attributes: Mapping[str, Any],
        *,
        mode: Mode,
        foreign: bool,
        fits: Callable[[Node], None],
        check: NodeCheck | None,
    ) -> Made:
        mount, rest = self._locate(path)
        prefix = as_prefix(rest)
        array_document = None if metadata is None else metadata.to_bytes()
        kept = Kept()
        _check_names(mount, rest)
        _check_readable(array_document, attributes)
        if not foreign:
            refuse_v3(mount, prefix, beside=False)
        self._check_ancestors(mount, rest)
        with node_lock(mount, prefix), alone(mount, prefix) as turn:  # documents of two creators must not mix
            node = self._documented(path) if mode == "replace" else self._existing(path)
            shown = self._shown_group(path) if node is None else None
            replace = node is not None
            if shown is not None and (array_document is not None or mode == "replace") and self._has_children(shown):
                replace = _may_replace(path, mode)
            if check is not None:
                check(node)
            if isinstance(node, Node) and mode != "replace":
                return self._taken(node, mode, fits)
            check_not_assumed(mount, prefix, below=replace)
            if not foreign:
                refuse_v3(mount, prefix)
            if replace and metadata is not None and not foreign:
                refuse_hidden(self._catalog, mount, prefix, node, metadata)
            try:
                if replace:
                    kept = remove(self._catalog, mount, prefix, turn, recursive=True, foreign=foreign)
                    if metadata is not None:
                        check_free(mount, prefix, metadata)  # others may have made a node below meanwhile
                elif metadata is not None:
                    clear_orphans(self._reader, mount, prefix, metadata, turn.check)
                elif shown is not None:  # the group gets its document, and keeps the attributes that it has
                    attributes = {**shown.attributes, **attributes}
                self._store_node(mount, prefix, array_document, attributes, turn)
            except VersionConflict as conflict:
                return self._lost_race(path, mode, fits, conflict)
            return Made(self._catalog.open_node(path, fresh=True), created=True, kept=kept)

    def _exists(self, path: str) -> bool:
        mount, rest = self._locate(path)
        refuse_v3(mount, as_prefix(rest), beside=False)
        return self._existing(path) is not None

    def _open(self, path: str, fits: Callable[[Node], None], check: NodeCheck | None) -> Made:
        node = self._catalog.open_node(path, fresh=True)
        if check is not None:
            check(node)
        fits(node)
        return Made(node, created=False)

    def _lost_race(self, path: str, mode: Mode, fits: Callable[[Node], None], conflict: VersionConflict) -> Made:
        """Another creator was faster: open what it made, where the mode allows (CONFORMANCE 199)."""
        node = self._existing(path)
        if node is None or mode == "replace":
            raise WriteConflict(conflict.key, "another writer is creating this node") from conflict
        return self._taken(node, mode, fits)

    def _taken(self, node: Node, mode: Mode, fits: Callable[[Node], None]) -> Made:
        """The node that is there already, which is good only where it is to be opened and fits."""
        if mode == "create":
            raise NodeExists(node.path, "array" if isinstance(node, ArrayNode) else "group")
        fits(node)
        return Made(node, created=False)

    def _store_node(
        self, mount: MountedStore, prefix: str, array_document: bytes | None, attributes: Mapping[str, Any], turn: Turn
    ) -> None:
        """Where nothing is; what makes it a node comes last."""
        ancestors = self._store_ancestors(mount, prefix)
        self._store_attributes(mount, prefix + ".zattrs", attributes, turn)
        key = prefix + (mount.metadata_key if array_document is not None else ".zgroup")
        data = array_document if array_document is not None else dump_json(_GROUP_DOCUMENT)
        version = put_document(mount, key, data, ABSENT)
        self._catalog.versions.note(mount, key, version)
        for group in ancestors:  # not before: where they cannot follow, all else is done
            consolidated.follow(mount, group, _documents(group, None))
        consolidated.follow(mount, prefix, _documents(prefix, array_document))

    def _store_attributes(self, mount: MountedStore, key: str, attributes: Mapping[str, Any], turn: Turn) -> None:
        """Store the attributes of a node that does not exist yet; what a dead creator may have left is replaced, and
        where that one's may still come, there are some already."""
        left = mount.store.stat(key)
        turn.check()  # they may be those of a node that another creator has made meanwhile
        if attributes or turn.inherited:
            condition: str | Absent = ABSENT if left is None else left.version
            version = put_document(mount, key, attributes_text(attributes), condition)
            self._catalog.versions.note(mount, key, version)
        elif left is not None:
            mount.store.delete(key, if_version=left.version)

    def _store_ancestors(self, mount: MountedStore, prefix: str) -> list[str]:
        """Every ancestor becomes a group that has none yet (CONFORMANCE 177); returns the prefixes of those made."""
        roots = prefixes(prefix)[:-1]
        found = mount.store.versions("", [root + ".zgroup" for root in roots]) if roots else []
        absent = [root for root, version in zip(roots, found, strict=True) if version is None]
        return [root for root in absent if self._try_put_group(mount, root + ".zgroup")]

    def _try_put_group(self, mount: MountedStore, key: str) -> bool:
        try:
            put_document(mount, key, dump_json(_GROUP_DOCUMENT), ABSENT)
        except VersionConflict:
            return False  # another creator has made the same group
        self._catalog.versions.forget(mount, key.removesuffix(".zgroup"), documents=True)
        return True

    def _check_ancestors(self, mount: MountedStore, rest: str) -> None:
        """Nothing can be below an array (CONFORMANCE 180)."""
        for above in prefixes(rest)[:-1]:
            node = self._existing(mount.path(above))
            if isinstance(node, ArrayNode):
                raise WrongKind(node.path, "array", "group")

    def _shown_group(self, path: str) -> GroupNode | None:
        """The group that only its children show, or that is the root of the store."""
        try:
            node = self._catalog.open_node(path)
        except NodeNotFound:
            return None
        return node if isinstance(node, GroupNode) else None

    def _has_children(self, group: GroupNode) -> bool:
        return bool(self._catalog.some_children(group, 1))

    def _existing(self, path: str) -> Node | None:
        """As `_documented`; raises what is wrong with one that is broken."""
        node = self._documented(path)
        if isinstance(node, BrokenNode):
            raise node.error
        return node

    def _documented(self, path: str) -> Node | BrokenNode | None:
        """The node that a document makes; a group that only its children show does not count."""
        try:
            node = self._catalog.open_even_broken(path)
        except NodeNotFound:
            return None
        return None if isinstance(node, GroupNode) and node.implicit else node

    def _locate(self, path: str) -> tuple[MountedStore, str]:
        mount, rest = self._catalog.locate(path)
        check_writable(mount)
        return mount, rest


def _check_names(mount: MountedStore, rest: str) -> None:
    """No node may have the name of a document: the one above it could not be read any more."""
    for name in rest.split("/"):
        if name in (*_DOCUMENT_NAMES, mount.metadata_key):
            raise BadPath(rest, f"{name!r} is the name of a metadata document")


def _check_readable(array_document: bytes | None, attributes: Mapping[str, Any]) -> None:
    """Raise `BadDefinition` for documents so large that nobody would read them back."""
    attributes_text(attributes)
    if array_document is not None and len(array_document) > MAX_ARRAY_BYTES:
        raise BadDefinition("document", f"{len(array_document)} bytes of JSON, the limit is {MAX_ARRAY_BYTES}")


def _may_replace(path: str, mode: Mode) -> bool:
    """For a group that only its children show: True, or `NodeExists` is raised where the mode does not allow it."""
    if mode != "replace":
        raise NodeExists(normalise_path(path), "group")
    return True


def _documents(prefix: str, array_document: bytes | None) -> tuple[str, str]:
    return prefix + (".zgroup" if array_document is None else ".zarray"), prefix + ".zattrs"
