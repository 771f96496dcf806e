"""Which stored keys the operating system is likely to have in memory."""

from __future__ import annotations

from collections import OrderedDict

from hyperslab.arrays.keys import StoredKey


class WarmKeys:
    """Keys that were read a moment ago in stores that are near: the operating system still has them in memory.

    Reading such a file takes some microseconds, much less than a trip to another thread. Only versions are kept here.
    """

    _MOST = 65_536
    _LARGEST = 256 << 10

    def __init__(self) -> None:
        self._versions: OrderedDict[tuple[str, str], str] = OrderedDict()

    def is_warm(self, found: StoredKey) -> bool:
        return self._versions.get((found.mount.name, found.key)) == found.version

    def note(self, found: StoredKey) -> None:
        """A key has been read."""
        if found.size > self._LARGEST or not found.mount.store.capabilities.cheap_stat:
            return
        self._versions[found.mount.name, found.key] = found.version
        self._versions.move_to_end((found.mount.name, found.key))
        if len(self._versions) > self._MOST:
            self._versions.popitem(last=False)
