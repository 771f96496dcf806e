"""Metadata documents: conditional puts and removals, attribute patches, and updates of consolidated metadata.

Every ``.zmetadata``, and every ``zarr.json`` with ``consolidated_metadata``, is updated after each change of a document
of its format below it. It is one document for many nodes, so an update holds its lock from read to put; replicas
without common locks are serialised by conditional puts. An update copies the present state of the store, as other
writers may have changed the same node since. As they may also come between read and put, each update reads again after
its put; the last one finds no difference.

A client that makes consolidated metadata itself (zarr-python's ``consolidate_metadata``) puts an older state. Documents
that changed meanwhile are corrected in it; documents that exist only there stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

from hyperslab.arrays.lease import retried
from hyperslab.arrays.nodes import V3, ArrayNode, GroupNode, MountedStore
from hyperslab.engine.jsontext import (
    MAX_DOCUMENT_BYTES,
    distinct,
    dump_copy,
    dump_in_pieces,
    json_floats,
    parse_json,
    parse_object,
)
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
    WriteConflict,
    shown,
)
from hyperslab.storage.base import ABSENT, Absent, Entry, StoredValue, VersionConflict
from hyperslab.storage.keys import as_prefix, normalise_path, prefixes

KeyCheck = Callable[[Entry | None], None]
"""Precondition on the present key (None: absent); raises `errors.PreconditionFailed`."""


def put_document(mount: MountedStore, key: str, text: bytes, if_version: str | Absent) -> str:
    """Store a document of ours on condition; returns its version. If replicas share the store, the version is unique: a
    late request cannot undo a newer one. Raises `VersionConflict`."""
    shared = mount.has_replicas
    limit = MAX_CONSOLIDATED_BYTES if key.endswith((".zmetadata", V3)) else MAX_ARRAY_BYTES
    room = len(text) + 1024 <= limit  # readers have the same limit
    version = mount.store.put(key, distinct(text) if shared and room else text, if_version=if_version)
    mount.versions.record(key, version)
    return version


def put_metadata(array: ArrayNode, metadata: ArrayMetadata) -> str:
    """Store an array's new document, and return its version. Raises `VersionConflict` if it has changed since it was
    opened, and `BadDefinition` for assumed metadata, which cannot change."""
    array.mount.check_not_assumed(array.prefix)
    only_consolidated = array.metadata_version.startswith("consolidated-")
    condition = ABSENT if only_consolidated else array.metadata_version
    return put_document(array.mount, array.document_key, metadata.to_bytes(), condition)


def publish_metadata(array: ArrayNode, metadata: ArrayMetadata) -> None:
    """As `put_metadata`, followed by consolidated metadata. Raises `ConsolidatedBehind` if only the latter failed."""
    put_metadata(array, metadata)
    update_copies(array.mount, array.prefix, [array.prefix + (V3 if array.zarr_format == 3 else ".zarray")])


def remove_document(mount: MountedStore, key: str, check: Callable[[], None]) -> None:
    """Remove a document if it exists. ``check`` is called before each attempt, and its exception ends the work."""

    def remove() -> None:
        if mount.store.is_odd(key):
            check()
            mount.store.delete(key)
            return
        (version,) = mount.store.versions("", [key])
        check()  # after the look-up: the document may be another holder's once the permit is lost
        if version is not None:
            mount.store.delete(key, if_version=version)

    retried(key, remove)


def merge_attributes(mount: MountedStore, node: ArrayNode | GroupNode, patch: Mapping[str, Any]) -> None:
    """Apply a merge patch to a node's attributes; `VersionConflict`, with nothing stored, if they have changed since
    the node was opened. The caller holds the node lock. Raises `BadDefinition` before anything is stored."""
    key = node.prefix + (V3 if node.zarr_format == 3 else ".zattrs")
    attributes, version = node.attributes, node.documents.get(key)
    stored = None
    # a node without documents of its own may have attributes
    if node.zarr_format == 3 or key not in node.documents:
        stored = mount.store.get(key, MAX_CONSOLIDATED_BYTES)  # value and version in one read
    if stored is not None and node.zarr_format == 2:
        attributes, version = parse_attributes(stored.data, key), stored.version
    merged = merge_patch(attributes, patch)
    text = attributes_text(merged)
    if node.zarr_format == 3:
        if stored is None or stored.version != version:
            raise VersionConflict(key, None)
        document = {**parse_json(stored.data, limit=MAX_CONSOLIDATED_BYTES), "attributes": merged}
        text = dump_in_pieces(document, node.metadata.text_depth if isinstance(node, ArrayNode) else 0, dump_copy)
    put_document(mount, key, text, ABSENT if version is None else version)
    update_copies(mount, node.prefix, [key])


def merge_patch(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 7396 §2: members of ``patch`` replace those of ``target``, null removes, objects are merged."""
    merged = dict(target)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping):
            inner = merged.get(name)
            merged[name] = merge_patch(inner if isinstance(inner, Mapping) else {}, value)
        elif (spelled := json_floats(merged.get(name))) != value or spelled == merged.get(name):
            merged[name] = value
        # else: text in place of a stored bare NaN, as it was shown, keeps the NaN
    return merged


