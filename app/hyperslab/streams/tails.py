"""Tails of the arrays of a process, and those in a folder: logs, one for each group of rows.

The metadata of a frame is JSON. In an object store it is in the head of the tail. In a folder it is in logs of the same
format as tails, written before the bytes of its frame, so no frame is acknowledged without its metadata. If a frame was
not stored after all, its metadata is ignored: the next sender's replaces it, or an empty entry does.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, Final

from hyperslab.arrays.nodes import MountedStore
from hyperslab.cache import VersionedCache
from hyperslab.errors import ArrayFailed
from hyperslab.storage.base import Store
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.objects import ObjectTails
from hyperslab.streams.tail import CUT, DATA, MISSING, Buffer, NDArray, Piece, Tail, TailLog

LARGEST_NOTE: Final = 16 << 10
"""Bytes of metadata of a frame; so those of one log fit into memory."""
_FRAMES: Final = 1024
"""Frames with metadata in one log."""
_INDEX: Final = struct.Struct("<Q")
_MAX_OPEN: Final = 256


class FolderTail(Tail):
    """The tail of an array in a folder, from the group of rows ``first`` on: logs by group, of which all but the last
    are complete. The caller of what changes it holds the array's lock."""

    def __init__(self, tails: Tails, store: Store, array: StreamArray, first: int, logs: dict[int, TailLog]) -> None:
        super().__init__(array)
        self.group = array.group_nbytes
        self._tails, self._store = tails, store
        self._first, self._logs = first, logs
        # later groups cannot have moved to chunks while the last one here is incomplete
        self.may_lag = not logs or self.end % self.group == 0 < self.end

    @property
    def begin(self) -> int:
        return self._first * self.group

    @property
    def pieces(self) -> Sequence[Piece]:
        logs = [*self._logs.values()]
        return logs[0].pieces if len(logs) == 1 else [piece for log in logs for piece in log.pieces]

    def put_note(self, frame: int, note: bytes) -> None:
        group = frame // _FRAMES
        existing = None if note else self._tails.log(self._store, self.array.notes, group)
        if note or (existing is not None and frame in _entries(existing, existing.pieces[-1:])):
            log, entry = self._tails.writable_log(self._store, self.array.notes, group), _INDEX.pack(frame) + note
            log.append(DATA, log.end + len(entry), entry)

    def append(self, at: int, data: Buffer) -> None:
        self._log(at // self.group, end=at).append(DATA, at + len(data), data)

    def append_missing(self, at: int, nbytes: int, reason: str) -> None:
        self._log(at // self.group, end=at).append(MISSING, at + nbytes, reason.encode())

    def cut(self, end: int) -> None:
        self._log(end // self.group).append(CUT, end)

    def drop(self, begin: int) -> None:
        for group in [number for number in self._logs if (number + 1) * self.group <= begin]:
            self._tails.remove(self._store, self.array, group)

    def notes(self, start: int, stop: int) -> Iterator[list[tuple[int, bytes]]]:
        names = [entry.key.rpartition("/")[2] for entry in self._store.list_dir(self.array.notes).entries]
        for group in sorted(int(name) for name in names if name.isdecimal()):
            within = start // _FRAMES <= group < -(-stop // _FRAMES)
            log = self._tails.log(self._store, self.array.notes, group) if within else None
            if log is not None:
                notes = _entries(log, log.pieces)
                yield [(frame, note) for frame, note in sorted(notes.items()) if start <= frame < stop and note]

    def _read(self, piece: Piece, position: int, out: NDArray) -> None:
        self._logs[piece.start // self.group].log.read_into(position, out.data)

    def _log(self, group: int, *, end: int | None = None) -> TailLog:
        """The log of a group to write to; raises `ArrayFailed` if it does not end at ``end``."""
        log = self._tails.writable_log(self._store, self.array.tails, group, group * self.group)
        if end not in (None, log.end):
            raise ArrayFailed(self.array.path, f"its tail ends at byte {log.end}, and {end} bytes were stored")
        return log


class Tails:
    """Opens tails. The most recently used logs stay open. ``segments``: cache for segments of object tails."""

    def __init__(self, segments: VersionedCache[Any]) -> None:
        self._objects = ObjectTails(segments)
        self._logs: OrderedDict[tuple[str, bool, str, int], TailLog] = OrderedDict()
        self._lock = Lock()

    def open(
        self, mount: MountedStore, array: StreamArray, rows: int = 0, *, fresh: bool = True
    ) -> tuple[Tail, dict[str, str | None]]:
        """The tail of an array of which ``rows`` are in chunks, and the versions of its keys, in a folder with that of
        the next log. ``fresh``: versions that are cached do not count."""
        if mount.is_remote:
            version = mount.versions.look_up(array.head, [array.head], fresh=fresh)[0]
            return self._objects.open(mount.store, array, version), {array.head: version}
        logs, versions = dict[int, TailLog](), dict[str, str | None]()
        first = group = rows // array.group_rows
        while True:
            key, begin = f"{array.tails}{group}", group * array.group_nbytes
            versions[key] = mount.versions.look_up(array.tails, [key], fresh=fresh)[0]
            log = None if versions[key] is None else self.log(mount.store, array.tails, group, begin)
            if log is None:
                self._close(mount.store, array, group)  # it may have been open here
            else:
                logs[group] = log
            if log is None or log.end < begin + array.group_nbytes:
                return FolderTail(self, mount.store, array, first, logs), versions
            group += 1

    def first_row(self, mount: MountedStore, array: StreamArray) -> int:
        """The first row in the tail of an array that another writer has changed."""
        if mount.is_remote:
            return self.open(mount, array)[0].begin // array.row_nbytes
        names = [entry.key.rpartition("/")[2] for entry in mount.store.list_dir(array.tails).entries]
        return min([int(name) for name in names if name.isdecimal()], default=0) * array.group_rows

    def remove(self, store: Store, array: StreamArray, group: int) -> None:
        """Delete the log of a group of rows."""
        store.delete(f"{array.tails}{group}")
        self._close(store, array, group)

    def writable_log(self, store: Store, prefix: str, group: int, begin: int = 0) -> TailLog:
        """`log` to write to, which is created if there is none."""
        log = self.log(store, prefix, group, begin, create=True)
        assert log is not None
        return log

    def log(self, store: Store, prefix: str, group: int, begin: int = 0, *, create: bool = False) -> TailLog | None:
        """The log of a group of rows or of metadata of frames, up to date; None if there is none, unless ``create``."""
        name = (store.name, create, prefix, group)
        with self._lock:
            opened = self._logs.get(name)
            if opened is not None:
                self._logs.move_to_end(name)
        if opened is None:
            log = store.open_log(f"{prefix}{group}", create=create)
            if log is None:
                return None
            opened = TailLog(log, begin)
            with self._lock:
                opened = self._logs.setdefault(name, opened)
                # another process may have deleted older ones, whose disk space is freed when they are closed
                for other in [name_of for name_of in self._logs if name_of[:3] == name[:3] and name_of[3] + 2 < group]:
                    del self._logs[other]
                while len(self._logs) > _MAX_OPEN:
                    self._logs.popitem(last=False)
        opened.refresh()
        return opened

    def _close(self, store: Store, array: StreamArray, group: int) -> None:
        with self._lock:
            for create in (False, True):
                self._logs.pop((store.name, create, array.tails, group), None)


def _entries(log: TailLog, pieces: Sequence[Piece]) -> dict[int, bytes]:
    """The metadata in some records of a log, by frame."""
    entries = [log.data(piece) for piece in [*pieces]]
    return {_INDEX.unpack(entry[: _INDEX.size])[0]: entry[_INDEX.size :] for entry in entries}
