"""Writes of stored keys by plain Zarr clients: with the validation and locks of every other write."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

from hyperslab.arrays import documents
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.delete import check_free, chunk_spellings, mark_deletion, new_array, refuse_v3
from hyperslab.arrays.documents import KeyCheck, PutKey
from hyperslab.arrays.lease import Permit, node_lease, node_lock
from hyperslab.arrays.nodes import V3, ArrayNode, BrokenNode, GroupNode, Kind, MountedStore
from hyperslab.arrays.resize import Resizer
from hyperslab.arrays.update import TOO_LATE
from hyperslab.arrays.write import ChunkCheck, Writer
from hyperslab.engine.creation import check_usable
from hyperslab.engine.grid import Coords
from hyperslab.engine.metadata import (
    ArrayMetadata,
    parse_attributes,
    parse_consolidated,
    parse_group,
)
from hyperslab.engine.v3 import parse_document
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
from hyperslab.storage.base import ABSENT, VersionConflict
from hyperslab.storage.keys import as_prefix, prefixes


class KeyWriter:
    """Puts and deletes keys: valid metadata documents, and chunks that lie in an array's grid and decode."""

    def __init__(self, catalog: Catalog, writer: Writer, resizer: Resizer) -> None:
        self._catalog = catalog
        self._writer = writer
        self._resizer = resizer

    def known_memory(self, path: str) -> int | None:
        """Memory of `put` besides its data, for a chunk of the array as it was last found; None if none was."""
        _, _, name = self._locate(path)
        array = None if name else self._catalog.last_known_array(path)
        return 0 if name else None if array is None else self._writer.memory(array, 1)

    def memory(self, path: str) -> int:
        """As `known_memory`, of an array that is looked up."""
        mount, key, _ = self._locate(path)
        array = self._catalog.array_above(mount, key, fresh=True)
        return 0 if array is None else self._writer.memory(array, 1)

    def put(self, path: str, data: bytes | memoryview, check: KeyCheck | None = None) -> PutKey:
        """Store ``data`` unchanged under a key; outdated parts of consolidated metadata are corrected.

        Raises `BadDefinition` (with the member) and `BadBody` for invalid data, `BadPath` if the key is neither a
        metadata key nor a chunk key of an existing array, `NodeExists` if it would turn an array into a group or a
        group into an array.
        """
        mount, key, name = self._locate(path)
        if name:
            return self._put_document(mount, key, name, data, check)
        chunk = self._chunk(mount, key)
        if chunk is None:
            raise BadPath(key, "neither a metadata document nor a chunk of an array that is there")
        array, coords = chunk
        (before,) = mount.store.versions(array.prefix, [key])
        version = self._writer.write_stored(array.path, coords, data, _of_chunk(check))
        return PutKey(version, created=before is None)

    def delete(self, path: str, check: KeyCheck | None = None) -> bool:
        """Remove a key; False if it was absent."""
        mount, key, name = self._locate(path)
        if not name:
            chunk = self._chunk(mount, key)
            return chunk is not None and self._writer.delete_stored(chunk[0].path, chunk[1], _of_chunk(check))
        prefix = as_prefix(key.rpartition("/")[0])
        with node_lock(mount, prefix):
            before = mount.store.stat(key)
            if check is not None:
                check(before)
            shared = mount.has_replicas
            exact = before.version if before is not None and (shared or check is not None) else None
            array = self._array_at(mount, prefix) if name in (".zarray", V3) else None
            other = V3 if name == ".zarray" else mount.metadata_key  # the chunks may belong to its array too
            of_array = array is not None or name == ".zarray"
            if before is not None and of_array and mount.store.stat(prefix + other) is None:
                mark_deletion(mount, prefix, chunk_spellings(mount, prefix, array))
            try:
                removed = mount.store.delete(key, if_version=exact)
            except VersionConflict as conflict:
                raise WriteConflict(key, TOO_LATE) from conflict
            mount.versions.record(key, None)
            if name != ".zmetadata":
                documents.update_copies(mount, prefix, [prefix + name])
        return removed

    def _locate(self, path: str) -> tuple[MountedStore, str, str]:
        """The store, the key in it, and the Zarr name of a metadata document, else ``""``."""
        mount, key = self._catalog.locate(path)
        mount.check_writable()
        name = key.rpartition("/")[2]
        if name == mount.metadata_key:
            return mount, key, ".zarray"
        return mount, key, name if name in (".zgroup", ".zattrs", ".zmetadata", V3) else ""

    def _put_document(
        self, mount: MountedStore, key: str, name: str, data: bytes | memoryview, check: KeyCheck | None
    ) -> PutKey:
        prefix = as_prefix(key.rpartition("/")[0])
        sent = _parsed(key, name, data)
        for root in prefixes(prefix)[:-1]:
            outer = self._array_at(mount, root)
            if outer is not None:
                raise WrongKind(outer.path, "array", "group")
        if sent.kind is not None:
            mount.check_not_assumed(prefix)
        with node_lock(mount, prefix), node_lease(mount, prefix) if sent.kind else nullcontext(Permit()) as permit:
            before = mount.store.stat(key)
            if check is not None:
                check(before)
            if sent.kind is not None and (before is None or name == V3):
                self._check_kind(mount, prefix, name, sent)
            if sent.array is not None:
                version = self._change_shape(mount, prefix, sent.array, permit)
                if version is not None:
                    return PutKey(version, created=False)
            if sent.consolidated is not None:
                if name != V3:
                    refuse_v3(mount, prefix, coexisting=False)
                put = documents.put_consolidated(mount, key, data, sent.consolidated, check=check)
            else:
                # clearing for one document may not suffice for another
                exact = check is not None or sent.array is not None
                condition = None if not exact else ABSENT if before is None else before.version
                try:
                    put = PutKey(mount.store.put(key, data, if_version=condition), created=before is None)
                except VersionConflict as conflict:
                    raise WriteConflict(key, TOO_LATE) from conflict
                mount.versions.record(key, put.version)
            if name != ".zmetadata":
                documents.update_copies(mount, prefix, [prefix + name])
        return put

    def _change_shape(self, mount: MountedStore, prefix: str, new: ArrayMetadata, permit: Permit) -> str | None:
        """Prepare the put of another ``.zarray``. If an existing array of the same layout loses cells, they are cleared
        as in any shrink; returns the version after it. Else None: the document is still to be put, and cells outside a
        larger shape are cleared here, as the new document has no record of them."""
        array = self._array_at(mount, prefix)
        if array is None or _layout(new) != _layout(array.metadata):
            check_usable(new)
            return None
        if all(now >= before for now, before in zip(new.shape, array.metadata.shape, strict=True)):
            self._resizer.clear_beyond(array, permit)
            return None
        key = prefix + mount.metadata_key
        try:
            self._resizer.publish(array, new, permit)
        except VersionConflict as conflict:
            raise WriteConflict(key, "another writer came first") from conflict
        (version,) = mount.store.versions(prefix, [key])
        return version or ""

    def _check_kind(self, mount: MountedStore, prefix: str, name: str, sent: _SentDocument) -> None:
        """Prepare the put of a document that makes a node. A path names an array or a group, so a node of one kind must
        not hide one of the other. (Plain clients check before they create, and delete what they replace.) A
        ``zarr.json`` may join documents of v2 of the same node, which are then ignored."""
        if name != V3:
            refuse_v3(mount, prefix)
        path = mount.path(prefix)
        node: ArrayNode | BrokenNode | GroupNode | None
        try:
            node = self._catalog.open_even_broken(path)
        except NodeNotFound:
            node = None
        except BrokenData:  # a broken document above: decided by a listing
            node = GroupNode(mount, prefix, {}, "", implicit=True)
        kind = None if node is None else node.kind
        if isinstance(node, GroupNode) and node.implicit:
            shown = mount.store.capabilities.listable and self._catalog.some_children(node, 1)
            kind = "group" if shown else None
        if isinstance(node, BrokenNode) and name == V3 and prefix + V3 in node.documents:
            return  # unknown kind
        if kind is not None and kind != sent.kind:
            raise NodeExists(path, kind)
        if kind is None and sent.array is not None:
            check_free(new_array(mount, prefix, sent.array))

    def _array_at(self, mount: MountedStore, prefix: str) -> ArrayNode | None:
        """The array at a prefix; None if absent or unreadable, as this request may replace it."""
        node = self._catalog.find_readable(mount.path(prefix), fresh=True)
        return node if isinstance(node, ArrayNode) else None

    def _chunk(self, mount: MountedStore, key: str) -> tuple[ArrayNode, Coords] | None:
        """The array and the coordinates of a chunk key; None without an array."""
        array = self._catalog.array_above(mount, key, fresh=True)
        if array is None:
            return None
        grid = array.metadata.stored_grid
        coords = grid.parse_key(key[len(array.prefix) :])
        if coords is None:
            raise BadPath(key, f"not a chunk key of {array.path!r}, whose chunk grid is {grid.counts}")
        return array, coords


