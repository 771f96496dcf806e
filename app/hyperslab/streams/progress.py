"""Progress of the arrays of a stream, which is derived from what the store holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hyperslab.errors import ArrayFailed, MismatchingUploadOffset, StreamFull
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.record import Ranges
from hyperslab.streams.settings import StreamSettings
from hyperslab.streams.tail import Tail


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an array: ``rows`` are in chunks, ``end`` bytes are durable.
    ``tail``: None for an array that is finished; ``error``: why it has failed; ``complete``: it takes no more bytes."""

    array: StreamArray
    rows: int
    end: int
    tail: Tail | None
    missing: Ranges
    error: str | None
    complete: bool
    settings: StreamSettings

    @property
    def size(self) -> int | None:
        """Bytes of the whole array; None without a limit."""
        return None if self.array.frames is None else self.array.frames * self.array.frame_nbytes

    @property
    def visible(self) -> int:
        """Frames of complete rows, which readers see."""
        return max(self.rows, self.end // self.array.row_nbytes) * self.array.frames_per_row

    def check(self) -> None:
        """Raise `ArrayFailed` for an array that has failed."""
        if self.error is not None:
            raise ArrayFailed(self.array.path, self.error)

    def check_offset(self, at: int, nbytes: int) -> None:
        """Raise `MismatchingUploadOffset` unless ``at`` is the offset, `StreamFull` if there is no room for more."""
        if at != self.end:
            raise MismatchingUploadOffset(self.array.path, self.end, at)
        if self.size is not None and at + nbytes > self.size:
            raise StreamFull(self.array.path, self.size, at + nbytes)

    def document(self, missing: list[tuple[int, int]]) -> dict[str, Any]:
        """As JSON of the state; ``missing`` from `Writers.missing`."""
        size = self.array.frame_nbytes
        return {
            **self.array.description(),
            "offset": self.end,
            "accepted": self.end // size,
            "durable": self.end // size,
            "visible": self.visible,
            "missing": missing,
            "partial": self.end % size,
            "error": self.error,
            "complete": self.complete,
        }
