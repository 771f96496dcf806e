"""Blosc frames: what the header says, checked before anything is decoded; the library itself; and frames made of parts.

A frame is a 16-byte header, a table with the offset of each block, and the blocks in any order. Blocks are independent:
to decode some, a small valid frame is put together from a header, a table and only those blocks, and is given to the
ordinary decoder, which takes care of shuffles, split streams and codecs. [c-blosc README_CHUNK_FORMAT]
"""

from __future__ import annotations

import bisect
import itertools
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import cramjam
from numcodecs import blosc, lz4
from numpy.typing import NDArray

from hyperslab.engine.codecs_chain import Buffer, Config

blosc.use_threads = False  # chunks are decoded side by side already, and its global threads would serialise them

HEADER_BYTES: Final = 16
MAX_BYTES: Final = 2**31 - 1 - HEADER_BYTES
"""The most that a frame can hold, header included."""

Source: TypeAlias = Callable[[int, int], Buffer]
"""The bytes ``[start, stop)`` of a stored frame."""

_HEADER = struct.Struct("<BBBBiii")
_FLAGS_AT: Final = 2
_STORED: Final = 0x02
_NOT_SPLIT: Final = 0x10
_MOST_SPLIT: Final = 16
_LEAST_SPLIT: Final = 128
"""Blocks are split into one stream for each byte of an item up to so many, none of fewer bytes. [c-blosc blosc.c]"""
_LZ4: Final = 1
_SNAPPY: Final = 2
_NO_CODEC: Final = 0x1F
_LEAST_BLOCK: Final = 64
"""Blocks of fewer bytes are in no frame of several that the library makes."""
_LENGTH = struct.Struct("<i")


