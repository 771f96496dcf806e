"""OME-Zarr metadata as facts: the attributes of a group in, frozen records out. Pure.

Written for version 0.4 of the specification; 0.1 to 0.3 are tolerated, and so are the attributes of 0.5 (nested in
``ome``). A member that is broken is left out and named in `Ome.problems`; all others count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hyperslab.tiles.ome.check import Problems, as_list, as_object, as_text, usable
from hyperslab.tiles.ome.image import AxisFacts, Dataset, Multiscale, parse_multiscales
from hyperslab.tiles.ome.labels import ImageLabel, parse_image_label
from hyperslab.tiles.ome.omero import Omero, OmeroChannel, Window, parse_omero
from hyperslab.tiles.ome.plate import Acquisition, FieldOfView, Plate, PlateWell, Well, parse_plate, parse_well

__all__ = [
    "Acquisition",
    "AxisFacts",
    "Dataset",
    "FieldOfView",
    "ImageLabel",
    "Multiscale",
    "Ome",
    "Omero",
    "OmeroChannel",
    "Plate",
    "PlateWell",
    "Well",
    "Window",
    "broken_dataset_paths",
    "label_paths",
    "read_ome",
    "series_paths",
]

T = TypeVar("T")

_MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Ome:
    """All that a group's attributes say; a part is None where it is absent or broken (``problems`` tells which)."""

    multiscale: Multiscale | None = None
    omero: Omero | None = None
    image_label: ImageLabel | None = None
    plate: Plate | None = None
    well: Well | None = None
    is_collection: bool = False
    problems: tuple[str, ...] = ()

    @property
    def holds_images(self) -> bool:
        """Whether the group is a plate, a well or a collection: several images and none itself."""
        return bool(self.plate or self.well or (self.is_collection and not self.multiscale))

    @property
    def is_empty(self) -> bool:
        """Whether there was no OME metadata at all, not even broken metadata."""
        return self == Ome()


def read_ome(attributes: Mapping[str, Any]) -> Ome:
    """Everything that OME-Zarr says in the attributes of one group; never raises."""
    block = _ome_block(attributes)
    problems: Problems = []
    version = block.get("version")
    ome = Ome(
        multiscale=_parse(block, "multiscales", lambda v, p: parse_multiscales(v, version, p), problems),
        omero=_parse(block, "omero", parse_omero, problems),
        image_label=_parse_image_label(block, problems),
        plate=_parse(block, "plate", parse_plate, problems),
        well=_parse(block, "well", parse_well, problems),
        is_collection=block.get("bioformats2raw.layout") == 3,
    )
    more = len(problems) - _MOST_PROBLEMS
    return replace(ome, problems=(*problems[:_MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else ())))


def label_paths(attributes: Mapping[str, Any], problems: Problems) -> tuple[str, ...]:
    """The names in the attributes of a ``labels`` group, without those that are broken."""
    return _parse(_ome_block(attributes), "labels", lambda v, p: usable(as_text, v, "labels", p), problems) or ()


def series_paths(attributes: Mapping[str, Any], problems: Problems) -> tuple[str, ...]:
    """The images of a bioformats2raw collection, from the attributes of its ``OME`` group."""
    return _parse(_ome_block(attributes), "series", lambda v, p: usable(as_text, v, "series", p), problems) or ()


def broken_dataset_paths(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """Whatever paths a broken ``multiscales`` still names: the arrays to show as they are; never raises."""
    try:
        entries = as_list(_ome_block(attributes).get("multiscales", []), "multiscales")
        datasets = [d for entry in entries for d in as_list(as_object(entry, "").get("datasets", []), "")]
    except ValueError:
        return ()
    return tuple(d["path"] for d in datasets if isinstance(d, Mapping) and isinstance(d.get("path"), str))


def _ome_block(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The members of OME-Zarr; some writers put null where they have nothing to say."""
    nested = attributes.get("ome")
    block = nested if isinstance(nested, Mapping) else attributes
    return {name: value for name, value in block.items() if value is not None}


def _parse_image_label(block: Mapping[str, Any], problems: list[str]) -> ImageLabel | None:
    """Labels remain labels where their colours are broken."""
    parsed = _parse(block, "image-label", parse_image_label, problems)
    return ImageLabel({}, None) if parsed is None and "image-label" in block else parsed


def _parse(
    block: Mapping[str, Any], member: str, parse: Callable[[Any, Problems], T | None], problems: Problems
) -> T | None:
    if member not in block:
        return None
    try:
        return parse(block[member], problems)
    except ValueError as error:
        problems.append(str(error))
        return None
