"""The page of the reference that shows what is supported: made of the tables that the tests run over."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import get_args

from hyperslab.engine.dtypes import data_type_of, parse_dtype
from hyperslab.engine.v3_codecs import codecs_of
from hyperslab.wire.data_types import V3_ONLY, named_configuration
from tests.conformance.deviations import CHOICES, DEVIATIONS, Choice, Deviation
from tests.conformance.vectors import Topic, cases, is_firm
from tests.interop.tables import (
    COMPRESSORS,
    DTYPES,
    FILLS,
    FILTERS,
    LIBRARIES,
    OPTIONS,
    ORDERS,
    SEPARATORS,
    TESTED,
    CodecRow,
    DtypeRow,
)

_FORMS = ("raw", "npy", "json", "csv", "`RemoteArray`")


def recorded_versions(page: str) -> dict[str, str]:
    """The versions of packages in the table of a page, "" where it has none."""
    found = {name: re.search(rf"^\| {name} \| ([0-9]\S*) \|", page, re.MULTILINE) for name in TESTED}
    return {name: match[1] if match else "" for name, match in found.items()}


def newest_versions(page: str) -> dict[str, str]:
    """The versions of this environment, or those of the page if it was written on a newer Python."""
    recorded, python = recorded_versions(page), platform.python_version()
    if _numbers(python) < _numbers(recorded["Python"]):
        return recorded
    return {name: python if name == "Python" else version(name) for name in TESTED}


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall("[0-9]+", text)]


def support_page(note: str, versions: Mapping[str, str]) -> str:
    """docs/reference/zarr-support.md; ``note`` says where it comes from, ``versions`` are those tested with."""
    return f"""# Zarr support

{note}

