"""Layouts in which suites run: Zarr v2, Zarr v3, and shards that hold as much as a chunk of those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

LAYOUTS: Final = ("v2", "v3", "shards")


def definition(layout: str, shape: Sequence[int], stored: Sequence[int], **members: Any) -> dict[str, Any]:
    """What creates an array of int32 of which ``stored`` is the shape of what lies under one key."""
    found: dict[str, Any] = {"shape": [*shape], "chunks": [*stored], "dtype": "<i4", **members}
    if layout != "v2":
        found["zarr_format"] = 3
    if layout == "shards":
        found |= {"shards": [*stored], "chunks": [size // 2 if size % 2 == 0 else 1 for size in stored]}
    return found


def key(layout: str, text: str) -> str:
    """The key of a document or a chunk in this layout, as Zarr v2 spells it with dots: ``a/.zarray``, ``a/1.0``."""
    folder, slash, name = text.rpartition("/")
    if layout == "v2" or not name:
        return text
    return f"{folder}{slash}" + ("zarr.json" if name.startswith(".z") else f"c/{name.replace('.', '/')}")
