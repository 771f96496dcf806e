"""Keys of ``/zarr2`` and ``/zarr3``: all nodes in one Zarr format. Documents of nodes of the other format are
converted; chunks are the stored bytes, or a range of a shard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np

from hyperslab.arrays.catalog import Catalog, Node, above
from hyperslab.arrays.chunk_keys import elsewhere, parse_any
from hyperslab.arrays.chunks import Caching
from hyperslab.arrays.keys import (
    ARRAY,
    ATTRIBUTES,
    CONSOLIDATED,
    GROUP,
    NAMES,
    KeyReader,
    MadeKey,
    StoredKey,
    find_in,
    known,
)
from hyperslab.arrays.nodes import V3, ArrayNode, GroupNode, without_unread
from hyperslab.arrays.plan import MAX_VERSIONS, make_plan
from hyperslab.arrays.read import Reader
from hyperslab.arrays.shards import ShardReader
from hyperslab.engine.fill_value import format_fill_value
from hyperslab.engine.grid import Coords
from hyperslab.engine.jsontext import dump_in_pieces, dump_json, parse_object
from hyperslab.engine.metadata import MAX_CONSOLIDATED_BYTES
from hyperslab.engine.other_format import (
    DIMENSIONS,
    MISSING,
    dimensions_in,
    v2_attributes,
    v2_coords,
    v2_document,
    v2_missing,
    v2_separator,
    v3_attributes,
    v3_missing,
)
from hyperslab.engine.schema import opens_v3_in_zarr3
from hyperslab.engine.selection import normalise
from hyperslab.engine.v3 import document_of, new_group, whole_document
from hyperslab.errors import BadMetadata, BrokenData, FormNotFound, KeyNotFound
from hyperslab.storage.keys import normalise_path, prefixes

ZarrFormat = Literal[2, 3]

log = logging.getLogger("hyperslab.arrays")

_CONSOLIDATED: Final = "consolidated_metadata"

FORMATS: Final[tuple[ZarrFormat, ...]] = (2, 3)


class OtherFormatReader(KeyReader):
    """Finds and reads keys of all nodes in the format ``zarr_format``."""

    def __init__(self, catalog: Catalog, reader: Reader, zarr_format: ZarrFormat, **sizes: int) -> None:
        super().__init__(catalog, reader, **sizes)
        self._format = zarr_format

    def find(self, path: str, wanted: tuple[int, int] | None = None) -> StoredKey | MadeKey:
        """As `KeyReader.find`; keys of nodes in this format are as stored. Also raises `FormNotFound`."""
        path = normalise_path(path)
        parent, _, name = path.rpartition("/")
        if name in NAMES and (name == V3) != (self._format == 3):
            raise KeyNotFound(path)
        try:
            node = self._catalog.find_node(parent) if name in NAMES else self._array_of(path)
        except BrokenData as error:
            if str(vars(error).get("key")).endswith(V3) == (self._format == 3):
                return super().find(path, wanted)
            raise FormNotFound(path, str(error)) from error
        if name in NAMES:
            return self._document(node, path, wanted)
        if isinstance(node, ArrayNode) and node.zarr_format != self._format:
            array_document(node, self._format)
            if self._format == 2:
                return self._chunk(node, path, wanted)
        try:
            key = super().find(path, wanted)
        except KeyNotFound:
            if not isinstance(node, ArrayNode):
                raise
            coords = parse_any(node, path[len(node.path) + 1 :])
            moved = None if coords is None else self._object(node, coords, wanted)
            if moved is None:
                raise
            key = moved
        if node is None or isinstance(key, MadeKey):
            return key
        return replace(key, documents=node.documents or None)

    def _array_of(self, path: str) -> ArrayNode | None:
        """The array above a key. An array that was opened before is tried first, as each look-up in a remote store
        costs a request."""
        mount = self._catalog.mounts.get(path.partition("/")[0])
        if mount is None:
            return None
        folders = [*above(path)]
        arrays = [folder for folder in folders if isinstance(self._catalog.remembered(folder), ArrayNode)]
        for folder in (*arrays, *folders):
            node = self._catalog.find_node(folder)
            if isinstance(node, ArrayNode):
                return node
            if node is None and not arrays and mount.store.capabilities.listable:
                return None
        return None

    def _chunk(self, array: ArrayNode, path: str, wanted: tuple[int, int] | None) -> StoredKey | MadeKey:
        """A Zarr v3 chunk by its v2 key; that of a scalar is made if it is not stored."""
        metadata = array.metadata
        coords = v2_coords(metadata, path[len(array.path) + 1 :])
        if coords is None:
            raise KeyNotFound(path)
        if metadata.levels:
            piece = piece_of_shard(self._reader, array, coords, wanted)
        else:
            piece = self._object(array, coords, wanted)
        if piece is None and not metadata.rank:
            value = metadata.dtype.clean(np.full((), metadata.fill, metadata.dtype.numpy))
            return MadeKey(array.mount, path, metadata.codec.encode(value))
        if piece is None:
            raise KeyNotFound(path)
        return replace(piece, documents=array.documents or None)

    def _object(self, array: ArrayNode, coords: Coords, wanted: tuple[int, int] | None) -> StoredKey | None:
        """The stored object of an array at a position."""
        parent, _, name = array.mount.path(array.chunk_key(coords)).rpartition("/")
        key = self._stored(parent, name, wanted)
        moved = elsewhere(array, [coords]) if key is None else None
        return key if moved is None else self._object(moved, coords, wanted)

    def _document(self, node: Node | None, path: str, wanted: tuple[int, int] | None) -> StoredKey | MadeKey:
        name = path.rpartition("/")[2]
        if node is None:
            raise KeyNotFound(path)
        unread = without_unread(node)[1] if isinstance(node, GroupNode) else ()
        if unread and name == ATTRIBUTES:
            raise FormNotFound(path, *unread)
        document: dict[str, Any] | None = None
        if node.zarr_format == self._format:
            key = super().find(path, wanted)
            if isinstance(node, ArrayNode):
                if name not in (V3, ARRAY) or not (node.metadata.problems or _CONSOLIDATED in node.metadata.document):
                    return key
            elif name != V3 or isinstance(key, MadeKey):
                return key
            elif not (unread or node.problems):
                if node.prefix:
                    return key
                stored = key.mount.store.get(key.key)
                document = None if stored is None else parse_object(stored.data, limit=MAX_CONSOLIDATED_BYTES)
                if document is None or _CONSOLIDATED in document:
                    return key
        if isinstance(node, GroupNode) and name == CONSOLIDATED:
            return MadeKey(node.mount, path, self._consolidated(node))
        if document is None:
            document = self._documents(known(node, name), self._catalog.find_readable).get(name)
        if document is None:
            raise KeyNotFound(path)
        data = self.with_inline(node, document) if isinstance(node, GroupNode) and name == V3 else dump_json(document)
        return MadeKey(node.mount, path, data)

    def _documents(self, node: Node, find: Callable[[str], Node | None] | None = None) -> dict[str, Any]:
        find = find or self._catalog.find_readable
        if self._format == 3:
            return {V3: self._v3_document(node, find)}
        if node.zarr_format == 2:
            return super()._documents(node)
        own: dict[str, Any] = {GROUP: {"zarr_format": 2}}
        attributes = v2_attributes(node.attributes, None)
        if isinstance(node, ArrayNode):
            document, attributes = self._v2_array(node, find)
            own = {ARRAY: document}
        return {**own, ATTRIBUTES: attributes} if attributes else own

    def _varies(self, node: Node) -> bool:
        """A document of v2 of an array of v3 may depend on its chunks: see `_v2_array`."""
        of_v3 = isinstance(node, ArrayNode) and node.zarr_format == 3 and node.axis_names is not None
        return (of_v3 and self._format == 2) or super()._varies(node)

    def _v2_array(self, array: ArrayNode, find: Callable[[str], Node | None]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The ``.zarray`` and the attributes of an array of v3.

        As xarray takes the fill value of v2 for missing values, it is what ``_FillValue`` says, or null. Raises
        `FormNotFound` if a chunk that is not stored needs the fill value, but of a scalar: see `_chunk`. Images keep
        theirs, for viewers.
        """
        metadata, document = array.metadata, array_document(array, 2)
        of_image = self._image_axes(array, find) is not None
        document["dimension_separator"] = v2_separator(metadata, of_image=of_image)
        names = array.axis_names if metadata.rank else ()  # xarray requires an empty list
        attributes = v2_attributes(array.attributes, names)
        missing, is_fill = v2_missing(attributes, metadata)
        if DIMENSIONS not in attributes or of_image:
            return document, attributes
        if not is_fill and metadata.rank and not stores_all_chunks(self._reader, array):
            reason = "xarray takes the fill value of Zarr v2 for missing values, and chunks that are not stored need it"
            raise FormNotFound(array.path, reason)
        if not is_fill:
            document["fill_value"] = format_fill_value(missing)
        if missing is not None:
            del attributes[MISSING]
        return document, attributes

    def _v3_document(self, node: Node, find: Callable[[str], Node | None]) -> dict[str, Any]:
        """A ``zarr.json``. An array of an image without dimension names gets those of the image's axes, from a group
        above it; ``find`` opens these groups."""
        if isinstance(node, GroupNode):
            attributes = v3_attributes(node.attributes, node.path.rpartition("/")[2])
            return new_group(node.attributes if node.zarr_format == 3 else attributes)
        names = node.dimension_names
        if names is None and node.zarr_format == 2:
            names = self._image_axes(node, find)
        return array_document(node, 3, names if names is None or len(names) == node.metadata.rank else None)

    def _image_axes(self, array: ArrayNode, find: Callable[[str], Node | None]) -> tuple[str, ...] | None:
        """Names of the axes of the image that an array is a level of, from a group above it; None if it is of none."""
        for root in reversed(prefixes(array.prefix)[:-1]):
            try:
                group = find(array.mount.path(root))
                names = None if group is None else dimensions_in(group.attributes, array.prefix[len(root) : -1])
            except BrokenData:
                return None
            if group is None or names is not None:
                return names
        return None

    def with_inline(self, group: GroupNode, document: Mapping[str, Any]) -> bytes:
        """The ``zarr.json`` of a group with consolidated metadata; without, and the log says so, if there are too many
        nodes."""

        def make(nodes: Mapping[str, Node]) -> bytes:
            metadata: dict[str, Any] = {}
            for path, node in nodes.items():
                is_group, unread = isinstance(node, GroupNode), without_unread(node)[1]
                if unread and not is_group:
                    continue
                made = replace(node, attributes={}) if unread else node
                try:
                    documents = self._v3_document(made, find_in(group, nodes)) if path else {}
                except FormNotFound:
                    continue
                if path and is_group:
                    metadata[path] = {**documents, **_consolidated({})}
                elif path and opens_v3_in_zarr3(documents):
                    metadata[path] = documents
            return dump_in_pieces({**document, **_consolidated(metadata)}, depth=3)

        try:
            return self._made_of_all(group, make)
        except FormNotFound as error:
            log.warning("%s", error)
            return dump_json(dict(document))


