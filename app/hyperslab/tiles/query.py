"""Query parameters of tiles; values are checked against the image later."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from hyperslab.engine.jsontext import parse_json
from hyperslab.tiles.colour import RGB, RGBA, parse_colour, parse_rgba
from hyperslab.wire.labels import Method

Colormap = tuple[RGBA, ...] | Mapping[float, RGBA]
"""Evenly spaced stops of a gradient, or colours by value; other values are then transparent."""
Rescale = tuple[float, float] | Literal["auto", "dtype", "minmax"]
Component = Literal["abs", "real", "imag", "phase"]

MAX_ASPECT: Final = 1000.0
"""The largest ratio of the height of a cell to its width, and the inverse of the smallest."""

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


def _nodata(text: str) -> float:
    return math.nan if text.lower() == "nan" else _number(text)


def _aspect(text: str) -> float | Literal["auto"]:
    return "auto" if text == "auto" else _within(1 / MAX_ASPECT, MAX_ASPECT)(text)


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


def _each(parse: Callable[[str], Any], expected: str, *, many: bool = False) -> PlainValidator:
    """A validator of text, or of each of several texts, that says what was ``expected``; a pair of values such as
    ``axes`` comes as a list of one text."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except (ValueError, KeyError) as error:
            raise ValueError(_WINDOW if str(error) == _WINDOW else expected) from error

    def parsed_all(texts: Any) -> Any:
        listed = [texts] if isinstance(texts, str) else texts
        return tuple([parsed(text) for text in listed]) if many else parsed(listed[0])

    return PlainValidator(parsed_all)


def _choice(*choices: str) -> PlainValidator:
    return _each(dict(zip(choices, choices, strict=True)).__getitem__, f"one of {', '.join(choices)}")


def _schema(kind: str, **members: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, **members})


