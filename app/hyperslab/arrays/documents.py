"""Storing and removing metadata documents, so that no request that comes late undoes what others have stored since."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hyperslab.arrays.nodes import MountedStore
from hyperslab.engine.jsontext import distinct
from hyperslab.engine.metadata import MAX_ARRAY_BYTES, MAX_CONSOLIDATED_BYTES
from hyperslab.errors import WriteConflict
from hyperslab.storage.base import Absent, VersionConflict, WritersSafe

_MOST_TRIES = 8
_ROOM = 1 << 10


def put_document(mount: MountedStore, key: str, text: bytes, if_version: str | Absent) -> str:
    """Store a document of our own making on condition, and return its version. Where replicas share the store it has a
    version that no document had before. Raises `VersionConflict`."""
    shared = mount.store.capabilities.writers_safe is WritersSafe.REPLICAS
    limit = MAX_CONSOLIDATED_BYTES if key.endswith(".zmetadata") else MAX_ARRAY_BYTES
    room = len(text) + _ROOM <= limit  # else nobody would read it back
    return mount.store.put(key, distinct(text) if shared and room else text, if_version=if_version)


def remove_document(mount: MountedStore, key: str, check: Callable[[], None]) -> None:
    """Remove a document if it is there. ``check`` is called before each attempt, and what it raises ends the work."""
    if mount.store.capabilities.writers_safe is not WritersSafe.REPLICAS:
        check()
        mount.store.delete(key)
        return
    for _ in range(_MOST_TRIES):
        (version,) = mount.store.versions("", [key])
        check()  # after the look: what is there when the turn is lost may be another's
        if version is None:
            return
        with suppress(VersionConflict):
            mount.store.delete(key, if_version=version)
            return
    raise WriteConflict(key, f"other writers changed it {_MOST_TRIES} times")
