"""Colours: hexadecimal notation, colour maps, tints and label colours.

A look-up table (LUT) is a ``(256, 4)`` uint8 array of RGBA; entry 0 is the colour of the window's lower end.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

Numbers = np.ndarray[Any, np.dtype[Any]]
Table = np.ndarray[Any, np.dtype[np.uint8]]
RGB = tuple[int, int, int]
RGBA = tuple[int, int, int, int]

_SOURCES: Final = {
    "bids": ("viridis", "plasma", "inferno", "magma"),
    "cividis": ("cividis",),
    "colorbrewer": (
        *("Greys", "Purples", "Blues", "Greens", "Oranges", "Reds", "YlOrBr", "YlOrRd", "OrRd", "PuRd", "RdPu"),
        *("BuPu", "GnBu", "PuBu", "YlGnBu", "PuBuGn", "BuGn", "YlGn"),
        *("PiYG", "PRGn", "BrBG", "PuOr", "RdGy", "RdBu", "RdYlBu", "RdYlGn", "Spectral"),
        *("Pastel1", "Pastel2", "Paired", "Accent", "Dark2", "Set1", "Set2", "Set3"),
    ),
    "matlab": (
        *("gray", "bone", "pink", "spring", "summer", "autumn", "winter", "cool", "hot", "copper"),
        *("hsv", "flag", "prism", "jet"),
    ),
    "matplotlib": (
        *("binary", "Wistia", "coolwarm", "bwr", "seismic", "twilight", "twilight_shifted", "terrain", "CMRmap"),
        *("brg", "nipy_spectral", "gist_gray", "gist_yarg", "gist_heat", "gist_earth", "gist_stern"),
        *("gist_rainbow", "gist_ncar"),
    ),
    "gnuplot": ("afmhot", "ocean", "gnuplot", "gnuplot2", "rainbow"),
    "cubehelix": ("cubehelix",),
    "google": ("turbo",),
    "crameri": ("berlin", "managua", "vanimo"),
    "tableau": ("tab10", "tab20", "tab20b", "tab20c"),
}
_NAMESPACES: Final = {name: source for source, names in _SOURCES.items() for name in names}

COLORMAPS: Final = tuple(sorted(_NAMESPACES, key=str.lower))
"""matplotlib's colour map names; each also exists reversed, with the suffix ``_r``."""

DEFAULT_COLOURS: Final = ("00FF00", "FF00FF", "00FFFF", "FFFF00", "FF0000", "0000FF", "FFFFFF")
"""Default channel colours, by channel index modulo their number."""


def parse_colour(text: str) -> RGB:
    """RGB bytes of ``00FF00``, ``#00ff00`` or ``0f0``; the alpha of eight digits is dropped. Raises `ValueError`."""
    red, green, blue, _ = parse_rgba(text)
    return red, green, blue


def parse_rgba(text: str) -> RGBA:
    """RGBA bytes; alpha is 255 by default. Raises `ValueError`."""
    match = re.fullmatch(r"#?([0-9A-Fa-f]{3}|[0-9A-Fa-f]{6}|[0-9A-Fa-f]{8})", text)
    if match is None:
        raise ValueError("a colour of three, six or eight hexadecimal digits")
    digits = match[1] if len(match[1]) > 3 else "".join(2 * d for d in match[1])
    red, green, blue, alpha = bytes.fromhex(digits.ljust(8, "f"))
    return red, green, blue, alpha


@lru_cache(maxsize=256)
def named_lut(name: str) -> Table:
    """LUT of a colour map by name: one of `COLORMAPS` or ``namespace:name`` of the cmap library, ``_r`` reverses it.

    A map of fewer than 256 colours divides the window into equal parts. Raises `ValueError` for an unknown name.
    """
    if name.endswith("_r") and (":" in name or name[:-2] in _NAMESPACES):
        return named_lut(name[:-2])[::-1]
    if ":" not in name and name not in _NAMESPACES:
        raise ValueError(f"the name of a colour map{did_you_mean(name)}")
    import cmap  # imported late: greyscale pictures do without

    try:
        colours = cmap.Colormap(name if ":" in name else f"{_NAMESPACES[name]}:{name}").lut(256)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError("namespace:name of a colour map that the cmap library has") from error
    return _read_only(step_lut(_to_bytes(colours)))


