"""The Zarr v3 form of what Zarr v2 says: data types, fill values, codecs, and the document of a whole array.

What is made is what zarr-python 3.1 and TensorStore read alike. Where v3 has no form, or zarr-python reads another one
than is meant, `ValueError` says so. [Zarr v3 core specification; zarr-extensions; zarr-python's data type pages]
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np

from hyperslab.engine.codec_config import SHUFFLES, CodecConfig, complete
from hyperslab.engine.dtypes import EXTENSION_FLOATS, NARROW_INTEGERS, DataType
from hyperslab.engine.fill_value import format_fill_value
from hyperslab.engine.metadata import ArrayMetadata, Order
from hyperslab.engine.v3_codecs import FROM_ITEMS, TO_ITEMS
from hyperslab.engine.v3_dtypes import named_configuration
from hyperslab.errors import shown

Endian = Literal["little", "big"]
NamedConfig = dict[str, Any]
"""A codec, data type or grid: its ``name``, and ``configuration`` if it has one."""

INDEX_CODECS: Final = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"})
"""Of the index of a new shard, as zarr-python and TensorStore write them by default."""
_SIZED: Final = {"U": "fixed_length_utf32", "S": "null_terminated_bytes", "V": "raw_bytes"}
_TO_BYTES: Final = ("zlib", "bz2", "lz4", "lzma", "shuffle", "crc32", "crc32c", "adler32", "fletcher32")
_NUMCODECS: Final = {*_TO_BYTES, *TO_ITEMS, *FROM_ITEMS} - {"crc32c", "packbits"}
"""Codecs that v3 knows by numcodecs' names alone."""


def document_of(
    metadata: ArrayMetadata, attributes: Mapping[str, Any], names: Sequence[str | None] | None
) -> dict[str, Any]:
    """The ``zarr.json`` of an array of Zarr v2, whose chunks stay under their keys and as they are stored.

    ``names``: of its dimensions. A fill value of null becomes zero. Raises `ValueError` where v3 has no such array.
    """
    dtype, codecs = metadata.dtype, metadata.codecs
    data_type = data_type_of(dtype.json, codecs[0]["id"] if dtype.is_object and codecs else None)
    fill = format_fill(metadata.fill, dtype)
    encoded = codecs_of(dtype, metadata.order, codecs, len(metadata.shape))
    keys = {"name": "v2", "configuration": {"separator": metadata.dimension_separator}}
    return new_array(metadata.shape, metadata.chunks, data_type, fill, encoded, keys, attributes, names)