What the Zarr v2 specification, TensorStore's `zarr` driver and zarr-python's data types describe, and what the same is
called in [Zarr v3](#zarr-v3). A ✓ stands for a test: what the library writes is read equal through the service and
`RemoteArray`, and what the service writes is read equal by the library, with its compressors, orders and separators.
The facts behind this page are [numbered](../internals/conformance.md).

## Data types

Both byte orders, everywhere. Objects have [a raw form of their own](http.md#objects); npy would pickle them.

{table(["", "dtype", "Zarr v3", *_FORMS, *LIBRARIES], (_dtype_cells(row) for row in DTYPES))}

Records are read as a whole or by a field, whose subarray's dimensions follow the array's. Refused, with a problem that
says why: types of numpy that the specification does not have (`<f16`, `<c32`, `<i3`), multi-byte types without a byte
order, times without a unit, items of no bytes or of more than 64 MiB, objects without an object codec or as fields.

## Fill values

{table(["dtype", "`fill_value`"], ([row.title, row.spelling] for row in FILLS))}

`null` reads as zero (`""`, `b""` or null for objects), and so does the 0 of old writers in place of text or bytes. A
chunk that is the fill value bit for bit need not be stored, unless libraries read that value differently: null, this 0,
and any of `vlen-bytes`.

## Compressors

{_codec_table(COMPRESSORS)}

## Filters

Applied in order, undone in reverse. Each may also stand in place of the compressor, and compressors among the filters.

{_codec_table(FILTERS)}

Whole floats are read where an integer is meant (`"level": 1.0`), and a null `astype` is the `dtype` beside it.
`vlen-utf8`, `vlen-bytes`, `vlen-array`, `json2`, `msgpack2` and `categorize` are the first filter of arrays of objects.
`pickle` is refused wherever it stands, because it runs code; so is every id that is not listed here. The size of what a
codec makes is known before it starts, and checked while and after it runs.

## Layout

{table(["", ""], _layout_rows())}

## Zarr v3

`zarr.json` of arrays and groups, `dimension_names`, chunk keys `default` and `v2`, inline consolidated metadata. Both
byte orders by `bytes`, any `transpose`, `packbits`, `scale_offset`, `cast_value`, `crc32c`, numcodecs' codecs with and
without `numcodecs.`, and `sharding_indexed` with its index at either end, with any index codecs, in shards and with
codecs behind it. What is unknown is refused by name, but for members with `must_understand: false`.
[Each node is also given as the other format](http.md#one-format-for-all-nodes).

Of the types of numbers that zarr-extensions registers, all that ml_dtypes has are read and written under their names,
with fill values as registered (`"NaN"` and infinities where the type has them, bits as `"0x7e"`, pairs for complex
numbers). `r*` is raw bytes. Without a form in Zarr v2 are
{_v3_only()}.

Records are read as `struct` and as the older `structured`, with fields as objects or as pairs, with fill values as an
object or as base64 of the item, in either byte order. New ones are `structured`, with pairs and base64: zarr-python
3.1, the last one for Python 3.11, reads no others, and zarr-python 3.2 to 3.4 and TensorStore read these too. The
registry calls `structured` the older name and wants new arrays to say `struct`: a `data_type` that says `struct` is
stored as that, with objects, and so are records in big-endian order, which zarr-python 3.1 would misread.

## Tested with

The versions in the newest environment of the suite, as `python -m tests.docs` found them.

{table(["package", "version", "what is read and written"], _tested(versions))}

## Options

{table(["in the libraries", "here"], ([row.name, row.here] for row in OPTIONS))}

## Where references disagree

{table(["what", "here", "because"], _decisions())}

## Vectors

Cases that were run on TensorStore 0.1.86, zarr-python 2.18.7 and zarr-python 3.1.6, and are run on the service by
`tests/conformance`. *Firm* ones are those on which the specification or all libraries that can do it agree. What is not
followed stands in the table above.

{table(["topic", "cases", "firm", "not followed"], _topics())}
"""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(cell: object) -> str:
    """A bar inside a cell would end it."""
    return str(cell).replace("|", "\\|")


def _tick(yes: bool) -> str:
    return "✓" if yes else ""


def _dtype_cells(row: DtypeRow) -> list[str]:
    forms = [_tick(form != "npy" or row.object_codec is None) for form in _FORMS]
    return [row.title, row.spelling, _v3_types(row), *forms, *(_tick(name in row.libraries) for name in LIBRARIES)]


def _codec_table(rows: Sequence[CodecRow]) -> str:
    cells = (
        [f"`{row.id}`", row.parameters, _v3_codec(row), *(_tick(name in row.libraries) for name in LIBRARIES), row.note]
        for row in rows
    )
    return table(["id", "parameters", "Zarr v3", *LIBRARIES, ""], cells)


def _v3_types(row: DtypeRow) -> str:
    """The names of the data types of Zarr v3, none where it has no such."""
    codec = None if row.object_codec is None else row.object_codec["id"]
    try:
        found = [named_configuration(data_type_of(json, codec), "")[0] for json in row.examples]
    except ValueError:
        return ""
    return ", ".join(f"`{name}`" for name in dict.fromkeys(found))


def _v3_codec(row: CodecRow) -> str:
    config = row.configs[0] or {}
    numbers = parse_dtype(config.get("dtype") or config.get("decode_dtype") or (*row.dtypes, "<f4")[0])
    try:
        found = codecs_of(numbers, "C", [config] if config else [], 1)
    except ValueError:
        return ""
    return ", ".join(f"`{codec['name']}`" for codec in found if codec["name"] != "bytes")


def _v3_only() -> str:
    *names, last = (f"`{name}`" for name in sorted(V3_ONLY))
    return f"{', '.join(names)} and {last}"


def _tested(versions: Mapping[str, str]) -> list[list[str]]:
    return [[name, versions[name], what] for name, what in TESTED.items()]


def _layout_rows() -> list[list[str]]:
    return [
        ["`order`", " and ".join(f"`{order}`" for order in ORDERS)],
        [
            "`dimension_separator`",
            " and ".join(f"`{separator}`" for separator in SEPARATORS) + ", `.` where it is absent",
        ],
        ["shape", "0 to 64 axes of 0 to 2^62 cells; records of subarrays included"],
        [
            "chunks",
            "any size from 1, larger than the array too; 0 where the axis is empty: then 65,536 items, once it grows",
        ],
        ["unknown members", "kept when the document is written anew"],
        [
            "`NaN`, `Infinity` without quotes",
            "read; kept in attributes and `.zmetadata` that have them already, never written anew",
        ],
    ]


def _decisions() -> list[list[str]]:
    """Each subject once, however many cases it has."""
    entries: list[Choice | Deviation] = [*CHOICES, *DEVIATIONS]
    found = {(entry.subject, entry.ours, entry.reason): None for entry in entries}
    return [list(row) for row in found]


def _topics() -> list[list[object]]:
    rows: list[list[object]] = []
    for topic in get_args(Topic):
        known = cases(topic)
        firm = sum(1 for case in known if "level" in case.get("expect", {}) and is_firm(case))
        deviating = [deviation for deviation in DEVIATIONS if deviation.topic == topic]
        rows.append([topic.replace("_", " "), len(known), firm or "", len(deviating) or ""])
    return rows
