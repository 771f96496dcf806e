"""One task per chunk, on a pool whose width belongs to the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Lock
from typing import Generic, TypeVar

from hyperslab.arrays.cost import Cancel

T = TypeVar("T")

_LARGEST_BATCH = 8


class WorkerPool:
    """Threads that all requests to one store share. The calling thread works too, so that a busy pool delays nobody."""

    def __init__(self, width: int, name: str) -> None:
        self.width = width
        self._threads = ThreadPoolExecutor(max(1, width - 1), thread_name_prefix=f"chunks-{name}")

    def each(self, items: Iterable[T], count: int, work: Callable[[T], None], cancel: Cancel | None = None) -> None:
        """Call ``work`` with every item, of which there are ``count``, on as many threads as help.

        The first exception ends all the work and is raised; so is `Cancelled` once ``cancel`` is set.
        """
        run = _Run(iter(items), work, cancel=cancel, count=count, share=4 * self.width)
        helpers = [self._threads.submit(run.drain) for _ in range(min(self.width, count) - 1)]
        run.drain()
        for helper in helpers:
            if not helper.cancel():  # it has started, perhaps ended
                helper.result()
        run.let_go()
        if run.errors:
            raise run.errors[0]
        if cancel is not None:
            cancel.check()

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


class _Run(Generic[T]):
    """Items that several threads take turns to fetch."""

    def __init__(
        self, items: Iterable[T], work: Callable[[T], None], *, cancel: Cancel | None, count: int, share: int
    ) -> None:
        self._items = iter(items)
        self._left = count
        self._share = share
        self._work = work
        self._cancel = cancel
        self._lock = Lock()
        self.errors: list[BaseException] = []

    def let_go(self) -> None:
        """Hold on to nothing: helpers that were called off stay in the pool's queue, and this run with them, until a
        thread comes by; the buffers of an answer must not."""
        self._items, self._work = iter(()), _nothing

    def drain(self) -> None:
        """Work until the items end, something fails or the client leaves."""
        try:
            while batch := self._next_batch():
                for item in batch:
                    if self.errors or (self._cancel is not None and self._cancel.is_set()):
                        return
                    self._work(item)
        except BaseException as error:  # handed to the calling thread, which raises it
            self.errors.append(error)

    def _next_batch(self) -> list[T]:
        """Some items that follow each other: taking turns for each of them costs more than a small chunk. Towards the
        end they are fewer, so that all threads end together."""
        with self._lock:
            batch = list(islice(self._items, max(1, min(_LARGEST_BATCH, self._left // self._share))))
            self._left -= len(batch)
            return batch


def _nothing(_: object) -> None:
    """What is done with the items of a run that is over, of which there are none."""
