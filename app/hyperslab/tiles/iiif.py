"""IIIF Image API 3.0 (https://iiif.io/api/image/3.0/): image requests and ``info.json``. Pure.

Compliance level 2; upscaling is not supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, Final

from hyperslab.errors import BadParameter, TooLarge
from hyperslab.tiles.encode import PICTURE_FORMATS
from hyperslab.tiles.pyramid import Region, Span, TileGrid
from hyperslab.tiles.render import Raster, greyscale, mirror, rotate

QUALITIES: Final = ("default", "color", "gray")
MAX_AREA: Final = 16 << 20
"""The largest picture, in pixels; the size ``max`` is scaled down to it."""
MAX_SIDE: Final = 16_383
"""The longest side in pixels: the limit of WebP."""

NUMBER: Final = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """Region and size as in the URL; then mirroring, a clockwise rotation by ``quarters`` right angles, greyscale."""

    part: str
    size: str
    mirrored: bool
    quarters: int
    gray: bool
    fmt: str

    def region(self, grid: TileGrid) -> Region:
        """The requested region of a plane; raises `BadParameter` and `TooLarge`."""
        left, top, width, height = _parse_region(grid, self.part)
        columns, rows = _parse_size(self.size, width, height)
        if columns > width or rows > height:
            raise BadParameter("size", self.size, f"no more than the {width} by {height} pixels there are")
        if not _is_small_enough(columns, rows):
            raise TooLarge(f"an image of {columns} by {rows}", columns * rows, MAX_AREA, unit="pixels")
        down, across = _steps((height, width), (rows, columns))
        return Region(Span(top, down, rows), Span(left, across, columns))

    def transform(self, raster: Raster) -> Raster:
        """The picture of the region, mirrored, rotated and made grey as requested."""
        raster = mirror(raster) if self.mirrored else raster
        raster = rotate(raster, self.quarters) if self.quarters else raster
        return greyscale(raster) if self.gray else raster

    @property
    def label(self) -> str:
        """Part of the entity tag: identifies `transform`."""
        return f"{self.mirrored}|{self.quarters}|{self.gray}"


def info_document(grid: TileGrid, identifier: str, allows: Callable[[Region], bool] = lambda _: True) -> dict[str, Any]:
    """The ``info.json`` of an image service; ``identifier`` is its URL.

    Sizes and scale factors for which ``allows`` is false are left out, except the finest tiles.
    """
    zooms = range(grid.maxzoom + 1)
    wholes = []
    for factor in map(grid.factor, zooms):
        rows, columns = ceil(grid.height / factor), ceil(grid.width / factor)
        wholes.append(Region(Span(0, factor, rows), Span(0, factor, columns)))
    sizes = [region.shape for region in wholes if allows(region)]
    factors = [grid.factor(z) for z in zooms[:-1] if allows(grid.region(z, 0, 0))] + [1]
    return {
        "@context": "http://iiif.io/api/image/3/context.json",
        "id": identifier,
        "type": "ImageService3",
        "protocol": "http://iiif.io/api/image",
        "profile": "level2",
        "width": grid.width,
        "height": grid.height,
        "maxWidth": MAX_SIDE,
        "maxArea": MAX_AREA,
        "sizes": [{"width": w, "height": h} for h, w in sizes if _is_small_enough(w, h)],
        "tiles": [{"width": grid.size, "scaleFactors": factors[::-1]}],
        "preferredFormats": ["png", "webp", "jpg"],
        "extraFormats": ["webp"],
        "extraFeatures": ["mirroring"],
    }


def _is_small_enough(width: int, height: int) -> bool:
    return width * height <= MAX_AREA and max(width, height) <= MAX_SIDE


def parse_request(region: str, size: str, rotation: str, file: str) -> ImageRequest:
    """An image request from the four segments of its path; region and size are checked later, against the image.

    Raises `BadParameter`.
    """
    match = re.fullmatch(rf"(!)?({NUMBER})", rotation)
    if match is None or float(match[2]) not in (0, 90, 180, 270, 360):
        raise BadParameter("rotation", rotation, "0, 90, 180, 270 or 360, after a ! to mirror first")
    quality, _, fmt = file.rpartition(".")
    if quality not in QUALITIES:
        raise BadParameter("quality", quality, f"one of {', '.join(QUALITIES)}")
    if fmt not in PICTURE_FORMATS:
        raise BadParameter("format", fmt, f"one of {', '.join(PICTURE_FORMATS)}")
    return ImageRequest(region, size, match[1] is not None, int(float(match[2])) // 90 % 4, quality == "gray", fmt)


def _parse_region(grid: TileGrid, text: str) -> tuple[int, int, int, int]:
    """Left, top, width and height in pixels at full resolution, clipped to the plane."""
    left, top, width, height = 0, 0, grid.width, grid.height
    if text == "square":
        left, top = (max(width - height, 0) // 2, max(height - width, 0) // 2)
        width = height = min(width, height)
    elif text != "full":
        match = re.fullmatch(rf"(pct:)?({NUMBER}),({NUMBER}),({NUMBER}),({NUMBER})", text)
        numbers = [float(n) for n in match.groups()[1:]] if match else []
        if match is None or (match[1] is None and any(n != int(n) for n in numbers)):
            raise BadParameter("region", text, "full, square, x,y,w,h or pct:x,y,w,h")
        if match[1] is not None:
            numbers = [n / 100 * extent for n, extent in zip(numbers, (width, height) * 2, strict=True)]
        left, top = round(numbers[0]), round(numbers[1])
        width, height = min(round(numbers[2]), width - left), min(round(numbers[3]), height - top)
    if width <= 0 or height <= 0:
        raise BadParameter("region", text, f"a part of the {grid.width} by {grid.height} pixels")
    return left, top, width, height


def _parse_size(text: str, width: int, height: int) -> tuple[int, int]:
    """Width and height of the picture of a region; an omitted side follows from the aspect ratio."""

    def scaled(scale: float, whole: Callable[[float], int] = round) -> tuple[int, int]:
        return max(1, whole(width * scale)), max(1, whole(height * scale))

    # scale of the largest picture allowed: no upscaling, MAX_AREA, MAX_SIDE
    largest = min(1.0, sqrt(MAX_AREA / (width * height)), MAX_SIDE / width, MAX_SIDE / height)
    if text == "max":
        return scaled(largest, int)
    percent = re.fullmatch(rf"pct:({NUMBER})", text)
    match = re.fullmatch(r"(!)?([0-9]{1,9})?,([0-9]{1,9})?", text)
    if percent is not None:
        scale = float(percent[1]) / 100
    elif match is None or not (match[2] or match[3]) or (match[1] and not (match[2] and match[3])):
        raise BadParameter("size", text, "max, w,h or w, or ,h or !w,h or pct:n")
    else:
        scale = min(int(n) / extent for n, extent in ((match[2], width), (match[3], height)) if n)
    if not scale:
        raise BadParameter("size", text, "at least one pixel")
    if match is None:
        return scaled(scale)
    if match[1]:  # !w,h: the largest picture that fits into w by h
        return scaled(scale) if scale < largest else scaled(largest, int)
    columns, rows = scaled(scale)
    return int(match[2] or columns), int(match[3] or rows)


def _steps(cells: tuple[int, int], pixels: tuple[int, int]) -> tuple[float, float]:
    """Cells per pixel along both axes: a whole number if the size is a rounded-up division by it, so that the last
    pixel may reach beyond the region."""
    ratios = [extent / count for extent, count in zip(cells, pixels, strict=True)]
    for whole in sorted({round(ratio) for ratio in ratios}, reverse=True):
        if all(ceil(extent / whole) == count for extent, count in zip(cells, pixels, strict=True)):
            return whole, whole
    return ratios[0], ratios[1]
