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
    """Width and height in pixels."""
    if text == "max":
        return _scaled_down(width, height, _largest_scale(width, height))
    if match := re.fullmatch(rf"pct:({_NUMBER})", text):
        share = float(match[1]) / 100
        if not share:
            raise BadParameter("size", text, "at least one pixel")
        return max(1, round(width * share)), max(1, round(height * share))
    match = re.fullmatch(r"(!)?([0-9]{1,9})?,([0-9]{1,9})?", text)
    if match is None or not (match[2] or match[3]) or (match[1] and not (match[2] and match[3])):
        raise BadParameter("size", text, "max, w,h or w, or ,h or !w,h or pct:n")
    wanted_width, wanted_height = (int(n) if n else None for n in match.groups()[1:])
    if 0 in (wanted_width, wanted_height):
        raise BadParameter("size", text, "at least one pixel")
    return _fitted(width, height, wanted_width, wanted_height, within=match[1] is not None)


def _fitted(
    width: int, height: int, wanted_width: int | None, wanted_height: int | None, *, within: bool
) -> tuple[int, int]:
    """What is not given follows from the proportions; ``within``: neither is exceeded, nor what can be had at most."""
    if wanted_width is not None and wanted_height is not None and not within:
        return wanted_width, wanted_height
    across = wanted_width / width if wanted_width is not None else float("inf")
    down = wanted_height / height if wanted_height is not None else float("inf")
    scale = min(across, down)
    if within and scale >= (most := _largest_scale(width, height)):
        return _scaled_down(width, height, most)
    if within:
        return max(1, round(width * scale)), max(1, round(height * scale))
    return wanted_width or max(1, round(width * scale)), wanted_height or max(1, round(height * scale))


def _largest_scale(width: int, height: int) -> float:
    """That of the largest picture which can be asked for; nothing is made larger than it is."""
    return min(1.0, sqrt(MOST_PIXELS / (width * height)), MOST_ACROSS / width, MOST_ACROSS / height)


def _scaled_down(width: int, height: int, scale: float) -> tuple[int, int]:
    return max(1, int(width * scale)), max(1, int(height * scale))


def _steps(cells: tuple[int, int], pixels: tuple[int, int]) -> tuple[float, float]:
    """Cells per pixel; a last pixel may lie partly outside where that explains the size."""
    ratios = [extent / count for extent, count in zip(cells, pixels, strict=True)]
    for whole in sorted({round(ratio) for ratio in ratios}, reverse=True):
        if all(ceil(extent / whole) == count for extent, count in zip(cells, pixels, strict=True)):
            return whole, whole
    return ratios[0], ratios[1]
