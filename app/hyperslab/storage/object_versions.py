"""The versions of many objects: by one HEAD each, or by listing, whichever needs fewer requests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final, Protocol, TypeVar

PAGE: Final = 1000
"""How many keys one listing request gives, on S3 and what imitates it."""

Page = Sequence[tuple[str, str]]
"""Keys and their versions, sorted by key."""

_Answer = tuple[dict[str, str], Sequence[str]]

T = TypeVar("T")
R = TypeVar("R")


class ParallelMap(Protocol):
    """Like `map`, with the calls side by side."""

    def __call__(self, function: Callable[[T], R], items: Sequence[T], /) -> Iterable[R]: ...


class VersionFinder:
    """Finds versions of keys of a store that lists in order.

    ``list_after(offset)``: pages of what follows a key. ``each(function, items)``: a parallel map.
    ``few``: as many HEADs as go out at once; up to here listing is not worth its price.
    """

    def __init__(
        self,
        list_after: Callable[[str], Iterator[Page]],
        head: Callable[[str], str | None],
        each: ParallelMap,
        *,
        few: int,
    ) -> None:
        self._list_after = list_after
        self._head = head
        self._each = each
        self._few = few

    def find(self, keys: Iterable[str]) -> dict[str, str]:
        """The versions of those keys that exist.

        Many keys are cut into runs of a page; each run is listed from its first key on, and the runs side by side. A
        page that covers only a few of the wanted keys shows that the others lie thinly among many more objects (a
        column of a large array): these get a HEAD each, and no array's million chunks are listed for a handful.
        """
        wanted = sorted(set(keys))
        found: dict[str, str] = {}
        alone = wanted
        if len(wanted) > self._few:
            runs = list(_batched(wanted, PAGE))
            tasks = [*(partial(self._list_run, run) for run in runs), *(partial(self._first, run[0]) for run in runs)]
            answers = list(self._each(_call, tasks))
            alone = list(chain.from_iterable(rest for _, rest in answers))
            for listed, _ in answers:
                found |= listed
        for key, version in zip(alone, self._each(self._head, alone), strict=True):
            if version is not None:
                found[key] = version
        return found

    def _list_run(self, run: Sequence[str]) -> _Answer:
        """The versions that listing finds of all but the first key, and the keys that it would be too dear to list."""
        wanted, done = set(run), 1
        found: dict[str, str] = {}
        for page in self._list_after(run[0]):
            found.update((key, version) for key, version in page if key in wanted)
            reached = bisect_right(run, page[-1][0])
            if reached == len(run):
                return found, []
            if reached - done < self._few:
                return found, run[reached:]
            done = reached
        return found, []

    def _first(self, key: str) -> _Answer:
        """The same of the first key of a run: a listing begins after a key, not at it, and needs not be waited for."""
        version = self._head(key)
        return {} if version is None else {key: version}, []


def _call(task: Callable[[], R]) -> R:
    return task()


def _batched(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