class BloscHeader(NamedTuple):
    """``typesize``, ``nbytes`` (decoded), ``blocksize`` and ``cbytes`` (the whole frame) in bytes."""

    version: int
    codec_version: int
    flags: int
    typesize: int
    nbytes: int
    blocksize: int
    cbytes: int

    @classmethod
    def parse(cls, head: Buffer, nbytes: int) -> BloscHeader:
        """The header of a frame that holds ``nbytes``; raises `ValueError` where it says something else."""
        if len(head) < HEADER_BYTES:
            raise ValueError(f"{len(head)} bytes are too few for the header of a frame")
        header = cls(*_HEADER.unpack_from(head))
        header.check(nbytes)
        if header.nbytes != nbytes:
            raise ValueError(f"the header says {header.nbytes} bytes decoded, expected {nbytes}")
        return header

    def check(self, limit: int) -> None:
        """Raise `ValueError` for what cannot be decoded into at most ``limit`` bytes."""
        if not 1 <= self.version <= 2 or self.typesize == 0 or self.blocksize < 0 or self.cbytes < HEADER_BYTES:
            raise ValueError("this is not the header of a frame")
        if not 0 <= self.nbytes <= limit:
            raise ValueError(f"the header says {self.nbytes} bytes decoded, expected {limit}")
        least = HEADER_BYTES + self.nbytes if self.stored else self.table_stop
        if self.cbytes < least:
            raise ValueError(f"the header says {self.cbytes} bytes, a frame of what it says has {least} or more")

    @property
    def stored(self) -> bool:
        """The data follow the header as they are ("memcpyed"): no table, no compression, no shuffle."""
        return bool(self.flags & _STORED)

    @property
    def snappy(self) -> bool:
        return self.flags >> 5 == _SNAPPY and not self.stored

    @property
    def fast(self) -> bool:
        """Decoding is nearly as fast as copying (BloscLZ and LZ4, not zlib and Zstandard)."""
        return self.flags >> 5 <= _LZ4

    @property
    def nblocks(self) -> int:
        return -(-self.nbytes // self.blocksize) if self.blocksize else 0

    @property
    def table_stop(self) -> int:
        """Where the table of offsets ends."""
        return HEADER_BYTES if self.stored else HEADER_BYTES + 4 * self.nblocks

    def span(self, block: int) -> int:
        """How many bytes a block holds, decoded."""
        return min(self.blocksize, self.nbytes - block * self.blocksize)

    def streams(self, block: int) -> int:
        """In how many streams a block is stored, all of them of the same size when decoded."""
        if self.flags & _NOT_SPLIT or self.typesize > _MOST_SPLIT or self.span(block) < self.blocksize:
            return 1
        return self.typesize if self.blocksize // self.typesize >= _LEAST_SPLIT else 1


@dataclass(frozen=True, slots=True, eq=False)
class BloscFrame:
    """A frame of which parts can be taken: the header, and the beginning of the frame up to ``header.table_stop``.

    Not for stored frames. Raises `ValueError` where the table cannot be true.
    """

    header: BloscHeader
    head: Buffer

    def __post_init__(self) -> None:
        if not 0 < self.header.blocksize <= self.header.nbytes:
            raise ValueError(f"blocks of {self.header.blocksize} bytes in a frame of {self.header.nbytes}")
        if len(self.head) < self.header.table_stop:
            raise ValueError("the table of blocks ends before its end")

    def blocks(self, start: int, stop: int) -> tuple[int, int]:
        """The blocks ``[first, last)`` that hold the decoded bytes ``[start, stop)``."""
        return start // self.header.blocksize, -(-stop // self.header.blocksize)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The decoded bytes that blocks ``[first, last)`` hold."""
        return first * self.header.blocksize, min(last * self.header.blocksize, self.header.nbytes)

    def extents(self, first: int, last: int) -> list[tuple[int, int]]:
        """Where blocks ``[first, last)`` are stored: one extent where they follow each other, else one for each."""
        starts = self._starts(first, min(last + 1, self.header.nblocks))
        edges = starts if last < self.header.nblocks else (*starts, self.header.cbytes)
        if not self._in_order(edges):
            return self._scattered(starts[: last - first])
        return [(edges[0], edges[-1])]

    def part(self, source: Source, first: int, last: int) -> bytes:
        """A frame of only the blocks ``[first, last)``."""
        extents = self.extents(first, last)
        starts = self._starts(first, last)
        at = HEADER_BYTES + 4 * (last - first)
        if len(extents) == 1:
            table = [at - starts[0] + start for start in starts]
        else:
            table = list(itertools.accumulate((stop - start for start, stop in extents[:-1]), initial=at))
        blocks = [source(start, stop) for start, stop in extents]
        head = self._part_header(first, last, at + sum(map(len, blocks)))
        return b"".join((head, struct.pack(f"<{len(table)}i", *table), *blocks))

    def _starts(self, first: int, last: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{last - first}i", self.head, HEADER_BYTES + 4 * first)

    def _scattered(self, starts: tuple[int, ...]) -> list[tuple[int, int]]:
        """A block ends at the latest where the next one in the file begins."""
        edges = [*sorted(self._starts(0, self.header.nblocks)), self.header.cbytes]
        self._check_inside(edges[0], edges[-1])
        if not all(map(operator.lt, edges, edges[1:])):
            raise ValueError("two blocks of the frame begin at the same byte")
        return [(start, edges[bisect.bisect_right(edges, start)]) for start in starts]

    def _in_order(self, edges: Sequence[int]) -> bool:
        """Whether blocks follow each other; raises `ValueError` where they do, outside the frame."""
        if not all(map(operator.lt, edges, edges[1:])):
            return False
        self._check_inside(edges[0], edges[-1])
        return True

    def _check_inside(self, start: int, stop: int) -> None:
        if start < self.header.table_stop or stop > self.header.cbytes:
            raise ValueError("a block lies outside the frame")

    def _part_header(self, first: int, last: int, cbytes: int) -> bytes:
        """The short last block of a frame is never split; where it is alone, and looks full, the header says so."""
        header = self.header
        start, stop = self.span(first, last)
        alone = stop - start < header.blocksize
        flags = header.flags | (_NOT_SPLIT if alone else 0)
        blocksize = min(header.blocksize, stop - start)
        return _HEADER.pack(
            header.version, header.codec_version, flags, header.typesize, stop - start, blocksize, cbytes
        )


def decompress(data: Buffer, out: NDArray[Any] | None, limit: int) -> Any:
    """Decode a whole frame of at most ``limit`` bytes (exactly that where ``out`` is given: uint8 of that size).

    The library believes the sizes in the header, so they are first checked against the bytes that are there. Raises
    `ValueError` and, from the library, `RuntimeError`.
    """
    if len(data) < HEADER_BYTES:
        raise ValueError(f"{len(data)} bytes are too few for the header of a frame")
    header = BloscHeader(*_HEADER.unpack_from(data))
    header.check(limit)
    if header.cbytes != len(data):
        raise ValueError(f"the header says {header.cbytes} bytes, there are {len(data)}")
    if out is not None and header.nbytes != limit:
        raise ValueError(f"the header says {header.nbytes} bytes decoded, expected {limit}")
    return blosc.decompress(_recoded(data, header, _LZ4, _from_snappy) if header.snappy else data, out)


def compress(data: memoryview, config: Config, typesize: int) -> bytes:
    """Encode into one frame; ``config`` as in ``.zarray``. Raises `ValueError` for more than `MAX_BYTES`."""
    if data.nbytes > MAX_BYTES:
        raise ValueError(f"a blosc frame holds at most {MAX_BYTES} bytes, the chunk has {data.nbytes}")
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
    return bytes((*frame[:_FLAGS_AT], frame[_FLAGS_AT] & _NO_CODEC | _SNAPPY << 5)) + frame[_FLAGS_AT + 1 :]


# --- snappy, which the library is built without: its streams, recoded one by one ----------------------------------


def _recoded(data: Buffer, header: BloscHeader, codec: int, recode: Callable[[memoryview, int], Buffer]) -> bytes:
    """A frame of the same blocks whose streams are compressed otherwise: ``recode`` is given the bytes of each, and how
    many they are decoded. A stream of just so many is not compressed."""
    view = memoryview(data)
    if header.nblocks > 1 and header.blocksize < _LEAST_BLOCK:
        raise ValueError(f"blocks of {header.blocksize} bytes")
    table, streams, at = [], [], header.table_stop
    for block, offset in enumerate(struct.unpack_from(f"<{header.nblocks}i", view, HEADER_BYTES)):
        start = offset
        table.append(at)
        count = header.streams(block)
        size = header.span(block) // count
        for _ in range(count):
            length = _LENGTH.unpack_from(view, start)[0] if header.table_stop <= start <= len(view) - 4 else -1
            stop = start + 4 + length
            if length <= 0 or stop > len(view):
                raise ValueError("a stream lies outside the frame")
            stream = recode(view[start + 4 : stop], size)
            streams += [_LENGTH.pack(len(stream)), stream]
            at += 4 + len(stream)
            start = stop
    flags = header.flags & _NO_CODEC | codec << 5
    return b"".join(
        (_HEADER.pack(*header[:2], flags, *header[3:6], at), struct.pack(f"<{len(table)}i", *table), *streams)
    )


def _from_snappy(stream: memoryview, size: int) -> Buffer:
    """Not compressed."""
    if len(stream) == size:
        return stream
    out = bytearray(size)
    try:
        found = (
            cramjam.snappy.decompress_raw_into(stream, out) if cramjam.snappy.decompress_raw_len(stream) == size else -1
        )
    except cramjam.DecompressionError as error:
        raise ValueError(str(error)) from error
    if found != size:
        raise ValueError(f"a stream does not hold {size} bytes")
    return out


def _to_snappy(stream: memoryview, size: int) -> Buffer:
    """From LZ4; not compressed where that takes no fewer bytes."""
    raw: Buffer = stream if len(stream) == size else lz4.decompress(_LENGTH.pack(size) + stream)
    packed = bytes(cramjam.snappy.compress_raw(raw))
    return packed if len(packed) < size else raw
