"""Chunks of an array that is no more: they must not become the data of the one that is made in its place.

A delete that is killed half way leaves them, and so does a plain client that removes only an array's document. To such
a client keys are just keys: if it puts the document back, it has its chunks back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hyperslab.arrays.catalog import data_id
from hyperslab.arrays.extent import LARGEST
from hyperslab.arrays.nodes import ArrayNode, MountedStore
from hyperslab.arrays.read import Reader
from hyperslab.arrays.update import ChunkWriter
from hyperslab.engine.grid import ChunkGrid, Coords
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.errors import NodeExists
from hyperslab.storage.base import Entry, remover
from hyperslab.storage.keys import prefixes


def clear_orphans(
    reader: Reader, mount: MountedStore, prefix: str, metadata: ArrayMetadata, check: Callable[[], None]
) -> None:
    """Remove what would be chunks of a new array, whatever shape it grows to, and nothing else.

    The caller holds the node lock, and has found no node here; ``check`` is called before each removal, and what it
    raises ends the work. Costs one listing, which is empty nearly always. Raises `NodeExists`, before anything is
    removed, where a node lies below: nothing can be below an array.
    """
    if not mount.store.capabilities.listable:
        return
    array = _new(mount, prefix, metadata)
    left = dict(_left(array))
    if not left:
        return
    _unlink(mount, {folder for coords in left for folder in _folders(array, coords)})
    listed = {coords: seen.version for coords, seen in left.items()} if remover(mount.store) is not None else None
    writer = ChunkWriter(array, reader.cache, reader.versions, listed)

    def remove(coords: Coords) -> None:
        check()
        if left[coords].removed:  # programs that read the store take it for a chunk
            writer.set_to_fill(coords)
        else:
            writer.delete(coords)

    reader.pool(array.mount).each(list(left), len(left), remove)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A key below a new array. ``removed``: it counts as absent."""

    version: str
    removed: bool


def check_free(mount: MountedStore, prefix: str, metadata: ArrayMetadata) -> None:
    """Raise `NodeExists` where a node lies below a new array, however deep; one listing."""
    if mount.store.capabilities.listable:
        for _ in _left(_new(mount, prefix, metadata)):
            pass


def _new(mount: MountedStore, prefix: str, metadata: ArrayMetadata) -> ArrayNode:
    return ArrayNode(mount.path(prefix), mount, prefix, metadata, {}, "", "", data_id(metadata), {})


def _left(array: ArrayNode) -> Iterator[tuple[Coords, _Seen]]:
    """The chunks that lie below, those outside the shape too: they would show when the array grows."""
    everywhere = every_chunk(array.metadata)
    for entry, removed in _listed(array.mount, array.prefix):
        key = entry.key[len(array.prefix) :]
        if not removed and key.rpartition("/")[2] in (array.mount.metadata_key, ".zgroup", "zarr.json"):
            raise NodeExists(array.path, "group", "children", "none", entry.key, [entry.key])
        coords = everywhere.parse_key(key)
        if coords is not None:
            yield coords, _Seen(entry.version, removed)


def _listed(mount: MountedStore, prefix: str) -> Iterator[tuple[Entry, bool]]:
    known = remover(mount.store)
    return known.list_all(prefix) if known is not None else ((e, False) for e in mount.store.list_prefix(prefix))


def every_chunk(metadata: ArrayMetadata) -> ChunkGrid:
    """The grid that has every chunk that an array could have, whatever shape it grows to."""
    rank = len(metadata.shape)
    return ChunkGrid((LARGEST,) * rank, (1,) * rank, metadata.dimension_separator)


def _folders(array: ArrayNode, coords: Coords) -> Iterator[str]:
    """Those that a chunk's key has below the array's own."""
    folder = array.metadata.grid.key(coords).rpartition("/")[0]
    return (array.prefix + below for below in prefixes(folder)[1:])


def _unlink(mount: MountedStore, folders: Iterable[str]) -> None:
    """Remove folders that are but links, as what they are: the chunks behind them belong to somebody else."""
    for folder in sorted(folders):
        if mount.store.is_link(folder):
            mount.store.delete_prefix(folder)
