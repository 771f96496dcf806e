"""Worker threads of a store: one task per chunk, on a pool whose width belongs to the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from threading import Lock
from typing import Any, TypeVar

from hyperslab.arrays.cancel import Cancel

T = TypeVar("T")
R = TypeVar("R")

_LARGEST_BATCH = 8
"""Items that a thread takes at a time: a lock taken for each of them would cost more than a small chunk."""
_IN_HAND = 256 << 20
"""Bytes that helpers of all reads of a remote store may hold, of which one read takes a `_SHARE`th; or `_LEAST` items,
where these are larger."""
_SHARE = 4
_LEAST = 3
_RESERVED = 8
"""One in so many threads of a remote store stays free: looking up a version must not wait for a large read."""


class WorkerPool:
    """Threads that all requests to one store share. The calling thread works too, so that a busy pool delays nobody.

    ``remote``: work waits for a network.
    """

    def __init__(self, width: int, name: str, *, remote: bool = True) -> None:
        self.width = width
        self._most_helpers = width - (max(1, width // _RESERVED) if remote else 1)
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
        """Call ``work`` with every item, of which there are ``count``, on as many threads as help. ``nbytes``: memory
        that an item takes while it is worked on.

        The first exception ends all the work and is raised; so is `Cancelled` once ``cancel`` is set.
        """
        run = _Run(items, work, cancel, count, self.width)
        with self._helpers_for(count - 1, nbytes) as most:
            helpers = [self._threads.submit(run.drain) for _ in range(most)]
            run.drain()
            for helper in helpers:
                if not helper.cancel():  # it has started, perhaps ended
                    helper.result()
        # a helper that was called off stays in the pool's queue until a thread takes it: the output must not
        run.items, run.work = iter(()), str
        if run.errors:
            raise run.errors[0]
        if cancel is not None:
            cancel.check()

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

    def most_helpers(self, count: int, nbytes: int) -> int:
        """How many threads may help one caller with ``count`` items of ``nbytes`` each."""
        most = max(0, min(self._most_helpers, count))
        return min(most, max(_IN_HAND // _SHARE, _LEAST * nbytes) // nbytes) if nbytes else most

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    @contextmanager
    def _helpers_for(self, count: int, nbytes: int) -> Iterator[int]:
        """How many threads may help with ``count`` items of ``nbytes`` each, so that all in hand fit into memory."""
        with self._lock:
            most = self.most_helpers(count, nbytes)
            if nbytes:
                most = max(0, min(most, (_IN_HAND - self._in_hand) // nbytes))
            self._in_hand += most * nbytes
        try:
            yield most
        finally:
            with self._lock:
                self._in_hand -= most * nbytes


def attempt(work: Callable[[], T]) -> Future[T]:
    """Call ``work``; what it raises is raised where the result is wanted."""
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    return future


class _Run:
    """Items that several threads take turns to work on."""

    def __init__(
        self, items: Iterable[Any], work: Callable[[Any], object], cancel: Cancel | None, count: int, width: int
    ) -> None:
        self.items = iter(items)
        self.work = work
        self.errors: list[BaseException] = []
        self._left = count
        self._share = 4 * width
        self._cancel = cancel
        self._lock = Lock()

    def drain(self) -> None:
        """Work until the items end, something fails or the client leaves."""
        try:
            while batch := self._next_batch():
                for item in batch:
                    if self.errors or (self._cancel is not None and self._cancel.is_set()):
                        return
                    self.work(item)
        except BaseException as error:  # handed to the calling thread, which raises it
            self.errors.append(error)

    def _next_batch(self) -> list[Any]:
        """The next items; fewer towards the end, so that all threads end together."""
        with self._lock:
            batch = list(islice(self.items, max(1, min(_LARGEST_BATCH, self._left // self._share))))
            self._left -= len(batch)
            return batch
