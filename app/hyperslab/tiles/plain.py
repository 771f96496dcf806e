"""An array as a picture, as it stands: its field, its dtype, and what its axes are called."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from hyperslab.arrays.nodes import ArrayNode
from hyperslab.engine.dtypes import Field
from hyperslab.errors import FieldUnknown, NotRepresentable
from hyperslab.tiles.axes import name_axes
from hyperslab.tiles.picture import Level, Picture, looks_like_rgb


def plain_picture(node: ArrayNode, field: str | None, problems: tuple[str, ...] = ()) -> Picture:
    """An array as it stands."""
    chosen = _choose_field(node, field)
    dtype = _drawable_dtype(node, chosen)
    shape = node.metadata.shape + (chosen.shape if chosen is not None else ())
    axes = name_axes(shape, _names(node, len(shape)), looks_like_rgb=looks_like_rgb(shape, dtype))
    return Picture(
        path=node.path,
        kind="array",
        name=last_segment(node.path),
        axes=axes,
        levels=(Level(last_segment(node.path), node, (1.0,) * len(shape)),),
        dtype=dtype,
        version=joined_versions(node.version),
        field=chosen,
        fields=tuple(f.name for f in node.metadata.dtype.fields),
        problems=problems,
    )


def _choose_field(node: ArrayNode, name: str | None) -> Field | None:
    """The field asked for; of a structured dtype the first that can be drawn where none is."""
    known = node.metadata.dtype.fields
    if name is not None:
        found = next((field for field in known if field.name == name), None)
        if found is None:
            raise FieldUnknown(node.path, name, [field.name for field in known])
        return found
    return next((field for field in known if _undrawable(field.numpy) is None), known[0] if known else None)


def _drawable_dtype(node: ArrayNode, field: Field | None) -> np.dtype[Any]:
    dtype = field.numpy if field is not None else node.metadata.dtype.numpy
    reason = _undrawable(dtype)
    if reason is not None:
        raise NotRepresentable(field.json if field is not None else node.metadata.dtype.json, "a picture", reason)
    return dtype


def _undrawable(dtype: np.dtype[Any]) -> str | None:
    """Why values of a dtype have no brightness; None where they have."""
    if dtype.kind in "SUO":
        return "text and objects have no brightness"
    if dtype.names is not None or (dtype.kind == "V" and dtype.type is np.void):
        return "records and bytes without a meaning have no brightness"
    return None


def _names(node: ArrayNode, rank: int) -> list[str] | None:
    """The names of the array's axes, and numbers for those of a field's subarray."""
    names = node.dimension_names
    return None if names is None else [*names, *(f"d{i}" for i in range(len(names), rank))]


def joined_versions(*versions: str) -> str:
    """One version of several."""
    return hashlib.blake2b("\n".join(versions).encode(), digest_size=12).hexdigest()


def last_segment(path: str) -> str:
    """What a node is called."""
    return path.rpartition("/")[2]
