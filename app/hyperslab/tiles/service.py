"""Tile service: pictures with entity tags that are known before drawing, and a cache of encoded pictures."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

import numpy as np

from hyperslab.arrays.cancel import Cancel
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.chunk_keys import is_settled
from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.labels import Coordinates
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.read import Reader
from hyperslab.arrays.workers import attempt
from hyperslab.cache import CacheStats, VersionedCache
from hyperslab.errors import BadParameter, HyperslabError, NoCoordinate, TileNotFound
from hyperslab.tiles.encode import ENCODER, MEDIA_TYPES, NUMBER_FORMATS, encode_numbers, encode_picture
from hyperslab.tiles.frame import Frame, make_frame
from hyperslab.tiles.image import Image
from hyperslab.tiles.images import Images
from hyperslab.tiles.orientation import find_orientation
from hyperslab.tiles.pyramid import Region, Span
from hyperslab.tiles.query import TileQuery
from hyperslab.tiles.read import RegionReader, one_component
from hyperslab.tiles.render import Indexed, Raster, flatten, pad
from hyperslab.tiles.resample import Mask, NDArray
from hyperslab.tiles.statistics import Statistics
from hyperslab.tiles.style import legend, make_style

A = TypeVar("A")
B = TypeVar("B")

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded picture or array; ``shape`` and ``dtype`` are of arrays only. ``changed``: chunks changed while they were
    read, so the tag may not match."""

    body: bytes
    shape: tuple[int, ...] | None = None
    dtype: np.dtype[Any] | None = None
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Rendering:
    """Picture that `draw` renders, taking about ``memory`` bytes; `cached` looks it up in the cache.

    ``tag`` changes with the bytes. ``is_sampled``: pixels are single cells, not means of all. ``sources`` are the
    versions by key of all documents and chunks it depends on, valid until ``until`` on the monotonic clock; empty if
    unknown or more than 64 chunks.
    """

    tag: str
    media_type: str
    memory: int
    is_sampled: bool
    mount: MountedStore
    cached: Callable[[], Encoded | None]
    draw: Callable[[Cancel | None, ReadCost], Encoded]
    sources: Mapping[str, str | None]
    until: float


