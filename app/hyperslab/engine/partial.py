"""Decode only a part of a chunk: the blocks of a Blosc frame that hold it, the bytes of an uncompressed chunk, or the
beginning of a compressed stream."""

from __future__ import annotations

import bisect
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from hyperslab.engine.codecs_blosc import HEADER_BYTES, BloscFrame, BloscHeader, Source, decompress
from hyperslab.engine.codecs_chain import Buffer, Config, flat_bytes, reason_of
from hyperslab.engine.codecs_streams import fill_gzip, fill_zlib, fill_zstd
from hyperslab.engine.dtypes import DataType
from hyperslab.engine.runs import Run, merge_runs
from hyperslab.errors import ChunkCorrupt

NDArray = npt.NDArray[Any]
Part: TypeAlias = tuple[int, Buffer]
"""Some bytes of a stored chunk, and where they begin in it."""

SMALL_FAST: Final = 256 << 10
SMALL_SLOW: Final = 64 << 10
"""Chunks of fewer bytes are decoded whole (by fast and by slow codecs): finding out what to leave out costs as much."""
WORTH_STREAM: Final = 0.8
"""Up to this share of a chunk from its beginning, decoding a stream only so far is faster than all of it."""
WORTH_SHARE: Final = 0.6
"""Up to this share of a chunk, reading and decoding only that is faster than all of it."""
GAP_BYTES: Final = 4 << 10
"""Runs closer together than this are joined: they share a block, or a request."""
SURGERY_FAST: Final = 96 << 10
SURGERY_SLOW: Final = 16 << 10
"""Bytes that are decoded in the time that making and entering one small frame takes, by fast and by slow codecs."""
RANGE_GAP_BYTES: Final = 16 << 10
"""Byte ranges closer together than this are fetched as one."""
LIKELY_BLOCK: Final = 8 << 10
"""Blocks are rarely smaller; tells how long a table of blocks may be before it is read."""
_USUAL_BLOCK: Final = 256 << 10
"""What Blosc makes of large chunks unless told otherwise, give or take."""

_FILLS: Final = {"zlib": fill_zlib, "gzip": fill_gzip, "zstd": fill_zstd}


@dataclass(frozen=True, slots=True, eq=False)
class PartialDecoder(ABC):
    """Decodes runs of items (see `runs`) of the chunks of one array.

    ``idle_bits``: whether `DataType.clean` has something to do. ``codec``: the compressor's id. Everywhere ``key`` is
    for messages, runs are sorted and disjoint, and what does not decode is a `ChunkCorrupt`. Chunks that are returned
    have the full shape, and hold nothing of meaning outside the runs.
    """

    chunks: tuple[int, ...]
    dtype: DataType
    order: Literal["C", "F"]
    nbytes: int
    idle_bits: bool
    codec: str | None

    enters_midway: ClassVar[bool] = True
    """Whether the end of a chunk costs no more than its beginning."""

    @property
    def gap(self) -> int:
        """How many items may lie between two runs that are as well read as one."""
        return GAP_BYTES // self.dtype.itemsize

    def worth_it(self, runs: Sequence[Run]) -> bool:
        """Whether reading only ``runs`` may cost less than the whole chunk, as far as can be told without the data."""
        return _length(self._spans(runs)) <= WORTH_SHARE * self.nbytes

    def work(self, runs: Sequence[Run]) -> int:
        """About how many bytes are decoded for ``runs``, as far as can be told without the data."""
        return _length(self._spans(runs))

    @property
    @abstractmethod
    def head_bytes(self) -> int:
        """How many bytes from the start of a stored chunk `ranges` needs to see."""

    @abstractmethod
    def ranges(self, head: Buffer, runs: Sequence[Run], key: str) -> list[Run] | None:
        """The byte ranges of the stored chunk that hold ``runs``; None where the whole is as well fetched."""

    @abstractmethod
    def decode_parts(
        self, head: Buffer, parts: Sequence[Part], runs: Sequence[Run], *, key: str, memory: NDArray | None = None
    ) -> NDArray:
        """Decode ``runs`` from the parts of the stored chunk that `ranges` asked for.

        ``memory`` (uint8, as long as the chunk), here and below: where to put the chunk that is returned.
        """

    @abstractmethod
    def decode_runs(
        self, data: Buffer, runs: Sequence[Run], *, key: str, memory: NDArray | None = None
    ) -> NDArray | None:
        """Decode ``runs`` from the whole stored chunk; None where decoding all of it is as fast."""

    @abstractmethod
    def decode_run_into(self, data: Buffer, start: int, out: NDArray, key: str) -> bool:
        """Decode the run that begins at item ``start`` into ``out`` (1-d, contiguous, the array's dtype).

        False, and nothing done, where decoding the whole chunk is as fast.
        """

    def _spans(self, runs: Sequence[Run]) -> list[Run]:
        """Runs in decoded bytes."""
        size = self.dtype.itemsize
        return [(start * size, stop * size) for start, stop in runs]

    def decode_in_place(self, memory: NDArray, runs: Sequence[Run]) -> NDArray:
        """The chunk that ``memory`` holds, of an array without codecs, ready to be used where ``runs`` are."""
        return self._finish(memory[: self.nbytes], runs)

    def _memory(self, memory: NDArray | None) -> NDArray:
        return np.empty(self.nbytes, np.uint8) if memory is None else memory[: self.nbytes]

    def _finish(self, raw: NDArray, runs: Sequence[Run]) -> NDArray:
        """The chunk; where cleaning is needed only the runs are touched, so that other memory need not exist."""
        if self.idle_bits:
            items = raw.view(self.dtype.numpy)
            for start, stop in runs:
                items[start:stop] = self.dtype.clean(items[start:stop])
        return np.ndarray(self.chunks, self.dtype.numpy, buffer=raw, order=self.order)

    def _clean(self, out: NDArray) -> None:
        if self.idle_bits:
            out[...] = self.dtype.clean(out)


