"""Images: axes, resolution levels, channels and labels of an array or an OME-Zarr group."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from math import ceil
from typing import Any, Literal

import numpy as np

from hyperslab.arrays.nodes import ArrayNode, MountedStore
from hyperslab.engine.dtypes import Field
from hyperslab.errors import FieldUnknown, NotRepresentable
from hyperslab.tiles.colour import RGBA
from hyperslab.tiles.ome import Mosaic, Omero, guess_type

Kind = Literal["array", "multiscale", "labels", "plate", "well", "collection"]


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

    The axes of a field's subarray follow the array's. A plate, a well or a collection has a ``mosaic``; axes and dtype
    are those of one of its images, and assumed of the others. ``shapes`` are those of some of its images, by path.
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
    shapes: Mapping[str, tuple[int, ...]] = field_of(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def is_rgb(self) -> bool:
        """Whether the channels are red, green and blue, and perhaps opacity: three or four of uint8 that have no
        colours of their own, nor names of something else."""
        sizes = [axis.size for axis in self.axes if axis.type == "channel"]
        channels = () if self.omero is None else self.omero.channels
        own = any(channel.color or not _RGB_LABEL.fullmatch(channel.label) for channel in channels)
        return sizes in ([3], [4]) and self.dtype == np.uint8 and self.image_label is None and not own

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
        return tuple([min(size, max(1, ceil((axis.size - start) / factor))) for axis, size, factor, start in parts])


_RGB_LABEL = re.compile(r"((ch|chan|channel)?[ _:]*\d*)|[rgba]|red|green|blue|alpha", re.IGNORECASE)


def array_image(node: ArrayNode, field: str | None, problems: tuple[str, ...] = ()) -> Image:
    """An array as an image of one level. ``field`` defaults to the first with values that have a brightness.

    Axes are named after the array's dimensions, and ``d0``, ``d1``, … where these have none or one that is there
    before, as are the axes of a field's subarray. Raises `FieldUnknown` and `NotRepresentable`.
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
    facts = plain_axes(node.attributes, node.axis_names or (), shape)
    is_photograph = len(shape) >= 3 and shape[-1] in (3, 4) and dtype == np.uint8
    if is_photograph and facts[-1].type is None and "channel" not in [axis.type for axis in facts]:
        facts[-1] = replace(facts[-1], type="channel")
    name = node.path.rpartition("/")[2]
    return Image(
        path=node.path,
        kind="array",
        name=name,
        axes=tuple(facts),
        levels=(Level(name, node, (1.0,) * len(shape), (0.0,) * len(shape)),),
        dtype=dtype,
        version=joined_versions(node.version),
        field=chosen,
        fields=tuple(f.name for f in fields),
        problems=problems,
    )


def plain_axes(attributes: Mapping[str, Any], dimensions: Sequence[str | None], shape: Sequence[int]) -> list[Axis]:
    """The axes of an array: names, then sizes of cells as funlib.persistence writes them: ``axis_names``, of which
    those without space end in ``^``; ``voxel_size``, ``units`` and ``offset`` of the others."""
    names = [*dimensions, *[None] * (len(shape) - len(dimensions))]
    listed = attributes.get("axis_names")
    if not (isinstance(listed, list) and len(listed) == len(shape) and all(isinstance(n, str) for n in listed)):
        listed = []
    if listed and not any(names):
        names = [name.removesuffix("^") for name in listed]
    axes: list[Axis] = []
    for i, (name, size) in enumerate(zip(names, shape, strict=True)):
        is_new = bool(name) and name not in [axis.name for axis in axes]
        axes.append(Axis(name, guess_type(name), None, size) if name and is_new else Axis(f"d{i}", None, None, size))
    if listed:
        spatial = [i for i, name in enumerate(listed) if not name.endswith("^")]
        sizes, starts, units = (attributes.get(member) for member in ("voxel_size", "offset", "units"))
        for place, i in enumerate(spatial):
            step, start, unit = (_entry(values, place, len(spatial)) for values in (sizes, starts, units))
            step, start = (value if type(value) in (int, float) else None for value in (step, start))
            unit = unit if isinstance(unit, str) and unit else None
            kind = axes[i].type or "space"
            axes[i] = replace(axes[i], type=kind, unit=unit, scale=step or None, translation=start if step else None)
    return axes


def _entry(values: Any, place: int, count: int) -> Any:
    return values[place] if isinstance(values, list) and len(values) == count else None


def _why_undrawable(dtype: np.dtype[Any]) -> str | None:
    """The reason why a dtype cannot be drawn, if any."""
    if dtype.kind in "SUO":
        return "text and objects have no brightness"
    if dtype.names is not None or (dtype.kind == "V" and dtype.type is np.void):
        return "records and bytes without a meaning have no brightness"
    return None


def joined_versions(*versions: str) -> str:
    """A digest of several versions."""
    return hashlib.blake2b("\n".join(versions).encode(), digest_size=12).hexdigest()
