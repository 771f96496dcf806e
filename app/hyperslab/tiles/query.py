"""Parser of tile queries; values are checked against the image later."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from hyperslab.engine.jsontext import parse_json
from hyperslab.errors import BadParameter
from hyperslab.tiles.colour import RGB, RGBA, parse_colour, parse_rgba

Colormap = tuple[RGBA, ...] | Mapping[float, RGBA]
"""Evenly spaced stops of a gradient, or colours by value; other values are then transparent."""
Rescale = tuple[float, float] | Literal["auto", "dtype", "minmax"]
Component = Literal["abs", "real", "imag", "phase"]

COMPONENTS: Final = ("abs", "real", "imag", "phase")
MAX_ASPECT: Final = 1000.0
"""The largest ratio of the height of a cell to its width, and the inverse of the smallest."""


@dataclass(frozen=True, slots=True)
class TileQuery:
    """Query parameters by name; ``selection`` are those named after axes.

    ``c``, ``color``, ``rescale`` and ``invert`` are repeatable and correspond in order; a single value of the last
    three applies to all channels.
    """

    selection: tuple[tuple[str, int], ...] = ()
    axes: tuple[str, str] | None = None
    flip: tuple[str, ...] | Literal["auto"] = ()
    aspect: float | Literal["auto"] = 1.0
    field: str | None = None
    c: tuple[int, ...] = ()
    color: tuple[RGB, ...] = ()
    rescale: tuple[Rescale, ...] = ()
    invert: tuple[bool, ...] = ()
    gamma: float = 1.0
    colormap_name: str | None = None
    colormap: Colormap | None = None
    nodata: float | None = None
    component: Component | None = None
    decode: Literal["cf", "none"] = "none"
    labels: bool | None = None
    opacity: float = 1.0
    bg: RGB | None = None
    quality: int = 85
    scheme: Literal["xyz", "tms"] = "xyz"
    tile_size: int = 256
    overlap: int = 0
    empty: Literal["404", "204", "transparent"] = "404"
    format: Literal["png", "jpg", "webp"] = "png"
    size: int = 256
    bins: int = 256
    v: str | None = None


def parse_query(pairs: Iterable[tuple[str, str]]) -> TileQuery:
    """The query from its decoded pairs, in order; raises `BadParameter`.

    Unknown names are axes; ``sel=name:index`` selects along axes named like a parameter.
    """
    single: dict[str, Any] = {}
    repeated: dict[str, list[Any]] = {}
    for name, text in pairs:
        if name in _REPEATED:
            repeated.setdefault(name, []).append(_parsed(name, text, *_REPEATED[name]))
        elif name == "sel":
            axis, _, index = text.rpartition(":")
            repeated.setdefault("selection", []).append((axis, _parsed(name, index, *_INDEX)))
        elif name not in _SINGLE:
            repeated.setdefault("selection", []).append((name, _parsed(name, text, *_INDEX)))
        elif name in single:
            raise BadParameter(name, text, "the parameter once")
        else:
            single[name] = _parsed(name, text, *_SINGLE[name])
    return TileQuery(**single | {name: tuple(values) for name, values in repeated.items()})


def _parsed(name: str, text: str, parse: Callable[[str], Any], expected: str) -> Any:
    try:
        return parse(text)
    except (ValueError, KeyError) as error:
        detail = _WINDOW if str(error) == _WINDOW else expected
        raise BadParameter(name, text[:200], detail) from error


# --- values ----------------------------------------------------------------------------------------------------

_INTEGER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_WINDOW: Final = "a window whose lower end is below its upper end"


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError
    return int(text)


def _number(text: str) -> float:
    value = int(text) if _INTEGER.fullmatch(text) else float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _within(low: float, high: float, parse: Callable[[str], float] = _number) -> Callable[[str], float]:
    def parse_bounded(text: str) -> float:
        if not low <= (value := parse(text)) <= high:
            raise ValueError
        return value

    return parse_bounded


def _flag(text: str) -> bool:
    if text.lower() not in ("1", "true", "yes", "", "0", "false", "no"):
        raise ValueError
    return text.lower() in ("1", "true", "yes", "")


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _plane(text: str) -> tuple[str, str]:
    rows, columns = text.split(",")
    if not rows or not columns or rows == columns:
        raise ValueError
    return rows, columns


def _flip(text: str) -> tuple[str, ...] | Literal["auto"]:
    if text == "auto":
        return "auto"
    return () if text in ("", "none") else tuple(text.split(","))


def _rescale(text: str) -> Rescale:
    if text in ("auto", "dtype", "minmax"):
        return text  # type: ignore[return-value]
    low, high = (_number(part.strip()) for part in text.split(","))
    if low >= high:
        raise ValueError(_WINDOW)
    return low, high


def _colormap(text: str) -> Colormap:
    value = parse_json(text.encode()) if text.lstrip()[:1] in ("[", "{") else text.split(",")
    if isinstance(value, Mapping):
        return {_number(key): _rgba(colour) for key, colour in value.items()}
    if len(value) < 2:
        raise ValueError
    return tuple([_rgba(colour) for colour in value])


def _rgba(value: Any) -> RGBA:
    if isinstance(value, str):
        return parse_rgba(value)
    if not isinstance(value, list) or len(value) not in (3, 4):
        raise ValueError
    if any(isinstance(part, bool) or not isinstance(part, int) or not 0 <= part <= 255 for part in value):
        raise ValueError
    red, green, blue, alpha = (*value, 255)[:4]
    return red, green, blue, alpha


_Parser = tuple[Callable[[str], Any], str]
"""A parser that raises `ValueError`, and a description of valid values."""


def _choice(*choices: str) -> _Parser:
    return dict(zip(choices, choices, strict=True)).__getitem__, f"one of {', '.join(choices)}"


def _between(low: int, high: int) -> _Parser:
    return _within(low, high, _integer), f"an integer from {low} to {high}"


_INDEX: Final = (_integer, "an index along an axis of the picture (it is none of the parameters)")
_FLAG: Final = (_flag, "true or false")
_COLOUR: Final = (parse_colour, "a colour of three or six hexadecimal digits")

_REPEATED: Final[Mapping[str, _Parser]] = {
    "c": (_integer, "the index of a channel"),
    "color": _COLOUR,
    "rescale": (_rescale, "two numbers low,high, or one of auto, dtype, minmax"),
    "invert": _FLAG,
}
_SINGLE: Final[Mapping[str, _Parser]] = {
    "axes": (_plane, "the names of two different axes, for example z,x: rows first"),
    "flip": (_flip, "auto, none, or axes of the plane, for example lat"),
    "aspect": (
        lambda text: text if text == "auto" else _within(1 / MAX_ASPECT, MAX_ASPECT)(text),
        f"auto, or the height of a cell divided by its width, from {1 / MAX_ASPECT:g} to {MAX_ASPECT:g}",
    ),
    "field": (_text, "the name of a field"),
    "gamma": (_within(0.01, 100), "a number from 0.01 to 100"),
    "colormap_name": (_text, "the name of a colour map"),
    "colormap": (_colormap, "two or more colours, or a JSON object with a colour for each value"),
    "nodata": (lambda text: math.nan if text.lower() == "nan" else _number(text), "a number, or nan"),
    "component": _choice(*COMPONENTS),
    "decode": _choice("cf", "none"),
    "labels": _FLAG,
    "opacity": (_within(0, 1), "a number from 0 to 1"),
    "bg": _COLOUR,
    "quality": _between(1, 100),
    "scheme": _choice("xyz", "tms"),
    "tile_size": _between(64, 1024),
    "overlap": _between(0, 16),
    "empty": _choice("404", "204", "transparent"),
    "format": _choice("png", "jpg", "webp"),
    "size": _between(16, 2048),
    "bins": _between(2, 4096),
    "v": (_text, "any text"),
}
PARAMETERS: Final = frozenset(_REPEATED) | frozenset(_SINGLE) | {"sel"}
"""All parameter names; other names are axes."""
