"""Tiles as the API needs them: pictures whose tag is known before anything is read, kept when they were drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.cost import Cancel, ReadCost
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.read import Reader
from hyperslab.cache import CacheStats, VersionedCache
from hyperslab.errors import TileNotFound
from hyperslab.tiles import png
from hyperslab.tiles.asked import Asked
from hyperslab.tiles.encode import MEDIA_TYPES, NUMBER_FORMATS, encode_numbers, encode_picture
from hyperslab.tiles.frame import Frame, make_frame
from hyperslab.tiles.looking import Looking
from hyperslab.tiles.opening import Pictures
from hyperslab.tiles.orientation import Orientations
from hyperslab.tiles.pyramid import Region, Span
from hyperslab.tiles.raster import Indexed, Raster, flatten, pad
from hyperslab.tiles.resample import Mask, NDArray
from hyperslab.tiles.source import Reading, RegionPlan, Source
from hyperslab.tiles.statistics import Statistics, one_component
from hyperslab.tiles.style import Stylist, draw
from hyperslab.tiles.views import View, Views

MIB: Final = 1 << 20

_RENDERING: Final = f"2-{png.ENCODER}"
"""Part of every tag: to be counted up whenever the same numbers come to look different."""
_TILE: Final = "tile"
_MOST_CHUNKS_AT_ONCE: Final = 64
_MOST_MEMORY: Final = 64 * MIB
"""What lies under a pixel is read in strips: more than this is never held at once."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The bytes of a picture or of numbers; ``shape`` and ``dtype`` are of numbers only. ``moved``: somebody has
    written meanwhile, so that the tag may not be theirs."""

    body: bytes
    shape: tuple[int, ...] | None = None
    dtype: np.dtype[Any] | None = None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Rendering:
    """A picture that has not been drawn yet. ``tag`` changes whenever its bytes could; `draw` makes them.

    ``memory`` is what that takes, in bytes. `kept` is what an earlier `draw` has left in the cache. ``sources`` are all
    keys that the picture is made of, and their versions, good until the monotonic clock says ``until``; empty where
    they are many or not known.
    """

    tag: str
    media_type: str
    memory: int
    mount: MountedStore
    kept: Callable[[], Encoded | None]
    draw: Callable[[Cancel | None, ReadCost], Encoded]
    sources: Mapping[str, str | None]
    until: float


class Tiles:
    """Draws pictures of what a catalog holds. Synchronous; safe to call from many threads."""

    def __init__(
        self, catalog: Catalog, reader: Reader, *, cache_bytes: int = 64 * MIB, max_bytes: int = 256 * MIB
    ) -> None:
        self.pictures = Pictures(catalog, reader)
        self.source = Source(self.pictures, reader, max_bytes=max_bytes)
        self.statistics = Statistics(self.pictures, reader)
        self.stylist = Stylist(self.statistics)
        self.orientations = Orientations(self.pictures, reader)
        self.look = Looking(self.pictures, reader, self.orientations).look
        self._views = Views(self.pictures, self.stylist)
        self._cache: VersionedCache[Encoded] = VersionedCache(cache_bytes)

    def cache_stats(self) -> CacheStats:
        """Counters of the cache of encoded pictures."""
        return self._cache.stats()

    def frame(self, path: str, asked: Asked) -> Frame:
        """The plane that is asked for; raises what `Pictures.open` and `make_frame` raise."""
        return make_frame(self.pictures.open(path, asked.field), self.orientations.settled(path, asked))

    def tile(
        self, path: str, asked: Asked, place: tuple[int, int, int], fmt: str, cancel: Cancel | None = None
    ) -> Rendering:
        """A tile by ``(z, x, y)``, of full size in pictures, cut at the edges in numbers.

        Raises `TileNotFound` outside the picture, `TooLarge`, `BadParameter`, and `Cancelled`: versions of very many
        chunks take long to look up.
        """

        def choose(frame: Frame) -> Region:
            return _tile_region(frame, asked, place)

        if fmt in NUMBER_FORMATS:
            return self._numbers(path, asked, fmt, choose, cancel)
        return self.region(path, asked, fmt, choose, cancel, after=_padded(asked), label=_TILE)

    def tile_at_once(self, path: str, asked: Asked, place: tuple[int, int, int], fmt: str) -> Rendering | None:
        """As `tile`, where a picture was drawn with this query a moment ago and nothing blocks; None elsewhere."""
        view = None if fmt in NUMBER_FORMATS else self._views.known(path, asked)
        if view is None or view.frame.cell_pitch is not None:
            return None
        region = _tile_region(view.frame, asked, place)
        if not self.source.is_quick(view.frame, region, _MOST_CHUNKS_AT_ONCE):
            return None
        plan = self.source.plan(view.frame, region)
        return self._picture(view, plan, asked, fmt, after=_padded(asked), label=_TILE)

    def region(
        self, path: str, asked: Asked, fmt: str, choose: Callable[[Frame], Region], cancel: Cancel | None = None,
        *, after: Callable[[Raster], Raster] = lambda raster: raster, label: str = "",
    ) -> Rendering:  # fmt: skip
        """A picture of the region that ``choose`` chooses; ``after`` is done to it, and ``label`` says what that is."""
        _, view, plan = self.look(
            path,
            asked,
            lambda frame: self._views.of(path, frame, asked, cancel),
            lambda frame: self.source.plan(frame, choose(frame), cancel),
            cancel,
        )
        return self._picture(view, plan, asked, fmt, after=after, label=label)

    def thumbnail(self, path: str, asked: Asked, fmt: str, cancel: Cancel | None = None) -> Rendering:
        """The whole plane, its longer side of ``size`` pixels or fewer."""

        def whole(frame: Frame) -> Region:
            height, width = max(frame.grid.height, 1), max(frame.grid.width, 1)
            scale = max(1.0, max(height, width) / asked.size)
            rows, columns = max(1, round(height / scale)), max(1, round(width / scale))
            return Region(Span(0, height / rows, rows), Span(0, width / columns, columns))

        return self.region(path, asked, fmt, whole, cancel)

    def nothing(self, asked: Asked, fmt: str) -> Encoded:
        """A tile in which nothing is seen (in jpg: of the background's colour)."""
        size = asked.tile_size
        hidden = np.ones((size, size), bool)
        raster: Raster = Indexed(np.zeros((size, size), np.uint8), np.zeros((1, 4), np.uint8), hidden)
        if asked.bg is not None:
            raster = flatten(raster, asked.bg)
        return Encoded(encode_picture(raster, fmt, quality=asked.quality))

    def _picture(
        self, view: View, plan: RegionPlan, asked: Asked, fmt: str, *, after: Callable[[Raster], Raster], label: str
    ) -> Rendering:
        style = view.style

        def render(cancel: Cancel | None, cost: ReadCost) -> Encoded:
            values, hidden = self.source.read(plan, Reading(style.as_labels, style.nodata, cancel, cost))
            raster = after(draw(values, hidden, style))
            if style.background is not None:
                raster = flatten(raster, style.background)
            return Encoded(encode_picture(raster, fmt, quality=asked.quality))

        quality = "" if fmt == "png" else asked.quality
        rendering = self._rendering(plan, f"{view.identity}|{fmt}|{quality}|{label}", fmt, render)
        return replace(rendering, sources=self._sources(plan), until=view.until)

    def _numbers(
        self, path: str, asked: Asked, fmt: str, choose: Callable[[Frame], Region], cancel: Cancel | None
    ) -> Rendering:
        """The values of a region: ``(height, width)``, with the channels before them where there are several."""
        frame, plan, _ = self.look(
            path, asked, lambda frame: self.source.plan(frame, choose(frame), cancel), lambda _: None, cancel
        )
        as_labels = frame.picture.image_label is not None if asked.labels is None else asked.labels

        def render(cancel: Cancel | None, cost: ReadCost) -> Encoded:
            values, hidden = self.source.read(plan, Reading(as_labels, None, cancel, cost))
            values = _as_asked(values, hidden, frame, asked)
            return Encoded(encode_numbers(values, fmt), values.shape, values.dtype.newbyteorder("<"))

        return self._rendering(plan, f"{frame.identity}|{as_labels}|{asked.component}|{fmt}", fmt, render)

    def _rendering(
        self, plan: RegionPlan, identity: str, fmt: str, render: Callable[[Cancel | None, ReadCost], Encoded]
    ) -> Rendering:
        key = (plan.frame.picture.path, f"{plan.region}|{identity}")
        digest = hashlib.blake2b(f"{plan.tag}|{key}|{_RENDERING}".encode(), digest_size=12)
        tag = digest.hexdigest()

        def cached(cancel: Cancel | None, cost: ReadCost) -> Encoded:
            def load() -> tuple[Encoded, str, int]:
                encoded = render(cancel, cost)
                if cost.moved:
                    encoded = replace(encoded, moved=True)
                return encoded, f"{tag}-moved" if encoded.moved else tag, len(encoded.body) + 512

            return self._cache.load(key, tag, load).value

        memory = (
            min(plan.nbytes * plan.frame.growth, _MOST_MEMORY)
            + 16 * plan.shape[0] * plan.shape[1]
            + self.source.beside(plan)
        )
        mount = plan.frame.picture.levels[0].array.mount
        return Rendering(tag, MEDIA_TYPES[fmt], memory, mount, lambda: self._cache.get(key, tag), cached, {}, 0.0)

    def _sources(self, plan: RegionPlan) -> Mapping[str, str | None]:
        documents = self.pictures.documents(plan.frame.picture)
        if not documents or len(plan.blocks) != 1:
            return {}
        read = plan.blocks[0].read
        if read.versions is None or read.touched > _MOST_CHUNKS_AT_ONCE:
            return {}
        return {**documents} | {read.array.chunk_key(coords): version for coords, version in read.versions.items()}


def _padded(asked: Asked) -> Callable[[Raster], Raster]:
    """Makes a tile that is cut at the edges one of full size."""
    return lambda raster: pad(raster, asked.tile_size, asked.tile_size)


def _tile_region(frame: Frame, asked: Asked, place: tuple[int, int, int]) -> Region:
    """What a tile shows; raises `TileNotFound` where there is none."""
    z, x, y = place
    grid, path = frame.grid, frame.picture.path
    if not 0 <= z <= grid.maxzoom:
        raise TileNotFound(path, f"{z}/{x}/{y}", f"there are levels 0 to {grid.maxzoom}")
    rows, columns = grid.counts(z)
    row = rows - 1 - y if asked.scheme == "tms" else y
    if not (0 <= x < columns and 0 <= row < rows):
        raise TileNotFound(path, f"{z}/{x}/{y}", f"level {z} has {columns} by {rows} tiles")
    return grid.region(z, row, x)


def _as_asked(values: NDArray, hidden: Mask | None, frame: Frame, asked: Asked) -> NDArray:
    """One component of complex values where one is named; means as values of the array's own dtype."""
    values = _in_own_dtype(values, hidden, frame.dtype)
    if asked.component is not None:
        values = one_component(values, asked.component)
    return values if len(frame.channels) > 1 else values[0]


def _in_own_dtype(values: NDArray, hidden: Mask | None, dtype: np.dtype[Any]) -> NDArray:
    """Means of integers are rounded, and what has no mean has no value either where the dtype can say so."""
    if dtype.kind in "mM":  # as counts, the least of which stands for no time
        counts = _rounded(values, np.dtype(np.int64)) if values.dtype.kind == "f" else values
        return counts if hidden is None else np.where(hidden, np.iinfo(np.int64).min, counts)
    if dtype.kind in "biu":
        return _rounded(values, dtype) if values.dtype.kind == "f" else values
    if dtype.kind in "fc":
        values = values.astype(dtype, copy=False)
    return values if hidden is None else np.where(hidden, values.dtype.type(np.nan), values)


def _rounded(values: NDArray, dtype: np.dtype[Any]) -> NDArray:
    """The nearest integers, also at the ends of the largest ones, where a float has no such number."""
    whole = np.rint(values)
    if dtype.itemsize == 8:
        info = np.iinfo(dtype)
        whole = np.clip(whole, info.min, np.nextafter(float(info.max), 0))
    return np.asarray(whole.astype(dtype))
