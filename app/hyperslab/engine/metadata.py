"""The documents of a Zarr v2 hierarchy: ``.zarray``, ``.zgroup``, ``.zattrs`` and ``.zmetadata``.

Each error names the key, the member and what is wrong with it. Specification "Metadata"; where readers differ, the most
data is read as long as its meaning is beyond doubt.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

from hyperslab.engine.codecs import ChunkCodec, check_codec_config, make_codec, plain_config
from hyperslab.engine.codecs_chain import Inflates
from hyperslab.engine.codecs_config import OTHER_SPELLINGS
from hyperslab.engine.dtypes import DataType, parse_dtype
from hyperslab.engine.fill_value import object_codec, parse_fill_value, reads_alike, zero_item
from hyperslab.engine.grid import ChunkGrid
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES, check_values, dump_json, parse_json, parse_object
from hyperslab.engine.members import (
    CodecConfig,
    Order,
    Separator,
    check_rank,
    parse_chunks,
    parse_compressor,
    parse_filters,
    parse_format,
    parse_order,
    parse_separator,
    parse_shape,
)
from hyperslab.errors import BadMetadata, CodecRefused, NotRepresentable, shown

__all__ = [
    "MAX_CONSOLIDATED_BYTES",
    "ArrayMetadata",
    "GroupMetadata",
    "check_codecs",
    "dump_json",
    "parse_attributes",
    "parse_consolidated",
    "parse_group",
    "parse_json",
    "parse_object",
]

T = TypeVar("T")

MAX_ARRAY_BYTES: Final = 4 << 20
"""The largest ``.zarray`` that is read."""
MAX_CONSOLIDATED_BYTES: Final = 64 << 20
"""The largest ``.zmetadata`` that is read."""

REQUIRED: Final = ("zarr_format", "shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters")
"""The members that every ``.zarray`` has."""


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMetadata:
    """A parsed ``.zarray``. ``document`` is as it was read, unknown members included.

    ``fill_value`` is 0-d of ``dtype.numpy``, None for null; ``filters`` is None where there are none, and codecs are as
    `plain_config` has them. ``chunk_nbytes`` are those of one chunk, decoded; edge chunks have as many. What is not in
    the document is made from the rest.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: DataType
    order: Order
    fill_value: np.ndarray | None
    compressor: CodecConfig | None
    filters: tuple[CodecConfig, ...] | None
    dimension_separator: Separator
    document: Mapping[str, Any] = field(repr=False)
    grid: ChunkGrid = field(init=False, repr=False)
    codec: ChunkCodec = field(init=False, repr=False)
    chunk_nbytes: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", ChunkGrid(self.shape, self.chunks, self.dimension_separator))
        codec = make_codec(self.chunks, self.dtype, self.order, self.filters, self.compressor)
        object.__setattr__(self, "codec", codec)
        object.__setattr__(self, "chunk_nbytes", math.prod(self.chunks) * self.itemsize)

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
        read = _Members(_checked_object(document, key), key)
        for name in REQUIRED:
            read.required(name)
        read("zarr_format", lambda value: parse_format(value, 2))
        shape = read("shape", parse_shape)
        dtype = read("dtype", lambda value: check_rank(parse_dtype(value), len(shape)))
        compressor = read("compressor", parse_compressor)
        filters = read("filters", parse_filters)
        codecs = _chain(filters, compressor)
        check_codecs(filters, compressor, key)
        if dtype.is_object:
            read("filters", lambda _: object_codec(codecs))
        try:
            return cls(
                shape=shape,
                chunks=read("chunks", lambda value: parse_chunks(value, shape, dtype.itemsize)),
                dtype=dtype,
                order=read("order", parse_order),
                fill_value=read("fill_value", lambda value: parse_fill_value(value, dtype, codecs)),
                compressor=None if compressor is None else plain_config(compressor),
                filters=None if filters is None else tuple([plain_config(config) for config in filters]),
                dimension_separator=read(
                    "dimension_separator", lambda given: parse_separator(given, default_separator)
                ),
                document=read.document,
            )
        except Inflates as error:
            member = f"filters[{error.index}]" if error.index < len(filters or ()) else "compressor"
            raise BadMetadata(key, member, f"{codecs[error.index]['id']} {error}") from None

    def to_bytes(self) -> bytes:
        """The document as strict JSON; an empty list of filters becomes null (CONFORMANCE 27)."""
        return dump_json({**self.document, "filters": self.document["filters"] or None})

    def with_shape(self, shape: tuple[int, ...]) -> ArrayMetadata:
        """The same array with another shape, all other members kept; raises `BadMetadata` for one that is not
        possible."""
        document = {**self.document, "shape": list(shape)}
        return self.from_document(document, ".zarray", default_separator=self.dimension_separator)

    def encode_otherwise(self, chunk: np.ndarray, data: bytes, key: str) -> bytes | None:
        """Other bytes than ``data`` that decode to the same chunk; None where the compressor knows none."""
        variants = list(OTHER_SPELLINGS.get(self.compressor["id"], ())) if self.compressor is not None else []
        random.shuffle(variants)
        for variant in variants:
            document = {**self.document, "compressor": {**(self.compressor or {}), **variant}}
            with suppress(NotRepresentable):
                other = self.from_document(document, key).codec.encode(chunk)
                if other != data:
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
    def codecs(self) -> tuple[CodecConfig, ...]:
        """Codec configurations in the order of encoding: the filters, then the compressor."""
        return _chain(self.filters, self.compressor)

    @property
    def fill(self) -> np.ndarray:
        """What missing items read as, 0-d of ``dtype.numpy``: the fill value, or zero where that is null."""
        return zero_item(self.dtype, self.codecs) if self.fill_value is None else self.fill_value

    @property
    def fill_reads_alike(self) -> bool:
        """Whether a chunk that equals `fill` may be missing: all libraries read the same there."""
        return reads_alike(self.document["fill_value"], self.dtype, self.codecs)


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A parsed ``.zgroup``; members other than ``zarr_format`` have no meaning, and are kept. ``problems``: what is
    wrong in it, and was read all the same."""

    document: Mapping[str, Any]
    problems: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The document as strict JSON."""
        return dump_json(self.document)


