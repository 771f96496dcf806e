"""IIIF Image API 3.0: the parts of a request and what they mean. Pure.

Source: https://iiif.io/api/image/3.0/, compliance level 2 but for sizes above the full one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, Final

from hyperslab.errors import BadParameter, TooLarge
from hyperslab.tiles.pyramid import Region, Span, TileGrid
from hyperslab.tiles.render import Raster, greyscale, mirror, rotate

FORMATS: Final = ("png", "jpg", "webp")
QUALITIES: Final = ("default", "color", "gray")
MOST_PIXELS: Final = 16 << 20
"""The largest picture, in pixels; ``max`` is scaled down to it."""
MOST_ACROSS: Final = 16_383
"""Its longest side: WebP has no more."""

_NUMBER: Final = r"[0-9]{1,12}(?:\.[0-9]{1,12})?"


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """A part of an image in some size, then mirrored, turned clockwise by ``quarters`` right angles, and made grey."""

    part: str
    size: str
    mirrored: bool
    quarters: int
    gray: bool
    fmt: str

    def region(self, grid: TileGrid) -> Region:
        """The part and the size in cells and pixels of an image; raises `BadParameter` and `TooLarge`."""
        left, top, width, height = _parse_region(grid, self.part)
        columns, rows = _parse_size(self.size, width, height)
        if columns > width or rows > height:
            raise BadParameter("size", self.size, f"no more than the {width} by {height} pixels there are")
        if not _is_small_enough(columns, rows):
            raise TooLarge(f"an image of {columns} by {rows}", columns * rows, MOST_PIXELS, unit="pixels")
        down, across = _steps((height, width), (rows, columns))
        return Region(Span(top, down, rows), Span(left, across, columns))

    def finished(self, raster: Raster) -> Raster:
        """What is done to the picture of the region."""
        raster = mirror(raster) if self.mirrored else raster
        raster = rotate(raster, self.quarters) if self.quarters else raster
        return greyscale(raster) if self.gray else raster

    @property
    def finish(self) -> str:
        """Tells apart what `finished` does."""
        return f"{self.mirrored}|{self.quarters}|{self.gray}"


def info_document(grid: TileGrid, identifier: str, allows: Callable[[Region], bool] = lambda _: True) -> dict[str, Any]:
    """The ``info.json`` of an image service; ``identifier`` is its URL.

    Sizes and tiles that it does not allow are not offered, but for the finest tiles.
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
        "maxWidth": MOST_ACROSS,
        "maxArea": MOST_PIXELS,
        "sizes": [{"width": w, "height": h} for h, w in sizes if _is_small_enough(w, h)],
        "tiles": [{"width": grid.size, "scaleFactors": factors[::-1]}],
        "preferredFormats": ["png", "webp", "jpg"],
        "extraFormats": ["webp"],
        "extraFeatures": ["mirroring"],
    }


def _is_small_enough(width: int, height: int) -> bool:
    return width * height <= MOST_PIXELS and max(width, height) <= MOST_ACROSS


def parse_request(region: str, size: str, rotation: str, file: str) -> ImageRequest:
    """The four segments of an image request, as far as they can be understood without the image.

    Raises `BadParameter`.
    """
    turned = re.fullmatch(rf"(!)?({_NUMBER})", rotation)
    if turned is None or float(turned[2]) not in (0, 90, 180, 270, 360):
        raise BadParameter("rotation", rotation, "0, 90, 180, 270 or 360, after a ! to mirror first")
    quality, _, fmt = file.rpartition(".")
    if quality not in QUALITIES:
        raise BadParameter("quality", quality, f"one of {', '.join(QUALITIES)}")
    if fmt not in FORMATS:
        raise BadParameter("format", fmt, f"one of {', '.join(FORMATS)}")
    return ImageRequest(region, size, turned[1] is not None, int(float(turned[2])) // 90 % 4, quality == "gray", fmt)


def _parse_region(grid: TileGrid, text: str) -> tuple[int, int, int, int]:
    """Left, top, width and height in cells, cut at the edges; at least one cell."""
    left, top, width, height = 0, 0, grid.width, grid.height
    if text == "square":
        left, top = (max(width - height, 0) // 2, max(height - width, 0) // 2)
        width = height = min(width, height)
    elif text != "full":
        match = re.fullmatch(rf"(pct:)?({_NUMBER}),({_NUMBER}),({_NUMBER}),({_NUMBER})", text)
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
    """Width and height in pixels; what is not given follows from the proportions."""

    def scaled(scale: float, whole: Callable[[float], int] = round) -> tuple[int, int]:
        return max(1, whole(width * scale)), max(1, whole(height * scale))

    # of the largest picture which can be asked for; nothing is made larger than it is
    most = min(1.0, sqrt(MOST_PIXELS / (width * height)), MOST_ACROSS / width, MOST_ACROSS / height)
    if text == "max":
        return scaled(most, int)
    share = re.fullmatch(rf"pct:({_NUMBER})", text)
    match = re.fullmatch(r"(!)?([0-9]{1,9})?,([0-9]{1,9})?", text)
    if share is not None:
        scale = float(share[1]) / 100
    elif match is None or not (match[2] or match[3]) or (match[1] and not (match[2] and match[3])):
        raise BadParameter("size", text, "max, w,h or w, or ,h or !w,h or pct:n")
    else:
        scale = min(int(n) / extent for n, extent in ((match[2], width), (match[3], height)) if n)
    if not scale:
        raise BadParameter("size", text, "at least one pixel")
    if match is None:
        return scaled(scale)
    if match[1]:  # neither is exceeded
        return scaled(scale) if scale < most else scaled(most, int)
    columns, rows = scaled(scale)
    return int(match[2] or columns), int(match[3] or rows)


def _steps(cells: tuple[int, int], pixels: tuple[int, int]) -> tuple[float, float]:
    """Cells per pixel; a last pixel may lie partly outside where that explains the size."""
    ratios = [extent / count for extent, count in zip(cells, pixels, strict=True)]
    for whole in sorted({round(ratio) for ratio in ratios}, reverse=True):
        if all(ceil(extent / whole) == count for extent, count in zip(cells, pixels, strict=True)):
            return whole, whole
    return ratios[0], ratios[1]
