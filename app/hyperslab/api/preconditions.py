"""`If-Match` and `If-None-Match` on writes, for keys `If-Unmodified-Since` too, as checks that the use cases call under
their locks."""

from __future__ import annotations

from collections.abc import Iterable

from hyperslab.api.array_query import ArrayQuery
from hyperslab.api.conditional import Conditions, Validators, etag_of, strong_etag
from hyperslab.api.context import Context
from hyperslab.api.request import Request
from hyperslab.api.routes.metadata import document_etag
from hyperslab.api.values_out import MEDIA_TYPES
from hyperslab.arrays.catalog import Catalog
from hyperslab.arrays.create import NodeCheck
from hyperslab.arrays.documents import KeyCheck
from hyperslab.arrays.nodes import ArrayNode, BrokenNode, GroupNode
from hyperslab.arrays.plan import selection_tag
from hyperslab.arrays.write import ChunkCheck, Current, Precondition
from hyperslab.engine.dtypes import Field
from hyperslab.engine.grid import Coords
from hyperslab.engine.indexing import Selection, normalise
from hyperslab.storage.base import Entry


def box_check(request: Request, array: ArrayNode, selection: Selection, field: Field | None) -> Precondition | None:
    """For a box: the tag of any of its forms matches, because a client has read one of them before it writes.

    ``If-None-Match: *`` holds while no chunk of the box was ever written.
    """
    conditions = request.conditions
    if not is_conditional(conditions):
        return None

    def check(now: Current) -> None:
        check_tags(conditions, box_etags(array, selection, field, now.tag), exists=now.exists)

    return check


def box_etags(array: ArrayNode, selection: Selection, field: Field | None, tag: str) -> list[str]:
    """The entity tags of a selection in all its forms, raw first."""
    return [ArrayQuery(array, selection, field, form, None).etag(tag) for form in MEDIA_TYPES]


def points_check(request: Request) -> Precondition | None:
    """For points: the tag of any of their forms matches, as for a box."""
    conditions = request.conditions
    if not is_conditional(conditions):
        return None

    def check(now: Current) -> None:
        check_tags(conditions, [points_etag(now.tag, form) for form in MEDIA_TYPES], exists=now.exists)

    return check


def points_etag(tag: str, form: str) -> str:
    """The entity tag of points in one of their forms."""
    return etag_of(f"{tag} {form}".encode())


def chunk_check(request: Request, coords: Coords) -> ChunkCheck | None:
    """For one chunk, whose version is known: the tag of its stored bytes or of its decoded values matches, which a
    resize changes where it moves the edge of the array."""
    conditions = request.conditions
    if not _is_conditional_for_keys(conditions):
        return None

    def check(array: ArrayNode, entry: Entry | None) -> None:
        selection = normalise(array.metadata.grid.bounds(coords), array.metadata.shape)
        version = None if entry is None else entry.version
        decoded = box_etags(array, selection, None, selection_tag(array, selection, None, [version]))
        stored = [] if version is None else [strong_etag(version)]
        check_tags(conditions, [*stored, *decoded], exists=version is not None, modified=_modified(entry))

    return check


def key_check(request: Request) -> KeyCheck | None:
    """For a key of the store: the tag of its bytes, or when it was written."""
    conditions = request.conditions
    if not _is_conditional_for_keys(conditions):
        return None

    def check(entry: Entry | None) -> None:
        tags = [] if entry is None else [strong_etag(entry.version)]
        check_tags(conditions, tags, exists=entry is not None, modified=_modified(entry))

    return check


def node_check(context: Context, request: Request) -> NodeCheck | None:
    """For a node: the tag of its document, for a group also that of the document without children, for records those
    that state the schema of a field.

    A broken node has no document of ours: the tags are those that its stored documents have as keys of the store.
    """
    conditions = request.conditions
    if not is_conditional(conditions):
        return None
    catalog, most_listed = context.service.catalog, context.options.max_listed

    def check(node: ArrayNode | GroupNode | BrokenNode | None) -> None:
        check_tags(conditions, _document_etags(node, catalog, most_listed), exists=node is not None)

    return check


def is_conditional(conditions: Conditions) -> bool:
    return conditions.if_match is not None or conditions.if_none_match is not None


def check_tags(conditions: Conditions, tags: Iterable[str], *, exists: bool, modified: float | None = None) -> None:
    """Raise `PreconditionFailed` unless one of the tags that the state has, or the time when it was ``modified`` where
    that is known, fulfils the conditions."""
    current = list(tags)
    matching = next((tag for tag in current if _names(conditions, tag)), current[0] if current else None)
    asks_for_absence = conditions.if_match is None and conditions.if_none_match == "*"
    now = matching if exists or not asks_for_absence else None
    conditions.check(Validators(now, modified), reading=False)


def _is_conditional_for_keys(conditions: Conditions) -> bool:
    """Keys are all that has a time of modification; elsewhere it is no condition (RFC 9110 §13.1.4)."""
    return is_conditional(conditions) or conditions.if_unmodified_since is not None


def _modified(entry: Entry | None) -> float | None:
    return None if entry is None else entry.modified


def _names(conditions: Conditions, tag: str) -> bool:
    return any(isinstance(tags, tuple) and tag in tags for tags in (conditions.if_match, conditions.if_none_match))


def _document_etags(node: ArrayNode | GroupNode | BrokenNode | None, catalog: Catalog, most_listed: int) -> list[str]:
    if node is None:
        return []
    if isinstance(node, BrokenNode):
        return [strong_etag(version) for version in node.documents.values()]
    if isinstance(node, ArrayNode):
        names = [field.name for field in node.metadata.dtype.fields]
        return [document_etag(node, field=name) for name in (None, *names)]
    return [document_etag(node, catalog.children(node, limit=most_listed)), document_etag(node)]
