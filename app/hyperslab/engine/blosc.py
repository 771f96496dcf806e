"""Blosc: validation of frames, whole and partial decoding, encoding.

A frame is a 16-byte header, a table of block offsets, and independent blocks in any order. To decode some blocks, a
valid frame of only these is assembled for the library's decoder, which handles shuffles, split streams and codecs.
[c-blosc README_CHUNK_FORMAT]
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import cramjam
import numpy as np
from numcodecs import blosc, lz4
from numpy.typing import NDArray

from hyperslab.engine.chain import Buffer
from hyperslab.engine.codec_config import BLOSC_MAX_BYTES, CodecConfig

blosc.use_threads = False  # chunks are decoded concurrently; Blosc's global thread pool would serialise them

HEADER_BYTES: Final = 16

Source: TypeAlias = Callable[[int, int], Buffer]
"""The bytes ``[start, stop)`` of a stored frame."""

_HEADER = struct.Struct("<BBBBiii")
STORED: Final = 0x02
_NOT_SPLIT: Final = 0x10
_LZ4: Final = 1
_SNAPPY: Final = 2
_NO_CODEC: Final = 0x1F
_LENGTH = struct.Struct("<i")
_ENDS = struct.Struct("<ii")
"""End of a frame, and start of its first block."""


class BloscHeader(NamedTuple):
    """Header of a frame. Sizes in bytes: ``typesize``, ``nbytes`` (decoded), ``blocksize``, ``cbytes`` (the frame)."""

    version: int
    codec_version: int
    flags: int
    typesize: int
    nbytes: int
    blocksize: int
    cbytes: int

    @classmethod
    def parse(cls, head: Buffer, limit: int, *, exact: bool = True) -> BloscHeader:
        """The header of a frame of ``limit`` decoded bytes, or if not ``exact``, of at most ``limit``; raises
        `ValueError`."""
        if len(head) < HEADER_BYTES:
            raise ValueError(f"{len(head)} bytes are too few for the header of a frame")
        header = cls(*_HEADER.unpack_from(head))
        version, _, flags, typesize, nbytes, blocksize, cbytes = header
        if not 1 <= version <= 2 or typesize == 0 or blocksize < 0 or cbytes < HEADER_BYTES:
            raise ValueError("this is not the header of a frame")
        if not 0 <= nbytes <= limit or (exact and nbytes != limit):
            raise ValueError(f"the header says {nbytes} bytes decoded, expected {limit}")
        behind = nbytes if flags & STORED else 4 * -(-nbytes // blocksize) if blocksize else 0  # data, or the table
        least = HEADER_BYTES + behind
        if cbytes < least:
            raise ValueError(f"the header says {cbytes} bytes, a frame of what it says has {least} or more")
        return header

    @property
    def stored(self) -> bool:
        """Whether the data are stored uncompressed ("memcpyed"), without a table and shuffle."""
        return bool(self.flags & STORED)

    @property
    def fast(self) -> bool:
        """Whether the codec is BloscLZ or LZ4, which decode nearly as fast as copying."""
        return self.flags >> 5 <= _LZ4

    @property
    def nblocks(self) -> int:
        """Number of blocks."""
        return -(-self.nbytes // self.blocksize) if self.blocksize else 0

    @property
    def table_stop(self) -> int:
        """End of the table of offsets."""
        return HEADER_BYTES if self.stored else HEADER_BYTES + 4 * self.nblocks

    def block_nbytes(self, block: int) -> int:
        """Decoded bytes of a block."""
        return min(self.blocksize, self.nbytes - block * self.blocksize)

    def streams(self, block: int) -> int:
        """Number of streams of a block, of equal decoded size: one per byte of an item, if that has at most 16 bytes
        and streams have at least 128. [c-blosc blosc.c]"""
        if self.flags & _NOT_SPLIT or self.typesize > 16 or self.block_nbytes(block) < self.blocksize:
            return 1
        return self.typesize if self.blocksize // self.typesize >= 128 else 1


class BloscFrame:
    """Block table of a compressed frame, from its first ``header.table_stop`` bytes; raises `ValueError` if invalid."""

    def __init__(self, header: BloscHeader, head: Buffer) -> None:
        if not 0 < header.blocksize <= header.nbytes:
            raise ValueError(f"blocks of {header.blocksize} bytes in a frame of {header.nbytes}")
        if len(head) < header.table_stop:
            raise ValueError("the table of blocks ends before its end")
        starts = np.frombuffer(head, "<i4", header.nblocks, HEADER_BYTES)
        edges = np.append(np.sort(starts), header.cbytes)
        if edges[0] < header.table_stop or not (edges[1:] > edges[:-1]).all():
            raise ValueError("blocks lie outside the frame or begin at the same byte")
        stops = edges[np.searchsorted(edges, starts, "right")]  # at the start of the next block in the frame
        self.header = header
        self._extents = list(zip(starts.tolist(), stops.tolist(), strict=True))

    def blocks(self, start: int, stop: int) -> tuple[int, int]:
        """The blocks ``[first, last)`` of the decoded bytes ``[start, stop)``."""
        return start // self.header.blocksize, -(-stop // self.header.blocksize)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The decoded bytes of the blocks ``[first, last)``."""
        return first * self.header.blocksize, min(last * self.header.blocksize, self.header.nbytes)

    def extents(self, first: int, last: int) -> list[tuple[int, int]]:
        """The byte ranges of the blocks ``[first, last)`` in the frame."""
        return self._extents[first:last]

    def part(self, source: Source, first: int, last: int) -> bytes:
        """A frame of only the blocks ``[first, last)``."""
        header, (start, stop) = self.header, self.span(first, last)
        blocks = [source(*extent) for extent in self.extents(first, last)]
        *table, cbytes = itertools.accumulate(map(len, blocks), initial=HEADER_BYTES + 4 * len(blocks))
        # The short last block is never split; alone it would look like a full one.
        flags = header.flags | (_NOT_SPLIT if stop - start < header.blocksize else 0)
        sizes = header.typesize, stop - start, min(header.blocksize, stop - start), cbytes
        head = _HEADER.pack(header.version, header.codec_version, flags, *sizes)
        return b"".join((head, struct.pack(f"<{len(table)}i", *table), *blocks))


