"""Pictures and numbers as bytes: PNG, JPEG, WebP, npy and raw."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from PIL import Image

from hyperslab import wire
from hyperslab.tiles import png
from hyperslab.tiles.render import Bytes, Indexed, Planes, Raster, flatten, to_planes

PICTURE_FORMATS: Final = ("png", "jpg", "webp")
NUMBER_FORMATS: Final = ("npy", "raw")
MEDIA_TYPES: Final[Mapping[str, str]] = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "webp": "image/webp",
    "npy": wire.NPY,
    "raw": wire.RAW,
}


def encode_picture(raster: Raster, fmt: str, *, quality: int) -> bytes:
    """The bytes of a picture. ``quality`` (1 to 100) is for jpg and webp; jpg puts what is transparent on black."""
    if fmt == "png":
        return _encode_png(raster)
    out = io.BytesIO()
    if fmt == "jpg":
        _image(flatten(raster, (0, 0, 0))).save(out, "JPEG", quality=quality)
    else:
        _image(raster).save(out, "WEBP", quality=quality, method=0)
    return out.getvalue()


def encode_numbers(values: np.ndarray[Any, np.dtype[Any]], fmt: str) -> bytes:
    """The bytes of an array in C order, little-endian as typed arrays of JavaScript read them."""
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    if fmt == "raw":
        return values.tobytes()
    out = io.BytesIO()
    np.lib.format.write_array(out, values, allow_pickle=False)
    return out.getvalue()


# --- png -------------------------------------------------------------------------------------------------------


def _encode_png(raster: Raster) -> bytes:
    if isinstance(raster, Planes):
        return png.write_samples(_interleaved(raster))
    if _is_opaque_grey(raster):
        return _encode_grey(raster)
    if raster.hidden is None:
        return png.write_indexed(raster.index, raster.palette)
    return _encode_with_holes(raster)


def _encode_grey(raster: Indexed) -> bytes:
    grey = raster.index if _is_ramp(raster) else raster.palette[raster.index, 0]
    if raster.hidden is None:
        return png.write_samples(grey[..., np.newaxis])
    free = _unused_value(grey, raster)
    if free is None:
        alpha = np.where(raster.hidden, np.uint8(0), np.uint8(255))
        return png.write_samples(np.stack([grey, alpha], axis=-1))
    return png.write_samples(np.where(raster.hidden, np.uint8(free), grey)[..., np.newaxis], transparent_grey=free)


def _encode_with_holes(raster: Indexed) -> bytes:
    """One entry of the palette that no pixel uses stands for the hidden ones; RGBA where all 256 are in use."""
    assert raster.hidden is not None
    free = len(raster.palette) if len(raster.palette) < 256 else _unused_value(raster.index, raster)
    if free is None:
        return png.write_samples(_interleaved(to_planes(raster)))
    palette = np.zeros((max(free + 1, len(raster.palette)), 4), np.uint8)
    palette[: len(raster.palette)] = raster.palette
    palette[free] = 0
    return png.write_indexed(np.where(raster.hidden, np.uint8(free), raster.index), palette)


def _is_opaque_grey(raster: Indexed) -> bool:
    red, green, blue, alpha = raster.palette.T
    return bool((alpha == 255).all() and (red == green).all() and (green == blue).all())


def _is_ramp(raster: Indexed) -> bool:
    return bool((raster.palette[:, 0] == np.arange(len(raster.palette))).all())


def _unused_value(values: Bytes, raster: Indexed) -> int | None:
    """A byte that no pixel in sight has."""
    counts = np.bincount(values.ravel(), None if raster.hidden is None else ~raster.hidden.ravel(), minlength=256)
    free = np.flatnonzero(counts == 0)
    return int(free[0]) if free.size else None


def _interleaved(planes: Planes) -> Bytes:
    height, width = planes.shape
    out = np.empty((height, width, 3 if planes.alpha is None else 4), np.uint8)
    for i in range(3):
        out[..., i] = planes.rgb[i]
    if planes.alpha is not None:
        out[..., 3] = planes.alpha
    return out


def _image(raster: Raster) -> Image.Image:
    if isinstance(raster, Indexed) and raster.hidden is None and _is_opaque_grey(raster):
        return Image.fromarray(np.ascontiguousarray(raster.palette[raster.index, 0]))
    return Image.fromarray(_interleaved(to_planes(raster)))
