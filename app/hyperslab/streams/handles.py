"""Handles: what a process keeps of the streams that it serves, memory that is reserved and what is under way."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Event, Lock, Thread
from typing import Final

from hyperslab.arrays.limits import BytesInFlight
from hyperslab.errors import HyperslabError, Overloaded
from hyperslab.streams.heads import kept_bytes
from hyperslab.streams.layout import StreamArray
from hyperslab.streams.record import StreamPlan

PIECE_BYTES: Final = 8 << 20
"""Of a longer body so many bytes are stored at once."""
LARGEST_PIECE: Final = 128 << 20
"""Or whole groups of rows up to this size, for the one request that sends to a stream."""
QUEUE_BYTES: Final = 64 << 20
"""What queues of a stream hold; one piece may be longer."""
_IN_HAND: Final = 6
"""Of two chunks that are written at once: what is read, the chunk, and what it is encoded to."""
_LARGE: Final = 256 << 20
_LONGEST_LOOK: Final = 1.0
"""Seconds between two looks for streams that have expired."""


@dataclass(slots=True)
class Queue:
    """What of an array is acknowledged, and is not stored: bytes with their offsets, the epoch of their sender, and
    metadata of a frame. What comes next belongs at ``end``; ``idle``: nobody stores it at the moment."""

    end: int
    pieces: deque[tuple[int, bytes, int | None, bytes]] = field(default_factory=deque)
    idle: bool = True

    @property
    def nbytes(self) -> int:
        return sum(len(data) for _, data, _, _ in self.pieces)


@dataclass(slots=True)
class Handle:
    """What this process keeps of a stream: bytes that are reserved, when a request came ``last``, the arrays that are
    committed in the background, the requests that send to each array, and what each had stored last; the ``buffers`` of
    the last request, as new pages cost more than receiving into them; and queues by array, where bytes are acknowledged
    before they are stored.

    ``turn`` is held by the one commit that is under way in a folder: memory is reserved for one.
    """

    reserved: int
    expires_in: int
    last: float = field(default_factory=time.monotonic)
    committing: set[int] = field(default_factory=set)
    sending: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    buffers: list[memoryview] = field(default_factory=list)
    turn: Lock = field(default_factory=Lock)
    queues: dict[int, Queue] = field(default_factory=dict)

    @property
    def has_expired(self) -> bool:
        """Whether no request has come for too long."""
        busy = any(self.sending.values()) or self.committing or self.queued
        return not busy and time.monotonic() - self.last > self.expires_in

    @property
    def queued(self) -> int:
        """Bytes in all queues."""
        return sum(queue.nbytes for queue in [*self.queues.values()])


class Handles:
    """The handles of a process, by the path of their streams. ``lock`` is held while what is in one is changed, and
    ``changed`` is told of queues.

    While there are any, a thread looks for those that have expired, has them closed by ``expire``, which is given the
    path, and lets go of them.
    """

    def __init__(self, in_flight: BytesInFlight, expire: Callable[[str], float]) -> None:
        self.lock = Lock()
        self.changed = Condition(self.lock)
        self._in_flight = in_flight
        self._expire = expire
        self._handles: dict[str, Handle] = {}
        self._watch: Thread | None = None
        self._closed = Event()

    def close(self) -> None:
        """Look for no more that have expired."""
        self._closed.set()

    def get(self, path: str) -> Handle | None:
        return self._handles.get(path)

    def of(self, path: str, plan: StreamPlan) -> Handle:
        """The handle of a stream; where there is none, the memory of the stream is taken, which raises `Overloaded`."""
        with self.lock:
            if path in self._handles:
                return self._handles[path]
            bound = memory_bound(plan)
            if bound > self._in_flight.limit or not self._in_flight.try_reserve(bound):
                raise Overloaded(f"a stream of {bound} bytes of memory does not fit", retry_after=10)
            handle = self._handles[path] = Handle(bound, plan.settings.expires_in)
            if self._watch is None and not self._closed.is_set():
                self._watch = Thread(target=self._close_expired, name="streams", daemon=True)
                self._watch.start()
            return handle

    def forget(self, path: str) -> None:
        """Let go of a handle, and of the memory of its stream."""
        with self.lock:
            handle = self._handles.pop(path, None)
        if handle is not None:
            self._in_flight.release(handle.reserved)

    def _close_expired(self) -> None:
        while not self._closed.wait(_LONGEST_LOOK):
            with self.lock:
                handles = dict(self._handles)
                if not handles:
                    self._watch = None
                    return
            for path, handle in [(path, handle) for path, handle in handles.items() if handle.has_expired]:
                again = _LONGEST_LOOK  # also where the store fails
                with suppress(HyperslabError):
                    again = self._expire(path)
                if again > 0:
                    handle.last = time.monotonic() - handle.expires_in + again
                else:
                    self.forget(path)


def largest_piece(plan: StreamPlan, array: StreamArray) -> int:
    """Bytes of a body that the one request that sends to a stream stores at once: those of a group of rows, which fill
    whole stored objects, where they are not too many and go through no queue."""
    level = array.levels[0]
    group = level.object_rows * level.row_nbytes
    return group if PIECE_BYTES < group <= LARGEST_PIECE and plan.settings.ack != "memory" else PIECE_BYTES


def memory_bound(plan: StreamPlan) -> int:
    """The most bytes that a stream holds at once: pieces of bodies, queues, rows and chunks that a commit has in
    hand, and the shards, each as encoded chunks and as a whole, one after the other where they are large."""
    levels = [level for array in plan.arrays for level in array.levels]
    piece = max(largest_piece(plan, array) for array in plan.arrays)
    chunk = max(math.prod(level.chunks) * level.dtype.itemsize for level in levels)
    shard = max(math.prod(level.shards or ()) * level.dtype.itemsize if level.shards else 0 for level in levels)
    kept = 2 * max(kept_bytes(array) for array in plan.arrays)
    queued = QUEUE_BYTES if plan.settings.ack == "memory" else 0
    return 2 * PIECE_BYTES + 2 * piece + queued + kept + _IN_HAND * chunk + (2 if 2 * shard > _LARGE else 4) * shard
