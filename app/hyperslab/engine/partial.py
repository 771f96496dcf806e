"""Decode only a part of a chunk: what such a decoder does, and the one of uncompressed chunks.

`partial_blosc` decodes the blocks of a frame that hold the part, `partial_streams` the beginning of a stream.
"""

from __future__ import annotations

import bisect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from hyperslab.engine.codecs_blosc import Source
from hyperslab.engine.codecs_chain import Buffer, flat_bytes, reason_of
from hyperslab.engine.dtypes import DataType
from hyperslab.engine.runs import Run, merge_runs
from hyperslab.errors import ChunkCorrupt

NDArray = npt.NDArray[Any]
Part: TypeAlias = tuple[int, Buffer]
"""Some bytes of a stored chunk, and where they begin in it."""


WORTH_SHARE: Final = 0.6
"""Up to this share of a chunk, reading and decoding only that is faster than all of it."""
GAP_BYTES: Final = 4 << 10
"""Runs closer together than this are joined: they share a block, or a request."""
RANGE_GAP_BYTES: Final = 16 << 10
"""Byte ranges closer together than this are fetched as one."""


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
        """How many items may lie between two runs for which reading them as one costs no more."""
        return GAP_BYTES // self.dtype.itemsize

    def worth_it(self, runs: Sequence[Run]) -> bool:
        """Whether reading only ``runs`` may cost less than the whole chunk, as far as can be told without the data."""
        return length_of(self._spans(runs)) <= WORTH_SHARE * self.nbytes

    def work(self, runs: Sequence[Run]) -> int:
        """About how many bytes are decoded for ``runs``, as far as can be told without the data."""
        return length_of(self._spans(runs))

    def usual_work(self, runs: Sequence[Run]) -> int:
        """As `work`, of chunks as they usually are: the same whatever was learned from others."""
        return self.work(runs)

    @property
    @abstractmethod
    def head_bytes(self) -> int:
        """How many bytes from the start of a stored chunk `ranges` needs to see."""

    @abstractmethod
    def ranges(self, head: Buffer, runs: Sequence[Run], key: str) -> list[Run] | None:
        """The byte ranges of the stored chunk that hold ``runs``; None where fetching the whole costs no more."""

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


class RawPartial(PartialDecoder):
    """Uncompressed: decoded bytes are stored bytes."""

    __slots__ = ()

    @property
    def head_bytes(self) -> int:
        return 0

    def ranges(self, head: Buffer, runs: Sequence[Run], key: str) -> list[Run] | None:  # noqa: ARG002
        spans = merge_runs(self._spans(runs), RANGE_GAP_BYTES)
        return spans if length_of(spans) <= WORTH_SHARE * self.nbytes else None

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


def length_of(runs: Sequence[Run]) -> int:
    return sum(stop - start for start, stop in runs)
