"""The documents of a Zarr v2 hierarchy: ``.zarray``, ``.zgroup``, ``.zattrs`` and ``.zmetadata``.

Each error names the key, the member and what is wrong with it. Specification "Metadata"; where readers differ, the most
data is read as long as its meaning is beyond doubt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np

from hyperslab.engine.dtypes import MAX_RANK, DataType, parse_dtype
from hyperslab.engine.fill_value import object_codec, parse_fill_value, zero_item
from hyperslab.engine.grid import ChunkGrid
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES, dump_json, parse_json, shown
from hyperslab.errors import BadMetadata

__all__ = [
    "ArrayMetadata",
    "GroupMetadata",
    "dump_json",
    "parse_attributes",
    "parse_consolidated",
    "parse_group",
    "parse_json",
]

if TYPE_CHECKING:
    from hyperslab.engine.codecs import ChunkCodec

Order = Literal["C", "F"]
Separator = Literal[".", "/"]
T = TypeVar("T")

MAX_SIZE: Final = 2**62
"""The longest axis; positions stay within 64-bit integers with room for the overhang of an edge chunk."""
MAX_CHUNK_BYTES: Final = 2**63 - 1
MAX_ARRAY_BYTES: Final = 4 << 20
"""The largest ``.zarray`` that is read."""
MAX_CONSOLIDATED_BYTES: Final = 64 << 20
"""The largest ``.zmetadata`` that is read."""

_REQUIRED = ("zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters")


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMetadata:
    """A parsed ``.zarray``. ``document`` is as it was read, unknown members included.

    ``fill_value`` is 0-d of ``dtype.numpy``, None for null; ``filters`` is None where there are none. ``codec`` and
    ``grid`` are made from the rest.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: DataType
    order: Order
    fill_value: np.ndarray | None
    compressor: Mapping[str, Any] | None
    filters: tuple[Mapping[str, Any], ...] | None
    dimension_separator: Separator
    document: Mapping[str, Any] = field(repr=False)
    grid: ChunkGrid = field(init=False, repr=False)
    codec: ChunkCodec = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from hyperslab.engine.codecs import make_codec

        object.__setattr__(self, "grid", ChunkGrid(self.shape, self.chunks, self.dimension_separator))
        object.__setattr__(self, "codec", make_codec(self))

    @classmethod
    def parse(cls, data: bytes | memoryview, key: str, *, default_separator: Separator = ".") -> ArrayMetadata:
        """The array that the bytes under ``key`` describe; see `from_document`."""
        document = _parse_object(data, key, limit=MAX_ARRAY_BYTES)
        return cls.from_document(document, key, default_separator=default_separator)

    @classmethod
    def from_document(cls, document: Any, key: str, *, default_separator: Separator = ".") -> ArrayMetadata:
        """The array that a document describes. ``default_separator`` is for documents older than the member.

        Raises `BadMetadata`, which names the member, and `CodecRefused`, which names the codec.
        """
        from hyperslab.engine.codecs import check_codec_config

        read = _Members(_checked_object(document, key), key)
        for name in _REQUIRED:
            read.required(name)
        read("zarr_format", _parse_format)
        shape = read("shape", _parse_shape)
        dtype = read("dtype", lambda value: _checked_rank(parse_dtype(value), len(shape)))
        compressor = read("compressor", _parse_compressor)
        filters = read("filters", _parse_filters)
        codecs = (*(filters or ()), *([compressor] if compressor else ()))
        for config in codecs:
            check_codec_config(config, key=key)
        if dtype.is_object:
            read("filters", lambda _: object_codec(codecs))
        return cls(
            shape=shape,
            chunks=read("chunks", lambda value: _parse_chunks(value, shape, dtype.itemsize)),
            dtype=dtype,
            order=read("order", _parse_order),
            fill_value=read("fill_value", lambda value: parse_fill_value(value, dtype, codecs)),
            compressor=compressor,
            filters=filters,
            dimension_separator=read("dimension_separator", lambda value: _parse_separator(value, default_separator)),
            document=document,
        )

    def to_bytes(self) -> bytes:
        """The document as strict JSON; an empty list of filters becomes null (CONFORMANCE 27)."""
        return dump_json({**self.document, "filters": self.document["filters"] or None})

    def with_shape(self, shape: tuple[int, ...]) -> ArrayMetadata:
        """The same array with another shape, all other members kept; raises `BadMetadata` for one that cannot be."""
        document = {**self.document, "shape": list(shape)}
        return self.from_document(document, ".zarray", default_separator=self.dimension_separator)

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
        return math.prod(self.chunks) * self.itemsize

    @property
    def codecs(self) -> tuple[Mapping[str, Any], ...]:
        """Codec configurations in the order of encoding: the filters, then the compressor."""
        return (*(self.filters or ()), *([self.compressor] if self.compressor else ()))

    @property
    def fill(self) -> np.ndarray:
        """What missing items read as, 0-d of ``dtype.numpy``: the fill value, or zero where that is null."""
        return zero_item(self.dtype, self.codecs) if self.fill_value is None else self.fill_value


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A parsed ``.zgroup``; members other than ``zarr_format`` have no meaning, and are kept."""

    document: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        """The document as strict JSON."""
        return dump_json(self.document)


def parse_group(data: bytes | memoryview, key: str) -> GroupMetadata:
    """The group that the bytes under ``key`` describe; raises `BadMetadata`."""
    document = _parse_object(data, key, limit=MAX_DOCUMENT_BYTES)
    read = _Members(document, key)
    read.required("zarr_format")
    read("zarr_format", _parse_format)
    return GroupMetadata(document)


def parse_attributes(data: bytes | memoryview, key: str) -> dict[str, Any]:
    """The members of a ``.zattrs``; raises `BadMetadata`. Floats may be NaN and infinite."""
    return _parse_object(data, key, limit=MAX_DOCUMENT_BYTES)


def parse_consolidated(data: bytes | memoryview, key: str) -> dict[str, Any]:
    """The documents that a ``.zmetadata`` holds, by key; each is an object, and not parsed further.

    Raises `BadMetadata`, also where ``zarr_consolidated_format`` is not 1 (CONFORMANCE 187).
    """
    read = _Members(_parse_object(data, key, limit=MAX_CONSOLIDATED_BYTES), key)
    read("zarr_consolidated_format", _parse_consolidated_format)
    read.required("metadata")
    documents = _checked_object(read.document["metadata"], key, "metadata")
    for name, document in documents.items():
        _checked_object(document, key, f"metadata[{name!r}]")
    return documents


class _Members:
    """The members of one document, read one by one so that each error names its member."""

    def __init__(self, document: dict[str, Any], key: str) -> None:
        self.document = document
        self.key = key

    def required(self, name: str) -> None:
        if name not in self.document:
            raise BadMetadata(self.key, name, "is missing")

    def __call__(self, name: str, parse: Callable[[Any], T]) -> T:
        try:
            return parse(self.document.get(name))
        except ValueError as error:
            raise BadMetadata(self.key, name, str(error)) from None


def _parse_object(data: bytes | memoryview, key: str, *, limit: int) -> dict[str, Any]:
    try:
        value = parse_json(data, limit=limit)
    except ValueError as error:
        raise BadMetadata(key, None, str(error)) from None
    return _checked_object(value, key)


def _checked_object(value: Any, key: str, member: str | None = None) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise BadMetadata(key, member, f"expected a JSON object, found {shown(value)}")


def _parse_format(value: Any) -> int:
    if type(value) in (int, float) and value == 2:
        return 2
    raise ValueError(f"expected 2, found {shown(value)}")


def _parse_consolidated_format(value: Any) -> int:
    if type(value) in (int, float) and value == 1:
        return 1
    raise ValueError(f"expected 1, found {shown(value)}")


def _parse_shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_RANK:
        raise ValueError(f"expected a list of at most {MAX_RANK} integers, found {shown(value)}")
    return tuple([_parse_size(size, 0) for size in value])


def _parse_chunks(value: Any, shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) != len(shape):
        raise ValueError(f"expected a list of {len(shape)} integers, one for each axis, found {shown(value)}")
    chunks = tuple([_parse_chunk(chunk, size) for chunk, size in zip(value, shape, strict=True)])
    if math.prod(chunks) * itemsize > MAX_CHUNK_BYTES:
        raise ValueError("a chunk has more bytes than 64 bits can count")
    return chunks


def _parse_chunk(value: Any, size: int) -> int:
    """zarr-python 2 writes chunk 0 for an empty axis where it was asked for one chunk (CONFORMANCE 22)."""
    return 1 if size == 0 and type(value) is int and value == 0 else _parse_size(value, 1)


def _parse_size(value: Any, low: int) -> int:
    number = int(value) if type(value) is float and value.is_integer() else value
    if type(number) is int and low <= number <= MAX_SIZE:
        return number
    raise ValueError(f"expected integers from {low} to 2**62, found {shown(value)}")


def _checked_rank(dtype: DataType, rank: int) -> DataType:
    inner = max((len(field.shape) for field in dtype.fields), default=0)
    if rank + inner > MAX_RANK:
        raise ValueError(f"{rank} axes and {inner} of a subarray, the limit is {MAX_RANK}")
    return dtype


def _parse_order(value: Any) -> Order:
    if value == "C":
        return "C"
    if value == "F":
        return "F"
    raise ValueError(f"expected 'C' or 'F', found {shown(value)}")


def _parse_separator(value: Any, default: Separator) -> Separator:
    if value is None:
        return default
    if value == ".":
        return "."
    if value == "/":
        return "/"
    raise ValueError(f"expected '.' or '/', found {shown(value)}")


def _parse_compressor(value: Any) -> Mapping[str, Any] | None:
    return None if value is None else _checked_config(value)


def _parse_filters(value: Any) -> tuple[Mapping[str, Any], ...] | None:
    if value is None:
        return None
    if isinstance(value, list):
        return tuple([_checked_config(config) for config in value]) or None
    raise ValueError(f"expected null or a list of codecs, found {shown(value)}")


def _checked_config(value: Any) -> Mapping[str, Any]:
    if isinstance(value, dict) and isinstance(value.get("id"), str):
        return value
    raise ValueError(f"expected an object with a string 'id', found {shown(value)}")
