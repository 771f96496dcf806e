"""Tile service: pictures with entity tags that are known before drawing, and a cache of encoded pictures."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar, Protocol

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.chunk_keys import is_settled
from hyperslab.arrays.chunks import ReadCost
from hyperslab.arrays.labels import Coordinates
from hyperslab.arrays.read import Reader
from hyperslab.arrays.workers import Cancel
from hyperslab.cache import VersionedCache
from hyperslab.errors import BadParameter, NoCoordinate, TileNotFound
from hyperslab.tiles.encode import ENCODER, NUMBER_FORMATS, encode_numbers, encode_picture
from hyperslab.tiles.frame import Frame, make_frame
from hyperslab.tiles.image import Image
from hyperslab.tiles.images import Images
from hyperslab.tiles.orientation import find_orientation
from hyperslab.tiles.pyramid import Region, Span, TileGrid
from hyperslab.tiles.query import TileQuery
from hyperslab.tiles.read import RegionPlan, RegionReader, one_component
from hyperslab.tiles.render import PaletteImage, Raster, flatten, pad
from hyperslab.tiles.resample import Mask, NDArray
from hyperslab.tiles.statistics import Statistics
from hyperslab.tiles.style import Style, legend, make_style


@dataclass(frozen=True, slots=True)
class EncodedPicture:
    """Encoded picture or array; ``shape`` and ``dtype`` are of arrays only. ``changed``: chunks changed while they were
    read, so the tag may not match."""

    body: bytes
    shape: tuple[int, ...] | None = None
    dtype: np.dtype[Any] | None = None
    changed: bool = False


class Place(Protocol):
    """Place of a picture in a plane; ``label`` identifies in the tag what `transform` does."""

    @property
    def label(self) -> str:
        return ""

    def region(self, grid: TileGrid) -> Region:
        """The region to draw; raises `TileNotFound`, and what else the class says."""

    def transform(self, raster: Raster) -> Raster:
        """The picture of the region as it is sent."""
        return raster


@dataclass(frozen=True, slots=True)
class TilePlace(Place):
    """Tile of the image at ``path``; at the edges of the plane, pictures are padded to full size, arrays are not.

    ``tms``: ``y`` counts from below.
    """

    path: str
    z: int
    x: int
    y: int
    size: int
    tms: bool = False
    label: ClassVar[str] = "tile"

    def region(self, grid: TileGrid) -> Region:
        z, x, y = self.z, self.x, self.y
        if not 0 <= z <= grid.maxzoom:
            raise TileNotFound(self.path, f"{z}/{x}/{y}", f"there are levels 0 to {grid.maxzoom}")
        rows, columns = grid.counts(z)
        row = rows - 1 - y if self.tms else y
        if not (0 <= x < columns and 0 <= row < rows):
            raise TileNotFound(self.path, f"{z}/{x}/{y}", f"level {z} has {columns} by {rows} tiles")
        return grid.region(z, row, x)

    def transform(self, raster: Raster) -> Raster:
        return pad(raster, self.size, self.size)


@dataclass(frozen=True, slots=True)
class DeepZoomPlace(Place):
    """A Deep Zoom tile of the image at ``path``, cut at the edges."""

    path: str
    level: int
    x: int
    y: int
    overlap: int

    def region(self, grid: TileGrid) -> Region:
        region = grid.deep_zoom_region(self.level, self.y, self.x, overlap=self.overlap)
        if region is None:
            raise TileNotFound(self.path, f"{self.level}/{self.x}_{self.y}", "the image has no such tile")
        return region


@dataclass(frozen=True, slots=True)
class WholePlane(Place):
    """The whole plane, with at most ``size`` pixels along its longer side."""

    size: int

    def region(self, grid: TileGrid) -> Region:
        height, width = max(grid.height, 1), max(grid.width, 1)
        scale = max(1.0, max(height, width) / self.size)
        rows, columns = max(1, round(height / scale)), max(1, round(width / scale))
        return Region(Span(0, height / rows, rows), Span(0, width / columns, columns))


@dataclass(frozen=True, slots=True)
class Rendering:
    """Picture of a plan, or its values if there is no style; drawing takes about ``memory`` bytes.

    ``tag`` changes with the bytes. ``sources`` are the versions by key of all documents and chunks it depends on, valid
    until ``until`` on the monotonic clock; empty if unknown or more than 64 chunks.
    """

    tiles: Tiles
    plan: RegionPlan
    style: Style | None
    query: TileQuery
    place: Place
    fmt: str
    key: tuple[str, str]
    tag: str
    memory: int
    sources: Mapping[str, str | None]
    until: float

    def draw(self, cancel: Cancel | None, cost: ReadCost) -> EncodedPicture:
        """The picture, drawn once for all concurrent calls; raises the errors of `Reader.read`."""
        return self.tiles.cache.load(self.key, self.tag, partial(self._load, cancel, cost)).value

    def _load(self, cancel: Cancel | None, cost: ReadCost) -> tuple[EncodedPicture, str, int]:
        style, query, frame = self.style, self.query, self.plan.frame
        as_labels, nodata = (_are_labels(frame, query), None) if style is None else (style.as_labels, query.nodata)
        values, hidden = self.tiles.reader.read(self.plan, as_labels, nodata, cancel, cost)
        if style is None:
            values = _to_dtype(values, hidden, frame.dtype)
            values = values if query.component is None else one_component(values, query.component)
            values = values if len(frame.channels) > 1 else values[0]
            dtype = values.dtype.newbyteorder("<")
            encoded = EncodedPicture(encode_numbers(values, self.fmt), values.shape, dtype, changed=cost.changed)
        else:
            raster = self.place.transform(style.draw(values, hidden))
            body = encode_picture(flatten(raster, query.bg), self.fmt, quality=query.quality)
            encoded = EncodedPicture(body, changed=cost.changed)
        return encoded, f"{self.tag}-moved" if cost.changed else self.tag, len(encoded.body) + 512


class Tiles:
    """Draws pictures of the images of a catalog, of at most ``max_bytes`` of values each; ``cache`` keeps them.
    Synchronous, thread-safe."""

    def __init__(
        self, catalog: Catalog, reader: Reader, cache: VersionedCache[EncodedPicture], *, max_bytes: int = 256 << 20
    ) -> None:
        self.images = Images(catalog, reader)
        self.reader = RegionReader(self.images, reader, max_bytes=max_bytes)
        self.statistics = Statistics(self.images, reader)
        self.arrays = reader
        self.cache = cache
        self._coordinates = Coordinates(catalog, reader)

    def frame(self, image: Image, query: TileQuery, cancel: Cancel | None = None) -> Frame:
        """The plane that a query selects. Raises the errors of `make_frame`, `Coordinates.choose` and of reading."""
        if query.sel:
            query = self._by_labels(image, query, cancel)
        frame = self.statistics.stored.first_plane(make_frame(image, query), query)
        if "auto" in (query.flip, query.aspect):
            orientation = find_orientation(frame, self.images.catalog, self.arrays)
            flip = orientation.flip if query.flip == "auto" else query.flip
            aspect = orientation.aspect if query.aspect == "auto" else query.aspect
            query = query.model_copy(update={"flip": flip, "aspect": aspect})
            frame = self.statistics.stored.first_plane(make_frame(image, query), query)
        return frame

    def picture(
        self, image: Image, query: TileQuery, fmt: str, place: Place, cancel: Cancel | None = None
    ) -> Rendering:
        """A picture of a place, or its values, ``([channels,] height, width)``.

        Raises the errors of `frame`, `make_style`, `Place.region` and `RegionReader.plan`.
        """
        frame = self.frame(image, query, cancel)
        style, plan = image.mount.both(
            lambda: None if fmt in NUMBER_FORMATS else make_style(frame, query, self.statistics, cancel),
            lambda: self.reader.plan(frame, place.region(frame.grid), cancel),
            cancel,
        )
        if style is None:
            identity = f"{_are_labels(frame, query)}|{query.component}|{fmt}"
        else:
            identity = f"{style.identity}|{fmt}|{'' if fmt == 'png' else query.quality}|{place.label}"
        field, decoded = image.field_name or "", "" if frame.decoder is None else "|cf"
        shown = f"{field}|{frame.plane}|{frame.indices}|{frame.channels}|{frame.grid.size}{decoded}"
        key = (image.path, f"{plan.region}|{shown}|{frame.flip}|{frame.scale}|{identity}")
        # increase the number (3) with every change of the rendering
        tag = hashlib.blake2b(f"{plan.tag}|{key}|3-{ENCODER}".encode(), digest_size=12).hexdigest()
        height, width = plan.region.shape
        values_nbytes = min(plan.nbytes * frame.growth, 64 << 20)  # an upper bound, due to strips
        memory = values_nbytes + 16 * height * width + plan.working_memory
        # windows and orientation come from other chunks than ``sources``: valid for half a second
        expires = "auto" in (query.flip, query.aspect) or (style is not None and style.sampled)
        until = time.monotonic() + 0.5 if expires else inf
        sources: dict[str, str | None] = {}
        read = plan.blocks[0].plan if len(plan.blocks) == 1 else None
        # what is chosen by labels is not replayed, as coordinates may change the choice
        if not query.sel and read is not None and read.touched <= 64 and (documents := self.images.documents(image)):
            versions = read.versions or {}
            if None not in versions.values() or is_settled(read.array):
                sources = {**documents} | {read.array.chunk_key(coord): version for coord, version in versions.items()}
        return Rendering(self, plan, style, query, place, fmt, key, tag, memory, sources, until)

    def empty(self, query: TileQuery, fmt: str) -> bytes:
        """A transparent tile, or one of the background's colour."""
        index = np.zeros((query.tile_size, query.tile_size), np.uint8)
        blank = PaletteImage(index, np.zeros((1, 4), np.uint8), np.ones(index.shape, bool))
        return encode_picture(flatten(blank, query.bg), fmt, quality=query.quality)

    def legend(self, image: Image, query: TileQuery) -> bytes:
        """The legend of a picture as PNG; raises the errors of `frame` and `style.legend`."""
        colours = legend(self.frame(image, query), query)
        return encode_picture(flatten(colours, query.bg), "png", quality=query.quality)

    def _by_labels(self, image: Image, query: TileQuery, cancel: Cancel | None) -> TileQuery:
        """A query with the positions of its labels: by the coordinates beside the finest level, and of an axis without
        one, the index that stands for the label."""
        array, sizes = image.levels[0].array, {axis.name: axis.size for axis in image.axes}
        chosen = [*query.isel]
        for text in query.sel:
            try:
                ((name, position),) = self._coordinates.choose(array, sizes, [text], query.method, cancel).items()
            except NoCoordinate as error:
                index = text[len(error.dimension) + 1 :]
                if not re.fullmatch("-?[0-9]{1,18}", index):
                    raise
                name, position = error.dimension, int(index)
            several = [position] if isinstance(position, int) else position
            is_channel = "channel" in [axis.type for axis in image.axes if axis.name == name]
            if not several or (len(several) > 1 and not is_channel):
                raise BadParameter("sel", text, f"one position along {name}, not {len(several)}")
            chosen += [(name, int(one)) for one in several]
        return query.model_copy(update={"sel": (), "isel": tuple(chosen)})


def _are_labels(frame: Frame, query: TileQuery) -> bool:
    """Whether values are read as identifiers, which have no mean."""
    return frame.image.image_label is not None if query.labels is None else query.labels


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
