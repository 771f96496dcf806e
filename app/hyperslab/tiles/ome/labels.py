"""``image-label``: the colours of a segmentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from hyperslab.tiles.ome.check import (
    MISSING,
    Problems,
    as_integer,
    as_list,
    as_number,
    as_object,
    as_text,
    as_version,
    lenient,
    usable,
)

T = TypeVar("T")
RGBA = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class ImageLabel:
    """``colors`` by label value, of several for one value the last; ``source`` is the path of the image labelled."""

    colors: Mapping[float, RGBA]
    source: str | None


def parse_image_label(value: Any, problems: Problems) -> ImageLabel:
    """The block without what is broken in it (OME-Zarr 0.4, 3.6); raises `ValueError` where it is none."""
    block = as_object(value, "image-label")
    as_version(block.get("version"), "image-label.version", problems)
    colors = _entries(block, "colors", _parse_color, problems)
    _entries(block, "properties", _parse_label_value, problems)
    source = lenient(_parse_source, block.get("source", {}), "image-label.source", problems)
    return ImageLabel({label: rgba for label, rgba in colors if rgba is not None}, source)


def _entries(
    block: Mapping[str, Any], member: str, parse: Callable[[Any, str], T], problems: Problems
) -> tuple[T, ...]:
    if member not in block:
        return ()
    where = f"image-label.{member}"
    return lenient(lambda v, w: usable(parse, v, w, problems), block[member], where, problems) or ()


def _parse_color(value: Any, where: str) -> tuple[float, RGBA | None]:
    label = _parse_label_value(value, where)
    if "rgba" not in value:
        return label, None
    given = as_list(value["rgba"], f"{where}.rgba")
    if len(given) != 4:
        raise ValueError(f"{where}.rgba: expected four numbers, found {len(given)}")
    red, green, blue, alpha = (_as_byte(c, f"{where}.rgba[{i}]") for i, c in enumerate(given))
    return label, (red, green, blue, alpha)


def _parse_label_value(value: Any, where: str) -> float:
    return as_number(as_object(value, where).get("label-value", MISSING), f"{where}.label-value")


def _as_byte(value: Any, where: str) -> int:
    byte = as_integer(value, where, at_least=0)
    if byte > 255:
        raise ValueError(f"{where}: expected at most 255, found {byte}")
    return byte


def _parse_source(value: Any, where: str) -> str | None:
    source = as_object(value, where)
    return as_text(source["image"], f"{where}.image") if "image" in source else None
