"""What the axes of an array are called and stand for, which two make the plane, and where the others begin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hyperslab.tiles.ome import AxisFacts

_SPACE: Final = (
    {"x", "y", "z", "row", "rows", "col", "cols", "column", "columns", "line", "lines"}
    | {"lat", "lon", "latitude", "longitude", "depth", "height", "width"}
)  # fmt: skip
_TYPES: Final = {
    "space": _SPACE,
    "time": {"t", "time", "frame", "frames", "date"},
    "channel": {"c", "channel", "channels", "band", "bands", "wavelength", "rgb"},
}
_UNNAMED_OME: Final = (
    AxisFacts("t", "time", None),
    AxisFacts("c", "channel", None),
    AxisFacts("z", "space", None),
    AxisFacts("y", "space", None),
    AxisFacts("x", "space", None),
)


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


def name_axes(shape: Sequence[int], names: Sequence[str] | None, *, looks_like_rgb: bool = False) -> tuple[Axis, ...]:
    """Axes of a plain array: by ``names`` where they are told apart, else ``d0``, ``d1``, …

    ``looks_like_rgb``: a last axis that has no meaning yet is taken for the samples of a colour picture.
    """
    if names is None or len(set(names)) != len(names) or not all(names):
        named = [Axis(f"d{i}", None, None, size) for i, size in enumerate(shape)]
    else:
        named = [Axis(name, guess_type(name), None, size) for name, size in zip(names, shape, strict=True)]
    if looks_like_rgb and named[-1].type is None and not any(axis.type == "channel" for axis in named):
        named[-1] = Axis(named[-1].name, "channel", None, named[-1].size)
    return tuple(named)


def ome_axes(
    plain: Sequence[Axis],
    facts: Sequence[AxisFacts] | None,
    scale: Sequence[float] | None,
    translation: Sequence[float] | None,
) -> tuple[Axis, ...]:
    """Axes of the finest level of a pyramid, whose array by itself has ``plain`` ones.

    ``facts`` None means that the metadata does not tell: they are the last of t, c, z, y, x, or as in a plain array.
    """
    rank = len(plain)
    if facts is None:
        known = _UNNAMED_OME[len(_UNNAMED_OME) - rank :] if rank <= len(_UNNAMED_OME) else ()
        facts = known or [AxisFacts(axis.name, axis.type, None) for axis in plain]
    scales, shifts = (
        numbers if numbers is not None and len(numbers) == rank else [None] * rank for numbers in (scale, translation)
    )
    return tuple(
        Axis(fact.name, fact.type or guess_type(fact.name), fact.unit, axis.size, step, shift)
        for fact, axis, step, shift in zip(facts, plain, scales, shifts, strict=True)
    )


def guess_type(name: str) -> str | None:
    """What an axis of this name usually stands for."""
    return next((kind for kind, names in _TYPES.items() if name.lower() in names), None)


def default_plane(axes: Sequence[Axis]) -> tuple[int, int]:
    """The rows and the columns of a picture: the last two axes of space, else the last two that are no channels.

    Raises `ValueError` where there are fewer than two axes.
    """
    if len(axes) < 2:
        raise ValueError(f"a picture needs two axes, this array has {len(axes)}")
    for wanted in ({"space"}, {"space", None}, {"space", "time", None}):
        found = [i for i, axis in enumerate(axes) if axis.type in wanted]
        if len(found) >= 2:
            return found[-2], found[-1]
    return len(axes) - 2, len(axes) - 1


def default_index(axis: Axis, wanted: int | None = None) -> int:
    """Where an axis outside the plane begins: where its metadata wants, the middle of space and of an axis without a
    name, else at 0."""
    if wanted is not None and wanted < axis.size:
        return wanted
    unnamed = axis.type is None and re.fullmatch(r"d\d+", axis.name) is not None
    return axis.size // 2 if axis.type == "space" or unnamed else 0
