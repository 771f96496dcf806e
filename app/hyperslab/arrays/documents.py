"""Metadata documents: stored and removed on condition, attributes merged, and ``.zmetadata`` updated.

Wherever a store has a ``.zmetadata``, it follows every change of the documents below it. It is one document for all
nodes, so whoever changes it holds its lock for the whole read, change and put; replicas that no lock reaches come one
after the other by the condition on the put. What is put is what the store holds by then: others may have changed the
same node since, and may have been here before. They may also come between the look and the put, so whoever has put
looks again; the last to come finds that all agrees.

A client that makes one itself (zarr-python's ``consolidate_metadata``) puts what it has seen some time before. What has
changed meanwhile is put right in it; documents that are nowhere else stay as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from hyperslab.arrays.lease import MOST_TRIES, attempts
from hyperslab.arrays.nodes import V3, ArrayNode, GroupNode, MountedStore
from hyperslab.arrays.versions import VersionBook
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES, distinct, dump_copy, parse_json, parse_object, spell_floats
from hyperslab.engine.metadata import MAX_ARRAY_BYTES, MAX_CONSOLIDATED_BYTES, parse_attributes, parse_consolidated
from hyperslab.errors import (
    BadBody,
    BadDefinition,
    BadMetadata,
    BadPath,
    ConsolidatedBehind,
    InDoubt,
    StoredTooLarge,
    StoreError,
    StoreFull,
    UnsupportedFormat,
    WriteConflict,
    shown,
)
from hyperslab.storage.base import ABSENT, Absent, Entry, Stored, VersionConflict, WritersSafe
from hyperslab.storage.keys import normalise_path, prefixes

KeyCheck = Callable[[Entry | None], None]
"""Given a key as it is now (None: absent); raises `errors.PreconditionFailed`."""


def put_document(versions: VersionBook, mount: MountedStore, key: str, text: bytes, if_version: str | Absent) -> str:
    """Store a document of our own making on condition, and return its version. Where replicas share the store it has a
    version that no document had before: no late request undoes what others have stored since. Raises
    `VersionConflict`."""
    shared = mount.store.capabilities.writers_safe is WritersSafe.REPLICAS
    limit = MAX_CONSOLIDATED_BYTES if key.endswith(".zmetadata") else MAX_ARRAY_BYTES
    room = len(text) + 1024 <= limit  # else nobody would read it back
    version = mount.store.put(key, distinct(text) if shared and room else text, if_version=if_version)
    versions.note(mount, key, version)
    return version


def remove_document(mount: MountedStore, key: str, check: Callable[[], None]) -> None:
    """Remove a document if it is there. ``check`` is called before each attempt, and what it raises ends the work."""
    if mount.store.capabilities.writers_safe is not WritersSafe.REPLICAS:
        check()
        mount.store.delete(key)
        return
    for _ in attempts():
        (version,) = mount.store.versions("", [key])
        check()  # after the look: what is there when the turn is lost may be another's
        if version is None:
            return
        with suppress(VersionConflict):
            mount.store.delete(key, if_version=version)
            return
    raise WriteConflict(key, f"other writers changed it {MOST_TRIES} times")


def merge_attributes(
    versions: VersionBook, mount: MountedStore, node: ArrayNode | GroupNode, patch: Mapping[str, Any]
) -> bool:
    """Store a node's attributes with a patch merged in; False, and nothing done, where somebody has changed them since
    the node was opened. The caller holds the node lock. Raises `BadDefinition` before anything is stored."""
    if node.zarr_format == 3:
        raise UnsupportedFormat(node.path, node.prefix + V3)
    key = node.prefix + ".zattrs"
    attributes, version = node.attributes, node.documents.get(key)
    if key not in node.documents:  # it was not opened from documents of its own, and may have such a one all the same
        stored = mount.store.get(key)  # value and version belong together
        if stored is not None:
            attributes, version = parse_attributes(stored.data, key), stored.version
    text = attributes_text(merge_patch(attributes, patch))
    try:
        put_document(versions, mount, key, text, ABSENT if version is None else version)
    except VersionConflict:
        return False
    follow(versions, mount, node.prefix, [key])
    return True


def merge_patch(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7396 §2: members of ``patch`` replace those of ``target``, null removes, objects are merged."""
    merged = dict(target)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            inner = merged.get(name)
            merged[name] = merge_patch(inner if isinstance(inner, Mapping) else {}, value)
        elif (spelled := spell_floats(merged.get(name))) != value or spelled == merged.get(name):
            merged[name] = value
        # else: a bare NaN, sent back as the text that it was shown as, stays what it was
    return merged