class Tiles:
    """Draws pictures of the images of a catalog. Synchronous, thread-safe."""

    def __init__(
        self, catalog: Catalog, reader: Reader, *, cache_bytes: int = 64 * MIB, max_bytes: int = 256 * MIB
    ) -> None:
        self.images = Images(catalog, reader)
        self.reader = RegionReader(self.images, reader, max_bytes=max_bytes)
        self.statistics = Statistics(self.images, reader)
        self.arrays = reader
        self._max_bytes = max_bytes
        self._coordinates = Coordinates(catalog, reader)
        self._cache: VersionedCache[Encoded] = VersionedCache(cache_bytes)

    def seen_through(self, catalog: Catalog) -> Tiles:
        """The same for another catalog of the same stores; the cache of pictures is shared."""
        tiles = Tiles(catalog, self.arrays, max_bytes=self._max_bytes)
        tiles._cache = self._cache
        return tiles

    def cache_stats(self) -> CacheStats:
        """Counters of the cache of encoded pictures."""
        return self._cache.stats()

    def frame(self, path: str, query: TileQuery) -> Frame:
        """The plane that a query selects; raises the errors of `evaluate`."""
        return self.evaluate(path, query, lambda _: None, lambda _: None)[0]

    def tile(
        self, path: str, query: TileQuery, place: tuple[int, int, int], fmt: str, cancel: Cancel | None = None
    ) -> Rendering:
        """A tile by ``(z, x, y)``; at the edges of the plane, pictures are padded to full size and arrays are not.

        Raises `TileNotFound` outside the grid, and the errors of `region`.
        """
        z, x, y = place

        def choose(frame: Frame) -> Region:
            grid, image = frame.grid, frame.image.path
            if not 0 <= z <= grid.maxzoom:
                raise TileNotFound(image, f"{z}/{x}/{y}", f"there are levels 0 to {grid.maxzoom}")
            rows, columns = grid.counts(z)
            row = rows - 1 - y if query.scheme == "tms" else y
            if not (0 <= x < columns and 0 <= row < rows):
                raise TileNotFound(image, f"{z}/{x}/{y}", f"level {z} has {columns} by {rows} tiles")
            return grid.region(z, row, x)

        return self.region(path, query, fmt, choose, cancel, size=query.tile_size, label="tile")

    def thumbnail(self, path: str, query: TileQuery, fmt: str, cancel: Cancel | None = None) -> Rendering:
        """The whole plane, with at most ``size`` pixels along its longer side."""

        def whole(frame: Frame) -> Region:
            height, width = max(frame.grid.height, 1), max(frame.grid.width, 1)
            scale = max(1.0, max(height, width) / query.size)
            rows, columns = max(1, round(height / scale)), max(1, round(width / scale))
            return Region(Span(0, height / rows, rows), Span(0, width / columns, columns))

        return self.region(path, query, fmt, whole, cancel)

    def region(
        self, path: str, query: TileQuery, fmt: str, choose: Callable[[Frame], Region], cancel: Cancel | None = None,
        *, size: int = 0, finish: Callable[[Raster], Raster] | None = None, label: str = "",
    ) -> Rendering:  # fmt: skip
        """A picture of the region that ``choose`` returns, padded to a square of ``size`` and transformed by
        ``finish``, which ``label`` identifies in the tag; or its values, ``([channels,] height, width)``.

        Raises the errors of `evaluate`, `make_style` and `RegionReader.plan`.
        """
        numbers = fmt in NUMBER_FORMATS
        windows = self.statistics.windows
        frame, style, plan = self.evaluate(
            path,
            query,
            lambda frame: None if numbers else make_style(frame, query, partial(windows, frame, query, cancel)),
            lambda frame: self.reader.plan(frame, choose(frame), cancel),
            cancel,
        )
        image = frame.image
        if style is not None:
            as_labels, nodata, quality = style.as_labels, query.nodata, "" if fmt == "png" else query.quality
            identity = f"{style.identity}|{fmt}|{quality}|{label}"
        else:
            as_labels = image.image_label is not None if query.labels is None else query.labels
            nodata, identity = None, f"{as_labels}|{query.component}|{fmt}"
        field, decoded = image.field_name or "", "" if frame.decoder is None else "|cf"
        shown = f"{field}|{frame.plane}|{frame.indices}|{frame.channels}|{frame.grid.size}{decoded}"
        key = (image.path, f"{plan.region}|{shown}|{frame.flip}|{frame.scale}|{identity}")
        # increase the number (3) with every change of the rendering
        tag = hashlib.blake2b(f"{plan.tag}|{key}|3-{ENCODER}".encode(), digest_size=12).hexdigest()

        def encode(values: NDArray, hidden: Mask | None) -> Encoded:
            if style is None:
                values = _to_dtype(values, hidden, frame.dtype)
                values = values if query.component is None else one_component(values, query.component)
                values = values if len(frame.channels) > 1 else values[0]
                return Encoded(encode_numbers(values, fmt), values.shape, values.dtype.newbyteorder("<"))
            raster = style.draw(values, hidden)
            raster = flatten(pad(raster, size, size) if size else raster, query.bg)
            return Encoded(encode_picture(raster if finish is None else finish(raster), fmt, quality=query.quality))

        def draw(cancel: Cancel | None, cost: ReadCost) -> Encoded:
            def load() -> tuple[Encoded, str, int]:
                encoded = encode(*self.reader.read(plan, as_labels, nodata, cancel, cost))
                encoded = replace(encoded, changed=cost.changed)
                return encoded, f"{tag}-moved" if cost.changed else tag, len(encoded.body) + 512

            return self._cache.load(key, tag, load).value

        height, width = plan.region.shape
        values_nbytes = min(plan.nbytes * frame.growth, 64 * MIB)  # an upper bound, due to strips
        sources: dict[str, str | None] = {}
        read = plan.blocks[0].plan if len(plan.blocks) == 1 else None
        # what is chosen by labels is not replayed, as coordinates may change the choice
        if not query.sel and read is not None and read.touched <= 64 and (documents := self.images.documents(image)):
            versions = read.versions or {}
            if None not in versions.values() or is_settled(read.array):
                sources = {**documents} | {read.array.chunk_key(at): version for at, version in versions.items()}
        # windows and orientation come from other chunks than ``sources``: valid for half a second
        expires = "auto" in (query.flip, query.aspect) or (style is not None and style.sampled)
        return Rendering(
            tag=tag,
            media_type=MEDIA_TYPES[fmt],
            memory=values_nbytes + 16 * height * width + plan.working_memory,
            is_sampled=plan.is_sampled,
            mount=image.mount,
            cached=partial(self._cache.get, key, tag),
            draw=draw,
            sources=sources,
            until=time.monotonic() + 0.5 if expires else inf,
        )

    def empty(self, query: TileQuery, fmt: str) -> bytes:
        """A transparent tile, or one of the background's colour."""
        index = np.zeros((query.tile_size, query.tile_size), np.uint8)
        blank = Indexed(index, np.zeros((1, 4), np.uint8), np.ones(index.shape, bool))
        return encode_picture(flatten(blank, query.bg), fmt, quality=query.quality)

    def legend(self, path: str, query: TileQuery) -> bytes:
        """The legend of a picture as PNG; raises the errors of `frame` and `style.legend`."""
        colours = legend(self.frame(path, query), query)
        return encode_picture(flatten(colours, query.bg), "png", quality=query.quality)

    def evaluate(
        self, path: str, query: TileQuery, first: Callable[[Frame], A], second: Callable[[Frame], B],
        cancel: Cancel | None = None,
    ) -> tuple[Frame, A, B]:  # fmt: skip
        """The plane that a query selects, and the results of two functions of it.

        For a remote store, both run on the cached image while that is revalidated, and again only if it has changed.
        Raises the errors of `Images.open`, `make_frame`, ``first`` and ``second``, in this order.
        """
        if query.sel:
            query = self._by_labels(self.images.open(path, query.field), query, cancel)
        if "auto" in (query.flip, query.aspect):
            frame = self._frame(self.images.open(path, query.field), query)
            found = find_orientation(frame, self.images.catalog, self.arrays)
            flip = found.flip if query.flip == "auto" else query.flip
            aspect = found.aspect if query.aspect == "auto" else query.aspect
            query = query.model_copy(update={"flip": flip, "aspect": aspect})
        image: Image | None = None
        guess: Frame | None = None
        cached = self.images.cached(path, query.field)
        if cached is not None and cached.mount.is_remote:
            with suppress(HyperslabError):  # the current image may have such a plane
                guess = self._frame(cached, query)

        def open_image(_: Frame) -> Image:
            return self.images.open(path, query.field)

        def concurrently(frame: Frame, *works: Callable[[Frame], Any]) -> list[Future[Any]]:
            return frame.image.mount.each(attempt, [partial(work, frame) for work in works], cancel)

        if guess is not None:
            opened, *results = concurrently(guess, open_image, first, second)
            image = opened.result()
            if image is guess.image:
                return guess, results[0].result(), results[1].result()
        frame = self._frame(image or self.images.open(path, query.field), query)
        if not frame.image.mount.is_remote:
            return frame, first(frame), second(frame)
        results = concurrently(frame, first, second)
        return frame, results[0].result(), results[1].result()

    def _by_labels(self, image: Image, query: TileQuery, cancel: Cancel | None) -> TileQuery:
        """A query with the positions of its labels: by the coordinates beside the finest level, and of an axis without
        one, the index that stands for the label."""
        array, sizes = image.levels[0].array, {axis.name: axis.size for axis in image.axes}
        chosen = [*query.isel]
        for text in query.sel:
            try:
                ((name, found),) = self._coordinates.choose(array, sizes, [text], query.method, cancel).items()
            except NoCoordinate as error:
                index = text[len(error.dimension) + 1 :]
                if not re.fullmatch("-?[0-9]{1,18}", index):
                    raise
                name, found = error.dimension, int(index)
            several = [found] if isinstance(found, int) else found
            is_channel = "channel" in [axis.type for axis in image.axes if axis.name == name]
            if not several or (len(several) > 1 and not is_channel):
                raise BadParameter("sel", text, f"one position along {name}, not {len(several)}")
            chosen += [(name, int(at)) for at in several]
        return query.model_copy(update={"sel": (), "isel": tuple(chosen)})

    def _frame(self, image: Image, query: TileQuery) -> Frame:
        return self.statistics.first_plane(make_frame(image, query), query)


