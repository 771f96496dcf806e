"""Settings of streams: parsed from JSON, and compared with those of a stream that is there."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

from hyperslab.engine.dtypes import (
    MAX_RANK,
    DataType,
    canonical_json,
    named_dtype,
    parse_dtype,
)
from hyperslab.engine.fill_value import format_fill_value, parse_new_item
from hyperslab.engine.jsontext import spell_floats
from hyperslab.engine.metadata import MAX_FILTERS, MAX_SIZE, integral, parse_compressor, parse_filters
from hyperslab.errors import BadDefinition, HyperslabError, shown
from hyperslab.storage.keys import is_hidden, join, prefixes
from hyperslab.streams.pyramid import METHODS, why_not
from hyperslab.wire import MAX_KEY_BYTES
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

ACKS: Final = ("tail", "chunk", "memory")
FRAMES_DOCUMENT: Final = "frames.jsonl"
"""The name, in the group of a stream, of what was said of its frames."""
MAX_ARRAYS: Final = 20_000

_RESERVED_ATTRIBUTES = ("ome", "multiscales", "plate", "well", "_ARRAY_DIMENSIONS")
_RESERVED_NAMES = (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json", FRAMES_DOCUMENT)
_MOST_TEXT = 256
_PLATE_NAME = re.compile(r"[A-Za-z0-9]+", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


def parse_settings(document: object) -> StreamSettings:
    """The settings that a JSON document holds, defaults filled in.

    Raises `BadDefinition`, whose ``member`` is a path such as ``arrays.0.dimensions.2.chunk``.
    """
    read = _Object(document, "", StreamSettings)
    zarr_format = read("zarr_format", _one_of(2, 3), 2)
    arrays = read.many("arrays", lambda value, at: _array(value, at, zarr_format, has_key=True))
    plates = read.many("plates", lambda value, at: _plate(value, at, zarr_format))
    settings = StreamSettings(
        arrays=arrays,
        plates=plates,
        zarr_format=zarr_format,
        expires_in=read("expires_in", _integer(1, 86_400), 600),
        ack=read("ack", _one_of(*ACKS), "tail"),
    )
    count = sum(1 for _ in all_arrays(settings))
    if not 0 < count <= MAX_ARRAYS:
        read.refuse("arrays", f"expected 1 to {MAX_ARRAYS} arrays, with those of plates, found {count}")
    _check_hierarchy(settings)
    return settings


def all_arrays(settings: StreamSettings) -> Iterator[tuple[str, str, ArraySettings]]:
    """Each array, fields of plates too: the path of its member, its key below the stream, and its settings."""
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
    """The path of the first member in which two settings differ, None where they do not; attributes do not count."""
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


# --- arrays ------------------------------------------------------------------------------------------------------


def _array(value: object, at: str, zarr_format: int, *, has_key: bool) -> ArraySettings:
    read = _Object(value, at, ArraySettings, without=() if has_key else ("key",))
    key = read("key", _key, "")
    dtype = read("dtype", lambda value: _dtype(value, v3=zarr_format == 3))
    dimensions = read.many("dimensions", lambda value, at: _dimension(value, at, zarr_format))
    _check_dimensions(read, dimensions)
    names = [dimension.name for dimension in dimensions]
    codecs = read("codecs", _codecs, None)
    if codecs is not None and (zarr_format == 2 or read.says("compressor") or read.says("filters")):
        read.refuse("codecs", "are of zarr_format 3, and stand in place of compressor and filters")
    return ArraySettings(
        key=key,
        dtype=canonical_json(dtype.json),
        dimensions=dimensions,
        fill_value=read("fill_value", lambda value: _fill_value(value, dtype), None),
        storage_order=read("storage_order", lambda value: _permutation(value, names), None),
        compressor=read("compressor", parse_compressor, {"id": "blosc"}),
        filters=read("filters", parse_filters, None),
        codecs=codecs,
        pyramid=_pyramid(read, dtype),
        attributes=read("attributes", _attributes, {}),
    )


def _dimension(value: object, at: str, zarr_format: int) -> Dimension:
    read = _Object(value, at, Dimension)
    dimension = Dimension(
        name=read("name", _text),
        type=read("type", _text),
        size=read("size", _or_null(_integer(1, MAX_SIZE))),
        chunk=read("chunk", _integer(1, MAX_SIZE)),
        shard=read("shard", _integer(1, MAX_SIZE), 1),
        unit=read("unit", _or_null(_text), None),
        scale=read("scale", _scale, 1.0),
    )
    if dimension.shard != 1 and zarr_format == 2:
        read.refuse("shard", "only arrays of zarr_format 3 have shards")
    return dimension


def _check_dimensions(read: _Object, dimensions: Sequence[Dimension]) -> None:
    if not 2 <= len(dimensions) <= MAX_RANK:
        read.refuse("dimensions", f"expected 2 to {MAX_RANK} dimensions, found {len(dimensions)}")
    twice = next((name for name, count in Counter(d.name for d in dimensions).items() if count > 1), None)
    if twice is not None:
        read.refuse("dimensions", f"two of them are named {shown(twice)}")
    for number, dimension in enumerate(dimensions):
        at = f"dimensions.{number}"
        spatial = number >= len(dimensions) - 2
        if spatial and dimension.type != "space":
            read.refuse(
                f"{at}.type",
                f"the last two dimensions are those of a frame, of type 'space', found {shown(dimension.type)}",
            )
        if dimension.size is None and (number or spatial):
            read.refuse(
                f"{at}.size", "only the first dimension grows without limit, and not the rows of a single frame"
            )


def _pyramid(read: _Object, dtype: DataType) -> PyramidSettings | None:
    if not read.says("pyramid"):
        return None
    inner = _Object(read.members["pyramid"], read.path("pyramid"), PyramidSettings)
    method = inner("method", _one_of(*METHODS))
    unfit = why_not(method, dtype.numpy)
    if unfit is not None:
        inner.refuse("method", unfit)
    most = inner("max_levels", _or_null(_integer(0, MAX_SIZE)), None)
    return PyramidSettings(method=method, max_levels=most)


# --- plates ------------------------------------------------------------------------------------------------------


def _plate(value: object, at: str, zarr_format: int) -> PlateSettings:
    read = _Object(value, at, PlateSettings)
    acquisitions = read.many("acquisitions", _acquisition)
    _refuse_twice(read, "acquisitions", [acquisition.id for acquisition in acquisitions])
    plate = PlateSettings(
        key=read("key", _key),
        rows=read("rows", _plate_names),
        columns=read("columns", _plate_names),
        wells=read.many("wells", lambda value, at: _well(value, at, zarr_format)),
        name=read("name", _or_null(_text), None),
        acquisitions=acquisitions,
    )
    known, rows, columns = {acquisition.id for acquisition in acquisitions}, {*plate.rows}, {*plate.columns}
    for number, well in enumerate(plate.wells):
        inner = _Object(read.members["wells"][number], read.path(f"wells.{number}"), WellSettings)
        if well.row not in rows:
            inner.refuse("row", f"the plate has no row {shown(well.row)}")
        if well.column not in columns:
            inner.refuse("column", f"the plate has no column {shown(well.column)}")
        for index, found in enumerate(well.fields):
            if len(known) > 1 if found.acquisition is None else found.acquisition not in (known or {0}):
                inner.refuse(
                    f"fields.{index}.acquisition",
                    f"expected the id of an acquisition of the plate, found {shown(found.acquisition)}",
                )
    _refuse_twice(read, "wells", [(well.row, well.column) for well in plate.wells])
    return plate


def _well(value: object, at: str, zarr_format: int) -> WellSettings:
    read = _Object(value, at, WellSettings)
    found = read.many("fields", lambda value, at: _field(value, at, zarr_format))
    if not found:
        read.refuse("fields", "a well has at least one field")
    _refuse_twice(read, "fields", [field.key.lower() for field in found])
    return WellSettings(row=read("row", _plate_name), column=read("column", _plate_name), fields=found)


def _field(value: object, at: str, zarr_format: int) -> FieldSettings:
    read = _Object(value, at, FieldSettings)
    array = _array(read("array", lambda value: value), read.path("array"), zarr_format, has_key=False)
    acquisition = read("acquisition", _or_null(_integer(0, MAX_SIZE)), None)
    return FieldSettings(key=read("key", _plate_name), array=array, acquisition=acquisition)


def _acquisition(value: object, at: str) -> Acquisition:
    read = _Object(value, at, Acquisition)
    times = [read(name, _or_null(_integer(0, MAX_SIZE)), None) for name in ("starttime", "endtime")]
    texts = [read(name, _or_null(partial(_text, empty=True)), None) for name in ("name", "description")]
    return Acquisition(
        id=read("id", _integer(0, MAX_SIZE)), name=texts[0], description=texts[1], starttime=times[0], endtime=times[1]
    )


# --- the hierarchy -----------------------------------------------------------------------------------------------


def _check_hierarchy(settings: StreamSettings) -> None:
    """Raise `BadDefinition` where two nodes would be one, or one would lie where the one above it has its own."""
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
    """The nodes that settings name, with the path of the member that does, and what they are."""
    for at, key, array in all_arrays(settings):
        kind = "array" if array.pyramid is None and at.startswith("arrays") else "image"
        yield f"{at.removesuffix('.array')}.key", key, kind
    for number, plate in enumerate(settings.plates):
        yield f"plates.{number}.key", plate.key, "plate"
        for index, well in enumerate(plate.wells):
            yield f"plates.{number}.wells.{index}", join(plate.key, well.row, well.column), "well"


# --- values ------------------------------------------------------------------------------------------------------


class _Object:
    """The members of a JSON object, read one by one so that each error names the path of its member."""

    def __init__(self, value: object, at: str, cls: type, without: Sequence[str] = ()) -> None:
        if not isinstance(value, dict):
            raise BadDefinition(at or "document", f"expected an object, found {shown(value)}")
        known = [field.name for field in fields(cls) if field.name not in without]
        self.members: dict[str, Any] = value
        self.at = at
        for name in value:
            if name not in known:
                raise BadDefinition(self.path(name), f"is unknown; known are {', '.join(known)}")

    def path(self, name: str) -> str:
        return f"{self.at}.{name}" if self.at else name

    def says(self, name: str) -> bool:
        """Whether the member is there, and not null."""
        return self.members.get(name) is not None

    def refuse(self, name: str, reason: str) -> NoReturn:
        raise BadDefinition(self.path(name), reason)

    def __call__(self, name: str, parse: Callable[[Any], T], *default: Any) -> T:
        """The parsed member, or the parsed default; without a default the member is required."""
        if name not in self.members and not default:
            self.refuse(name, "is missing")
        try:
            return parse(self.members[name] if name in self.members else default[0])
        except ValueError as error:
            self.refuse(name, str(error))
        except HyperslabError as error:
            self.refuse(name, str(error))

    def many(self, name: str, parse: Callable[[object, str], T]) -> tuple[T, ...]:
        """The members of a list, none where it is left out or null."""
        values = self.members.get(name)
        if values is not None and not isinstance(values, list):
            self.refuse(name, f"expected a list, found {shown(values)}")
        return tuple([parse(value, self.path(f"{name}.{index}")) for index, value in enumerate(values or [])])


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
    if isinstance(value, str) and (empty or value) and len(value) <= _MOST_TEXT and value.isprintable():
        return value
    raise ValueError(
        f"expected a text of {0 if empty else 1} to {_MOST_TEXT} printable characters, found {shown(value)}"
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
    if isinstance(value, str) and len(value) <= _MOST_TEXT and _PLATE_NAME.fullmatch(value):
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


def _refuse_twice(read: _Object, name: str, values: Sequence[Any]) -> None:
    seen: set[Any] = set()
    for index, value in enumerate(values):
        if value in seen:
            read.refuse(f"{name}.{index}", f"is there twice: {shown(value)}")
        seen.add(value)


def _dtype(value: Any, *, v3: bool) -> DataType:
    dtype = parse_dtype(named_dtype(value), v3=v3)
    if dtype.numpy.hasobject:
        raise ValueError("frames have items of a fixed size, objects do not")
    return dtype


def _fill_value(value: Any, dtype: DataType) -> Any:
    return format_fill_value(parse_new_item(value, dtype), dtype)


def _codecs(value: Any) -> tuple[Any, ...] | None:
    if value is None or (isinstance(value, list) and len(value) <= MAX_FILTERS):
        return None if value is None else tuple(value)
    raise ValueError(f"expected null or a list of at most {MAX_FILTERS} codecs, found {shown(value)}")


def _scale(value: Any) -> float:
    if type(value) in (int, float) and 0 < value < math.inf:
        return float(value)
    raise ValueError(f"expected a number greater than 0, found {shown(value)}")


def _permutation(value: Any, names: Sequence[str]) -> tuple[str, ...]:
    if value is None:
        return tuple(names)
    if isinstance(value, list) and len(value) == len(names) and all(name in value for name in names):
        return tuple(value)
    raise ValueError(f"expected the names {', '.join(names)} in any order, found {shown(value)}")


def _attributes(value: Any) -> Mapping[str, Any]:
    reserved = [name for name in _RESERVED_ATTRIBUTES if isinstance(value, dict) and name in value]
    if reserved or not isinstance(value, dict) or spell_floats(value) != value:
        what = f"{shown(reserved[0])} is written by the stream itself" if reserved else f"found {shown(value)}"
        raise ValueError(f"expected an object of JSON values: {what}")
    return value
