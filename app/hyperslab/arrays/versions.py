"""Versions of keys: looked up in the store, or remembered for as long as the operator allows."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TypeAlias

from hyperslab.arrays.nodes import MountedStore
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES
from hyperslab.storage.base import Stored

_Name: TypeAlias = tuple[str, str]  # of a store, and a key in it
Learn: TypeAlias = Callable[[Iterable[tuple[str, str | None]]], None]
"""Takes pairs of a key and its version (None: absent)."""


class VersionBook:
    """Versions of keys, as fresh as `MountedStore.recheck` demands. Safe to call from many threads."""

    def __init__(self) -> None:
        self._seen: OrderedDict[_Name, tuple[str | None, float]] = OrderedDict()
        self._pending: list[set[_Name]] = []  # of each look-up under way: what of it may be remembered
        self._lock = Lock()

    def versions(self, mount: MountedStore, prefix: str, keys: Sequence[str]) -> list[str | None]:
        """The version of each key (None: absent), in order."""
        if mount.recheck == "always":
            return mount.store.versions(prefix, keys)
        known = self.remembered(mount, keys)
        missing = [key for key in keys if key not in known]
        if missing:
            with self.learning(mount, missing) as learn:
                found = dict(zip(missing, mount.store.versions(prefix, missing), strict=True))
                learn(found.items())
            known.update(found)
        return [known[key] for key in keys]

    def read(self, mount: MountedStore, keys: Sequence[str]) -> list[Stored | None]:
        """The value of each key (None: absent), read now; the versions that come with them count as looked up."""
        with self.learning(mount, keys) as learn:
            found = mount.store.get_each(keys, MAX_DOCUMENT_BYTES)
            learn((key, None if stored is None else stored.version) for key, stored in zip(keys, found, strict=True))
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
        if mount.recheck == "always":
            return
        name = (mount.name, key)
        with self._lock:
            for pending in self._pending:
                pending.discard(name)
            self._remember({name: version}, time.monotonic())

    @contextmanager
    def learning(self, mount: MountedStore, keys: Iterable[str]) -> Iterator[Learn]:
        """Context in which keys are read or looked up; the function that it gives takes the versions that were found.

        What was noted or forgotten while the answer was on its way is newer than the answer, which then is good for
        this request and no other.
        """
        if mount.recheck == "always":
            yield lambda _: None
            return
        pending = {(mount.name, key) for key in keys}
        began = time.monotonic()

        def learn(found: Iterable[tuple[str, str | None]]) -> None:
            with self._lock:
                self._remember({(mount.name, k): v for k, v in found if (mount.name, k) in pending}, began)

        with self._lock:
            self._pending.append(pending)
        try:
            yield learn
        finally:
            with self._lock:
                self._pending = [other for other in self._pending if other is not pending]

    def forget(self, mount: MountedStore, prefix: str, *, documents: bool = False) -> None:
        """Forget every key below a prefix; with ``documents`` only those of the node at the prefix itself."""
        if mount.recheck == "always":
            return
        own = {prefix + name for name in mount.document_names}

        def is_meant(name: _Name) -> bool:
            return name[0] == mount.name and (name[1] in own if documents else name[1].startswith(prefix))

        with self._lock:
            for pending in self._pending:
                pending.difference_update([name for name in pending if is_meant(name)])
            for name in [name for name in self._seen if is_meant(name)]:
                del self._seen[name]

    def _remember(self, found: Mapping[_Name, str | None], now: float) -> None:
        for name, version in found.items():
            self._seen[name] = (version, now)
            self._seen.move_to_end(name)
        while len(self._seen) > 500_000:
            self._seen.popitem(last=False)
