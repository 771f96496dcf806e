"""Many small requests side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class SideBySide:
    """Threads for one store's own fan-outs, started when first needed.

    Only leaf requests run on them: a task that waited for another task here could wait for ever.
    """

    def __init__(self, width: int, name: str) -> None:
        self._width = width
        self._name = name
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> Iterable[R]:
        """Like the built-in, in the order of ``items``; the first error that comes up is raised."""
        if len(items) < 2:
            return map(function, items)
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._width, thread_name_prefix=f"{self._name}-requests")
            return self._pool.map(function, items)

    def close(self) -> None:
        """End the threads; `map` starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
