"""Many small chunks decoded together: the fixed cost of calling a decoder is paid once for all of them.

Blosc frames that lie one behind the other become one frame, with a header and a table of blocks written in front of
them; the blocks stay where they are. Uncompressed chunks need no decoding: they are read straight to where they belong.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

import numpy.typing as npt

from hyperslab.engine.codecs import ChunkCodec
from hyperslab.engine.codecs_blosc import HEADER_BYTES, decompress, join_frames
from hyperslab.engine.runs import Run, merge_runs

NDArray = npt.NDArray[Any]

_SMALLEST_BLOCK: Final = 4 << 10
"""For tables of more blocks than this comes to there is no room: such frames are decoded one by one."""


class Stretch(NamedTuple):
    """Chunks ``[first, last)`` of a batch, all of which exist, and their stored bytes as one ``frame``, which is None
    where they cannot be joined and have to be decoded one by one.
    """

    first: int
    last: int
    frame: memoryview | None


class Joined(NamedTuple):
    """The stored bytes of the chunks of a batch, in ``memory`` at ``extents``, ready to be decoded."""

    memory: NDArray
    extents: Sequence[Run | None]
    stretches: Sequence[Stretch] = ()


@dataclass(frozen=True, slots=True, eq=False)
class BatchDecoder(ABC):
    """Decodes small chunks of one array. A stored chunk of more than ``room`` bytes is not for this decoder.

    ``in_place``: stored chunks are decoded ones, and are read straight into the stack.
    """

    codec: ChunkCodec
    nbytes: int = field(init=False)
    """The decoded size of a chunk."""
    in_place: ClassVar[bool]

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", self.codec.stage.nbytes)

    @property
    @abstractmethod
    def room(self) -> int: ...

    @abstractmethod
    def head_room(self, count: int) -> int:
        """Bytes to leave free in front of the first of ``count`` stored chunks."""

    def room_for(self, count: int) -> int:
        """Bytes that ``count`` stored chunks take at most, beside the stack."""
        return 0 if self.in_place else self.head_room(count) + count * self.room

    @abstractmethod
    def join(self, memory: NDArray, extents: Sequence[Run | None]) -> Joined:
        """Make the chunks that are stored in ``memory`` (uint8; some of it is overwritten) at ``extents``, one behind
        the other, ready to be decoded.

        All that Python has to do for each chunk is done here; `decode` is little more than one call for each stretch,
        and is best left to another thread.
        """

    @abstractmethod
    def decode(self, joined: Joined, stack: NDArray, keys: Sequence[str]) -> None:
        """Decode what `join` found into the rows of ``stack`` (uint8 of ``nbytes`` each). Rows without an extent are
        left alone. Raises `ChunkCorrupt`."""

    def shaped(self, stack: NDArray) -> NDArray:
        """The rows of a stack as chunks of the array's shape and dtype; a view, on which `clean` is still to be
        called."""
        shape, items = self.codec.chunks, stack.reshape(-1).view(self.codec.dtype.numpy)
        if self.codec.order == "C":
            return items.reshape(len(stack), *shape)
        return items.reshape(len(stack), *reversed(shape)).transpose(0, *range(len(shape), 0, -1))

    def clean(self, chunks: NDArray) -> NDArray:
        """See `DataType.clean`."""
        return self.codec.dtype.clean(chunks)


def make_batch(codec: ChunkCodec) -> BatchDecoder | None:
    """The batch decoder of an array; None where there are other codecs than Blosc, or objects."""
    ids = [link.id for link in codec.links]
    if codec.dtype.is_object or not codec.stage.nbytes:
        return None
    if not ids:
        return _RawBatch(codec)
    return _BloscBatch(codec) if ids == ["blosc"] else None


class _RawBatch(BatchDecoder):
    """Uncompressed."""

    __slots__ = ()
    in_place: ClassVar[bool] = True

    @property
    def room(self) -> int:
        return self.nbytes

    def head_room(self, count: int) -> int:  # noqa: ARG002
        return 0

    def join(self, memory: NDArray, extents: Sequence[Run | None]) -> Joined:
        return Joined(memory, extents)

    def decode(self, joined: Joined, stack: NDArray, keys: Sequence[str]) -> None:  # noqa: ARG002
        """Nothing to do where all have the right size; else let the codec say what is wrong."""
        for extent, key in zip(joined.extents, keys, strict=True):
            if extent is not None and extent[1] - extent[0] != self.nbytes:
                self.codec.decode(joined.memory[slice(*extent)].data, key)


class _BloscBatch(BatchDecoder):
    """One Blosc frame a chunk."""

    __slots__ = ()
    in_place: ClassVar[bool] = False

    @property
    def room(self) -> int:
        return self.nbytes + HEADER_BYTES

    def head_room(self, count: int) -> int:
        return HEADER_BYTES + 4 * count * -(-self.nbytes // _SMALLEST_BLOCK)

    def join(self, memory: NDArray, extents: Sequence[Run | None]) -> Joined:
        data, free = memory.data, 0
        stretches = []
        for first, last in _present(extents):
            frames = [extent for extent in extents[first:last] if extent is not None]
            stretches.append(Stretch(first, last, self._joined(data, frames, free)))
            free = frames[-1][1]
        return Joined(memory, extents, stretches)

    def decode(self, joined: Joined, stack: NDArray, keys: Sequence[str]) -> None:
        memory, extents, stretches = joined
        for first, last, frame in stretches:
            rows = stack[first:last]
            if frame is None or not _decode_joined(frame, rows):
                places = self.shaped(rows)
                for extent, place, key in zip(extents[first:last], places, keys[first:last], strict=True):
                    assert extent is not None
                    self.codec.decode_into(memory[slice(*extent)].data, place, key)

    def _joined(self, data: memoryview, frames: Sequence[Run], free: int) -> memoryview | None:
        if len(frames) == 1:
            return data[slice(*frames[0])]
        try:
            return join_frames(data, frames, self.nbytes, free)
        except ValueError:
            return None


def _decode_joined(frame: memoryview, rows: NDArray) -> bool:
    """False where one of the frames is broken: decoding them one by one tells which."""
    try:
        decompress(frame, rows.reshape(-1), rows.nbytes)
    except (ValueError, RuntimeError):
        return False
    return True


def _present(extents: Sequence[Run | None]) -> list[Run]:
    """The stretches of chunks that are there."""
    if None not in extents:
        return [(0, len(extents))]
    return merge_runs([(i, i + 1) for i, extent in enumerate(extents) if extent is not None], 0)
