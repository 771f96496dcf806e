"""Settings of streams: parsed from JSON, and compared with those of an existing stream."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from hyperslab.engine.dtypes import MAX_RANK, DataType, canonical_json, parse_dtype
from hyperslab.engine.fill_value import format_fill_value, parse_new_item
from hyperslab.engine.jsontext import json_floats
from hyperslab.engine.metadata import MAX_FILTERS, MAX_SIZE, integral, parse_compressor, parse_filters
from hyperslab.engine.validation import Document, Misfit, by, validated
from hyperslab.errors import BadDefinition, HyperslabError, shown
from hyperslab.storage.keys import is_hidden, join, prefixes
from hyperslab.streams.pyramid import Method, why_not
from hyperslab.wire import MAX_KEY_BYTES
from hyperslab.wire import streams as of_clients
from hyperslab.wire.data_types import named_dtype

T = TypeVar("T")

FRAMES_DOCUMENT: Final = "frames.jsonl"
"""Name, in the group of a stream, of the metadata of its frames."""
MAX_ARRAYS: Final = 20_000

_RESERVED_ATTRIBUTES = ("ome", "multiscales", "plate", "well", "_ARRAY_DIMENSIONS")
_RESERVED_NAMES = (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json", FRAMES_DOCUMENT)
_MAX_TEXT = 256
_SEGMENT = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)

# --- values ------------------------------------------------------------------------------------------------------


def _whole(value: Any) -> Any:
    number = integral(value)
    return value if number is None else number


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"expected printable characters, found {shown(text)}")
    return text


def _key(value: str) -> str:
    """A key below the stream, ``""`` for its own group."""
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


def _list(value: Any) -> tuple[Any, ...]:
    if value is not None and not isinstance(value, list):
        raise ValueError(f"expected a list, found {shown(value)}")
    return tuple(value or ())


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((name for name, count in Counter(name.lower() for name in names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"two of them are named {shown(twice)}, as capitals do not count")
    return names


def _attributes(value: dict[str, Any]) -> dict[str, Any]:
    reserved = [name for name in _RESERVED_ATTRIBUTES if name in value]
    if reserved or json_floats(value) != value:
        what = f"{shown(reserved[0])} is written by the stream itself" if reserved else f"found {shown(value)}"
        raise ValueError(f"expected an object of JSON values: {what}")
    return value


def _ack(value: Any) -> Any:
    if value == "memory":
        raise ValueError(
            "'memory' acknowledged what was not stored, and is gone: leave it out, or say 'tail' or 'chunk'"
        )
    return value


Count = Annotated[int, Field(ge=1, le=MAX_SIZE), BeforeValidator(_whole)]
Number = Annotated[int, Field(ge=0, le=MAX_SIZE), BeforeValidator(_whole)]
_AnyText = Annotated[str, Field(max_length=_MAX_TEXT), AfterValidator(_printable)]
_Text = Annotated[_AnyText, Field(min_length=1)]
_Key = Annotated[str, Field(max_length=MAX_KEY_BYTES), AfterValidator(_key)]
_PlateName = Annotated[str, Field(max_length=_MAX_TEXT, pattern=r"^[A-Za-z0-9]+$")]
_PlateNames = Annotated[tuple[_PlateName, ...], Field(min_length=1), BeforeValidator(_list), AfterValidator(_different)]
_List = Annotated[tuple[T, ...], BeforeValidator(_list)]
_Codecs = Annotated[tuple[Any, ...], Field(max_length=MAX_FILTERS), BeforeValidator(_list)]

# --- members: what they mean is said in `hyperslab.wire.streams` ---------------------------------------------------


class Dimension(Document):
    """A dimension of an array."""

    name: _Text
    type: _Text
    size: Count | None
    chunk: Count
    shard: Count = 1
    unit: _Text | None = None
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        if self.shard != 1 and not _is_v3(info):
            raise Misfit("shard", "only arrays of zarr_format 3 have shards")
        return self


class PyramidSettings(Document):
    """Coarser levels of an image."""

    method: Method
    max_levels: Number | None = None


class ArraySettings(Document):
    """An array of frames, or an image."""

    key: _Key = ""
    dtype: Annotated[Any, by(named_dtype)]
    dimensions: _List[Dimension]
    fill_value: Any = None
    storage_order: Any = None
    compressor: Annotated[Any, by(parse_compressor)] = Field(default_factory=lambda: {"id": "blosc"})
    filters: Annotated[Any, by(parse_filters)] = None
    codecs: _Codecs | None = None
    pyramid: PyramidSettings | None = None
    attributes: Annotated[dict[str, Any], AfterValidator(_attributes)] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _check_codecs(cls, value: Any, info: ValidationInfo) -> Any:
        others = isinstance(value, dict) and any(value.get(name) is not None for name in ("compressor", "filters"))
        if isinstance(value, dict) and value.get("codecs") is not None and (others or not _is_v3(info)):
            raise Misfit("codecs", "are of zarr_format 3, and stand in place of compressor and filters")
        return value

    @model_validator(mode="after")
    def _complete(self, info: ValidationInfo) -> Self:
        """Check the members against each other, and complete those that depend on others."""
        names = [dimension.name for dimension in self.dimensions]
        if not 2 <= len(names) <= MAX_RANK:
            raise Misfit("dimensions", f"expected 2 to {MAX_RANK} dimensions, found {len(names)}")
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise Misfit("dimensions", f"two of them are named {shown(twice)}")
        for number, dimension in enumerate(self.dimensions):
            spatial = number >= len(names) - 2
            if spatial and dimension.type != "space":
                reason = f"the last two dimensions are those of a frame, of type 'space', found {shown(dimension.type)}"
                raise Misfit(f"dimensions.{number}.type", reason)
            if dimension.size is None and (number or spatial):
                reason = "only the first dimension grows without limit, and not the rows of a single frame"
                raise Misfit(f"dimensions.{number}.size", reason)
        dtype = _convert("dtype", lambda: parse_dtype(self.dtype, v3=_is_v3(info)))
        if dtype.numpy.hasobject:
            raise Misfit("dtype", "frames have items of a fixed size, objects do not")
        fill = _convert("fill_value", lambda: format_fill_value(parse_new_item(self.fill_value, dtype)))
        order = self.storage_order
        if order is not None and not (
            isinstance(order, list) and len(order) == len(names) and all(name in order for name in names)
        ):
            reason = f"expected the names {', '.join(names)} in any order, found {shown(order)}"
            raise Misfit("storage_order", reason)
        unfit = why_not(self.pyramid.method, dtype.numpy) if self.pyramid else None
        if unfit is not None:
            raise Misfit("pyramid.method", unfit)
        order = tuple(names if order is None else order)
        self.__dict__.update(dtype=canonical_json(dtype.json), fill_value=fill, storage_order=order)
        return self


class Acquisition(Document):
    """An acquisition of a plate."""

    id: Number
    name: _AnyText | None = None
    description: _AnyText | None = None
    starttime: Number | None = None
    endtime: Number | None = None


class FieldSettings(Document):
    """A field of view of a well. Its key is also that of its array."""

    key: _PlateName
    array: ArraySettings
    acquisition: Number | None = None

    @model_validator(mode="before")
    @classmethod
    def _check_array(cls, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("array"), dict) and "key" in value["array"]:
            raise Misfit("array.key", "is that of the field")
        return value


class WellSettings(Document):
    """A well of a plate."""

    row: _PlateName
    column: _PlateName
    fields: _List[FieldSettings]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.fields:
            raise Misfit("fields", "a well has at least one field")
        _check_distinct("fields", [field.key.lower() for field in self.fields])
        return self


class PlateSettings(Document):
    """A plate; the key of a field's array is ``plate/row/column/field``."""

    key: _Key
    rows: _PlateNames
    columns: _PlateNames
    wells: _List[WellSettings]
    name: _Text | None = None
    acquisitions: _List[Acquisition] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_distinct("acquisitions", [acquisition.id for acquisition in self.acquisitions])
        ids = {acquisition.id for acquisition in self.acquisitions}
        for number, well in enumerate(self.wells):
            for name, names in (("row", self.rows), ("column", self.columns)):
                if getattr(well, name) not in names:
                    reason = f"the plate has no {name} {shown(getattr(well, name))}"
                    raise Misfit(f"wells.{number}.{name}", reason)
            for index, field in enumerate(well.fields):
                if len(ids) > 1 if field.acquisition is None else field.acquisition not in (ids or {0}):
                    reason = f"expected the id of an acquisition of the plate, found {shown(field.acquisition)}"
                    raise Misfit(f"wells.{number}.fields.{index}.acquisition", reason)
        _check_distinct("wells", [(well.row, well.column) for well in self.wells])
        return self


