"""Settings of streams: parsed from JSON, and compared with those of an existing stream."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import partial
from typing import Any, Final, TypeVar

from hyperslab.engine.dtypes import MAX_RANK, DataType, canonical_json, parse_dtype
from hyperslab.engine.fill_value import format_fill_value, parse_new_item
from hyperslab.engine.jsontext import json_floats
from hyperslab.engine.metadata import MAX_FILTERS, MAX_SIZE, integral, parse_compressor, parse_filters
from hyperslab.errors import BadDefinition, HyperslabError, shown
from hyperslab.storage.keys import is_hidden, join, prefixes
from hyperslab.streams.pyramid import METHODS, why_not
from hyperslab.wire import MAX_KEY_BYTES
from hyperslab.wire.data_types import named_dtype
from hyperslab.wire.streams import (
    Acquisition,
    ArraySettings,
    Dimension,
    FieldSettings,
    PlateSettings,
    PyramidSettings,
    StreamSettings,
    WellSettings,
)

T = TypeVar("T")

ACKS: Final = ("tail", "chunk")
FRAMES_DOCUMENT: Final = "frames.jsonl"
"""Name, in the group of a stream, of the metadata of its frames."""
MAX_ARRAYS: Final = 20_000

_RESERVED_ATTRIBUTES = ("ome", "multiscales", "plate", "well", "_ARRAY_DIMENSIONS")
_RESERVED_NAMES = (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json", FRAMES_DOCUMENT)
_MAX_TEXT = 256
_PLATE_NAME = re.compile(r"[A-Za-z0-9]+", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


def parse_settings(document: object) -> StreamSettings:
    """The settings that a JSON document holds, with defaults.

    Raises `BadDefinition`, whose ``member`` is a path such as ``arrays.0.dimensions.2.chunk``.
    """
    version = document.get("zarr_format", 2) if isinstance(document, dict) else 2
    settings: StreamSettings = _parse(StreamSettings, document, "", v3=version != 2)
    count = sum(1 for _ in all_arrays(settings))
    if not 0 < count <= MAX_ARRAYS:
        raise BadDefinition("arrays", f"expected 1 to {MAX_ARRAYS} arrays, with those of plates, found {count}")
    _check_hierarchy(settings)
    return settings


def all_arrays(settings: StreamSettings) -> Iterator[tuple[str, str, ArraySettings]]:
    """All arrays, with fields of plates: path of the member, key below the stream, settings."""
    for number, array in enumerate(settings.arrays):
        yield f"arrays.{number}", array.key, array
    for p, plate in enumerate(settings.plates):
        for w, well in enumerate(plate.wells):
            for f, found in enumerate(well.fields):
                at = f"plates.{p}.wells.{w}.fields.{f}.array"
                yield at, join(plate.key, well.row, well.column, found.key), found.array


def dtype_of(array: ArraySettings) -> DataType:
    """The dtype of one item of a parsed array."""
    return parse_dtype(array.dtype, v3=True)


def stored_order(array: ArraySettings) -> tuple[int, ...]:
    """Which dimension each stored axis is."""
    names = [dimension.name for dimension in array.dimensions]
    return tuple([names.index(name) for name in array.storage_order or names])


def difference(one: StreamSettings, other: StreamSettings) -> str | None:
    """Path of the first member in which two settings differ, except attributes; None if they do not."""
    return _difference(one.to_document(), other.to_document(), "")


def _difference(one: Any, other: Any, at: str) -> str | None:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        names = [name for name in (*one, *(other.keys() - one.keys())) if name != "attributes"]
        pairs = [(name, one.get(name, MISSING), other.get(name, MISSING)) for name in names]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = [(str(index), *pair) for index, pair in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other else at
    found = (_difference(a, b, f"{at}.{name}" if at else name) for name, a, b in pairs)
    return next((path for path in found if path is not None), None)


# --- members -----------------------------------------------------------------------------------------------------


def _parse(kind: Any, value: object, at: str, *, v3: bool) -> Any:
    """A dataclass ``kind`` of a JSON object, by `_MEMBERS`; ``at``: the path of the object."""
    if not isinstance(value, dict):
        raise BadDefinition(at or "document", f"expected an object, found {shown(value)}")
    # a field of a plate has the key, and not its array
    parsers = {name: parser for name, parser in _MEMBERS[kind].items() if name != "key" or not at.endswith(".array")}
    below = f"{at}." if at else ""
    for name in value:
        if name not in parsers:
            raise BadDefinition(f"{below}{name}", f"is unknown; known are {', '.join(parsers)}")
    found = dict[str, Any]()
    for field in fields(kind):
        name, given, parser = field.name, value.get(field.name), parsers.get(field.name)
        if isinstance(parser, list):
            if given is not None and not isinstance(given, list):
                raise BadDefinition(f"{below}{name}", f"expected a list, found {shown(given)}")
            items = enumerate(given or [])
            found[name] = tuple([_parse(parser[0], each, f"{below}{name}.{i}", v3=v3) for i, each in items])
        elif name not in value:
            if parser is not None and field.default is field.default_factory is MISSING:
                raise BadDefinition(f"{below}{name}", "is missing")
        elif not isinstance(parser, type):
            found[name] = _convert(f"{below}{name}", parsers[name], given)
        elif given is not None or field.default is MISSING:
            found[name] = _parse(parser, given, f"{below}{name}", v3=v3)
    _check(kind, below, value, found, v3=v3)
    return kind(**found)


def _check(kind: type, at: str, value: Mapping[str, Any], found: dict[str, Any], *, v3: bool) -> None:
    """Check the parsed members of an object against each other; ``at``: prefix of their paths."""
    if kind is Dimension and found.get("shard", 1) != 1 and not v3:
        raise BadDefinition(f"{at}shard", "only arrays of zarr_format 3 have shards")
    if kind is ArraySettings:
        _complete_array(at, value, found, v3=v3)
    if kind is PlateSettings:
        _check_plate(at, found)
    if kind is WellSettings and not found["fields"]:
        raise BadDefinition(f"{at}fields", "a well has at least one field")
    if kind is WellSettings:
        _check_distinct(f"{at}fields", [each.key.lower() for each in found["fields"]])


def _convert(member: str, parse: Callable[[Any], T], value: Any) -> T:
    try:
        return parse(value)
    except (ValueError, HyperslabError) as error:
        raise BadDefinition(member, str(error)) from error


def _complete_array(at: str, value: Mapping[str, Any], found: dict[str, Any], *, v3: bool) -> None:
    """Check the members of an array against each other, and complete those that depend on others."""
    dimensions = found["dimensions"]
    if not 2 <= len(dimensions) <= MAX_RANK:
        raise BadDefinition(f"{at}dimensions", f"expected 2 to {MAX_RANK} dimensions, found {len(dimensions)}")
    names = [dimension.name for dimension in dimensions]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise BadDefinition(f"{at}dimensions", f"two of them are named {shown(twice)}")
    for number, dimension in enumerate(dimensions):
        spatial = number >= len(dimensions) - 2
        if spatial and dimension.type != "space":
            reason = f"the last two dimensions are those of a frame, of type 'space', found {shown(dimension.type)}"
            raise BadDefinition(f"{at}dimensions.{number}.type", reason)
        if dimension.size is None and (number or spatial):
            reason = "only the first dimension grows without limit, and not the rows of a single frame"
            raise BadDefinition(f"{at}dimensions.{number}.size", reason)
    if found.get("codecs") is not None and (
        not v3 or any(value.get(name) is not None for name in ("compressor", "filters"))
    ):
        raise BadDefinition(f"{at}codecs", "are of zarr_format 3, and stand in place of compressor and filters")
    dtype = _convert(f"{at}dtype", partial(parse_dtype, v3=v3), found["dtype"])
    if dtype.numpy.hasobject:
        raise BadDefinition(f"{at}dtype", "frames have items of a fixed size, objects do not")
    found["dtype"] = canonical_json(dtype.json)
    found["fill_value"] = _convert(
        f"{at}fill_value", lambda item: format_fill_value(parse_new_item(item, dtype)), found.get("fill_value")
    )
    order = found.get("storage_order")
    if order is not None and not (
        isinstance(order, list) and len(order) == len(names) and all(name in order for name in names)
    ):
        reason = f"expected the names {', '.join(names)} in any order, found {shown(order)}"
        raise BadDefinition(f"{at}storage_order", reason)
    found["storage_order"] = tuple(names if order is None else order)
    unfit = why_not(found["pyramid"].method, dtype.numpy) if found.get("pyramid") else None
    if unfit is not None:
        raise BadDefinition(f"{at}pyramid.method", unfit)


def _check_plate(at: str, found: Mapping[str, Any]) -> None:
    _check_distinct(f"{at}acquisitions", [acquisition.id for acquisition in found["acquisitions"]])
    known = {acquisition.id for acquisition in found["acquisitions"]}
    for number, well in enumerate(found["wells"]):
        for name in ("row", "column"):
            if getattr(well, name) not in found[f"{name}s"]:
                reason = f"the plate has no {name} {shown(getattr(well, name))}"
                raise BadDefinition(f"{at}wells.{number}.{name}", reason)
        for index, each in enumerate(well.fields):
            if len(known) > 1 if each.acquisition is None else each.acquisition not in (known or {0}):
                reason = f"expected the id of an acquisition of the plate, found {shown(each.acquisition)}"
                raise BadDefinition(f"{at}wells.{number}.fields.{index}.acquisition", reason)
    _check_distinct(f"{at}wells", [(well.row, well.column) for well in found["wells"]])


def _check_distinct(member: str, values: Sequence[Any]) -> None:
    seen = set[Any]()
    for index, value in enumerate(values):
        if value in seen:
            raise BadDefinition(f"{member}.{index}", f"is there twice: {shown(value)}")
        seen.add(value)


# --- the hierarchy -----------------------------------------------------------------------------------------------


def _check_hierarchy(settings: StreamSettings) -> None:
    """Raise `BadDefinition` for two nodes at one path, or a child of an array or inside an image."""
    claims: dict[str, str] = {}
    for member, key, kind in _nodes(settings):
        if key in claims:
            raise BadDefinition(member, f"{shown(key)} is the key of another node: {claims[key]}")
        claims[key] = f"an {kind}" if kind in ("array", "image") else f"a {kind}"
    for member, key, _ in _nodes(settings):
        for above in [prefix.rstrip("/") for prefix in prefixes(key)[:-1]]:
            name = key.removeprefix(above).strip("/").partition("/")[0]
            if claims.get(above) == "an array" or (claims.get(above) == "an image" and name.isdecimal()):
                what = "an array" if claims[above] == "an array" else "an image, whose levels have numbers as names"
                raise BadDefinition(member, f"{shown(key)} lies in {shown(above)}, which is {what}")


def _nodes(settings: StreamSettings) -> Iterator[tuple[str, str, str]]:
    """Nodes that settings name: path of the member, key, and kind."""
    for at, key, array in all_arrays(settings):
        kind = "array" if array.pyramid is None and at.startswith("arrays") else "image"
        yield f"{at.removesuffix('.array')}.key", key, kind
    for number, plate in enumerate(settings.plates):
        yield f"plates.{number}.key", plate.key, "plate"
        for index, well in enumerate(plate.wells):
            yield f"plates.{number}.wells.{index}", join(plate.key, well.row, well.column), "well"


# --- values ------------------------------------------------------------------------------------------------------


def _or_null(parse: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else parse(value)


def _integer(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = integral(value)
        if number is None or not low <= number <= high:
            raise ValueError(f"expected an integer from {low} to {high}, found {shown(value)}")
        return number

    return parse


def _one_of(*choices: T) -> Callable[[Any], T]:
    def parse(value: Any) -> T:
        for choice in choices:
            if type(value) is type(choice) and value == choice:
                return choice
        raise ValueError(
            f"expected {', '.join(map(shown, choices[:-1]))} or {shown(choices[-1])}, found {shown(value)}"
        )

    return parse


def _text(value: Any, *, empty: bool = False) -> str:
    if isinstance(value, str) and (empty or value) and len(value) <= _MAX_TEXT and value.isprintable():
        return value
    raise ValueError(
        f"expected a text of {0 if empty else 1} to {_MAX_TEXT} printable characters, found {shown(value)}"
    )


def _key(value: Any) -> str:
    """A key below the stream, ``""`` for its own group."""
    if not (isinstance(value, str) and len(value) <= MAX_KEY_BYTES):
        raise ValueError(f"expected a text of at most {MAX_KEY_BYTES} characters, found {shown(value)}")
    for segment in value.split("/") if value else []:
        if not _SEGMENT.fullmatch(segment):
            raise ValueError(
                f"{shown(value)}: a segment consists of letters, digits, '_', '.' and '-', found {shown(segment)}"
            )
        if segment.startswith("__") or not segment.strip("."):
            raise ValueError(f"{shown(value)}: the segment {shown(segment)} begins with '__' or has dots only")
        if segment in _RESERVED_NAMES or is_hidden(segment):
            raise ValueError(f"{shown(value)}: {shown(segment)} is the name of a document")
    return value


def _plate_name(value: Any) -> str:
    if isinstance(value, str) and len(value) <= _MAX_TEXT and _PLATE_NAME.fullmatch(value):
        return value
    raise ValueError(f"expected a name of letters and digits, found {shown(value)}")


def _plate_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"expected a list of names, found {shown(value)}")
    names = tuple([_plate_name(name) for name in value])
    twice = next((name for name, count in Counter(name.lower() for name in names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"two of them are named {shown(twice)}, as capitals do not count")
    return names


def _codecs(value: Any) -> tuple[Any, ...] | None:
    if value is None or (isinstance(value, list) and len(value) <= MAX_FILTERS):
        return None if value is None else tuple(value)
    raise ValueError(f"expected null or a list of at most {MAX_FILTERS} codecs, found {shown(value)}")


def _scale(value: Any) -> float:
    if type(value) in (int, float) and 0 < value < math.inf:
        return float(value)
    raise ValueError(f"expected a number greater than 0, found {shown(value)}")


def _attributes(value: Any) -> Mapping[str, Any]:
    reserved = [name for name in _RESERVED_ATTRIBUTES if isinstance(value, dict) and name in value]
    if reserved or not isinstance(value, dict) or json_floats(value) != value:
        what = f"{shown(reserved[0])} is written by the stream itself" if reserved else f"found {shown(value)}"
        raise ValueError(f"expected an object of JSON values: {what}")
    return value


def _ack(value: Any) -> Any:
    if value == "memory":
        raise ValueError(
            "'memory' acknowledged what was not stored, and is gone: leave it out, or say 'tail' or 'chunk'"
        )
    return _one_of(*ACKS)(value)


_count = _integer(1, MAX_SIZE)
_number = _integer(0, MAX_SIZE)

_MEMBERS: Final[Mapping[type, Mapping[str, Any]]] = {
    StreamSettings: {
        "arrays": [ArraySettings],
        "plates": [PlateSettings],
        "zarr_format": _one_of(2, 3),
        "expires_in": _integer(1, 86_400),
        "ack": _ack,
    },
    ArraySettings: {
        "key": _key,
        "dtype": named_dtype,
        "dimensions": [Dimension],
        "fill_value": lambda value: value,
        "storage_order": lambda value: value,
        "compressor": parse_compressor,
        "filters": parse_filters,
        "codecs": _codecs,
        "pyramid": PyramidSettings,
        "attributes": _attributes,
    },
    Dimension: {
        "name": _text,
        "type": _text,
        "size": _or_null(_count),
        "chunk": _count,
        "shard": _count,
        "unit": _or_null(_text),
        "scale": _scale,
    },
    PyramidSettings: {"method": _one_of(*METHODS), "max_levels": _or_null(_number)},
    PlateSettings: {
        "key": _key,
        "rows": _plate_names,
        "columns": _plate_names,
        "wells": [WellSettings],
        "name": _or_null(_text),
        "acquisitions": [Acquisition],
    },
    WellSettings: {"row": _plate_name, "column": _plate_name, "fields": [FieldSettings]},
    FieldSettings: {"key": _plate_name, "array": ArraySettings, "acquisition": _or_null(_number)},
    Acquisition: {
        "id": _number,
        "name": _or_null(partial(_text, empty=True)),
        "description": _or_null(partial(_text, empty=True)),
        "starttime": _or_null(_number),
        "endtime": _or_null(_number),
    },
}
"""Parsers of members: a function of the JSON value, a dataclass of an object, or a list of such."""