def decompress(data: Buffer, out: NDArray[Any] | None, limit: int) -> Any:
    """Decode a whole frame of at most ``limit`` decoded bytes, or with ``out`` (uint8), of exactly its size.

    The header is checked before, as the library trusts it. Raises `ValueError`, and the library's `RuntimeError`.
    """
    header = BloscHeader.parse(data, limit, exact=out is not None)
    if header.cbytes != len(data):
        raise ValueError(f"the header says {header.cbytes} bytes, there are {len(data)}")
    snappy = header.flags >> 5 == _SNAPPY and not header.stored
    return blosc.decompress(_recoded(data, header, _LZ4, _from_snappy) if snappy else data, out)


def decompress_rows(rows: Sequence[Buffer], out: NDArray[Any]) -> bool:
    """Decode frames of one block each into the rows of ``out`` (uint8) by one call of the library, as a single frame.
    Returns False if that is not possible, also for invalid frames, for which `decompress` raises."""
    count, size = out.shape
    if any(len(frame) < HEADER_BYTES + 8 or frame[:12] != rows[0][:12] for frame in rows) or out.size > BLOSC_MAX_BYTES:
        return False
    try:
        header = BloscHeader.parse(rows[0], size)
        streams = header.streams(0) if header.blocksize == size and not header.stored else 0
        if not streams or header.flags >> 5 == _SNAPPY or not all(_is_one_block(frame, streams) for frame in rows):
            return False
        *starts, stop = itertools.accumulate(map(len, rows), initial=HEADER_BYTES + 4 * count)
        head = _HEADER.pack(*header[:4], out.size, size, stop)
        table = struct.pack(f"<{count}i", *[start + HEADER_BYTES + 4 for start in starts])
        blosc.decompress(b"".join((head, table, *rows)), out.reshape(-1))
    except (ValueError, RuntimeError):
        return False
    return True


