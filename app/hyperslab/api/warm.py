"""Which stored keys the operating system is likely to have in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from hyperslab.arrays.nodes import MountedStore

_MOST = 65_536

Versions = Iterable[tuple[str, str | None]]
"""Keys of one store, and the version of each (None: absent)."""


class WarmKeys:
    """Keys that were read a moment ago in stores that are near: the operating system still has them in memory.

    Reading such a file takes some microseconds, much less than a trip to another thread. Only versions are kept here.
    Safe to call from many threads.
    """

    def __init__(self) -> None:
        self._versions: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._lock = Lock()

    def are_warm(self, mount: MountedStore, versions: Versions) -> bool:
        """Whether all of them were read in these versions; what is absent need not be read."""
        name = mount.name
        with self._lock:
            return all(version is None or self._versions.get((name, key)) == version for key, version in versions)

    def note(self, mount: MountedStore, versions: Versions) -> None:
        """Keys have been read."""
        if not mount.store.capabilities.cheap_stat:
            return
        with self._lock:
            for key, version in versions:
                if version is not None:
                    self._versions[mount.name, key] = version
                    self._versions.move_to_end((mount.name, key))
            while len(self._versions) > _MOST:
                self._versions.popitem(last=False)
