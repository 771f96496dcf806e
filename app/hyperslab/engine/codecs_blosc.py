"""Blosc frames: what the header says, checked before anything is decoded; the library itself; and frames made of parts.

A frame is a 16-byte header, a table with the offset of each block, and the blocks in any order. Blocks are independent:
to decode some, a small valid frame is put together from a header, a table and only those blocks, and is given to the
ordinary decoder, so that shuffles, split streams and codecs are none of our business. [c-blosc README_CHUNK_FORMAT]
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numcodecs import blosc  # type: ignore[import-untyped]
from numpy.typing import NDArray

from hyperslab.engine.codecs_chain import Buffer, Config

blosc.use_threads = False  # chunks are decoded side by side already, and its global threads would serialise them

HEADER_BYTES: Final = 16
MAX_BYTES: Final = 2**31 - 1 - HEADER_BYTES
"""The most that a frame can hold, header included."""

Source: TypeAlias = Callable[[int, int], Buffer]
"""The bytes ``[start, stop)`` of a stored frame."""

_HEADER = struct.Struct("<BBBBiii")
_STORED: Final = 0x02
_NOT_SPLIT: Final = 0x10
_SNAPPY: Final = 2


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
        if self.flags >> 5 == _SNAPPY and not self.stored:
            raise ValueError("frames compressed by snappy cannot be decoded: the library was built without it")

    @property
    def stored(self) -> bool:
        """The data follow the header as they are ("memcpyed"): no table, no compression, no shuffle."""
        return bool(self.flags & _STORED)

    @property
    def nblocks(self) -> int:
        return -(-self.nbytes // self.blocksize) if self.blocksize else 0

    @property
    def table_stop(self) -> int:
        """Where the table of offsets ends."""
        return HEADER_BYTES if self.stored else HEADER_BYTES + 4 * self.nblocks


@dataclass(frozen=True, slots=True, eq=False)
class BloscFrame:
    """A frame with its table: block i lies in the bytes ``starts[i]`` to ``stops[i]``. Not for stored frames."""

    header: BloscHeader
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    in_order: bool

    @classmethod
    def parse(cls, header: BloscHeader, head: Buffer) -> BloscFrame:
        """Read the table (``head`` reaches to ``header.table_stop``); raises `ValueError` where it cannot be true."""
        count = header.nblocks
        if not 0 < header.blocksize <= header.nbytes:
            raise ValueError(f"blocks of {header.blocksize} bytes in a frame of {header.nbytes}")
        starts = np.frombuffer(head, "<i4", count, HEADER_BYTES).astype(np.int64)
        edges = np.append(starts, header.cbytes)
        in_order = bool((edges[1:] > edges[:-1]).all())
        if not in_order:
            edges = np.append(np.sort(starts), header.cbytes)
        if edges[0] < header.table_stop or not (in_order or (edges[1:] > edges[:-1]).all()):
            raise ValueError("the table of blocks does not fit the frame")
        stops = edges[1:] if in_order else edges[np.searchsorted(edges, starts, side="right")]
        return cls(header, starts, stops, in_order)

    def blocks(self, start: int, stop: int) -> tuple[int, int]:
        """The blocks ``[first, last)`` that hold the decoded bytes ``[start, stop)``."""
        return start // self.header.blocksize, -(-stop // self.header.blocksize)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The decoded bytes that blocks ``[first, last)`` hold."""
        return first * self.header.blocksize, min(last * self.header.blocksize, self.header.nbytes)

    def extents(self, first: int, last: int) -> list[tuple[int, int]]:
        """Where blocks ``[first, last)`` are stored: one extent where they follow each other."""
        if self.in_order:
            return [(int(self.starts[first]), int(self.stops[last - 1]))]
        return list(zip(self.starts[first:last].tolist(), self.stops[first:last].tolist(), strict=True))

    def part(self, source: Source, first: int, last: int) -> bytes:
        """A frame of only the blocks ``[first, last)``."""
        blocks = [source(start, stop) for start, stop in self.extents(first, last)]
        lengths = self.stops[first:last] - self.starts[first:last]
        table_stop = HEADER_BYTES + 4 * (last - first)
        table = np.full(last - first, table_stop, "<i4")
        table[1:] += np.cumsum(lengths[:-1], dtype=np.int32)
        return b"".join((self._part_header(first, last, table_stop + int(lengths.sum())), table.tobytes(), *blocks))

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

    The library believes the sizes in the header, so they are compared with what is there first. Raises `ValueError`
    and, from the library, `RuntimeError`.
    """
    if len(data) < HEADER_BYTES:
        raise ValueError(f"{len(data)} bytes are too few for the header of a frame")
    header = BloscHeader(*_HEADER.unpack_from(data))
    header.check(limit)
    if header.cbytes != len(data):
        raise ValueError(f"the header says {header.cbytes} bytes, there are {len(data)}")
    if out is not None and header.nbytes != limit:
        raise ValueError(f"the header says {header.nbytes} bytes decoded, expected {limit}")
    return blosc.decompress(data, out)


def compress(data: memoryview, config: Config, typesize: int) -> bytes:
    """Encode into one frame; ``config`` as in ``.zarray``. Raises `ValueError` for more than `MAX_BYTES`."""
    if data.nbytes > MAX_BYTES:
        raise ValueError(f"a blosc frame holds at most {MAX_BYTES} bytes, the chunk has {data.nbytes}")
    frame: bytes = blosc.compress(
        data,
        config.get("cname", "lz4").encode(),
        config.get("clevel", 5),
        config.get("shuffle", 1),
        config.get("blocksize", 0),
        config.get("typesize") or typesize,
    )
    return frame
