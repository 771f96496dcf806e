"""TensorStore's constraints on an array: ``rank``, ``domain``, ``codec``, and a ``schema`` of these and others.

In a request for a new array they say what other members leave open; all of them have to hold then. [TensorStore,
"Schema" and "Index domain"]
"""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from hyperslab.engine.chunk_shape import inner_shapes
from hyperslab.engine.dtypes import DataType, dtype_of, parse_dtype
from hyperslab.engine.metadata import MAX_SIZE, integral
from hyperslab.engine.v3_codecs import TO_BYTES
from hyperslab.errors import BadDefinition, shown
from hyperslab.wire.data_types import EXTENSIONS, NUMBERS, named_dtype

CONSTRAINTS: Final = ("rank", "domain", "codec", "schema")
_OF_SCHEMA: Final = ("rank", "dtype", "domain", "chunk_layout", "codec", "fill_value", "dimension_units")
_OF_DOMAIN: Final = ("rank", "shape", "inclusive_min", "inclusive_max", "exclusive_max", "labels")
_DESCRIPTIVE: Final = ("path", "nbytes", "links", "limits", "fields", "also", "decoded", "kept")
_UNIT: Final = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)?\s*(.*?)\s*", re.DOTALL)
_OF_ITEMS: Final = ("transpose", "reshape", "scale_offset", "cast_value")
"""Codecs of Zarr v3 from items to items."""
_OBJECT_TYPES: Final = {"ustring": "string", "string": "bytes"}

Bound: TypeAlias = int | None
"""A bound of an axis; None if it is left open."""


def without_description(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """A request without members that only describe a node, if it is a whole node document, which has links."""
    if "links" not in definition:
        return definition
    members = {name: value for name, value in definition.items() if name not in _DESCRIPTIVE}
    if isinstance(members.get("chunk_grid"), list):  # of Zarr v2: the number of chunks
        del members["chunk_grid"]
    if members.get("codecs") is not None:  # then these say it all
        for name in ("dtype", "order", "compressor", "filters", "dimension_separator"):
            members.pop(name, None)
    return members


def parse_schema(value: Any) -> Mapping[str, Any]:
    """The members of a schema that are not null, but for a null codec or fill value; raises `ValueError`."""
    for name in value if isinstance(value, Mapping) else ["", value]:
        if name not in _OF_SCHEMA:
            described = f"unknown member {shown(name)}" if isinstance(value, Mapping) else shown(value)
            raise ValueError(f"expected an object with some of {', '.join(_OF_SCHEMA)}, found {described}")
    parse_units(value.get("dimension_units"))
    return {name: item for name, item in value.items() if item is not None}


def parse_units(value: Any) -> list[tuple[float, str] | None]:
    """The unit of each axis, a multiple of a base unit, or None: from text (``"4 nm"``), a number, or both in a list.
    Empty for None. Raises `ValueError`. [TensorStore, "Unit"]"""

    def parse(unit: Any) -> tuple[float, str] | None:
        if isinstance(unit, str) and (match := _UNIT.fullmatch(unit)) is not None:
            unit = [float(match[1] or 1), match[2]]
        number, base = unit if isinstance(unit, list) and len(unit) == 2 else (unit, "")
        if unit is None:
            return None
        if type(number) not in (int, float) or not isinstance(base, str) or not 0 < abs(number) <= sys.float_info.max:
            raise ValueError(f"dimension_units: expected null or a unit such as '4 nm', found {shown(unit)}")
        return float(number), base

    if not (value is None or isinstance(value, list)):
        raise ValueError(f"dimension_units: expected a unit or null for each axis, found {shown(value)}")
    return [parse(unit) for unit in value or ()]


def with_units(request: Mapping[str, Any], attributes: Mapping[str, Any], zarr_format: int) -> Mapping[str, Any]:
    """The attributes of a new array with the ``dimension_units`` of its schema, which Zarr v3 has there in
    TensorStore. Raises `BadDefinition` for an array of Zarr v2, which has none."""
    schema = request.get("schema")
    try:
        units = parse_units(schema.get("dimension_units") if isinstance(schema, Mapping) else None)
        check_units(units, zarr_format)
    except ValueError as error:
        raise BadDefinition("schema", str(error)) from None

    def text(number: float, base: str) -> str:
        spelled = repr(number).removesuffix(".0")
        return spelled if not base else base if number == 1 else f"{spelled} {base}"

    texts = [None if unit is None else text(*unit) for unit in units]
    return {"dimension_units": texts, **attributes} if any(texts) else attributes


def check_units(units: Sequence[tuple[float, str] | None], zarr_format: int) -> None:
    """Raise `ValueError` for units of an array of Zarr v2."""
    if zarr_format == 2 and any(units):
        raise ValueError("dimension_units: Zarr v2 has no units; they may be attributes")


def parse_domain(value: Any) -> tuple[list[Bound], list[str] | None]:
    """The upper bound of each axis, and the labels if there are any; lower bounds have to be 0. Raises
    `ValueError`."""
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"expected an object with bounds, found {shown(value)}")
    for name in value:
        if name not in _OF_DOMAIN:
            raise ValueError(f"unknown member {shown(name)}; known are {', '.join(_OF_DOMAIN)}")
    lists = {name: item for name, item in value.items() if item is not None and name != "rank"}
    if not all(isinstance(item, list) for item in lists.values()):
        raise ValueError(f"expected lists with an item for each axis, found {shown(value)}")
    ranks = {len(item) for item in lists.values()} | ({value["rank"]} if type(value.get("rank")) is int else set())
    if len(ranks) != 1 or (value.get("rank") is not None and type(value["rank"]) is not int):
        raise ValueError(f"expected one rank, and lists with an item for each axis, found {shown(value)}")
    rank = ranks.pop()
    uppers = [name for name in ("shape", "inclusive_max", "exclusive_max") if name in lists]
    if len(uppers) > 1:
        raise ValueError(f"{uppers[0]} and {uppers[1]} say the same")
    for low in lists.get("inclusive_min", ()):
        if low not in (0, [0], ["-inf"]):
            raise ValueError(f"inclusive_min: the axes of an array begin at 0, found {shown(low)}")
    labels = lists.get("labels")
    if labels is not None and not all(isinstance(label, str) for label in labels):
        raise ValueError(f"labels: expected texts, found {shown(labels)}")
    ends: list[Bound] = [None] * min(rank, 64)
    if uppers:
        ends = [_upper(item, 1 if uppers[0] == "inclusive_max" else 0) for item in lists[uppers[0]]]
    return ends, labels


