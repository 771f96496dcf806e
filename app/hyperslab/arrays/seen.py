"""Nodes and keys as a principal sees them who may not read all of a store.

A node that may be read is as it is, with all below it. A group that leads to such nodes is shown while one of them is
there, with nothing of its own: no attributes, no keys but documents made for it, and these children only. All else is
absent, whatever lies there, and no number or name of it is told.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hyperslab.access import View
from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.keys import CONSOLIDATED, GROUP, NAMES, KeyReader, ListedKey, MadeKey, StoredKey
from hyperslab.arrays.listing import KnownChildren
from hyperslab.arrays.nodes import V3, ChildInfo, Children, GroupNode, Kind
from hyperslab.arrays.other_format import FORMATS, OtherFormatReader
from hyperslab.arrays.read import Reader
from hyperslab.engine.jsontext import dump_json
from hyperslab.engine.v3 import new_group
from hyperslab.errors import BadPath, KeyNotFound, NodeNotFound, ReadForbidden
from hyperslab.storage.keys import join, normalise_path

MADE_BYTES: Final = 16 << 20
"""Memory for documents made of many nodes, of each view and route."""


class SeenCatalog(Catalog):
    """The nodes of a catalog that a view covers, and the groups that lead to them. It shares the caches."""

    def __init__(self, whole: Catalog, view: View) -> None:
        vars(self).update(vars(whole))
        self._whole = whole
        self.view = view

    def open_node(self, path: str, *, fresh: bool = False) -> Node:
        """As `Catalog.open_node`; `NodeNotFound` for what is not seen."""
        path = normalise_path(path)
        if self.view.covers(path):
            return super().open_node(path, fresh=fresh)
        if not path:
            return GroupNode(None, "", {}, "root")
        node = self._leading(path)
        if node is None or not any(self._visible(node)):
            raise NodeNotFound(path)
        return GroupNode(node.mount, node.prefix, {}, "leads", zarr_format=node.zarr_format)

    def open_known(self, path: str) -> Node | None:
        """As `Catalog.open_known`; None for a group that only leads to what is seen."""
        return super().open_known(path) if self.view.covers(path) else None

    def open_child(self, group: GroupNode, child: ChildInfo) -> Node | None:
        """As `Catalog.open_child`."""
        path = join(group.path, child.name)
        return super().open_child(group, child) if self.view.covers(path) else self.find_readable(path)

    def child_attributes(self, group: GroupNode, child: ChildInfo) -> Mapping[str, Any]:
        """As `Catalog.child_attributes`; none of a group that only leads to what is seen."""
        return super().child_attributes(group, child) if self.view.covers(join(group.path, child.name)) else {}

    def last_known(self, path: str) -> Node | None:
        """As `Catalog.last_known`; None for a group that only leads to what is seen."""
        return super().last_known(path) if self.view.covers(path) else None

    def children(
        self,
        group: GroupNode,
        *,
        limit: int,
        cursor: str | None = None,
        deadline: float | None = None,
        attributes: bool = False,
    ) -> Children:
        """As `Catalog.children`, of those that are seen."""
        if self.view.covers(group.path):
            return super().children(group, limit=limit, cursor=cursor, deadline=deadline, attributes=attributes)
        return KnownChildren(dict(self._visible(group))).page(limit=limit, cursor=cursor)

    def count_folders(self, group: GroupNode, most: int) -> int:
        """As `Catalog.count_folders`; of a group that only leads to what is seen, none is counted."""
        return super().count_folders(group, most) if self.view.covers(group.path) else 0

    def covers_key(self, path: str) -> bool:
        """Whether a key is of a node that is covered, or would be, and not a chunk of an array above it, of which the
        view covers some keys by their names."""
        segments = path.split("/")
        above = ("/".join(segments[:depth]) for depth in range(len(segments)))
        covered = next(filter(self.view.covers, above), None)
        if covered is None or covered == "" or self._whole.last_known(covered) is not None:
            return covered is not None
        mount, key = self.locate(path)
        array = self._whole.array_above(mount, key)
        return array is None or self.view.covers(array.path)

    def _leading(self, path: str) -> GroupNode | None:
        """A group that may lead to what is seen."""
        node = self._whole.find_readable(path) if self.view.leads_to(path) else None
        return node if isinstance(node, GroupNode) else None

    def _visible(self, group: GroupNode) -> Iterator[tuple[str, Kind]]:
        """Names and kinds of the children that are seen, of a group that leads to them."""
        names = self.view.next_names(group.path)
        kinds: Mapping[str, Kind | None]
        if group.mount is None:
            kinds = {name: self._whole.kind_of_store(name) for name in self.mounts if names is None or name in names}
        elif names is None:
            kinds = {child.name: child.kind for child in self._whole.some_children(group, sys.maxsize)}
        else:
            kinds = {name: self._kind(join(group.path, name)) for name in names}
        for name, kind in kinds.items():
            path = join(group.path, name)
            if kind is None:
                continue
            node = self._leading(path) if kind == "group" else None
            if self.view.covers(path) or (node is not None and any(self._visible(node))):
                yield name, kind

    def _kind(self, path: str) -> Kind | None:
        """The kind of the node at a path, also of one that cannot be read."""
        try:
            return self._whole.open_even_broken(path).kind
        except (NodeNotFound, BadPath):
            return None


class _SeenKeyReader(KeyReader):
    """Finds keys through a `SeenCatalog`; comes before the class of a reader."""

    _catalog: SeenCatalog
    _zarr_format: int | None = None

    def find(self, path: str, wanted: tuple[int, int] | None = None) -> StoredKey | MadeKey:
        """As `KeyReader.find`. Raises `ReadForbidden` for keys that are not documents of what is seen."""
        path = normalise_path(path)
        parent, _, name = path.rpartition("/")
        if name not in NAMES:
            if self._catalog.covers_key(path):
                return super().find(path, wanted)
            by_name = self._catalog.view.covers(path)  # as if the array above, which is not seen, were not there
            if by_name or self._catalog.find_node(path) is not None:  # else a group, which has a page
                raise KeyNotFound(path)
            raise ReadForbidden("read", path)
        if self._catalog.view.covers(parent):
            return super().find(path, wanted)
        node = self._catalog.find_node(parent)
        if not isinstance(node, GroupNode):
            raise KeyNotFound(path)
        made: bytes | None = None
        zarr_format = self._zarr_format or node.zarr_format
        if zarr_format == 3 and name == V3:
            reader = SeenOtherFormat(self._catalog, self._reader, 3)
            made = reader.with_inline(node, new_group({}))
        elif zarr_format == 2 and name == GROUP:
            made = dump_json({"zarr_format": 2})
        elif zarr_format == 2 and name == CONSOLIDATED:
            made = self._consolidated(node)
        if made is None:
            raise KeyNotFound(path)
        return MadeKey(node.mount, path, made)

    def listing(self, path: str, depth: int | None) -> Iterator[ListedKey]:
        """As `KeyReader.listing`."""
        path = normalise_path(path)
        if self._catalog.view.covers(path):
            yield from super().listing(path, depth)
            return
        node = self._catalog.find_node(path)
        if not isinstance(node, GroupNode):
            raise KeyNotFound(path)
        yield ListedKey("")
        for child in self._catalog.children(node, limit=sys.maxsize).nodes if depth != 0 else ():
            below = self.listing(join(path, child.name), None if depth is None else 0)
            yield from (entry._replace(path=join(child.name, entry.path)) for entry in below)


class SeenKeys(_SeenKeyReader):
    """The keys of ``/zarr``."""


class SeenOtherFormat(_SeenKeyReader, OtherFormatReader):
    """The keys of ``/zarr2`` or ``/zarr3``."""

    def __init__(self, catalog: SeenCatalog, reader: Reader, zarr_format: Any) -> None:
        super().__init__(catalog, reader, zarr_format, made_bytes=MADE_BYTES)
        self._zarr_format = zarr_format


def readers(catalog: SeenCatalog, reader: Reader) -> Mapping[str, KeyReader]:
    """Key readers by the names of their routes."""
    others = {f"zarr{zarr_format}": SeenOtherFormat(catalog, reader, zarr_format) for zarr_format in FORMATS}
    return {"zarr": SeenKeys(catalog, reader, made_bytes=MADE_BYTES), **others}


def seen_change(view: View, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The data of a change as a view shows it; None for what is not seen.

    An unknown change of a group that leads to what is covered may be one of the latter. It is told of the last group on
    the way whose name the rules have.
    """
    path = str(data["path"])
    if view.covers(path):
        return data
    if "unknown" not in data or not view.leads_to(path):
        return None
    named = ""
    for name in path.split("/"):
        if view.next_names(named) is None:
            break
        named = join(named, name)
    return {"path": named, "unknown": True}