def attributes_text(attributes: Mapping[str, Any]) -> bytes:
    """What to store as ``.zattrs``; raises `BadDefinition` if it is so large that nobody would read it back.

    Bare NaN and infinities are those that were stored before, by others: they stay what they are.
    """
    text = dump_copy(dict(attributes))
    if len(text) > MAX_DOCUMENT_BYTES:
        raise BadDefinition("attributes", f"{len(text)} bytes of JSON, the limit is {MAX_DOCUMENT_BYTES}")
    return text


def checked_attributes(attributes: Any) -> Mapping[str, Any]:
    """Attributes of a request body. Raises `BadDefinition` if they are no object, and `BadBody` for a bare NaN or
    infinity: a request body is JSON."""
    if not isinstance(attributes, Mapping):
        raise BadDefinition("attributes", f"expected an object, found {shown(attributes)}")
    if spell_floats(attributes) != attributes:
        raise BadBody('JSON has no NaN and no infinities: in attributes, write them as text, such as "NaN"')
    return attributes


def follow(
    versions: VersionBook, mount: MountedStore, prefix: str, changed: Iterable[str], *, removed_below: bool = False
) -> None:
    """Carry the documents ``changed`` (keys, with the name ``.zarray`` whatever the store calls it) of the node at
    ``prefix``, as they are now, into every ``.zmetadata`` above it and at it.

    ``removed_below`` also takes out every other document below ``prefix``. Raises `ConsolidatedBehind` if the store
    fails, or other writers come first too often: a failure of its own kind, as the change itself is done by then and
    must not be done again.
    """
    for root in prefixes(prefix):
        try:
            _follow_in(versions, mount, root, prefix, tuple(changed), removed_below=removed_below)
        except StoreError as error:
            raise ConsolidatedBehind(error.store, root + ".zmetadata", error.reason) from error


def leave_out(versions: VersionBook, mount: MountedStore, prefix: str) -> None:
    """Take a node that is about to be removed, and all below it, out of every ``.zmetadata`` above it.

    A node without a document is opened from there: while it is removed, and for good where the process is killed, its
    chunks that are gone already would read as fill values. On a full disk it follows when removing has made room.
    Raises `StoreError` where nothing is to be removed, as this cannot be done.
    """
    with suppress(StoreFull):
        for root in prefixes(prefix)[:-1]:
            _follow_in(versions, mount, root, prefix, (), removed_below=True)


class PutKey(NamedTuple):
    """The version that a key has now, and whether it was absent before."""

    version: str
    created: bool


def put_consolidated(
    versions: VersionBook,
    mount: MountedStore,
    prefix: str,
    data: bytes | memoryview,
    documents: Mapping[str, Any],
    *,
    check: KeyCheck | None,
) -> PutKey:
    """Store the ``.zmetadata`` of the group at ``prefix`` that a client has made; ``documents`` are what it holds.

    ``check`` is called with the one that is there, and what it raises is passed on. Raises `ConsolidatedBehind` if
    the store fails once ``data`` is stored, and `WriteConflict` if other writers come first too often.
    """
    key = prefix + ".zmetadata"
    for _ in attempts():  # on top of just what is there: what others have carried into it until then is known
        with mount.store.lock(key), suppress(VersionConflict):
            if check is not None:
                check(mount.store.stat(key))
            before = mount.store.get(key)
            mount.store.put(key, data, if_version=ABSENT if before is None else before.version)
            break
    else:
        raise WriteConflict(key, "other writers came first")
    try:
        _follow_in(versions, mount, prefix, prefix, _in_doubt(mount, prefix, documents, before), removed_below=False)
        entry = mount.store.stat(key)
    except StoreError as error:
        raise ConsolidatedBehind(error.store, key, error.reason) from error
    return PutKey("" if entry is None else entry.version, created=before is None)


