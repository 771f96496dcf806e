"""Plane of an image: the two displayed axes, an index along each other axis, and the channels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any
from urllib.parse import unquote

import numpy as np

from hyperslab.engine.cf import Decoder
from hyperslab.errors import BadParameter, NotRepresentable, TileNotFound
from hyperslab.tiles.image import Axis, Image, Level
from hyperslab.tiles.ome import side_of
from hyperslab.tiles.pyramid import Region, Span, TileGrid, level_index
from hyperslab.tiles.query import TileQuery

_MAX_CHANNELS = 16


@dataclass(frozen=True, slots=True)
class Frame:
    """Plane of an image.

    ``indices`` has an index for each axis, None for the axes of the plane and the channel axis; ``channels`` are
    indices along ``channel_axis``, ``(0,)`` without one. ``grid`` is in pixels at full resolution, ``scale`` in pixels
    per cell along rows and columns; ``flip`` reverses rows or columns. ``cell_pitch`` is the distance between the
    images of a mosaic, in cells. ``decoder`` is None if values are shown as stored.
    """

    image: Image
    plane: tuple[int, int]
    indices: tuple[int | None, ...]
    channel_axis: int | None
    channels: tuple[int, ...]
    grid: TileGrid
    cell_pitch: tuple[int, int] | None
    flip: tuple[bool, bool] = (False, False)
    scale: tuple[float, float] = (1.0, 1.0)
    decoder: Decoder | None = None

    def cells(self, region: Region) -> Region:
        """A region in pixels as a region in cells, with axes unflipped; it starts below 0 if its last pixels end
        outside of a flipped axis."""
        spans, extents = (region.rows, region.columns), (self.grid.height, self.grid.width)
        starts = (
            extent - span.stop if flipped else span.start
            for span, flipped, extent in zip(spans, self.flip, extents, strict=True)
        )
        parts = zip(starts, spans, self.scale, strict=True)
        return Region(*(Span(start / scale, span.step / scale, span.count) for start, span, scale in parts))

    @property
    def at_middle(self) -> list[int]:
        """Axes along which the index is the middle, as by default."""
        return [
            i for i, index in enumerate(self.indices) if index is not None and index == self.image.axes[i].size // 2 > 0
        ]

    def has_indices(self, sizes: Sequence[int]) -> bool:
        """Whether an image of these sizes, by axis, has the indices and channels of this plane."""
        return all(
            (axis == self.channel_axis and max(self.channels) < size) or (index is not None and index < size)
            for axis, (index, size) in enumerate(zip(self.indices, sizes, strict=True))
            if axis not in self.plane
        )

    def levels_of(self, image: Image) -> list[Level]:
        """The levels of an image that have the indices and channels of this plane: the finest, and some others."""
        outside = [
            (axis, (index,) if axis != self.channel_axis else self.channels)
            for axis, index in enumerate(self.indices)
            if axis not in self.plane
        ]

        def has(level: Level) -> bool:
            return all(
                level_index(index or 0, level.factors[axis], level.offsets[axis], image.level_shape(level)[axis])
                is not None
                for axis, indices in outside
                for index in indices
            )

        return [image.levels[0], *filter(has, image.levels[1:])]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values, after decoding."""
        return self.image.dtype if self.decoder is None else self.decoder.dtype

    @property
    def growth(self) -> int:
        """Memory of stored and decoded values together, in multiples of the stored values' (rounded up)."""
        return 1 if self.decoder is None else 1 + -(-self.dtype.itemsize // self.image.dtype.itemsize)

    @property
    def cell_shape(self) -> tuple[int, int]:
        """Height and width of one image, of a mosaic the largest known, in cells."""
        return _cell_shape(self.image, self.plane)


def make_frame(image: Image, query: TileQuery) -> Frame:
    """The plane that a query selects from an image.

    Raises `BadParameter` (an unknown axis, or one that cannot be selected), `NotRepresentable` (fewer than two axes)
    and `TileNotFound` (an index out of bounds).
    """
    axes = image.axes
    if len(axes) < 2:
        reason = f"a picture needs two axes, this array has {len(axes)}"
        raise NotRepresentable(image.dtype.str, "a picture", reason)
    rows, columns = default_plane(axes) if query.axes is None else _find_axes(image, query.axes, "axes")
    if rows == columns:
        raise BadParameter("axes", ",".join(query.axes or ()), "two different axes")
    plane = rows, columns
    channel = next((i for i, axis in enumerate(axes) if axis.type == "channel" and i not in plane), None)
    indices, requested = _choose_indices(image, query, plane, channel)
    channels = _choose_channels(image, channel, requested)
    grid, pitch = _layout(image, plane, query.tile_size)
    scale, aspect = (1.0, 1.0), query.aspect
    if not isinstance(aspect, str) and aspect != 1 and grid.height and grid.width:  # enlarge one side: keep all cells
        height, width = round(grid.height * max(aspect, 1)), round(grid.width / min(aspect, 1))
        scale = height / grid.height, width / grid.width
        grid = TileGrid(height, width, grid.size)
    flipped = _find_axes(image, query.flip, "flip") if query.flip and query.flip != "auto" else []
    if not set(flipped) <= set(plane):
        names = " and ".join(axes[axis].name for axis in plane)
        raise BadParameter("flip", ",".join(query.flip), f"axes of the plane, {names}")
    decoder: Decoder | None = None
    if query.decode == "cf" and not query.labels and image.image_label is None:  # labels are identifiers
        decoder = image.levels[0].array.decoder.without_times()  # a picture needs numbers, not dates
    return Frame(
        image=image,
        plane=plane,
        indices=indices,
        channel_axis=channel,
        channels=channels,
        grid=grid,
        cell_pitch=pitch,
        flip=(plane[0] in flipped, plane[1] in flipped),
        scale=scale,
        decoder=decoder if decoder is not None and decoder.changes else None,
    )


def default_plane(axes: Sequence[Axis]) -> tuple[int, int]:
    """The last two spatial axes, else the last two that are not channels; but columns run along x and rows along y,
    whatever the order of axes, so that a third axis of space is not one of them."""
    plane = [*range(len(axes))]
    for types in ({"space"}, {"space", None}, {"space", "time", None}):
        chosen = [i for i, axis in enumerate(axes) if axis.type in types]
        if len(chosen) >= 2:
            plane = chosen
            break
    sides = {i: side for i in reversed(plane) if (side := side_of(axes[i].name)) is not None}
    across, down = (
        min((i for i in sides if sides[i][1] == way), key=sides.__getitem__, default=None) for way in (0, 1)
    )
    rest = [i for i in plane if i not in (across, down)]
    if across is None and down is None:
        return plane[-2], plane[-1]
    return (rest[-1] if down is None else down), (rest[-1] if across is None else across)


def _find_axes(image: Image, names: tuple[str, ...], parameter: str) -> list[int]:
    """Indices of axes by name; a comma in a name is percent-encoded twice in the URL."""
    axes = {axis.name for axis in image.axes}
    decoded_names = (name if name in axes else unquote(name) for name in names)
    return [_find_axis(image, name, parameter, ",".join(names)) for name in decoded_names]


def _find_axis(image: Image, name: str, parameter: str, value: object) -> int:
    names = [axis.name for axis in image.axes]
    if name not in names:
        raise BadParameter(parameter, value, f"one of the axes {', '.join(names)}, or a parameter of tiles")
    return names.index(name)


def _choose_indices(
    image: Image, query: TileQuery, plane: tuple[int, int], channel: int | None
) -> tuple[tuple[int | None, ...], list[int]]:
    """An index for each axis, and the channels that the query names (only the channel axis may have several)."""
    chosen: dict[int, int] = {}
    channels = list(query.c)
    for name, index in query.selection:
        axis = _find_axis(image, name, name, index)
        if axis in plane:
            others = ", ".join(a.name for i, a in enumerate(image.axes) if i not in plane)
            raise BadParameter(name, index, f"an axis outside the plane: {others or 'there is none'}")
        if axis == channel:
            channels.append(index)
        elif axis in chosen:
            raise BadParameter(name, index, "one index along this axis")
        else:
            chosen[axis] = index
    defaults = {} if image.omero is None else {"z": image.omero.default_z, "t": image.omero.default_t}
    indices: list[int | None] = [None] * len(image.axes)
    for i, along in enumerate(image.axes):
        default = defaults.get(along.name.lower())
        if i in chosen:
            indices[i] = _wrapped(image, along, chosen[i])
        elif i in plane or i == channel:
            continue
        elif default is not None and default < along.size:
            indices[i] = default
        else:  # the middle of spatial and unnamed axes, else the first index
            unnamed = along.type is None and re.fullmatch(r"d\d+", along.name) is not None
            indices[i] = along.size // 2 if along.type == "space" or unnamed else 0
    return tuple(indices), channels


def _choose_channels(image: Image, channel: int | None, requested: list[int]) -> tuple[int, ...]:
    """The requested channels; by default the active ones, or red, green and blue of a photograph."""
    if len(requested) > _MAX_CHANNELS:
        raise BadParameter("c", requested, f"at most {_MAX_CHANNELS} channels in one picture")
    axis = Axis("c", "channel", None, 1) if channel is None else image.axes[channel]
    if requested:
        return tuple(_wrapped(image, axis, index) for index in requested)
    if channel is not None and image.omero is not None and not image.is_rgb:
        active = [i for i, c in enumerate(image.omero.channels[: axis.size]) if c.active]
        return tuple(active[:_MAX_CHANNELS]) or (0,)
    return (0, 1, 2) if channel is not None and image.is_rgb else (0,)


def _wrapped(image: Image, axis: Axis, index: int) -> int:
    """The index, counted from the end if negative, as in numpy."""
    wrapped = index + axis.size if index < 0 else index
    if not 0 <= wrapped < axis.size:
        raise TileNotFound(image.path, f"{axis.name}={index}", f"the axis {axis.name} has {axis.size} cells")
    return wrapped


def _cell_shape(image: Image, plane: tuple[int, int]) -> tuple[int, int]:
    shapes = [tuple(axis.size for axis in image.axes), *image.shapes.values()]
    return max(shape[plane[0]] for shape in shapes), max(shape[plane[1]] for shape in shapes)


def _layout(image: Image, plane: tuple[int, int], tile_size: int) -> tuple[TileGrid, tuple[int, int] | None]:
    """The tile grid of a plane or a whole mosaic, and the mosaic's pitch.

    The gap between images is at least a hundredth of their size, and wide enough that images start on whole pixels at
    every zoom at which an image is larger than a pixel.
    """
    height, width = _cell_shape(image, plane)
    if image.mosaic is None:
        return TileGrid(height, width, tile_size), None
    coarsest = 1
    while True:
        pitch = tuple(ceil((size + size / 100) / coarsest) * coarsest for size in (height, width))
        grid = TileGrid(image.mosaic.rows * pitch[0], image.mosaic.columns * pitch[1], tile_size)
        if grid.factor(0) <= coarsest or coarsest >= max(height, width):
            return grid, (pitch[0], pitch[1])
        coarsest = grid.factor(0)