def _schemas(kind: str, **members: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": "array", "items": {"type": kind, **members}})


def _integers(low: int, high: int) -> tuple[PlainValidator, WithJsonSchema]:
    parse = _within(low, high, _integer)
    return _each(parse, f"an integer from {low} to {high}"), _schema("integer", minimum=low, maximum=high)


def _options(*choices: str) -> tuple[PlainValidator, WithJsonSchema]:
    return _choice(*choices), _schema("string", enum=[*choices])


def _axis_and_index(text: str) -> tuple[str, int]:
    axis, _, index = text.rpartition(":")
    if not axis:
        raise ValueError
    return axis, _integer(index)


_COLOUR: Final = "a colour of three or six hexadecimal digits"
_HEX: Final = "^#?([0-9A-Fa-f]{3}|[0-9A-Fa-f]{6})$"
_RGBA: Final = "#?([0-9A-Fa-f]{3}|[0-9A-Fa-f]{6}|[0-9A-Fa-f]{8})"
_DIGITS: Final = {"minimum": 1 - 10**18, "maximum": 10**18 - 1}
_INDEX: Final = "an index along an axis of the picture (it is none of the parameters)"
_FLAG: Final = (_each(_flag, "true or false"), _schema("boolean"))
_NAME: Final = _schema("string", minLength=1)

# --- queries ---------------------------------------------------------------------------------------------------


class TileQuery(BaseModel):
    """Query parameters of all resources of a picture; other names are axes.

    ``c``, ``color``, ``rescale`` and ``invert`` are repeatable and correspond in order; a single value of the last
    three applies to all channels.
    """

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)
    __pydantic_extra__: dict[str, Annotated[tuple[int, ...], _each(_integer, _INDEX, many=True)]] = Field(init=False)

    field: Annotated[str | None, _each(_text, "the name of a field"), _NAME] = None
    """One field of a structured dtype; its subarray dimensions follow the array's."""
    axes: Annotated[
        tuple[str, str] | None,
        _each(_plane, "the names of two different axes, for example z,x: rows first"),
        _schema("string", examples=["z,x"], pattern="^[^,]+,[^,]+$"),
    ] = None
    """Rows and columns of the picture, for example `z,x`. Any other axis takes its name as parameter."""
    flip: Annotated[
        tuple[str, ...] | Literal["auto"],
        _each(_flip, "auto, none, or axes of the plane, for example lat"),
        _schema("string", examples=["auto"]),
    ] = ()
    """Axes of the plane that run backwards, `auto` (by their coordinates), or `none`, as by default."""
    aspect: Annotated[
        float | Literal["auto"],
        _each(
            _aspect,
            f"auto, or the height of a cell divided by its width, from {1 / MAX_ASPECT:g} to {MAX_ASPECT:g}",
        ),
        WithJsonSchema(
            {"anyOf": [{"type": "number", "minimum": 1 / MAX_ASPECT, "maximum": MAX_ASPECT}, {"const": "auto"}]}
        ),
    ] = 1.0
    """Height of a cell divided by its width, or `auto` (by scales or coordinates); 1 by default."""
    isel: Annotated[
        tuple[tuple[str, int], ...],
        _each(_axis_and_index, f"name:index with {_INDEX}", many=True),
        _schemas("string", pattern="^.+:-?[0-9]{1,18}$"),
    ] = ()
    """`name:index` for axes whose name is that of a parameter."""
    sel: Annotated[
        tuple[str, ...], _each(_text, "name:label", many=True), _schemas("string", pattern="^[^:]+:.+$")
    ] = ()
    """`name:label`, such as `time:2001-03`, for axes with a coordinate beside the array, as for slices; for others
    `name:index`."""
    method: Annotated[Method | None, *_options(*get_args(Method))] = None
    """What `sel` takes where no value is the label: the nearest, or the one before or after."""
    c: Annotated[
        tuple[int, ...], _each(_integer, "the index of a channel", many=True), _schemas("integer", **_DIGITS)
    ] = ()
    """Channels; `color`, `rescale` and `invert` belong to them in order."""
    decode: Annotated[Literal["cf", "none"], *_options("cf", "none")] = "none"
    """`cf`: as the array's CF attributes say: unpacked, missing values as NaN, times as dates."""
    v: Annotated[str | None, _each(_text, "any text"), _NAME] = None
    """Any text: what has it may be kept for ever."""
    color: Annotated[tuple[RGB, ...], _each(parse_colour, _COLOUR, many=True), _schemas("string", pattern=_HEX)] = ()
    """Hexadecimal, `00FF00`."""
    rescale: Annotated[
        tuple[Rescale, ...],
        _each(_rescale, "two numbers low,high, or one of auto, dtype, minmax", many=True),
        _schemas("string", pattern=r"^(auto|dtype|minmax|-?[0-9]+(\.[0-9]+)?,-?[0-9]+(\.[0-9]+)?)$"),
    ] = ()
    """`low,high`, or `auto`, `dtype`, `minmax`."""
    invert: Annotated[tuple[bool, ...], _each(_flag, "true or false", many=True), _schemas("boolean")] = ()
    """Exchange light and dark."""
    colormap_name: Annotated[
        str | None,
        _each(_text, "the name of a colour map"),
        _schema("string", minLength=1, examples=["viridis", "magma_r"]),
    ] = None
    """Of matplotlib, also with `_r`; for a single channel."""
    colormap: Annotated[
        Colormap | None,
        _each(_colormap, "two or more colours, or a JSON object with a colour for each value"),
        _schema("string", pattern=rf"^({_RGBA}(,{_RGBA})+|\s*\[.+|\s*\{{.+)$", examples=["000000,FF0000"]),
    ] = None
    """Colours to run through, or a JSON object from values to colours."""
    gamma: Annotated[
        float, _each(_within(0.01, 100), "a number from 0.01 to 100"), _schema("number", minimum=0.01, maximum=100)
    ] = 1.0
    """Below 1 brightens."""
    nodata: Annotated[float | None, _each(_nodata, "a number, or nan"), _schema("number")] = None
    """A value that is not shown; NaN never is."""
    component: Annotated[Component | None, *_options("abs", "real", "imag", "phase")] = None
    """Of complex values."""
    labels: Annotated[bool | None, *_FLAG] = None
    """Each value is a label with its own colour."""
    opacity: Annotated[float, _each(_within(0, 1), "a number from 0 to 1"), _schema("number", minimum=0, maximum=1)] = (
        1.0
    )
    """0 to 1."""
    bg: Annotated[RGB | None, _each(parse_colour, _COLOUR), _schema("string", pattern=_HEX)] = None
    """What is not shown becomes this colour."""
    quality: Annotated[int, *_integers(1, 100)] = 85
    """Of jpg and webp."""
    tile_size: Annotated[int, *_integers(64, 1024)] = 256
    """In pixels."""
    scheme: Annotated[Literal["xyz", "tms"], *_options("xyz", "tms")] = "xyz"
    """`tms` counts y from below."""
    overlap: Annotated[int, *_integers(0, 16)] = 0
    """Pixels that tiles share with their neighbours."""
    empty: Annotated[Literal["404", "204", "transparent"], *_options("404", "204", "transparent")] = "404"
    """What there is outside the picture."""
    format: Annotated[Literal["png", "jpg", "webp"], *_options("png", "jpg", "webp")] = "png"
    """Of the tiles of a Deep Zoom image."""
    size: Annotated[int, *_integers(16, 2048)] = 256
    """Longer side of a thumbnail, or width of a legend."""
    bins: Annotated[int, *_integers(2, 4096)] = 256
    """How many bins of a histogram."""

    @property
    def selection(self) -> tuple[tuple[str, int], ...]:
        """Axes and indices: of parameters named after axes, and of ``isel``."""
        named = [(name, index) for name, indices in (self.__pydantic_extra__ or {}).items() for index in indices]
        return (*named, *self.isel)


REPEATABLE: Final = ("c", "color", "rescale", "invert", "isel", "sel")
"""Parameters that may be given more than once."""