def _upper(item: Any, more: int) -> Bound:
    end = item[0] if isinstance(item, list) and len(item) == 1 else item
    if end == "+inf" and isinstance(item, list):
        return None
    size = integral(end)
    if size is None or not 0 <= size + more < MAX_SIZE:
        raise ValueError(f"expected the end of an axis, found {shown(item)}")
    return size + more


def parse_codec(value: Any, wanted: int | None = None) -> tuple[int, Mapping[str, Any]]:
    """The format of a codec, and its members; raises `ValueError`, also if the format is not that ``wanted``."""
    formats = {"zarr": 2, "zarr2": 2, "zarr3": 3}
    if not isinstance(value, Mapping) or not isinstance(value.get("driver"), str) or value["driver"] not in formats:
        raise ValueError(f"expected an object with a driver, which is zarr, zarr2 or zarr3, found {shown(value)}")
    if wanted not in (None, formats[value["driver"]]):
        hint = ': add "zarr_format": 3' if wanted == 2 else ""
        raise ValueError(f"codec: the driver of Zarr v{wanted} is zarr{wanted}, not {value['driver']}{hint}")
    found, members = formats[value["driver"]], {name: item for name, item in value.items() if name != "driver"}
    members_of = ("compressor", "filters") if found == 2 else ("codecs",)
    for name in members:
        if name not in members_of:
            raise ValueError(f"unknown member {shown(name)}; known are driver, {', '.join(members_of)}")
    if isinstance(members.get("codecs"), list):
        members["codecs"] = _with_bytes(members["codecs"], creating=wanted is not None)
    return found, members


def _with_bytes(codecs: list[Any], *, creating: bool) -> list[Any]:
    """Codecs of Zarr v3 with the codec ``bytes``, which a constraint may leave out, as it may all codecs within
    ``sharding_indexed``."""
    names = [codec.get("name") if isinstance(codec, Mapping) else codec for codec in codecs]
    at = names.index("sharding_indexed") if "sharding_indexed" in names else -1
    shard = codecs[at] if at >= 0 else None
    configuration = shard.get("configuration") if isinstance(shard, Mapping) else None
    if isinstance(configuration, Mapping) and isinstance(shard, Mapping):
        inner = configuration.get("codecs", [] if creating else None)
        if isinstance(inner, list):
            full = {**configuration, "codecs": _with_bytes(inner, creating=creating)}
            return [*codecs[:at], {**shard, "configuration": full}, *codecs[at + 1 :]]
    elif not {str(name).removeprefix("numcodecs.") for name in names} & {*TO_BYTES}:
        at = next((at for at, name in enumerate(names) if name not in _OF_ITEMS), len(codecs))
        return [*codecs[:at], "bytes", *codecs[at:]]
    return codecs


