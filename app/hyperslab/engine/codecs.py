"""Codec of chunks: a chain of filters, then the compressor.

Stored data are untrusted: the size at each stage is known in advance, limits the codecs, and is checked afterwards.
Errors are `ChunkCorrupt` with the key of the chunk and the codec.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from hyperslab.engine import blosc, filters, object_codecs, streams
from hyperslab.engine.chain import BYTE, UNSIZED_LIMIT, Buffer, Inflates, Link, Stage, flat_bytes, reason_of
from hyperslab.engine.codec_config import CodecConfig
from hyperslab.engine.dtypes import DataType
from hyperslab.engine.partial import PartialDecoder, make_partial
from hyperslab.errors import ChunkCorrupt, NotRepresentable

NDArray = npt.NDArray[Any]

MAX_GROWTH: Final = 32
"""Maximum growth between two codecs: 16 times for bytes cast to the widest numbers, doubled by compressors."""
MIN_LIMIT: Final = 1 << 20
"""Bytes allowed between two codecs in any case, for small chunks of numbers cast to text."""
MIN_STREAM: Final = 64 << 10
"""Bytes of a chunk below which it is decoded whole (benchmark ``tuning``)."""


def make_codec(
    chunks: tuple[int, ...],
    dtype: DataType,
    order: Literal["C", "F"],
    configs: Sequence[CodecConfig],
) -> ChunkCodec:
    """The codec of an array, from checked configurations in the order of encoding; raises `Inflates`."""
    stage = Stage(math.prod(chunks) * dtype.itemsize, True, dtype.numpy, chunks, order)
    links = make_links(configs, stage)
    alone = configs[0] if len(configs) == 1 else None
    partial = make_partial(alone, chunks, dtype=dtype, order=order) if alone or not configs else None
    whole = alone is None or dtype.numpy.hasobject or dtype.has_idle_bits or stage.nbytes < MIN_STREAM
    start = None if whole or alone is None else streams.starter(alone["id"])
    fast = alone is not None and alone["id"] in ("blosc", "lz4") and alone.get("cname") not in ("zlib", "zstd")
    effort = 1.0 if fast else 4.0 if configs else 0.25
    last = links[-1].decoded if links else stage
    unsized = UNSIZED_LIMIT if links and links[-1].unsized else 0
    max_stored_bytes = 2 * max(last.nbytes, unsized) + MIN_LIMIT
    sized = next((i for i, link in enumerate(links) if link.unsized), len(links))
    memory = 2 * max([stage.nbytes, *[link.decoded.nbytes for link in links[: sized + 1]]])
    return ChunkCodec(
        chunks, dtype, order, stage, links, partial, start, effort, max_stored_bytes, memory, dtype.has_idle_bits
    )


def make_links(configs: Sequence[CodecConfig], stage: Stage) -> tuple[Link, ...]:
    """The links of a codec chain, in the order of encoding, starting from a stage; raises `Inflates`."""
    links: list[Link] = []
    limit = max(MAX_GROWTH * stage.nbytes, MIN_LIMIT)
    for index, config in enumerate(configs):
        link = _MAKERS[config["id"]](config, stage)
        if link.unsized:
            limit = max(limit, 2 * UNSIZED_LIMIT + MIN_LIMIT)
        stage, is_last = link.encoded, index == len(configs) - 1
        if stage.nbytes > limit and not (is_last and stage == link.decoded.compressed()):
            raise Inflates(index, stage.nbytes, limit)
        links.append(link)
    return tuple(links)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkCodec:
    """Encoder and decoder of an array's chunks: ``links`` in order of encoding, from the stage ``stage``. Thread-safe.

    Chunks, including edge chunks, have the full shape ``chunks`` and are stored in ``order``. ``partial`` decodes parts
    of chunks, ``start`` their beginning, if supported. ``effort``: decoding time per byte relative to LZ4.
    ``max_stored_bytes``: size of a stored chunk at most; ``memory``: maximum memory of decoding or encoding;
    ``cleans``: `DataType.has_idle_bits`.
    """

    chunks: tuple[int, ...]
    dtype: DataType
    order: Literal["C", "F"]
    stage: Stage
    links: tuple[Link, ...]
    partial: PartialDecoder | None
    start: streams.Start | None
    effort: float
    max_stored_bytes: int
    memory: int
    cleans: bool

    @property
    def lossless(self) -> bool:
        """Whether encoded chunks are certain to decode to the same bits."""
        return all(link.lossless for link in self.links)

    def decode(self, data: Buffer, key: str, memory: NDArray | None = None) -> NDArray:
        """The chunk of shape ``chunks``, possibly read-only and in the memory of ``data``, or in ``memory`` (uint8, of
        the size of a chunk). Raises `ChunkCorrupt` with ``key``."""
        items: Any = data
        stored = self.links[-1].encoded if self.links else self.stage
        if stored.exact or len(items) > self.max_stored_bytes:
            _check_size(items, stored, key)
        for link in reversed(self.links):
            buffer = items if isinstance(items, bytes | memoryview) else flat_bytes(items).data
            target = memory if link.into and link is self.links[0] else None
            try:
                items = link.decode(buffer, target)
            except MemoryError:
                raise
            except Exception as error:
                raise ChunkCorrupt(key, link.id, reason_of(error)) from error
            _check_size(items, link.decoded, key)
        if self.stage.dtype.hasobject:
            return items.reshape(self.chunks, order=self.order)  # type: ignore[no-any-return]
        held = flat_bytes(items) if isinstance(items, np.ndarray) else items
        chunk: NDArray = np.ndarray(self.chunks, self.dtype.numpy, held, order=self.order)
        return self.dtype.clean(chunk) if self.cleans else chunk

    def decode_start(self, data: Buffer, items: int, key: str, memory: NDArray | None = None) -> NDArray | None:
        """The chunk with only the first ``items`` in stored order decoded, the others undefined; None if it must be
        decoded whole. ``memory`` as for `decode`. Raises `ChunkCorrupt`."""
        raw = np.empty(self.stage.nbytes, np.uint8) if memory is None else memory
        try:
            if self.start is None or not self.start(data, raw[: items * self.dtype.itemsize]):
                return None
        except Exception as error:
            raise ChunkCorrupt(key, self.links[0].id, reason_of(error)) from error
        return np.ndarray(self.chunks, self.dtype.numpy, raw, order=self.order)

    def decode_into(self, data: Buffer, out: NDArray, key: str) -> None:
        """Decode into ``out`` (shape ``chunks``, the array's dtype), directly if it is contiguous in ``order``. After
        `ChunkCorrupt`, ``out`` is undefined."""
        contiguous = out.flags.f_contiguous if self.order == "F" else out.flags.c_contiguous
        chunk = self.decode(data, key, None if self.dtype.numpy.hasobject or not contiguous else flat_bytes(out))
        if not np.may_share_memory(chunk, out):
            out[...] = chunk

    def decode_rows(self, rows: Sequence[Buffer | None], out: NDArray, key: str) -> None:
        """Decode chunks into the rows of ``out``; rows of None are unchanged. Raises `ChunkCorrupt`."""
        joins = len(self.links) == 1 and self.links[0].id == "blosc" and self.order == "C" and not self.cleans
        for is_there, group in itertools.groupby(range(len(rows)), lambda row: rows[row] is not None):
            run = [*group] if is_there else []
            if joins and len(run) > 1:
                part = out[run[0] : run[-1] + 1]
                if blosc.decompress_rows([rows[row] or b"" for row in run], part.reshape(len(run), -1).view(BYTE)):
                    continue
            for row in run:
                out[row] = self.decode(rows[row] or b"", key)

    def encode(self, chunk: NDArray) -> bytes:
        """The encoded chunk; raises `NotRepresentable` if a codec fails."""
        return bytes(self._encoded(chunk))

    def _encoded(self, chunk: NDArray) -> bytes | memoryview:
        """The encoded chunk, without codecs in its own memory."""
        items: Any = np.asarray(chunk, self.dtype.numpy, order=self.order)
        if not (self.links and self.links[0].shaped):
            items = items.reshape(-1, order=self.order)
        link: Link | None = None
        try:
            for link in self.links:
                items = link.encode(items if isinstance(items, np.ndarray) else flat_bytes(items))
            return items if isinstance(items, bytes) else flat_bytes(items).data
        except Exception as error:
            raise NotRepresentable(self.dtype.json, link.id if link else "bytes", reason_of(error)) from error

    def encode_readably(self, chunk: NDArray, key: str) -> tuple[bytes | memoryview, NDArray]:
        """The encoded chunk, perhaps in its own memory, and the chunk as it will be decoded. Raises `NotRepresentable`
        if it cannot be decoded, which is tried if a codec may be lossy."""
        data = self._encoded(chunk)
        if self.lossless:
            return data, chunk
        try:
            return data, self.decode(data, key)
        except ChunkCorrupt as error:
            raise NotRepresentable(self.dtype.json, error.codec or "bytes", error.reason) from error


def _check_size(items: Any, stage: Stage, key: str) -> None:
    is_array = isinstance(items, np.ndarray)
    if (is_array and items.dtype.hasobject) != stage.dtype.hasobject:
        raise ChunkCorrupt(key, None, "objects where bytes were expected, or the reverse")
    nbytes = items.nbytes if is_array else len(items)
    if nbytes != stage.nbytes and (stage.exact or nbytes > stage.nbytes):
        raise ChunkCorrupt(key, None, f"{nbytes} bytes, expected {stage.nbytes}")


# --- constructors of links ---------------------------------------------------------------------------------------


def _compressor_link(config: CodecConfig, stage: Stage) -> Link:
    """A compressor of bytes."""
    name, decode, encode = config["id"], streams.decoder(config), streams.encoder(config, stage.dtype.itemsize)
    return Link(
        name,
        lambda data, out: decode(data, out, stage.nbytes),
        lambda items: encode(flat_bytes(items).data),
        stage,
        stage.raw(-(-stage.nbytes // 3) * 4, exact=True) if name == "base64" else stage.compressed(),
        into=name in ("blosc", "zstd", "lz4"),
        lossless=True,
    )


_MAKERS: Final[Mapping[str, Callable[[CodecConfig, Stage], Link]]] = {
    **dict.fromkeys(("blosc", "zlib", "gzip", "bz2", "zstd", "lz4", "lzma", "base64"), _compressor_link),
    **dict.fromkeys(("delta", "fixedscaleoffset", "quantize", "astype"), filters.item_link),
    "bitround": filters.bitround_link,
    "packbits": filters.packbits_link,
    "shuffle": filters.shuffle_link,
    **dict.fromkeys(("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"), filters.checksum_link),
    "zfpy": filters.zfpy_link,
    "pcodec": filters.pcodec_link,
    **dict.fromkeys(("vlen-utf8", "vlen-bytes", "vlen-array"), object_codecs.vlen_link),
    "json2": object_codecs.json2_link,
    "msgpack2": object_codecs.msgpack2_link,
    "categorize": object_codecs.categorize_link,
    "transpose": filters.transpose_link,
    "byteswap": filters.byteswap_link,
    "bits": filters.bits_link,
    "scale_offset": filters.scale_offset_link,
    "cast_value": filters.cast_value_link,
}
