"""Tail of an array in an object store: one *head*, replaced by conditional puts, and immutable *segments*.

The head locates the bytes of the array that are not in chunks: in the head itself, which has room for a few, or in a
segment that was put before. Bytes are stored, for all replicas at once, when the head that names them is; of two
senders that append at one offset, one loses the conditional put. The head also holds what has to change together with
them: the lowest epoch of senders, whether the array is complete, and metadata of frames. It exists from the opening of
the stream until it is discarded, and no version of it recurs, so late requests of an old owner fail.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from hyperslab.arrays.extent import LARGEST
from hyperslab.cache import Vanished, VersionedCache
from hyperslab.engine.jsontext import distinct, dump_json, parse_json
from hyperslab.errors import BadMetadata, ChangedWhileRead, InDoubt
from hyperslab.storage.base import ABSENT, Absent, Store, VersionConflict
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.tail import NDArray, Piece, Tail

SEGMENT_BYTES: Final = 8 << 20
_IN_HEAD: Final = 256 << 10
"""Bytes of the array, and of metadata of frames, that a head has room for."""
_LARGEST: Final = 64 << 20
_LENGTH: Final = struct.Struct("<I")
_NAME: Final = re.compile(r"[0-9a-f]{32}")
_WORTH_CACHING: Final = 8 * SEGMENT_BYTES
"""With a smaller cache, segments are not cached, and ranges of them are read."""


@dataclass(frozen=True, slots=True)
class Head:
    """Content of a head. ``begin``: first byte that is not in chunks; ``data``: bytes in the head itself; ``notes``:
    metadata of the latest frames; ``noted``: first frame and name of each object with earlier metadata; ``closed``: no
    more bytes are accepted."""

    begin: int = 0
    pieces: tuple[Piece, ...] = ()
    data: bytes = b""
    notes: Mapping[int, str] = field(default_factory=dict)
    noted: tuple[tuple[int, str], ...] = ()
    epoch: int = 1
    closed: bool = False

    @property
    def segments(self) -> set[str]:
        """Names of the segments."""
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
            named = all(map(_NAME.fullmatch, [*head.segments, *(name for _, name in head.noted)]))
        except (ValueError, TypeError, KeyError, AttributeError, struct.error) as error:
            raise BadMetadata(key, None, str(error)) from error
        if not (follow and named):
            raise BadMetadata(key, "pieces", "they do not follow each other, or are none of ours")
        return head


class ObjectTail(Tail):
    """The tail of an array as of one version of its head, and as this object changes it.

    Methods that change it raise `VersionConflict` if somebody else has, or if the outcome of a put is unknown; then it
    has to be opened again.
    """

    def __init__(self, tails: ObjectTails, store: Store, array: StreamArray, head: Head, version: str | Absent) -> None:
        super().__init__(array.fill)
        self._tails = tails
        self._store = store
        self._array = array
        self.head = head
        self._version = version

    @property
    def begin(self) -> int:
        return self.head.begin

    @property
    def pieces(self) -> Sequence[Piece]:
        return self.head.pieces

    @property
    def is_newest(self) -> bool:
        """Whether this process knows of no newer head."""
        return self._tails.heads.version_of((self._store.name, self._array.head)) == self._version

    def append(self, data: bytes | memoryview, note: tuple[int, bytes] | None = None) -> None:
        """Store bytes at the end, and metadata of a frame with them."""
        head, end = self.head, self.end
        if note is not None and sum(map(len, head.notes.values())) + len(note[1]) > _IN_HEAD:
            earlier = self._put_new(self._array.notes, dump_json([*head.notes.items()]))
            head = replace(head, notes={}, noted=(*head.noted, (min(head.notes), earlier)))
        if note is not None:
            head = replace(head, notes={**head.notes, note[0]: note[1].decode()})
        kept, pieces = head.data, list(head.pieces)
        if len(data) > _IN_HEAD:
            for start in range(0, len(data), SEGMENT_BYTES):
                part = data[start : start + SEGMENT_BYTES]
                name = self._put_segment(part)
                pieces.append(Piece(end + start, end + start + len(part), name, 0, None))
        else:
            added, position = None, len(kept)
            kept += data
            if len(kept) > _IN_HEAD:  # all of it moves to a segment
                added = self._put_segment(kept)
                pieces = [each._replace(name=added) if each.reason is each.name is None else each for each in pieces]
                kept = b""
            last = pieces[-1] if pieces else None
            joins = last is not None and last.name == added and last.reason is None
            if last is not None and joins and last.position + last.stop - last.start == position:
                pieces[-1] = last._replace(stop=end + len(data))
            else:
                pieces.append(Piece(end, end + len(data), added, position, None))
        wanted = replace(head, pieces=tuple(pieces), data=kept)
        before = self.head.segments
        try:
            self._replace(wanted)
        except VersionConflict as conflict:
            if conflict.__cause__ is None:  # else this head may be stored
                self._remove(wanted.segments - before)
            raise

    def append_missing(self, nbytes: int, reason: str) -> None:
        piece = Piece(self.end, self.end + nbytes, None, 0, reason)
        self._replace(replace(self.head, pieces=(*self.head.pieces, piece)))

    def cut(self, end: int) -> None:
        pieces = [each._replace(stop=min(each.stop, end)) for each in self.head.pieces if each.start < end]
        self._replace(replace(self.head, pieces=tuple(pieces)))

    def drop(self, begin: int) -> None:
        """Drop the bytes before ``begin``, which are in chunks, and delete segments that hold no others."""
        before, pieces, data = self.head.segments, list[Piece](), b""
        for start, stop, name, position, reason in self.head.pieces:
            if stop > begin:
                at = position + max(0, begin - start)
                if name is reason is None:
                    kept = self.head.data[at : position + stop - start]
                    data, at = data + kept, len(data)
                pieces.append(Piece(max(start, begin), stop, name, at, reason))
        self._replace(replace(self.head, begin=begin, pieces=tuple(pieces), data=data))
        self._remove(before - self.head.segments)

    def fence(self, epoch: int, *, closed: bool | None) -> None:
        """Make changes through other open tails fail, and appends of older epochs. ``closed``: whether the tail takes
        no more bytes; None leaves that unchanged."""
        closed = self.head.closed if closed is None else closed
        self._replace(replace(self.head, epoch=max(epoch, self.head.epoch), closed=closed))

    def notes(self, start: int, stop: int) -> Iterator[list[tuple[int, bytes]]]:
        """Metadata of the frames ``[start, stop)`` as pairs (frame, JSON), many at a time."""
        head = self.head
        nexts = [*[first for first, _ in head.noted[1:]], min(head.notes, default=stop)]
        for (first, name), last in zip(head.noted, nexts, strict=False):
            wanted = first < stop and start < last
            if wanted and (stored := self._store.get(self._array.notes + name, _LARGEST)) is not None:
                yield [(frame, note.encode()) for frame, note in parse_json(stored.data) if start <= frame < stop]
        yield [(frame, note.encode()) for frame, note in head.notes.items() if start <= frame < stop]

    def _read(self, piece: Piece, position: int, out: NDArray) -> None:
        if piece.name is None:
            out[:] = np.frombuffer(self.head.data, np.uint8, len(out), position)
            return
        cache, key, stop = self._tails.segments, self._array.tails + piece.name, position + len(out)
        if cache.limit < _WORTH_CACHING:
            part = self._store.get_part(key, position, stop)
            found = np.frombuffer(b"" if part is None else part.between(position, stop), np.uint8)
        else:

            def load() -> tuple[NDArray, str, int]:
                stored = self._store.get(key, SEGMENT_BYTES)
                if stored is None:
                    raise ChangedWhileRead("the rows have moved to chunks meanwhile")
                return np.frombuffer(stored.data, np.uint8), "", len(stored.data)

            found = cache.load((self._store.name, key), "", load).value[position:stop]
        if len(found) != len(out):
            raise ChangedWhileRead("the rows have moved to chunks meanwhile")
        out[:] = found

    def _put_segment(self, data: bytes | memoryview) -> str:
        name = self._put_new(self._array.tails, data)
        key = self._store.name, self._array.tails + name
        self._tails.segments.put(key, "", np.frombuffer(bytes(data), np.uint8), len(data))
        return name

    def _put_new(self, prefix: str, data: bytes | memoryview) -> str:
        name = uuid.uuid4().hex
        self._put(prefix + name, data, ABSENT)
        return name

    def _remove(self, segments: set[str]) -> None:
        for name in segments:
            self._store.delete(self._array.tails + name)
            self._tails.segments.drop((self._store.name, self._array.tails + name))

    def _replace(self, head: Head) -> None:
        text = head.to_bytes()
        self._version = self._put(self._array.head, text, self._version)
        self.head = head
        self._tails.heads.put((self._store.name, self._array.head), self._version, head, 2 * len(text))

    def _put(self, key: str, data: bytes | memoryview, version: str | Absent) -> str:
        try:
            return self._store.put(key, data, if_version=version)
        except InDoubt as error:
            raise VersionConflict(key, None) from error


class ObjectTails:
    """Opens tails in object stores. Heads are cached, and segments in the cache ``segments``."""

    def __init__(self, segments: VersionedCache[NDArray]) -> None:
        self.segments = segments
        self.heads = VersionedCache[Head](16 << 20)

    def open(
        self, store: Store, array: StreamArray, version: str | None = None, *, create: bool = False
    ) -> ObjectTail | None:
        """The tail of an array in a ``version`` that was just looked up, by default the current one. None if there is
        none; with ``create`` an empty tail, which its first change stores."""

        def load() -> tuple[Head, str, int]:
            stored = store.get(array.head, _LARGEST)
            if stored is None:
                raise Vanished
            return Head.parse(stored.data, array.head), stored.version, 2 * len(stored.data)

        try:
            head, found, _ = self.heads.load((store.name, array.head), version or "", load)
        except Vanished:
            return ObjectTail(self, store, array, Head(), ABSENT) if create else None
        return ObjectTail(self, store, array, head, found)
