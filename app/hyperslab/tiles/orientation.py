"""Orientation of a plane, from coordinates: axes to flip and the aspect ratio of cells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.read import Reader
from hyperslab.engine.selection import normalise
from hyperslab.errors import BrokenData
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.image import Axis, Image
from hyperslab.tiles.query import MAX_ASPECT

_PREFIXES: Final = {
    "pico": -12, "nano": -9, "micro": -6, "milli": -3, "centi": -2, "deci": -1, "hecto": 2, "kilo": 3, "mega": 6,
    "p": -12, "n": -9, "u": -6, "µ": -6, "m": -3, "c": -2, "d": -1, "k": 3, "": 0,
}  # fmt: skip
_METRES: Final = {"angstrom": 1e-10, "micron": 1e-6, "inch": 0.0254, "foot": 0.3048, "yard": 0.9144, "mile": 1609.344}


@dataclass(frozen=True, slots=True)
class Orientation:
    """Axes to flip and ``aspect``, the height of a cell divided by its width.

    ``steps`` are size and unit of a cell along rows and columns, None if unknown.
    """

    flip: tuple[str, ...]
    aspect: float
    steps: tuple[tuple[float | None, str | None], ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps of a coordinate array: ``size`` in ``unit`` (None if irregular), ``sign`` (0 if not monotonic), and whether
    coordinates increase ``downwards``, as depths do."""

    size: float | None
    unit: str | None
    sign: int = 0
    downwards: bool = False


def find_orientation(frame: Frame, catalog: Catalog, reader: Reader) -> Orientation:
    """The orientation of a frame's plane; unreadable coordinates are a problem, not an error."""
    problems: list[str] = []
    rows, columns = (frame.image.axes[axis] for axis in frame.plane)
    down, across = (_steps(frame.image, axis, catalog, reader, problems) for axis in (rows, columns))
    flip = [rows.name] if down.sign == (-1 if down.downwards else 1) else []
    flip += [columns.name] if across.sign < 0 else []
    spatial = rows.type == columns.type == "space"
    steps = tuple((steps.size, steps.unit) for steps in (down, across))
    return Orientation(tuple(flip), _aspect(down, across, spatial=spatial), steps, tuple(problems))


def _steps(image: Image, axis: Axis, catalog: Catalog, reader: Reader, problems: list[str]) -> _Steps:
    """From the scale of a pyramid, or from the coordinate (see `Catalog.find_coordinate`) of a plain array."""
    if image.kind != "array" or axis.scale is not None:  # a picture's own axes run right and down
        sign = 0 if not axis.scale else 1 if axis.scale > 0 else -1
        return _Steps(abs(axis.scale or 0) or None, axis.unit, sign, downwards=True)
    unknown = _Steps(None, None)
    is_own = image.path.rpartition("/")[2] == axis.name
    if is_own or not 1 < axis.size <= 1 << 20:  # larger ones are slow
        return unknown
    try:
        array = catalog.find_coordinate(image.path, axis.name)
        if array is None or array.metadata.shape != (axis.size,) or array.metadata.dtype.numpy.kind not in "iufM":
            return unknown
        values = reader.read(reader.plan(array, normalise([slice(0, axis.size)], array.metadata.shape)))[0]
    except BrokenData as error:
        problems.append(f"the coordinates {image.path.rpartition('/')[0]}/{axis.name} cannot be read: {error}")
        return unknown
    return _steps_of(array, axis, values)


def _steps_of(array: ArrayNode, axis: Axis, values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> _Steps:
    unit = array.attributes.get("units")
    unit = unit if isinstance(unit, str) else None
    if values.dtype.kind == "M":
        steps, slack, unit = np.diff(values.astype("<M8[ms]").astype(np.float64)), 0.0, "ms since 1970-01-01"
    else:
        numbers = array.decoder.without_times()(values).astype(np.float64)
        rounding = np.finfo(values.dtype.str).eps if values.dtype.kind == "f" else 0.0
        steps, slack = np.diff(numbers), 4 * float(rounding) * float(np.abs(numbers).max())
    mean = float(steps.mean())
    regular = isfinite(mean) and bool(np.all(np.abs(steps - mean) <= 0.01 * abs(mean) + slack))
    sign = int(np.all(steps > 0)) - int(np.all(steps < 0))
    return _Steps(abs(mean) if regular else None, unit, sign, _is_downwards(array, axis, unit or ""))


def _is_downwards(array: ArrayNode, axis: Axis, unit: str) -> bool:
    """Depths and pressures by the CF conventions; and time, which runs from top to bottom."""
    positive, kind = array.attributes.get("positive"), array.attributes.get("axis")
    if isinstance(positive, str):
        return positive.lower() == "down"
    is_time = " since " in unit or kind == "T" or axis.type == "time"
    pressure = r"(hecto|milli|kilo|deci)?(pascals?|bars?)|[hkd]?Pa|m?bar|dbar|atm(osphere)?s?"
    return is_time or axis.name.lower() == "depth" or re.fullmatch(pressure, unit) is not None


def _aspect(down: _Steps, across: _Steps, *, spatial: bool) -> float:
    """Height divided by width of a cell; 1 if the units are not comparable. ``spatial``: both axes are of space."""
    if not down.size or not across.size:
        return 1.0
    units = [_metres(steps.unit) for steps in (down, across)]
    same = _canonical_unit(down.unit) == _canonical_unit(across.unit) and (down.unit is not None or spatial)
    if units[0] is None or units[1] is None:
        ratio = down.size / across.size if same and units == [None, None] else 1.0
    else:
        ratio = down.size * units[0] / (across.size * units[1])
    usable = 1 / MAX_ASPECT <= ratio <= MAX_ASPECT and abs(ratio - 1) > 0.02  # nearly square cells stay pixels
    return float(f"{ratio:.6g}") if usable else 1.0


def _metres(unit: str | None) -> float | None:
    """The length of a unit in metres; None if it is no unit of length."""
    if unit is None or unit in _METRES:
        return None if unit is None else _METRES[unit]
    match = re.fullmatch(r"(?:(\w{4,})?(?:met(?:er|re)s?)|([pnuµmcdk]?)m)", unit)
    prefix = None if match is None else match[1] or match[2] or ""
    return 10.0 ** _PREFIXES[prefix] if prefix in _PREFIXES else None


def _canonical_unit(unit: str | None) -> str | None:
    """The unit, with ``degrees`` for all spellings of degrees in the CF conventions."""
    degrees = r"(arc_?)?deg(ree)?s?(_?(north|east|true|[NET]))?"
    return "degrees" if unit is not None and re.fullmatch(degrees, unit) else unit