def did_you_mean(name: str) -> str:
    """A question with the name that may have been meant by a misspelt one; else where the names are."""
    bare = name.lower().removesuffix("_r")
    lower = {colormap.lower(): colormap for colormap in COLORMAPS}
    close = difflib.get_close_matches(bare, lower, n=1) or [
        colormap for colormap in lower if bare and colormap.startswith(bare)
    ]
    suffix = "_r" if name.lower().endswith("_r") else ""
    return f": did you mean {lower[close[0]]}{suffix}?" if close else ", of those in info.json, each also with _r"


def step_lut(colours: Table) -> Table:
    """LUT with one equal step for each of ``(n, 4)`` colours."""
    return colours[np.arange(256) * len(colours) // 256]


def gradient_lut(stops: Sequence[RGBA]) -> Table:
    """LUT that interpolates linearly between two or more evenly spaced colours."""
    positions = np.linspace(0, 255, len(stops))
    channels = [np.interp(np.arange(256), positions, column) for column in np.asarray(stops, float).T]
    return _read_only(np.rint(np.stack(channels, axis=1)).astype(np.uint8))


def tint(colour: RGB) -> Table:
    """LUT from black to one colour."""
    return gradient_lut([(0, 0, 0, 255), (*colour, 255)])


# --- labels ----------------------------------------------------------------------------------------------------


def label_colours(labels: Numbers, chosen: Mapping[float, RGBA] | None = None, *, only_chosen: bool = False) -> Table:
    """``(n, 4)`` RGBA of ``(n,)`` labels: from ``chosen``, transparent for 0, else a bright colour from a hash.

    A label's colour depends on its value alone, so it is the same in all tiles, levels and images. ``only_chosen``
    makes labels that are not in ``chosen`` transparent. Of keys that round to the same float the largest wins.
    """
    colours = np.zeros((len(labels), 4), np.uint8) if only_chosen else _hashed_colours(labels)
    colours[labels == 0] = 0
    if chosen:
        if labels.dtype.kind == "f":
            with np.errstate(over="ignore"):
                chosen = {labels.dtype.type(value).item(): chosen[value] for value in sorted(chosen)}
        own = [chosen.get(label) for label in labels.tolist()]  # Python compares integers and floats exactly
        has_own = [colour is not None for colour in own]
        colours[has_own] = np.array([colour for colour in own if colour is not None], np.uint8).reshape(-1, 4)
    return colours


def _hashed_colours(labels: Numbers) -> Table:
    """Hue, saturation and value from the bits of a hash, so that consecutive labels differ in colour."""
    bits = _mix(labels.astype(np.int64).view(np.uint64) if labels.dtype.kind != "u" else labels.astype(np.uint64))
    hue = (bits & 0xFFFF).astype(float) / 0x10000
    saturation = 0.55 + 0.45 * ((bits >> 16) & 0xFF).astype(float) / 255
    value = 0.75 + 0.25 * ((bits >> 24) & 0xFF).astype(float) / 255
    rgb = []
    for offset in (5, 3, 1):  # red, green and blue of HSV
        k = (offset + 6 * hue) % 6
        rgb.append(value - value * saturation * np.clip(np.minimum(k, 4 - k), 0, 1))
    return _to_bytes(np.stack([*rgb, np.ones_like(hue)], axis=1))


def _mix(x: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Finaliser of MurmurHash3 (64 bits)."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ (x >> np.uint64(33))) * np.uint64(factor)
    return x ^ (x >> np.uint64(33))


def _to_bytes(colours: Any) -> Table:
    """Components from 0.0 to 1.0 as the nearest bytes."""
    table: Table = np.rint(np.asarray(colours) * 255).astype(np.uint8)
    return table


def _read_only(table: Table) -> Table:
    table.flags.writeable = False
    return table


GREY: Final = tint((255, 255, 255))
"""LUT of channels without a colour."""
