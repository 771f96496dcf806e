"""Encoders of pictures (PNG, JPEG, WebP) and of arrays (npy, raw).

The PNG encoder (PNG specification, third edition, W3C) always takes the Up filter, in numpy, and deflate level 1, by
ISA-L: ten times as fast as general libraries, which try filters and levels, at the same size.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hyperslab import wire
from hyperslab.tiles.render import Bytes, PaletteImage, Planes, Raster, flatten, to_planes

if TYPE_CHECKING:
    from PIL.Image import Image

try:
    from isal import isal_zlib

    ENCODER: Final = "isal"
except ImportError:  # no wheel for this platform
    ENCODER = "zlib"  # type: ignore[misc]

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
    """Encoded picture. ``quality`` (1 to 100) applies to jpg and webp; jpg has no alpha: transparent pixels blend into
    black."""
    if fmt == "png":
        return _encode_png(raster)
    out = io.BytesIO()
    if fmt == "jpg":
        _image(flatten(raster, (0, 0, 0))).save(out, "JPEG", quality=quality)
    else:
        _image(raster).save(out, "WEBP", quality=quality, method=0)
    return out.getvalue()


def encode_numbers(values: np.ndarray[Any, np.dtype[Any]], fmt: str) -> bytes:
    """Encoded array, C order, little-endian, as the typed arrays of JavaScript."""
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    if fmt == "raw":
        return values.tobytes()
    out = io.BytesIO()
    np.lib.format.write_array(out, values, allow_pickle=False)
    return out.getvalue()


# --- png -------------------------------------------------------------------------------------------------------


def _encode_png(raster: Raster) -> bytes:
    if isinstance(raster, Planes):
        return _assemble(_interleaved(raster))
    index, palette, hidden = raster.index, raster.palette, raster.hidden
    is_grey = _is_opaque_grey(raster)
    if is_grey and (palette[:, 0] != np.arange(len(palette))).any():
        index = palette[index, 0]
    transparent: int | None = None
    if hidden is not None:  # an index that no visible pixel has is made the transparent one
        if is_grey or len(palette) == 256:
            unused = np.flatnonzero(np.bincount(index.ravel(), ~hidden.ravel(), minlength=256) == 0)
            transparent = int(unused[0]) if unused.size else None
        else:
            transparent = len(palette)
        if transparent is None:
            alpha = np.where(hidden, np.uint8(0), np.uint8(255))
            return _assemble(np.stack([index, alpha], axis=-1) if is_grey else _interleaved(to_planes(raster)))
        index = np.where(hidden, np.uint8(transparent), index)
    if is_grey:
        extra = b"" if transparent is None else _chunk(b"tRNS", struct.pack(">H", transparent))
        return _assemble(index[..., np.newaxis], extra)
    if transparent is not None:
        palette = np.zeros((max(transparent + 1, len(raster.palette)), 4), np.uint8)
        palette[: len(raster.palette)] = raster.palette
        palette[transparent] = 0
    extra = _chunk(b"PLTE", np.ascontiguousarray(palette[:, :3]).tobytes())
    translucent = np.flatnonzero(palette[:, 3] < 255)
    if translucent.size:  # entries beyond the end of tRNS are opaque
        extra += _chunk(b"tRNS", palette[: translucent[-1] + 1, 3].tobytes())
    return _assemble(index[..., np.newaxis], extra, colour_type=3)


def _assemble(samples: Bytes, extra: bytes = b"", *, colour_type: int | None = None) -> bytes:
    """PNG of ``(height, width, n)`` samples: palette indices with colour type 3, else grey, grey and alpha, RGB or RGBA
    for ``n`` of 1 to 4. ``extra`` are chunks to place before the data."""
    height, width, number = samples.shape
    rows = samples.reshape(height, -1)
    filtered = np.empty((height, rows.shape[1] + 1), np.uint8)
    filtered[:, 0] = 2  # filter type Up: each row minus the one above it
    filtered[:1, 1:] = rows[:1]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    data: bytes = (isal_zlib if ENCODER == "isal" else zlib).compress(filtered, 1)
    kind = (0, 4, 2, 6)[number - 1] if colour_type is None else colour_type
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))
    return b"".join((b"\x89PNG\r\n\x1a\n", header, extra, _chunk(b"IDAT", data), _chunk(b"IEND", b"")))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return b"".join((struct.pack(">I", len(data)), kind, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))))


def _is_opaque_grey(raster: PaletteImage) -> bool:
    red, green, blue, alpha = raster.palette.T
    return bool((alpha == 255).all() and (red == green).all() and (green == blue).all())


def _interleaved(planes: Planes) -> Bytes:
    parts = planes.rgb if planes.alpha is None else [*planes.rgb, planes.alpha]
    return np.stack([*parts], axis=-1)


def _image(raster: Raster) -> Image:
    from PIL import Image  # imported late: most pictures are PNG

    if isinstance(raster, PaletteImage) and raster.hidden is None and _is_opaque_grey(raster):
        return Image.fromarray(np.ascontiguousarray(raster.palette[raster.index, 0]))
    return Image.fromarray(_interleaved(to_planes(raster)))
