"""Which stored keys the operating system is likely to have in memory."""

from __future__ import annotations

from collections.abc import Iterable

from hyperslab.arrays.nodes import MountedStore
from hyperslab.cache import Recent

_MOST = 65_536

Versions = Iterable[tuple[str, str | None]]
"""Keys of one store, and the version of each (None: absent)."""


class WarmKeys:
    """Keys that were read a moment ago in stores that are near: the operating system still has them in memory.

    Reading such a file takes some microseconds, much less than a trip to another thread. Only versions are kept here.
    Safe to call from many threads.
    """

    def __init__(self) -> None:
        self._read = Recent(_MOST)

    def are_warm(self, mount: MountedStore, versions: Versions) -> bool:
        """Whether all of them were read in these versions; what is absent need not be read."""
        name = mount.name
        return self._read.holds_all([((name, key), version) for key, version in versions if version is not None])

    def note(self, mount: MountedStore, versions: Versions) -> None:
        """Keys have been read."""
        if mount.is_far:
            return
        for key, version in versions:
            if version is not None:
                self._read.again((mount.name, key), version)
