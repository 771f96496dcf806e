"""Creation and deletion of nodes, and changes of their attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from hyperslab.arrays import documents
from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.delete import (
    Remainder,
    clear_leftovers,
    complete,
    new_array,
    refuse_hidden,
    refuse_others,
    remove,
    unmark,
)
from hyperslab.arrays.documents import attributes_text, checked_attributes, merge_attributes, put_document
from hyperslab.arrays.extent import with_own
from hyperslab.arrays.lease import Permit, node_lease, node_lock, retried
from hyperslab.arrays.nodes import V3, ArrayNode, BrokenNode, GroupNode, MountedStore
from hyperslab.arrays.read import Reader
from hyperslab.engine.comparison import checked_document, first_difference
from hyperslab.engine.constraints import with_units, without_description
from hyperslab.engine.creation import MEMBERS, checked, requested_format
from hyperslab.engine.jsontext import dump_copy, dump_json, json_floats
from hyperslab.engine.metadata import MAX_ARRAY_BYTES, ArrayMetadata
from hyperslab.engine.v3 import new_group
from hyperslab.errors import BadDefinition, BadPath, NodeExists, NodeNotFound, WriteConflict, WrongKind, shown
from hyperslab.storage.base import ABSENT, Absent, VersionConflict
from hyperslab.storage.keys import normalise_path, prefixes

Mode = Literal["create", "open", "replace"]
"""``create`` fails if the node exists (zarr-python's ``w-``), ``open`` accepts one that fits (``a``), ``replace``
removes it first (``w``)."""

NodeCheck = Callable[[Node | BrokenNode | None], None]
"""Precondition on the present node (None: absent); raises `errors.PreconditionFailed`."""


@dataclass(frozen=True, slots=True)
class NewNode:
    """Result of a creation: the present node, whether this request created it, and what remains of the node before
    it."""

    node: Node
    created: bool
    kept: Remainder = field(default_factory=Remainder)


@dataclass(frozen=True, slots=True)
class _Definition:
    """The definition of a new node, and a check that raises `NodeExists` if an existing node differs. ``metadata`` is
    None for a group. In Zarr v3 the attributes are part of the same document."""

    zarr_format: int
    metadata: ArrayMetadata | None
    attributes: Mapping[str, Any]
    check_fits: Callable[[Node], None]


_OF_GROUP_DOCUMENTS = ("path", "children", "matches", "next_cursor", "links", "also", "problems", "multiscales", "kept")


class Creator:
    """Creates, changes and deletes nodes. An array exists once its document, which is stored last, exists."""

    def __init__(self, catalog: Catalog, reader: Reader) -> None:
        self._catalog = catalog
        self._reader = reader

    def create_node(
        self, path: str, definition: Mapping[str, Any], *, mode: Mode = "create", **options: Any
    ) -> NewNode:
        """`create_array` or `create_group` from a definition, which may be a whole node document, or a ``zarr.json``.
        Without a kind it is an array if it has members of one; else with ``open`` whatever there is, and a group."""
        if "node_type" in definition:
            node_type = definition["node_type"]
            if definition.get("kind", node_type) != node_type:
                raise BadDefinition("node_type", f"is {shown(node_type)}, and kind is {shown(definition['kind'])}")
            empty = {"node_type": node_type, "storage_transformers": []}
            rest = {name: value for name, value in definition.items() if empty.get(name, ...) != value}
            definition = {**rest, "kind": node_type}
        kind = definition.get("kind")
        if "kind" not in definition:
            is_array = bool(definition.keys() & ({*MEMBERS} - {"zarr_format"}))
            if mode == "open" and not is_array:
                self._catalog.locate(path)
                is_array = isinstance(self._catalog.find_node(path, fresh=True), ArrayNode)
            kind = "array" if is_array else "group"
        if kind == "array":
            return self.create_array(path, definition, mode=mode, **options)
        if kind != "group":
            raise BadDefinition("kind", f"expected array or group, found {shown(kind)}")
        members = {"kind", "attributes", "zarr_format", *(_OF_GROUP_DOCUMENTS if "links" in definition else ())}
        if unknown := sorted(set(definition) - members):
            raise BadDefinition(unknown[0], "not a member of a group: expected kind, zarr_format and attributes")
        attributes = checked_attributes(definition.get("attributes") or {})
        return self.create_group(path, attributes, zarr_format=definition.get("zarr_format"), mode=mode, **options)

    def create_array(
        self,
        path: str,
        definition: Mapping[str, Any],
        *,
        mode: Mode = "create",
        foreign: bool = False,
        check: NodeCheck | None = None,
        own: Mapping[str, Any] | None = None,
    ) -> NewNode:
        """Create an array from ``definition`` (the members of a node document), with all its ancestors. ``replace``
        removes existing nodes, and with ``foreign`` all other keys too. ``own``: items of our own member, see
        `with_own`.

        Raises `BadDefinition` before anything is stored, `NodeExists` if the mode does not allow the existing node.
        """
        definition = without_description(definition)
        attributes = {**checked_attributes({} if (sent := definition.get("attributes")) is None else sent)}
        names = definition.get("dimension_names")
        others = ("attributes", "kind", "dimension_names")
        members = {name: value for name, value in definition.items() if name not in others}
        zarr_format = requested_format(members)

        def check_fits(node: Node) -> None:
            if not isinstance(node, ArrayNode):
                raise NodeExists(node.path, "group", "kind", "array", "group")
            of_v2 = node.zarr_format == 2
            difference = first_difference(members if of_v2 else {**members, "dimension_names": names}, node.metadata)
            if difference is None:
                wanted = _with_dimension_names(attributes, names, node.metadata.rank) if of_v2 else attributes
                difference = _attribute_difference(wanted, node.attributes)
            if difference is not None:
                raise NodeExists(node.path, "array", *difference)

        if mode == "open" and (existing := self._opened(path, check, check_fits)) is not None:
            return existing  # also for partial definitions
        asked = {**members, "dimension_names": names} if zarr_format == 3 else members
        attributes = {**with_units(members, attributes, zarr_format)}
        metadata = with_own(checked(checked_document(asked, attributes)), **own or {})
        if zarr_format == 2:
            attributes = _with_dimension_names(attributes, names, metadata.rank)
        wanted = _Definition(zarr_format, metadata, attributes, check_fits)
        return self._create(path, wanted, mode, check, foreign=foreign)

    def create_group(
        self,
        path: str,
        attributes: Mapping[str, Any],
        *,
        zarr_format: int | None = None,
        mode: Mode = "create",
        foreign: bool = False,
        check: NodeCheck | None = None,
    ) -> NewNode:
        """Create a group, of Zarr v2 unless ``zarr_format`` is 3, with all its ancestors; ``foreign`` as for
        `create_array`."""
        made = requested_format({"zarr_format": zarr_format})

        def check_fits(node: Node) -> None:
            if not isinstance(node, GroupNode):
                raise NodeExists(node.path, "array", "kind", "group", "array")
            if zarr_format not in (None, node.zarr_format):
                raise NodeExists(node.path, "group", "zarr_format", zarr_format, node.zarr_format)
            difference = _attribute_difference(attributes, node.attributes)
            if difference is not None:
                raise NodeExists(node.path, "group", *difference)

        if mode == "open" and (existing := self._opened(path, check, check_fits)) is not None:
            return existing
        return self._create(path, _Definition(made, None, attributes, check_fits), mode, check, foreign=foreign)

    def _opened(self, path: str, check: NodeCheck | None, check_fits: Callable[[Node], None]) -> NewNode | None:
        """The node that is there already, if it fits; None if there is none, or only an implicit group. Nothing is
        stored, so the store need not be writable."""
        mount, _ = self._catalog.locate(path)
        node = self._catalog.find_node(path, fresh=True)
        if node is None:
            mount.check_writable()
        if node is None or (node.implicit and mount.is_writable):
            return None
        if check is not None:
            check(node)
        return _existing(node, "open", check_fits)

    def delete(
        self, path: str, *, recursive: bool = False, foreign: bool = False, check: NodeCheck | None = None
    ) -> Remainder:
        """Remove a node, even a broken one, and if ``recursive`` all nodes below it; else `NodeExists` is raised for
        keys that are not its own. Other keys than those of Zarr stay unless ``foreign``. Returns the remaining keys.

        The document is removed first: after a crash the rest is not a node any more.
        """
        mount, prefix = self._catalog.locate_writable(path)
        with node_lock(mount, prefix), node_lease(mount, prefix) as permit:  # wait for appends in progress
            try:
                node = self._catalog.open_even_broken(path)
            except NodeNotFound:
                complete(self._catalog, mount, prefix, permit)
                raise
            if check is not None:
                check(node)
            mount.check_not_assumed(prefix, below=recursive)
            if not recursive:
                refuse_others(self._catalog, mount, prefix, node)
            kept = remove(self._catalog, mount, prefix, permit, recursive=recursive, foreign=foreign)
            documents.update_copies(mount, prefix, (), removed_below=True)
            made = [key for key in kept.keys if key.endswith(f"/{V3}")]  # created meanwhile by other writers
            for key in made:
                self._store_groups(mount, key.removesuffix(V3), 3, again=True)
            if made:
                roots = {root for key in made for root in prefixes(key.rpartition("/")[0]) if root.startswith(prefix)}
                documents.update_copies(mount, prefix, [root + V3 for root in sorted(roots)])
            return kept

    def change_attributes(self, path: str, patch: Mapping[str, Any], *, check: NodeCheck | None = None) -> Node:
        """Apply a JSON merge patch (RFC 7396) to the attributes; returns the changed node."""
        mount, prefix = self._catalog.locate_writable(path)

        def merge() -> None:
            node = self._catalog.open_node(path, fresh=True)
            if check is not None:
                check(node)
            merge_attributes(mount, node, patch)

        with node_lock(mount, prefix), node_lease(mount, prefix) if check is not None else nullcontext():
            retried(prefix + ".zattrs", merge)
            return self._catalog.open_node(path, fresh=True)

    def _create(self, path: str, wanted: _Definition, mode: Mode, check: NodeCheck | None, *, foreign: bool) -> NewNode:
        mount, prefix = self._catalog.locate_writable(path)
        self._check_possible(mount, prefix, wanted)
        with node_lock(mount, prefix), node_lease(mount, prefix) as permit:  # keep documents of two creators apart
            old: Node | BrokenNode | None = None
            with suppress(NodeNotFound):
                replaces = mode == "replace"
                old = self._catalog.open_even_broken(path) if replaces else self._catalog.open_node(path, fresh=True)
            implicit = old if isinstance(old, GroupNode) and old.implicit else None
            node = old if implicit is None else None
            replace = node is not None
            if implicit is not None and (wanted.metadata is not None or mode == "replace"):
                replace = bool(self._catalog.some_children(implicit, 1))
                if replace and mode != "replace":
                    raise NodeExists(normalise_path(path), "group")
            if check is not None:
                check(node)
            if node is not None and not isinstance(node, BrokenNode) and mode != "replace":
                return _existing(node, mode, wanted.check_fits)
            mount.check_not_assumed(prefix, below=replace)
            if not foreign and replace and wanted.metadata is not None:
                refuse_hidden(self._catalog, mount, prefix, old, wanted.metadata)
            try:
                kept, marked = Remainder(), False
                array = None if wanted.metadata is None else new_array(mount, prefix, wanted.metadata)
                if replace:
                    kept = remove(self._catalog, mount, prefix, permit, recursive=True, foreign=foreign, replaces=True)
                if array is not None:  # another writer may have created a node below
                    marked = clear_leftovers(self._reader, array, permit.check, foreign=foreign)
                self._store_node(mount, prefix, wanted, None if replace else implicit, permit)
            except (NodeExists, VersionConflict) as conflict:
                if replace:
                    documents.update_copies(mount, prefix, (), removed_below=True)
                if isinstance(conflict, NodeExists):
                    raise
                # another creator was faster: open its node, if the mode allows
                made = self._catalog.find_node(path, fresh=True)
                if made is None or made.implicit or mode == "replace":
                    raise WriteConflict(conflict.key, "another writer is creating this node") from conflict
                return _existing(made, mode, wanted.check_fits)
            made = self._catalog.open_node(path, fresh=True)
            documents.update_copies_of(made, above=True, removed_below=replace)
            if marked:
                unmark(mount, prefix)
            return NewNode(made, created=True, kept=kept)

    def _check_possible(self, mount: MountedStore, prefix: str, wanted: _Definition) -> None:
        """Raise `BadPath` if a node of the path has the name of a document, which would make its parent unreadable;
        `BadDefinition` for documents above the size limit of reads; `WrongKind` below an array."""
        for name in prefix.split("/"):
            if name in (".zarray", *mount.document_names):
                raise BadPath(prefix.rstrip("/"), f"{name!r} is the name of a metadata document")
        inside = len(attributes_text(wanted.attributes))
        size = 0 if wanted.metadata is None else len(wanted.metadata.to_bytes())
        size -= inside if wanted.zarr_format == 3 else 0
        if size > MAX_ARRAY_BYTES:
            raise BadDefinition("document", f"{size} bytes of JSON, the limit is {MAX_ARRAY_BYTES}")
        for above in prefixes(prefix)[:-1]:
            node = self._catalog.find_node(mount.path(above), fresh=True)
            if isinstance(node, ArrayNode):
                raise WrongKind(node.path, "array", "group")

    def _store_node(
        self, mount: MountedStore, prefix: str, wanted: _Definition, implicit: GroupNode | None, permit: Permit
    ) -> None:
        """Store the documents of a new node: missing groups above it, its attributes, and last the document that makes
        it a node. Raises `VersionConflict` if another creator was faster."""
        attributes = wanted.attributes
        if implicit is not None and wanted.metadata is None:  # it keeps its attributes
            attributes = {**implicit.attributes, **attributes}
        self._store_groups(mount, prefix, wanted.zarr_format)
        left = mount.store.stat(prefix + ".zattrs")  # left by a crash, or of an implicit group
        permit.check()  # they may belong to another creator's node by now
        if wanted.zarr_format == 2:
            if attributes or permit.inherited:  # late attributes of the former holder then conflict
                condition: str | Absent = ABSENT if left is None else left.version
                put_document(mount, prefix + ".zattrs", attributes_text(attributes), condition)
            elif left is not None:
                mount.store.delete(left.key, if_version=left.version)
        if wanted.metadata is not None:
            name, text = mount.metadata_key, wanted.metadata.to_bytes()
        else:
            name, text = ".zgroup", _group_text(wanted.zarr_format, attributes)
        put_document(mount, prefix + (V3 if wanted.zarr_format == 3 else name), text, ABSENT)
        if wanted.zarr_format == 3 and left is not None:
            mount.store.delete(left.key, if_version=left.version)

    def _store_groups(self, mount: MountedStore, prefix: str, zarr_format: int, *, again: bool = False) -> None:
        """Store documents of groups above a new node that have none, in either format or in consolidated metadata.

        A group of Zarr v3 needs a document for its children. An existing group stays as it is, unless ``again``: it had
        a document a moment ago.
        """
        roots = prefixes(prefix)[:-1]
        versions = iter(mount.store.versions("", [root + name for root in roots for name in (".zgroup", V3)]))
        bare = [root for root, group, v3 in zip(roots, versions, versions, strict=True) if group is v3 is None]
        for root in bare:
            node = self._catalog.find_node(mount.path(root), fresh=True)
            if isinstance(node, ArrayNode) or (node is not None and not node.implicit):
                continue
            if zarr_format == 3 and not again and node is not None and self._catalog.some_children(node, 1):
                continue
            key = root + (V3 if zarr_format == 3 else ".zgroup")
            with suppress(VersionConflict):  # another creator has made the same group
                put_document(mount, key, _group_text(zarr_format, {}), ABSENT)


def _existing(node: Node, mode: Mode, check_fits: Callable[[Node], None]) -> NewNode:
    """The existing node; raises `NodeExists` unless the mode is ``open`` and the node fits."""
    if mode == "create":
        raise NodeExists(node.path, node.kind)
    check_fits(node)
    if node.mount is not None and node.mount.is_writable:
        documents.update_copies_of(node, above=True)
    return NewNode(node, created=False)


def _group_text(zarr_format: int, attributes: Mapping[str, Any]) -> bytes:
    return dump_copy(new_group(attributes)) if zarr_format == 3 else dump_json({"zarr_format": 2})


def _attribute_difference(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first attribute that differs: its name as a member of a node, the requested and the stored value."""
    for name, value in wanted.items():
        found = json_floats(stored.get(name))
        if name not in stored or found != value:
            return "dimension_names" if name == "_ARRAY_DIMENSIONS" else f"attributes.{name}", value, found
    return None


def _with_dimension_names(attributes: dict[str, Any], names: Any, rank: int) -> dict[str, Any]:
    """Attributes with dimension names in xarray's form."""
    if names is None:
        return attributes
    if not isinstance(names, list) or len(names) != rank or not all(isinstance(name, str) for name in names):
        raise BadDefinition("dimension_names", f"expected a list of {rank} strings")
    return {**attributes, "_ARRAY_DIMENSIONS": names}
