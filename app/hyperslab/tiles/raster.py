"""A picture in memory, in the form that is cheapest to encode: indices into a palette, or planes of colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hyperslab.tiles.colour import RGB, Table
from hyperslab.tiles.resample import Mask

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
    if isinstance(raster, Indexed):
        hidden = None if raster.hidden is None else np.rot90(raster.hidden, -quarters)
        return Indexed(np.rot90(raster.index, -quarters), raster.palette, hidden)
    alpha = None if raster.alpha is None else np.rot90(raster.alpha, -quarters)
    return Planes(np.rot90(raster.rgb, -quarters, axes=(1, 2)), alpha)


def mirror(raster: Raster) -> Raster:
    """Left and right exchanged."""
    if isinstance(raster, Indexed):
        hidden = None if raster.hidden is None else raster.hidden[:, ::-1]
        return Indexed(raster.index[:, ::-1], raster.palette, hidden)
    return Planes(raster.rgb[:, :, ::-1], None if raster.alpha is None else raster.alpha[:, ::-1])


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


def flatten(raster: Raster, background: RGB) -> Raster:
    """In front of a colour: nothing is seen through any more."""
    if isinstance(raster, Indexed) and raster.hidden is None:
        return Indexed(raster.index, _palette_over(raster.palette, background))
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


def _palette_over(palette: Table, background: RGB) -> Table:
    opaque = np.full_like(palette, 255)
    opaque[:, :3] = _over(palette[:, :3], palette[:, 3:], np.array(background, np.uint8))
    return opaque


def _over(colour: Bytes, alpha: Bytes, behind: Bytes) -> Bytes:
    a = alpha.astype(np.uint16)
    over: Bytes = ((colour * a + behind * (255 - a) + 127) // 255).astype(np.uint8)
    return over
