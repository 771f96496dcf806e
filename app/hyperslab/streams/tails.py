"""Tails of the arrays of a process: open logs and heads, and metadata of frames.

The metadata of a frame is JSON. In an object store it is in the head of the tail. In a folder it is in logs of the same
format as tails, written before the bytes of its frame, so no frame is acknowledged without its metadata. If a frame was
not stored after all, its metadata is ignored: the next sender's replaces it, or an empty entry does.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import numpy as np

from hyperslab.arrays.extent import LARGEST
from hyperslab.arrays.nodes import MountedStore
from hyperslab.cache import VersionedCache
from hyperslab.errors import ChangedWhileRead
from hyperslab.storage.base import Store
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.objects import ObjectTails
from hyperslab.streams.tail import LogTail, NDArray, Piece, Tail

Buffer = bytes | memoryview

LARGEST_NOTE: Final = 16 << 10
"""Bytes of metadata of a frame; so those of one log fit into memory."""
_FRAMES: Final = 1024
"""Frames with metadata in one log."""
_INDEX: Final = struct.Struct("<Q")
_MAX_OPEN: Final = 256


@dataclass(frozen=True, slots=True)
class TailRows:
    """Bytes of an array in the tails of consecutive groups of ``nbytes`` each; in an object store there is one."""

    tails: Mapping[int, Tail]
    nbytes: int

    @property
    def begin(self) -> int:
        return self.tails[min(self.tails)].begin

    @property
    def end(self) -> int:
        return self.tails[max(self.tails)].end

    @property
    def may_lag(self) -> bool:
        """Whether later groups may have moved to chunks during the look-up: they cannot while the last group here is
        incomplete."""
        return not self.tails or self.end % self.nbytes == 0 < self.end

    def missing(self, frame_nbytes: int) -> list[tuple[int, int, str]]:
        """Missing frames as ranges ``(start, stop, reason)``."""
        return [each for tail in self.tails.values() for each in tail.missing(frame_nbytes)]

    def read(self, start: int, count: int) -> NDArray:
        """``count`` bytes from ``start`` on. Raises `ChangedWhileRead` if they have moved to chunks."""
        out, done = np.empty(count, np.uint8), 0
        while done < count:
            group = (start + done) // self.nbytes
            part = min(count - done, (group + 1) * self.nbytes - start - done)
            if group not in self.tails:
                raise ChangedWhileRead("the rows have moved to chunks meanwhile")
            self.tails[group].read_into(start + done, out[done : done + part])
            done += part
        return out


class Tails:
    """Opens tails, in a folder `log` and in an object store ``objects``. The most recently used logs stay open.
    ``segments``: cache for segments of object tails."""

    def __init__(self, segments: VersionedCache[Any]) -> None:
        self.objects = ObjectTails(segments)
        self._logs: OrderedDict[tuple[str, bool, str, int], LogTail] = OrderedDict()
        self._lock = Lock()

    def log(self, store: Store, array: StreamArray, group: int, *, create: bool = False) -> LogTail | None:
        """The log of a group of rows, up to date; None if there is none, unless ``create``."""
        begin = group * array.group_nbytes
        return self._open(store, array.tails, group, begin=begin, fill=array.fill, create=create)

    def remove(self, store: Store, array: StreamArray, group: int) -> None:
        """Delete the log of a group of rows."""
        store.delete(f"{array.tails}{group}")
        with self._lock:
            for create in (False, True):
                self._logs.pop((store.name, create, array.tails, group), None)

    def rows(self, mount: MountedStore, array: StreamArray, rows: int) -> tuple[TailRows, dict[str, str | None]]:
        """The tails of an array from ``rows`` on, and the versions of their keys, with that of the next group."""
        tails, versions, nbytes = dict[int, Tail](), dict[str, str | None](), array.group_nbytes
        if mount.is_remote:
            versions[array.head] = version = mount.versions.look_up(array.head, [array.head])[0]
            found = None if version is None else self.objects.open(mount.store, array, version)
            return TailRows({} if found is None else {0: found}, LARGEST), versions
        group = rows // array.group_rows
        while True:
            key = f"{array.tails}{group}"
            versions[key] = mount.versions.look_up(array.tails, [key])[0]
            tail = None if versions[key] is None else self.log(mount.store, array, group)
            if tail is not None:
                tails[group] = tail
            if tail is None or tail.end < (group + 1) * nbytes:
                return TailRows(tails, nbytes), versions
            group += 1

    # --- metadata of frames ------------------------------------------------------------------------------------------

    def notes(
        self, mount: MountedStore, array: StreamArray, start: int, stop: int
    ) -> Iterator[list[tuple[int, bytes]]]:
        """Metadata of the frames ``[start, stop)`` as pairs (frame, JSON), many at a time."""
        if mount.is_remote:
            tail = self.objects.open(mount.store, array)
            yield from () if tail is None else tail.notes(start, stop)
            return
        names = [entry.key.rpartition("/")[2] for entry in mount.store.list_dir(array.notes).entries]
        for group in sorted(int(name) for name in names if name.isdecimal()):
            log = (
                self._notes_log(mount.store, array, group) if start // _FRAMES <= group < -(-stop // _FRAMES) else None
            )
            if log is not None:
                notes = _entries(log, log.pieces)
                yield [(frame, note) for frame, note in sorted(notes.items()) if start <= frame < stop and note]

    def put_note(self, store: Store, array: StreamArray, frame: int, note: Buffer) -> None:
        """Store metadata of a frame in a folder, or with ``b""`` remove that of an earlier sender of the frame."""
        group = frame // _FRAMES
        known = None if note else self._notes_log(store, array, group)
        if note or (known is not None and frame in _entries(known, known.pieces[-1:])):
            log = self._notes_log(store, array, group, create=True)
            assert log is not None
            log.append(_INDEX.pack(frame) + bytes(note))

    def _notes_log(self, store: Store, array: StreamArray, group: int, *, create: bool = False) -> LogTail | None:
        return self._open(store, array.notes, group, begin=0, fill=np.zeros(1, np.uint8), create=create)

    def _open(
        self, store: Store, prefix: str, group: int, *, begin: int, fill: NDArray, create: bool
    ) -> LogTail | None:
        name = (store.name, create, prefix, group)
        with self._lock:
            found = self._logs.get(name)
            if found is not None:
                self._logs.move_to_end(name)
        if found is None:
            log = store.open_log(f"{prefix}{group}", create=create)
            if log is None:
                return None
            found = LogTail(log, begin, fill)
            with self._lock:
                found = self._logs.setdefault(name, found)
                # another process may have deleted older ones, whose disk space is freed when they are closed
                for other in [each for each in self._logs if each[:3] == name[:3] and each[3] + 2 < group]:
                    del self._logs[other]
                while len(self._logs) > _MAX_OPEN:
                    self._logs.popitem(last=False)
        found.refresh()
        return found


def _entries(log: LogTail, pieces: Sequence[Piece]) -> dict[int, bytes]:
    """The metadata in some records of a log, by frame."""
    notes = dict[int, bytes]()
    for piece in [*pieces]:
        data = np.empty(piece.stop - piece.start, np.uint8)
        log.read_into(piece.start, data)
        notes[_INDEX.unpack(data[: _INDEX.size].tobytes())[0]] = data[_INDEX.size :].tobytes()
    return notes
