"""Orientation of a plane: which axes run backwards and how high its cells are, from the coordinates of the axes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np

from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.nodes import ArrayNode
from hyperslab.arrays.read import Reader
from hyperslab.engine.indexing import normalise
from hyperslab.errors import BadPath, BrokenData, NodeNotFound, WrongKind
from hyperslab.tiles.frame import Frame
from hyperslab.tiles.image import Axis, Image
from hyperslab.tiles.query import MOST_ASPECT

_PREFIXES: Final = {
    "pico": -12, "nano": -9, "micro": -6, "milli": -3, "centi": -2, "deci": -1, "hecto": 2, "kilo": 3, "mega": 6,
    "p": -12, "n": -9, "u": -6, "µ": -6, "m": -3, "c": -2, "d": -1, "k": 3, "": 0,
}  # fmt: skip
_METRES: Final = {"angstrom": 1e-10, "micron": 1e-6, "inch": 0.0254, "foot": 0.3048, "yard": 0.9144, "mile": 1609.344}


@dataclass(frozen=True, slots=True)
class Orientation:
    """Names of the axes of the plane that run the wrong way, and the height of a cell divided by its width.

    ``steps`` are size and unit of a cell along rows and columns, None where not known.
    """

    flip: tuple[str, ...]
    aspect: float
    steps: tuple[tuple[float | None, str | None], ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Steps:
    """How coordinates go on from cell to cell: ``size`` in ``unit`` (None where not regular), ``sign`` 0 where they do
    not all go one way; ``downwards``: larger ones belong lower, as depths do."""

    size: float | None
    unit: str | None
    sign: int = 0
    downwards: bool = False


def find_orientation(frame: Frame, catalog: Catalog, reader: Reader) -> Orientation:
    """The orientation of a frame's plane; what is wrong with the coordinates is a problem, and no error."""
    problems: list[str] = []
    rows, columns = (frame.image.axes[axis] for axis in frame.plane)
    down, across = (_steps(frame.image, axis, catalog, reader, problems) for axis in (rows, columns))
    flip = [rows.name] if down.sign == (-1 if down.downwards else 1) else []
    flip += [columns.name] if across.sign < 0 else []
    alike = rows.type == columns.type == "space"
    steps = tuple((steps.size, steps.unit) for steps in (down, across))
    return Orientation(tuple(flip), _aspect(down, across, alike=alike), steps, tuple(problems))


def _steps(image: Image, axis: Axis, catalog: Catalog, reader: Reader, problems: list[str]) -> _Steps:
    """By the scale of a pyramid, or the array of coordinates that lies beside a plain array."""
    if image.kind != "array":
        return _Steps(axis.scale, axis.unit)
    parent, path = image.path.rpartition("/")[0], f"{image.path.rpartition('/')[0]}/{axis.name}"
    nothing = _Steps(None, None)
    if not parent or "/" in axis.name or path == image.path or not 1 < axis.size <= 1 << 20:  # more takes too long
        return nothing
    try:
        array = catalog.open_array(path)
        if array.metadata.shape != (axis.size,) or array.metadata.dtype.numpy.kind not in "iufM":
            return nothing
        values = reader.read(reader.plan(array, normalise([slice(0, axis.size)], array.metadata.shape)))[0]
    except (NodeNotFound, WrongKind, BadPath):
        return nothing
    except BrokenData as error:
        problems.append(f"the coordinates {path} cannot be read: {error}")
        return nothing
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
    """Depths and pressures by the rules of CF; and time, which is read like lines of a page."""
    positive, kind = array.attributes.get("positive"), array.attributes.get("axis")
    if isinstance(positive, str):
        return positive.lower() == "down"
    timely = " since " in unit or kind == "T" or axis.type == "time"
    pressure = r"(hecto|milli|kilo|deci)?(pascals?|bars?)|[hkd]?Pa|m?bar|dbar|atm(osphere)?s?"
    return timely or axis.name.lower() == "depth" or re.fullmatch(pressure, unit) is not None


def _aspect(down: _Steps, across: _Steps, *, alike: bool) -> float:
    """1 where the steps cannot be compared: their units measure different things. ``alike``: both are of space."""
    if not down.size or not across.size:
        return 1.0
    units = [metres_in(steps.unit) for steps in (down, across)]
    same = _plain_unit(down.unit) == _plain_unit(across.unit) and (down.unit is not None or alike)
    if units[0] is None or units[1] is None:
        ratio = down.size / across.size if same and units == [None, None] else 1.0
    else:
        ratio = down.size * units[0] / (across.size * units[1])
    drawable = 1 / MOST_ASPECT <= ratio <= MOST_ASPECT and abs(ratio - 1) > 0.02  # nearly square cells are pixels
    return float(f"{ratio:.6g}") if drawable else 1.0


def metres_in(unit: str | None) -> float | None:
    """A unit of length in metres; None for all others."""
    if unit is None or unit in _METRES:
        return None if unit is None else _METRES[unit]
    match = re.fullmatch(r"(?:(\w{4,})?(?:met(?:er|re)s?)|([pnuµmcdk]?)m)", unit)
    prefix = None if match is None else match[1] or match[2] or ""
    return 10.0 ** _PREFIXES[prefix] if prefix in _PREFIXES else None


def _plain_unit(unit: str | None) -> str | None:
    degrees = r"(arc_?)?deg(ree)?s?(_?(north|east|true|[NET]))?"
    return "degrees" if unit is not None and re.fullmatch(degrees, unit) else unit
