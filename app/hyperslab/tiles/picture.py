"""What can be drawn: axes, levels, channels, labels; and how the images of a plate lie beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from hyperslab.arrays.nodes import ArrayNode
from hyperslab.engine.dtypes import Field
from hyperslab.tiles.axes import Axis
from hyperslab.tiles.ome import ImageLabel, Omero

Kind = Literal["array", "multiscale", "labels", "plate", "well"]

_RGB_SAMPLES: Final = (3, 4)


@dataclass(frozen=True, slots=True)
class Level:
    """A stored resolution. ``factors``: cells of the finest level per cell of this one, by axis of the picture."""

    name: str
    array: ArrayNode
    factors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One image of a mosaic: the path of an image or of a well, and its place, counted from 0."""

    path: str
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Mosaic:
    """Images in a grid, not every place of which needs to have one. The rows and columns of a plate have names."""

    rows: int
    columns: int
    cells: tuple[Cell, ...]
    names: tuple[tuple[str, ...], tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """Something that can be drawn. ``levels`` are finest first; ``dtype`` is that of one value.

    The axes of a field's subarray follow the array's. A plate or a well has a ``mosaic``, each image of which is taken
    to be like this picture.
    """

    path: str
    kind: Kind
    name: str
    axes: tuple[Axis, ...]
    levels: tuple[Level, ...]
    dtype: np.dtype[Any]
    version: str
    field: Field | None = None
    fields: tuple[str, ...] = ()
    omero: Omero | None = None
    image_label: ImageLabel | None = None
    mosaic: Mosaic | None = None
    problems: tuple[str, ...] = ()

    @property
    def is_rgb(self) -> bool:
        """Whether the last axis holds the samples of a colour picture."""
        if self.omero is not None or self.axes[-1].type != "channel":
            return False
        return looks_like_rgb(tuple(axis.size for axis in self.axes), self.dtype)


def looks_like_rgb(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether an array of this shape is a photograph: bytes, three or four to a pixel."""
    return len(shape) >= 3 and shape[-1] in _RGB_SAMPLES and dtype == np.uint8
