"""What OpenAPI is told of the routes of tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hyperslab.api import openapi
from hyperslab.wire import ARRAY_CHUNKS, NPY, RAW, SERVER_TIMING

LINKED_JSON: Final = 'application/ld+json;profile="http://iiif.io/api/image/3/context.json"'


def _query(name: str, description: str, kind: str = "string", **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind, **schema}}


def _repeated(name: str, description: str, kind: str = "string") -> dict[str, Any]:
    return _query(name, description, "array", items={"type": kind})


_PLANE: Final = (
    openapi.PATH,
    openapi.FIELD,
    _query("axes", "Rows and columns of the picture, for example `z,x`. Any other axis takes its name as parameter."),
    _query("flip", "Axes of the plane that run backwards, `auto` (by their coordinates), or `none`, as by default."),
    _query("aspect", "Height of a cell divided by its width, or `auto` (by scales or coordinates); 1 by default."),
    _repeated("sel", "`name:index` for axes whose name is that of a parameter."),
    _repeated("c", "Channels; `color`, `rescale` and `invert` belong to them in order.", "integer"),
    openapi.DECODE,
    _query("v", "Any text: what has it may be kept for ever."),
)
_STYLE: Final = (
    *_PLANE,
    _repeated("color", "Hexadecimal, `00FF00`."),
    _repeated("rescale", "`low,high`, or `auto`, `dtype`, `minmax`."),
    _repeated("invert", "Exchange light and dark.", "boolean"),
    _query("colormap_name", "Of matplotlib, also with `_r`; for a single channel."),
    _query("colormap", "Colours to run through, or a JSON object from values to colours."),
    _query("gamma", "Below 1 brightens.", "number"),
    _query("nodata", "A value that is not shown; NaN never is.", "number"),
    _query("component", "Of complex values.", enum=["abs", "real", "imag", "phase"]),
    _query("labels", "Each value is a label with its own colour.", "boolean"),
    _query("opacity", "0 to 1.", "number"),
    _query("bg", "What is not shown becomes this colour."),
    _query("quality", "Of jpg and webp.", "integer", minimum=1, maximum=100),
)
_TILED: Final = (*_STYLE, _query("tile_size", "In pixels.", "integer", minimum=64, maximum=1024))
_OVERLAP: Final = _query("overlap", "Pixels that tiles share with their neighbours.", "integer", minimum=0, maximum=16)
_FORMAT: Final = _query("format", "Of the tiles.", enum=["png", "jpg", "webp"])
_EMPTY: Final = _query("empty", "What there is outside the picture.", enum=["404", "204", "transparent"])
_PICTURES: Final = {f"image/{kind}": openapi.BINARY for kind in ("png", "jpeg", "webp")}
_NUMBERS: Final = dict.fromkeys((RAW, NPY), openapi.BINARY)
_XML: Final = {"application/xml": {"schema": openapi.TEXT}}
_LINKED: Final = {LINKED_JSON.partition(";")[0]: {"schema": {"type": "object"}}}
_COST: Final = (ARRAY_CHUNKS, SERVER_TIMING)
_NOTHING: Final = openapi.answer("Nothing is there, and `empty=204` has asked for this.")


def _place(name: str, kind: str = "integer") -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": kind}}


def _tile(summary: str, description: str, parameters: list[Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """A picture that may lie outside of what there is."""
    described = openapi.operation(summary, description, [*parameters, _EMPTY], content, openapi.OF_VALUES)
    return {**described, "responses": {**described["responses"], "204": _NOTHING}}


def operations() -> dict[str, Any]:
    """Path templates below the prefix, and what each does."""
    describe = openapi.operation
    kind = _place("format", "string")
    tiled = [*_TILED, *map(_place, "zxy"), kind, _query("scheme", "`tms` counts y from below.", enum=["xyz", "tms"])]
    deep = [*_TILED, *map(_place, ("level", "x", "y")), kind, _OVERLAP]
    image = [*_STYLE, *(_place(name, "string") for name in ("region", "size", "rotation", "quality")), kind]
    return {
        "/{path}/info.json": describe(
            "Describe a picture", "Axes, levels, channels, windows; a TileJSON too.", _TILED, openapi.DOCUMENT
        ),
        "/{path}/{z}/{x}/{y}.{format}": _tile(
            "Draw a tile",
            "z = 0 is one tile, `maxzoom` the full resolution; x and y count from the top left. npy, raw: values.",
            tiled,
            {**_PICTURES, **_NUMBERS},
        ),
        "/{path}/thumbnail.{format}": describe(
            "Draw the whole plane",
            "As .png, .jpg or .webp.",
            [*_STYLE, kind, _query("size", "Longer side.", "integer", minimum=16, maximum=2048)],
            _PICTURES,
            _COST,
        ),
        "/{path}/legend.png": describe(
            "Draw the colours",
            "As a bar, low values on the left.",
            [*_STYLE, _query("size", "Width.", "integer", minimum=16, maximum=2048)],
            {"image/png": openapi.BINARY},
        ),
        "/{path}/histogram.json": describe(
            "Count values",
            "Of the coarsest level.",
            [*_PLANE, _query("bins", "How many.", "integer", minimum=2, maximum=4096)],
            openapi.DOCUMENT,
        ),
        "/{path}.dzi": describe(
            "Deep Zoom descriptor", "Its tiles lie at `{path}_files/`.", [*_TILED, _OVERLAP, _FORMAT], _XML
        ),
        "/{path}_files/{level}/{x}_{y}.{format}": _tile("Deep Zoom tile", "Level 0 is one pixel.", deep, _PICTURES),
        "/iiif/{path}": {
            "summary": "Lead to the description of an IIIF image",
            "parameters": list(_TILED),
            "responses": {"303": openapi.answer("See `info.json`.", headers=("Location",)), **openapi.FAILED},
        },
        "/iiif/{path}/info.json": describe("IIIF Image API 3", "Level 2.", _TILED, _LINKED),
        "/iiif/{path}/{region}/{size}/{rotation}/{quality}.{format}": describe(
            "IIIF image", "See the IIIF Image API 3.0.", image, _PICTURES, _COST
        ),
    }
