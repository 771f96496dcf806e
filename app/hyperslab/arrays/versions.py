"""Versions of keys: looked up in the store, or remembered for as long as the operator allows."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock

from hyperslab.arrays.nodes import MountedStore
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES
from hyperslab.storage.base import Stored


class VersionBook:
    """Versions of keys, as fresh as `MountedStore.recheck` demands. Safe to call from many threads."""

    def __init__(self) -> None:
        # by store and key: a version, and the time at which it was the key's
        self._seen: OrderedDict[tuple[str, str], tuple[str | None, float]] = OrderedDict()
        self._forgotten: dict[str, float] = {}  # by store: when any of its keys were last forgotten
        self._lock = Lock()

    def versions(
        self, mount: MountedStore, prefix: str, keys: Sequence[str], *, fresh: bool = False
    ) -> list[str | None]:
        """The version of each key (None: absent), in order; ``fresh`` asks the store whatever is remembered."""
        if mount.recheck == "always":
            return mount.store.versions(prefix, keys)
        known = {} if fresh else self.remembered(mount, keys)
        missing = [key for key in keys if key not in known]
        if missing:
            began = time.monotonic()
            known.update(zip(missing, mount.store.versions(prefix, missing), strict=True))
            self.learn(mount, [(key, known[key]) for key in missing], began)
        return [known[key] for key in keys]

    def read(self, mount: MountedStore, keys: Sequence[str]) -> list[Stored | None]:
        """The value of each key (None: absent), read now; the versions that come with them count as looked up."""
        began = time.monotonic()
        found = mount.store.get_each(keys, MAX_DOCUMENT_BYTES)
        self.learn(mount, [(k, None if s is None else s.version) for k, s in zip(keys, found, strict=True)], began)
        return found

    def knows_all(self, mount: MountedStore, keys: Sequence[str]) -> bool:
        """Whether `versions` would answer without asking the store."""
        return mount.recheck != "always" and len(self.remembered(mount, keys)) == len(keys)

    def remembered(self, mount: MountedStore, keys: Sequence[str]) -> dict[str, str | None]:
        """The versions of those keys that need not be looked up."""
        if mount.recheck == "always":
            return {}
        oldest = 0.0 if mount.recheck == "never" else time.monotonic() - mount.recheck
        with self._lock:
            seen = {key: self._seen.get((mount.name, key)) for key in keys}
        return {key: entry[0] for key, entry in seen.items() if entry is not None and entry[1] >= oldest}

    def note(self, mount: MountedStore, key: str, version: str | None) -> None:
        """Remember what one of our own writes has made of a key."""
        self.learn(mount, [(key, version)], time.monotonic())

    def learn(self, mount: MountedStore, found: Iterable[tuple[str, str | None]], began: float) -> None:
        """Remember the versions (None: absent) of keys that were looked up or read from the time ``began`` on. What was
        noted or forgotten since then is newer: then these are good for the request at hand and no other."""
        if mount.recheck == "always":
            return
        with self._lock:
            if began <= self._forgotten.get(mount.name, 0.0):
                return
            for key, version in found:
                name = mount.name, key
                known = self._seen.get(name)
                if known is None or known[1] < began:
                    self._seen[name] = version, began
                    self._seen.move_to_end(name)
            while len(self._seen) > 500_000:
                self._seen.popitem(last=False)

    def forget(self, mount: MountedStore, prefix: str) -> None:
        """Forget every key below a prefix."""
        if mount.recheck == "always":
            return
        with self._lock:
            self._forgotten[mount.name] = time.monotonic()
            for name in [name for name in self._seen if name[0] == mount.name and name[1].startswith(prefix)]:
                del self._seen[name]
