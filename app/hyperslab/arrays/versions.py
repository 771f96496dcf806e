"""What version each key has: asked of the store, or remembered for as long as the operator allows."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from hyperslab.arrays.nodes import MountedStore

_MOST_REMEMBERED = 500_000


class VersionBook:
    """Versions of keys, as fresh as `MountedStore.recheck` demands. Safe to call from many threads."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], tuple[str | None, float]] = OrderedDict()
        self._lock = Lock()

    def versions(self, mount: MountedStore, prefix: str, keys: Sequence[str]) -> list[str | None]:
        """The version of each key (None: absent), in order."""
        if mount.recheck == "always":
            return mount.store.versions(prefix, keys)
        known = self._remembered(mount, keys)
        missing = [key for key in keys if key not in known]
        if missing:
            found = dict(zip(missing, mount.store.versions(prefix, missing), strict=True))
            self._remember(mount, found)
            known.update(found)
        return [known[key] for key in keys]

    def knows_all(self, mount: MountedStore, keys: Sequence[str]) -> bool:
        """Whether `versions` would answer without asking the store."""
        return mount.recheck != "always" and len(self._remembered(mount, keys)) == len(keys)

    def note(self, mount: MountedStore, key: str, version: str | None) -> None:
        """Remember what one of our own writes has made of a key."""
        if mount.recheck != "always":
            self._remember(mount, {key: version})

    def forget(self, mount: MountedStore, prefix: str, *, documents: bool = False) -> None:
        """Forget every key below a prefix; with ``documents`` only those of the node at the prefix itself."""
        if mount.recheck == "always":
            return
        own = {prefix + name for name in (mount.metadata_key, ".zattrs", ".zgroup", ".zmetadata")}
        with self._lock:
            for name, key in list(self._seen):
                if name == mount.name and (key in own if documents else key.startswith(prefix)):
                    del self._seen[name, key]

    def _remembered(self, mount: MountedStore, keys: Sequence[str]) -> dict[str, str | None]:
        oldest = 0.0 if mount.recheck == "never" else time.monotonic() - float(mount.recheck)
        with self._lock:
            seen = {key: self._seen.get((mount.name, key)) for key in keys}
        return {key: entry[0] for key, entry in seen.items() if entry is not None and entry[1] >= oldest}

    def _remember(self, mount: MountedStore, found: dict[str, str | None]) -> None:
        now = time.monotonic()
        with self._lock:
            for key, version in found.items():
                self._seen[mount.name, key] = (version, now)
                self._seen.move_to_end((mount.name, key))
            while len(self._seen) > _MOST_REMEMBERED:
                self._seen.popitem(last=False)
