"""Sessions: the state of a stream in one process. Memory that is reserved, active senders, commits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Final

import numpy as np

from hyperslab.arrays.limits import BytesInFlight
from hyperslab.errors import BadDefinition, HyperslabError, Overloaded
from hyperslab.streams.heads import cached_bytes
from hyperslab.streams.layout import StreamArray, StreamPlan

PIECE_BYTES: Final = 8 << 20
"""Bytes of a body that are stored at a time."""
_SMALLEST_PIECE: Final = 256 << 10
"""The least for which memory is reserved, for whatever small frames."""
LARGEST_PIECE: Final = 128 << 20
"""The same for the only sender of a stream, if a piece is a whole group of rows (benchmark ``streams``)."""
_SEVERAL: Final = 32 << 20
"""The most bytes of several groups, at most four, that are stored at a time (benchmark ``streams``)."""
LARGE_SHARD: Final = 64 << 20
"""Decoded bytes of a shard above which shards are written one at a time."""
_LONGEST_LOOK: Final = 1.0
"""Seconds between two looks for expired streams."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """Bytes of an array at an offset, with metadata of the frame that begins there (``b""``: none)."""

    at: int
    data: bytes | memoryview
    note: bytes = b""

    @property
    def stop(self) -> int:
        return self.at + len(self.data)


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a stream, in bytes: each of the two receive buffers, and the upper bound of all."""

    piece: int = 0
    bound: int = 0

    @classmethod
    def of(cls, plan: StreamPlan, limit: int) -> Memory:
        """The memory of a stream where all may have ``limit`` together: with pieces of whole groups of rows if these
        fit, which then go to chunks directly. Raises `BadDefinition` if not even pieces of ordinary size fit."""
        arrays = plan.arrays
        piece = min(PIECE_BYTES, max(_SMALLEST_PIECE, *[array.group_nbytes for array in arrays]))
        rest = commit_bytes(plan)
        largest = max(piece, *[largest_piece(array) for array in arrays])
        if largest > PIECE_BYTES and rest + 2 * largest <= limit:
            return cls(largest, rest + 2 * largest)
        if rest + 2 * piece > limit:
            reason = f"needs {rest + 2 * piece} bytes of memory, and streams have {limit}: half of bytes_in_flight"
            raise BadDefinition("arrays" if plan.settings.arrays else "plates", reason)
        return cls(piece, rest + 2 * piece)


@dataclass(slots=True)
class Session:
    """State of a stream in this process.

    Attributes:
        memory: What is reserved.
        last: Time of the latest request.
        senders: Requests that are sending, by number of the array.
        committing: Arrays that are committed in the background.
        ends: The highest end seen of each array, which a failure records.
        buffers: Receive buffers of the previous request: new pages cost more than receiving into them.
        commit_lock: Held by the commit for which memory is reserved.
        changed: Guards all of this.
    """

    memory: Memory
    expires_in: int
    last: float = field(default_factory=time.monotonic)
    senders: dict[int, int] = field(default_factory=dict)
    committing: set[int] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=dict)
    buffers: list[memoryview] = field(default_factory=list)
    commit_lock: Lock = field(default_factory=Lock)
    changed: Lock = field(default_factory=Lock)

    @property
    def has_expired(self) -> bool:
        busy = any(self.senders.values()) or self.committing
        return not busy and time.monotonic() - self.last > self.expires_in

    def take_buffers(self, nbytes: int) -> list[memoryview]:
        """Two buffers of at least ``nbytes``: those of an earlier request if it has returned them to ``buffers``."""
        with self.changed:
            buffers, self.buffers = [each for each in self.buffers if len(each) >= nbytes], []
        return buffers or [np.empty(nbytes, np.uint8).data for _ in range(2)]


