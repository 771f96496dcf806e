"""Decode the beginning of a compressed stream, as far as is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from hyperslab.engine.codecs_chain import Buffer, flat_bytes, reason_of
from hyperslab.engine.codecs_streams import fill_gzip, fill_zlib, fill_zstd
from hyperslab.engine.partial import Part, PartialDecoder
from hyperslab.engine.runs import Run
from hyperslab.errors import ChunkCorrupt

NDArray = npt.NDArray[Any]

WORTH_STREAM: Final = 0.8
"""Up to this share of a chunk from its beginning, decoding a stream only so far is faster than all of it."""

FILLS: Final[Mapping[str, Callable[[Buffer, NDArray], bool]]] = {
    "zlib": fill_zlib,
    "gzip": fill_gzip,
    "zstd": fill_zstd,
}
"""By codec: decode the beginning of a stream into memory; False where that is not filled."""


class StreamPartial(PartialDecoder):
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
        """None: a stream has no index of what lies where."""
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
            return FILLS[self.codec](data, out)
        except Exception as error:
            raise ChunkCorrupt(key, self.codec, reason_of(error)) from error
