"""Single items of a Blosc frame compressed with LZ4: each stream is decoded only as far as they need.

A block is stored as one stream, or as one for each byte of an item where Blosc has split it, each behind its size. LZ4
decodes a stream from its beginning and can stop anywhere. A stream as long as its decoded form is not compressed, and
any byte of it can be read directly. [c-blosc README_CHUNK_FORMAT and ``blosc_d``]
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hyperslab.engine.codecs_blosc import HEADER_BYTES, BloscFrame, BloscHeader
from hyperslab.engine.codecs_lz4 import CAN_STOP, address, decode_beginning
from hyperslab.engine.partial import Stored
from hyperslab.engine.runs import Run, merge_runs
from hyperslab.engine.selection import Indices

_SIZE = struct.Struct("<i")
SMALLEST: Final = 8 << 10
"""Bytes of a stream that are decoded in the time that it takes Python to have that done."""
_LATE: Final = 0.85
"""Up to this share of a frame, decoding its streams one by one is faster than one call for all of it."""
_GAP: Final = 8 << 10
"""Bytes of a stored stream that are copied in the time that asking once more takes."""


class Stream(NamedTuple):
    """A stream of a block: its decoded size, where it lies in the decoded frame, and which bytes of it are wanted.

    ``start`` counts from the beginning of the frame, ``wanted`` (sorted, disjoint) from that of the stream.
    """

    start: int
    nbytes: int
    wanted: Sequence[Run]


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where the bytes of some items lie in a decoded frame that is left shuffled.

    ``bytes``: of each item, on one more axis than the items. ``streams``: those of which something is wanted, by block.
    ``late``: the last of them is so near the end that nearly all has to be decoded to reach it. [c-blosc
    shuffle-generic.h]
    """

    bytes: Indices
    streams: Sequence[tuple[int, Sequence[Stream]]]
    late: bool

    @classmethod
    def find(cls, items: Indices, runs: Sequence[Run], header: BloscHeader, itemsize: int) -> Places:
        """``items``: of any shape; ``runs`` of items hold all of them; both counted in the order of the chunk."""
        places = _bytes_of(items, header, itemsize)
        if not alone(header):
            return cls(places, (), late=True)
        if header.stored:
            wanted = [(start * itemsize, stop * itemsize) for start, stop in runs]
            return cls(places, [(0, [Stream(0, header.nbytes, wanted)])], late=False)
        streams = [(block, _streams(block, inside, header, itemsize)) for block, inside in _cut(runs, header, itemsize)]
        needed = sum(stream.wanted[-1][1] for _, some in streams for stream in some if stream.wanted)
        return cls(places, streams, needed > _LATE * header.nbytes)

    def decode(self, frame: BloscFrame, stored: Stored, raw: NDArray[Any]) -> None:
        """Decode what is wanted into ``raw`` (uint8, as long as the decoded frame), and leave it shuffled.

        One loop, because what Python does for each stream holds the interpreter lock.
        """
        memory, out, need = memoryview(stored.memory), raw.data, stored.need
        source, target = address(memory), address(raw.data)
        extents = frame.extents_of([block for block, _ in self.streams])
        for (_, streams), (first, stop) in zip(self.streams, extents, strict=True):
            at = first
            for start, nbytes, wanted in streams:
                need(at, at + _SIZE.size)
                (cbytes,) = _SIZE.unpack_from(memory, at)
                at += _SIZE.size
                if not 0 <= cbytes <= stop - at:
                    raise ValueError(f"a stream of {cbytes} bytes where its block has {stop - at} left")
                if cbytes == nbytes:
                    for a, b in wanted:
                        need(at + a, at + b)
                        out[start + a : start + b] = memory[at + a : at + b]
                elif wanted:
                    need(at, at + cbytes)
                    decode_beginning(source + at, cbytes, target + start, wanted[-1][1])
                at += cbytes

    def copy(self, stored: Stored, raw: NDArray[Any]) -> None:
        """As `decode`, for a frame that is stored as it is."""
        memory, out = memoryview(stored.memory)[HEADER_BYTES:], raw.data
        for start, stop in self.streams[0][1][0].wanted:
            stored.need(HEADER_BYTES + start, HEADER_BYTES + stop)
            out[start:stop] = memory[start:stop]


def alone(header: BloscHeader) -> bool:
    """Whether single streams of a frame can be decoded, and are large enough for that to pay."""
    return header.stored or (header.lz4 and CAN_STOP and header.blocksize >= SMALLEST * header.streams(0))


def aligned(header: BloscHeader, itemsize: int) -> bool:
    """Whether it can be told where the bytes of an item lie in a frame that is left shuffled."""
    alike = not header.shuffled or header.typesize == itemsize
    whole = header.blocksize and not header.blocksize % itemsize and not header.blocksize % header.typesize
    return header.stored or (alike and bool(whole) and not header.bitshuffled)


def _bytes_of(items: Indices, header: BloscHeader, itemsize: int) -> Indices:
    """Where each byte of some items lies."""
    if not header.shuffled:
        return np.add.outer(items * itemsize, np.arange(itemsize))
    length = header.blocksize // itemsize
    blocks = items >> length.bit_length() - 1 if length.bit_count() == 1 else items // length  # 10 times as fast
    rest = header.span(header.nblocks - 1) // itemsize
    apart = length if rest == length else np.where(blocks == header.nblocks - 1, rest, length)
    first = items + blocks * (header.blocksize - length)
    return first[..., None] + np.multiply.outer(apart, np.arange(itemsize))


def _cut(runs: Sequence[Run], header: BloscHeader, itemsize: int) -> Iterator[tuple[int, list[Run]]]:
    """Runs of items, cut where blocks end: block by block, in items of each."""
    length = header.blocksize // itemsize
    pieces = (
        (block, (max(start - block * length, 0), min(stop - block * length, length)))
        for start, stop in runs
        for block in range(start // length, -(-stop // length))
    )
    for block, group in itertools.groupby(pieces, key=lambda piece: piece[0]):
        yield block, [run for _, run in group]


def _streams(block: int, runs: Sequence[Run], header: BloscHeader, itemsize: int) -> list[Stream]:
    """The streams of a block up to the last one of which ``runs`` of its items want something."""
    nbytes, count = header.span(block), header.streams(block)
    each = nbytes // count
    if header.shuffled:
        length = nbytes // itemsize
        bounds = (runs[0][0], (itemsize - 1) * length + runs[-1][1])
        wanted = [merge_runs(runs, _GAP)] * count if count == itemsize else [[bounds]]
    else:
        wanted = _clipped([(start * itemsize, stop * itemsize) for start, stop in runs], each)
    start = block * header.blocksize
    return [Stream(start + i * each, each, some) for i, some in enumerate(wanted)]


def _clipped(runs: Sequence[Run], each: int) -> list[list[Run]]:
    """The parts of some runs of bytes that lie in each stream of ``each`` bytes, counted from its beginning."""
    starts = range(0, runs[-1][1], each)
    clipped = ([(max(a - at, 0), min(b - at, each)) for a, b in runs if a < at + each and b > at] for at in starts)
    return [merge_runs(some, _GAP) for some in clipped]
