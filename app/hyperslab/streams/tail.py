"""Tails: the bytes of an array that are not in chunks yet, and the tail of an array in a folder.

In a folder a tail is append-only logs, one for each group of rows (the rows of one row of stored objects). A log is a
sequence of records, each a header and its payload. The header is written last, so a record is there as a whole or not
at all; a power cut can tear only the last one, whose checksum then fails. All offsets are those of the array.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

import google_crc32c
import numpy as np

from hyperslab.arrays.extent import LARGEST
from hyperslab.errors import ChangedWhileRead
from hyperslab.storage.base import Log

NDArray = np.ndarray[Any, np.dtype[Any]]

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

    start: int
    stop: int
    name: str | None
    position: int
    reason: str | None


class Tail(ABC):
    """The tail of an array, or its part in one log: bytes ``[begin, end)``."""

    def __init__(self, fill: NDArray) -> None:
        self._fill = np.frombuffer(fill.tobytes(), np.uint8)

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

    def read_into(self, start: int, out: NDArray) -> None:
        """Fill ``out`` (C-contiguous bytes) with the array's bytes from ``start`` on; missing ones are fill values.

        Raises `ChangedWhileRead` if they have moved to chunks.
        """
        pieces, done = self.pieces, 0
        at = bisect_right(pieces, start, key=lambda piece: piece.start) - 1
        while done < len(out):
            if not 0 <= at < len(pieces):
                raise ChangedWhileRead("the rows have moved to chunks meanwhile")
            piece, first = pieces[at], start + done
            part = out[done : done + piece.stop - first]
            if piece.reason is None:
                self._read(piece, piece.position + first - piece.start, part)
            else:
                part[:] = np.resize(np.roll(self._fill, -(first % len(self._fill))), len(part))
            done, at = done + len(part), at + 1

    def missing(self, frame_nbytes: int) -> Iterator[tuple[int, int, str]]:
        """Missing frames as ranges ``(start, stop, reason)``."""
        for piece in [*self.pieces]:
            if piece.reason is not None:
                yield piece.start // frame_nbytes, piece.stop // frame_nbytes, piece.reason

    @abstractmethod
    def append_missing(self, nbytes: int, reason: str) -> None:
        """Record the next ``nbytes`` bytes, which are whole frames, as missing."""

    @abstractmethod
    def cut(self, end: int) -> None:
        """Drop the bytes from ``end`` on."""

    @abstractmethod
    def _read(self, piece: Piece, position: int, out: NDArray) -> None:
        """Fill ``out`` from a ``position`` of what holds the piece."""


class LogTail(Tail):
    """The log of one group of rows. Many threads may read while one appends."""

    def __init__(self, log: Log, begin: int, fill: NDArray) -> None:
        super().__init__(fill)
        self.log = log
        self._begin = begin
        self._pieces: list[Piece] = []
        self._size = 0
        self._torn: bytes | None = None  # header of a record whose payload is not what was sent
        self._lock = Lock()
        self.refresh()
        if self._pieces and self._pieces[-1].reason is None:
            last, head = self._pieces[-1], self._bytes(self._pieces[-1].position - _HEADER.size, _HEADER.size)
            if not self._is_whole(head, last.position):
                self._torn = head
                self._pieces.pop()
                self._size = last.position - _HEADER.size

    @property
    def begin(self) -> int:
        return self._begin

    @property
    def pieces(self) -> Sequence[Piece]:
        return self._pieces

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
                    kept = [each for each in self._pieces if each.start < stop]
                    self._pieces = [*kept[:-1], *[each._replace(stop=stop) for each in kept[-1:]]]
                else:
                    reason = self._bytes(position, min(nbytes, 4096)).decode(errors="replace") if kind else None
                    self._pieces.append(Piece(start, stop, None, position, reason))
                self._size = position + nbytes
            return self.end

    def append(self, data: bytes | memoryview) -> None:
        """Store bytes at the end, durably. Raises `errors.StoreError`, and then nothing is stored."""
        self._append(DATA, self.end, self.end + len(data), data)

    def append_missing(self, nbytes: int, reason: str) -> None:
        self._append(MISSING, self.end, self.end + nbytes, reason.encode())

    def cut(self, end: int) -> None:
        self._append(CUT, self.end, end, b"")

    def _read(self, piece: Piece, position: int, out: NDArray) -> None:  # noqa: ARG002 - there is one log
        self.log.read_into(position, memoryview(out))  # type: ignore[arg-type]

    def _append(self, kind: int, start: int, stop: int, data: bytes | memoryview) -> None:
        check, items = 0, np.frombuffer(data, np.uint8)
        for at in range(0, len(data), _BLOCK):
            check = google_crc32c.extend(check, items[at : at + _BLOCK])  # an array, which is not copied
        head = _HEADER.pack(_MAGIC, kind, check, start, stop, len(data), 0)[:-4]
        head += struct.pack("<I", google_crc32c.value(head))
        self.log.write(self._size, [(self._size + _HEADER.size, data), (self._size, head)])
        self.refresh()

    def _bytes(self, position: int, nbytes: int) -> bytes:
        found = bytearray(nbytes)
        self.log.read_into(position, memoryview(found))
        return bytes(found)

    def _is_whole(self, head: bytes, position: int) -> bool:
        """Whether a payload has the checksum of its header."""
        _, _, expected, _, _, nbytes, _ = _HEADER.unpack(head)
        check = 0
        for at in range(0, nbytes, _BLOCK):
            check = google_crc32c.extend(check, self._bytes(position + at, min(_BLOCK, nbytes - at)))
        return bool(check == expected)
