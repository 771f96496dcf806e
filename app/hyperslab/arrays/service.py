"""Service: the use cases over the mounted stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hyperslab.arrays.append import Appender
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.chunks import ChunkCache
from hyperslab.arrays.create import Creator
from hyperslab.arrays.feed import ChangeFeed
from hyperslab.arrays.labels import Coordinates
from hyperslab.arrays.limits import BytesInFlight
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.read import Reader
from hyperslab.arrays.resize import Resizer
from hyperslab.arrays.write import Writer
from hyperslab.arrays.write_keys import KeyWriter

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Service:
    """The mounted stores with their readers and writers. To be closed after use."""

    catalog: Catalog
    reader: Reader
    coordinates: Coordinates
    writer: Writer
    creator: Creator
    resizer: Resizer
    appender: Appender
    key_writer: KeyWriter
    feeds: Mapping[str, ChangeFeed]
    cache: ChunkCache
    in_flight: BytesInFlight

    def close(self) -> None:
        """Stop the worker threads and close the stores."""
        for mount in self.catalog.mounts.values():
            mount.close()


def build(
    mounts: Iterable[MountedStore],
    *,
    cache_bytes: int = 256 * MIB,
    bytes_in_flight: int = 512 * MIB,
    slab_bytes: int = 8 * MIB,
    max_chunk_bytes: int = 2048 * MIB,
) -> Service:
    """The service over these stores. All sizes in bytes."""
    cache = ChunkCache(cache_bytes)
    catalog = Catalog(mounts)
    reader = Reader(cache, slab_bytes=slab_bytes, max_chunk_bytes=max_chunk_bytes)
    resizer = Resizer(catalog, reader)
    writer = Writer(catalog, reader)
    return Service(
        catalog=catalog,
        reader=reader,
        coordinates=Coordinates(catalog, reader),
        writer=writer,
        creator=Creator(catalog, reader),
        resizer=resizer,
        appender=Appender(catalog, reader),
        key_writer=KeyWriter(catalog, writer, resizer),
        feeds={name: ChangeFeed(catalog, mount) for name, mount in catalog.mounts.items()},
        cache=cache,
        in_flight=BytesInFlight(bytes_in_flight),
    )