def _in_doubt(mount: MountedStore, root: str, documents: Mapping[str, Any], before: Stored | None) -> tuple[str, ...]:
    """The documents (keys) that a ``.zmetadata`` made by a client may not hold as they are.

    One that was there ``before`` has followed every change: only where the two differ is there a doubt, and what
    neither it nor the store knows was deleted meanwhile. Where there was none, what the store lacks is held here alone.
    """
    known = _documents_in(before, root + ".zmetadata")
    names = documents.keys() if known is None else known.keys() | documents.keys()
    doubtful = [n for n in names if _is_document(n) and (known is None or known.get(n) != documents.get(n))]
    found = mount.store.versions(root, [_stored_key(mount, root + name) for name in doubtful])
    new = () if known is None else documents.keys() - known.keys()
    return tuple(root + n for n, version in zip(doubtful, found, strict=True) if version is not None or n in new)


def _is_document(name: str) -> bool:
    """Whether a client may have meant a document of a node; no other key is looked for in the store."""
    try:
        return normalise_path(name) == name and name.rpartition("/")[2] in (".zarray", ".zgroup", ".zattrs")
    except BadPath:
        return False


def _follow_in(
    versions: VersionBook, mount: MountedStore, root: str, prefix: str, changed: tuple[str, ...], *, removed_below: bool
) -> None:
    """`follow` in the ``.zmetadata`` at ``root``. One that is broken stays as it is: the change that it does not follow
    is stored already, and whoever reads it is told. Raises `StoreError`."""
    key, inner = root + ".zmetadata", prefix[len(root) :]
    if mount.store.stat(key) is None:
        return
    for _ in attempts():
        with mount.store.lock(key):
            try:
                stored = mount.store.get(key)
            except StoredTooLarge:
                return
            before = _documents_in(stored, key)
            if stored is None or before is None:
                return
            after = {name: d for name, d in before.items() if not (removed_below and name.startswith(inner))}
            seen = {name: mount.store.get(_stored_key(mount, name)) for name in changed}
            for name, found in seen.items():
                if found is None:
                    after.pop(name[len(root) :], None)
                elif (document := parse_object(found.data)) is not None:  # a broken one stays as it was there
                    after[name[len(root) :]] = document
            if after == before:
                return
            text = dump_copy({**parse_json(stored.data, limit=MAX_CONSOLIDATED_BYTES), "metadata": after})
            with suppress(VersionConflict, InDoubt):  # whoever came first, the next look tells what is there
                put_document(versions, mount, key, text, stored.version)
                now = mount.store.versions(prefix, [_stored_key(mount, name) for name in seen]) if seen else []
                if now == [None if found is None else found.version for found in seen.values()]:
                    return
    raise StoreError(mount.name, key, f"other writers came first {MOST_TRIES} times")


def _documents_in(stored: Stored | None, key: str) -> dict[str, Any] | None:
    """None where there is none that can be read."""
    try:
        return None if stored is None else parse_consolidated(stored.data, key)
    except BadMetadata:
        return None


def _stored_key(mount: MountedStore, known: str) -> str:
    """The key of a document that ``.zmetadata`` knows: an operator may have given ``.zarray`` another name."""
    folder, slash, name = known.rpartition("/")
    return f"{folder}{slash}{mount.metadata_key}" if name == ".zarray" else known
