"""Which arrays zarr-python 3 opens: it opens no group whose ``.zmetadata`` holds another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_DTYPE: Final = re.compile(
    r"\|b1|\|[iu]1|[<>]([iuf][248]|c8|c16|U[1-9][0-9]*|[mM]8(\[\w+\])?)|\|[SV][1-9][0-9]*", re.ASCII
)
_OBJECT_CODECS: Final = ("vlen-utf8", "vlen-bytes")


def opens_in_zarr3(document: Mapping[str, Any]) -> bool:
    """Whether zarr-python 3 opens the array of a valid document: it knows no 8-bit floats, no subarrays or fields
    within fields, no objects but text and bytes, and not every spelling of a fill value."""
    dtype, fill = document["dtype"], document["fill_value"]
    if dtype == "|O":
        codec = next((config["id"] for config in document["filters"] or () if config["id"] in _OBJECT_CODECS), None)
        return codec == "vlen-utf8" or (codec == "vlen-bytes" and isinstance(fill, str | None))
    fields = [["", dtype]] if isinstance(dtype, str) else dtype
    if not all(len(field) == 2 and isinstance(field[1], str) and _DTYPE.fullmatch(field[1]) for field in fields):
        return False
    return fill is None or _knows_fill(fill, dtype[1] if isinstance(dtype, str) else "V")


def _knows_fill(fill: Any, kind: str) -> bool:
    if kind in "SUV":
        return isinstance(fill, str)
    if kind == "c":
        return isinstance(fill, list)
    if kind == "f" and isinstance(fill, str):
        return not fill.startswith("0x")
    return kind in "biuf" or isinstance(fill, int) or fill == "NaT"
