"""Versions of keys: looked up in the store, or remembered for as long as the operator allows."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Literal

from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES
from hyperslab.storage.base import Store, Stored

Recheck = Literal["always", "never"] | float
"""When what is remembered of a store is checked again: on every read, never, or after so many seconds.

The meaning is that of TensorStore's ``recheck_cached_data``; ``never`` declares the store immutable (but for our own
writes).
"""


class VersionBook:
    """Versions of the keys of one store, as fresh as ``recheck`` demands. Safe to call from many threads."""

    def __init__(self, store: Store, recheck: Recheck) -> None:
        self._store = store
        self._recheck = recheck
        # by key: a version, and the time at which it was the key's
        self._seen: OrderedDict[str, tuple[str | None, float]] = OrderedDict()
        self._forgotten = 0.0  # when any key was last forgotten
        self._lock = Lock()

    def look_up(self, prefix: str, keys: Sequence[str], *, fresh: bool = False) -> list[str | None]:
        """The version of each key (None: absent), in order; ``fresh`` asks the store whatever is remembered."""
        if self._recheck == "always":
            return self._store.versions(prefix, keys)
        known = {} if fresh else self.remembered(keys)
        missing = [key for key in keys if key not in known]
        if missing:
            began = time.monotonic()
            known.update(zip(missing, self._store.versions(prefix, missing), strict=True))
            self.learn([(key, known[key]) for key in missing], began)
        return [known[key] for key in keys]

    def read(self, keys: Sequence[str]) -> list[Stored | None]:
        """The value of each key (None: absent), read now; the versions that come with them count as looked up."""
        began = time.monotonic()
        found = self._store.get_each(keys, MAX_DOCUMENT_BYTES)
        self.learn([(k, None if s is None else s.version) for k, s in zip(keys, found, strict=True)], began)
        return found

    def knows_all(self, keys: Sequence[str]) -> bool:
        """Whether `look_up` would answer without asking the store."""
        return self._recheck != "always" and len(self.remembered(keys)) == len(keys)

    def remembered(self, keys: Sequence[str]) -> dict[str, str | None]:
        """The versions of those keys that need not be looked up."""
        if self._recheck == "always":
            return {}
        oldest = 0.0 if self._recheck == "never" else time.monotonic() - self._recheck
        with self._lock:
            seen = {key: self._seen.get(key) for key in keys}
        return {key: entry[0] for key, entry in seen.items() if entry is not None and entry[1] >= oldest}

    def note(self, key: str, version: str | None) -> None:
        """Remember what one of our own writes has made of a key."""
        self.learn([(key, version)], time.monotonic())

    def learn(self, found: Iterable[tuple[str, str | None]], began: float) -> None:
        """Remember the versions (None: absent) of keys that were looked up or read from the time ``began`` on. What was
        noted or forgotten since then is newer: then these are good for the request at hand and no other."""
        if self._recheck == "always":
            return
        with self._lock:
            if began <= self._forgotten:
                return
            for key, version in found:
                known = self._seen.get(key)
                if known is None or known[1] < began:
                    self._seen[key] = version, began
                    self._seen.move_to_end(key)
            while len(self._seen) > 500_000:
                self._seen.popitem(last=False)

    def forget(self, prefix: str) -> None:
        """Forget every key below a prefix."""
        if self._recheck == "always":
            return
        with self._lock:
            self._forgotten = time.monotonic()
            for key in [key for key in self._seen if key.startswith(prefix)]:
                del self._seen[key]
