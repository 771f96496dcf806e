"""Images: axes, resolution levels, channels and labels of an array or an OME-Zarr group."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

import numpy as np

from hyperslab.arrays.nodes import ArrayNode, MountedStore
from hyperslab.engine.dtypes import Field
from hyperslab.errors import FieldUnknown, NotRepresentable
from hyperslab.tiles.colour import RGBA
from hyperslab.tiles.ome import Mosaic, Omero, guess_type

Kind = Literal["array", "multiscale", "labels", "plate", "well"]


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis of the finest level: ``size`` in cells, ``scale`` in ``unit`` per cell, ``translation`` of the first cell's
    centre in ``unit``; these three are None if unknown."""

    name: str
    type: str | None
    unit: str | None
    size: int
    scale: float | None = None
    translation: float | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """Resolution level. By axis of the image, its cell ``i`` covers the cells ``[offset + i * factor, offset +
    (i + 1) * factor)`` of the finest level."""

    name: str
    array: ArrayNode
    factors: tuple[float, ...]
    offsets: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """Image with levels, finest first; ``dtype`` is that of a scalar value.

    The axes of a field's subarray follow the array's. A plate or a well has a ``mosaic``; axes and dtype are those of
    one of its images, and assumed of the others.
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
    image_label: Mapping[float, RGBA] | None = None
    mosaic: Mosaic | None = None
    problems: tuple[str, ...] = ()

    @property
    def is_rgb(self) -> bool:
        """Whether the last axis holds RGB or RGBA samples."""
        shape = tuple(axis.size for axis in self.axes)
        return self.omero is None and self.axes[-1].type == "channel" and _looks_like_rgb(shape, self.dtype)

    @property
    def mount(self) -> MountedStore:
        """The store of its levels."""
        return self.levels[0].array.mount

    @property
    def is_empty(self) -> bool:
        """Whether an axis has no cells."""
        return 0 in [axis.size for axis in self.axes]

    @property
    def field_name(self) -> str | None:
        """The name of the field; None for arrays that are not structured."""
        return None if self.field is None else self.field.name

    def level_shape(self, level: Level) -> tuple[int, ...]:
        """Shape of a level, followed by that of the field's subarray."""
        return level.array.metadata.shape + (self.field.shape if self.field is not None else ())

    def level_extent(self, level: Level) -> tuple[int, ...]:
        """Shape of the array of a level without cells beyond the end of the finest level."""
        parts = zip(self.axes, level.array.metadata.shape, level.factors, level.offsets, strict=False)
        return tuple([min(size, max(1, ceil((axis.size - start) / each))) for axis, size, each, start in parts])


def array_image(node: ArrayNode, field: str | None, problems: tuple[str, ...] = ()) -> Image:
    """An array as an image of one level. ``field`` defaults to the first with values that have a brightness.

    Axes are named after the array's dimensions if all of these have distinct names, else ``d0``, ``d1``, …, as are the
    axes of a field's subarray. Raises `FieldUnknown` and `NotRepresentable`.
    """
    fields = node.metadata.dtype.fields
    if field is None:
        chosen = next((f for f in fields if _why_undrawable(f.numpy) is None), fields[0] if fields else None)
    else:
        chosen = next((f for f in fields if f.name == field), None)
        if chosen is None:
            raise FieldUnknown(node.path, field, [f.name for f in fields])
    dtype = node.metadata.dtype.numpy if chosen is None else chosen.numpy
    reason = _why_undrawable(dtype)
    if reason is not None:
        raise NotRepresentable(node.metadata.dtype.json if chosen is None else chosen.json, "a picture", reason)
    shape = node.metadata.shape + (chosen.shape if chosen is not None else ())
    names = [f"d{i}" for i in range(len(shape))]
    dimensions = node.dimension_names or ()
    types: list[str | None] = [None] * len(shape)
    named = [*dimensions, *names[len(dimensions) :]]
    if dimensions and all(named) and len(set(named)) == len(named):
        names, types = named, [guess_type(name) for name in named]
    if _looks_like_rgb(shape, dtype) and types[-1] is None and "channel" not in types:
        types[-1] = "channel"
    name = node.path.rpartition("/")[2]
    return Image(
        path=node.path,
        kind="array",
        name=name,
        axes=tuple(Axis(name, kind, None, size) for name, kind, size in zip(names, types, shape, strict=True)),
        levels=(Level(name, node, (1.0,) * len(shape), (0.0,) * len(shape)),),
        dtype=dtype,
        version=joined_versions(node.version),
        field=chosen,
        fields=tuple(f.name for f in fields),
        problems=problems + node.problems,
    )


def _why_undrawable(dtype: np.dtype[Any]) -> str | None:
    """The reason why a dtype cannot be drawn, if any."""
    if dtype.kind in "SUO":
        return "text and objects have no brightness"
    if dtype.names is not None or (dtype.kind == "V" and dtype.type is np.void):
        return "records and bytes without a meaning have no brightness"
    return None


def _looks_like_rgb(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether shape and dtype are those of a photograph: uint8 with a last axis of three or four."""
    return len(shape) >= 3 and shape[-1] in (3, 4) and dtype == np.uint8


def joined_versions(*versions: str) -> str:
    """A digest of several versions."""
    return hashlib.blake2b("\n".join(versions).encode(), digest_size=12).hexdigest()
