"""Hyperslab's own member of ``.zarray`` or ``zarr.json``: ``"hyperslab": {"extent": [...], "doubt": [...], …}``.

``extent``: present while cells beyond the shape may hold data, which all lie inside it: a shrink has not cleared them
yet, or an append has not published them yet. ``doubt``: an extent in which late requests of a lost writer may still
take effect; removed when the shape has grown over it. ``appends``: the last appends with an idempotency key.
``stream``: the mark of a stream that writes to the array (see `streams.heads.StreamMark`). Other readers ignore it
(in Zarr v3 it has ``must_understand: false``); a writer that drops it only loses these guarantees.
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
    """The shape that holds all data; None if none lies beyond the array's."""
    noted, in_doubt = (_sizes(metadata.document, name, metadata.shape) for name in ("extent", "doubt"))
    return in_doubt if noted is None else larger(noted, in_doubt)


def doubtful_extent(metadata: ArrayMetadata) -> Shape | None:
    """The shape in which a late request may still store an absent chunk; None if there is none."""
    return _sizes(metadata.document, "doubt", metadata.shape)


def fenced(document: Mapping[str, Any], fence: str) -> dict[str, Any]:
    """A document that fences off a lost writer, which has read another version, and records as ``doubt`` where its late
    requests may take effect."""
    shape = document.get("shape")
    rank = len(shape) if isinstance(shape, list) else 0
    noted = [s for name in ("extent", "doubt") if (s := _sizes(document, name, (0,) * rank)) is not None]
    in_doubt = {"doubt": [max(sizes) for sizes in zip(*noted, strict=True)]} if noted else {}
    return _holding(document, {**_own(document), "fence": fence, **in_doubt})


def larger(first: Shape, second: Shape | None) -> Shape:
    """The smallest shape that holds both."""
    return first if second is None else tuple(map(max, first, second))


def remembered(metadata: ArrayMetadata) -> list[dict[str, Any]]:
    """The last appends with an idempotency key, published together with the shape, oldest first: ``key``, ``axis``,
    ``offset``, ``length``, and maybe the ``digest`` of their values. Invalid entries are left out: the document is
    untrusted."""
    entries = _own(metadata.document).get("appends")
    return [entry for entry in entries if _is_append(entry, metadata.shape)] if isinstance(entries, list) else []


def stream_mark(metadata: ArrayMetadata) -> Mapping[str, Any] | None:
    """The mark of a stream that writes to the array, unchecked; None if there is none."""
    mark = _own(metadata.document).get("stream")
    return mark if isinstance(mark, dict) else None


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


def with_own(metadata: ArrayMetadata, **changed: Any) -> ArrayMetadata:
    """The same metadata with other items of the own member, or without those that are None."""
    before = _own(metadata.document)
    changed = {name: list(value) if isinstance(value, tuple) else value for name, value in changed.items()}
    own = {name: member for name, member in {**before, **changed}.items() if member is not None}
    if doubtful_extent(metadata) == metadata.shape:  # all was stored since, so no condition of a late request holds
        own = {name: member for name, member in own.items() if name not in ("doubt", "fence")}
    return metadata if own == before else replace(metadata, document=_holding(metadata.document, own))


def _holding(document: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The document with another own member, or without one if that is empty."""
    others = {name: value for name, value in document.items() if name != OWN_MEMBER}
    marked = {"must_understand": False} if document.get("zarr_format") == 3 else {}
    return {**others, OWN_MEMBER: {**marked, **own}} if own else others
