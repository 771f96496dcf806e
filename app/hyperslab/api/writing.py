"""What routes that write have in common: preconditions, as checks that the use cases call under their locks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hyperslab.api.conditional import Conditions, strong_etag
from hyperslab.api.request import Request
from hyperslab.api.response import Response
from hyperslab.api.routes.metadata import document_etag
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
    """What a write answers: the entity tag that its selection, of this tag, has now as raw bytes, and how many chunks
    it wrote."""
    return Response(204, ((b"etag", values_etag(tag, "raw").encode()), (b"array-chunks", b"written=%d" % chunks)))


def values_check(request: Request) -> Precondition | None:
    """For a box or points: the tag of any of their forms matches, because a client has read one of them before it
    writes. ``If-None-Match: *`` holds while no chunk of them was ever written.
    """
    conditions = _conditions(request)
    if conditions is None:
        return None
    return lambda tag, exists: _check_tags(conditions, [values_etag(tag, form) for form in MEDIA_TYPES], exists=exists)


def chunk_check(request: Request, coords: Coords) -> ChunkCheck | None:
    """For one chunk, whose version is known: the tag of its stored bytes or of its decoded values matches, which a
    resize changes where it moves the edge of the array."""
    conditions = _conditions(request, with_times=True)
    if conditions is None:
        return None

    def check(array: ArrayNode, entry: Entry | None) -> None:
        selection = normalise(array.metadata.grid.bounds(coords), array.metadata.shape)
        version = None if entry is None else entry.version
        tag = make_plan(array, selection).tag_of([version])
        _check_entry(conditions, entry, [values_etag(tag, form) for form in MEDIA_TYPES])

    return check


def key_check(request: Request) -> KeyCheck | None:
    """For a key of the store: the tag of its bytes, or when it was written."""
    conditions = _conditions(request, with_times=True)
    return None if conditions is None else partial(_check_entry, conditions)


def node_check(request: Request) -> NodeCheck | None:
    """For a node: the tag of its document, for a group also that of the document without children, for records those
    that state the schema of a field.

    A broken node has no document of ours: the tags are those that its stored documents have as keys of the store.
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
            whole = catalog.whole(node)  # as readers see it
            tags = [document_etag(whole, field=name) for name in (None, *names)]
        elif node is not None:
            tags = [document_etag(node, catalog.children(node, limit=most_listed)), document_etag(node)]
        _check_tags(conditions, tags, exists=node is not None)

    return check


def _conditions(request: Request, *, with_times: bool = False) -> Conditions | None:
    """Those of a write, None where it has none. Keys are all that has a time of modification; elsewhere it is no
    condition (RFC 9110 §13.1.4)."""
    found = request.conditions
    timed = with_times and found.if_unmodified_since is not None
    return found if timed or found.if_match is not None or found.if_none_match is not None else None


def _check_entry(conditions: Conditions, entry: Entry | None, others: Sequence[str] = ()) -> None:
    """The tag of the bytes that are stored matches, or any of the ``others``."""
    tags = [] if entry is None else [strong_etag(entry.version)]
    _check_tags(
        conditions, [*tags, *others], exists=entry is not None, modified=None if entry is None else entry.modified
    )


def _check_tags(conditions: Conditions, tags: Sequence[str], *, exists: bool, modified: float | None = None) -> None:
    """Raise `PreconditionFailed` unless one of the tags that the state has, or the time when it was ``modified`` where
    that is known, fulfils the conditions."""
    asked = [each for each in (conditions.if_match, conditions.if_none_match) if isinstance(each, tuple)]
    matching = next((tag for tag in tags if any(tag in each for each in asked)), tags[0] if tags else None)
    asks_for_absence = conditions.if_match is None and conditions.if_none_match == "*"
    now = matching if exists or not asks_for_absence else None
    conditions.check(now, modified, reading=False)
