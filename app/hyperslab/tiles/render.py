"""Numbers into pictures: windows, composites of channels, labels, and what is done to a picture. Pure, planar numpy.

A picture in memory has the form that is cheapest to encode: indices into a palette, or planes of colour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hyperslab.tiles.colour import RGB, Table
from hyperslab.tiles.resample import Mask, NDArray, work_dtype

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Indexed:
    """``index`` is ``(height, width)``, ``palette`` ``(n, 4)`` RGBA, n up to 256; ``hidden`` pixels are not seen."""

    index: Bytes
    palette: Table
    hidden: Mask | None = None

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.index.shape
        return height, width


@dataclass(frozen=True, slots=True)
class Planes:
    """``rgb`` is ``(3, height, width)``; ``alpha`` ``(height, width)``, None where all is opaque."""

    rgb: Bytes
    alpha: Bytes | None = None

    @property
    def shape(self) -> tuple[int, int]:
        _, height, width = self.rgb.shape
        return height, width


Raster = Indexed | Planes


@dataclass(frozen=True, slots=True)
class Scale:
    """How values become the 256 steps of a colour map: ``low`` and below is 0, ``high`` and above 255.

    ``gamma`` bends what lies between: below 1 it brightens. ``inverted`` exchanges the ends.
    """

    low: float
    high: float
    gamma: float = 1.0
    inverted: bool = False


def to_steps(values: NDArray, scale: Scale, hidden: Mask | None = None) -> Bytes:
    """Each value as a step from 0 to 255, rounded to the nearest; ``hidden`` ones are 0.

    The arithmetic is that of `work_dtype`: ``floor((v - low) * (255 / (high - low)) + 0.5)``.
    """
    if values.dtype == np.uint8 and scale == Scale(0, 255):
        return values if hidden is None else np.where(hidden, np.uint8(0), values)
    if values.dtype == np.uint8 and values.size > 256:  # each of 256 values once instead of each pixel
        steps = to_steps(np.arange(256, dtype=np.uint8), scale)[values]
        return steps if hidden is None else np.where(hidden, np.uint8(0), steps)
    if max(abs(scale.low), abs(scale.high), scale.high - scale.low) > float(np.finfo(np.float32).max):
        values = values.astype(np.float64)
        if scale.high - scale.low > np.finfo(np.float64).max:  # halved, a window has a width again
            values, scale = values / 2, replace(scale, low=scale.low / 2, high=scale.high / 2)
    dtype = work_dtype(values.dtype)
    low, width = dtype.type(scale.low), max(scale.high - scale.low, 1e-36)  # less has no inverse in float32
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.subtract(values, low, dtype=dtype)
        if scale.gamma == 1:
            steps *= dtype.type(255 / width)
        else:
            steps *= dtype.type(1 / width)
            np.minimum(np.fmax(steps, 0, out=steps), 1, out=steps)
            np.power(steps, dtype.type(scale.gamma), out=steps)
            steps *= dtype.type(255)
        np.minimum(np.fmax(steps, 0, out=steps), 255, out=steps)  # fmax, so that what is no number is 0
        steps += dtype.type(0.5)
    whole: Bytes = (steps if hidden is None else np.where(hidden, 0, steps)).astype(np.uint8)
    if not scale.inverted:
        return whole
    np.subtract(255, whole, out=whole)
    return whole if hidden is None else np.where(hidden, np.uint8(0), whole)


def composite(values: NDArray, scales: Sequence[Scale], colours: Sequence[RGB], hidden: Mask | None = None) -> Planes:
    """Channels added up as light is: ``values`` is ``(channels, height, width)``, sums above 255 are 255.

    A pixel is not seen where no channel has a value.
    """
    sums = np.zeros((3, *values.shape[1:]), np.uint16)
    for i, (scale, colour) in enumerate(zip(scales, colours, strict=True)):
        steps = to_steps(values[i], scale, None if hidden is None else hidden[i])
        for plane, strength in zip(sums, colour, strict=True):
            _add_light(plane, steps, strength)
    rgb = np.minimum(sums, 255).astype(np.uint8)
    if hidden is None or not (nothing := hidden.all(axis=0)).any():
        return Planes(rgb)
    return Planes(rgb, np.where(nothing, np.uint8(0), np.uint8(255)))


def _add_light(plane: np.ndarray[Any, np.dtype[np.uint16]], steps: Bytes, strength: int) -> None:
    """Add ``steps * strength / 255``, rounded."""
    if strength == 255:
        plane += steps
    elif strength:
        light = steps.astype(np.uint16) * np.uint16(strength) + np.uint16(128)
        plane += (light + (light >> 8)) >> 8


def dense(values: NDArray) -> tuple[NDArray, np.ndarray[Any, np.dtype[np.intp]]]:
    """The distinct values in order, and for each cell which of them it has (`numpy.unique`, but fast for labels)."""
    are_integers = values.size > 0 and values.dtype.kind in "biu"
    low, high = (int(values.min()), int(values.max())) if are_integers else (0, 0)
    if not are_integers or high - low >= 1 << 20:
        found, inverse = np.unique(values, return_inverse=True)
        return found, inverse.reshape(values.shape)
    # values that lie so close together are counted in a table instead of being sorted
    wide = np.dtype(np.uint64 if values.dtype.kind == "u" else np.int64)
    offsets = (values.astype(wide) - wide.type(low)).astype(np.intp)
    seen = np.zeros(high - low + 1, bool)
    seen[offsets] = True
    found = (np.flatnonzero(seen).astype(wide) + wide.type(low)).astype(values.dtype)
    return found, (np.cumsum(seen) - 1)[offsets]


def painted(index: np.ndarray[Any, np.dtype[np.intp]], colours: Table, hidden: Mask | None = None) -> Raster:
    """A picture of ``(height, width)`` indices into any number of ``(n, 4)`` RGBA colours."""
    if len(colours) <= 256:
        return Indexed(index.astype(np.uint8), colours, hidden)
    rgba = np.ascontiguousarray(colours.T)[:, index]
    if hidden is not None:
        rgba[3, hidden] = 0
    return Planes(rgba[:3], rgba[3])


# --- what is done to a picture ---------------------------------------------------------------------------------


def to_planes(raster: Raster) -> Planes:
    """The same picture without its palette."""
    if isinstance(raster, Planes):
        return raster
    rgba = np.ascontiguousarray(raster.palette.T)[:, raster.index]
    alpha = rgba[3]
    if raster.hidden is not None:
        alpha[raster.hidden] = 0
    return Planes(rgba[:3], None if raster.hidden is None and (raster.palette[:, 3] == 255).all() else alpha)


def pad(raster: Raster, height: int, width: int) -> Raster:
    """The picture at the top left of a larger one, the rest of which is not seen."""
    if raster.shape == (height, width):
        return raster
    rest = ((0, height - raster.shape[0]), (0, width - raster.shape[1]))
    if isinstance(raster, Indexed):
        hidden = np.zeros(raster.shape, bool) if raster.hidden is None else raster.hidden
        return Indexed(np.pad(raster.index, rest), raster.palette, np.pad(hidden, rest, constant_values=True))
    alpha = np.full(raster.shape, 255, np.uint8) if raster.alpha is None else raster.alpha
    return Planes(np.pad(raster.rgb, ((0, 0), *rest)), np.pad(alpha, rest))


def rotate(raster: Raster, quarters: int) -> Raster:
    """Turned clockwise by so many right angles."""
    return _rearranged(raster, lambda plane: np.rot90(plane, -quarters, axes=(-2, -1)))


def mirror(raster: Raster) -> Raster:
    """Left and right exchanged."""
    return _rearranged(raster, lambda plane: plane[..., ::-1])


def _rearranged(raster: Raster, move: Callable[[Any], Any]) -> Raster:
    if isinstance(raster, Indexed):
        return Indexed(move(raster.index), raster.palette, None if raster.hidden is None else move(raster.hidden))
    return Planes(move(raster.rgb), None if raster.alpha is None else move(raster.alpha))


def fade(raster: Raster, opacity: float) -> Raster:
    """Seen through by so much: 0 is not seen at all, 1 is as before."""
    if opacity >= 1:
        return raster
    if isinstance(raster, Indexed):
        palette = raster.palette.copy()
        palette[:, 3] = np.rint(palette[:, 3] * opacity)
        return Indexed(raster.index, palette, raster.hidden)
    alpha = np.full(raster.shape, 255, np.uint8) if raster.alpha is None else raster.alpha
    return Planes(raster.rgb, np.rint(alpha * opacity).astype(np.uint8))


def flatten(raster: Raster, background: RGB | None) -> Raster:
    """In front of a colour: nothing is seen through any more. None leaves it as it is."""
    if background is None:
        return raster
    if isinstance(raster, Indexed) and raster.hidden is None:
        opaque = np.full_like(raster.palette, 255)
        opaque[:, :3] = _over(raster.palette[:, :3], raster.palette[:, 3:], np.array(background, np.uint8))
        return Indexed(raster.index, opaque)
    planes = to_planes(raster)
    if planes.alpha is None:
        return planes
    behind = np.array(background, np.uint8)[:, None, None]
    return Planes(_over(planes.rgb, planes.alpha, behind))


def greyscale(raster: Raster) -> Raster:
    """Without colour, by the luma of ITU-R BT.601."""
    if isinstance(raster, Indexed):
        grey = _luma(raster.palette[:, :3].T)
        return Indexed(raster.index, np.stack([grey, grey, grey, raster.palette[:, 3]], axis=1), raster.hidden)
    return Planes(np.broadcast_to(_luma(raster.rgb), raster.rgb.shape), raster.alpha)


def _luma(rgb: Bytes) -> Bytes:
    red, green, blue = rgb.astype(np.uint32)
    luma: Bytes = ((299 * red + 587 * green + 114 * blue + 500) // 1000).astype(np.uint8)
    return luma


def _over(colour: Bytes, alpha: Bytes, behind: Bytes) -> Bytes:
    a = alpha.astype(np.uint16)
    over: Bytes = ((colour * a + behind * (255 - a) + 127) // 255).astype(np.uint8)
    return over
