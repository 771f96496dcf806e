"""``plate`` and ``well``: the images of a high-content screen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hyperslab.tiles.ome.check import (
    MISSING,
    as_integer,
    as_list,
    as_object,
    as_text,
    as_version,
    check_unique,
)

_NAME: Final = re.compile(r"[A-Za-z0-9]+")
_WELL_PATH: Final = re.compile(r"([A-Za-z0-9]+)/([A-Za-z0-9]+)")


@dataclass(frozen=True, slots=True)
class Acquisition:
    id: int
    name: str | None


@dataclass(frozen=True, slots=True)
class PlateWell:
    """``row`` and ``column`` count from 0."""

    path: str
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Plate:
    """A grid of wells; not every place in it needs to have one."""

    name: str | None
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    wells: tuple[PlateWell, ...]
    acquisitions: tuple[Acquisition, ...]


@dataclass(frozen=True, slots=True)
class FieldOfView:
    path: str
    acquisition: int | None


@dataclass(frozen=True, slots=True)
class Well:
    images: tuple[FieldOfView, ...]


def parse_plate(value: Any) -> Plate:
    """The block, or a `ValueError` with the member that is wrong (OME-Zarr 0.4, 3.7)."""
    block = as_object(value, "plate")
    version = as_version(block.get("version"), "plate.version")
    if "field_count" in block:
        as_integer(block["field_count"], "plate.field_count", at_least=1)
    rows, columns = _parse_names(block, "rows"), _parse_names(block, "columns")
    given = as_list(block.get("wells", MISSING), "plate.wells", at_least=1)
    check_unique(given, "plate.wells")
    tolerant = version in ("0.1", "0.2", "0.3")
    wells = tuple(_parse_plate_well(w, f"plate.wells[{i}]", (rows, columns), tolerant) for i, w in enumerate(given))
    name = block.get("name")
    return Plate(name if isinstance(name, str) else None, rows, columns, wells, _parse_acquisitions(block))


def parse_well(value: Any) -> Well:
    """The block, or a `ValueError` with the member that is wrong (OME-Zarr 0.4, 3.8)."""
    block = as_object(value, "well")
    as_version(block.get("version"), "well.version")
    given = as_list(block.get("images", MISSING), "well.images", at_least=1)
    check_unique(given, "well.images")
    return Well(tuple(_parse_field(image, f"well.images[{i}]") for i, image in enumerate(given)))


def _parse_names(block: Mapping[str, Any], member: str) -> tuple[str, ...]:
    where = f"plate.{member}"
    names = []
    for i, item in enumerate(as_list(block.get(member, MISSING), where, at_least=1)):
        name = as_text(as_object(item, f"{where}[{i}]").get("name", MISSING), f"{where}[{i}].name")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{where}[{i}].name: {name!r} has more in it than letters and digits")
        names.append(name)
    check_unique(names, where)
    return tuple(names)


def _parse_plate_well(
    value: Any, where: str, names: tuple[tuple[str, ...], tuple[str, ...]], tolerant: bool
) -> PlateWell:
    well = as_object(value, where)
    path = as_text(well.get("path", MISSING), f"{where}.path")
    match = _WELL_PATH.fullmatch(path)
    if match is None:
        raise ValueError(f"{where}.path: {path!r} is not of the form row/column")
    if tolerant and "rowIndex" not in well and match[1] in names[0] and match[2] in names[1]:
        return PlateWell(path, names[0].index(match[1]), names[1].index(match[2]))
    row, column = (
        _parse_place(well.get(member, MISSING), f"{where}.{member}", len(known))
        for member, known in zip(("rowIndex", "columnIndex"), names, strict=True)
    )
    return PlateWell(path, row, column)


def _parse_place(value: Any, where: str, count: int) -> int:
    place = as_integer(value, where, at_least=0)
    if place >= count:
        raise ValueError(f"{where}: {place} is beyond the last of {count}")
    return place


def _parse_acquisitions(block: Mapping[str, Any]) -> tuple[Acquisition, ...]:
    where = "plate.acquisitions"
    acquisitions = []
    for i, item in enumerate(as_list(block.get("acquisitions", []), where)):
        entry = as_object(item, f"{where}[{i}]")
        number = as_integer(entry.get("id", MISSING), f"{where}[{i}].id", at_least=0)
        for member, least in (("maximumfieldcount", 1), ("starttime", 0), ("endtime", 0)):
            if member in entry:
                as_integer(entry[member], f"{where}[{i}].{member}", at_least=least)
        name = entry.get("name")
        acquisitions.append(Acquisition(number, name if isinstance(name, str) else None))
    return tuple(acquisitions)


def _parse_field(value: Any, where: str) -> FieldOfView:
    image = as_object(value, where)
    path = as_text(image.get("path", MISSING), f"{where}.path")
    if not _NAME.fullmatch(path):
        raise ValueError(f"{where}.path: {path!r} has more in it than letters and digits")
    acquisition = image.get("acquisition")
    return FieldOfView(path, None if acquisition is None else as_integer(acquisition, f"{where}.acquisition"))
