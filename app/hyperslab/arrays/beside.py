"""What waits for a store, one beside the other; where a store is near, one after the other is quicker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hyperslab.arrays.cost import Cancel
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.pool import WorkerPool
from hyperslab.arrays.read import Reader

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(
    pool: WorkerPool, work: Callable[[T], R], items: Sequence[T], cancel: Cancel | None = None, *, nbytes: int = 0
) -> list[R]:
    """The results of ``work`` in the order of ``items``, each of which takes ``nbytes`` of memory meanwhile."""
    if len(items) == 1:
        return [work(items[0])]
    results: dict[int, R] = {}

    def keep(i: int) -> None:
        results[i] = work(items[i])

    pool.each(range(len(items)), len(items), keep, cancel, nbytes=nbytes)
    return [results[i] for i in range(len(items))]


class Beside:
    """Asks a far store several things at once. Safe to call from many threads."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def each(
        self, mount: MountedStore, work: Callable[[T], R], items: Sequence[T], cancel: Cancel | None = None
    ) -> list[R]:
        """The results of ``work``, which does nothing but ask ``mount``; raises what one of them raises."""
        if not mount.is_far:
            return [work(item) for item in items]
        return in_parallel(self._reader.pool_of(mount), work, items, cancel) if items else []

    def tried(
        self, mount: MountedStore, works: Sequence[Callable[[], Any]], cancel: Cancel | None = None
    ) -> list[Attempt]:
        """What comes of each of ``works``."""
        return self.each(mount, _attempt, works, cancel)


class Attempt:
    """What came of calling something: a value or an error."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: Any, error: Exception | None) -> None:
        self._value, self._error = value, error

    def result(self) -> Any:
        """The value; raises the error, once."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return self._value
        finally:
            del error  # which holds this frame


def _attempt(work: Callable[[], Any]) -> Attempt:
    try:
        return Attempt(work(), None)
    except Exception as error:  # raised where the result is wanted
        return Attempt(None, error)
