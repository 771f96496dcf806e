"""Zarr v3 codecs: conversion of a list of them into a chain of the engine's codecs and its shards, and back.

[Zarr v3 core specification, "Codecs", and its codecs; zarr-extensions, "codecs"]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
    sized_shuffle,
)
from hyperslab.engine.dtypes import MAX_RANK, DataType, dtype_of, endian_of, parse_dtype
from hyperslab.errors import BadMetadata, CodecRefused, CodecUnknown, shown
from hyperslab.wire import dtype_to_json, is_extension, kind_of, numpy_dtype, part_dtype
from hyperslab.wire.data_types import NARROW, OBJECTS, named_configuration, named_type

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


MAX_INDEX: Final = 1 << 22
"""Maximum number of chunks per shard, whose index takes 16 bytes for each."""
TO_BYTES: Final = ("bytes", "packbits", "sharding_indexed", *_OBJECT_CODECS, *FROM_ITEMS)


def with_bytes(codecs: Any) -> Any:
    """A list of codecs with ``bytes`` where none turns items into bytes, as zarrita.js writes and reads such lists; any
    other value as it is."""
    if not isinstance(codecs, list):
        return codecs
    names = [codec.get("name") if isinstance(codec, dict) else codec for codec in codecs]
    bare = [str(name).removeprefix("numcodecs.") for name in names]
    if any(name in (*TO_BYTES, "endian") for name in bare):
        return codecs
    of_items = ("transpose", "reshape", "scale_offset", "cast_value", *TO_ITEMS)
    place = next((index for index, name in enumerate(bare) if name not in of_items), len(bare))
    return [*codecs[:place], {"name": "bytes", "configuration": {"endian": "little"}}, *codecs[place:]]


def parse_codecs(value: Any, shape: tuple[int, ...], data_type: Any, key: str) -> Chain:
    """The chain of the ``codecs`` member for chunks (or shards) of ``shape``.

    Raises `CodecRefused` for an unknown or forbidden codec, `BadMetadata` for other faults.
    """
    return _Parser(key, data_type, shape).parse(value, "codecs")


class _Parser:
    """Parser of a list of codecs, and of those in its shards, for items of ``data_type``.

    ``shape`` is that of the shard or chunk, by axis of the array; ``axes``: the array's axis of each stored axis;
    ``reshaped``: the shape after a ``reshape``, whose axes are not those of the array. ``items``: configurations of
    codecs of items; ``recast``: one converts them to others, whose byte order differs from the array's.
    """

    def __init__(self, key: str, data_type: Any, shape: tuple[int, ...]) -> None:
        self.key, self.data_type, self.shape = key, data_type, shape
        self.axes = [*range(len(shape))]
        self.items: list[CodecConfig] = []
        self.shards: list[Shard] = []
        self.reshaped: tuple[int, ...] | None = None
        self.recast = False

    @property
    def stored(self) -> tuple[int, ...]:
        """The shape in stored order."""
        return tuple([self.shape[axis] for axis in self.axes]) if self.reshaped is None else self.reshaped

    def wrong(self, member: str, reason: str) -> BadMetadata:
        return BadMetadata(self.key, member, reason)

    def parse(self, value: Any, member: str) -> Chain:
        if not isinstance(value, list) or not 0 < len(value) <= 64:
            raise self.wrong(member, f"expected a list of codecs, found {shown(value)}")
        # an optional codec is refused too: without it, all values would be wrong
        places = [f"{member}[{index}]" for index in range(len(value))]
        named = [(*self._named(item, place), place) for item, place in zip(value, places, strict=True)]
        at = next((index for index, (name, _, _) in enumerate(named) if name in TO_BYTES), None)
        if at is None:
            raise self.wrong(member, "no codec turns items into bytes, such as 'bytes'")
        for name, configuration, place in named[:at]:
            self._read_filter(name, configuration, place)
        after = [self._compressor(name, configuration, place) for name, configuration, place in named[at + 1 :]]
        name, configuration, place = named[at]
        if name == "sharding_indexed":
            self._read_shard(configuration, after, place)
            return self.parse(configuration["codecs"], f"{place}.codecs")
        return self._chain(name, self._serializer(name, configuration, place), after, place)

    def _named(self, value: Any, member: str) -> tuple[str, dict[str, Any]]:
        """Name and configuration, validated independently of other codecs. The prefix of numcodecs' codecs is removed
        if v3 has no form of its own; a missing dtype or item size is that of the array, as in zarr-python, and so is a
        size of 0 (see `sized_shuffle`)."""
        try:
            name, configuration = named_configuration(value, "a codec", optional=True)
        except ValueError as error:
            raise self.wrong(member, str(error)) from None
        name = "bytes" if name == "endian" else name  # form of early drafts of the specification
        bare = name.removeprefix("numcodecs.")
        if bare not in CODECS and name not in V3_CODECS:
            raise CodecUnknown(self.key, name, "this codec is unknown", member)
        name = name if bare in V3_CODECS else bare
        dtype = dtype_of(self.data_type)
        part = {"fixedscaleoffset": "dtype", "quantize": "dtype", "astype": "decode_dtype"}.get(name)
        if part is not None and configuration.get(part) is None and not dtype.fields:
            configuration = {**configuration, part: dtype.json}
        if name == "shuffle" and configuration.get("elementsize") in (None, 0):
            configuration = {**configuration, "elementsize": dtype.itemsize}
        for part in ("dtype", "astype", "encode_dtype", "decode_dtype"):
            if isinstance(configuration.get(part), str):
                with suppress(TypeError, ValueError, SyntaxError):  # the check reports other values
                    configuration = {**configuration, part: numpy_dtype(configuration[part]).str}
        try:
            check_v3_config(name, configuration, key=self.key)
        except BadMetadata as error:
            raise self.wrong(f"{member}: {error.member}", error.reason) from None
        except CodecRefused as error:
            raise replace(error, member=member) from None
        return name, configuration

    # --- from items to items ---

    def _read_filter(self, name: str, configuration: Mapping[str, Any], member: str) -> None:
        if name == "transpose":
            self._read_transpose(configuration["order"], f"{member}.order")
            return
        if name == "reshape":
            self.reshaped = self._reshaped(configuration["shape"], f"{member}.shape")
            self.items.append({"id": "reshape", "shape": self.reshaped})
            return
        config = plain_config({"id": name.removeprefix("numcodecs."), **configuration})
        self.recast = True
        if name in ("scale_offset", "cast_value"):
            config["dtype"] = self._numbers(member)
            if name == "cast_value":
                self.data_type = config.pop("data_type")
                config["astype"] = self._numbers(member)
            for kind in (config["dtype"], config.get("astype", config["dtype"])):
                if kind[0] in "<>|" and kind[1] not in "iuf":
                    raise self.wrong(member, f"takes integers and floats, not {kind!r}")
            if config.get("out_of_range") == "wrap" and config["astype"].lstrip("<|")[0] not in "iu":
                raise self.wrong(f"{member}.out_of_range", "only integers wrap round")
        elif config["id"] not in TO_ITEMS:
            raise CodecRefused(self.key, name, "comes before the items are bytes", member)
        elif config["id"] in _RECASTING:
            self._recast(config)
        self.items.append(config)

    def _recast(self, config: dict[str, Any]) -> None:
        """Make the items that a filter of numcodecs stores little-endian: in Zarr v3, ``bytes`` alone gives them an
        order, as zarr-python has it, whatever the filter names."""
        items = _stored_as(config)
        assert items is not None
        if items.kind in "biuf" and items.itemsize <= 8:
            self.data_type = items.name
        config["encode_dtype" if config["id"] == "astype" else "astype"] = items.newbyteorder("<").str

    def _read_transpose(self, order: Any, member: str) -> None:
        stored = self.stored
        rank = len(stored)
        if order in ("C", "F"):  # form of early drafts of the specification
            order = [*range(rank)] if order == "C" else [*reversed(range(rank))]
        is_list = isinstance(order, list) and all(type(axis) is int for axis in order)
        if not is_list or sorted(order) != [*range(rank)]:
            raise self.wrong(member, f"expected the {rank} axes in some order, found {shown(order)}")
        if self.reshaped is not None:
            self.reshaped = tuple([stored[axis] for axis in order])
        else:
            self.axes = [self.axes[axis] for axis in order]
        if order != [*range(rank)]:
            self.items.append({"id": "transpose", "order": tuple(order)})

    def _reshaped(self, sizes: Any, member: str) -> tuple[int, ...]:
        """Another shape of the same items in the same order: sizes, of which one is -1 for the rest, or lists of axes
        to join. [zarr-extensions, "reshape"]"""
        stored, after, free, fits = self.stored, -1, -1, True
        shape: list[int] = []
        for size in sizes if isinstance(sizes, list) and len(sizes) <= MAX_RANK else [None]:
            if isinstance(size, list) and all(type(axis) is int and axis < len(stored) for axis in size):
                if [after, *size] != sorted({after, *size}):
                    raise self.wrong(member, f"the axes of {shown(sizes)} are not in order")
                after = max([after, *size])
                shape.append(math.prod([stored[axis] for axis in size]))
            elif type(size) is int and (size > 0 or (size == -1 and free < 0)):
                free = len(shape) if size == -1 else free
                shape.append(max(size, 1))
            else:
                raise self.wrong(member, f"expected sizes or lists of axes, found {shown(sizes)}")
        if free >= 0:
            shape[free] = math.prod(stored) // math.prod(shape)
        for place, size in enumerate(sizes or ()):
            if isinstance(size, list) and size:
                fits &= math.prod(shape[:place]) == math.prod(stored[: size[0]])
        if math.prod(shape) != math.prod(stored) or not fits:
            raise self.wrong(member, f"{shown(sizes)} does not hold the items of {[*stored]}")
        return tuple(shape)

    # --- from items to bytes ---

    def _serializer(self, name: str, configuration: Mapping[str, Any], member: str) -> CodecConfig | None:
        """The codec from items to bytes, other than a shard; None for ``bytes`` in the little order. Its id is
        ``bytes`` for the big one."""
        kind = named_type(self.data_type)[0]
        if OBJECTS.get(kind) != (name if name in _OBJECT_CODECS else None):
            raise self.wrong(member, f"{name!r} does not store items of {kind!r}")
        if name == "packbits":
            return self._packbits(configuration, member)
        if name != "bytes":
            return plain_config({"id": name, **configuration})
        if "index_codecs" in member and "endian" not in configuration:
            raise self.wrong(f"{member}.endian", "is missing: expected little or big")
        if configuration.get("endian") != "big" or endian_of(dtype_of(self.data_type).json) is None:
            return None
        numpy = dtype_of(self.data_type, ">").numpy
        is_time = numpy.kind in "mM" and np.datetime_data(numpy)[0] == "generic"
        if not self.recast and not is_time and not is_extension(numpy):  # numpy has these in native order only
            return {"id": "bytes"}
        return {"id": "byteswap", "dtype": self._numbers(member)}

    def _chain(self, name: str, last: CodecConfig | None, after: list[CodecConfig], member: str) -> Chain:
        configs, big, reverse = self.items, last == {"id": "bytes"}, tuple(reversed(range(len(self.shape))))
        if last is not None and not big:
            configs = [*configs, last]
        fortran = bool(configs) and configs[0] == {"id": "transpose", "order": reverse}
        if fortran:
            configs = configs[1:]
        configs = _with_shapes(configs, self.shape[::-1] if fortran else self.shape)
        if name in _OBJECT_CODECS and configs[0]["id"] == "transpose":
            if self.reshaped is not None:
                raise self.wrong(member, "items of any length are transposed or reshaped, not both")
            order = configs[0]["order"]
            for transpose in configs[1:-1]:
                order = tuple([order[axis] for axis in transpose["order"]])
            configs = [{"id": name, "transpose": {**configs[0], "order": order}}]
        return Chain(self.shape, (*configs, *after), big, fortran, tuple(self.shards))

    def _numbers(self, member: str) -> str:
        """numpy's type string of the data type; raises unless it is numeric."""
        try:
            dtype = dtype_of(self.data_type)
        except ValueError as error:
            raise self.wrong(f"{member}.data_type", str(error)) from None
        if not isinstance(dtype.json, str) or dtype.numpy.hasobject:
            raise self.wrong(member, f"takes numbers, not {shown(self.data_type)}")
        return dtype.json

    def _packbits(self, configuration: Mapping[str, Any], member: str) -> CodecConfig:
        numbers, nbytes = self._numbers(member), dtype_of(self.data_type).itemsize
        if kind_of(numpy := dtype_of(self.data_type).numpy) == "c":  # of each part
            nbytes //= 2
            numbers = dtype_to_json(part_dtype(numpy))
        width = {**NARROW, "|b1": 1}.get(numbers, 8 * nbytes)
        first, last = configuration.get("first_bit"), configuration.get("last_bit")
        first, last = 0 if first is None else first, width - 1 if last is None else last
        if not first <= last < width:
            raise self.wrong(member, f"expected bits of {width}, found {shown([first, last])}")
        padding = configuration.get("padding_encoding", "none")
        return {"id": "bits", "dtype": numbers, "padding": padding, "first": first, "last": last}

    def _read_shard(self, configuration: Mapping[str, Any], after: list[CodecConfig], member: str) -> None:
        if len(self.shards) == _MAX_DEPTH:
            raise self.wrong(member, f"shards in shards, more than {_MAX_DEPTH} deep")
        if self.reshaped is not None:
            raise self.wrong(member, "a reshape comes before the shards")
        if any(config["id"] not in ("transpose", "scale_offset", "cast_value") for config in self.items):
            raise self.wrong(member, "a filter that looks at neighbours comes before the shards")
        stored, chunk = self.stored, configuration["chunk_shape"]
        if not isinstance(chunk, list) or len(chunk) != len(stored):
            raise self.wrong(f"{member}.chunk_shape", f"expected {len(stored)} sizes, found {shown(chunk)}")
        for size, inner in zip(stored, chunk, strict=True):
            if type(inner) is not int or inner < 1 or size % inner:
                raise self.wrong(f"{member}.chunk_shape", f"{shown(inner)} does not divide {size}")
        counts = tuple([size // inner for size, inner in zip(stored, chunk, strict=True)])
        if (entries := math.prod(counts)) > MAX_INDEX:
            raise self.wrong(f"{member}.chunk_shape", f"{entries} chunks a shard, the limit is {MAX_INDEX}")
        index = _Parser(self.key, "uint64", (*counts, 2)).parse_index(
            configuration["index_codecs"], f"{member}.index_codecs"
        )
        at_start = configuration.get("index_location") == "start"
        self.shards.append(Shard(self.shape, tuple(self.axes), *index, at_start, tuple(after)))
        by_axis = dict(zip(self.axes, chunk, strict=True))
        self.shape = tuple([by_axis[axis] for axis in range(len(stored))])

    def parse_index(self, value: Any, member: str) -> tuple[tuple[CodecConfig, ...], bool]:
        """Codecs of known size for an index, and whether it is big-endian: ``bytes``, preceded by transposes and
        followed by checksums."""
        chain = self.parse(value, member)
        allowed = ("transpose", "crc32c", "crc32", "adler32")
        if chain.shards or any(config["id"] not in allowed for config in chain.configs):
            raise self.wrong(member, "the encoded size of the index has to be known: expected bytes, and a checksum")
        reverse = {"id": "transpose", "order": tuple(reversed(range(len(self.shape)))), "shape": self.shape}
        return ((reverse, *chain.configs) if chain.fortran else chain.configs), chain.big

    # --- from bytes to bytes ---

    def _compressor(self, name: str, configuration: Mapping[str, Any], member: str) -> CodecConfig:
        bare = name.removeprefix("numcodecs.")
        if bare not in CODECS or bare in (*TO_ITEMS, *FROM_ITEMS) or "vlen" in bare:
            raise self.wrong(member, f"{name!r} does not follow a codec that makes bytes")
        config = plain_config({"id": bare, **configuration})
        if name == "blosc":
            config["shuffle"] = SHUFFLES[config["shuffle"]]
        elif name == "crc32c":
            config["location"] = "end"
        return config


def _with_shapes(configs: Sequence[CodecConfig], shape: tuple[int, ...]) -> list[CodecConfig]:
    """The configurations, with the input shape of each transpose; ``shape`` is that of the first."""
    shaped: list[CodecConfig] = []
    for config in configs:
        if config["id"] == "reshape":
            shape = config["shape"]
        elif config["id"] == "transpose":
            shaped.append({**config, "shape": shape})
            shape = tuple([shape[axis] for axis in config["order"]])
        else:
            shaped.append(config)
    return shaped


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


_RECASTING: Final = ("delta", "fixedscaleoffset", "quantize", "astype")
"""Filters of numcodecs whose items are of a data type that they name."""
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
    configs: list[NamedConfig] = []
    for codec in codecs:
        name, configuration = named_configuration(codec, "a codec", optional=True)
        name = "bytes" if name == "endian" else name
        members = {**defaults.get(name, {}), **configuration}
        bare = name.removeprefix("numcodecs.")
        if bare in CODECS and name not in V3_CODECS:
            members = {**sized_shuffle(plain_config({"id": bare, **members}), itemsize)}
            del members["id"]
        if ordered and endian and name == "bytes" and members["endian"] != endian:
            raise ValueError(f"bytes.endian: {members['endian']!r}, but the byte order of the dtype is {endian!r}")
        if name == "sharding_indexed":
            members["codecs"] = completed(members.get("codecs"), dtype, rank, ordered=ordered)
            members["index_codecs"] = completed(members["index_codecs"], parse_dtype("<u8"), rank + 1)
        if name == "transpose" and members.get("order") in ("C", "F"):
            members["order"] = [*range(rank)] if members["order"] == "C" else [*reversed(range(rank))]
        if name not in V3_CODECS and name in (*_OF_BYTES, *TO_ITEMS, *FROM_ITEMS):
            name = f"numcodecs.{name}"
        configs.append({"name": name, "configuration": members} if members or name not in BARE else {"name": name})
    return configs


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
    chain: list[NamedConfig] = []
    if order == "F" and rank > 1:
        chain.append({"name": "transpose", "configuration": {"order": [*reversed(range(rank))]}})
    serialize = {"name": "bytes", "configuration": {"endian": endian}} if endian else {"name": "bytes"}
    itemsize, are_items = dtype.itemsize, True
    for config in configs:
        name, members = config["id"], {member: value for member, value in config.items() if member != "id"}
        if are_items and name in TO_ITEMS:
            chain.append({"name": f"numcodecs.{name}", "configuration": members})
            items = np.dtype("u1") if name == "packbits" else _stored_as(complete(config))
            if items is not None:
                itemsize = items.itemsize
                if items.byteorder == ">":
                    raise ValueError(f"zarr-python 3 reads what {name!r} stores in little-endian order alone")
            continue
        if are_items and name in _OBJECT_CODECS:
            chain.append({"name": name, "configuration": {}})
        elif are_items and name in FROM_ITEMS and order == "C":
            chain.append({"name": f"numcodecs.{name}", "configuration": members})
        else:
            chain += [serialize] if are_items else []
            chain.append(_codec_of_bytes(complete(config), itemsize))
        itemsize, are_items = 1, False
    return [*chain, serialize] if are_items else chain


def _stored_as(config: CodecConfig) -> np.dtype[Any] | None:
    """The data type of the items that a filter of numcodecs stores; None for one that names none."""
    named = config.get("encode_dtype") or config.get("astype") or config.get("dtype")
    return None if named is None else numpy_dtype(named)


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
