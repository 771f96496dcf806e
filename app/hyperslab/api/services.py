"""The use cases, and the shared state of the HTTP layer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hyperslab.access import View
from hyperslab.api.admission import Admission
from hyperslab.api.metrics import Metrics
from hyperslab.api.middleware.access import Guard, Unseen
from hyperslab.api.middleware.replay import ResponseCache
from hyperslab.api.options import ApiOptions
from hyperslab.api.threads import Threads, WriteThreads
from hyperslab.arrays.keys import KeyReader
from hyperslab.arrays.labels import Coordinates
from hyperslab.arrays.other_format import FORMATS, OtherFormatReader
from hyperslab.arrays.seen import SeenCatalog, readers
from hyperslab.arrays.service import Service
from hyperslab.cache import VersionedCache
from hyperslab.errors import HyperslabError
from hyperslab.streams.service import Streams
from hyperslab.tiles.service import EncodedPicture, Tiles

VIEWS: Final = 32
"""Views whose catalogs are kept."""


@dataclass(frozen=True, slots=True)
class Services:
    """``keys``: key readers by the name of their route. ``view``: what is shown, None for everything."""

    service: Service
    streams: Streams
    tiles: Tiles
    keys: Mapping[str, KeyReader]
    options: ApiOptions
    threads: Threads
    writes: WriteThreads
    admission: Admission
    metrics: Metrics
    responses: ResponseCache
    guard: Guard
    view: View | None = None
    _seen: OrderedDict[str, Services] = field(default_factory=OrderedDict)

    def seen_by(self, view: View) -> Services:
        """The same as a view shows it; of many views, the last are kept."""
        services = self._seen.get(view.key)
        if services is None:
            catalog = SeenCatalog(self.service.catalog, view)
            reader = self.service.reader
            service = replace(self.service, catalog=catalog, coordinates=Coordinates(catalog, reader))
            keys = readers(catalog, reader)
            tiles = Tiles(catalog, reader, self.tiles.cache, max_bytes=self.options.max_tile_bytes)
            services = self._seen[view.key] = replace(self, service=service, keys=keys, tiles=tiles, view=view)
            if len(self._seen) > VIEWS:
                self._seen.popitem(last=False)
        self._seen.move_to_end(view.key)
        return services

    async def unless_seen(self, seen: Services, unseen: Unseen, error: HyperslabError) -> HyperslabError:
        """An error, or that of what is not seen if no node is."""
        try:
            node = await self.threads.run(seen.service.catalog.find_readable, unseen.path)
        except HyperslabError:  # nothing is known of it, so nothing is told
            node = None
        return unseen.error if node is None else error

    def close(self) -> None:
        """Finish what runs, and close the service."""
        self.writes.close()
        self.streams.close()
        self.threads.close()
        self.service.close()


def make_services(service: Service, options: ApiOptions) -> Services:
    """The services of an array service; their statistics are among the metrics."""
    remote = [mount.name for mount in service.catalog.mounts.values() if mount.is_remote]
    pictures: VersionedCache[EncodedPicture] = VersionedCache(options.tile_cache_bytes)
    made = Services(
        service=service,
        streams=Streams(service.catalog, service.reader, service.creator, service.in_flight),
        tiles=Tiles(service.catalog, service.reader, pictures, max_bytes=options.max_tile_bytes),
        keys={
            "zarr": KeyReader(service.catalog, service.reader),
            **{f"zarr{number}": OtherFormatReader(service.catalog, service.reader, number) for number in FORMATS},
        },
        options=options,
        threads=Threads(options.request_threads, remote),
        writes=WriteThreads(options.request_threads, remote, patience=options.queue_seconds),
        admission=Admission(service.in_flight, patience=options.queue_seconds),
        metrics=Metrics(service, options.metrics_folder),
        responses=ResponseCache(options.answer_cache_bytes),
        guard=Guard(options),
    )
    made.guard.seen_by, made.guard.has_iiif = made.seen_by, "iiif" not in service.catalog.mounts
    made.metrics.watch("answer", made.responses.stats)
    made.metrics.watch("tile", pictures.stats)
    return made
