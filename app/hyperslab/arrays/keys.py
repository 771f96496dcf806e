"""Key reader: stored keys byte for byte, and generated documents for plain Zarr clients."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from hyperslab.arrays.catalog import Catalog, Node, above, looks_like_chunk
from hyperslab.arrays.extent import OWN_MEMBER
from hyperslab.arrays.nodes import V3, ArrayNode, GroupNode, MountedStore, without_unread
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.read import Reader
from hyperslab.cache import VersionedCache
from hyperslab.engine.jsontext import dump_in_pieces, dump_json
from hyperslab.engine.metadata import MAX_CONSOLIDATED_BYTES, parse_group
from hyperslab.engine.schema import opens_in_zarr3
from hyperslab.engine.selection import normalise
from hyperslab.errors import (
    BadMetadata,
    BadPath,
    BrokenData,
    ChangedWhileRead,
    FormNotFound,
    KeyNotFound,
    NodeNotFound,
    StoreDenied,
    StoredTooLarge,
    StoreError,
)
from hyperslab.storage.base import StoredRange, StoredValue, VersionConflict
from hyperslab.storage.keys import as_prefix, join, normalise_path, prefixes

ARRAY: Final = ".zarray"
GROUP: Final = ".zgroup"
ATTRIBUTES: Final = ".zattrs"
CONSOLIDATED: Final = ".zmetadata"
DOCUMENTS: Final = (ARRAY, GROUP, ATTRIBUTES, CONSOLIDATED)
NAMES: Final = (*DOCUMENTS, V3)
"""Names of documents of both formats."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A stored key, or unless ``is_whole`` a range of its value: ``size`` bytes from ``offset`` on. ``modified`` in
    seconds since 1970; ``part``: bytes read together with the version. ``documents``: keys that decided the look-up,
    and their versions; None if incomplete."""

    mount: MountedStore
    key: str
    size: int
    version: str
    modified: float
    part: StoredRange | None = None
    offset: int = 0
    is_whole: bool = True
    documents: Mapping[str, str | None] | None = field(default_factory=dict)

    def prefetched(self, start: int, stop: int) -> memoryview:
        """The bytes of ``[start, stop)`` that were read together with the version; empty unless they include the
        first."""
        return memoryview(b"") if self.part is None else self.part.between(self.offset + start, self.offset + stop)


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A generated document, absent from the store; ``version``: a digest of its bytes."""

    mount: MountedStore | None
    key: str
    data: bytes
    version: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", hashlib.blake2b(self.data, digest_size=12).hexdigest())


class ListedKey(NamedTuple):
    """A stored key, or a folder of keys (``size`` None), by its path below the listed one."""

    path: str
    size: int | None = None
    modified: float = 0.0


