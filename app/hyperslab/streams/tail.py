"""Tails: the bytes of an array that are not in chunks yet, and the logs that hold them in a folder.

A log is a sequence of records, each a header and its payload. The header is written last, so a record is there as a
whole or not at all; a power cut can tear only the last one, whose checksum then fails. All offsets are those of the
array.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Annotated, Any, Final, NamedTuple

import google_crc32c
import numpy as np
from pydantic import Field

from hyperslab.arrays.extent import LARGEST
from hyperslab.errors import ChangedWhileRead
from hyperslab.storage.base import Log
from hyperslab.streams.layout import StreamArray

Count = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
Name = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
"""Name of a segment."""

NDArray = np.ndarray[Any, np.dtype[Any]]
Buffer = bytes | memoryview

DATA: Final = 0
MISSING: Final = 1
CUT: Final = 2

_HEADER: Final = struct.Struct("<4sBxxxIQQQI")
_MAGIC: Final = b"hsT1"
_BLOCK: Final = 1 << 20
"""Bytes that are read or checksummed at a time."""


class Piece(NamedTuple):
    """Location of the bytes ``[start, stop)`` of an array: at ``position`` of the segment ``name``, or without a name,
    of the log or head itself. With a ``reason`` they are missing, and stored nowhere."""

    start: Count
    stop: Count
    name: Name | None
    position: Count
    reason: str | None


class Tail(ABC):
    """The bytes ``[begin, end)`` of an array that are not in chunks, as of one look at the store and as this object
    changes them. The metadata of frames is with it.

    Attributes:
        group: Bytes that move to chunks together, and are appended to no other; larger than any tail if it has no such
            parts.
        may_lag: Whether bytes may have moved to chunks during the look-up.
    """

    group: int = LARGEST
    may_lag = False

    def __init__(self, array: StreamArray) -> None:
        self.array = array

    @property
    @abstractmethod
    def begin(self) -> int:
        """First byte."""

    @property
    @abstractmethod
    def pieces(self) -> Sequence[Piece]:
        """All pieces, in order and without gaps."""

    @property
    def end(self) -> int:
        """End of the last byte."""
        pieces = self.pieces
        return pieces[-1].stop if pieces else self.begin

    @property
    def is_newest(self) -> bool:
        """Whether this process knows of no later change, and any would make the next one fail."""
        return False

    def read(self, start: int, count: int) -> NDArray:
        """``count`` bytes from ``start`` on; missing ones are fill values. Raises `ChangedWhileRead` if they have moved
        to chunks."""
        pieces, done, out = self.pieces, 0, np.empty(count, np.uint8)
        at = bisect_right(pieces, start, key=lambda piece: piece.start) - 1
        while done < count:
            if not (0 <= at < len(pieces) and pieces[at].start <= start + done < pieces[at].stop):
                raise ChangedWhileRead("the rows have moved to chunks meanwhile")
            piece, first = pieces[at], start + done
            part = out[done : done + piece.stop - first]
            if piece.reason is None:
                self._read(piece, piece.position + first - piece.start, part)
            else:
                part[:] = self.array.fill_bytes(first, len(part))
            done, at = done + len(part), at + 1
        return out

    def missing(self) -> list[tuple[int, int, str]]:
        """Missing frames as ranges ``(start, stop, reason)``."""
        size = self.array.frame_nbytes
        return [(p.start // size, p.stop // size, p.reason) for p in [*self.pieces] if p.reason is not None]

    def check_sender(self, epoch: int | None, *, closing: bool = False) -> None:  # noqa: B027 - locks do in a folder
        """Raise what the tail itself knows against an append by a sender of an ``epoch``, or by whoever closes it."""

    def fence(self, epoch: int, *, closed: bool | None) -> None:  # noqa: B027 - locks do in a folder
        """Make changes fail by whoever has looked earlier, and appends of older epochs. ``closed``: whether the tail
        takes no more bytes; None leaves that unchanged."""

    @abstractmethod
    def put_note(self, frame: int, note: bytes) -> None:
        """Store metadata of the frame that is appended next; ``b""`` replaces that of an earlier sender of it."""

    @abstractmethod
    def append(self, at: int, data: Buffer) -> None:
        """Store bytes at the end, which is ``at``, durably and within a group. Raises `errors.StoreError`."""

    @abstractmethod
    def append_missing(self, at: int, nbytes: int, reason: str) -> None:
        """Record the next ``nbytes`` bytes, which are whole frames, as missing."""

    @abstractmethod
    def cut(self, end: int) -> None:
        """Drop the bytes from ``end`` on, which lie in the last frame."""

    @abstractmethod
    def drop(self, begin: int) -> None:
        """Drop the bytes before ``begin``, which are in chunks."""

    @abstractmethod
    def notes(self, start: int, stop: int) -> Iterator[list[tuple[int, bytes]]]:
        """Metadata of the frames ``[start, stop)`` as pairs (frame, JSON), many at a time."""

    @abstractmethod
    def _read(self, piece: Piece, position: int, out: NDArray) -> None:
        """Fill ``out`` from a ``position`` of what holds the piece."""


class TailLog:
    """A log of an array's bytes from ``begin`` on. Many threads may read while one appends."""

    def __init__(self, log: Log, begin: int) -> None:
        self.log = log
        self.begin = begin
        self.pieces: list[Piece] = []
        self._size = 0
        self._torn: bytes | None = None  # header of a record whose payload is not what was sent
        self._lock = Lock()
        self.refresh()
        if self.pieces and self.pieces[-1].reason is None:
            last, head = self.pieces[-1], self._bytes(self.pieces[-1].position - _HEADER.size, _HEADER.size)
            if not self._is_whole(head, last.position):
                self._torn = head
                self.pieces.pop()
                self._size = last.position - _HEADER.size

    @property
    def end(self) -> int:
        return self.pieces[-1].stop if self.pieces else self.begin

    def refresh(self) -> int:
        """Read the headers of new records, up to the first that is not valid; returns the new end."""
        with self._lock:
            size = self.log.size
            while self._size + _HEADER.size <= size:
                head = self._bytes(self._size, _HEADER.size)
                magic, kind, _, start, stop, nbytes, check = _HEADER.unpack(head)
                position = self._size + _HEADER.size
                if magic != _MAGIC or check != google_crc32c.value(head[:-4]) or position + nbytes > size:
                    break
                low, high = (self.begin, self.end) if kind == CUT else (self.end, LARGEST)
                follows = low <= stop <= high and (start == self.end or kind == CUT)
                if not follows or (kind == DATA and stop - start != nbytes):
                    break
                if head == self._torn and not self._is_whole(head, position):
                    break
                if kind == CUT:
                    kept = [piece for piece in self.pieces if piece.start < stop]
                    self.pieces = [*kept[:-1], *[piece._replace(stop=stop) for piece in kept[-1:]]]
                else:
                    reason = self._bytes(position, min(nbytes, 4096)).decode(errors="replace") if kind else None
                    self.pieces.append(Piece(start, stop, None, position, reason))
                self._size = position + nbytes
            return self.end

    def append(self, kind: int, stop: int, data: Buffer = b"") -> None:
        """Append a record that ends at ``stop``, durably. Raises `errors.StoreError`, and then nothing is stored."""
        check, items = 0, np.frombuffer(data, np.uint8)
        for at in range(0, len(data), _BLOCK):
            check = google_crc32c.extend(check, items[at : at + _BLOCK])  # an array, which is not copied
        head = _HEADER.pack(_MAGIC, kind, check, self.end, stop, len(data), 0)[:-4]
        head += struct.pack("<I", google_crc32c.value(head))
        self.log.write(self._size, [(self._size + _HEADER.size, data), (self._size, head)])
        self.refresh()

    def data(self, piece: Piece) -> bytes:
        """The bytes of a piece."""
        return self._bytes(piece.position, piece.stop - piece.start)

    def _bytes(self, position: int, nbytes: int) -> bytes:
        data = bytearray(nbytes)
        self.log.read_into(position, memoryview(data))
        return bytes(data)

    def _is_whole(self, head: bytes, position: int) -> bool:
        """Whether a payload has the checksum of its header."""
        _, _, expected, _, _, nbytes, _ = _HEADER.unpack(head)
        check = 0
        for at in range(0, nbytes, _BLOCK):
            check = google_crc32c.extend(check, self._bytes(position + at, min(_BLOCK, nbytes - at)))
        return bool(check == expected)
