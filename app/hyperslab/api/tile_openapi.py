"""What OpenAPI is told of the routes of tiles."""

from __future__ import annotations

from typing import Any, Final

from hyperslab.api import openapi


def _query(name: str, description: str, kind: str = "string", **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": {"type": kind, **schema}}


def _repeated(name: str, description: str, kind: str = "string") -> dict[str, Any]:
    return _query(name, description, "array", items={"type": kind})


_PLANE: Final = (
    openapi.PATH,
    openapi.FIELD,
    _query("axes", "Rows and columns of the picture, for example `z,x`. Any other axis takes its name as parameter."),
    _repeated("sel", "`name:index` for axes whose name is that of a parameter."),
    _repeated("c", "Channels; `color`, `rescale` and `invert` belong to them in order.", "integer"),
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
_EMPTY: Final = _query("empty", "What there is outside the picture.", enum=["404", "204", "transparent"])
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_PICTURES: Final = {f"image/{kind}": _BINARY for kind in ("png", "jpeg", "webp")}
_XML: Final = {"application/xml": {"schema": {"type": "string"}}}


def _place(name: str, kind: str = "integer") -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": kind}}


def operations() -> dict[str, Any]:
    """Path templates below the prefix, and what each does."""
    describe = openapi.operation
    place = [_place(name) for name in "zxy"]
    scheme = _query("scheme", "`tms` counts y from below.", enum=["xyz", "tms"])
    return {
        "/{path}/info.json": describe(
            "Describe a picture", "Axes, levels, channels, windows; a TileJSON too.", _TILED, openapi.DOCUMENT
        ),
        "/{path}/{z}/{x}/{y}.{format}": describe(
            "Draw a tile",
            "z = 0 is one tile, `maxzoom` the full resolution; x and y count from the top left. npy, raw: values.",
            [*_TILED, *place, _place("format", "string"), scheme, _EMPTY],
            {**_PICTURES, **openapi.VALUES},
        ),
        "/{path}/thumbnail.png": describe(
            "Draw the whole plane",
            "Also .jpg and .webp.",
            [*_STYLE, _query("size", "Longer side.", "integer")],
            _PICTURES,
        ),
        "/{path}/legend.png": describe(
            "Draw the colours",
            "As a bar, low values on the left.",
            [*_STYLE, _query("size", "Width.", "integer")],
            _PICTURES,
        ),
        "/{path}/histogram.json": describe(
            "Count values",
            "Of the coarsest level.",
            [*_PLANE, _query("bins", "How many.", "integer")],
            openapi.DOCUMENT,
        ),
        "/{path}.dzi": describe("Deep Zoom descriptor", "Its tiles lie at `{path}_files/`.", _TILED, _XML),
        "/iiif/{path}/info.json": describe("IIIF Image API 3", "Level 2 but for upscaling.", _TILED, openapi.DOCUMENT),
        "/iiif/{path}/{region}/{size}/{rotation}/{quality}.{format}": describe(
            "IIIF image",
            "See the IIIF Image API 3.0.",
            [*_STYLE, *(_place(name, "string") for name in ("region", "size", "rotation", "quality", "format"))],
            _PICTURES,
        ),
    }