def _is_one_block(frame: Buffer, streams: int) -> bool:
    """Whether a frame consists of one block of ``streams`` streams."""
    position, size = HEADER_BYTES + 4, len(frame)
    if _ENDS.unpack_from(frame, 12) != (size, position):
        return False
    for _ in range(streams):
        length = _LENGTH.unpack_from(frame, position)[0] if position <= size - 4 else 0
        if length <= 0:
            return False
        position += 4 + length
    return position == size


def compress(data: memoryview, config: CodecConfig, typesize: int) -> bytes:
    """Encode into a frame; ``config`` as in ``.zarray``. Raises `ValueError` for data that are too large."""
    if data.nbytes > BLOSC_MAX_BYTES:
        raise ValueError(f"a blosc frame holds at most {BLOSC_MAX_BYTES} bytes, the chunk has {data.nbytes}")
    name, level = config.get("cname", "lz4"), config.get("clevel", 5)
    options = config.get("shuffle", 1), config.get("blocksize", 0), config.get("typesize") or typesize
    frame: bytes = blosc.compress(data, b"lz4" if name == "snappy" else name.encode(), level, *options)
    if name != "snappy":
        return frame
    header = BloscHeader.parse(frame, data.nbytes)
    if not header.stored:
        frame = _recoded(frame, header, _SNAPPY, _to_snappy)
        if len(frame) <= HEADER_BYTES + data.nbytes:
            return frame
        frame = blosc.compress(data, b"lz4", 0, *options)
    return bytes((*frame[:2], frame[2] & _NO_CODEC | _SNAPPY << 5)) + frame[3:]  # the flags are the third byte


# --- snappy, which the library lacks: its streams are transcoded from and to LZ4 ----------------------------------


def _recoded(data: Buffer, header: BloscHeader, codec: int, recode: Callable[[memoryview, int], Buffer]) -> bytes:
    """The frame with its streams transcoded to another codec. ``recode`` takes a stream and its decoded size; streams
    of that size are uncompressed."""
    view = memoryview(data)
    if header.nblocks > 1 and header.blocksize < 64:  # never written by the library
        raise ValueError(f"blocks of {header.blocksize} bytes")
    table, streams, position = [], [], header.table_stop
    for block, offset in enumerate(struct.unpack_from(f"<{header.nblocks}i", view, HEADER_BYTES)):
        start = offset
        table.append(position)
        count = header.streams(block)
        size = header.block_nbytes(block) // count
        for _ in range(count):
            length = _LENGTH.unpack_from(view, start)[0] if header.table_stop <= start <= len(view) - 4 else -1
            stop = start + 4 + length
            if length <= 0 or stop > len(view):
                raise ValueError("a stream lies outside the frame")
            stream = recode(view[start + 4 : stop], size)
            streams += [_LENGTH.pack(len(stream)), stream]
            position += 4 + len(stream)
            start = stop
    flags = header.flags & _NO_CODEC | codec << 5
    head = _HEADER.pack(*header[:2], flags, *header[3:6], position)
    return b"".join((head, struct.pack(f"<{len(table)}i", *table), *streams))


def _from_snappy(stream: memoryview, size: int) -> Buffer:
    """A stream of snappy, decoded."""
    if len(stream) == size:
        return stream
    out = bytearray(size)
    try:
        is_right = cramjam.snappy.decompress_raw_len(stream) == size
        if is_right and cramjam.snappy.decompress_raw_into(stream, out) == size:
            return out
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error
    raise ValueError(f"a stream does not hold {size} bytes")


def _to_snappy(stream: memoryview, size: int) -> Buffer:
    """A stream of LZ4 as snappy, or uncompressed if that is not smaller."""
    raw: Buffer = stream if len(stream) == size else lz4.decompress(_LENGTH.pack(size) + stream)
    packed = bytes(cramjam.snappy.compress_raw(raw))
    return packed if len(packed) < size else raw
