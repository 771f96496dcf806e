"""Partial decoding: the blocks of a Blosc frame, or the bytes of an uncompressed chunk, that hold a part of a chunk."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from hyperslab.engine.blosc import HEADER_BYTES, BloscFrame, BloscHeader, Source, decompress
from hyperslab.engine.chain import Buffer, flat_bytes, reason_of
from hyperslab.engine.codec_config import CodecConfig
from hyperslab.engine.dtypes import DataType
from hyperslab.engine.runs import Run, merge_runs
from hyperslab.errors import ChunkCorrupt

NDArray = npt.NDArray[Any]
Part: TypeAlias = tuple[int, Buffer]
"""Some bytes of a stored chunk, and where they begin in it."""

WORTH_SHARE: Final = 0.6
"""Up to this share of a chunk, reading and decoding only that is faster than all of it."""
GAP_BYTES: Final = 4 << 10
"""Runs of a frame closer together than this are joined: they share a block."""
RANGE_GAP_BYTES: Final = 16 << 10
"""Byte ranges closer together than this are fetched as one, as are runs of a chunk that is not compressed."""
SMALL_FAST: Final = 256 << 10
SMALL_SLOW: Final = 64 << 10
"""Chunks of fewer bytes are decoded whole (by fast and by slow codecs): finding out what to leave out costs as much."""
SURGERY_FAST: Final = 96 << 10
SURGERY_SLOW: Final = 16 << 10
"""Bytes that are decoded in the time that making and entering one small frame takes, by fast and by slow codecs."""
LIKELY_BLOCK: Final = 8 << 10
"""Blocks are rarely smaller; tells how long a table of blocks may be before it is read."""
USUAL_BLOCK: Final = 256 << 10
"""What Blosc makes of large chunks unless told otherwise, give or take."""


def make_partial(
    compressor: CodecConfig | None, chunks: tuple[int, ...], *, dtype: DataType, order: Literal["C", "F"]
) -> PartialDecoder | None:
    """The partial decoder of an array without filters; None if its compressor is another than Blosc, and for chunks so
    small that it would not pay."""
    slow = compressor is not None and compressor.get("cname") in ("zlib", "zstd")
    nbytes = math.prod(chunks) * dtype.itemsize
    if dtype.numpy.hasobject or nbytes < (SMALL_SLOW if slow else SMALL_FAST):
        return None
    is_blosc = compressor is not None and compressor["id"] == "blosc"
    return PartialDecoder(chunks, dtype, order, is_blosc=is_blosc) if compressor is None or is_blosc else None


class PartialDecoder:
    """Decodes runs of items (see `runs`) of the chunks of one array: one Blosc frame a chunk, or its bytes as they are.

    Everywhere ``key`` is for messages, runs are sorted and disjoint, and `ChunkCorrupt` is raised for what does not
    decode. Chunks that are returned have the full shape, and hold nothing of meaning outside the runs.
    """

    def __init__(self, chunks: tuple[int, ...], dtype: DataType, order: Literal["C", "F"], *, is_blosc: bool) -> None:
        self._chunks, self._dtype, self._order, self._is_blosc = chunks, dtype, order, is_blosc
        self._nbytes = math.prod(chunks) * dtype.itemsize
        self._block: int | None = None
        """The block size of the latest frame: a good guess for the next one, as one program writes the same in all.
        Nothing that must be right depends on it."""
        self.may_pay = True
        """Whether decoding one block of the latest frame alone costs less than all of it."""

    @property
    def gap(self) -> int:
        """How many items may lie between two runs for which reading them as one costs no more."""
        return (GAP_BYTES if self._is_blosc else RANGE_GAP_BYTES) // self._dtype.itemsize

    def worth_it(self, runs: Sequence[Run]) -> bool:
        """Whether reading only ``runs`` may cost less than the whole chunk, as far as can be told without the data."""
        few = _length(self._spans(runs)) <= WORTH_SHARE * self._nbytes
        return few and (self._block is None or self.work(runs) < self._nbytes)

    def work(self, runs: Sequence[Run]) -> int:
        """About how many bytes are decoded for ``runs``, as far as can be told without the data."""
        return self._work(runs, self._block or USUAL_BLOCK)

    def usual_work(self, runs: Sequence[Run]) -> int:
        """As `work`, of chunks as they usually are: the same whatever was learned from others."""
        return self._work(runs, USUAL_BLOCK)

    @property
    def head_bytes(self) -> int:
        """How many bytes from the start of a stored chunk `ranges` needs to see."""
        return HEADER_BYTES + 4 * -(-self._nbytes // LIKELY_BLOCK) if self._is_blosc else 0

    def ranges(self, head: Buffer, runs: Sequence[Run], key: str, size: int | None = None) -> list[Run] | None:
        """The byte ranges of the stored chunk (of ``size`` bytes, if that is known) that hold ``runs``; None if
        fetching the whole costs no more."""
        try:
            header = self._header(head, size)
            if header is not None and len(head) < header.table_stop:
                return None
            if header is None or header.stored:
                start = 0 if header is None else HEADER_BYTES
                extents = [(start + first, start + last) for first, last in self._spans(runs)]
            else:
                frame = BloscFrame(header, head)
                extents = sorted(extent for part in self._blocks(frame, runs) for extent in frame.extents(*part))
        except ValueError as error:
            raise ChunkCorrupt(key, "blosc", reason_of(error)) from error
        spans = merge_runs(extents, RANGE_GAP_BYTES)
        return spans if _length(spans) <= WORTH_SHARE * (header.cbytes if header else self._nbytes) else None

    def decode_parts(self, head: Buffer, parts: Sequence[Part], runs: Sequence[Run], *, key: str) -> NDArray:
        """Decode ``runs`` from the parts of the stored chunk that `ranges` named."""
        source, raw = _source_of(parts), np.empty(self._nbytes, np.uint8)
        try:
            header = self._header(head)
            if header is not None and not header.stored:
                frame = BloscFrame(header, head)
                return self._decode(frame, source, self._blocks(frame, runs), runs, raw)
            at = 0 if header is None else HEADER_BYTES
            for start, stop in self._spans(runs):
                raw[start:stop] = flat_bytes(source(at + start, at + stop))
        except (ValueError, RuntimeError) as error:
            raise ChunkCorrupt(key, "blosc" if self._is_blosc else None, reason_of(error)) from error
        return self._finished(raw, runs)

    def decode_runs(self, data: Buffer, runs: Sequence[Run], *, key: str) -> NDArray | None:
        """Decode ``runs`` from the whole stored chunk; None if decoding all of it is as fast."""
        try:
            header = self._header(data, len(data) if self._is_blosc else None)
            if header is None or header.stored or header.nblocks < 2:
                return None
            frame = BloscFrame(header, data)
            blocks = self._blocks(frame, runs)
            if not _pays(header, len(blocks), _length([frame.span(*part) for part in blocks])):
                return None
            return self._decode(frame, _source_of([(0, data)]), blocks, runs, np.empty(self._nbytes, np.uint8))
        except (ValueError, RuntimeError) as error:
            raise ChunkCorrupt(key, "blosc", reason_of(error)) from error

    def _finished(self, raw: NDArray, runs: Sequence[Run]) -> NDArray:
        """The chunk whose decoded ``runs`` lie in ``raw``. Only these are touched: the rest need not exist."""
        if self._dtype.has_idle_bits:
            items = raw.view(self._dtype.numpy)
            for start, stop in runs:
                items[start:stop] = self._dtype.clean(items[start:stop])
        return np.ndarray(self._chunks, self._dtype.numpy, buffer=raw, order=self._order)

    def _decode(
        self, frame: BloscFrame, source: Source, blocks: Sequence[Run], runs: Sequence[Run], raw: NDArray
    ) -> NDArray:
        for first, last in blocks:
            start, stop = frame.span(first, last)
            decompress(frame.part(source, first, last), raw[start:stop], stop - start)
        return self._finished(raw, runs)

    def _header(self, head: Buffer, size: int | None = None) -> BloscHeader | None:
        """The header of a frame (of ``size`` bytes, if that is known), whose block size is remembered; None for
        uncompressed chunks."""
        if not self._is_blosc:
            if size not in (None, self._nbytes):
                raise ValueError(f"{size} bytes, expected {self._nbytes}")
            return None
        header = BloscHeader.parse(head, self._nbytes)
        if size is not None and header.cbytes != size:
            raise ValueError(f"the header says {header.cbytes} bytes, there are {size}")
        self._block = None if header.stored else header.blocksize or None
        self.may_pay = header.stored or header.nblocks < 1 or _pays(header, 1, header.block_nbytes(0))
        return header

    def _work(self, runs: Sequence[Run], block: int) -> int:
        if not self._is_blosc:
            return _length(self._spans(runs))
        blocks = merge_runs([(start // block, -(-stop // block)) for start, stop in self._spans(runs)], 0)
        return min(self._nbytes, block * _length(blocks))

    def _blocks(self, frame: BloscFrame, runs: Sequence[Run]) -> list[Run]:
        """The blocks that hold the runs."""
        return merge_runs([frame.blocks(start, stop) for start, stop in self._spans(runs)], 0)

    def _spans(self, runs: Sequence[Run]) -> list[Run]:
        """Runs in decoded bytes."""
        size = self._dtype.itemsize
        return [(start * size, stop * size) for start, stop in runs]


def _pays(header: BloscHeader, stretches: int, needed: int) -> bool:
    """Whether to decode blocks of ``needed`` bytes in so many stretches is faster than to decode all: what is saved
    against what surgery costs.

    Surgery costs some time for each stretch, and a copy of the blocks' stored bytes. Time is counted in bytes here: LZ4
    decodes about 10 of them in a nanosecond, copying is as fast, and Zstandard decodes one or two.
    """
    copied = needed * header.cbytes / header.nbytes
    each, copy = (SURGERY_FAST, 1.5) if header.fast else (SURGERY_SLOW, 0.25)
    return header.nbytes - needed > each * stretches + copy * copied


def _source_of(parts: Sequence[Part]) -> Source:
    """Bytes of a stored chunk by position, from parts that are sorted; raises `ValueError` for what is in none."""
    starts = [start for start, _ in parts]
    views = [memoryview(data) for _, data in parts]

    def source(start: int, stop: int) -> Buffer:
        at = bisect.bisect_right(starts, start) - 1
        view = views[at][start - starts[at] : stop - starts[at]] if at >= 0 else b""
        if len(view) != stop - start:
            raise ValueError(f"the stored chunk has no bytes {start} to {stop}")
        return view

    return source


def _length(runs: Sequence[Run]) -> int:
    return sum(stop - start for start, stop in runs)