def attributes_text(attributes: Mapping[str, Any]) -> bytes:
    """The text of ``.zattrs``; raises `BadDefinition` if it exceeds the size limit of reads.

    Bare NaN and infinities, as stored before by other programs, are preserved.
    """
    text = dump_copy(dict(attributes))
    if len(text) > MAX_DOCUMENT_BYTES:
        raise BadDefinition("attributes", f"{len(text)} bytes of JSON, the limit is {MAX_DOCUMENT_BYTES}")
    return text


def checked_attributes(attributes: Any) -> Mapping[str, Any]:
    """Attributes of a request body. Raises `BadDefinition` if they are not an object, and `BadBody` for a bare NaN or
    infinity, which is not JSON."""
    if not isinstance(attributes, Mapping):
        raise BadDefinition("attributes", f"expected an object, found {shown(attributes)}")
    if json_floats(attributes) != attributes:
        raise BadBody('JSON has no NaN and no infinities: in attributes, write them as text, such as "NaN"')
    return attributes


def update_copies(mount: MountedStore, prefix: str, changed: Iterable[str], *, removed_below: bool = False) -> None:
    """Copy the present documents ``changed`` (keys, with ``.zarray`` whatever its name in the store) of the node at
    ``prefix``, or of groups above it, into every ``.zmetadata`` at and above it, or every ``zarr.json`` above it.

    ``removed_below``: also remove every other document below ``prefix`` that does not exist any more. Raises
    `ConsolidatedBehind`, not a retryable error, if the store fails or other writers come first too often: the change
    itself is done.
    """
    try:
        _update_all_copies(mount, prefix, [*changed], removed_below=removed_below)
    except StoreError as error:
        raise ConsolidatedBehind(error.store, error.key, error.reason) from error


def update_copies_of(node: ArrayNode | GroupNode, *, above: bool = False, removed_below: bool = False) -> None:
    """`update_copies` for the documents of a node and of the groups ``above`` it, whose own updates may have failed
    before."""
    mount, prefix = node.mount, node.prefix
    if mount is None or not any(version for key, version in node.documents.items() if key != prefix + ".zattrs"):
        return
    of_v3 = node.zarr_format == 3
    own = [V3] if of_v3 else [".zarray" if isinstance(node, ArrayNode) else ".zgroup", ".zattrs"]
    groups = [root + (V3 if of_v3 else ".zgroup") for root in prefixes(prefix)[:-1] if above]
    update_copies(mount, prefix, [*groups, *(prefix + name for name in own)], removed_below=removed_below)


def drop_copies(mount: MountedStore, prefix: str) -> None:
    """Remove a node that is about to be deleted, and all below it, from every ``.zmetadata`` above it.

    A node without a document is opened from there: during deletion, or after a crash, its removed chunks would read as
    fill values. On a full disk the update follows the deletion. Raises `StoreError` if the update fails; then nothing
    is to be deleted.
    """
    with suppress(StoreFull):
        _update_all_copies(mount, prefix, (), removed_below=True, leaving=True)


