"""Tiles as the API needs them: pictures whose tag is known before anything is drawn, and a cache of drawn ones."""

from __future__ import annotations

import hashlib
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
from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.read import Reader
from hyperslab.arrays.workers import attempt
from hyperslab.cache import CacheStats, VersionedCache
from hyperslab.errors import HyperslabError, TileNotFound
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
    """The bytes of a picture or of numbers; ``shape`` and ``dtype`` are of numbers only. ``moved``: chunks were written
    while they were read, so that the tag may not be theirs."""

    body: bytes
    shape: tuple[int, ...] | None = None
    dtype: np.dtype[Any] | None = None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Rendering:
    """A picture that has not been drawn yet. ``tag`` changes whenever its bytes could; `draw` makes them.

    ``memory`` is what that takes, in bytes. `cached` is what an earlier `draw` has left in the cache. ``sources`` are
    all keys that the picture is made of, and their versions, good until the monotonic clock says ``until``; empty if
    they are many or not known.
    """

    tag: str
    media_type: str
    memory: int
    mount: MountedStore
    cached: Callable[[], Encoded | None]
    draw: Callable[[Cancel | None, ReadCost], Encoded]
    sources: Mapping[str, str | None]
    until: float


class Tiles:
    """Draws pictures of what a catalog holds. Synchronous; safe to call from many threads."""

    def __init__(
        self, catalog: Catalog, reader: Reader, *, cache_bytes: int = 64 * MIB, max_bytes: int = 256 * MIB
    ) -> None:
        self.images = Images(catalog, reader)
        self.reader = RegionReader(self.images, reader, max_bytes=max_bytes)
        self.statistics = Statistics(self.images, reader)
        self.arrays = reader
        self._cache: VersionedCache[Encoded] = VersionedCache(cache_bytes)

    def cache_stats(self) -> CacheStats:
        """Counters of the cache of encoded pictures."""
        return self._cache.stats()

    def frame(self, path: str, query: TileQuery) -> Frame:
        """The plane that a query wants; raises as `evaluate`."""
        return self.evaluate(path, query, lambda _: None, lambda _: None)[0]

    def tile(
        self, path: str, query: TileQuery, place: tuple[int, int, int], fmt: str, cancel: Cancel | None = None
    ) -> Rendering:
        """A tile by ``(z, x, y)``, of full size in pictures, cut at the edges in numbers.

        Raises `TileNotFound` outside the picture, `TooLarge`, `BadParameter`, and `Cancelled`: versions of very many
        chunks take long to look up.
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
        """The whole plane, its longer side of ``size`` pixels or fewer."""

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
        """A picture of the region that ``choose`` chooses, in the corner of a square one of ``size`` if it is given;
        ``finish`` is done to it, and ``label`` says all that. Or its numbers: ``(height, width)``, with the channels
        before them if there are several.
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
        # the number is to be counted up whenever the same values come to look different
        tag = hashlib.blake2b(f"{plan.tag}|{key}|2-{ENCODER}".encode(), digest_size=12).hexdigest()

        def encode(values: NDArray, hidden: Mask | None) -> Encoded:
            if style is None:
                values = _in_own_dtype(values, hidden, frame.dtype)
                values = values if query.component is None else one_component(values, query.component)
                values = values if len(frame.channels) > 1 else values[0]
                return Encoded(encode_numbers(values, fmt), values.shape, values.dtype.newbyteorder("<"))
            raster = style.draw(values, hidden)
            raster = flatten(pad(raster, size, size) if size else raster, query.bg)
            return Encoded(encode_picture(raster if finish is None else finish(raster), fmt, quality=query.quality))

        def draw(cancel: Cancel | None, cost: ReadCost) -> Encoded:
            def load() -> tuple[Encoded, str, int]:
                encoded = encode(*self.reader.read(plan, as_labels, nodata, cancel, cost))
                encoded = replace(encoded, moved=cost.moved)
                return encoded, f"{tag}-moved" if cost.moved else tag, len(encoded.body) + 512

            return self._cache.load(key, tag, load).value

        height, width = plan.region.shape
        held = min(plan.nbytes * frame.growth, 64 * MIB)  # as it is read in strips, more is never held at once
        sources: dict[str, str | None] = {}
        read = plan.blocks[0].plan if len(plan.blocks) == 1 else None
        if read is not None and read.touched <= 64 and (documents := self.images.documents(image)):
            versions = read.versions or {}
            sources = {**documents} | {read.array.chunk_key(coords): version for coords, version in versions.items()}
        # what was taken from other data than a tile's own (windows, the way axes run) is good for half a second
        expires = "auto" in (query.flip, query.aspect) or (style is not None and style.sampled)
        return Rendering(
            tag=tag,
            media_type=MEDIA_TYPES[fmt],
            memory=held + 16 * height * width + plan.working_memory,
            mount=image.mount,
            cached=partial(self._cache.get, key, tag),
            draw=draw,
            sources=sources,
            until=time.monotonic() + 0.5 if expires else inf,
        )

    def empty(self, query: TileQuery, fmt: str) -> bytes:
        """A transparent tile (in jpg: of the background's colour)."""
        index = np.zeros((query.tile_size, query.tile_size), np.uint8)
        nothing = Indexed(index, np.zeros((1, 4), np.uint8), np.ones(index.shape, bool))
        return encode_picture(flatten(nothing, query.bg), fmt, quality=query.quality)

    def legend(self, path: str, query: TileQuery) -> bytes:
        """A PNG of the colours of a picture; raises what `frame` and `style.legend` raise."""
        colours = legend(self.frame(path, query), query)
        return encode_picture(flatten(colours, query.bg), "png", quality=query.quality)

    def evaluate(
        self, path: str, query: TileQuery, first: Callable[[Frame], A], second: Callable[[Frame], B],
        cancel: Cancel | None = None,
    ) -> tuple[Frame, A, B]:  # fmt: skip
        """The plane that a query wants, and what ``first`` and ``second`` say of it, in as few round trips as can be.

        If the store is remote, they are asked about the image as it was when it was last opened, while that is checked.
        Raises what `Images.open`, `make_frame` and they raise, in this order.
        """
        if "auto" in (query.flip, query.aspect):
            frame = make_frame(self.images.open(path, query.field), query)
            found = find_orientation(frame, self.images.catalog, self.arrays)
            flip = found.flip if query.flip == "auto" else query.flip
            query = replace(query, flip=flip, aspect=found.aspect if query.aspect == "auto" else query.aspect)
        image: Image | None = None
        guess: Frame | None = None
        last = self.images.last(path, query.field)
        if last is not None and last.mount.is_remote:
            with suppress(HyperslabError):  # the image that is there now may have such a plane
                guess = make_frame(last, query)

        def open_image(_: Frame) -> Image:
            return self.images.open(path, query.field)

        def concurrently(frame: Frame, *works: Callable[[Frame], Any]) -> list[Future[Any]]:
            return frame.image.mount.each(attempt, [partial(work, frame) for work in works], cancel)

        if guess is not None:
            opened, *results = concurrently(guess, open_image, first, second)
            image = opened.result()
            if image is guess.image:
                return guess, results[0].result(), results[1].result()
        frame = make_frame(image or self.images.open(path, query.field), query)
        if not frame.image.mount.is_remote:
            return frame, first(frame), second(frame)
        results = concurrently(frame, first, second)
        return frame, results[0].result(), results[1].result()


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