def make_partial(
    compressor: Config | None, chunks: tuple[int, ...], *, dtype: DataType, order: Literal["C", "F"]
) -> PartialDecoder | None:
    """The partial decoder of an array without filters.

    None for other compressors than Blosc and streams, and for chunks so small that it would not pay.
    """
    name: str | None = compressor["id"] if compressor else None
    kind = _kind(name)
    nbytes = math.prod(chunks) * dtype.itemsize
    slow = compressor is not None and (name in _FILLS or compressor.get("cname") in ("zlib", "zstd"))
    if kind is None or dtype.is_object or nbytes < (SMALL_SLOW if slow else SMALL_FAST):
        return None
    probe = np.full(dtype.itemsize, 0x7E, np.uint8).view(dtype.numpy)
    return kind(chunks, dtype, order, nbytes, dtype.clean(probe) is not probe, name)


def _kind(codec: str | None) -> type[PartialDecoder] | None:
    if codec is None:
        return _RawPartial
    if codec in _FILLS:
        return _StreamPartial
    return _BloscPartial if codec == "blosc" else None


class _RawPartial(PartialDecoder):
    """Uncompressed: decoded bytes are stored bytes."""

    __slots__ = ()

    @property
    def head_bytes(self) -> int:
        return 0

    def ranges(self, head: Buffer, runs: Sequence[Run], key: str) -> list[Run] | None:  # noqa: ARG002
        spans = merge_runs(self._spans(runs), RANGE_GAP_BYTES)
        return spans if _length(spans) <= WORTH_SHARE * self.nbytes else None

    def decode_parts(
        self,
        head: Buffer,  # noqa: ARG002
        parts: Sequence[Part],
        runs: Sequence[Run],
        *,
        key: str,
        memory: NDArray | None = None,
    ) -> NDArray:
        raw = self._memory(memory)
        source = source_of(parts)
        try:
            for start, stop in self._spans(runs):
                raw[start:stop] = flat_bytes(source(start, stop))
        except ValueError as error:
            raise ChunkCorrupt(key, None, reason_of(error)) from error
        return self._finish(raw, runs)

    def decode_runs(
        self,
        data: Buffer,  # noqa: ARG002
        runs: Sequence[Run],  # noqa: ARG002
        *,
        key: str,  # noqa: ARG002
        memory: NDArray | None = None,  # noqa: ARG002
    ) -> NDArray | None:
        return None

    def decode_run_into(self, data: Buffer, start: int, out: NDArray, key: str) -> bool:
        if len(data) != self.nbytes:
            raise ChunkCorrupt(key, None, f"{len(data)} bytes, expected {self.nbytes}")
        first = start * self.dtype.itemsize
        flat_bytes(out)[:] = flat_bytes(data)[first : first + out.nbytes]
        self._clean(out)
        return True


