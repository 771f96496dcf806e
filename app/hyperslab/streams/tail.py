"""Tail of an array in a folder: what came and is not in chunks yet, as logs of records.

There is a log for each group of rows, which are those of one row of stored objects. A record is a header and the bytes
that came; the header is written when they are, and so a record is there as a whole or not at all. After a power cut
only the last one can be broken, which its checksum tells. Positions of bytes and frames are those of the array.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Any, Final, NamedTuple

import google_crc32c
import numpy as np

from hyperslab.arrays.extent import LARGEST
from hyperslab.cache import VersionedCache
from hyperslab.storage.base import Log, Store
from hyperslab.streams.objects import ObjectTails

DATA: Final = 0
MISSING: Final = 1
CUT: Final = 2

_HEADER: Final = struct.Struct("<4sBxxxIQQQI")
_MAGIC: Final = b"hsT1"
_MOST_OPEN: Final = 256
_PIECE: Final = 1 << 20


class Record(NamedTuple):
    """Bytes ``[start, stop)`` of an array: those at ``position`` of the log, or for a ``reason`` none."""

    start: int
    stop: int
    position: int
    reason: str | None


class Tail:
    """The log of one group, whose first byte is ``begin``. Safe to read from many threads; one appends at a time."""

    def __init__(self, log: Log, begin: int, fill: np.ndarray) -> None:
        self.log = log
        self.begin = self.end = begin
        self.records: list[Record] = []
        self._fill = np.frombuffer(fill.tobytes(), np.uint8)
        self._size = 0
        self._broken: bytes | None = None
        self._lock = Lock()
        self.refresh()
        self._drop_broken()

    def refresh(self) -> int:
        """Read the headers of records that are new; returns where the last record ends."""
        with self._lock:
            size = self.log.size
            while self._size + _HEADER.size <= size:
                head = bytearray(_HEADER.size)
                self.log.read_into(self._size, memoryview(head))
                magic, kind, _, start, stop, nbytes, check = _HEADER.unpack(head)
                position = self._size + _HEADER.size
                broken = (
                    magic != _MAGIC or bytes(head) == self._broken or check != google_crc32c.value(bytes(head[:-4]))
                )
                if broken or position + nbytes > size or (start != self.end and kind != CUT):
                    break
                low, high = (self.begin, self.end) if kind == CUT else (self.end, LARGEST)
                if not low <= stop <= high or (kind == DATA and stop - start != nbytes):
                    break
                if kind == CUT:
                    self._cut(stop)
                else:
                    self.records.append(Record(start, stop, position, self._text(position, nbytes) if kind else None))
                    self.end = stop
                self._size = position + nbytes
            return self.end

    def append(self, data: bytes | memoryview) -> None:
        """Store bytes behind the end, durably; raises `errors.StoreError`, and then nothing is stored."""
        self._append(DATA, self.end, self.end + len(data), data)

    def append_missing(self, nbytes: int, reason: str) -> None:
        """Note that so many bytes, whole frames, will not come."""
        self._append(MISSING, self.end, self.end + nbytes, reason.encode())

    def cut(self, end: int) -> None:
        """Forget the bytes from ``end`` on."""
        self._append(CUT, self.end, end, b"")

    def read_into(self, start: int, out: np.ndarray) -> None:
        """Fill ``out`` (C-contiguous bytes) with the array's bytes from ``start`` on; missing ones are fill values."""
        done, target = 0, memoryview(out)  # type: ignore[arg-type]
        at = bisect_right(self.records, start, key=lambda record: record.start) - 1
        while done < len(out):
            record = self.records[at]
            first, count = start + done, min(record.stop - start, len(out)) - done
            if record.reason is None:
                self.log.read_into(record.position + first - record.start, target[done : done + count])
            else:
                phase = first % len(self._fill)
                out[done : done + count] = np.resize(np.roll(self._fill, -phase), count)
            done, at = done + count, at + 1

    def missing(self, frame_nbytes: int) -> Iterator[tuple[int, int, str]]:
        """The frames ``[start, stop)`` that will not come, and why."""
        for record in [*self.records]:
            if record.reason is not None:
                yield record.start // frame_nbytes, record.stop // frame_nbytes, record.reason

    def _append(self, kind: int, start: int, stop: int, data: bytes | memoryview) -> None:
        check, items = 0, np.frombuffer(data, np.uint8)
        for at in range(0, len(data), _PIECE):
            check = google_crc32c.extend(check, items[at : at + _PIECE])  # no copy of an array
        head = _HEADER.pack(_MAGIC, kind, check, start, stop, len(data), 0)[:-4]
        head += struct.pack("<I", google_crc32c.value(head))
        self.log.write(self._size, [(self._size + _HEADER.size, data), (self._size, head)])
        self.refresh()

    def _text(self, position: int, nbytes: int) -> str:
        text = bytearray(min(nbytes, 4096))
        self.log.read_into(position, memoryview(text))
        return text.decode(errors="replace")

    def _cut(self, end: int) -> None:
        while self.records and self.records[-1].start >= end:
            self.records.pop()
        if self.records:
            self.records[-1] = self.records[-1]._replace(stop=end)
        self.end = end

    def _drop_broken(self) -> None:
        """Leave out a last record whose bytes are not those that were sent."""
        if not self.records or self.records[-1].reason is not None:
            return
        last, check = self.records[-1], 0
        head = bytearray(_HEADER.size)
        self.log.read_into(last.position - _HEADER.size, memoryview(head))
        nbytes = _HEADER.unpack(head)[5]
        for start in range(0, nbytes, _PIECE):
            piece = bytearray(min(_PIECE, nbytes - start))
            self.log.read_into(last.position + start, memoryview(piece))
            check = google_crc32c.extend(check, bytes(piece))
        if check != _HEADER.unpack(head)[2]:
            self.records.pop()
            self.end, self._size, self._broken = last.start, last.position - _HEADER.size, bytes(head)


class Tails:
    """The open tails of a process, the most recently used ones. ``segments``: the cache for what `objects` reads."""

    def __init__(self, segments: VersionedCache[Any]) -> None:
        self.objects = ObjectTails(segments)
        self._open: OrderedDict[tuple[str, str], Tail] = OrderedDict()
        self._lock = Lock()

    def open(self, store: Store, key: str, begin: int, fill: np.ndarray, *, create: bool = False) -> Tail | None:
        """The tail under a key, with all that it holds by now; None where there is none, unless it is to be made."""
        name = (store.name, f"{'w' if create else 'r'}{key}")
        with self._lock:
            found = self._open.get(name)
            if found is not None:
                self._open.move_to_end(name)
        if found is None:
            log = store.open_log(key, create=create)
            if log is None:
                return None
            found = Tail(log, begin, fill)
            prefix, _, group = name[1].rpartition("/")
            with self._lock:
                found = self._open.setdefault(name, found)
                for other in [n for n in self._open if n[0] == name[0] and n[1].rpartition("/")[0] == prefix]:
                    if int(other[1].rpartition("/")[2]) + 2 < int(group):  # it was removed, and its bytes take room
                        del self._open[other]
                while len(self._open) > _MOST_OPEN:
                    self._open.popitem(last=False)
        found.refresh()
        return found

    def forget(self, store: Store, key: str) -> None:
        """Let go of a tail that was removed."""
        with self._lock:
            for mode in "rw":
                self._open.pop((store.name, mode + key), None)
