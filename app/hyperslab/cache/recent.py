"""Which values were asked for lately: one that is asked for again is worth a place in a cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from threading import Lock


class Recent:
    """Remembers the last ``limit`` keys and their versions, and nothing of the values; safe to call from many
    threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: OrderedDict[Hashable, str] = OrderedDict()
        self._lock = Lock()

    def holds_all(self, versions: Iterable[tuple[Hashable, str]]) -> bool:
        """Whether these versions of all keys were asked for lately; changes nothing."""
        with self._lock:
            return all(self._seen.get(key) == version for key, version in versions)

    def again(self, key: Hashable, version: str) -> bool:
        """Whether this version was asked for before; from now on it was."""
        with self._lock:
            before = self._seen.pop(key, None)
            self._seen[key] = version
            if len(self._seen) > self._limit:
                self._seen.popitem(last=False)
        return before == version

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._seen.clear()
