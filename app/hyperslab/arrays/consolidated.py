"""Keeping ``.zmetadata`` true: wherever a store has one, it follows every change of the documents below it.

It is one document for all nodes, so whoever changes it holds its lock for the whole read, change and put; replicas
that no lock reaches come one after the other by the condition on the put.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hyperslab.arrays.nodes import MountedStore
from hyperslab.engine.metadata import MAX_CONSOLIDATED_BYTES, dump_json, parse_consolidated, parse_json
from hyperslab.errors import BadMetadata, WriteConflict
from hyperslab.storage.base import VersionConflict

_MOST_TRIES = 100
_LONGEST_PAUSE = 0.25

Changes = Mapping[str, Any]
"""Documents by key in the store; None for one that is gone."""
Change = Callable[[Mapping[str, Any]], dict[str, Any]]
"""From the documents that a ``.zmetadata`` holds to those that it is to hold."""


def follow(mount: MountedStore, prefix: str, changes: Changes, *, removed_below: bool = False) -> None:
    """Carry changes of the node at ``prefix`` into every ``.zmetadata`` above it and at it.

    ``removed_below`` also takes out every other document below ``prefix``. Raises `WriteConflict` where other writers
    come first too often.
    """
    parts = prefix.split("/")[:-1]
    for depth in range(len(parts) + 1):
        root = "".join(part + "/" for part in parts[:depth])
        _follow_one(mount, root + ".zmetadata", partial(_changed, root, prefix, changes, removed_below))


def _follow_one(mount: MountedStore, key: str, change: Change) -> None:
    if mount.store.stat(key) is None:
        return
    for attempt in range(_MOST_TRIES):
        with mount.store.lock(key):
            if _followed(mount, key, change):
                return
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.01 * 2**attempt)))
    raise WriteConflict(key, f"other writers came first {_MOST_TRIES} times")


def _followed(mount: MountedStore, key: str, change: Change) -> bool:
    """One attempt; False where another writer came between. A document that is broken stays as it is: the change
    that it does not follow is stored already, and whoever reads it is told."""
    stored = mount.store.get(key)
    if stored is None:
        return True
    try:
        before = parse_consolidated(stored.data, key)
    except BadMetadata:
        return True
    after = change(before)
    if after == before:
        return True
    document = {**parse_json(stored.data, limit=MAX_CONSOLIDATED_BYTES), "metadata": after}
    try:
        mount.store.put(key, dump_json(document), if_version=stored.version)
    except VersionConflict:
        return False
    return True


def _changed(
    root: str, prefix: str, changes: Changes, removed_below: bool, metadata: Mapping[str, Any]
) -> dict[str, Any]:
    inner = prefix[len(root) :]
    kept = {k: v for k, v in metadata.items() if not (removed_below and k.startswith(inner))}
    for key, document in changes.items():
        if document is None:
            kept.pop(key[len(root) :], None)
        else:
            kept[key[len(root) :]] = document
    return kept