def new_array(  # noqa: PLR0917 - the members of a document, in their order
    shape: Sequence[int],
    chunks: Sequence[int],
    data_type: Any,
    fill: Any,
    codecs: Sequence[NamedConfig],
    keys: NamedConfig,
    attributes: Mapping[str, Any],
    names: Sequence[str | None] | None,
) -> dict[str, Any]:
    """The ``zarr.json`` of an array; ``chunks`` is the shape of what is stored under one key."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": keys,
        "fill_value": fill,
        "codecs": list(codecs),
        "attributes": dict(attributes),
        **({} if names is None else {"dimension_names": list(names)}),
    }


def new_group(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The ``zarr.json`` of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}


def sharded(codecs: Sequence[NamedConfig], chunks: Sequence[int]) -> list[NamedConfig]:
    """The codecs of shards that hold chunks of this shape, each of them encoded by ``codecs``."""
    configuration = {
        "chunk_shape": list(chunks),
        "codecs": list(codecs),
        "index_codecs": list(INDEX_CODECS),
        "index_location": "end",
    }
    return [{"name": "sharding_indexed", "configuration": configuration}]


def completed(codecs: Any, dtype: DataType) -> list[NamedConfig]:
    """The ``codecs`` of a request as every library reads them: objects, with the members that have been left out.
    Raises `ValueError` for what are no codecs with names."""
    if not isinstance(codecs, list):
        raise ValueError(f"expected a list of codecs, found {shown(codecs)}")  # noqa: TRY004 - JSON that is wrong
    endian, itemsize = endian_of(dtype.json), dtype.itemsize
    shuffle = "shuffle" if itemsize > 1 else "bitshuffle"
    defaults: Mapping[str, NamedConfig] = {
        "bytes": {"endian": endian} if endian else {},
        "blosc": {"typesize": itemsize, "cname": "zstd", "clevel": 5, "shuffle": shuffle, "blocksize": 0},
        "gzip": {"level": 5},
        "zstd": {"level": 0, "checksum": False},
        "sharding_indexed": {"index_codecs": [*INDEX_CODECS], "index_location": "end"},
    }
    found: list[NamedConfig] = []
    for codec in codecs:
        name, configuration = named_configuration(codec, "a codec")
        members = {**defaults.get(name, {}), **configuration}
        if name == "sharding_indexed":
            members["codecs"] = completed(members.get("codecs"), dtype)
        if name in _NUMCODECS:
            name = f"numcodecs.{name}"
        found.append({"name": name, "configuration": members} if members else {"name": name})
    return found


def data_type_of(json: Any, object_codec: str | None = None) -> Any:
    """The ``data_type`` that means the same as a ``dtype`` of Zarr v2; raises `ValueError` if there is none."""
    if isinstance(json, list):
        if any(len(field) > 2 or not field[0] for field in json):
            raise ValueError("Zarr v3 has no subarrays and no padding in its records")
        return {"name": "structured", "configuration": {"fields": [[n, data_type_of(kind)] for n, kind in json]}}
    if json == "|O":
        known = {"vlen-utf8": "string", "vlen-bytes": "variable_length_bytes"}
        if object_codec not in known:
            raise ValueError(f"Zarr v3 has no data type for objects that {object_codec!r} stores")
        return known[object_codec]
    if json in EXTENSION_FLOATS or json in NARROW_INTEGERS:
        return json
    dtype = np.dtype(json)
    if dtype.kind in "mM":
        unit, count = np.datetime_data(dtype)
        name = "numpy.datetime64" if dtype.kind == "M" else "numpy.timedelta64"
        return {"name": name, "configuration": {"unit": unit, "scale_factor": count}}
    if dtype.kind in _SIZED:
        return {"name": _SIZED[dtype.kind], "configuration": {"length_bytes": dtype.itemsize}}
    return dtype.name


def format_fill(item: np.ndarray, dtype: DataType) -> Any:
    """The JSON of one item (0-d, of ``dtype.numpy``) as the ``fill_value`` of Zarr v3."""
    if dtype.fields:
        little = item.astype(item.dtype.newbyteorder("<"))  # zarr-python reads these in the machine's own order
        return base64.b64encode(little.tobytes()).decode()
    if item.dtype.kind == "S":
        return base64.b64encode(item.tobytes().rstrip(b"\0")).decode()
    return float(item) if item.dtype.name == "float4_e2m1fn" else format_fill_value(item, dtype)


def codecs_of(dtype: DataType, order: Order, configs: Sequence[CodecConfig], rank: int) -> list[NamedConfig]:
    """The ``codecs`` that store the same bytes as filters and compressor (``configs``, in the order of encoding) of
    Zarr v2 do. Raises `ValueError` where there are none."""
    endian = endian_of(dtype.json)
    to_items = [config for config in configs if config["id"] in TO_ITEMS]
    if endian == "big" and (to_items or dtype.fields):
        what = "records" if dtype.fields else f"what {to_items[0]['id']!r} filters"
        raise ValueError(f"zarr-python 3 reads {what} in little-endian order alone")
    found: list[NamedConfig] = []
    if order == "F" and rank > 1:
        found.append({"name": "transpose", "configuration": {"order": [*reversed(range(rank))]}})
    serialize = {"name": "bytes", "configuration": {"endian": endian}} if endian else {"name": "bytes"}
    itemsize, are_items = dtype.itemsize, True
    for config in configs:
        name = config["id"]
        members = {member: value for member, value in config.items() if member != "id"}
        if are_items and name in TO_ITEMS:
            found.append({"name": f"numcodecs.{name}", "configuration": members})
            itemsize = _itemsize_behind(complete(config), itemsize)
        elif are_items and name in ("vlen-utf8", "vlen-bytes"):
            found.append({"name": name, "configuration": {}})
            itemsize, are_items = 1, False
        elif are_items and name in FROM_ITEMS and order == "C":
            found.append({"name": f"numcodecs.{name}", "configuration": members})
            itemsize, are_items = 1, False
        else:
            found += [serialize] if are_items else []
            found.append(_compressor(complete(config), itemsize))
            itemsize, are_items = 1, False
    return [*found, serialize] if are_items else found


def _compressor(config: CodecConfig, itemsize: int) -> NamedConfig:
    """A codec from bytes to bytes. Levels play no part in reading: one that v3 does not allow becomes the nearest."""
    name, members = config["id"], {member: value for member, value in config.items() if member != "id"}
    if name == "blosc":
        shuffle = members.pop("shuffle")
        members |= {"typesize": itemsize}
        members["shuffle"] = next(
            word for word, number in SHUFFLES.items() if number == (shuffle if shuffle >= 0 else 1 + (itemsize == 1))
        )
        return {"name": name, "configuration": members}
    if name in ("gzip", "zstd"):
        low, high = (0, 9) if name == "gzip" else (-131072, 22)
        return {"name": name, "configuration": members | {"level": min(max(members["level"], low), high)}}
    if name == "crc32c" and members.get("location") == "end":
        return {"name": name}
    if name in _TO_BYTES:
        return {"name": f"numcodecs.{name}", "configuration": members}
    raise ValueError(f"the codec {name!r} has no form in Zarr v3 where it stands")


def _itemsize_behind(config: CodecConfig, itemsize: int) -> int:
    """Bytes of an item behind a filter; ``astype`` of numcodecs encodes to its ``encode_dtype``."""
    if config["id"] == "packbits":
        return 1
    dtype = config.get("encode_dtype") or config.get("astype") or config.get("dtype")
    return itemsize if dtype is None else np.dtype(dtype).itemsize


def endian_of(json: Any) -> Endian | None:
    """The byte order of a ``dtype`` of Zarr v2, None where it has none; raises `ValueError` for fields of both."""
    if isinstance(json, list):
        orders = {order for field in json if (order := endian_of(field[1])) is not None}
        if len(orders) > 1:
            raise ValueError("Zarr v3 has one byte order for all fields of a record")
        return orders.pop() if orders else None
    if json == "bfloat16":
        return "little"
    return {"<": "little", ">": "big"}.get(json[0])  # type: ignore[return-value]
