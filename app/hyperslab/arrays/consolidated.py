"""Keeping ``.zmetadata`` true: wherever a store has one, it follows every change of the documents below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperslab.arrays.nodes import MountedStore
from hyperslab.engine.metadata import dump_json, parse_json
from hyperslab.errors import WriteConflict
from hyperslab.storage.base import VersionConflict

_MOST_TRIES = 32

Changes = Mapping[str, Any]
"""Documents by key in the store; None for one that is gone."""


def follow(mount: MountedStore, prefix: str, changes: Changes, *, removed_below: bool = False) -> None:
    """Carry changes of the node at ``prefix`` into every ``.zmetadata`` above it and at it.

    ``removed_below`` also takes out every other document below ``prefix``. Raises `WriteConflict` where other writers
    come first too often.
    """
    parts = prefix.split("/")[:-1]
    for depth in range(len(parts) + 1):
        root = "".join(part + "/" for part in parts[:depth])
        _follow_one(mount, root, prefix, changes, removed_below)


def _follow_one(mount: MountedStore, root: str, prefix: str, changes: Changes, removed_below: bool) -> None:
    key = root + ".zmetadata"
    for _ in range(_MOST_TRIES):
        stored = mount.store.get(key)
        if stored is None:
            return
        document = parse_json(stored.data)
        metadata = _changed(document.get("metadata", {}), root, prefix, changes, removed_below)
        if metadata == document.get("metadata"):
            return
        if _try_put(mount, key, dump_json({**document, "metadata": metadata}), stored.version):
            return
    raise WriteConflict(key, f"other writers came first {_MOST_TRIES} times")


def _try_put(mount: MountedStore, key: str, data: bytes, version: str) -> bool:
    try:
        with mount.store.lock(key):
            mount.store.put(key, data, if_version=version)
    except VersionConflict:
        return False
    return True


def _changed(
    metadata: Mapping[str, Any], root: str, prefix: str, changes: Changes, removed_below: bool
) -> dict[str, Any]:
    inner = prefix[len(root) :]
    kept = {k: v for k, v in metadata.items() if not (removed_below and k.startswith(inner))}
    for key, document in changes.items():
        if document is None:
            kept.pop(key[len(root) :], None)
        else:
            kept[key[len(root) :]] = document
    return kept