def array_document(
    array: ArrayNode, zarr_format: ZarrFormat, dimension_names: Sequence[str | None] | None = None
) -> dict[str, Any]:
    """The ``.zarray`` or ``zarr.json`` of an array; ``dimension_names`` are for an array of v2 as v3. Raises
    `FormNotFound` if the format cannot represent the array."""
    if array.zarr_format == zarr_format:  # zarr-python 3.1 refuses the null of its old releases
        document = whole_document(array.metadata)
        return {name: value for name, value in document.items() if name != _CONSOLIDATED}
    for problem in without_unread(array)[1]:
        raise FormNotFound(array.path, problem)
    try:
        if zarr_format == 2:
            return v2_document(array.metadata)
        named = array.dimension_names is not None
        attributes = v3_missing(array.attributes, array.metadata) if named else dict(array.attributes)
        return document_of(array.metadata, attributes, dimension_names)
    except (ValueError, BadMetadata) as error:
        raise FormNotFound(array.path, str(error)) from error


def forms(node: Node) -> tuple[ZarrFormat, ...]:
    """The Zarr formats of a node's documents, stored or converted, whichever chunks are stored."""
    formats: list[ZarrFormat] = []
    for zarr_format in FORMATS:
        try:
            if isinstance(node, ArrayNode):
                array_document(node, zarr_format)
                if zarr_format < node.zarr_format:  # of v2, xarray would take the fill value for missing values
                    attributes = v2_attributes(node.attributes, node.axis_names if node.metadata.rank else ())
                    if node.metadata.rank and DIMENSIONS in attributes and not v2_missing(attributes, node.metadata)[1]:
                        continue
            formats.append(zarr_format)
        except FormNotFound:
            continue
    return tuple(formats)


