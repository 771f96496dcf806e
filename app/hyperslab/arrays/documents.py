"""Metadata documents: stored and removed on condition, attributes merged, and consolidated metadata updated.

Wherever a store has a ``.zmetadata``, or a ``zarr.json`` with ``consolidated_metadata``, it follows every change of the
documents of its format below it. It is one document for all nodes, so whoever changes it holds its lock for the whole
read, change and put; replicas that no lock reaches come one after the other by the condition on the put. What is put is
what the store holds by then: others may have changed the same node since, and may have been here before. They may also
come between the look and the put, so whoever has put looks again; the last to come finds that all agrees.

A client that makes one itself (zarr-python's ``consolidate_metadata``) puts what it has seen some time before. What has
changed meanwhile is put right in it; documents that are nowhere else stay as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from hyperslab.arrays.lease import MOST_TRIES, attempts, retried
from hyperslab.arrays.nodes import V3, ArrayNode, GroupNode, MountedStore
from hyperslab.engine.jsontext import MAX_DOCUMENT_BYTES, distinct, dump_copy, parse_json, parse_object, spell_floats
from hyperslab.engine.metadata import (
    MAX_ARRAY_BYTES,
    MAX_CONSOLIDATED_BYTES,
    ArrayMetadata,
    parse_attributes,
    parse_consolidated,
)
from hyperslab.engine.v3 import parse_document
from hyperslab.errors import (
    BadBody,
    BadDefinition,
    BadPath,
    BrokenData,
    ConsolidatedBehind,
    InDoubt,
    StoredTooLarge,
    StoreError,
    StoreFull,
    shown,
)
from hyperslab.storage.base import ABSENT, Absent, Entry, Stored, VersionConflict
from hyperslab.storage.keys import as_prefix, normalise_path, prefixes

KeyCheck = Callable[[Entry | None], None]
"""Given a key as it is now (None: absent); raises `errors.PreconditionFailed`."""


def put_document(mount: MountedStore, key: str, text: bytes, if_version: str | Absent) -> str:
    """Store a document of our own making on condition, and return its version. Where replicas share the store it has a
    version that no document had before: no late request undoes what others have stored since. Raises
    `VersionConflict`."""
    shared = mount.has_replicas
    limit = MAX_CONSOLIDATED_BYTES if key.endswith((".zmetadata", V3)) else MAX_ARRAY_BYTES
    room = len(text) + 1024 <= limit  # else nobody would read it back
    version = mount.store.put(key, distinct(text) if shared and room else text, if_version=if_version)
    mount.versions.note(key, version)
    return version


def put_metadata(array: ArrayNode, metadata: ArrayMetadata) -> str | None:
    """Store an array's new document if it is still the one that was opened, and return its version; None if it is not.

    Raises `BadDefinition` where the metadata is assumed: there is nothing to change.
    """
    array.mount.check_not_assumed(array.prefix)
    only_consolidated = array.metadata_version.startswith("consolidated-")
    condition = ABSENT if only_consolidated else array.metadata_version
    with suppress(VersionConflict):
        return put_document(array.mount, array.document_key, metadata.to_bytes(), condition)
    return None


def publish_metadata(array: ArrayNode, metadata: ArrayMetadata) -> str | None:
    """As `put_metadata`, and consolidated metadata follows; where it cannot, `ConsolidatedBehind` says that all else is
    done."""
    version = put_metadata(array, metadata)
    if version is not None:
        follow(array.mount, array.prefix, [array.prefix + (V3 if array.zarr_format == 3 else ".zarray")])
    return version


def remove_document(mount: MountedStore, key: str, check: Callable[[], None]) -> None:
    """Remove a document if it is there. ``check`` is called before each attempt, and what it raises ends the work."""

    def remove() -> None:
        (version,) = mount.store.versions("", [key])
        check()  # after the look: what is there when the turn is lost may be another's
        if version is not None:
            mount.store.delete(key, if_version=version)

    retried(key, remove)


def merge_attributes(mount: MountedStore, node: ArrayNode | GroupNode, patch: Mapping[str, Any]) -> None:
    """Store a node's attributes with a patch merged in; `VersionConflict`, and nothing done, where somebody has changed
    them since the node was opened. The caller holds the node lock. Raises `BadDefinition` before anything is stored."""
    key = node.prefix + (V3 if node.zarr_format == 3 else ".zattrs")
    attributes, version = node.attributes, node.documents.get(key)
    stored = None
    # one that was not opened from documents of its own may have such a one all the same
    if node.zarr_format == 3 or key not in node.documents:
        stored = mount.store.get(key, MAX_CONSOLIDATED_BYTES)  # value and version belong together
    if stored is not None and node.zarr_format == 2:
        attributes, version = parse_attributes(stored.data, key), stored.version
    merged = merge_patch(attributes, patch)
    text = attributes_text(merged)
    if node.zarr_format == 3:
        if stored is None or stored.version != version:
            raise VersionConflict(key, None)
        text = dump_copy({**parse_json(stored.data, limit=MAX_CONSOLIDATED_BYTES), "attributes": merged})
    put_document(mount, key, text, ABSENT if version is None else version)
    follow(mount, node.prefix, [key])


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


def follow(mount: MountedStore, prefix: str, changed: Iterable[str], *, removed_below: bool = False) -> None:
    """Carry the documents ``changed`` (keys, with the name ``.zarray`` whatever the store calls it) of the node at
    ``prefix``, or of groups above it, as they are now, into every ``.zmetadata`` above it and at it, or every
    ``zarr.json`` above it.

    ``removed_below`` also takes out every other document below ``prefix`` that is not there any more. Raises
    `ConsolidatedBehind` if the store fails, or other writers come first too often: a failure of its own kind, as the
    change itself is done by then and must not be done again.
    """
    try:
        _follow_everywhere(mount, prefix, [*changed], removed_below=removed_below)
    except StoreError as error:
        raise ConsolidatedBehind(error.store, error.key, error.reason) from error


def follow_node(node: ArrayNode | GroupNode, *, above: bool = False, removed_below: bool = False) -> None:
    """`follow` for what a node that has documents says, and for the groups ``above`` it: whoever has stored them may
    have been killed, or have failed, before that."""
    mount, prefix = node.mount, node.prefix
    if mount is None or not any(version for key, version in node.documents.items() if key != prefix + ".zattrs"):
        return
    of_v3 = node.zarr_format == 3
    own = [V3] if of_v3 else [".zarray" if isinstance(node, ArrayNode) else ".zgroup", ".zattrs"]
    groups = [root + (V3 if of_v3 else ".zgroup") for root in prefixes(prefix)[:-1] if above]
    follow(mount, prefix, [*groups, *(prefix + name for name in own)], removed_below=removed_below)


def leave_out(mount: MountedStore, prefix: str) -> None:
    """Take a node that is about to be removed, and all below it, out of every ``.zmetadata`` above it.

    A node without a document is opened from there: while it is removed, and for good where the process is killed, its
    chunks that are gone already would read as fill values. On a full disk it follows when removing has made room.
    Raises `StoreError` where nothing is to be removed, as this cannot be done.
    """
    with suppress(StoreFull):
        _follow_everywhere(mount, prefix, (), removed_below=True, leaving=True)


def _follow_everywhere(
    mount: MountedStore, prefix: str, changed: Sequence[str], *, removed_below: bool, leaving: bool = False
) -> None:
    """`follow`, or if ``leaving``, `leave_out`; raises `StoreError`."""
    roots, of_v3 = prefixes(prefix), [key for key in changed if key.endswith(V3)]
    keys = [root + ".zmetadata" for root in (roots[:-1] if removed_below else [] if of_v3 else roots)]
    above = [root + V3 for root in roots[:-1] if removed_below or of_v3]
    with suppress(StoredTooLarge):  # nobody reads what is in that one
        groups = zip(above, mount.store.get_each(above, MAX_CONSOLIDATED_BYTES) if above else [], strict=True)
        keys += [key for key, group in groups if group and b'"consolidated_metadata"' in bytes(group.data)]
        for key in keys:
            own, of_format = as_prefix(key.rpartition("/")[0]), key.endswith(V3)
            names = [n for n in changed if n.startswith(own) and n != key and n.endswith(V3) == of_format]
            _follow_in(mount, key, prefix, names, removed_below=removed_below, leaving=leaving)


class PutKey(NamedTuple):
    """The version that a key has now, and whether it was absent before."""

    version: str
    created: bool


def put_consolidated(
    mount: MountedStore,
    key: str,
    data: bytes | memoryview,
    documents: Mapping[str, Any],
    *,
    check: KeyCheck | None,
) -> PutKey:
    """Store consolidated metadata that a client has made under ``key``; ``documents`` are what they hold.

    ``check`` is called with the one that is there, and what it raises is passed on. Raises `ConsolidatedBehind` if
    the store fails once ``data`` is stored, and `WriteConflict` if other writers come first too often.
    """
    prefix = as_prefix(key.rpartition("/")[0])

    def put() -> Stored | None:
        """On top of just what is there, which is returned: what others have carried into it until then is known."""
        with mount.store.lock(key):
            if check is not None:
                check(mount.store.stat(key))
            before = mount.store.get(key, MAX_CONSOLIDATED_BYTES)
            version = mount.store.put(key, data, if_version=ABSENT if before is None else before.version)
            mount.versions.note(key, version)
            return before

    before = retried(key, put)
    try:
        _follow_in(mount, key, prefix, _in_doubt(mount, key, documents, before), removed_below=False)
        entry = mount.store.stat(key)
    except StoreError as error:
        raise ConsolidatedBehind(error.store, key, error.reason) from error
    return PutKey("" if entry is None else entry.version, created=before is None)


def _in_doubt(mount: MountedStore, key: str, documents: Mapping[str, Any], before: Stored | None) -> tuple[str, ...]:
    """The documents (keys) that consolidated metadata made by a client may not hold as they are.

    One that was there ``before`` has followed every change: only where the two differ is there a doubt, and what
    neither it nor the store knows was deleted meanwhile. Where there was none, what the store lacks is held here alone.
    """
    known, root = _documents_in(before, key), as_prefix(key.rpartition("/")[0])
    names = documents.keys() if known is None else known.keys() | documents.keys()
    doubtful = [n for n in names if _is_document(n) and (known is None or known.get(n) != documents.get(n))]
    found = mount.store.versions(root, [_stored_key(mount, root + name) for name in doubtful])
    new = () if known is None else documents.keys() - known.keys()
    return tuple(root + n for n, version in zip(doubtful, found, strict=True) if version is not None or n in new)


def _is_document(name: str) -> bool:
    """Whether a client may have meant a document of a node; no other key is looked for in the store."""
    try:
        return normalise_path(name) == name and name.rpartition("/")[2] in (".zarray", ".zgroup", ".zattrs", V3)
    except BadPath:
        return False


def _follow_in(
    mount: MountedStore, key: str, prefix: str, changed: Sequence[str], *, removed_below: bool, leaving: bool = False
) -> None:
    """`follow` in the consolidated metadata under ``key``. Those that are broken stay as they are: the change that they
    do not follow is stored already, and whoever reads them is told. Raises `StoreError`."""
    root = as_prefix(key.rpartition("/")[0])
    inner, known = prefix[len(root) :], set[str]()
    if not key.endswith(V3) and mount.store.stat(key) is None:
        return
    for _ in attempts():
        with mount.store.lock(key):
            try:
                stored = mount.store.get(key, MAX_CONSOLIDATED_BYTES)
            except StoredTooLarge:
                return
            before = _documents_in(stored, key)
            if stored is None or before is None:
                return
            below = [name for name in before if removed_below and name.startswith(inner)]
            names = (*changed, *([] if leaving else [root + name for name in below]))
            seen = {name: mount.store.get(_stored_key(mount, name)) for name in names}
            # a group above that the store does not have, and had not before, may be known here alone
            absent = [name for name, found in seen.items() if found is None]
            gone = {name[len(root) :] for name in absent if name.startswith(prefix) or name in known}
            gone.update(below if leaving else ())
            known |= seen.keys() - {*absent}
            after = {name: document for name, document in before.items() if name not in gone}
            for name, found in seen.items():
                document = None if found is None else parse_object(found.data)
                if document is not None:  # a broken one stays as it was there
                    if document.get("consolidated_metadata"):  # of a group below: what it holds is here anyway
                        document["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": {}}
                    after[name[len(root) :]] = document
            if removed_below and key.endswith(V3):  # a group without a document has no nodes of Zarr v3
                groups = {name: prefixes(name.rpartition("/")[0])[1:-1] for name in after if name.startswith(inner)}
                after = {n: d for n, d in after.items() if all(group + V3 in after for group in groups.get(n, ()))}
            if after == before:
                return
            whole = parse_json(stored.data, limit=MAX_CONSOLIDATED_BYTES)
            if key.endswith(V3):
                metadata = {name.rpartition("/")[0]: document for name, document in after.items()}
                # zarr-python 3 loses nodes of a group that are not listed one behind the other
                whole["consolidated_metadata"]["metadata"] = dict(sorted(metadata.items()))
            else:
                whole["metadata"] = dict(sorted(after.items()))
            text = dump_copy(whole)
            with suppress(VersionConflict, InDoubt):  # whoever came first, the next look tells what is there
                put_document(mount, key, text, stored.version)
                now = mount.store.versions(root, [_stored_key(mount, name) for name in seen]) if seen else []
                if now == [None if found is None else found.version for found in seen.values()]:
                    return
    raise StoreError(mount.name, key, f"other writers came first {MOST_TRIES} times")


def _documents_in(stored: Stored | None, key: str) -> Mapping[str, Any] | None:
    """The documents of consolidated metadata, by their keys below it; None where there are none that can be read."""
    if stored is None:
        return None
    try:
        of_v3 = key.endswith(V3)
        return parse_document(stored.data, key).consolidated if of_v3 else parse_consolidated(stored.data, key)
    except BrokenData:
        return None


def _stored_key(mount: MountedStore, known: str) -> str:
    """The key of a document that ``.zmetadata`` knows: an operator may have given ``.zarray`` another name."""
    folder, slash, name = known.rpartition("/")
    return f"{folder}{slash}{mount.metadata_key}" if name == ".zarray" else known
