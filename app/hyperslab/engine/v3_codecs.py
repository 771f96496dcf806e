"""Zarr v3 codecs: conversion of a list of them into a chain of the engine's codecs and its shards, and back.

[Zarr v3 core specification, "Codecs", and its codecs; zarr-extensions, "codecs"]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from hyperslab.engine.codec_config import (
    CODECS,
    FROM_ITEMS,
    SHUFFLES,
    TO_ITEMS,
    V3_CODECS,
    CodecConfig,
    check_v3_config,
    complete,
    plain_config,
)
from hyperslab.engine.dtypes import (
    MAX_RANK,
    NARROW_INTEGERS,
    OBJECTS,
    DataType,
    dtype_of,
    endian_of,
    kind_of,
    named_configuration,
    named_type,
    parse_dtype,
)
from hyperslab.errors import BadMetadata, CodecRefused, shown
from hyperslab.wire import numpy_dtype

NamedConfig = dict[str, Any]
"""A codec, data type or grid: its ``name``, and optional ``configuration``."""

_OBJECT_CODECS: Final = ("vlen-utf8", "vlen-bytes")
OWN_CODECS: Final = ("transpose", "byteswap", "bits", "scale_offset", "cast_value")
"""Ids of configurations specific to arrays of Zarr v3."""
_MAX_DEPTH: Final = 4


@dataclass(frozen=True, slots=True)
class Shard:
    """One level of shards: ``shape`` in items of the array, ``axes``: the array's axis of each stored axis.

    ``index``: codec configurations of its index; ``after``: those of the whole shard.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    index: tuple[CodecConfig, ...]
    index_big: bool
    at_start: bool
    after: tuple[CodecConfig, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Encoding of chunks of ``shape``: ``configs`` in order, byte order ``big``, memory order ``fortran``; ``shards``
    from the outermost in."""

    shape: tuple[int, ...]
    configs: tuple[CodecConfig, ...]
    big: bool
    fortran: bool
    shards: tuple[Shard, ...] = ()

    def split(self) -> tuple[tuple[CodecConfig, ...] | None, CodecConfig | None]:
        """Filters and compressor in terms of Zarr v2."""
        if not self.configs or self.configs[-1]["id"] in (*OWN_CODECS, *_OBJECT_CODECS):
            return self.configs or None, None
        return self.configs[:-1] or None, self.configs[-1]


@dataclass(slots=True)
class _Reading:
    """State of the parser of a list of codecs."""

    key: str
    data_type: Any
    shape: tuple[int, ...]
    """In the order of the array's axes."""
    axes: list[int]
    items: list[CodecConfig]
    shards: list[Shard]
    reshaped: tuple[int, ...] | None = None
    """The shape after a ``reshape``, whose axes are not those of the array."""
    recast: bool = False
    """Whether a codec has converted the items to others, whose byte order differs from the array's."""

    @property
    def stored(self) -> tuple[int, ...]:
        """The shape in stored order."""
        return tuple([self.shape[axis] for axis in self.axes]) if self.reshaped is None else self.reshaped


def parse_codecs(value: Any, shape: tuple[int, ...], data_type: Any, key: str) -> Chain:
    """The chain of the ``codecs`` member for chunks (or shards) of ``shape``.

    Raises `CodecRefused` for an unknown or forbidden codec, `BadMetadata` for other faults.
    """
    return _parse(value, _Reading(key, data_type, shape, [*range(len(shape))], [], []), "codecs")


def _parse(value: Any, reading: _Reading, member: str) -> Chain:
    if not isinstance(value, list) or not 0 < len(value) <= 64:
        raise BadMetadata(reading.key, member, f"expected a list of codecs, found {shown(value)}")
    # an optional codec is refused too: without it, all values would be wrong
    places = [f"{member}[{index}]" for index in range(len(value))]
    named = [(*_named(each, reading, place), place) for each, place in zip(value, places, strict=True)]
    to_bytes = ("bytes", "packbits", "sharding_indexed", *_OBJECT_CODECS, *FROM_ITEMS)
    at = next((index for index, (name, _, _) in enumerate(named) if name in to_bytes), None)
    if at is None:
        raise BadMetadata(reading.key, member, "no codec turns items into bytes, such as 'bytes'")
    for name, configuration, place in named[:at]:
        _read_filter(name, configuration, reading, place)
    after = [_compressor(name, configuration, reading, place) for name, configuration, place in named[at + 1 :]]
    name, configuration, place = named[at]
    if name == "sharding_indexed":
        return _read_shard(configuration, after, reading, place)
    return _read_last(name, configuration, after, reading, place)


def _named(value: Any, reading: _Reading, member: str) -> tuple[str, dict[str, Any]]:
    """Name and configuration, validated independently of other codecs. The prefix of numcodecs' codecs is removed if v3
    has no form of its own; a missing dtype or item size is that of the array, as in zarr-python."""
    try:
        name, configuration = named_configuration(value, "a codec", optional=True)
    except ValueError as error:
        raise BadMetadata(reading.key, member, str(error)) from None
    bare = name.removeprefix("numcodecs.")
    if bare not in CODECS and name not in V3_CODECS:
        raise CodecRefused(reading.key, name, "this codec is unknown", member)
    name = name if bare in V3_CODECS else bare
    dtype = dtype_of(reading.data_type)
    part = {"fixedscaleoffset": "dtype", "quantize": "dtype", "astype": "decode_dtype"}.get(name)
    if part is not None and configuration.get(part) is None and not dtype.fields:
        configuration = {**configuration, part: dtype.json}
    if name == "shuffle" and configuration.get("elementsize") is None:
        configuration = {**configuration, "elementsize": dtype.itemsize}
    for part in ("dtype", "astype", "encode_dtype", "decode_dtype"):
        if isinstance(configuration.get(part), str):
            with suppress(TypeError, ValueError, SyntaxError):  # the check reports other values
                configuration = {**configuration, part: numpy_dtype(configuration[part]).str}
    try:
        check_v3_config(name, configuration, key=reading.key)
    except BadMetadata as error:
        raise BadMetadata(reading.key, f"{member}: {error.member}", error.reason) from None
    except CodecRefused as error:
        raise CodecRefused(reading.key, error.codec, error.reason, member) from None
    return name, configuration


def _read_filter(name: str, configuration: Mapping[str, Any], reading: _Reading, member: str) -> None:
    """Read a codec from items to items."""
    if name in ("transpose", "reshape"):
        (_read_transpose if name == "transpose" else _read_reshape)(configuration, reading, member)
        return
    config = plain_config({"id": name.removeprefix("numcodecs."), **configuration})
    reading.recast = True
    if name in ("scale_offset", "cast_value"):
        config["dtype"] = _numbers(reading.data_type, reading, member)
        if name == "cast_value":
            reading.data_type = config.pop("data_type")
            config["astype"] = _numbers(reading.data_type, reading, member)
        for kind in (config["dtype"], config.get("astype", config["dtype"])):
            if kind[0] in "<>|" and kind[1] not in "iuf":
                raise BadMetadata(reading.key, member, f"takes integers and floats, not {kind!r}")
        if config.get("out_of_range") == "wrap" and config["astype"].lstrip("<|")[0] not in "iu":
            raise BadMetadata(reading.key, f"{member}.out_of_range", "only integers wrap round")
    elif config["id"] not in TO_ITEMS:
        raise CodecRefused(reading.key, name, "comes before the items are bytes", member)
    reading.items.append(config)


def _read_transpose(configuration: Mapping[str, Any], reading: _Reading, member: str) -> None:
    stored = reading.stored
    order, rank = configuration["order"], len(stored)
    if order in ("C", "F"):  # form of early drafts of the specification
        order = [*range(rank)] if order == "C" else [*reversed(range(rank))]
    if not isinstance(order, list) or any(type(axis) is not int for axis in order) or sorted(order) != [*range(rank)]:
        expected = f"expected the {rank} axes in some order, found {shown(order)}"
        raise BadMetadata(reading.key, f"{member}.order", expected)
    if reading.reshaped is not None:
        reading.reshaped = tuple([stored[axis] for axis in order])
    else:
        reading.axes = [reading.axes[axis] for axis in order]
    if order != [*range(rank)]:
        reading.items.append({"id": "transpose", "order": tuple(order)})


def _read_reshape(configuration: Mapping[str, Any], reading: _Reading, member: str) -> None:
    """Another shape of the same items in the same order. [zarr-extensions, "reshape"]"""
    stored, sizes = reading.stored, configuration["shape"]
    count, after = math.prod(stored), -1
    shape: list[int] = []
    free: list[int] = []
    for at, size in enumerate(sizes if isinstance(sizes, list) and len(sizes) <= MAX_RANK else [None]):
        if isinstance(size, list) and all(type(axis) is int and axis < len(stored) for axis in size):
            if [after, *size] != sorted({after, *size}):
                raise BadMetadata(reading.key, f"{member}.shape", f"the axes of {shown(sizes)} are not in order")
            after = max([after, *size])
            shape.append(math.prod([stored[axis] for axis in size]))
        elif type(size) is int and (size > 0 or (size == -1 and not free)):
            free += [at] * (size == -1)
            shape.append(max(size, 1))
        else:
            raise BadMetadata(reading.key, f"{member}.shape", f"expected sizes or lists of axes, found {shown(sizes)}")
    for at in free:
        shape[at] = count // math.prod(shape)
    lists = [(at, size[0]) for at, size in enumerate(sizes or ()) if isinstance(size, list) and size]
    fits = all(math.prod(shape[:at]) == math.prod(stored[:first]) for at, first in lists)
    if math.prod(shape) != count or not fits:
        raise BadMetadata(reading.key, f"{member}.shape", f"{shown(sizes)} does not hold the items of {[*stored]}")
    reading.reshaped = tuple(shape)
    reading.items.append({"id": "reshape", "shape": reading.reshaped})


def _read_last(
    name: str, configuration: Mapping[str, Any], after: list[CodecConfig], reading: _Reading, member: str
) -> Chain:
    """The codec from items to bytes, other than a shard."""
    kind, configs, big = reading.data_type, reading.items, False
    of_kind = named_type(kind)[0]
    stored_by = OBJECTS.get(of_kind)
    if stored_by != (name if name in _OBJECT_CODECS else None):
        raise BadMetadata(reading.key, member, f"{name!r} does not store items of {of_kind!r}")
    if name == "bytes":
        if "index_codecs" in member and "endian" not in configuration:
            raise BadMetadata(reading.key, f"{member}.endian", "is missing: expected little or big")
        big = configuration.get("endian") == "big" and endian_of(dtype_of(kind).json) is not None
    elif name == "packbits":
        configs = [*configs, _packbits(configuration, reading, member)]
    else:
        configs = [*configs, plain_config({"id": name, **configuration})]
    if big and (reading.recast or not _swaps(kind)):
        configs, big = [*configs, {"id": "byteswap", "dtype": _numbers(kind, reading, member)}], False
    shape, fortran = reading.shape, False
    rank = len(shape)
    if configs and configs[0] == {"id": "transpose", "order": (*reversed(range(rank)),)}:
        configs, fortran = configs[1:], True
    configs = _with_shapes(configs, shape, fortran)
    if stored_by and configs[0]["id"] == "transpose":
        if reading.reshaped is not None:
            raise BadMetadata(reading.key, member, "items of any length are transposed or reshaped, not both")
        order = configs[0]["order"]
        for transpose in configs[1:-1]:
            order = tuple([order[axis] for axis in transpose["order"]])
        configs = [{"id": name, "transpose": {**configs[0], "order": order}}]
    return Chain(shape, (*configs, *after), big, fortran, tuple(reading.shards))


def _with_shapes(configs: Sequence[CodecConfig], shape: tuple[int, ...], fortran: bool) -> list[CodecConfig]:
    """The configurations, with the input shape of each transpose."""
    shape = shape[::-1] if fortran else shape
    found: list[CodecConfig] = []
    for config in configs:
        if config["id"] == "reshape":
            shape = config["shape"]
        elif config["id"] == "transpose":
            found.append({**config, "shape": shape})
            shape = tuple([shape[axis] for axis in config["order"]])
        else:
            found.append(config)
    return found


def _read_shard(configuration: Mapping[str, Any], after: list[CodecConfig], reading: _Reading, member: str) -> Chain:
    if len(reading.shards) == _MAX_DEPTH:
        raise BadMetadata(reading.key, member, f"shards in shards, more than {_MAX_DEPTH} deep")
    if reading.reshaped is not None:
        raise BadMetadata(reading.key, member, "a reshape comes before the shards")
    if any(config["id"] not in ("transpose", "scale_offset", "cast_value") for config in reading.items):
        raise BadMetadata(reading.key, member, "a filter that looks at neighbours comes before the shards")
    stored = [reading.shape[axis] for axis in reading.axes]
    chunk = configuration["chunk_shape"]
    if not isinstance(chunk, list) or len(chunk) != len(stored):
        raise BadMetadata(reading.key, f"{member}.chunk_shape", f"expected {len(stored)} sizes, found {shown(chunk)}")
    for size, inner in zip(stored, chunk, strict=True):
        if type(inner) is not int or inner < 1 or size % inner:
            raise BadMetadata(reading.key, f"{member}.chunk_shape", f"{shown(inner)} does not divide {size}")
    entries = math.prod(stored) // math.prod(chunk)
    if entries > MAX_INDEX:
        raise BadMetadata(reading.key, f"{member}.chunk_shape", f"{entries} chunks a shard, the limit is {MAX_INDEX}")
    counts = tuple([size // inner for size, inner in zip(stored, chunk, strict=True)])
    index = _index_codecs(configuration["index_codecs"], counts, reading.key, f"{member}.index_codecs")
    axes, at_start = tuple(reading.axes), configuration.get("index_location") == "start"
    reading.shards.append(Shard(reading.shape, axes, *index, at_start, tuple(after)))
    inner_shape = [0] * len(axes)
    for axis, size in zip(axes, chunk, strict=True):
        inner_shape[axis] = size
    reading.shape = tuple(inner_shape)
    return _parse(configuration["codecs"], reading, f"{member}.codecs")


MAX_INDEX: Final = 1 << 22
"""Maximum number of chunks per shard, whose index takes 16 bytes for each."""


def _index_codecs(value: Any, counts: tuple[int, ...], key: str, member: str) -> tuple[tuple[CodecConfig, ...], bool]:
    """Codecs of the index, two numbers for each of ``counts`` chunks, of known size: ``bytes``, preceded by transposes
    and followed by checksums."""
    shape = (*counts, 2)
    chain = _parse(value, _Reading(key, "uint64", shape, [*range(len(shape))], [], []), member)
    if chain.shards or any(c["id"] not in ("transpose", "crc32c", "crc32", "adler32") for c in chain.configs):
        raise BadMetadata(key, member, "the encoded size of the index has to be known: expected bytes, and a checksum")
    if chain.fortran:
        reverse = {"id": "transpose", "order": (*reversed(range(len(shape))),), "shape": shape}
        return (reverse, *chain.configs), chain.big
    return chain.configs, chain.big


def _swaps(kind: Any) -> bool:
    """Whether numpy supports both byte orders of the type; not for times without a unit."""
    numpy = dtype_of(kind, ">").numpy
    if numpy.kind in "mM":
        return np.datetime_data(numpy)[0] != "generic"
    return numpy.kind != "V" or numpy.names is not None or numpy.type is np.void


def _numbers(kind: Any, reading: _Reading, member: str) -> str:
    """numpy's type string of a data type; raises unless it is numeric."""
    try:
        found = dtype_of(kind)
    except ValueError as error:
        raise BadMetadata(reading.key, f"{member}.data_type", str(error)) from None
    if not isinstance(found.json, str) or found.numpy.hasobject:
        raise BadMetadata(reading.key, member, f"takes numbers, not {shown(kind)}")
    return found.json


def _packbits(configuration: Mapping[str, Any], reading: _Reading, member: str) -> CodecConfig:
    padding = configuration.get("padding_encoding", "none")
    numbers, nbytes = _numbers(reading.data_type, reading, member), dtype_of(reading.data_type).itemsize
    if numbers[1] == "c":  # of each part
        nbytes //= 2
        numbers = f"<f{nbytes}"
    width = {**NARROW_INTEGERS, "float4_e2m1fn": 4, "|b1": 1}.get(numbers, 8 * nbytes)
    first, last = configuration.get("first_bit"), configuration.get("last_bit")
    first, last = 0 if first is None else first, width - 1 if last is None else last
    if not first <= last < width:
        raise BadMetadata(reading.key, member, f"expected bits of {width}, found {shown([first, last])}")
    return {"id": "bits", "dtype": numbers, "padding": padding, "first": first, "last": last}


def _compressor(name: str, configuration: Mapping[str, Any], reading: _Reading, member: str) -> CodecConfig:
    """A codec from bytes to bytes."""
    bare = name.removeprefix("numcodecs.")
    if bare not in CODECS or bare in (*TO_ITEMS, *FROM_ITEMS) or "vlen" in bare:
        raise BadMetadata(reading.key, member, f"{name!r} does not follow a codec that makes bytes")
    config = plain_config({"id": bare, **configuration})
    if name == "blosc":
        config["shuffle"] = SHUFFLES[config["shuffle"]]
    elif name == "crc32c":
        config["location"] = "end"
    return config


# --- from Zarr v2 ----------------------------------------------------------------------------------------------------

INDEX_CODECS: Final = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"})
"""Index codecs of a new shard, the defaults of zarr-python and TensorStore."""
_OF_BYTES: Final = ("zlib", "bz2", "lz4", "lzma", "shuffle", "crc32", "crc32c", "adler32", "fletcher32")
"""Codecs from bytes to bytes with numcodecs' names in v3."""


def sharded(codecs: Sequence[NamedConfig], chunks: Sequence[int]) -> list[NamedConfig]:
    """The codecs of shards with chunks of this shape, each encoded by ``codecs``."""
    configuration = {
        "chunk_shape": list(chunks),
        "codecs": list(codecs),
        "index_codecs": list(INDEX_CODECS),
        "index_location": "end",
    }
    return [{"name": "sharding_indexed", "configuration": configuration}]


BARE: Final = ("bytes", "crc32c", "vlen-utf8", "vlen-bytes")
"""Codecs without a configuration in zarr-python."""


def completed(codecs: Any, dtype: DataType, rank: int, *, ordered: bool = False) -> list[NamedConfig]:
    """The ``codecs`` of a request in the form that every library reads: objects, with default members, and the axes of
    a transpose as numbers. Raises `ValueError` unless they are named codecs, and if ``ordered``, for another byte order
    than that of ``dtype``."""
    if not isinstance(codecs, list):
        raise ValueError(f"expected a list of codecs, found {shown(codecs)}")  # noqa: TRY004 - JSON that is wrong
    endian, itemsize = endian_of(dtype.json), dtype.itemsize
    shuffle = "shuffle" if itemsize > 1 else "bitshuffle"
    defaults: Mapping[str, NamedConfig] = {
        "bytes": {"endian": endian} if endian else {},
        "blosc": {"typesize": itemsize, "cname": "zstd", "clevel": 5, "shuffle": shuffle, "blocksize": 0},
        "gzip": {"level": 5},
        "zstd": {"level": 0, "checksum": False},
        **{name: {"elementsize": itemsize} for name in ("shuffle", "numcodecs.shuffle")},
        "sharding_indexed": {"index_codecs": [*INDEX_CODECS], "index_location": "end"},
    }
    found: list[NamedConfig] = []
    for codec in codecs:
        name, configuration = named_configuration(codec, "a codec", optional=True)
        members = {**defaults.get(name, {}), **configuration}
        if ordered and endian and name == "bytes" and members["endian"] != endian:
            raise ValueError(f"bytes.endian: {members['endian']!r}, but the byte order of the dtype is {endian!r}")
        if name == "sharding_indexed":
            members["codecs"] = completed(members.get("codecs"), dtype, rank, ordered=ordered)
            members["index_codecs"] = completed(members["index_codecs"], parse_dtype("<u8"), rank + 1)
        if name == "transpose" and members.get("order") in ("C", "F"):
            members["order"] = [*range(rank)] if members["order"] == "C" else [*reversed(range(rank))]
        if name not in V3_CODECS and name in (*_OF_BYTES, *TO_ITEMS, *FROM_ITEMS):
            name = f"numcodecs.{name}"
        found.append({"name": name, "configuration": members} if members or name not in BARE else {"name": name})
    return found


def check_filters(items: np.dtype[Any], configs: Sequence[CodecConfig]) -> None:
    """Raise `ValueError` for a numcodecs filter that zarr-python 3 would not decode, as its dtype differs from that of
    the ``items`` it receives. Integers and times of one size are equal to it, as are the bits of rounded floats."""
    are_bits = _is_whole(items)
    for config in configs:
        before = behind = items
        match config["id"]:
            case "packbits":
                before, behind, are_bits = np.dtype(bool), np.dtype(np.uint8), False
            case "astype":
                before, behind = (numpy_dtype(config[name]) for name in ("decode_dtype", "encode_dtype"))
            case "delta" | "fixedscaleoffset" | "quantize" as name:
                before, behind = (numpy_dtype(complete(config)[part]) for part in ("dtype", "astype"))
                if name == "quantize" and before != behind:
                    raise ValueError(f"quantize: zarr-python 3 does not read its {before} where it stores {behind}")
            case "cast_value":
                behind = parse_dtype(config["astype"], v3=True).numpy
        is_alike = (before.itemsize, before.isnative) == (items.itemsize, items.isnative)
        if before != items and not (are_bits and _is_whole(before) and is_alike):
            raise ValueError(f"{config['id']} takes items of {before}, and is given {items}")
        items, are_bits = behind, _is_whole(behind) or config["id"] == "bitround"


def _is_whole(dtype: np.dtype[Any]) -> bool:
    return kind_of(dtype) in "biumM"


def codecs_of(
    dtype: DataType, order: Literal["C", "F"], configs: Sequence[CodecConfig], rank: int
) -> list[NamedConfig]:
    """The ``codecs`` that store the same bytes as filters and compressor (``configs``, in order of encoding) of Zarr
    v2. Raises `ValueError` if v3 has none, or zarr-python reads other values."""
    endian = endian_of(dtype.json)
    to_items = [config["id"] for config in configs if config["id"] in TO_ITEMS]
    if endian == "big" and (to_items or dtype.fields):
        what = "records" if dtype.fields else f"what {to_items[0]!r} filters"
        raise ValueError(f"zarr-python 3 reads {what} in little-endian order alone")
    check_filters(dtype.numpy, configs)
    found: list[NamedConfig] = []
    if order == "F" and rank > 1:
        found.append({"name": "transpose", "configuration": {"order": [*reversed(range(rank))]}})
    serialize = {"name": "bytes", "configuration": {"endian": endian}} if endian else {"name": "bytes"}
    itemsize, are_items = dtype.itemsize, True
    for config in configs:
        name, members = config["id"], {member: value for member, value in config.items() if member != "id"}
        if are_items and name in TO_ITEMS:
            found.append({"name": f"numcodecs.{name}", "configuration": members})
            full = {"encode_dtype": "|u1"} if name == "packbits" else complete(config)
            stored_as = full.get("encode_dtype") or full.get("astype") or full.get("dtype")
            itemsize = itemsize if stored_as is None else np.dtype(stored_as).itemsize
            continue
        if are_items and name in _OBJECT_CODECS:
            found.append({"name": name, "configuration": {}})
        elif are_items and name in FROM_ITEMS and order == "C":
            found.append({"name": f"numcodecs.{name}", "configuration": members})
        else:
            found += [serialize] if are_items else []
            found.append(_codec_of_bytes(complete(config), itemsize))
        itemsize, are_items = 1, False
    return [*found, serialize] if are_items else found


def _codec_of_bytes(config: CodecConfig, itemsize: int) -> NamedConfig:
    """A codec from bytes to bytes. An invalid level, irrelevant for decoding, becomes the nearest valid one."""
    name, members = config["id"], {member: value for member, value in config.items() if member != "id"}
    match name:
        case "blosc":
            shuffle = members.pop("shuffle")
            members |= {"typesize": itemsize, "shuffle": [*SHUFFLES][shuffle if shuffle >= 0 else 1 + (itemsize == 1)]}
        case "gzip" | "zstd":
            low, high = (0, 9) if name == "gzip" else (-131072, 22)
            members["level"] = min(max(members["level"], low), high)
        case "crc32c" if members.get("location") == "end":
            return {"name": name}
        case _ if name in _OF_BYTES:
            name = f"numcodecs.{name}"
        case _:
            raise ValueError(f"the codec {name!r} has no form in Zarr v3 where it stands")
    return {"name": name, "configuration": members}