def parse_group(data: bytes | memoryview, key: str) -> GroupMetadata:
    """The group that the bytes under ``key`` describe; raises `BadMetadata`. The format as text is read, too: there is
    nothing else in the document that could mean something."""
    document = _parse_object(data, key, limit=MAX_DOCUMENT_BYTES)
    read = _Members(document, key)
    read.required("zarr_format")
    if document["zarr_format"] == "2":
        return GroupMetadata(document, (f'{key}: zarr_format: expected 2, found "2"',))
    read("zarr_format", lambda value: parse_format(value, 2))
    return GroupMetadata(document)


def parse_attributes(data: bytes | memoryview, key: str) -> dict[str, Any]:
    """The members of a ``.zattrs``; raises `BadMetadata`. Floats may be NaN and infinite."""
    return _parse_object(data, key, limit=MAX_DOCUMENT_BYTES)


def parse_consolidated(data: bytes | memoryview, key: str) -> dict[str, Any]:
    """The documents that a ``.zmetadata`` holds, by key; each is an object, and not parsed further.

    Raises `BadMetadata`, also where ``zarr_consolidated_format`` is not 1 (CONFORMANCE 187).
    """
    read = _Members(_parse_object(data, key, limit=MAX_CONSOLIDATED_BYTES), key)
    read("zarr_consolidated_format", lambda value: parse_format(value, 1))
    read.required("metadata")
    documents = _checked_object(read.document["metadata"], key, "metadata")
    for name, document in documents.items():
        _checked_object(document, key, f"metadata[{name!r}]")
    return documents


def check_codecs(
    filters: Sequence[CodecConfig] | None, compressor: CodecConfig | None, key: str, *, creating: bool = False
) -> None:
    """Raise `CodecRefused` or `BadMetadata` for the first codec that cannot be used, or ``creating``, not written."""
    members = [(f"filters[{index}]", config) for index, config in enumerate(filters or ())]
    for member, config in [*members, *([("compressor", compressor)] if compressor else [])]:
        try:
            check_codec_config(config, key=key, creating=creating)
        except BadMetadata as error:
            raise BadMetadata(key, member, f"{error.member}: {error.reason}") from None
        except CodecRefused as error:
            raise CodecRefused(key, error.codec, error.reason, member) from None


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


def _chain(filters: tuple[CodecConfig, ...] | None, compressor: CodecConfig | None) -> tuple[CodecConfig, ...]:
    return (*(filters or ()), *([compressor] if compressor else ()))


def _parse_object(data: bytes | memoryview, key: str, *, limit: int) -> dict[str, Any]:
    try:
        check_values(data)
        value = parse_json(data, limit=limit)
    except ValueError as error:
        raise BadMetadata(key, None, str(error)) from None
    return _checked_object(value, key)


def _checked_object(value: Any, key: str, member: str | None = None) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise BadMetadata(key, member, f"expected a JSON object, found {shown(value)}")