class KeyReader:
    """Finds and reads keys; ``max_nodes`` and ``made_bytes`` limit the consolidated metadata made, and those kept."""

    consolidation_seconds = 300.0

    def __init__(
        self,
        catalog: Catalog,
        reader: Reader,
        *,
        max_nodes: int = 100_000,
        made_bytes: int = 2 * MAX_CONSOLIDATED_BYTES,
    ) -> None:
        self._catalog = catalog
        self._reader = reader
        self._max_nodes = max_nodes
        self._made = VersionedCache[bytes](made_bytes)

    def find_known(self, path: str, wanted: tuple[int, int] | None = None) -> StoredKey | None:
        """`find` for chunks of local arrays that were opened before and have not changed; else None."""
        array = self._catalog.last_known_array(path)
        if array is None or array.mount.is_remote or OWN_MEMBER in array.metadata.document:
            return None
        if self._catalog.open_known(array.path) is None:
            return None
        parent, _, name = path.rpartition("/")
        stored = self._stored(parent, name, wanted)
        if stored is None:
            raise KeyNotFound(path)
        return stored

    def find(self, path: str, wanted: tuple[int, int] | None = None) -> StoredKey | MadeKey:
        """The key at ``path`` (its first segment names the store). Of a chunk only the ``wanted`` bytes (start and
        stop) are read, in the same request as size and version if the store supports that.

        Raises `KeyNotFound` and `BadPath`, and `StoreError` if the store fails. A ``zarr.json`` is never generated:
        clients that find metadata of two formats choose the wrong one or neither.
        """
        parent, _, name = normalise_path(path).rpartition("/")
        if name == V3:
            with suppress(BrokenData):  # a broken document is still served
                node = self._catalog.find_node(parent)
                if node is None or node.zarr_format != 3:
                    raise KeyNotFound(path)
        newest = self._of_head(path, parent, name)
        if newest is not None:
            return newest
        stored = self._stored(parent, name, wanted)
        if stored is not None and not self._is_broken(stored, name):
            return stored
        made = self._make(parent, name) if name in DOCUMENTS else None
        if made is None:
            raise KeyNotFound(path)
        return MadeKey(self._catalog.locate(parent)[0] if parent else None, path, made)

    def _of_head(self, path: str, parent: str, name: str) -> MadeKey | None:
        """The document of an array with an open stream, or a chunk with items of its head."""
        mount = self._catalog.mounts.get(parent.partition("/")[0])
        if mount is None or mount.is_remote:  # streams are local
            return None
        is_chunk = looks_like_chunk(name)
        nodes = map(self._catalog.find_readable, above(path) if is_chunk else [parent] if name in (ARRAY, V3) else ())
        array = next((node for node in nodes if not isinstance(node, GroupNode)), None)
        if array is None or array.head is None or array.metadata.levels:  # other programs expect complete shards
            return None
        metadata, head = array.metadata, array.head
        if not is_chunk:
            data = dump_json({name: value for name, value in metadata.document.items() if name != OWN_MEMBER})
            return MadeKey(mount, path, data)
        coords = metadata.grid.parse_key(path[len(array.path) + 1 :])
        if coords is None or (coords[head.axis] + 1) * metadata.chunks[head.axis] <= head.start:
            return None
        chunk = np.full(metadata.chunks, metadata.fill, metadata.dtype.numpy, order=metadata.order)
        values, _ = self._reader.read(make_plan(array, normalise(metadata.grid.bounds(coords), metadata.shape)))
        chunk[tuple([slice(0, size) for size in values.shape])] = values
        return MadeKey(mount, path, metadata.codec.encode(metadata.dtype.clean(chunk)))

    def read_range(self, found: StoredKey, start: int, stop: int) -> bytes | memoryview:
        """Bytes ``[start, stop)`` of the version in ``found``; raises `ChangedWhileRead` if it was replaced."""
        place = (found.offset + start, found.offset + stop)
        try:
            parts = found.mount.store.get_ranges(found.key, [place], version=found.version)
        except VersionConflict as conflict:
            raise ChangedWhileRead(f"{found.key!r} was written while it was read") from conflict
        if parts is None:
            raise KeyNotFound(found.key)
        return parts[0]

    def index(self, path: str, *, may_be_chunk: bool = False) -> list[str]:
        """The directory listing of the node at ``path``, without chunks: its documents, and its children with a slash
        at the end. ``may_be_chunk``: the path ends like a chunk key, and is one unless all nodes above it are groups.
        Raises `NodeNotFound`."""
        for folder in above(path) if may_be_chunk else ():
            if not isinstance(self._catalog.find_readable(folder), GroupNode):
                raise NodeNotFound(path)
        node = self._catalog.open_node(path)
        names = [*self._documents(known(node, GROUP))] or [V3]
        if isinstance(node, GroupNode):
            names += [CONSOLIDATED] if GROUP in names else []
            names += [f"{child.name}/" for child in self._catalog.some_children(node, sys.maxsize)]
        return names

    def listing(self, path: str, depth: int | None) -> Iterator[ListedKey]:
        """The stored key or the folder at ``path``, which is first, and what lies in it down to a ``depth`` of 0, 1 or
        None (without end); generated documents are not listed. Raises `KeyNotFound`."""
        path = normalise_path(path)
        name, _, rest = path.partition("/")
        if not path:
            yield ListedKey("")
            yield from map(ListedKey, self._catalog.mounts if depth else ())
            return
        mount, prefix = self._catalog.mounts.get(name), as_prefix(rest)
        if mount is None:
            raise KeyNotFound(path)
        with suppress(KeyNotFound, BrokenData):
            key = self.find(path) if rest else None
            if isinstance(key, StoredKey):
                yield ListedKey("", key.size, key.modified)
                return
        folders = set[str]()
        entries = mount.store.list_prefix(prefix, [])
        if depth is not None:
            listed = mount.store.list_dir(prefix)
            entries = iter(listed.entries)
            folders = {folder for folder in listed.prefixes if not folder.startswith(".")}
            hidden = {*listed.prefixes} - folders
            folders |= {
                folder for folder in hidden if self._catalog.find_readable(mount.path(prefix + folder)) is not None
            }
        arrays: dict[str, ArrayNode | None] = {}
        entries = (entry for entry in entries if self._is_data(mount, entry.key, arrays))
        first = next(entries, None)
        if first is None and not folders and rest:
            parent, _, last = rest.rpartition("/")
            if last.startswith(".") or last not in mount.store.list_folders(as_prefix(parent), last, 1).names:
                raise KeyNotFound(path)  # else it is a folder that is empty
        yield ListedKey("")
        for entry in chain([] if first is None else [first], entries) if depth != 0 else ():
            inner, _, last = entry.key[len(prefix) :].rpartition("/")
            folders.update(folder.rstrip("/") for folder in prefixes(inner)[1:])
            yield ListedKey(join(inner, ARRAY if last == mount.metadata_key else last), entry.size, entry.modified)
        yield from map(ListedKey, sorted(folders) if depth != 0 else ())

    def is_known_chunk(self, path: str) -> bool:
        """Whether a path that ends like a chunk key is below a known array; sends no request to a remote store."""
        return self._catalog.last_known_array(path) is not None

    def _stored(self, parent: str, name: str, wanted: tuple[int, int] | None) -> StoredKey | None:
        store_name, _, inside = parent.partition("/")
        mount = self._catalog.mounts.get(store_name)
        if mount is None:
            return None
        key = join(inside, name)
        if name in (ARRAY, GROUP) and inside in mount.assume_metadata:
            return None
        if name == ARRAY:
            key = key.removesuffix(ARRAY) + mount.metadata_key
        elif not self._is_data(mount, key):
            return None
        try:
            part = None if wanted is None else mount.store.get_part(key, *wanted)
            entry = mount.store.stat(key) if wanted is None else None if part is None else part.entry
        except (BadPath, StoreError) as error:
            is_made = name in (GROUP, CONSOLIDATED) and mount.store.is_odd(key)
            if not is_made and not (isinstance(error, StoreDenied) and name in NAMES):
                raise
            if not is_made and not any(
                mount.store.document_versions("", [key, *mount.document_keys(as_prefix(inside))])
            ):
                raise
            return None  # as documents of nodes: see `Store.document_versions`
        if entry is None:
            return None
        return StoredKey(mount, entry.key, entry.size, entry.version, entry.modified, part)

    def _is_broken(self, stored: StoredKey, name: str) -> bool:
        """Whether a document is to be made from others although it is stored, as it cannot be read."""
        mount, key = stored.mount, stored.key
        if name not in (GROUP, CONSOLIDATED) or not mount.store.capabilities.listable:
            return False
        data = stored.prefetched(0, stored.size)
        value = StoredValue(data, stored.version) if len(data) == stored.size else None
        if name == CONSOLIDATED:
            return self._catalog.is_broken(mount, key, stored.version, value)
        try:
            value = mount.store.get(key) if value is None else value
            return value is not None and bool(parse_group(value.data, key).problems)
        except (BadMetadata, StoredTooLarge):
            return True

    def _is_data(self, mount: MountedStore, key: str, arrays: dict[str, ArrayNode | None] | None = None) -> bool:
        """Whether a key is no hidden file: a document, a chunk of an array, which may have such a name, or not hidden.
        ``arrays`` remembers the array above each folder, of many keys. Raises `BrokenData` without them."""
        folder, _, name = key.rpartition("/")
        if not (key.startswith(".") or "/." in key) or name in (*NAMES, mount.metadata_key):
            return True
        if arrays is None:
            array = self._catalog.array_above(mount, key)
        elif folder in arrays:
            array = arrays[folder]
        else:
            array = None
            with suppress(BrokenData):
                array = self._catalog.array_above(mount, key)
            arrays[folder] = array
        return array is not None and array.metadata.stored_grid.parse_key(key[len(array.prefix) :]) is not None

    def _make(self, parent: str, name: str) -> bytes | None:
        try:
            node = self._catalog.find_node(parent)
        except BrokenData:
            if self._stored(parent, ARRAY, None) is None:
                raise
            return None  # a broken array has its own document
        if node is None or node.zarr_format == 3:  # no generated documents of Zarr v2
            return None
        if isinstance(node, GroupNode) and name == CONSOLIDATED:
            return self._consolidated(node)
        document = self._documents(known(node, name)).get(name)
        return None if document is None else dump_json(document)

    def _documents(self, node: Node, find: Callable[[str], Node | None] | None = None) -> dict[str, Any]:  # noqa: ARG002
        """The Zarr v2 documents of a node by name, stored or generated; ``find`` opens nodes above it."""
        if node.zarr_format == 3:
            return {}
        own = (ARRAY, {**node.metadata.document}) if isinstance(node, ArrayNode) else (GROUP, {"zarr_format": 2})
        return dict([own, *([(ATTRIBUTES, {**node.attributes})] if node.attributes else [])])

    def _consolidated(self, group: GroupNode) -> bytes:
        """All present documents at and below a group. Broken ones are left out, also an array without whose attributes
        its values may mean something else. Raises `FormNotFound` as `_made_of_all`."""

        def make(nodes: Mapping[str, Node]) -> bytes:
            documents: dict[str, Any] = {}
            left_out: list[str] = []
            for path, node in nodes.items():
                inner = as_prefix(path)
                if without_unread(node)[1]:
                    left_out.append(inner + ATTRIBUTES)
                    if isinstance(node, ArrayNode):
                        continue
                try:
                    inside = self._documents(replace(node, attributes=without_unread(node)[0]), find_in(group, nodes))
                except FormNotFound:
                    continue
                if ARRAY in inside and not opens_in_zarr3(inside[ARRAY]):
                    left_out.append(inner + ARRAY)
                    continue
                documents |= {inner + name: document for name, document in inside.items()}
            named = {"left_out": left_out} if left_out else {}
            return dump_in_pieces({"zarr_consolidated_format": 1, "metadata": documents, **named}, depth=2)

        return self._made_of_all(group, make)

    def _made_of_all(self, group: GroupNode, make: Callable[[Mapping[str, Node]], bytes]) -> bytes:
        """Documents made of a group and all nodes below it, by relative path; remembered while their versions are the
        same. Raises `FormNotFound` if there are too many."""
        if self._made.any_version(group.path) is not None:
            document = self._made.get(group.path, self._collect(group, opens=False)[0])
            if document is not None:
                return document
        version, nodes = self._collect(group, opens=True)
        try:
            made = make(nodes)
            if version and not any(map(self._varies, nodes.values())):
                self._made.put(group.path, version, made, len(made))
        finally:
            free(nodes)
        return made

    def _varies(self, node: Node) -> bool:
        """Whether documents of a node may change while its own do not."""
        return isinstance(node, ArrayNode) and node.head is not None

    def _collect(self, group: GroupNode, *, opens: bool) -> tuple[str, dict[str, Node]]:
        """A version of all documents below a group, "" if others make nodes too; and if it ``opens`` them the nodes by
        relative path, each group before its children. Broken ones are left out with all below them."""
        nodes: dict[str, Node] = {"": group}
        left = [("", group, opens)]
        try:
            version = self._collect_into(nodes, left, group)
        except Exception:
            free(nodes)
            free(left)
            raise
        return version, {path: nodes[path] for path in sorted(nodes, key=lambda path: path.split("/"))}

    def _collect_into(self, nodes: dict[str, Node], left: list[tuple[str, GroupNode, bool]], group: GroupNode) -> str:
        """``left``: groups below that are not yet looked at, by relative path, and whether they are to be opened."""
        catalog, mount = self._catalog, group.mount
        self._check_count(group, catalog.count_folders(group, self._max_nodes + 1))
        seen, count, is_known = hashlib.blake2b(group.version.encode(), digest_size=12), 0, True
        end = time.monotonic() + self.consolidation_seconds
        while left:
            folder, inner, reads = left.pop()
            cursor: str | None = None
            while True:
                page = catalog.children(inner, limit=1000, cursor=cursor, attributes=True)
                count += len(page.nodes)
                self._check_count(group, count)
                if time.monotonic() > end:
                    raise FormNotFound(group.path, "consolidated metadata take too long to collect from this store")
                seen.update(repr([(folder, child.name, child.kind, child.documents) for child in page.nodes]).encode())
                is_known = is_known and all(any(child.documents.values()) for child in page.nodes)
                opened: Sequence[Node | None] = [None] * len(page.nodes)
                if reads:
                    map_names = mount.each if mount is not None else lambda work, items: [*map(work, items)]
                    opened = map_names(partial(catalog.open_child, inner), page.nodes)
                for child, node in zip(page.nodes, opened, strict=True):
                    path = join(folder, child.name)
                    if node is not None:
                        nodes[path] = node
                    if child.kind == "group" and isinstance(node, GroupNode | None):
                        located, rest = catalog.locate(join(group.path, path))
                        below = GroupNode(located, as_prefix(rest), {}, "") if node is None else node
                        left.append((path, below, reads and node is not None))
                cursor = page.next_cursor
                if cursor is None:
                    break
        return seen.hexdigest() if is_known else ""

    def _check_count(self, group: GroupNode, count: int) -> None:
        if count > self._max_nodes:
            reason = f"consolidated metadata are made of at most {self._max_nodes:,} nodes, and below it are more"
            raise FormNotFound(group.path, reason)


def known(node: Node, name: str) -> Node:
    """The node to make a document of: that of a group needs no attributes."""
    is_without = name in (GROUP, V3) and isinstance(node, GroupNode)
    return replace(node, attributes=without_unread(node)[0]) if is_without else node


def free(many: dict[str, Node] | list[Any]) -> None:
    """Let go of nodes one by one: the interpreter would let nothing else run while it frees very many at once."""
    pop = many.popitem if isinstance(many, dict) else many.pop
    while many:
        pop()


def find_in(group: GroupNode, nodes: Mapping[str, Node]) -> Callable[[str], Node | None]:
    """A function that finds a node by its path among those below a group."""
    return lambda path: nodes.get(path.removeprefix(group.path).lstrip("/"))
