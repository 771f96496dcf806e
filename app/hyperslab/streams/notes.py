"""Notes: JSON metadata of frames, in logs of the same kind as tails, one for each group of frames of an array.

In a folder only: in an object store, they are in the head of the tail. A note is stored before the bytes of its frame,
so that no frame is acknowledged without. What a sender has said of a frame that was not stored then is not shown; the
next note of this frame takes its place, or an empty one where it comes without.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from hyperslab.storage.base import Store
from hyperslab.streams.tail import Record, Tail, Tails

Buffer = bytes | memoryview

LARGEST_NOTE: Final = 16 << 10
"""Bytes; so a group of them fits into memory."""
_FRAMES: Final = 1024
_INDEX: Final = struct.Struct("<Q")


class Notes:
    """Notes of frames, each a text of JSON, below the prefix of an array. One appends to an array at a time."""

    def __init__(self, tails: Tails) -> None:
        self._tails = tails

    def append(self, store: Store, prefix: str, frame: int, note: Buffer) -> None:
        """Note something of a frame, durably; raises `errors.StoreError`."""
        log = self._open(store, prefix, frame // _FRAMES, create=True)
        assert log is not None
        log.append(_INDEX.pack(frame) + bytes(note))

    def forget(self, store: Store, prefix: str, frame: int) -> None:
        """Take back what was noted of a frame that was not stored then, and that comes without metadata now."""
        log = self._open(store, prefix, frame // _FRAMES)
        if log is not None and frame in self._read(log, log.records[-1:]):
            self.append(store, prefix, frame, b"")

    def between(self, store: Store, prefix: str, start: int, stop: int) -> Iterator[list[tuple[int, bytes]]]:
        """The notes of the frames ``[start, stop)``, with their numbers, those of a group at a time."""
        names = [entry.key.rpartition("/")[2] for entry in store.list_dir(prefix).entries]
        for group in sorted(int(name) for name in names if name.isdecimal()):
            log = self._open(store, prefix, group) if start // _FRAMES <= group < -(-stop // _FRAMES) else None
            if log is not None:
                yield [
                    each for each in sorted(self._read(log, log.records).items()) if start <= each[0] < stop and each[1]
                ]

    def _read(self, log: Tail, records: Sequence[Record]) -> dict[int, bytes]:
        notes = dict[int, bytes]()
        for record in [*records]:
            data = np.empty(record.stop - record.start, np.uint8)
            log.read_into(record.start, data)
            frame = _INDEX.unpack(data[: _INDEX.size].tobytes())[0]
            notes[frame] = data[_INDEX.size :].tobytes()
        return notes

    def _open(self, store: Store, prefix: str, group: int, *, create: bool = False) -> Tail | None:
        return self._tails.open(store, f"{prefix}{group}", 0, np.zeros(1, np.uint8), create=create)
