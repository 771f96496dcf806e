"""Keeping ``.zmetadata`` true: wherever a store has one, it follows every change of the documents below it.

It is one document for all nodes, so whoever changes it holds its lock for the whole read, change and put; replicas
that no lock reaches come one after the other by the condition on the put. What is put is what the store holds by then:
others may have changed the same node since, and may have been here before. They may also come between the look and the
put, so whoever has put looks again; the last to come finds that all agrees.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hyperslab.arrays.nodes import MountedStore
from hyperslab.engine.metadata import MAX_CONSOLIDATED_BYTES, dump_json, parse_consolidated, parse_json, parse_object
from hyperslab.errors import BadMetadata, ConsolidatedBehind, StoreError
from hyperslab.storage.base import Stored, VersionConflict

_MOST_TRIES = 100
_LONGEST_PAUSE = 0.25

Documents = Mapping[str, Stored | None]
"""By key in the store; None for one that is not there."""


def follow(mount: MountedStore, prefix: str, changed: Iterable[str], *, removed_below: bool = False) -> None:
    """Carry the documents ``changed`` (keys) of the node at ``prefix``, as they are now, into every ``.zmetadata``
    above it and at it.

    ``removed_below`` also takes out every other document below ``prefix``. Raises `ConsolidatedBehind` where the store
    fails, or other writers come first too often: a failure of its own kind, as the change itself is done by then and
    must not be done again.
    """
    parts = prefix.split("/")[:-1]
    known = tuple(_known_as(mount, key) for key in changed)
    for depth in range(len(parts) + 1):
        root = "".join(part + "/" for part in parts[:depth])
        change = _Change(root, prefix, known, removed_below)
        try:
            _follow_one(mount, change)
        except StoreError as error:
            raise ConsolidatedBehind(error.store, change.key, error.reason) from error


@dataclass(frozen=True, slots=True)
class _Change:
    """What has happened to a node, for the ``.zmetadata`` at ``root``."""

    root: str
    prefix: str
    changed: tuple[str, ...]
    removed_below: bool

    @property
    def key(self) -> str:
        return self.root + ".zmetadata"

    def applied(self, metadata: Mapping[str, Any], documents: Documents) -> dict[str, Any]:
        """From what a ``.zmetadata`` holds to what it is to hold; a document that is broken stays as it was there."""
        inner = self.prefix[len(self.root) :]
        kept = {k: v for k, v in metadata.items() if not (self.removed_below and k.startswith(inner))}
        for key, stored in documents.items():
            if stored is None:
                kept.pop(key[len(self.root) :], None)
            elif (document := parse_object(stored.data)) is not None:
                kept[key[len(self.root) :]] = document
        return kept


def _follow_one(mount: MountedStore, change: _Change) -> None:
    if mount.store.stat(change.key) is None:
        return
    for attempt in range(_MOST_TRIES):
        with mount.store.lock(change.key):
            if _followed(mount, change):
                return
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.01 * 2**attempt)))
    raise ConsolidatedBehind(mount.name, change.key, f"other writers came first {_MOST_TRIES} times")


def _followed(mount: MountedStore, change: _Change) -> bool:
    """One attempt; False where another writer came between. A document that is broken stays as it is: the change
    that it does not follow is stored already, and whoever reads it is told."""
    key = change.key
    stored = mount.store.get(key)
    if stored is None:
        return True
    try:
        before = parse_consolidated(stored.data, key)
    except BadMetadata:
        return True
    documents = {name: mount.store.get(_stored_under(mount, name)) for name in change.changed}
    after = change.applied(before, documents)
    if after == before:
        return True
    document = {**parse_json(stored.data, limit=MAX_CONSOLIDATED_BYTES), "metadata": after}
    try:
        mount.store.put(key, dump_json(document), if_version=stored.version)
    except VersionConflict:
        return False
    return _are_still(mount, change.prefix, documents)


def _are_still(mount: MountedStore, prefix: str, documents: Documents) -> bool:
    if not documents:
        return True
    now = mount.store.versions(prefix, [_stored_under(mount, name) for name in documents])
    return now == [None if stored is None else stored.version for stored in documents.values()]


def _known_as(mount: MountedStore, key: str) -> str:
    """What ``.zmetadata`` calls a document: an operator may have given ``.zarray`` another name."""
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}.zarray" if name == mount.metadata_key else key


def _stored_under(mount: MountedStore, known: str) -> str:
    folder, slash, name = known.rpartition("/")
    return f"{folder}{slash}{mount.metadata_key}" if name == ".zarray" else known
