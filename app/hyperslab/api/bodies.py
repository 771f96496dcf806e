"""Where the bytes of an answer come from: in hand already, or read as they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from hyperslab.api.ranges import ByteRange, Multipart
from hyperslab.api.reply import Buffer, Headers
from hyperslab.arrays.cost import Cancel
from hyperslab.errors import ChangedWhileRead

_PIECE: Final = 1 << 20

Timings = Mapping[str, float]
"""Seconds by phase."""


class Ready(NamedTuple):
    """Bytes in hand, and the headers that say what they have cost. ``moved``: they may not be those that the tag of the
    answer stands for, as somebody has written meanwhile."""

    data: Buffer
    headers: Headers = ()
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """Pieces that block while they are read; ``headers`` is asked when the first one is in hand, and so is ``moved``,
    see `Ready`."""

    pieces: Iterator[Buffer]
    headers: Callable[[], Headers] = field(default=tuple)
    moved: Callable[[], bool] = field(default=bool)


class Body(Protocol):
    """A body of known size, any part of which can be had. ``memory``: bytes that reading it may hold at once."""

    @property
    def size(self) -> int: ...

    @property
    def memory(self) -> int: ...

    def head(self) -> Headers:
        """The cost headers of an answer without a body."""
        ...

    @property
    def is_small(self) -> bool:
        """Whether `fetch` takes milliseconds, so that nobody need be able to cancel it; else it is better streamed."""
        ...

    def ready(self, part: ByteRange) -> Ready | None:
        """The part where it can be had without blocking; called on the event loop."""
        ...

    def fetch(self, part: ByteRange) -> Ready:
        """The whole part at once; blocks."""
        ...

    def open(self, part: ByteRange, cancel: Cancel) -> Opened:
        """Begin to read a part; called in a thread, as are the pieces."""
        ...


@dataclass(frozen=True, slots=True)
class Bytes:
    """A body that is in memory; members as in `Ready`."""

    data: Buffer
    headers: Headers = ()
    moved: bool = False

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def memory(self) -> int:
        return 0

    @property
    def is_small(self) -> bool:
        """More than a piece is better handed over as the client takes it."""
        return len(self.data) <= _PIECE

    def head(self) -> Headers:
        return self.headers

    def ready(self, part: ByteRange) -> Ready | None:
        return self.fetch(part) if len(part) <= _PIECE else None

    def fetch(self, part: ByteRange) -> Ready:
        return Ready(self._cut(part.start, part.stop), self.headers, self.moved)

    def open(self, part: ByteRange, cancel: Cancel) -> Opened:  # noqa: ARG002 - nothing here can be cancelled
        starts = range(part.start, part.stop, _PIECE)
        pieces = (self._cut(start, min(start + _PIECE, part.stop)) for start in starts)
        return Opened(pieces, lambda: self.headers, lambda: self.moved)

    def _cut(self, start: int, stop: int) -> Buffer:
        return self.data if stop - start == len(self.data) else memoryview(self.data)[start:stop]


@dataclass(frozen=True, slots=True)
class Produced:
    """A body whose size shows only when it has been made, as text of any kind; ``produce`` blocks."""

    produce: Callable[[Cancel], Ready]
    memory: int
    head: Callable[[], Headers] = field(default=tuple)


def open_parts(body: Body, layout: Multipart, cancel: Cancel) -> Opened:
    """Several parts of a body, each behind its own head, which waits for the first bytes of the part: where there are
    none to be had, the answer is not begun."""
    first = body.open(layout.ranges[0], cancel)

    def pieces() -> Iterator[Buffer]:
        opened = first
        for number, (head, part) in enumerate(zip(layout.heads, layout.ranges, strict=True)):
            if number:
                opened = body.open(part, cancel)
            begun = next(opened.pieces)
            if number and opened.moved():
                raise ChangedWhileRead("a part was written while another was read")
            yield head
            yield begun
            yield from opened.pieces
        yield layout.end

    return Opened(pieces(), first.headers, first.moved)
