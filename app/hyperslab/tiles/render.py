"""Rendering: values to pictures by windows, channel composites and label palettes; operations on pictures. Pure.

Pictures are kept in the form that is cheapest to encode: palette indices or planes of colour.
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
class PaletteImage:
    """Palette picture: ``index`` is ``(height, width)``, ``palette`` ``(n, 4)`` RGBA with n ≤ 256; ``hidden`` pixels
    are transparent."""

    index: Bytes
    palette: Table
    hidden: Mask | None = None

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.index.shape
        return height, width


@dataclass(frozen=True, slots=True)
class Planes:
    """True-colour picture: ``rgb`` is ``(3, height, width)``, ``alpha`` ``(height, width)`` or None (opaque)."""

    rgb: Bytes
    alpha: Bytes | None = None

    @property
    def shape(self) -> tuple[int, int]:
        _, height, width = self.rgb.shape
        return height, width


Raster = PaletteImage | Planes


@dataclass(frozen=True, slots=True)
class Scale:
    """Mapping of values to the 256 entries of a LUT: ``low`` and below to 0, ``high`` and above to 255.

    Between them the fraction is raised to the power ``gamma``; ``inverted`` subtracts the result from 255.
    """

    low: float
    high: float
    gamma: float = 1.0
    inverted: bool = False


def to_steps(values: NDArray, scale: Scale, hidden: Mask | None = None) -> Bytes:
    """LUT indices of values, rounded to nearest; 0 for ``hidden`` ones.

    The arithmetic is that of `work_dtype`: ``floor((v - low) * (255 / (high - low)) + 0.5)``.
    """
    if values.dtype == np.uint8 and scale == Scale(0, 255):
        return values if hidden is None else np.where(hidden, np.uint8(0), values)
    if values.dtype == np.uint8 and values.size > 256:  # by a table of all 256 values
        steps = to_steps(np.arange(256, dtype=np.uint8), scale)[values]
        return steps if hidden is None else np.where(hidden, np.uint8(0), steps)
    if max(abs(scale.low), abs(scale.high), scale.high - scale.low) > float(np.finfo(np.float32).max):
        values = values.astype(np.float64)
        if scale.high - scale.low > np.finfo(np.float64).max:  # halved, so that the width is finite
            values, scale = values / 2, replace(scale, low=scale.low / 2, high=scale.high / 2)
    dtype = work_dtype(values.dtype)
    low, width = dtype.type(scale.low), max(scale.high - scale.low, 1e-36)  # the reciprocal must be finite in float32
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.subtract(values, low, dtype=dtype)
        if scale.gamma == 1:
            steps *= dtype.type(255 / width)
        else:
            steps *= dtype.type(1 / width)
            np.minimum(np.fmax(steps, 0, out=steps), 1, out=steps)
            np.power(steps, dtype.type(scale.gamma), out=steps)
            steps *= dtype.type(255)
        np.minimum(np.fmax(steps, 0, out=steps), 255, out=steps)  # fmax turns NaN into 0
        steps += dtype.type(0.5)
    whole: Bytes = (steps if hidden is None else np.where(hidden, 0, steps)).astype(np.uint8)
    if not scale.inverted:
        return whole
    np.subtract(255, whole, out=whole)
    return whole if hidden is None else np.where(hidden, np.uint8(0), whole)


def composite(values: NDArray, scales: Sequence[Scale], colours: Sequence[RGB], hidden: Mask | None = None) -> Planes:
    """Additive composite of ``(channels, height, width)`` values, clipped to 255; pixels that are hidden in all
    channels are transparent."""
    sums = np.zeros((3, *values.shape[1:]), np.uint16)
    for i, (scale, colour) in enumerate(zip(scales, colours, strict=True)):
        steps = to_steps(values[i], scale, None if hidden is None else hidden[i])
        for plane, strength in zip(sums, colour, strict=True):
            _add_light(plane, steps, strength)
    rgb = np.minimum(sums, 255).astype(np.uint8)
    if hidden is None or not (transparent := hidden.all(axis=0)).any():
        return Planes(rgb)
    return Planes(rgb, np.where(transparent, np.uint8(0), np.uint8(255)))


def _add_light(plane: np.ndarray[Any, np.dtype[np.uint16]], steps: Bytes, strength: int) -> None:
    """Add ``steps * strength / 255``, rounded."""
    if strength == 255:
        plane += steps
    elif strength:
        light = steps.astype(np.uint16) * np.uint16(strength) + np.uint16(128)
        plane += (light + (light >> 8)) >> 8


def unique_inverse(values: NDArray) -> tuple[NDArray, np.ndarray[Any, np.dtype[np.intp]]]:
    """`numpy.unique` with the inverse in the shape of ``values``; faster for integers within a small range."""
    are_integers = values.size > 0 and values.dtype.kind in "biu"
    low, high = (int(values.min()), int(values.max())) if are_integers else (0, 0)
    if not are_integers or high - low >= 1 << 20:
        distinct, inverse = np.unique(values, return_inverse=True)
        return distinct, inverse.reshape(values.shape)
    # a table of the range instead of a sort
    wide = np.dtype(np.uint64 if values.dtype.kind == "u" else np.int64)
    offsets = (values.astype(wide) - wide.type(low)).astype(np.intp)
    present = np.zeros(high - low + 1, bool)
    present[offsets] = True
    distinct = (np.flatnonzero(present).astype(wide) + wide.type(low)).astype(values.dtype)
    return distinct, (np.cumsum(present) - 1)[offsets]


def indexed(index: np.ndarray[Any, np.dtype[np.intp]], colours: Table, hidden: Mask | None = None) -> Raster:
    """The picture of ``(height, width)`` indices into ``(n, 4)`` RGBA colours, for any n."""
    if len(colours) <= 256:
        return PaletteImage(index.astype(np.uint8), colours, hidden)
    rgba = np.ascontiguousarray(colours.T)[:, index]
    if hidden is not None:
        rgba[3, hidden] = 0
    return Planes(rgba[:3], rgba[3])


# --- operations on pictures ------------------------------------------------------------------------------------


def to_planes(raster: Raster) -> Planes:
    """The picture in true colour."""
    if isinstance(raster, Planes):
        return raster
    rgba = np.ascontiguousarray(raster.palette.T)[:, raster.index]
    alpha = rgba[3]
    if raster.hidden is not None:
        alpha[raster.hidden] = 0
    return Planes(rgba[:3], None if raster.hidden is None and (raster.palette[:, 3] == 255).all() else alpha)


def pad(raster: Raster, height: int, width: int) -> Raster:
    """The picture at the top left of a larger transparent one."""
    if raster.shape == (height, width):
        return raster
    rest = ((0, height - raster.shape[0]), (0, width - raster.shape[1]))
    if isinstance(raster, PaletteImage):
        hidden = np.zeros(raster.shape, bool) if raster.hidden is None else raster.hidden
        return PaletteImage(np.pad(raster.index, rest), raster.palette, np.pad(hidden, rest, constant_values=True))
    alpha = np.full(raster.shape, 255, np.uint8) if raster.alpha is None else raster.alpha
    return Planes(np.pad(raster.rgb, ((0, 0), *rest)), np.pad(alpha, rest))


def rotate(raster: Raster, quarters: int) -> Raster:
    """The picture rotated clockwise by ``quarters`` right angles."""
    return _each_plane(raster, lambda plane: np.rot90(plane, -quarters, axes=(-2, -1)))


def mirror(raster: Raster) -> Raster:
    """The picture with left and right exchanged."""
    return _each_plane(raster, lambda plane: plane[..., ::-1])


def _each_plane(raster: Raster, apply: Callable[[Any], Any]) -> Raster:
    if isinstance(raster, PaletteImage):
        return PaletteImage(
            apply(raster.index), raster.palette, None if raster.hidden is None else apply(raster.hidden)
        )
    return Planes(apply(raster.rgb), None if raster.alpha is None else apply(raster.alpha))


def fade(raster: Raster, opacity: float) -> Raster:
    """The picture with its alpha multiplied by ``opacity``."""
    if opacity >= 1:
        return raster
    if isinstance(raster, PaletteImage):
        palette = raster.palette.copy()
        palette[:, 3] = np.rint(palette[:, 3] * opacity)
        return PaletteImage(raster.index, palette, raster.hidden)
    alpha = np.full(raster.shape, 255, np.uint8) if raster.alpha is None else raster.alpha
    return Planes(raster.rgb, np.rint(alpha * opacity).astype(np.uint8))


def flatten(raster: Raster, background: RGB | None) -> Raster:
    """The picture blended onto a background, without alpha; unchanged if that is None."""
    if background is None:
        return raster
    if isinstance(raster, PaletteImage) and raster.hidden is None:
        opaque = np.full_like(raster.palette, 255)
        opaque[:, :3] = _blend(raster.palette[:, :3], raster.palette[:, 3:], np.array(background, np.uint8))
        return PaletteImage(raster.index, opaque)
    planes = to_planes(raster)
    if planes.alpha is None:
        return planes
    return Planes(_blend(planes.rgb, planes.alpha, np.array(background, np.uint8)[:, None, None]))


def greyscale(raster: Raster) -> Raster:
    """The luma of a picture (ITU-R BT.601)."""
    if isinstance(raster, PaletteImage):
        grey = _luma(raster.palette[:, :3].T)
        return PaletteImage(raster.index, np.stack([grey, grey, grey, raster.palette[:, 3]], axis=1), raster.hidden)
    return Planes(np.broadcast_to(_luma(raster.rgb), raster.rgb.shape), raster.alpha)


def _luma(rgb: Bytes) -> Bytes:
    red, green, blue = rgb.astype(np.uint32)
    luma: Bytes = ((299 * red + 587 * green + 114 * blue + 500) // 1000).astype(np.uint8)
    return luma


def _blend(colour: Bytes, alpha: Bytes, background: Bytes) -> Bytes:
    a = alpha.astype(np.uint16)
    blended: Bytes = ((colour * a + background * (255 - a) + 127) // 255).astype(np.uint8)
    return blended
