"""``omero``: how the channels of an image want to be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hyperslab.errors import shown
from hyperslab.tiles.ome.check import MISSING, Problems, as_flag, as_integer, as_list, as_number, as_object, lenient

_COLOUR: Final = re.compile(r"#?([0-9A-Fa-f]{6})([0-9A-Fa-f]{2})?")


@dataclass(frozen=True, slots=True)
class Window:
    """What the values can be (``min`` to ``max``) and what of it is shown (``start`` to ``end``)."""

    min: float
    max: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class OmeroChannel:
    """``color`` is six hexadecimal digits; it and ``window`` are None where they are missing or broken."""

    label: str
    color: str | None
    window: Window | None
    active: bool
    inverted: bool


@dataclass(frozen=True, slots=True)
class Omero:
    """``default_t`` and ``default_z`` are where a viewer begins."""

    channels: tuple[OmeroChannel, ...]
    default_t: int | None
    default_z: int | None
    greyscale: bool


def parse_omero(value: Any, problems: Problems) -> Omero:
    """The block without what is broken in it; raises `ValueError` where it has no list of channels."""
    block = as_object(value, "omero")
    given = as_list(block.get("channels", MISSING), "omero.channels")
    channels = tuple(_parse_channel(c, f"omero.channels[{i}]", problems) for i, c in enumerate(given))
    rdefs = block.get("rdefs")
    defaults = rdefs if isinstance(rdefs, Mapping) else {}
    return Omero(
        channels,
        default_t=_default(defaults, "defaultT", problems),
        default_z=_default(defaults, "defaultZ", problems),
        greyscale=defaults.get("model") == "greyscale",
    )


def _default(rdefs: Mapping[str, Any], member: str, problems: Problems) -> int | None:
    if rdefs.get(member) is None:
        return None
    return lenient(lambda v, where: as_integer(v, where, at_least=0), rdefs[member], f"omero.rdefs.{member}", problems)


def _parse_channel(value: Any, where: str, problems: Problems) -> OmeroChannel:
    """Channels are counted: one that is broken keeps its place."""
    channel = lenient(as_object, value, where, problems)
    if channel is None:
        return OmeroChannel("", None, None, active=True, inverted=False)
    label = channel.get("label")
    active = lenient(as_flag, channel.get("active", True), f"{where}.active", problems)
    inverted = lenient(as_flag, channel.get("inverted", False), f"{where}.inverted", problems)
    return OmeroChannel(
        label=label if isinstance(label, str) else "",
        color=lenient(_as_colour, channel.get("color", MISSING), f"{where}.color", problems),
        window=lenient(_as_window, channel.get("window", MISSING), f"{where}.window", problems),
        active=True if active is None else active,
        inverted=bool(inverted),
    )


def _as_colour(value: Any, where: str) -> str:
    if value is MISSING:
        raise ValueError(f"{where}: missing")
    match = _COLOUR.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{where}: expected six hexadecimal digits, found {shown(value)}")
    return match[1].upper()


def _as_window(value: Any, where: str) -> Window:
    if value is MISSING:
        raise ValueError(f"{where}: missing")
    window = as_object(value, where)
    start, end, low, high = (
        as_number(window.get(member, MISSING), f"{where}.{member}") for member in ("start", "end", "min", "max")
    )
    if start >= end:
        raise ValueError(f"{where}: start {start} is not below end {end}")
    return Window(low, high, start, end)
