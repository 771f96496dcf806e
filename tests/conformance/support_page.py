"""docs/reference/zarr-support.md, from the tests' own tables: what is supported, and where we chose otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hyperslab.engine.codecs_config import CODECS
from hyperslab.engine.dtypes import parse_dtype
from hyperslab.settings import StoreSettings
from tests.conformance.deviations import CHOICES, DEVIATIONS
from tests.conformance.vectors import cases

YES, NO = "✓", "–"
OBJECT_CODECS = ("vlen-utf8", "vlen-bytes", "vlen-array", "json2", "msgpack2", "categorize")
READING_OPTIONS = (
    "fill_missing",
    "recheck",
    "metadata_key",
    "assume_metadata",
    "store_data_equal_to_fill_value",
)


def support_page(note: str) -> str:
    """The whole page; ``note`` says that it is made."""
    return f"""# What of Zarr v2 is supported

{note}

Everything here is read and written, over HTTP, as tiles where it has a brightness, and by `RemoteArray`. The ticks of
the other libraries are what they were seen to accept: TensorStore 0.1.86, zarr-python 2.18.7 and 3.1.6. The facts
behind this page are [numbered](conformance.md).

## Data types

{_table(["dtype", "bytes", "Hyperslab", "TensorStore", "zarr-python 2", "zarr-python 3"], _dtypes())}

Object arrays (`|O`) take their meaning from the first filter that knows objects: {_words(OBJECT_CODECS)}.

## Codecs

Each may stand in `compressor` and in `filters`. Parameters that are left out have their defaults. `pickle`, and
whatever is not in this table, is refused when the array is opened, by name.

{_table(["codec", "parameters"], _codecs())}

## Layout

| | |
|---|---|
| `order` | `C` and `F` |
| `dimension_separator` | `.` and `/`; absent or null is `.` |
| `fill_value` | every form of the specification; null reads as zero; old spellings (`"0"`, 0 for text) are read |
| chunks | edge, missing and empty ones; larger than the array; rank 0; axes of length 0 |
| hierarchy | groups, implicit groups, `.zattrs` or none, `.zmetadata` (followed, kept true, made up on `/zarr`) |

## Options of a store

{_table(["option", ""], _options())}

## Where references disagree, or we do otherwise

{_table(["what", "here", "why"], _choices())}
"""


def _dtypes() -> Iterable[Sequence[str]]:
    for case in cases("dtypes"):
        if not case["expect"].get("accept"):
            continue
        try:
            itemsize = str(parse_dtype(case["dtype"]).itemsize)
        except ValueError:
            itemsize = ""
        references = [YES if _accepts(case["refs"].get(name)) else NO for name in ("tensorstore", "zarr2", "zarr3")]
        yield [_code(case["dtype"]), itemsize, YES if itemsize else NO, *references]


def _accepts(reference: Any) -> bool:
    return reference == "same" or (isinstance(reference, Mapping) and bool(reference.get("accept")))


def _codecs() -> Iterable[Sequence[str]]:
    for name, parameters in sorted(CODECS.items()):
        yield [f"`{name}`", _words(parameters) or "none"]


def _options() -> Iterable[Sequence[str]]:
    for name in READING_OPTIONS:
        yield [f"`{name}`", str(StoreSettings.model_fields[name].description)]


def _choices() -> Iterable[Sequence[str]]:
    seen = dict.fromkeys((d.subject, d.ours, d.reason) for d in DEVIATIONS)
    yield from seen
    for choice in CHOICES:
        yield [choice.subject, choice.ours, choice.reason]


def _words(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _code(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows)])


def _cell(text: str) -> str:
    """A ``|`` would end the cell, even inside code."""
    return text.replace("|", "\\|")