def _update_all_copies(
    mount: MountedStore, prefix: str, changed: Sequence[str], *, removed_below: bool, leaving: bool = False
) -> None:
    """`update_copies`, or if ``leaving``, `drop_copies`; raises `StoreError`."""
    roots, of_v3 = prefixes(prefix), [key for key in changed if key.endswith(V3)]
    keys = [root + ".zmetadata" for root in (roots[:-1] if removed_below else [] if of_v3 else roots)]
    above = [root + V3 for root in roots[:-1] if removed_below or of_v3]
    above = [key for key in above if not mount.store.is_odd(key)]
    blind = not mount.store.capabilities.listable
    versions = mount.store.document_versions("", above, denied_is_absent=blind) if above else []
    for key, version in [*((key, "") for key in keys), *zip(above, versions, strict=True)]:
        own, of_format = as_prefix(key.rpartition("/")[0]), key.endswith(V3)
        names = [n for n in changed if n.startswith(own) and n != key and n.endswith(V3) == of_format]
        with suppress(StoredTooLarge):  # readers ignore such a document
            if version is not None and (not version or _copies(mount, key, version) is not None):
                _update_copy(mount, key, prefix, names, removed_below=removed_below, leaving=leaving)


class PutKey(NamedTuple):
    """The present version of a key, and whether it was absent before."""

    version: str
    created: bool


def put_consolidated(
    mount: MountedStore, key: str, data: bytes | memoryview, documents: Mapping[str, Any], *, check: KeyCheck | None
) -> PutKey:
    """Store consolidated metadata made by a client under ``key``; ``documents`` are its contents.

    ``check`` is called with the present entry, and its exception is passed on. Raises `ConsolidatedBehind` if the store
    fails once ``data`` is stored, and `WriteConflict` if other writers come first too often.
    """
    prefix = as_prefix(key.rpartition("/")[0])

    def put() -> StoredValue | None:
        """Replace the present document, and return it: it contains all updates so far."""
        with mount.store.lock(key):
            if check is not None:
                check(mount.store.stat(key))
            before = mount.store.get(key, MAX_CONSOLIDATED_BYTES)
            version = mount.store.put(key, data, if_version=ABSENT if before is None else before.version)
            mount.versions.record(key, version)
            return before

    before = retried(key, put)
    try:
        _update_copy(mount, key, prefix, _outdated(mount, key, documents, before), removed_below=False)
        entry = mount.store.stat(key)
    except StoreError as error:
        raise ConsolidatedBehind(error.store, key, error.reason) from error
    return PutKey("" if entry is None else entry.version, created=before is None)


def _outdated(
    mount: MountedStore, key: str, documents: Mapping[str, Any], before: StoredValue | None
) -> tuple[str, ...]:
    """The documents (keys) that may be out of date in consolidated metadata made by a client.

    One that existed ``before`` was up to date: only differences are in doubt, and documents missing from it and from
    the store were deleted meanwhile. Without one before, documents missing from the store exist only here.
    """
    listed, root = _documents_in(before, key), as_prefix(key.rpartition("/")[0])
    names = documents.keys() if listed is None else listed.keys() | documents.keys()
    doubtful = [n for n in names if _is_document(n) and (listed is None or listed.get(n) != documents.get(n))]
    versions = mount.store.versions(root, [_stored_key(mount, root + name) for name in doubtful])
    new = () if listed is None else documents.keys() - listed.keys()
    return tuple(root + n for n, version in zip(doubtful, versions, strict=True) if version is not None or n in new)


def _is_document(name: str) -> bool:
    """Whether a name may be that of a node's document; other keys are not looked up in the store."""
    try:
        return normalise_path(name) == name and name.rpartition("/")[2] in (".zarray", ".zgroup", ".zattrs", V3)
    except BadPath:
        return False


