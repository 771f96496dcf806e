"""Keeping ``.zmetadata`` true: wherever a store has one, it follows every change of the documents below it.

It is one document for all nodes, so whoever changes it holds its lock for the whole read, change and put; replicas
that no lock reaches come one after the other by the condition on the put. What is put is what the store holds by then:
others may have changed the same node since, and may have been here before. They may also come between the look and the
put, so whoever has put looks again; the last to come finds that all agrees.

A client that gathers one itself (zarr-python's ``consolidate_metadata``) puts what it has seen some time before. What
has changed meanwhile is put right in it; documents that are nowhere else stay as they came.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hyperslab.arrays.documents import put_document
from hyperslab.arrays.nodes import MountedStore
from hyperslab.arrays.write import KeyCheck
from hyperslab.engine.jsontext import dump_copy
from hyperslab.engine.metadata import MAX_CONSOLIDATED_BYTES, parse_consolidated, parse_json, parse_object
from hyperslab.errors import (
    BadMetadata,
    BadPath,
    ConsolidatedBehind,
    InDoubt,
    StoredTooLarge,
    StoreError,
    StoreFull,
    WriteConflict,
)
from hyperslab.storage.base import ABSENT, Stored, VersionConflict
from hyperslab.storage.keys import normalise_path, prefixes

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
    known = tuple(_known_as(mount, key) for key in changed)
    for root in prefixes(prefix):
        change = _Change(root, prefix, known, removed_below)
        try:
            _follow_one(mount, change)
        except StoreError as error:
            raise ConsolidatedBehind(error.store, change.key, error.reason) from error


def leave_out(mount: MountedStore, prefix: str) -> None:
    """Take a node that is about to be removed, and all below it, out of every ``.zmetadata`` above it.

    A node without a document is opened from there: while it is removed, and for good where the process is killed, its
    chunks that are gone already would read as fill values. On a full disk it follows when removing has made room.
    Raises `StoreError` where nothing is to be removed, as this cannot be done.
    """
    with suppress(StoreFull):
        for root in prefixes(prefix)[:-1]:
            _follow_one(mount, _Change(root, prefix, (), removed_below=True))


@dataclass(frozen=True, slots=True)
class Gathered:
    """A ``.zmetadata`` that was put: the version it has now, and whether there was none before."""

    version: str
    created: bool


def put_gathered(
    mount: MountedStore, prefix: str, data: bytes | memoryview, documents: Mapping[str, Any], check: KeyCheck | None
) -> Gathered:
    """Store the ``.zmetadata`` of the group at ``prefix`` that a client has gathered; ``documents`` are what it holds.

    ``check`` is called with the one that is there, and what it raises is passed on. Raises `ConsolidatedBehind` where
    the store fails once ``data`` is stored, and `WriteConflict` where other writers come first too often.
    """
    key = prefix + ".zmetadata"
    before = _put_in_its_turn(mount, key, data, check)
    try:
        stale = _in_doubt(mount, prefix, documents, before)
        _follow_one(mount, _Change(prefix, prefix, stale, removed_below=False))
        entry = mount.store.stat(key)
    except StoreError as error:
        raise ConsolidatedBehind(error.store, key, error.reason) from error
    return Gathered("" if entry is None else entry.version, created=before is None)


def _put_in_its_turn(mount: MountedStore, key: str, data: bytes | memoryview, check: KeyCheck | None) -> Stored | None:
    """Put on top of just what is returned: what others have carried into it until then is known."""
    for _ in _attempts():
        with mount.store.lock(key):
            if check is not None:
                check(mount.store.stat(key))
            before = mount.store.get(key)
            try:
                mount.store.put(key, data, if_version=ABSENT if before is None else before.version)
            except VersionConflict:
                continue
            return before
    raise WriteConflict(key, "other writers came first")


def _in_doubt(mount: MountedStore, root: str, documents: Mapping[str, Any], before: Stored | None) -> tuple[str, ...]:
    """The documents (keys) that a gathered ``.zmetadata`` may not hold as they are.

    One that was there ``before`` has followed every change: only where the two differ is there a doubt, and what
    neither it nor the store knows was deleted meanwhile. Where there was none, what the store lacks is held here alone.
    """
    known = _documents_in(before, root + ".zmetadata")
    names = documents.keys() if known is None else known.keys() | documents.keys()
    doubtful = [n for n in names if _is_document(n) and (known is None or known.get(n) != documents.get(n))]
    found = mount.store.versions(root, [_stored_under(mount, root + name) for name in doubtful])
    new = () if known is None else documents.keys() - known.keys()
    return tuple(root + n for n, version in zip(doubtful, found, strict=True) if version is not None or n in new)


def _documents_in(stored: Stored | None, key: str) -> dict[str, Any] | None:
    """None where there is none that can be read."""
    try:
        return None if stored is None else parse_consolidated(stored.data, key)
    except BadMetadata:
        return None


def _is_document(name: str) -> bool:
    """Whether a client may have meant a document of a node; no other key is looked for in the store."""
    try:
        return normalise_path(name) == name and name.rpartition("/")[2] in (".zarray", ".zgroup", ".zattrs")
    except BadPath:
        return False


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
    """Raises `StoreError`."""
    if mount.store.stat(change.key) is None:
        return
    for _ in _attempts():
        with mount.store.lock(change.key):
            if _followed(mount, change):
                return
    raise StoreError(mount.name, change.key, f"other writers came first {_MOST_TRIES} times")


def _attempts() -> Iterator[None]:
    """As many as there may be, with a pause after each, for others to end."""
    for attempt in range(_MOST_TRIES):
        yield
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.01 * 2**attempt)))


def _followed(mount: MountedStore, change: _Change) -> bool:
    """One attempt; False where another writer came between. A document that is broken stays as it is: the change
    that it does not follow is stored already, and whoever reads it is told."""
    key = change.key
    try:
        stored = mount.store.get(key)
    except StoredTooLarge:
        return True
    before = _documents_in(stored, key)
    if stored is None or before is None:
        return True
    documents = {name: mount.store.get(_stored_under(mount, name)) for name in change.changed}
    after = change.applied(before, documents)
    if after == before:
        return True
    document = {**parse_json(stored.data, limit=MAX_CONSOLIDATED_BYTES), "metadata": after}
    try:
        put_document(mount, key, dump_copy(document), stored.version)
    except (VersionConflict, InDoubt):  # whoever came first, the next look tells what is there
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
