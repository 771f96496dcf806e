"""Tail of an array in an object store: a *head*, which is only replaced as it was read, and *segments*, which never
change.

The head says where the bytes of the array are that are not in chunks: in the head itself, which has room for a few, or
at a position in a segment, which was put before. So bytes are stored when the head says so, for every replica at once,
and of two who append at the same place one finds that the head is another one. It also has what must be true at the
same moment: the epoch that senders need, whether the array takes no more, and metadata of frames. It is there from when
the stream is opened until it is discarded, and no version of it comes back, so who comes late stores nothing.
"""

from __future__ import annotations

import re
import struct
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from hyperslab.arrays.extent import LARGEST
from hyperslab.cache import Vanished, VersionedCache
from hyperslab.engine.jsontext import distinct, dump_json, parse_json
from hyperslab.errors import BadMetadata, ChangedWhileRead, InDoubt
from hyperslab.storage.base import ABSENT, Absent, Store, VersionConflict

NDArray = np.ndarray[Any, np.dtype[Any]]

HEAD: Final = "head"
SEGMENT_BYTES: Final = 8 << 20
_IN_HEAD: Final = 256 << 10
"""Bytes of the array, and of metadata of frames, that a head has room for."""
_LARGEST: Final = 64 << 20
_LENGTH: Final = struct.Struct("<I")
_NAME: Final = re.compile(r"[0-9a-f]{32}")
_WORTH_CACHING: Final = 8 * SEGMENT_BYTES
"""A cache that is smaller keeps no segments: ranges of them are read."""
_MOVED: Final = "what was read has moved to chunks meanwhile"


class Piece(NamedTuple):
    """Bytes ``[start, stop)`` of an array: those at a ``position`` of a segment, or of the head where that has no
    ``name``; or, for a ``reason``, none."""

    start: int
    stop: int
    name: str | None
    position: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class Head:
    """What a head says. ``begin``: the first byte of the array that it knows of; ``data``: bytes in the head;
    ``notes``: metadata of frames; ``noted``: the first frame and the name of each object with earlier ones."""

    begin: int = 0
    pieces: tuple[Piece, ...] = ()
    data: bytes = b""
    notes: Mapping[int, str] = field(default_factory=dict)
    noted: tuple[tuple[int, str], ...] = ()
    epoch: int = 1
    closed: bool = False

    @property
    def end(self) -> int:
        return self.pieces[-1].stop if self.pieces else self.begin

    @property
    def names(self) -> set[str]:
        """Of the segments."""
        return {piece.name for piece in self.pieces if piece.name is not None}

    def to_bytes(self) -> bytes:
        members = {name: getattr(self, name) for name in ("begin", "pieces", "noted", "epoch", "closed")}
        text = distinct(dump_json({**members, "notes": [*self.notes.items()]}))
        return b"".join((_LENGTH.pack(len(text)), text, self.data))

    @classmethod
    def parse(cls, stored: bytes | memoryview, key: str) -> Head:
        """Raises `BadMetadata`."""
        view = memoryview(stored)
        try:
            (length,) = _LENGTH.unpack(view[: _LENGTH.size])
            found = parse_json(view[_LENGTH.size :][:length], limit=_LARGEST)
            members = {
                "pieces": tuple([Piece(*each) for each in found.pop("pieces")]),
                "noted": tuple([(int(first), str(name)) for first, name in found.pop("noted")]),
                "notes": {int(frame): str(note) for frame, note in found.pop("notes")},
            }
            head = cls(**{**found, **members}, data=bytes(view[_LENGTH.size + length :]))
            ends = [head.begin, *[piece.stop for piece in head.pieces]]
            follow = all(p.start == end <= p.stop for p, end in zip(head.pieces, ends, strict=False))
            numbers = [head.epoch, *ends, *[n for piece in head.pieces for n in (piece.start, piece.position)]]
            follow &= all(type(n) is int and 0 <= n <= LARGEST for n in numbers) and type(head.closed) is bool
            inside = [p.position + p.stop - p.start for p in head.pieces if p.name is p.reason is None]
            follow &= max(inside, default=0) <= len(head.data)
            follow &= all(isinstance(piece.reason, str | None) for piece in head.pieces)
            named = all(map(_NAME.fullmatch, [*head.names, *(name for _, name in head.noted)]))
        except (ValueError, TypeError, KeyError, AttributeError, struct.error) as error:
            raise BadMetadata(key, None, str(error)) from error
        if not (follow and named):
            raise BadMetadata(key, "pieces", "they do not follow each other, or are none of ours")
        return head