def _update_copy(
    mount: MountedStore, key: str, prefix: str, changed: Sequence[str], *, removed_below: bool, leaving: bool = False
) -> None:
    """`update_copies` in the consolidated metadata under ``key``. A broken document stays as it is: the change itself
    is stored, and readers get an error. Raises `StoreError`."""
    root = as_prefix(key.rpartition("/")[0])
    inner, inside = prefix[len(root) :], set[str]()
    try:
        if not key.endswith(V3) and mount.store.stat(key) is None:
            return
    except (BadPath, StoreError):
        if not mount.store.is_odd(key):
            raise
        return  # readers ignore it

    def attempt() -> None:
        with mount.store.lock(key):
            (version,) = mount.store.versions("", [key])
            copies = None if version is None else _copies(mount, key, version)
            if copies is None:
                return
            before, version = copies.texts, copies.version
            below = [name for name in before if removed_below and name.startswith(inner)]
            names = (*changed, *([] if leaving else [root + name for name in below]))
            seen = {name: mount.store.get(_stored_key(mount, name), MAX_CONSOLIDATED_BYTES) for name in names}
            # a group above without a document in the store may exist only here
            absent = [name for name, held in seen.items() if held is None]
            gone = {name[len(root) :] for name in absent if name.startswith(prefix) or name in inside}
            gone.update(below if leaving else ())
            inside.update(seen.keys() - {*absent})
            after = {name: text for name, text in before.items() if name not in gone}
            for name, held in seen.items():
                document = None if held is None else parse_object(held.data, limit=MAX_CONSOLIDATED_BYTES)
                if document is not None:  # a broken one stays unchanged
                    if document.get("consolidated_metadata"):  # its contents are listed here anyway
                        document["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": {}}
                    after[name[len(root) :]] = _member(name[len(root) :], document)
            if removed_below and key.endswith(V3):  # a group without a document has no nodes of Zarr v3
                groups = {name: prefixes(name.rpartition("/")[0])[1:-1] for name in after if name.startswith(inner)}
                after = {n: d for n, d in after.items() if all(group + V3 in after for group in groups.get(n, ()))}
            if after == before:
                return
            # zarr-python 3 loses nodes of a group that are not adjacent
            ordered = sorted(after, key=lambda name: name.removesuffix(f"/{V3}"))
            members = b",".join([after[name] for name in ordered])
            text = copies.around[0] + b"{" + members + b"}" + copies.around[1]
            try:
                stored = put_document(mount, key, text, version)
            except InDoubt as error:
                raise VersionConflict(key, None) from error
            mount.copies.put(key, stored, Copies(copies.around, after, stored), 2 * len(text) + 200 * len(after))
            now = mount.store.versions(root, [_stored_key(mount, name) for name in seen]) if seen else []
            if now != [None if held is None else held.version for held in seen.values()]:
                raise VersionConflict(key, stored)  # the next attempt reads the present state

    try:
        retried(key, attempt)
    except WriteConflict as error:
        raise StoreError(mount.name, key, error.reason) from error


class Copies(NamedTuple):
    """Consolidated metadata in one version: the ``texts`` of their members by the key of each document below, and the
    text ``around`` them all."""

    around: tuple[bytes, bytes]
    texts: Mapping[str, bytes]
    version: str


def _copies(mount: MountedStore, key: str, version: str) -> Copies | None:
    """The consolidated metadata under a key, which are remembered by version; None without any that can be read."""
    found = mount.copies.get(key, version)
    if found is not None:
        return found if found.texts or found.around[0] else None
    try:
        stored = mount.store.get(key, MAX_CONSOLIDATED_BYTES)
    except StoredTooLarge:
        return None
    documents = _documents_in(stored, key)
    if stored is None:
        return None
    if documents is None:
        mount.copies.put(key, stored.version, Copies((b"", b""), {}, stored.version), 1000)
        return None
    texts = {name: _member(name, document) for name, document in documents.items()}
    whole, hole = parse_json(stored.data, limit=MAX_CONSOLIDATED_BYTES), uuid4().hex
    (whole["consolidated_metadata"] if key.endswith(V3) else whole)["metadata"] = hole
    before, _, after = dump_copy(whole).partition(f'"{hole}"'.encode())
    found = Copies((before, after), texts, stored.version)
    mount.copies.put(key, stored.version, found, 2 * len(stored.data) + 200 * len(texts))
    return found


def _member(name: str, document: Mapping[str, Any]) -> bytes:
    """The member of consolidated metadata for a document, whose path names it in Zarr v3."""
    name = name.rpartition("/")[0] if name.endswith(V3) else name
    return dump_copy(name) + b":" + dump_copy(document)


def _documents_in(stored: StoredValue | None, key: str) -> Mapping[str, Any] | None:
    """The documents of consolidated metadata, by their keys below it; None if there are none that can be read."""
    if stored is None:
        return None
    try:
        of_v3 = key.endswith(V3)
        return parse_document(stored.data, key).consolidated if of_v3 else parse_consolidated(stored.data, key)
    except BrokenData:
        return None


def _stored_key(mount: MountedStore, known: str) -> str:
    """The stored key of a document in ``.zmetadata``: ``.zarray`` may have a configured name."""
    folder, slash, name = known.rpartition("/")
    return f"{folder}{slash}{mount.metadata_key}" if name == ".zarray" else known
