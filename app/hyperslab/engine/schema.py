"""Compatibility with other libraries: TensorStore's schema, and whether zarr-python 3 opens an array."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import numpy as np

from hyperslab.engine.codec_config import complete_as_tensorstore
from hyperslab.engine.constraints import parse_units
from hyperslab.engine.fill_value import object_codec
from hyperslab.engine.metadata import ArrayMetadata
from hyperslab.engine.v3_codecs import BARE
from hyperslab.wire import extension_name, kind_of, part_dtype
from hyperslab.wire.data_types import NUMBERS, OBJECTS, TIMES, named_configuration
from hyperslab.wire.items import json_float

MAX_FILL_NUMBERS: Final = 1 << 16
"""Numbers of a fill value above which it is omitted."""


def schema_document(metadata: ArrayMetadata, field: str | None = None) -> dict[str, Any]:
    """Rank, dtype, domain, chunk layout, codec and fill value of an array or field; raises `KeyError` for an unknown
    field.

    Equal to ``schema.to_json()`` of TensorStore 0.1.86, except that NaN and infinities are strings. Upper bounds of the
    array's axes are implicit (``[n]``); the subarray of a field, and the bytes of ``S`` and ``V`` items, follow as axes
    with fixed bounds. Without a field (None or ``""``), an array of several fields is shown as bytes
    (``open_as_void``).

    Arrays that TensorStore cannot open are described in its terms: fill values of bytes are lists of numbers, times are
    ``int64``, nested records are bytes, ``U`` is ``ustring``, objects are ``ustring``, ``string`` (bytes in base64) or
    ``json`` by codec; filters and other compressors are as stored.
    """
    dtype, inner, fill = _view(metadata, field)
    rank, outer = metadata.rank + len(inner), range(metadata.rank)
    compressor = None if metadata.compressor is None else complete_as_tensorstore(metadata.compressor)
    filters = None if metadata.filters is None else [dict(config) for config in metadata.filters]
    codec: dict[str, Any] = {"driver": "zarr", "compressor": compressor, "filters": filters}
    if metadata.zarr_format == 3:
        codec = {"driver": "zarr3", "codecs": metadata.document["codecs"]}
    document = {"rank": rank, "dtype": dtype, "domain": {"rank": 0}, "codec": codec}
    if rank:
        ends = [*([size] for size in metadata.shape), *inner]
        document["domain"] = {"inclusive_min": [0] * rank, "exclusive_max": ends}
        shape = [*metadata.chunks, *inner]
        document["chunk_layout"] = {  # axes within an item are innermost, in C order
            "grid_origin": [0] * rank,
            "inner_order": [*(outer if metadata.order == "C" else reversed(outer)), *range(metadata.rank, rank)],
            "read_chunk": {"shape": shape},
            "write_chunk": {"shape": [*metadata.stored_grid.chunks, *inner]},
        }
    if fill is not None and fill.size <= MAX_FILL_NUMBERS:
        document["fill_value"] = _spelled(fill)
    with suppress(ValueError):  # attributes may hold anything
        attributes = metadata.document.get("attributes")
        units = parse_units(attributes.get("dimension_units") if isinstance(attributes, Mapping) else None)
        if len(units) == metadata.rank and any(units):
            document["dimension_units"] = [unit and [*unit] for unit in units]
    return document


View: TypeAlias = tuple[str, tuple[int, ...], np.ndarray | None]
"""TensorStore's view of an item: dtype, axes within the item, and the fill value in their shape."""


def _view(metadata: ArrayMetadata, name: str | None) -> View:
    dtype, fill = metadata.dtype, metadata.fill_value
    if dtype.numpy.hasobject and not name:
        names = {"vlen-utf8": "ustring", "categorize": "ustring", "vlen-bytes": "string"}
        return names.get(object_codec(metadata.codecs), "json"), (), fill
    if not name and len(dtype.fields) != 1:
        return _base_view(dtype.numpy, (), fill)
    field = dtype.field(name) if name else dtype.fields[0]
    return _base_view(field.numpy, field.shape, None if fill is None else fill[field.name])


def _base_view(base: np.dtype[Any], shape: tuple[int, ...], fill: np.ndarray | None) -> View:
    """``fill`` is of dtype ``base``, in ``shape``."""
    if base.kind == "S" or base.type is np.void:
        shape = (*shape, base.itemsize)
        raw = None if fill is None else np.frombuffer(fill.tobytes(), np.uint8).reshape(shape)
        return "char" if base.kind == "S" else "byte", shape, raw
    if base.kind in "mM":
        return "int64", shape, None if fill is None else fill.astype(np.int64)
    return "ustring" if base.kind == "U" else extension_name(base) or base.name, shape, fill