class _StreamPartial(PartialDecoder):
    """A compressed stream: decoded from its beginning, as far as is needed."""

    __slots__ = ()
    enters_midway: ClassVar[bool] = False

    def worth_it(self, runs: Sequence[Run]) -> bool:
        return bool(runs) and self._is_early(self.work(runs))

    def work(self, runs: Sequence[Run]) -> int:
        return runs[-1][1] * self.dtype.itemsize

    @property
    def head_bytes(self) -> int:
        return 0

    def ranges(self, head: Buffer, runs: Sequence[Run], key: str) -> list[Run] | None:  # noqa: ARG002
        """None: nothing in a stream says where in it something lies."""
        return None

    def decode_parts(
        self,
        head: Buffer,  # noqa: ARG002
        parts: Sequence[Part],
        runs: Sequence[Run],
        *,
        key: str,
        memory: NDArray | None = None,
    ) -> NDArray:
        raw = self._memory(memory)
        if not self._fill(
            b"".join(memoryview(part) for _, part in parts), raw[: runs[-1][1] * self.dtype.itemsize], key
        ):
            raise ChunkCorrupt(key, self.codec, "the stream ends early")
        return self._finish(raw, runs)

    def decode_runs(
        self, data: Buffer, runs: Sequence[Run], *, key: str, memory: NDArray | None = None
    ) -> NDArray | None:
        stop = runs[-1][1] * self.dtype.itemsize
        raw = self._memory(memory)
        return self._finish(raw, runs) if self._is_early(stop) and self._fill(data, raw[:stop], key) else None

    def decode_run_into(self, data: Buffer, start: int, out: NDArray, key: str) -> bool:
        first = start * self.dtype.itemsize
        stop = first + out.nbytes
        if not self._is_early(stop):
            return False
        place = flat_bytes(out) if first == 0 else np.empty(stop, np.uint8)
        if not self._fill(data, place, key):
            return False
        if first:
            flat_bytes(out)[:] = place[first:]
        self._clean(out)
        return True

    def _is_early(self, stop: int) -> bool:
        return stop <= WORTH_STREAM * self.nbytes

    def _fill(self, data: Buffer, out: NDArray, key: str) -> bool:
        assert self.codec is not None
        try:
            return _FILLS[self.codec](data, out)
        except Exception as error:
            raise ChunkCorrupt(key, self.codec, reason_of(error)) from error


class _BloscPartial(PartialDecoder):
    """One Blosc frame a chunk."""

    __slots__ = ()

    def work(self, runs: Sequence[Run]) -> int:
        """Whole blocks."""
        spans = [(start // _USUAL_BLOCK, -(-stop // _USUAL_BLOCK)) for start, stop in self._spans(runs)]
        return min(self.nbytes, _USUAL_BLOCK * _length(merge_runs(spans, 0)))

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
        header = BloscHeader.parse(head, self.nbytes)
        if len(head) < header.table_stop:
            return None
        if header.stored:
            extents = [(HEADER_BYTES + start, HEADER_BYTES + stop) for start, stop in self._spans(runs)]
        else:
            frame = BloscFrame(header, head)
            stretches = self._stretches(frame, runs)
            extents = sorted(extent for stretch in stretches for extent in frame.extents(*stretch))
        spans = merge_runs(extents, RANGE_GAP_BYTES)
        return spans if _length(spans) <= WORTH_SHARE * header.cbytes else None

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
        """The frame with its table; None where decoding it whole is the thing to do."""
        header = BloscHeader.parse(data, self.nbytes)
        if header.cbytes != len(data):
            raise ValueError(f"the header says {header.cbytes} bytes, there are {len(data)}")
        return None if header.stored or header.nblocks < 2 else BloscFrame(header, data)

    def _stretches(self, frame: BloscFrame, runs: Sequence[Run]) -> list[Run]:
        """The blocks that hold the runs."""
        return merge_runs([frame.blocks(start, stop) for start, stop in self._spans(runs)], 0)


def source_of(parts: Sequence[Part]) -> Source:
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

    Surgery costs some time for each stretch, and a copy of the blocks' stored bytes. Bytes stand for time here:
    decoding LZ4 makes some 10 of them in a nanosecond, copying as many, and decoding Zstandard one or two.
    """
    header = frame.header
    needed = _length([frame.span(*stretch) for stretch in stretches])
    copied = needed * header.cbytes / header.nbytes
    each, copy = (SURGERY_FAST, 1.5) if header.fast else (SURGERY_SLOW, 0.25)
    return header.nbytes - needed > each * len(stretches) + copy * copied


def _length(runs: Sequence[Run]) -> int:
    return sum(stop - start for start, stop in runs)
