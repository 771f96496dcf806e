"""The part of an image that is shown: the two axes of the plane, the positions on the others, and the channels."""

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
from hyperslab.tiles.image import Axis, Image
from hyperslab.tiles.pyramid import Region, Span, TileGrid
from hyperslab.tiles.query import TileQuery

_MOST_CHANNELS = 16


@dataclass(frozen=True, slots=True)
class Frame:
    """A plane of an image. ``indices`` has the position along each axis, None for those of the plane and the channel.

    ``channels`` are indices along ``channel_axis``, or just ``(0,)`` where there is no such axis. ``cell_pitch`` is the
    distance between the images of a mosaic, in cells. ``grid`` counts pixels of the picture in full size: ``scale`` of
    them are one cell, along rows and columns. ``flip`` says which of the two run backwards. ``decoder`` is there
    where values are decoded and that changes them.
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
        """A region of the picture in cells, in the order of the array; negative where its last pixels reach beyond."""
        spans, extents = (region.rows, region.columns), (self.grid.height, self.grid.width)
        starts = (
            extent - span.stop if flipped else span.start
            for span, flipped, extent in zip(spans, self.flip, extents, strict=True)
        )
        places = zip(starts, spans, self.scale, strict=True)
        return Region(*(Span(start / scale, span.step / scale, span.count) for start, span, scale in places))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values that are drawn."""
        return self.image.dtype if self.decoder is None else self.decoder.dtype

    @property
    def growth(self) -> int:
        """How many times their own memory decoding takes of values."""
        return 1 if self.decoder is None else 1 + -(-self.dtype.itemsize // self.image.dtype.itemsize)

    @property
    def cell_shape(self) -> tuple[int, int]:
        """Height and width of one image, in cells."""
        rows, columns = self.plane
        return self.image.axes[rows].size, self.image.axes[columns].size


def make_frame(image: Image, query: TileQuery) -> Frame:
    """The plane of an image that a query wants.

    Raises `BadParameter` (an axis that does not exist, or that cannot be chosen), `NotRepresentable` (fewer than two
    axes) and `TileNotFound` (an index beyond an axis).
    """
    axes = image.axes
    if len(axes) < 2:
        reason = f"a picture needs two axes, this array has {len(axes)}"
        raise NotRepresentable(image.dtype.str, "a picture", reason)
    rows, columns = _default_plane(axes) if query.axes is None else _find_axes(image, query.axes, "axes")
    if rows == columns:
        raise BadParameter("axes", ",".join(query.axes or ()), "two different axes")
    plane = rows, columns
    channel = next((i for i, axis in enumerate(axes) if axis.type == "channel" and i not in plane), None)
    indices, wanted = _choose_indices(image, query, plane, channel)
    channels = _choose_channels(image, channel, wanted)
    grid, pitch = _layout(image, plane, query.tile_size)
    scale, aspect = (1.0, 1.0), query.aspect
    if not isinstance(aspect, str) and aspect != 1 and grid.height and grid.width:  # no cell less than a pixel
        height, width = round(grid.height * max(aspect, 1)), round(grid.width / min(aspect, 1))
        scale = height / grid.height, width / grid.width
        grid = TileGrid(height, width, grid.size)
    flipped = _find_axes(image, query.flip, "flip") if query.flip and query.flip != "auto" else []
    if not set(flipped) <= set(plane):
        names = " and ".join(axes[axis].name for axis in plane)
        raise BadParameter("flip", ",".join(query.flip), f"axes of the plane, {names}")
    decoder: Decoder | None = None
    if query.decode == "cf" and not query.labels and image.image_label is None:  # labels stand for themselves
        decoder = image.levels[0].array.decoder.without_times()  # times stay numbers, which alone can be drawn
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


def _default_plane(axes: Sequence[Axis]) -> tuple[int, int]:
    """The last two axes of space, else the last two that are no channels."""
    for wanted in ({"space"}, {"space", None}, {"space", "time", None}):
        found = [i for i, axis in enumerate(axes) if axis.type in wanted]
        if len(found) >= 2:
            return found[-2], found[-1]
    return len(axes) - 2, len(axes) - 1


def _find_axes(image: Image, names: tuple[str, ...], parameter: str) -> list[int]:
    """Axes by name; a name that has a comma in it comes percent-encoded once more."""
    known = {axis.name for axis in image.axes}
    found = (name if name in known else unquote(name) for name in names)
    return [_find_axis(image, name, parameter, ",".join(names)) for name in found]


def _find_axis(image: Image, name: str, parameter: str, value: object) -> int:
    names = [axis.name for axis in image.axes]
    if name not in names:
        raise BadParameter(parameter, value, f"one of the axes {', '.join(names)}, or a parameter of tiles")
    return names.index(name)


def _choose_indices(
    image: Image, query: TileQuery, plane: tuple[int, int], channel: int | None
) -> tuple[tuple[int | None, ...], list[int]]:
    """Indices by axis, and those of channels that the query names, which alone may be several."""
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
        wanted = defaults.get(along.name.lower())
        if i in chosen:
            indices[i] = _wrapped(image, along, chosen[i])
        elif i in plane or i == channel:
            continue
        elif wanted is not None and wanted < along.size:
            indices[i] = wanted
        else:  # the middle of space and of an axis without a name, else the beginning
            unnamed = along.type is None and re.fullmatch(r"d\d+", along.name) is not None
            indices[i] = along.size // 2 if along.type == "space" or unnamed else 0
    return tuple(indices), channels


def _choose_channels(image: Image, channel: int | None, wanted: list[int]) -> tuple[int, ...]:
    """The ``wanted`` channels; where none are, the active ones, or red, green and blue of a photograph."""
    if len(wanted) > _MOST_CHANNELS:
        raise BadParameter("c", wanted, f"at most {_MOST_CHANNELS} channels in one picture")
    axis = Axis("c", "channel", None, 1) if channel is None else image.axes[channel]
    if wanted:
        return tuple(_wrapped(image, axis, index) for index in wanted)
    if channel is not None and image.omero is not None:
        active = [i for i, c in enumerate(image.omero.channels[: axis.size]) if c.active]
        return tuple(active[:_MOST_CHANNELS]) or (0,)
    return (0, 1, 2) if channel == len(image.axes) - 1 and image.is_rgb else (0,)


def _wrapped(image: Image, axis: Axis, index: int) -> int:
    """Negative indices count from the end, as in numpy."""
    wrapped = index + axis.size if index < 0 else index
    if not 0 <= wrapped < axis.size:
        raise TileNotFound(image.path, f"{axis.name}={index}", f"the axis {axis.name} has {axis.size} cells")
    return wrapped


def _layout(image: Image, plane: tuple[int, int], tile_size: int) -> tuple[TileGrid, tuple[int, int] | None]:
    """Tiles over the plane, or over all images of a mosaic.

    Those lie so far apart that each begins on a whole pixel at every zoom that shows an image as more than one, and
    at least a hundredth apart.
    """
    height, width = (image.axes[axis].size for axis in plane)
    if image.mosaic is None:
        return TileGrid(height, width, tile_size), None
    coarsest = 1
    while True:
        pitch = tuple(ceil((size + size / 100) / coarsest) * coarsest for size in (height, width))
        grid = TileGrid(image.mosaic.rows * pitch[0], image.mosaic.columns * pitch[1], tile_size)
        if grid.factor(0) <= coarsest or coarsest >= max(height, width):
            return grid, (pitch[0], pitch[1])
        coarsest = grid.factor(0)
