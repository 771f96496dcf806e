"""Tail of an array in an object store: one *head*, replaced by conditional puts, and immutable *segments*.

The head locates the bytes of the array that are not in chunks: in the head itself, which has room for a few, or in a
segment that was put before. Bytes are stored, for all replicas at once, when the head that names them is; of two
senders that append at one offset, one loses the conditional put. The head also holds what has to change together with
them: the lowest epoch of senders, whether the array is complete, and metadata of frames. It exists from the opening of
the stream until it is discarded, and no version of it recurs, so late requests of an old owner fail.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from pydantic import TypeAdapter

from hyperslab.cache import Vanished, VersionedCache
from hyperslab.engine.jsontext import distinct, dump_json, parse_json
from hyperslab.errors import BadMetadata, ChangedWhileRead, CompletedUpload, InDoubt, StaleEpoch, StreamNotFound
from hyperslab.storage.base import ABSENT, Absent, Store, VersionConflict
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.tail import Buffer, Count, Name, NDArray, Piece, Tail

SEGMENT_BYTES: Final = 8 << 20
_IN_HEAD: Final = 256 << 10
"""Bytes of the array, and of metadata of frames, that a head has room for."""
_LARGEST: Final = 64 << 20
_LENGTH: Final = struct.Struct("<I")
_WORTH_CACHING: Final = 8 * SEGMENT_BYTES
"""With a smaller cache, segments are not cached, and ranges of them are read."""


@dataclass(frozen=True, slots=True)
class HeadObject:
    """Content of a head. ``begin``: first byte that is not in chunks; ``data``: bytes in the head itself; ``notes``:
    frame and metadata of the latest frames; ``noted``: first frame and name of each object with earlier metadata;
    ``closed``: no more bytes are accepted."""

    begin: Count = 0
    pieces: tuple[Piece, ...] = ()
    data: bytes = b""
    notes: tuple[tuple[int, str], ...] = ()
    noted: tuple[tuple[int, Name], ...] = ()
    epoch: Count = 1
    closed: bool = False

    @property
    def segments(self) -> set[str]:
        """Names of the segments."""
        return {piece.name for piece in self.pieces if piece.name is not None}

    def to_bytes(self) -> bytes:
        members = {member.name: getattr(self, member.name) for member in fields(self) if member.name != "data"}
        text = distinct(dump_json(members))
        return b"".join((_LENGTH.pack(len(text)), text, self.data))

    @classmethod
    def parse(cls, stored: bytes | memoryview, key: str) -> HeadObject:
        """Raises `BadMetadata`."""
        view = memoryview(stored)
        try:
            (length,) = _LENGTH.unpack(view[: _LENGTH.size])
            data = bytes(view[_LENGTH.size + length :])
            head = replace(_parse_head(bytes(view[_LENGTH.size :][:length]), strict=True), data=data)
        except (ValueError, struct.error) as error:
            raise BadMetadata(key, None, str(error)) from error
        ends = [head.begin, *[piece.stop for piece in head.pieces]]
        follow = all(p.start == end <= p.stop for p, end in zip(head.pieces, ends, strict=False))
        inside = [p.position + p.stop - p.start for p in head.pieces if p.name is p.reason is None]
        if not follow or max(inside, default=0) > len(head.data):
            raise BadMetadata(key, "pieces", "they do not follow each other, or are none of ours")
        return head


_parse_head: Final = TypeAdapter(HeadObject).validate_json


class ObjectTail(Tail):
    """The tail of an array as of one version of its head, and as this object changes it.

    Methods that change it raise `VersionConflict` if somebody else has, or if the outcome of a put is unknown; then it
    has to be opened again.
    """

    def __init__(
        self, tails: ObjectTails, store: Store, array: StreamArray, head: HeadObject, version: str | Absent
    ) -> None:
        super().__init__(array)
        self._tails = tails
        self._store = store
        self._head = head
        self._version = version
        self._note: tuple[int, bytes] | None = None
        self.may_lag = version is ABSENT

    @property
    def is_newest(self) -> bool:
        return self._tails.heads.version_of((self._store.name, self.array.head)) == self._version

    @property
    def begin(self) -> int:
        return self._head.begin

    @property
    def pieces(self) -> Sequence[Piece]:
        return self._head.pieces

    def check_sender(self, epoch: int | None, *, closing: bool = False) -> None:
        if self._version is ABSENT:
            raise StreamNotFound(self.array.path)
        if epoch is not None and epoch < self._head.epoch:
            raise StaleEpoch(epoch, self._head.epoch)
        if self._head.closed and not closing:
            raise CompletedUpload(self.array.path)

    def put_note(self, frame: int, note: bytes) -> None:
        """The metadata is stored with the bytes that are appended next."""
        self._note = (frame, note) if note else None

    def append(self, at: int, data: Buffer) -> None:
        head = self._with_note()
        kept, pieces = head.data, list(head.pieces)
        if len(data) > _IN_HEAD:
            for start in range(0, len(data), SEGMENT_BYTES):
                part = data[start : start + SEGMENT_BYTES]
                pieces.append(Piece(at + start, at + start + len(part), self._put_segment(part), 0, None))
        else:
            added, position = None, len(kept)
            kept += data
            if len(kept) > _IN_HEAD:  # all of it moves to a segment
                added = self._put_segment(kept)
                pieces = [
                    piece._replace(name=added) if piece.reason is piece.name is None else piece for piece in pieces
                ]
                kept = b""
            last = pieces[-1] if pieces else None
            joins = last is not None and last.name == added and last.reason is None
            if last is not None and joins and last.position + last.stop - last.start == position:
                pieces[-1] = last._replace(stop=at + len(data))
            else:
                pieces.append(Piece(at, at + len(data), added, position, None))
        wanted = replace(head, pieces=tuple(pieces), data=kept)
        before = self._head.segments
        try:
            self._replace(wanted)
        except VersionConflict as conflict:
            if conflict.__cause__ is None:  # else this head may be stored
                self._remove(wanted.segments - before)
            raise
        self._note = None

    def append_missing(self, at: int, nbytes: int, reason: str) -> None:
        piece = Piece(at, at + nbytes, None, 0, reason)
        self._replace(replace(self._head, pieces=(*self._head.pieces, piece)))

    def cut(self, end: int) -> None:
        pieces = [piece._replace(stop=min(piece.stop, end)) for piece in self._head.pieces if piece.start < end]
        self._replace(replace(self._head, pieces=tuple(pieces)))

    def drop(self, begin: int) -> None:
        """Segments that hold no other bytes are deleted."""
        if self._version is ABSENT or begin <= self.begin:
            return
        before, pieces, data = self._head.segments, list[Piece](), b""
        for start, stop, name, position, reason in self._head.pieces:
            if stop > begin:
                offset = position + max(0, begin - start)
                if name is reason is None:
                    kept = self._head.data[offset : position + stop - start]
                    data, offset = data + kept, len(data)
                pieces.append(Piece(max(start, begin), stop, name, offset, reason))
        self._replace(replace(self._head, begin=begin, pieces=tuple(pieces), data=data))
        self._remove(before - self._head.segments)

    def fence(self, epoch: int, *, closed: bool | None) -> None:
        """This also stores the head of a new stream."""
        closed = self._head.closed if closed is None else closed
        self._replace(replace(self._head, epoch=max(epoch, self._head.epoch), closed=closed))

    def notes(self, start: int, stop: int) -> Iterator[list[tuple[int, bytes]]]:
        head = self._head
        nexts = [*[first for first, _ in head.noted[1:]], min([frame for frame, _ in head.notes], default=stop)]
        for (first, name), last in zip(head.noted, nexts, strict=False):
            wanted = first < stop and start < last
            if wanted and (stored := self._store.get(self.array.notes + name, _LARGEST)) is not None:
                yield [(frame, note.encode()) for frame, note in parse_json(stored.data) if start <= frame < stop]
        yield [(frame, note.encode()) for frame, note in head.notes if start <= frame < stop]

    def _with_note(self) -> HeadObject:
        """The head with the latest note; if it has no room for that, all earlier ones move to an object."""
        if self._note is None:
            return self._head
        head, (frame, note) = self._head, self._note
        if sum(len(text) for _, text in head.notes) + len(note) > _IN_HEAD:
            earlier = self._put_new(self.array.notes, dump_json(head.notes))
            head = replace(head, notes=(), noted=(*head.noted, (min(head.notes)[0], earlier)))
        return replace(head, notes=(*{**dict(head.notes), frame: note.decode()}.items(),))

    def _read(self, piece: Piece, position: int, out: NDArray) -> None:
        if piece.name is None:
            out[:] = np.frombuffer(self._head.data, np.uint8, len(out), position)
            return
        cache, key, stop = self._tails.segments, self.array.tails + piece.name, position + len(out)
        if cache.limit < _WORTH_CACHING:
            part = self._store.get_part(key, position, stop)
            values = np.frombuffer(b"" if part is None else part.between(position, stop), np.uint8)
        else:

            def load() -> tuple[NDArray, str, int]:
                stored = self._store.get(key, SEGMENT_BYTES)
                if stored is None:
                    raise ChangedWhileRead("the rows have moved to chunks meanwhile")
                return np.frombuffer(stored.data, np.uint8), "", len(stored.data)

            values = cache.load((self._store.name, key), "", load).value[position:stop]
        if len(values) != len(out):
            raise ChangedWhileRead("the rows have moved to chunks meanwhile")
        out[:] = values

    def _put_segment(self, data: bytes | memoryview) -> str:
        name = self._put_new(self.array.tails, data)
        key = self._store.name, self.array.tails + name
        self._tails.segments.put(key, "", np.frombuffer(bytes(data), np.uint8), len(data))
        return name

    def _put_new(self, prefix: str, data: bytes | memoryview) -> str:
        name = uuid.uuid4().hex
        self._put(prefix + name, data, ABSENT)
        return name

    def _remove(self, segments: set[str]) -> None:
        for name in segments:
            self._store.delete(self.array.tails + name)
            self._tails.segments.drop((self._store.name, self.array.tails + name))

    def _replace(self, head: HeadObject) -> None:
        text = head.to_bytes()
        self._version = self._put(self.array.head, text, self._version)
        self._head = head
        self._tails.heads.put((self._store.name, self.array.head), self._version, head, 2 * len(text))

    def _put(self, key: str, data: bytes | memoryview, version: str | Absent) -> str:
        try:
            return self._store.put(key, data, if_version=version)
        except InDoubt as error:
            raise VersionConflict(key, None) from error


class ObjectTails:
    """Opens tails in object stores. Heads are cached, and segments in the cache ``segments``."""

    def __init__(self, segments: VersionedCache[NDArray]) -> None:
        self.segments = segments
        self.heads = VersionedCache[HeadObject](16 << 20)

    def open(self, store: Store, array: StreamArray, version: str | None) -> ObjectTail:
        """The tail of an array in a ``version`` that was just looked up; empty without a head (None)."""

        def load() -> tuple[HeadObject, str, int]:
            stored = store.get(array.head, _LARGEST)
            if stored is None:
                raise Vanished
            return HeadObject.parse(stored.data, array.head), stored.version, 2 * len(stored.data)

        try:
            if version is not None:
                head, segments, _ = self.heads.load((store.name, array.head), version, load)
                return ObjectTail(self, store, array, head, segments)
        except Vanished:
            pass
        return ObjectTail(self, store, array, HeadObject(), ABSENT)
