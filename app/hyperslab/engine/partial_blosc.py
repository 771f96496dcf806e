"""Decode the blocks of a Blosc frame that hold a part of a chunk."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hyperslab.engine.codecs_blosc import HEADER_BYTES, BloscFrame, BloscHeader, Source, decompress
from hyperslab.engine.codecs_chain import Buffer, flat_bytes, reason_of
from hyperslab.engine.partial import RANGE_GAP_BYTES, WORTH_SHARE, Part, PartialDecoder, length_of, source_of
from hyperslab.engine.runs import Run, merge_runs
from hyperslab.errors import ChunkCorrupt

NDArray = npt.NDArray[Any]

SURGERY_FAST: Final = 96 << 10
SURGERY_SLOW: Final = 16 << 10
"""Bytes that are decoded in the time that making and entering one small frame takes, by fast and by slow codecs."""
LIKELY_BLOCK: Final = 8 << 10
"""Blocks are rarely smaller; tells how long a table of blocks may be before it is read."""
USUAL_BLOCK: Final = 256 << 10
"""What Blosc makes of large chunks unless told otherwise, give or take."""


class Blocks:
    """The block size of an array's frames, as the latest one stated it: a good guess for the next one, as one program
    writes the same in all. Nothing that must be right depends on it."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class BloscPartial(PartialDecoder):
    """One Blosc frame a chunk."""

    blocks: Blocks = field(default_factory=Blocks, init=False)

    def worth_it(self, runs: Sequence[Run]) -> bool:
        few = length_of(self._spans(runs)) <= WORTH_SHARE * self.nbytes
        return few and (self.blocks.size is None or self.work(runs) < self.nbytes)

    def work(self, runs: Sequence[Run]) -> int:
        """Whole blocks."""
        return self._work(runs, self.blocks.size or USUAL_BLOCK)

    def usual_work(self, runs: Sequence[Run]) -> int:
        return self._work(runs, USUAL_BLOCK)

    def _work(self, runs: Sequence[Run], size: int) -> int:
        blocks = merge_runs([(start // size, -(-stop // size)) for start, stop in self._spans(runs)], 0)
        return min(self.nbytes, size * length_of(blocks))

    @property
    def head_bytes(self) -> int:
        return HEADER_BYTES + 4 * -(-self.nbytes // LIKELY_BLOCK)

    def ranges(self, head: Buffer, runs: Sequence[Run], key: str) -> list[Run] | None:
        try:
            return self._ranges(head, runs)
        except (ValueError, RuntimeError) as error:
            raise ChunkCorrupt(key, "blosc", reason_of(error)) from error

    def decode_parts(
        self, head: Buffer, parts: Sequence[Part], runs: Sequence[Run], *, key: str, memory: NDArray | None = None
    ) -> NDArray:
        try:
            return self._decode_parts(head, source_of(parts), runs, memory)
        except (ValueError, RuntimeError) as error:
            raise ChunkCorrupt(key, "blosc", reason_of(error)) from error

    def decode_runs(
        self, data: Buffer, runs: Sequence[Run], *, key: str, memory: NDArray | None = None
    ) -> NDArray | None:
        try:
            frame = self._frame(data)
            stretches = [] if frame is None else self._stretches(frame, runs)
            if frame is None or not _saves(frame, stretches):
                return None
            return self._decode_stretches(frame, source_of([(0, data)]), stretches, runs, memory)
        except (ValueError, RuntimeError) as error:
            raise ChunkCorrupt(key, "blosc", reason_of(error)) from error

    def decode_run_into(self, data: Buffer, start: int, out: NDArray, key: str) -> bool:
        first = start * self.dtype.itemsize
        try:
            frame = self._frame(data)
            if frame is None or not _saves(frame, [frame.blocks(first, first + out.nbytes)]):
                return False
            _decode_span(frame, source_of([(0, data)]), first, flat_bytes(out))
        except (ValueError, RuntimeError) as error:
            raise ChunkCorrupt(key, "blosc", reason_of(error)) from error
        self._clean(out)
        return True

    def _ranges(self, head: Buffer, runs: Sequence[Run]) -> list[Run] | None:
        header = self._header(head, None)
        if len(head) < header.table_stop:
            return None
        if header.stored:
            extents = [(HEADER_BYTES + start, HEADER_BYTES + stop) for start, stop in self._spans(runs)]
        else:
            frame = BloscFrame(header, head)
            stretches = self._stretches(frame, runs)
            extents = sorted(extent for stretch in stretches for extent in frame.extents(*stretch))
        spans = merge_runs(extents, RANGE_GAP_BYTES)
        return spans if length_of(spans) <= WORTH_SHARE * header.cbytes else None

    def _decode_parts(self, head: Buffer, source: Source, runs: Sequence[Run], memory: NDArray | None) -> NDArray:
        header = BloscHeader.parse(head, self.nbytes)
        if not header.stored:
            frame = BloscFrame(header, head)
            return self._decode_stretches(frame, source, self._stretches(frame, runs), runs, memory)
        raw = self._memory(memory)
        for start, stop in self._spans(runs):
            raw[start:stop] = flat_bytes(source(HEADER_BYTES + start, HEADER_BYTES + stop))
        return self._finish(raw, runs)

    def _decode_stretches(
        self, frame: BloscFrame, source: Source, stretches: Sequence[Run], runs: Sequence[Run], memory: NDArray | None
    ) -> NDArray:
        raw = self._memory(memory)
        for first, last in stretches:
            start, stop = frame.span(first, last)
            decompress(frame.part(source, first, last), raw[start:stop], stop - start)
        return self._finish(raw, runs)

    def _frame(self, data: Buffer) -> BloscFrame | None:
        """The frame with its table; None where decoding all of it is better."""
        header = self._header(data, len(data))
        return None if header.stored or header.nblocks < 2 else BloscFrame(header, data)

    def _header(self, head: Buffer, size: int | None) -> BloscHeader:
        """The header of a frame of ``size`` bytes, where that is known."""
        header = BloscHeader.parse(head, self.nbytes)
        self._note(header)
        if size is not None and header.cbytes != size:
            raise ValueError(f"the header says {header.cbytes} bytes, there are {size}")
        return header

    def _note(self, header: BloscHeader) -> None:
        """Any part of a frame that is not compressed can be read alone."""
        self.blocks.size = None if header.stored else header.blocksize or None

    def _stretches(self, frame: BloscFrame, runs: Sequence[Run]) -> list[Run]:
        """The blocks that hold the runs."""
        return merge_runs([frame.blocks(start, stop) for start, stop in self._spans(runs)], 0)


def _decode_span(frame: BloscFrame, source: Source, start: int, out: NDArray) -> None:
    """Decode the bytes from ``start`` that fill ``out``: blocks that lie wholly in it straight into it."""
    stop = start + len(out)
    first, last = frame.blocks(start, stop)
    whole_first, whole_last = -(-start // frame.header.blocksize), stop // frame.header.blocksize
    cuts = sorted({first, last, *((whole_first, whole_last) if whole_last > whole_first else ())})
    for a, b in itertools.pairwise(cuts):
        begin, end = frame.span(a, b)
        inside = start <= begin and end <= stop
        place = out[begin - start : end - start] if inside else np.empty(end - begin, np.uint8)
        decompress(frame.part(source, a, b), place, end - begin)
        if not inside:
            low, high = max(begin, start), min(end, stop)
            out[low - start : high - start] = place[low - begin : high - begin]


def _saves(frame: BloscFrame, stretches: Sequence[Run]) -> bool:
    """Whether decoding these blocks is faster than decoding all: what is saved against what surgery costs.

    Surgery costs some time for each stretch, and a copy of the blocks' stored bytes. Time is counted in bytes here: LZ4
    decodes about 10 of them in a nanosecond, copying is as fast, and Zstandard decodes one or two.
    """
    header = frame.header
    needed = length_of([frame.span(*stretch) for stretch in stretches])
    copied = needed * header.cbytes / header.nbytes
    each, copy = (SURGERY_FAST, 1.5) if header.fast else (SURGERY_SLOW, 0.25)
    return header.nbytes - needed > each * len(stretches) + copy * copied
