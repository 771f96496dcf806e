"""Partial decoding of chunks: blocks of Blosc frames, or byte ranges of uncompressed chunks."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from hyperslab.engine.blosc import HEADER_BYTES, STORED, BloscFrame, BloscHeader, Source, decompress
from hyperslab.engine.chain import Buffer, flat_bytes, reason_of
from hyperslab.engine.codec_config import CodecConfig
from hyperslab.engine.dtypes import DataType
from hyperslab.engine.runs import Run, merge_runs
from hyperslab.errors import ChunkCorrupt

NDArray = npt.NDArray[Any]
Part: TypeAlias = tuple[int, Buffer]
"""Offset in a stored chunk, and bytes from there on."""

WORTH_SHARE: Final = 0.6
"""Maximum share of a chunk for which partial decoding is faster (benchmark ``tuning``)."""
GAP_BYTES: Final = 4 << 10
"""Gap below which runs in a frame are merged, as they are likely in the same block (benchmark ``tuning``)."""
RANGE_GAP_BYTES: Final = 16 << 10
"""Gap below which byte ranges, and runs of uncompressed chunks, are merged (benchmark ``tuning``)."""
SMALL_FAST: Final = 256 << 10
SMALL_SLOW: Final = 64 << 10
"""Sizes below which chunks are decoded whole, for fast and slow codecs (benchmark ``tuning``)."""
SURGERY_FAST: Final = 96 << 10
SURGERY_SLOW: Final = 16 << 10
"""Overhead of a partial frame, in bytes decoded in the same time by fast and slow codecs (benchmark ``tuning``)."""
LIKELY_BLOCK: Final = 8 << 10
"""Block size that is rarely undercut, to estimate the size of a frame's table (benchmark ``tuning``)."""
USUAL_BLOCK: Final = 256 << 10
"""Typical block size of Blosc for large chunks (benchmark ``tuning``)."""


def make_partial(
    compressor: CodecConfig | None, chunks: tuple[int, ...], *, dtype: DataType, order: Literal["C", "F"]
) -> PartialDecoder | None:
    """The partial decoder of an array without filters; None for other compressors than Blosc, and for small chunks."""
    slow = compressor is not None and compressor.get("cname") in ("zlib", "zstd")
    nbytes = math.prod(chunks) * dtype.itemsize
    if dtype.numpy.hasobject or nbytes < (SMALL_SLOW if slow else SMALL_FAST):
        return None
    is_blosc = compressor is not None and compressor["id"] == "blosc"
    return PartialDecoder(chunks, dtype, order, is_blosc=is_blosc) if compressor is None or is_blosc else None


