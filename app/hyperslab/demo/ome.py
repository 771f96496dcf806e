"""The microscope's image as OME-Zarr 0.4 with labels, and a crop of it as sharded OME-Zarr 0.5."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hyperslab.demo.noise import halve
from hyperslab.demo.writer import ZSTD, Writer
from hyperslab.engine.other_format import v3_attributes

LEVELS: Final = 4
CORNER: Final = 384
"""Sides of the crop, in pixels."""
TILE: Final = 256
STEP: Final = {"z": 0.5, "y": 0.25, "x": 0.25}
"""Pixel sizes at full resolution, in micrometres."""
CHANNELS: Final = (
    ("Nuclei", "4D7CFF", 110, 1900),
    ("Filaments", "28E66E", 130, 1500),
    ("Membranes", "FF3CB4", 110, 1500),
)
"""Label, colour, start and end of the window."""


def write_corner(writer: Writer, path: str, intensity: NDArray[Any]) -> None:
    """Write the crop: two levels, in chunks (1, 4, 96, 96), 16 to a shard."""
    level = intensity[:, :, :CORNER, :CORNER]
    attributes = {"multiscales": [_multiscale("corner", "czyx", levels=2)], "omero": _omero()}
    writer.group(path, v3_attributes(attributes, path), zarr_format=3)
    for number in range(2):
        shards = {"zarr_format": 3, "chunks": [1, 4, 96, 96], "shards": [1, 16, 192, 192]}
        writer.array(f"{path}/{number}", level, "c z y x", {}, **shards)
        level = halve(level)


def write_microscope(writer: Writer, path: str, intensity: NDArray[Any], labels: NDArray[Any]) -> None:
    """Write the image and its labels."""
    writer.group(path, {"multiscales": [_multiscale("cells", "czyx")], "omero": _omero()})
    _write_pyramid(writer, path, intensity, halve)
    writer.group(f"{path}/labels", {"labels": ["nuclei"]})
    nuclei = {"multiscales": [_multiscale("nuclei", "zyx")], "image-label": _image_label(labels)}
    writer.group(f"{path}/labels/nuclei", nuclei)
    _write_pyramid(writer, f"{path}/labels/nuclei", labels, lambda level: level[..., ::2, ::2])


def _write_pyramid(
    writer: Writer, path: str, level: NDArray[Any], shrink: Callable[[NDArray[Any]], NDArray[Any]]
) -> None:
    for number in range(LEVELS):
        chunks = [1] * (level.ndim - 2) + [min(TILE, size) for size in level.shape[-2:]]
        members = {"chunks": chunks, "compressor": ZSTD, "dimension_separator": "/"}
        writer.array(f"{path}/{number}", level, " ".join("czyx"[-level.ndim :]), {}, **members)
        level = shrink(level)


def _multiscale(name: str, axes: str, levels: int = LEVELS) -> dict[str, Any]:
    return {
        "version": "0.4",
        "name": name,
        "axes": [
            {"name": "c", "type": "channel"} if axis == "c" else {"name": axis, "type": "space", "unit": "micrometer"}
            for axis in axes
        ],
        "datasets": [
            {"path": str(level), "coordinateTransformations": _transformations(axes, 2**level)}
            for level in range(levels)
        ],
        "type": "mean" if "c" in axes else "nearest",
    }


def _transformations(axes: str, factor: int) -> list[dict[str, Any]]:
    """Scale and translation of a level; means are shifted by half the difference of the pixel sizes."""
    scale = [STEP.get(axis, 1.0) * (factor if axis in "yx" else 1) for axis in axes]
    shift = [STEP[axis] * (factor - 1) / 2 if axis in "yx" and "c" in axes else 0.0 for axis in axes]
    return [{"type": "scale", "scale": scale}, {"type": "translation", "translation": shift}]


def _omero() -> dict[str, Any]:
    return {
        "version": "0.4",
        "name": "cells",
        "channels": [
            {
                "label": label,
                "color": color,
                "active": True,
                "coefficient": 1,
                "family": "linear",
                "inverted": False,
                "window": {"min": 0, "max": 4095, "start": start, "end": end},
            }
            for label, color, start, end in CHANNELS
        ],
        "rdefs": {"defaultT": 0, "defaultZ": 6, "model": "color"},
    }


def _image_label(labels: NDArray[np.uint16]) -> dict[str, Any]:
    numbers: Sequence[int] = range(1, int(np.max(labels)) + 1)
    return {
        "version": "0.4",
        "colors": [{"label-value": number, "rgba": _colour(number)} for number in numbers],
        "properties": [{"label-value": number, "class": "nucleus"} for number in numbers],
        "source": {"image": "../../"},
    }


def _colour(number: int) -> list[int]:
    """RGBA of a label: hues in steps of the golden angle."""
    hue = np.float64(number) * 0.618034 % 1
    rgb = np.clip(np.abs((hue + np.array([0, 2 / 3, 1 / 3])) % 1 * 6 - 3) - 1, 0, 1)
    return [*(int(value) for value in 60 + 195 * rgb), 255]
