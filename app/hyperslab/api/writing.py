"""Common parts of write routes: preconditions as checks that use cases call under their locks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hyperslab.api.conditional import Conditions
from hyperslab.api.exchange import Exchange
from hyperslab.api.node_documents import document_etag
from hyperslab.api.response import Response, strong_etag
from hyperslab.api.slices import values_etag
from hyperslab.api.values_out import MEDIA_TYPES
from hyperslab.arrays.create import NodeCheck
from hyperslab.arrays.documents import KeyCheck
from hyperslab.arrays.nodes import ArrayNode, BrokenNode, GroupNode
from hyperslab.arrays.plan import make_plan
from hyperslab.arrays.write import ChunkCheck, Precondition
from hyperslab.engine.grid import Coords
from hyperslab.engine.selection import normalise
from hyperslab.storage.base import Entry


def written_response(tag: str, chunks: int) -> Response:
    """The response to a write: the new raw entity tag of its selection, from ``tag``, and the number of chunks
    written."""
    return Response(204, ((b"etag", values_etag(tag, "raw").encode()), (b"array-chunks", b"written=%d" % chunks)))


def values_check(request: Exchange) -> Precondition | None:
    """Precondition for a box or points: the tag of any of their forms matches, as clients read one of them before they
    write. ``If-None-Match: *`` holds if none of their chunks was ever written."""
    conditions = _conditions(request)
    if conditions is None:
        return None
    return lambda tag, exists: _check_tags(conditions, [values_etag(tag, form) for form in MEDIA_TYPES], exists=exists)


def chunk_check(request: Exchange, coords: Coords) -> ChunkCheck | None:
    """Precondition for one chunk: the tag of its stored bytes or of its decoded values matches; the latter changes if a
    resize moves the edge of the array."""
    conditions = _conditions(request, with_times=True)
    if conditions is None:
        return None

    def check(array: ArrayNode, entry: Entry | None) -> None:
        selection = normalise(array.metadata.grid.bounds(coords), array.metadata.shape)
        version = None if entry is None else entry.version
        tag = make_plan(array, selection).tag_of([version])
        _check_entry(conditions, entry, [values_etag(tag, form) for form in MEDIA_TYPES])

    return check


def key_check(request: Exchange) -> KeyCheck | None:
    """Precondition for a key of the store: the tag of its bytes, or its time of modification."""
    conditions = _conditions(request, with_times=True)
    return None if conditions is None else partial(_check_entry, conditions)


def node_check(request: Exchange) -> NodeCheck | None:
    """Precondition for a node: the tag of its document, for a group also that of the document without children, for
    records also those with the schema of a field.

    A broken node has no document; its tags are those of its stored documents as keys.
    """
    conditions = _conditions(request)
    if conditions is None:
        return None
    catalog, most_listed = request.service.catalog, request.context.options.max_listed

    def check(node: ArrayNode | GroupNode | BrokenNode | None) -> None:
        tags: list[str] = []
        if isinstance(node, BrokenNode):
            tags = [strong_etag(version) for version in node.documents.values()]
        elif isinstance(node, ArrayNode):
            names = [field.name for field in node.metadata.dtype.fields]
            whole = catalog.complete(node)  # as readers see it
            tags = [document_etag(whole, field=name) for name in (None, *names)]
        elif node is not None:
            tags = [document_etag(node, catalog.children(node, limit=most_listed)), document_etag(node)]
        _check_tags(conditions, tags, exists=node is not None)

    return check


def new_node_check(request: Exchange, path: str) -> NodeCheck | None:
    """Precondition for a node that is made unless it is there: `node_check`, and that who asks may create one."""
    check, may_create = node_check(request), request.may("create", path)
    if may_create and request.may("read", path):
        return check

    def both(node: ArrayNode | GroupNode | BrokenNode | None) -> None:
        if node is None:
            request.require("create", path)
        if check is not None:
            check(node)

    return both


def document_check(request: Exchange, path: str) -> KeyCheck | None:
    """Precondition for a document at a key: `key_check`, and that who asks may write what is there, or create what is
    not."""
    check, node = key_check(request), path.rpartition("/")[0]
    if request.may("create", node) and request.may("write", node):
        return check

    def both(entry: Entry | None) -> None:
        is_there = entry is not None or request.service.catalog.find_readable(node, fresh=True) is not None
        request.require("write" if is_there else "create", node)
        if check is not None:
            check(entry)

    return both


def _conditions(request: Exchange, *, with_times: bool = False) -> Conditions | None:
    """The conditions of a write, None without any. Times of modification exist only for keys; elsewhere their
    conditions are ignored (RFC 9110 §13.1.4)."""
    conditions = request.conditions
    timed = with_times and conditions.if_unmodified_since is not None
    return conditions if timed or conditions.if_match is not None or conditions.if_none_match is not None else None


def _check_entry(conditions: Conditions, entry: Entry | None, others: Sequence[str] = ()) -> None:
    """Check the tag of the stored bytes, or any of the ``others``."""
    tags = [] if entry is None else [strong_etag(entry.version)]
    _check_tags(
        conditions, [*tags, *others], exists=entry is not None, modified=None if entry is None else entry.modified
    )


def _check_tags(conditions: Conditions, tags: Sequence[str], *, exists: bool, modified: float | None = None) -> None:
    """Raise `PreconditionFailed` unless one of the present tags, or the time ``modified`` if known, meets the
    conditions."""
    sent = [tag_list for tag_list in (conditions.if_match, conditions.if_none_match) if isinstance(tag_list, tuple)]
    matching = next((tag for tag in tags if any(tag in tag_list for tag_list in sent)), tags[0] if tags else None)
    asks_for_absence = conditions.if_match is None and conditions.if_none_match == "*"
    now = matching if exists or not asks_for_absence else None
    conditions.check(now, modified, reading=False)
