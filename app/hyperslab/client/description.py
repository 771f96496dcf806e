"""Arrays and groups in words, for people."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST = 200  # characters of an attribute
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def group_as_html(
    path: str, url: str, attributes: Mapping[str, Any], children: Sequence[tuple[str, str]], most: int
) -> str:
    """The same for a group: its attributes, and at most so many of its children with their kinds."""
    listed = dict(children[:most]) | ({"…": "and more"} if len(children) > most else {})
    own = {name: json.dumps(value, ensure_ascii=False) for name, value in attributes.items()}
    shown = {name: text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…" for name, text in own.items()}
    sections = {"attributes": shown, "children": listed}
    tables = [
        f"<details open><summary>{title}</summary>{table(rows)}</details>" for title, rows in sections.items() if rows
    ]
    return "".join([table({"group": path, "url": url}), *tables])


def table(rows: Mapping[str, Any]) -> str:
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table>{cells}</table>"


def facts_without_dtype(members: Mapping[str, Any], url: str) -> dict[str, Any]:
    """`array.facts` of an array that cannot be opened, because a library is missing that knows its dtype."""
    names = members.get("dimension_names")
    known: Mapping[str, Any] = {
        "array": members.get("path"),
        "shape": tuple(members["shape"]),
        "dimensions": names and ", ".join(name or "?" for name in names),
        "dtype": f"{dtype_text(members)}, whose values need ml_dtypes",
        "chunks": tuple(members["chunks"]),
        "fill value": members.get("fill_value"),
        "compressor": codec_text(members.get("compressor")),
        "url": url,
    }
    return {name: value for name, value in known.items() if value is not None}


def dtype_text(members: Mapping[str, Any]) -> str:
    """The dtype as the node document spells it."""
    dtype = members["dtype"]
    return dtype if isinstance(dtype, str) else json.dumps(dtype)


def size_text(nbytes: int) -> str:
    """Bytes with a unit: ``32.0 MiB``."""
    amount, unit = float(nbytes), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f} {_UNITS[unit]}" if unit else f"{nbytes} B"


def codec_text(codec: Mapping[str, Any] | None) -> str:
    """``blosc(cname=lz4, clevel=5)``."""
    if codec is None:
        return "none"
    parameters = ", ".join(f"{name}={value}" for name, value in codec.items() if name != "id")
    return f"{codec.get('id')}({parameters})" if parameters else str(codec.get("id"))
