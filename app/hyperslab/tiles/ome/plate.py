"""``plate`` and ``well``: the images of a high-content screen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hyperslab.errors import shown
from hyperslab.tiles.ome.check import (
    MISSING,
    Problems,
    as_integer,
    as_list,
    as_object,
    as_path,
    as_text,
    as_version,
    lenient,
    usable,
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


def parse_plate(value: Any, problems: Problems) -> Plate:
    """The block without what is broken in it (OME-Zarr 0.4, 3.7); raises `ValueError` where no well is left."""
    block = as_object(value, "plate")
    version = as_version(block.get("version"), "plate.version", problems)
    if "field_count" in block:
        lenient(partial(as_integer, at_least=1), block["field_count"], "plate.field_count", problems)
    rows, columns = _parse_names(block, "rows", problems), _parse_names(block, "columns", problems)
    silent = version in ("0.1", "0.2", "0.3")

    def parse_plate_well(well: Any, where: str) -> PlateWell:
        return _parse_plate_well(well, where, (rows, columns), problems, silent=silent)

    wells = usable(parse_plate_well, block.get("wells", MISSING), "plate.wells", problems)
    if not wells:
        raise ValueError("plate.wells: none can be used")
    name = block.get("name")
    return Plate(name if isinstance(name, str) else None, rows, columns, wells, _parse_acquisitions(block, problems))


def parse_well(value: Any, problems: Problems) -> Well:
    """The block without what is broken in it (OME-Zarr 0.4, 3.8); raises `ValueError` where no image is left."""
    block = as_object(value, "well")
    as_version(block.get("version"), "well.version", problems)

    def parse_field(image: Any, where: str) -> FieldOfView:
        return _parse_field(image, where, problems)

    images = usable(parse_field, block.get("images", MISSING), "well.images", problems)
    if not images:
        raise ValueError("well.images: none can be used")
    return Well(images)


def _parse_names(block: Mapping[str, Any], member: str, problems: Problems) -> tuple[str, ...]:
    """Rows and columns are counted: one whose name is broken keeps its place."""
    given = as_list(block.get(member, MISSING), f"plate.{member}", at_least=1)
    names: list[str] = []
    for i, item in enumerate(given):
        name = lenient(_parse_name, item, f"plate.{member}[{i}]", problems) or ""
        if name and name in names:
            problems.append(f"plate.{member}[{i}]: {shown(name)} is there twice")
        names.append(name)
    return tuple(names)


def _parse_name(value: Any, where: str) -> str:
    name = as_text(as_object(value, where).get("name", MISSING), f"{where}.name")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{where}.name: {shown(name)} has more in it than letters and digits")
    return name


def _parse_plate_well(
    value: Any, where: str, names: tuple[tuple[str, ...], tuple[str, ...]], problems: Problems, *, silent: bool
) -> PlateWell:
    """A well whose place is missing or broken is where its path says; ``silent``: of a version that has no places."""
    well = as_object(value, where)
    path = as_text(well.get("path", MISSING), f"{where}.path")
    match = _WELL_PATH.fullmatch(path)
    if match is None:
        raise ValueError(f"{where}.path: {shown(path)} is not of the form row/column")
    places = []
    for member, known, name in zip(("rowIndex", "columnIndex"), names, match.groups(), strict=True):
        try:
            places.append(_parse_place(well.get(member, MISSING), f"{where}.{member}", len(known)))
        except ValueError as error:
            if name not in known:
                raise
            places.append(known.index(name))
            if member in well or not silent:
                problems.append(str(error))
    return PlateWell(path, *places)


def _parse_place(value: Any, where: str, count: int) -> int:
    place = as_integer(value, where, at_least=0)
    if place >= count:
        raise ValueError(f"{where}: {place} is beyond the last of {count}")
    return place


def _parse_acquisitions(block: Mapping[str, Any], problems: Problems) -> tuple[Acquisition, ...]:
    def parse(value: Any, where: str) -> Acquisition:
        entry = as_object(value, where)
        number = as_integer(entry.get("id", MISSING), f"{where}.id", at_least=0)
        for member, least in (("maximumfieldcount", 1), ("starttime", 0), ("endtime", 0)):
            if member in entry:
                lenient(partial(as_integer, at_least=least), entry[member], f"{where}.{member}", problems)
        name = entry.get("name")
        return Acquisition(number, name if isinstance(name, str) else None)

    def parse_all(value: Any, where: str) -> tuple[Acquisition, ...]:
        return usable(parse, value, where, problems, at_least=0)

    return lenient(parse_all, block.get("acquisitions", []), "plate.acquisitions", problems) or ()


def _parse_field(value: Any, where: str, problems: Problems) -> FieldOfView:
    image = as_object(value, where)
    path = as_path(image.get("path", MISSING), f"{where}.path", problems)
    if not _NAME.fullmatch(path):
        raise ValueError(f"{where}.path: {shown(path)} has more in it than letters and digits")
    acquisition = image.get("acquisition")
    if acquisition is not None:
        acquisition = lenient(as_integer, acquisition, f"{where}.acquisition", problems)
    return FieldOfView(path, acquisition)
