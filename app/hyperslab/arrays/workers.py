"""Worker threads of a store: one task per chunk, on a pool whose width is set per store; and their cancellation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Event, Lock
from time import perf_counter, sleep
from typing import TypeVar

from hyperslab.errors import Cancelled

T = TypeVar("T")
R = TypeVar("R")

_IN_HAND = 256 << 20
"""Maximum memory of helper threads of all reads of a remote store (ADR 0031, benchmark ``objects``)."""


class Cancel(Event):
    """Cancellation flag for a client that has disconnected, set by another thread and checked between chunks."""

    _slept = 0.0  # when the thread began, or last gave way

    def check(self) -> None:
        """Raise `Cancelled` if the flag is set. After each 2 ms of work it sleeps a moment, for the event loop: at each
        small array numpy lets go of Python's lock for a microsecond, which wakes a thread that waits for the lock in
        vain, and lets its time until it may demand the lock begin anew."""
        if self.is_set():
            raise Cancelled
        if perf_counter() - self._slept > 0.002:
            if self._slept:
                sleep(0.00005)
            self._slept = perf_counter()


class WorkerPool:
    """Threads shared by all requests to one store. The calling thread works too, so that a busy pool causes no delay.

    ``remote``: tasks wait for a network.
    """

    def __init__(self, width: int, name: str, *, remote: bool = True) -> None:
        self.width = width
        # an eighth stays free for a remote store: a look-up must not wait for a large read (ADR 0031)
        self._max_helpers = width - (max(1, width // 8) if remote else 1)
        self._in_hand = 0
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(max(1, width - 1), thread_name_prefix=f"chunks-{name}")

    def each(
        self,
        items: Iterable[T],
        count: int,
        work: Callable[[T], object],
        cancel: Cancel | None = None,
        *,
        nbytes: int = 0,
    ) -> None:
        """Call ``work`` with each of ``count`` items, on as many threads as help. ``nbytes``: memory of one task.

        The first exception ends all tasks and is raised; so is `Cancelled` once ``cancel`` is set.
        """
        # a helper that was called off stays in the pool's queue until a thread takes it: items and work must not
        rest, call = iter(items), work
        errors: list[BaseException] = []
        taking = Lock()

        def drain() -> None:
            try:
                while True:
                    with taking:
                        following = list(islice(rest, 1))
                    if not following or errors or (cancel is not None and cancel.is_set()):
                        return
                    call(following[0])
            except BaseException as error:  # raised by the calling thread
                errors.append(error)

        with self._lock:
            most = self.max_helpers(count - 1, nbytes)
            if nbytes:
                most = max(0, min(most, (_IN_HAND - self._in_hand) // nbytes))
            self._in_hand += most * nbytes
        try:
            helpers = [self._threads.submit(drain) for _ in range(most)]
            drain()
            for helper in helpers:
                if not helper.cancel():  # already started or finished
                    helper.result()
        finally:
            with self._lock:
                self._in_hand -= most * nbytes
        rest, call = iter(()), str
        if errors:
            raise errors[0]
        if cancel is not None and cancel.is_set():
            raise Cancelled

    def map(
        self, work: Callable[[T], R], items: Sequence[T], cancel: Cancel | None = None, *, nbytes: int = 0
    ) -> list[R]:
        """The results of ``work`` in the order of ``items``; parameters and errors as in `each`."""
        if len(items) == 1:
            return [work(items[0])]
        results: dict[int, R] = {}

        def keep(i: int) -> None:
            results[i] = work(items[i])

        self.each(range(len(items)), len(items), keep, cancel, nbytes=nbytes)
        return [results[i] for i in range(len(items))]

    def max_helpers(self, count: int, nbytes: int) -> int:
        """Maximum number of helper threads for ``count`` items of ``nbytes`` each: limited to a quarter of the pool's
        memory, or to three items if they are larger, within the pool's memory."""
        most = max(0, min(self._max_helpers, count))
        return min(most, max(_IN_HAND // 4, min(3 * nbytes, _IN_HAND)) // nbytes) if nbytes else most

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


def attempt(work: Callable[[], T]) -> Future[T]:
    """Call ``work``; the result raises its exception."""
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    return future