class StreamSettings(Document):
    """Settings of a stream, with at least one array or field."""

    arrays: _List[ArraySettings] = ()
    plates: _List[PlateSettings] = ()
    zarr_format: Literal[2, 3] = 2
    expires_in: Annotated[int, Field(ge=1, le=86_400), BeforeValidator(_whole)] = 600
    ack: Annotated[Literal["tail", "chunk"], BeforeValidator(_ack)] = "tail"

    def to_document(self) -> dict[str, Any]:
        """The settings as JSON."""
        inside = {"wells": {"__all__": {"fields": {"__all__": {"array": {"key"}}}}}}  # follows from its position
        return self.model_dump(exclude={"plates": {"__all__": inside}})


def _is_v3(info: ValidationInfo) -> bool:
    return bool((info.context or {}).get("v3"))


def _convert(member: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except (ValueError, HyperslabError) as error:
        raise Misfit(member, str(error)) from error


def _check_distinct(member: str, values: Sequence[Any]) -> None:
    seen = set[Any]()
    for index, value in enumerate(values):
        if value in seen:
            raise Misfit(f"{member}.{index}", f"is there twice: {shown(value)}")
        seen.add(value)


# --- the whole ---------------------------------------------------------------------------------------------------


def parse_settings(document: object) -> StreamSettings:
    """The settings that a JSON document holds, with defaults.

    Raises `BadDefinition`, whose ``member`` is a path such as ``arrays.0.dimensions.2.chunk``.
    """
    version = document.get("zarr_format", 2) if isinstance(document, dict) else 2
    settings = validated(StreamSettings, document, {"v3": version != 2})
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
            for f, field in enumerate(well.fields):
                at = f"plates.{p}.wells.{w}.fields.{f}.array"
                yield at, join(plate.key, well.row, well.column, field.key), field.array


def dtype_of(array: ArraySettings) -> DataType:
    """The dtype of one item of a parsed array."""
    return parse_dtype(array.dtype, v3=True)


Image: TypeAlias = ArraySettings | of_clients.ArraySettings
"""Facts of an image that is stored, or that a conversion makes."""


def stored_order(array: Image) -> tuple[int, ...]:
    """Which dimension each stored axis is."""
    names = [dimension.name for dimension in array.dimensions]
    return tuple([names.index(name) for name in array.storage_order or names])


def difference(one: StreamSettings, other: StreamSettings) -> str | None:
    """Path of the first member in which two settings differ, except attributes; None if they do not."""
    return _difference(one.to_document(), other.to_document(), "")


def _difference(one: Any, other: Any, at: str) -> str | None:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        names = [name for name in (*one, *(other.keys() - one.keys())) if name != "attributes"]
        pairs = [(name, one.get(name), other.get(name)) for name in names]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = [(str(index), *pair) for index, pair in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other else at
    differences = (_difference(a, b, f"{at}.{name}" if at else name) for name, a, b in pairs)
    return next((path for path in differences if path is not None), None)


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
