"""Array metadata, and the documents of a Zarr v2 hierarchy: ``.zarray``, ``.zgroup``, ``.zattrs`` and ``.zmetadata``.

Parsing is strict: each error names the key, the member and what is wrong with it. If readers differ, a document is
read as long as its meaning is beyond doubt.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np

from hyperslab.engine.chain import Inflates
from hyperslab.engine.codec_config import OTHER_SPELLINGS, CodecConfig, check_codec_config, plain_config
from hyperslab.engine.codecs import ChunkCodec, make_codec
from hyperslab.engine.dtypes import MAX_RANK, DataType, parse_dtype
from hyperslab.engine.fill_value import object_codec, parse_fill_value, reads_alike, zero_item
from hyperslab.engine.grid import ChunkGrid, Coords, Separator
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES, check_values, dump_copy, dump_json, parse_json
from hyperslab.engine.sharding import ShardLevel
from hyperslab.errors import BadDefinition, BadMetadata, CodecRefused, NotRepresentable, shown

T = TypeVar("T")
Order = Literal["C", "F"]

MAX_ARRAY_BYTES: Final = 4 << 20
"""The largest ``.zarray`` that is read."""
MAX_CONSOLIDATED_BYTES: Final = 64 << 20
"""The largest ``.zmetadata`` that is read."""
MAX_SIZE: Final = 2**62
"""The longest axis; positions stay within 64-bit integers with room for the overhang of an edge chunk."""
MAX_FILTERS: Final = 64
MAX_CHUNK_BYTES: Final = 2**63 - 1

REQUIRED: Final = ("zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters")
"""The members that every ``.zarray`` has."""


class Coding(NamedTuple):
    """The codec of chunks, and the shards around them from the outermost in."""

    codec: ChunkCodec
    levels: tuple[ShardLevel, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMetadata:
    """Metadata of an array: everything that reading and writing it needs to know.

    ``chunks`` are what is decoded at once: those inside the shards where there are ``levels`` of these, from the
    outermost in. Where chunks or shards have several shapes, ``chunks``, ``codec`` and ``levels`` are those of the
    largest, and `coding` tells those of each. ``dimension_names`` are those of a Zarr v3 document.
    ``grid`` is that of the chunks; ``stored_grid`` that of what is stored under a key each: of the shards, or the same
    where there are none. ``fill_value`` is 0-d of ``dtype.numpy``, None for null; ``filters`` is None if there are
    none, and codecs are as `plain_config` has them. ``fill_reads_alike``: whether a chunk that equals `fill` may be
    missing, as all libraries read the same there. ``document`` is the stored one, unknown members included, for what
    copies or changes it.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: DataType
    order: Order
    fill_value: np.ndarray | None
    compressor: CodecConfig | None
    filters: tuple[CodecConfig, ...] | None
    dimension_separator: Separator
    grid: ChunkGrid = field(repr=False)
    stored_grid: ChunkGrid = field(repr=False)
    codec: ChunkCodec = field(repr=False)
    fill_reads_alike: bool
    document: Mapping[str, Any] = field(repr=False)
    zarr_format: int = 2
    dimension_names: tuple[str | None, ...] | None = None
    levels: tuple[ShardLevel, ...] = field(default=(), repr=False)
    coding_of: Callable[[tuple[int, ...]], Coding] | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, data: bytes | memoryview, key: str) -> ArrayMetadata:
        """The array that the bytes under ``key`` describe; see `from_document`."""
        return cls.from_document(parse_object(data, key, limit=MAX_ARRAY_BYTES), key)

    @classmethod
    def from_document(cls, document: Any, key: str) -> ArrayMetadata:
        """The array that a ``.zarray`` describes. Raises `BadMetadata`, which names the member, and `CodecRefused`,
        which names the codec."""
        read = Members(check_object(document, key), key)
        read.require(*REQUIRED)
        read("zarr_format", lambda value: parse_format(value, 2))
        shape = read("shape", parse_shape)
        dtype = read("dtype", lambda value: _check_rank(parse_dtype(value), len(shape)))
        compressor, filters = read("compressor", parse_compressor), read("filters", parse_filters)
        check_codecs(filters, compressor, key)
        compressor = None if compressor is None else plain_config(compressor)
        filters = None if filters is None else tuple(map(plain_config, filters))
        configs = _chain(filters, compressor)
        if dtype.numpy.hasobject:
            read("filters", lambda _: object_codec(configs))
        chunks = read("chunks", lambda value: parse_chunks(value, shape, dtype.itemsize))
        order = read("order", parse_order)
        fill_value = read("fill_value", lambda value: parse_fill_value(value, dtype, configs))
        separator = read("dimension_separator", parse_separator)
        grid = ChunkGrid(shape, chunks, separator)
        try:
            codec = make_codec(chunks, dtype, order, configs)
        except Inflates as error:
            member = f"filters[{error.index}]" if error.index < len(filters or ()) else "compressor"
            raise BadMetadata(key, member, f"{configs[error.index]['id']} {error}") from None
        return cls(
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            order=order,
            fill_value=fill_value,
            compressor=compressor,
            filters=filters,
            dimension_separator=separator,
            grid=grid,
            stored_grid=grid,
            codec=codec,
            fill_reads_alike=reads_alike(read.document["fill_value"], dtype, configs),
            document=read.document,
        )

    def to_bytes(self) -> bytes:
        """The document as strict JSON; an empty list of filters becomes null."""
        if self.zarr_format == 3:
            return dump_copy(self.document)
        return dump_json({**self.document, "filters": self.document["filters"] or None})

    def with_shape(self, shape: tuple[int, ...]) -> ArrayMetadata:
        """The same array with another shape, all other members as they are; raises `BadMetadata` for one that is not
        possible, and `BadDefinition` where chunks have several lengths."""
        document = {**self.document, "shape": list(shape)}
        if self.zarr_format == 2:
            return self.from_document(document, ".zarray")
        if self.coding_of is not None:
            raise BadDefinition("shape", "the chunks of a rectilinear grid are listed, and end with the array")
        grid = replace(self.grid, shape=shape)
        stored = replace(self.stored_grid, shape=shape) if self.levels else grid
        return replace(self, shape=shape, grid=grid, stored_grid=stored, document=document)

    def coding(self, coords: Coords) -> Coding:
        """How what is stored at a position of `stored_grid` is encoded."""
        if self.coding_of is None:
            return Coding(self.codec, self.levels)
        return self.coding_of(self.stored_grid.chunk_shape(coords))

    def encode_otherwise(self, chunk: np.ndarray, data: bytes) -> bytes | None:
        """Other bytes than ``data`` that decode to the same chunk; None if the last codec knows none."""
        *before, last = self.codecs or ({"id": ""},)
        variants = OTHER_SPELLINGS.get(last["id"], ())
        for variant in random.sample(variants, len(variants)):
            with suppress(NotRepresentable):
                codec = make_codec(self.chunks, self.dtype, self.order, [*before, {**last, **variant}])
                if (other := codec.encode(chunk)) != data:
                    return other
        return None

    @property
    def rank(self) -> int:
        """Number of axes, without those of subarrays."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one item."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array, decoded."""
        return math.prod(self.shape) * self.itemsize

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of one chunk, decoded; edge chunks have as many."""
        return self.codec.stage.nbytes

    @property
    def codecs(self) -> tuple[CodecConfig, ...]:
        """Codec configurations in the order of encoding: the filters, then the compressor."""
        return _chain(self.filters, self.compressor)

    @property
    def fill(self) -> np.ndarray:
        """What missing items read as, 0-d of ``dtype.numpy``: the fill value, or zero if that is null."""
        return zero_item(self.dtype, self.codecs) if self.fill_value is None else self.fill_value

    @property
    def shard_nbytes(self) -> int:
        """Bytes of what is stored under one key, decoded: a shard, or a chunk where there are none."""
        return math.prod(self.stored_grid.chunks) * self.itemsize

    @property
    def most_stored(self) -> int:
        """The most bytes that what is stored under one key may have."""
        return self.levels[0].most_stored if self.levels else self.codec.most_stored

    @property
    def chunks_per_object(self) -> int:
        """How many chunks are stored under one key."""
        return math.prod(self.stored_grid.chunks) // math.prod(self.chunks)

    def chunks_inside(self, stored: Coords) -> int:
        """How many of the chunks that are stored under one key hold cells of the array."""
        sizes = zip(self.stored_grid.extent(stored), self.chunks, strict=True)
        return math.prod([-(-size // chunk) for size, chunk in sizes])

    def chunks_in(self, stored: Coords) -> Iterator[Coords]:
        """The chunks that are stored under one key, those beyond the edge of the array too."""
        counts = [size // chunk for size, chunk in zip(self.stored_grid.chunks, self.chunks, strict=True)]
        return product(*[range(at * count, at * count + count) for at, count in zip(stored, counts, strict=True)])

    def origin(self, coords: Coords) -> Coords:
        """The first item of a chunk."""
        return tuple([at * size for at, size in zip(coords, self.chunks, strict=True)])

    def stored_coords(self, coords: Coords) -> Coords:
        """The position in `stored_grid` of what holds a chunk."""
        if not self.levels:
            return coords
        axes = zip(coords, self.chunks, self.stored_grid.axes, strict=True)
        return tuple([axis.locate(at * chunk)[0] for at, chunk, axis in axes])


class GroupMetadata(NamedTuple):
    """A parsed ``.zgroup``; members other than ``zarr_format`` have no meaning and are preserved. ``problems``: what is
    wrong in it, and was read all the same."""

    document: Mapping[str, Any]
    problems: tuple[str, ...] = ()


def parse_group(data: bytes | memoryview, key: str) -> GroupMetadata:
    """The group that the bytes under ``key`` describe; raises `BadMetadata`. The format as text is read, too: there is
    nothing else in the document that could mean something."""
    read = Members(parse_object(data, key, limit=MAX_DOCUMENT_BYTES), key)
    read.require("zarr_format")
    if read.document["zarr_format"] == "2":
        return GroupMetadata(read.document, (f'{key}: zarr_format: expected 2, found "2"',))
    read("zarr_format", lambda value: parse_format(value, 2))
    return GroupMetadata(read.document)


def parse_attributes(data: bytes | memoryview, key: str) -> dict[str, Any]:
    """The members of a ``.zattrs``; raises `BadMetadata`. Floats may be NaN and infinite."""
    return parse_object(data, key, limit=MAX_DOCUMENT_BYTES)


def parse_consolidated(data: bytes | memoryview, key: str) -> dict[str, Any]:
    """The documents that a ``.zmetadata`` holds, by key; each is an object, and not parsed further.

    Raises `BadMetadata`, also if ``zarr_consolidated_format`` is not 1.
    """
    read = Members(parse_object(data, key, limit=MAX_CONSOLIDATED_BYTES), key)
    read("zarr_consolidated_format", lambda value: parse_format(value, 1))
    read.require("metadata")
    documents = check_object(read.document["metadata"], key, "metadata")
    for name, document in documents.items():
        check_object(document, key, f"metadata[{name!r}]")
    return documents


def check_codecs(
    filters: Sequence[CodecConfig] | None, compressor: CodecConfig | None, key: str, *, creating: bool = False
) -> None:
    """Raise `CodecRefused` or `BadMetadata` for the first codec that cannot be read, or if ``creating``, written."""
    members = [(f"filters[{index}]", config) for index, config in enumerate(filters or ())]
    for member, config in [*members, *([("compressor", compressor)] if compressor else [])]:
        try:
            check_codec_config(config, key=key, creating=creating)
        except BadMetadata as error:
            raise BadMetadata(key, member, f"{error.member}: {error.reason}") from None
        except CodecRefused as error:
            raise CodecRefused(key, error.codec, error.reason, member) from None


class Members:
    """Reads the members of one document one by one, so that each error names its member."""

    def __init__(self, document: dict[str, Any], key: str) -> None:
        self.document = document
        self.key = key

    def require(self, *names: str) -> None:
        for name in names:
            if name not in self.document:
                raise BadMetadata(self.key, name, "is missing")

    def __call__(self, name: str, parse: Callable[[Any], T]) -> T:
        try:
            return parse(self.document.get(name))
        except ValueError as error:
            raise BadMetadata(self.key, name, str(error)) from None


def _chain(filters: tuple[CodecConfig, ...] | None, compressor: CodecConfig | None) -> tuple[CodecConfig, ...]:
    return (*(filters or ()), *([compressor] if compressor else ()))


def parse_object(data: bytes | memoryview, key: str, *, limit: int) -> dict[str, Any]:
    try:
        check_values(data)
        value = parse_json(data, limit=limit)
    except ValueError as error:
        raise BadMetadata(key, None, str(error)) from None
    return check_object(value, key)


def check_object(value: Any, key: str, member: str | None = None) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise BadMetadata(key, member, f"expected a JSON object, found {shown(value)}")


# --- members of a .zarray: JSON in, checked values out, or `ValueError` with a reason -----------------------------


def parse_format(value: Any, supported: int) -> int:
    """The number of a format, which must be the supported one; 2.0 passes for 2."""
    if type(value) in (int, float) and value == supported:
        return supported
    raise ValueError(f"expected {supported}, found {shown(value)}")


def parse_shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise ValueError(f"expected a list of at most {MAX_RANK} integers, found {shown(value)}")
    return tuple([_parse_size(size, 0) for size in value])


def parse_chunks(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """A chunk shape. zarr-python 2 writes 0 for an empty axis if it was asked for one chunk."""
    if not isinstance(value, list) or len(value) != len(shape):
        raise ValueError(f"expected a list of {len(shape)} integers, one for each axis, found {shown(value)}")
    chunks = tuple(
        [
            1 if size == 0 and type(chunk) is int and chunk == 0 else _parse_size(chunk, 1)
            for chunk, size in zip(value, shape, strict=True)
        ]
    )
    if math.prod(chunks) * itemsize > MAX_CHUNK_BYTES:
        raise ValueError("a chunk has more bytes than 64 bits can count")
    return chunks


def _parse_size(value: Any, low: int) -> int:
    """An integer from ``low`` to `MAX_SIZE`; an integral float passes."""
    number = integral(value)
    if number is not None and low <= number <= MAX_SIZE:
        return number
    raise ValueError(f"expected integers from {low} to 2**62, found {shown(value)}")


def integral(value: Any) -> int | None:
    """The integer that a JSON number is; None for all else, true and false included."""
    if type(value) is int:
        return value
    return int(value) if type(value) is float and value.is_integer() else None


def _check_rank(dtype: DataType, rank: int) -> DataType:
    inner = max((len(field.shape) for field in dtype.fields), default=0)
    if rank + inner > MAX_RANK:
        raise ValueError(f"{rank} axes and {inner} of a subarray, the limit is {MAX_RANK}")
    return dtype


def parse_order(value: Any) -> Order:
    orders: tuple[Order, ...] = ("C", "F")
    return one_of(orders, value)


def parse_separator(value: Any) -> Separator:
    """The dimension separator; null is that of documents older than the member."""
    separators: tuple[Separator, ...] = (".", "/")
    return "." if value is None else one_of(separators, value)


def one_of(choices: Sequence[T], value: Any) -> T:
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return choice
    raise ValueError(f"expected {' or '.join(map(repr, choices))}, found {shown(value)}")


def parse_compressor(value: Any) -> CodecConfig | None:
    return None if value is None else _parse_config(value)


def parse_filters(value: Any) -> tuple[CodecConfig, ...] | None:
    if value is None:
        return None
    if isinstance(value, list):
        if len(value) > MAX_FILTERS:
            raise ValueError(f"{len(value)} filters, the limit is {MAX_FILTERS}")
        return tuple([_parse_config(config) for config in value]) or None
    raise ValueError(f"expected null or a list of codecs, found {shown(value)}")


def _parse_config(value: Any) -> CodecConfig:
    if isinstance(value, dict) and isinstance(value.get("id"), str):
        return value
    raise ValueError(f"expected an object with a string 'id', found {shown(value)}")