class PartialDecoder:
    """Decodes runs of items (see `runs`) of an array's chunks, which are Blosc frames or uncompressed.

    Runs are sorted and disjoint. Returned chunks have the full shape, in ``memory`` (uint8, of the size of a chunk) if
    given, and are undefined outside of the runs. Raises `ChunkCorrupt` with ``key``.
    """

    def __init__(self, chunks: tuple[int, ...], dtype: DataType, order: Literal["C", "F"], *, is_blosc: bool) -> None:
        self._chunks, self._dtype, self._order, self._is_blosc = chunks, dtype, order, is_blosc
        self._nbytes = nbytes = math.prod(chunks) * dtype.itemsize
        self._whole = BloscHeader(2, 1, STORED, 1, nbytes, nbytes, nbytes)
        """The header as it would be of an uncompressed chunk."""
        self._block: int | None = None
        """Block size of the latest frame, as an estimate for the next one."""
        self.may_pay = True
        """Whether decoding a single block of the latest frame was faster than all of it."""

    @property
    def gap(self) -> int:
        """Number of items between two runs up to which merging them costs nothing."""
        return (GAP_BYTES if self._is_blosc else RANGE_GAP_BYTES) // self._dtype.itemsize

    def worth_it(self, runs: Sequence[Run]) -> bool:
        """Whether reading only ``runs`` may be faster than the whole chunk, estimated without the data."""
        few = _length(self._spans(runs)) <= WORTH_SHARE * self._nbytes
        return few and (self._block is None or self.work(runs) < self._nbytes)

    def work(self, runs: Sequence[Run]) -> int:
        """Estimate of the bytes to decode for ``runs``."""
        return self._work(runs, self._block or USUAL_BLOCK)

    def usual_work(self, runs: Sequence[Run]) -> int:
        """`work` with `USUAL_BLOCK`, independent of earlier frames."""
        return self._work(runs, USUAL_BLOCK)

    @property
    def head_bytes(self) -> int:
        """Number of first bytes of a stored chunk that `ranges` needs."""
        return HEADER_BYTES + 4 * -(-self._nbytes // LIKELY_BLOCK) if self._is_blosc else 0

    def ranges(self, head: Buffer, runs: Sequence[Run], key: str, size: int | None = None) -> list[Run] | None:
        """Byte ranges of a stored chunk (of ``size`` bytes, if known) with ``runs``; None if fetching all is no
        slower."""
        try:
            header, start = self._header(head, size)
            if self._is_blosc and len(head) < header.table_stop:
                return None
            if header.stored:
                extents = [(start + first, start + last) for first, last in self._spans(runs)]
            else:
                frame = BloscFrame(header, head)
                extents = sorted(extent for part in self._blocks(frame, runs) for extent in frame.extents(*part))
        except ValueError as error:
            raise ChunkCorrupt(key, "blosc" if self._is_blosc else None, reason_of(error)) from error
        spans = merge_runs(extents, RANGE_GAP_BYTES)
        return spans if _length(spans) <= WORTH_SHARE * header.cbytes else None

    def decode_parts(
        self, head: Buffer, parts: Sequence[Part], runs: Sequence[Run], *, key: str, memory: NDArray | None = None
    ) -> NDArray:
        """Decode ``runs`` from the `ranges` of a stored chunk."""
        source, raw = _source_of(parts), np.empty(self._nbytes, np.uint8) if memory is None else memory
        try:
            header, position = self._header(head)
            if not header.stored:
                frame = BloscFrame(header, head)
                return self._decode(frame, source, self._blocks(frame, runs), runs, raw)
            for start, stop in self._spans(runs):
                raw[start:stop] = flat_bytes(source(position + start, position + stop))
        except (ValueError, RuntimeError) as error:
            raise ChunkCorrupt(key, "blosc" if self._is_blosc else None, reason_of(error)) from error
        return self._finished(raw, runs)

    def decode_runs(
        self, data: Buffer, runs: Sequence[Run], *, key: str, memory: NDArray | None = None
    ) -> NDArray | None:
        """Decode ``runs`` from a whole stored chunk; None if decoding all of it is as fast."""
        try:
            header, _ = self._header(data, len(data) if self._is_blosc else None)
            if header.stored or header.nblocks < 2:
                return None
            frame = BloscFrame(header, data)
            blocks = self._blocks(frame, runs)
            if not _pays(header, len(blocks), _length([frame.span(*part) for part in blocks])):
                return None
            raw = np.empty(self._nbytes, np.uint8) if memory is None else memory
            return self._decode(frame, _source_of([(0, data)]), blocks, runs, raw)
        except (ValueError, RuntimeError) as error:
            raise ChunkCorrupt(key, "blosc", reason_of(error)) from error

    def decoded_runs(self, head: Buffer, runs: Sequence[Run]) -> list[Run]:
        """The runs that are decoded for ``runs`` of a stored chunk that begins with ``head``: of whole blocks."""
        header, _ = self._header(head)
        if header.stored or self._dtype.has_idle_bits:  # bits are cleaned in ``runs`` alone
            return [*runs]
        block, size = header.blocksize, self._dtype.itemsize
        spans = [
            (start // block * block, min(-(-stop // block) * block, self._nbytes)) for start, stop in self._spans(runs)
        ]
        return merge_runs([(-(-start // size), stop // size) for start, stop in spans], 0)

    def _finished(self, raw: NDArray, runs: Sequence[Run]) -> NDArray:
        """The chunk in ``raw``, with `DataType.clean` applied to its runs."""
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

    def _header(self, head: Buffer, size: int | None = None) -> tuple[BloscHeader, int]:
        """The header of a frame (of ``size`` bytes, if known), and where data that are not compressed start; updates
        the estimates. An uncompressed chunk is like a frame of that kind that starts with the data."""
        if not self._is_blosc:
            if size not in (None, self._nbytes):
                raise ValueError(f"{size} bytes, expected {self._nbytes}")
            return self._whole, 0
        header = BloscHeader.parse(head, self._nbytes)
        if size is not None and header.cbytes != size:
            raise ValueError(f"the header says {header.cbytes} bytes, there are {size}")
        self._block = None if header.stored else header.blocksize or None
        self.may_pay = header.stored or header.nblocks < 1 or _pays(header, 1, header.block_nbytes(0))
        return header, HEADER_BYTES

    def _work(self, runs: Sequence[Run], block: int) -> int:
        if not self._is_blosc:
            return _length(self._spans(runs))
        blocks = merge_runs([(start // block, -(-stop // block)) for start, stop in self._spans(runs)], 0)
        return min(self._nbytes, block * _length(blocks))

    def _blocks(self, frame: BloscFrame, runs: Sequence[Run]) -> list[Run]:
        """The blocks with the runs, as ranges."""
        return merge_runs([frame.blocks(start, stop) for start, stop in self._spans(runs)], 0)

    def _spans(self, runs: Sequence[Run]) -> list[Run]:
        """Runs in decoded bytes."""
        size = self._dtype.itemsize
        return [(start * size, stop * size) for start, stop in runs]


def _pays(header: BloscHeader, frames: int, needed: int) -> bool:
    """Whether the bytes saved exceed the overhead of a number of partial frames and of copying their blocks.

    Time is measured in decoded bytes: LZ4 decodes about 10 per nanosecond, as fast as copying, Zstandard one or two.
    """
    copied = needed * header.cbytes / header.nbytes
    per_block, copy = (SURGERY_FAST, 1.5) if header.fast else (SURGERY_SLOW, 0.25)
    return header.nbytes - needed > per_block * frames + copy * copied


def _source_of(parts: Sequence[Part]) -> Source:
    """A function that returns bytes of a stored chunk from sorted parts; it raises `ValueError` for missing bytes."""
    starts = [start for start, _ in parts]
    views = [memoryview(data) for _, data in parts]

    def source(start: int, stop: int) -> Buffer:
        index = bisect.bisect_right(starts, start) - 1
        view = views[index][start - starts[index] : stop - starts[index]] if index >= 0 else b""
        if len(view) != stop - start:
            raise ValueError(f"the stored chunk has no bytes {start} to {stop}")
        return view

    return source


def _length(runs: Sequence[Run]) -> int:
    return sum(stop - start for start, stop in runs)