def _to_dtype(values: NDArray, hidden: Mask | None, dtype: np.dtype[Any]) -> NDArray:
    """Values in the dtype of the image: means of integers are rounded; hidden ones are NaN or NaT if it has these."""
    if dtype.kind in "mM":  # as int64, whose minimum is NaT
        counts = _rounded(values, np.dtype(np.int64)) if values.dtype.kind == "f" else values
        return counts if hidden is None else np.where(hidden, np.iinfo(np.int64).min, counts)
    if dtype.kind in "biu":
        if values.dtype.kind == "f":
            return _rounded(values, dtype)
        if "b" in (dtype.kind, values.dtype.kind) or np.can_cast(values.dtype, dtype, "safe"):
            return values.astype(dtype, copy=False)
        stored, shown = np.iinfo(values.dtype), np.iinfo(dtype)  # of a level of another dtype
        return np.clip(values, max(stored.min, shown.min), min(stored.max, shown.max)).astype(dtype)
    if dtype.kind in "fc":
        values = values.astype(dtype, copy=False)
    return values if hidden is None else np.where(hidden, values.dtype.type(np.nan), values)


def _rounded(values: NDArray, dtype: np.dtype[Any]) -> NDArray:
    """The nearest integers, clipped to the range of the dtype; of 64 bits, to the floats in it."""
    whole = np.rint(values)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        whole = np.clip(whole, info.min, info.max if dtype.itemsize < 8 else np.nextafter(float(info.max), 0))
    return np.asarray(whole.astype(dtype))
