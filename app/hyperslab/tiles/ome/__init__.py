"""OME-Zarr metadata as facts: the attributes of a group in, frozen records out. Pure.

Written for version 0.4 of the specification; 0.1 to 0.3 are tolerated, and so are the attributes of 0.5 (nested in
``ome``). A member that is broken is left out and named in `Ome.problems`; all others count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hyperslab.tiles.ome.member import Member, Problems
from hyperslab.tiles.ome.parts import (
    Acquisition,
    AxisFacts,
    Dataset,
    FieldOfView,
    ImageLabel,
    Multiscale,
    Omero,
    OmeroChannel,
    Plate,
    PlateWell,
    Well,
    Window,
    parse_image_label,
    parse_multiscales,
    parse_omero,
    parse_plate,
    parse_well,
)

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
    problems: Problems = []
    root = _root(attributes, problems)
    multiscales, omero, label, plate, well = (
        root[name] for name in ("multiscales", "omero", "image-label", "plate", "well")
    )
    version = root.get("version", None).value
    ome = Ome(
        multiscale=None if multiscales.is_missing else multiscales.lenient(lambda m: parse_multiscales(m, version)),
        omero=None if omero.is_missing else omero.lenient(parse_omero),
        # labels remain labels where their colours are broken
        image_label=None if label.is_missing else label.lenient(parse_image_label) or ImageLabel({}, None),
        plate=None if plate.is_missing else plate.lenient(parse_plate),
        well=None if well.is_missing else well.lenient(parse_well),
        is_collection=root["bioformats2raw.layout"].value == 3,
    )
    more = len(problems) - _MOST_PROBLEMS
    return replace(ome, problems=(*problems[:_MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else ())))


def label_paths(attributes: Mapping[str, Any], problems: Problems) -> tuple[str, ...]:
    """The names in the attributes of a ``labels`` group, without those that are broken."""
    return _names(_root(attributes, problems)["labels"])


def series_paths(attributes: Mapping[str, Any], problems: Problems) -> tuple[str, ...]:
    """The images of a bioformats2raw collection, from the attributes of its ``OME`` group."""
    return _names(_root(attributes, problems)["series"])


def broken_dataset_paths(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """Whatever paths a broken ``multiscales`` still names: the arrays to show as they are; never raises."""
    try:
        entries = _root(attributes, []).get("multiscales", []).list()
        datasets = [dataset.value for entry in entries for dataset in entry.get("datasets", []).list()]
    except ValueError:
        return ()
    return tuple(d["path"] for d in datasets if isinstance(d, Mapping) and isinstance(d.get("path"), str))


def _root(attributes: Mapping[str, Any], problems: Problems) -> Member:
    """The members of OME-Zarr; some writers put null where they have nothing to say."""
    nested = attributes.get("ome")
    block = nested if isinstance(nested, Mapping) else attributes
    return Member({name: value for name, value in block.items() if value is not None}, "", problems)


def _names(member: Member) -> tuple[str, ...]:
    return () if member.is_missing else member.lenient(lambda m: m.usable(Member.text)) or ()