def _of_chunk(check: KeyCheck | None) -> ChunkCheck | None:
    """A chunk check from a key check."""
    return None if check is None else lambda _, entry: check(entry)


def _layout(metadata: ArrayMetadata) -> tuple[Any, ...]:
    """All metadata that affects the bytes of chunks, without our own members."""
    codecs = (metadata.compressor, metadata.filters)
    of_v3 = [metadata.document[name] for name in ("chunk_grid", "codecs")] if metadata.zarr_format == 3 else None
    keys = (metadata.grid.prefix, metadata.dimension_separator)
    return metadata.chunks, metadata.dtype.json, metadata.order, keys, codecs, of_v3


class _SentDocument(NamedTuple):
    """A document to be put: the ``kind`` of node that it makes, if any, and the documents of consolidated metadata, by
    their keys from there."""

    kind: Kind | None = None
    array: ArrayMetadata | None = None
    consolidated: Mapping[str, Any] | None = None


def _parsed(key: str, name: str, data: bytes | memoryview) -> _SentDocument:
    """The document, validated against its name. Errors describe the request, not stored data."""
    try:
        match name:
            case ".zarray":
                return _SentDocument("array", ArrayMetadata.parse(data, key, exact=True))
            case ".zattrs":
                parse_attributes(data, key)
                return _SentDocument()
            case ".zmetadata":
                return _SentDocument(consolidated=parse_consolidated(data, key))
            case ".zgroup":
                group = parse_group(data, key)
            case _:
                document = parse_document(data, key, exact=True)
                kind: Kind = "group" if document.array is None else "array"
                return _SentDocument(kind, document.array, document.consolidated)
    except BadMetadata as error:
        if error.member is not None:
            raise BadDefinition(error.member, error.reason) from error
        raise BadBody(f"not a {key.rpartition('/')[2]} document: {error.reason}") from error
    except CodecRefused as error:
        raise BadDefinition(f"codec {error.codec!r}", error.reason) from error
    if group.problems:
        raise BadDefinition("zarr_format", "expected 2")
    others = sorted(group.document.keys() - {"zarr_format"})
    if others:  # they are ignored where they are read [Zarr v2 specification, "Groups"]
        raise BadDefinition(others[0], "a .zgroup has no other member than zarr_format: put it into .zattrs")
    return _SentDocument("group")