def with_constraints(request: Mapping[str, Any], zarr_format: int) -> Mapping[str, Any]:
    """A request for a new array in which members that were left open are as its constraints have them. Raises
    `BadDefinition`."""
    if not any(request.get(name) is not None for name in CONSTRAINTS):
        return request
    members = {name: value for name, value in request.items() if name not in CONSTRAINTS}
    try:
        schema = dict(parse_schema(request.get("schema") or {}))
    except ValueError as error:
        raise BadDefinition("schema", str(error)) from None
    schema |= {name: request[name] for name in ("rank", "domain", "codec") if request.get(name) is not None}
    where = "schema" if "schema" in request else "domain" if "domain" in request else "codec"
    try:
        if members.get("dtype") is None and members.get("data_type") is None and "dtype" in schema:
            name = _dtype(schema["dtype"])  # of numbers without a byte order, which codecs may say in Zarr v3
            members["data_type" if zarr_format == 3 and name not in _OBJECT_TYPES.values() else "dtype"] = name
        dtype = _known_dtype(members)
        if "domain" in schema:
            ends, labels = parse_domain(schema["domain"])
            if members.get("shape") is None and None not in ends:
                members["shape"] = _outer(ends, dtype)
            if zarr_format == 3 and labels is not None and members.get("dimension_names") is None and any(labels):
                members["dimension_names"] = [label or None for label in labels]
        if "chunk_layout" in schema and members.get("chunk_layout") is None:
            members["chunk_layout"] = schema["chunk_layout"]
        if "codec" in schema:
            members = {**parse_codec(schema["codec"], zarr_format)[1], **members}
        if "fill_value" in schema and "fill_value" not in members:
            members["fill_value"] = _fill(schema["fill_value"], dtype)
    except ValueError as error:
        raise BadDefinition(where, str(error)) from None
    return members


def _dtype(name: Any) -> Any:
    if name in ("char", "byte"):
        raise ValueError(f"dtype: {name} does not say how long an item is: say dtype, as in a .zarray")
    if not isinstance(name, str) or (name not in NUMBERS and name not in EXTENSIONS and name not in _OBJECT_TYPES):
        raise ValueError(f"dtype: {shown(name)} is no data type of TensorStore")
    return _OBJECT_TYPES.get(name, name)


def _known_dtype(members: Mapping[str, Any]) -> DataType | None:
    """The requested dtype; None if there is none, or none that is valid, of which others say why."""
    try:
        if members.get("data_type") is not None:
            return dtype_of(members["data_type"])
        return parse_dtype(named_dtype(members.get("dtype")), v3=True)
    except ValueError:
        return None


def _outer(sizes: Sequence[Any], dtype: DataType | None) -> list[Any]:
    """Sizes without those of the axes within an item, which end a domain."""
    for inner in inner_shapes(dtype) if dtype is not None else ():
        if inner and tuple(sizes[-len(inner) :]) == inner:
            return [*sizes[: -len(inner)]]
    return [*sizes]


def _fill(value: Any, dtype: DataType | None) -> Any:
    """A fill value of a schema in the form of a request: that of bytes is a list of numbers. A list of one number
    extends to all items."""
    if (
        dtype is not None
        and not dtype.fields
        and dtype.numpy.kind in "biufc"
        and isinstance(value, list)
        and len(value) == 1
    ):
        return value[0]
    is_bytes = dtype is not None and len(dtype.fields) != 1 and dtype.numpy.type in (np.bytes_, np.void)
    if is_bytes and isinstance(value, list) and all(type(item) is int and 0 <= item < 256 for item in value):
        return base64.b64encode(bytes(value)).decode()
    if dtype is not None and len(dtype.fields) == 1:  # then the schema is that of the field
        field = dtype.fields[0]
        return {field.name: np.broadcast_to(np.asarray(value, object), field.shape).tolist()}
    return value
