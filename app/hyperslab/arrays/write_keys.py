"""Writing a store's own keys, as plain Zarr clients do: through the same validation and locks as every other write."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

from hyperslab.arrays import consolidated, listing
from hyperslab.arrays.access import check_not_assumed, check_writable
from hyperslab.arrays.catalog import Catalog, Node
from hyperslab.arrays.delete import refuse_v3
from hyperslab.arrays.lease import Turn, alone
from hyperslab.arrays.nodes import ArrayNode, BrokenNode, Kind, MountedStore
from hyperslab.arrays.orphans import check_free
from hyperslab.arrays.resize import Resizer
from hyperslab.arrays.update import TOO_LATE
from hyperslab.arrays.write import ChunkCheck, KeyCheck, Writer, node_lock
from hyperslab.engine.grid import Coords
from hyperslab.engine.metadata import (
    ArrayMetadata,
    parse_attributes,
    parse_consolidated,
    parse_group,
    parse_json,
)
from hyperslab.errors import (
    BadBody,
    BadDefinition,
    BadMetadata,
    BadPath,
    BrokenData,
    CodecRefused,
    NodeExists,
    NodeNotFound,
    WriteConflict,
    WrongKind,
)
from hyperslab.storage.base import ABSENT, VersionConflict, WritersSafe
from hyperslab.storage.keys import as_prefix, prefixes

_GROUP, _ATTRIBUTES, _CONSOLIDATED = ".zgroup", ".zattrs", ".zmetadata"


@dataclass(frozen=True, slots=True)
class PutKey:
    """The version that a key has now, and whether it was there before."""

    version: str
    created: bool


class KeyWriter:
    """Puts and deletes keys: metadata documents that parse, and chunks that lie in the grid of an array and decode."""

    def __init__(self, catalog: Catalog, writer: Writer, resizer: Resizer) -> None:
        self._catalog = catalog
        self._writer = writer
        self._resizer = resizer

    def memory(self, path: str) -> int:
        """Bytes that `put` takes beside its data, where that is a chunk."""
        mount, key = self._locate(path)
        found = None if key.rpartition("/")[2] in self._documents(mount) else self._chunk(mount, key)
        return 0 if found is None else self._writer.memory(found[0], 1)

    def put(self, path: str, data: bytes | memoryview, check: KeyCheck | None = None) -> PutKey:
        """Store ``data`` under a key, exactly as it is; in a ``.zmetadata`` what is out of date is put right.

        Raises `BadDefinition` (with the member) and `BadBody` where it is not what the key stands for, `BadPath` where
        it is neither a metadata key nor a chunk key of an array that is there, `NodeExists` where it would make an
        array of a group or a group of an array.
        """
        mount, key = self._locate(path)
        above, _, name = key.rpartition("/")
        prefix = as_prefix(above)
        if name in self._documents(mount):
            return self._put_document(mount, prefix, name, data, check)
        array, coords = self._chunk(mount, key) or _no_chunk(key)
        (before,) = mount.store.versions(array.prefix, [key])
        version = self._writer.write_stored(array.path, coords, data, _of_chunk(check))
        return PutKey(version, created=before is None)

    def delete(self, path: str, check: KeyCheck | None = None) -> bool:
        """Remove a key; False where it was not there."""
        mount, key = self._locate(path)
        above, _, name = key.rpartition("/")
        prefix = as_prefix(above)
        if name in self._documents(mount):
            return self._delete_document(mount, prefix, key, check)
        found = self._chunk(mount, key)
        return found is not None and self._writer.delete_chunk(found[0].path, found[1], _of_chunk(check))

    def _locate(self, path: str) -> tuple[MountedStore, str]:
        mount, key = self._catalog.locate(path)
        check_writable(mount)
        return mount, key

    def _documents(self, mount: MountedStore) -> tuple[str, ...]:
        return (mount.metadata_key, _GROUP, _ATTRIBUTES, _CONSOLIDATED)

    def _put_document(
        self, mount: MountedStore, prefix: str, name: str, data: bytes | memoryview, check: KeyCheck | None
    ) -> PutKey:
        key = prefix + name
        document = _checked(mount, key, name, data)
        self._check_not_inside_array(mount, prefix)
        if name == _CONSOLIDATED:
            return self._put_consolidated(mount, prefix, data, document, check)
        shapes = name == mount.metadata_key
        creates = shapes or name == _GROUP
        if creates:
            check_not_assumed(mount, prefix)
        with node_lock(mount, prefix), alone(mount, prefix) if creates else nullcontext(Turn()) as turn:
            before = mount.store.stat(key)
            if check is not None:
                check(before)
            if creates and before is None:
                self._make_way(mount, prefix, document, "array" if shapes else "group")
            if shapes and self._cuts_off(mount, prefix, document, turn):
                return PutKey(self._shrink(mount, prefix, key, data, turn), created=False)
            # what was cleared for one document need not be all that another one leaves behind
            condition = None if check is None and not shapes else ABSENT if before is None else before.version
            try:
                version = mount.store.put(key, data, if_version=condition)
            except VersionConflict as conflict:
                raise WriteConflict(key, TOO_LATE) from conflict
            self._changed(mount, prefix, key)
        return PutKey(version, created=before is None)

    def _put_consolidated(
        self,
        mount: MountedStore,
        prefix: str,
        data: bytes | memoryview,
        documents: Mapping[str, Any],
        check: KeyCheck | None,
    ) -> PutKey:
        refuse_v3(mount, prefix, beside=False)
        with node_lock(mount, prefix):
            try:
                put = consolidated.put_gathered(mount, prefix, data, documents, check)
            finally:
                self._catalog.versions.forget(mount, prefix, documents=True)
        return PutKey(put.version, put.created)

    def _delete_document(self, mount: MountedStore, prefix: str, key: str, check: KeyCheck | None) -> bool:
        with node_lock(mount, prefix):
            before = mount.store.stat(key)
            if check is not None:
                check(before)
            try:
                shared = mount.store.capabilities.writers_safe is WritersSafe.REPLICAS
                exact = before is not None and (shared or check is not None)
                removed = mount.store.delete(key, if_version=before.version if before and exact else None)
            except VersionConflict as conflict:
                raise WriteConflict(key, TOO_LATE) from conflict
            self._changed(mount, prefix, key)
        return removed

    def _changed(self, mount: MountedStore, prefix: str, key: str) -> None:
        self._catalog.versions.forget(mount, prefix, documents=True)
        if not key.endswith(_CONSOLIDATED):
            consolidated.follow(mount, prefix, [key])

    def _cuts_off(self, mount: MountedStore, prefix: str, document: Mapping[str, Any], turn: Turn) -> bool:
        """Whether an array of the same layout is there and loses cells: then they must be cleared as in any shrink.
        Where it loses none, what lies beyond its shape is cleared here: the new document has no note of it."""
        array = self._array_at(mount, prefix)
        new = ArrayMetadata.from_document(document, prefix + mount.metadata_key)
        if array is None or _layout(new) != _layout(array.metadata):
            return False
        if any(now < before for now, before in zip(new.shape, array.metadata.shape, strict=True)):
            return True
        self._resizer.clear_beyond(array, turn)
        return False

    def _shrink(self, mount: MountedStore, prefix: str, key: str, data: bytes | memoryview, turn: Turn) -> str:
        array = self._array_at(mount, prefix)
        if array is None or not self._resizer.publish(array, ArrayMetadata.parse(data, key), turn):
            raise WriteConflict(key, "another writer came first")
        (version,) = mount.store.versions(prefix, [key])
        return version or ""

    def _make_way(self, mount: MountedStore, prefix: str, document: Mapping[str, Any], wanted: Kind) -> None:
        """Get ready for a first document. A path names an array or a group: one of one kind must not hide a node of the
        other. (Plain clients ask before they create, and delete what they replace.)"""
        refuse_v3(mount, prefix)
        kind = self._kind_at(mount, prefix)
        if kind is not None and kind != wanted:
            raise NodeExists(mount.path(prefix), kind)
        if kind is None and wanted == "array":
            metadata = ArrayMetadata.from_document(document, prefix + mount.metadata_key)
            check_free(mount, prefix, metadata)

    def _kind_at(self, mount: MountedStore, prefix: str) -> Kind | None:
        """What kind of node is there, also one that cannot be read; None for a group that shows no child."""
        node: Node | BrokenNode | None = None
        try:
            node = self._catalog.open_even_broken(mount.path(prefix))
        except NodeNotFound:
            return None
        except BrokenData:  # a document further up: then a listing has to say it
            pass
        if isinstance(node, BrokenNode):
            return node.kind
        if isinstance(node, ArrayNode):
            return "array"
        if node is not None and not node.implicit:
            return "group"
        return "group" if mount.store.capabilities.listable and listing.has_children(mount, prefix) else None

    def _array_at(self, mount: MountedStore, prefix: str) -> ArrayNode | None:
        """None where there is none, or a document that cannot be read: this very request may replace it."""
        try:
            return self._readable_array_at(mount, prefix)
        except BrokenData:
            return None

    def _readable_array_at(self, mount: MountedStore, prefix: str) -> ArrayNode | None:
        try:
            node = self._catalog.open_node(mount.path(prefix), fresh=True)
        except NodeNotFound:
            return None
        return node if isinstance(node, ArrayNode) else None

    def _check_not_inside_array(self, mount: MountedStore, prefix: str) -> None:
        for above in prefixes(prefix)[:-1]:
            array = self._array_at(mount, above)
            if array is not None:
                raise WrongKind(array.path, "array", "group")

    def _chunk(self, mount: MountedStore, key: str) -> tuple[ArrayNode, Coords] | None:
        """The array that a key may be a chunk of, and which; an array's name may itself look like one. None where there
        is no array."""
        for prefix in reversed(prefixes(key.rpartition("/")[0])):
            array = self._readable_array_at(mount, prefix)
            if array is None:
                continue
            coords = array.metadata.grid.parse_key(key[len(prefix) :])
            if coords is None:
                counts = array.metadata.grid.counts
                raise BadPath(key, f"not a chunk key of {array.path!r}, whose chunk grid is {counts}")
            return array, coords
        return None


def _no_chunk(key: str) -> NoReturn:
    if key.rpartition("/")[2] == "zarr.json":
        raise BadPath(key, "Zarr v3 cannot be written here, only v2: create with zarr_format=2")
    raise BadPath(key, "neither a metadata document nor a chunk of an array that is there")


def _of_chunk(check: KeyCheck | None) -> ChunkCheck | None:
    """To plain clients a chunk is a key as any other."""
    return None if check is None else lambda _, entry: check(entry)


def _layout(metadata: ArrayMetadata) -> tuple[Any, ...]:
    """All that decides what the bytes under a chunk's key mean; attributes of our own in the document do not."""
    codecs = (metadata.compressor, metadata.filters)
    return metadata.chunks, metadata.dtype.json, metadata.order, metadata.dimension_separator, codecs


def _checked(mount: MountedStore, key: str, name: str, data: bytes | memoryview) -> Mapping[str, Any]:
    """`_parsed`, whose errors here are about what was sent and not about what is stored."""
    try:
        return _parsed(mount, key, name, data)
    except BadMetadata as error:
        if error.member is not None:
            raise BadDefinition(error.member, error.reason) from error
        raise BadBody(f"not a {name} document: {error.reason}") from error
    except CodecRefused as error:
        raise BadDefinition(f"codec {error.codec!r}", error.reason) from error


def _parsed(mount: MountedStore, key: str, name: str, data: bytes | memoryview) -> Mapping[str, Any]:
    """The document, after checking that it is what its key says; of ``.zmetadata`` the documents that it holds."""
    if name == mount.metadata_key:
        return ArrayMetadata.parse(data, key).document
    if name == _GROUP:
        if parse_group(data, key).problems:
            raise BadMetadata(key, "zarr_format", "expected 2")
        document: Mapping[str, Any] = parse_json(data)
        return document
    if name == _ATTRIBUTES:
        return parse_attributes(data, key)
    return parse_consolidated(data, key)