class ObjectTail:
    """The tail of an array as its head was when it was opened, and as this object has changed it since.

    The head and metadata of frames are objects below ``kept``, segments below ``prefix``. What changes the tail raises
    `VersionConflict` where somebody else has done so since, or may have: then it is to be opened anew.
    """

    def __init__(  # noqa: PLR0917
        self, tails: ObjectTails, store: Store, kept: str, prefix: str, fill: NDArray, head: Head, version: str | Absent
    ) -> None:
        self._tails = tails
        self._store = store
        self._kept = kept
        self._prefix = prefix
        self._fill = np.frombuffer(fill.tobytes(), np.uint8)
        self.head = head
        self._version = version

    @property
    def begin(self) -> int:
        return self.head.begin

    @property
    def end(self) -> int:
        return self.head.end

    @property
    def is_newest(self) -> bool:
        """Whether nobody in this process knows of a newer head."""
        return self._tails.heads.version_of((self._store.name, self._kept + HEAD)) == self._version

    def append(self, data: bytes | memoryview, note: tuple[int, bytes] | None = None) -> None:
        """Store bytes behind the end, and with them metadata of a frame."""
        head, before = self.head, self.head.names
        if note is not None:
            head = self._noted(head, *note)
        kept, pieces, end = head.data, list(head.pieces), head.end
        if len(kept) + len(data) <= _IN_HEAD:
            pieces.append(Piece(end, end + len(data), None, len(kept), None))
            kept += data
        elif len(data) < _IN_HEAD:
            name = self._put_object(self._prefix, kept + data)
            pieces = [each._replace(name=name) if each.reason is each.name is None else each for each in pieces]
            pieces.append(Piece(end, end + len(data), name, len(kept), None))
            kept = b""
        else:
            for start in range(0, len(data), SEGMENT_BYTES):
                part = data[start : start + SEGMENT_BYTES]
                name = self._put_object(self._prefix, part)
                pieces.append(Piece(end + start, end + start + len(part), name, 0, None))
        wanted = replace(head, pieces=_joined(pieces), data=kept)
        try:
            self._replace(wanted)
        except VersionConflict as conflict:
            if conflict.__cause__ is None:  # else this head may be stored
                self._remove(wanted.names - before)
            raise

    def append_missing(self, nbytes: int, reason: str) -> None:
        """Note that so many bytes, whole frames, will not come."""
        end = self.head.end
        self._replace(replace(self.head, pieces=(*self.head.pieces, Piece(end, end + nbytes, None, 0, reason))))

    def cut(self, end: int) -> None:
        """Forget the bytes from ``end`` on."""
        pieces = [each._replace(stop=min(each.stop, end)) for each in self.head.pieces if each.start < end]
        self._replace(replace(self.head, pieces=tuple(pieces)))

    def drop(self, begin: int) -> None:
        """Forget the bytes before ``begin``, which are in chunks, and remove segments that have no others."""
        before, pieces, data = self.head.names, list[Piece](), b""
        for start, stop, name, position, reason in self.head.pieces:
            if stop > begin:
                at = position + max(0, begin - start)
                if name is reason is None:
                    kept = self.head.data[at : position + stop - start]
                    data, at = data + kept, len(data)
                pieces.append(Piece(max(start, begin), stop, name, at, reason))
        self._replace(replace(self.head, begin=begin, pieces=tuple(pieces), data=data))
        self._remove(before - self.head.names)

    def settle(self, epoch: int, *, closed: bool | None) -> None:
        """Have all that was opened before fail to change the tail, and senders of older epochs find this one;
        ``closed``: None for as it is."""
        closed = self.head.closed if closed is None else closed
        self._replace(replace(self.head, epoch=max(epoch, self.head.epoch), closed=closed))

    def read_into(self, start: int, out: NDArray) -> None:
        """Fill ``out`` (C-contiguous bytes) with the array's bytes from ``start`` on; missing ones are fill values.

        Raises `ChangedWhileRead` where they are in chunks by now.
        """
        pieces, done = self.head.pieces, 0
        at = bisect_right(pieces, start, key=lambda piece: piece.start) - 1
        while done < len(out):
            if not 0 <= at < len(pieces):
                raise ChangedWhileRead(_MOVED)
            piece, first = pieces[at], start + done
            count = min(piece.stop - first, len(out) - done)
            if piece.reason is None:
                out[done : done + count] = self._stored(piece, piece.position + first - piece.start, count)
            else:
                out[done : done + count] = np.resize(np.roll(self._fill, -(first % len(self._fill))), count)
            done, at = done + count, at + 1

    def missing(self, frame_nbytes: int) -> Iterator[tuple[int, int, str]]:
        """The frames ``[start, stop)`` that will not come, and why."""
        for piece in self.head.pieces:
            if piece.reason is not None:
                yield piece.start // frame_nbytes, piece.stop // frame_nbytes, piece.reason

    def notes(self, start: int, stop: int) -> Iterator[list[tuple[int, bytes]]]:
        """The metadata of the frames ``[start, stop)`` as JSON, with their numbers, many at a time."""
        head = self.head
        nexts = [*[first for first, _ in head.noted[1:]], min(head.notes, default=stop)]
        for (first, name), last in zip(head.noted, nexts, strict=False):
            wanted = first < stop and start < last
            if wanted and (stored := self._store.get(self._kept + name, _LARGEST)) is not None:
                yield [(frame, note.encode()) for frame, note in parse_json(stored.data) if start <= frame < stop]
        yield [(frame, note.encode()) for frame, note in head.notes.items() if start <= frame < stop]

    def _noted(self, head: Head, frame: int, note: bytes) -> Head:
        if sum(map(len, head.notes.values())) + len(note) <= _IN_HEAD:
            return replace(head, notes={**head.notes, frame: note.decode()})
        name = self._put_object(self._kept, dump_json([*head.notes.items()]))
        return replace(head, notes={frame: note.decode()}, noted=(*head.noted, (min(head.notes), name)))

    def _stored(self, piece: Piece, start: int, count: int) -> NDArray:
        if piece.name is None:
            return np.frombuffer(self.head.data, np.uint8, count, start)
        cache, key = self._tails.segments, self._prefix + piece.name
        if cache.limit < _WORTH_CACHING:
            part = self._store.get_part(key, start, start + count)
            found = np.frombuffer(b"" if part is None else part.between(start, start + count), np.uint8)
        else:
            found = cache.load((self._store.name, key), "", partial(self._load, key)).value[start : start + count]
        if len(found) != count:
            raise ChangedWhileRead(_MOVED)
        return found

    def _load(self, key: str) -> tuple[NDArray, str, int]:
        stored = self._store.get(key, SEGMENT_BYTES)
        if stored is None:
            raise ChangedWhileRead(_MOVED)
        return np.frombuffer(stored.data, np.uint8), "", len(stored.data)

    def _put_object(self, prefix: str, data: bytes | memoryview) -> str:
        name = uuid.uuid4().hex
        self._put(prefix + name, data, ABSENT)
        if prefix == self._prefix:
            self._tails.segments.put(
                (self._store.name, prefix + name), "", np.frombuffer(bytes(data), np.uint8), len(data)
            )
        return name

    def _remove(self, segments: set[str]) -> None:
        for name in segments:
            self._store.delete(self._prefix + name)
            self._tails.segments.drop((self._store.name, self._prefix + name))

    def _replace(self, head: Head) -> None:
        text = head.to_bytes()
        self._version = self._put(self._kept + HEAD, text, self._version)
        self.head = head
        self._tails.heads.put((self._store.name, self._kept + HEAD), self._version, head, 2 * len(text))

    def _put(self, key: str, data: bytes | memoryview, version: str | Absent) -> str:
        try:
            return self._store.put(key, data, if_version=version)
        except InDoubt as error:
            raise VersionConflict(key, None) from error