class Sessions:
    """The sessions of a process, by path of the stream, which may have ``limit`` bytes of memory together, apart from
    that of other requests. While there are any, a thread looks for expired ones, has ``expire`` close the stream (it
    returns the seconds until the next look, 0 if it is closed) and removes them."""

    def __init__(self, limit: int, expire: Callable[[str], float]) -> None:
        self.limit = limit
        self._in_flight = BytesInFlight(limit)
        self._expire = expire
        self._sessions: dict[str, Session] = {}
        self._lock = Lock()
        self._watch: Thread | None = None
        self._closed = Event()

    def close(self) -> None:
        """End the look for expired streams."""
        self._closed.set()

    def get(self, path: str) -> Session | None:
        return self._sessions.get(path)

    def paths(self) -> list[str]:
        """Paths of the streams that have sessions."""
        with self._lock:
            return [*self._sessions]

    def open(self, plan: StreamPlan) -> Session:
        """The session of a stream; a new one reserves its memory. Raises `Overloaded` if others have it, and
        `BadDefinition` if it can never have it."""
        with self._lock:
            if plan.path in self._sessions:
                return self._sessions[plan.path]
            memory = Memory.of(plan, self.limit)
            if not self._in_flight.try_reserve(memory.bound):
                others = f"other streams hold {self._in_flight.held} of {self.limit}"
                raise Overloaded(f"a stream of {memory.bound} bytes of memory does not fit: {others}", retry_after=10)
            session = self._sessions[plan.path] = Session(memory, plan.settings.expires_in)
            if self._watch is None and not self._closed.is_set():
                self._watch = Thread(target=self._close_expired, name="streams", daemon=True)
                self._watch.start()
            return session

    def remove(self, path: str) -> None:
        """End a session and release its memory."""
        with self._lock:
            session = self._sessions.pop(path, None)
        if session is not None:
            self._in_flight.release(session.memory.bound)

    @contextmanager
    def committing(self, plan: StreamPlan, *, concurrently: bool) -> Iterator[None]:
        """Context of a commit, whose memory is the stream's. ``concurrently`` with that, others take memory of their
        own, or wait if there is none."""
        session = self._sessions.get(plan.path)
        own = commit_bytes(plan)
        if session is None or session.commit_lock.acquire(blocking=False):
            own = 0
        elif not (concurrently and self._in_flight.try_reserve(own)):
            session.commit_lock.acquire()
            own = 0
        try:
            yield
        finally:
            if own:
                self._in_flight.release(own)
            elif session is not None:
                session.commit_lock.release()

    def _close_expired(self) -> None:
        while not self._closed.wait(_LONGEST_LOOK):
            with self._lock:
                sessions = dict(self._sessions)
                if not sessions:
                    self._watch = None
                    return
            for path, session in [(path, item) for path, item in sessions.items() if item.has_expired]:
                again = _LONGEST_LOOK  # also if the store fails
                with suppress(HyperslabError):
                    again = self._expire(path)
                if again > 0:
                    session.last = time.monotonic() - session.expires_in + again
                else:
                    self.remove(path)


def largest_piece(array: StreamArray) -> int:
    """Bytes of a body that the only sender of a stream stores at a time: groups of rows, which fill whole stored
    objects, so that two are written at once and one commit is for all of them; one group if it is large."""
    group = array.group_nbytes
    several = max(1, min(4, _SEVERAL // group)) * group
    return several if PIECE_BYTES < several <= LARGEST_PIECE else PIECE_BYTES


def commit_bytes(plan: StreamPlan) -> int:
    """Upper bound of the memory of a commit, which writes two chunks or shards concurrently. A chunk is held as rows,
    chunk and encoded; a shard as encoded chunks and as a whole. Shards above `LARGE_SHARD` are written one at a
    time."""
    levels = [level for array in plan.arrays for level in array.levels]
    chunk = max(math.prod(level.chunks) * level.dtype.itemsize for level in levels)
    shard = max(math.prod(level.shards or ()) * level.dtype.itemsize if level.shards else 0 for level in levels)
    cached = 2 * max(cached_bytes(array) for array in plan.arrays)
    shards = (2 if shard > LARGE_SHARD else 4) * shard
    return cached + 6 * chunk + shards
