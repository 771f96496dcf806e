"""Notes: JSON metadata of frames, in logs of the same kind as tails, one for each group of frames of an array.

A note is stored before the bytes of its frame, so that no frame is acknowledged without. What a sender has said of a
frame that was not stored then is not shown, and the next note of this frame takes its place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from hyperslab.engine.jsontext import dump_json
from hyperslab.storage.base import Store
from hyperslab.streams.tail import Tail, Tails

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

    def get(self, store: Store, prefix: str, frame: int) -> bytes | None:
        """The note of a frame."""
        return self._group(store, prefix, frame // _FRAMES).get(frame)

    def lines(self, store: Store, prefix: str, key: str, start: int, stop: int) -> Iterator[bytes]:
        """The notes of the frames ``[start, stop)`` as JSON lines ``{"key", "frame", "metadata"}``, those of a group at
        a time."""
        names = [entry.key.rpartition("/")[2] for entry in store.list_dir(prefix).entries]
        text = dump_json(key)
        for group in sorted(int(name) for name in names if name.isdecimal()):
            if start // _FRAMES <= group < -(-stop // _FRAMES):
                found = sorted(self._group(store, prefix, group).items())
                wanted = [(frame, note) for frame, note in found if start <= frame < stop]
                yield b"".join([b'{"key":%b,"frame":%d,"metadata":%b}\n' % (text, *each) for each in wanted])

    def _group(self, store: Store, prefix: str, group: int) -> dict[int, bytes]:
        notes, log = dict[int, bytes](), self._open(store, prefix, group)
        for record in [] if log is None else [*log.records]:
            data = np.empty(record.stop - record.start, np.uint8)
            assert log is not None
            log.read_into(record.start, data)
            frame = _INDEX.unpack(data[: _INDEX.size].tobytes())[0]
            notes[frame] = data[_INDEX.size :].tobytes()
        return notes

    def _open(self, store: Store, prefix: str, group: int, *, create: bool = False) -> Tail | None:
        return self._tails.open(store, f"{prefix}{group}", 0, np.zeros(1, np.uint8), create=create)
