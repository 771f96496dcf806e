"""Array metadata, and strict parsers of Zarr v2 documents: ``.zarray``, ``.zgroup``, ``.zattrs`` and ``.zmetadata``.

Errors name key, member and reason. Deviations that other readers accept are allowed if their meaning is unambiguous.
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
from hyperslab.engine.codec_config import (
    OTHER_SPELLINGS,
    CodecConfig,
    check_codec_config,
    check_writable,
    plain_config,
    sized_shuffle,
)
from hyperslab.engine.codecs import ChunkCodec, make_codec
from hyperslab.engine.dtypes import MAX_RANK, DataType, parse_dtype
from hyperslab.engine.fill_value import object_codec, parse_fill_value, reads_alike, zero_item
from hyperslab.engine.grid import ChunkGrid, Coords, Separator
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES, KeptValue, dump_copy, dump_in_pieces, dump_json, parse_json
from hyperslab.engine.sharding import ShardLevel
from hyperslab.errors import BadDefinition, BadMetadata, CodecRefused, NotRepresentable, shown

T = TypeVar("T")
Order = Literal["C", "F"]

MAX_ARRAY_BYTES: Final = 4 << 20
"""Maximum size of a ``.zarray``."""
MAX_CONSOLIDATED_BYTES: Final = 64 << 20
"""Maximum size of a ``.zmetadata``."""
MAX_SIZE: Final = 2**62
"""Maximum length of an axis, such that positions, also in edge chunks, fit 64-bit integers."""
MAX_FILTERS: Final = 64
MAX_CHUNK_BYTES: Final = 2**63 - 1

_FREE_ITEMS: Final = 1 << 16

REQUIRED: Final = ("zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters")
"""Required members of a ``.zarray``."""
TAKEN_FOR_NULL: Final = ("compressor", "filters")
"""Those that mean null where a stored document has none: zarr-python 3 and zarrita.js read it so."""


class Coding(NamedTuple):
    """The codec of chunks, and the levels of shards around them, outermost first."""

    codec: ChunkCodec
    levels: tuple[ShardLevel, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMetadata:
    """Metadata of an array.

    ``chunks`` is the shape of the units of decoding, in sharded arrays of the inner chunks; ``levels`` are the levels
    of shards, outermost first. On a rectilinear grid, ``chunks``, ``codec`` and ``levels`` are those of the largest,
    and `coding` returns those of each. ``grid`` is the grid of chunks, ``stored_grid`` that of stored objects (shards
    or chunks). ``fill_value`` is 0-d of ``dtype.numpy``, None for null; ``filters`` is None if there are none; codecs
    are those of `plain_config`. ``fill_reads_alike``: all libraries read missing chunks as `fill`, so that equal chunks
    may be omitted. ``dimension_names`` are of Zarr v3. ``document`` is the stored one with all members,
    ``attributes`` those in it if they are large, ``problems`` what was tolerated in it.
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
    attributes: KeptValue | None = field(default=None, repr=False)
    problems: tuple[str, ...] = ()

    @classmethod
    def parse(cls, data: bytes | memoryview, key: str, *, exact: bool = False) -> ArrayMetadata:
        """The metadata in the bytes of a ``.zarray``; see `from_document`."""
        return cls.from_document(parse_object(data, key, limit=MAX_ARRAY_BYTES), key, exact=exact)

    @classmethod
    def from_document(cls, document: Any, key: str, *, exact: bool = False) -> ArrayMetadata:
        """The metadata in a ``.zarray``; raises `BadMetadata` and `CodecRefused`. ``exact``: only what the
        specification allows."""
        stored = check_object(document, key)
        missing = [] if exact else [name for name in TAKEN_FOR_NULL if name not in stored]
        read = Members({**stored, **dict.fromkeys(missing)}, key)
        read.require(*REQUIRED)
        read("zarr_format", lambda value: parse_format(value, 2))
        shape = read("shape", parse_shape)
        dtype = read("dtype", parse_dtype)
        inner = max((len(field.shape) for field in dtype.fields), default=0)
        if len(shape) + inner > MAX_RANK:
            reason = f"{len(shape)} axes and {inner} of a subarray, the limit is {MAX_RANK}"
            raise BadMetadata(key, "dtype", reason)
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
        sizes = [link.decoded.dtype.itemsize for link in codec.links]
        configs = tuple(map(sized_shuffle, configs, sizes))
        filters, compressor = (filters and configs[: len(filters)]), (compressor and configs[-1])
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
            problems=tuple([f"{key}: {name}: is missing: taken for null" for name in missing]),
        )

    @property
    def text_depth(self) -> int:
        """The depth down to which the document is made in pieces (see `dump_in_pieces`): to the chunk lengths of a
        rectilinear grid, of which there may be a million."""
        return 0 if self.coding_of is None else 5

    def to_bytes(self) -> bytes:
        """The document as strict JSON; an empty list of filters becomes null."""
        if self.zarr_format == 3:
            kept = self.attributes
            is_kept = kept is not None and kept.value is self.document.get("attributes")
            if kept is not None and is_kept:
                return kept.dump(self.document, "attributes", self.text_depth)
            return dump_in_pieces(self.document, self.text_depth, dump_copy)
        return dump_json({**self.document, "filters": self.document["filters"] or None})

    def with_shape(self, shape: tuple[int, ...]) -> ArrayMetadata:
        """The metadata with another shape; raises `BadMetadata` for an invalid one, and `BadDefinition` for a
        rectilinear grid."""
        document = {**self.document, "shape": list(shape)}
        if self.zarr_format == 2:
            document["chunks"] = list(self.chunks)  # see `parse_chunks`
            return self.from_document(document, ".zarray").with_keys(self.grid.prefix, self.grid.separator)
        if self.coding_of is not None:
            raise BadDefinition("shape", "the chunks of a rectilinear grid are listed, and end with the array")
        grid = replace(self.grid, shape=shape)
        stored = replace(self.stored_grid, shape=shape) if self.levels else grid
        return replace(self, shape=shape, grid=grid, stored_grid=stored, document=document)

    def with_keys(self, prefix: str, separator: Separator) -> ArrayMetadata:
        """The metadata with other keys of chunks than the document states."""
        grid, stored = (replace(grid, prefix=prefix, separator=separator) for grid in (self.grid, self.stored_grid))
        return replace(self, dimension_separator=separator, grid=grid, stored_grid=stored)

    def coding(self, coords: Coords) -> Coding:
        """The coding of the object at a position of `stored_grid`."""
        if self.coding_of is None:
            return Coding(self.codec, self.levels)
        return self.coding_of(self.stored_grid.chunk_shape(coords))

    def encode_otherwise(self, chunk: np.ndarray, data: bytes) -> bytes | None:
        """An encoding of the chunk that differs from ``data``, by a variant of the last codec, if there is one."""
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
        """Number of axes, without those of a field's subarray."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an item."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Decoded bytes of the array."""
        return math.prod(self.shape) * self.itemsize

    @property
    def chunk_nbytes(self) -> int:
        """Decoded bytes of a chunk, also of edge chunks."""
        return self.codec.stage.nbytes

    @property
    def codecs(self) -> tuple[CodecConfig, ...]:
        """Codec configurations in the order of encoding: the filters, then the compressor."""
        return _chain(self.filters, self.compressor)

    @property
    def fill(self) -> np.ndarray:
        """The value of missing items, 0-d of ``dtype.numpy``: the fill value, or zero if that is null."""
        return zero_item(self.dtype, self.codecs) if self.fill_value is None else self.fill_value

    @property
    def shard_nbytes(self) -> int:
        """Decoded bytes of a stored object (shard or chunk)."""
        return math.prod(self.stored_grid.chunks) * self.itemsize

    @property
    def max_stored_bytes(self) -> int:
        """Maximum bytes of a stored object."""
        return self.levels[0].max_stored_bytes if self.levels else self.codec.max_stored_bytes

    @property
    def chunks_per_object(self) -> int:
        """Number of chunks in a stored object."""
        return math.prod(self.stored_grid.chunks) // math.prod(self.chunks)

    def chunks_inside(self, stored: Coords) -> int:
        """Number of chunks in a stored object that overlap the array."""
        sizes = zip(self.stored_grid.extent(stored), self.chunks, strict=True)
        return math.prod([-(-size // chunk) for size, chunk in sizes])

    def chunks_in(self, stored: Coords) -> Iterator[Coords]:
        """Coords of all chunks in a stored object, also of those beyond the edge of the array."""
        counts = [size // chunk for size, chunk in zip(self.stored_grid.chunks, self.chunks, strict=True)]
        return product(*[range(i * count, i * count + count) for i, count in zip(stored, counts, strict=True)])

    def origin(self, coords: Coords) -> Coords:
        """The first item of a chunk."""
        return tuple([coord * size for coord, size in zip(coords, self.chunks, strict=True)])

    def stored_coords(self, coords: Coords) -> Coords:
        """The position in `stored_grid` of a chunk's stored object."""
        if not self.levels:
            return coords
        axes = zip(coords, self.chunks, self.stored_grid.axes, strict=True)
        return tuple([axis.locate(coord * chunk)[0] for coord, chunk, axis in axes])


class GroupMetadata(NamedTuple):
    """A parsed ``.zgroup`` with all members, and the ``problems`` that were tolerated."""

    document: Mapping[str, Any]
    problems: tuple[str, ...] = ()


def parse_group(data: bytes | memoryview, key: str) -> GroupMetadata:
    """The metadata in the bytes of a ``.zgroup``; raises `BadMetadata`. The format may also be text."""
    read = Members(parse_object(data, key, limit=MAX_DOCUMENT_BYTES), key)
    read.require("zarr_format")
    if read.document["zarr_format"] == "2":
        return GroupMetadata(read.document, (f'{key}: zarr_format: expected 2, found "2"',))
    read("zarr_format", lambda value: parse_format(value, 2))
    if {"shape", "chunks", "dtype"} <= read.document.keys():
        return GroupMetadata(read.document, (f"{key}: it describes an array, which belongs into a .zarray",))
    return GroupMetadata(read.document)


class UnreadAttributes(Mapping[str, Any]):
    """Attributes whose document cannot be read, for the reason in ``error``, which each look at them raises: they may
    say what the values mean."""

    def __init__(self, error: BadMetadata) -> None:
        self.error = error

    def __getitem__(self, name: str) -> Any:
        raise BadMetadata(self.error.key, self.error.member, self.error.reason)

    def __iter__(self) -> Iterator[str]:
        return self[""]  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return self[""]  # type: ignore[no-any-return]


def parse_attributes(data: bytes | memoryview, key: str) -> dict[str, Any]:
    """The members of a ``.zattrs``; raises `BadMetadata`. NaN and infinities are allowed."""
    return parse_object(data, key, limit=MAX_DOCUMENT_BYTES)


def parse_consolidated(data: bytes | memoryview, key: str) -> dict[str, Any]:
    """The documents in a ``.zmetadata`` by key, each an object that is not parsed further; raises `BadMetadata`."""
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
    """Raise `CodecRefused` or `BadMetadata` for the first codec that cannot be read (or written, if ``creating``)."""
    members = [(f"filters[{index}]", config) for index, config in enumerate(filters or ())]
    for member, config in [*members, *([("compressor", compressor)] if compressor else [])]:
        try:
            check_codec_config(config, key=key)
        except BadMetadata as error:
            raise BadMetadata(key, member, f"{error.member}: {error.reason}") from None
        except CodecRefused as error:
            raise replace(error, member=member) from None
        if creating:
            check_writable(config, member, key)


class Members:
    """Parser of a document's members, whose errors name the member."""

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
    """The format, which must be the supported one; integral floats are accepted."""
    if type(value) in (int, float) and value == supported:
        return supported
    raise ValueError(f"expected {supported}, found {shown(value)}")


def parse_shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise ValueError(f"expected a list of at most {MAX_RANK} integers, found {shown(value)}")
    return tuple([_parse_size(size, 0) for size in value])


def parse_chunks(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """A chunk shape. For empty axes 0 is accepted, as zarr-python writes it for ``chunks=False`` and ``chunks=-1``: as
    no chunk exists, any size will do, and one is taken that makes chunks of `_FREE_ITEMS`."""
    if not isinstance(value, list) or len(value) != len(shape):
        raise ValueError(f"expected a list of {len(shape)} integers, one for each axis, found {shown(value)}")
    free = [size == 0 and type(chunk) is int and chunk == 0 for chunk, size in zip(value, shape, strict=True)]
    sizes = [0 if is_free else _parse_size(chunk, 1) for chunk, is_free in zip(value, free, strict=True)]
    items = _FREE_ITEMS / math.prod(size or 1 for size in sizes)
    chunks = tuple([size or max(1, int(items ** (1 / sum(free)))) for size in sizes])
    if math.prod(chunks) * itemsize > MAX_CHUNK_BYTES:
        raise ValueError("a chunk has more bytes than 64 bits can count")
    return chunks


def _parse_size(value: Any, low: int) -> int:
    """An integer or integral float from ``low`` to `MAX_SIZE`."""
    number = integral(value)
    if number is not None and low <= number <= MAX_SIZE:
        return number
    raise ValueError(f"expected integers from {low} to 2**62, found {shown(value)}")


def integral(value: Any) -> int | None:
    """An integer or integral float as int; None for other values, also for booleans."""
    if type(value) is int:
        return value
    return int(value) if type(value) is float and value.is_integer() else None


def parse_order(value: Any) -> Order:
    orders: tuple[Order, ...] = ("C", "F")
    return one_of(orders, value)


def parse_separator(value: Any) -> Separator:
    """The dimension separator; null or absent in older documents means a dot."""
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
