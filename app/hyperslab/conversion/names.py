"""Axes in the names of files: ``img_t{t}_c{c}.tif`` says which parts of a name are positions along t, c and z."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from hyperslab.conversion.model import CannotConvert, Undetermined

WORDS: Final = {
    **dict.fromkeys(("t", "time", "tp", "timepoint", "frame"), "t"),
    **dict.fromkeys(("c", "ch", "chn", "channel", "w", "wavelength"), "c"),
    **dict.fromkeys(("z", "slice", "zslice", "plane", "focus"), "z"),
}
"""Words before a number that name an axis."""


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts names by the numbers in them."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def positions(names: Sequence[str], pattern: str | None) -> tuple[dict[str, list[str]], list[int]]:
    """Labels along each axis that names have, in stored order, and for each index of these axes in C order the number
    of the name.

    Without a pattern it is guessed: numbers that differ, behind words as ``t``, ``ch`` or ``slice``. Raises
    `Undetermined` where that says too little, and `CannotConvert` for names that do not fill a grid.
    """
    parts = _guess(names) if pattern is None else _match(names, pattern)
    axes: dict[str, list[str]] = {
        axis: sorted({fields[axis] for fields in parts}, key=natural) for axis in ("t", "c", "z") if axis in parts[0]
    }
    places: dict[tuple[str, ...], int] = {}
    for number, fields in enumerate(parts):
        place = tuple([fields[axis] for axis in axes])
        if place in places:
            other = names[places[place]]
            said = f"{other!r} and {names[number]!r} have the same position, {_described(axes, place)}"
            raise Undetermined(said, "pattern", "scan_t{t}_z{z}.tif")
        places[place] = number
    order = []
    grid: list[tuple[str, ...]] = [()]
    for labels in axes.values():
        grid = [(*place, label) for place in grid for label in labels]
    for place in grid:
        if place not in places:
            raise CannotConvert(f"no file is at {_described(axes, place)}: the files do not fill a grid")
        order.append(places[place])
    return axes, order


def _described(axes: Mapping[str, Sequence[str]], place: Sequence[str]) -> str:
    return ", ".join(f"{axis}={label}" for axis, label in zip(axes, place, strict=True))


def _match(names: Sequence[str], pattern: str) -> list[dict[str, str]]:
    """Label by axis of each name; raises `Undetermined`."""
    pieces = re.split(r"(\{[^}]*\}|\*)", pattern)
    axes = [piece[1:-1] for piece in pieces if piece.startswith("{")]
    if not axes or not set(axes) <= {"t", "c", "z"} or len(set(axes)) < len(axes):
        raise Undetermined(
            f"the pattern {pattern!r} has none of {{t}}, {{c}} and {{z}}, or another", "pattern", "z{z}.tif"
        )

    def expression(number: str, text: str) -> str:
        parts = {"*": ".*?", "{t}": f"(?P<t>{number})", "{z}": f"(?P<z>{number})", "{c}": f"(?P<c>{text})"}
        return "".join(parts.get(piece, re.escape(piece)) for piece in pieces)

    matches = []
    for name in names:
        match = re.fullmatch(expression("[0-9]+", "[^_.]+"), name) or re.fullmatch(expression(".+?", ".+?"), name)
        if match is None:
            raise Undetermined(f"the name {name!r} does not match the pattern {pattern!r}", "pattern", "scan_z{z}.tif")
        matches.append(match.groupdict())
    return matches


def _guess(names: Sequence[str]) -> list[dict[str, str]]:
    parts = [re.split(r"([0-9]+)", name) for name in names]
    first, example = parts[0], re.sub(r"[0-9]+", "{z}", names[0], count=1)
    if len({tuple(parts_of_name[::2]) for parts_of_name in parts}) != 1:
        said = f"the files are not named alike ({names[0]!r}, {names[-1]!r}), so their names say no axes"
        raise Undetermined(said, "pattern", example if "{" in example else "scan_{c}.tif")
    axes: dict[str, int] = {}
    for index in range(1, len(first), 2):
        if len({parts_of_name[index] for parts_of_name in parts}) == 1:
            continue
        word = (re.search(r"[A-Za-z]+(?=[^A-Za-z]?$)", first[index - 1]) or [""])[0].lower()
        axis = WORDS.get(word)
        if axis is None or axis in axes:
            example = "".join([*first[:index], "{z}", *first[index + 1 :]])
            what = "also says " + axis if axis else "says no axis"
            raise Undetermined(f"the number {first[index]!r} in {names[0]!r} {what}", "pattern", example)
        axes[axis] = index
    return [{axis: parts_of_name[index] for axis, index in axes.items()} for parts_of_name in parts]