def stores_all_chunks(reader: Reader, array: ArrayNode) -> bool:
    """Whether every chunk is stored, by one look-up of all stored objects and the indexes of shards; False also if
    there are too many to look up, or some items are in an open stream."""
    plan = make_plan(array, normalise((), array.metadata.shape))
    if array.head is not None or plan.touched > (MAX_VERSIONS if array.mount.store.capabilities.listable else 1024):
        return False
    plan = reader.look_up(plan)
    versions = plan.versions or {}
    if None in versions.values() or not array.metadata.levels:
        return None not in versions.values()
    shards = ShardReader(plan.array, None, reader.cache, Caching.NEVER)
    return all(array.mount.each(lambda parts: shards.is_full(parts, versions[parts.coords]), [*plan.objects()]))


def piece_of_shard(
    reader: Reader, array: ArrayNode, coords: Coords, wanted: tuple[int, int] | None = None
) -> StoredKey | None:
    """A chunk as a byte range of its shard, with its ``wanted`` bytes (start and stop); None if it was never
    written."""
    place = ShardReader(array, None, reader.cache, Caching.NEVER).locate(coords, wanted)
    if place is None:
        moved = elsewhere(array, [array.metadata.stored_coords(coords)])
        return None if moved is None else piece_of_shard(reader, moved, coords, wanted)
    entry, (start, stop), part = place
    return StoredKey(
        array.mount,
        entry.key,
        stop - start,
        entry.version,
        entry.modified,
        part,
        start,
        is_whole=False,
        documents=array.documents or None,
    )


def _consolidated(metadata: dict[str, Any]) -> dict[str, Any]:
    return {_CONSOLIDATED: {"kind": "inline", "must_understand": False, "metadata": metadata}}
