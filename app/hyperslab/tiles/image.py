"""What can be drawn: an image with its axes, levels, channels and labels, or a mosaic of such images."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
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
    """One axis of the finest level. ``size`` in cells, ``scale`` in ``unit`` per cell; ``translation`` is where the
    middle of the first cell lies, in ``unit``. All three are None where unknown."""

    name: str
    type: str | None
    unit: str | None
    size: int
    scale: float | None = None
    translation: float | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """A stored resolution. ``factors``: cells of the finest level per cell of this one, by axis of the image."""

    name: str
    array: ArrayNode
    factors: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """Something that can be drawn. ``levels`` are finest first; ``dtype`` is that of one value.

    The axes of a field's subarray follow the array's. A plate or a well has a ``mosaic``, each image of which is taken
    to be like this one.
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
        """Whether the last axis holds the samples of a photograph."""
        shape = tuple(axis.size for axis in self.axes)
        return self.omero is None and self.axes[-1].type == "channel" and _looks_like_rgb(shape, self.dtype)

    @property
    def mount(self) -> MountedStore:
        """The store that holds its levels."""
        return self.levels[0].array.mount

    @property
    def is_empty(self) -> bool:
        """Whether an axis has no cells."""
        return 0 in [axis.size for axis in self.axes]

    @property
    def field_name(self) -> str | None:
        """The name of the field that is shown; None for arrays that are not structured."""
        return None if self.field is None else self.field.name

    def level_shape(self, level: Level) -> tuple[int, ...]:
        """Cells of a level along each axis of the image, those of a field's subarray included."""
        return level.array.metadata.shape + (self.field.shape if self.field is not None else ())


def array_image(node: ArrayNode, field: str | None, problems: tuple[str, ...] = ()) -> Image:
    """An array as an image of one level; raises `FieldUnknown` and `NotRepresentable`. ``field`` None: the first that
    can be drawn.

    Axes have the names of the array's dimensions where these are told apart, else, as those of a field's subarray,
    ``d0``, ``d1``, …
    """
    fields = node.metadata.dtype.fields
    if field is None:
        chosen = next((f for f in fields if _undrawable(f.numpy) is None), fields[0] if fields else None)
    else:
        chosen = next((f for f in fields if f.name == field), None)
        if chosen is None:
            raise FieldUnknown(node.path, field, [f.name for f in fields])
    dtype = node.metadata.dtype.numpy if chosen is None else chosen.numpy
    reason = _undrawable(dtype)
    if reason is not None:
        raise NotRepresentable(node.metadata.dtype.json if chosen is None else chosen.json, "a picture", reason)
    shape = node.metadata.shape + (chosen.shape if chosen is not None else ())
    names = [f"d{i}" for i in range(len(shape))]
    given = node.dimension_names or ()
    types: list[str | None] = [None] * len(shape)
    named = [*given, *names[len(given) :]]
    if given and all(named) and len(set(named)) == len(named):
        names, types = named, [guess_type(name) for name in named]
    if _looks_like_rgb(shape, dtype) and types[-1] is None and "channel" not in types:
        types[-1] = "channel"
    name = node.path.rpartition("/")[2]
    return Image(
        path=node.path,
        kind="array",
        name=name,
        axes=tuple(Axis(name, kind, None, size) for name, kind, size in zip(names, types, shape, strict=True)),
        levels=(Level(name, node, (1.0,) * len(shape)),),
        dtype=dtype,
        version=joined_versions(node.version),
        field=chosen,
        fields=tuple(f.name for f in fields),
        problems=problems,
    )


def _undrawable(dtype: np.dtype[Any]) -> str | None:
    """Why values of a dtype have no brightness; None if they have."""
    if dtype.kind in "SUO":
        return "text and objects have no brightness"
    if dtype.names is not None or (dtype.kind == "V" and dtype.type is np.void):
        return "records and bytes without a meaning have no brightness"
    return None


def _looks_like_rgb(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether an array of this shape is a photograph: bytes, three or four to a pixel."""
    return len(shape) >= 3 and shape[-1] in (3, 4) and dtype == np.uint8


def joined_versions(*versions: str) -> str:
    """One version of several."""
    return hashlib.blake2b("\n".join(versions).encode(), digest_size=12).hexdigest()
