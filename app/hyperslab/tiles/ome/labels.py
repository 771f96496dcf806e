"""``image-label``: the colours of a segmentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hyperslab.tiles.ome.check import MISSING, as_integer, as_list, as_number, as_object, as_text, as_version

RGBA = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class ImageLabel:
    """``colors`` by label value, of several for one value the last; ``source`` is the path of the image labelled."""

    colors: Mapping[float, RGBA]
    source: str | None


def parse_image_label(value: Any) -> ImageLabel:
    """The block, or a `ValueError` with the member that is wrong (OME-Zarr 0.4, 3.6)."""
    block = as_object(value, "image-label")
    as_version(block.get("version"), "image-label.version")
    colors: dict[float, RGBA] = {}
    for i, item in enumerate(_entries(block, "colors")):
        label, rgba = _parse_color(item, f"image-label.colors[{i}]")
        if rgba is not None:
            colors[label] = rgba
    for i, item in enumerate(_entries(block, "properties")):
        _parse_label_value(item, f"image-label.properties[{i}]")
    return ImageLabel(colors, _parse_source(block))


def _entries(block: Mapping[str, Any], member: str) -> list[Any]:
    return as_list(block[member], f"image-label.{member}", at_least=1) if member in block else []


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


def _parse_source(block: Mapping[str, Any]) -> str | None:
    if "source" not in block:
        return None
    source = as_object(block["source"], "image-label.source")
    return as_text(source["image"], "image-label.source.image") if "image" in source else None