class ObjectTails:
    """Opens tails of arrays. Heads that were read are kept, and segments in the cache of ``segments``."""

    def __init__(self, segments: VersionedCache[NDArray]) -> None:
        self.segments = segments
        self.heads = VersionedCache[Head](16 << 20)

    def open(
        self, store: Store, kept: str, prefix: str, fill: NDArray, version: str | None = None, *, create: bool = False
    ) -> ObjectTail | None:
        """The tail whose head lies below ``kept``, in a ``version`` that was just looked up, or as it is now; None
        where there is none, unless it is to be made, which is stored with its first change."""

        def load() -> tuple[Head, str, int]:
            stored = store.get(kept + HEAD, _LARGEST)
            if stored is None:
                raise Vanished
            return Head.parse(stored.data, kept + HEAD), stored.version, 2 * len(stored.data)

        try:
            head, found, _ = self.heads.load((store.name, kept + HEAD), version or "", load)
        except Vanished:
            return ObjectTail(self, store, kept, prefix, fill, Head(), ABSENT) if create else None
        return ObjectTail(self, store, kept, prefix, fill, head, found)


def _joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Pieces of which those that follow each other also in the same object are one."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        follows = last is not None and last.name == piece.name and last.reason is piece.reason is None
        if last is not None and follows and last.position + last.stop - last.start == piece.position:
            joined[-1] = last._replace(stop=piece.stop)
        else:
            joined.append(piece)
    return tuple(joined)
