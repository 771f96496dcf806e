"""What of a picture is shown: which two axes are the plane, where the others stand, and which channels."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any, Literal
from urllib.parse import unquote

import numpy as np

from hyperslab.engine.cf import Decoder
from hyperslab.errors import BadParameter, NotRepresentable, TileNotFound
from hyperslab.tiles.asked import Asked
from hyperslab.tiles.axes import Axis, channel_axis, default_index, default_plane
from hyperslab.tiles.picture import Picture
from hyperslab.tiles.pyramid import Region, Span, TileGrid

_MOST_CHANNELS = 16


@dataclass(frozen=True, slots=True)
class Frame:
    """A plane of a picture. ``indices`` has the position along each axis, None for those of the plane and the channel.

    ``channels`` are indices along ``channel_axis``, or just ``(0,)`` where there is no such axis. ``cell_pitch`` is the
    distance between the images of a mosaic, in cells. ``grid`` counts pixels of the picture in full size: ``scale`` of
    them are one cell, along rows and columns. ``flip`` says which of the two run backwards. ``decoder`` is there
    where values are decoded and that changes them.
    """

    picture: Picture
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
        spans = (region.rows, region.columns)
        extents = (self.grid.height, self.grid.width)
        rows, columns = map(_in_cells, spans, self.scale, self.flip, extents)
        return Region(rows, columns)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values that are drawn."""
        return self.picture.dtype if self.decoder is None else self.decoder.dtype

    @property
    def growth(self) -> int:
        """How many times their own memory decoding takes of values."""
        return 1 if self.decoder is None else 1 + -(-self.dtype.itemsize // self.picture.dtype.itemsize)

    @property
    def identity(self) -> str:
        """All that tells two frames of one picture apart."""
        field = "" if self.picture.field is None else self.picture.field.name
        decoded = "" if self.decoder is None else "|cf"
        shown = f"{field}|{self.plane}|{self.indices}|{self.channels}|{self.grid.size}{decoded}"
        return f"{shown}|{self.flip}|{self.scale}"

    @property
    def cell_shape(self) -> tuple[int, int]:
        """Height and width of one image, in cells."""
        rows, columns = self.plane
        return self.picture.axes[rows].size, self.picture.axes[columns].size


def make_frame(picture: Picture, asked: Asked) -> Frame:
    """Compare what was asked for with the picture's axes.

    Raises `BadParameter` (an axis that there is not, or that cannot be chosen), `NotRepresentable` (fewer than two
    axes) and `TileNotFound` (an index beyond an axis).
    """
    plane = _choose_plane(picture, asked)
    channel = channel_axis(picture.axes, plane)
    chosen, channels = _split_selection(picture, asked, plane, channel)
    indices = tuple(
        None if axis in plane or axis == channel else _choose_index(picture, axis, chosen.get(axis))
        for axis in range(len(picture.axes))
    )
    grid, pitch = _layout(picture, plane, asked.tile_size)
    grid, scale = _stretched(grid, asked.aspect)
    channels = _choose_channels(picture, channel, channels)
    flip, decoder = _choose_flip(picture, plane, asked), _choose_decoder(picture, asked)
    return Frame(picture, plane, indices, channel, channels, grid, pitch, flip, scale, decoder)


def _in_cells(span: Span, scale: float, flipped: bool, extent: int) -> Span:
    start = extent - span.stop if flipped else span.start
    return Span(start / scale, span.step / scale, span.count)


def _stretched(grid: TileGrid, aspect: float | Literal["auto"]) -> tuple[TileGrid, tuple[float, float]]:
    """The grid with cells that are ``aspect`` times as high as wide, none of them less than a pixel either way."""
    if isinstance(aspect, str) or aspect == 1 or not grid.height or not grid.width:
        return grid, (1.0, 1.0)
    height, width = round(grid.height * max(aspect, 1)), round(grid.width / min(aspect, 1))
    return TileGrid(height, width, grid.size), (height / grid.height, width / grid.width)


def _choose_flip(picture: Picture, plane: tuple[int, int], asked: Asked) -> tuple[bool, bool]:
    if asked.flip == "auto":
        return False, False
    text = ",".join(asked.flip)
    flipped = [_find_plane_axis(picture, name, text, "flip") for name in asked.flip]
    if not set(flipped) <= set(plane):
        names = " and ".join(picture.axes[axis].name for axis in plane)
        raise BadParameter("flip", text, f"axes of the plane, {names}")
    return plane[0] in flipped, plane[1] in flipped


def _choose_decoder(picture: Picture, asked: Asked) -> Decoder | None:
    """What ``decode=cf`` makes of the finest level's values. Labels stand for themselves, and times stay numbers, which
    alone can be drawn."""
    if asked.decode == "none" or asked.labels or picture.image_label is not None:
        return None
    decoder = picture.levels[0].array.decoder.without_times()
    return decoder if decoder.changes else None


def _choose_plane(picture: Picture, asked: Asked) -> tuple[int, int]:
    try:
        plane = default_plane(picture.axes)
    except ValueError as error:
        raise NotRepresentable(picture.dtype.str, "a picture", str(error)) from error
    if asked.axes is None:
        return plane
    rows, columns = (_find_plane_axis(picture, name, ",".join(asked.axes)) for name in asked.axes)
    if rows == columns:
        raise BadParameter("axes", ",".join(asked.axes), "two different axes")
    return rows, columns


def _find_plane_axis(picture: Picture, name: str, value: str, parameter: str = "axes") -> int:
    """A name that has a comma in it comes percent-encoded once more."""
    known = any(axis.name == name for axis in picture.axes)
    return _find_axis(picture, name if known else unquote(name), parameter, value)


def _find_axis(picture: Picture, name: str, parameter: str, value: object) -> int:
    names = [axis.name for axis in picture.axes]
    if name not in names:
        raise BadParameter(parameter, value, f"one of the axes {', '.join(names)}, or a parameter of tiles")
    return names.index(name)


def _split_selection(
    picture: Picture, asked: Asked, plane: tuple[int, int], channel: int | None
) -> tuple[dict[int, int], tuple[int, ...]]:
    """Indices by axis, and those of channels, which alone may be several."""
    chosen: dict[int, int] = {}
    channels = list(asked.c)
    for name, index in asked.selection:
        axis = _find_axis(picture, name, name, index)
        if axis in plane:
            others = ", ".join(a.name for i, a in enumerate(picture.axes) if i not in plane)
            raise BadParameter(name, index, f"an axis outside the plane: {others or 'there is none'}")
        if axis == channel:
            channels.append(index)
        elif axis in chosen:
            raise BadParameter(name, index, "one index along this axis")
        else:
            chosen[axis] = index
    return chosen, tuple(channels)


def _choose_index(picture: Picture, axis: int, wanted: int | None) -> int:
    facts = picture.axes[axis]
    if wanted is None:
        return default_index(facts, _omero_default(picture, facts))
    return _wrapped(picture, facts, wanted)


def _omero_default(picture: Picture, axis: Axis) -> int | None:
    if picture.omero is None:
        return None
    return {"z": picture.omero.default_z, "t": picture.omero.default_t}.get(axis.name.lower())


def _wrapped(picture: Picture, axis: Axis, index: int) -> int:
    """Negative indices count from the end, as in numpy."""
    wrapped = index + axis.size if index < 0 else index
    if not 0 <= wrapped < axis.size:
        raise TileNotFound(picture.path, f"{axis.name}={index}", f"the axis {axis.name} has {axis.size} cells")
    return wrapped


def _choose_channels(picture: Picture, channel: int | None, wanted: tuple[int, ...]) -> tuple[int, ...]:
    axis = Axis("c", "channel", None, 1) if channel is None else picture.axes[channel]
    if len(wanted) > _MOST_CHANNELS:
        raise BadParameter("c", list(wanted), f"at most {_MOST_CHANNELS} channels in one picture")
    if wanted:
        return tuple(_wrapped(picture, axis, index) for index in wanted)
    if channel is not None and picture.omero is not None:
        active = [i for i, c in enumerate(picture.omero.channels[: axis.size]) if c.active]
        return tuple(active[:_MOST_CHANNELS]) or (0,)
    return tuple(range(3)) if channel == len(picture.axes) - 1 and picture.is_rgb else (0,)


def _layout(picture: Picture, plane: tuple[int, int], tile_size: int) -> tuple[TileGrid, tuple[int, int] | None]:
    """Tiles over the plane, or over all images of a mosaic.

    Those lie so far apart that each begins on a whole pixel at every zoom that shows an image as more than one, and
    at least a hundredth apart.
    """
    height, width = (picture.axes[axis].size for axis in plane)
    if picture.mosaic is None:
        return TileGrid(height, width, tile_size), None
    rows, columns = picture.mosaic.rows, picture.mosaic.columns
    coarsest = 1
    while True:
        pitch = tuple(ceil((size + size / 100) / coarsest) * coarsest for size in (height, width))
        grid = TileGrid(rows * pitch[0], columns * pitch[1], tile_size)
        if grid.factor(0) <= coarsest or coarsest >= max(height, width):
            return grid, (pitch[0], pitch[1])
        coarsest = grid.factor(0)
