"""Our own member of ``.zarray`` or ``zarr.json``: ``"hyperslab": {"extent": [...], "doubt": [...], "appends": [...]}``.

``extent`` is there while cells beyond the shape may hold data: what a shrink has cut off and not yet cleared, or what
an append has written and not yet published. All such cells lie inside the extent. ``doubt`` is an extent in which
requests of a writer that was cut off may still take effect; it is there until the shape has grown over it. ``appends``
are the last appends that had an idempotency key. ``stream`` is there while a stream writes to the array (see
`streams.record`). Readers ignore members they do not know; a writer that drops ours drops these promises with it, and
nothing else. In Zarr v3 it says itself that they may: ``must_understand: false``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hyperslab.engine.metadata import ArrayMetadata

OWN_MEMBER = "hyperslab"
LARGEST = (1 << 62) - 1
"""The largest size of an axis."""

Shape = tuple[int, ...]


def extent(metadata: ArrayMetadata) -> Shape | None:
    """The shape that holds all data, where that may be more than the array's; None where nothing lies beyond."""
    noted, in_doubt = (_sizes(metadata.document, name, metadata.shape) for name in ("extent", "doubt"))
    return in_doubt if noted is None else larger(noted, in_doubt)


def doubt(metadata: ArrayMetadata) -> Shape | None:
    """The shape in which a chunk that is absent may yet be stored by a late request; None if there is none."""
    return _sizes(metadata.document, "doubt", metadata.shape)


def fenced(document: Mapping[str, Any], fence: str) -> dict[str, Any]:
    """A document that differs from the one that a writer who was cut off has read, and remembers what that writer may
    have on its way."""
    shape = document.get("shape")
    rank = len(shape) if isinstance(shape, list) else 0
    noted = [s for name in ("extent", "doubt") if (s := _sizes(document, name, (0,) * rank)) is not None]
    in_doubt = {"doubt": [max(sizes) for sizes in zip(*noted, strict=True)]} if noted else {}
    return _holding(document, {**_own(document), "fence": fence, **in_doubt})


def with_extent(metadata: ArrayMetadata, sizes: Shape | None) -> ArrayMetadata:
    """The same metadata with another extent, or without one."""
    return _with_member(metadata, "extent", None if sizes is None else list(sizes))


def larger(first: Shape, second: Shape | None) -> Shape:
    """The smallest shape that holds both."""
    return first if second is None else tuple(map(max, first, second))


def remembered(metadata: ArrayMetadata) -> list[dict[str, Any]]:
    """The last appends with an idempotency key: ``key``, ``axis``, ``offset``, ``length``, and the ``digest`` of their
    values where it was stored; oldest first. What others have put there is left out: the document is untrusted."""
    entries = _own(metadata.document).get("appends")
    return [entry for entry in entries if _is_append(entry, metadata.shape)] if isinstance(entries, list) else []


def remember(metadata: ArrayMetadata, entry: dict[str, Any]) -> ArrayMetadata:
    """Put an append's key where the shape is: both are published in one step, so neither is there without the other."""
    return _with_member(metadata, "appends", [*remembered(metadata), entry][-64:])


def stream_mark(metadata: ArrayMetadata) -> Mapping[str, Any] | None:
    """What a stream that writes to the array has noted; None where there is none."""
    found = _own(metadata.document).get("stream")
    return found if isinstance(found, dict) else None


def with_stream_mark(metadata: ArrayMetadata, mark: Mapping[str, Any] | None) -> ArrayMetadata:
    """The same metadata with another mark of a stream, or without one."""
    return _with_member(metadata, "stream", None if mark is None else dict(mark))


def _is_append(entry: Any, shape: Shape) -> bool:
    if not (isinstance(entry, dict) and isinstance(entry.get("key"), str) and isinstance(entry.get("digest", ""), str)):
        return False
    numbers = [entry.get(name) for name in ("axis", "offset", "length")]
    return all(isinstance(n, int) and 0 <= n <= LARGEST for n in numbers) and entry["axis"] < len(shape)


def _sizes(document: Mapping[str, Any], name: str, shape: Shape) -> Shape | None:
    sizes = _own(document).get(name)
    if not isinstance(sizes, list) or len(sizes) != len(shape):
        return None
    if not all(isinstance(size, int) and 0 <= size <= LARGEST for size in sizes):
        return None
    return larger(shape, tuple(sizes))


def _own(document: Mapping[str, Any]) -> dict[str, Any]:
    member = document.get(OWN_MEMBER)
    return {k: v for k, v in member.items() if k != "must_understand"} if isinstance(member, dict) else {}


def _holding(document: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The document with another member of ours, or without one where there is nothing to say."""
    others = {name: value for name, value in document.items() if name != OWN_MEMBER}
    marked = {"must_understand": False} if document.get("zarr_format") == 3 else {}
    return {**others, OWN_MEMBER: {**marked, **own}} if own else others


def _with_member(metadata: ArrayMetadata, name: str, value: Any) -> ArrayMetadata:
    """The same metadata with a member of ours, or if it is None, without it."""
    before = _own(metadata.document)
    own = {member: known for member, known in {**before, name: value}.items() if known is not None}
    if doubt(metadata) == metadata.shape:  # all of it was stored since, and no late request finds what it expects
        own = {member: known for member, known in own.items() if member not in ("doubt", "fence")}
    return metadata if own == before else replace(metadata, document=_holding(metadata.document, own))