def _spelled(fill: np.ndarray) -> Any:
    """Nested lists of JSON values in the shape of ``fill``."""
    if fill.ndim:
        return [_spelled(fill[index, ...]) for index in range(len(fill))]
    if kind_of(fill.dtype) == "c":
        parts = fill.reshape(1).view(part_dtype(fill.dtype))
        return [_spelled(parts[0, ...]), _spelled(parts[1, ...])]
    if fill.dtype.hasobject:
        item: Any = fill[()]
        return base64.b64encode(item).decode() if isinstance(item, bytes) else item
    value = fill.tolist()
    return json_float(float(value)) if kind_of(fill.dtype) == "f" else value


# --- zarr-python 3, which refuses groups with unsupported arrays in their .zmetadata -------------------------------


def opens_in_zarr3(document: Mapping[str, Any]) -> bool:
    """Whether every zarr-python from 3.1 on opens the array of a valid document: 3.1 does not support 8-bit floats,
    subarrays, nested records, objects other than text and bytes, and some notations of fill values."""
    dtype, fill = document["dtype"], document["fill_value"]
    if dtype == "|O":
        ids = [config["id"] for config in document["filters"] or ()]
        codec = next((name for name in ids if name in ("vlen-utf8", "vlen-bytes")), None)
        return codec == "vlen-utf8" or (codec == "vlen-bytes" and isinstance(fill, str | None))
    fields = [["", dtype]] if isinstance(dtype, str) else dtype
    pattern = r"\|b1|\|[iu]1|[<>]([iuf][248]|c8|c16|U[1-9][0-9]*|[mM]8(\[\w+\])?)|\|[SV][1-9][0-9]*"
    if not all(len(field) == 2 and isinstance(field[1], str) and re.fullmatch(pattern, field[1]) for field in fields):
        return False
    kind = dtype[1] if isinstance(dtype, str) else "V"
    match kind:
        case "S" | "U" | "V":
            is_known = isinstance(fill, str)
        case "c":
            is_known = isinstance(fill, list)
        case "f":
            is_known = not isinstance(fill, str) or not fill.startswith("0x")
        case _:
            is_known = kind in "biu" or isinstance(fill, int) or fill == "NaT"
    return fill is None or is_known


def opens_v3_in_zarr3(document: Mapping[str, Any]) -> bool:
    """`opens_in_zarr3` of a valid ``zarr.json``: zarr-python refuses a group with unknown members, data types, fill
    values, codecs or grids, or unknown notations of them, in its consolidated metadata."""
    grid, is_plain = document["chunk_grid"], all(type(size) is int for size in document["shape"])
    extra = document.get("storage_transformers") or "consolidated_metadata" in document
    if not is_plain or extra or isinstance(document["chunk_key_encoding"], str):
        return False
    if grid["name"] != "regular" or not _knows_type(document["data_type"]):
        return False
    name, configuration = named_configuration(document["data_type"], "a data type")
    fill = document["fill_value"]
    if name not in NUMBERS and not isinstance(fill, int | str):
        return False  # bytes as a list, a record as an object
    if name == "numpy.datetime64" and configuration["unit"] == "generic" and fill != "NaT":
        return False
    return _knows_codecs(document["codecs"], grid["configuration"]["chunk_shape"])


def _knows_type(data_type: Any) -> bool:
    name, configuration = named_configuration(data_type, "a data type")
    if name == "structured":
        return all(isinstance(field, list) and _knows_type(field[1]) for field in configuration["fields"])
    has_members = name in ("fixed_length_utf32", "null_terminated_bytes", "raw_bytes") or name in TIMES
    is_named = name in NUMBERS or name in OBJECTS
    return has_members and "must_understand" not in data_type if isinstance(data_type, dict) else is_named


def _knows_codecs(codecs: Any, shape: Sequence[int]) -> bool:
    """Whether zarr-python knows all codecs, for input of this ``shape`` (empty for codecs of an index)."""
    for codec in codecs:
        if isinstance(codec, str) or ("configuration" not in codec and codec["name"] not in BARE):
            return False
        name, members = codec["name"], codec.get("configuration", {})
        if name == "sharding_indexed":
            chunk = members["chunk_shape"]
            divides = all(size % inner == 0 for size, inner in zip(shape, chunk, strict=True))  # without transposes
            known = divides and _knows_codecs(members["codecs"], chunk) and _knows_codecs(members["index_codecs"], ())
        elif name == "transpose":
            known = isinstance(members["order"], list)
        else:
            known = name in _ZARR3_CODECS or (name.startswith("numcodecs.") and name not in _NOT_ZARR3_CODECS)
        if not known:
            return False
    return True


_ZARR3_CODECS: Final = (*BARE, "blosc", "gzip", "zstd")
_NOT_ZARR3_CODECS: Final = ("numcodecs.base64", "numcodecs.vlen-utf8", "numcodecs.vlen-bytes")
